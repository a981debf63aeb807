"""Tables and plots of the S-layers' experiments."""

import numpy as np
import pandas as pd

from experiments.harness.pages import NONE, Plot, Row, show, shown
from experiments.slayer.inputs import STAGES

# the figures that the GPU paper gives (Ikeda et al. 2011)
#: Table 2: planes of US2, US3, US4.
PAPER_SIZE = "26/78/70"
#: The published network, learned by ``neocog train --recipe ikeda2011``.
PAPER_OWN = "ikeda2011"
#: Table 5: microseconds of S1 .. S4 on a GTX 280.
GPU_US = {
    "T1": (346, 1340, 1980, 2220), "T3": (388, 769, 721, 1270), "T4": (177, 573, 667, 847),
    "T5": (168, 547, 627, 736),
}  # fmt: skip
#: Section 6.1: threads per block that were best for T4.
BEST_THREADS = (64, 54, 78, 70)
#: Table 8: share of inputs that are not silent, all and S1 .. S4.
HEARD = {"all": 0.057, "US1": 0.078, "US2": 0.046, "US3": 0.052, "US4": 0.063}
#: Stages as the paper calls them.
SHORT = {stage: f"S{stage[-1]}" for stage in STAGES}
DRAWN = ("T3", "T4", "T5", "T5, u > 0", "skip", "ours, quickest, fp32", "ours, quickest, fp16",
         "ours, default, fp32", "ours, default, fp16")  # fmt: skip


def tables(result: Row) -> dict[str, pd.DataFrame]:
    sections = {name: rows for name, rows in result["sections"].items() if rows}
    ladder, trial = (rows_of(result, part) for part in ("rows", "trial"))
    made = [{"what": name, **result.get("from", {}).get(name, result)} for name in result["sections"]]
    heads = {key: key for key in ("what", "command", "machine", "model", "commit", "date")}
    found = {"measured": shown(made, heads)}
    for size, own in ladder.groupby("planes", sort=False) if len(ladder) else ():
        found |= {f"ladder {size} batch {batch}": _ladder(own, batch, size) for batch in own["us"].iloc[0]}
    if len(trial):
        found["threads"] = _threads(trial)
    if "silence" in sections:
        heard = pd.DataFrame(sections["silence"]).pivot_table("heard", "model", "stage", sort=False)
        both = pd.concat([pd.DataFrame([HEARD], index=["paper"]), heard]).reset_index(names="model")
        columns = {"model": "not silent", "all": "all|.1%", **{s: f"{n}|.1%" for s, n in SHORT.items()}}
        found["silence"] = shown(both, columns)
    if "character" in sections:
        found["character"] = _character(*sections["character"])
    return found


def rows_of(result: Row, part: str) -> pd.DataFrame:
    """Return the rows of the ladder ("rows") or of its trials ("trial") that were timed and right."""
    rows = result["sections"].get("ladder", {}).get(part, ())
    return pd.DataFrame([row for row in rows if "us" in row and row.get("passed", True)])


def _of_batch(own: pd.DataFrame, batch: str) -> pd.DataFrame:
    """Return microseconds by system and stage, and their sum (none if a stage lacks)."""
    timed = own.assign(us=[us.get(batch) for us in own["us"]]).dropna(subset="us")
    wide = timed.pivot_table("us", "system", "stage", sort=False).reindex(columns=list(STAGES))
    wide["all"] = wide.sum(axis=1, skipna=False)
    return wide


def _ladder(own: pd.DataFrame, batch: str, size: str) -> pd.DataFrame:
    """Table 5: microseconds of a character."""
    wide = _of_batch(own, batch)
    known = GPU_US if batch == "1" and size in (PAPER_OWN, PAPER_SIZE) else {}
    cells = {stage: [show(us, ".1f" if us >= 1 else ".3f") for us in wide[stage]] for stage in wide}
    whole = wide["all"].get("T1", float("nan")) / wide["all"]
    more = {"gain": whole, "error": own.groupby("system", sort=False)["error"].max(),
            "paper": [" / ".join(map(str, known.get(name, ()))) or NONE for name in wide.index]}  # fmt: skip
    columns = {"system": "system", **SHORT, "all": "all", "gain": "T1 / it|.2f",
               "error": "largest error|.0e", "paper": "paper, S1 .. S4"}  # fmt: skip
    return shown(wide.assign(**cells, **more).reset_index(), columns)


def _threads(trial: pd.DataFrame) -> pd.DataFrame:
    """Fig. 6: the best block sizes."""
    best = trial.loc[trial.groupby(["planes", "system", "stage"], sort=False)["us"].idxmin()]
    wide = best.pivot_table("threads", ["planes", "system"], "stage", sort=False).reset_index()
    theirs = dict(zip(STAGES, BEST_THREADS, strict=True))
    both = pd.concat([wide, pd.DataFrame([{"planes": "paper", "system": "T4", **theirs}])])
    heads = {stage: f"{name}, threads|.0f" for stage, name in SHORT.items()}
    return shown(both, {"planes": "planes", "system": "system", **heads})


def _character(one: Row, eight: Row) -> pd.DataFrame:
    shown_rows = (("on the GPU", "pass_us", f"{eight['share_of_gpu']:.3%} of the GPU's time"),
                  ("transfers, launch, waiting", "transfers_us", NONE),
                  ("host to host", "in_all_us", f"{eight['share_of_time']:.3%} of the time"))  # fmt: skip
    rows: list[Row] = [{"": name, "one": f"{one[key]:.1f} us", "eight": f"{eight[key]:.1f} us", "take": share}
                       for name, key, share in shown_rows]  # fmt: skip
    rows += [{"": "paper, CPU", "one": "27.3 ms", "take": "wanted: 4.1 ms a character"},  # section 6.4
             {"": "paper, GPU", "one": "3.4 ms", "take": "0.27 ms of it transfers"}]  # fmt: skip
    heads = {"": "", "one": "one character", "eight": "eight", "take": "eight, 30 times a second, take"}
    return shown(rows, heads)


def plots(result: Row) -> dict[str, Plot]:
    """Fig. 6 (time of T4 by threads per block) and the ladder."""
    found = {}
    ladder, trial = (rows_of(result, part) for part in ("rows", "trial"))
    if len(trial):
        size = _first(trial)
        own = trial[(trial["planes"] == size) & (trial["system"] == "T4")]
        us = own.pivot_table("us", "threads", "stage")
        best = us.min()
        near = (us / best)[us <= 4 * best]
        near.columns = pd.Index([f"{SHORT[stage]}, best {best[stage]:.0f} us" for stage in us])
        title = "Time of T4 by threads per block"
        found["threads"] = Plot(title, "threads per block", "time by the least", near, numbers=True)
    if len(ladder):
        size = _first(ladder)
        wide = _of_batch(ladder[ladder["planes"] == size], "1")[list(STAGES)]
        gains = (wide.loc["T1"] / wide).loc[[name for name in wide.index if name in DRAWN]]
        theirs = np.divide(GPU_US["T1"], GPU_US["T5"])
        lines = gains.T.rename(SHORT).assign(**{"T5 on a GTX 280 (paper)": theirs})
        title = f"The ladder on {size}, one character at a time"
        found["ladder"] = Plot(title, "layer", "times as fast as T1", lines, log2=True)
    return found


def _first(frame: pd.DataFrame) -> str:
    """Return the network that is shown first: the paper's own where it was measured."""
    known = list(frame["planes"].unique())
    return next((size for size in (PAPER_OWN, PAPER_SIZE) if size in known), known[0])
