"""Scanned digits as pen strokes: the skeleton of the ink, followed from end to end."""

import numpy as np
from numpy.typing import NDArray

from neocog.learning.pages.pen import traced

Line = NDArray[np.float32]

_FINE = 84  # side of the field in which a 28 x 28 scan is thinned, in pixels
_STEP = 3  # pixels of that field between two points of a stroke
_DEEPER, _FULL = 1.5, 0.03  # pixels over a stroke's middle, and share of the ink, of a full loop
_SPUR = 5  # shorter strokes are an artefact of thinning, unless there are no others
_NEAR = tuple((r, c) for r in (-1, 0, 1) for c in (-1, 0, 1) if r or c)


def trace(scan: NDArray[np.uint8]) -> list[Line]:
    """Return the strokes of a scanned digit (28, 28), ink 255 on 0.

    Each is (n, 2) points (x, y) in pixels of a field of 84 x 84. There are none without ink, or
    where ink is much deeper than a stroke: a small loop that ran full is no line, and a 9 would
    become a bar.
    """
    line, depth = traced(scan, _FINE, 1.2)
    full = depth > (np.median(depth[line]) if line.any() else np.inf) + _DEEPER
    if full.sum() > _FULL * (depth > 0).sum():
        return []
    todo = {(int(r), int(c)) for r, c in np.argwhere(line)}
    done: set[tuple[int, int]] = set()
    paths: list[list[tuple[int, int]]] = []
    while todo:
        paths.append(_walk(_start(todo), todo, done))
    long = [path for path in paths if len(path) >= _SPUR] or paths[:1]
    return [_smooth(np.array(path, np.float32)[:, ::-1]) for path in long if len(path) > 1]


def _start(todo: set[tuple[int, int]]) -> tuple[int, int]:
    """An end of a line, or any point of a ring."""
    ordered = sorted(todo)
    return next((at for at in ordered if len(_beside(at, todo)) == 1), ordered[0])


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
            if (
                abs(beside[0] - at[0]) + abs(beside[1] - at[1]) == 1
                and len(_beside(beside, todo)) == 0
            ):
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
