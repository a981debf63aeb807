"""Corruptions of isolated digits, eight kinds of five strengths: what robustness is measured on.

Each kind changes digits of 28 x 28 pixels, ink 255 on paper 0, and gives digits of the same form.
Lengths are in pixels of the digit (whose ink is about 20 high), shares are of full ink. Strength 1
hardly hinders a person, strength 5 is hard for one. The amounts were set once, before anything was
measured with them. What each does to each digit is drawn from a generator seeded by the kind and
the strength: the same digits give the same pictures.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neocog.errors import UsageError
from neocog.network.u0 import DIGIT_SIZE, check_digits

Ink = NDArray[np.float32]
Random = np.random.Generator

SEED = 28
STRENGTHS = (1, 2, 3, 4, 5)
_CELLS = 5  # points of the coarse grid from which uneven paper is made, each way


class Corruption(NamedTuple):
    """One kind of corruption: how much of it, by strength, and what it does.

    ``change`` takes ink (N, 28, 28) of 0..1, the amount and a generator, and gives ink; values
    beyond 0..1 are cut off.
    """

    about: str  # for people; ``{}`` stands for the amount
    amounts: tuple[float, float, float, float, float]
    change: Callable[[Ink, float, Random], NDArray[Any]]


def corrupt(digits: NDArray[np.uint8], name: str, strength: int, *, seed: int = SEED) -> NDArray[np.uint8]:
    """Return digits (N, 28, 28), ink 255 on paper 0, corrupted in one way at a strength of 1 to 5.

    Another ``seed`` draws other places, directions and noise.

    Raises
    ------
    InputError, UsageError
        If the array has another shape or type; if there is no such corruption or strength.
    """
    check_digits(digits)
    if name not in CORRUPTIONS:
        raise UsageError(f"corruption '{name}' is unknown: choose {', '.join(CORRUPTIONS)}")
    if strength not in STRENGTHS:
        raise UsageError(f"got strength {strength}, expected 1 to {STRENGTHS[-1]}")
    kind = CORRUPTIONS[name]
    rng = np.random.default_rng([seed, strength, *name.encode()])
    ink = digits.astype(np.float32) / np.float32(255)
    changed = kind.change(ink, kind.amounts[strength - 1], rng)
    return np.asarray(np.round(255 * np.clip(changed, 0, 1)), np.uint8)


# --- light and paper ------------------------------------------------------------------------------


def _noise(ink: Ink, amount: float, rng: Random) -> NDArray[Any]:
    return ink + amount * rng.standard_normal(ink.shape, dtype=np.float32)


def _blur(ink: Ink, amount: float, rng: Random) -> NDArray[Any]:
    apart = np.subtract.outer(np.arange(DIGIT_SIZE), np.arange(DIGIT_SIZE))
    bell = np.exp(-0.5 * (apart / amount) ** 2)
    bell /= bell[DIGIT_SIZE // 2].sum()  # beyond the border is paper
    return np.asarray(bell @ ink @ bell.T)


def _contrast(ink: Ink, amount: float, rng: Random) -> NDArray[Any]:
    return ink * amount


def _background(ink: Ink, amount: float, rng: Random) -> NDArray[Any]:
    coarse = rng.random((len(ink), _CELLS, _CELLS))
    at = np.linspace(0, _CELLS - 1, DIGIT_SIZE)
    fine = np.clip(1 - np.abs(np.subtract.outer(at, np.arange(_CELLS))), 0, 1)
    return np.asarray(ink + (1 - ink) * amount * (fine @ coarse @ fine.T))


def _occlusion(ink: Ink, amount: float, rng: Random) -> NDArray[Any]:
    line = np.arange(DIGIT_SIZE) + 0.5
    missing = []
    for axis in (2, 1):  # rows, then columns
        inked = ink.max(axis=axis) > 0
        first = inked.argmax(axis=1)
        after = DIGIT_SIZE - inked[:, ::-1].argmax(axis=1)
        middle = first + (after - first) * rng.random(len(ink))
        missing.append(np.abs(line - middle[:, None]) < amount / 2)
    return np.where(missing[0][:, :, None] & missing[1][:, None, :], 0, ink)


# --- place and form -------------------------------------------------------------------------------


def _shift(ink: Ink, amount: float, rng: Random) -> NDArray[Any]:
    angle = 2 * np.pi * rng.random(len(ink))
    move = amount * np.stack([np.sin(angle), np.cos(angle)], axis=1)
    rows, columns = _grid()
    return _sampled(ink, rows - move[:, :1, None], columns - move[:, 1:, None])


def _rotation(ink: Ink, amount: float, rng: Random) -> NDArray[Any]:
    angle = np.deg2rad(amount) * rng.choice([-1.0, 1.0], len(ink))[:, None, None]
    rows, columns = _grid()
    sin, cos = np.sin(angle), np.cos(angle)
    return _sampled(ink, cos * rows - sin * columns, sin * rows + cos * columns)


def _scale(ink: Ink, amount: float, rng: Random) -> NDArray[Any]:
    size = amount ** rng.choice([-1.0, 1.0], len(ink))[:, None, None]
    rows, columns = _grid()
    return _sampled(ink, rows / size, columns / size)


def _grid() -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows (1, 28, 1) and columns (1, 1, 28) of the pixels, from the middle of the digit."""
    line = np.arange(DIGIT_SIZE) - (DIGIT_SIZE - 1) / 2
    return line[None, :, None], line[None, None]


def _sampled(ink: Ink, rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[Any]:
    """Each digit's ink at places (N, 28, 28) seen from its middle, bilinear; paper beyond."""
    middle = (DIGIT_SIZE - 1) / 2 + 1
    padded = np.pad(ink, ((0, 0), (1, 1), (1, 1)))
    rows, columns = np.broadcast_arrays(rows + middle, columns + middle)
    rows, columns = (np.clip(at, 0, DIGIT_SIZE + 0.999) for at in (rows, columns))
    top, left = rows.astype(int), columns.astype(int)
    down, right = rows - top, columns - left
    digit = np.arange(len(ink))[:, None, None]
    upper = (1 - right) * padded[digit, top, left] + right * padded[digit, top, left + 1]
    lower = (1 - right) * padded[digit, top + 1, left] + right * padded[digit, top + 1, left + 1]
    return np.asarray((1 - down) * upper + down * lower)


#: The eight kinds, by name.
CORRUPTIONS: dict[str, Corruption] = {
    "noise": Corruption(
        "Gaussian noise of standard deviation {} of full ink", (0.08, 0.16, 0.24, 0.32, 0.4), _noise
    ),
    "blur": Corruption(
        "Gaussian blur of standard deviation {} pixels", (0.6, 0.9, 1.2, 1.6, 2.0), _blur
    ),
    "shift": Corruption("moved {} pixels in any direction", (1, 2, 3, 4, 5), _shift),
    "rotation": Corruption("turned {} degrees left or right", (8, 16, 24, 32, 40), _rotation),
    "scale": Corruption(
        "larger or smaller by a factor of {}", (1.08, 1.16, 1.24, 1.32, 1.4), _scale
    ),
    "occlusion": Corruption(
        "a square of {} pixels missing, its middle anywhere in the digit's box",
        (4, 6, 8, 10, 12), _occlusion,
    ),
    "contrast": Corruption("only {} of the ink", (0.7, 0.5, 0.35, 0.25, 0.15), _contrast),
    "background": Corruption(
        "uneven grey paper, up to {} of full ink", (0.1, 0.2, 0.3, 0.4, 0.5), _background
    ),
}  # fmt: skip
