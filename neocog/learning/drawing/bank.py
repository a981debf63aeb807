"""Lines by the chunk: each chunk follows from its seed and number, whichever process draws it."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.learning.drawing.hands import Hands, load_hands
from neocog.learning.drawing.line import ROWS, draw_line
from neocog.network.lines import ROWS as SEEN

Line = tuple[NDArray[np.uint8], str]
"""Ink or grey of a strip (64, w), and what it says."""

CHUNK = 240
"""Lines of a chunk."""
WIDTHS = (96, 128, 160, 192, 224, 256, 288, 320, 368, 416, 480, 544)
"""Classes of strips: columns at 48 rows."""
_LONGEST = 32  # characters

_hands: list[Hands] = []


@contextmanager
def line_pool(data: Path, workers: int, *, styles: bool = True) -> Iterator[ProcessPoolExecutor]:
    """Processes that draw lines with the hands of ``data``."""
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _prepare, (data, styles))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare(data: Path, styles: bool) -> None:
    cv2.setNumThreads(1)
    hands = load_hands(data)
    if not styles:
        hands.styles[:] = [[] for _ in hands.styles]
    _hands.append(hands)


def _chunk(seed: int, number: int, options: dict[str, Any]) -> list[Line]:
    return _drawn(_hands[-1], np.random.default_rng([seed, number]), CHUNK, options)


def _drawn(hands: Hands, rng: np.random.Generator, count: int, options: dict[str, Any]) -> list[Line]:
    lines: list[Line] = []
    while len(lines) < count:
        line = draw_line(hands, rng, **options)
        if width_class(line) is not None and len(line[1]) <= _LONGEST:
            lines.append(line)
    return lines


def drawn_lines(data: Path, count: int, *, seed: int, held: bool = False, **options: Any) -> list[Line]:
    """Draw lines here and now; ``held``: by hands and in styles that nothing is learned from."""
    return _drawn(load_hands(data, held=held), np.random.default_rng(seed), count, options)


def width_class(line: Line) -> int | None:
    columns = line[0].shape[1] * SEEN / ROWS
    return next((k for k, width in enumerate(WIDTHS) if columns <= width), None)


def by_width(lines: list[Line]) -> list[list[Line]]:
    """Lines of each class of :data:`WIDTHS`; those that are too long are left out."""
    classes: list[list[Line]] = [[] for _ in WIDTHS]
    for line in lines:
        if (k := width_class(line)) is not None:
            classes[k].append(line)
    return classes


class Bank:
    """The last ``kept`` chunks of lines before one, in order; those that come next are drawn meanwhile."""

    def __init__(
        self, pool: ProcessPoolExecutor, seed: int, options: dict[str, Any], *,
        kept: int, ahead: int, upto: int,
    ) -> None:  # fmt: skip
        self._pool, self._job, self._ahead = pool, (seed, options), ahead
        self._number = self._asked = max(0, upto - kept)
        self._coming: deque[Future[list[Line]]] = deque()
        self._chunks: deque[list[list[Line]]] = deque(maxlen=kept)
        self._classes: list[list[Line]] = []
        self.until(upto)

    def until(self, number: int) -> None:
        """Take all chunks before ``number``."""
        seed, options = self._job
        while self._number < number:
            while self._asked < max(number, self._number + self._ahead):
                self._coming.append(self._pool.submit(_chunk, seed, self._asked, options))
                self._asked += 1
            self._chunks.append(by_width(self._coming.popleft().result()))
            self._number += 1
            self._classes = []

    def lines(self) -> list[list[Line]]:
        """Lines of each class of widths."""
        if not self._classes:
            classes = range(len(WIDTHS))
            self._classes = [[line for chunk in self._chunks for line in chunk[k]] for k in classes]
        return self._classes
