"""Standard streams that are closed, full or left, Ctrl-C, and words of strangers."""

import os
import shlex
import subprocess
import sys

import pytest

from tests.support import failing, records, refused, run, save_page

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")

COMMAND = shlex.join([sys.executable, "-m", "neocog"])
FULL = "No space left on device"


def shell(words):
    """Run words of a shell in which ``neocog`` is the command."""
    script = f'neocog() {{ {COMMAND} "$@"; }}; {words}'
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True)


@pytest.fixture
def read(model, tmp_path):
    """A command that reads three pictures in this process."""
    for number in range(3):
        save_page(tmp_path / f"{number}.png", str(number))
    return f"neocog read {tmp_path}/?.png -q --device cpu --workers 0 --model {model}"


CLOSED, FULL_ONE = (f"neocog: stdout: cannot be written ({why}); what was written is valid\n"
                    for why in ("Bad file descriptor", FULL))  # fmt: skip


@pytest.mark.parametrize(("what", "code", "told"), [
    ("{read} -o {out} >&-", 0, ""),  # which do not matter with a file
    ("{read} -o {out} <&- >&- 2>&-", 0, ""),
    ("{read} >&-", 6, CLOSED),
    ("{read} >/dev/full", 6, FULL_ONE),
    ("neocog --help >/dev/full", 6, FULL_ONE),
    ("neocog read - --model {model} <&-", 6,
     "neocog: -: the list breaks off (bad file descriptor); pass the complete list\n"),
])  # fmt: skip
def test_closed_and_full_streams(what, code, told, read, model, tmp_path):
    out = tmp_path / "out.jsonl"
    done = shell(what.format(read=read, model=model, out=out))
    assert (done.returncode, done.stdout, done.stderr) == (code, "", told)
    assert code or [record["text"] for record in records(out)] == ["0", "1", "2"]


def test_messages_for_a_full_stderr_go_nowhere(read, tmp_path):
    """And records are UTF-8 in any locale."""
    done = shell(f"export PYTHONIOENCODING=ascii; {read} {tmp_path}/é½.png --format jsonl 2>/dev/full")
    sources = [record["source"] for record in records(done.stdout)]
    assert (done.returncode, len(sources), f"{tmp_path}/é½.png" in sources) == (1, 4, True)


def test_who_reads_stdout_may_leave_and_ctrl_c_of_a_background_job_stays_ignored(read):
    done = shell(f"{read} | true; echo ${{PIPESTATUS[0]}}; neocog --help | true; echo ${{PIPESTATUS[0]}}; "
                 f"trap '' INT; {read} >&2 & sleep 0.3; kill -INT $!; wait $!; echo $?")  # fmt: skip
    assert done.stdout == "0\n0\n0\n"
    assert "Traceback" not in done.stderr


def test_an_error_of_the_system_is_no_quiet_end(model, monkeypatch):
    monkeypatch.setattr("neocog.batch.run.read_all", failing(BrokenPipeError(32, "Broken pipe")))
    assert refused("", "read", "a.png", "--model", model, code=6) == "neocog: Broken pipe\n"


BAD = "\x1b]0;owned\x07\x9b31m\u202egnp.exe\x7f\nneocog: all is well"


def test_no_name_reaches_a_terminal_as_it_is(model, tmp_path):
    good, bad = save_page(tmp_path / f"{BAD}.png", "7"), tmp_path / f"bad{BAD}.png"
    bad.write_bytes(b"none")
    read = ("read", "--model", model)
    for words in (*((*read, good, bad, "--format", form) for form in ("text", "jsonl", "csv")),
                  (*read, tmp_path / f"@{BAD}"), (*read, "-o", tmp_path / BAD / "x", good),
                  ("read", f"--{BAD}"), (BAD,), ("models", "show", BAD), ("models", BAD), ("bench", BAD),
                  ("live", bad, "--headless", "--device", "cpu")):  # fmt: skip
        result = run(*words)
        assert result.exit_code != 0
        assert not set(result.output) & set("\x1b\x07\x9b\u202e\x7f")
        assert "\nneocog: all" not in result.output
        assert "owned" in result.stderr
    (record,) = records(run(*read, good, "--format", "jsonl").stdout)
    assert record["source"] == str(good)


def test_stdout_of_any_command_obeys_nobody_on_a_terminal(tmp_path):
    import pty

    code = f"from neocog.cli.streams import open_streams; open_streams(); print({BAD!r})"
    main, terminal = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", code], stdout=terminal)
    os.close(terminal)
    assert process.wait(30) == 0
    shown = os.read(main, 2**16).decode()
    os.close(main)
    assert shown == "\\x1b]0;owned\\x07\\x9b31m\\u202egnp.exe\\x7f\r\nneocog: all is well\r\n"


def test_a_full_disk_for_pictures_changes_no_record(read, model, tmp_path):
    out, other = tmp_path / "out.jsonl", tmp_path / "other.jsonl"
    words = ("-o", other, "--model", model, "--device", "cpu", "--workers", "0")
    assert run("read", *sorted(tmp_path.glob("?.png")), *words).exit_code == 0
    limit = -(-other.stat().st_size // 1024)  # of a file, in KiB: more than the records need
    seen = f"--report {tmp_path}/r --save-overlay {tmp_path}/seen"
    done = shell(f"ulimit -f {limit}; {read} -o {out} {seen}")
    assert (done.returncode, out.read_bytes()) == (1, other.read_bytes())
    counts = [done.stderr.count(words) for words in ("\n", "File too large", "--report", "--save-overlay")]
    assert counts == [4, 4, 1, 3]


def test_ctrl_c_stays_ctrl_c_though_the_report_cannot_be_saved(model, tmp_path, monkeypatch):
    monkeypatch.setattr("neocog.batch.report.atomic_write", failing(OSError(28, FULL)))
    monkeypatch.setattr("neocog.batch.output.Sink.finish", failing(KeyboardInterrupt()))
    picture = save_page(tmp_path / "a.png", "1")
    result = run("read", picture, "--model", model, "--report", tmp_path / "r.html")
    assert result.exit_code == 130
    told = f"neocog: {tmp_path}/r.html: cannot be written ({FULL}); choose another --report"
    assert result.stderr.splitlines() == [told, "neocog: interrupted"]
