"""Records as other programs and people get them: summaries, pandas, JSON, overlays, a page of HTML."""

import json
import os
import re
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from neocog.batch.archives import PACKED_TAR, TAR, ZIP, Item
from neocog.batch.inputs import Shard
from neocog.batch.report import PictureFolder, Report, card_of, cards_of
from neocog.cli import app
from neocog.errors import UsageError
from neocog.reading.formats import Format
from neocog.reading.reader import Reader
from neocog.reading.records import DigitReading
from neocog.reading.results import PageReading
from tests.support import page_file, records, refused, run, save_page, table_of, write_records


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three pictures, one without digits, a broken one, and files that are not read."""
    folder = tmp_path_factory.mktemp("scans")
    save_page(folder / "a.png", "07\n1")
    (folder / "b <i>.png").write_bytes(b"broken")
    save_page(folder / "c.png", "")
    save_page(folder / "d.png", "38")
    (folder / ".hidden").mkdir()
    (folder / "notes.txt").write_text("none")
    with zipfile.ZipFile(folder / "z.zip", "w") as archive:
        archive.writestr("x/notes.txt", "none")
        archive.write(folder / "a.png", "x/a.png")
    return folder


def test_a_picture_a_folder_and_stdin_need_no_command(model: str, scans: Path) -> None:
    assert run(scans / "a.png", "--model", model).stdout == "07\n1\n"
    assert run(scans, "--model", model).stdout == run("read", scans, "--model", model).stdout
    refused("no such file", scans / "none.png", "--model", model, code=1)
    for words, told in ((("raed", scans), "Did you mean 'read'?"), (("read", "--modle", "x"), "--model"),
                        (("read", scans, "--model", "neocg"), "did you mean 'neocog'?")):  # fmt: skip
        assert told in run(*words).stderr
    words = ["read", "-", "--model", model, "--workers", "0"]
    done = CliRunner().invoke(app, words, input=(scans / "a.png").read_bytes())
    assert (done.exit_code, done.stdout) == (0, "07\n1\n")


def test_a_run_ends_with_a_summary(model: str, scans: Path) -> None:
    words = ("read", scans, scans / "z.zip", "--model", model)
    plain, told, quiet = run(*words), run(*words, "-v"), run(*words, "-q")
    assert plain.stdout == told.stdout == quiet.stdout
    named = r"4 skipped \((\.hidden, |notes\.txt, |z\.zip, ){2}\S+; -v names all\)"
    for result, skipped in ((plain, named), (told, "4 skipped")):
        last = result.stderr.splitlines()[-1]
        assert re.match(f"neocog: 5 pages, 1 empty, 0 with \\?, {skipped}, 1 failed; ", last)
        assert last.endswith(" pictures a second")
    assert ": skipped (" not in plain.stderr
    other = "not a picture, by its name"
    for name, why in ((".hidden", "hidden folder"), ("notes.txt", other), ("z.zip", other),
                      ("z.zip/x/notes.txt", other)):  # fmt: skip
        assert f"neocog: {scans / name}: skipped ({why})\n" in told.stderr
    assert (quiet.exit_code, quiet.stderr.count("\n"), "b <i>.png: " in quiet.stderr) == (1, 1, True)


@pytest.mark.parametrize("suffix", ["csv", "json", "jsonl", "html"])
def test_an_existing_file_stays(suffix: str, model: str, scans: Path, tmp_path: Path) -> None:
    out, picture = tmp_path / f"out.{suffix}", scans / "a.png"
    words = ("read", picture, "--model", model, "--report" if suffix == "html" else "-o", out)
    out.touch()
    assert run(*words).exit_code == 0  # it held nothing
    before = out.read_bytes()
    assert ("--resume" in refused("--force to overwrite it", *words)) == (suffix == "jsonl")
    out.write_bytes(before + b"\n")
    assert run(*words, "--force").exit_code == 0
    assert out.read_bytes() == before or suffix == "html"


def test_no_picture_is_saved_over(model: str, scans: Path) -> None:
    picture = scans / "a.png"
    before = picture.read_bytes()
    with pytest.raises(UsageError, match="is the picture that was read"):
        Reader(model).read(picture).save(picture)
    assert picture.read_bytes() == before


@pytest.mark.parametrize("option", ["-o", "--report"])
def test_no_words_go_into_pictures(option: str, model: str, scans: Path, tmp_path: Path) -> None:
    for end in (*ZIP, *TAR, *PACKED_TAR, *".7z .JPG .webp .mp4 .safetensors .xlsx".split()):
        out = tmp_path / f"out.jsonl{end}"
        out.write_text("dear")
        words = ("read", scans, "--model", model, "--format", "text", option, out)
        refused(f"; choose another {option}\n", *words)
        assert out.read_text() == "dear"


def test_pandas_reads_both_forms_and_json_is_one_document(model: str, scans: Path, tmp_path: Path) -> None:
    for name in ("out.jsonl", "out.csv", "out.json"):
        run("read", scans, "--model", model, "-o", tmp_path / name)
    text = (tmp_path / "out.json").read_text()
    assert json.loads(text) == records(tmp_path / "out.jsonl")
    assert run("read", scans, "--model", model, "--json").stdout == text
    timed = run("read", scans / "a.png", "--model", model, "--json", "--timings").stdout
    assert json.loads(timed)[0]["ms"]["find"] > 0
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    lines = pandas.read_json(tmp_path / "out.jsonl", lines=True, dtype={"text": str})
    rows = pandas.read_csv(tmp_path / "out.csv", dtype={"text": str}, keep_default_na=False)
    for table in (lines, rows):
        assert table.text.tolist() == ["07\n1", "", "", "38"]
        assert table.page.tolist() == [0, 0, 0, 0]
    assert lines.error.notna().tolist() == [False, True, False, False]
    assert rows.n_digits.tolist() == [3, 0, 0, 2]


@pytest.mark.parametrize("form", ["text", "jsonl", "csv"])
def test_what_has_not_the_pattern_is_told(
    form: str, model: str, scans: Path, tmp_path: Path, monkeypatch
) -> None:
    names = [scans / name for name in ("a.png", "c.png", "d.png")]
    words = ("--model", model, "--format", form)
    result = run("read", *names, *words, "--pattern", "##")
    assert result.stderr.splitlines()[:-1] == [
        f"neocog: {names[0]}: line 2 (1): not of the form '##' of --pattern",
        f"neocog: {names[1]}: no digits found",
    ]
    assert ("fits" in result.stdout) == (form != "text")
    assert "fits" not in run("read", *names, *words).stdout
    if form == "text":
        (pages := tmp_path / "two.tif").write_bytes(page_file("", "7", kind="TIFF"))
        assert f"{pages} page 1: no digits found\n" in run("read", pages, *words).stderr
    if form == "csv":
        run("read", scans, *words, "--pattern", "##", "-o", tmp_path / "out")
        assert [row["fits"] for row in table_of(tmp_path / "out")] == ["false", "", "false", "true"]
    monkeypatch.setattr("neocog.vision.scales._WORK", 0)  # as if there were more than is searched
    told = f"{names[0]}: digits of less than 10 pixels, others may be missing; give a larger scan\n"
    assert (told in run("read", names[0], *words).stderr) == (form != "jsonl")


@pytest.mark.parametrize("kind", ["text", "json", "csv"])
def test_an_empty_share_has_an_empty_file(kind: str, model: str, tmp_path: Path) -> None:
    (share,) = (n for n in (1, 2) if not Shard(n, 2).holds("a.png"))
    (tmp_path / "one").mkdir()
    save_page(tmp_path / "one" / "a.png", "7")
    out = tmp_path / "out"
    for _ in range(2):
        result = run("read", tmp_path / "one", "--model", model, "--format", kind,
                     "--shard", f"{share}/2", "-o", out, "--force")  # fmt: skip
        assert (result.exit_code, result.stderr) == (0, "")
        assert out.read_text() == Format(kind).head + Format(kind).tail
        out.write_text("of another day")


def test_a_pdf_without_pages_leaves_none_of_another_day(model: str, scans: Path, tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    (out := tmp_path / "out.pdf").write_text("of another day")
    done = run("read", scans / "b <i>.png", "--model", model, "-o", out, "--force")
    assert (done.exit_code, out.exists()) == (1, False)


def test_no_spreadsheet_runs_a_cell(tmp_path: Path) -> None:
    names = ["=1+1", "+1+1", "-1+1", "@x", "'x", "-5", "+5.5", "07946", "a=b", "", "＝1"]
    readings = [PageReading(name, text=name, model=name, error=name) for name in names]
    rows = table_of(write_records(tmp_path / "out.csv", Format("csv"), *readings))
    for column in ("source", "text", "model", "error"):
        cells = [row[column] for row in rows]
        assert [cell.removeprefix("'") for cell in cells] == names
        assert [cell for cell in cells if cell[:1] in "=+-@＝"] == ["-5", "+5.5", ""]
    assert json.loads(Format("jsonl").render(readings[0]))["source"] == "=1+1"
    for kind, comma in (("csv", ","), ("tsv", "\t")):  # nor the name of a field
        assert f"{comma}'=HYPERLINK(1){comma}" in Format(kind, fields=("=HYPERLINK(1)",)).head


def test_doubts_come_first(tmp_path: Path) -> None:
    def of(source: str, text: str = "", *ps: float, fits: bool | None = None) -> PageReading:
        digits = tuple(
            DigitReading(char, p, 0.5, (0, 0, 9, 9), "two answers" if char == "?" else None)
            for char, p in zip(text, ps, strict=True)
        )
        return PageReading(source, text=text, digits=digits, fits=fits)

    bad, report = PageReading("bad", error="the file is empty"), Report(tmp_path / "r.html", most=6)
    for reading in (
        of("sure", "7", 0.99), of("less", "71", 0.99, 0.6), of("none"), bad,
        of("long", "71", 0.99, 0.6, fits=False), of("most", "?", 0.1), of("some", "7?", 0.99, 0.1),
    ):  # fmt: skip
        report.add(card_of(reading))
    report.save()
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert re.findall(r"<small>(\w+)</small>", page) == "bad long most some none less".split()
    for words in ("1 do not fit --pattern or --valid,", "1 more pages",
                  "<small>a line does not fit --pattern or --valid, least probable digit 0.60",
                  'class="no" title="p 0.10, two answers">?</span>'):  # fmt: skip
        assert words in page


@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_page_stands_alone(workers: str, model: str, scans: Path, tmp_path: Path) -> None:
    path = tmp_path / "r.html"
    run("read", scans, "--model", model, "--report", path, "--workers", workers)
    page = path.read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert (page.count("data:image/jpeg;base64,"), page.count("<article")) == (3, 4)
    assert "b &lt;i&gt;.png" in page
    assert not re.search(r"https?://|<script|<i>", page)


def test_overlays_have_the_same_names_on_every_run(model: str, tmp_path: Path) -> None:
    scans, other = tmp_path / "scans", tmp_path / "other"
    for name in ("1/a.png", "2/a.png", "2/b.png", "2/b.bmp"):
        (scans / name).parent.mkdir(parents=True, exist_ok=True)
        save_page(scans / name, "7")
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        archive.write(scans / "1/a.png", "../1/a.png")
    words = (scans, tmp_path / "z.zip", "--model", model)
    for folder, more in ((tmp_path / "seen", ()), (other, ("--shard", "1/2")),
                         (other, ("--shard", "2/2"))):  # fmt: skip
        assert run("read", *words, "--workers", "0", "--save-overlay", folder, *more).exit_code == 0
    names = [p.relative_to(tmp_path / "seen") for p in sorted(tmp_path.glob("seen/*/*"))]
    assert [re.sub("-[0-9a-f]{8}", "-#", name.as_posix()) for name in names] == [
        "1/a-#.read.png", "1/a.read.png", "2/a.read.png", "2/b-#.read.png", "2/b-#.read.png"
    ]  # fmt: skip
    assert [p.relative_to(other) for p in sorted(other.glob("*/*"))] == names


@pytest.mark.skipif(os.name == "nt", reason="needs pipes with a name")
def test_a_picture_that_is_another_one_by_now(tmp_path: Path) -> None:
    """It may be a pipe, which nobody waits for."""
    reading, item = PageReading(str(tmp_path / "a.png"), 0, "7"), Item(str(tmp_path / "a.png"), "a.png")
    folder = PictureFolder(tmp_path / "seen")
    for make in (os.mkfifo, lambda path: path.write_bytes(b"none"), Path.mkdir):
        make(tmp_path / "a.png")
        (said,) = folder.save_all([(item, [reading])])
        assert f"{item.source}: not drawn: " in said
        assert ["<img" in article for *_, article in cards_of(item, (reading,))] == [False]
        (tmp_path / "a.png").rename(tmp_path / str(id(make)))
    assert os.listdir(tmp_path / "seen") == []


def test_pictures_of_long_names(model: str, tmp_path: Path) -> None:
    scans = tmp_path / "scans"
    for folder in ("x" * 250, "\u5b57" * 80):
        (scans / folder).mkdir(parents=True)
        for end in "ab":
            save_page(scans / folder / (folder[:-4] + end + ".png"), "7")
    result = run("read", scans, "--model", model, "-q", "--save-overlay", tmp_path / "seen")
    assert (result.exit_code, result.stderr) == (0, "")
    assert len(list(tmp_path.glob("seen/*/*"))) == 4
