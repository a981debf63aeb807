"""Touching digits cut apart: one dynamic programme over the line, scored by the network.

A mark too wide for a digit, or one that the network does not know, is offered cuts: paths from
its top to its bottom that cross little ink. Every stretch between two cuts is a digit perhaps; the
network scores them all at once, and the cheapest way through the line wins. A stretch costs
-log p, a cut costs by the ink that it crosses, so that a mark which is known as it is stays whole.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from neocog.vision.binarise import Marks
from neocog.vision.components import Box, Component, body
from neocog.vision.normalise import normalise

Score = Callable[[NDArray[np.uint8]], NDArray[np.floating]]
"""Given digits (N, 28, 28), the probability (N,) that the network knows each for what it is."""

_TRIALS = 24  # marks of a page that may be cut
_CUTS = 9  # cuts offered to one mark
_SWAY = 0.3  # how far a cut may sway to a side, in heights of the line
_APART = 0.12  # nearest that two cuts come, in heights of the line
_LEAST_P = 0.02  # a stretch that is not known at all counts as known so much
_CUT = 1.0  # cost of any cut
_CROSSED = 0.5  # cost of each stroke width of ink that a cut crosses beyond the first
_WIDEST = 0.95  # width over height of a wide digit
_BROAD = 3.0  # cost of a width over height of 1 more than a digit's widest
_DOUBT = 0.75  # a mark narrower than so many heights is one digit
_TOO_WIDE = 2.4  # a mark wider than so many heights may be several
_FLAT = 2.6  # a mark flatter than this is digits that touch, all known, or no digit
_SURE = 0.8  # a mark that the network knows with this probability is one digit
_LOWEST = 0.5  # a stretch lower than this share of its mark is no digit
_NARROW = 0.1  # a stretch narrower than this many heights of the line is no digit


@dataclass(frozen=True, slots=True)
class Piece:
    """A mark, or a stretch of one, that shall be read as one digit."""

    box: Box
    own: NDArray[np.bool_]
    stroke: float
    contrast: float

    def digit(self, marks: Marks) -> NDArray[np.uint8]:
        """Return the ink in MNIST's form, shape (28, 28); grey at the strokes' edges."""
        x, y, w, h = self.box
        amount = marks.contrast[y : y + h, x : x + w].astype(np.float32) / self.contrast
        ink = np.where(self.own, np.clip(0.35 + 0.65 * amount, 0.5, 1.0), 0.0)
        return normalise(ink, stroke=self.stroke)


def whole(component: Component, marks: Marks) -> Piece:
    """Take a component as one piece."""
    return Piece(component.box, body(marks.labels, component), component.stroke, component.contrast)


def cut_lines(
    lines: Sequence[Sequence[Component]], marks: Marks, score: Score | None
) -> list[list[Piece]]:
    """Cut the marks of each line into pieces of one digit each.

    Parameters
    ----------
    lines : sequence of sequence of Component
        From left to right.
    marks : Marks
        What the components refer to.
    score : callable or None
        Without it every component is one piece.

    Returns
    -------
    list of list of Piece
    """
    pieces = [[whole(component, marks) for component in line] for line in lines]
    if score is None or not any(pieces):
        return pieces
    wide: list[tuple[int, int, Piece, float]] = []
    for row, line in enumerate(pieces):
        tall = float(np.median([p.box[3] for p in line]))
        wide += [(row, k, p, tall) for k, p in enumerate(line) if _wide(p, tall)]
    if not wide:
        return pieces
    known = np.asarray(score(np.stack([piece.digit(marks) for _, _, piece, _ in wide])))
    doubtful = [w for w, p in zip(wide, known, strict=True) if p < _SURE or _too_wide(w[2])]
    if len(doubtful) > _TRIALS:  # so much doubt is no touching digits
        return pieces
    trials = [(row, place, _Trial.of(piece, tall)) for row, place, piece, tall in doubtful]
    stretches = [piece for *_, trial in trials for piece in trial.stretches.values()]
    if not stretches:
        return pieces
    scores = iter(np.asarray(score(np.stack([p.digit(marks) for p in stretches]))).tolist())
    cut = [(row, place, *trial.scored(scores)) for row, place, trial in trials]
    for row, place, parts, known_least in reversed(cut):
        _, _, width, height = pieces[row][place].box
        junk = width > _FLAT * height and known_least < _SURE
        pieces[row][place : place + 1] = [] if junk else parts
    return [line for line in pieces if line]


def _wide(piece: Piece, tall: float) -> bool:
    """Whether a mark may be several digits if the network does not know it."""
    _, _, width, height = piece.box
    return width >= _DOUBT * tall and width > _DOUBT * height


def _too_wide(piece: Piece) -> bool:
    """Whether a mark may be several digits even if the network knows it."""
    return piece.box[2] > _TOO_WIDE * piece.box[3]


@dataclass(frozen=True, slots=True)
class _Trial:
    """A mark with its cuts, and every stretch between two of them."""

    cut_cost: list[float]
    stretches: dict[tuple[int, int], Piece]
    ratio: dict[tuple[int, int], float]

    @staticmethod
    def of(piece: Piece, tall: float) -> "_Trial":
        """Find the cuts of a mark and the stretches between them."""
        seams, crossed = _seams(piece, tall)
        height, width = piece.own.shape
        edges = [np.full(height, -1), *seams, np.full(height, width - 1)]
        costs = (
            [0.0]
            + [_CUT + _CROSSED * max(0.0, ink / piece.stroke - 1.0) for ink in crossed]
            + [0.0]
        )
        stretches, ratio = {}, {}
        for i in range(len(edges) - 1):
            for j in range(i + 1, len(edges)):
                part = _between(piece, edges[i], edges[j])
                entire = (i, j) == (0, len(edges) - 1)
                if part is None or (part.box[2] > 1.6 * tall and not entire):
                    continue
                if part.box[2] < _NARROW * tall or part.box[3] < _LOWEST * min(tall, piece.box[3]):
                    continue
                stretches[i, j] = part
                ratio[i, j] = part.box[2] / max(part.box[3], 0.8 * tall)
        return _Trial(costs, stretches, ratio)

    def scored(self, scores: Iterator[float]) -> tuple[list[Piece], float]:
        """Return the cheapest row of stretches, and how well the least of them is known.

        Takes one score for each stretch from ``scores``.
        """
        last = len(self.cut_cost) - 1
        best: list[tuple[float, int]] = [(0.0, -1)] + [(float("inf"), -1)] * last
        cost, known = {}, {}
        for key in self.stretches:
            known[key] = next(scores)
            cost[key] = -log(max(known[key], _LEAST_P)) + _BROAD * max(
                0.0, self.ratio[key] - _WIDEST
            )
        for (i, j), value in sorted(cost.items(), key=lambda item: item[0][1]):
            total = best[i][0] + value + self.cut_cost[j]
            if total < best[j][0]:
                best[j] = (total, i)
        row: list[Piece] = []
        least, at = 1.0, last
        while at > 0:
            before = best[at][1]
            row.insert(0, self.stretches[before, at])
            least = min(least, known[before, at])
            at = before
        return row, least


def _seams(piece: Piece, tall: float) -> tuple[list[NDArray[np.intp]], list[float]]:
    """Paths from top to bottom that cross least ink, left to right, and the ink they cross."""
    height, width = piece.own.shape
    sway = max(2, round(_SWAY * tall / 2))
    starts = np.arange(max(2, int(0.08 * tall)), width - 2, max(1, round(0.04 * tall)))
    if not starts.size:
        return [], []
    columns = np.clip(starts[:, None] + np.arange(-sway, sway + 1)[None, :], 0, width - 1)
    ink = piece.own[:, columns].astype(np.float32)
    total, came = ink[0] + 0.01 * np.abs(np.arange(-sway, sway + 1)), []
    for row in range(1, height):
        padded = np.pad(total, ((0, 0), (1, 1)), constant_values=np.inf)
        three = np.stack([padded[:, 1:-1], padded[:, :-2] + 0.06, padded[:, 2:] + 0.06])
        step = three.argmin(axis=0)
        came.append(step)
        total = np.take_along_axis(three, step[None], axis=0)[0] + ink[row]
    end = total.argmin(axis=1)
    rows = np.arange(len(starts))
    cost = total[rows, end]
    path = [end]
    for step in reversed(came):
        end = end + np.array([0, -1, 1])[step[rows, end]]
        path.append(end)
    paths = np.take_along_axis(columns, np.array(path[::-1]).T, axis=1)
    chosen: list[int] = []
    for number in np.argsort(cost, kind="stable").tolist():
        middle = paths[number].mean()
        if all(abs(middle - paths[other].mean()) >= _APART * tall for other in chosen):
            chosen.append(number)
        if len(chosen) == _CUTS:
            break
    chosen.sort(key=lambda number: paths[number].mean())
    return [paths[number] for number in chosen], [float(cost[number]) for number in chosen]


def _between(piece: Piece, left: NDArray[np.intp], right: NDArray[np.intp]) -> Piece | None:
    """Return the ink right of one path up to another; what hangs loose is left out."""
    import cv2

    x, y, width, _ = piece.box
    column = np.arange(width)[None, :]
    own = piece.own & (column > left[:, None]) & (column <= right[:, None])
    count, labels, stats, _ = cv2.connectedComponentsWithStats(own.astype(np.uint8), connectivity=8)
    if count < 2:
        return None
    area = stats[:, 4].copy()
    area[0] = 0
    own = (area >= 0.15 * area.max())[labels] & own
    rows, columns = np.flatnonzero(own.any(axis=1)), np.flatnonzero(own.any(axis=0))
    top, low, first, end = rows[0], rows[-1] + 1, columns[0], columns[-1] + 1
    box = (int(x + first), int(y + top), int(end - first), int(low - top))
    return Piece(box, own[top:low, first:end], piece.stroke, piece.contrast)
