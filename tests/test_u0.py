"""From a 28x28 digit to U0: fixed by a golden file for every engine."""

from pathlib import Path

import numpy as np
import pytest

from neocog.errors import InputError
from neocog.network.u0 import u0_from_digits


def test_golden_inputs() -> None:
    """Twenty made digits; U0 is kept as the integers 16 * 255 * U0."""
    with np.load(Path(__file__).parent / "golden" / "u0.npz") as golden:
        u0 = u0_from_digits(golden["digits"])
        assert (u0.shape, u0.dtype) == ((20, 65, 65), np.float32)
        np.testing.assert_allclose(u0 * (16 * 255), golden["u0_times_4080"], atol=1e-3)


def test_it_is_bilinear_enlargement_with_paper_around() -> None:
    import cv2

    digit = np.random.default_rng(1).integers(0, 256, (28, 28)).astype(np.uint8)
    enlarged = cv2.resize(digit.astype(np.float32) / 255, (56, 56), interpolation=cv2.INTER_LINEAR)
    np.testing.assert_allclose(u0_from_digits(digit[None])[0], np.pad(enlarged, (4, 5)), atol=1e-6)


@pytest.mark.parametrize("shape", [((28, 28), "u1"), ((1, 27, 28), "u1"), ((1, 28, 28), "f4")])
def test_wrong_digits_say_what_came(shape: tuple[tuple[int, ...], str]) -> None:
    with pytest.raises(InputError, match=r"expected uint8 \(B, 28, 28\)"):
        u0_from_digits(np.zeros(*shape))
