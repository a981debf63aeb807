"""``neocog train`` by gradient, of digits and of lines: it learns, goes on, and refuses what contradicts."""

import numpy as np
import pytest

from tests.support import digits_of, run, write_digits

torch = pytest.importorskip("torch", reason="needs PyTorch: neocog[train]")
torch.set_num_threads(1)

from neocog.network.model import load_model  # noqa: E402

QUICK = "--epochs 1 --batch 20 --augmentation none --variants 0 --marks 0.1".split()
NEW = [*QUICK, "--planes", "4/6/10", "--reject", "1"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder, labels = tmp_path_factory.mktemp("set"), np.tile(np.arange(10), 6)
    write_digits(folder, "train", digits_of("0123456789")[labels], labels)
    return folder


def train(data, output, *words):
    how = [] if "--lines" in words else ["--recipe", "finetuned"]
    return run("train", "--data", data, "-o", output, *how, *map(str, words))


def learned(data, output, *words):
    result = train(data, output, *words)
    assert result.exit_code == 0, result.output
    return load_model(output), result.stderr


@pytest.fixture(scope="module")
def first(data, tmp_path_factory):
    """A model learned by gradient, its file, the folder of its run, and what was said."""
    place = tmp_path_factory.mktemp("first")
    model, said = learned(data, place / "m.safetensors", *NEW, "--checkpoints", place / "run")
    return model, place / "m.safetensors", place / "run", said


def assert_refused(result, message, code=2):
    assert result.exit_code == code, result.output
    assert message in result.stderr
    assert result.stderr.rstrip().rpartition("\n")[2].startswith("neocog: ")


def test_the_command_learns_by_gradient_and_a_finished_run_is_not_learned_on(data, first, tmp_path):
    model, path, run, said = first
    assert model.planes[::2] == (4, 11)
    assert "validation accuracy" in said
    assert model.card["finetuning"]["steps"] == 3
    assert model.card["finetuning"]["start"] == load_model(run / "start.safetensors").id
    assert set(model.card) == {"recipe", "finetuning", "validation_accuracy", "rejection"}
    _, said = learned(data, tmp_path / "m.safetensors", *NEW, "--checkpoints", run)
    assert "has finished and this is its model" in said
    assert (tmp_path / "m.safetensors").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(("words", "message", "code"), [
    ("--planes 4", "K2/K3/K4", 2),
    ("--augmentation storm", "is unknown: choose", 2),
    ("--split train", "validation digits", 2),
    ("--device tpu", "unknown", 2),
    ("--marks 1.5", "expected a share", 2),
    ("--data mnist:0", "expected a weight above 0, as in mnist:2", 2),
    ("--start neocog --planes 4/6/10", "leave out --start or --planes", 2),
    ("--start neocog --planes 4/6/10 --reject 20", "--start or --planes and --reject", 2),
    ("--start nowhere.safetensors", "no such file", 4),
    # what recipes with gradients use
    ("--recipe neocog --start neocog", "recipe 'neocog' does not use --start; leave it out, or", 2),
    ("--recipe neocog --last", "recipe 'neocog' does not use --last; leave it out, or", 2),
    ("--recipe neocog --lean 3 --marks 0", "does not use --lean, --marks; leave it out, or", 2),
    ("--recipe neocog --steps 9", "does not use --steps; leave it out\n", 2),
    ("--recipe neocg --epochs 80", "recipe 'neocg' is unknown: choose one of ", 2),
    ("--lines", "no hands; expected mnist and hands/free/pendigits", 1),
    ("--lines --start finder", "finder", 4),
    ("--lines --start fukushima", "start from a model of preset neocog", 2),
    ("--lines --epochs 3 --chunks 5", "--lines does not use --epochs, --chunks; leave it out", 2),
    ("--lines --finder wide --steps 5", "--finder does not use --lines, --steps; leave it out", 2),
    ("--lines --data elsewhere", "--lines takes one --data", 2),
])  # fmt: skip
def test_the_command_refuses(data, tmp_path, words, message, code):
    result = train(data, tmp_path / "m.safetensors", *words.split())
    assert_refused(result, message, code)
    assert "US1" not in result.stderr  # nothing was learned
    assert not any(tmp_path.iterdir())


def test_the_largest_seed_is_told_in_the_words_of_typer(data, tmp_path):
    result = train(data, tmp_path / "m.safetensors", "--seed", 2**32)
    assert (result.exit_code, "4294967295" in result.stderr) == (2, True)


def test_the_command_goes_on_from_a_model_with_several_sets(data, first, tmp_path):
    start, more = first[0], ["--last", "--marks", 0.25, "--lean", 1, "--data", f"{data}:2.5"]
    model, said = learned(data, tmp_path / "m.safetensors", "--start", first[1], *QUICK, *more)
    assert "110 digits of" in said  # of both sets without those kept apart
    assert model.card["finetuning"]["pictures"] == 110
    told = {"last": True, "marks": 0.25, "soft_share": 0.0, "before": start.card["finetuning"]}
    assert (told | {"start": start.id}).items() <= model.card["finetuning"].items()


def test_a_folder_goes_on_with_the_start_that_it_holds(data, first, tmp_path):
    half, run = tmp_path / "half.safetensors", tmp_path / "run"
    start = first[0].save(half, precision="fp16")
    words = ["--start", half, *QUICK, "--checkpoints", run]
    (tmp_path / "again").mkdir()
    one, again = (learned(data, tmp_path / name / "m.safetensors", *words)[0].id for name in (".", "again"))
    assert (load_model(run / "start.safetensors").id, again) == (start.id, one)
    other = train(data, tmp_path / "n.safetensors", "--start", first[1], *words[2:])
    assert_refused(other, f"is {start.id}, not {first[0].id}")
    other = train(data, tmp_path / "n.safetensors", *NEW, *words[-2:])
    assert_refused(other, "not a new start; give")


@pytest.mark.parametrize(("words", "message"), [
    ("--limit 40", "learned_from 40 ("), ("--seed 1", "options (seed 0, not seed 1)"),
    ("--planes 5/6/10", "not recipe limits [5, 6]"), ("--reject 2", "options (reject 1, not reject 2)"),
    ("--epochs 2", "options (epochs 1.0, not epochs 2.0)"),
])  # fmt: skip
def test_a_folder_of_another_run_is_refused(data, first, tmp_path, words, message):
    result = train(data, tmp_path / "m.safetensors", *NEW, *words.split(), "--checkpoints", first[2])
    assert_refused(result, message)
    assert not (tmp_path / "m.safetensors").exists()


def test_a_start_that_is_refused_is_not_kept(data, tmp_path):
    words = ("--start", "fukushima", "--checkpoints", tmp_path / "run")
    assert_refused(train(data, tmp_path / "m.safetensors", *words), "preset neocog")
    assert not list((tmp_path / "run").iterdir())
