"""Tables and plots of the experiment on convolution with pooling."""

import pandas as pd

from experiments.convpool.systems import PAPER, SYSTEMS
from experiments.harness.pages import Plot, Row, measured, shown

MAIN, MANY = 512, 64  # channels of the paper's headlines; the batch whose counts are shown
_SHOWN = ("fused", "direct_gemm", "direct", "ours")
_DRAWN = {"direct_gemm": "direct sum, matrix product", "fused": "fused filter, library",
          "ours": "ours, one kernel"}  # fmt: skip
_KEYS = ["precision", "channels", "batch"]


def tables(result: Row) -> dict[str, pd.DataFrame]:
    columns = {"channels": "channels", "naive": "naive", "winograd": "naive, Winograd",
               "fused": "fused filter", "direct": "direct sum"}  # fmt: skip
    found = {
        "measured": measured(result, **result.get("facts", {})),
        "counts": shown(result["counts"], columns),
    }
    if not result["rows"]:
        return found
    us, own = _us(result), pd.DataFrame(result["rows"]).set_index(_KEYS)
    for precision in PAPER:
        some = us.loc[[precision]].reset_index()
        some["ours by naive"] = some["naive"] / some["ours"]
        systems = (own.loc[tuple(key), "systems"] for key in some[_KEYS].to_numpy())
        some["rate"] = [one["ours"].get("tflops") for one in systems]
        some["batch"] = [f"{n}{'*' * int(own.loc[(precision, c, n), 'flushed'])}"
                         for c, n in zip(some["channels"], some["batch"], strict=True)]  # fmt: skip
        times = {name: f"{name}|.1f" for name in SYSTEMS if name in some}
        heads = {"batch": "batch", "channels": "channels", **times, "ours by naive": "ours by naive|.2f",
                 "rate": "TFLOP/s of ours|.0f"}  # fmt: skip
        found[precision] = shown(some, heads)
    return {**found, "speedup": _speedup(us), "counting": _counting(result, us)}


def _us(result: Row) -> pd.DataFrame:
    """Return microseconds by precision, channels and batch (rows) and system (columns)."""
    rows = [{**{key: row[key] for key in _KEYS}, "system": name, "us": one.get("us")}
            for row in result["rows"] for name, one in row["systems"].items()]  # fmt: skip
    return pd.DataFrame(rows).pivot_table("us", _KEYS, "system")


def _gains(us: pd.DataFrame) -> pd.DataFrame:
    """Return times as fast as the library's quicker naive form; NaN where one was not measured."""
    base = us.reindex(columns=["naive", "winograd"]).min(axis=1, skipna=False)
    return us.rdiv(base, axis=0).assign(base=base)


def _speedup(us: pd.DataFrame) -> pd.DataFrame:
    gains = _gains(us).xs(MAIN, level="channels").reset_index()
    gains["paper"] = [f"{PAPER[p]} (matrix product)" if n == 1 else None
                      for p, n in zip(gains["precision"], gains["batch"], strict=True)]  # fmt: skip
    heads = {"precision": "", "batch": "batch", "base": "naive, us|.1f"}
    return shown(gains, heads | {name: f"{SYSTEMS[name][0]}|.2f" for name in _SHOWN} | {"paper": "paper"})


def _counting(result: Row, us: pd.DataFrame) -> pd.DataFrame:
    """What each rewrite saves by counting, and what of it arrives."""
    counted = next(row for row in result["counts"] if row["channels"] == MAIN)
    there = us.xs((MAIN, MANY), level=("channels", "batch"))  # precision, system
    gains = there.rdiv(there["naive"], axis=0).T
    rows = [{"system": label, "count": counted["naive"] / counted[kind], **gains.loc[name]}
            for name, (label, kind) in SYSTEMS.items() if name in gains.index]  # fmt: skip
    columns = {"system": "system", "count": "operations, naive by it|.2f"}
    return shown(rows, columns | {p: f"{p}, naive by it|.2f" for p in map(str, PAPER)})


def plots(result: Row) -> dict[str, Plot]:
    """Return Fig. 1 at the most channels, by batch, and the same by channels in fp16."""
    if not result["rows"]:
        return {}
    us = _us(result)
    most, half = _gains(us).xs(MAIN, level="channels"), us.loc["fp16"].xs(MANY, level="batch")
    ratios = {f"{p}: {label}": most.loc[p, name] for name, label in _DRAWN.items() for p in PAPER}
    times = {SYSTEMS[name][0]: half["naive"] / half[name]
             for name in ("fused", "fused_gemm", "direct", "direct_gemm", "ours")}  # fmt: skip
    y = "times as fast as cuDNN's naive form"
    return {"ratios": Plot(f"{MAIN} channels", "batch", y, pd.DataFrame(ratios)),
            "times": Plot(f"fp16, batch {MANY}", "channels", y, pd.DataFrame(times))}  # fmt: skip
