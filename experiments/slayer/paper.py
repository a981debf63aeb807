"""The figures that the GPU paper gives (Ikeda et al. 2011), and its Table 1 with ours added."""

from typing import Any

#: Table 2: planes of US2, US3, US4.
SIZE = "26/78/70"
#: The published network, learned by ``neocog train --recipe ikeda2011``.
OWN = "ikeda2011"
#: Table 5: microseconds of S1 .. S4 on a GTX 280.
GPU_US = {
    "T1": (346, 1340, 1980, 2220),
    "T3": (388, 769, 721, 1270),
    "T4": (177, 573, 667, 847),
    "T5": (168, 547, 627, 736),
}
#: Section 5.7: B against CPU F, least and most over the stages; T5 reaches 8 to 20.
B_OVER_F = (3.3, 6.3)
#: Section 6.1: threads per block that were best for T4.
BEST_THREADS = (64, 54, 78, 70)
#: Table 6: milliseconds, MB/s and MFLOPS of S1 .. S4 on a Core2 Duo at 2.33 GHz.
CPU_MS = {
    "CPU S": (29.7, 116, 144, 32.9),
    "CPU F": (3.33, 6.91, 9.98, 6.01),
    "CPU G": (23.0, 72.5, 131, 46.0),
}
CPU_MB_S = {"CPU S": (586, 555, 532, 543), "CPU F": (600, 551, 529, 570)}
CPU_MFLOPS = {"CPU S": (179, 194, 145, 129), "CPU F": (181, 189, 147, 206)}
#: Section 6.2: cache blocking, percent quicker, least and most.
BLOCKING = {"CPU F": (-1.5, 3.4), "CPU G": (-8.3, -3.8)}
#: Table 8: share of inputs that are not silent, all and S1 .. S4.
HEARD = {"all": 0.057, "US1": 0.078, "US2": 0.046, "US3": 0.052, "US4": 0.063}
#: Section 5.2: reads and writes of u_S of a character, in millions: scatter (F), gather (T).
SCATTER, GATHER = (2.0, 1.9), (0.0, 0.14)
#: Section 5.3: the same of v, and reads of u_C for v, by scattering; gathering (T2) has none.
SCATTER_V = (0.11, 0.11, 0.056)
#: Section 6.3: T5's instructions of the most that can be issued, GB/s of memory and
#: the most that a GTX 280 has.
ISSUED, GB_S = 0.78, (18.0, 141.7)
#: Section 6.4: one character in milliseconds: CPU F, GPU, its transfers; what was wanted.
CHARACTER_MS = {"CPU F": 27.3, "GPU T": 3.4, "transfers": 0.27, "wanted": 4.1}
#: Table 1: year, who, what on, picture, what it says, seconds of a character.
EARLIER = (
    (1990, "Ito, Fukushima, Miyake", "38 nCUBE processors", "19x19", "8 characters/s", 1 / 8),
    (1991, "Omori, Sato", "4 transputers", "17x17", "3 s", 3.0),
    (2004, "Kimura, Takahashi, Nakamura", "FPGA", "27x20", "9 frames/s", 1 / 9),
    (2008, "Poli et al., 6 layers", "GPU", "57x57", "118 ms", 0.118),
    (2008, "Billconan, Kavinguy, 5 layers", "GPU", "29x29", "1.6 ms", 1.6e-3),
    (2011, "Ikeda et al., 10 layers", "GTX 280", "65x65", "3.4 ms", 3.4e-3),
)

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
        for year, who, where, picture, says, seconds in EARLIER
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
