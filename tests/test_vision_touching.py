"""Digits joined by a stroke of the pen are read one by one."""

from itertools import islice, pairwise

import numpy as np
import pytest

from neocog.learning.formats import read_sklearn
from neocog.learning.pages.pen import write_digit
from neocog.reading.reader import Reader

TALL, GAP, PEN = 70, 20, 4


def page_of(inks, *, joined=True):
    """A page with inks in a row, neighbours joined by a stroke at half their height."""
    page = np.zeros((4 * TALL, 3 * TALL + (TALL + GAP) * len(inks)))
    middle, x, before = 2 * TALL, TALL, None
    for ink in inks:
        top = middle - ink.shape[0] // 2
        page[top : top + ink.shape[0], x : x + ink.shape[1]] = ink
        if joined and before is not None:
            level = page[middle - 2 : middle + 3].max(axis=0) > 0.5
            left = before + np.flatnonzero(level[before:x])[-1]
            right = x + np.flatnonzero(level[x:])[0]
            page[middle - PEN // 2 : middle + PEN // 2, left : right + 1] = 1
        before = x
        x += ink.shape[1] + GAP
    return (225 - 180 * page).astype(np.uint8)


@pytest.fixture(scope="module")
def reader():
    return Reader(device="cpu")


@pytest.fixture(scope="module")
def known(reader):
    """Inks of digits that are read rightly when each stands alone, with their labels."""
    digits = read_sklearn()
    alone = (
        (write_digit(image, TALL, 0.09), str(label))
        for image, label in zip(digits.images[:80], digits.labels[:80], strict=True)
    )
    right = ((ink, text) for ink, text in alone if reader.read(page_of([ink])).text == text)
    return list(islice(right, 31))


def exact(reader, known, *, joined):
    """Share of pairs of neighbours that are read as the two digits that they are."""
    pairs = list(pairwise(known))
    read = [reader.read(page_of([left, right], joined=joined)).text for (left, _), (right, _) in pairs]
    return np.mean([text == a + b for text, ((_, a), (_, b)) in zip(read, pairs, strict=True)])


def test_digits_that_a_stroke_joins_are_read(reader, known):
    assert len(known) > 20
    assert exact(reader, known, joined=True) >= 0.5


def test_digits_that_stand_apart_are_read(reader, known):
    assert exact(reader, known, joined=False) >= 0.9
