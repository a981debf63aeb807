"""Interpolating vectors against brute force."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.learning import intvec
from experiments.learning.intvec import Interpolated
from neocog.learning.calibrate import score
from neocog.learning.datasets import open_digits
from neocog.learning.recipes import RECIPES, LayerByLayer
from neocog.network.decision import Decision
from neocog.network.model import SWeights
from neocog.network.parallel import one_blas_thread
from neocog.network.spec import bell, preset
from tests.support import tiny_model


def model_with(references, labels):
    """A model whose US4 has these reference vectors, (K4, K3, 9, 9)."""
    base = tiny_model()
    s4 = preset("neocog").s[3]
    c = bell(s4.kernel, s4.c).astype(np.float32)
    top = SWeights(references.astype(np.float32), c, s4.threshold, s4.q)
    return replace(base, s=(*base.s[:3], top), labels=np.array(labels))


def cosines(x, references, c):
    weight = np.sqrt(c)
    a, b = (x * weight).ravel(), (references * weight).reshape(len(references), -1)
    return b @ a / np.linalg.norm(a) / np.linalg.norm(b, axis=1)


def us4_of(cosine, theta):
    """Responses at one place of the 5x5, silence at the others."""
    out = np.zeros((1, 5, 5, len(cosine)), dtype=np.float32)
    out[0, 1, 3] = np.maximum(cosine - theta, 0) / (1 - theta)
    return out


@pytest.mark.parametrize("seed", range(3))
def test_interpolation_is_the_nearest_point(seed):
    """Against a fine grid over the segment between the vectors."""
    rng = np.random.default_rng(seed)
    references = rng.random((2, 3, 9, 9)) ** 3
    x = np.einsum("k,kcij->cij", rng.dirichlet(np.ones(2)), references)
    x = x + 0.1 * rng.random(x.shape)
    model = model_with(references, [4, 4])
    c, theta = model.s[3].c.astype(np.float64), model.s[3].threshold
    got = Interpolated(model)(us4_of(cosines(x, references, c), theta))[0]
    lengths = np.sqrt((c * references**2).sum(axis=(1, 2, 3)))
    shares = rng.dirichlet(np.full(2, 0.7), 40_000)
    points = np.einsum("nk,kcij->ncij", shares / lengths, references)
    nearest = cosines(x, points, c).max()
    assert got[4] == pytest.approx((nearest - theta) / (1 - theta), abs=2e-4)
    assert not np.delete(got, 4).any()


@pytest.mark.parametrize("off", [0.0, 1e-7, 1e-4])
def test_two_copies_of_a_vector_are_one(off):
    rng = np.random.default_rng(9)
    one = rng.random((3, 9, 9))
    model = model_with(np.stack([one, one * (1 + off * rng.random(one.shape))]), [6, 6])
    theta = model.s[3].threshold
    got = Interpolated(model)(us4_of(np.array([0.8, 0.8]), theta))[0]
    assert got[6] == pytest.approx((0.8 - theta) / (1 - theta), rel=1e-3)


def test_many_planes_are_cut_to_the_strongest(monkeypatch):
    rng = np.random.default_rng(8)
    model = model_with(rng.random((12, 3, 9, 9)) ** 4, [0] * 6 + [1] * 6)
    us4 = rng.random((5, 5, 5, 12), dtype=np.float32)
    whole = Interpolated(model)(us4)
    monkeypatch.setattr(intvec, "PAIR_PLANES", 3)
    fewer = Interpolated(model)(us4)
    assert (fewer <= whole + 1e-6).all()
    assert (fewer[:, :2] >= Decision(model).scores(us4)[:, :2] - 1e-6).all()


def test_pairs_read_what_was_learned():
    digits = open_digits("sklearn", split="train")
    images, labels = digits.images[:220], digits.labels[:220].astype(np.int64)
    recipe = replace(RECIPES["nearest"], middle_digits=20, limits=(16, 30))
    shared = LayerByLayer(recipe)
    with one_blas_thread():
        model = shared.model(recipe, shared.below(images[:160]), labels[:160])
    found = score(model, images[160:], scores=Interpolated(model)).argmax(axis=1)
    assert (found == labels[160:]).mean() > 0.75
