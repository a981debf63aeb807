"""Shifts in the plane of U0: exact, the same by every way, measured in eight directions."""

import numpy as np
import pytest

from experiments.accuracy.shift import DIRECTIONS, lost, measure, of_engine, shifted
from neocog.learning.formats import Digits
from neocog.network.engine import Engine
from neocog.network.u0 import u0_from_digits
from tests.support import digits_of, tiny_model

DIGITS = digits_of("0123456789")
WIDE = np.where(np.arange(10)[:, None, None] == 4, 255, DIGITS).astype(np.uint8)  # one full of ink


def test_shifted() -> None:
    picture = np.arange(12).reshape(1, 3, 4)
    assert shifted(picture, 1, -2).tolist() == [[[0, 0, 0, 0], [2, 3, 0, 0], [6, 7, 0, 0]]]
    assert shifted(picture, 0, 0).tolist() == picture.tolist()
    assert not shifted(picture, 3, 0).any()


def test_a_model_reads_shifted_pictures() -> None:
    engine = Engine(tiny_model())
    read = of_engine(engine)
    np.testing.assert_array_equal(read(WIDE, 0, 0), engine.recognise(WIDE).label)
    for rows, columns in ((4, 0), (-3, 2)):
        u0 = shifted(u0_from_digits(WIDE), rows, columns)
        best = engine.maps(u0)["UC4"][:, :, 0, 0].argmax(axis=1)
        np.testing.assert_array_equal(read(WIDE, rows, columns), best)


def test_two_pixels_are_one_of_the_digit() -> None:
    inner = DIGITS.copy()
    inner[:, :, :3] = inner[:, :, -1:] = inner[:, :1] = inner[:, -2:] = 0
    moved = np.roll(inner, (1, -2), axis=(1, 2))
    there = shifted(u0_from_digits(inner), 2, -4)  # OpenCV rounds columns at the end otherwise
    np.testing.assert_allclose(u0_from_digits(moved), there, rtol=0, atol=2e-7)


def test_rows_of_the_table() -> None:
    digits = Digits(DIGITS, np.arange(10), "made")

    def read(images: np.ndarray, rows: int, columns: int) -> np.ndarray:
        return np.arange(10) if rows <= 0 else np.zeros(10, int)

    (row,) = measure(read, digits, [8])
    assert row["unshifted"] == 1
    assert set(row["by_direction"]) == set(DIRECTIONS)
    assert row["worst"] == pytest.approx(0.1)
    assert row["direction"] in ("down", "down right", "down left")
    assert row["drop"] == pytest.approx(90)
    assert row["mean"] == pytest.approx((5 + 3 * 0.1) / 8)
    assert set(lost(digits, 4).values()) == {0}
    gone = lost(Digits(WIDE, np.arange(10), "made"), 8)
    assert min(gone.values()) >= 0.1  # the one full of ink


def test_a_lenet_learns() -> None:
    pytest.importorskip("torch", reason="needs PyTorch: neocog[train]")
    from experiments.accuracy.lenet import LeNet, as_large_as, labels_of, learn

    assert LeNet().parameters_held == 61_706
    for wanted in (61_706, 550_000, 1_800_000):
        assert as_large_as(wanted).parameters_held == pytest.approx(wanted, rel=0.03)
    network, labels = LeNet(), np.arange(10)
    spent = learn(network, DIGITS, labels, how="none", epochs=60, batch=10, device="cpu")
    assert spent["epochs"] == 60
    np.testing.assert_array_equal(labels_of(network, u0_from_digits(DIGITS), device="cpu"), labels)
