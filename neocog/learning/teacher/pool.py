"""Pages drawn by processes, while others are learned from."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from neocog.learning.teacher.bank import Bank, load_bank
from neocog.learning.teacher.page import draw_page

MOST_MARKS = 256
"""Marks of a page that are kept; pages of more are rare."""

NO_MARK = -9.0
"""Label of rows of marks that are not there."""

_PART = 32  # pages that a process draws at a time
_banks: list[Bank] = []  # of a process


@dataclass(frozen=True, slots=True)
class Pages:
    """N pages, see `neocog.learning.teacher.page.Page`."""

    images: NDArray[np.uint8]  #: (N, side, side)
    marks: NDArray[np.float32]  #: (N, MOST_MARKS, 5), what is left are rows of `NO_MARK`
    seeds: NDArray[np.int64]  #: (N, 2) seed and variation
    extents: NDArray[np.int64]  #: (N, 2) rows and columns of each; what lies beyond is not of it

    def __len__(self) -> int:
        return len(self.seeds)


@contextmanager
def page_pool(bank: Path, workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that draw pages with a bank.

    Raises
    ------
    InputError
        If the bank cannot be read.
    """
    load_bank(bank)
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _prepare, (bank,))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def order(
    pool: ProcessPoolExecutor, seeds: NDArray[np.int64], *, side: int, held: bool = False
) -> list[Future[Pages]]:
    """Ask for pages of seeds and variations, (N, 2)."""
    parts = [seeds[at : at + _PART] for at in range(0, len(seeds), _PART)]
    return [pool.submit(_draw, part, side, held) for part in parts]


def drawn(parts: Sequence[Future[Pages]]) -> Pages:
    """Wait for the pages that were asked for, in their order."""
    pages = [part.result() for part in parts]
    return Pages(*(np.concatenate([getattr(p, f.name) for p in pages]) for f in fields(Pages)))


def _prepare(bank: Path) -> None:
    import cv2

    cv2.setNumThreads(1)
    _banks.append(load_bank(bank))


def _draw(seeds: NDArray[np.int64], side: int, held: bool) -> Pages:
    marks = np.zeros((len(seeds), MOST_MARKS, 5), np.float32)
    marks[:, :, 0] = NO_MARK
    pages = [draw_page(_banks[0], *seed, side=side, held=held) for seed in seeds.tolist()]
    for row, page in zip(marks, pages, strict=True):
        row[: len(page.marks)] = page.marks[:MOST_MARKS]
    extents = np.array([page.extent for page in pages], np.int64)
    return Pages(np.stack([page.image for page in pages]), marks, seeds, extents)
