"""The two orders of threads of Lee and Kwak: what was measured of them, in words, and why.

Every number comes from the result or from counts of its kernels; a sentence that would be wrong
with other numbers is chosen by them.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from experiments.harness.markdown import between
from experiments.harness.markdown import table as markdown
from experiments.winograd.layers import LAYERS, PAPER_GAIN, PAPER_WAY, WAYS
from experiments.winograd.traffic import Traffic, traffic
from neocog.cuda.winograd_filters import INDEXINGS, OWN_BANKS, Indexing
from neocog.evaluation.figures import Axis, Line, standalone

Row = dict[str, Any]
#: Percent that the paper saves, least and most.
PAPER_SAVES = (11.0, 15.0)
ALGORITHM, ARRANGED = "Algorithm 1", "filters in the order"
_EVEN = 2.0  # percent that count as nothing


class Orders(NamedTuple):
    """Times of the same work in the orders of threads."""

    thread: Row
    channel: Row
    own_banks: Row | None

    @property
    def paper(self) -> bool:
        """Whether the filters are split as the paper does it."""
        return str(self.thread["way"]) == PAPER_WAY.name

    @property
    def saved(self) -> float:
        """Percent of the time that channel-wise saves."""
        return 100 * (1 - float(self.channel["us"]) / float(self.thread["us"]))

    @property
    def speed(self) -> float:
        """How many times as fast channel-wise is."""
        return float(self.thread["us"]) / float(self.channel["us"])

    @property
    def saved_best(self) -> float:
        """The same with banks of its own, where that was measured."""
        row = self.own_banks or self.channel
        return 100 * (1 - float(row["us"]) / float(self.thread["us"]))


def changing(rows: Sequence[Row]) -> Iterator[Orders]:
    """Yield the orders of threads of each piece of work that was timed in both."""
    found: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        if row.get("us"):
            key = (row["layer"], row["batch"], row["way"], row.get("kernel"))
            found.setdefault(key, {})[row["indexing"]] = row
    for orders in found.values():
        if set(INDEXINGS) <= set(orders):
            yield Orders(orders["thread-wise"], orders["channel-wise"], orders.get(OWN_BANKS))


def order_words(rows: Sequence[Row]) -> str:
    """Return where channel-wise indexing saves time and where it does not, in a sentence."""
    pairs = list(changing(rows))
    theirs = [pair.saved for pair in pairs if pair.paper]
    others = [pair.saved for pair in pairs if not pair.paper]
    if not theirs:
        return ""
    reached = sum(saved >= PAPER_SAVES[0] for saved in theirs)
    text = (
        f"Channel-wise indexing with the paper's split: {_percent(theirs)} of a convolution whose "
        f"filters change saved (the paper: {PAPER_GAIN}); {PAPER_SAVES[0]:.0f} % or more in "
        f"{reached} of {len(theirs)} cases"
    )
    if others:
        text += f"; with the splits that compute least: {_percent(others)}"
    return f"{text}. Where filters stay it changes nothing: they are transformed once."


def saved_figure(rows: Sequence[Row]) -> str:
    """Return Fig. 6: percent of the time saved by layer, at each batch, the paper's split."""
    pairs = [pair for pair in changing(rows) if pair.paper]
    layers = list(dict.fromkeys(pair.thread["layer"] for pair in pairs))
    lines = []
    for batch in sorted({pair.thread["batch"] for pair in pairs}):
        own = [pair for pair in pairs if pair.thread["batch"] == batch]
        at = [(layers.index(pair.thread["layer"]), pair.saved) for pair in own]
        lines.append(Line(f"batch {batch}", at, dots=True))
    ends, (least, most) = (-0.2, len(layers) - 0.8), PAPER_SAVES
    band = [(ends[0], least), (ends[1], least), (ends[1], most), (ends[0], most), (ends[0], least)]
    lines.append(Line(f"the paper: {PAPER_GAIN}, all layers", band))
    values = [pair.saved for pair in pairs]
    low, high = 10 * (int(min(values) // 10)), 10 * (int(max([*values, 15.0]) // 10) + 1)
    x = Axis("layer (rows x columns)", *ends, [(i, n.split()[0]) for i, n in enumerate(layers)])
    ticks = [(float(v), str(v)) for v in range(low, high + 1, 10)]
    y = Axis("% of the time saved", low, high, ticks)
    return standalone(lines, x, y, title="Time saved by channel-wise indexing")


def lanes_words(rows: Sequence[Row]) -> str:
    """Return the active lanes of both orders in words."""

    def told(indexing: str, *, thirds: bool) -> str:
        own = [r for r in rows if r["indexing"] == indexing and (r["filter"] % 3 == 0) == thirds]
        if not own:
            return "–"
        text = between([r["lanes"] for r in own], "{:.1f}")
        profiled = [r["profiler"] for r in own if r.get("profiler")]
        return f"{text} (profiler {between(profiled, '{:.1f}')})" if profiled else text

    sizes = {r["filter"] for r in rows}
    wise, thread = (told(indexing, thirds=False) for indexing in INDEXINGS)
    even = told("thread-wise", thirds=True)
    return (
        f"**Found**, active lanes of 32 for filters of {min(sizes)}x{min(sizes)} to "
        f"{max(sizes)}x{max(sizes)}: channel-wise {wise}; thread-wise {thread}, at multiples of 3 "
        f"{even}. Counted in the kernel, where only transforms count; the profiler counts the "
        "index arithmetic with them."
    )


def saved_table(pairs: Sequence[Orders]) -> str:
    """Return the times of the paper's split in both orders (Fig. 6)."""
    table = [("layer", "batch", "thread-wise, us", "channel-wise, us", "saved",
              "saved without conflicts of banks", "transform's share", "transform saves",
              "paper")]  # fmt: skip
    for pair in pairs:
        slow, quick = pair.thread, pair.channel
        if pair.paper:
            own = 100 * (1 - quick["filters_us"] / slow["filters_us"])
            table.append((slow["layer"], str(slow["batch"]), f"{slow['us']:.1f}",
                          f"{quick['us']:.1f}", percent(pair.saved),
                          percent(pair.saved_best) if pair.own_banks else "–",
                          f"{100 * slow['share']:.0f} %", percent(own), PAPER_GAIN))  # fmt: skip
    text = (
        "Whole convolution with filters that change in every pass, the paper's split (3x3 parts "
        "and the rest, tiles of 2x2), its Algorithm 1 corrected:"
    )
    return f"{text}\n\n{markdown(table)}" if len(table) > 1 else ""


def verdict_words(pairs: Sequence[Orders]) -> str:
    """Return whether channel-wise indexing pays."""
    theirs = [pair for pair in pairs if pair.paper]
    others = [pair for pair in pairs if not pair.paper]
    reached = [pair for pair in theirs if pair.saved >= PAPER_SAVES[0]]
    small = [pair for pair in theirs if pair.saved < PAPER_SAVES[0]]
    text = f"**Does the order of threads pay?** {PAPER_SAVES[0]:.0f} % and more are saved "
    if not reached:
        text += "nowhere"
    else:
        where = ", ".join(_case(pair) for pair in reached)
        text += f"in {len(reached)} of {len(theirs)} cases ({where})"
        share = min(pair.thread["share"] for pair in reached)
        most = max((pair.thread["share"] for pair in small), default=0.0)
        text += f", where the transform takes {100 * share:.0f} % of the time or more"
        if most < share:
            text += f"; in the others it takes at most {100 * most:.0f} %"
    text += "."
    if others:
        gains = [pair.saved for pair in others]
        what = "nothing is saved" if max(gains) < _EVEN else "it is another matter"
        if max(gains) < _EVEN and min(gains) < -_EVEN:
            what = "nothing is saved and much may be lost"
        text += (
            f" With the splits that compute and move least (4+4, 4+3) {what}: {_percent(gains)}."
        )
    return text + " Filters that stay are transformed once, and no order matters."


def why_words(result: Row, pairs: Sequence[Orders]) -> str:
    """Explain by the share of the transform, and by sectors, lanes and banks."""
    lines = ["**Why.**"]
    gap = max(
        abs(pair.saved - 100 * pair.thread["share"]
            * (1 - pair.channel["filters_us"] / pair.thread["filters_us"]))
        for pair in pairs if pair.paper
    )  # fmt: skip
    if any(pair.paper for pair in pairs):
        lines.append(
            "- What a convolution saves is the transform's share times what the transform saves "
            f"(to within {gap:.0f} points of percent); the share falls as the batch grows, since "
            "the transform does not depend on it."
        )
    lines += [f"- {line}" for line in (_sectors(result), _reads(result)) if line]
    return "\n".join(lines)


def kernel_pairs(result: Row, kernel: str) -> list[Orders]:
    """Return the transforms alone by one kernel, in both orders of threads."""
    rows = [r for r in result.get("filters", ()) if str(r["kernel"]).startswith(kernel)]
    return list(changing(rows))


def traffic_of(row: Row, indexing: Indexing) -> Traffic | None:
    """Return what a row's transform asks of memory; None for ways that are not known any more."""
    layer = next((layer for layer in LAYERS if layer.name == row["layer"]), None)
    way = next((way for way in WAYS if way.name == row["way"]), None)
    return traffic(way.plan(layer), indexing) if layer and way else None


def _sectors(result: Row) -> str:
    """Tell what stores in part-filled sectors have to do with it."""
    parted: list[tuple[Orders, Traffic]] = []
    filled: list[tuple[Orders, Traffic]] = []
    for pair in kernel_pairs(result, ALGORITHM):
        found = traffic_of(pair.thread, "thread-wise")
        if found:
            part_filled = found.written > 1.05 * found.least_written
            (parted if part_filled else filled).append((pair, found))
    if not (parted and filled):
        return ""
    gains, losses = ([p.speed for p, _ in some] for some in (parted, filled))
    waste = [t.written / t.least_written for _, t in parted]
    lanes = [t.lanes for _, t in filled]
    if max(gains) <= max(losses):
        return ""
    return (
        "Bytes more than lanes: with the paper's nine parts a warp holds three to four filters, "
        f"and thread-wise stores touch {between(waste, '{:.1f}')} times as many sectors of 32 "
        "bytes as they fill; channel-wise they fill them, and the transform is "
        f"{between(gains, '{:.2f}')} times as fast. With four parts (4+4, 4+3) thread-wise stores "
        f"fill their sectors too, though as few as {min(lanes):.0f} of 32 lanes are active in "
        f"them, and channel-wise is {between(losses, '{:.2f}')} times as fast."
    )


def _reads(result: Row) -> str:
    """Tell what the way that filters lie in memory has to do with it."""
    stored, arranged = kernel_pairs(result, ALGORITHM), kernel_pairs(result, ARRANGED)
    wise, thread = (
        [found for pair in stored if (found := traffic_of(pair.thread, order))]
        for order in INDEXINGS
    )
    if not (wise and thread and arranged):
        return ""
    waste = between([found.read / found.least_read for found in (*wise, *thread)], "{:.0f}")
    text = (
        "Algorithm 1 reads filters as (K, C, 7, 7), tap by tap: in either order a load touches "
        f"{waste} times the sectors that it fills, and the next taps must be found in the cache. "
        f"Channel-wise a block goes over {wise[0].spread / 1000:.0f} kB of filters for them, "
        f"thread-wise {between([t.spread / 1000 for t in thread], '{:.0f}')} kB, beside "
        f"{between([w.shared / 1000 for w in wise], '{:.0f}')} kB of shared memory"
    )
    if wise[0].banks > 1:
        own = [100 * (1 - p.own_banks["us"] / p.channel["us"]) for p in stored if p.own_banks]
        text += f"; and {wise[0].banks} lanes wait for one bank"
        text += f" (mended, the transform saves {_percent(own)})" if own else ""
    speeds = [pair.speed for pair in arranged]
    text += ". Filters stored in the order of the products are read side by side; then channel-wise"
    gain = f"{between(speeds, '{:.2f}')} times as fast"
    return f"{text} is {gain}, with every split." if min(speeds) > 0.98 else f"{text} is {gain}."


def percent(value: float) -> str:
    """Return a percentage without digits behind the point, and no minus before 0."""
    return f"{round(value)} %"


def _percent(values: Sequence[float]) -> str:
    return f"{between(values, '{:.0f}')} %"


def _case(pair: Orders) -> str:
    return f"{pair.thread['layer']} at batch {pair.thread['batch']}: {percent(pair.saved)}"
