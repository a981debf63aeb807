"""What a stranger meets first: the wheel, the start-up time, the README and its commands."""

import csv
import importlib
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from typer.main import get_command

import neocog
from neocog.cli import app

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "experiments").rglob("README.md"),
         *(ROOT / folder / "README.md" for folder in ("data", "models"))]  # fmt: skip


def run(*command, cwd=ROOT):
    """Run a command to its end and return what it printed."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_commands_start_quickly():
    resource = pytest.importorskip("resource")

    def seconds():  # of processor time: others may be at work on this machine
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run(sys.executable, "-m", "neocog", "--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert any(seconds() < 0.3 for _ in range(3))
    code = "import sys, neocog.cli; print({'numpy', 'cv2', 'PIL', 'rich', 'torch'} & {*sys.modules})"
    assert run(sys.executable, "-c", code) == "set()\n"


def test_public_names_are_there():
    assert set(neocog.__all__) <= set(dir(neocog))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = neocog.nothing


def test_tables_are_up_to_date():
    from experiments import tables

    stale = [page for page in tables.pages() if tables.render(page) != page.read_text()]
    assert not stale, "run python -m experiments.tables"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text()):
        path, _, title = target.partition("#")
        other = page.parent / path if path else page
        assert other.exists(), target
        if title and other.suffix == ".md":
            titles = re.findall(r"^#+ (.*)$", other.read_text(), re.MULTILINE)
            assert title in {re.sub(r"[^\w -]", "", t).lower().replace(" ", "-") for t in titles}


def test_the_readme_is_short_and_names_every_command_and_options_that_exist():
    assert len(README.encode()) <= 8000
    assert "@" not in re.sub(r"`[^`]*`", "", README)  # a model's version is for docs
    for name, command in get_command(app).commands.items():
        assert f"`neocog {name} " in README or f"`neocog {name}`" in README
        for part in getattr(command, "commands", ()):
            assert re.search(rf"`neocog {name}.*\b{part}\b", README), f"neocog {name} {part}"
    for line in README.splitlines():
        options = set()
        for words in map(str.split, re.findall(r"`([^`]+)`", line)):
            if words[0] == "neocog" and words[1:2] != ["bench"]:  # whose commands are the experiments'
                command = get_command(app)
                for word in words[1:]:
                    command = getattr(command, "commands", {word: command})[word]
                options = {"--help", *(word for option in command.params for word in option.opts)}
            assert not options or {w for w in words if re.match("--?[a-z]", w)} <= options, words
    _, test = re.findall(r"^pip install .* && .*$", README, re.MULTILINE)
    assert f"\n{test} || exit 1\n" in (ROOT / ".ci" / "run").read_text()


def test_reader_reads_the_samples():
    reader, samples = neocog.Reader(), ROOT / "data" / "samples"
    with (samples / "labels.csv").open(newline="") as stream:
        wanted = {row["file"]: row["text"].replace("|", "\n") for row in csv.DictReader(stream)}
    assert {name: reader.read(samples / name).text for name in wanted} == wanted
    assert {*wanted, "labels.csv"} == {path.name for path in samples.iterdir()}


@pytest.mark.slow
def test_what_the_docs_show_from_python(tmp_path, monkeypatch, capsys):
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "photo.jpg", tmp_path / "docs")
    monkeypatch.chdir(tmp_path)
    names = {}
    for page in (README, (ROOT / "docs" / "python.md").read_text()):
        for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
            exec(block, names)
    *lines, place, sure, word, many, _, last, missing, difference, result = (
        capsys.readouterr().out.splitlines()
    )
    read = "\n".join(lines)
    assert (many, last) == (f"docs/photo.jpg 0 {lines[0]}", lines[2])
    assert missing.startswith("missing.jpg 0 cannot be opened")
    assert word == lines[1] == (tmp_path / "photo.tsv").read_text().split()[1]
    assert f"$ neocog read docs/photo.jpg\n{read}\n```" in README
    assert f"page.text  # {read!r}" in README
    assert place[0] == "2"
    assert float(sure) == round(names["first"].p, 2) > 0.8
    assert float(difference) < 1e-2  # of an engine in fp16, where there is one
    assert result.startswith(f"<Model {names['mine'].id}: fukushima2003, 16/12/24/40 planes")
    assert (tmp_path / "us1.png").stat().st_size > 1000
    assert names["load_model"](tmp_path / "mine.safetensors").id == names["mine"].id


@pytest.mark.slow
def test_wheel_finds_its_model_outside_the_checkout(tmp_path):
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, ROOT)
    (wheel,) = tmp_path.glob("neocog-*.whl")
    assert "neocog/serve/static/app.js" in zipfile.ZipFile(wheel).namelist()
    venv.create(tmp_path / "venv", with_pip=False, system_site_packages=False)
    python = tmp_path / "venv" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", wheel)
    command = python.with_name("neocog")
    assert "90412" in run(command, "read", ROOT / "data" / "samples" / "postcode.png", cwd=tmp_path)
    bench = subprocess.run([command, "bench", "all"], capture_output=True, text=True, cwd=tmp_path)
    assert (bench.returncode, bench.stderr.count("\n")) == (2, 1)
    assert "need a clone" in bench.stderr
    where = "from neocog.network.registry import find_model; print(find_model('neocog'))"
    place = Path(run(python, "-c", where, cwd=tmp_path).strip())
    assert place.parent.name == "_models"
    assert tmp_path in place.parents
    assert (place.parent.parent / "_kernels").is_dir()


@pytest.mark.parametrize("page", ["security.md", "serve.md"])
def test_the_page_tells_the_bounds_that_hold(page):
    text = (ROOT / "docs" / page).read_text()
    rows = re.findall(r"^\| .* \| ([\d ]+) \| `([\w.]+)` \|$", text, re.MULTILINE)
    assert len(rows) >= 8
    for value, place in rows:
        module, _, name = place.rpartition(".")
        assert int(value.replace(" ", "")) == getattr(importlib.import_module(module), name), place
