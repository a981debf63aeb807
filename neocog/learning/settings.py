"""How a network learns by gradient, and how far a run has come."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from neocog.errors import UsageError
from neocog.learning.augment import PRESETS, Augmentation

PRECISIONS = ("fp32", "tf32", "bf16")


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
    dropout : float
        Share of the cell-planes of UC2 and UC3 that are silent, drawn anew for each picture.
    pool : int
        Marks, and variants, that are drawn before learning, at most one for each digit.
    clip : float
        Longest gradient.
    augmentation : Augmentation
        How digits and marks are changed.
    last : bool
        Keep the running mean at the end, not the best epoch by validation: where what is no digit
        counts as well, which validation digits do not show.
    patience : int
        Epochs without a better validation after which learning stops; 0: never, as ``last``
        wants it.
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
    epochs: float = 20.0
    minutes: float | None = None
    batch: int = 512
    rate: float = 0.03
    again: float = 0.5
    warm_up: float = 0.05
    soft: float = 0.02
    soft_share: float = 0.3
    smoothing: float = 0.01
    mean: float = 0.999
    marks: float = 0.15
    lean: float = 3.0
    variants: float = 0.15
    dropout: float = 0.0
    pool: int = 20_000
    clip: float = 1.0
    augmentation: Augmentation = PRESETS["strokes"]
    last: bool = False
    patience: int = 0
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
        if self.last and self.patience:
            raise UsageError(
                f"last and patience {self.patience}: where the end is kept no epoch is better; "
                "give one of the two"
            )
        self._check_shares()

    def _check_shares(self) -> None:
        """Raise UsageError where a share is none, or leaves no digit in a step."""
        for name in ("marks", "variants", "soft_share", "smoothing"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name} {getattr(self, name)}; wanted a share, 0 to 1")
        for name in ("dropout", "warm_up"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"{name} {getattr(self, name)}; wanted a share, 0 to below 1")
        others = self.pictures(self.marks), self.pictures(self.variants)
        if sum(others) >= self.batch:
            raise UsageError(
                f"a step of {self.batch} pictures has {others[0]} marks and {others[1]} variants; "
                "wanted a digit at least: give a larger batch or smaller shares"
            )


@dataclass(slots=True)
class Position:
    """How far a run has come: what a checkpoint holds beside tensors.

    ``kept_accuracy`` and ``kept_loss`` are the validation's of the epoch that is kept,
    ``since_kept`` the epochs after it.
    """

    step: int = 0
    cycle: int = 0
    cycle_step: int = 0
    cycle_seconds: float = 0.0
    epoch: int = 0
    finished: bool = False
    kept_accuracy: float = -1.0
    kept_loss: float = math.inf
    since_kept: int = 0

    def next_cycle(self) -> "Position":
        """Return where a run stands that begins another cycle."""
        return replace(
            self,
            cycle=self.cycle + 1,
            cycle_step=0,
            cycle_seconds=0.0,
            finished=False,
            since_kept=0,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self) | {"kept_loss": repr(self.kept_loss)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Position":
        """Return what :meth:`to_dict` told."""
        return cls(**values | {"kept_loss": float(values["kept_loss"])})
