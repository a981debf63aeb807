"""Which marks may be digits.

Filters decide more than the recogniser does whether a photograph is read. A mark is judged
against the large marks of its own picture: by contrast, by the sharpness of its edge, by its
stroke and by its height. Faint marks go first, before containers are looked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from neocog.vision.components import Component
from neocog.vision.rules import is_strip

_FILLS = 0.5  # a strip's digits take more than this share of its height
_TALL = 0.1  # marks taller than this share of the long side count no more than such
_LEAST_BROAD = 14  # pixels; and no stroke finer than this is one
_BROADEST = 0.03  # a stroke broader than this share of the page's long side may be a shadow


LEAST_LEVEL = 22.0
"""Contrast, in grey levels, that the writing of a page must have."""

SHORTEST, TALLEST = 0.42, 2.6
"""Bounds of a digit's height, in heights of the reference."""

FLATTEST, WIDEST = 2.6, 6.0
"""Bounds of width over height: of one digit, and of several that touch."""

FINEST = 0.03
"""Least stroke as a share of the mark's size: what is finer is an outline or a drawing."""

BROADEST_STROKE = 2.4
"""A mark of strokes so many times as broad as the reference's is no digit."""

_BROAD = 0.45  # a mark wider than this share of its height is no single stroke
_FULLEST = 0.75  # and if its box is filled more than this, it is a blot
_LEAST_CONTRAST = 0.45  # share of the reference contrast that a digit must have
_LEAST_SHARPNESS = 0.55  # least gradient x stroke / contrast
_SOFTEST = 3.0  # widest edge of a stroke, in edges of the reference


@dataclass(frozen=True, slots=True)
class Reference:
    """What the large marks of a page have in common."""

    contrast: float
    height: float
    stroke: float
    edge: float


def digit_like(component: Component) -> bool:
    """Tell whether a mark alone, whatever its size, has the make of a digit."""
    if component.sharpness < _LEAST_SHARPNESS:
        return False
    if component.width > WIDEST * component.height:
        return False
    if component.stroke < 0.5 * FINEST * (component.width * component.height) ** 0.5:
        return False
    if component.stroke > 0.5 * max(component.height, component.width):
        return False
    return not is_blot(component)


def is_blot(component: Component) -> bool:
    """Tell a blot: wider than a stroke, and its box is filled."""
    broad = component.width > _BROAD * component.height
    return broad and component.fill > _FULLEST


def reference(components: Sequence[Component], page: tuple[int, int]) -> Reference | None:
    """Find the contrast, height and stroke of the marks that carry the page.

    Parameters
    ----------
    components : sequence of Component
    page : tuple of int
        Height and width of the page.

    Returns
    -------
    Reference or None
        None when no mark has the make of a digit.
    """
    able = _without_outlines([c for c in components if _carries(c, page)])
    if not able:
        return None
    most = _TALL * max(page)
    height = np.array([min(c.height, 2.0 * c.width + c.stroke, most) for c in able])
    contrast = np.array([c.contrast for c in able])
    weight = height**3 * np.array([c.gradient for c in able]) ** 2
    level = _weighted_quantile(contrast, weight, 0.6)
    strong = contrast >= _LEAST_CONTRAST * level
    tall = np.array([c.height for c in able], dtype=float)[strong]
    weight = weight[strong]
    stroke = np.array([c.stroke for c in able])[strong]
    edge = np.array([c.contrast / c.gradient for c in able])[strong]
    return Reference(
        level,
        _weighted_quantile(tall, weight, 0.5),
        _weighted_quantile(stroke, weight, 0.5),
        _weighted_quantile(edge, weight, 0.5),
    )


def _carries(c: Component, page: tuple[int, int]) -> bool:
    """Whether a mark may tell what the writing of its page is like."""
    high, wide = page
    return (
        digit_like(c)
        and (c.height >= 0.4 * c.width or (c.height >= 0.2 * c.width and c.fill < 0.5))
        and not (_reaches_in(c) and not _fills(c, page))
        and (c.height < 0.99 * high or _fills(c, page))
        and (c.width < 0.9 * wide or c.stroke > 0.04 * wide)
    )


def evidence(
    components: Sequence[Component], page: tuple[int, int], *, power: float = 1.0
) -> float:
    """Say how much marks look like writing: the sum of height x gradient to a power.

    The higher the power, the less do many small marks count against a few large ones.
    """
    found = reference(components, page)
    if found is None:
        return 0.0
    worth = sum(
        (min(c.height, 2 * found.height) * c.gradient) ** power
        for c in components
        if digit_like(c) and c.contrast >= _LEAST_CONTRAST * found.contrast and c.contact == 0
    )
    return float(worth)


def dark_ground(
    components: Sequence[Component],
    page: tuple[int, int],
    ref: Reference | None = None,
) -> bool:
    """Whether shadows, hands or a desk may be among the marks.

    They are large, and far softer or broader than the strokes. ``ref`` is what `reference` says
    of the marks, where that is known.
    """
    area, broadest = page[0] * page[1], max(_BROADEST * max(page), _LEAST_BROAD)
    large = [c for c in components if c.width * c.height > 0.005 * area]
    if not large:
        return False
    ref = ref or reference(components, page)
    return ref is None or any(
        c.stroke > broadest
        or (
            max(c.width, c.height) > 0.7 * ref.height
            and (c.contrast / c.gradient > 3 * ref.edge or c.stroke > 3 * ref.stroke)
        )
        for c in large
    )


def without_faint(components: Sequence[Component], ref: Reference) -> list[Component]:
    """Drop what is too faint or too soft: shadows, creases, print that shows through."""
    return [
        c
        for c in components
        if c.contrast >= _LEAST_CONTRAST * ref.contrast
        and c.sharpness >= _LEAST_SHARPNESS
        and c.contrast / c.gradient <= _SOFTEST * ref.edge
    ]


def without_frames(
    components: Sequence[Component],
    page: tuple[int, int],
    ref: Reference,
    *,
    shaded: bool = False,
) -> list[Component]:
    """Drop drawn boxes, page borders and whatever reaches in from outside the picture.

    Where the page lies in shade or on a desk (``shaded``), nothing at the border is a digit.
    """
    high, wide = page
    kept = []
    for c in _without_outlines(components):
        if _fills(c, page) and c.width <= 0.97 * wide:
            kept.append(c)
            continue
        if c.contact and (c.height > 0.97 * high or c.width > 0.97 * wide):
            continue
        if _reaches_in(c) or (shaded and c.contact) or (c.contact and c.height > 1.6 * ref.height):
            continue
        kept.append(c)
    return kept


def _fills(c: Component, page: tuple[int, int]) -> bool:
    """Whether a mark is as high as the strip that the picture is: a digit may touch its border."""
    return is_strip(page) and c.height > _FILLS * page[0]


def _reaches_in(c: Component) -> bool:
    """Whether a mark lies along the picture's border, as no digit does that is only cut by it."""
    return c.contact > max(2.5 * c.stroke + 2, 0.6 * min(c.width, c.height))


def _without_outlines(components: Sequence[Component]) -> list[Component]:
    """Drop thin outlines around other marks that are strokes in their own right."""
    if len(components) < 2:
        return list(components)
    box = np.array([(*c.box[:2], -c.right, -c.bottom) for c in components])
    height = np.array([c.height for c in components])
    contrast = np.array([c.contrast for c in components])
    inside = (box[:, None] < box[None]).all(axis=2) & (contrast > 0.4 * contrast[:, None])
    large = (inside & (height > 0.3 * height[:, None])).any(axis=1)
    least = np.array([max(4 * c.stroke, 10) for c in components])
    several = (inside & (height > least[:, None])).sum(axis=1) >= 2
    return [
        c
        for c, around in zip(components, large | several, strict=True)
        if not (around and c.fill <= 0.35 and c.area <= 4.0 * c.stroke * (c.width + c.height))
    ]


def _weighted_quantile(
    values: "np.typing.NDArray[np.float64]", weights: "np.typing.NDArray[np.float64]", q: float
) -> float:
    order = np.argsort(values)
    upto = np.cumsum(weights[order])
    return float(values[order[min(int(np.searchsorted(upto, q * upto[-1])), len(order) - 1)]])
