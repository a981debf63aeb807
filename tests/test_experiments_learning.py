"""The command that learns a network: pools drawn once, a run that goes on."""

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: neocog[train]")

from experiments.learning import finetune  # noqa: E402
from tests.test_cli import write_idx  # noqa: E402


@pytest.mark.slow
def test_a_network_is_learned_from_pools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finetune, "_VARIANTS", 20)
    (tmp_path / "mnist").mkdir()
    write_idx(tmp_path / "mnist", "train", 60)

    def run(*words: object) -> int:
        given = [tmp_path, "-o", tmp_path / "out", "--device", "cpu", "--batch", 20, *words]
        monkeypatch.setattr("sys.argv", ["finetune", *map(str, given)])
        return finetune.main()

    pools = tmp_path / "pools.npz"
    assert run("--draw", pools, "--pool", 30, "--cores", 1) == 0
    assert len(finetune.load_pools(pools).variants) == 30
    job = ["--jobs", "4/6/10:0", "--reject", 1, "--minutes", 0.01, "--pools", pools]
    assert run(*job) == 0
    folder = tmp_path / "out" / "4-6-10-seed0"
    learned = (folder / "model.safetensors").read_bytes()
    result = json.loads((folder / "result.json").read_text())
    assert 0 <= result["validation_none,blur=2"]["right"] <= 1
    assert run(*job) == 0
    assert (folder / "model.safetensors").read_bytes() == learned
    again = ["--jobs", f"4/6/10:1:start={folder / 'model.safetensors'}", "--minutes", 0.01]
    assert run(*again, "--pools", pools) == 0
    assert run(*job, "--reject", 2) == 2  # the start that is kept is another
