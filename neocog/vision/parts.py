"""Broken strokes joined, and small marks dropped that belong to no digit."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from neocog.vision.components import Component, join
from neocog.vision.filters import Limits, Reference


def join_broken(
    components: Sequence[Component], labels: NDArray[np.int32], ref: Reference, limits: Limits
) -> list[Component]:
    """Join the parts of one digit: a 5 and its bar, a 4 in two strokes, a broken 0.

    Two parts are joined when one is too small to be a digit, or both stand above each other,
    their ink comes nearer than about a stroke, and the whole is no taller or wider than a digit.

    Parameters
    ----------
    components : sequence of Component
    labels : ndarray of int32, shape (H, W)
        The labels that the components refer to.
    ref : Reference
    limits : Limits

    Returns
    -------
    list of Component
    """
    pool = list(components)
    joined = True
    while joined:
        joined = False
        pairs = sorted(_near_pairs(pool, ref))
        for _, i, j in pairs:
            a, b = pool[i], pool[j]
            if _one_digit(a, b, ref) and _ink_gap(a, b, labels, ref) <= _reach(a, b, ref):
                pool = [c for k, c in enumerate(pool) if k not in (i, j)] + [join([a, b])]
                joined = True
                break
    return pool


def _near_pairs(pool: list[Component], ref: Reference) -> list[tuple[float, int, int]]:
    found = []
    for i, a in enumerate(pool):
        for j in range(i + 1, len(pool)):
            b = pool[j]
            across = max(a.box[0], b.box[0]) - min(a.right, b.right)
            down = max(a.box[1], b.box[1]) - min(a.bottom, b.bottom)
            gap = max(across, down)
            if gap <= _reach(a, b, ref):
                found.append((float(gap), i, j))
    return found


def _reach(a: Component, b: Component, ref: Reference) -> float:
    """Widest gap between the ink of two parts of one digit."""
    return 1.2 * ref.stroke + 0.06 * ref.height


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
    return above and 0.3 * ref.height < large.height < 0.85 * ref.height


def _is_dot(c: Component, ref: Reference) -> bool:
    """Round and small: a point, never a part of a digit."""
    round_shape = 0.6 < c.width / c.height < 1.7 and c.fill > 0.55
    return round_shape and max(c.width, c.height) < max(2.2 * ref.stroke, 0.25 * ref.height)


def _ink_gap(a: Component, b: Component, labels: NDArray[np.int32], ref: Reference) -> float:
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
    components: Sequence[Component], ref: Reference, limits: Limits
) -> list[Component]:
    """Drop what is too small, too flat, too tall or too solid to be a digit."""
    kept = []
    for c in components:
        if not limits.shortest * ref.height <= c.height <= limits.tallest * ref.height:
            continue
        if c.width > limits.widest * ref.height or c.width > 2.6 * c.height:
            continue
        broad = c.width > 0.45 * c.height
        if broad and c.fill > limits.fullest:
            continue
        if c.stroke > 2.8 * ref.stroke and c.stroke > 0.2 * c.height:
            continue
        kept.append(c)
    return kept
