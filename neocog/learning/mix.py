"""Several sets of digits to learn from, each with a weight: ``mnist:4``, ``hands/swiss:2``."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.errors import InputError, UsageError
from neocog.learning.datasets import Digits, open_digits, place_of, rows_of_part
from neocog.learning.drawing.pen import FILE, Strokes, read_strokes


@dataclass(frozen=True, slots=True)
class Hand:
    """One set of a mix, shown as often as its weight says against those of the others."""

    digits: Digits
    weight: float = 1.0
    strokes: Strokes | None = None  #: paths of a pen that wrote the digits, for other pens
    rows: NDArray[np.int64] | None = None  #: (N,), where each digit stands among them


@dataclass(frozen=True, slots=True)
class Mix:
    """Digits of several sets, one set after the other."""

    hands: tuple[Hand, ...]

    @classmethod
    def of(cls, images: NDArray[np.uint8], labels: NDArray[Any], name: str = "digits") -> "Mix":
        return cls((Hand(Digits(images, labels.astype(np.int64), name)),))

    def __len__(self) -> int:
        return sum(self.sizes)

    @property
    def images(self) -> NDArray[np.uint8]:
        return np.concatenate([hand.digits.images for hand in self.hands])

    @property
    def labels(self) -> NDArray[np.int64]:
        return np.concatenate([hand.digits.labels for hand in self.hands]).astype(np.int64)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(hand.digits) for hand in self.hands)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(hand.digits.name.partition(" ")[0] for hand in self.hands)

    @property
    def shares(self) -> NDArray[np.float64]:
        """How often a digit of each set is shown; their sum is 1."""
        weights = np.array([hand.weight for hand in self.hands])
        return np.asarray(weights / weights.sum())

    @property
    def digest(self) -> str:
        """How many digits, 8 hex digits of SHA-256 of all there is, and weights: tells a mix from others."""
        images = self.images
        seen = hashlib.sha256(str(images.shape).encode() + images.tobytes() + self.labels.tobytes())
        weights = ":".join(f"{hand.weight:g}" for hand in self.hands)
        return f"{len(images)} ({seen.hexdigest()[:8]})" + f" {weights}" * (len(self.hands) > 1)

    def means(self, values: NDArray[Any]) -> list[float]:
        """Return the mean of each set, of a value for each digit."""
        return [float(part.mean()) for part in np.split(values, np.cumsum(self.sizes)[:-1])]

    def draw(self, count: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draw digits by the weights of their sets: the set of each, and its place in the set."""
        which = rng.choice(len(self.hands), size=count, p=self.shares)
        places = (rng.random(count) * np.array(self.sizes)[which]).astype(np.int64)
        return which, places

    def first(self, count: int | None) -> "Mix":
        """Return a mix of so many digits at most: the first of one set, drawn from several."""
        if count is None or count >= len(self):
            return self
        return Mix((Hand(self.hands[0].digits[:count] if len(self.hands) == 1 else self.some(count)),))

    def some(self, count: int, *, seed: int = 0) -> Digits:
        """Return digits drawn by the weights of their sets."""
        which, places = self.draw(count, np.random.default_rng([seed, 12]))
        rows = np.cumsum((0, *self.sizes))[which] + places
        return Digits(self.images[rows], self.labels[rows], " + ".join(self.names))


def open_mix(data: Sequence[str], *, split: str | None = "learning") -> Mix:
    """Read a part of sets, each ``PATH`` or ``PATH:WEIGHT``, and the strokes of pens beside pictures."""
    hands = []
    for words in data:
        path, colon, number = words.rpartition(":")
        try:
            weight = float(number)
        except ValueError:  # a place with a colon in its name
            colon = ""
        if not colon or Path(words).exists():
            path, weight = words, 1.0
        if not 0 < weight < np.inf:
            raise UsageError(f"data {words!r}: expected a weight above 0, as in mnist:2")
        digits, folder = open_digits(path, split=split), place_of(path)
        if not (folder / FILE).is_file():
            hands.append(Hand(digits, weight))
            continue
        strokes, whole = read_strokes(folder / FILE), open_digits(path, split="train").labels
        rows = rows_of_part(folder, whole, split)
        if len(strokes) != len(whole) or not np.array_equal(whole[rows], digits.labels):
            raise InputError(f"{folder / FILE}: {len(strokes)} digits, not those of the pictures beside it")
        hands.append(Hand(digits, weight, strokes, rows))
    return Mix(tuple(hands))
