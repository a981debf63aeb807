"""How a network learns by gradient; ``experiments/learning/finetune.py`` of commit bfe9938 chose defaults."""

import math
from dataclasses import dataclass, fields, replace

from neocog.errors import UsageError


def want(right: bool, came: str, wanted: str) -> None:
    if not right:
        raise UsageError(f"{came}, expected {wanted}")


REJECTING = 20  #: planes of US4 that answer to what is no digit, in a start that is learned anew


@dataclass(frozen=True, slots=True)
class Augmentation:
    """How strongly digits are changed; 0: not at all. Lengths in pixels of U0, angles in degrees."""

    shift: float = 3.0  #: largest move, each way
    far: float = 0.15  #: share of digits moved by up to ``far_shift`` instead
    far_shift: float = 8.0
    rotation: float = 12.0  #: largest turn
    scale: float = 0.12  #: largest change of size, a share; rows and columns differ by half of it
    shear: float = 0.2  #: largest slant, columns per row
    elastic: float = 1.5  #: standard deviation of the displacement of a coarse grid's points
    stroke: float = 1.0  #: strokes grow or shrink by up to so many pixels a side
    blur: float = 0.0  #: largest standard deviation of a blur, given to half of the digits
    noise: float = 0.0  #: largest standard deviation of noise, given to a third of the digits
    contrast: float = 0.0  #: largest loss of ink, a share, and strength of an uneven ink
    occlusion: float = 0.0  #: share of digits of which a bar or patch is missing
    neighbour: float = 0.0  #: share of digits beside which a piece of another digit stands
    binary: float = 0.0  #: share of digits that are cut to black and white
    coarse: float = 0.0  #: share of digits that were seen by 9 to 22 pixels, for a digit's 28


PRESETS = {
    "none": Augmentation(0, 0, 0, 0, 0, 0, 0, 0), "geometry": Augmentation(stroke=0.0),
    "strokes": Augmentation(),
    "scans": Augmentation(blur=0.7, noise=0.08, contrast=0.15, occlusion=0.02, neighbour=0.04, binary=0.04,
                          coarse=0.12),
    "pages": Augmentation(blur=1.2, noise=0.12, contrast=0.3, occlusion=0.06, neighbour=0.08, binary=0.15,
                          coarse=0.1),
}  # fmt: skip
"""Geometry alone, as measured to serve MNIST best; strokes too; other scanners; all that pages bring."""

USUAL = "scans"  #: the preset that is taken where none is named


def augmentation(words: str) -> Augmentation:
    """Return a preset, or one with changes: ``"strokes,elastic=2,blur=1"``; else UsageError."""
    name, *changes = words.split(",")
    if name not in PRESETS:
        raise UsageError(f"augmentation {name!r} is unknown: choose {', '.join(PRESETS)}")
    known, values = {field.name for field in fields(Augmentation)}, dict[str, float]()
    for change in changes:
        key, _, value = change.partition("=")
        try:
            values[key] = float(value)
        except ValueError:
            values[key] = -1.0
        if key not in known or not values[key] >= 0:
            raise UsageError(f"augmentation {change!r}: expected strength=number, e.g. elastic=2")
    return replace(PRESETS[name], **values)


@dataclass(frozen=True, slots=True)
class Settings:
    """How to learn by gradient. Shares are of a batch unless another whole is named."""

    seed: int = 0  #: fixes the order of the digits and all changes to them; 0 to 2**32 - 1
    epochs: float = 80.0  #: how long to learn, where no minutes are given
    minutes: float | None = None  #: how long to learn by the clock
    batch: int = 512  #: pictures of a step
    rate: float = 0.06  #: largest rate of Adam; reference vectors have entries near 1
    soft_share: float = 0.3  #: of the time in which a smooth maximum stands for the strongest response
    smoothing: float = 0.01  #: label smoothing
    mean: float = 0.999  #: weight of the past in the running mean of the weights
    marks: float = 0.15  #: share that is no digit, where the model has planes that reject
    lean: float = 3.0  #: what the logit of no digit is given more while learning: planes that
    #: reject learn to do with less, so that a digit is not refused where doubt is slight
    variants: float = 0.15  #: share of digits as coarse scanners and the reader hand them over
    pool: int = 20_000  #: marks, and variants, that are drawn before learning
    augmentation: Augmentation = PRESETS[USUAL]  #: how digits and marks are changed
    last: bool = False  #: keep the running mean at the end, not the best epoch by validation
    save_every: int = 2000  #: steps between checkpoints

    def check(self) -> None:
        """Raise UsageError where a value makes no sense, or no digit is left in a step."""
        length = self.epochs if self.minutes is None else self.minutes
        want(0 <= self.seed < 2**32, f"seed {self.seed}", f"0 to {2**32 - 1}")
        came = f"batch {self.batch}, {length} epochs or minutes, rate {self.rate}"
        sizes = self.batch >= 2 and 0 < length < math.inf and 0 < self.rate < math.inf
        want(sizes, came, "2 or more, above 0, above 0, all finite")
        want(math.isfinite(self.lean), f"lean {self.lean}", "a finite number")
        for name in ("marks", "variants", "smoothing"):
            value = getattr(self, name)
            want(0 <= value <= 1, f"{name} {value}", "a share, 0 to 1")
        marks, variants = (round(share * self.batch) for share in (self.marks, self.variants))
        came = f"a step of {self.batch} pictures has {marks} marks and {variants} variants"
        want(marks + variants < self.batch, came, "a digit at least: give a larger batch or smaller shares")
