"""What each step of gradient learning shows: digits, variants and marks, drawn at random."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neocog.errors import UsageError
from neocog.learning.augment import augment
from neocog.learning.mix import Mix
from neocog.learning.negatives import negatives
from neocog.learning.settings import Settings
from neocog.learning.variants import variants
from neocog.network.spec import REJECT

Tensor = Any
Digits = NDArray[np.uint8]
Labels = NDArray[np.int64]

_HELD_MARKS = 1000  # held-back marks that are measured with
_OFTEN = 4  # variants, and marks, for a digit at most
_SOURCE = 20_000  # digits of a mix that marks are made of


@dataclass(frozen=True, slots=True)
class Pools:
    """What is drawn once, before learning; it follows from the digits, pool and seed alone.

    Attributes
    ----------
    variants : ndarray of uint8, shape (V, 28, 28)
        Digits by other pens, as scanners and cameras hand them over.
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
        cls, mix: Mix, validation: Mix, settings: Settings, *, marks: bool, jobs: int = 1
    ) -> "Pools":
        """Draw those that the settings, and a model with planes that reject, have use for."""
        seed, most = settings.seed, min(settings.pool, _OFTEN * len(mix))
        count = most if settings.variants else 0
        seen, answers = variants(count, mix, seed=seed, jobs=jobs)
        count = most if marks and settings.marks else 0
        source = mix.some(min(_SOURCE, len(mix)), seed=seed) if len(mix.hands) > 1 else mix
        learned, _, _ = negatives(count, source.images, source.labels, seed=seed, jobs=jobs)
        first = validation.hands[0].digits
        held, _, _ = negatives(
            min(_HELD_MARKS, count), first.images, first.labels, seed=seed, held=True
        )
        return cls(seen, answers, learned, held)


class Lessons:
    """Digits, marks that are none, and the batches made of them; all of it on the device.

    A batch follows from the seed and the number of its step alone.

    Parameters
    ----------
    mix, validation : Mix
        Digits to learn from, and digits that are measured with.
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
        mix: Mix,
        validation: Mix,
        settings: Settings,
        *,
        marks: bool,
        device: Any,
        pools: Pools | None = None,
    ) -> None:
        self._settings, self._device = settings, device
        self._digits, self._labels = self._tensor(mix.images), self._tensor(mix.labels)
        self._sizes = self._tensor(np.array(mix.sizes))
        self._first = self._tensor(np.cumsum((0, *mix.sizes))[:-1])
        self._shares = self._tensor(mix.shares)
        self.validation = validation
        self.shown, self.answers = self._tensor(validation.images), validation.labels
        self._per_step = settings.batch
        pools = pools or Pools.draw(mix, validation, settings, marks=marks)
        self._variants: tuple[Tensor, Tensor] | None = None
        if len(pools.variants):
            self._per_step -= settings.pictures(settings.variants)
            self._variants = self._tensor(pools.variants), self._tensor(pools.answers)
        self._marks = self.held = None
        if len(pools.marks):
            self._per_step -= settings.pictures(settings.marks)
            self._marks, self.held = self._tensor(pools.marks), self._tensor(pools.held)
        if len(mix) < self._per_step:
            raise UsageError(
                f"{len(mix)} digits came, fewer than the {self._per_step} of a step; "
                "give more digits or a smaller batch"
            )
        self._generator = torch.Generator(device=device)

    def __len__(self) -> int:
        return len(self._digits)

    @property
    def epoch_steps(self) -> int:
        """Steps that show as many digits as there are."""
        return len(self) // self._per_step

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return pictures (B, 65, 65), changed, and labels (B,) of a step."""
        self._generator.manual_seed(self._settings.seed * 1_000_003 + step)
        chosen = self._chosen(self._per_step)
        digits, labels = self._digits[chosen], self._labels[chosen]
        how, parts = self._settings.augmentation, []
        if self._settings.varied != 1:
            parts = [augment(digits, how, self._generator)]
            digits, how = digits[:0], how.times(self._settings.varied)
        if self._variants is not None:
            drawn = self._drawn(len(self._variants[0]), self._settings.variants)
            digits = torch.cat([digits, self._variants[0][drawn]])
            labels = torch.cat([labels, self._variants[1][drawn]])
        if self._marks is not None:
            drawn = self._drawn(len(self._marks), self._settings.marks)
            digits = torch.cat([digits, self._marks[drawn]])
            labels = torch.cat([labels, torch.full_like(drawn, REJECT)])
        if len(digits):
            parts.append(augment(digits, how, self._generator))
        return torch.cat(parts) if len(parts) > 1 else parts[0], labels

    def _chosen(self, count: int) -> Tensor:
        """Return places of digits, their sets drawn by weight."""
        which = torch.multinomial(self._shares, count, replacement=True, generator=self._generator)
        part = torch.rand(
            count, generator=self._generator, device=self._device, dtype=torch.float64
        )
        return self._first[which] + (part * self._sizes[which]).long()

    def _drawn(self, pool: int, share: float) -> Tensor:
        """Return places in a pool, for a share of the batch."""
        size = (self._settings.pictures(share),)
        return torch.randint(pool, size, generator=self._generator, device=self._device)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.tensor(array, device=self._device)
