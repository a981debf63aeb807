"""Settings of gradient learning: what makes no sense is refused in one line."""

import inspect
import math
import subprocess
import sys
from argparse import Namespace
from dataclasses import fields, replace

import pytest

from experiments.learning.finetune import Job, settings_of
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
        ({"precision": "int8"}, "expected fp32"),
        ({"lean": math.nan}, "lean nan, expected a finite number"),
        ({"lean": math.inf}, "finite"),
        ({"marks": math.nan}, "marks nan, expected a share"),
        ({"marks": -0.1}, "marks -0.1"),
        ({"variants": 1.5}, "variants 1.5"),
        ({"soft_share": 2}, "soft_share 2"),
        ({"guided": 1.5}, "guided 1.5, expected a share"),
        ({"heat": 0.0}, "heat 0.0, expected a number above 0"),
        ({"varied": -1}, "varied -1"),
        ({"warm_up": 1.0}, "warm_up 1.0, expected a share, 0 to below 1"),
        ({"marks": 0.5, "variants": 0.5}, "256 marks and 256 variants, expected a digit"),
        ({"batch": 2, "marks": 0.3, "variants": 0.3}, "1 marks and 1 variants, expected a digit"),
    ],
)
def test_settings_that_make_no_sense(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        replace(Settings(), **wrong).check()  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "right",
    [{}, {"marks": 0, "variants": 0}, {"batch": 2, "marks": 0.3, "variants": 0}, {"last": True}],
)
def test_settings_that_do(right: dict[str, float]) -> None:
    replace(Settings(), **right).check()  # type: ignore[arg-type]


def test_the_command_has_no_defaults_of_its_own() -> None:
    told = inspect.signature(train).parameters
    usual = Settings()
    for name in {field.name for field in fields(Settings)} & set(told) - {"augmentation"}:
        if name != "precision":  # of the file there, of the products here
            assert told[name].default == getattr(usual, name), name
    assert told["augmentation"].default == USUAL
    assert usual.augmentation == PRESETS[USUAL]


def test_settings_need_no_pytorch() -> None:
    code = "import sys, neocog.cli, neocog.learning.settings; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def job_settings(changes: str) -> Settings:
    usual = Settings()
    own = {name: getattr(usual, name) for name in Settings.__slots__}
    args = Namespace(**own | {"cycle": None, "minutes": 8.0, "compile": False})
    args.augmentation = "scans"
    settings: Settings = settings_of(Job("4/6/10", 3, changes), args)
    return settings


def test_a_benchmark_job_names_settings() -> None:
    settings = job_settings("last=0,minutes=5,batch=64,lean=1,elastic=2,precision=fp32")
    assert settings.last is False
    assert job_settings("last=1").last is True
    assert (settings.minutes, settings.batch, settings.lean) == (5.0, 64, 1.0)
    assert (settings.seed, settings.precision) == (3, "fp32")
    assert settings.augmentation == replace(PRESETS["scans"], elastic=2.0)
    assert job_settings("minutes=none,augmentation=pages").augmentation == PRESETS["pages"]
    assert job_settings("minutes=none").minutes is None
    assert job_settings("").minutes == 8.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ("last=no", "last=no, expected 0 or 1"),
        ("batch=1e3", "batch=1e3, expected int"),
        ("minutes=long", "minutes=long, expected float"),
        ("minutes=", "minutes=, expected float"),
        ("dropout=0.1", "augmentation 'dropout=0.1'"),
        ("check=1", "augmentation 'check=1'"),
        ("warm_up=1", "warm_up 1.0"),
    ],
)
def test_a_benchmark_job_that_makes_no_sense_is_refused(changes: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        job_settings(changes)
