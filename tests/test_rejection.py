"""Which answers are rejected, why, and how a threshold is taken from a model's card."""

from dataclasses import replace

import numpy as np
import pytest

from neocog.errors import UsageError
from neocog.learning.calibrate import calibrated, risk_row, risk_table
from neocog.learning.mix import Mix
from neocog.network.decision import Answers, answers
from neocog.reading.policy import Policy, parse_share, threshold_for
from neocog.reading.reader import Reader
from tests.support import digits_of, from_digits, tiny_model


def told(p, label):
    """Answers of a given probability."""
    margin, score = np.full(len(p), 0.1, np.float32), np.ones((len(p), 10), np.float32)
    return Answers(np.array(label), score, margin, np.array(p, np.float32))


def test_reasons():
    score = np.zeros((5, 11), np.float32)
    score[0, 3] = 0.8
    score[1, [3, 5]] = 0.8, 0.79  # a digit beside it
    score[2, [3, 10]] = 0.8, 0.79  # no digit beside it
    score[3, [3, 10]] = 0.7, 0.8
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


def with_table(*rows):
    card = {"reading": {"min_p": 0.3}, "rejection": {"table": [*rows]}}
    return replace(from_digits(tiny_model(), seed=0, inner=4), card=card)


def test_errors_that_the_table_does_not_bear_cannot_be_asked_for():
    model = replace(tiny_model(), card={"rejection": {"table": [{"p": 0.9, "error": 0.00613}]}})
    assert threshold_for(model, 0.0062) == 0.9
    with pytest.raises(
        UsageError, match=r"max_error 0.1%: model tiny can promise no fewer .* than 0.62%; give 0.62% or more"
    ):
        threshold_for(model, 0.001)
    with pytest.raises(UsageError, match="no table"):
        threshold_for(tiny_model(), 0.01)
    with pytest.raises(UsageError, match="a share between"):
        threshold_for(model, 0.0)


def test_the_reader_takes_its_thresholds_from_the_card():
    model = with_table({"p": 0.2, "error": 0.05}, {"p": 0.99, "error": 0.01})
    assert Reader(model).policy.min_p == 0.3
    assert Reader(model, min_p=0.1).policy.min_p == 0.1
    assert Reader(model, max_error=0.01).policy.min_p == 0.99
    assert Reader(model, max_error=0.06).policy.min_p == 0.3
    with pytest.raises(UsageError, match="give one of them"):
        Reader(model, max_error=0.05, min_p=0.2)
    with pytest.raises(UsageError, match="give 1% or more"):
        Reader(model, max_error=0.005)
    digits = replace(tiny_model(), card=model.card)
    with pytest.raises(UsageError, match="tiny reads digits; leave it out"):
        Reader(digits, max_error=0.05)
    assert Policy.of(digits, max_error=0.05).min_p == 0.3


def test_a_calibrated_model_knows_its_risks():
    images = np.concatenate([digits_of("0123456789")] * 3)
    model = calibrated(tiny_model(), Mix.of(images, np.tile(np.arange(10), 3)))
    rejection = model.card["rejection"]
    assert rejection["digits"] == rejection["marks"] == 30
    assert rejection["table"][0]["errors"] == 0
    assert rejection["table"][0]["error"] == pytest.approx(1 / 31, abs=1e-5)
    assert Policy.of(model, max_error=0.05).min_p >= rejection["table"][0]["p"]


@pytest.mark.parametrize(("words", "share"), [("0.1%", 0.001), (" 2 %", 0.02), ("0.005", 0.005)])
def test_shares(words, share):
    assert parse_share(words) == pytest.approx(share)


@pytest.mark.parametrize("words", ["", "much", "-1%", "200%", "1% or so"])
def test_what_is_no_share(words):
    with pytest.raises(UsageError, match="expected a share"):
        parse_share(words)
