"""Cards from measurements: written into the file, the model itself untouched."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments import tables
from experiments.accuracy.cards import merged, result, write_card
from neocog.evaluation.report import find_sets
from neocog.network.model import load_model
from tests.support import save_page, tiny_model
from tests.test_cli import write_idx


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    (folder / "mnist").mkdir()
    (folder / "photos").mkdir()
    for prefix in ("train", "t10k"):
        write_idx(folder / "mnist", prefix, 120)
    save_page(folder / "photos" / "a.png", "12")
    (folder / "photos" / "labels.csv").write_text("file,text\na.png,13\n")
    return folder


def test_a_card_is_written(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tiny.safetensors"
    rejection = {"table": [{"p": 0.9, "error": 0.1}]}
    card = {"digits": 10, "rejection": rejection, "command": "old"}
    replace(tiny_model(), card=card).save(path)
    sets = find_sets(data, limit=20)
    saved = write_card(path, sets, device="cpu", limit=10, reports=tmp_path / "r")
    found = load_model(path)
    assert found.id == saved.id
    assert found.card == json.loads(json.dumps(saved.card))
    assert found.card["rejection"] == rejection  # what others wrote stays
    assert found.card["command"] == card["command"]
    assert found.card["accuracy"]["test"] == 1.0
    assert found.card["accuracy"]["validation"] == 1.0
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
    assert "| 16/20/30/10 | " in shown
    assert "100.00%" in shown
    assert "MiB" in shown
    assert "occlusion" in tables.table("models-robustness")
    assert "99.0%" in tables.table("models-risk")
