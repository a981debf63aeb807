"""Settings of gradient learning: what makes no sense is refused in one line."""

import inspect
import math
import subprocess
import sys
from dataclasses import fields, replace

import pytest

from neocog.cli.learn import train
from neocog.errors import UsageError
from neocog.learning.settings import PRESETS, USUAL, Settings


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"seed": -1}, "seed -1, expected 0 to 4294967295"),
        ({"seed": 2**32}, "seed 4294967296, expected"),
        ({"batch": 1}, "expected 2 or more"),
        ({"epochs": 0}, "above 0"),
        ({"epochs": math.inf}, "finite"),
        ({"minutes": math.nan}, "above 0"),
        ({"rate": math.inf}, "finite"),
        ({"lean": math.nan}, "lean nan, expected a finite number"),
        ({"lean": math.inf}, "finite"),
        ({"marks": math.nan}, "marks nan, expected a share"),
        ({"marks": -0.1}, "marks -0.1"),
        ({"variants": 1.5}, "variants 1.5"),
        ({"varied": -1}, "varied -1"),
        ({"marks": 0.5, "variants": 0.5}, "256 marks and 256 variants, expected a digit"),
        ({"batch": 2, "marks": 0.3, "variants": 0.3}, "1 marks and 1 variants, expected a digit"),
    ],
)
def test_settings_that_make_no_sense(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        replace(Settings(), **wrong).check()  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "right", [{}, {"marks": 0, "variants": 0}, {"batch": 2, "marks": 0.3, "variants": 0}, {"last": True}]
)
def test_settings_that_do(right: dict[str, float]) -> None:
    replace(Settings(), **right).check()  # type: ignore[arg-type]


def test_the_command_has_no_defaults_of_its_own() -> None:
    told = inspect.signature(train).parameters
    usual = Settings()
    for name in {field.name for field in fields(Settings)} & set(told) - {"augmentation"}:
        assert told[name].default == getattr(usual, name), name
    assert told["augmentation"].default == USUAL
    assert usual.augmentation == PRESETS[USUAL]


def test_settings_need_no_pytorch() -> None:
    code = "import sys, neocog.cli, neocog.learning.settings; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
