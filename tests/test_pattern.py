"""A pattern chooses among the ways to cut a line; it makes up no digit."""

import pytest

from neocog.errors import UsageError
from neocog.reading.policy import Pattern
from neocog.reading.reader import Reader
from tests.support import page, tiny_model


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
