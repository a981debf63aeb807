"""The line of a scanned digit: drawn again at another width, or followed as pen strokes.

Where ink is deeper than a stroke, a small loop that ran full, it stays, as much deeper than before.
"""

from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

FINE = 112  # side of the field in which a digit's line is traced, in pixels
_BOX = 80  # the digit's box in it (20 of 28 pixels)

_THINNED = 84  # side of the field in which a 28 x 28 scan is thinned, in pixels
_STEP = 3  # pixels of that field between two points of a stroke
_DEEPER, _FULL = 1.5, 0.03  # pixels over a stroke's middle, and share of the ink, of a full loop
_SPUR = 5  # shorter strokes are an artefact of thinning, unless there are no others
_AROUND = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))
_NEAR = tuple((r, c) for r in (-1, 0, 1) for c in (-1, 0, 1) if r or c)

Line = NDArray[np.float32]


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


def traced(
    digit: NDArray[np.uint8], side: int, sigma: float
) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
    """Return a digit's line, and how deep its ink is, in a field of ``side`` pixels."""
    large = cv2.resize(digit, (side, side), interpolation=cv2.INTER_CUBIC)
    soft = cv2.GaussianBlur(large, (0, 0), sigma)
    bodies = [(soft > level).astype(np.uint8) for level in (110, 80, 50)]
    parts = [cv2.connectedComponents(body)[0] for body in bodies]
    line = skeleton(bodies[parts.index(min(parts))] > 0)  # faint strokes do not break the line
    return line, np.asarray(cv2.distanceTransform(bodies[0], cv2.DIST_L2, 5), np.float32)


@lru_cache(maxsize=4096)
def _within(raw: bytes) -> NDArray[np.float32]:
    """How far inside a digit's line each pixel is, or inside ink that is deeper than a stroke."""
    line, depth = traced(np.frombuffer(raw, np.uint8).reshape(28, 28), FINE, 1.5)
    reach = np.asarray(cv2.distanceTransform((~line).astype(np.uint8), cv2.DIST_L2, 5), np.float32)
    usual = np.float32(np.median(depth[line])) if line.any() else np.float32(0)
    deeper = np.where(depth > 0, depth - usual, np.float32(-99))
    return np.maximum(-reach, deeper)  # loops that ran full are no line, and stay full


def write_digit(digit: NDArray[np.uint8], height: float, pen: float | None) -> NDArray[np.float32]:
    """Draw one digit (28, 28), as MNIST has it: cover by ink 0 .. 1, (h, w), cropped to the ink. ``height``
    is what the 20-pixel box takes, in pixels, and ``pen`` the width of strokes as a share of it; None keeps
    the strokes as they are.
    """
    if pen is None:
        large = cv2.resize(digit, (FINE, FINE), interpolation=cv2.INTER_CUBIC)
        large = cv2.GaussianBlur(large, (0, 0), 1.5).astype(np.float32) / 255
        cover = np.clip((large - 0.45) * 5 + 0.5, 0, 1)
    else:
        grown = int(np.ceil(pen * _BOX))
        within = np.pad(_within(digit.tobytes()), grown, constant_values=-99)
        cover = np.clip(pen * _BOX / 2 + within + 0.5, 0, 1)
    rows, columns = np.flatnonzero(cover.any(1)), np.flatnonzero(cover.any(0))
    if not rows.size:
        return np.zeros((1, 1), np.float32)
    cover = cover[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    scale = height / _BOX
    size = tuple(max(1, round(v * scale)) for v in cover.shape[::-1])
    if scale < 1:
        small = cv2.resize(cover.astype(np.float32), size, interpolation=cv2.INTER_AREA)
        return np.asarray(small, np.float32)
    large = cv2.resize(cover.astype(np.float32), size, interpolation=cv2.INTER_CUBIC)
    if scale > 1.5:  # enlarged steps become smooth edges again
        large = (cv2.GaussianBlur(large, (0, 0), scale) - 0.5) * 1.5 * scale + 0.5
    return np.asarray(np.clip(large, 0, 1), np.float32)


def trace(scan: NDArray[np.uint8]) -> list[Line]:
    """Return the strokes of a scanned digit (28, 28), ink 255 on 0. Each is (n, 2) points (x, y) in pixels of
    a field of 84 x 84. There are none without ink, or where ink is much deeper than a stroke: a small loop
    that ran full is no line, and a 9 would become a bar.
    """
    line, depth = traced(scan, _THINNED, 1.2)
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


def _smooth(path: Line) -> Line:
    """Every third point of a line without its stairs; the ends stay."""
    if len(path) > 4:
        wide = np.pad(path, ((2, 2), (0, 0)), mode="edge")
        several = np.stack([wide[k : k + len(path)] for k in range(5)])
        mean: Line = np.asarray(several.mean(axis=0), np.float32)
        mean[0], mean[-1] = path[0], path[-1]
        path = mean
    keep = np.unique(np.r_[np.arange(0, len(path), _STEP), len(path) - 1])
    return np.asarray(path[keep], np.float32)
