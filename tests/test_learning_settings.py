"""Settings of gradient learning: what makes no sense is refused in one line."""

import math
from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="needs PyTorch: neocog[train]")

from neocog.errors import UsageError
from neocog.learning.settings import Settings


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"seed": -1}, "seed -1; wanted 0 to 4294967295"),
        ({"seed": 2**32}, "seed 4294967296; wanted"),
        ({"batch": 1}, "wanted 2 or more"),
        ({"epochs": 0}, "above 0"),
        ({"epochs": math.inf}, "finite"),
        ({"minutes": math.nan}, "above 0"),
        ({"rate": math.inf}, "finite"),
        ({"precision": "int8"}, "wanted fp32"),
        ({"lean": math.nan}, "lean nan; wanted a finite number"),
        ({"lean": math.inf}, "finite"),
        ({"marks": math.nan}, "marks nan; wanted a share"),
        ({"marks": -0.1}, "marks -0.1"),
        ({"variants": 1.5}, "variants 1.5"),
        ({"soft_share": 2}, "soft_share 2"),
        ({"dropout": 1.0}, "dropout 1.0; wanted a share, 0 to below 1"),
        ({"warm_up": 1.0}, "warm_up 1.0"),
        ({"marks": 0.5, "variants": 0.5}, "256 marks and 256 variants; wanted a digit"),
        ({"batch": 2, "marks": 0.3, "variants": 0.3}, "1 marks and 1 variants; wanted a digit"),
        ({"last": True, "patience": 3}, "last and patience 3"),
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
