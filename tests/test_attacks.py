"""Hundreds of attacks on the commands, with made files, names, surroundings and signals."""

import importlib
import re
import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("processes are watched through /proc", allow_module_level=True)

from experiments.attacks.run import attacks, run

QUICK = list(attacks(quick=True))
SLOW = [name for name in attacks() if name not in QUICK]
DOCS = Path(__file__).resolve().parent.parent / "docs"


@pytest.mark.parametrize("name", QUICK)
def test_damaged_files(name: str, model: str) -> None:
    outcome = run(name, attacks(quick=True)[name], model)
    assert outcome.tried >= 50
    assert not outcome.broken


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_bombs_surroundings_and_signals(name: str, model: str) -> None:
    outcome = run(name, attacks()[name], model)
    assert outcome.tried >= 5
    assert not outcome.broken


@pytest.mark.parametrize("page", ["security.md", "serve.md"])
def test_the_page_tells_the_bounds_that_hold(page: str) -> None:
    text = (DOCS / page).read_text()
    rows = re.findall(r"^\| .* \| ([\d ]+) \| `([\w.]+)` \|$", text, re.MULTILINE)
    assert len(rows) >= 8
    for value, place in rows:
        module, _, name = place.rpartition(".")
        constant = getattr(importlib.import_module(module), name)
        assert int(value.replace(" ", "")) == constant, place
