"""How well a model reads a labelled set: accuracy of digits, error rate of whole pictures."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.evaluation.confidence import Confidence, upper_limit
from neocog.learning.datasets import Digits, LabelledPictures
from neocog.network.decision import Answers, of_lone_digits
from neocog.network.engine import AnyEngine
from neocog.reading.numbers import bare
from neocog.reading.reader import Reader
from neocog.reading.results import PageReading
from neocog.text import edit_distance

NO_ANSWER = 10  # column of the confusion matrix
_THRESHOLDS = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99)
_CHUNK = 512  # digits between two calls of progress

Progress = Callable[[int, int], None]  #: called with how many are done and how many there are


@dataclass(frozen=True)
class PictureScore:
    """How whole pictures were read: a reading for each, the digits that stand there, seconds."""

    readings: tuple[PageReading, ...]
    expected: tuple[str, ...]
    seconds: float
    signs: bool = False  # whether whole texts are compared, with signs, spaces and line ends

    @cached_property
    def distances(self) -> tuple[int, ...]:
        """Edits between each reading and what stands there; of digits a line end is none, ``?`` is one."""
        texts = [own.text if self.signs else own.plain.replace("\n", "") for own in self.readings]
        return tuple(map(edit_distance, texts, self.expected))

    @property
    def mistakes(self) -> list[tuple[PageReading, str, int]]:
        """Each picture that was not read exactly: its reading, what is written, the edits."""
        rows = zip(self.readings, self.expected, self.distances, strict=True)
        return [row for row in rows if row[2] or row[0].error is not None]

    @property
    def wrong(self) -> list[dict[str, Any]]:
        """`mistakes` as ``neocog eval --json`` prints them."""
        return [
            {"file": own.source, "written": written, "read": own.text, "error": own.error}
            for own, written, _ in self.mistakes
        ]

    @cached_property
    def numbers(self) -> Confidence:
        """Whether numbers are what is written at their place, by their p; where none was read, p is 0."""
        p, right = list[float](), list[bool]()
        for reading, written in zip(self.readings, self.expected, strict=True):
            some = [number for line in reading.lines for number in line.numbers]
            words = [own.text if self.signs else "".join(c for c in own.text if c.isdigit() or c == "?")
                     for own in some]  # fmt: skip
            parts = own_parts(written.replace("\n", " "), words)
            missed = not some and bool(written)
            p += [0.0] * missed + [0.0 if "?" in own.text else own.p for own in some]
            right += [False] * missed + [bare(a) == bare(b) for a, b in zip(words, parts, strict=True)]
        return Confidence(np.array(p, np.float64), np.array(right, np.bool_))

    @property
    def risk(self) -> list[dict[str, float]]:
        """Numbers that have a p from a threshold on, wrong ones among them, the limit of their share."""
        rows = [row for row in map(self.numbers.at, _THRESHOLDS) if row["coverage"]]
        counts = [round(row["coverage"] * len(self.numbers)) for row in rows]
        return [
            {"p": row["threshold"], "n": n, "coverage": round(row["coverage"], 5), "wrong": int(row["wrong"]),
             "limit": round(upper_limit(row["wrong"], n), 5)}
            for row, n in zip(rows, counts, strict=True)
        ]  # fmt: skip

    @property
    def failures(self) -> list[str]:
        """One line for each picture that could not be decoded; they count as read empty."""
        return [f"{own.source}: {own.error}" for own in self.readings if own.error is not None]

    def to_dict(self) -> dict[str, Any]:
        """As ``neocog eval --json`` prints it, but for `wrong`; no error rate without digits."""
        count, digits = len(self.readings), sum(map(len, self.expected))
        cer = round(sum(self.distances) / digits, 6) if digits else None
        exact = round((count - len(self.mistakes)) / max(count, 1), 6)
        return {"n": count, "n_digits": digits, "cer": cer, "exact": exact, "seconds": round(self.seconds, 3)}


def answer_digits(
    engine: AnyEngine, images: NDArray[np.uint8], *, batch: int | None = None,
    progress: Progress | None = None,
) -> Answers:  # fmt: skip
    """Return the answers to isolated digits (N, 28, 28), telling how far it is."""
    parts = []
    for first in range(0, len(images), _CHUNK):
        found = engine.recognise(images[first : first + _CHUNK], batch=batch)
        parts.append(of_lone_digits(found, engine.model))
        if progress:
            progress(min(first + _CHUNK, len(images)), len(images))
    return Answers.join(parts)


def confusion_of(labels: NDArray[np.int64], answers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count digits by what they are (row) and what was answered (column, 10 for none)."""
    confusion = np.zeros((10, NO_ANSWER + 1), np.int64)
    np.add.at(confusion, (labels, np.where(answers < 0, NO_ANSWER, answers)), 1)
    return confusion


def evaluate_digits(
    engine: AnyEngine, digits: Digits, *, batch: int = 32, progress: Progress | None = None
) -> dict[str, Any]:
    """Read isolated digits and count the answers, as ``neocog eval --json`` prints it."""
    start = time.perf_counter()
    answers = answer_digits(engine, digits.images, batch=batch, progress=progress)
    confusion = confusion_of(digits.labels, answers.label)
    accuracy = round(float(np.trace(confusion)) / max(len(digits), 1), 6)  # no answer is a wrong one
    seconds = round(time.perf_counter() - start, 3)
    return {"n": len(digits), "accuracy": accuracy, "seconds": seconds, "confusion": confusion.tolist()}


def evaluate_pictures(
    reader: Reader, pictures: LabelledPictures, *, progress: Progress | None = None
) -> PictureScore:
    """Read pictures, all pages of each, and keep what was read beside what stands there."""
    readings, start = [], time.perf_counter()
    for done, file in enumerate(pictures.files, 1):
        pages = list(reader.read_pages(file, safely=True))
        readings.append(replace(
            pages[0], text="\n".join(page.text for page in pages),
            digits=tuple(one for page in pages for one in page.digits),
            lines=tuple(one for page in pages for one in page.lines),
            error=next((page.error for page in pages if page.error), None),
        ))  # fmt: skip
        if progress:
            progress(done, len(pictures))
    return PictureScore(tuple(readings), pictures.expected, time.perf_counter() - start)


def own_parts(written: str, words: Sequence[str]) -> list[str]:
    """Return what is written where each word was read, without spaces; what is between two is both's."""
    read, at, out = " ".join(words), 0, list[str]()
    blocks = SequenceMatcher(None, read, written, autojunk=False).get_matching_blocks()
    same = [(i + k, j + k) for i, j, size in blocks for k in range(size)]
    for word in words:
        first, at = at, at + len(word) + 1
        low = max((j for i, j in same if i < first), default=-1) + 1
        high = min((j for i, j in same if i >= at - 1), default=len(written))
        out.append(written[low:high].replace(" ", ""))
    return out
