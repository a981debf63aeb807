"""Marks that are no digits, in the form of isolated digits: what planes of US4 learn to reject.

Letters and signs of fonts that cv2 and Pillow carry, strokes, spots, pieces and pairs of digits
(:mod:`neocog.learning.marks`), drawn as ink and brought to 28 x 28 as found ink is. What passes for a digit
(O, l, /, ...) is left out; other kinds and fonts are held out (:mod:`neocog.learning.held_out`).
"""

import numpy as np
from numpy.typing import NDArray

from neocog.errors import UsageError
from neocog.learning.blocks import in_blocks
from neocog.learning.held_out import HELD
from neocog.learning.marks import AS_WRITTEN, KINDS, Digits, Source, as_written
from neocog.vision.normalise import SIDE, normalise

_BLOCK = 5000
_LEAST = 25 * 255  # a picture with less ink is drawn again


def negatives(
    count: int, digits: Digits, labels: NDArray[np.int64], *, seed: int, held: bool = False, jobs: int = 1
) -> tuple[Digits, NDArray[np.int64], tuple[str, ...]]:
    """Draw marks that are no digits, (count, 28, 28) uint8; their kinds, (count,), and names.

    Digits (N, 28, 28) with their labels are broken and joined. The same seed gives the same marks on any
    number of processes (``jobs``). ``held`` draws the held-out kinds and fonts. UsageError if there are no
    digits.
    """
    if not len(digits):
        raise UsageError("got no digits, expected some to break and join")
    source = Source(digits, labels)
    parts = in_blocks(_block, count, _BLOCK, source, seed, held, jobs=jobs)
    marks, kind = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return marks, kind, tuple(HELD if held else KINDS)


def _block(source: Source, seed: int, held: bool, number: int, size: int) -> tuple[Digits, NDArray[np.int64]]:
    draws, often = zip(*(HELD if held else KINDS).values(), strict=True)
    shares = np.array(often)
    rng = np.random.default_rng([seed, int(held), 11, *[number] * (number > 0)])
    kind = rng.choice(len(draws), size=size, p=shares / shares.sum())
    marks = np.zeros((size, SIDE, SIDE), np.uint8)
    for i, k in enumerate(kind):
        for _ in range(20):
            ink = draws[k](rng, source)
            other_form = not held and rng.random() < AS_WRITTEN
            marks[i] = as_written(ink) if other_form else normalise(ink)
            if marks[i].sum() > _LEAST:
                break
    return marks, kind.astype(np.int64)
