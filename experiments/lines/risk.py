"""How often numbers that are printed are wrong, by their p: risk against coverage; see README.md."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OMP_THREAD_LIMIT"), "1")
import cv2
import numpy as np

from experiments.harness.record import arguments, say, today, write_results
from experiments.learning.ship import write_sums
from experiments.lines.measure import doubtful_files, pictures_of
from experiments.lines.score import DIGITS, SIGNS, only, plain
from neocog.evaluation.confidence import upper_limit
from neocog.evaluation.evaluate import own_parts
from neocog.network import ctc
from neocog.network.lines import load_lines
from neocog.network.registry import SUFFIX
from neocog.reading.numbers import bare, likely
from neocog.reading.reader import Reader
from neocog.vision.decode import to_grey
from neocog.vision.strips import strip_of

Row = dict[str, Any]
TRIED = np.unique(np.round(1 - np.geomspace(0.8, 0.001, 80), 4)).tolist()  # thresholds of p
RISKS = (0.005, 0.01, 0.02, 0.05)
COLUMNS = {"set": "set", "way": "read as", "numbers": "numbers|,", "wrong": "wrong|,",
           "missed": "lines missed|,",
           **{f"at_{risk}": f"printed at {risk:.1%} wrong|.1%" for risk in RISKS}}  # fmt: skip


def page_numbers(reader: Reader, pixels: Any) -> list[tuple[str, float]]:
    """Return words of a picture from left to right, each with its p; 0 for one without a digit."""
    words = [word for line in reader.read(pixels).lines for word in line.words]
    found = sorted((word.box[0], word.text, 0.0 if word.digits is None else word.p) for word in words)
    return [(text, p) for _, text, p in found]


def strip_numbers(reader: Reader, pixels: Any) -> list[tuple[str, float]]:
    """Return the same of the whole picture as one strip, its text as one number."""
    engine: Any = reader.engine
    number = ctc.number(engine.likelihoods([strip_of(to_grey(pixels))])[0], bound=0.0)
    return [(number.text.replace(" ", ""), likely(number.text, number.texts))]


def judged(name: str, written: str, told: Sequence[tuple[str, float]]) -> list[Row]:
    """Return each number of a line: its p, whether it is right, and whether its signs are."""
    kept = DIGITS if name.startswith("strings") else DIGITS + SIGNS  # labels of cheques have no signs
    words = [only(word, kept) for word, _ in told]
    rows = []
    parts = own_parts(only(plain(written), kept + " "), words)
    for word, own, (_, p) in zip(words, parts, told, strict=True):
        signs = [only(text, SIGNS) for text in (word, own)], [only(text, DIGITS) for text in (word, own)]
        silent = word != own and (signs[0][0] != signs[0][1] or signs[1][0] == signs[1][1])
        if only(word, DIGITS):
            rows.append({"p": p, "right": bare(word) == bare(own), "sign": silent})
    return rows or [{"p": 0.0, "right": False, "sign": False}]


def counted(rows: Sequence[Row], p: float) -> tuple[int, int, int]:
    """Return how many numbers are printed from a threshold on, how many are wrong, and signs of how many."""
    printed = [row for row in rows if row["p"] >= p > 0]
    return len(printed), sum(not row["right"] for row in printed), sum(row["sign"] for row in printed)


def table(sets: dict[str, list[Row]]) -> list[Row]:
    """Return what each threshold of p costs; each set counts the same, however many numbers it has.

    ``error`` is the upper limit of the mean of S sets' shares of wrong numbers, as if seen in n numbers of
    one set, n = S^2 / sum(1 / n_s). Only thresholds with a lower one than all below them are kept.
    """
    out, sizes = list[Row](), np.array([*map(len, sets.values())])
    for p in TRIED:
        printed, wrong, _ = np.array([counted(rows, p) for rows in sets.values()]).T
        if not printed.all():
            break
        n, risk = int(len(sets) ** 2 / (1 / printed).sum()), float((wrong / printed).mean())
        error = round(upper_limit(risk * n, n), 5)
        if not out or error < out[-1]["error"]:
            coverage = round(float((printed / sizes).mean()), 4)
            out.append({"p": p, "error": error, "risk": round(risk, 5), "coverage": coverage,
                        "answered": int(printed.sum()), "errors": int(wrong.sum())})  # fmt: skip
    return out


def curve(rows: Sequence[Row]) -> Row:
    """The largest share of numbers that can be printed so that at most so many of them are wrong."""
    found = [(n / len(rows), wrong / max(n, 1)) for n, wrong, _ in (counted(rows, p) for p in TRIED)]
    return {f"at_{risk}": max((c for c, share in found if share <= risk), default=0.0) for risk in RISKS}


def trade(sets: dict[str, list[Row]]) -> list[Row]:
    """What a ``min_p`` costs in each set and in the mean of those with signs: printed, wrong, wrong signs."""
    signed, out = [k for k, name in enumerate(sets) if not name.startswith("strings")], list[Row]()
    sizes = np.array([*map(len, sets.values())])
    keys = [f"{name} {what}" for name in (*sets, "mean") for what in ("printed", "wrong", "sign")]
    for p in np.arange(0.3, 0.96, 0.05).round(2).tolist():
        printed, wrong, signs = np.array([counted(rows, p) for rows in sets.values()]).T
        shares = np.stack([printed / sizes, wrong / np.maximum(printed, 1), signs / sizes], axis=1)
        values = np.append(shares, shares[signed or slice(None)].mean(axis=0)).tolist()
        out.append({"min_p": p} | {key: round(value, 5) for key, value in zip(keys, values, strict=True)})
    return out


def main() -> None:
    args = arguments(
        __doc__, "data", drawn=(Path("drawn"), "folder"),
        reader=("neocog-lines", "the line model, a name or a file"),
        sets=("strings:even,lectaurep,drawn", "what is read; strings:odd only if it is named"),
        models=(Path(), "folder that the model with its table goes into"), min_p=(0.0, "for its card"),
    ).parse_args()  # fmt: skip
    cv2.setNumThreads(1)
    model = load_lines(args.reader)
    reader, doubtful = Reader(model, device="cpu", min_p=0.0), doubtful_files()
    ways = {"page": page_numbers, "strip": strip_numbers}
    found: dict[str, dict[str, list[Row]]] = {way: {} for way in ways}
    for name in args.sets.split(","):
        cases = [case for case in pictures_of(name, args.data, args.drawn) if case[0] not in doubtful]
        cases = cases[:: -(-len(cases) // 1000)]
        for way, numbers in ways.items():
            found[way][name] = [row for _, pixels, text in cases
                                for row in judged(name, text, numbers(reader, pixels))]  # fmt: skip
    rows = [
        {"set": name, "way": way, "numbers": sum(row["p"] > 0 for row in some),
         "wrong": counted(some, 1e-9)[1], "missed": sum(row["p"] == 0 for row in some), **curve(some)}
        for way, sets in found.items() for name, some in sets.items()
    ]  # fmt: skip
    own, costs = table(found["page"]), trade(found["page"])
    say([*rows, *own, *costs])
    if args.models != Path():
        counts = {row["set"]: row["numbers"] for row in rows if row["way"] == "page"}
        card: Row = {"rejection": {"numbers": counts, "date": today(), "table": own}}
        card |= {"reading": {"min_p": args.min_p}} if args.min_p else {}
        file = args.models / f"{model.name}{SUFFIX}"
        print(replace(model, card=model.card | card).save(file, precision="fp16").id)
        write_sums(args.models)
    write_results(args.output, rows, columns=COLUMNS, table=own, trade=costs, reader=model.id)


if __name__ == "__main__":
    main()
