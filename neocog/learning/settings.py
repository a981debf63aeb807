"""How a network learns by gradient, and how far a run has come."""

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from neocog.errors import UsageError

PRECISIONS = ("fp32", "tf32", "bf16")

#: Planes of US4 that answer to what is no digit, in a start that is learned anew.
REJECTING = 20


@dataclass(frozen=True, slots=True)
class Augmentation:
    """How strongly :mod:`neocog.learning.augment` changes digits; 0 leaves a change out.

    Lengths are in pixels of U0 (65 x 65, where a digit is 40 high), angles in degrees.

    Attributes
    ----------
    shift : float
        Largest move, each way.
    far : float
        Share of digits moved by up to ``far_shift`` instead.
    far_shift : float
        Their largest move.
    rotation : float
        Largest turn (degrees).
    scale : float
        Largest change of size, as a share; rows and columns differ by up to half of it.
    shear : float
        Largest slant (columns per row).
    elastic : float
        Standard deviation of the displacement of a coarse grid's points.
    stroke : float
        Strokes grow or shrink by up to this many pixels a side.
    blur : float
        Largest standard deviation of a blur, given to half of the digits.
    noise : float
        Largest standard deviation of noise, given to a third of the digits.
    contrast : float
        Largest loss of ink, as a share, and strength of an uneven ink.
    occlusion : float
        Share of digits of which a bar or patch is missing.
    neighbour : float
        Share of digits beside which a piece of another digit stands.
    binary : float
        Share of digits that are cut to black and white.
    coarse : float
        Share of digits that were seen by few pixels, 9 to 22 for the 28 of a digit.
    """

    shift: float = 3.0
    far: float = 0.15
    far_shift: float = 8.0
    rotation: float = 12.0
    scale: float = 0.12
    shear: float = 0.2
    elastic: float = 1.5
    stroke: float = 1.0
    blur: float = 0.0
    noise: float = 0.0
    contrast: float = 0.0
    occlusion: float = 0.0
    neighbour: float = 0.0
    binary: float = 0.0
    coarse: float = 0.0

    def times(self, strength: float) -> "Augmentation":
        """Return all of it weaker or stronger; shares stay at most 1."""
        most = dict.fromkeys(("far", "occlusion", "neighbour", "binary", "coarse"), 1.0)
        values = {
            name: min(strength * value, most.get(name, float("inf")))
            for name, value in asdict(self).items()
        }
        return replace(self, **values | {"far_shift": self.far_shift})


#: Geometry alone, as measured to serve MNIST best; with strokes; with other scanners; and all that
#: pages bring.
PRESETS = {
    "none": Augmentation(0, 0, 0, 0, 0, 0, 0, 0),
    "geometry": Augmentation(stroke=0.0),
    "strokes": Augmentation(),
    "scans": Augmentation(
        blur=0.7,
        noise=0.08,
        contrast=0.15,
        occlusion=0.02,
        neighbour=0.04,
        binary=0.04,
        coarse=0.12,
    ),
    "pages": Augmentation(
        blur=1.2,
        noise=0.12,
        contrast=0.3,
        occlusion=0.06,
        neighbour=0.08,
        binary=0.15,
        coarse=0.1,
    ),
}

#: The preset that is taken where none is named.
USUAL = "scans"


def augmentation(words: str) -> Augmentation:
    """Return a preset, or one with changes: ``"strokes,elastic=2,blur=1"``.

    Raises
    ------
    UsageError
        If there is no such preset or strength.
    """
    name, *changes = words.split(",")
    if name not in PRESETS:
        raise UsageError(f"no augmentation {name!r}; there are {', '.join(PRESETS)}")
    known = {field.name for field in fields(Augmentation)}
    values: dict[str, float] = {}
    for change in changes:
        key, _, value = change.partition("=")
        try:
            values[key] = float(value)
        except ValueError:
            values[key] = -1.0
        if key not in known or not values[key] >= 0:
            raise UsageError(f"augmentation {change!r}: wanted strength=number, e.g. elastic=2")
    return replace(PRESETS[name], **values)


@dataclass(frozen=True, slots=True)
class Settings:
    """How to learn by gradient.

    Attributes
    ----------
    seed : int
        Fixes the order of the digits and all changes to them; 0 to 2**32 - 1.
    epochs : float
        Length of a cycle, where no ``minutes`` are given.
    minutes : float, optional
        Length of a cycle by the clock.
    batch : int
        Pictures of a step.
    rate : float
        Largest rate of Adam in the first cycle; reference vectors have entries near 1.
    again : float
        Largest rate of each later cycle, as a share of the first's.
    warm_up : float
        Share of a cycle in which the rate rises.
    soft, soft_share : float
        Width of the smooth maximum over planes and places, and for what share of the first cycle
        it takes the place of the strongest response.
    smoothing : float
        Label smoothing.
    mean : float
        Weight of the past in the running mean of the weights.
    marks : float
        Share of a batch that are marks and no digits, where the model has planes that reject.
    lean : float
        What the logit of no digit is given more while learning. Planes that reject learn to do
        with less, so that a digit is not refused where doubt is slight; marks that are none then
        show by a low probability.
    variants : float
        Share of a batch that are digits as coarse scanners and the reader hand them over (see
        :mod:`neocog.learning.variants`).
    pool : int
        Marks, and variants, that are drawn before learning, at most one for each digit.
    clip : float
        Longest gradient.
    augmentation : Augmentation
        How digits and marks are changed.
    varied : float
        How much of it variants and marks get, which are varied already.
    guided : float
        Share of the loss that the soft answers of a guide have (:mod:`neocog.learning.guide`),
        where there is one.
    heat : float
        Temperature at which its answers and the network's are compared.
    last : bool
        Keep the running mean at the end, not the best epoch by validation: where what is no digit
        counts as well, which validation digits do not show.
    save_every : int
        Steps between checkpoints.
    precision : {"fp32", "tf32", "bf16"}
        Of the products.
    deterministic : bool
        On a GPU, take slower kernels that give the same result each time, where PyTorch has such.
        On a CPU the same number of threads does, unless ``minutes`` are given.
    compiled : bool
        Use torch.compile for what is done cell by cell.
    """

    seed: int = 0
    epochs: float = 80.0
    minutes: float | None = None
    batch: int = 512
    rate: float = 0.06
    again: float = 0.5
    warm_up: float = 0.05
    soft: float = 0.02
    soft_share: float = 0.3
    smoothing: float = 0.01
    mean: float = 0.999
    marks: float = 0.15
    lean: float = 3.0
    variants: float = 0.15
    pool: int = 20_000
    clip: float = 1.0
    augmentation: Augmentation = PRESETS[USUAL]
    varied: float = 1.0
    guided: float = 0.0
    heat: float = 2.0
    last: bool = False
    save_every: int = 2000
    precision: str = "tf32"
    deterministic: bool = False
    compiled: bool = False

    def pictures(self, share: float) -> int:
        """Return how many pictures of a batch a share of it is."""
        return round(share * self.batch)

    def check(self) -> None:
        """Raise UsageError where a value makes no sense."""
        if self.precision not in PRECISIONS:
            raise UsageError(f"precision {self.precision!r}; wanted {', '.join(PRECISIONS)}")
        if not 0 <= self.seed < 2**32:
            raise UsageError(f"seed {self.seed}; wanted 0 to {2**32 - 1}")
        length = self.epochs if self.minutes is None else self.minutes
        if self.batch < 2 or not 0 < length < math.inf or not 0 < self.rate < math.inf:
            raise UsageError(
                f"batch {self.batch}, {length} epochs or minutes, rate {self.rate}: wanted 2 or "
                "more, above 0, above 0, all finite"
            )
        if not math.isfinite(self.lean):
            raise UsageError(f"lean {self.lean}; wanted a finite number")
        if not 0 <= self.varied < math.inf:
            raise UsageError(f"varied {self.varied}; wanted a number, 0 or more")
        if not 0 < self.heat < math.inf:
            raise UsageError(f"heat {self.heat}; wanted a number above 0")
        self._check_shares()

    def _check_shares(self) -> None:
        """Raise UsageError where a share is none, or leaves no digit in a step."""
        for name in ("marks", "variants", "soft_share", "smoothing", "guided"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name} {getattr(self, name)}; wanted a share, 0 to 1")
        if not 0 <= self.warm_up < 1:
            raise UsageError(f"warm_up {self.warm_up}; wanted a share, 0 to below 1")
        others = self.pictures(self.marks), self.pictures(self.variants)
        if sum(others) >= self.batch:
            raise UsageError(
                f"a step of {self.batch} pictures has {others[0]} marks and {others[1]} variants; "
                "wanted a digit at least: give a larger batch or smaller shares"
            )


@dataclass(slots=True)
class Position:
    """How far a run has come: what a checkpoint holds beside tensors.

    ``kept_accuracy`` and ``kept_loss`` are the validation's of the epoch that is kept.
    """

    step: int = 0
    cycle: int = 0
    cycle_step: int = 0
    cycle_seconds: float = 0.0
    epoch: int = 0
    finished: bool = False
    kept_accuracy: float = -1.0
    kept_loss: float = math.inf

    def next_cycle(self) -> "Position":
        """Return where a run stands that begins another cycle."""
        return replace(
            self,
            cycle=self.cycle + 1,
            cycle_step=0,
            cycle_seconds=0.0,
            finished=False,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self) | {"kept_loss": repr(self.kept_loss)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Position":
        """Return what :meth:`to_dict` told."""
        return cls(**values | {"kept_loss": float(values["kept_loss"])})
