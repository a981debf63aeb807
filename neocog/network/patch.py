"""A layer's maps as they travel: the rectangle outside which the layer is silent."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neocog.network.arrays import array_module

Array = Any  # a NumPy or CuPy array


class Span(NamedTuple):
    """Rows (or columns) ``start`` .. ``stop - 1`` of a layer."""

    start: int
    stop: int

    @property
    def slice(self) -> slice:
        """The span as a slice."""
        return slice(self.start, self.stop)

    @property
    def length(self) -> int:
        """How many rows (or columns) they are."""
        return self.stop - self.start

    def moved(self, by: int) -> "Span":
        """Return the span ``by`` places on."""
        return Span(self.start + by, self.stop + by)


@dataclass(frozen=True, slots=True)
class Patch:
    """A layer's maps inside a rectangle; the layer is silent outside it.

    Attributes
    ----------
    values : array, shape (B, h, w, K)
        Responses inside, none below 0.
    rows, columns : Span
        Where the rectangle lies.
    size : int
        Rows and columns of the layer.
    """

    values: Array
    rows: Span
    columns: Span
    size: int

    @classmethod
    def whole(cls, values: Array) -> "Patch":
        """Return maps (B, H, H, K) as a patch that covers the layer."""
        size = values.shape[1]
        return cls(values, Span(0, size), Span(0, size), size)

    def full(self) -> Array:
        """Return the whole maps, (B, H, H, K)."""
        shape = (len(self.values), self.size, self.size, self.values.shape[3])
        if self.values.shape == shape:
            return self.values
        out = array_module(self.values).zeros(shape, dtype=np.float32)
        out[:, self.rows.slice, self.columns.slice] = self.values
        return out

    def tight(self) -> "Patch":
        """Return the smallest patch that holds every response (on a GPU: itself, no waiting)."""
        if array_module(self.values) is not np:
            return self
        heard = self.values.max(axis=0).any(axis=2)
        rows, columns = extent(heard.any(axis=1)), extent(heard.any(axis=0))
        return Patch(
            self.values[:, rows.slice, columns.slice],
            rows.moved(self.rows.start),
            columns.moved(self.columns.start),
            self.size,
        )


def extent(heard: NDArray[np.bool_]) -> Span:
    """Return the span from the first to the last place that is heard; (0, 1) if none is."""
    places = np.flatnonzero(heard)
    return Span(int(places[0]), int(places[-1]) + 1) if len(places) else Span(0, 1)
