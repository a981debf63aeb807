"""Tilings for few digits are chosen within the whole pass, and what is chosen is what ships."""

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from experiments.gpu import tune
from neocog.cuda import tilings
from neocog.cuda.plan import plan_of
from neocog.cuda.runner import Runner
from neocog.cuda.tilings import TUNED, Shape, Tiling

TILING = Tiling(1, 7, 3, 1, 1, 2, 2, stage=5)


def test_tilings_for_few_digits_are_ordered_by_the_whole_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick, slow = (replace(TILING, depth=depth) for depth in (1, 2))
    step = SimpleNamespace(tilings={8: slow})
    step.tiling = step.tilings.__getitem__
    times = {quick: 0.04, slow: 0.03}

    class Ways:
        def __init__(self, *_: object) -> None: ...

        def spent(self, _late: object) -> float:
            return times[step.tilings[8]]

        def best(self) -> tuple[str, ...]:
            return ("UC1",)

    monkeypatch.setattr(tune, "Launchings", Ways)
    runner = SimpleNamespace(plan=plan_of("default", "fp16"), shelf=SimpleNamespace(step=lambda *_: step))
    tried: list[Any] = [{"tiling": asdict(quick), "us": 4.0}, {"tiling": asdict(slow), "us": 5.0},
             {"tiling": asdict(quick), "failed": "no memory"}]  # fmt: skip
    found = tune.within_pass(cast(Runner, runner), [tried], np.zeros((8, 28, 28)), 1)
    assert found == {"late": ["UC1"], "pass_us": 30.0}
    assert [row.get("pass_us") for row in tried] == [30.0, 40.0, None]
    assert step.tilings == {8: slow}

    files = {"TUNED": TUNED, "RESULTS": tune.RESULTS}
    for name, file in files.items():
        monkeypatch.setattr(tune, name, Path(shutil.copy(file, tmp_path)))
    about = {"model": "m", "precision": "fp16", "batch": 8, "date": "2026-01-31", "commit": "abc"}
    shape = (6, 27, 32, 22, 80, 0)
    tune.ship([{**about, "layer": 1, "shape": shape, "tried": tried},
               {**about, "layer": "all", **found}])  # fmt: skip
    kept = [row for row in json.loads(tune.RESULTS.read_text())["rows"] if row["model"] == "m"]
    assert [(row["layer"], row["pass_us"]) for row in kept] == [(1, 30.0), (1, 40.0), ("all", 30.0)]
    before = json.loads(TUNED.read_text())
    monkeypatch.setattr(tilings, "TUNED", tune.TUNED)
    assert tilings._tuned.__wrapped__()[Shape(*shape)][8] == slow
    after = json.loads(tune.TUNED.read_text())
    assert before.keys() == after.keys()
    assert len(before["rows"]) == len(after["rows"])
