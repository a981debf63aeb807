"""The decision's kernel in the emulator, held against the decision of the CPU."""

from dataclasses import replace

import numpy as np
import pytest

from neocog.cuda.decide import Decide
from neocog.cuda.kernel import layouts
from neocog.network.decision import Answers, Decision
from neocog.network.spec import REJECT
from tests.cuda_maps import sparse
from tests.support import tiny_model


def model_with(counts):
    """So many planes of each label, in no order."""
    tiny = tiny_model()
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(10), counts))
    s4 = tiny.s[3]
    s = (*tiny.s[:3], replace(s4, reference=s4.reference[labels]))
    return replace(tiny, s=s, labels=labels)


def decided(emulator, model, us4):
    lay = layouts(model.spec, model.planes, "fp16")
    step = Decide(emulator, model, 0, lay, "fp16")
    source = np.zeros(lay["US4"].shape(len(us4)), dtype=np.float32)
    source[..., : us4.shape[3]] = us4
    out = np.full((len(us4), 16), np.nan, dtype=np.float32)
    for launch in step.launches(len(us4), source, out, {}):
        emulator.launch(launch)
    assert (out[:, 13:] == 0).all()
    return Answers(out[:, 10].astype(np.int64), out[:, :10], out[:, 11], out[:, 12])


def agree(got, wanted):
    assert np.array_equal(got.label, wanted.label)
    assert np.array_equal(got.score, wanted.score)
    assert np.allclose(got.margin, wanted.margin, rtol=0, atol=1e-6)
    assert np.allclose(got.p, wanted.p, rtol=1e-4, atol=1e-6)


def responses(model, batch, active):
    shape = (batch, 5, 5, len(model.labels))
    us4 = (0.5 + 0.2 * sparse(shape, active=1.0)) * (sparse(shape, seed=2, active=active) > 0)
    us4[-1] = 0
    return us4.astype(np.float32)


SEVEN = [7] * 10
UNEVEN = [1, 0, 2, 3, 8, 17, 33, 40, 5, 4]


@pytest.mark.parametrize(
    "counts", [SEVEN, UNEVEN, [70] * 10, [200, *[0] * 8, 3]], ids=["seven", "uneven", "not held", "of two"]
)
@pytest.mark.parametrize("active", [0.1, 0.9])
def test_it_decides_as_the_cpu(emulator, counts, active):
    model = model_with(counts)
    us4 = responses(model, 7, active)
    agree(decided(emulator, model, us4), Decision(model)(us4))


def test_planes_of_no_digit_may_win(emulator):
    model = model_with(SEVEN)
    model = replace(model, labels=np.where(np.arange(70) % 9 == 0, REJECT, model.labels))
    us4 = responses(model, 12, 0.1)
    got = decided(emulator, model, us4)
    agree(got, Decision(model)(us4))
    assert (got.label[:-1] == -1).any()
    assert (got.label >= 0).any()


def test_ties_go_to_the_lower_label(emulator):
    model = model_with(SEVEN)
    us4 = np.zeros((2, 5, 5, 70), dtype=np.float32)
    for label in (3, 5):
        us4[0, 1, 1, np.flatnonzero(model.labels == label)[0]] = 0.5
    got = decided(emulator, model, us4)
    agree(got, Decision(model)(us4))
    assert got.label.tolist() == [3, -1]
