"""Outputs: locked by one run, whole or valid whatever happens, gone on with where they break off."""

import errno
import json
import os
import random
import shlex
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from neocog.batch.output import Done, open_sink
from neocog.errors import EndedEarly, UsageError
from neocog.reading.formats import Format, kind_of
from neocog.reading.results import PageReading
from tests.support import few, page_file, records, refused, run, save_page, until

posix = pytest.mark.skipif(os.name == "nt", reason="needs POSIX locks and pipes")
COMMAND = [sys.executable, "-m", "neocog", "read"]
A, B, C = (PageReading(name, text="7", model="m") for name in "abc")


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven pictures, one of two pages, one broken."""
    folder = tmp_path_factory.mktemp("scans")
    for number in range(5):
        save_page(folder / f"{number}.png", str(number))
    (folder / "3.png").write_bytes(b"broken")
    (folder / "2b.tif").write_bytes(page_file("12", "345", kind="TIFF"))
    return folder


def lines_of(*readings: PageReading) -> bytes:
    return b"".join(reading.to_json().encode() + b"\n" for reading in readings)


def write(out: Path, *steps: Any, resume: bool = False) -> None:
    """Write records, "b" anew, and do what there is to do between them."""
    with open_sink(Format(kind_of(str(out)), names=False), out) as sink:
        if resume:
            sink.resume(Done(out, model="m"))
        for step in steps:
            if isinstance(step, PageReading):
                sink.put(sink.format.render(step), anew=step is B)
            else:
                step()


def test_what_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert Done(out, model="m").last.pages == 0
    for torn in (b"", b"{", b'{"schema":1,"source":"x', b"\0\0"):
        out.write_bytes(torn)
        assert (Done(out, model="m").end, Done(out, model="m").tail) == (0, b"")
    first = lines_of(A, PageReading("a", 1, model="m", error="no"))
    for torn in (b"", b'{"schema":1,"sour', b"\0\0\0\0"):
        out.write_bytes(first + lines_of(B) + torn)
        done = Done(out, model="m", settings={"min_p": 0.4})  # records may tell no settings
        before = done.before
        assert (done.end, before.inputs, before.pages, before.failed) == (len(first), 1, 2, 1)
        assert (done.source, done.tail) == ("b", lines_of(B))
        assert [done.take("a"), done.take("a"), done.take("b")] == [True, False, False]
    out.write_bytes(lines_of(A).replace(b"}", b',"settings":{"min_p":0.4,"valid":"0123abcd"}}'))
    for given in ({"min_p": 0.4}, {"min_p": 0.4, "valid": "4567"}):
        with pytest.raises(UsageError, match="with another --valid, or none; give that one or choose"):
            Done(out, model="m", settings=given)
    out.write_bytes(lines_of(A, A, B))  # an input that was named twice
    done = Done(out, model="m")
    assert [done.take("a") for _ in range(3)] == [True, True, False]
    out.write_bytes(lines_of(A, B).replace(b'"a"', b'"\\ud800"'))
    assert Done(out, model="m").take("\ud800")


NESTED = b'{"schema":1,"source":' + b"[" * 100_000 + b"\n"


@pytest.mark.parametrize(("data", "words"), [
    *((data, "does not hold neocog's records") for data in (
        b"dear diary\n", b"dear diary", b'{"schema":2}\n', b"[1]\n" * 3, NESTED, b"\xff\xfe{\n",
        lines_of(A).replace(b"}", b',"settings":7}'))),
    (lines_of(PageReading("a", model="n")), "written with the model n"),
    (lines_of(A) + b"x\n" + lines_of(B), "line 2 is damaged"),
    (lines_of(A) + NESTED, "line 2 is damaged"),
    (lines_of(A) + lines_of(B).replace(b'"b"', b'"\xff"'), "line 2 is damaged"),
])  # fmt: skip
def test_files_that_are_left_alone(data: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(data)
    with pytest.raises(UsageError, match=words):
        Done(tmp_path / "out", model="m")
    assert (tmp_path / "out").read_bytes() == data


def test_any_torn_file_is_mended(model: str, scans: Path, tmp_path: Path) -> None:
    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    words = ("read", scans, "--model", model, "-o")
    assert run(*words, whole).exit_code == 1
    data = whole.read_bytes()
    ends = [i + 1 for i, byte in enumerate(data) if byte == 10]
    for workers, cut in ((0, len(data) // 2), (0, len(data)), (2, ends[3] + 1)):
        out.write_bytes(data[:cut])
        result = run(*words, out, "--resume", "--workers", workers)
        assert result.exit_code == 1  # the broken picture counts, whichever run met it
        assert sorted(out.read_bytes().splitlines()) == sorted(data.splitlines())
        assert ", 1 failed; " in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("first", "then"),
    [("", "--min-p 0.999"), ("--pattern '#'", ""), ("--pattern '#'", "--pattern '##'"), ("", "--isolated")],
)
def test_records_of_other_settings_are_left_alone(first, then, model, scans, tmp_path):
    out = tmp_path / "out.jsonl"
    words = ("--model", model, "-o", out)
    assert run("read", scans / "0.png", *words, *shlex.split(first)).exit_code == 0
    before = out.read_bytes()
    told = f"was written with --min-p 0.4 {first}".strip() + ", now --min-p 0."
    assert then in refused(told, "read", scans, *words, "--resume", *shlex.split(then))
    assert out.read_bytes() == before
    result = run("read", scans / "0.png", *words, "--resume", *shlex.split(first))
    assert (result.exit_code, result.stderr) == (0, "neocog: all inputs (1) were already read\n")
    assert out.read_bytes() == before


def test_nothing_leaves_before_it_is_read_again(model: str, scans: Path, tmp_path: Path) -> None:
    out, empty = tmp_path / "out.jsonl", tmp_path / "empty"
    empty.mkdir()
    words = ("--model", model, "-o", out)
    run("read", scans / "0.png", scans / "3.png", *words)
    before = out.read_bytes()
    refused("no pictures found", "read", empty, *words, "--resume", code=3)
    assert out.read_bytes() == before
    result = run("read", scans / "1.png", *words, "--resume")
    assert result.exit_code == 1  # 3.png is among the records still
    assert "neocog: 3 pages (2 pictures read before), " in result.stderr
    assert ", 1 failed; " in result.stderr
    assert run("read", scans / "3.png", *words, "--resume").exit_code == 1
    names = sorted(Path(record["source"]).name for record in records(out))
    assert names == ["0.png", "1.png", "3.png"]


@pytest.mark.parametrize("torn", [b"", b'{"schema"', None])
def test_the_last_input_stays_at_the_end_until_it_is_read_again(torn: bytes | None, tmp_path: Path) -> None:
    out, old = tmp_path / "out.jsonl", lines_of(A, B)
    for steps, wanted in (((), (A, B)), ((C,), (A, C, B)), ((C, B, A), (A, C, B, A)), ((B, C), (A, B, C))):
        whole = lines_of(*wanted)
        out.write_bytes(old[:-1] if torn is None else old + torn)
        write(out, *steps, lambda end=whole: out.read_bytes() == end or pytest.fail("too late"), resume=True)
        assert out.read_bytes() == whole
        assert os.listdir(tmp_path) == ["out.jsonl"]


@pytest.mark.slow
@posix
def test_twenty_kills(model: str, tmp_path: Path) -> None:
    (tmp_path / "scans").mkdir()
    for n in range(200):
        save_page(tmp_path / "scans" / f"{n:03}.png", str(n % 10))
    out, rng = tmp_path / "out.jsonl", random.Random(0)
    words = [str(tmp_path / "scans"), "--model", model, "--workers", "2", "-q", "-o"]
    assert run("read", *words, tmp_path / "whole.jsonl").exit_code == 0
    for _ in range(20):
        process = subprocess.Popen([*COMMAND, *words, str(out), "--resume"], stderr=subprocess.PIPE)
        time.sleep(rng.uniform(1, 4))
        process.kill()
        assert b"neocog" not in process.communicate()[1]
    assert run("read", *words, out, "--resume").exit_code == 0
    whole = (tmp_path / "whole.jsonl").read_bytes().splitlines()
    assert sorted(out.read_bytes().splitlines()) == sorted(whole)
    assert len(whole) == 200
    assert sorted(os.listdir(tmp_path)) == ["out.jsonl", "scans", "whole.jsonl"]


@posix
@pytest.mark.parametrize("old", [b"", lines_of(A)])
def test_a_file_that_goes_is_noticed(old: bytes, tmp_path: Path) -> None:
    out, other = tmp_path / "out.jsonl", tmp_path / "other"
    gone = r"out\.jsonl: was removed, replaced or shortened during the run; .*, read again$"
    for goes, there in (
        (out.unlink, False), (lambda: other.rename(out), True), (partial(out.write_bytes, b""), True)
    ):  # fmt: skip
        for steps in ((B, goes, C), (B, goes)):
            out.write_bytes(old)
            other.write_text("theirs")
            with pytest.raises(EndedEarly, match=gone):
                write(out, *steps, resume=bool(old))
            assert out.exists() == there
    out.write_bytes(b"")
    write(out, A, lambda: out.open("ab").write(lines_of(B)), C)  # what others append is kept
    assert out.read_bytes() == lines_of(A, B, C)


DOCUMENTS = ["out.json", "out.hocr", "out.xml"]


@pytest.mark.parametrize("name", few(["out.jsonl", "out.csv", *DOCUMENTS], "out.jsonl", "out.json"))
def test_a_full_disk_leaves_what_is_valid(name: str, model: str, scans: Path, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource", reason="needs POSIX limits")
    out, limit = tmp_path / name, {"out.xml": 500, "out.jsonl": 3000}.get(name, 1500)
    words = [*[str(scans / "2b.tif")] * (1 if name == "out.xml" else 10)]
    words += ["--model", model, "--workers", "0", "-q", "--force", "-o", str(out)]
    out.write_text("dear")
    done = subprocess.run(
        [*COMMAND, *words], stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )  # fmt: skip
    if name in DOCUMENTS:
        told = "no document is written, what stood there stays"
        assert out.read_text() == "dear"
    else:
        told = "what it holds is valid" + ", continue it with --resume" * (name == "out.jsonl")
        assert (out.stat().st_size <= limit, out.read_bytes()[-1:]) == (True, b"\n")
    assert done.stderr == f"neocog: {out}: cannot be written (File too large); {told}\n"
    assert (done.returncode, os.listdir(tmp_path)) == (6, [name])
    assert run("read", *words).exit_code == 0
    assert name != "out.json" or len(json.loads(out.read_text())) == 20


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_takes_its_place_at_the_end(name: str, tmp_path: Path) -> None:
    out, link = tmp_path / name, tmp_path / f"link-{name}"
    link.symlink_to(out)
    out.write_text("dear")
    out.chmod(0o640)
    write(link, A, lambda: out.read_text() == "dear" or pytest.fail("too early"), B)
    text = out.read_text()
    assert (out.stat().st_mode & 0o777, link.is_symlink()) == (0o640, True)
    for steps in ((A, B), ()):  # the run ends early: what was read is written
        with pytest.raises(ZeroDivisionError):
            write(out, *steps, lambda: 1 / 0)
        assert out.read_text() == text
    assert not [left for left in os.listdir(tmp_path) if left.startswith(".")]


@posix
@pytest.mark.parametrize("name", ["new.jsonl", "new.json"])
def test_a_link_that_leads_nowhere_is_followed(name: str, tmp_path: Path) -> None:
    link, there = tmp_path / "link", tmp_path / "there"
    link.symlink_to(there / name)
    with pytest.raises(UsageError, match="no such folder"), open_sink(Format("jsonl"), link):
        pass
    there.mkdir()
    with open_sink(Format(name[4:]), link):
        pass
    assert (there / name).exists()
    assert link.is_symlink()


@posix
def test_a_pipe_that_is_not_stdout_is_no_quiet_end_and_holds_nothing_to_go_on_from(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe.jsonl")
    refused("add -o FILE.jsonl", "read", "a.png", "-o", pipe, "--resume")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(EndedEarly, match=os.strerror(errno.EPIPE)):
        write(pipe, A, partial(os.close, reader), B)


@posix
def test_two_runs_do_not_write_to_one_file(model, scans, tmp_path):
    out, soft, hard = (tmp_path / f"{name}.jsonl" for name in ("out", "soft", "hard"))
    words = ("--model", model, "--workers", "0", "-o")
    with subprocess.Popen([*COMMAND, "-", *words, str(out)], stdin=subprocess.PIPE) as process:
        process.stdin.write(f"{scans / '0.png'}\n".encode())
        process.stdin.flush()
        before = until(lambda: out.exists() and out.read_bytes())
        soft.symlink_to(out)
        hard.hardlink_to(out)
        who = f"process {process.pid}" if Path("/proc/locks").exists() else "another process"
        for name in (out, soft, hard):
            for option in ("--force", "--resume"):
                told = f"{name}: {who} is writing to it; wait for it to end"
                refused(told, "read", scans, *words, name, option)
        assert out.read_bytes() == before
        process.kill()
    for option in ("--resume", "--force"):
        assert run("read", scans / "1.png", *words, out, option).exit_code == 0
    assert sorted(os.listdir(tmp_path)) == ["hard.jsonl", "out.jsonl", "soft.jsonl"]


@posix
@pytest.mark.parametrize("name", ["new.jsonl", "new.json", "old.json", "old.csv"])
def test_a_second_writer_is_refused(name: str, tmp_path: Path) -> None:
    out = tmp_path / name
    if name.startswith("old"):
        out.write_text("dear")
    with open_sink(Format(kind_of(name)), out) as sink:
        sink.put(sink.format.render(A))
        with pytest.raises(UsageError, match="is writing to it; wait"):
            write(out, B)
    assert "a" in out.read_text()
    assert "dear" not in out.read_text()
    out.unlink()
    with pytest.raises(UsageError, match="another run has written it"):  # between start and first record
        write(tmp_path / "new.csv", lambda: write(tmp_path / "new.csv", A), B)
    (tmp_path / "new.csv").rename(out)
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize(("name", "workers"), [("out.json", 0), ("out.txt", 2)])
def test_a_new_file_in_a_folder_that_is_read(name, workers, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_page(tmp_path / "0.png", "0")
    result = run("read", "*", "--model", model, "-q", "-o", name, "--workers", workers)
    assert (result.exit_code, result.stderr) == (0, "")
    assert (tmp_path / name).read_text().count("0.png") == 1
