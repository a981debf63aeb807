"""``neocog train`` by gradient: it learns, goes on from a model, and refuses what contradicts."""

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
    folder = tmp_path_factory.mktemp("set")
    labels = np.tile(np.arange(10), 6)
    write_digits(folder, "train", digits_of("0123456789")[labels], labels)
    return folder


def train(data, output, *words, recipe="finetuned"):
    return run("train", "--data", data, "-o", output, "--recipe", recipe, *words)


@pytest.fixture(scope="module")
def first(data, tmp_path_factory):
    """A model learned by gradient, the folder of its run, and what was said."""
    place = tmp_path_factory.mktemp("first")
    result = train(data, place / "m.safetensors", *NEW, "--checkpoints", str(place / "run"))
    assert result.exit_code == 0, result.output
    return place / "m.safetensors", place / "run", result


def assert_refused(result, message, code=2):
    assert result.exit_code == code, result.output
    assert message in result.stderr
    assert result.stderr.rstrip().rpartition("\n")[2].startswith("neocog: ")


def test_the_command_learns_by_gradient(first):
    path, run, result = first
    assert load_model(path).planes[::2] == (4, 11)
    assert "validation accuracy" in result.stderr
    card = load_model(path).card
    start = load_model(run / "start.safetensors")
    assert card["finetuning"]["steps"] == 3
    assert card["finetuning"]["start"] == start.id
    assert set(card) == {"recipe", "finetuning", "validation_accuracy", "rejection"}
    assert (run / "checkpoint.safetensors").exists()


def test_several_sets_may_be_learned_from(data, tmp_path):
    result = train(data, tmp_path / "m.safetensors", *NEW, "--data", f"{data}:2.5")
    assert result.exit_code == 0, result.output
    assert "110 digits of" in result.stderr  # of both sets without those kept apart
    assert load_model(tmp_path / "m.safetensors").card["finetuning"]["pictures"] == 110
    assert_refused(
        train(data, tmp_path / "n.safetensors", *NEW, "--data", f"{data}:0"),
        "expected a weight above 0, as in mnist:2",
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--planes 4", "K2/K3/K4"),
        ("--augmentation storm", "is unknown: choose"),
        ("--split train", "validation digits"),
        ("--device tpu", "unknown"),
        ("--marks 1.5", "expected a share"),
        ("--start neocog --planes 4/6/10", "leave out --start or --planes"),
        ("--start neocog --planes 4/6/10 --reject 20", "--start or --planes and --reject"),
        ("--start nowhere.safetensors", "no such file"),
    ],
)
def test_the_command_refuses(data, tmp_path, words, message):
    result = train(data, tmp_path / "m.safetensors", *words.split())
    assert_refused(result, message, code=4 if "nowhere" in words else 2)


def test_a_seed_that_no_generator_takes_is_refused_first(data, tmp_path):
    result = train(data, tmp_path / "m.safetensors", *NEW, "--seed", str(2**32))
    assert result.exit_code == 2
    assert "4294967295" in result.stderr
    assert "start" not in result.stderr  # nothing was learned


@pytest.mark.parametrize("words", ["--start neocog", "--epochs 80", "--last", "--lean 3 --marks 0"])
def test_a_recipe_without_gradients_refuses_options_of_those_with(data, tmp_path, words):
    result = train(data, tmp_path / "m.safetensors", *words.split(), recipe="neocog")
    assert_refused(result, f"so {', '.join(words.split()[::2])} would have no effect;")
    assert not (tmp_path / "m.safetensors").exists()


def goes_on(data, start, output, *words):
    result = train(data, output, "--start", str(start), *QUICK, *words)
    assert result.exit_code == 0, result.output
    return load_model(output)


def test_the_command_goes_on_from_a_model(data, first, tmp_path):
    start, more = load_model(first[0]), "--last --marks 0.25 --lean 1".split()
    card = goes_on(data, first[0], tmp_path / "m.safetensors", *more).card["finetuning"]
    assert (card["last"], card["marks"], card["soft_share"]) == (True, 0.25, 0.0)
    assert card["before"] == start.card["finetuning"]
    assert card["start"] == start.id


def test_a_folder_goes_on_with_the_start_that_it_holds(data, first, tmp_path):
    half, run = tmp_path / "half.safetensors", tmp_path / "run"
    start = load_model(first[0]).save(half, precision="fp16")
    words = ["--checkpoints", str(run)]
    goes_on(data, half, tmp_path / "m.safetensors", *words)
    assert load_model(run / "start.safetensors").id == start.id
    (tmp_path / "again").mkdir()
    goes_on(data, half, tmp_path / "again" / "m.safetensors", *words)
    one, again = ((tmp_path / name / "m.safetensors").read_bytes() for name in (".", "again"))
    assert again == one
    other = train(data, tmp_path / "n.safetensors", "--start", str(first[0]), *QUICK, *words)
    assert_refused(other, f"is {start.id}, not {load_model(first[0]).id}")
    assert_refused(train(data, tmp_path / "n.safetensors", *NEW, *words), "not a new start; give")


def test_a_finished_run_is_not_learned_on(data, first, tmp_path):
    result = train(data, tmp_path / "m.safetensors", *NEW, "--checkpoints", str(first[1]))
    assert result.exit_code == 0, result.output
    assert "has finished and this is its model" in result.stderr
    assert (tmp_path / "m.safetensors").read_bytes() == first[0].read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--limit 40", "learned_from 40 ("),
        ("--seed 1", "options (seed 0, not seed 1)"),
        ("--rate 0.5", "not rate 0.5"),
        ("--epochs 2", "options (epochs 1.0, not epochs 2.0)"),
        ("--planes 5/6/10", "not recipe limits [5, 6]"),
        ("--reject 2", "options (reject 1, not reject 2)"),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_a_folder_of_another_run_is_refused(data, first, tmp_path, words, message, whole):
    run = first[1]
    if not whole:  # it was stopped when it had its start alone
        if words.startswith(("--rate", "--epochs")):
            pytest.skip("the start does not follow from it")
        run = tmp_path / "run"
        run.mkdir()
        (run / "start.safetensors").write_bytes((first[1] / "start.safetensors").read_bytes())
    given = [*NEW, *words.split(), "--checkpoints", str(run)]
    assert_refused(train(data, tmp_path / "m.safetensors", *given), message)
    assert not (tmp_path / "m.safetensors").exists()


def test_a_start_that_is_refused_is_not_kept(data, tmp_path):
    words = ["--start", "fukushima", "--checkpoints", str(tmp_path / "run")]
    assert_refused(train(data, tmp_path / "m.safetensors", *words), "preset neocog")
    assert not list((tmp_path / "run").iterdir())
