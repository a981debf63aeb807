"""neocog beside onnxruntime: compared first, then timed."""

import json

import numpy as np
import pytest

from experiments.network import compare as comparing
from experiments.network.compare import Comparison, compare
from neocog.errors import NeocogError
from tests.support import run, tiny_model


def test_neocog_alone():
    result = compare(tiny_model(), batch=2, rounds=3)
    assert list(result.passes) == ["neocog"]
    assert (result.ratios(), result.difference) == ({}, None)
    json.dumps(result.to_dict())
    assert len(list(result.lines())) == 3


def test_ratio_is_theirs_by_ours():
    passes = {"neocog": np.array([2.0, 2.0]), "onnxruntime": np.array([3.0, 3.0])}
    result = Comparison("m", 2, 1, passes, 1e-6)
    assert result.to_dict()["ratio"] == 1.5
    assert result.to_dict()["ms_per_digit"] == {"neocog": 1.0, "onnxruntime": 1.5}
    assert list(result.lines())[-1] == "neocog is 1.50 times as fast as onnxruntime"


def test_beside_onnxruntime(tmp_path, monkeypatch):
    pytest.importorskip("onnx", reason="needs neocog[onnx]")
    pytest.importorskip("onnxruntime", reason="needs neocog[onnx]")
    tiny_model().save(tmp_path / "tiny.safetensors")
    words = ["bench", "network", "--peers", "onnxruntime", "--batch", "2", "--rounds", "2"]
    words += ["--model", str(tmp_path / "tiny.safetensors")]
    facts = json.loads(run(*words, "--json").stdout.splitlines()[-1])
    assert set(facts["ms_per_digit"]) == {"neocog", "onnxruntime"}
    assert facts["ratio"] > 0
    assert facts["difference"] <= comparing.TOLERANCE
    assert "onnxruntime" in run(*words).stdout
    monkeypatch.setattr(comparing, "TOLERANCE", -1.0)
    with pytest.raises(NeocogError, match="nothing was timed"):
        compare(tiny_model(), batch=2, rounds=2, peers=["onnxruntime"])
