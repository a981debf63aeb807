"""A layer's maps inside the rectangle outside which it is silent, and what cells see of them."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neocog.network.arrays import array_module

Array = Any  # a NumPy or CuPy array


def length(span: slice) -> int:
    """Return how many rows (or columns) a span has."""
    return int(span.stop - span.start)


def moved(span: slice, by: int) -> slice:
    """Return the span ``by`` places on."""
    return slice(span.start + by, span.stop + by)


@dataclass(frozen=True, slots=True)
class Patch:
    """A layer's maps inside a rectangle; the layer is silent outside it.

    ``values`` (B, h, w, K) are the responses inside, none below 0; ``rows`` and ``columns`` tell
    where the rectangle lies, ``size`` how many rows (and columns) the layer has.
    """

    values: Array
    rows: slice
    columns: slice
    size: int

    @classmethod
    def whole(cls, values: Array) -> "Patch":
        """Return maps (B, H, H, K) as a patch that covers the layer."""
        size = values.shape[1]
        return cls(values, slice(0, size), slice(0, size), size)

    def full(self) -> Array:
        """Return the whole maps, (B, H, H, K)."""
        shape = (len(self.values), self.size, self.size, self.values.shape[3])
        if self.values.shape == shape:
            return self.values
        out = array_module(self.values).zeros(shape, dtype=np.float32)
        out[:, self.rows, self.columns] = self.values
        return out

    def apart(self) -> list["Patch"]:
        """Return the smallest patch of each digit (on a GPU: itself alone)."""
        if array_module(self.values) is not np:
            return [self]
        in_rows = self.values.reshape(*self.values.shape[:2], -1).max(axis=2) > 0
        in_columns = self.values.max(axis=1).any(axis=2)
        return [
            self._cut(values[None], extent(high), extent(wide))
            for values, high, wide in zip(self.values, in_rows, in_columns, strict=True)
        ]

    @classmethod
    def join(cls, parts: list["Patch"]) -> "Patch":
        """Return patches of one layer, one after another, as one."""
        if len(parts) == 1:
            return parts[0]
        first = parts[0]
        rows = slice(min(p.rows.start for p in parts), max(p.rows.stop for p in parts))
        columns = slice(min(p.columns.start for p in parts), max(p.columns.stop for p in parts))
        digits, planes = sum(len(p.values) for p in parts), first.values.shape[3]
        values = np.zeros((digits, length(rows), length(columns), planes), dtype=np.float32)
        digit = 0
        for p in parts:
            high, wide = moved(p.rows, -rows.start), moved(p.columns, -columns.start)
            values[digit : digit + len(p.values), high, wide] = p.values
            digit += len(p.values)
        return cls(values, rows, columns, first.size)

    def tight(self) -> "Patch":
        """Return the smallest patch that holds every response (on a GPU: itself, no waiting)."""
        if array_module(self.values) is not np:
            return self
        heard = self.values.max(axis=0).any(axis=2)
        return self._cut(self.values, extent(heard.any(axis=1)), extent(heard.any(axis=0)))

    def _cut(self, values: Array, rows: slice, columns: slice) -> "Patch":
        """Return some digits' responses in a smaller rectangle, counted from this one's corner."""
        return Patch(
            values[:, rows, columns],
            moved(rows, self.rows.start),
            moved(columns, self.columns.start),
            self.size,
        )


def extent(heard: NDArray[np.bool_]) -> slice:
    """Return the span from the first to the last place that is heard; (0, 1) if none is."""
    places = np.flatnonzero(heard)
    return slice(int(places[0]), int(places[-1]) + 1) if len(places) else slice(0, 1)


class Reach(NamedTuple):
    """Cells of an S-layer that see anything of a patch, along one axis.

    ``out`` are the cells, ``before`` and ``behind`` the silent cells that their windows see on
    either side of the patch.
    """

    out: slice
    before: int
    behind: int


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of one layer: kernel and padding in places, size of the layer before."""

    kernel: int
    padding: int
    size: int

    @property
    def out(self) -> int:
        """Rows and columns of cells."""
        return self.size + 2 * self.padding - self.kernel + 1

    def reach(self, seen: slice) -> Reach:
        """Return the cells that see any of the rows (or columns) ``seen``."""
        first = max(0, seen.start + self.padding - self.kernel + 1)
        last = min(self.out, seen.stop + self.padding)
        before = seen.start + self.padding - first
        behind = last + self.kernel - 1 - self.padding - seen.stop
        return Reach(slice(first, last), before, behind)
