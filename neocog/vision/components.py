"""Marks measured one by one: size, contrast, stroke width, sharpness."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neocog.vision.binarise import Marks

Box = tuple[int, int, int, int]
"""Left, top, width and height, in pixels."""


@dataclass(frozen=True, slots=True)
class Component:
    """One mark, or several that were joined.

    Attributes
    ----------
    box : tuple of int
        Left, top, width, height.
    labels : tuple of int
        Numbers of the marks that it is made of.
    area : int
        Pixels of ink.
    contrast : float
        Full contrast against the paper, in grey levels.
    stroke : float
        Mean stroke width in pixels.
    sharpness : float
        Gradient at the edge times stroke width over contrast: about the stroke width in units of
        the edge's own width. A shadow has little of it, a stroke out of focus still has enough.
    contact : int
        Pixels of its box that lie on the picture's border.
    """

    box: Box
    labels: tuple[int, ...]
    area: int
    contrast: float
    stroke: float
    sharpness: float
    contact: int = 0

    @property
    def right(self) -> int:
        """First column right of the box."""
        return self.box[0] + self.box[2]

    @property
    def bottom(self) -> int:
        """First row below the box."""
        return self.box[1] + self.box[3]

    @property
    def width(self) -> int:
        """Width of the box."""
        return self.box[2]

    @property
    def height(self) -> int:
        """Height of the box."""
        return self.box[3]

    @property
    def centre(self) -> tuple[float, float]:
        """Middle of the box, column and row."""
        return self.box[0] + self.box[2] / 2, self.box[1] + self.box[3] / 2

    @property
    def gradient(self) -> float:
        """Mean gradient along the edge, in grey levels over two pixels."""
        return max(self.sharpness * self.contrast / self.stroke, 1e-3)

    @property
    def fill(self) -> float:
        """Share of the box that is ink."""
        return self.area / max(self.box[2] * self.box[3], 1)


def measure(marks: Marks, *, least: int, limit: int = 600) -> list[Component]:
    """Measure the marks that are large enough to matter.

    Parameters
    ----------
    marks : Marks
        Connected marks of one polarity.
    least : int
        Marks whose longer side is shorter than this, in pixels, are left out.
    limit : int
        At most so many of the largest are measured.

    Returns
    -------
    list of Component
        In the order of their labels.
    """
    stats = marks.stats
    size = np.maximum(stats[:, 2], stats[:, 3])
    size[0] = 0
    chosen = np.flatnonzero((size >= least) & (stats[:, 4] >= least))
    if chosen.size > limit:
        chosen = np.sort(chosen[np.argsort(size[chosen])[-limit:]])
    if not chosen.size:
        return []
    edge_length, edge_gradient = _edges(marks)
    contact = _contact(marks)
    found = []
    for label in chosen.tolist():
        x, y, w, h, area = (int(v) for v in stats[label])
        length = max(float(edge_length[label]), 1.0)
        stroke = max(2.0 * area / length, 1.0) if area > length else area / length
        contrast = max(float(marks.full[label]), 1.0)
        sharpness = float(edge_gradient[label]) / length * stroke / contrast
        found.append(
            Component(
                (x, y, w, h), (label,), area, contrast, stroke, sharpness, int(contact[label])
            )
        )
    return found


def join(parts: Sequence[Component]) -> Component:
    """Make one component of several."""
    left = min(part.box[0] for part in parts)
    top = min(part.box[1] for part in parts)
    right = max(part.right for part in parts)
    bottom = max(part.bottom for part in parts)
    area = sum(part.area for part in parts)

    def mean(values: list[float]) -> float:
        weighted = (v * p.area for v, p in zip(values, parts, strict=True))
        return sum(weighted) / max(area, 1)

    return Component(
        (left, top, right - left, bottom - top),
        tuple(label for part in parts for label in part.labels),
        area,
        mean([part.contrast for part in parts]),
        mean([part.stroke for part in parts]),
        mean([part.sharpness for part in parts]),
        sum(part.contact for part in parts),
    )


def body(labels: NDArray[np.int32], component: Component) -> NDArray[np.bool_]:
    """Return the component's own pixels inside its box, shape (height, width)."""
    x, y, w, h = component.box
    window = labels[y : y + h, x : x + w]
    if len(component.labels) == 1:
        return np.asarray(window == component.labels[0])
    return np.isin(window, component.labels)


def _edges(marks: Marks) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Length of the edge and sum of the gradient along it, for every label."""
    import cv2

    cross = cv2.getStructuringElement(cv2.MORPH_CROSS, (3, 3))
    mask = (marks.labels > 0).view(np.uint8)
    inner = cv2.erode(mask, cross, borderType=cv2.BORDER_CONSTANT, borderValue=1)
    gradient = cv2.morphologyEx(marks.contrast, cv2.MORPH_GRADIENT, cross)
    edge = inner.ravel()[marks.where] == 0
    label, count = marks.owner[edge], len(marks.stats)
    steep = gradient.ravel()[marks.where[edge]].astype(np.float64)
    length = np.asarray(np.bincount(label, minlength=count), dtype=np.float64)
    return length, np.asarray(np.bincount(label, weights=steep, minlength=count), np.float64)


def _contact(marks: Marks) -> NDArray[np.int64]:
    labels = marks.labels
    rim = np.concatenate(
        [labels[:2].ravel(), labels[-2:].ravel(), labels[:, :2].ravel(), labels[:, -2:].ravel()]
    )
    return np.bincount(rim, minlength=len(marks.stats)) // 2
