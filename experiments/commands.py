"""The commands of ``neocog bench``."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments.harness import run
from experiments.harness.pages import text, write_pages
from experiments.harness.run import USUAL_SECONDS, Request, Result
from neocog.cli import options
from neocog.cli.options import option
from neocog.errors import InputError, UsageError
from neocog.files import atomic_write, check_output
from neocog.reading import device as devices
from neocog.text import to_json

if TYPE_CHECKING:
    from experiments.network.compare import Comparison
    from experiments.network.gpu import GpuComparison

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None)

Data = Annotated[Path | None, option("--data", "DATA", "Folder with mnist [default: the downloaded one].")]
Output = Annotated[Path | None, option("--output -o", "FILE", "Write the result to FILE, as JSON.")]
Seconds = Annotated[
    float, option("--seconds", "N", "Stop after so many seconds; the rest is skipped.", min=1)
]
Cuda = Annotated[str, option("--device", "DEVICE", "cuda or cuda:N.")]
Less = Annotated[bool, option("--quick", None, "A short run.")]
Quick = Annotated[bool, option("--quick", None, "A run of about a minute.")]
Cpu = Annotated[bool, option("--cpu", None, "Count operations only; needs no GPU.")]
Sections = Annotated[str, option("--sections", "NAME,...", "Only these sections.")]
Sizes = Annotated[str, option("--sizes", "K2/K3/K4,...", "Networks whose layers are timed.")]
Peers = Annotated[
    str,
    option(
        "--peers", "NAME,...", "Other software to compare with. CPU: onnxruntime, torch. GPU: torch, compile."
    ),
]


@app.command("network")
def bench_network(
    model: options.Model = options.DEFAULT_MODEL,
    device: options.Device = "cpu",
    batch: Annotated[int, option("--batch", "N", "Digits per pass.", min=1)] = 8,
    precision: options.Precision = None,
    plan: options.Plan = "default",
    peers: Peers = "",
    rounds: Annotated[int, option("--rounds", "N", "Interleaved rounds.", min=1)] = 30,
    as_json: options.Json = False,
) -> None:
    """Compare the speed of the network with other software.

    The scores of all implementations are compared before anything is timed.
    """
    from neocog.network.model import load_model

    loaded = load_model(model)
    names = _names(peers)
    result: Comparison | GpuComparison
    where = devices.choose_device(device)
    if where != "cpu":
        from experiments.network.gpu import compare_on_gpu

        result = compare_on_gpu(
            loaded,
            batch=batch,
            precision=precision,
            plans=(plan,),
            number=int(where.partition(":")[2] or 0),
            peers=names,
            rounds=rounds,
            host=True,
        )
    else:
        from experiments.network.compare import compare

        result = compare(loaded, batch=batch, rounds=rounds, peers=names)
    if as_json:
        print(to_json(result.to_dict()))
        return
    for line in result.lines():
        print(line)


@app.command("slayer")
def bench_slayer(
    device: options.Device = "auto",
    data: Data = None,
    model: options.Model = "neocog-small",
    precision: options.Precision = None,
    sections: Sections = "",
    sizes: Sizes = "",
    output: Output = None,
    quick: Less = False,
    as_json: options.Json = False,
) -> None:
    """Time S-layers on CPU and GPU as the GPU paper (Ikeda 2011) did, and its proposed extensions.

    Every system is checked against float64 before it is timed; exit code 1 if one is wrong or a
    section fails. Without a GPU the CPU's sections run. Existing sections in FILE are kept.
    """
    from experiments.slayer.experiment import check_sections, merged

    earlier = _earlier(output)
    wanted = Request(
        device=devices.choose_device(device),
        data=data,
        model=model,
        precision=precision or "fp16",
        sizes=tuple(sizes.split(",") if sizes else ()),
        sections=tuple(_names(sections)),
        quick=quick,
    )
    check_sections(wanted.sections, wanted.on_gpu)

    def keep(found: Result) -> None:  # sections that this run does not have stay
        _written(merged(earlier, found), output)

    _told("slayer", run.run("slayer", wanted, keep), as_json)


@app.command("convpool")
def bench_convpool(
    cpu: Cpu = False,
    quick: Quick = False,
    output: Output = None,
    seconds: Seconds = USUAL_SECONDS,
    device: Cuda = "cuda",
    as_json: options.Json = False,
) -> None:
    """Time convolution with average pooling: fused, direct sum, ours, cuDNN.

    Every system is checked against float64 before it is timed; exit code 1 if one of ours is
    wrong or fails.
    """
    _ready({"-o": output})
    _told("convpool", _run("convpool", cpu, quick, device, seconds, output), as_json)


@app.command("winograd")
def bench_winograd(
    cpu: Cpu = False,
    quick: Quick = False,
    output: Output = None,
    seconds: Seconds = USUAL_SECONDS,
    device: Cuda = "cuda",
    launches: Annotated[
        bool, option("--launches", None, "Only launch the transforms, for a profiler.")
    ] = False,
    profile: Annotated[
        Path | None, option("--profile", "CSV", "Add a profile of --launches to --output.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Compare decomposed Winograd convolution with cuDNN and FFT (Lee and Kwak 2025).

    Every method is checked against float64 before it is timed; exit code 1 if one is wrong.
    For active lanes, run a profiler: ncu --clock-control none --csv --page raw --metrics
    smsp__thread_inst_executed_per_inst_executed.ratio -k regex:filter_split
    python -m neocog bench winograd --launches > lanes.csv
    """
    from experiments.winograd import experiment

    if launches:
        run.progress(f"{experiment.run_launches(number=_number(device))} transforms launched")
        return
    _ready({"-o": output})
    if profile is not None:
        result = experiment.with_profile(output, profile)
        _written(result, output)
    else:
        result = _run("winograd", cpu, quick, device, seconds, output)
    _told("winograd", result, as_json)


@app.command("all")
def bench_all(
    json_path: Annotated[Path, option("--json", "RESULTS", "Write all results to RESULTS, as JSON.")],
    device: options.Device = "auto",
    data: Data = None,
    only: Annotated[str, option("--only", "NAME,...", "Only these experiments.")] = "",
    quick: Less = False,
) -> None:
    """Run all experiments; exit code 1 if one fails or is wrong.

    Results are written after each experiment. neocog bench report makes tables and plots from them.
    """
    _ready({"--json": json_path})
    where, names = devices.choose_device(device), _names(only)
    words = [f"neocog bench all --device {where}", *["--quick"] * quick]
    request = Request(device=where, quick=quick, data=data, command=" ".join(words))
    _end(run.faults(run.run_all(names, request, partial(_written, path=json_path))))


@app.command("report", cls=options.Command)
def bench_report(
    results: Annotated[
        list[Path], typer.Argument(metavar="RESULTS", help="Result files of the experiments.")
    ],
    output: Annotated[
        Path, option("--output -o", "FILE", "Page to write; tables and figures go beside it.")
    ] = Path("experiments/README.md"),
) -> None:
    """Draw all tables and figures from the results."""
    for path in write_pages(run.load(results), output):
        print(path)


def _names(words: str) -> list[str]:
    return [name.strip() for name in words.split(",") if name.strip()]


def _number(device: str) -> int:
    """Return which GPU is meant."""
    kind, _, number = device.partition(":")
    if kind != "cuda" or not (number or "0").isdecimal():
        raise UsageError(f"--device {device}: expected cuda or cuda:N; add --cpu to do without one")
    return int(number or 0)


def _run(name: str, cpu: bool, quick: bool, device: str, seconds: float, output: Path | None) -> Result:
    """Run an experiment and keep its result; the command is told with the output's name alone."""
    words = [f"neocog bench {name}", *["--cpu"] * cpu, *["--quick"] * quick]
    words += [f"--device {device}"] * (device != "cuda")
    words += [f"--seconds {seconds:g}"] * (seconds != USUAL_SECONDS)
    words += [f"-o {output.name}"] if output is not None else []
    where = "cpu" if cpu else f"cuda:{_number(device)}"
    save = partial(_written, path=output)
    result = run.run(name, Request(where, quick, seconds, command=" ".join(words)), save)
    save(result)
    return result


def _earlier(path: Path | None) -> Result:
    """Return what the S-layers' result file holds before a run."""
    _ready({"-o": path})
    if path is None or not path.exists():
        return {}
    found = run.load([path])
    if list(found) != ["slayer"]:
        raise InputError(f"{path}: a result of {', '.join(found)}; choose another -o")
    return found["slayer"]


def _ready(places: dict[str, Path | None]) -> None:
    """Make the folders that a run writes to, and see now that it can; places by their options."""
    for name, place in places.items():
        if place is not None:
            check_output(place, name, make=True)


def _written(found: Any, path: Path | None) -> None:
    """Write a result, whole or not at all, if a file was named."""
    if path is not None:
        with atomic_write(path) as stream:
            stream.write(to_json(found, indent=1).encode() + b"\n")


def _told(name: str, result: Result, as_json: bool) -> None:
    """Print a result, and end with exit code 1 if anything in it is wrong."""
    print(to_json(result) if as_json else text(name, result))
    _end(run.faults({name: result}))


def _end(wrong: Sequence[str]) -> None:
    for line in wrong:
        run.progress(f"WRONG {line}")
    if wrong:
        raise typer.Exit(1)
