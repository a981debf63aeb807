"""A pattern chooses among the ways to cut a line; it makes up no digit."""

from dataclasses import replace

import numpy as np
import pytest

from neocog.errors import UsageError
from neocog.network.decision import all_scores, answers, of_lone_digits
from neocog.reading.pattern import Pattern
from neocog.reading.reader import Reader
from tests.support import digits_of, page, tiny_model


def test_a_pattern_fills_in_its_signs() -> None:
    pattern = Pattern("##-###")
    assert pattern.digits == 5
    assert pattern.fill("12?45") == "12-?45"
    assert pattern.fill("1234") == "1234"


@pytest.mark.parametrize("form", ["", "--", "20##", "##\n##"])
def test_what_is_no_pattern(form: str) -> None:
    with pytest.raises(UsageError, match="pattern"):
        Pattern(form)


def test_a_reading_of_the_right_length_fits() -> None:
    reading = Reader(tiny_model(), pattern="#.#").read(page("30"))
    assert reading.text == "3.0"
    assert reading.fits is True
    assert reading.to_dict()["fits"] is True


@pytest.mark.parametrize(("form", "written"), [("#####", "30"), ("###", "3071"), ("##", "")])
def test_a_length_that_cannot_be_met_leaves_the_reading(form: str, written: str) -> None:
    plain = Reader(tiny_model()).read(page(written))
    reading = Reader(tiny_model(), pattern=form).read(page(written))
    assert reading.text == plain.text
    assert [digit.box for digit in reading.digits] == [digit.box for digit in plain.digits]
    assert reading.fits is False
    assert "fits" not in plain.to_dict()


def test_the_score_of_no_digit_follows_from_the_answers() -> None:
    labels = np.append(np.arange(8), [10, 10])
    model = replace(tiny_model(), labels=labels, temperature=0.05)
    rng = np.random.default_rng(1)
    score = rng.uniform(0.1, 1, (40, 11)).astype(np.float32)
    score[0] = 0
    found = answers(score, temperature=0.05)
    close = found.p < 0.999  # a sure answer hardly tells how unlikely the others are
    np.testing.assert_allclose(all_scores(found, model)[close][1:], score[close][1:], atol=0.02)


def test_a_network_that_rejects_nothing_is_not_weighed() -> None:
    found = Reader(tiny_model()).engine.recognise(digits_of("31"))
    assert of_lone_digits(found, tiny_model()) is found


def test_a_network_that_leans_towards_digits_is_set_upright() -> None:
    model = replace(tiny_model(), labels=np.array([0, 1, 10]), temperature=0.1)
    score = np.zeros((1, 11), np.float32)
    score[0, [3, 10]] = 0.5, 0.45
    leaning = replace(model, card={"finetuning": {"lean": 2.0}})
    upright = all_scores(answers(score, temperature=0.1), leaning)
    assert upright[0, 10] - upright[0, 3] == pytest.approx(0.15, abs=1e-5)


def test_a_lone_digit_is_answered_unless_it_is_surely_none() -> None:
    model = replace(tiny_model(), labels=np.array([0, 1, 10]), temperature=0.1)
    score = np.zeros((4, 11), np.float32)
    score[:, [3, 10]] = [(0.5, 0.4), (0.5, 0.7), (0.5, 1.2), (0, 0)]
    found = answers(score, temperature=0.1)
    lone = of_lone_digits(found, model)
    assert found.label.tolist() == [3, -1, -1, -1]
    assert lone.label.tolist() == [3, 3, -1, -1]
    assert lone.p[1] == pytest.approx(1 / (1 + 9 * np.exp(-5) + np.exp(2)), rel=1e-3)
    np.testing.assert_allclose(lone.margin[:3], [0.1, -0.2, 0.7], atol=1e-5)
