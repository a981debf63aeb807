"""Cards and tables of accuracy from measurements: the model itself untouched, rows of others kept."""

import json
from dataclasses import replace

import numpy as np
import pytest

from experiments import tables
from experiments.accuracy.cards import merged, result, write_card
from experiments.accuracy.hands import measure, sets_of
from neocog.evaluation.report import find_sets
from neocog.learning.datasets import Digits
from neocog.network.model import load_model
from tests.support import digits_of, save_page, tiny_model
from tests.test_cli import write_idx


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    (folder / "mnist").mkdir()
    (folder / "photos").mkdir()
    for prefix in ("train", "t10k"):
        write_idx(folder / "mnist", prefix, 120)
    save_page(folder / "photos" / "a.png", "12")
    (folder / "photos" / "labels.csv").write_text("file,text\na.png,13\n")
    return folder


def test_a_card_is_written(data, tmp_path, monkeypatch):
    path = tmp_path / "tiny.safetensors"
    card = {"digits": 10, "rejection": {"table": [{"p": 0.9, "error": 0.1}]}, "command": "old"}
    replace(tiny_model(), card=card).save(path)
    saved = write_card(path, find_sets(data, limit=20), device="cpu", limit=10, reports=tmp_path / "r")
    found = load_model(path)
    assert found.id == saved.id
    assert found.card == json.loads(json.dumps(saved.card))
    assert found.card.items() >= {key: card[key] for key in ("rejection", "command")}.items()  # others' stays
    assert found.card["accuracy"]["test"] == found.card["accuracy"]["validation"] == 1.0
    assert np.array(found.card["confusion"]).trace() == 20
    assert set(found.card["robustness"]) >= {"noise", "background", "mean"}
    assert found.card["risk_coverage"][0]["coverage"] == 1.0
    assert found.card["pictures"]["photos"]["cer"] == 0.5
    assert (tmp_path / "r" / "tiny" / "report.html").is_file()
    for got, want in zip(found.s, tiny_model().s, strict=True):
        np.testing.assert_array_equal(got.reference, want.reference.astype(np.float16))

    row = result(found, path.stat().st_size)
    other = tmp_path / "accuracy" / "results" / "models.json"
    other.parent.mkdir(parents=True)
    other.write_text(json.dumps({"rows": [row | {"name": "a", "mnist": 0.5}, row | {"mnist": 0}]}))
    rows = merged(other, [row])
    assert [(own["name"], own["mnist"]) for own in rows] == [("a", 0.5), ("tiny", 1.0)]
    monkeypatch.setattr(tables, "FOLDER", tmp_path)
    other.write_text(json.dumps({"command": "c", "columns": {}, "rows": rows}))
    shown = tables.table("models")
    assert all(word in shown for word in ("| 16/20/30/10 | ", "100.00%", "MiB"))
    assert "occlusion" in tables.table("models-robustness")
    assert "99.0%" in tables.table("models-risk")


def test_a_model_is_measured_on_each_set_by_hands(data, tmp_path):
    apart = sets_of(data, validation=True)
    assert {name: len(own) for name, own in apart.items()} == {"mnist, kept apart": 10}
    saved = tiny_model().save(tmp_path / "tiny.safetensors")
    wrong = Digits(digits_of("4411"), np.array([9, 9, 7, 1]), "d")
    rows = measure(str(tmp_path / "tiny.safetensors"), sets={**apart, "b": wrong}, gpu=False)
    assert [(r["model"], r["set"], r["digits"]) for r in rows] == [
        (saved.id, "mnist, kept apart", 10), (saved.id, "b", 4)]  # fmt: skip
    assert (rows[0]["right"], rows[1]["right"]) == (1.0, 0.25)
    assert rows[1]["confused"] == "9 as 4: 2, 7 as 1: 1"


def test_views_of_the_table_of_hands():
    def row(model, what, name, right):
        return {"model": model, "what": what, "set": name, "digits": 9, "right": right,
                "refused": 0.01, "confused": ""}  # fmt: skip

    rows = [row("neocog@0", "mnist-alone", "x", 0.5), row("neocog@1", "ships", "x", 0.9),
            row("neocog@1", "ships", "y", 0.8), row("neocog@2", "seed", "x", 0.7),
            row("neocog@3", "without-styles", "x", 0.6)]  # fmt: skip
    short = tables.hands_short({"rows": rows, "columns": {}})
    heads = ["set", "digits", "MNIST alone neocog@0", "without styles neocog@3", "neocog@1"]
    assert list(short["columns"].values()) == heads
    assert short["rows"][0]["neocog@1"] == "90.00% (1.00%)"
