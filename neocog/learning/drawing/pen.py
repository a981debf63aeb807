"""Pens and their ink; paths of a pen, read from a file or traced from a scanned digit or a letter in print.

Of ``strokes.npz``, beside the pictures of the same digits, stroke j is
``points[stroke_start[j]:stroke_start[j + 1]]``, digit i has strokes ``sample_start[i]`` to the next one's.
"""

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.errors import InputError
from neocog.learning.drawing.fields import Cover, Rng, line_kernel, noise, resized
from neocog.text import reason_of

FILE = "strokes.npz"
_AROUND = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))
_NEAR = tuple(sorted(_AROUND))

Stroke = NDArray[np.float64]
Line = NDArray[np.float32]  #: a stroke (n, 2), x and y, y down
_Point = tuple[int, int]


@dataclass(frozen=True)
class Strokes:
    """Paths of N digits in S strokes of P points."""

    points: NDArray[np.int16]  #: (P, 2), x and y of all strokes, y down, a digit's long side 1000
    stroke_start: NDArray[np.int32]  #: (S + 1,), where strokes begin among the points
    sample_start: NDArray[np.int32]  #: (N + 1,), where digits begin among the strokes

    def __len__(self) -> int:
        return len(self.sample_start) - 1

    def lines(self, which: int) -> list[Stroke]:
        """Return the strokes of a digit, each (n, 2), its long side 1 and its middle at 0."""
        ends = self.stroke_start[self.sample_start[which] : self.sample_start[which + 1] + 1]
        return fitted([self.points[a:b] / 1000 for a, b in pairwise(ends) if b > a])


def read_strokes(path: Path) -> Strokes:
    """Read a file of pen strokes; InputError if it is none, or its parts do not fit together."""
    try:
        with np.load(path) as found:
            points, strokes, samples = (found[field.name] for field in fields(Strokes))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        wanted = "expected points, stroke_start and sample_start"
        raise InputError(f"{path}: not a file of pen strokes ({reason_of(error)}), {wanted}") from None
    fits = points.ndim == 2 and points.shape[1:] == (2,)
    for starts, count in ((samples, len(strokes) - 1), (strokes, len(points))):
        fits &= starts[:1].tolist() == [0] and starts[-1] == count and (np.diff(starts) >= 0).all()
    if not fits:
        raise InputError(f"{path}: its strokes and points do not fit together; fetch it again")
    return Strokes(points, strokes, samples)


def fitted(lines: Sequence[NDArray[Any]]) -> list[Stroke]:
    """Bring the long side to 1 and the middle to 0."""
    if not lines:
        return [np.zeros((1, 2))]
    every = np.concatenate(lines)
    low, high = every.min(axis=0), every.max(axis=0)
    return [(line - (low + high) / 2) / max(float((high - low).max()), 1e-6) for line in lines]


def rounded(line: NDArray[Any], times: int = 1) -> NDArray[np.float32]:
    """Cut the corners of a line (n, 2) (Chaikin 1974); its ends stay."""
    for _ in range(times):
        if len(line) < 3:
            break
        out = np.empty((2 * len(line), 2), np.float32)
        out[0], out[-1] = line[0], line[-1]
        step = 0.25 * (line[1:] - line[:-1])
        out[1:-1:2] = line[:-1] + step
        out[2:-1:2] = line[1:] - step
        line = out
    return np.asarray(line, np.float32)


def skeleton(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Thin a mask to a line one pixel wide. Zhang and Suen 1984, doi:10.1145/357994.358023."""
    image = np.pad(mask, 1).astype(np.uint8)
    inner, (high, wide) = image[1:-1, 1:-1], mask.shape
    while True:
        before = inner.copy()
        for first in (True, False):
            around = np.stack([image[1 + r :, 1 + c :][:high, :wide] for r, c in _AROUND])
            up, right, down, left = around[::2]
            count = around.sum(axis=0)
            turns = (around < np.roll(around, -1, axis=0)).sum(axis=0)  # from paper to ink
            kept = right & down & (up | left) if first else up & left & (right | down)
            inner[(count >= 2) & (count <= 6) & (turns == 1) & (kept == 0)] = 0
        if np.array_equal(inner, before):
            return inner.astype(bool)


def trace(scan: NDArray[np.uint8]) -> list[Line]:
    """Strokes of a scanned digit (28, 28), each (n, 2) points of 84 x 84; none where a loop ran full (9)."""
    soft = cv2.GaussianBlur(cv2.resize(scan, (84, 84), interpolation=cv2.INTER_CUBIC), (0, 0), 1.2)
    bodies = [(soft > level).astype(np.uint8) for level in (110, 80, 50)]
    parts = [cv2.connectedComponents(body)[0] for body in bodies]
    line = skeleton(bodies[parts.index(min(parts))] > 0)  # faint strokes do not break the line
    depth = np.asarray(cv2.distanceTransform(bodies[0], cv2.DIST_L2, 5), np.float32)
    full = depth > (np.median(depth[line]) if line.any() else np.inf) + 1.5
    if full.sum() > 0.03 * (depth > 0).sum():
        return []
    todo, done = {(int(r), int(c)) for r, c in np.argwhere(line)}, set[_Point]()
    paths: list[list[_Point]] = []
    while todo:
        ordered = sorted(todo)  # from an end of a line, or any point of a ring
        start = next((at for at in ordered if len(_beside(at, todo)) == 1), ordered[0])
        paths.append(_walk(start, todo, done))
    lines = list[Line]()
    for found in [path for path in paths if len(path) > 4] or paths[:1]:  # thinning leaves short ones
        whole = np.array(found, np.float32)[:, ::-1]
        if len(whole) > 4:  # without its stairs; the ends stay
            wide = np.pad(whole, ((2, 2), (0, 0)), mode="edge")
            whole[1:-1] = np.stack([wide[k : k + len(whole)] for k in range(5)]).mean(axis=0)[1:-1]
        if len(whole) > 1:
            lines.append(whole[[*range(0, len(whole) - 1, 3), -1]])
    return lines


def _beside(at: _Point, where: set[_Point]) -> list[_Point]:
    return [(at[0] + r, at[1] + c) for r, c in _NEAR if (at[0] + r, at[1] + c) in where]


def _walk(at: _Point, todo: set[_Point], done: set[_Point]) -> list[_Point]:
    """Follow a line as straight as it goes; its ends join what was walked before."""
    path = [*_beside(at, done)[:1], at]
    todo.discard(at)
    while ahead := _beside(at, todo):
        back = path[max(0, len(path) - 5)]
        way, here = (at[0] - back[0], at[1] - back[1]), at
        at = max(ahead, key=lambda p: (p[0] - here[0]) * way[0] + (p[1] - here[1]) * way[1])
        path.append(at)
        todo.discard(at)
        for beside in _beside(here, todo):  # corners of a stair are no strokes of their own
            if abs(beside[0] - at[0]) + abs(beside[1] - at[1]) == 1 and len(_beside(beside, todo)) == 0:
                todo.discard(beside)
    path += [p for p in _beside(at, done) if p not in path[-3:]][:1]
    if len(path) > 8 and max(abs(path[0][0] - at[0]), abs(path[0][1] - at[1])) == 1:
        path.append(path[0])  # a ring
    done.update(path)
    return path


_SHIFT = 4  # OpenCV's coordinates count in sixteenths of a pixel


@dataclass(frozen=True, slots=True)
class Pen:
    """What a page, or a part of it, is written with."""

    width: float  #: of a stroke, as a share of the height of a digit
    contrast: float  #: share of the way from the paper's grey to the ink's, 0 .. 1
    pressure: float = 0.0  #: how much the width changes along a stroke, as a share
    nib: float = 1.0  #: how flat the tip is: 1 is round, 0.3 is a broad nib
    angle: float = 0.8  #: of a flat tip, in radians
    grain: float = 0.0  #: share of the ink that the paper does not take: pencil, chalk
    hollow: bool = False  #: whether it draws the outlines of broad strokes alone

    def roughen(self, cover: Cover, rng: Rng) -> None:
        """Take away the ink that rough paper does not take."""
        if self.grain:
            rough = noise(cover.shape, rng) + 0.7 * self.grain + 0.3
            cover *= np.clip(1 - 2.2 * self.grain * rough, 0.1, 1)


def log_uniform(rng: Rng, low: float, high: float) -> float:
    """Draw a number whose logarithm is uniform."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def any_pen(rng: Rng, *, most: float = 1 / 5) -> Pen:
    width = log_uniform(rng, 1 / 60, most)
    if rng.random() < 0.5:
        width = min(rng.uniform(0.04, 0.13), most)
    contrast = rng.uniform(0.14, 0.45) if rng.random() < 0.18 else rng.uniform(0.4, 0.97)
    pressure = rng.uniform(0, 0.5) if rng.random() < 0.4 else 0.0
    nib = rng.uniform(0.3, 0.7) if rng.random() < 0.12 else 1.0
    angle, grain = rng.uniform(0, np.pi), rng.uniform(0.05, 0.4) if rng.random() < 0.2 else 0.0
    return Pen(width, contrast, pressure, nib, angle, grain, width > 0.09 and rng.random() < 0.05)


def ink(lines: Sequence[Line], width: float, pen: Pen, rng: Rng) -> tuple[Cover, int, int]:
    """Draw strokes (n, 2), (x, y), ``width`` pixels wide: cover by ink (h, w), its column and row."""
    zoom = 4 if width < 1.5 else 2 if width < 5 else 1
    edge = width * (1 + pen.pressure) / 2 + 1.5
    whole = np.concatenate(lines)
    low, high = np.floor(whole.min(axis=0) - edge), np.ceil(whole.max(axis=0) + edge)
    wide, tall = (high - low).astype(int).tolist()
    field = np.zeros((tall * zoom, wide * zoom), np.uint8)
    fine = width * zoom * pen.nib
    scale, origin = np.float32(zoom * (1 << _SHIFT)), low.astype(np.float32)
    centre = (zoom - 1) / 2 * (1 << _SHIFT)
    for line in lines:
        points = ((line - origin) * scale + centre).astype(np.int32)
        _stroke(field, points, fine, pen.pressure, rng)
    if pen.nib < 1:
        tip = line_kernel(max(1, round(width * zoom)), pen.angle)
        field = np.asarray(cv2.dilate(field, tip), np.uint8)
    if pen.hollow and fine > 7:
        rim = 2 * max(1, round(fine / 10)) + 1
        field = field - np.asarray(cv2.erode(field, np.ones((rim, rim), np.uint8)), np.uint8)
    if zoom > 1:
        field = resized(field, (wide, tall))
    cover = field.astype(np.float32) * np.float32(min(1.0, max(fine, 0.35)) / 255)
    pen.roughen(cover, rng)
    return cover, int(low[0]), int(low[1])


def _stroke(field: Any, points: Any, width: float, pressure: float, rng: Rng) -> None:
    if pressure < 0.05 or len(points) < 4:
        cv2.polylines(field, [points], False, 255, max(1, round(width)), cv2.LINE_AA, _SHIFT)
        return
    parts = min(len(points) - 1, 5)
    bounds = np.linspace(0, len(points) - 1, parts + 1).astype(int).tolist()
    phase, turns = rng.uniform(0, 6.3), rng.uniform(0.5, 2)
    for k in range(parts):
        swell = 1 + pressure * np.sin(phase + turns * 2 * np.pi * k / parts)
        piece = points[bounds[k] : bounds[k + 1] + 1]
        thick = max(1, round(width * swell))
        cv2.polylines(field, [piece], False, 255, thick, cv2.LINE_AA, _SHIFT)
