"""Drawn forms: their rules hold until a digit is spoiled; cells are counted by what they should be."""

from pathlib import Path

import numpy as np

from experiments.forms.drawn import layout, texts
from experiments.forms.measure import RULED, count, form_of, spoil
from neocog.reading.records import CellReading, SheetReading

VALID = ["012345", "678901"]


def test_rules_of_a_drawn_layout_hold_until_a_digit_is_spoiled(tmp_path: Path) -> None:
    form = form_of([layout(np.random.default_rng(1), VALID)], tmp_path, ruled=True)
    rng, broken = np.random.default_rng(2), 0
    for _ in range(20):
        said = texts(rng, VALID)
        assert all(rule.holds(*(said[name] for name in rule.names)) for rule in form.layouts[0].rules)
        for rule in RULED:
            spoil(said, str(rng.choice(rule)), rng)
        broken += sum(not rule.holds(*(said[name] for name in rule.names)) for rule in form.layouts[0].rules)
    assert broken >= 20 * len(RULED)
    (free,) = form_of([layout(np.random.default_rng(1), VALID)], tmp_path / "free", ruled=False).layouts
    assert free.rules == ()


def test_cells_are_counted_by_what_they_should_be() -> None:
    said = {"a": "1,50", "b": "2", "total": "3,60", "date": "1", "note": "", "year": "1990"}
    read = {"a": "?", "b": "2", "total": "?", "date": "7", "note": "", "year": "19?0"}
    sheet = SheetReading("1.png", fields={name: CellReading(text) for name, text in read.items()})
    assert count(sheet, said, {"total"}, "replaced") == {
        "replaced": 1, "replaced ?": 1, "beside": 2, "beside ?": 1,
        "cells": 3, "right": 1, "wrong": 1, "doubt": 1,
    }  # fmt: skip
    read["a"] = "1.50"
    sheet = SheetReading("1.png", fields={name: CellReading(text) for name, text in read.items()})
    assert count(sheet, said, {"date"}, "crossed") == {
        "crossed": 1, "cells": 5, "right": 3, "doubt": 2,
    }  # fmt: skip
