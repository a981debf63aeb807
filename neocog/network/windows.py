"""What the cells of an S-layer see: windows of kernel x kernel places of the layer before."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from neocog.network.patch import Patch, Span

Floats = NDArray[np.float32]


class Reach(NamedTuple):
    """Cells of an S-layer that see anything of a patch, along one axis.

    ``out`` are the cells, ``before`` and ``behind`` the silent cells that their windows see on
    either side of the patch.
    """

    out: Span
    before: int
    behind: int


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of one layer.

    Attributes
    ----------
    kernel, padding : int
        Places a side; silent places around the layer before.
    size : int
        Rows and columns of the layer before.
    """

    kernel: int
    padding: int
    size: int

    @property
    def out(self) -> int:
        """Rows and columns of cells."""
        return self.size + 2 * self.padding - self.kernel + 1

    def reach(self, seen: Span) -> Reach:
        """Return the cells that see any of the rows (or columns) ``seen``."""
        first = max(0, seen.start + self.padding - self.kernel + 1)
        last = min(self.out, seen.stop + self.padding)
        before = seen.start + self.padding - first
        behind = last + self.kernel - 1 - self.padding - seen.stop
        return Reach(Span(first, last), before, behind)

    def surroundings(self, u: Patch) -> tuple[Span, Span, Floats]:
        """Return rows and columns of the cells that see a patch, and all that they see of it.

        The latter is (B, h, w, K') for (h - kernel + 1) x (w - kernel + 1) cells, NumPy only.
        """
        rows, columns = self.reach(u.rows), self.reach(u.columns)
        n, h, w, planes = u.values.shape
        shape = (n, rows.out.length + self.kernel - 1, columns.out.length + self.kernel - 1, planes)
        seen = np.zeros(shape, dtype=np.float32)
        seen[:, rows.before : rows.before + h, columns.before : columns.before + w] = u.values
        return rows.out, columns.out, seen

    def of(self, seen: Floats) -> Floats:
        """Return a view (B, h', w', kernel, kernel K') of what each cell sees of (B, h, w, K')."""
        n, h, w, planes = seen.shape
        k = self.kernel
        b, y, x, _ = seen.strides
        return as_strided(
            seen,
            (n, h - k + 1, w - k + 1, k, k * planes),
            (b, y, x, y, seen.itemsize),
            writeable=False,
        )
