"""Fits the weights of evidence for a digit, and sets from when on a place is told.

    python -m experiments.reading.tune DATA [--finder FILE] [--model NAME|FILE] [--pages N]
        [-o experiments/reading/results/tune_reading.json]

DATA holds photos, strings and mnist. Tuning data are the photographs, every second cheque, made
pages of the tuned conditions and pages without digits of the tuned kinds, of another seed than
``measure.py`` measures with. A place is a digit where what is read can be aligned with
what is written. `Weights` are a logistic regression to which each of the four sets counts alike;
of all ``told`` and ``steady`` for which at most one page in twenty without digits gives one, those
with the lowest mean error rate win. What is printed goes into `neocog.vision.search`.
"""

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy as np

from neocog.batch.evidence import features
from neocog.batch.reader import Reader
from neocog.edit_distance import edit_distance
from neocog.learning.datasets import LabelledPictures, open_dataset, open_digits
from neocog.learning.pages.conditions import BLANK, CONDITIONS, HELD_BACK, WITHOUT_DIGITS
from neocog.learning.pages.page import make_page
from neocog.network.cache import AnswerCache
from neocog.vision.decode import decode, to_grey
from neocog.vision.lines import into_lines
from neocog.vision.page import LONG_SIDE, lay_out
from neocog.vision.search import Search, SearchSettings, Weights

SEED = 77
NAMES = ("told", "steady")
TOLD, STEADY = (0.3, 0.4, 0.5, 0.6), (2.0, 8.0, 32.0)
ALLOWED = 0.05  # share of pages without digits that may give one
RIDGE = 1e-3  # of the weights' squares, beside the mean loss of a place
FITTED = ("bias", "finder", "contrast", "company", "network", "digit", "agree")

Sample = tuple[str, np.ndarray, str, Any]
"""Set, grey page, its digits, and what the finder says of it."""


def samples(data: Path, pages: int, blank: int) -> Iterator[tuple[str, np.ndarray, str]]:
    """Set, grey page and digits of every picture to tune on."""
    for name, every in (("photos", 1), ("strings", 2)):
        labelled = open_dataset(data / name)
        assert isinstance(labelled, LabelledPictures)
        for file, text in zip(labelled.files[::every], labelled.expected[::every], strict=True):
            yield name, next(decode(file, long_side=LONG_SIDE)).grey, text
    digits = open_digits(data / "mnist", split="validation")
    written = [c for c in CONDITIONS if c not in {*HELD_BACK, *WITHOUT_DIGITS}]
    for group, names, count in (("made", written, pages), ("blank", BLANK, blank)):
        for name in names:
            for number in range(count):
                rng = np.random.default_rng([SEED, number, *name.encode()])
                picture, text = make_page(name, digits.images, digits.labels, rng)
                yield group, to_grey(picture), text.replace("\n", "")


def aligned(read: str, written: str, scores: np.ndarray) -> np.ndarray:
    """Which characters that were read are those written, most of them and the surest."""
    n, m = len(read), len(written)
    best = np.zeros((n + 1, m + 1))
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            same = 1 + scores[i - 1] if read[i - 1] == written[j - 1] else -np.inf
            best[i, j] = max(best[i - 1, j], best[i, j - 1], best[i - 1, j - 1] + same)
    right, i, j = np.zeros(n, np.bool_), n, m
    while i and j:
        if best[i, j] == best[i - 1, j]:
            i -= 1
        elif best[i, j] == best[i, j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            right[i] = True
    return right


def places(reader: Reader, sample: Sample) -> tuple[np.ndarray, np.ndarray]:
    """What speaks for each place of a page, (N, 7), and whether it is a digit."""
    _, grey, written, found = sample
    seeds = Search(grey, found, reader._known, reader.weights).seeds()
    seeds = [seed for seed in seeds if seed.digit is not None]
    if not seeds:
        return np.zeros((0, len(FITTED))), np.zeros(0, np.bool_)
    order = [k for line in into_lines(np.stack([s.box for s in seeds])) for k in line]
    seeds = [seeds[k] for k in order]
    answers = reader.engine.recognise(np.stack([s.digit for s in seeds]))
    kinds = np.array([s.kind for s in seeds])
    said = features(answers, reader.model, kinds, likeliest=reader.weights.likeliest)
    read = "".join(map(str, answers.score.argmax(axis=1)))
    right = aligned(read, written, np.array([s.score for s in seeds]))
    return np.concatenate([np.stack([s.features for s in seeds]), said], axis=1), right


def fitted(x: np.ndarray, y: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Weights of a logistic regression, by Newton's method."""
    weights = np.zeros(x.shape[1])
    share = share / share.sum()
    for _ in range(50):
        p = 1 / (1 + np.exp(-x @ weights))
        slope = x.T @ (share * (p - y)) + RIDGE * weights
        curve = (x * (share * p * (1 - p))[:, None]).T @ x + RIDGE * np.eye(len(weights))
        weights -= np.linalg.solve(curve, slope)
    return weights


def rates(reader: Reader, pages: list[Sample], settings: SearchSettings) -> dict[str, float]:
    """Error rate of each set, share read exactly, and of pages without digits that give one."""
    count: dict[str, list[int]] = {}
    for name, grey, written, found in pages:
        page = lay_out(grey, reader.finder, reader._known, weights=reader.weights,
                       settings=settings, found=found)  # fmt: skip
        read = "".join(digit.char for digit in reader.recognise(page.lines))
        wrong = edit_distance(read, written) if written else int(bool(read))
        row = count.setdefault(name, [0, 0, 0, 0])
        row[0] += wrong
        row[1] += max(1, len(written))
        row[2] += read == written
        row[3] += 1
    out = {name: round(row[0] / row[1], 4) for name, row in count.items()}
    return out | {f"{name} exact": round(row[2] / row[3], 4) for name, row in count.items()}


def tuned(reader: Reader, pages: list[Sample]) -> dict[str, Any]:
    """Fit the weights, try every ``told``, and say what came of it."""
    parts = [(name, *places(reader, (name, *rest))) for name, *rest in pages]
    x = np.concatenate([part for _, part, _ in parts])
    y = np.concatenate([right for *_, right in parts])
    sets = np.concatenate([np.full(len(right), name) for name, _, right in parts])
    share = sum((sets == name) / (sets == name).sum() for name in set(sets.tolist()))
    found = fitted(x, y, share)
    usual = round(float(share @ y / share.sum()), 3)
    named = dict(zip(FITTED, np.round(found, 2).tolist(), strict=True))
    reader.weights = Weights(**named, share=usual)
    tried = {
        way: rates(reader, pages, SearchSettings(told=way[0], steady=way[1]))
        for way in product(TOLD, STEADY)
    }
    few = {way: row for way, row in tried.items() if row.get("blank", 0) <= ALLOWED}
    names = [name for name in ("photos", "strings", "made") if name in sets]
    best = min(few or tried, key=lambda way: sum(tried[way][name] for name in names))
    return {
        "finder": reader.finder.model.id, "model": reader.model.id, "weights":
        asdict(reader.weights), "chosen": dict(zip(NAMES, best, strict=True)), "places": len(y),
        "digits": int(y.sum()),
        "tried": [dict(zip(NAMES, way, strict=True)) | row for way, row in tried.items()],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--finder", type=Path)
    parser.add_argument("--model", default="neocog")
    parser.add_argument("--pages", type=int, default=2, help="made pages of each condition")
    parser.add_argument("--blank", type=int, default=8, help="pages of each kind without digits")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    reader = Reader(given.model, finder=given.finder)
    reader.engine = AnswerCache(reader.engine)  # type: ignore[assignment]
    reader.weights = replace(reader.weights, bias=0.0)
    made = samples(given.data, given.pages, given.blank)
    pages = [(*sample, reader.look(sample[1])) for sample in made]
    result = tuned(reader, pages)
    words = json.dumps(result, indent=1)
    print(words)
    if given.output:
        given.output.write_text(words + "\n")


if __name__ == "__main__":
    main()
