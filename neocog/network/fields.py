"""Spatial weights of the cells: contrast kernel, c, a_C and the blur that makes it up.

All are float64 and exact to rounding; an even kernel has its centre between cells (the
"staggered" arrangement: a cell sits at the corner of four cells of the layer before).
"""

import numpy as np
from numpy.typing import NDArray

from neocog.network.spec import Bell, ContrastSpec, CSpec

Weights = NDArray[np.float64]


def radius_squared(kernel: int) -> Weights:
    """Return r^2 (cells^2) of every tap of a (kernel, kernel) window about its centre."""
    offsets = np.arange(kernel) - (kernel - 1) / 2
    r2: Weights = np.add.outer(offsets**2, offsets**2)
    return r2


def bell(kernel: int, weight: Bell) -> Weights:
    """Return gamma^(r^2/scale^2) inside the bell's radius, 0 outside; shape (kernel, kernel)."""
    r2 = radius_squared(kernel)
    return np.where(r2 <= weight.radius**2, weight.gamma ** (r2 / weight.scale**2), 0.0)


def contrast_kernel(spec: ContrastSpec) -> Weights:
    """Return a_G, the difference of two bells whose lobes sum to +1 and -1.

    a_G(r) = g^(r^2/Ao^2)/Ao^2 - g^(r^2/A^2)/A^2 for r <= A (Fukushima 2003, eq. for UG), the
    positive part scaled to sum +1 and the negative part to -1. Shape (kernel, kernel).
    """
    centre = bell(spec.kernel, Bell(spec.gamma, spec.centre_radius, spec.radius))
    surround = bell(spec.kernel, Bell(spec.gamma, spec.radius, spec.radius))
    a = centre / spec.centre_radius**2 - surround / spec.radius**2
    positive, negative = np.maximum(a, 0), np.minimum(a, 0)
    balanced: Weights = positive / positive.sum() - negative / negative.sum()
    return balanced


def c_kernel(spec: CSpec) -> Weights:
    """Return a_C, shape (kernel, kernel): what one C-cell adds up before its saturation.

    With ``spec.blur``: the blur (sum 1) followed by the 2x2 average. Otherwise the published form: gain *
    gamma^(r^2/Ao^2) inside Ao and, with a surround A, k1 * 0.12^(r^2/Ao^2) - k2 * 0.8^(r^2/A^2) for Ao < r <=
    A, C = 1/A^2, Co = 1/Ao^2, k1 = 4 Co/(Co - C), k2 = 4 C/(Co - C), negatives rescaled to sum to minus the
    positives. The positives of the published layers add up to 110.108, 110.108 and 202.272.
    """
    if spec.blur:
        return pooled(blur_kernel(spec))
    a = spec.gain * bell(spec.kernel, spec.centre)
    if spec.surround is not None:
        a = _with_surround(a, spec)
    return a


def _with_surround(centre: Weights, spec: CSpec) -> Weights:
    assert spec.surround is not None
    inner, outer = spec.centre.radius, spec.surround
    c, co = 1 / outer**2, 1 / inner**2
    k1, k2 = 4 * co / (co - c), 4 * c / (co - c)
    r2 = radius_squared(spec.kernel)
    ring = k1 * 0.12 ** (r2 * co) - k2 * 0.8 ** (r2 * c)
    a = np.where(r2 <= inner**2, centre, np.where(r2 <= outer**2, ring, 0.0))
    negative = a < 0
    a[negative] *= a[~negative].sum() / -a[negative].sum()
    return a


def blur_kernel(spec: CSpec) -> Weights:
    """Return the blur w, shape (kernel-1, kernel-1), with ``pooled(w) == c_kernel(spec)``.

    For a blur preset w is the bell itself, scaled to sum 1. For the published kernels it is the
    exact quotient of a_C by the 2x2 box (negative taps are expected).
    """
    if spec.blur:
        w = bell(spec.kernel - 1, spec.centre)
        w /= w.sum()
        return w
    quotient: Weights = 4 * _divide_by_pair(_divide_by_pair(c_kernel(spec)).T).T
    return quotient


def pooled(w: Weights) -> Weights:
    """Return the single kernel that equals blurring by ``w`` and then averaging 2x2 cells."""
    k = w.shape[0]
    a = np.zeros((k + 1, k + 1))
    for dy in (0, 1):
        for dx in (0, 1):
            a[dy : dy + k, dx : dx + k] += w / 4
    return a


def _divide_by_pair(a: Weights) -> Weights:
    """Divide each column, as a polynomial, by (1 + x); exact for even mirror-symmetric columns.

    Both halves are unrolled from their own end, so that rounding does not build up.
    """
    k = a.shape[0]
    half = k // 2
    q = np.zeros((k - 1, a.shape[1]))
    for i in range(half):
        q[i] = a[i] - (q[i - 1] if i else 0)
        q[k - 2 - i] = q[i]
    return q
