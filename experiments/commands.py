"""``neocog bench``: the network beside what a user would run instead."""

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neocog.cli import options
from neocog.errors import InputError, UsageError
from neocog.jsontext import to_json

if TYPE_CHECKING:
    from experiments.network.compare import Comparison
    from experiments.network.gpu import GpuComparison

_USUAL_SECONDS = 600.0

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
        from experiments.network.gpu import compare_on_gpu

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
        from experiments.network.compare import compare

        result = compare(loaded, batch=batch, rounds=rounds, onnx=onnx, peers=names)
    if as_json:
        print(to_json(result.to_dict()))
        return
    for line in result.lines():
        print(line)


@app.command("slayer")
def bench_slayer(
    device: options.Device = "auto",
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DATA", help="Folder with mnist [default: as fetched]."),
    ] = None,
    model: options.Model = "neocog-small",
    precision: options.Precision = None,
    sections: Annotated[
        str, typer.Option("--sections", metavar="NAME,...", help="Only these sections.")
    ] = "",
    sizes: Annotated[
        str,
        typer.Option("--sizes", metavar="K2/K3/K4,...", help="Networks whose layers are timed."),
    ] = "",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the result there, as JSON.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Less of everything.")] = False,
    as_json: options.Json = False,
) -> None:
    """The GPU paper's experiments (Ikeda et al. 2011): S-layers on CPU and GPU, its future work.

    Every system is checked against float64 before it is timed; exit code 1 if one is wrong or a
    section fails. Without a GPU the CPU's sections run. Sections already in the output file stay.
    """
    from experiments.slayer.experiment import Options, faults, merged, run_attended
    from experiments.slayer.report import lines
    from neocog.batch.device import choose_device

    earlier = _earlier(output)
    where = choose_device(device)
    words = tuple(name.strip() for name in sections.split(",") if name.strip())
    wanted = Options(
        device=where,
        data=data,
        model=model,
        precision=precision or "fp16",
        sections=words,
        quick=quick,
        **({"sizes": tuple(sizes.split(","))} if sizes else {}),
    )

    def keep(found: dict[str, Any]) -> None:  # sections that this run does not have stay
        _written(merged(earlier, found), output)

    result = run_attended(wanted, log=_told, keep=keep)
    print(to_json(result) if as_json else "\n".join(lines(result)))
    _end(faults(result))


@app.command("convpool")
def bench_convpool(
    cpu: Annotated[
        bool, typer.Option("--cpu", help="Operation counts alone: no GPU is needed.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Within a minute.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the result there, as JSON.")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option("--figures", metavar="FOLDER", help="Draw the figures there.")
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=1, help="What is left after this time is not run.")
    ] = _USUAL_SECONDS,
    tilings: Annotated[
        Path | None,
        typer.Option("--tilings", metavar="JSON", help="Write the quickest tilings of ours there."),
    ] = None,
    device: Annotated[
        str, typer.Option("--device", metavar="DEVICE", help="cuda or cuda:N.")
    ] = "cuda",
    as_json: options.Json = False,
) -> None:
    """Convolution with average pooling: fused filter, direct sum, and ours, beside cuDNN.

    Every system is checked against float64 before it is timed; exit code 1 if one of ours is
    wrong or fails.
    """
    from experiments.convpool import experiment as bench
    from experiments.convpool.report import section, write_figures

    _ready({"-o": output, "--tilings": tilings, "--figures": figures})
    save = partial(_written, path=output)
    words = _said("convpool", cpu=cpu, quick=quick, device=device, seconds=seconds, output=output)
    if cpu:
        result = bench.run_on_cpu(command=words)
    else:
        result = bench.run_attended(
            quick=quick, seconds=seconds, save=save, command=words, number=_number(device)
        )
    save(result)
    if figures is not None:
        write_figures(result, figures)
    _written(bench.tilings(result), tilings, indent=None)
    print(to_json(result) if as_json else section(result))
    _end(bench.faults(result))


@app.command("winograd")
def bench_winograd(
    cpu: Annotated[
        bool, typer.Option("--cpu", help="Counts and lane census alone: no GPU is needed.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Within a minute.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the result there, as JSON.")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option("--figures", metavar="FOLDER", help="Draw the figures there.")
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=1, help="What is left after this time is not run.")
    ] = _USUAL_SECONDS,
    device: Annotated[
        str, typer.Option("--device", metavar="DEVICE", help="cuda or cuda:N.")
    ] = "cuda",
    launches: Annotated[
        bool, typer.Option("--launches", help="Only launch the transforms, for a profiler.")
    ] = False,
    profile: Annotated[
        Path | None,
        typer.Option("--profile", metavar="CSV", help="Add a profile of --launches to --output."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Decomposed Winograd convolution (Lee and Kwak 2025) beside cuDNN and FFT.

    Every way is checked against float64 before it is timed; exit code 1 if one is wrong or fails.
    A profiler tells active lanes too: ncu --clock-control none --csv --page raw --metrics
    smsp__thread_inst_executed_per_inst_executed.ratio -k regex:filter_split
    python -m neocog bench winograd --launches > lanes.csv
    """
    from experiments.winograd import experiment as bench
    from experiments.winograd.report import section, write_figures

    if launches:
        bench.progress(f"{bench.run_launches(number=_number(device))} transforms launched")
        return
    _ready({"-o": output, "--figures": figures})
    save = partial(_written, path=output)
    words = _said("winograd", cpu=cpu, quick=quick, device=device, seconds=seconds, output=output)
    if profile is not None:
        result = bench.with_profile(output, profile)
        save(result)
    elif cpu:
        result = bench.run_on_cpu(quick=quick, save=save, log=bench.progress, command=words)
    else:
        result = bench.run_attended(
            quick=quick,
            save=save,
            log=bench.progress,
            seconds=seconds,
            command=words,
            number=_number(device),
        )
    if figures is not None:
        write_figures(result, figures)
    print(to_json(result) if as_json else section(result))
    _end(bench.faults(result))


@app.command("all")
def bench_all(
    json_path: Annotated[
        Path, typer.Option("--json", metavar="RESULTS", help="Write all results there, as JSON.")
    ],
    device: options.Device = "auto",
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DATA", help="Folder with mnist [default: as fetched]."),
    ] = None,
    only: Annotated[
        str, typer.Option("--only", metavar="NAME,...", help="Only these experiments.")
    ] = "",
    quick: Annotated[bool, typer.Option("--quick", help="Less of everything.")] = False,
) -> None:
    """Run every experiment of the papers; exit code 1 if anything fails or is wrong.

    The file is written as results come; neocog bench report makes the page of it.
    """
    from experiments.harness.all import faults, run_all
    from neocog.batch.device import choose_device

    _ready({"--json": json_path})
    results = run_all(
        choose_device(device),
        names=[name.strip() for name in only.split(",") if name.strip()],
        quick=quick,
        data=data,
        log=_told,
        keep=lambda found: _written(found, json_path),
    )
    _end(faults(results))


@app.command("report")
def bench_report(
    results: Annotated[
        list[Path], typer.Argument(metavar="RESULTS...", help="What the experiments wrote.")
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="The page; pages of all tables and figures go beside it."
        ),
    ] = Path("docs/experiments.md"),
) -> None:
    """Make the page of the experiments, every table and figure, from their results."""
    from experiments.harness.all import load, write_page

    for path in write_page(load(results), output):
        print(path)


def _number(device: str) -> int:
    """Return which GPU is meant."""
    kind, _, number = device.partition(":")
    if kind != "cuda" or not (number or "0").isdecimal():
        raise UsageError(f"--device {device}: wanted cuda or cuda:N; add --cpu to do without one")
    return int(number or 0)


def _said(
    name: str, *, cpu: bool, quick: bool, device: str, seconds: float, output: Path | None
) -> str:
    """Return the command that was given; of the output the file's name alone."""
    words = [f"neocog bench {name}", *["--cpu"] * cpu, *["--quick"] * quick]
    words += [f"--device {device}"] * (device != "cuda")
    words += [f"--seconds {seconds:g}"] * (seconds != _USUAL_SECONDS)
    return " ".join(words + ([f"-o {output.name}"] if output is not None else []))


def _earlier(path: Path | None) -> dict[str, Any]:
    """Return what the S-layers' result file holds before a run."""
    from experiments.harness.all import load

    _ready({"-o": path})
    if path is None or not path.exists():
        return {}
    found = load([path])
    if list(found) != ["slayer"]:
        raise InputError(f"{path}: a result of {', '.join(found)}; give another -o")
    return found["slayer"]


def _ready(places: Mapping[str, Path | None]) -> None:
    """Make the folders that a run writes to, and see now that it can; places by their options."""
    from neocog.files import check_output

    for option, place in places.items():
        if place is not None:
            check_output(place, option, folder=option == "--figures", make=True)


def _written(found: Any, path: Path | None, *, indent: int | None = 1) -> None:
    """Write a result, whole or not at all, if a file was named."""
    from neocog.files import atomic_write

    if path is not None:
        with atomic_write(path) as stream:
            stream.write(to_json(found, indent=indent).encode() + b"\n")


def _end(wrong: Sequence[str]) -> None:
    """Tell what is wrong, and end with exit code 1 if anything is."""
    for line in wrong:
        _told(f"WRONG {line}")
    if wrong:
        raise typer.Exit(1)


def _told(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
