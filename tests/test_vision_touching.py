"""Digits joined by a stroke of the pen are cut apart and read one by one."""

from itertools import pairwise

import numpy as np
import pytest

from neocog.batch.reader import Reader
from neocog.learning.formats import read_sklearn
from neocog.learning.pages.pen import write_digit

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
    alone = [
        (write_digit(image, TALL, 0.09), str(label))
        for image, label in zip(digits.images[:80], digits.labels[:80], strict=True)
    ]
    return [(ink, text) for ink, text in alone if reader.read(page_of([ink])).text == text][:31]


def exact(reader, known, *, joined, cut):
    """Pairs of neighbours that are read as the two digits that they are."""
    reader.cut = cut
    return sum(
        reader.read(page_of([left, right], joined=joined)).text == a + b
        for (left, a), (right, b) in pairwise(known)
    )


def test_joined_digits_are_read_when_they_are_cut(reader, known):
    pairs = len(known) - 1
    assert pairs >= 20
    assert exact(reader, known, joined=True, cut=False) <= 0.1 * pairs
    assert exact(reader, known, joined=True, cut=True) >= 0.5 * pairs


def test_cutting_leaves_digits_alone_that_stand_apart(reader, known):
    whole = exact(reader, known, joined=False, cut=False)
    assert whole >= 0.9 * (len(known) - 1)
    assert exact(reader, known, joined=False, cut=True) == whole
