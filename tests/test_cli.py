"""The commands as a user types them."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import Result

from neocog.cli import app
from neocog.errors import UsageError
from neocog.network.model import Model
from neocog.reading.reader import Reader
from tests.support import digits_of, run, save_page, tiny_model, until, write_digits

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def idx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 120 + 120 digits as IDX files."""
    folder = tmp_path_factory.mktemp("idx")
    for prefix in ("train", "t10k"):
        write_idx(folder, prefix, 120)
    return folder


def write_idx(folder: Path, prefix: str, count: int) -> None:
    labels = np.arange(count) % 10
    write_digits(folder, prefix, digits_of("0123456789")[labels], labels, packed=True)


def said(result: Result) -> str:
    """The one line on stderr."""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]


# --- read -------------------------------------------------------------------------------------


def test_one_picture_is_its_text_alone(tmp_path: Path, model: str) -> None:
    result = run("read", save_page(tmp_path / "a.png", "07946\n12"), "--model", model)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "07946\n12\n", "")


def test_several_have_names_and_failures_do_not_stop(tmp_path: Path, model: str) -> None:
    first, last = (save_page(tmp_path / f"{name}.png", "12\n3") for name in "az")
    (tmp_path / "bad.png").write_bytes(b"nothing")
    result = run("read", first, tmp_path / "bad.png", last, "--model", model)
    assert result.exit_code == 1
    assert result.stdout == f"{first}: 12 | 3\n{last}: 12 | 3\n"
    failure, summary = result.stderr.splitlines()
    assert failure.startswith(f"neocog: {tmp_path / 'bad.png'}: ")
    assert summary.startswith("neocog: 3 pages, 0 empty, 0 with ?, 0 skipped, 1 failed; ")


def test_jsonl_has_a_record_for_each(tmp_path: Path, model: str) -> None:
    save_page(tmp_path / "a.png", "12")
    (tmp_path / "b.png").touch()
    (tmp_path / "c").mkdir()
    save_page(tmp_path / "c" / "d.png", "7")
    output = tmp_path / "out.jsonl"
    result = run("read", tmp_path, "--model", model, "--format", "jsonl", "-o", output, "--timings")
    assert (result.exit_code, result.stdout) == (1, "")
    records = [json.loads(line) for line in output.read_text().splitlines()]
    assert [record["text"] for record in records] == ["12", "", "7"]
    assert records[1]["error"] is not None
    assert records[0]["ms"]["find"] > 0
    assert records[0]["model"].startswith("tiny@")
    assert [box for digit in records[0]["digits"] if len(box := digit["box"]) != 4] == []


def test_csv_question_marks_and_empty_paper(tmp_path: Path, model: str) -> None:
    picture = save_page(tmp_path / "a.png", "30")
    result = run("read", picture, "--model", model, "--format", "csv", "--min-p", "1")
    header, row = result.stdout.splitlines()
    assert header == "source,page,text,n_digits,n_rejected,reasons,least_p,model,error"
    assert row.startswith(f"{picture},0,??,2,2,")
    result = run("read", save_page(picture, ""), "--model", model)
    assert (result.exit_code, result.stdout) == (0, "\n")
    assert said(result).endswith("a.png: no digits found")


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--format", "xml"), 2, "choose one of text, jsonl, json, csv"),
        (("--min-p", "3"), 2, "expected a probability"),
        (("--device", "abacus"), 2, "abacus"),
        (("--device", "cuda:99"), 5, "cuda:99"),
        (("--device", "cuda:x"), 2, "choose one of auto, cpu, cuda, cuda:N"),
        (("--device", "cpu", "--precision", "fp16"), 2, "--device cuda"),
        (("-o", "no/such/folder/x"), 2, "cannot be written"),
        (("-o", "."), 2, "directory"),
        (("-o", "{file}"), 2, "is also an input"),
        (("--save-overlay", "{file}"), 2, "--save-overlay"),
        (("--model", "no-such"), 4, "no-such"),
        (("--model", "{file}"), 4, "expected a safetensors file"),
        (("--finder", "{file}"), 4, "cannot be used"),
        (("--finder", "no-such"), 4, "no-such"),
        (("--isolated", "--pattern", "#"), 2, "leave one out"),
        (("--timings", "--format", "csv"), 2, "needs --format jsonl or json"),
        (("--report", "no/r.html"), 2, "choose another --report"),
        (("--report", "."), 2, "choose another --report"),
        (("-o", "out.xlsx"), 2, "neocog writes .csv"),
        (("--resume",), 2, "add -o FILE.jsonl"),
        (("--resume", "-o", "out.csv"), 2, "add -o FILE.jsonl"),
        (("--resume", "-o", "x", "--format", "text"), 2, "add -o FILE.jsonl"),
    ],
)
def test_exit_codes_of_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    options: tuple[str, ...],
    code: int,
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    picture = save_page(tmp_path / "a.png", "7")
    options = tuple(option.format(file=picture) for option in options)
    if "--model" not in options:
        options += ("--model", model)
    result = run("read", picture, *options)
    assert result.exit_code == code
    assert words in said(result)
    assert result.stdout == ""


def test_nothing_to_read_leaves_what_was_there(tmp_path: Path, model: str) -> None:
    for name in ("out.jsonl", "r.html"):
        (tmp_path / name).write_text("dear")
    before = sorted(os.listdir(tmp_path))
    for words in (
        ("-o", "out.jsonl", "--force"), ("-o", "new.jsonl"), ("--report", "r.html", "--force"),
    ):  # fmt: skip
        words = (words[0], tmp_path / words[1], *words[2:])
        result = run("read", tmp_path, "--model", model, *words)
        assert result.exit_code == 3
        assert "no pictures found" in said(result)
    assert sorted(os.listdir(tmp_path)) == before
    assert {path.read_text() for path in tmp_path.iterdir()} == {"dear"}


def test_a_file_that_exists_is_kept(tmp_path: Path, model: str) -> None:
    picture, notes = save_page(tmp_path / "a.png", "7"), tmp_path / "notes.html"
    notes.write_text("dear")
    for option in ("-o", "--report"):
        result = run("read", picture, "--model", model, option, notes)
        assert result.exit_code == 2
        assert "notes.html: exists; add --force" in said(result)
    assert notes.read_text() == "dear"
    reading = Reader(model).read(picture)
    before = picture.read_bytes()
    with pytest.raises(UsageError, match="is the picture that was read"):
        reading.save(picture)
    assert picture.read_bytes() == before


def test_no_input_is_drawn_over(tmp_path: Path, model: str) -> None:
    picture = save_page(tmp_path / "a.png", "7")
    before = picture.read_bytes()
    assert run("read", picture, "--save-overlay", tmp_path, "--model", model).exit_code == 0
    assert picture.read_bytes() == before
    overlay = tmp_path / "a.read.png"
    drawn = overlay.read_bytes()
    again = run("read", tmp_path, "--save-overlay", tmp_path, "--model", model)
    assert again.exit_code == 1  # a picture that was asked for is missing
    told = f"not drawn: {overlay}: is also an input; choose another --save-overlay\n"
    assert told in again.stderr
    assert (picture.read_bytes(), overlay.read_bytes()) == (before, drawn)


@pytest.mark.parametrize("words", [("read",), ("frob",), ("read", "x", "--frob"), ("eval",)])
def test_usage_is_2(words: tuple[str, ...]) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert "Usage:" in result.stderr


# --- the others -------------------------------------------------------------------------------


def test_eval_digits(idx: Path, model: str) -> None:
    result = run("eval", idx, "--model", model, "--device", "cpu", "--json")
    assert result.exit_code == 0, result.stderr
    facts = json.loads(result.stdout.splitlines()[-1])
    assert list(facts) == ["n", "accuracy", "seconds", "confusion", "model", "device"]
    assert facts["confusion"] == [[12 * (i == j) for j in range(11)] for i in range(10)]
    assert (facts["n"], facts["accuracy"], facts["device"]) == (120, 1.0, "cpu")
    table = run("eval", idx, "--model", model, "--split", "validation", "--limit", "5")
    assert "5 digits read by tiny@" in table.stdout
    assert "accuracy 100.00 %   (0 wrong)" in table.stdout


def test_eval_pictures(tmp_path: Path, model: str) -> None:
    save_page(tmp_path / "a.png", "12\n34")
    save_page(tmp_path / "b.png", "56")
    (tmp_path / "labels.csv").write_text("file,text\na.png,12|34\nb.png,57\nno.png,89\n")
    result = run("eval", tmp_path, "--model", model, "--json")
    assert result.exit_code == 1
    assert "no.png" in said(result)
    facts = json.loads(result.stdout.splitlines()[-1])
    assert list(facts) == ["n", "n_digits", "cer", "exact", "seconds", "model", "device", "wrong"]
    assert facts["wrong"][0] == {
        "file": str(tmp_path / "b.png"), "written": "57", "read": "56", "error": None,
    }  # fmt: skip
    assert [Path(row["file"]).name for row in facts["wrong"]] == ["b.png", "no.png"]
    assert (facts["n"], facts["n_digits"]) == (3, 8)
    assert facts["cer"] == pytest.approx(3 / 8)
    assert facts["exact"] == pytest.approx(1 / 3, abs=1e-6)
    table = run("eval", tmp_path, "--model", model)
    assert "written 57\n    read    56" in table.stdout
    assert "character error rate 37.50 %" in table.stdout
    (tmp_path / "labels.csv").write_text("file,text\nb.png,\nc.png,none\n")
    result = run("eval", tmp_path, "--model", model)
    assert result.exit_code == 0
    assert said(result).endswith(": c.png left out: no digit in its label")
    assert "character error rate -   pictures read exactly 0.0 %" in result.stdout


def test_timing(model: str) -> None:
    words = ("timing", "--model", model, "--batch", "2", "--seconds", "0")
    facts = json.loads(run(*words, "--json").stdout.splitlines()[-1])
    assert set(facts) >= {"stages", "ms_per_digit", "batch", "device", "model", "precision"}
    assert facts["batch"] == 2
    assert facts["ms_per_digit"] > 0
    assert all(set(stage) >= {"name", "ms"} for stage in facts["stages"] + facts["page"])
    whole = facts["ms_per_digit"] * facts["batch"]
    assert sum(stage["ms"] for stage in facts["stages"]) == pytest.approx(whole, rel=0.03)
    assert all(stage["ms"] >= 0 for stage in facts["stages"])
    table = run(*words).stdout
    assert "ms a digit" in table
    assert "roof" not in table  # nothing is known of a CPU's
    assert all(stage["name"] in table for stage in facts["stages"])


def test_models(model: str, tmp_path: Path) -> None:
    shown = run("models", "show", model)
    assert "planes              [20, 30, 10]" in shown.stdout
    assert "not measured" in shown.stdout
    listed = run("models", "list").stdout
    assert all(word in listed for word in ("neocog-small", "MNIST", "digits and signs"))
    assert json.loads(run("models", "show", model, "--json").stdout)["psi"] == "sqrt"
    verified = run("models", "verify", model)
    assert (verified.exit_code, verified.stdout[:13]) == (0, "ok      tiny@")
    half = tmp_path / "half.safetensors"
    half.write_bytes(Path(model).read_bytes()[:5000])
    broken = run("models", "verify", model, half)
    assert broken.exit_code == 4
    assert "broken  model" in broken.stdout
    assert said(broken).startswith("neocog: 1 of 2 broken")


def test_a_card_is_shown_in_rows(tmp_path: Path) -> None:
    card: dict[str, Any] = {"accuracy": {"test": 0.99}, "confusion": [[980, 0], [2, 1100]], "none": {}}
    card |= {"recipe": "mine", "told": {"n": 3, "table": [{"p": 0.5}, {"p": 0.7}]}}
    path = tmp_path / "m.safetensors"
    replace(tiny_model(), card=card).save(path)
    words = run("models", "show", path, "--card").stdout.splitlines()
    shown = [("confusion", "[980, 0]"), ("", "[2, 1100]"), ("none", "{}"), ("recipe", "mine")]
    shown += [("told", "n: 3"), ("", 'table: {"p": 0.5}'), ("", 'table: {"p": 0.7}')]
    assert words[-7:] == [f"{key:19s} {value}" for key, value in shown]
    assert f'{"accuracy":19s} {{"test": 0.99}}' in words


def test_train_gives_a_model_that_reads(idx: Path, tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--recipe", "none-such"), 2, "choose one of fukushima2003"),
        (("--precision", "fp8"), 2, "choose fp16 or fp32"),
        (("-o", "no/such/folder/m.safetensors"), 2, "choose another -o"),
        (("--split", "some"), 2, "choose learning or train"),
        (("--split", "test"), 2, "choose learning or train"),
        (("-o", "."), 2, "choose another -o"),
        (("-o", "picture.jpg"), 2, "a model is a .safetensors file, not .jpg"),
        (("--device", "abacus"), 2, "choose one of auto, cpu, cuda"),
        (("--data", "no-such-folder"), 1, "no such file or folder"),
    ],
)
def test_train_refuses_before_it_learns(
    idx: Path, tmp_path: Path, options: tuple[str, ...], code: int, words: str
) -> None:
    given = {"--data": str(idx), "-o": str(tmp_path / "m.safetensors")}
    given |= {options[0]: options[1]}
    result = run("train", *(word for pair in given.items() for word in pair))
    assert result.exit_code == code
    assert words in said(result)


def no_learning(*_: Any, **__: Any) -> Model:
    return tiny_model()


def test_train_notices_first_where_it_cannot_write_and_leaves_nothing_else(
    idx: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    def never(*_: Any, **__: Any) -> Model:
        raise AssertionError("learned although the model cannot be written")

    with monkeypatch.context() as patch:
        patch.setattr("neocog.learning.recipes.train", never)
        patch.setattr("tempfile.mkstemp", refuse)
        result = run("train", "--data", idx, "-o", tmp_path / "m.safetensors")
    assert result.exit_code == 2
    assert f"files cannot be written in {tmp_path} (permission denied); choose another -o" in said(result)
    monkeypatch.setattr("neocog.learning.recipes.train", no_learning)
    result = run("train", "--data", idx, "-o", tmp_path / "m")
    assert result.stdout.startswith(f"{tmp_path / 'm.safetensors'}  m@")
    assert result.stdout.endswith("(.safetensors added to its name)\n")
    assert [path.name for path in tmp_path.iterdir()] == ["m.safetensors"]
    assert "calibrated" not in result.stderr


def test_train_says_when_nothing_calibrates(
    idx: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neocog.learning.recipes.train", no_learning)
    for label in (3, 7):
        (tmp_path / str(label)).mkdir()
        Image.fromarray(digits_of(str(label))[0]).save(tmp_path / str(label) / "a.png")
    words = ("-o", tmp_path / "m.safetensors", "--data")
    for options in ((tmp_path,), (idx, "--split", "train")):
        result = run("train", *words, *options)
        assert result.exit_code == 0, result.stderr
        assert "neocog: the probabilities are not calibrated: " in result.stderr


def test_recipes_are_listed_and_sets_fetched() -> None:
    result = run("train", "--recipes")
    assert any(line.startswith("fukushima2003 ") for line in result.stdout.splitlines())
    result = run("data", "fetch", "mnist", "--from", "/", "--to", "/none")
    assert result.exit_code == 1
    assert "--from needs the folder with the four .gz files" in said(result)
    assert run("data", "fetch", "emnist").exit_code == 2


def test_doctor_and_that_it_advises_what_the_readme_does(monkeypatch: pytest.MonkeyPatch) -> None:
    report = json.loads(run("doctor", "--json").stdout)
    names = [check["name"] for check in report["checks"]]
    assert [name for name in names if name != "model"][:3] == ["python", "numpy", "opencv"]
    assert {check["level"] for check in report["checks"]} <= {"ok", "warn", "fail"}
    assert all(check["advice"] for check in report["checks"] if check["level"] != "ok")
    monkeypatch.setitem(sys.modules, "cv2", None)
    result = run("doctor")
    assert result.exit_code == 1
    libraries = re.findall(r"apt-get install .*?((?: lib[\w.-]+)+)", README)[0]
    failed, advice = result.stdout[result.stdout.index("fail  opencv") :].splitlines()[:2]
    assert "cannot be imported" in failed
    assert advice.endswith(libraries)


# --- the README -------------------------------------------------------------------------------


def command_of(words: list[str]) -> list[str]:
    """The words that name a command, at the beginning of a command line."""
    path: list[str] = []
    command = get_command(app)
    while isinstance(command, TyperGroup) and words:
        assert words[0] in command.commands, f"neocog {' '.join(path)}: no command {words[0]}"
        path.append(words[0])
        command, words = command.commands[words[0]], words[1:]
    return [*path, *words[:1]] if path == ["bench"] else path  # its commands are those of the experiments


def readme_options() -> Iterator[tuple[list[str], str]]:
    """Every command that the README names, and the options in the same line of it."""
    for line in README.splitlines():
        path: list[str] = []
        for span in re.findall(r"`([^`]+)`", line):
            words = span.split()
            if words[0] == "neocog" and len(words) > 1:
                path = command_of(words[1:])
            elif line.startswith("|") and len(path) > 1 and words[0][0] != "-":
                path = command_of([*path[:-1], *words])  # `models list`, `show NAME`
            if path:
                yield path, "--help"
                yield from ((path, word) for word in words if re.match("--?[a-z]", word))


def test_readme_names_commands_and_options_that_exist() -> None:
    named = list(readme_options())
    assert (["models", "verify"], "--help") in named
    assert (["read"], "-o") in named
    for path, option in named:
        result = run(*path, "--help")
        assert result.exit_code == 0, path
        assert re.search(rf"(?<!\S){option}(?![\w-])", result.stdout), (path, option)


# --- as a process -----------------------------------------------------------------------------

COMMAND = [sys.executable, "-m", "neocog"]


def test_records_are_utf8_in_any_locale(tmp_path: Path, model: str) -> None:
    picture = save_page(tmp_path / "é½.png", "12")
    done = subprocess.run(
        [*COMMAND, "read", str(picture), "--model", model, "--format", "jsonl"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout.decode("utf-8"))["source"] == str(picture)


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_ctrl_c_keeps_what_is_done(tmp_path: Path, model: str) -> None:
    picture = str(save_page(tmp_path / "a.png", "1"))
    output = tmp_path / "out.jsonl"
    process = subprocess.Popen(
        [*COMMAND, "read", "--model", model, "--format", "jsonl", "-o", str(output)] + [picture] * 5000,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: output.exists() and output.stat().st_size)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors == "neocog: interrupted\n"
    lines = output.read_text().splitlines()
    assert 0 < len(lines) < 5000
    assert all(json.loads(line)["text"] == "1" for line in lines)
