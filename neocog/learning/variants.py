"""Digits as other pens, papers, scanners and the reader of pages hand them over: more to learn.

A digit is written with a finer or broader pen, by the path of the pen where that is known; its ink runs dry
or spreads, a rule or a piece of its neighbour is beside it; it is seen as it is, by few pixels (8 to 20 a
side) or by a camera (14 to 70, out of focus, with noise), and brought to 28 x 28 as every found digit is, or
without a change to its strokes. Some have other styles (`neocog.learning.allographs`). Held-out digits are
not looked at.
"""

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.learning.allographs import allograph, any_allograph
from neocog.learning.blocks import in_blocks
from neocog.learning.marks import AS_WRITTEN, FIELD, as_written, by_hand, inside
from neocog.learning.mix import Mix
from neocog.learning.strokes import fitted, trace, written
from neocog.vision.normalise import enlarged, normalise, stroke_width

Digits = NDArray[np.uint8]
Labels = NDArray[np.integer]
Ink = NDArray[np.float32]

#: Pixels a side of coarse scanners.
GRIDS = (8, 9, 10, 11, 12, 14, 16, 16, 20)
_WITHIN = 4  # a coarse pixel is the mean of so many fine ones, squared
_HIGH = 64  # long side of a digit in the field that it is written in
_BLOCK = 2000
_LEAST = 25 * 255  # a picture with less ink is seen again


# how often each is done; see ``experiments/learning/finetune.py`` of commit bfe9938, which measures variants
_DRAWN = 0.2  # an allograph is drawn in place of a digit that was written
_BY_PATH = 0.8  # written anew by the path of the pen, where it is known
_TRACED = 0.15  # strokes of a scan are found and written anew
_BENT = 0.6  # other scans are bent as by another hand
_UNEVEN, _CROWDED = 0.2, 0.12  # ink is uneven; something stands beside the digit
_STRETCHED = 0.06  # stretched to its box, as some forms' cells are
_COARSE, _CLEAN = 0.2, 0.4  # seen by coarse scanners; as it is; the rest is seen by cameras


def variants(count: int, mix: Mix, *, seed: int = 0, jobs: int = 1) -> tuple[Digits, NDArray[np.int64]]:
    """Return variants (count, 28, 28) of digits, drawn by the sets' weights, and what they are."""
    made, answers = zip(*in_blocks(_block, count, _BLOCK, mix, seed, jobs=jobs), strict=True)
    return np.concatenate(made), np.concatenate(answers)


def _block(mix: Mix, seed: int, number: int, size: int) -> tuple[Digits, NDArray[np.int64]]:
    rng = np.random.default_rng([seed, 11, number])
    made, answers = np.zeros((size, 28, 28), np.uint8), np.zeros(size, np.int64)
    for place, (which, at) in enumerate(zip(*mix.draw(size, rng), strict=True)):
        hand = mix.hands[which]
        answers[place] = hand.digits.labels[at]
        if rng.random() < _DRAWN:
            answers[place], style = any_allograph(rng)
            lines = allograph(int(answers[place]), style, rng)
            ink = written(fitted([line.astype(np.float64) for line in lines]), rng)
        elif hand.strokes is not None and hand.rows is not None and rng.random() < _BY_PATH:
            ink = written(hand.strokes.lines(int(hand.rows[at])), rng)
        elif rng.random() < _TRACED and (lines := trace(hand.digits.images[at])):
            ink = written(fitted([line.astype(np.float64) for line in lines]), rng, whole=True)
        else:
            ink, body = np.zeros((FIELD, FIELD), np.float32), _cropped(hand.digits.images[at])
            if body is not None:  # into the middle of the field, its long side _HIGH
                large = _resized(body, _HIGH)
                top, left = ((FIELD - side) // 2 for side in large.shape)
                ink[top : top + large.shape[0], left : left + large.shape[1]] = large
            if rng.random() < _BENT:
                ink = by_hand(ink, rng, 0.6)
        if ink.max() < 0.5:
            made[place], answers[place] = hand.digits.images[at], hand.digits.labels[at]
            continue
        if rng.random() < _UNEVEN:
            ink = _uneven(ink, rng)
        if rng.random() < _CROWDED:
            other = mix.hands[int(rng.integers(len(mix.hands)))].digits.images
            ink = _crowded(ink, other[rng.integers(len(other))], rng)
        for _ in range(4):
            made[place] = _seen(ink, rng)
            if made[place].sum() > _LEAST:
                break
        else:
            made[place] = as_written(ink)
    return made, answers


def _uneven(ink: Ink, rng: np.random.Generator) -> Ink:
    """Ink that spreads here and runs dry there: strokes wide and thin, at times broken."""
    sigma = rng.uniform(0.8, 2.0)
    soft = cv2.GaussianBlur(ink, (0, 0), sigma)
    cells = int(rng.integers(3, 9))
    wish = rng.normal(0, rng.uniform(0.03, 0.1), (cells, cells)).astype(np.float32)
    level = cv2.resize(wish, (FIELD, FIELD), interpolation=cv2.INTER_CUBIC)
    level = level + np.float32(rng.uniform(0.2, 0.5) * min(1.0, 2 * float(soft.max())))
    changed: Ink = np.clip((soft - level) * rng.uniform(4, 10) + 0.5, 0, 1)
    (pieces, holes), (before, had) = _parts(changed), _parts(ink)
    return changed if 1 < pieces <= before + 1 and holes == had else ink


def _parts(ink: Ink) -> tuple[int, int]:
    """How many pieces of ink, and of paper, hang together: what tells a digit from others."""
    dark = (ink > 0.5).astype(np.uint8)
    return cv2.connectedComponents(dark)[0], cv2.connectedComponents(1 - dark)[0]


def _crowded(ink: Ink, other: Digits, rng: np.random.Generator) -> Ink:
    """A rule or the edge of a box, a piece of the neighbour, or specks beside a digit."""
    rows, columns = (np.flatnonzero((ink > 0.3).any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return ink
    box = tuple(int(v) for v in (rows[0], rows[-1], columns[0], columns[-1]))
    field, kind = ink.copy(), rng.random()
    if kind < 0.5:
        _beside_a_rule(field, box, rng)
    elif kind < 0.8:
        _beside_a_digit(field, box, other, rng)
    else:
        top, bottom, left, right = box
        for _ in range(int(rng.integers(1, 5))):
            at = int(rng.integers(left - 6, right + 7)), int(rng.integers(top - 6, bottom + 7))
            radius, grey = int(rng.integers(0, 3)), rng.uniform(0.5, 1)
            cv2.circle(field, at, radius, grey, -1, cv2.LINE_AA)
    return field


def _beside_a_rule(field: Ink, box: tuple[int, ...], rng: np.random.Generator) -> None:
    """Below or above a digit, seldom at its side."""
    top, bottom, left, right = box
    grey, pen = rng.uniform(0.5, 1), int(rng.integers(1, 4))
    if rng.random() < 0.75:
        low = rng.random() < 0.7
        y = v = float(bottom + rng.integers(-4, 9) if low else top - rng.integers(-2, 9))
        x, u = int(left - rng.integers(-15, 13)), int(right + rng.integers(-15, 13))
    else:
        before = rng.random() < 0.5
        x = u = int(left - rng.integers(2, 10) if before else right + rng.integers(2, 10))
        high = rng.uniform(0.15, 0.45) * (bottom - top)
        y = top + rng.uniform(-0.1, 0.9) * (bottom - top)
        v = y + high
    tilt = int(rng.integers(-2, 3))
    cv2.line(field, (x, int(y - tilt)), (u, int(v + tilt)), grey, pen, cv2.LINE_AA)


def _beside_a_digit(field: Ink, box: tuple[int, ...], other: Digits, rng: np.random.Generator) -> None:
    piece = _cropped(other)
    if piece is None:
        return
    top, bottom, left, right = box
    piece = _resized(piece, bottom - top + 1)
    part = piece[:, : max(1, round(piece.shape[1] * rng.uniform(0.05, 0.15)))]
    at = right + int(rng.integers(1, 6))
    if rng.random() < 0.5:
        part = piece[:, -part.shape[1] :]
        at = left - int(rng.integers(1, 6)) - part.shape[1]
    begin = max(0, min(FIELD - len(part), top + int(rng.integers(-8, 9))))
    at = max(0, min(FIELD - part.shape[1], at))
    place = field[begin : begin + len(part), at : at + part.shape[1]]
    np.maximum(place, part[:, : place.shape[1]], out=place)


def _seen(ink: Ink, rng: np.random.Generator) -> Digits:
    """As it is, by a coarse scanner or by a camera; then in MNIST's form."""
    body, how = inside(ink), rng.random()
    if body is None:
        body = ink
    if rng.random() < _STRETCHED:
        side = max(body.shape)
        body = np.asarray(cv2.resize(body, (max(body.shape[1], side // 2), side)), np.float32)
    if how < _COARSE:
        body = _scanned(body, rng)
    elif how > _COARSE + _CLEAN:
        body = _photographed(body, rng)
    return as_written(body) if rng.random() < AS_WRITTEN else normalise(body)


def _cropped(digit: Digits) -> Ink | None:
    return inside(digit.astype(np.float32) / np.float32(255))


def _scanned(ink: Ink, rng: np.random.Generator) -> Ink:
    """Seen by a grid of few pixels that the digit fills, then enlarged."""
    pixels = int(rng.choice(GRIDS))
    fine = pixels * _WITHIN
    written = _resized(ink, fine - int(rng.integers(0, _WITHIN)))
    more = max(rng.uniform(-0.03, 0.03) * fine, 0.8 * _WITHIN - stroke_width(written))
    written = _pen(written, more)
    if rng.random() < 0.7:
        written = (written > rng.uniform(0.4, 0.6)).astype(np.float32)
    field = np.zeros((fine, fine), np.float32)
    slack = fine - np.array(written.shape)
    top, left = (slack * rng.uniform(0.3, 0.7, 2)).astype(int)
    field[top : top + written.shape[0], left : left + written.shape[1]] = written
    seen = field.reshape(pixels, _WITHIN, pixels, _WITHIN).mean(axis=(1, 3))
    if rng.random() < 0.5:
        seen = np.round(seen * 16) / 16
    return enlarged(seen.astype(np.float32))


def _photographed(ink: Ink, rng: np.random.Generator) -> Ink:
    """Seen by a camera, and what of it is darker than the paper."""
    size = int(rng.integers(14, 71))
    written = np.pad(_resized(ink, size), 4)
    written = _pen(written, rng.uniform(-0.03, 0.04) * size)
    sigma = size * rng.uniform(0.005, 0.04)
    sigma = max(min(sigma, 0.6 * stroke_width(written)), 0.2)
    seen: NDArray[Any] = cv2.GaussianBlur(written, (0, 0), sigma)
    dark = float(seen[written > 0.5 * written.max()].mean())
    seen = seen / max(dark, 0.2)
    seen = seen + rng.normal(0, rng.uniform(0, 0.08), seen.shape)
    low, high = rng.uniform(0.1, 0.3), rng.uniform(0.5, 0.9)
    return np.asarray(np.clip((seen - low) / (high - low), 0, 1), np.float32)


def _resized(ink: Ink, side: int) -> Ink:
    """Enlarge or shrink so that the longer side is ``side``."""
    scale = side / max(ink.shape)
    height, width = (max(1, round(length * scale)) for length in ink.shape)
    method = cv2.INTER_CUBIC if scale > 1 else cv2.INTER_AREA
    return np.asarray(np.clip(cv2.resize(ink, (width, height), interpolation=method), 0, 1), np.float32)


def _pen(ink: Ink, more: float) -> Ink:
    """Widen (or thin, where negative) every stroke by so many pixels; within the same field."""
    reach = round(abs(more))
    if not reach:
        return ink
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (reach + 1, reach + 1))
    changed = cv2.dilate(ink, kernel) if more > 0 else cv2.erode(ink, kernel)
    return np.asarray(changed if changed.max() > 0.5 else ink, np.float32)
