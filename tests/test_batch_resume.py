"""Going on where a run broke off: nothing is lost, nothing comes twice."""

import errno
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from neocog.batch.formats import Format, kind_of
from neocog.batch.output import open_sink
from neocog.batch.resume import Done, read_done
from neocog.errors import EndedEarly, UsageError
from neocog.files import file_lock
from neocog.reading.records import PageReading
from tests.support import few, page, run, save_page, until

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


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


def lines_of(*readings: PageReading) -> bytes:
    return b"".join(reading.to_json().encode() + b"\n" for reading in readings)


def reading_stdin(*words: str | int | Path) -> subprocess.Popen[bytes]:
    """Start a command that reads the pictures that its stdin names."""
    command = [sys.executable, "-m", "neocog", "read", "-", *map(str, words)]
    return subprocess.Popen(command, stdin=subprocess.PIPE)


def name_to(process: subprocess.Popen[bytes], picture: Path, out: Path) -> None:
    """Name a picture, and wait until its record is written."""
    before = out.stat().st_size if out.exists() else 0
    assert process.stdin
    process.stdin.write(f"{picture}\n".encode())
    process.stdin.flush()
    until(lambda: out.exists() and out.stat().st_size > before)


def test_what_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert read_done(out, model="m").pages == 0
    for torn in (b"", b"{", b'{"schema":1,"source":"x', b"\0\0"):
        out.write_bytes(torn)
        assert read_done(out, model="m").end == 0
    first = lines_of(PageReading("a", model="m"), PageReading("a", 1, model="m", error="no"))
    last = lines_of(PageReading("b", model="m"))
    for torn in (b"", b'{"schema":1,"sour', b"\0\0\0\0"):
        out.write_bytes(first + last + torn)
        done = read_done(out, model="m")
        assert (done.end, done.inputs, done.pages, done.failed) == (len(first), 1, 2, 1)
        assert [done.take("a"), done.take("a"), done.take("b")] == [True, False, False]


def test_an_input_named_twice_and_records_that_tell_no_settings(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    one = PageReading("a", model="m")
    out.write_bytes(lines_of(one, one, PageReading("z", model="m")))
    done = read_done(out, model="m", settings={"min_p": 0.4})
    assert done.last == "z"
    assert [done.take("a") for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"dear diary\n", "does not hold neocog's records"),
        (b"dear diary", "does not hold neocog's records"),
        (b'{"schema":2}\n', "does not hold neocog's records"),
        (b"[1]\n" * 3, "does not hold neocog's records"),
        (lines_of(PageReading("a", model="n")), "written with the model n"),
        (lines_of(PageReading("a", model="m")).replace(b"}", b',"settings":7}'), "does not hold"),
        (lines_of(PageReading("a", model="m")) + b"x\n" + lines_of(PageReading("b", model="m")),
         "line 2 is damaged"),
    ],
)  # fmt: skip
def test_files_that_are_left_alone(data: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(data)
    with pytest.raises(UsageError, match=words):
        read_done(tmp_path / "out", model="m")
    assert (tmp_path / "out").read_bytes() == data


@pytest.mark.parametrize("workers", few([0, 2], 2))
def test_any_torn_file_is_mended(workers: int, model: str, scans: Path, tmp_path: Path) -> None:
    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    words = (scans, "--model", model, "--workers", workers, "-o")
    assert run("read", *words, whole).exit_code == 1
    data = whole.read_bytes()
    ends = [i + 1 for i, byte in enumerate(data) if byte == 10]
    cuts = (0, 5, len(data) // 2, ends[2], ends[3] + 1, len(data)) if workers == 0 else (ends[3],)
    for cut in cuts:
        out.write_bytes(data[:cut])
        result = run("read", *words, out, "--resume")
        assert result.exit_code == 1  # the broken picture counts, whichever run met it
        assert sorted(out.read_bytes().splitlines()) == sorted(data.splitlines())
        assert ", 1 failed; " in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("first", "then"),
    [("", "--min-p 0.999"), ("--pattern '#'", ""), ("--pattern '#'", "--pattern '##'"), ("", "--isolated")],
)
def test_records_of_other_settings_are_left_alone(
    first: str, then: str, model: str, scans: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    words = ("--model", model, "-o", out)
    assert run("read", scans / "0.png", *words, *shlex.split(first)).exit_code == 0
    before = out.read_bytes()
    result = run("read", scans, *words, "--resume", *shlex.split(then))
    assert result.exit_code == 2
    message = f"was written with --min-p 0.4 {first}".strip() + ", now --min-p 0."
    assert message in result.stderr
    assert then in result.stderr
    assert out.read_bytes() == before
    assert run("read", scans / "0.png", *words, "--resume", *shlex.split(first)).exit_code == 0
    assert out.read_bytes() == before


def test_a_finished_file_stays_as_it_is(model: str, scans: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    words = ("read", scans / "0.png", scans / "1.png", "--model", model, "-o", out)
    assert run(*words, "-q").stderr == ""
    before = out.read_bytes()
    result = run(*words, "--resume")
    assert (result.exit_code, result.stderr) == (0, "neocog: all inputs (2) were already read\n")
    assert out.read_bytes() == before
    assert [json.loads(line)["text"] for line in before.splitlines()] == ["0", "1"]


def test_nothing_leaves_before_it_is_read_again(model: str, scans: Path, tmp_path: Path) -> None:
    out, empty = tmp_path / "out.jsonl", tmp_path / "empty"
    empty.mkdir()
    run("read", scans / "0.png", scans / "3.png", "--model", model, "-o", out)
    before = out.read_bytes()
    words = ("--model", model, "-o", out, "--resume")
    assert run("read", empty, *words).exit_code == 3
    assert out.read_bytes() == before
    result = run("read", scans / "1.png", *words)
    assert result.exit_code == 1  # 3.png is among the records still
    assert "neocog: 3 pages (2 pictures read before), " in result.stderr
    assert ", 1 failed; " in result.stderr
    names = [Path(json.loads(line)["source"]).name for line in out.read_text().splitlines()]
    assert names == ["0.png", "3.png", "1.png"]
    assert run("read", scans / "3.png", *words).exit_code == 1
    assert set(before.splitlines()) < set(out.read_bytes().splitlines())
    assert len(out.read_bytes().splitlines()) == 3


def test_a_torn_line_is_cut_off_though_nothing_comes(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    whole = lines_of(PageReading("a", model="m"), PageReading("b", model="m"))
    out.write_bytes(whole + b'{"schema"')
    with open_sink(Format("jsonl"), out, done=read_done(out, model="m")):
        pass
    assert out.read_bytes() == whole


@pytest.mark.parametrize(
    ("text", "anew", "others"),
    [
        ("b0", "", "b0"),
        ("a0", "a0", ""),
        ("a1", "", "a1"),
        ("b0a0a1b1", "a0a1", "b0b1"),
        ("a0a1a0a1", "a0a1", "a0a1"),
    ],
)
def test_records_of_the_last_input_are_told_apart(text: str, anew: str, others: str) -> None:
    def records(names: str) -> str:
        pages = zip(names[::2], names[1::2], strict=True)
        return lines_of(*(PageReading(name, int(page)) for name, page in pages)).decode()

    done = Done(last="a")
    assert done.part(records(text)) == (records(anew), records(others))
    assert done.again == bool(anew)
    if done.again:
        assert done.part(records("a0")) == ("", records("a0"))


def test_old_records_make_way_in_one_step(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    other, old = (PageReading(name, model="m") for name in "ba")
    new = PageReading("a", 1, model="m")
    for more in ([], [old], [old, new]):
        out.write_bytes(lines_of(other, old))
        out.chmod(0o640)
        before = out.read_bytes()
        with open_sink(Format("jsonl"), out, done=(done := read_done(out, model="m"))) as sink:
            assert not done.take("a")
            sink.write(other)
            assert out.read_bytes() == before + lines_of(other)
            sink.put(lines_of(*more).decode())
            sink.write(new)
        anew = lines_of(*more) if more else lines_of(old)
        assert out.read_bytes() == before[: done.end] + anew + lines_of(other, new)
        assert out.stat().st_mode & 0o777 == 0o640
        assert os.listdir(tmp_path) == ["out.jsonl"]


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_record_that_lacks_but_its_line_end_is_whole(end: bytes, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    old, new = PageReading("a", model="m"), PageReading("b", model="m")
    out.write_bytes(lines_of(old)[:-1] + end)
    with open_sink(Format("jsonl"), out, done=read_done(out, model="m")) as sink:
        sink.write(new)
    assert out.read_bytes() == lines_of(old, new)


def test_killed_before_the_last_input_comes_again(model: str, scans: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert run("read", scans / "2b.tif", "--model", model, "-o", out).exit_code == 0
    before = out.read_bytes()
    with reading_stdin("--model", model, "--workers", 0, "-o", out, "--resume") as process:
        name_to(process, scans / "0.png", out)
        process.kill()
    assert out.read_bytes().startswith(before)
    assert len(out.read_bytes().splitlines()) == 3


def test_killed_while_old_records_make_way(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    old, new = PageReading("a", model="m"), PageReading("b", model="m")
    out.write_bytes(lines_of(old))
    program = f"""
import os, signal
from neocog.batch.formats import Format, kind_of
from neocog.reading.records import PageReading
from neocog.batch.resume import read_done
from neocog.batch.output import open_sink
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
with open_sink(Format("jsonl"), {str(out)!r}, done=read_done({str(out)!r}, model="m")) as sink:
    sink.write(PageReading("b", model="m"))
    sink.put("".join(PageReading("a", n, model="m").to_json() + "\\n" for n in range(2)))
"""
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == -signal.SIGKILL
    assert out.read_bytes() == lines_of(old, new)


# --- what becomes of the file during the run ---------------------------------------------------

A, B, C = (PageReading(name, text="7", model="m") for name in "abc")


def write(out: Path, *steps: Any, done: Done | None = None) -> None:
    """Write records, and do what there is to do between them."""
    with open_sink(Format(kind_of(str(out))), out, done=done) as sink:
        for step in steps:
            if isinstance(step, PageReading):
                sink.write(step)
            else:
                step()


@pytest.mark.skipif(os.name == "nt", reason="open files cannot be removed there")
@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_goes_is_told_and_saved(replaced: bool, resumed: bool, tmp_path: Path) -> None:
    out, saved = tmp_path / "out.jsonl", tmp_path / "out.2.jsonl"
    (tmp_path / "out.1.jsonl").write_text("mine")
    (tmp_path / "other").write_text("theirs")
    if resumed:
        out.write_bytes(lines_of(A))
        out.chmod(0o600)
    done = read_done(out, model="m") if resumed else None
    goes = partial((tmp_path / "other").rename, out) if replaced else out.unlink
    was = "replaced" if replaced else "removed"
    told = rf"out\.jsonl: was {was} during .*; what it held is in .*\.2\.jsonl, .* --resume"
    with pytest.raises(EndedEarly, match=told):
        write(out, B, goes, C, done=done)
    assert saved.read_bytes() == lines_of(*([A] if resumed else []), B, C)
    assert not resumed or saved.stat().st_mode & 0o777 == 0o600
    assert not replaced or out.read_text() == "theirs"
    assert (tmp_path / "out.1.jsonl").read_text() == "mine"


@pytest.mark.skipif(os.name == "nt", reason="open files cannot be removed there")
def test_a_file_that_goes_at_the_end_or_with_its_folder(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    out = place / "out.csv"
    with pytest.raises(EndedEarly, match="held cannot be saved"):
        write(out, A, out.unlink, place.rmdir)
    place.mkdir()
    with pytest.raises(EndedEarly, match=r"held is in .*out\.1\.csv$"):
        write(out, A, out.unlink)
    assert len((place / "out.1.csv").read_text().splitlines()) == 2


def test_a_file_that_is_cut(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with pytest.raises(EndedEarly, match="was shortened"):
        write(out, A, partial(out.write_bytes, b""), B)
    assert out.read_bytes() == lines_of(B)  # and no zeros before it


def test_what_others_append_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"

    def append() -> None:
        with out.open("ab") as other:
            other.write(lines_of(B))

    write(out, A, append, C)
    assert out.read_bytes() == lines_of(A, B, C)


def test_a_full_disk_ends_the_run_and_it_is_gone_on_with(model: str, scans: Path, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource", reason="needs POSIX limits")
    out = tmp_path / "out.jsonl"
    words = ["read", str(scans), "--model", model, "--workers", "0", "-o", str(out)]
    done = subprocess.run(
        [sys.executable, "-m", "neocog", *words],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (900, 900)),
        stderr=subprocess.PIPE,
        text=True,
    )
    told = f"{out}: cannot be written (File too large); what it holds is valid"
    assert (done.returncode, told in done.stderr) == (6, True)
    assert out.stat().st_size <= 900
    assert out.read_bytes().endswith(b"\n")
    assert run(*words, "--resume").exit_code == 1
    assert len(out.read_text().splitlines()) == 7


def test_a_pipe_that_is_not_stdout_is_no_quiet_end(tmp_path: Path) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("needs pipes with a name")
    os.mkfifo(pipe := tmp_path / "pipe.jsonl")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(EndedEarly, match=os.strerror(errno.EPIPE)):
        write(pipe, A, partial(os.close, reader), B)


# --- two runs ---------------------------------------------------------------------------------

posix = pytest.mark.skipif(os.name == "nt", reason="needs POSIX locks")


@posix
@pytest.mark.parametrize(("more", "killed"), [("--force", False), ("--resume", True)])
def test_two_runs_do_not_write_to_one_file(
    more: str, killed: bool, model: str, scans: Path, tmp_path: Path
) -> None:
    out, link = tmp_path / "out.jsonl", tmp_path / "link.jsonl"
    words = ("--model", model, "--workers", "0", "-o")
    with reading_stdin(*words, out, more) as process:
        name_to(process, scans / "0.png", out)
        before = out.read_bytes()
        link.symlink_to(out)
        for name, option in product((out, link), ("--force", "--resume")):
            result = run("read", scans, *words, name, option)
            assert result.exit_code == 2
            assert "another run is writing to it; wait for it to end" in result.stderr
        assert out.read_bytes() == before
        if killed:
            process.kill()
        assert process.stdin
        process.stdin.close()
        assert process.wait(60) == (-signal.SIGKILL if killed else 0)
    assert run("read", scans / "1.png", *words, out, more).exit_code == 0


@posix
def test_a_file_that_is_exchanged_stays_locked(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_bytes(lines_of(PageReading("b", model="m"), PageReading("a", model="m")))
    with file_lock(out):
        place = out.stat().st_ino
        with open_sink(Format("jsonl"), out, done=read_done(out, model="m")) as sink:
            sink.write(PageReading("a", model="m", error="no"))
            assert out.stat().st_ino != place
            with pytest.raises(UsageError, match="another run"), file_lock(out):
                pass
    with file_lock(out):
        pass
    assert os.listdir(tmp_path) == ["out.jsonl"]


@posix
def test_a_lock_that_cannot_be_had_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (None, os.devnull, tmp_path):
        with file_lock(place), file_lock(place):
            pass
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "locks"))
    out = tmp_path / "out.jsonl"
    with file_lock(out), file_lock(out):  # nowhere to lock
        pass
    (tmp_path / "locks").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    with file_lock(out):
        (folder,) = (tmp_path / "locks").iterdir()
    (lock,) = folder.iterdir()
    folder.chmod(0o777)  # others can make locks there, and hold them
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with file_lock(out), file_lock(out):
            pass
        folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
        (tmp_path / "elsewhere").chmod(0o700)
        with file_lock(out), file_lock(out):
            pass
    (tmp_path / "run").mkdir()  # there is another place for it
    with file_lock(out), pytest.raises(UsageError, match="another run"), file_lock(out):
        pass
    assert not out.exists()


@pytest.mark.parametrize(
    ("name", "more"), [("out.txt", ()), ("out.jsonl", ("--workers", 0)), ("out.txt", ("--workers", 2))]
)
def test_a_new_file_in_a_folder_that_is_read(
    name: str, more: tuple[Any, ...], model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for digit in "017":
        save_page(tmp_path / f"{digit}.png", digit)
    result = run("read", "*", "--model", model, "-q", "-o", name, *more)
    assert (result.exit_code, result.stderr) == (0, "")
    assert len((tmp_path / name).read_text().splitlines()) == 3
