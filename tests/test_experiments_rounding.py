"""Rounding to TF32 and bfloat16, held against exact fractions."""

import numpy as np

from experiments.harness.rounding import bf16, of_bf16, tf32

NUMBERS = np.random.default_rng(0).normal(size=(40, 50)).astype(np.float32) * 1e3


def test_tf32_keeps_ten_bits():
    got = tf32(NUMBERS.astype(np.float64))
    fraction, _ = np.frexp(got.astype(np.float64))
    assert got.dtype == np.float32
    assert not np.any(fraction * 2**11 % 1)
    assert np.abs(got / NUMBERS - 1).max() <= 2**-11
    ties = np.float32([1 + 2**-11, -1 - 2**-11, 1 + 3 * 2**-11])
    assert tf32(ties).tolist() == [1 + 2**-10, -1 - 2**-10, 1 + 2**-9]


def test_bf16_keeps_seven_bits():
    got = of_bf16(bf16(NUMBERS.T))
    assert np.abs(got / NUMBERS.T - 1).max() <= 2**-8
    np.testing.assert_array_equal(of_bf16(bf16(got)), got)
    ties = np.float32([0.0, 1 + 2**-8, -1 - 2**-8, 1 + 3 * 2**-8])
    assert bf16(ties).tolist() == [0, 0x3F80, 0xBF80, 0x3F82]
    assert of_bf16(np.uint16([0xBF80])).tolist() == [-1.0]
