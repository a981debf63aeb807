"""``neocog bench``: the network beside what a user would run instead."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from neocog.cli import options

if TYPE_CHECKING:
    from neocog.bench.compare import Comparison
    from neocog.bench.network_bench import GpuComparison

app = typer.Typer(help="Benchmarks.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """Benchmarks."""


@app.command("network")
def bench_network(
    model: options.Model = options.DEFAULT_MODEL,
    device: options.Device = "cpu",
    batch: Annotated[int, typer.Option("--batch", min=1, help="Digits per pass.")] = 8,
    precision: options.Precision = None,
    plan: options.Plan = "default",
    peers: Annotated[
        str,
        typer.Option(
            "--peers",
            metavar="NAME,...",
            help="Who runs beside it. CPU: onnxruntime, torch. GPU: torch, compile, autotune.",
        ),
    ] = "",
    onnx: Annotated[
        bool, typer.Option("--onnx", help="Beside onnxruntime: --peers onnxruntime.")
    ] = False,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Interleaved rounds.")] = 30,
    as_json: options.Json = False,
) -> None:
    """Time the network beside the same network in other software, in the same run.

    The scores of all sides are compared before anything is timed.
    """
    from neocog.batch.device import choose_device
    from neocog.network.model import load_model

    loaded = load_model(model)
    names = [name.strip() for name in peers.split(",") if name.strip()]
    result: Comparison | GpuComparison
    where = choose_device(device)
    if where != "cpu":
        from neocog.bench.network_bench import compare_on_gpu

        result = compare_on_gpu(
            loaded,
            batch=batch,
            precision=precision,
            plans=(plan,),
            number=int(where.partition(":")[2] or 0),
            peers=["onnxruntime"] * onnx + names,
            rounds=rounds,
            host=True,
            log=lambda line: print(line, file=sys.stderr),
        )
    else:
        from neocog.bench.compare import compare

        result = compare(loaded, batch=batch, rounds=rounds, onnx=onnx, peers=names)
    if as_json:
        print(json.dumps(result.to_dict()))
        return
    for line in result.lines():
        print(line)
