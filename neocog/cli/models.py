"""``neocog models``: what is shipped, what it is, and whether it is whole."""

from pathlib import Path
from typing import Annotated, Any

import typer

from neocog.cli import options
from neocog.cli.options import flag
from neocog.errors import ModelError
from neocog.network.registry import LINES, list_files, models_dir, shipped_digests
from neocog.text import printable, to_json

app = typer.Typer(help="List, describe and check models.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list", cls=options.Command)
def list_them(as_json: options.Json = False) -> None:
    """List the shipped models: how well they read, and how fast here, on the CPU."""
    from neocog.evaluation.health import about

    found: list[dict[str, Any]] = []
    for path in list_files():
        found.append({"name": path.stem, "path": str(path), "bytes": path.stat().st_size})
        try:
            found[-1] |= about(path)
            del found[-1]["card"]
        except ModelError as error:
            found[-1]["error"] = str(error)
    if not found:
        raise ModelError(f"no models in {models_dir()}; install neocog again, or train one")
    if as_json:
        print(to_json(found))
        return
    print(f"{'name':14s}{'kind':8s}{'MNIST':>9}{'USPS':>9}{'ms here':>9}{'MiB':>7}  reads")
    for own in found:
        shares = (own.get("accuracy", {}).get(name) for name in ("MNIST", "USPS"))
        cells = ["-" if share is None else f"{100 * share:.2f} %" for share in shares]
        cells.append("-" if "ms" not in own else f"{own['ms']:.2f}")
        numbers = "".join(f"{cell:>9}" for cell in cells) + f"{own['bytes'] / 2**20:7.2f}"
        reads = own.get("error") or own["reads"]
        print(printable(f"{own['name']:14s}{own.get('kind', '-'):8s}{numbers}  {reads}"))


@app.command("show", cls=options.Command)
def show(
    name: Annotated[str, typer.Argument(metavar="NAME|PATH")] = LINES,
    card: Annotated[bool, flag("Print the complete card: training, accuracy, thresholds.")] = False,
    as_json: options.Json = False,
) -> None:
    """Show what a model reads, how well, how fast, and where it comes from."""
    from neocog.evaluation.health import about

    facts = about(name)
    if as_json:
        print(to_json(facts))
        return
    rows = facts.pop("card")
    if not card:
        right = (f"{100 * share:.2f} % of {kind}" for kind, share in facts["accuracy"].items())
        facts["accuracy"] = ", ".join(right) or _of_numbers(rows) or "not measured"
        facts["ms"] = f"{facts['ms']:.2f}, here on the CPU (a GPU: neocog timing --device cuda)"
        facts["bytes"] = f"{facts['bytes']:,}".replace(",", " ")
        facts |= {"learned from": rows["data"]} if "data" in rows else {}
        rows = {"more": "add --card for training, thresholds and every measurement"}
    for key, value in {**facts, **rows}.items():
        for i, line in enumerate(_lines(value)):
            print(printable(f"{key if i == 0 else '':19s} {line}"))


def _of_numbers(card: dict[str, Any]) -> str:
    """What a line model prints, and how much of it is wrong; "" if its card does not say."""
    least = card.get("reading", {}).get("min_p", 0.0)
    try:
        every = sum(card["rejection"]["numbers"].values())
        row = next(row for row in card["rejection"]["table"] if row["p"] >= least)
        answered, wrong = int(row["answered"]), int(row["errors"])
    except (AttributeError, KeyError, OverflowError, StopIteration, TypeError, ValueError):
        return ""
    told = f"{answered} of {every} numbers are printed from p {row['p']:.2f} on, {wrong} of them wrong"
    return told if every else ""


def _lines(value: Any) -> list[str]:
    """A value of a card as lines of JSON: of a table each row, of a dictionary with tables each key."""
    if isinstance(value, dict) and any(isinstance(own, list | dict) for own in value.values()):
        return [f"{key}: {line}" for key, own in value.items() for line in _lines(own)]
    rows = value if isinstance(value, list) and value and isinstance(value[0], list | dict) else [value]
    return [row if isinstance(row, str) else to_json(row) for row in rows]


@app.command("verify", cls=options.Command)
def verify(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME|PATH", help="[default: all shipped models]")
    ] = None,
) -> None:
    """Check that models are complete and unchanged."""
    from neocog.evaluation import health

    shipped = {Path(name).stem for name in shipped_digests(models_dir())}
    wanted = names or sorted(shipped | {path.stem for path in list_files()})
    if not wanted:
        raise ModelError("no models are shipped here; give a model file, or train one")
    broken = []
    for name in wanted:
        try:
            print(f"ok      {health.verify(name)}")
        except ModelError as error:
            broken.append(name)
            print(f"broken  {printable(str(error))}")
    if broken:
        raise ModelError(f"{len(broken)} of {len(wanted)} broken: {', '.join(broken)}")
