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


def rejecting() -> Model:
    """The tiny model, whose planes for 8 and 9 mean no digit."""
    labels = np.arange(10)
    labels[8:] = 10
    return replace(tiny_model(), labels=labels)


def test_what_is_no_digit_is_answered_with_none() -> None:
    found = Engine(rejecting()).recognise(digits_of("0123456789"))
    assert found.label.tolist() == [*range(8), -1, -1]
    assert found.score.shape == (10, 10)
    assert (found.p[8:] == 0).all()
    assert (found.p[:8] > 0.5).all()
    assert (found.margin[8:] > 0).all()


def test_scores_of_no_digit_are_the_references() -> None:
    model = replace(rejecting(), labels=np.array([0, 1, 2, 2, 2, 9, 10, 10, 10, 10]))
    maps = reference.respond(u0_from_digits(digits_of("28196")), model)
    assert maps["UC4"].shape == (5, 11, 1, 1)
    want = reference.strongest_of_label(maps["US4"], model.labels)
    us4 = maps["US4"].transpose(0, 2, 3, 1).astype(np.float32)
    np.testing.assert_allclose(Decision(model).scores(us4), want, atol=1e-5)


def test_a_digit_wins_a_tie_with_no_digit() -> None:
    score = np.zeros((3, 11), dtype=np.float32)
    score[0, [4, 10]] = 0.5
    score[1, [4, 10]] = 0.5, 0.6
    found = answers(score, temperature=0.1)
    assert found.label.tolist() == [4, -1, -1]
    assert found.p[0] == pytest.approx(1 / (2 + 9 * np.exp(-5)))


def test_the_score_of_no_digit_follows_from_the_answers() -> None:
    labels = np.append(np.arange(8), [10, 10])
    model = replace(tiny_model(), labels=labels, temperature=0.05)
    rng = np.random.default_rng(1)
    score = rng.uniform(0.1, 1, (40, 11)).astype(np.float32)
    score[0] = 0
    found = answers(score, temperature=0.05)
    close = found.p < 0.999  # a sure answer hardly tells how unlikely the others are
    np.testing.assert_allclose(all_scores(found, model)[close][1:], score[close][1:], atol=0.02)


def test_a_network_that_leans_towards_digits_is_set_upright() -> None:
    card = {"finetuning": {"lean": 2.0}}
    leaning = replace(tiny_model(), labels=np.array([0, 1, 10]), temperature=0.1, card=card)
    score = np.zeros((1, 11), np.float32)
    score[0, [3, 10]] = 0.5, 0.45
    upright = all_scores(answers(score, temperature=0.1), leaning)
    assert upright[0, 10] - upright[0, 3] == pytest.approx(0.15, abs=1e-5)


def test_a_lone_digit_is_answered_unless_it_is_surely_none() -> None:
    model = replace(tiny_model(), labels=np.array([0, 1, 10]), temperature=0.1)
    score = np.zeros((4, 11), np.float32)
    score[:, [3, 10]] = [(0.5, 0.4), (0.5, 0.7), (0.5, 1.2), (0, 0)]
    found = answers(score, temperature=0.1)
    assert of_lone_digits(found, tiny_model()) is found, "a network that rejects nothing"
    lone = of_lone_digits(found, model)
    assert found.label.tolist() == [3, -1, -1, -1]
    assert lone.label.tolist() == [3, 3, -1, -1]
    assert lone.p[1] == pytest.approx(1 / (1 + 9 * np.exp(-5) + np.exp(2)), rel=1e-3)
    np.testing.assert_allclose(lone.margin[:3], [0.1, -0.2, 0.7], atol=1e-5)
