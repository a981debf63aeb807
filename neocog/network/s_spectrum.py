"""S-cells by the discrete Fourier transform: the way of US4 on the CPU.

US4 has 5 x 5 cells whose windows are 9 x 9 places of 13 x 13, so nearly every place is seen by
nearly every cell: 25 products with each place's planes. A correlation is one product for each
frequency instead, out(f) = u(f) conj(a(f)), 85 complex ones for the 169 places of a real map. Four
real multiplications each, they are a sixth of 25 x 81.

Transforms are products with real matrices: cosines and sines of the frequencies that are not
conjugates of others. Complex products are real ones of the stacked real and imaginary parts.
Digits are transformed one by one, each inside its own rectangle, and multiplied together: as long
as a pass has always as many digits, what stands beside a digit changes nothing.

For one digit alone all of that is waiting for weights. Half of the planes before are silent, and a
plain product with the weights of the others reads a quarter as much.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from neocog.network.parallel import ParallelMap
from neocog.network.patch import Patch, Span, Windows

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

#: Most bytes of transformed weights: what is read for every few digits should lie in a cache.
_MOST_BYTES = 32 * 2**20
#: Most planes whose weights lie side by side: a product of few rows is as fast as it reads them.
_PANEL = 80


class SpectralCells:
    """S-cells of one layer, NumPy only.

    Parameters as for :class:`neocog.network.s_places.PrunedCells`.
    """

    def __init__(
        self, windows: Windows, a: Floats, c: Floats, theta: np.float32, silence: Floats
    ) -> None:
        self._windows, self._theta, self._silence = windows, theta, silence
        self._c = c.ravel()
        forward, weight = _transform(windows.out + windows.kernel - 1)
        cells = forward[:, :, : windows.out, : windows.out]
        self._forward = forward.astype(np.float32)
        self._weights = _spectra(a, forward)
        self._plain = np.ascontiguousarray(a.transpose(1, 2, 3, 0))
        backward = cells * weight[:, None, None, None]
        self._backward = backward.reshape(2 * len(weight), -1).T.astype(np.float32)

    @staticmethod
    def suits(windows: Windows, planes: int, before: int) -> bool:
        """Whether a layer of K and K' planes is faster this way, its weights of a fair size."""
        side = windows.out + windows.kernel - 1
        few = 2 * windows.out <= windows.kernel + 1
        return few and side * side * 2 * planes * before * 4 <= _MOST_BYTES

    def __call__(self, u: Patch, _parallel: ParallelMap) -> Patch:
        """Respond to the layer before, on one thread: waking another would take as long."""
        n, side = len(u.values), self._windows.out
        d = self._excitation(u) if n > 1 else self._of_one(u)
        v = self._inhibition(u)
        d -= self._theta * v
        np.maximum(d, np.zeros_like(self._silence), out=d)
        d /= v + self._silence
        d *= v > 0  # a window that hears nothing: what rounding left there is no response
        whole = Span(0, side)
        return Patch(d.reshape(n, side, side, -1), whole, whole, side)

    def _inhibition(self, u: Patch) -> Floats:
        """Return v, (B, cells, 1)."""
        energy = np.einsum("bhwk,bhwk->bhw", u.values, u.values)
        v: Floats = np.sqrt(self._seen(u, energy).reshape(len(energy), -1, len(self._c)) @ self._c)
        return v[..., None]

    def _of_one(self, u: Patch) -> Floats:
        """Return sum a' u of one digit, (1, cells, K)."""
        heard = np.flatnonzero(u.values.any(axis=(0, 1, 2)))
        weights = self._plain[heard].reshape(-1, len(self._silence))
        seen = self._seen(u, u.values[0].transpose(2, 0, 1)[heard]).transpose(1, 2, 0, 3, 4)
        cells: Floats = seen.reshape(self._windows.out**2, len(weights)) @ weights
        return cells[None]

    def _seen(self, u: Patch, maps: Floats) -> Floats:
        """Return what each cell sees of maps (N, h, w) that lie where the patch does."""
        side, k = self._windows.out + self._windows.kernel - 1, self._windows.kernel
        rows, columns = (span.moved(self._windows.padding) for span in (u.rows, u.columns))
        whole = np.zeros((len(maps), side, side), dtype=np.float32)
        whole[:, rows.slice, columns.slice] = maps
        return sliding_window_view(whole, (k, k), axis=(1, 2))

    def _excitation(self, u: Patch) -> Floats:
        """Return sum a' u, (B, cells, K)."""
        n = len(u.values)
        frequencies, _, panels, before, width = self._weights.shape
        spectra = np.empty((frequencies, n, 2, before), dtype=np.float32)
        for digit, own in enumerate(u.apart()):
            spectra[:, digit] = self._transformed(own)
        rows = spectra.reshape(frequencies, 1, 1, 2 * n, before)
        products = (rows @ self._weights).reshape(frequencies, 2, panels, n, 2, width)
        real, imaginary = products[:, 0], products[:, 1]  # of the weights
        out = np.empty((n, frequencies, 2, panels, width), dtype=np.float32)
        np.add(_digits(real, 0), _digits(imaginary, 1), out=out[:, :, 0])
        np.subtract(_digits(real, 1), _digits(imaginary, 0), out=out[:, :, 1])
        cells: Floats = self._backward @ out.reshape(n, 2 * frequencies, panels * width)
        return cells[:, :, : len(self._silence)]

    def _transformed(self, u: Patch) -> Floats:
        """Return the transform of one digit, (F, 2, K')."""
        padding = self._windows.padding
        rows, columns = u.rows.moved(padding), u.columns.moved(padding)
        heard = self._forward[:, :, rows.slice, columns.slice]
        places, before = rows.length * columns.length, u.values.shape[3]
        spectrum: Floats = heard.reshape(-1, places) @ u.values.reshape(places, before)
        return spectrum.reshape(-1, 2, before)


def _transform(side: int) -> tuple[Doubles, Doubles]:
    """Return the transform of real maps, (F, 2, side, side), and the weight of each frequency.

    F are the frequencies that are not the conjugates of earlier ones, each a real and an imaginary
    part. ``weight * transform`` is the transpose of its inverse.
    """
    place = np.arange(side * side)
    y, x = np.divmod(place, side)
    conjugate = (-y % side) * side + -x % side
    kept = place <= conjugate
    angle = 2 * np.pi / side * ((np.outer(y, y) + np.outer(x, x)) % side)[kept]
    transform = np.stack([np.cos(angle), -np.sin(angle)], axis=1)
    weight = np.where(place == conjugate, 1, 2)[kept] / side**2
    return transform.reshape(-1, 2, side, side), weight


def _digits(products: Floats, part: int) -> Floats:
    """Return the products (F, panels, B, 2, width) with one part of the maps, (B, F, ...)."""
    return products[:, :, :, part].transpose(2, 0, 1, 3)


def _spectra(a: Floats, transform: Doubles) -> Floats:
    """Return the real and the imaginary part of a' transformed: (F, 2, panels, K', width).

    A panel holds the weights of ``width`` planes, one input after another: they are read in the
    order in which they lie. Where K is no multiple of the width the last planes are silent.
    """
    planes, before, k, _ = a.shape
    panels = -(-planes // _PANEL)
    width = -(-planes // (8 * panels)) * 8
    basis = transform[:, :, :k, :k].reshape(-1, k * k)
    spectra = basis @ a.transpose(2, 3, 1, 0).reshape(k * k, before * planes)
    wide = np.zeros((len(basis), before, panels * width), dtype=np.float32)
    wide[:, :, :planes] = spectra.reshape(-1, before, planes)
    split = wide.reshape(-1, 2, before, panels, width).transpose(0, 1, 3, 2, 4)
    return np.ascontiguousarray(split)
