"""The command in a result file: as it was typed, without places of the machine; work over processes."""

import json
from functools import partial
from pathlib import Path

import pytest

from experiments.harness.processes import spread
from experiments.harness.record import without_places, write_results


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder of data; the one that commands run in has folders called as models are."""
    for name in ("data", "run/neocog", "run/models", "run/data"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "run")
    return str(tmp_path / "data")


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("{data} neocog neocog-small --jobs 2", "DATA neocog neocog-small --jobs 2"),
        ("--models models {data} neocog", "--models models DATA neocog"),
        ("--gpu {data}", "--gpu DATA"),
        ("../data neocog", "DATA neocog"),
        ("{data} -o {data}/a.json --models={data}/models", "DATA -o a.json --models=models"),
        ("{data} -o/a/b.json --only ../b.png", "DATA -ob.json --only b.png"),
    ],
)
def test_only_the_folder_of_data_is_called_data(data, typed, told):
    assert without_places(typed.format(data=data).split()) == told.split()


def test_a_result_file_holds_the_command(data, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/a/experiments/accuracy/reject.py", data, "neocog", "-o", "a.json"])
    write_results(Path("a.json"), [{"n": 1}], columns={"n": "n"})
    result = json.loads(Path("a.json").read_text())
    assert result["command"] == "python -m experiments.accuracy.reject DATA neocog -o a.json"
    assert result["rows"] == [{"n": 1}]


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_of_processes_come_in_order(jobs):
    assert list(spread(partial(pow, 2), range(7), jobs)) == [2**n for n in range(7)]
