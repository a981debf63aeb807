"""``neocog bench``: the network beside what a user would run instead."""

import json
from typing import Annotated

import typer

from neocog.cli import options

app = typer.Typer(help="Benchmarks.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """Benchmarks."""


@app.command("network")
def bench_network(
    model: options.Model = options.DEFAULT_MODEL,
    onnx: Annotated[bool, typer.Option("--onnx", help="Beside onnxruntime.")] = False,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Digits per pass.")] = 8,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Interleaved rounds.")] = 30,
    as_json: options.Json = False,
) -> None:
    """Time the network, and with --onnx the same network in onnxruntime in the same run.

    The outputs of both are compared before anything is timed.
    """
    from neocog.bench.compare import compare
    from neocog.network.model import load_model

    result = compare(load_model(model), batch=batch, rounds=rounds, onnx=onnx)
    if as_json:
        print(json.dumps(result.to_dict()))
        return
    for line in result.lines():
        print(line)
