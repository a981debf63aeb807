"""Tables of the S-layers' experiments on one core, on silence, on whole characters, on GPUs."""

from collections.abc import Iterable, Sequence
from typing import Any

from experiments.harness.markdown import table as table_of
from experiments.slayer import paper
from experiments.slayer.inputs import STAGES

Row = dict[str, Any]

NONE = "–"
#: Stages as the paper calls them.
SHORT = {stage: f"S{stage[-1]}" for stage in STAGES}


def cpu(result: Row, _: str) -> list[str]:
    """Return Tables 6 and 7: one CPU core."""
    rows = result["sections"].get("cpu", ())
    if not rows:
        return []
    parts = [
        "### One CPU core: S, F and G in C (Tables 6 and 7)",
        "S scatters every input, F leaves silent inputs out, G gathers with the test for silence. "
        "Milliseconds of a character, bytes and operations counted in a build of its own.",
    ]
    for size in dict.fromkeys(row["planes"] for row in rows):
        table = [
            (
                f"{size} planes",
                *SHORT.values(),
                "all",
                "MB/s",
                "MFLOPS",
                "paper, ms",
                "paper, MB/s",
                "paper, MFLOPS",
            )
        ]
        own = [row for row in rows if row["planes"] == size]
        for name in dict.fromkeys(row["system"] for row in own):
            cells = [row for row in own if row["system"] == name]
            theirs = {
                key: getattr(paper, key).get(name, ()) if size == paper.SIZE else ()
                for key in ("CPU_MS", "CPU_MB_S", "CPU_MFLOPS")
            }
            table.append(
                (
                    name,
                    *(f"{row['ms']:.2f}" for row in cells),
                    f"{sum(row['ms'] for row in cells):.2f}",
                    _slashed(row.get("mb_s") for row in cells),
                    _slashed(row.get("mflops") for row in cells),
                    _slashed(theirs["CPU_MS"], ".3g"),
                    _slashed(theirs["CPU_MB_S"]),
                    _slashed(theirs["CPU_MFLOPS"]),
                )
            )
        parts += [table_of(table), _accesses(own)]
    return [*parts, *_gpu_beside_cpu(result)]


def _gpu_beside_cpu(result: Row) -> list[str]:
    """Return Table 7: how many times as fast as each CPU way T5 and B are."""
    gpu = {
        (row["planes"], row["system"], row["stage"]): row["us"]["1"]
        for row in rows_of(result, "ladder", "rows")
        if "us" in row
    }
    cpu = {
        (row["planes"], row["system"], row["stage"]): 1e3 * row["ms"]
        for row in result["sections"]["cpu"]
    }
    table = [("planes", "times as fast", *SHORT.values(), "paper")]
    for size in dict.fromkeys(key[0] for key in cpu):
        for system in ("T5", "B"):
            for way in dict.fromkeys(key[1] for key in cpu):
                if all((size, system, stage) in gpu for stage in STAGES):
                    gains = [cpu[size, way, s] / gpu[size, system, s] for s in STAGES]
                    table.append(
                        (
                            size,
                            f"{system} as {way}",
                            *(f"{gain:.0f}" for gain in gains),
                            _paper_gain(system, way) if size == paper.SIZE else NONE,
                        )
                    )
    return ["The GPU beside one core:", table_of(table)] if len(table) > 1 else []


def _paper_gain(system: str, way: str) -> str:
    if system == "B":
        low, high = paper.B_OVER_F
        return f"{low} to {high}" if way == "CPU F" else NONE
    times = zip(paper.CPU_MS.get(way, ()), paper.GPU_US[system], strict=False)
    return _slashed(1e3 * ms / us for ms, us in times)


def _accesses(rows: Sequence[Row]) -> str:
    """Tell reads and writes of u_S, and what blocking gives."""
    by = {
        name: [row for row in rows if row["system"] == name]
        for name in ("CPU F", "CPU G", "CPU F blocked")
    }

    def millions(name: str, kind: str) -> str:
        return f"{1e-6 * sum(row['counts'][kind] for row in by[name]):.2f} M"

    gains = [
        100 * (plain["ms"] / blocked["ms"] - 1)
        for plain, blocked in zip(by["CPU F"], by["CPU F blocked"], strict=True)
    ]
    return (
        f"u_S of a character: scattering (F) reads {millions('CPU F', 'read us')} and writes "
        f"{millions('CPU F', 'write us')} (paper {paper.SCATTER[0]} and {paper.SCATTER[1]} M), "
        f"gathering {millions('CPU G', 'read us')} and {millions('CPU G', 'write us')} (paper "
        f"{paper.GATHER[0]:.0f} and {paper.GATHER[1]} M). Cache blocking of F: {min(gains):+.1f} "
        f"to {max(gains):+.1f} % (paper {paper.BLOCKING[0]:+} to {paper.BLOCKING[1]:+} %)."
    )


def silence(result: Row, _: str) -> list[str]:
    """Return Table 8: what is silent."""
    rows = result["sections"].get("silence", ())
    if not rows:
        return []
    stages = ("all", *STAGES)
    table = [("not silent", *(SHORT.get(stage, stage) for stage in stages))]
    table.append(("paper", *(f"{paper.HEARD[stage]:.1%}" for stage in stages)))
    for model in dict.fromkeys(row["model"] for row in rows):
        own = {row["stage"]: row for row in rows if row["model"] == model}
        table.append((model, *(f"{own[stage]['heard']:.1%}" for stage in stages)))
    blocks = [
        (
            "model",
            "layer",
            "silent cells",
            "blocks of 16 x 16 needed",
            "silent cells left out first",
        )
    ]
    for row in rows:
        if "blocks" in row:
            blocks.append(
                (
                    row["model"],
                    SHORT[row["stage"]],
                    f"{row['cells_silent']:.1%}",
                    f"{row['blocks']:.1%}",
                    f"{row['blocks_of_heard_cells']:.1%}",
                )
            )
    return [
        "### Silent inputs (Table 8)",
        "Share of an S-layer's inputs that are not silent, of all.",
        table_of(table),
        "A tensor core multiplies 16 cells by 16 inputs at once, and can leave out only what is "
        "silent for all of them:",
        table_of(blocks),
    ]


def skipping(result: Row, _: str) -> list[str]:
    """Return how much leaving out silence gives."""
    cpu = result["sections"].get("cpu", ())
    gpu = [row for row in rows_of(result, "ladder", "rows") if "us" in row]
    table = [("planes", "way", *SHORT.values())]
    for size in dict.fromkeys(row["planes"] for row in (*cpu, *gpu)):
        for name, rows, systems in (
            ("CPU: S / F", cpu, ("CPU S", "CPU F")),
            ("GPU, CUDA cores: T5 / skip", gpu, ("T5", "skip")),
        ):
            own = {(r["system"], r["stage"]): r for r in rows if r["planes"] == size}
            pairs = [[own.get((system, stage)) for system in systems] for stage in STAGES]
            if all(all(pair) for pair in pairs):
                table.append((size, name, *(_ratio(*pair) for pair in pairs)))
    for row in result["sections"].get("compact", ()):
        if len(row.get("us", {})) == 2:
            gain = row["us"]["all cells"] / row["us"]["silent cells left out"]
            name = f"GPU, tensor cores: all / heard cells, batch {row['batch']}"
            own_cells = [f"{gain:.2f}" if row["stage"] == stage else NONE for stage in STAGES]
            table.append((row["planes"], name, *own_cells))
    if len(table) == 1:
        return []
    return [
        "### Does leaving out silence pay?",
        "Times as fast as computing everything. The paper expected its GPU to stall on the test; "
        "here a warp first lists what is heard, so that nothing diverges.",
        table_of(_joined(table)),
    ]


def _joined(table: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Put rows of the same name together, each stage's value into its place."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for planes, name, *cells in table[1:]:
        before = rows.setdefault((planes, name), [NONE] * len(cells))
        rows[planes, name] = [
            new if new != NONE else old for new, old in zip(cells, before, strict=True)
        ]
    return [table[0], *((*key, *cells) for key, cells in rows.items())]


def _ratio(slow: Any, quick: Any) -> str:
    first, second = (row["ms"] if "ms" in row else row["us"]["1"] for row in (slow, quick))
    return f"{first / second:.2f}"


def character(result: Row, _: str) -> list[str]:
    """Return one character and a frame's eight."""
    rows = result["sections"].get("character", ())
    cores = result["sections"].get("cpu_frame", ())
    if not (rows or cores):
        return []
    theirs = paper.CHARACTER_MS
    told = [f"{passes_of(result, 'cpu_frame')} on the CPU"] if cores else []
    told += [f"{passes_of(result, 'character')} on the GPU"] if rows else []
    table = [("", "one character", "eight", "eight, 30 times a second, take")]
    for row in cores:
        share = f"{row['share_of_cores']:.1%} of the time of {row['threads']} core(s)"
        table.append(
            (
                f"CPU engine, {row['threads']} thread(s)",
                f"{row['ms_1']:.2f} ms",
                f"{row['ms_8']:.2f} ms",
                share,
            )
        )
    if rows:
        one, eight = rows[0], rows[-1]
        table += [
            (
                "on the GPU",
                f"{one['pass_us']:.1f} us",
                f"{eight['pass_us']:.1f} us",
                f"{eight['share_of_gpu']:.3%} of the GPU's time",
            ),
            (
                "transfers, launch, waiting",
                f"{one['transfers_us']:.1f} us",
                f"{eight['transfers_us']:.1f} us",
                NONE,
            ),
            (
                "host to host",
                f"{one['in_all_us']:.1f} us",
                f"{eight['in_all_us']:.1f} us",
                f"{eight['share_of_time']:.3%} of the time",
            ),
        ]
    return [
        "### One whole character, and 8 digits 30 times a second",
        table_of(table),
        f"Model: {' and '.join(told)}. Paper: {theirs['CPU F']} ms on the CPU, {theirs['GPU T']} "
        f"ms with the GPU, {theirs['transfers']} ms of it transfers; wanted were "
        f"{theirs['wanted']} ms.",
    ]


def future(result: Row, _: str) -> list[str]:
    """Return the paper's future work."""
    sections = result["sections"]
    parts = []
    if sections.get("in_flight"):
        table: list[tuple[str, ...]] = [("characters in flight", "together, us", "one by one, us")]
        for row in sections["in_flight"]:
            table.append(
                (str(row["in_flight"]), f"{row['together']:.2f}", f"{row['one after another']:.2f}")
            )
        parts += [
            "Stages as a pipeline: single characters, a stream each, in one graph.",
            table_of(table),
        ]
    if sections.get("overlap"):
        table = [("lanes", "batch", "us a character, host to host", "the graph alone")]
        for row in sections["overlap"]:
            table.append(
                (
                    str(row["lanes"]),
                    str(row["batch"]),
                    f"{row['us']:.3f}",
                    f"{row['graph_alone_us']:.3f}",
                )
            )
        parts += [
            "Transfers beside work: with two lanes one's transfers go while the other computes.",
            table_of(table),
        ]
    if sections.get("devices"):
        table = [("GPUs", "batch per GPU", "characters a second", "efficiency", "watts",
                  "joules per 1000 characters")]  # fmt: skip
        for row in sections["devices"]:
            joules = row.get("joules_per_1000")
            table.append(
                (
                    str(row["gpus"]),
                    str(row["batch"]),
                    number(row["per_second"]),
                    f"{row['efficiency']:.1%}",
                    f"{row['watts']:.0f}" if joules else NONE,
                    f"{joules:.3g}" if joules else NONE,
                )
            )
        parts += ["Several GPUs, host to host:", table_of(table)]
    return ["### The paper's future work", *parts] if parts else []


def energy(result: Row, _: str) -> list[str]:
    """Return power and energy."""
    rows = result["sections"].get("energy", ())
    if not rows:
        return []
    table = [
        (
            "",
            "watts",
            "characters a second",
            "joules per 1000 characters",
            "CPU engine, one thread, seconds per 1000",
        )
    ]
    cpu = next(
        (row["ms_1"] for row in result["sections"].get("cpu_frame", ()) if row["threads"] == 1),
        None,
    )
    for row in rows:
        joules = row.get("joules_per_1000")
        table.append(
            (
                row["what"],
                f"{row['watts']:.0f}",
                number(row["per_second"]),
                f"{joules:.3g}" if joules else NONE,
                f"{cpu:.2f}" if cpu else NONE,
            )
        )
    return [
        "### Energy",
        "Power of the whole GPU by nvidia-smi, its idle power included.",
        table_of(table),
    ]


#: What the sections on a GPU measure, in words.
_ON_GPU = {
    "ladder": "the ladder",
    "counters": "hardware counters",
    "compact": "silent cells left out on tensor cores",
    "character": "one whole character and a frame's eight on the GPU, from host to host",
    "in_flight": "characters in flight",
    "overlap": "transfers beside work",
    "devices": "several GPUs",
    "energy": "energy",
}
_GPUS = (1, 2, 4)


def missing(result: Row) -> str:
    """Return a line on what was not measured on a GPU; "" if there is nothing."""
    sections = result["sections"]
    absent = [words for name, words in _ON_GPU.items() if not sections.get(name)]
    if len(absent) == len(_ON_GPU):
        return "Not measured: anything on a GPU."
    counted = {row["gpus"] for row in sections.get("devices", ())}
    absent += [f"{count} GPUs" for count in _GPUS if counted and count not in counted]
    return f"Not measured: {'; '.join(absent)}." if absent else ""


def made_on(result: Row, name: str) -> Row:
    """Return the command, machine, CPU, commit, date and model that a section comes from."""
    found: Row = result.get("from", {}).get(name, result)
    return found


def passes_of(result: Row, name: str) -> str:
    """Return the model of a section's whole passes, and their precision on a GPU."""
    made = made_on(result, name)
    on_gpu = f", {made.get('precision')}" if name != "cpu_frame" else ""
    return f"{made.get('model') or result.get('model')}{on_gpu}"


def rows_of(result: Row, name: str, part: str) -> list[Row]:
    """Return the rows of a part of a section, none if it was not run."""
    found: list[Row] = result["sections"].get(name, {}).get(part, [])
    return found


def _slashed(values: Iterable[float | None], form: str = ".0f") -> str:
    known = [value for value in values if value is not None]
    return " / ".join(format(value, form) for value in known) or NONE


def number(value: float) -> str:
    """Return a rate for people."""
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}".replace(",", " ")
