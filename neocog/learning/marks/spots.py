"""Marks without a line: blots, specks, noise, rough paper."""

import cv2
import numpy as np

from neocog.learning.marks.source import FIELD, Ink, Random, Source, blank, inked


def blot(rng: Random, source: Source) -> Ink:
    """A filled spot, round or ragged."""
    angle = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    radius = 0.3 + rng.uniform(0, 0.12) * rng.normal(size=24)
    stretch = rng.uniform(0.4, 1.0)
    points = 0.5 + radius[:, None] * np.stack([np.cos(angle), stretch * np.sin(angle)], axis=1)
    field = blank()
    cv2.fillPoly(field, [np.round(points * FIELD).astype(np.int32)], 255, cv2.LINE_AA)
    turn = cv2.getRotationMatrix2D((FIELD / 2, FIELD / 2), rng.uniform(0, 180), 1.0)
    return inked(np.asarray(cv2.warpAffine(field, turn, (FIELD, FIELD))))


def specks(rng: Random, source: Source) -> Ink:
    """Several dots."""
    field = blank()
    for _ in range(int(rng.integers(3, 14))):
        x, y = rng.integers(10, FIELD - 10, 2).tolist()
        cv2.circle(field, (x, y), int(rng.integers(2, 9)), 255, -1, cv2.LINE_AA)
    return inked(field)


def paper(rng: Random, source: Source) -> Ink:
    """Rough paper, cut at a threshold: patches of every size, in a stripe at times."""
    cells = rng.integers(4, 18, 2) if rng.random() < 0.5 else np.repeat(rng.integers(4, 18), 2)
    rough = np.zeros((FIELD, FIELD), np.float32)
    for octave in range(int(rng.integers(1, 4))):
        coarse = rng.normal(size=tuple(cells * 2**octave)).astype(np.float32)
        large = cv2.resize(coarse, (FIELD, FIELD), interpolation=cv2.INTER_CUBIC)
        rough += np.asarray(large, np.float32) / np.float32(1.7**octave)
    return np.asarray(np.clip(3 * (rough - rng.uniform(0.2, 0.9)), 0, 1), np.float32)


def noise(rng: Random, source: Source) -> Ink:
    """Grains without order, thick in the middle or everywhere."""
    grains = rng.random((32, 32)).astype(np.float32)
    if rng.random() < 0.5:
        line = np.abs(np.arange(32) - 15.5) / rng.uniform(6, 16)
        grains *= np.clip(1.3 - np.hypot(line[:, None], line), 0, 1).astype(np.float32)
    field = cv2.resize(grains, (FIELD, FIELD), interpolation=cv2.INTER_LINEAR)
    return np.asarray(np.clip(rng.uniform(1, 5) * (field - rng.uniform(0, 0.7)), 0, 1), np.float32)
