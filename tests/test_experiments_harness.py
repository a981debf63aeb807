"""Measurements in a process of their own, begun again without what hangs or breaks it."""

import os
import time
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from experiments.harness import run
from experiments.harness.attended import Watch, attend, faults_of
from neocog.cli import app
from neocog.errors import DeviceError, NeocogError

PARTS = ("good", "hangs", "dies", "spoils", "good too")


def work(*, watch: Watch, earlier: dict[str, Any], seconds: float, save: Any) -> None:
    """Do the parts that are not done, as a measurement does."""
    result = dict(earlier)
    for part in PARTS:
        if part in result or watch.why_not(part):
            continue
        watch.doing(part, 0.5)
        if part == "hangs":
            time.sleep(60)
        if part == "dies":
            os._exit(9)
        if part == "spoils":
            watch.check(part, lambda: 1 // 0)
        result[part] = True
        save(result)


def refused(**asked: Any) -> None:
    raise DeviceError("no device")


def never(**asked: Any) -> None:
    raise RuntimeError


def test_what_breaks_is_left_out_and_what_is_there_stays() -> None:
    saved: list[Any] = []
    logged: list[str] = []
    found = attend(work, {}, seconds=60, save=saved.append, log=logged.append)
    assert {"good", "good too"} == set(found) - {"broken"}
    assert found["broken"] == {
        "hangs": "no result within 0.5 seconds",
        "dies": "the process ended with code 9",
        "spoils": "ZeroDivisionError: integer division or modulo by zero",
    }
    assert faults_of(found)[0] == "hangs: no result within 0.5 seconds"
    assert saved[-1] == found
    assert len(logged) == 3


@pytest.mark.parametrize("name", run.NAMES)
def test_experiments_take_what_the_other_process_gives(name: str) -> None:
    measure = run.of(name).measure
    assert {"watch", "earlier", "seconds", "save"} <= signature(measure).parameters.keys()


def test_errors_of_ours_come_through() -> None:
    with pytest.raises(DeviceError, match="no device"):
        attend(refused, {}, seconds=60, save=str, log=str)


def test_what_never_begins_is_not_tried_for_ever(capfd: pytest.CaptureFixture[str]) -> None:
    saved: list[Any] = []
    with pytest.raises(NeocogError, match=r"nothing was measured: start: .* code 1"):
        attend(never, {}, seconds=60, save=saved.append, log=str)
    assert len(saved) == 2
    assert capfd.readouterr().err.count("process failed: RuntimeError") == 2


def test_two_of_a_kind_leave_out_the_others() -> None:
    watch = Watch({"a: 128x64": "hung", "b: 128x64": "hung too", "c: 64x64": "died"})
    assert watch.why_not("a: 128x64") == "hung"
    assert watch.why_not("d: 128x64", ": 128x64") == "hung (elsewhere)"
    assert watch.why_not("d: 64x64", ": 64x64") is None
    watch.doing("nobody listens")
    with pytest.raises(ZeroDivisionError):
        watch.check("a", lambda: 1 // 0)


def test_without_the_source_a_line_says_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neocog.cli.bench._SOURCE", tmp_path)
    for words in (["bench", "slayer", "--device", "cpu"], ["bench", "--help"]):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 2
        assert "need a clone" in done.stderr
        assert done.stderr.count("\n") == 1
