"""Records as other programs and people get them: pandas, jq, a table, a page of HTML."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from neocog.batch.forms import Form, kind_of
from neocog.batch.records import DigitReading, PageReading
from neocog.batch.report import Card, Report
from neocog.cli import app
from neocog.errors import UsageError
from tests.support import save_page, tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    tiny_model().save(path)
    return str(path)


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scans")
    save_page(folder / "a.png", "07\n1")
    (folder / "b <i>.png").write_bytes(b"broken")
    save_page(folder / "c.png", "")
    save_page(folder / "d.png", "38")
    return folder


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["read", *map(str, words)])


def test_the_file_says_the_form(model: str, scans: Path, tmp_path: Path) -> None:
    assert [kind_of(name) for name in (None, "a", "a.JSONL", "a.ndjson", "a.csv")] == [
        "text", "text", "jsonl", "jsonl", "csv"
    ]  # fmt: skip
    run(scans, "--model", model, "-o", tmp_path / "out.jsonl")
    assert json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])["text"] == "07\n1"


def test_pandas_reads_both_forms(model: str, scans: Path, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    for name in ("out.jsonl", "out.csv"):
        run(scans, "--model", model, "-o", tmp_path / name)
    lines = pandas.read_json(tmp_path / "out.jsonl", lines=True, dtype={"text": str})
    rows = pandas.read_csv(tmp_path / "out.csv", dtype={"text": str}, keep_default_na=False)
    for table in (lines, rows):
        assert table.text.tolist() == ["07\n1", "", "", "38"]
        assert table.page.tolist() == [0, 0, 0, 0]
    assert lines.error.notna().tolist() == [False, True, False, False]
    assert rows.n_digits.tolist() == [3, 0, 0, 2]


def test_jq_reads_json_lines(model: str, scans: Path) -> None:
    jq = shutil.which("jq")
    if jq is None:
        pytest.skip("jq is not installed")
    command = [sys.executable, "-m", "neocog", "read", str(scans), "--model", model]
    read = subprocess.run([*command, "--format", "jsonl"], capture_output=True)
    wanted = "[.source, .text, (.error == null), (.digits | map(.p) | min)] | @csv"
    found = subprocess.run([jq, "-r", wanted], input=read.stdout, capture_output=True, check=True)
    first, second, *_ = re.split(r"\n(?=\")", found.stdout.decode())
    assert f'"{scans / "a.png"}","07\n1",true,' in first
    assert second.endswith(",false,")


def test_a_table_for_people(model: str, scans: Path, tmp_path: Path) -> None:
    result = run(scans, "--model", model, "--format", "table")
    assert result.exit_code == 1
    words = " ".join(result.stdout.split())
    for word in ("source page text n_digits", "a.png", "07", "38", "no picture that can be"):
        assert word in words
    run(scans, "--model", model, "--format", "table", "-o", tmp_path / "table.txt")
    assert "a.png" in (tmp_path / "table.txt").read_text()


def test_text_of_one_file_has_no_name() -> None:
    form = Form("text", names=False)
    pages = [PageReading("a.tif", page, text) for page, text in enumerate("123")]
    assert "".join(map(form.render, pages)) == "1\n\n2\n\n3\n"


# --- the page ---------------------------------------------------------------------------------


def digit(char: str, p: float, reason: str | None = None) -> DigitReading:
    return DigitReading(char, p, 0.5, (0, 0, 9, 9), reason)


def test_doubts_come_first(tmp_path: Path) -> None:
    sure = PageReading("sure", text="7", digits=(digit("7", 0.99),))
    less = PageReading("less", text="71", digits=(digit("7", 0.99), digit("1", 0.6)))
    some = PageReading("some", text="7?", digits=(digit("7", 0.99), digit("?", 0.1, "two answers")))
    most = PageReading("most", text="?", digits=(digit("?", 0.1, "two answers"),))
    none, bad = PageReading("none"), PageReading("bad", error="the file is empty")
    report = Report(tmp_path / "r.html", most=5)
    for reading in (sure, less, none, most, bad, some):
        report.add(Card(reading))
    report.save()
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert re.findall(r"<small>(\w+)</small>", page) == ["bad", "most", "some", "none", "less"]
    assert "1 more pages" in page
    assert 'class="no" title="p 0.10, two answers">?</span>' in page


def test_the_page_stands_alone(model: str, scans: Path, tmp_path: Path) -> None:
    for workers in ("0", "2"):
        path = tmp_path / f"r{workers}.html"
        run(scans, "--model", model, "--report", path, "--workers", workers)
        page = path.read_text(encoding="utf-8")
        assert page.startswith("<!DOCTYPE html>")
        assert page.count("data:image/jpeg;base64,") == 3
        assert page.count("<article") == 4
        assert "b &lt;i&gt;.png" in page
        assert not re.search(r"https?://|<script|<i>", page)


def test_a_page_that_cannot_be_written(model: str, scans: Path, tmp_path: Path) -> None:
    result = run(scans, "--model", model, "--report", tmp_path / "no" / "r.html")
    assert result.exit_code == 2
    assert "give another --report" in result.stderr
    with pytest.raises(UsageError):
        Report(tmp_path)


def test_an_old_page_stays_where_nothing_is_read(model: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "r.html").write_text("dear")
    result = run(tmp_path / "empty", "--model", model, "--report", tmp_path / "r.html")
    assert result.exit_code == 3
    assert (tmp_path / "r.html").read_text() == "dear"


def test_the_page_has_a_file_of_its_own(model: str, scans: Path, tmp_path: Path) -> None:
    for other in (f"{tmp_path}/x", f"{tmp_path}/./x"):
        result = run(scans, "--model", model, "-o", tmp_path / "x", "--report", other)
        assert result.exit_code == 2
        assert "give another --report" in result.stderr
    assert not (tmp_path / "x").exists()


def test_old_text_goes_though_every_page_fails(model: str, scans: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    out.write_text("of another day")
    assert run(scans / "b <i>.png", "--model", model, "-o", out).exit_code == 1
    assert out.read_text() == ""
