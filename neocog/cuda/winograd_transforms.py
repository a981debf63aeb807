"""Cook-Toom transforms of Winograd convolution, and large filters split into small parts.

F(m, r) gives m outputs of a correlation with r taps from n = m + r - 1 products, y = A^T [(G g) * (B^T d)];
in two dimensions Y = A^T [sum over parts and channels of (G g G^T) * (B^T d B)] A. The error of the
transforms grows fast with n, so filters larger than 4x4 are split into parts of at most 4x4 whose products
are summed before the inverse transform (Lee and Kwak: decomposable Winograd convolution).
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.errors import UsageError
from neocog.network.arrays import array_module

#: Output tiles and part sizes that are offered.
TILES = (2, 3, 4, 5)
PART_SIZES = (1, 2, 3, 4)

# Interpolation points after 0, 1, -1 (the last point is always infinity), by n: the sets with the
# least float32 error among 2, -2, 1/2, -1/2, 4, -4, 1/4, -1/4.
_MORE_POINTS = {5: ("2",), 6: ("-2", "1/2"), 7: ("2", "-2", "-1/4"), 8: ("2", "-2", "1/2", "-1/2")}


def points(n: int) -> tuple[Fraction, ...]:
    """Return the n - 1 finite interpolation points for tiles of n points."""
    return tuple(Fraction(p) for p in ("0", "1", "-1", *_MORE_POINTS.get(n, ())))[: n - 1]


@cache
def cook_toom(m: int, r: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return A^T (m, n), G (n, r) and B^T (n, n) of F(m, r) as Fractions: m outputs, r taps."""
    a = points(m + r - 1)
    output = [[p**i for p in a] + [Fraction(int(i == m - 1))] for i in range(m)]
    others = [a[:j] + a[j + 1 :] for j in range(len(a))]
    scale = [math.prod((p - q for q in rest), start=Fraction(1)) for p, rest in zip(a, others, strict=True)]
    filters = [[p**i / s for i in range(r)] for p, s in zip(a, scale, strict=True)]
    filters.append([Fraction(int(i == r - 1)) for i in range(r)])
    inputs = [[*_polynomial(rest), Fraction(0)] for rest in others]
    inputs.append(_polynomial(a))
    return np.array(output), np.array(filters), np.array(inputs)


def _polynomial(roots: tuple[Fraction, ...]) -> list[Fraction]:
    """Coefficients of prod (x - root), lowest power first."""
    out = [Fraction(1)]
    for root in roots:
        out = [x - root * y for x, y in zip([Fraction(0), *out], [*out, Fraction(0)], strict=True)]
    return out


@dataclass(frozen=True, slots=True)
class Parts:
    """``count`` parts of ``size`` taps side by side along one axis, the first at tap ``first``."""

    size: int
    count: int
    first: int


@dataclass(frozen=True, slots=True)
class Split:
    """A k x k filter as parts along each axis, the same for rows and columns.

    ``sizes`` are the taps of each part, largest first; where they sum to more than k the filter is
    padded with zeros behind.
    """

    kernel: int
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        fits = self.kernel <= sum(self.sizes) < self.kernel + max(self.sizes, default=0)
        known = set(self.sizes) <= set(PART_SIZES) and len(set(self.sizes)) <= 2
        if not fits or not known or list(self.sizes) != sorted(self.sizes, reverse=True):
            raise UsageError(
                f"parts {self.sizes} do not make a {self.kernel}x{self.kernel} filter: give at "
                f"most two sizes of 1 to 4, largest first, that sum to {self.kernel} or little more"
            )

    @property
    def groups(self) -> tuple[Parts, ...]:
        """The parts by size, largest first: one or two groups."""
        out, first = [], 0
        for size in sorted(set(self.sizes), reverse=True):
            count = self.sizes.count(size)
            out.append(Parts(size, count, first))
            first += size * count
        return tuple(out)

    def points(self, m: int) -> int:
        """Return the points of all groups in the Winograd domain, for tiles of m x m outputs."""
        return sum(m + g.size - 1 for g in self.groups) ** 2

    def multiplications(self, m: int) -> int:
        """Return the multiplications of a tile of m x m outputs, one channel to one plane."""
        return sum(m + size - 1 for size in self.sizes) ** 2

    def per_output(self, m: int, size: int | None = None) -> float:
        """Return multiplications per output; with ``size``, waste at its rim included."""
        if size is None:
            return self.multiplications(m) / m**2
        return self.multiplications(m) * (-(-size // m)) ** 2 / size**2


def uniform(kernel: int, size: int = 3) -> Split:
    """Return a k x k filter split into parts of one size, padded with zeros if need be."""
    return Split(kernel, (size,) * -(-kernel // size))


def best_tile(split: Split, size: int) -> int:
    """Return the m of least multiplications for size x size outputs; the smaller one of equals."""
    return min(TILES, key=lambda m: (split.per_output(m, size), m))


def transform_filters(w: Any, split: Split, m: int) -> Any:
    """Return filters (k, k, ...) in the Winograd domain, U = G g G^T for every part, in float64.

    Of NumPy or CuPy. The first axis of what is returned: for each pair of groups (rows, columns),
    for each point, for each part (row, column).
    """
    xp = array_module(w)
    spare = sum(split.sizes) - split.kernel
    w = xp.pad(w.astype(np.float64), ((0, spare), (0, spare), *((0, 0),) * (w.ndim - 2)))
    rest = w.shape[2:]
    out = []
    for y in split.groups:
        gy = xp.asarray(cook_toom(m, y.size)[1].astype(np.float64))
        rows = w[y.first : y.first + y.size * y.count].reshape(y.count, y.size, *w.shape[1:])
        for x in split.groups:
            gx = xp.asarray(cook_toom(m, x.size)[1].astype(np.float64))
            taps = rows[:, :, x.first : x.first + x.size * x.count]
            taps = taps.reshape(y.count, y.size, x.count, x.size, -1)
            half = xp.tensordot(gy, taps, axes=([1], [1]))  # point, part, part, tap, filter
            u = xp.tensordot(gx, half, axes=([1], [3])).transpose(1, 0, 2, 3, 4)
            out.append(u.reshape(-1, *rest))
    return xp.concatenate(out)
