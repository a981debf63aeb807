"""The commands of ``neocog bench``."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from experiments.harness import run
from experiments.harness.pages import fill, markdown, text
from experiments.harness.run import FOLDER, NAMES, Request, Result
from neocog.cli import options
from neocog.cli.options import flag, option
from neocog.errors import InputError
from neocog.files import atomic_write, check_output
from neocog.network.registry import DEFAULT
from neocog.programs import python
from neocog.reading import device as devices
from neocog.text import to_json

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None)

Data = Annotated[Path | None, option("DATA", "Folder with mnist [default: the downloaded one].")]
Output = Annotated[Path | None, option("FILE", "Write the result to FILE, as JSON.", "--output", "-o")]
Folder = Annotated[Path, option("FOLDER", "Write here.", "--output", "-o")]
Seconds = Annotated[float, option("N", "Stop after so many seconds; the rest is skipped.", min=1)]
Quick = Annotated[bool, flag("A run of about a minute.")]
Sections = Annotated[str, option("NAME,...", "Only these sections (slayer).")]
Sizes = Annotated[str, option("K2/K3/K4,...", "Networks whose layers are timed (slayer).")]
Peers = Annotated[str, option(
    "NAME,...", "Compare with. CPU: onnxruntime, torch. GPU: torch, compile.")]  # fmt: skip


@app.command("network")
def bench_network(
    model: options.Model = DEFAULT,
    device: options.Device = "cpu",
    batch: Annotated[int, option("N", "Digits per pass.", min=1)] = 8,
    precision: options.Precision = None,
    plan: options.Plan = "default",
    peers: Peers = "",
    rounds: Annotated[int, option("N", "Interleaved rounds.", min=1)] = 30,
    as_json: options.Json = False,
) -> None:
    """Compare the speed of the network with other software.

    The scores of all implementations are compared before anything is timed.
    """
    from experiments.network.compare import compare, compare_on_gpu
    from neocog.network.model import load_model

    loaded, where, names = load_model(model), devices.choose_device(device), _names(peers)
    if where == "cpu":
        result = compare(loaded, batch=batch, rounds=rounds, peers=names)
    else:
        number = int(where.partition(":")[2] or 0)
        result = compare_on_gpu(loaded, batch=batch, precision=precision, plans=(plan,), number=number,
                                peers=names, rounds=rounds)  # fmt: skip
    print(to_json(result.to_dict()) if as_json else "\n".join(result.lines()))


def paper(name: str, about: str) -> Callable[..., None]:
    def bench(
        device: options.Device = "auto", data: Data = None, sections: Sections = "", sizes: Sizes = "",
        output: Output = None, seconds: Seconds = 600.0, quick: Quick = False, as_json: options.Json = False,
    ) -> None:  # fmt: skip
        if output is not None:
            check_output(output, "-o", make=True)
        experiment, where = run.of(name), devices.choose_device(device)
        last = ",".join(size if size[0].isdigit() else Path(size).name for size in _names(sizes))
        given = {"data": data and "DATA", "sections": sections, "sizes": last,
                 "seconds": "" if seconds == 600 else f"{seconds:g}"}  # fmt: skip
        words = [f"--{key} {value}" for key, value in given.items() if value] + ["--quick"] * quick
        command = " ".join([f"neocog bench {name} --device {where}", *words])
        request = Request(where, quick, seconds, data, command, _names(sizes), _names(sections))
        earlier: Result = run.load(output) if output is not None and output.exists() else {}
        if earlier and earlier["experiment"] != name:
            raise InputError(f"{output}: a result of {earlier['experiment']}; choose another -o")
        if request.on_gpu:
            run.need_device(request.number)

        def save(found: Result) -> None:
            if output is not None:
                with atomic_write(output) as stream:
                    stream.write(to_json(_merged(earlier, found), indent=1).encode() + b"\n")

        result = {"experiment": name, **experiment.measure(request, save)}
        save(result)
        print(to_json(result) if as_json else text(run.of(name, "tables").tables(result)))
        wrong = experiment.faults(result)
        for line in wrong:
            run.progress(f"WRONG {line}")
        if wrong:
            raise typer.Exit(1)

    bench.__doc__ = about
    return bench


_CHECKED = """

    Every system is checked against float64 before it is timed; exit code 1 if one of ours is wrong or fails.
    --device cpu does what needs no GPU. Sections that FILE holds already stay.
    """
for _name, _about in (
    ("slayer", "Time S-layers as the GPU paper (Ikeda 2011) did."),
    ("convpool", "Time convolution with average pooling: fused, direct sum, ours, cuDNN."),
    ("winograd", "Compare decomposed Winograd (Lee and Kwak 2025) with cuDNN and FFT."),
):
    app.command(_name)(paper(_name, _about + _CHECKED))


@app.command("all")
def bench_all(
    output: Folder, device: options.Device = "auto", data: Data = None, quick: Quick = False
) -> None:
    """Run the three papers' experiments; results are NAME.json of FOLDER. Exit code 1 if one fails."""
    words = ["--device", devices.choose_device(device), *(["--data", str(data)] if data else [])]
    words += ["--quick"] * quick
    check_output(output / "slayer.json", "-o", make=True)
    code = 0
    for name in NAMES:  # in processes of their own: what breaks the device for one does not touch others
        own = [*python("-m", "neocog"), "bench", name, *words, "-o", str(output / f"{name}.json")]
        code |= subprocess.run(own).returncode
    raise typer.Exit(int(code != 0))


@app.command("report", cls=options.Command)
def bench_report(
    results: Annotated[list[Path], typer.Argument(
        metavar="RESULTS", help="Result files of the experiments.")],
    output: Folder = FOLDER,
) -> None:  # fmt: skip
    """Write each experiment's page and plots, below FOLDER/NAME, from its result."""
    for result in map(run.load, results):
        name, page = result["experiment"], output / result["experiment"] / "README.md"
        figures = page.with_name("figures")
        figures.mkdir(parents=True, exist_ok=True)
        for key, plot in run.of(name, "tables").plots(result).items():
            plot.draw(figures / f"{name}-{key}.svg")
        page.write_text(page_of(result), encoding="utf-8")
        print(page)


def page_of(result: Result) -> str:
    """Return an experiment's page, its tables made anew."""
    tables = run.of(result["experiment"], "tables").tables(result)
    page = (FOLDER / result["experiment"] / "README.md").read_text(encoding="utf-8")
    return fill(page, lambda key: markdown(tables[key]) if key in tables else "Not measured.")


def _merged(earlier: Result, result: Result) -> Result:
    """Return a result with an earlier one's other sections; ``from`` tells what made each."""
    if "sections" not in result:
        return result
    own = {key: result.get(key) for key in "command machine cpu date commit digits model".split()}
    return result | {"sections": earlier.get("sections", {}) | result["sections"],
                     "from": earlier.get("from", {}) | dict.fromkeys(result["sections"], own)}  # fmt: skip


def _names(words: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in words.split(",") if name.strip())
