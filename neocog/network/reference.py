"""The equations of the ten layers in NumPy float64, one function each: the specification.

Obvious rather than fast; everything else in neocog is compared with these functions. Maps have shape (B, K,
H, W): batch, cell-planes, rows, columns. Correlation, not convolution: kernels are not flipped. Equation
numbers are those of Fukushima (2003) and Ikeda et al. (2011).
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

from neocog.network.lines import BESIDE, LineModel, strip_u0
from neocog.network.model import Model
from neocog.network.spec import LABELS, REJECT, ContrastSpec, Psi, contrast_kernel
from neocog.network.u0 import check_u0

Maps = NDArray[np.float64]
#: Layers whose maps are computed one from the other.
LAYERS = ("U0", "UG", "US1", "UC1", "US2", "UC2", "US3", "UC3", "US4")


def windows(
    u: Maps, kernel: int, padding: int, stride: int = 1, *, across: int | None = None, dilation: int = 1
) -> Maps:
    """Return every cell's view of the padded layer ``u``: (B, K, H', W', kernel, kernel).

    ``across`` is the stride over columns where it differs; a window's columns are ``dilation`` apart.
    """
    padded = np.pad(u, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    view = sliding_window_view(padded, (kernel, dilation * (kernel - 1) + 1), axis=(2, 3))
    return np.asarray(view[:, :, ::stride, :: across or stride, :, ::dilation])


def contrast(u0: ArrayLike, spec: ContrastSpec) -> Maps:
    """UG: on-centre and off-centre cells, (B, 65, 65) -> (B, 2, 71, 71).

    y(n) = sum_nu a_G(nu) u_0(n + nu); on-plane max(y, 0), off-plane max(-y, 0); |y| <= 1e-4 counts as
    silence.
    """
    u = np.asarray(u0, dtype=np.float64)[:, None]
    y = np.einsum("bkhwij,ij->bhw", windows(u, spec.kernel, spec.padding), contrast_kernel(spec))
    y[np.abs(y) <= spec.silence] = 0
    return np.stack([np.maximum(y, 0), np.maximum(-y, 0)], axis=1)


def inhibition(u: Maps, c: Maps, padding: int, dilation: int = 1) -> Maps:
    """V-cells: v(n) = sqrt( sum_k sum_nu c(nu) u(n + nu, k)^2 ), (B, K, H, W) -> (B, H', W').

    The planes are summed first, which is exact: the same c serves every plane (Ikeda eq. 2).
    """
    seen = windows((u**2).sum(axis=1, keepdims=True), len(c), padding, dilation=dilation)
    return np.asarray(np.sqrt(np.einsum("bkhwij,ij->bhw", seen, c)))


def excitatory_weights(reference: Maps, c: Maps, q: float) -> Maps:
    """a(nu, kappa, k) = q c(nu) X(nu, kappa, k), shape (K, K', kernel, kernel)."""
    return q * c * reference


def inhibitory_weights(reference: Maps, c: Maps, q: float) -> Maps:
    """b(k) = q |X_k|_c, |X|_c = sqrt(sum_kappa sum_nu c(nu) X(nu, kappa)^2); shape (K,)."""
    return np.asarray(q * np.sqrt((c * reference**2).sum(axis=(1, 2, 3))))


def s_response(
    u: Maps, reference: Maps, c: Maps, *, threshold: float, q: float, padding: int, dilation: int = 1
) -> Maps:
    """S-cells (Ikeda eq. 1): (B, K', H, W) -> (B, K, H', W'); ``dilation`` as :func:`windows`.

    u_S(n,k) = theta/(1-theta) max(0, (1 + sum a u) / (1 + theta b v) - 1); for strong inputs this is (s -
    theta)+ / (1 - theta), s the cosine between window and X in the c-weighted metric; the "1 +" keeps cells
    quiet where the input is nearly silent.
    """
    a = excitatory_weights(reference, c, q)
    b = inhibitory_weights(reference, c, q)[:, None, None]
    e = np.einsum("bkhwij,mkij->bmhw", windows(u, len(c), padding, dilation=dilation), a, optimize=True)
    v = inhibition(u, c, padding, dilation)[:, None]
    return np.asarray(threshold / (1 - threshold) * np.maximum((1 + e) / (1 + threshold * b * v) - 1, 0))


def psi(x: Maps, kind: Psi) -> Maps:
    """Saturation of the C-cells: sqrt(x) or x / (1 + x), for x >= 0."""
    return np.asarray(np.sqrt(x) if kind == "sqrt" else x / (1 + x))


def c_response(u: Maps, blur: Maps, *, padding: int, kind: Psi, across: int = 2) -> Maps:
    """C-cells: psi(max(0, sum_nu a_C(nu) u_S(n + nu))), stride 2, (B, K, H, W) -> (B, K, H', W').

    Written as what it is: a blur of every plane, the average of 2x2 blurred cells, psi. ``across`` is the
    stride over columns.
    """
    blurred = np.einsum("bkhwij,ij->bkhw", windows(u, len(blur), padding), blur)
    return psi(np.maximum(windows(blurred, 2, 0, 2, across=across).mean(axis=(4, 5)), 0), kind)


def strongest_of_label(us4: Maps, labels: NDArray[np.int64]) -> Maps:
    """UC4: the strongest response of each label's planes, (B, K4, 5, 5) -> (B, 10), (B, 11) with REJECT."""
    out = np.zeros((us4.shape[0], LABELS + int((labels == REJECT).any())))
    for label in np.unique(labels):
        out[:, label] = us4[:, labels == label].max(axis=(1, 2, 3))
    return out


def layer(name: str, u: Maps, model: Model, *, dense: bool = False) -> Maps:
    """One of UG .. US4 from the layer before, (B, K', H, W) -> (B, K, H', W').

    ``dense`` as along a strip: UC3 has a cell at every fourth column of U0, of which US4 sees every second,
    as an isolated digit's, and silence beside them.
    """
    if name == "UG":
        return contrast(u[:, 0], model.spec.contrast)
    stage = int(name[2]) - 1
    if name.startswith("UC"):
        c, across = model.spec.c[stage], 1 if dense and stage == 2 else model.spec.c[stage].stride
        blur = model.blurs[stage].astype(np.float64)
        return c_response(u, blur, padding=c.padding, kind=model.psi, across=across)
    own, how = model.s[stage], {"padding": model.spec.s[stage].padding}
    if dense and stage == 3:
        u, how["dilation"] = np.pad(u, ((0, 0), (0, 0), (0, 0), (BESIDE, BESIDE))), 2
    x, weights = own.reference.astype(np.float64), own.c.astype(np.float64)
    return s_response(u, x, weights, threshold=own.threshold, q=own.q, **how)


def _layers(u0: Maps, model: Model, *, dense: bool) -> dict[str, Maps]:
    maps = {"U0": u0[:, None]}
    for before, name in pairwise(LAYERS):
        maps[name] = layer(name, maps[before], model, dense=dense)
    return maps


def respond(u0: ArrayLike, model: Model) -> Mapping[str, Maps]:
    """Every layer's map of pictures (B, 65, 65), ink 1 on paper 0, by name, in float64.

    ``"U0" (B, 1, 65, 65), "UG", "US1", "UC1", .. "US4", "UC4"``; UC4 is (B, 10, 1, 1), or (B, 11, 1, 1) with
    planes that reject. InputError if the pictures have another shape or hold what is no number.
    """
    u = np.asarray(u0, dtype=np.float64)
    check_u0(u)
    maps = _layers(u, model, dense=False)
    maps["UC4"] = strongest_of_label(maps["US4"], model.labels)[:, :, None, None]
    return maps


def respond_line(strip: NDArray[Any], model: LineModel) -> Mapping[str, Maps]:
    """Every layer's map of a strip (48, w) by name, in float64, none with a batch's axis.

    ``"U0" (1, 65, W + 17), "UG", .. "US4" (K4, 5, T), "UC4" (2, K4, T), "Z" (n, T)``, W = padded(w) and T = W
    / 4 + 13; the first columns(w) count. UC4 is the strongest and the mean of the rows. InputError as
    `strip_u0`.
    """
    u0 = strip_u0(strip).astype(np.float64)
    maps = {name: u[0] for name, u in _layers(u0[None], model.digits, dense=True).items()}
    maps["UC4"] = np.stack([maps["US4"].max(axis=1), maps["US4"].mean(axis=1)])
    maps["Z"] = head_of(maps["UC4"], model)
    return maps


def head_of(uc4: Maps, model: LineModel) -> Maps:
    """Z, what the head makes of UC4 along a strip, (2, K4, T) -> (n, T)."""
    head, x = model.head, uc4.reshape(-1, uc4.shape[2])
    for w, b in zip(head.weights, head.biases, strict=True):
        x = convolution(np.maximum(x, 0), w, b)  # UC4 is not negative
    return np.asarray(head.own.astype(np.float64) @ uc4[0] + head.bias[:, None] + x)


def convolution(x: Maps, w: NDArray[Any], b: NDArray[Any]) -> Maps:
    """z(o, t) = b(o) + sum_i sum_nu w(o, i, nu) x(i, t + nu), zeros at the ends: (I, T) -> (O, T)."""
    around = w.shape[2] // 2
    seen = sliding_window_view(np.pad(x, ((0, 0), (around, around))), w.shape[2], axis=1)
    return np.asarray(np.einsum("itj,oij->ot", seen, w.astype(np.float64), optimize=True) + b[:, None])
