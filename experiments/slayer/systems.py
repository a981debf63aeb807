"""Every neocognitron that was made quick, from 1990 to ours as measured: the paper's Table 1."""

from typing import Any

from experiments.slayer import paper

Row = dict[str, Any]
#: Columns of the table of all systems, ...
COLUMNS = ("year", "system", "on", "picture", "a character", "characters a second")
#: ... sections that its rows of ours come from, and all those that time whole passes of a model.
OURS = ("cpu_frame", "character", "devices")
PASSES = (*OURS, "in_flight", "overlap", "energy")


def made_on(result: Row, name: str) -> Row:
    """Return the command, machine, CPU, commit, date and model that a section comes from."""
    found: Row = result.get("from", {}).get(name, result)
    return found


def passes_of(result: Row, name: str) -> str:
    made = made_on(result, name)
    on_gpu = f", {made.get('precision')}" if name != "cpu_frame" else ""
    return f"{made.get('model') or result.get('model')}{on_gpu}"


def number(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}".replace(",", " ")


def systems(result: Row) -> list[tuple[str, ...]]:
    """Return the paper's Table 1, the paper itself, ours as measured: a row for each system."""
    rows: list[tuple[str, ...]] = [
        (str(year), who, where, picture, says, number(1 / seconds))
        for year, who, where, picture, says, seconds in paper.EARLIER
    ]
    sections = result["sections"]

    def ours(name: str, more: str, where: str, us: float) -> None:
        time = f"{1e-3 * us:.2g} ms" if us >= 1000 else f"{us:.3g} us"
        what = passes_of(result, name) + more
        rows.append((result["date"][:4], what, where, "65x65", time, number(1e6 / us)))

    for row in sections.get("cpu_frame", ()):
        if row["threads"] == 1:
            cpu = str(made_on(result, "cpu_frame").get("cpu") or "").partition(" of ")[2]
            ours("cpu_frame", "", f"one core of {cpu or 'a CPU'}", 1e3 * row["ms_1"])
    for row in sections.get("character", ()):
        if row["batch"] == 1:
            machine = str(made_on(result, "character").get("machine"))
            ours("character", ", one at a time", machine, row["in_all_us"])
    for row in sections.get("devices", ()):
        machine = str(made_on(result, "devices").get("machine"))
        where = machine if row["gpus"] == 1 else f"{row['gpus']} {machine}"
        ours("devices", f", batches of {row['batch']}", where, 1e6 / row["per_second"])
    return rows
