"""Settings of gradient learning: what makes no sense is refused in one line."""

import inspect
from dataclasses import fields, replace
from math import inf, nan

import pytest

from neocog.cli.learn import train
from neocog.errors import UsageError
from neocog.learning.settings import PRESETS, USUAL, Settings


@pytest.mark.parametrize(("wrong", "message"), [
    ({"seed": -1}, "seed -1, expected 0 to 4294967295"), ({"seed": 2**32}, "seed 4294967296, expected"),
    ({"batch": 1}, "expected 2 or more"), ({"epochs": 0}, "above 0"), ({"epochs": inf}, "finite"),
    ({"minutes": nan}, "above 0"), ({"rate": inf}, "finite"), ({"lean": nan}, "lean nan, expected a finite"),
    ({"lean": inf}, "finite"), ({"marks": nan}, "marks nan, expected a share"),
    ({"marks": -0.1}, "marks -0.1"), ({"variants": 1.5}, "variants 1.5"), ({"varied": -1}, "varied -1"),
    ({"marks": 0.5, "variants": 0.5}, "256 marks and 256 variants, expected a digit"),
    ({"batch": 2, "marks": 0.3, "variants": 0.3}, "1 marks and 1 variants, expected a digit"),
])  # fmt: skip
def test_settings_that_make_no_sense(wrong, message):
    with pytest.raises(UsageError, match=message) as refused:
        replace(Settings(), **wrong).check()
    assert "\n" not in str(refused.value)


def test_settings_that_do():
    for right in ({}, {"marks": 0, "variants": 0}, {"batch": 2, "marks": 0.3, "variants": 0}, {"last": True}):
        replace(Settings(), **right).check()


def test_the_command_has_no_defaults_of_its_own():
    told, usual = inspect.signature(train).parameters, Settings()
    for name in {field.name for field in fields(Settings)} & set(told) - {"augmentation"}:
        assert told[name].default == getattr(usual, name), name
    assert told["augmentation"].default == USUAL
    assert usual.augmentation == PRESETS[USUAL]
