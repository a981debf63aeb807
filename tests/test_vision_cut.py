"""The way through a line: cut where that is known, whole else, with so many digits."""

import numpy as np
import pytest
from numpy.typing import NDArray
from support import glyph

from neocog.vision.binarise import Marks, marks_of
from neocog.vision.components import measure
from neocog.vision.cut import STRIP, cut_lines
from neocog.vision.seams import joined, seams, whole

TALL = 60


def marks_from(page: NDArray[np.float32]) -> Marks:
    ink = (page > 0.5).astype(np.uint8)
    return marks_of(ink, np.round(200 * page).astype(np.uint8), threshold=20.0)


def line_of(*digits: int, gap: int = 8, joined: bool = False) -> NDArray[np.float32]:
    """Digits in a row, or joined by a stroke at half their height."""
    inks = [glyph(digit, TALL) for digit in digits]
    page = np.zeros((TALL + 20, 20 + sum(ink.shape[1] + gap for ink in inks) + 40), np.float32)
    x = 20
    for ink in inks:
        part = page[10 : 10 + TALL, x : x + ink.shape[1]]
        part[:] = np.maximum(part, ink)
        if joined and x > 20:
            page[7 + TALL // 2 : 13 + TALL // 2, x - gap - 8 : x + 10] = 1
        x += ink.shape[1] + gap
    return page


def narrow_is_known(digits: NDArray[np.uint8]) -> NDArray[np.float32]:
    """A network that knows whatever is higher than wide."""
    wide = (digits.max(axis=1) > 60).sum(axis=1)
    high = (digits.max(axis=2) > 60).sum(axis=1)
    return np.where(wide < 0.75 * high, 0.99, 0.01).astype(np.float32)


def cut(page: NDArray[np.float32], count: int | None = None) -> list[int]:
    marks = marks_from(page)
    line = sorted(measure(marks, least=10), key=lambda c: c.box[0])
    found = cut_lines([line], marks, narrow_is_known, count=count, costs=STRIP)
    return [len(pieces) for pieces in found]


def test_what_is_known_stays_whole() -> None:
    assert cut(line_of(3, 5, 8)) == [3]


def test_a_mark_that_is_not_known_is_cut() -> None:
    assert len(measure(marks_from(line_of(2, 5, joined=True)), least=10)) == 1
    assert cut(line_of(2, 5, joined=True)) == [2]


def test_without_a_score_marks_are_pieces() -> None:
    marks = marks_from(line_of(2, 5, joined=True))
    assert len(cut_lines([measure(marks, least=10)], marks, None)[0]) == 1


def test_each_batch_is_scored_once() -> None:
    calls = []

    def score(digits: NDArray[np.uint8]) -> NDArray[np.float32]:
        calls.append(len(digits))
        return narrow_is_known(digits)

    marks = marks_from(line_of(2, 5, joined=True))
    cut_lines([measure(marks, least=10)], marks, score, costs=STRIP)
    assert len(calls) == 2
    assert calls[0] == 1


@pytest.mark.parametrize("count", [1, 4])
def test_a_count_that_only_unknown_pieces_meet_is_not_met(count: int) -> None:
    assert cut(line_of(2, 5, gap=20), count=count) == [2]


def test_a_joined_mark_covers_both() -> None:
    marks = marks_from(line_of(2, 5))
    pieces = [whole(c, marks) for c in measure(marks, least=10)]
    both = joined(pieces)
    assert both.own.sum() == sum(piece.own.sum() for piece in pieces)
    assert both.right == max(piece.right for piece in pieces)


def test_seams_run_from_top_to_bottom_where_little_ink_is() -> None:
    marks = marks_from(line_of(2, 5, joined=True))
    piece = whole(measure(marks, least=10)[0], marks)
    paths, crossed = seams(piece, TALL)
    assert all(len(path) == piece.own.shape[0] for path in paths)
    assert min(crossed) < 1.5 * piece.stroke
    middles = [path.mean() for path in paths]
    assert middles == sorted(middles)
