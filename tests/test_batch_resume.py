"""Going on where a run broke off: nothing is lost, nothing comes twice."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from neocog.batch.forms import Form
from neocog.batch.records import PageReading
from neocog.batch.resume import read_done
from neocog.batch.sinks import open_sink
from neocog.cli import app
from neocog.errors import UsageError
from tests.support import page, save_page, tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    tiny_model().save(path)
    return str(path)


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven pictures, one of two pages, one broken."""
    folder = tmp_path_factory.mktemp("scans")
    for number in range(5):
        save_page(folder / f"{number}.png", str(number))
    (folder / "3.png").write_bytes(b"broken")
    first, second = (Image.fromarray(page(text)) for text in ("12", "345"))
    first.save(folder / "2b.tif", save_all=True, append_images=[second])
    return folder


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["read", *map(str, words)])


def lines_of(*readings: PageReading) -> bytes:
    return b"".join(reading.to_json().encode() + b"\n" for reading in readings)


def test_what_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert read_done(out, model="m").pages == 0
    first = lines_of(PageReading("a", model="m"), PageReading("a", 1, model="m", error="no"))
    last = lines_of(PageReading("b", model="m"))
    for torn in (b"", b'{"schema":1,"sour', b"\0\0\0\0"):
        out.write_bytes(first + last + torn)
        done = read_done(out, model="m")
        assert (done.end, done.inputs, done.pages, done.failed) == (len(first), 1, 2, 1)
        assert [done.take("a"), done.take("a"), done.take("b")] == [True, False, False]


def test_an_input_named_twice(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    one = PageReading("a", model="m")
    out.write_bytes(lines_of(one, one, PageReading("z", model="m")))
    done = read_done(out, model="m")
    assert [done.take("a") for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize("torn", [b"", b"{", b'{"schema":1,"source":"x', b"\0\0"])
def test_the_first_record_may_be_torn(torn: bytes, tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(torn)
    assert read_done(tmp_path / "out", model="m").end == 0


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"dear diary\n", "holds no records"),
        (b"dear diary", "holds no records"),
        (b'{"schema":2}\n', "holds no records"),
        (b"[1]\n" * 3, "holds no records"),
        (lines_of(PageReading("a", model="n")), "written with the model n"),
        (lines_of(PageReading("a", model="m")) + b"x\n" + lines_of(PageReading("b", model="m")),
         "line 2 is damaged"),
    ],
)  # fmt: skip
def test_files_that_are_left_alone(data: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(data)
    with pytest.raises(UsageError, match=words):
        read_done(tmp_path / "out", model="m")
    assert (tmp_path / "out").read_bytes() == data


def test_it_is_for_a_file_of_json_lines(model: str, scans: Path, tmp_path: Path) -> None:
    for words in ([], ["-o", tmp_path / "out.csv"], ["-o", tmp_path / "x", "--format", "text"]):
        result = run(scans, "--model", model, "--resume", *words)
        assert result.exit_code == 2
        assert "give --format jsonl and -o" in result.stderr


@pytest.mark.parametrize("workers", [0, 2])
def test_any_torn_file_is_mended(workers: int, model: str, scans: Path, tmp_path: Path) -> None:
    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    words = (scans, "--model", model, "--workers", workers, "-o")
    assert run(*words, whole).exit_code == 1
    data = whole.read_bytes()
    ends = [i + 1 for i, byte in enumerate(data) if byte == 10]
    cuts = (0, 5, len(data) // 2, ends[2], ends[3] + 1, len(data)) if workers == 0 else (ends[3],)
    for cut in cuts:
        out.write_bytes(data[:cut])
        result = run(*words, out, "--resume")
        assert result.exit_code == 1  # the broken picture counts, whichever run met it
        assert sorted(out.read_bytes().splitlines()) == sorted(data.splitlines())
        assert result.stderr.endswith("neocog: 1 of 7 could not be read\n")


def test_a_finished_file_stays_as_it_is(model: str, scans: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    run(scans / "0.png", scans / "1.png", "--model", model, "-o", out)
    before = out.read_bytes()
    assert (
        run(scans / "0.png", scans / "1.png", "--model", model, "-o", out, "--resume").exit_code
        == 0
    )
    assert out.read_bytes() == before
    assert [json.loads(line)["text"] for line in before.splitlines()] == ["0", "1"]


def test_nothing_leaves_before_it_is_read_again(model: str, scans: Path, tmp_path: Path) -> None:
    out, empty = tmp_path / "out.jsonl", tmp_path / "empty"
    empty.mkdir()
    run(scans / "0.png", scans / "3.png", "--model", model, "-o", out)
    before = out.read_bytes()
    words = ("--model", model, "-o", out, "--resume")
    assert run(empty, *words).exit_code == 3
    assert out.read_bytes() == before
    result = run(scans / "1.png", *words)
    assert result.exit_code == 1  # 3.png is among the records still
    assert result.stderr.endswith("neocog: 1 of 3 could not be read\n")
    names = [Path(json.loads(line)["source"]).name for line in out.read_text().splitlines()]
    assert names == ["0.png", "1.png", "3.png"]
    assert run(scans / "3.png", *words).exit_code == 1
    assert set(before.splitlines()) < set(out.read_bytes().splitlines())
    assert len(out.read_bytes().splitlines()) == 3


def test_a_torn_line_is_cut_off_though_nothing_comes(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    whole = lines_of(PageReading("a", model="m"), PageReading("b", model="m"))
    out.write_bytes(whole + b'{"schema"')
    with open_sink(Form("jsonl"), out, done=read_done(out, model="m")):
        pass
    assert out.read_bytes() == whole


def test_what_is_not_written_anew_returns(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    old, new = (PageReading(name, model="m") for name in ("a", "b"))
    for more in ([], [old]):
        out.write_bytes(lines_of(old))
        done = read_done(out, model="m")
        with suppress(KeyboardInterrupt), open_sink(Form("jsonl"), out, done=done) as sink:
            assert not done.take("a")
            for reading in (new, *more):
                sink.write(reading)
            assert out.read_bytes() == lines_of(new, *more)
            raise KeyboardInterrupt
        assert out.read_bytes() == lines_of(new, old)
