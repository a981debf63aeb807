"""Tables and plots of the experiment on decomposed Winograd convolution."""

import pandas as pd

from experiments.harness.pages import Plot, Row, measured, shown, span
from experiments.winograd.layers import PAPER_WAY

#: The paper's figure for a whole convolution, channel-wise against thread-wise (its section IV).
PAPER_GAIN = "11-15 %"
_CASE = {"layer": "layer", "batch": "batch"}
_ORDERS = {"thread-wise": "thread-wise, us|.1f", "channel-wise": "channel-wise, us|.1f"}
_BOTH = "thread-wise, inputs too"


def tables(result: Row) -> dict[str, pd.DataFrame]:
    counts = {**_CASE, "way": "way", "direct_gflop": "direct GFLOP|.1f", "gflop": "products GFLOP|.1f"}
    found = {"measured": measured(result), "counts": shown(result["counts"], counts)}
    if not result.get("layers"):
        return found
    layers, changing = pd.DataFrame(result["layers"]), _by_order(result["changing"])
    heads = {**_CASE, "way": "way", "multiplications": "multiplications an output|.1f", "us": "us|.1f",
             "error": "largest error|.0e"}  # fmt: skip
    saved = {**_ORDERS, "both": "inputs thread-wise too, us|.1f", "saved both": "saved by both",
             "saved": "saved", "share": "transform's share", "transform": "transform saves",
             "paper": "paper"}  # fmt: skip
    summary = {**_CASE, "way": "ours, chosen", "us": "us|.1f", "best": "best way, us|.1f",
               "cuDNN": "cuDNN fp32, us|.1f", "FFT": "FFT, us|.1f",
               "ratio": "times as fast as cuDNN|.1f"}  # fmt: skip
    return {
        **found, "method": _method(layers), "layers": shown(_summary(layers), summary),
        "ways": shown(layers, heads),
        "saved": shown(changing[changing["way"] == PAPER_WAY.name], _CASE | saved),
        "changing": shown(changing, {**_CASE, "way": "way"} | saved),
    }  # fmt: skip


def _summary(layers: pd.DataFrame) -> pd.DataFrame:
    """Return, by layer and batch, ours of choice and ours at best beside cuDNN and FFT."""
    keys, peers = ["layer", "batch"], layers["way"].isin(["cuDNN", "FFT"])
    chosen = layers[layers["chosen"].eq(True)].set_index(keys)  # None of a peer is no choice
    theirs = layers[peers].pivot_table("us", keys, "way", sort=False).reindex(columns=["cuDNN", "FFT"])
    best = layers[~peers].groupby(keys, sort=False)["us"].min().rename("best")
    found = chosen.join([theirs, best])
    return found.assign(ratio=found["cuDNN"] / found["us"]).reset_index()


def _method(layers: pd.DataFrame) -> pd.DataFrame:
    """Decomposed Winograd itself beside cuDNN and FFT: least and most over the layers."""
    rows = [{"batch": batch, "us": span(own["us"], ".0f"), "cuDNN": span(own["ratio"], ".2f"),
             "FFT": span(own["FFT"] / own["us"], ".2f")}
            for batch, own in _summary(layers).groupby("batch")]  # fmt: skip
    heads = {"batch": "batch", "us": "ours, us", "cuDNN": "beside cuDNN fp32", "FFT": "beside FFT"}
    return shown(rows, heads)


def _by_order(rows: list[Row]) -> pd.DataFrame:
    """Return what each convolution takes in the orders of threads, and what is saved, in percent."""
    values, keys = ["us", "filters_us", "share"], ["layer", "batch", "way"]
    wide = pd.DataFrame(rows).pivot_table(values, keys, "indexing", sort=False)
    us, alone = wide["us"].reindex(columns=[*_ORDERS, _BOTH]), wide["filters_us"]
    thread, channel = us["thread-wise"], us["channel-wise"]
    shares = {"saved both": 1 - channel / us[_BOTH], "saved": 1 - channel / thread,
              "share": wide["share", "thread-wise"],
              "transform": 1 - alone["channel-wise"] / alone["thread-wise"]}  # fmt: skip
    texts = {key: [None if x != x else f"{round(100 * x)} %" for x in own] for key, own in shares.items()}
    found = us.assign(**texts, both=us[_BOTH], paper=PAPER_GAIN, part=shares["saved both"])
    return found.reset_index()


def plots(result: Row) -> dict[str, Plot]:
    """Return Fig. 6, and how many times as fast as cuDNN each layer is, by batch."""
    if not result.get("layers"):
        return {}
    ratios = _summary(pd.DataFrame(result["layers"])).pivot_table("ratio", "batch", "layer", sort=False)
    title, y = "Decomposed Winograd beside cuDNN", "times as fast as cuDNN, float32"
    changing = _by_order(result["changing"])
    own = changing[changing["way"] == PAPER_WAY.name].pivot_table("part", "layer", "batch", sort=False)
    saved = "Time saved by channel-wise indexing of filters and inputs"
    band = (f"paper: {PAPER_GAIN}", 11.0, 15.0)
    return {"layers": Plot(title, "batch", y, ratios),
            "saved": Plot(saved, "layer", "% of the time saved", (100 * own).add_prefix("batch "),
                          band=band)}  # fmt: skip
