"""What is read where no command is named, what stdin holds, what is skipped, where records go."""

import io
import json
import zipfile
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from neocog.batch.inputs import find_inputs
from neocog.cli import app
from neocog.errors import UsageError
from neocog.reading.reader import Reader
from tests.support import page, run, save_page


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    """Two pictures, one without digits, and files that are not read."""
    folder = tmp_path / "scans"
    (folder / ".hidden").mkdir(parents=True)
    save_page(folder / "a.png", "07")
    Image.new("L", (80, 60), 255).save(folder / "b.png")
    (folder / "notes.txt").write_text("none")
    with zipfile.ZipFile(folder / "z.zip", "w") as archive:
        archive.writestr("x/notes.txt", "none")
        archive.write(folder / "a.png", "x/a.png")
    return folder


def test_a_picture_or_folder_needs_no_command(model: str, scans: Path) -> None:
    assert run(scans / "a.png", "--model", model).stdout == "07\n"
    assert run(scans, "--model", model).stdout == run("read", scans, "--model", model).stdout
    missing = run(scans / "none.png", "--model", model)
    assert (missing.exit_code, "no such file" in missing.stderr) == (1, True)
    assert "Did you mean 'read'?" in run("raed", scans).stderr


def test_near_misses_of_models_and_options(scans: Path) -> None:
    assert "did you mean 'neocog'?" in run("read", scans, "--model", "neocg").stderr
    assert "--model" in run("read", scans, "--modle", "x").stderr


def test_a_run_ends_with_a_summary(model: str, scans: Path) -> None:
    words = ("read", scans, scans / "z.zip", "--model", model)
    plain, told, quiet = run(*words), run(*words, "-v"), run(*words, "-q")
    assert plain.stdout == told.stdout == quiet.stdout
    for result, skipped in ((plain, "4 skipped (-v names them)"), (told, "4 skipped")):
        last = result.stderr.splitlines()[-1]
        assert last.startswith(f"neocog: 3 pages, 1 empty, 0 with ?, {skipped}, 0 failed; ")
        assert last.endswith(" pictures a second")
    assert ": skipped (" not in plain.stderr
    for name, why in (
        (".hidden", "hidden folder"),
        ("notes.txt", "not a picture, by its name"),
        ("z.zip", "not a picture, by its name"),
        ("z.zip/x/notes.txt", "not a picture, by its name"),
    ):
        assert f"neocog: {scans / name}: skipped ({why})\n" in told.stderr
    assert quiet.stderr == ""
    (scans / "c.png").touch()
    quiet = run(*words, "-q")
    told = f"neocog: {scans / 'c.png'}: the file is empty, expected a picture\n"
    assert (quiet.exit_code, quiet.stderr) == (1, told)


@pytest.mark.parametrize("kind", ["png", "jpeg", "bmp", "gif", "tiff", "webp", "ppm"])
@pytest.mark.parametrize("null", [False, True])
def test_a_picture_on_stdin(kind: str, null: bool) -> None:
    stream = io.BytesIO()
    Image.fromarray(page("7")).save(stream, kind)
    (item,) = find_inputs(["-"], null=null, stdin=io.BytesIO(stream.getvalue()))
    assert (item.source, item.data) == ("-", stream.getvalue())


@pytest.mark.parametrize("name", ["BMW.jpg", "GIF89a.gif", "II.tif", "P5.pgm", "P5 1 2.pgm", "RIFF"])
@pytest.mark.parametrize(("null", "end"), [(False, "\n"), (True, "\0")])
def test_names_that_begin_as_pictures_do(name: str, null: bool, end: str) -> None:
    stream = io.BytesIO(f"{name}{end}b.png{end}".encode())
    assert [item.source for item in find_inputs(["-"], null=null, stdin=stream)] == [name, "b.png"]


def test_the_command_reads_stdin(model: str, scans: Path) -> None:
    words = ["read", "-", "--model", model, "--workers", "0"]
    done = CliRunner().invoke(app, words, input=(scans / "a.png").read_bytes())
    assert (done.exit_code, done.stdout) == (0, "07\n")


@pytest.mark.parametrize("suffix", ["csv", "json", "jsonl", "html"])
def test_an_existing_file_stays(suffix: str, model: str, scans: Path) -> None:
    out = scans.parent / f"out.{suffix}"
    words = ("read", scans / "a.png", "--model", model, "--report" if suffix == "html" else "-o", out)
    out.touch()
    assert run(*words).exit_code == 0  # it held nothing
    before = out.read_bytes()
    result = run(*words)
    assert (result.exit_code, "--force to overwrite it" in result.stderr) == (2, True)
    assert ("--resume" in result.stderr) == (suffix == "jsonl")
    out.write_bytes(before + b"\n")
    assert run(*words, "--force").exit_code == 0
    assert out.read_bytes() == before or suffix == "html"
    before = (scans / "a.png").read_bytes()
    with pytest.raises(UsageError, match="is the picture that was read"):
        Reader(model).read(scans / "a.png").save(scans / "a.png")
    assert (scans / "a.png").read_bytes() == before


def test_json_is_one_document(model: str, scans: Path) -> None:
    out = scans.parent / "out.json"
    run("read", scans, "--model", model, "-o", out)
    lines = run("read", scans, "--model", model, "--format", "jsonl").stdout.splitlines()
    assert json.loads(out.read_text()) == [json.loads(line) for line in lines]
    assert run("read", scans, "--model", model, "--json").stdout == out.read_text()
    timed = run("read", scans / "a.png", "--model", model, "--json", "--timings").stdout
    assert json.loads(timed)[0]["ms"]["find"] > 0
