"""The ten layers, stated once; every engine, learner and exporter reads them from here.

Sources: Ikeda, Miyamoto, Ino, Hagihara (2011), Table 2, for the geometry; Fukushima (2003),
*Neocognitron for handwritten digit recognition*, Neurocomputing 51:161-180, for the constants.

A *preset* is an architecture (sizes, spatial weights, thresholds before learning); a *model* is
what a network of that architecture has learned (see :mod:`neocog.network.model`).
"""

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from neocog.errors import UsageError

Psi = Literal["sqrt", "ratio"]

#: Rows and columns of the input layer U0.
INPUT_SIZE = 65
#: Digits that UC4 tells apart.
LABELS = 10
#: Label of planes of US4 that respond to what is no digit; a model may have none.
REJECT = LABELS


@dataclass(frozen=True, slots=True)
class Bell:
    """A radial weight gamma^(r^2/scale^2) for r <= radius, else 0; r in cells of the layer before.

    Every bell of the published network has this form; a Gaussian of standard deviation s is
    ``Bell(math.exp(-0.5), s)``.
    """

    gamma: float
    scale: float
    radius: float = math.inf

    @classmethod
    def disc(cls, gamma: float, radius: float) -> "Bell":
        """Return the published form: scale and rim at the same radius."""
        return cls(gamma, radius, radius)

    @classmethod
    def gaussian(cls, sigma: float) -> "Bell":
        """Return a Gaussian of standard deviation ``sigma`` (cells), not cut off."""
        return cls(math.exp(-0.5), sigma)


@dataclass(frozen=True, slots=True)
class ContrastSpec:
    """UG (UC0): on-centre and off-centre contrast cells (Fukushima 2003, section 2.2)."""

    kernel: int = 7
    padding: int = 6
    radius: float = 3.3
    centre_radius: float = 1.5
    gamma: float = 0.05
    #: Responses of at most this size count as silence.
    silence: float = 1e-4


@dataclass(frozen=True, slots=True)
class SSpec:
    """One layer of S-cells.

    ``c`` weighs the inhibition v; ``threshold`` is the one used for recognition and
    ``learning_threshold`` the one its planes are born with (None where nothing competes).
    """

    kernel: int
    padding: int
    c: Bell
    threshold: float
    learning_threshold: float | None = None
    #: Gain of excitation and inhibition, a = q c X and b = q |X|_c.
    q: float = 100.0


@dataclass(frozen=True, slots=True)
class CSpec:
    """One layer of C-cells: a (kernel-1)-wide blur, 2x2 average pooling, the saturation psi.

    ``centre`` is the bell of the positive weights a_C. With ``surround`` (cells) the published inhibitory
    surround of Fukushima 2003 is added. With ``blur`` the bell is the blur itself (sum 1) and a_C follows
    from it; otherwise a_C is ``gain`` times the bell and the blur is its exact quotient by the box.
    """

    kernel: int
    padding: int
    centre: Bell
    surround: float | None = None
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
    #: UC1 .. UC3; UC4 takes the strongest plane of each label and has no weights
    c: tuple[CSpec, CSpec, CSpec]
    psi: Psi  #: saturation of the C-cells: sqrt(x) (Fukushima 2010) or x/(1+x) (2003)
    orientations: int = 16  #: planes of US1

    def layers(
        self, planes: tuple[int | None, int | None, int | None] = (None,) * 3
    ) -> tuple[LayerShape, ...]:
        """Return the ten layers in order; ``planes`` are K2, K3, K4 where they are known."""
        g = self.contrast
        size = INPUT_SIZE + 2 * g.padding - g.kernel + 1
        rows = [
            LayerShape("U0", 1, INPUT_SIZE, None, 0, 1),
            LayerShape("UG", 2, size, g.kernel, g.padding, 1),
        ]
        for stage in range(4):
            s = self.s[stage]
            k = self.orientations if stage == 0 else planes[stage - 1]
            size = size + 2 * s.padding - s.kernel + 1
            rows.append(LayerShape(f"US{stage + 1}", k, size, s.kernel, s.padding, 1))
            if stage == 3:
                rows.append(LayerShape("UC4", LABELS, 1, size, 0, 1))
                break
            c = self.c[stage]
            size = (size + 2 * c.padding - c.kernel) // c.stride + 1
            rows.append(LayerShape(f"UC{stage + 1}", k, size, c.kernel, c.padding, c.stride))
        return tuple(rows)

    def size(self, layer: str) -> int:
        """Return the rows (and columns) of a layer by name, e.g. ``"UC2"``."""
        return next(row.size for row in self.layers() if row.name == layer)


def _fukushima2003() -> NetworkSpec:
    """Constants of Fukushima 2003 (Table of parameters); C1 and C2 have inhibitory surrounds."""
    return NetworkSpec(
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


def _ikeda2011() -> NetworkSpec:
    """Ikeda et al. 2011, Table 2: 6x6 and 8x8 C connections, that is, no surround."""
    base = _fukushima2003()
    return replace(
        base,
        name="ikeda2011",
        c=(
            replace(base.c[0], kernel=6, padding=5, surround=None),
            replace(base.c[1], kernel=6, padding=4, surround=None),
            base.c[2],
        ),
    )


def _neocog() -> NetworkSpec:
    """Ikeda's geometry with square-root saturation (Fukushima 2010) and Gaussian bells."""
    base = _ikeda2011()
    return replace(
        base,
        name="neocog",
        s=(
            base.s[0],
            replace(base.s[1], c=Bell.gaussian(2.0)),
            replace(base.s[2], c=Bell.gaussian(2.0)),
            replace(base.s[3], c=Bell.gaussian(2.5)),
        ),
        c=(
            replace(base.c[0], centre=Bell.gaussian(1.6), blur=True),
            replace(base.c[1], centre=Bell.gaussian(1.0), blur=True),
            replace(base.c[2], centre=Bell.gaussian(2.2), blur=True),
        ),
        psi="sqrt",
    )


_PRESETS = {f.__name__[1:]: f for f in (_fukushima2003, _ikeda2011, _neocog)}

#: Names of the architectures that :func:`preset` knows.
PRESETS = tuple(_PRESETS)


def preset(name: str) -> NetworkSpec:
    """Return the architecture called ``name``; UsageError if there is none."""
    try:
        return _PRESETS[name]()
    except KeyError:
        raise UsageError(f"preset {name!r} is unknown: choose {', '.join(PRESETS)}") from None
