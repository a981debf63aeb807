"""Corruptions of isolated digits, eight kinds of five strengths: what robustness is measured on.

Lengths are in pixels of the digit of 28 x 28 (whose ink is about 20 high), shares are of full ink. Strength 1
hardly hinders a person, strength 5 is hard for one. The amounts were set once, before anything was
measured with them. Random choices are seeded by kind and strength: the same digits give the same pictures.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.errors import UsageError
from neocog.network.u0 import DIGIT_SIZE, check_digits

Ink = NDArray[Any]  # (N, 28, 28), 0..1; what is made of it may exceed that
Random = np.random.Generator

SEED = 28
STRENGTHS = (1, 2, 3, 4, 5)
_CELLS = 5  # points of the coarse grid from which uneven paper is made, each way
_PIXELS = np.arange(DIGIT_SIZE)


def corrupt(digits: NDArray[np.uint8], name: str, strength: int, *, seed: int = SEED) -> NDArray[np.uint8]:
    """Corrupt uint8 digits (N, 28, 28), ink 255, at a strength of 1 to 5; InputError or UsageError."""
    check_digits(digits)
    if name not in CORRUPTIONS:
        raise UsageError(f"corruption '{name}' is unknown: choose {', '.join(CORRUPTIONS)}")
    if strength not in STRENGTHS:
        raise UsageError(f"got strength {strength}, expected 1 to {STRENGTHS[-1]}")
    (amounts, change), rng = CORRUPTIONS[name], np.random.default_rng([seed, strength, *name.encode()])
    changed = change(digits.astype(np.float32) / np.float32(255), amounts[strength - 1], rng)
    return np.asarray(np.round(255 * np.clip(changed, 0, 1)), np.uint8)


def _blur(ink: Ink, amount: float, rng: Random) -> Ink:
    bell = np.exp(-0.5 * (np.subtract.outer(_PIXELS, _PIXELS) / amount) ** 2)
    bell /= bell[DIGIT_SIZE // 2].sum()  # beyond the border is paper
    return np.asarray(bell @ ink @ bell.T)


def _background(ink: Ink, amount: float, rng: Random) -> Ink:
    coarse = rng.random((len(ink), _CELLS, _CELLS))
    at = np.linspace(0, _CELLS - 1, DIGIT_SIZE)
    fine = np.clip(1 - np.abs(np.subtract.outer(at, np.arange(_CELLS))), 0, 1)
    return np.asarray(ink + (1 - ink) * amount * (fine @ coarse @ fine.T))


def _occlusion(ink: Ink, amount: float, rng: Random) -> Ink:
    missing = []
    for axis in (2, 1):  # rows, then columns
        inked = ink.max(axis=axis) > 0
        first = inked.argmax(axis=1)
        after = DIGIT_SIZE - inked[:, ::-1].argmax(axis=1)
        middle = first + (after - first) * rng.random(len(ink))
        missing.append(np.abs(_PIXELS + 0.5 - middle[:, None]) < amount / 2)
    return np.where(missing[0][:, :, None] & missing[1][:, None, :], 0, ink)


def _shift(ink: Ink, amount: float, rng: Random) -> Ink:
    angle = 2 * np.pi * rng.random(len(ink))[:, None, None]
    return _sampled(ink, lambda y, x: (y - amount * np.sin(angle), x - amount * np.cos(angle)))


def _rotation(ink: Ink, amount: float, rng: Random) -> Ink:
    angle = np.deg2rad(amount) * rng.choice([-1.0, 1.0], len(ink))[:, None, None]
    sin, cos = np.sin(angle), np.cos(angle)
    return _sampled(ink, lambda y, x: (cos * y - sin * x, sin * y + cos * x))


def _scale(ink: Ink, amount: float, rng: Random) -> Ink:
    size = amount ** rng.choice([-1.0, 1.0], len(ink))[:, None, None]
    return _sampled(ink, lambda y, x: (y / size, x / size))


def _sampled(ink: Ink, where: Callable[[Ink, Ink], tuple[Ink, Ink]]) -> Ink:
    """Ink taken from other places, rows and columns from the middle; bilinear, paper beyond."""
    middle, pixels = (DIGIT_SIZE - 1) / 2 + 1, _PIXELS - (DIGIT_SIZE - 1) / 2
    padded = np.pad(ink, ((0, 0), (1, 1), (1, 1)))
    rows, columns = (
        np.clip(at + middle, 0, DIGIT_SIZE + 0.999)
        for at in np.broadcast_arrays(*where(pixels[None, :, None], pixels[None, None]))
    )
    top, left = rows.astype(int), columns.astype(int)
    down, right = rows - top, columns - left
    digit = np.arange(len(ink))[:, None, None]
    upper = (1 - right) * padded[digit, top, left] + right * padded[digit, top, left + 1]
    lower = (1 - right) * padded[digit, top + 1, left] + right * padded[digit, top + 1, left + 1]
    return np.asarray((1 - down) * upper + down * lower)


#: Of each kind its amounts by strength, and the function that applies an amount.
CORRUPTIONS: dict[str, tuple[tuple[float, ...], Callable[[Ink, float, Random], Ink]]] = {
    "noise": ((0.08, 0.16, 0.24, 0.32, 0.4),  # standard deviation, of full ink
              lambda ink, amount, rng: ink + amount * rng.standard_normal(ink.shape, dtype=np.float32)),
    "blur": ((0.6, 0.9, 1.2, 1.6, 2.0), _blur),  # standard deviation, pixels
    "shift": ((1, 2, 3, 4, 5), _shift),  # pixels, in any direction
    "rotation": ((8, 16, 24, 32, 40), _rotation),  # degrees, left or right
    "scale": ((1.08, 1.16, 1.24, 1.32, 1.4), _scale),  # larger or smaller
    "occlusion": ((4, 6, 8, 10, 12), _occlusion),  # side of a square, its middle in the digit's box
    "contrast": ((0.7, 0.5, 0.35, 0.25, 0.15), lambda ink, amount, _: ink * amount),  # what is left of ink
    "background": ((0.1, 0.2, 0.3, 0.4, 0.5), _background),  # uneven grey, at most, of full ink
}  # fmt: skip
