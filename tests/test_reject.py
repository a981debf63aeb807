"""Planes of US4 that respond to what is no digit: label 10 in the model, answer -1."""

from dataclasses import replace

import numpy as np
import pytest

from neocog.network import reference
from neocog.network.decision import Decision, all_scores, answers, of_lone_digits
from neocog.network.engine import Engine
from neocog.network.model import Model
from neocog.network.u0 import u0_from_digits
from tests.support import digits_of, tiny_model


def rejecting(*labels: int) -> Model:
    return replace(tiny_model(), labels=np.array(labels))


def scores(*rows: tuple[float, float]) -> np.ndarray:
    """(B, 11) of a 3 and of no digit."""
    out = np.zeros((len(rows), 11), np.float32)
    out[:, [3, 10]] = rows
    return out


def test_what_is_no_digit_is_answered_with_none() -> None:
    found = Engine(rejecting(*range(8), 10, 10)).recognise(digits_of("0123456789"))
    assert found.label.tolist() == [*range(8), -1, -1]
    assert found.score.shape == (10, 10)
    assert ((found.p > 0.5) == (found.label >= 0)).all()
    assert (found.p[8:] == 0).all()
    assert (found.margin[8:] > 0).all()


def test_scores_of_no_digit_are_the_references() -> None:
    model = rejecting(0, 1, 2, 2, 2, 9, 10, 10, 10, 10)
    maps = reference.respond(u0_from_digits(digits_of("28196")), model)
    assert maps["UC4"].shape == (5, 11, 1, 1)
    us4 = maps["US4"].transpose(0, 2, 3, 1).astype(np.float32)
    np.testing.assert_allclose(Decision(model).scores(us4), maps["UC4"][:, :, 0, 0], atol=1e-5)


def test_a_digit_wins_a_tie_with_no_digit() -> None:
    found = answers(scores((0.5, 0.5), (0.5, 0.6), (0, 0)), temperature=0.1)
    assert found.label.tolist() == [3, -1, -1]
    assert found.p[0] == pytest.approx(1 / (2 + 9 * np.exp(-5)))


def test_the_score_of_no_digit_follows_from_the_answers() -> None:
    score = np.random.default_rng(1).uniform(0.1, 1, (40, 11)).astype(np.float32)
    score[0] = 0
    found = answers(score, temperature=0.05)
    close = found.p < 0.999  # a sure answer hardly tells how unlikely the others are
    got = all_scores(found, replace(rejecting(*range(8), 10, 10), temperature=0.05))
    np.testing.assert_allclose(got[close][1:], score[close][1:], atol=0.02)
    # a network that leans towards digits is set upright
    leaning = replace(rejecting(0, 1, 10), temperature=0.1, card={"finetuning": {"lean": 2.0}})
    upright = all_scores(answers(scores((0.5, 0.45)), temperature=0.1), leaning)
    assert upright[0, 10] - upright[0, 3] == pytest.approx(0.15, abs=1e-5)


def test_a_lone_digit_is_answered_unless_it_is_surely_none() -> None:
    found = answers(scores((0.5, 0.4), (0.5, 0.7), (0.5, 1.2), (0, 0)), temperature=0.1)
    assert of_lone_digits(found, tiny_model()) is found, "a network that rejects nothing"
    lone = of_lone_digits(found, replace(rejecting(0, 1, 10), temperature=0.1))
    assert found.label.tolist() == [3, -1, -1, -1]
    assert lone.label.tolist() == [3, 3, -1, -1]
    assert lone.p[1] == pytest.approx(1 / (1 + 9 * np.exp(-5) + np.exp(2)), rel=1e-3)
    np.testing.assert_allclose(lone.margin[:3], [0.1, -0.2, 0.7], atol=1e-5)
