"""The ten layers and their spatial weights, stated once: engines, learners and exporters read them from here.

Sources: Ikeda, Miyamoto, Ino, Hagihara (2011), Table 2, for the geometry; Fukushima (2003), *Neocognitron for
handwritten digit recognition*, Neurocomputing 51:161-180, for the constants.

A *preset* is an architecture (sizes, spatial weights, thresholds before learning); a *model* is what a
network of that architecture has learned (see :mod:`neocog.network.model`).
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neocog.errors import UsageError

Psi = Literal["sqrt", "ratio"]
Weights = NDArray[np.float64]

INPUT_SIZE = 65  #: rows and columns of the input layer U0
LABELS = 10  #: digits that UC4 tells apart
REJECT = LABELS  #: label of planes of US4 that respond to what is no digit; a model may have none


@dataclass(frozen=True, slots=True)
class Bell:
    """A radial weight gamma^(r^2/scale^2) for r <= radius, else 0; r in cells of the layer before."""

    gamma: float
    scale: float
    radius: float = math.inf

    @classmethod
    def disc(cls, gamma: float, radius: float) -> "Bell":
        return cls(gamma, radius, radius)  # the published form

    @classmethod
    def gaussian(cls, sigma: float) -> "Bell":
        return cls(math.exp(-0.5), sigma)


@dataclass(frozen=True, slots=True)
class ContrastSpec:
    """UG (UC0): on-centre and off-centre contrast cells (Fukushima 2003, section 2.2)."""

    kernel: int = 7
    padding: int = 6
    radius: float = 3.3
    centre_radius: float = 1.5
    gamma: float = 0.05
    silence: float = 1e-4  #: responses of at most this size count as silence


@dataclass(frozen=True, slots=True)
class SSpec:
    """One layer of S-cells."""

    kernel: int
    padding: int
    c: Bell  #: weighs the inhibition v
    threshold: float  #: for recognition
    learning_threshold: float | None = None  #: that its planes are born with; None where nothing competes
    q: float = 100.0  #: gain of excitation and inhibition, a = q c X and b = q |X|_c


@dataclass(frozen=True, slots=True)
class CSpec:
    """One layer of C-cells: a (kernel-1)-wide blur, 2x2 average pooling, the saturation psi.

    With ``blur`` the bell is the blur itself (sum 1), and the weights a_C follow from it; else the positive
    ones are ``gain`` times the bell, and the blur is the exact quotient of a_C by the box.
    """

    kernel: int
    padding: int
    centre: Bell  #: of the positive weights a_C
    surround: float | None = None  #: radius (cells) of the inhibitory surround of Fukushima 2003
    gain: float = 4.0
    blur: bool = False
    stride: int = 2


class LayerShape(NamedTuple):
    """Shape and connections of one layer: planes (None where learning decides) and sizes."""

    name: str
    planes: int | None
    size: int
    kernel: int | None
    padding: int
    stride: int


@dataclass(frozen=True, slots=True)
class NetworkSpec:
    """An architecture of ten layers, U0, UG, US1, UC1 .. US4, UC4."""

    name: str  #: of the preset
    contrast: ContrastSpec  #: UG
    s: tuple[SSpec, SSpec, SSpec, SSpec]  #: US1 .. US4
    c: tuple[CSpec, CSpec, CSpec]  #: UC1 .. UC3; UC4, the strongest plane of each label, has no weights
    psi: Psi  #: saturation of the C-cells: sqrt(x) (Fukushima 2010) or x/(1+x) (2003)
    orientations: int = 16  #: planes of US1

    def layers(self, planes: tuple[int | None, ...] = (None, None, None)) -> tuple[LayerShape, ...]:
        """Return the ten layers in order; ``planes`` are K2, K3, K4 where they are known."""
        g, every, rows = self.contrast, (self.orientations, *planes), list[LayerShape]()
        rows.append(LayerShape("U0", 1, INPUT_SIZE, None, 0, 1))
        size = INPUT_SIZE + 2 * g.padding - g.kernel + 1
        rows.append(LayerShape("UG", 2, size, g.kernel, g.padding, 1))
        for stage, (s, k) in enumerate(zip(self.s, every, strict=True), start=1):
            size = size + 2 * s.padding - s.kernel + 1
            rows.append(LayerShape(f"US{stage}", k, size, s.kernel, s.padding, 1))
            if stage < 4:
                c = self.c[stage - 1]
                size = (size + 2 * c.padding - c.kernel) // c.stride + 1
                rows.append(LayerShape(f"UC{stage}", k, size, c.kernel, c.padding, c.stride))
        return (*rows, LayerShape("UC4", LABELS, 1, size, 0, 1))

    def size(self, layer: str) -> int:
        return next(row.size for row in self.layers() if row.name == layer)


#: Constants of Fukushima 2003 (table of parameters); C1 and C2 have inhibitory surrounds.
_FUKUSHIMA = NetworkSpec(
    name="fukushima2003",
    contrast=ContrastSpec(),
    s=(
        SSpec(6, 1, Bell.disc(0.7, 3.4), threshold=0.55),
        SSpec(6, 3, Bell.disc(0.7, 3.4), threshold=0.51, learning_threshold=0.66),
        SSpec(6, 3, Bell.disc(0.7, 3.4), threshold=0.58, learning_threshold=0.67),
        SSpec(9, 0, Bell.disc(0.6, 4.9), threshold=0.30, learning_threshold=0.30),
    ),
    c=(
        CSpec(18, 11, Bell.disc(0.7, 3.4), surround=9.4),
        CSpec(14, 8, Bell.disc(0.7, 3.4), surround=7.4),
        CSpec(8, 5, Bell.disc(0.7, 4.4)),
    ),
    psi="ratio",
)

#: Ikeda et al. 2011, Table 2: 6x6 and 8x8 C connections, that is, no surround.
_IKEDA = replace(
    _FUKUSHIMA,
    name="ikeda2011",
    c=(CSpec(6, 5, Bell.disc(0.7, 3.4)), CSpec(6, 4, Bell.disc(0.7, 3.4)), _FUKUSHIMA.c[2]),
)

#: Ikeda's geometry with square-root saturation (Fukushima 2010) and Gaussian bells.
_NEOCOG = replace(
    _IKEDA,
    name="neocog",
    s=(
        _IKEDA.s[0],
        replace(_IKEDA.s[1], c=Bell.gaussian(2.0)),
        replace(_IKEDA.s[2], c=Bell.gaussian(2.0)),
        replace(_IKEDA.s[3], c=Bell.gaussian(2.5)),
    ),
    c=(
        CSpec(6, 5, Bell.gaussian(1.6), blur=True),
        CSpec(6, 4, Bell.gaussian(1.0), blur=True),
        CSpec(8, 5, Bell.gaussian(2.2), blur=True),
    ),
    psi="sqrt",
)

_PRESETS = {spec.name: spec for spec in (_FUKUSHIMA, _IKEDA, _NEOCOG)}
PRESETS = tuple(_PRESETS)  #: names of the architectures


def preset(name: str) -> NetworkSpec:
    """Return the architecture called ``name``; UsageError if there is none."""
    if name not in _PRESETS:
        raise UsageError(f"preset {name!r} is unknown: choose {', '.join(PRESETS)}")
    return _PRESETS[name]


# --- spatial weights, float64 and exact to rounding. An even kernel has its centre between cells (the
# "staggered" arrangement: a cell sits at the corner of four cells of the layer before).


def radius_squared(kernel: int) -> Weights:
    offsets = np.arange(kernel) - (kernel - 1) / 2
    return np.asarray(np.add.outer(offsets**2, offsets**2))


def bell(kernel: int, weight: Bell) -> Weights:
    """Return gamma^(r^2/scale^2) inside the bell's radius, 0 outside; shape (kernel, kernel)."""
    r2 = radius_squared(kernel)
    return np.where(r2 <= weight.radius**2, weight.gamma ** (r2 / weight.scale**2), 0.0)


def contrast_kernel(spec: ContrastSpec) -> Weights:
    """Return a_G, the difference of two bells whose lobes are scaled to sum to +1 and -1, (kernel, kernel).

    a_G(r) = g^(r^2/Ao^2)/Ao^2 - g^(r^2/A^2)/A^2 for r <= A (Fukushima 2003, eq. for UG).
    """
    centre = bell(spec.kernel, Bell(spec.gamma, spec.centre_radius, spec.radius))
    surround = bell(spec.kernel, Bell(spec.gamma, spec.radius, spec.radius))
    a = centre / spec.centre_radius**2 - surround / spec.radius**2
    positive, negative = np.maximum(a, 0), np.minimum(a, 0)
    return np.asarray(positive / positive.sum() - negative / negative.sum())


def pooled(w: Weights) -> Weights:
    """Return the single kernel that equals blurring by ``w`` and then averaging 2x2 cells."""
    return np.asarray(sum(np.pad(w / 4, ((y, 1 - y), (x, 1 - x))) for y in (0, 1) for x in (0, 1)))


def banded(kernel: NDArray[np.floating[Any]], size: int, padding: int, stride: int) -> Weights:
    """Return the matrix, (out, size), that correlates a row with a 1-D kernel."""
    count, wide = (size + 2 * padding - len(kernel)) // stride + 1, size + 2 * padding
    m = np.zeros((count, wide))
    for y in range(count):
        m[y, y * stride :][: len(kernel)] = kernel
    return m[:, padding : wide - padding].copy()
