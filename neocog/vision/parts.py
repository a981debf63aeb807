"""Broken strokes joined, and small marks dropped that belong to no digit."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from neocog.vision.components import Component, join
from neocog.vision.filters import (
    BROADEST_STROKE,
    FINEST,
    FLATTEST,
    SHORTEST,
    TALLEST,
    WIDEST,
    Reference,
    is_blot,
)

_DRAWN = 2.0  # larger marks may have so many times the ink of the digits
_ROUNDS = 3  # a digit in four parts is whole after two


def join_broken(
    components: Sequence[Component], labels: NDArray[np.int32], ref: Reference
) -> list[Component]:
    """Join the parts of one digit: a 5 and its bar, a 4 in two strokes, a broken 0.

    Two parts are joined when one is too small to be a digit, or both stand above each other,
    their ink comes nearer than about two strokes, and the whole is no taller or wider than a digit.

    Parameters
    ----------
    components : sequence of Component
    labels : ndarray of int32, shape (H, W)
        The labels that the components refer to.
    ref : Reference

    Returns
    -------
    list of Component
    """
    pool = list(components)
    for _ in range(_ROUNDS):
        owner = list(range(len(pool)))
        before = len(pool)
        for i, j in _near_pairs(pool, _reach(ref)):
            i, j = _root(owner, i), _root(owner, j)
            if i == j or not _one_digit(pool[i], pool[j], ref):
                continue
            if _ink_gap(pool[i], pool[j], labels) <= _reach(ref):
                pool[i] = join([pool[i], pool[j]])
                owner[j] = i
        pool = [c for k, c in enumerate(pool) if owner[k] == k]
        if len(pool) == before:
            break
    return pool


def _root(owner: list[int], index: int) -> int:
    while owner[index] != index:
        index = owner[index]
    return index


def _near_pairs(pool: list[Component], reach: float) -> list[tuple[int, int]]:
    """Pairs whose boxes come within reach, nearest first."""
    box = np.array([(*c.box[:2], c.right, c.bottom) for c in pool], dtype=np.float64).reshape(-1, 4)
    low = np.maximum(box[:, None, :2], box[None, :, :2])
    high = np.minimum(box[:, None, 2:], box[None, :, 2:])
    gap = (low - high).max(axis=2)
    first, second = np.nonzero(np.triu(gap <= reach, k=1))
    order = np.argsort(gap[first, second], kind="stable")
    return list(zip(first[order].tolist(), second[order].tolist(), strict=True))


def _reach(ref: Reference) -> float:
    """Widest gap between the ink of two parts of one digit."""
    return 2.0 * ref.stroke + 0.12 * ref.height


def _one_digit(a: Component, b: Component, ref: Reference) -> bool:
    whole = join([a, b])
    if whole.height > 1.45 * ref.height and whole.height > 1.1 * max(a.height, b.height):
        return False
    if whole.width > max(1.15 * ref.height, 1.05 * max(a.width, b.width)):
        return False
    small, large = sorted((a, b), key=lambda c: c.height)
    if _is_dot(small, ref):
        return False
    shared = min(a.right, b.right) - max(a.box[0], b.box[0])
    above = shared > 0.5 * min(a.width, b.width)
    if min(a.stroke, b.stroke) < 0.4 * ref.stroke:
        return False
    fragment = small.height < 0.5 * ref.height and small.height < 0.6 * large.height
    if fragment and large.height > 0.45 * ref.height:
        return True
    halves = small.height > 0.4 * ref.height and large.height < 0.85 * ref.height
    return above and halves


def _is_dot(c: Component, ref: Reference) -> bool:
    """Round and small: a point, never a part of a digit."""
    round_shape = 0.6 < c.width / c.height < 1.7 and c.fill > 0.55
    return round_shape and max(c.width, c.height) < max(2.2 * ref.stroke, 0.25 * ref.height)


def _ink_gap(a: Component, b: Component, labels: NDArray[np.int32]) -> float:
    """Return the shortest distance between the ink of two components, in pixels."""
    import cv2

    whole = join([a, b])
    x, y, w, h = whole.box
    window = labels[y : y + h, x : x + w]
    small, other = (a, b) if a.area < b.area else (b, a)
    away = np.isin(window, small.labels, invert=True).astype(np.uint8)
    distance = cv2.distanceTransform(away, cv2.DIST_L2, 3)
    there = np.isin(window, other.labels)
    return float(distance[there].min()) if there.any() else float("inf")


def without_fragments(
    components: Sequence[Component], ref: Reference, *, cuts: bool = False
) -> list[Component]:
    """Drop what is too small, too flat, too tall or too solid to be a digit.

    Flat marks may be several digits where they are going to be cut apart (``cuts``). Nothing is
    left of a page on which larger marks outweigh those of a digit's size: it is a drawing.
    """
    flattest = WIDEST if cuts else FLATTEST
    kept, drawn = [], 0
    for c in components:
        too_large = c.height > TALLEST * ref.height or c.width > WIDEST * ref.height
        if too_large or c.stroke < FINEST * (c.width * c.height) ** 0.5:
            drawn += c.area
            continue
        if c.height < SHORTEST * ref.height:
            continue
        if c.width > flattest * c.height:
            continue
        if is_blot(c):
            continue
        if c.stroke > BROADEST_STROKE * ref.stroke and c.stroke > 0.15 * c.height:
            continue
        kept.append(c)
    return kept if drawn <= _DRAWN * sum(c.area for c in kept) else []
