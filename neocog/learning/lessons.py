"""What each step of gradient learning shows: digits in turn, variants and marks at random."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neocog.errors import UsageError
from neocog.learning.augment import augment
from neocog.learning.negatives import negatives
from neocog.learning.settings import Settings
from neocog.learning.variants import variants
from neocog.network.spec import REJECT

Tensor = Any
Digits = NDArray[np.uint8]
Labels = NDArray[np.int64]

_HELD_MARKS = 1000  # held-back marks that are measured with


@dataclass(frozen=True, slots=True)
class Pools:
    """What is drawn once, before learning; it follows from the digits, pool and seed alone.

    Attributes
    ----------
    variants : ndarray of uint8, shape (V, 28, 28)
        Digits as scanners and cameras hand them over.
    answers : ndarray of int64, shape (V,)
        What they are.
    marks : ndarray of uint8, shape (M, 28, 28)
        Marks that are no digits.
    held : ndarray of uint8, shape (H, 28, 28)
        Marks of kinds and fonts that are not learned from, to measure with.
    """

    variants: Digits
    answers: Labels
    marks: Digits
    held: Digits

    @classmethod
    def draw(
        cls,
        images: Digits,
        labels: Labels,
        validation: tuple[Digits, Labels],
        settings: Settings,
        *,
        marks: bool,
    ) -> "Pools":
        """Draw those that the settings, and a model with planes that reject, have use for."""
        seed, most = settings.seed, min(settings.pool, len(images))
        count = most if settings.variants else 0
        seen, answers = variants(count, images, labels, seed=seed)
        count = most if marks and settings.marks else 0
        learned, _, _ = negatives(count, images, labels, seed=seed)
        held, _, _ = negatives(min(_HELD_MARKS, count), *validation, seed=seed, held=True)
        return cls(seen, answers, learned, held)


class Lessons:
    """Digits, marks that are none, and the batches made of them; all of it on the device.

    A batch follows from the seed and the number of its step alone.

    Parameters
    ----------
    images, labels : ndarray
        Digits (N, 28, 28) uint8 to learn from, and what they are.
    validation : (images, labels)
        Digits that are measured with.
    settings : Settings
    marks : bool
        Whether marks that are no digits are learned from as well.
    device : str or torch.device
    pools : Pools, optional
        If they were drawn before.

    Attributes
    ----------
    shown : Tensor of uint8, shape (V, 28, 28)
        The validation digits.
    answers : ndarray of int64, shape (V,)
        What they are.
    held : Tensor of uint8, shape (M, 28, 28), or None
        Marks of kinds and fonts that are not learned from, to measure with.

    Raises
    ------
    UsageError
        If there are fewer digits than a step shows.
    """

    def __init__(
        self,
        images: Digits,
        labels: Labels,
        validation: tuple[Digits, Labels],
        settings: Settings,
        *,
        marks: bool,
        device: Any,
        pools: Pools | None = None,
    ) -> None:
        self._settings, self._device = settings, device
        self._digits = self._tensor(images)
        self._labels = self._tensor(labels.astype(np.int64))
        self.shown, self.answers = self._tensor(validation[0]), validation[1].astype(np.int64)
        self._per_step = settings.batch
        pools = pools or Pools.draw(images, labels, validation, settings, marks=marks)
        self._variants: tuple[Tensor, Tensor] | None = None
        if len(pools.variants):
            self._per_step -= settings.pictures(settings.variants)
            self._variants = self._tensor(pools.variants), self._tensor(pools.answers)
        self._marks = self.held = None
        if len(pools.marks):
            self._per_step -= settings.pictures(settings.marks)
            self._marks, self.held = self._tensor(pools.marks), self._tensor(pools.held)
        if len(images) < self._per_step:
            raise UsageError(
                f"{len(images)} digits came, fewer than the {self._per_step} of a step; "
                "give more digits or a smaller batch"
            )
        self._generator = torch.Generator(device=device)
        self._order: tuple[int, Tensor] = (-1, None)

    def __len__(self) -> int:
        return len(self._digits)

    @property
    def epoch_steps(self) -> int:
        """Steps that show each digit once (a last part smaller than a step is left out)."""
        return len(self) // self._per_step

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return pictures (B, 65, 65), changed, and labels (B,) of a step."""
        epoch, turn = divmod(step, self.epoch_steps)
        if self._order[0] != epoch:
            rng = np.random.default_rng([self._settings.seed, 7, epoch])
            self._order = epoch, self._tensor(rng.permutation(len(self)))
        n = self._per_step
        chosen = self._order[1][turn * n : (turn + 1) * n]
        digits, labels = self._digits[chosen], self._labels[chosen]
        self._generator.manual_seed(self._settings.seed * 1_000_003 + step)
        if self._variants is not None:
            drawn = self._drawn(len(self._variants[0]), self._settings.variants)
            digits = torch.cat([digits, self._variants[0][drawn]])
            labels = torch.cat([labels, self._variants[1][drawn]])
        if self._marks is not None:
            drawn = self._drawn(len(self._marks), self._settings.marks)
            digits = torch.cat([digits, self._marks[drawn]])
            labels = torch.cat([labels, torch.full_like(drawn, REJECT)])
        return augment(digits, self._settings.augmentation, self._generator), labels

    def _drawn(self, pool: int, share: float) -> Tensor:
        """Return places in a pool, for a share of the batch."""
        size = (self._settings.pictures(share),)
        return torch.randint(pool, size, generator=self._generator, device=self._device)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.tensor(array, device=self._device)
