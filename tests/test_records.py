"""Records, where they go, and which inputs they come from."""

import csv
import json
from contextlib import suppress
from pathlib import Path

import pytest

from neocog.batch.output import open_sink
from neocog.reading.formats import Format
from neocog.reading.records import DigitReading
from neocog.reading.results import PageReading

READ = PageReading(
    "a/b.jpg",
    0,
    "07\n?",
    (
        DigitReading("0", 0.99, 0.61, (1, 2, 3, 4)),
        DigitReading("7", 0.98765, 0.5, (5, 2, 3, 4)),
        DigitReading("?", 0.31, 0.01, (9, 2, 3, 4), "two answers"),
    ),
    "neocog@1a2b3c4d",
    ms={"decode": 1.23456, "find": 2.0},
)
FAILED = PageReading("b.jpg", model="neocog@1a2b3c4d", error="the file is empty")


def test_the_record_is_as_documented() -> None:
    assert READ.to_json().startswith(
        '{"schema":1,"source":"a/b.jpg","page":0,"text":"07\\n?","digits":'
        '[{"char":"0","p":0.99,"margin":0.61,"box":[1,2,3,4],"reason":null},'
    )
    record, failed = json.loads(READ.to_json()), json.loads(FAILED.to_json())
    assert list(record) == ["schema", "source", "page", "text", "digits", "model", "error"]
    assert record["digits"][2]["reason"] == "two answers"
    assert (failed["error"], failed["digits"]) == ("the file is empty", [])
    assert READ.to_dict(timings=True)["ms"] == {"decode": 1.235, "find": 2.0}


@pytest.mark.parametrize("name", ["naïve ½.png", "a\nb.png", 'quo"te.png', "bad\udcff.png"])
def test_any_file_name_survives_json(name: str) -> None:
    line = PageReading(name).to_json()
    assert "\n" not in line
    assert json.loads(line.encode())["source"] == name


def test_csv_reads_back(tmp_path: Path) -> None:
    with open_sink(Format("csv"), tmp_path / "out.csv") as sink:
        for reading in (READ, FAILED, PageReading("bad\udcff,\n.png")):
            sink.put(sink.format.render(reading))
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["source"] for row in rows] == ["a/b.jpg", "b.jpg", "bad\\udcff,\\n.png"]
    assert rows[0]["text"] == "07\n?"
    assert (rows[0]["n_digits"], rows[0]["n_rejected"], rows[0]["least_p"]) == ("3", "1", "0.3100")
    assert (rows[0]["reasons"], rows[1]["reasons"]) == ("two answers", "")
    assert (rows[1]["error"], rows[1]["least_p"]) == ("the file is empty", "")


def test_text_has_names_only_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    for names in (True, False):
        with open_sink(Format("text", names=names)) as sink:
            for reading in (READ, FAILED, PageReading("c.tif", 1, "5")):
                sink.put(sink.format.render(reading))
    assert capsys.readouterr().out == "a/b.jpg: 07 | ?\nc.tif page 2: 5\n" + "07\n?\n\n5\n"


@pytest.mark.parametrize("kind", ["text", "jsonl", "csv"])
def test_an_old_file_stays_until_the_first_record_and_each_is_flushed(tmp_path: Path, kind: str) -> None:
    old, form = tmp_path / "out", Format(kind)
    old.write_text("dear")
    with suppress(ZeroDivisionError), open_sink(form, old):
        raise ZeroDivisionError
    with open_sink(form, old):
        assert old.read_text() == "dear"
    assert old.read_text() == form.head
    old.write_text("dear")
    with open_sink(form, old) as sink:
        for count in (1, 2, 3):
            sink.put(form.render(READ))
            assert old.read_text() == form.head + count * form.render(READ)
