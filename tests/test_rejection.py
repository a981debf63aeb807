"""What is no digit is answered with none; which answers are rejected, why, and by which threshold."""

from dataclasses import replace

import numpy as np
import pytest

from neocog.errors import UsageError
from neocog.learning.calibrate import calibrated, risk_row, risk_table
from neocog.learning.mix import Mix
from neocog.network import reference
from neocog.network.decision import Answers, Decision, all_scores, answers, of_lone_digits
from neocog.network.engine import Engine
from neocog.network.u0 import u0_from_digits
from neocog.reading.policy import Policy, parse_share, threshold_for
from neocog.reading.reader import Reader
from tests.support import digits_of, from_digits, tiny_model


def rejecting(*labels):
    """The tiny model, its planes of US4 with these labels; 10 responds to what is no digit."""
    return replace(tiny_model(), labels=np.array(labels))


def scores(*rows):
    """(B, 11) of a 3 and of no digit."""
    out = np.zeros((len(rows), 11), np.float32)
    out[:, [3, 10]] = rows
    return out


def test_what_is_no_digit_is_answered_with_none():
    found = Engine(rejecting(*range(8), 10, 10)).recognise(digits_of("0123456789"))
    assert found.label.tolist() == [*range(8), -1, -1]
    assert found.score.shape == (10, 10)
    assert ((found.p > 0.5) == (found.label >= 0)).all()
    assert (found.p[8:] == 0).all()
    assert (found.margin[8:] > 0).all()


def test_scores_of_no_digit_are_the_references():
    model = rejecting(0, 1, 2, 2, 2, 9, 10, 10, 10, 10)
    maps = reference.respond(u0_from_digits(digits_of("28196")), model)
    assert maps["UC4"].shape == (5, 11, 1, 1)
    us4 = maps["US4"].transpose(0, 2, 3, 1).astype(np.float32)
    np.testing.assert_allclose(Decision(model).scores(us4), maps["UC4"][:, :, 0, 0], atol=1e-5)


def test_a_digit_wins_a_tie_with_no_digit():
    found = answers(scores((0.5, 0.5), (0.5, 0.6), (0, 0)), temperature=0.1)
    assert found.label.tolist() == [3, -1, -1]
    assert found.p[0] == pytest.approx(1 / (2 + 9 * np.exp(-5)))


def test_the_score_of_no_digit_follows_from_the_answers():
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


def test_a_lone_digit_is_answered_unless_it_is_surely_none():
    found = answers(scores((0.5, 0.4), (0.5, 0.7), (0.5, 1.2), (0, 0)), temperature=0.1)
    assert of_lone_digits(found, tiny_model()) is found, "a network that rejects nothing"
    lone = of_lone_digits(found, replace(rejecting(0, 1, 10), temperature=0.1))
    assert found.label.tolist() == [3, -1, -1, -1]
    assert lone.label.tolist() == [3, 3, -1, -1]
    assert lone.p[1] == pytest.approx(1 / (1 + 9 * np.exp(-5) + np.exp(2)), rel=1e-3)
    np.testing.assert_allclose(lone.margin[:3], [0.1, -0.2, 0.7], atol=1e-5)


# --- policies ---


def told(p, label):
    """Answers of a given probability."""
    margin, score = np.full(len(p), 0.1, np.float32), np.ones((len(p), 10), np.float32)
    return Answers(np.array(label), score, margin, np.array(p, np.float32))


def test_reasons():
    score = np.zeros((5, 11), np.float32)
    score[:4, 3] = 0.8, 0.8, 0.8, 0.7
    score[1, 5] = 0.79  # a digit beside it
    score[2:4, 10] = 0.79, 0.8  # no digit beside it
    found = answers(score, temperature=0.05)
    policy = Policy(min_p=0.9)
    reasons = [policy.reason(found, index) for index in range(5)]
    assert reasons == [None, "two answers", "not a digit", "not a digit", "no response"]
    assert Policy(min_p=0.0).reason(found, 1) is None
    with pytest.raises(UsageError, match="expected a probability"):
        Policy(min_p=1.5)


def test_a_row_counts_one_error_more_than_were_seen():
    found = told([0.99, 0.9, 0.8, 0.6, 0.0], [1, 2, 3, 4, -1])
    row = risk_row(0.7, found, np.array([1, 2, 9, 4, 5]), told([0.75, 0.3], [1, 1]))
    assert row == {"p": 0.7, "answered": 3, "errors": 1, "coverage": 0.6, "error": 2 / 4, "marks": 0.5}


def test_thresholds_fall_with_the_error_that_is_allowed():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.5, 1, 4000)
    label = np.where(rng.random(4000) < (1 - p) / 20, 1, 0)
    table = risk_table(told(p.tolist(), label.tolist()), np.zeros(4000, int))
    model = replace(tiny_model(), card={"rejection": {"table": table}})
    allowed = [0.008, 0.01, 0.02]
    found = [threshold_for(model, error) for error in allowed]
    assert found == sorted(found, reverse=True)
    for threshold, error in zip(found, allowed, strict=True):
        assert (label[p >= threshold] != 0).mean() <= error
    at = max(row["p"] for row in table if row["coverage"] >= 0.9)
    assert np.mean(p >= at) == pytest.approx(0.9, abs=0.01)
    assert max(row["p"] for row in table if row["coverage"] >= 1) <= p.min()


def test_errors_that_the_table_does_not_bear_cannot_be_asked_for():
    model = replace(tiny_model(), card={"rejection": {"table": [{"p": 0.9, "error": 0.00613}]}})
    assert threshold_for(model, 0.0062) == 0.9
    no_fewer = r"max_error 0.1%: model tiny can promise no fewer .* than 0.62%; give 0.62% or more"
    for of, error, words in (
        (model, 0.001, no_fewer), (tiny_model(), 0.01, "no table"), (model, 0.0, "a share between"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=words):
            threshold_for(of, error)


def test_the_reader_takes_its_thresholds_from_the_card():
    table = [{"p": 0.2, "error": 0.05}, {"p": 0.99, "error": 0.01}]
    card = {"reading": {"min_p": 0.3}, "rejection": {"table": table}}
    model = replace(from_digits(tiny_model(), seed=0, inner=4), card=card)
    digits = replace(tiny_model(), card=card)
    for options, p in (
        ({}, 0.3), ({"min_p": 0.1}, 0.1), ({"max_error": 0.01}, 0.99), ({"max_error": 0.06}, 0.3),
    ):  # fmt: skip
        assert Reader(model, **options).policy.min_p == p
    for of, options, words in (
        (model, {"max_error": 0.05, "min_p": 0.2}, "give one of them"),
        (model, {"max_error": 0.005}, "give 1% or more"),
        (digits, {"max_error": 0.05}, "tiny reads digits; leave it out"),
    ):
        with pytest.raises(UsageError, match=words):
            Reader(of, **options)
    assert Policy.of(digits, max_error=0.05).min_p == 0.3


def test_a_calibrated_model_knows_its_risks():
    images = np.concatenate([digits_of("0123456789")] * 3)
    model = calibrated(tiny_model(), Mix.of(images, np.tile(np.arange(10), 3)))
    rejection = model.card["rejection"]
    assert rejection["digits"] == rejection["marks"] == 30
    assert rejection["table"][0]["errors"] == 0
    assert rejection["table"][0]["error"] == pytest.approx(1 / 31, abs=1e-5)
    assert Policy.of(model, max_error=0.05).min_p >= rejection["table"][0]["p"]


def test_shares():
    assert [parse_share(words) for words in ("0.1%", " 2 %", "0.005")] == pytest.approx([0.001, 0.02, 0.005])
    for words in ("", "much", "-1%", "200%", "1% or so"):
        with pytest.raises(UsageError, match="expected a share"):
            parse_share(words)
