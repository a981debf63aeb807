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

_HELD_MARKS = 1000  # held-out marks that are measured with
_OFTEN = 4  # variants, and marks, for a digit at most
_SOURCE = 20_000  # digits of a mix that marks are made of


@dataclass(frozen=True, slots=True)
class Pools:
    """What is drawn once, before learning; it follows from the digits, pool and seed alone."""

    variants: Digits  #: (V, 28, 28), by other pens, as scanners and cameras hand them over
    answers: NDArray[np.int64]  #: (V,), what they are
    marks: Digits  #: (M, 28, 28), marks that are no digits
    held: Digits  #: (H, 28, 28), those of kinds and fonts that are measured with alone

    @classmethod
    def draw(
        cls, mix: Mix, validation: Mix, settings: Settings, *, marks: bool, jobs: int = 1
    ) -> "Pools":
        """Draw those that the settings, and a model with planes that reject, have use for."""
        seed, most = settings.seed, min(settings.pool, _OFTEN * len(mix))
        seen, answers = variants(most if settings.variants else 0, mix, seed=seed, jobs=jobs)
        count = most if marks and settings.marks else 0
        source = mix.some(min(_SOURCE, len(mix)), seed=seed) if len(mix.hands) > 1 else mix
        learned = negatives(count, source.images, source.labels, seed=seed, jobs=jobs)[0]
        first, few = validation.hands[0].digits, min(_HELD_MARKS, count)
        held = negatives(few, first.images, first.labels, seed=seed, held=True)[0]
        return cls(seen, answers, learned, held)


class Batches:
    """Digits, marks that are none, and the batches made of them; all of it on the device.

    A batch follows from the seed and the number of its step alone. ``shown`` (V, 28, 28) are the
    validation digits, ``held`` (M, 28, 28) marks to measure with, None if none are learned from.
    UsageError if there are too few digits for a step.
    """

    def __init__(
        self, mix: Mix, validation: Mix, settings: Settings, pools: Pools, device: Any
    ) -> None:
        self._settings, self._device, self.validation = settings, device, validation
        self._digits, self._labels = self._tensor(mix.images), self._tensor(mix.labels)
        self._sizes, self._shares = self._tensor(np.array(mix.sizes)), self._tensor(mix.shares)
        self._first = self._tensor(np.cumsum((0, *mix.sizes))[:-1])
        self.shown, self.held = self._tensor(validation.images), None
        self._per_step = settings.batch
        #: pictures and labels of each pool, and how many of them a step shows
        self._pools: list[tuple[Tensor, Tensor, int]] = []
        if len(pools.variants):
            self._add_pool(pools.variants, pools.answers, settings.variants)
        if len(pools.marks):
            self._add_pool(pools.marks, np.full(len(pools.marks), REJECT), settings.marks)
            self.held = self._tensor(pools.held)
        if len(mix) < self._per_step:
            raise UsageError(
                f"got {len(mix)} digits, a step needs {self._per_step}; "
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
        settings, generator = self._settings, self._generator
        generator.manual_seed(settings.seed * 1_000_003 + step)
        count, dice = self._per_step, {"generator": generator}
        which = torch.multinomial(self._shares, count, replacement=True, **dice)
        part = torch.rand(count, device=self._device, dtype=torch.float64, **dice)
        chosen = self._first[which] + (part * self._sizes[which]).long()
        pictures, labels = [self._digits[chosen]], [self._labels[chosen]]
        done, how = [], settings.augmentation
        if settings.varied != 1:
            done = [augment(pictures.pop(), how, generator)]
            how = how.times(settings.varied)
        for pool, answers, count in self._pools:
            drawn = torch.randint(len(pool), (count,), device=self._device, **dice)
            pictures.append(pool[drawn])
            labels.append(answers[drawn])
        if any(map(len, pictures)):
            done.append(augment(torch.cat(pictures), how, generator))
        return torch.cat(done), torch.cat(labels)

    def _add_pool(self, pictures: Digits, labels: NDArray[np.int64], share: float) -> None:
        count = self._settings.pictures(share)
        self._per_step -= count
        self._pools.append((self._tensor(pictures), self._tensor(labels), count))

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.tensor(array, device=self._device)
