"""Lines by the chunk: each chunk follows from its seed and number, whichever process draws it."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.learning.drawing.fields import Rng, blurred, inked, resized
from neocog.learning.drawing.hands import Hands, Line, load_hands
from neocog.learning.drawing.line import ROWS, draw_line
from neocog.learning.drawing.paper import blank_paper, photographed
from neocog.learning.drawing.pen import log_uniform
from neocog.network.lines import ROWS as SEEN

CHUNK = 240  #: lines of a chunk
WIDTHS = (96, 128, 160, 192, 224, 256, 288, 320, 368, 416, 480, 544)  #: classes of strips: columns at 48 rows
_FEW = 0.22  # of the lines to learn from, more of one to three digits: of what strangers photograph many are

_hands: list[Hands] = []  # of a process that draws


@contextmanager
def drawers(workers: int, prepare: Callable[..., None], *given: Any) -> Iterator[ProcessPoolExecutor]:
    """Processes that draw, each prepared with what is given; what nobody waits for is not drawn."""
    pool = ProcessPoolExecutor(workers, get_context("spawn"), prepare, given)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def prepare(data: Path) -> None:
    """Let this process draw lines with the hands of ``data``."""
    cv2.setNumThreads(1)
    _hands.append(load_hands(data))


def drawn_lines(
    hands: Hands, count: int, *, seed: int | list[int], ink: bool = False, **options: Any
) -> list[Line]:
    """Draw lines, or their ``ink``."""
    rng, lines, behind = np.random.default_rng(seed), list[Line](), np.zeros((ROWS, ROWS), np.uint8)
    while len(lines) < count:
        line = draw_line(hands, rng, **options)
        if width_class(line) is not None and len(line[1]) <= 32:
            lines.append(line if ink else (on_paper(line[0], behind, rng), line[1]))
            behind = line[0]
    return lines


def _chunk(seed: int, number: int) -> list[Line]:
    return drawn_lines(_hands[-1], CHUNK, seed=[seed, number], few=_FEW)


def on_paper(ink: NDArray[np.uint8], behind: NDArray[np.uint8], rng: Rng) -> NDArray[np.uint8]:
    """Photograph a line (64, w) on paper that what is written ``behind`` may shine through: grey, (64, w)."""
    while True:  # until the ink stands off its paper
        ordinary = rng.random() < 0.6  # of good contrast, with more rows
        rows = int(log_uniform(rng, 24 if ordinary else 15, ROWS)) if rng.random() < 0.6 else ROWS
        size = (max(8, ink.shape[1] * rows // ROWS), rows)
        cover = inked(resized(ink, size))
        contrast = rng.uniform(0.35, 0.96) if ordinary else log_uniform(rng, 0.18, 0.96)
        paper = blank_paper((rows, size[0]), rng)
        mean, rough = np.float32(paper.mean()), float(paper.std())
        share = min(1.0, 0.12 * contrast * float(mean) / max(rough, 1e-6))  # fainter than the ink
        image = (mean + (paper - mean) * np.float32(share)) * (1 - np.float32(contrast) * cover)
        if rng.random() < 0.08:
            back = cv2.resize(behind[:, ::-1], size, interpolation=cv2.INTER_AREA).astype(np.float32)
            soft = blurred(back, rng.uniform(0.5, 2))
            image *= 1 - np.float32(rng.uniform(0.03, 0.4) * contrast / 255) * soft
        grey = photographed(image, rng, 0.28 * rows, inverted=0, page=6)
        dark, bright = cover > 0.5, cover < 0.05
        if not dark.any() or not bright.any() or grey[bright].mean() - grey[dark].mean() > 12:
            return resized(grey, ink.shape[::-1])


def width_class(line: Line) -> int | None:
    columns = line[0].shape[1] * SEEN / ROWS
    return next((k for k, width in enumerate(WIDTHS) if columns <= width), None)


def by_width(lines: list[Line]) -> list[list[Line]]:
    """Lines of each class of :data:`WIDTHS`; those that are too long are left out."""
    of = [width_class(line) for line in lines]
    return [[line for line, own in zip(lines, of, strict=True) if own == k] for k in range(len(WIDTHS))]


class Bank:
    """The last ``kept`` chunks of lines before one, in order; those that come next are drawn meanwhile."""

    def __init__(self, pool: ProcessPoolExecutor, seed: int, *, kept: int, ahead: int, upto: int) -> None:
        self._pool, self._seed, self._ahead = pool, seed, ahead
        self._number = self._asked = max(0, upto - kept)
        self._coming: deque[Future[list[Line]]] = deque()
        self._chunks: deque[list[list[Line]]] = deque(maxlen=kept)
        self._classes: list[list[Line]] = []
        self.until(upto)

    def until(self, number: int) -> None:
        """Take all chunks before ``number``."""
        while self._number < number:
            while self._asked < max(number, self._number + self._ahead):
                self._coming.append(self._pool.submit(_chunk, self._seed, self._asked))
                self._asked += 1
            self._chunks.append(by_width(self._coming.popleft().result()))
            self._number += 1
            self._classes = []

    def lines(self) -> list[list[Line]]:
        """Lines of each class of widths."""
        if not self._classes:
            self._classes = [[*chain.from_iterable(own)] for own in zip(*self._chunks, strict=True)]
        return self._classes
