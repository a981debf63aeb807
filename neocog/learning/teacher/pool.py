"""Pages drawn by a pool of processes, in the order they are asked for."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from neocog.learning.teacher.bank import Bank, load_bank
from neocog.learning.teacher.page import draw_page

MOST_MARKS = 256
"""Marks of a page that are kept; pages of more are rare."""

NO_MARK = -9.0
"""Label of rows of marks that are not there."""

_PART = 32  # pages that a process draws at a time


@dataclass(frozen=True, slots=True)
class Pages:
    """Many pages.

    Attributes
    ----------
    images : ndarray of uint8, shape (N, side, side)
    marks : ndarray of float32, shape (N, MOST_MARKS, 5)
        As `Page` has them; the rest are rows whose label is `NO_MARK`.
    seeds : ndarray of int64, shape (N, 2)
        Seed and variation of each.
    extents : ndarray of int64, shape (N, 2)
        Rows and columns of each picture; what lies beyond is not of it.
    """

    images: NDArray[np.uint8]
    marks: NDArray[np.float32]
    seeds: NDArray[np.int64]
    extents: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.seeds)


def draw_pages(bank: Bank, seeds: NDArray[np.int64], *, side: int, held: bool) -> Pages:
    """Draw pages one after the other.

    Parameters
    ----------
    seeds : ndarray of int64, shape (N, 2)
        Seed and variation of each.
    """
    images = np.empty((len(seeds), side, side), np.uint8)
    marks = np.zeros((len(seeds), MOST_MARKS, 5), np.float32)
    marks[:, :, 0] = NO_MARK
    extents = np.empty((len(seeds), 2), np.int64)
    for number, (seed, variation) in enumerate(seeds.tolist()):
        page = draw_page(bank, seed, variation, side=side, held=held)
        images[number], extents[number] = page.image, page.extent
        some = page.marks[:MOST_MARKS]
        marks[number, : len(some)] = some
    return Pages(images, marks, seeds, extents)


_BANKS: dict[str, Bank] = {}


def _prepare(path: str) -> None:
    import cv2

    cv2.setNumThreads(1)
    _BANKS["bank"] = load_bank(path)


def _draw(seeds: NDArray[np.int64], side: int, held: bool) -> Pages:
    return draw_pages(_BANKS["bank"], seeds, side=side, held=held)


class PagePool:
    """Processes that draw pages; use it as a context.

    Parameters
    ----------
    bank : Path
        File of the bank.
    workers : int
        Processes.
    side : int
        Rows and columns of a page.
    """

    def __init__(self, bank: Path, *, workers: int, side: int) -> None:
        load_bank(bank)  # a broken file is told here, not by a process
        self.side = side
        self._pool = ProcessPoolExecutor(
            workers, mp_context=get_context("spawn"), initializer=_prepare, initargs=(str(bank),)
        )

    def __enter__(self) -> "PagePool":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def order(self, seeds: NDArray[np.int64], *, held: bool = False) -> "Order":
        """Ask for pages; they are drawn while others are learned from."""
        parts = [seeds[at : at + _PART] for at in range(0, len(seeds), _PART)]
        return Order([self._pool.submit(_draw, part, self.side, held) for part in parts])


class Order:
    """Pages that were asked for."""

    def __init__(self, parts: Sequence["Future[Pages]"]) -> None:
        self._parts = parts

    def done(self) -> bool:
        """Whether all are drawn."""
        return all(part.done() for part in self._parts)

    def pages(self) -> Pages:
        """Wait for all of them."""
        parts = list(self._results())
        return Pages(
            np.concatenate([part.images for part in parts]),
            np.concatenate([part.marks for part in parts]),
            np.concatenate([part.seeds for part in parts]),
            np.concatenate([part.extents for part in parts]),
        )

    def _results(self) -> Iterator[Pages]:
        for part in self._parts:
            yield part.result()
