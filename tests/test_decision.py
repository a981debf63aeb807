"""UC4 and interpolating vectors against brute force."""

from dataclasses import replace

import numpy as np
import pytest

from neocog.network import decision, reference
from neocog.network.decision import Answers, Decision, answers
from neocog.network.fields import bell
from neocog.network.model import Model, SWeights
from neocog.network.spec import preset
from tests.support import tiny_model


def model_with(references: np.ndarray, labels: list[int], rule: str) -> Model:
    """A model whose US4 has these reference vectors, (K4, K3, 9, 9)."""
    base = tiny_model()
    s4 = preset("neocog").s[3]
    c = bell(s4.kernel, s4.c).astype(np.float32)
    top = SWeights(references.astype(np.float32), c, s4.threshold, s4.q)
    return replace(base, s=(*base.s[:3], top), labels=np.array(labels), rule=rule)


def cosines(x: np.ndarray, references: np.ndarray, c: np.ndarray) -> np.ndarray:
    weight = np.sqrt(c)
    a, b = (x * weight).ravel(), (references * weight).reshape(len(references), -1)
    return b @ a / np.linalg.norm(a) / np.linalg.norm(b, axis=1)


def us4_of(cosine: np.ndarray, theta: float) -> np.ndarray:
    """Responses at one place of the 5x5, silence at the others."""
    out = np.zeros((1, 5, 5, len(cosine)), dtype=np.float32)
    out[0, 1, 3] = np.maximum(cosine - theta, 0) / (1 - theta)
    return out


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("rule", "vectors"), [("pairs", 2), ("triples", 3)])
def test_interpolation_is_the_nearest_point(rule: str, vectors: int, seed: int) -> None:
    """Against a fine grid over the segment (or triangle) between the vectors."""
    rng = np.random.default_rng(seed)
    references = rng.random((vectors, 3, 9, 9)) ** 3
    x = np.einsum("k,kcij->cij", rng.dirichlet(np.ones(vectors)), references)
    x = x + 0.1 * rng.random(x.shape)
    model = model_with(references, [4] * vectors, rule)
    c, theta = model.s[3].c.astype(np.float64), model.s[3].threshold
    got = Decision(model).scores(us4_of(cosines(x, references, c), theta))[0]
    lengths = np.sqrt((c * references**2).sum(axis=(1, 2, 3)))
    shares = rng.dirichlet(np.full(vectors, 0.7), 40_000)
    points = np.einsum("nk,kcij->ncij", shares / lengths, references)
    nearest = cosines(x, points, c).max()
    assert got[4] == pytest.approx((nearest - theta) / (1 - theta), abs=2e-4)
    assert not np.delete(got, 4).any()


@pytest.mark.parametrize("rule", ["strongest", "pairs", "triples", "linear"])
def test_scores_are_the_references(rule: str) -> None:
    """Every rule, on random responses and reference vectors, some of them near each other."""
    rng = np.random.default_rng(3)
    references = rng.random((11, 3, 9, 9)) ** 2
    references[3] = references[2] + 0.02 * rng.random((3, 9, 9))
    labels = [0, 0, 0, 0, 1, 1, 1, 5, 5, 9, 9]
    model = model_with(references, labels, rule)
    if rule == "linear":
        model = replace(model, gains=rng.normal(size=11).astype(np.float32))
    x = np.concatenate([references[rng.integers(0, 11, 40)], rng.random((20, 3, 9, 9))])
    x = x + 0.3 * rng.random(x.shape)
    theta, c = model.s[3].threshold, model.s[3].c.astype(np.float64)
    us4 = np.concatenate([us4_of(cosines(one, references, c), theta) for one in x])
    us4[:, 2, 2] = us4[:, 1, 3] * rng.random(len(x))[:, None] * 0.9
    want = reference.scores(us4.transpose(0, 3, 1, 2).astype(np.float64), model)
    np.testing.assert_allclose(Decision(model).scores(us4), want, atol=2e-6)


@pytest.mark.parametrize("near", [1e-1, 1e-2, 1e-3])
@pytest.mark.parametrize("rule", ["pairs", "triples"])
def test_near_vectors_lose_nothing_in_float32(rule: str, near: float) -> None:
    rng = np.random.default_rng(4)
    one = rng.random((3, 9, 9))
    references = np.stack([one + near * rng.normal(size=one.shape) for _ in range(3)])
    model = model_with(np.maximum(references, 0), [7] * 3, rule)
    theta, c = model.s[3].threshold, model.s[3].c.astype(np.float64)
    x = [one + near * rng.normal(size=one.shape) for _ in range(20)]
    cosine = [cosines(one, model.s[3].reference.astype(np.float64), c) for one in x]
    us4 = np.concatenate([us4_of(s, theta) for s in cosine])
    want = reference.scores(us4.transpose(0, 3, 1, 2).astype(np.float64), model)
    np.testing.assert_allclose(Decision(model).scores(us4), want, atol=2e-5)


@pytest.mark.parametrize("rule", ["pairs", "triples"])
def test_outside_the_segment_the_nearer_vector_counts(rule: str) -> None:
    rng = np.random.default_rng(7)
    references = rng.random((3, 3, 9, 9))
    model = model_with(references, [2] * 3, rule)
    theta = model.s[3].threshold
    cosine = cosines(references[1], references, model.s[3].c.astype(np.float64))
    got = Decision(model).scores(us4_of(cosine, theta))[0]
    assert got[2] == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("rule", ["pairs", "triples"])
@pytest.mark.parametrize("off", [0.0, 1e-7, 1e-4])
def test_two_copies_of_a_vector_are_one(rule: str, off: float) -> None:
    rng = np.random.default_rng(9)
    one = rng.random((3, 9, 9))
    model = model_with(np.stack([one, one * (1 + off * rng.random(one.shape))]), [6, 6], rule)
    theta = model.s[3].threshold
    got = Decision(model).scores(us4_of(np.array([0.8, 0.8]), theta))[0]
    assert got[6] == pytest.approx((0.8 - theta) / (1 - theta), rel=1e-3)


def test_many_planes_are_cut_to_the_strongest(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(8)
    references = rng.random((12, 3, 9, 9)) ** 4
    model = model_with(references, [0] * 6 + [1] * 6, "pairs")
    us4 = rng.random((5, 5, 5, 12), dtype=np.float32)
    whole = Decision(model).scores(us4)
    monkeypatch.setattr(decision, "PAIR_PLANES", 6)
    np.testing.assert_allclose(Decision(model).scores(us4), whole, atol=1e-6)
    monkeypatch.setattr(decision, "PAIR_PLANES", 3)
    assert (Decision(model).scores(us4) <= whole + 1e-6).all()


def test_strongest_plane_of_each_label_anywhere() -> None:
    model = replace(tiny_model(), labels=np.array([0, 0, 1, 1, 1, 5, 5, 5, 5, 9]))
    us4 = np.zeros((1, 5, 5, 10), dtype=np.float32)
    us4[0, 4, 0, 1], us4[0, 0, 4, 3], us4[0, 2, 2, 4] = 0.7, 0.2, 0.3
    score = Decision(model).scores(us4)[0]
    np.testing.assert_allclose(score, [0.7, 0.3, 0, 0, 0, 0, 0, 0, 0, 0])


def test_linear_adds_gains_at_the_middle() -> None:
    gains = np.array([1, -2] + [1] * 8, dtype=np.float32)
    labels = np.array([3, 3, 4, 5, 6, 7, 8, 9, 0, 1])
    model = replace(tiny_model(), rule="linear", gains=gains, labels=labels)
    us4 = np.zeros((1, 5, 5, 10), dtype=np.float32)
    us4[0, 2, 2, :3] = [0.9, 0.2, 0.4]
    us4[0, 0, 0, 5] = 1  # elsewhere: does not count
    score = Decision(model).scores(us4)[0]
    np.testing.assert_allclose(score[[3, 4, 7]], [0.5, 0.4, 0], atol=1e-6)


def test_answers_from_scores() -> None:
    score = np.array([[0.2, 0.5, 0.5] + [0] * 7, [0] * 10, [0.9] + [0] * 9], dtype=np.float32)
    found = answers(score, temperature=0.1)
    assert found.label.tolist() == [1, -1, 0]  # a tie goes to the lower label
    np.testing.assert_allclose(found.margin, [0, 0, 0.9])
    assert found.p[0] < 0.5
    assert found.p[1] == 0
    assert found.p[2] > 0.99


def test_joined_answers_keep_their_order() -> None:
    one = answers(np.eye(10, dtype=np.float32)[:3], temperature=0.1)
    both = Answers.join([one, Answers.none(), one])
    assert both.label.tolist() == [0, 1, 2, 0, 1, 2]
