"""``neocog eval --report``: every set at hand, one JSON file, one page that needs nothing else."""

import json
import re
import sys
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from neocog.errors import InputError
from neocog.evaluation.report import find_sets, measure, write
from neocog.reading.reader import Reader
from tests.support import digits_of, refused, run, save_page, write_digits, write_mnist


def write_sets(folder):
    """A folder with mnist/ and photos/, no usps/ and no strings/."""
    for name in ("mnist", "photos"):
        (folder / name).mkdir()
    write_mnist(folder / "mnist")
    for name, text in (("a.png", "12"), ("b.png", "56")):
        save_page(folder / "photos" / name, text)
    labels = "file,text\na.png,12\nb.png,57\nno.png,89\nx.png,none\n"
    (folder / "photos" / "labels.csv").write_text(labels)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_sets(tmp_path_factory.mktemp("data"))


def words_of(path):
    """The text of a page, whose tags are closed and which fetches nothing, and how many pictures it has."""
    text = path.read_text().removeprefix("<!doctype html>")
    root = ElementTree.fromstring(re.sub(r"<((?:meta|img|br)[^>]*)>", r"<\1/>", text))
    links = [value for part in root.iter() for name, value in part.items() if name in ("src", "href")]
    assert all(link.startswith("data:image/png;base64,") for link in links)
    return "".join(root.itertext()), len(links)


def test_the_command_and_what_it_writes(data, model, tmp_path):
    folder, words = tmp_path / "deep" / "report", ("--device", "cpu", "--limit", "20", "--json")
    result = run("eval", data, "--report", folder, "--model", model, *words)
    assert result.exit_code == 1  # one picture is not there
    assert "no.png" in result.stderr
    assert "x.png left out" in result.stderr
    said = json.loads(result.stdout.splitlines()[-1])
    assert (said["report"], said["device"]) == (str(folder / "report.json"), "cpu")
    assert (said["sets"]["mnist"], said["sets"]["photos"]["n"]) == ({"n": 20, "accuracy": 1.0}, 3)
    assert said["missing"].keys() == {"usps", "strings"}

    facts: dict[str, Any] = json.loads((folder / "report.json").read_text())
    assert facts["model"].startswith("tiny@")
    assert list(facts["digits"]) == ["mnist", "sklearn"]
    mnist, other = facts["digits"]["mnist"], facts["digits"]["sklearn"]
    assert np.array(mnist["confusion"]).shape == (10, 11)
    assert (np.trace(mnist["confusion"]), mnist["worst"]) == (20, [])
    assert mnist["forced"] == mnist["accuracy"] == 1.0
    assert other["forced"] >= other["accuracy"]
    assert len(other["worst"]) == other["n"] - round(other["n"] * other["accuracy"])
    wanted = "ece aurc risk_coverage reliability error_at_coverage coverage_at_error as_read"
    assert other.keys() >= {*wanted.split()}
    assert [len(v) for v in facts["corruptions"]["accuracy"].values()] == [5] * 8
    assert facts["corruptions"]["n"] == 20
    assert 0 <= facts["marks"]["read_as_digits"] <= 1
    assert sum(kind["n"] for kind in facts["marks"]["kinds"].values()) == 20
    fixed = facts["fixed_on_validation"]
    assert fixed[0].keys() >= {"fixed_at", "wanted", "threshold", "validation", "test", "marks"}
    photos = facts["pictures"]["photos"]
    assert [row["picture"] for row in photos["wrong"]] == ["b.png", "no.png"]
    assert (photos["cer"], photos["model"]) == (pytest.approx(3 / 6), facts["model"])
    assert photos["stricter"][0].keys() == {"threshold", "coverage", "risk", "wrong"}

    text, pictures = words_of(folder / "report.html")
    assert pictures >= 6  # two sets, mistakes, corruptions, pictures, one read wrong
    for words in ("MNIST, test", "Not measured", "not in", "Worst mistakes", "occlusion", "ece",
                  "Thresholds fixed on validation", "written 57", "holds no digit: x.png."):  # fmt: skip
        assert words in text


def test_without_any_place(monkeypatch, tmp_path, reader):
    monkeypatch.delenv("NEOCOG_DATA", raising=False)
    monkeypatch.setattr("neocog.learning.fetch.default_folder", lambda name: tmp_path / name)
    sets = find_sets(limit=3)
    assert list(sets.digits) == ["sklearn"]
    assert "neocog data fetch mnist" in sets.missing["mnist"]
    report = measure(reader, sets, limit=3)
    assert report.facts["fixed_on_validation"] == []
    assert report.facts["corruptions"]["name"] == sets.digits["sklearn"].name
    write(report, tmp_path)
    assert words_of(tmp_path / "report.html")


def test_a_place_named_by_the_variable_and_pictures_alone(data, tmp_path, monkeypatch, reader):
    monkeypatch.setenv("NEOCOG_DATA", str(data))
    sets = find_sets(limit=5)
    assert len(sets.digits["mnist"]) == len(sets.pictures["photos"]) + 2 == 5
    assert (len(sets.validation), sets.missing.keys()) == (5, {"usps", "strings"})
    photos, pages = replace(sets.pictures["photos"], left_out=()), Reader(device="cpu")  # by lines
    alone = replace(sets, digits={}, validation=None, pictures={"photos": photos})
    report = measure(reader, alone, pages=pages)
    assert report.facts["pictures"]["photos"]["model"] == pages.model.id != report.facts["model"]
    assert (report.facts["corruptions"], "corruptions" in report.facts["missing"]) == (None, True)
    write(report, tmp_path / "out")
    text, _ = words_of(tmp_path / "out" / "report.html")
    assert ("photographs" in text, "Left out" in text) == (True, False)


def test_what_is_wrong_is_told(tmp_path, data):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte.gz.part").touch()  # nothing more was fetched
    with pytest.raises(InputError, match="contains none of these folders: mnist, usps"):
        find_sets(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        find_sets(tmp_path / "none")
    refused("--report", "eval", data, "--report", data / "photos" / "a.png")
    refused("--split", "eval", data, "--report", tmp_path / "r", "--split", "test")


def test_without_matplotlib_there_are_tables(data, reader, tmp_path, monkeypatch):
    """And a folder that is one set itself is measured: MNIST's files, or pictures with labels."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for name, sets in (("mnist", {"mnist", "sklearn"}), ("photos", {"photos", "sklearn"})):
        found = find_sets(data / name, limit=3)
        assert {*found.digits, *found.pictures} == sets
    write(measure(reader, found, limit=3), tmp_path / "r")
    text, pictures = words_of(tmp_path / "r" / "report.html")
    assert "pip install matplotlib" in text
    assert "read 56" in text
    assert pictures >= 2


@pytest.mark.parametrize("name", ["validation", "sklearn"])
def test_a_set_named_as_a_part_of_a_report_is_measured(name, tmp_path, reader):
    (own := tmp_path / name).mkdir()
    write_digits(own, "train", digits_of("38"), np.array([3, 8]))
    found = measure(reader, find_sets(own, limit=3), limit=2).facts["digits"]
    assert {told: facts["n"] for told, facts in found.items()} == {f"{name} (named)": 2, "sklearn": 3}


@pytest.mark.data
def test_the_real_sets(data_dir, tmp_path):
    reader = Reader("neocog-small", device="cpu")
    report = measure(reader, find_sets(data_dir, limit=20), limit=20)
    assert report.facts["missing"] == {}
    assert report.facts["digits"]["mnist"]["accuracy"] > 0.8
    assert report.failures == []
    write(report, tmp_path)
