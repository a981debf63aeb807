"""The commands as a user types them."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from neocog import Reader
from neocog.errors import DeviceError
from tests.support import digits_of, refused, run, save_page, tiny_model, write_mnist

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def idx(tmp_path_factory):
    return write_mnist(tmp_path_factory.mktemp("idx"))


@pytest.mark.parametrize(("options", "code", "words"), [
    (("--device", "cuda:99"), 5, "cuda:99"),
    (("--device", "cpu", "--precision", "fp16"), 2, "--device cuda"),
    (("-o", "no/such/folder/x"), 2, "cannot be written"),
    (("-o", "."), 2, "directory"),
    (("--save-overlay", "{file}"), 2, "--save-overlay"),
    (("--model", "{file}"), 4, "expected a safetensors file"),
    (("--finder", "{file}"), 4, "cannot be used"),
    (("--isolated", "--pattern", "#"), 2, "leave one out"),
    (("--isolated", "--rotate", "90"), 2, "leave one out"),
    (("--timings", "--format", "csv"), 2, "needs --format jsonl or json"),
    (("--report", "no/r.html"), 2, "choose another --report"),
    (("-o", "out.xlsx"), 2, "neocog writes .csv"),
    (("-o", "out.docx"), 2, "no format has the suffix .docx, expected .txt, .jsonl,"),
    (("-o", "out.html"), 2, "for a page of HTML --report FILE.html"),
    (("--min-p", "3"), 2, "neocog: --min-p 3.0: expected a probability"),
    (("--min-p", "0.5", "--max-error", "1%"), 2, "--max-error speaks of whole numbers"),
    (("--pattern", "##", "--valid", "list"), 2, "none has the form '##'; change the list or the pattern"),
    (("--resume",), 2, "add -o FILE.jsonl"),
    (("--resume", "-o", "out.csv"), 2, "add -o FILE.jsonl"),
])  # fmt: skip
def test_exit_codes_of_read(options, code, words, tmp_path, model, monkeypatch):
    monkeypatch.chdir(tmp_path)
    picture = save_page(tmp_path / "a.png", "7")
    (tmp_path / "list").write_text("1\n")
    options = (option.format(file=picture) for option in options)
    refused(words, "read", picture, "--model", model, *options, code=code)


def test_nothing_to_read_leaves_what_was_there_and_a_format_that_is_given_may_have_any_suffix(
    tmp_path, model
):
    old = tmp_path / "old.docx"
    old.write_text("dear")
    words = ("--model", model, "--format", "text", "--force")
    for option, name in (("-o", old), ("-o", tmp_path / "new"), ("--report", old)):
        refused("no pictures found", "read", tmp_path, *words, option, name, code=3)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["dear"]
    assert run("read", save_page(tmp_path / "a.png", "7"), *words, "-o", old).exit_code == 0
    assert old.read_text() == "7\n"


def test_no_input_is_drawn_over(tmp_path, model):
    picture, overlay = save_page(tmp_path / "a.png", "7"), tmp_path / "a.read.png"
    before = picture.read_bytes()
    assert run("read", picture, "--save-overlay", tmp_path, "--model", model).exit_code == 0
    drawn = overlay.read_bytes()
    again = run("read", tmp_path, "--save-overlay", tmp_path, "--model", model)
    assert again.exit_code == 1  # a picture that was asked for is missing
    told = f"not drawn: {overlay}: is also an input; choose another --save-overlay\n"
    assert told in again.stderr
    assert (picture.read_bytes(), overlay.read_bytes()) == (before, drawn)


def test_eval_digits(idx, model):
    result = run("eval", idx, "--model", model, "--device", "cpu", "--json")
    assert result.exit_code == 0, result.stderr
    facts = json.loads(result.stdout.splitlines()[-1])
    assert list(facts) == ["n", "accuracy", "seconds", "confusion", "model", "device"]
    assert facts["confusion"] == [[12 * (i == j) for j in range(11)] for i in range(10)]
    assert (facts["n"], facts["accuracy"], facts["device"]) == (120, 1.0, "cpu")
    table = run("eval", idx, "--model", model, "--split", "validation", "--limit", "5")
    assert "5 digits read by tiny@" in table.stdout
    assert "accuracy 100.00 %   (0 wrong)" in table.stdout


def test_eval_pictures(tmp_path, model):
    save_page(tmp_path / "a.png", "12\n34")
    save_page(tmp_path / "b.png", "56")
    labels, words = tmp_path / "labels.csv", ("eval", tmp_path, "--model", model)
    labels.write_text("file,text\na.png,12|34\nb.png,57\nno.png,89\n")
    result = run(*words, "--json")
    assert (result.exit_code, result.stderr.count("\n"), "no.png" in result.stderr) == (1, 1, True)
    facts = json.loads(result.stdout.splitlines()[-1])
    assert list(facts) == ["n", "n_digits", "cer", "exact", "seconds", "risk", "model", "device", "wrong"]
    wrong = [(Path(row["file"]).name, row["written"], row["read"]) for row in facts["wrong"]]
    assert wrong == [("b.png", "57", "56"), ("no.png", "89", "")]
    assert (facts["n"], facts["n_digits"], facts["cer"]) == (3, 8, pytest.approx(3 / 8))
    for split in ("train", "learning"):
        told = "pictures with a labels.csv have no parts; leave --split out"
        refused(told, *words, "--split", split)
    table = run(*words)
    assert "written 57\n    read    56" in table.stdout
    assert "character error rate 37.50 %" in table.stdout
    assert re.search(r"p of 0.5 or more: [0-9.]+ % of all numbers, \d of these \d wrong", table.stdout)
    labels.write_text("file,text\nb.png,\nc.png,none\n")
    result = run(*words)
    assert (result.exit_code, result.stderr.count("\n")) == (0, 1)
    assert result.stderr.endswith(": c.png left out: no digit in its label\n")
    assert "character error rate -   pictures read exactly 0.0 %" in result.stdout
    labels.write_text("file,digits,text\nb.png,56,\n")  # nothing is written there
    facts = json.loads(run(*words, "--json", "--signs").stdout)
    assert (facts["exact"], facts["exact_text"], facts["wrong"][0]["written"]) == (1, 0, "")


def test_timing(model):
    words = ("timing", "--model", model, "--batch", "2", "--seconds", "0")
    facts = json.loads(run(*words, "--json").stdout.splitlines()[-1])
    assert set(facts) >= {"stages", "ms_per_digit", "batch", "device", "model", "precision"}
    assert all(stage["ms"] >= 0 for stage in facts["stages"] + facts["page"])
    table = run(*words).stdout
    assert all(word in table for word in ("ms a digit", *(stage["name"] for stage in facts["stages"])))
    lines = ("timing", "--model", "neocog-lines", "--batch", "1", "--seconds", "0", "--device", "cpu")
    assert "ms a strip" in run(*lines).stdout
    refused("--precision and --plan are for models of digits", *lines, "--plan", "auto")


def test_models(model, tmp_path, monkeypatch):
    assert "planes              [20, 30, 10]" in run("models", "show", model).stdout
    assert json.loads(run("models", "show", model, "--json").stdout)["psi"] == "sqrt"
    monkeypatch.setattr("neocog.network.registry._PACKAGE", tmp_path / "package")
    mine = tmp_path / "models/mine.safetensors"
    mine.parent.mkdir()
    refused("no models in", "models", "list", code=4)
    card = {"accuracy": {"test": 0.98}, "confusion": [[980, 0], [2, 1100]],
            "told": {"n": 3, "table": [{"p": 0.5}]}}  # fmt: skip
    replace(tiny_model(), card=card).save(mine)
    mine.with_name("other.safetensors").write_bytes(b"none")
    listed = run("models", "list").stdout.splitlines()
    assert re.match(r"mine +digits +98.00 % +- +[\d.]+ +[\d.]+  one digit of 28 x 28 pixels", listed[1])
    assert re.match("other +- .* expected a safetensors file", listed[2])
    words = run("models", "show", mine, "--card").stdout.splitlines()
    rows = [("confusion", "[980, 0]"), ("", "[2, 1100]"), ("told", "n: 3"), ("", 'table: {"p": 0.5}')]
    assert words[-4:] == [f"{key:19s} {value}" for key, value in rows]
    verified = run("models", "verify", model)
    assert (verified.exit_code, verified.stdout[:13]) == (0, "ok      tiny@")
    (tmp_path / "half").write_bytes(Path(model).read_bytes()[:5000])
    broken = run("models", "verify", model, tmp_path / "half")
    assert (broken.exit_code, "broken  model" in broken.stdout) == (4, True)
    assert re.fullmatch("neocog: 1 of 2 broken.*\n", broken.stderr)


def test_train_gives_a_model_that_reads(idx, tmp_path):
    words = ("train", "--data", idx, "--recipe", "fukushima2003", "--limit", "20", "--seed", "3")
    files = [tmp_path / name / "mine.safetensors" for name in "ab"]
    for file in files:
        file.parent.mkdir()
        result = run(*words, "-o", file)
        assert result.exit_code == 0, result.stderr
        assert result.stdout.startswith(f"{file}  mine@")
        assert "20 digits of" in result.stderr
        assert "US4" in result.stderr
    assert files[0].read_bytes() == files[1].read_bytes()
    facts = json.loads(run("eval", idx, "--model", files[0], "--json").stdout)
    assert facts["accuracy"] == 1.0


@pytest.mark.parametrize(("option", "value", "code", "words"), [
    ("--recipe", "none-such", 2, "choose one of fukushima2003"),
    ("--precision", "fp8", 2, "choose fp16 or fp32"),
    ("-o", "no/such/folder/m.safetensors", 2, "choose another -o"),
    ("--split", "test", 2, "choose learning or train"),
    ("-o", ".", 2, "choose another -o"),
    ("-o", "picture.jpg", 2, "a model is a .safetensors file, not .jpg"),
    ("--device", "abacus", 2, "choose one of auto, cpu, cuda"),
    ("--data", "no-such-folder", 1, "no such file or folder"),
])  # fmt: skip
def test_train_refuses_before_it_learns(option, value, code, words, idx, tmp_path, monkeypatch):
    monkeypatch.setattr("neocog.learning.recipes.train", lambda *_, **__: pytest.fail("it has learned"))
    refused(words, "train", "--data", idx, "-o", tmp_path / "m.safetensors", option, value, code=code)


def test_train_leaves_one_file_and_tells_when_it_could_not_calibrate(idx, tmp_path, monkeypatch):
    monkeypatch.setattr("neocog.learning.recipes.train", lambda *_, **__: tiny_model())
    result = run("train", "--data", idx, "-o", tmp_path / "m")
    assert result.stdout.startswith(f"{tmp_path / 'm.safetensors'}  m@")
    assert result.stdout.endswith("(.safetensors added to its name)\n")
    assert [path.name for path in tmp_path.iterdir()] == ["m.safetensors"]
    assert "calibrated" not in result.stderr
    for label in (3, 7):
        (tmp_path / str(label)).mkdir()
        Image.fromarray(digits_of(str(label))[0]).save(tmp_path / str(label) / "a.png")
    for options in ((tmp_path,), (idx, "--split", "train")):
        result = run("train", "-o", tmp_path / "m.safetensors", "--data", *options)
        assert "neocog: the probabilities are not calibrated: " in result.stderr


def test_recipes_are_listed_and_sets_fetched():
    result = run("train", "--recipes")
    assert any(line.startswith("fukushima2003 ") for line in result.stdout.splitlines())
    words = ("data", "fetch", "mnist", "--from", "/", "--to", "/none")
    refused("--from needs the folder with the four .gz files", *words, code=1)
    assert run("data", "fetch", "emnist").exit_code == 2


def test_doctor_and_that_it_advises_what_the_readme_does(monkeypatch, tmp_path):
    page = save_page(tmp_path / "a.png", "07")
    report = json.loads(run("doctor", "--json").stdout)
    names = [check["name"] for check in report["checks"]]
    assert {"python", "numpy", "opencv", "extras", "model"} <= {*names}
    assert all(check["advice"] for check in report["checks"] if check["level"] != "ok")
    monkeypatch.setitem(sys.modules, "cv2", None)
    result = run("doctor")
    assert result.exit_code == 1
    libraries = re.findall(r"apt-get install .*?((?: lib[\w.-]+)+)", README)[0]
    failed, advice = result.stdout[result.stdout.index("fail  opencv") :].splitlines()[:2]
    assert "cannot be imported" in failed
    assert advice.endswith(libraries)
    with pytest.raises(DeviceError, match="OpenCV cannot be imported"):
        Reader(device="cpu").read(page)
    for words in (("read", page), ("explain", page), ("live", page)):
        result = run(*words)
        assert (result.exit_code, libraries in result.stderr.splitlines()[-1]) == (5, True)
