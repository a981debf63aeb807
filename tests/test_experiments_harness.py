"""Experiments: what fails is noted, a broken device ends a run, a wheel says where they are."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments.harness.run import tried
from neocog.cli import app
from neocog.errors import DeviceError


def test_what_fails_is_noted_while_the_device_works() -> None:
    assert tried(lambda: {"us": 1.0}, lambda: 1 / 0) == {"us": 1.0}
    assert tried(lambda: 1 / 0, lambda: None) == {"failed": "ZeroDivisionError: division by zero"}
    with pytest.raises(DeviceError, match="stopped working: ZeroDivisionError"):
        tried(lambda: 1 / 0, lambda: 1 / 0)


def test_without_the_source_a_line_says_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neocog.cli.bench._SOURCE", tmp_path)
    for words in (["bench", "slayer", "--device", "cpu"], ["bench", "--help"]):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 2
        assert "need a clone" in done.stderr
        assert done.stderr.count("\n") == 1
