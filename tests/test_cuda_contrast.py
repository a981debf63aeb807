"""The contrast kernel in the emulator, held against the float64 equations."""

from dataclasses import replace

import numpy as np
import pytest

from neocog.cuda.kernel import layouts
from neocog.cuda.plan import VERSIONS
from neocog.network import reference
from neocog.network.u0 import u0_from_digits
from tests.cuda_maps import responses
from tests.support import digits_of, tiny_model

#: Seeds of pale noise with a cell within 3e-10 of silence: float32 alone decides it wrongly.
PALE = (853, 5400, 7994, 9752, 11496)


def digits(count):
    """Drawn digits, noise, faint noise (cells on the edge of silence), nothing, all ink."""
    rng = np.random.default_rng(0)
    noise = [rng.integers(0, most, (28, 28)) for most in (256, 2)]
    kinds = [*digits_of("0123456789"), *noise, np.zeros((28, 28)), np.full((28, 28), 255)]
    return np.stack([kinds[i % len(kinds)] for i in range(count)]).astype(np.uint8)


def step_of(version, emulator, precision):
    model = tiny_model()
    lay = layouts(model.spec, model.planes, precision)
    return VERSIONS["UG"][version](emulator, model, 0, lay, precision), lay


def pictures(scale):
    return np.random.default_rng(2).normal(0, scale, (3, 65, 65)).astype(np.float32)


@pytest.mark.parametrize(
    ("version", "seen", "precision", "bound"),
    [*(("digits", digits(count), "fp32", 1e-6) for count in (1, 14, 140)),
     ("digits", digits(3), "fp16", 5e-4),
     *(("U0", pictures(scale), "fp32", 1e-6) for scale in (1.0, 1e-4, 30.0))],
)  # fmt: skip
def test_digits_and_pictures_of_any_range_give_the_equations(emulator, version, seen, precision, bound):
    step, lay = step_of(version, emulator, precision)
    u0 = u0_from_digits(seen) if version == "digits" else seen
    wanted = reference.contrast(u0, tiny_model().spec.contrast)
    got = responses(emulator, step, lay, seen)
    assert np.abs(got - wanted).max() <= bound * wanted.max()
    assert np.array_equal(got > 0, wanted > 0)


@pytest.mark.parametrize("batch", [5, 140])
def test_silence_of_pale_digits_is_decided_as_in_float64(emulator, batch):
    step, lay = step_of("digits", emulator, "fp32")
    spec = tiny_model().spec.contrast
    pale = [np.random.default_rng(seed).integers(0, 4, (28, 28)) for seed in PALE]
    seen = np.resize(np.array(pale, np.uint8), (batch, 28, 28))
    u0 = u0_from_digits(seen[: len(PALE)])
    wanted = reference.contrast(u0, spec)
    near = reference.contrast(u0, replace(spec, silence=spec.silence - 3e-10))
    far = reference.contrast(u0, replace(spec, silence=spec.silence + 3e-10))
    assert ((near > 0) != (far > 0)).any(axis=(1, 2, 3)).all()
    got = responses(emulator, step, lay, seen)
    assert np.array_equal(got > 0, np.resize(wanted > 0, got.shape))


def test_silence_is_decided_as_in_float64(emulator):
    """Pictures scaled so that one cell each answers with 1e-4 to the last bits of float32."""
    step, lay = step_of("U0", emulator, "fp32")
    spec = tiny_model().spec.contrast
    rng = np.random.default_rng(4)
    pictures = []
    for _ in range(12):
        u0 = rng.uniform(0, 1, (65, 65)).astype(np.float32)
        y = reference.contrast(u0[None], spec)[0, 0].max()
        for off in (-3, -1, 0, 1, 3):
            pictures.append((u0 * np.float64(1e-4 * (1 + off * 2e-8) / y)).astype(np.float32))
    u0 = np.stack(pictures)
    wanted = reference.contrast(u0, spec)
    assert 0 < (wanted.reshape(len(u0), -1).max(axis=1) > 0).sum() < len(u0)
    assert np.array_equal(responses(emulator, step, lay, u0) > 0, wanted > 0)
