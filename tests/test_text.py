"""JSON that every program reads: no NaN, no infinity, wherever it is written."""

import json
from pathlib import Path

import numpy as np

import neocog
from neocog.text import to_json


def test_numbers_that_are_not_finite_are_null() -> None:
    value = {"a": [1.5, np.nan, (np.inf, None)], "b": {"c": -np.inf, "d": np.float64("nan")}}
    assert json.loads(to_json(value)) == {"a": [1.5, None, [None, None]], "b": {"c": None, "d": None}}
    assert to_json({"a": 1}, indent=1) == json.dumps({"a": 1}, indent=1)
    assert to_json({float("nan"): 1}) == '{"nan": 1}'


def test_nothing_writes_json_on_its_own() -> None:
    """What may write it is this one function, and the model file, which refuses such numbers."""
    package = Path(neocog.__file__).parent
    own = [path for path in package.rglob("*.py") if "json.dump" in path.read_text()]
    assert {path.name for path in own} == {"text.py", "model.py"}
