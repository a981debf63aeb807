"""``neocog explain``, ``export``, ``doctor`` and ``bench``."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from neocog.cli import options
from neocog.cli.options import flag, option
from neocog.errors import InputError, NothingToRead, UsageError
from neocog.files import atomic_write
from neocog.network.registry import DEFAULT, LINES, find_model, kind_of
from neocog.text import to_json

_SOURCE = Path(__file__).resolve().parents[2]
#: All words of ``neocog bench`` are for the experiments' own commands.
OF_BENCH = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def explain(
    picture: Annotated[str, typer.Argument(metavar="PICTURE", help="A picture of numbers.")],
    digit: Annotated[int | None, option("N", "Which digit, or ?, of those that 'neocog read' prints, from "
        f"1. Its answer by the digit model {DEFAULT}, or --model, is explained.", min=1)] = None,
    line: Annotated[int | None, option("N",
        "Which line, from the top [default: 1, without --digit].", min=1)] = None,
    output: Annotated[str | None, option("FILE", "Draw it over the ink: why.png.", "-o", "--output")] = None,
    maps: Annotated[str | None, option("FILE", "Draw every plane of every layer.")] = None,
    model: Annotated[str | None, option("NAME|PATH",
        f"A shipped model, or a model file [default: {LINES}; with --digit or --maps {DEFAULT}].")] = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:  # fmt: skip
    """Say why a line, or a digit, was read so by 'neocog read' (with the same --model, if one is given).

    A line: where each character stands, and which planes of US4 spoke for it. A digit: which
    planes and places of US4, US3 and US2 carried its answer. What is named is taken away, one after
    another, and the network answers again; and what the runner-up lacked is put in until it wins.
    """
    from neocog.evaluation import explain as why
    from neocog.reading.results import DRAWN

    lines = digit is None and maps is None if model is None else kind_of(find_model(model)) == "lines"
    for name, value in (("--digit", digit), ("--maps", maps)) if lines else (("--line", line),):
        if value is not None:
            kind = "lines" if lines else "digits"
            if model is None:
                raise UsageError("--line explains a line, --digit and --maps a digit; leave one of them out")
            raise UsageError(f"{name} is not for model {model}, which reads {kind}; leave {name} out")
    formats = {}
    for name, path in (("-o", output), ("--maps", maps)):
        if path is not None:
            options.check_new(path, name, force=force)
            formats[path] = DRAWN.get(Path(path).suffix.lower())
            if formats[path] is None:
                raise UsageError(f"{path}: expected a name that ends in .png or .jpg")
    try:
        if lines:
            found: Any = why.explain_line(picture, line=line or 1, model=model or LINES)
        else:
            found = why.explain(picture, digit=digit or 1, model=model)
    except (InputError, NothingToRead) as error:
        raise type(error)(f"{picture}: {error}") from None
    print(to_json(found.to_dict()) if as_json else found)
    for path, draw in ((output, "plot"), (maps, "plot_maps")):
        if path is not None:
            with atomic_write(path) as stream:
                getattr(found, draw)().save(stream, format=formats[path])


def export(
    name: Annotated[str, typer.Argument(metavar="NAME|PATH", help="A model, or 'finder'.")] = DEFAULT,
    output: Annotated[str, option("FILE.onnx", "Where to write it.", "-o", "--output")] = "",
    maps: Annotated[bool, flag("With the responses of every layer as outputs.")] = False,
    force: options.Force = False,
) -> None:  # fmt: skip
    """Write a model, or the network that finds digits, as an ONNX file.

    A model takes digits of 28 x 28 pixels and gives labels, probabilities and scores, or, of lines, strips
    of 48 rows and gives log likelihoods of characters; the finder takes a grey picture and gives boxes.
    """
    from neocog.network.lines import LineModel, load_any
    from neocog.network.onnx import OPSET, lines_to_onnx, model_to_onnx
    from neocog.vision.finder_model import load_finder
    from neocog.vision.finder_onnx import finder_to_onnx

    path = find_model(name)
    target = Path(output or f"{path.stem}.onnx")
    options.check_new(target, "-o", force=force)
    whole: Any
    if kind_of(path) == "finder":
        if maps:
            raise UsageError("--maps is for models; leave it out with the finder")
        data = finder_to_onnx(whole := load_finder(path))
    elif isinstance(whole := load_any(path), LineModel):
        data = lines_to_onnx(whole, maps=maps)
    else:
        data = model_to_onnx(whole, maps=maps)
    with atomic_write(target) as stream:
        stream.write(data)
    print(f"{target}: {whole.id}, ONNX opset {OPSET}, {len(data) / 2**20:.1f} MiB")


def doctor(as_json: options.Json = False) -> None:
    """Check this machine and report what is missing. Exit code 1 if neocog cannot read here."""
    from neocog import __version__
    from neocog.evaluation.health import examine

    if not as_json:
        print(f"neocog {__version__}")
    checks = []
    for check in examine():
        checks.append(check)
        if not as_json:
            print(f"{check.level:5s} {check.name:8s} {check.found}", flush=True)
            print(f"{'':14s} -> {check.advice}\n" * bool(check.advice), end="")
    if as_json:
        print(to_json({"version": __version__, "checks": [c._asdict() for c in checks]}))
    if any(check.level == "fail" for check in checks):
        raise typer.Exit(1)


def bench(context: typer.Context) -> None:
    """Run the experiments (in a clone)."""
    if not all((_SOURCE / name).is_file() for name in ("experiments/commands.py", "pyproject.toml")):
        more = 'there: pip install -e ".[bench]" && neocog bench --help'
        raise UsageError(f"the experiments need a clone of neocog; {more}")
    if str(_SOURCE) not in sys.path:
        sys.path.append(str(_SOURCE))
    from experiments.commands import app

    code = app(context.args or ["--help"], prog_name="neocog bench", standalone_mode=False)
    if isinstance(code, int):
        raise typer.Exit(code)
