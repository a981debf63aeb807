"""The page's paragraphs on the GPU paper: what was claimed, what was found, and why.

Every number comes from the result; a sentence that would be wrong with other numbers is chosen by
them.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import log2
from typing import Any

from experiments.harness.markdown import between, rest
from experiments.harness.markdown import table as markdown
from experiments.slayer import paper
from experiments.slayer.inputs import STAGES
from experiments.slayer.ladder import WANTED_GAIN, gains, sums, systems_of
from experiments.slayer.tables import NONE, SHORT, made_on, missing, number, rows_of
from neocog.evaluation.figures import Axis, Line, standalone

Row = dict[str, Any]
TITLE = "The neocognitron's S-layers on a GPU (Ikeda et al. 2011)"
FIGURE = "slayer-ladder"
_SHOWN = ("T1", "T3", "T4", "T5", "skip", "ours, auto, fp32", "ours, auto, fp16")
MANY = "256"
_BUSY = 50.0  # percent of a unit's best at which it may be what holds a kernel up
_FEW_BLOCKS = 64  # leave half of a large GPU's multiprocessors without work
_EVEN = 1.02  # what counts as quicker


def summary(result: Row, *, figures: str, full: str) -> str:
    """Return the part of ``docs/experiments.md`` on this paper.

    Parameters
    ----------
    result : dict
        What ``neocog bench slayer`` writes.
    figures : str
        Folder of the figures, as a link from the page.
    full : str
        The page of all tables, as a link.
    """
    theirs = [a / b for a, b in zip(paper.GPU_US["T1"], paper.GPU_US["T5"], strict=True)]
    whole = paper.CHARACTER_MS
    parts = [
        f"## {TITLE}",
        "**Claimed** (GTX 280): a ladder of kernels, from one thread a cell (T1) over all planes "
        "of a place in a block (T3) and input shared by neighbouring places (T4) to a list of "
        f"inputs in constant memory (T5), is {between(theirs, '{:.1f}')} times as fast as T1 and "
        "8 to 20 times as fast as one CPU core; leaving out silent inputs, which helps the CPU, "
        f"could stall the GPU; one character in {whole['GPU T']} ms instead of {whole['CPU F']}. "
        "The plotted values of its Fig. 6: not in our copy.",
    ]
    rows = _rows(result)
    if rows:
        parts += [_table(result, rows), f"![times as fast as T1]({figures}/{FIGURE}.svg)"]
        parts += [_verdict(result, rows), _why(result, rows)]
    else:
        parts.append("**Not measured on a GPU yet.**")
    parts += [_whole(result), missing(result), rest(result, full)]
    return "\n\n".join(part for part in parts if part) + "\n"


def ladder_figure(result: Row) -> str:
    """Return how many times as fast as T1 each system is, by stage, one character at a time."""
    systems = systems_of(_rows(result), "1")
    first = systems.get("T1", {})
    lines = [
        Line(name, [(i, log2(first[stage]["us"]["1"] / cells[stage]["us"]["1"]))
                    for i, stage in enumerate(STAGES) if stage in cells and stage in first],
             dots=True)
        for name, cells in systems.items() if name in _SHOWN[1:]
    ]  # fmt: skip
    theirs = zip(paper.GPU_US["T1"], paper.GPU_US["T5"], strict=True)
    lines.append(
        Line("T5 on a GTX 280 (paper)", [(i, log2(a / b)) for i, (a, b) in enumerate(theirs)])
    )
    values = [y for line in lines for _, y in line.points]
    low, high = int(min([*values, 0.0]) - 0.999), int(max(values) + 0.999)
    names = {v: f"{2**v}" if v >= 0 else f"1/{2**-v}" for v in range(low, high + 1)}
    x = Axis("layer", -0.2, len(STAGES) - 0.8, list(enumerate(SHORT.values())))
    y = Axis("times as fast as T1", low, high, list(names.items()))
    return standalone(lines, x, y, title="The ladder, one character at a time")


# -- the ladder ------------------------------------------------------------------------------------
def _rows(result: Row) -> list[Row]:
    """Return the timed rows of the paper's network, or of the first there is."""
    rows = [row for row in rows_of(result, "ladder", "rows") if "us" in row]
    sizes = dict.fromkeys(row["planes"] for row in rows)
    size = paper.SIZE if paper.SIZE in sizes else next(iter(sizes), None)
    return [row for row in rows if row["planes"] == size]


def _table(result: Row, rows: Sequence[Row]) -> str:
    size = rows[0]["planes"]
    one, many = ({n: us for (s, n), us in sums(result, batch).items() if s == size}
                 for batch in ("1", MANY))  # fmt: skip
    table: list[tuple[str, ...]] = [
        ("system", *(f"{s}, us" for s in SHORT.values()), "all", "T1 / it",
         f"T1 / it, {MANY} at a time", "T1 / it in the paper, S1 .. S4")]  # fmt: skip
    for name, cells in systems_of(rows, "1").items():
        if name in _SHOWN and name in one:
            theirs = zip(paper.GPU_US["T1"], paper.GPU_US.get(name, ()), strict=False)
            table.append((
                name,
                *(f"{cells[stage]['us']['1']:.1f}" for stage in STAGES),
                f"{one[name]:.1f}",
                *(f"{all_[('T1')] / all_[name]:.2f}" if "T1" in all_ and name in all_ else NONE
                  for all_ in (one, many)),
                " / ".join(f"{a / b:.1f}" for a, b in theirs) or NONE,
            ))  # fmt: skip
    where = made_on(result, "ladder").get("machine")
    return (
        f"**Found** on an {where}, {size} planes, one character at a time (*skip*: silent inputs "
        "left out; *ours, auto*: the kernels that the plan chooses by trial):\n\n" + markdown(table)
    )


def _verdict(result: Row, rows: Sequence[Row]) -> str:
    size = rows[0]["planes"]
    by_stage = gains(rows)
    one, many = (sums(result, batch) for batch in ("1", MANY))
    text = "**Does it pay?**"
    if all((size, name) in one for name in ("T1", "T5")):
        whole = one[size, "T1"] / one[size, "T5"]
        below = [f"{name} ({gain:.2f})" for name, gain in by_stage.items() if gain < WANTED_GAIN]
        says, layers = "yes" if whole > _EVEN else "no", between(list(by_stage.values()), "{:.1f}")
        text += (
            f" The ladder, one character at a time: {says}, T5 is {whole:.1f} times as fast as T1, "
            f"by layer {layers}"
        )
        text += f"; less than {WANTED_GAIN:.0f} at {', '.join(below)}." if below else "."
    if all((size, name) in many for name in ("T1", "T5")):
        whole = many[size, "T1"] / many[size, "T5"]
        best = min(many, key=lambda key: many[key] if _rung(key, size) else float("inf"))
        text += f" {MANY} at a time: {'yes' if whole > _EVEN else 'no'}, {whole:.2f} times"
        text += f", the best rung ({best[1]}) {many[size, 'T1'] / many[best]:.2f} times."
    return f"{text} {_silence(result, rows)} {_cores(result, rows)}".strip()


def _rung(key: tuple[str, str], size: str) -> bool:
    return key[0] == size and key[1] in paper.GPU_US


def _silence(result: Row, rows: Sequence[Row]) -> str:
    systems = systems_of(rows, "1")
    if not {"T5", "skip"} <= set(systems):
        return ""
    found = [systems["T5"][s]["us"]["1"] / systems["skip"][s]["us"]["1"] for s in STAGES
             if s in systems["T5"] and s in systems["skip"]]  # fmt: skip
    says = (
        "pays, against what was expected" if min(found) >= 1 / _EVEN else "does not pay everywhere"
    )
    text = (
        f"Leaving out silent inputs {says}: {between(found, '{:.1f}')} times as fast as T5 by layer"
    )
    both = [
        row["us"] for row in result["sections"].get("compact", ()) if len(row.get("us", {})) == 2
    ]
    gained = [us["all cells"] / us["silent cells left out"] for us in both]
    if gained:
        wins = sum(gain > _EVEN for gain in gained)
        text += (
            "; on tensor cores, where 16 cells go together, it gives "
            f"{between(gained, '{:.2f}')} times, more than nothing in {wins} of {len(gained)} cases"
        )
    return text + "."


def _cores(result: Row, rows: Sequence[Row]) -> str:
    """Tell T5 and ours beside one core of a CPU."""
    size = rows[0]["planes"]
    cpu = [row for row in result["sections"].get("cpu", ()) if row["planes"] == size]
    own = [row for row in cpu if row["system"] == "CPU F"]
    cells = systems_of(rows, "1").get("T5", {})
    ratios = [1e3 * row["ms"] / cells[row["stage"]]["us"]["1"]
              for row in own if row["stage"] in cells]  # fmt: skip
    if not ratios:
        return ""
    where = str(made_on(result, "cpu").get("cpu") or "").partition(" of ")[2]
    return (
        f"Beside one core of {where or 'a CPU'} (F, silent inputs left out) T5 is "
        f"{between(ratios, '{:.0f}')} times as fast (paper 8 to 20)."
    )


# -- why -------------------------------------------------------------------------------------------
def _why(result: Row, rows: Sequence[Row]) -> str:
    lines = [line for line in (*_by_counters(result, rows), _blocks(rows)) if line]
    return "\n".join(["**Why.**", *(f"- {line}" for line in lines)]) if lines else ""


def _by_counters(result: Row, rows: Sequence[Row]) -> Iterator[str]:
    """Explain by what Nsight Compute counted."""
    counted: dict[tuple[str, str], Mapping[str, float]] = {
        (row["stage"], row["system"]): row
        for row in result["sections"].get("counters", ())
        if row["planes"] == rows[0]["planes"]
    }
    names = ("% of sectors in L1", "% of issue slots", "1000 sectors loaded",
             "1000 warp instructions", "% of warps", "kB of memory")  # fmt: skip
    known = {key: row for key, row in counted.items() if all(name in row for name in names)}
    ones = [known[stage, "T1"] for stage in STAGES if (stage, "T1") in known]
    if len(ones) < len(STAGES):
        return
    merged = _inhibition(rows, known)
    if merged:
        yield merged
    hits = [row["% of sectors in L1"] for row in ones]
    shares = [known[s, "T5"]["1000 sectors loaded"] / known[s, "T1"]["1000 sectors loaded"]
              for s in STAGES if (s, "T5") in known]  # fmt: skip
    slots = between([row["% of issue slots"] for row in ones], "{:.0f}")
    if min(hits) > _BUSY and shares:
        yield (
            f"Sharing input by hand saves little: {between(hits, '{:.0f}')} % of the sectors that "
            "T1 loads are found in L1 (a GTX 280 has no cache for them), and T5 still loads "
            f"{between(shares, '{:.2f}')} of them. T1 waits: {slots} % of its issue slots are used."
        )
    for stage, name in SHORT.items():
        gain = gains(rows).get(name)
        if gain is not None and gain < WANTED_GAIN and (stage, "T5") in known:
            yield _little(name, gain, known[stage, "T1"], known[stage, "T5"])
    yield from _heard(known)


def _inhibition(rows: Sequence[Row], known: Mapping[tuple[str, str], Mapping[str, float]]) -> str:
    """Tell how much of the ladder's gain is the inhibition, computed with the excitation."""
    systems = systems_of(rows, "1")
    said = []
    for stage, name in SHORT.items():
        timed = [systems.get(system, {}).get(stage) for system in ("T1", "T5")]
        row = known.get((stage, "T1"))
        if row is None or not all(timed):
            continue
        first, last = (cell["us"]["1"] for cell in timed if cell)
        apart, gained = first - row["us"], first - last
        if apart > gained / 2 > 0:
            said.append(f"{apart:.0f} of the {gained:.0f} us that T5 gains at {name}")
    if not said:
        return ""
    blocks = ", ".join(f"{-(-(n**2) // 256)}" for n in paper.ROWS)
    return (
        f"T1 computes the inhibition in a launch of its own, of {blocks} blocks at S1 .. S4; from "
        "T3 on it is computed with the excitation. By the counters of the excitation (caches "
        f"emptied before) that launch is at least {' and '.join(said)}."
        f"{_with_many(rows)}"
    )


def _with_many(rows: Sequence[Row]) -> str:
    """Tell whether computing both together still gains where many characters fill the GPU."""
    found = systems_of(rows, MANY)
    t1, t3 = (sum(cell["us"].get(MANY, 0.0) for cell in found.get(name, {}).values())
              for name in ("T1", "T3"))  # fmt: skip
    if not (t1 and t3) or t1 > _EVEN * t3:
        return ""
    return (
        f" {MANY} characters fill it with blocks, and that gain is gone: T3 is {t1 / t3:.2f} "
        "times as fast as T1."
    )


def _little(name: str, gain: float, t1: Mapping[str, float], t5: Mapping[str, float]) -> str:
    """Explain why T5 gains little at a stage."""
    loads = t5["1000 sectors loaded"] / t1["1000 sectors loaded"]
    work = t5["1000 warp instructions"] / t1["1000 warp instructions"]
    text = (
        f"{name}, {gain:.2f} times: T5 runs {work:.2f} of the instructions of T1's excitation and "
        f"loads {loads:.2f} of its sectors"
    )
    if t1["% of issue slots"] < _BUSY and t1["% of sectors in L1"] > _BUSY:
        text += (
            f", but T1 is short of neither: {t1['% of sectors in L1']:.0f} % of its sectors are in "
            f"L1, {t1['kB of memory']:.0f} kB come from memory, {t1['% of issue slots']:.0f} % of "
            f"its issue slots are used. It waits for loads, with {t1['% of warps']:.0f} % of the "
            f"warps that fit to hide them, T5 with {t5['% of warps']:.0f} %"
        )
    return text + "."


def _heard(known: Mapping[tuple[str, str], Mapping[str, float]]) -> Iterator[str]:
    """Explain what leaving out silent inputs saves."""
    pairs = [
        (known[s, "T5"], known[s, "skip"]) for s in STAGES if {(s, "T5"), (s, "skip")} <= set(known)
    ]
    if not pairs:
        return
    loads = [a["1000 sectors loaded"] / b["1000 sectors loaded"] for a, b in pairs]
    work = [a["1000 warp instructions"] / b["1000 warp instructions"] for a, b in pairs]
    if min(loads) > _EVEN:
        yield (
            "Silent inputs: a warp lists first what is heard, so that nothing diverges; sectors "
            f"loaded are {between(loads, '{:.1f}')} times fewer, instructions "
            f"{between(work, '{:.1f}')} times, and "
            f"{between([b['% of warps'] for _, b in pairs], '{:.0f}')} % of the warps are there "
            f"instead of {between([a['% of warps'] for a, _ in pairs], '{:.0f}')} %."
        )


def _blocks(rows: Sequence[Row]) -> str:
    """Tell how few blocks the ladder has for one character at the last layer."""
    systems, stage = systems_of(rows, "1"), list(STAGES)[-1]
    found = {name: systems.get(name, {}).get(stage) for name in ("T1", "T5")}
    if not all(found.values()):
        return ""
    side, planes = paper.ROWS[-1], int(str(rows[0]["planes"]).split("/")[-1])
    t1, t5 = found["T1"] or {}, found["T5"] or {}
    blocks = -(-(side**2) * planes // 256), side * -(-side // t5["places"])
    us = [systems[name][stage]["us"]["1"] for name in ("T1", "T5")]
    text = (
        f"{SHORT[stage]} takes longest in the ladder ({us[0]:.0f} and {us[1]:.0f} us) for want of "
        f"blocks: {side}x{side} places of {planes} planes are {blocks[0]} blocks in T1, "
        f"{blocks[1]} in T5, and most multiprocessors have none"
    )
    most = all(
        us[i] >= max(cells["us"]["1"] for cells in systems[name].values())
        for i, name in enumerate(("T1", "T5"))
    )
    ours = systems.get("ours, auto, fp32", {}).get(stage)
    if not most or "us" not in t1 or max(blocks) > _FEW_BLOCKS:
        return ""
    if ours:
        text += (
            f"; {str(ours['system']).replace('ours', 'our version')} takes {ours['us']['1']:.1f} us"
        )
    return text + "."


# -- whole characters ------------------------------------------------------------------------------
def _whole(result: Row) -> str:
    """Tell of whole characters, many of them, several GPUs and energy."""
    sections, said = result["sections"], []
    core = next((r for r in sections.get("cpu_frame", ()) if r["threads"] == 1), None)
    if core:
        where = str(made_on(result, "cpu_frame").get("cpu") or "").partition(" of ")[2]
        said.append(
            f"one character takes {core['ms_1']:.1f} ms on one core of {where or 'a CPU'} (paper "
            f"{paper.CHARACTER_MS['CPU F']} ms, {paper.CHARACTER_MS['GPU T']} with its GPU)"
        )
    for row in sections.get("character", ()):
        if row["batch"] == 1:
            said.append(f"{row['in_all_us']:.0f} us on the GPU, from host to host")
    flight = sections.get("in_flight", ())
    if flight:
        last = flight[-1]
        said.append(
            f"on the GPU {flight[0]['one after another']:.1f} us without transfers, "
            f"{last['together']:.1f} with {last['in_flight']} in flight through the stages"
        )
    lanes = sections.get("overlap", ())
    if lanes:
        said.append(
            f"transfers beside work: {lanes[0]['us']:.2f} us a character with one lane, "
            f"{lanes[-1]['us']:.2f} with {lanes[-1]['lanes']}"
        )
    for row in sections.get("devices", ()):
        each = (
            "" if row["gpus"] == 1 else f" ({100 * row['efficiency']:.0f} % of as many times one)"
        )
        gpus = "1 GPU" if row["gpus"] == 1 else f"{row['gpus']} GPUs"
        said.append(f"{gpus}: {number(row['per_second'])} characters a second{each}")
    best = [r for r in sections.get("energy", ()) if r.get("joules_per_1000")]
    if best:
        least = min(best, key=lambda row: float(row["joules_per_1000"]))
        said.append(f"{least['joules_per_1000']:.2f} J for 1000 characters in {least['what']}")
    return f"**Whole characters, and the paper's future work**: {'; '.join(said)}." if said else ""
