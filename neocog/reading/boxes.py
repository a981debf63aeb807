"""Lines read box by box: what finder and digit network say of each, as log likelihoods of a line."""

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from neocog.network.ctc import BLANK
from neocog.network.decision import all_scores
from neocog.network.lines import ALPHABET
from neocog.reading.records import Box
from neocog.vision.crops import cut_out
from neocog.vision.finder import SIGNS, Finding
from neocog.vision.strips import StripSettings, lines_of

if TYPE_CHECKING:
    from neocog.reading.reader import Reader

_NEVER = -30.0  # log likelihood
_LEAST = 1e-4  # and probability of what a box may be all the same
_SPACE = 1.0  # heights of a gap in which one stands: a digit would fit in


def of_boxes(
    reader: "Reader", grey: NDArray[np.uint8], marks: Finding, gap: NDArray[np.float32], *, apart: bool
) -> Iterator[tuple[list[int], NDArray[np.float32], partial[list[tuple[Box, float]]]]]:
    """Yield lines of a page (H, W): their marks, log likelihoods (T, n), and what gives characters' boxes.

    Every mark has a column; between two is one for nothing, or where they are far apart ``gap`` (n,).
    """
    settings = StripSettings()
    sure = (marks.kinds < 10) & (marks.scores >= settings.score)
    logs = likelihoods(reader, grey, marks)
    nothing = np.where(np.arange(BLANK + 1) == BLANK, 0, _NEVER).astype(np.float32)
    for line in lines_of(marks.boxes, sure, settings):
        tall = float(np.median(marks.boxes[line, 3][sure[line]]))
        ends = marks.boxes[line, 0] + marks.boxes[line, 2]
        gaps = (marks.boxes[line[1:], 0] - np.maximum.accumulate(ends)[:-1]) / tall
        cuts = (np.flatnonzero(gaps > settings.gap) + 1).tolist() if apart else []
        for first, last in pairwise([0, *cuts, len(line)]):
            part, columns = line[first:last], [logs[line[first]]]
            for mark, wide in zip(part[1:], gaps[first : last - 1] > _SPACE, strict=True):
                columns += [gap if wide else nothing, logs[mark]]
            yield part, np.stack(columns), partial(_boxes, part=part, marks=marks)


def likelihoods(reader: "Reader", grey: NDArray[np.uint8], marks: Finding) -> NDArray[np.float32]:
    """Return log likelihoods of what each of N marks is, (N, n): a digit, its sign, or nothing.

    The finder says whether it is something, and which sign; the network, which digit, and whether it is one.
    """
    p = np.clip(marks.scores.astype(np.float64), _LEAST, 1 - _LEAST)
    p = p**2 / (p**2 + (1 - p) ** 2)  # the finder's scores are too near one half
    out = np.full((len(marks), BLANK + 1), _NEVER)
    out[:, BLANK] = np.log(1 - p)
    for k, kind in enumerate(marks.kinds.tolist()):
        if kind >= 10 and SIGNS[kind - 10] in ALPHABET:
            out[k, ALPHABET.index(SIGNS[kind - 10])] = np.log(p[k])
    digits = np.flatnonzero(marks.kinds < 10)
    if len(digits):
        answers = reader.engine.recognise(cut_out(grey, marks.boxes[digits]), batch=reader.batch)
        score = all_scores(answers, reader.model)[:, :10] / reader.model.temperature
        score -= np.logaddexp.reduce(score, axis=1, keepdims=True)
        out[digits, :10] = score + np.log(p[digits, None])
    out = np.maximum(out - np.logaddexp.reduce(out, axis=1, keepdims=True), _NEVER)
    return np.asarray(out, np.float32)


def _boxes(spans: list[tuple[int, int]], *, part: list[int], marks: Finding) -> list[tuple[Box, float]]:
    """The box of each character, from its first column to its last, and the finder's score of it."""
    own = [part[(first + last) // 4] for first, last in spans]
    boxes = np.rint(marks.boxes[own]).astype(int)
    boxes[:, 2:] = np.maximum(boxes[:, 2:], 1)
    return list(zip(map(tuple, boxes.tolist()), marks.scores[own].tolist(), strict=True))
