"""The last judgement on what is left: strokes of a pen, a sign, a line of print.

Pens draw strokes of one width; shadows, textures and faces are made of blobs. Type stands exactly
on its line; handwriting does not.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.vision.components import Component, body
from neocog.vision.filters import Reference

EVENEST = 2.0
"""A digit's broadest place is at most so many times its mean stroke."""

_OF_MANY = 1.3  # where digits touch, strokes run side by side: so much more is allowed
_RESTLESS = 1.75  # a page whose median mark is less even than this was not written
_TYPE_GAP = 0.22  # type leaves gaps less than this share of its height
_CROWD = 8  # so many marks are not all digits that touch
_CROSS = 0.6  # likeness to its own quarter turn that makes a cross
_APART = 0.8  # half widths between the middles of marks that stand side by side
_DEEP = 0.3  # share of a box that lies in another, in a drawing
_LEFT_OVER = 0.13  # what is kept of a drawing is less than this share of its lines
_BESIDE = 0.45  # and less than this share of it and of the larger marks beside it
_LARGE = 1.2  # heights of a digit that make a mark large
_WORD = 3  # so many refused neighbours make a word
_NEAR = 6.0  # heights to the furthest neighbour
_LIKE = 0.4  # neighbours are no lower than this share of a mark's height
_PEN = 3.0  # lines of a drawing are at most so many strokes broad
_TYPE_LINE = 12  # places on a line from which it is asked whether it is type


def evenness(own: NDArray[np.bool_], stroke: float) -> float:
    """Return the broadest place of a mark in units of its mean stroke width.

    Parameters
    ----------
    own : ndarray of bool, shape (h, w)
        The mark.
    stroke : float
        Its mean stroke width in pixels.

    Returns
    -------
    float
        About 1 for strokes of one width, 2 and more for blobs.
    """
    import cv2

    padded = cv2.copyMakeBorder(own.view(np.uint8), 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=0)
    depth = cv2.distanceTransform(padded, cv2.DIST_L2, 5)
    return float(2.0 * depth.max() - 1.0) / max(stroke, 1.0)


def is_cross(own: NDArray[np.bool_]) -> bool:
    """Tell a plus or times sign: inked in the middle and alike after a quarter turn."""
    import cv2

    height, width = own.shape
    if not 0.6 < width / height < 1.6:
        return False
    square = cv2.resize(own.astype(np.float32), (25, 25), interpolation=cv2.INTER_AREA)
    square = cv2.GaussianBlur(square, (0, 0), 1.2)
    if square[11:14, 11:14].mean() < 0.5:
        return False
    return min(_likeness(square, np.rot90(square)), _likeness(square, np.rot90(square, 2))) > _CROSS


def written(components: Sequence[Component], labels: NDArray[np.int32]) -> list[Component]:
    """Keep what a pen wrote and what is no sign.

    Parameters
    ----------
    components : sequence of Component
    labels : ndarray of int32, shape (H, W)

    Returns
    -------
    list of Component
        Empty where the page as a whole is no writing.
    """
    bodies = [body(labels, c) for c in components]
    even = [evenness(own, c.stroke) for own, c in zip(bodies, components, strict=True)]
    if len(even) >= _CROWD and median(even) > _RESTLESS:
        return []
    even = [
        value / (_OF_MANY if c.width > c.height else 1.0)
        for value, c in zip(even, components, strict=True)
    ]
    if not even or median(even) > _RESTLESS or _tangled(components):
        return []
    return [
        c
        for c, own, value in zip(components, bodies, even, strict=True)
        if value <= EVENEST and not is_cross(own)
    ]


def is_drawing(strong: Sequence[Component], kept: Sequence[Component], ref: Reference) -> bool:
    """Whether what was kept is the rest of a drawing: few of the pen's lines were like digits.

    Frames around digits do not count against them so much.

    Parameters
    ----------
    strong : sequence of Component
        All marks that are not faint.
    kept : sequence of Component
        Those of them that may be digits.
    ref : Reference
    """
    lines = [c for c in strong if c.stroke <= _PEN * ref.stroke]
    ink = sum(c.area for c in kept)
    return ink < _LEFT_OVER * sum(c.area for c in lines) or ink < _BESIDE * (
        ink + sum(c.area for c in _large_beside(lines, kept, ref))
    )


def _large_beside(
    lines: Sequence[Component], kept: Sequence[Component], ref: Reference
) -> Iterator[Component]:
    """Marks larger than the page's digits that were not kept, and are no frame around what was."""
    own = {label for c in kept for label in c.labels}
    box = np.array([(*c.box[:2], -c.right, -c.bottom) for c in kept]).reshape(-1, 4)
    for c in lines:
        if max(c.width, c.height) <= _LARGE * ref.height or not own.isdisjoint(c.labels):
            continue
        if not ((c.box[0], c.box[1], -c.right, -c.bottom) <= box).all(axis=1).any():
            yield c


def without_print(components: Sequence[Component], kept: Sequence[Component]) -> list[Component]:
    """Drop what stands among marks of its own size that are no digits: letters of a word.

    Parameters
    ----------
    components : sequence of Component
        All marks that are not faint, broken ones joined.
    kept : sequence of Component
        Those of them that may be digits.
    """
    own = {label for c in kept for label in c.labels}
    others = [c for c in components if own.isdisjoint(c.labels)]
    if not others or not kept:
        return list(kept)
    return [c for c in kept if not _in_print(c, others, kept)]


def _in_print(c: Component, others: Sequence[Component], kept: Sequence[Component]) -> bool:
    """Whether more than half of a mark's neighbours on its line are no digits."""
    refused = sum(_beside(c, other) for other in others)
    return refused >= _WORD and refused > sum(_beside(c, k) for k in kept if k is not c)


def _beside(c: Component, other: Component) -> bool:
    """Whether a mark of like size stands on the same line, at most a few heights away."""
    shared = min(c.bottom, other.bottom) - max(c.box[1], other.box[1])
    gap = max(c.box[0], other.box[0]) - min(c.right, other.right)
    return (
        shared > 0.5 * min(c.height, other.height)
        and gap < _NEAR * c.height
        and _LIKE * c.height < other.height < c.height / _LIKE
    )


def without_type(lines: Sequence[list[Component]]) -> list[list[Component]]:
    """Drop the lines that stand too exactly on their baseline to be handwriting."""
    return [line for line in lines if len(line) < _TYPE_LINE or not _is_type(line)]


def _is_type(line: Sequence[Component]) -> bool:
    column = np.array([c.centre[0] for c in line])
    foot = np.array([float(c.bottom) for c in line])
    tall = float(np.median([c.height for c in line]))
    half = len(line) // 2
    slope = float(np.median((foot[half:] - foot[:-half]) / (column[half:] - column[:-half])))
    rest = foot - slope * column
    gaps = [b.box[0] - a.right for a, b in pairwise(line)]
    off = float(np.median(np.abs(rest - np.median(rest))))
    return off <= 0.4 + 0.004 * tall and median(gaps) < _TYPE_GAP * tall


def _tangled(components: Sequence[Component]) -> bool:
    """Whether the boxes of most marks lie deep in one another, as those of a drawing do."""
    box = np.array([(*c.box[:2], c.right, c.bottom) for c in components], dtype=np.float64)
    if len(box) < 2:
        return False
    low = np.maximum(box[:, None, :2], box[None, :, :2])
    high = np.minimum(box[:, None, 2:], box[None, :, 2:])
    shared = np.clip(high - low, 0, None).prod(axis=2)
    shared[_side_by_side(box)] = 0
    own = shared.diagonal().copy()
    np.fill_diagonal(shared, 0)
    return bool((shared.max(axis=1) > _DEEP * own).mean() > 0.4)


def _side_by_side(box: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Pairs whose middles lie apart along the line: slanting digits, whose boxes overlap."""
    middle = (box[:, :2] + box[:, 2:]) / 2
    apart, level = np.abs(middle[:, None] - middle[None]).transpose(2, 0, 1)
    half = (box[:, 2] - box[:, 0]) / 2
    return np.asarray((apart > _APART * np.minimum(half[:, None], half)) & (apart > 2 * level))


def _likeness(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Correlation of two pictures with the same values in other places."""
    off = a - a.mean(dtype=np.float64)
    other = b - b.mean(dtype=np.float64)
    return float((off * other).sum() / max((off * off).sum(), 1e-12))
