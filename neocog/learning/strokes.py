"""The path of a pen, drawn again with any pen, wide or fine, round or flat; and that of a scanned digit.

A set of pen strokes is a file ``strokes.npz`` beside the pictures of the same digits:
``points`` (P, 2) int16, x to the right and y down, the long side of a digit 0 .. 1000; stroke j is
``points[stroke_start[j]:stroke_start[j + 1]]``, and digit i has the strokes ``sample_start[i]`` to
``sample_start[i + 1] - 1``.
"""

import zipfile
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.errors import InputError

FILE = "strokes.npz"
FIELD = 96
"""Side of the field that a digit is drawn in; the digit is 0.7 of it high or wide."""

_FINE = 2  # working pixels per pixel of the field
_LONG = 1000.0  # long side of a digit in the file
_WIDTHS = (1 / 50, 1 / 6)  # width of the pen, as a share of the digit's long side
_FINEST = 1 / 60

_THINNED = 84  # of the field in which a 28 x 28 scan is thinned, in pixels
_STEP = 3  # pixels of that field between two points of a stroke
_DEEPER, _FULL = 1.5, 0.03  # pixels over a stroke's middle, and share of the ink, of a full loop
_SPUR = 5  # shorter strokes are an artefact of thinning, unless there are no others
_AROUND = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))
_NEAR = tuple(sorted(_AROUND))

Ink = NDArray[np.float32]
Line = NDArray[np.float64]
Random = np.random.Generator


@dataclass(frozen=True)
class Strokes:
    """Paths of N digits in S strokes of P points."""

    points: NDArray[np.int16]  #: (P, 2), x and y of all strokes, y down, a digit's long side 1000
    stroke_start: NDArray[np.int32]  #: (S + 1,), where strokes begin among the points
    sample_start: NDArray[np.int32]  #: (N + 1,), where digits begin among the strokes

    def __len__(self) -> int:
        return len(self.sample_start) - 1

    def paths(self, which: int) -> list[NDArray[np.int16]]:
        """Return the strokes of a digit as they are in the file, each (n, 2)."""
        ends = self.stroke_start[self.sample_start[which] : self.sample_start[which + 1] + 1]
        return [self.points[a:b] for a, b in pairwise(ends) if b > a]

    def lines(self, which: int) -> list[Line]:
        """Return the strokes of a digit, each (n, 2), its long side 1 and its middle at 0."""
        return fitted([path / _LONG for path in self.paths(which)])


def read_strokes(path: Path) -> Strokes:
    """Read a file of pen strokes; InputError if it is none, or its parts do not fit together."""
    try:
        with np.load(path) as found:
            points, strokes, samples = (found[field.name] for field in fields(Strokes))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"{path}: not a file of pen strokes ({reason}), expected points, stroke_start and sample_start"
        ) from None
    fits = points.ndim == 2 and points.shape[1:] == (2,)
    for starts, count in ((samples, len(strokes) - 1), (strokes, len(points))):
        fits &= starts[:1].tolist() == [0] and starts[-1] == count and (np.diff(starts) >= 0).all()
    if not fits:
        raise InputError(f"{path}: its strokes and points do not fit together; fetch it again")
    return Strokes(points, strokes, samples)


def written(lines: list[Line], rng: Random, *, whole: bool = False) -> Ink:
    """Write strokes (n, 2) by another hand and pen: ink 1, (FIELD, FIELD); ``whole``: none moves alone."""
    least = _FINEST if rng.random() < 0.1 else _WIDTHS[0]
    width = float(np.exp(rng.uniform(np.log(least), np.log(_WIDTHS[1]))))
    size = _FINE * FIELD
    field = np.zeros((size, size), np.uint8)
    pen = _PENS[rng.choice(len(_PENS), p=_OFTEN)]
    if not whole and len(lines) > 1 and rng.random() < 0.35:
        alone = []  # each stroke is turned, stretched and moved about its middle
        for line in lines:
            middle = (line.min(axis=0) + line.max(axis=0)) / 2
            turn = np.eye(2) + rng.normal(0, 0.07, (2, 2))
            alone.append((line - middle) @ turn + middle + rng.normal(0, 0.03, 2))
        lines = alone
    moved = fitted(_by_another_hand(lines, rng))
    pen(field, [size * (0.5 + 0.7 * line) for line in moved], 0.7 * size * width, rng)
    ink = cv2.resize(field, (FIELD, FIELD), interpolation=cv2.INTER_AREA).astype(np.float32) / 255
    if rng.random() < 0.2:  # the grain of a pencil
        grain = cv2.resize(rng.random((40, 40), np.float32), (FIELD, FIELD))
        ink *= np.clip((grain - rng.uniform(0.1, 0.35)) * 6, rng.uniform(0.2, 0.8), 1)
    return np.asarray(ink, np.float32)


def fitted(lines: list[Line]) -> list[Line]:
    """Bring the long side to 1 and the middle to 0."""
    if not lines:
        return [np.zeros((1, 2))]
    every = np.concatenate(lines)
    low, high = every.min(axis=0), every.max(axis=0)
    side = max(float((high - low).max()), 1e-6)
    return [(line - (low + high) / 2) / side for line in lines]


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


def _by_another_hand(lines: list[Line], rng: Random) -> list[Line]:
    """Slant, stretch, turn and bend a path, let its ends miss or overshoot; round its corners."""
    angle, slant = rng.normal(0, 0.1), rng.normal(0, 0.18)
    wide = np.exp(rng.normal(0, 0.16))
    cos, sin = np.cos(angle), np.sin(angle)
    turn = np.array([[cos, -sin], [sin, cos]]) @ np.array([[wide, -slant], [0, 1 / wide]])
    waves, phases = rng.normal(0, 4, (3, 2)), rng.uniform(0, 2 * np.pi, 3)
    reach = rng.normal(0, 0.02, (3, 2))
    loose = rng.normal(0, 0.05, (2, 2)) if rng.random() < 0.4 else None
    smooth, every = rng.choice([0, 0, 0, 1, 2]), rng.choice([1, 1, 2, 3])
    moved = []
    for line in lines:
        bent = line @ turn.T
        bent = bent + np.sin(bent @ waves.T + phases) @ reach
        if loose is not None:
            way = np.concatenate([[0.0], np.hypot(*np.diff(bent, axis=0).T).cumsum()])
            near_ends = np.exp(-np.stack([way, way[-1] - way], axis=1) / 0.25)  # (n, 2), 1 at the end
            bent = bent + near_ends @ loose
        if every > 1 and len(bent) > 4 * every:
            bent = np.concatenate([bent[:-1:every], bent[-1:]])
        for _ in range(smooth):
            bent[1:-1] = (bent[:-2] + 2 * bent[1:-1] + bent[2:]) / 4
        moved.append(bent)
    return moved


def _draw(field: Any, points: Line, width: float) -> None:
    at = np.round(8 * points).astype(np.int32)
    cv2.polylines(field, [at], False, 255, max(1, round(width)), cv2.LINE_AA, 3)


def _round(field: Any, lines: list[Line], width: float, rng: Random) -> None:
    """A ball pen or a felt pen; the ball may skip."""
    skips = rng.random() < 0.15
    for line in lines:
        cuts = [len(line)]
        if skips and len(line) > 12:
            cuts = [int(rng.integers(4, len(line) - 4)), len(line)]
        first = 0
        for cut in cuts:
            _draw(field, line[first:cut], width)
            first = min(cut + int(rng.integers(0, 3)), len(line) - 1)


def _pressed(field: Any, lines: list[Line], width: float, rng: Random) -> None:
    """A pen that is pressed more here than there, or more on its way down (a pointed nib)."""
    nib = rng.random() < 0.4
    depth = rng.uniform(0.2, 0.6)
    for line in lines:
        steps = np.diff(line, axis=0)
        if not len(steps):
            _draw(field, line, width)
            continue
        if nib:
            press = steps[:, 1] / np.maximum(np.hypot(*steps.T), 1e-6)
        else:
            beat = np.linspace(0, rng.uniform(2, 9), len(steps)) + rng.uniform(0, 6)
            press = np.sin(beat)
        widths = width * (1 - depth * (1 - press) / 2)
        at = np.round(8 * line).astype(int).tolist()
        for a, b, w in zip(at[:-1], at[1:], widths.tolist(), strict=True):
            cv2.line(field, a, b, 255, max(2, round(w)), cv2.LINE_AA, 3)


def _flat(field: Any, lines: list[Line], width: float, rng: Random) -> None:
    """A flat nib or marker: its edge keeps one direction, ends are cut straight."""
    angle = np.deg2rad(rng.uniform(-80, 80) if rng.random() < 0.3 else rng.uniform(-60, -20))
    edge = 0.6 * width * np.array([np.cos(angle), np.sin(angle)])
    for line in lines:
        low, high = (np.round(8 * (line + side * edge)).astype(np.int32) for side in (-1, 1))
        for i in range(len(line) - 1):
            quad = np.stack([low[i], high[i], high[i + 1], low[i + 1]])
            cv2.fillConvexPoly(field, quad, 255, cv2.LINE_AA, 3)
        _draw(field, line, width * 0.35)


_PENS = (_round, _pressed, _flat)
_OFTEN = (0.5, 0.3, 0.2)


# --- scans --------------------------------------------------------------------------------------


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


def trace(scan: NDArray[np.uint8]) -> list[NDArray[np.float32]]:
    """Return the strokes of a scanned digit (28, 28), ink 255: each (n, 2) points in a field of 84 x 84.

    There are none without ink, or where a loop that ran full is no line, and a 9 would become a bar.
    """
    large = cv2.resize(scan, (_THINNED, _THINNED), interpolation=cv2.INTER_CUBIC)
    soft = cv2.GaussianBlur(large, (0, 0), 1.2)
    bodies = [(soft > level).astype(np.uint8) for level in (110, 80, 50)]
    parts = [cv2.connectedComponents(body)[0] for body in bodies]
    line = skeleton(bodies[parts.index(min(parts))] > 0)  # faint strokes do not break the line
    depth = np.asarray(cv2.distanceTransform(bodies[0], cv2.DIST_L2, 5), np.float32)
    full = depth > (np.median(depth[line]) if line.any() else np.inf) + _DEEPER
    if full.sum() > _FULL * (depth > 0).sum():
        return []
    todo = {(int(r), int(c)) for r, c in np.argwhere(line)}
    done: set[tuple[int, int]] = set()
    paths: list[list[tuple[int, int]]] = []
    while todo:
        ordered = sorted(todo)  # from an end of a line, or any point of a ring
        start = next((at for at in ordered if len(_beside(at, todo)) == 1), ordered[0])
        paths.append(_walk(start, todo, done))
    long = [path for path in paths if len(path) >= _SPUR] or paths[:1]
    return [_smooth(np.array(path, np.float32)[:, ::-1]) for path in long if len(path) > 1]


def _beside(at: tuple[int, int], where: set[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(at[0] + r, at[1] + c) for r, c in _NEAR if (at[0] + r, at[1] + c) in where]


def _walk(
    at: tuple[int, int], todo: set[tuple[int, int]], done: set[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Follow a line as straight as it goes; its ends join what was walked before."""
    path = [*_beside(at, done)[:1], at]
    todo.discard(at)
    while ahead := _beside(at, todo):
        back = path[max(0, len(path) - 5)]
        way = (at[0] - back[0], at[1] - back[1])
        here = at
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


def _smooth(path: NDArray[np.float32]) -> NDArray[np.float32]:
    """Every third point of a line without its stairs; the ends stay."""
    if len(path) > 4:
        wide = np.pad(path, ((2, 2), (0, 0)), mode="edge")
        several = np.stack([wide[k : k + len(path)] for k in range(5)])
        mean = np.asarray(several.mean(axis=0), np.float32)
        mean[0], mean[-1] = path[0], path[-1]
        path = mean
    keep = np.unique(np.r_[np.arange(0, len(path), _STEP), len(path) - 1])
    return np.asarray(path[keep], np.float32)
