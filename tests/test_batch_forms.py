"""Records as other programs and people get them: pandas, jq, overlays, a page of HTML."""

import csv
import json
import os
import re
import zipfile
from pathlib import Path

import pytest

from neocog.batch.archives import PACKED_TAR, TAR, ZIP, Item
from neocog.batch.inputs import Shard
from neocog.batch.report import PictureFolder, Report, card_of, cards_of
from neocog.reading.formats import Format
from neocog.reading.records import DigitReading, PageReading
from tests.support import run, save_page


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scans")
    save_page(folder / "a.png", "07\n1")
    (folder / "b <i>.png").write_bytes(b"broken")
    save_page(folder / "c.png", "")
    save_page(folder / "d.png", "38")
    return folder


@pytest.mark.parametrize("option", ["-o", "--report"])
def test_no_words_go_into_pictures(option: str, model: str, scans: Path, tmp_path: Path) -> None:
    for end in (*ZIP, *TAR, *PACKED_TAR, *".7z .JPG .webp .mp4 .safetensors .xlsx".split()):
        out = tmp_path / f"out.jsonl{end}"
        out.write_text("dear")
        result = run("read", scans, "--model", model, "--format", "text", option, out)
        assert result.exit_code == 2
        assert result.stderr.endswith(f"; choose another {option}\n")
        assert out.read_text() == "dear"


def test_pandas_reads_both_forms(model: str, scans: Path, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    for name in ("out.jsonl", "out.csv"):
        run("read", scans, "--model", model, "-o", tmp_path / name)
    lines = pandas.read_json(tmp_path / "out.jsonl", lines=True, dtype={"text": str})
    rows = pandas.read_csv(tmp_path / "out.csv", dtype={"text": str}, keep_default_na=False)
    for table in (lines, rows):
        assert table.text.tolist() == ["07\n1", "", "", "38"]
        assert table.page.tolist() == [0, 0, 0, 0]
    assert lines.error.notna().tolist() == [False, True, False, False]
    assert rows.n_digits.tolist() == [3, 0, 0, 2]


@pytest.mark.parametrize("form", ["text", "jsonl", "csv"])
def test_what_has_not_the_pattern_is_told(form: str, model: str, scans: Path) -> None:
    names = [scans / name for name in ("a.png", "c.png", "d.png")]
    words = ("--model", model, "--format", form)
    result = run("read", *names, *words, "--pattern", "##")
    assert result.stderr.splitlines()[:-1] == [
        f"neocog: {names[0]}: does not fit the pattern",
        f"neocog: {names[1]}: no digits found",
    ]
    assert ("fits" in result.stdout) == (form != "text")
    assert "fits" not in run("read", *names, *words).stdout
    result = run("read", scans, "--model", model, "--format", "csv", "--pattern", "##")
    rows = list(csv.DictReader(result.stdout.splitlines(keepends=True)))
    assert [row["fits"] for row in rows] == ["false", "", "false", "true"]


# --- the page ---------------------------------------------------------------------------------


def digit(char: str, p: float, reason: str | None = None) -> DigitReading:
    return DigitReading(char, p, 0.5, (0, 0, 9, 9), reason)


def test_doubts_come_first(tmp_path: Path) -> None:
    sure = PageReading("sure", text="7", digits=(digit("7", 0.99),))
    less = PageReading("less", text="71", digits=(digit("7", 0.99), digit("1", 0.6)))
    some = PageReading("some", text="7?", digits=(digit("7", 0.99), digit("?", 0.1, "two answers")))
    most = PageReading("most", text="?", digits=(digit("?", 0.1, "two answers"),))
    none, bad = PageReading("none"), PageReading("bad", error="the file is empty")
    long = PageReading("long", text="71", digits=less.digits, fits=False)
    report = Report(tmp_path / "r.html", most=6)
    for reading in (sure, less, none, long, most, bad, some):
        report.add(card_of(reading))
    report.save()
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert re.findall(r"<small>(\w+)</small>", page) == [
        "bad", "long", "most", "some", "none", "less"
    ]  # fmt: skip
    assert "1 do not fit the pattern" in page
    assert "<small>does not fit the pattern, least probable digit 0.60" in page
    assert "1 more pages" in page
    assert 'class="no" title="p 0.10, two answers">?</span>' in page


def test_the_page_stands_alone(model: str, scans: Path, tmp_path: Path) -> None:
    for workers in ("0", "2"):
        path = tmp_path / f"r{workers}.html"
        run("read", scans, "--model", model, "--report", path, "--workers", workers)
        page = path.read_text(encoding="utf-8")
        assert page.startswith("<!DOCTYPE html>")
        assert page.count("data:image/jpeg;base64,") == 3
        assert page.count("<article") == 4
        assert "b &lt;i&gt;.png" in page
        assert not re.search(r"https?://|<script|<i>", page)


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


# --- pictures ---------------------------------------------------------------------------------


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
def test_a_picture_that_is_another_one_by_now(model: str, tmp_path: Path) -> None:
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


def test_no_spreadsheet_runs_a_cell() -> None:
    names = ["=1+1", "+1+1", "-1+1", "@x", "'x", "-5", "+5.5", "07946", "a=b", "", "＝1"]
    readings = [PageReading(name, text=name, model=name, error=name) for name in names]
    rows = list(csv.DictReader(Format("csv").head.splitlines() + [
        line for reading in readings for line in Format("csv").render(reading).splitlines()
    ]))  # fmt: skip
    for column in ("source", "text", "model", "error"):
        cells = [row[column] for row in rows]
        assert [cell.removeprefix("'") for cell in cells] == names
        assert [cell for cell in cells if cell[:1] in "=+-@＝"] == ["-5", "+5.5", ""]
    assert json.loads(Format("jsonl").render(readings[0]))["source"] == "=1+1"
