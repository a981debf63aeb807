"""The table by hands: rows of each model, those of others kept, and its views."""

import numpy as np

from experiments import tables
from experiments.accuracy.hands import kept_apart, leading, measure
from neocog.learning.datasets import Digits
from tests.support import digits_of, tiny_model
from tests.test_cli import write_idx


def test_a_model_is_measured_on_each_set(tmp_path):
    path = tmp_path / "tiny.safetensors"
    saved = tiny_model().save(path)
    digits = Digits(digits_of("0123456789"), np.arange(10), "d")
    sets = {"a, kept apart": digits, "b": digits[:5]}
    rows = measure(str(path), sets=sets, gpu=False)
    assert [(row["model"], row["set"], row["digits"]) for row in rows] == [
        (saved.id, "a, kept apart", 10),
        (saved.id, "b", 5),
    ]
    assert all(0 <= row["right"] <= 1 - row["refused"] for row in rows)


def test_sets_kept_apart_are_those_at_hand(tmp_path):
    (tmp_path / "mnist").mkdir()
    write_idx(tmp_path / "mnist", "train", 120)
    assert {name: len(own) for name, own in kept_apart(tmp_path).items()} == {"mnist, kept apart": 10}


def test_leading_mistakes():
    confusion = np.zeros((10, 11), np.int64)
    confusion[4, 9], confusion[1, 7], confusion[3, 3], confusion[5, 10] = 2, 5, 90, 40
    assert leading(confusion) == "1 as 7: 5, 4 as 9: 2"


def test_views_of_the_table():
    def row(model, what, name, right):
        return {"model": model, "what": what, "set": name, "digits": 9, "right": right,
                "refused": 0.01, "confused": ""}  # fmt: skip

    rows = [row("neocog@0", "mnist-alone", "x", 0.5), row("neocog@1", "ships", "x", 0.9),
            row("neocog@1", "ships", "y", 0.8), row("neocog@2", "seed", "x", 0.7),
            row("neocog@3", "without-styles", "x", 0.6),
            row("neocog-small@4", "without-styles", "x", 0.1)]  # fmt: skip
    result = {"rows": rows, "columns": {}}
    short = tables.hands_short(result)
    assert list(short["columns"].values()) == [
        "set", "digits", "MNIST alone neocog@0", "without styles neocog@3",
        "without styles neocog-small@4", "neocog@1",
    ]  # fmt: skip
    assert short["rows"][0]["neocog@1"] == "90.00% (1.00%)"
