"""``neocog models``: what is shipped, what it is, and whether it is whole."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from neocog.cli import options
from neocog.jsontext import to_json

app = typer.Typer(
    help="List, describe and check models.", no_args_is_help=True, rich_markup_mode=None
)


@app.callback()
def _group() -> None:
    """List, describe and check models."""


@app.command("list", cls=options.Command)
def list_them(as_json: options.Json = False) -> None:
    """List the shipped models."""
    from neocog.errors import ModelError
    from neocog.messages import printable
    from neocog.network.registry import list_files, models_dir

    entries = list_files()
    if not entries:
        raise ModelError(f"no models in {models_dir()}; install neocog again, or train one")
    if as_json:
        print(to_json([{"name": e.name, "path": str(e.path), "bytes": e.size} for e in entries]))
        return
    for entry in entries:
        print(printable(f"{entry.name:24s} {entry.size / 2**20:6.2f} MiB  {entry.path}"))


@app.command("show", cls=options.Command)
def show(
    name: Annotated[str, typer.Argument(metavar="NAME|PATH")] = options.DEFAULT_MODEL,
    as_json: options.Json = False,
) -> None:
    """Show the architecture and the card of a model."""
    from neocog.messages import printable
    from neocog.network.model import load_model
    from neocog.network.registry import FINDER, find_model
    from neocog.vision.finder_model import load_finder

    path = find_model(name)
    facts: dict[str, Any] = {"path": str(path), "bytes": path.stat().st_size}
    if path.stem == FINDER:
        finder = load_finder(path)
        facts |= {"id": finder.id, "card": finder.card}
    else:
        model = load_model(name)
        facts |= {
            "id": model.id,
            "preset": model.spec.name,
            "planes": list(model.planes),
            "thresholds": [layer.threshold for layer in model.s],
            "psi": model.psi,
            "rule": model.rule,
            "card": model.card,
        }
    if as_json:
        print(to_json(facts))
        return
    for key, value in [*list(facts.items())[:-1], *facts["card"].items()]:
        for i, line in enumerate(_lines(value)):
            print(printable(f"{key if i == 0 else '':19s} {line}"))


def _lines(value: Any) -> Iterator[str]:
    """A value of a card as lines: tables as rows, the rest in one."""
    if isinstance(value, list) and value and all(isinstance(row, list) for row in value):
        for row in value:
            yield "".join(f"{_short(cell):>6}" for cell in row)
    elif isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
        heads = list(value[0])
        yield "".join(f"{head:>12}" for head in heads)
        for row in value:
            yield "".join(f"{_short(row.get(head)):>12}" for head in heads)
    elif isinstance(value, dict):
        inner = {name: list(_lines(own)) for name, own in value.items() if _nested(own)}
        plain = [f"{name} {_short(own)}" for name, own in value.items() if name not in inner]
        if plain or not inner:
            yield ", ".join(plain) or "none"
        for name, lines in inner.items():
            yield f"{name}: {lines[0]}" if len(lines) == 1 else f"{name}:"
            yield from lines if len(lines) > 1 else ()
    else:
        yield str(value)


def _nested(value: Any) -> bool:
    """Whether a value of a card takes lines of its own."""
    return isinstance(value, dict) or (
        isinstance(value, list) and any(isinstance(row, list | dict) for row in value)
    )


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@app.command("verify", cls=options.Command)
def verify(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME|PATH", help="[default: all shipped models]")
    ] = None,
) -> None:
    """Check that models are complete and unchanged."""
    from neocog.errors import ModelError
    from neocog.evaluation.health import verify_model
    from neocog.messages import printable
    from neocog.network.registry import list_files, models_dir, shipped_digests

    shipped = {Path(name).stem for name in shipped_digests(models_dir())}
    wanted = names or sorted(shipped | {entry.name for entry in list_files()})
    if not wanted:
        raise ModelError("no models are shipped here; give a model file, or train one")
    broken = []
    for name in wanted:
        try:
            print(f"ok      {verify_model(name)}")
        except ModelError as error:
            broken.append(name)
            print(f"broken  {printable(str(error))}")
    if broken:
        raise ModelError(f"{len(broken)} of {len(wanted)} broken: {', '.join(broken)}")
