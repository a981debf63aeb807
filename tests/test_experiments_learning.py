"""The command that learns the shipped models: pools drawn once, a guide, a run that goes on."""

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: neocog[train]")

from experiments.learning import finetune  # noqa: E402
from experiments.learning.guide_network import Convolutional, save_network  # noqa: E402
from experiments.learning.pools import load_pools  # noqa: E402
from tests.test_cli import write_idx  # noqa: E402


@pytest.mark.slow
def test_a_network_is_learned_from_pools_and_a_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finetune, "_VARIANTS", 20)
    (tmp_path / "mnist").mkdir()
    write_idx(tmp_path / "mnist", "train", 60)
    save_network(Convolutional(11, 4), tmp_path / "guide.safetensors")

    def run(*words: object) -> int:
        given = [tmp_path, "-o", tmp_path / "out", "--device", "cpu", "--batch", 20, *words]
        monkeypatch.setattr("sys.argv", ["finetune", *map(str, given)])
        return finetune.main()

    pools, guide = tmp_path / "pools.npz", tmp_path / "guide.safetensors"
    assert run("--draw", pools, "--pool", 30, "--legible", guide, "--cores", 1) == 0
    assert 0 < len(load_pools(pools).variants) <= 30
    job = ["--jobs", "4/6/10:0", "--reject", 1, "--minutes", 0.01, "--pools", pools]
    assert run(*job, "--guide", guide, "--guided", 0.5) == 0
    folder = tmp_path / "out" / "4-6-10-seed0"
    learned = (folder / "model.safetensors").read_bytes()
    result = json.loads((folder / "result.json").read_text())
    assert 0 <= result["validation_none,blur=2"]["right"] <= 1
    assert run(*job, "--guide", guide, "--guided", 0.5) == 0
    assert (folder / "model.safetensors").read_bytes() == learned
    again = ["--jobs", f"4/6/10:1:start={folder / 'model.safetensors'}", "--minutes", 0.01]
    again += ["--pools", pools, "--guide", folder / "model.safetensors", "--guided", 0.5]
    assert run(*again, "--agreeing") == 0  # a model guides what goes on from it
    assert run(*job, "--reject", 2) == 2  # the start that is kept is another
