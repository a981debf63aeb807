"""Where a mark may be cut: paths from its top to its bottom that cross little ink."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from neocog.vision.binarise import Marks
from neocog.vision.components import Box, Component, body
from neocog.vision.normalise import normalise

_CUTS = 9  # cuts offered to one mark
_PER_HEIGHT = 4.5  # or so many for each height of the line that it is wide
_SWAY = 0.3  # how far a cut may sway to a side, in heights of the line
_APART = 0.12  # nearest that two cuts come, in heights of the line
_LOOSE = 0.15  # a part with less than this share of the largest part's ink hangs loose


@dataclass(frozen=True, slots=True)
class Piece:
    """A mark, a stretch of one, or several marks, that shall be read as one digit."""

    box: Box
    own: NDArray[np.bool_]
    stroke: float
    contrast: float
    _made: list[NDArray[np.uint8]] = field(default_factory=list, compare=False, repr=False)

    @property
    def right(self) -> int:
        """First column right of the box."""
        return self.box[0] + self.box[2]

    def digit(self, marks: Marks) -> NDArray[np.uint8]:
        """Return the ink in MNIST's form, shape (28, 28); grey at the strokes' edges."""
        if self._made:  # asked for by the one who scores cuts, and by the one who reads
            return self._made[0]
        x, y, w, h = self.box
        amount = marks.contrast[y : y + h, x : x + w].astype(np.float32) / self.contrast
        ink = np.where(self.own, np.clip(0.35 + 0.65 * amount, 0.5, 1.0), 0.0)
        self._made.append(normalise(ink, stroke=self.stroke))
        return self._made[0]


def whole(component: Component, marks: Marks) -> Piece:
    """Take a component as one piece."""
    return Piece(component.box, body(marks.labels, component), component.stroke, component.contrast)


def joined(pieces: Sequence[Piece]) -> Piece:
    """Take several pieces as one."""
    left, top = (min(piece.box[axis] for piece in pieces) for axis in (0, 1))
    right = max(piece.right for piece in pieces)
    bottom = max(piece.box[1] + piece.box[3] for piece in pieces)
    own = np.zeros((bottom - top, right - left), dtype=np.bool_)
    for piece in pieces:
        x, y, w, h = piece.box
        own[y - top : y - top + h, x - left : x - left + w] |= piece.own
    area = np.array([piece.own.sum() for piece in pieces], dtype=np.float64)
    stroke = float(area @ [piece.stroke for piece in pieces] / area.sum())
    contrast = float(area @ [piece.contrast for piece in pieces] / area.sum())
    return Piece((left, top, right - left, bottom - top), own, stroke, contrast)


def seams(piece: Piece, tall: float) -> tuple[list[NDArray[np.intp]], list[float]]:
    """Paths from top to bottom that cross least ink, left to right, and the ink they cross.

    Parameters
    ----------
    piece : Piece
    tall : float
        Height of the line's digits, in pixels.

    Returns
    -------
    list of ndarray of int, shape (h,)
        The last column left of the cut, row by row.
    list of float
        Pixels of ink that each crosses, with a little for each step to a side.
    """
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
    most = max(_CUTS, round(_PER_HEIGHT * width / tall))
    for number in np.argsort(cost, kind="stable").tolist():
        middle = paths[number].mean()
        if all(abs(middle - paths[other].mean()) >= _APART * tall for other in chosen):
            chosen.append(number)
        if len(chosen) == most:
            break
    chosen.sort(key=lambda number: paths[number].mean())
    return [paths[number] for number in chosen], [float(cost[number]) for number in chosen]


def between(piece: Piece, left: NDArray[np.intp], right: NDArray[np.intp]) -> Piece | None:
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
    own = (area >= _LOOSE * area.max())[labels] & own
    rows, columns = np.flatnonzero(own.any(axis=1)), np.flatnonzero(own.any(axis=0))
    top, low, first, end = rows[0], rows[-1] + 1, columns[0], columns[-1] + 1
    box = (int(x + first), int(y + top), int(end - first), int(low - top))
    return Piece(box, own[top:low, first:end], piece.stroke, piece.contrast)
