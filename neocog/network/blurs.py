"""The weights of C-cells as the papers state them: what a network begins with; a model's file has its own."""

import numpy as np

from neocog.network.spec import CSpec, Weights, bell, pooled, radius_squared


def c_kernel(spec: CSpec) -> Weights:
    """Return a_C, (kernel, kernel): what one C-cell adds up before its saturation.

    With ``spec.blur``: the blur (sum 1) followed by the 2x2 average. Otherwise the published form: gain *
    gamma^(r^2/Ao^2) inside Ao and, with a surround A, k1 * 0.12^(r^2/Ao^2) - k2 * 0.8^(r^2/A^2) for Ao < r <=
    A, C = 1/A^2, Co = 1/Ao^2, k1 = 4 Co/(Co - C), k2 = 4 C/(Co - C), negatives rescaled to sum to minus the
    positives. The positives of the published layers add up to 110.108, 110.108 and 202.272.
    """
    if spec.blur:
        return pooled(blur_kernel(spec))
    a = spec.gain * bell(spec.kernel, spec.centre)
    if spec.surround is not None:
        inner, outer = spec.centre.radius, spec.surround
        c, co = 1 / outer**2, 1 / inner**2
        k1, k2 = 4 * co / (co - c), 4 * c / (co - c)
        r2 = radius_squared(spec.kernel)
        ring = k1 * 0.12 ** (r2 * co) - k2 * 0.8 ** (r2 * c)
        a = np.where(r2 <= inner**2, a, np.where(r2 <= outer**2, ring, 0.0))
        negative = a < 0
        a[negative] *= a[~negative].sum() / -a[negative].sum()
    return a


def blur_kernel(spec: CSpec) -> Weights:
    """Return the blur w, (kernel-1, kernel-1), with ``pooled(w) == c_kernel(spec)``.

    For a blur preset w is the bell itself, scaled to sum 1. For the published kernels it is the exact
    quotient of a_C by the 2x2 box (negative taps are expected).
    """
    if spec.blur:
        w = bell(spec.kernel - 1, spec.centre)
        return np.asarray(w / w.sum())
    return np.asarray(4 * _divided_by_pair(_divided_by_pair(c_kernel(spec)).T).T)


def _divided_by_pair(a: Weights) -> Weights:
    """Each even symmetric column, a polynomial, divided by (1 + x) exactly, unrolled from both ends."""
    q = np.zeros((len(a) - 1, a.shape[1]))
    for i in range(len(a) // 2):
        q[i] = q[-1 - i] = a[i] - (q[i - 1] if i else 0)
    return q
