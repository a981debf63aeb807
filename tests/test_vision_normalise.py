"""Found ink takes the form of MNIST's digits."""

import numpy as np
import pytest

from neocog.vision.normalise import normalise, stroke_width


def centre_of_mass(digit):
    mass = digit.sum(dtype=float)
    rows, columns = np.indices(digit.shape)
    return (rows * digit).sum() / mass, (columns * digit).sum() / mass


def ring(side, pen):
    rows, columns = np.indices((side, side)) - (side - 1) / 2
    radius = np.hypot(rows, columns)
    return (np.abs(radius - side / 2 + pen / 2 + 1) < pen / 2).astype(float)


def test_centre_of_mass_is_not_transposed():
    ink = np.zeros((60, 30))
    ink[:4, :] = 1  # a bar on top, a heavy blob at its right, a tail: nothing is symmetric
    ink[4:20, 18:30] = 1
    ink[20:60, 26:30] = 1
    row, column = centre_of_mass(normalise(ink))
    assert row == pytest.approx(14, abs=0.6)
    assert column == pytest.approx(14, abs=0.6)


@pytest.mark.parametrize("shape", [(120, 40), (40, 120), (80, 80), (7, 3)])
def test_box_of_twenty(shape):
    ink = np.zeros((shape[0] + 10, shape[1] + 6))
    ink[5:-5, 3:-3] = 1
    digit = normalise(ink, stroke=max(shape) * 2.3 / 20)
    rows, columns = np.flatnonzero(digit.any(1)), np.flatnonzero(digit.any(0))
    assert max(np.ptp(rows), np.ptp(columns)) + 1 == 20
    assert digit.max() == 255


@pytest.mark.parametrize("pen", [1, 2, 5, 12, 26])
def test_stroke_comes_near_that_of_mnist(pen):
    width = stroke_width(normalise(ring(120, pen)) / 255.0)
    assert 1.5 < width < 4.2


def test_stroke_width_of_a_bar():
    bar = np.zeros((100, 30))
    bar[:, 10:16] = 1
    assert stroke_width(bar) == pytest.approx(6, rel=0.35)
    assert stroke_width(np.zeros((4, 4))) == 0
    assert [normalise(np.zeros(shape)).sum() for shape in ((9, 5), (0, 0))] == [0, 0]
