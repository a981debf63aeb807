"""Attacks from around the pictures: names, lists, folders, limits, descriptors, signals."""

import csv
import io
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.attacks.archives import hostile_names
from experiments.attacks.pictures import whole
from experiments.attacks.watch import Finished, Outcome, Watch, one_record_each, watched
from neocog.batch.pool import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
_MODULES = """numpy cv2 PIL json typing typer rich safetensors threadpoolctl multiprocessing signal
    struct zipfile lzma encodings sitecustomize usercustomize readline""".split()
_WHOLE = (0, 1)  # exit codes that say that every input has its record
Setup = Callable[[], None]


def scans(folder: Path, count: int) -> list[str]:
    folder.mkdir(parents=True)
    paths = [folder / f"{number:03}.png" for number in range(count)]
    for path in paths:
        path.write_bytes(whole("PNG"))
    return list(map(str, paths))


def reading(model: str, *inputs: str, out: Path | None = None) -> list[str]:
    output = [] if out is None else ["-o", str(out)]
    return ["read", *inputs, "--model", model, "--format", "jsonl", "--workers", "2", *output]


def names(folder: Path, model: str) -> Outcome:
    """Names that a terminal, a spreadsheet, a shell or an option would obey."""
    outcome, place = Outcome("names of files"), folder / "names"
    place.mkdir()
    for name in hostile_names():
        stem = Path(name).name.removesuffix(".png").lstrip(".")[:200]
        (place / f"{stem}.png").write_bytes(whole("PNG"))
        (place / f"{stem}.jpg").write_bytes(b"no picture")
    raw = os.fsencode(place) + b"/raw\xff\xfe\x9b31m.png"
    Path(os.fsdecode(raw)).write_bytes(b"no picture")
    inputs = [os.path.join(place, name) for name in os.listdir(place)]
    for form in ("jsonl", "text", "csv"):
        done = watched(["read", str(place), "--model", model, "--format", form], folder, name=form)
        broken = one_record_each(inputs, done.out) if form == "jsonl" else []
        outcome.add(done, len(inputs), broken + (_formulas(done.out) if form == "csv" else []))
    here = [name.replace("/", "_") + ".png" for name in hostile_names()]
    done = watched(["read", *(f"./{name}" for name in here), "--model", model, "--format", "csv"],
                   folder, name="csv of relative names")  # fmt: skip
    outcome.add(done, len(here), _formulas(done.out))
    files = [f"./{name}.safetensors" for name in hostile_names()]
    done = watched(["models", "verify", *files], folder, name="models")
    outcome.add(done, len(files), [] if done.code == 4 else [f"exit code {done.code}"])
    return outcome


def _formulas(text: str) -> list[str]:
    """Cells that a spreadsheet calculates: those that begin as a formula and are no number."""

    def is_number(cell: str) -> bool:
        return cell.replace(".", "", 1).lstrip("+-").isdigit()

    cells = (cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row)
    return [f"a cell {c[:20]!r}" for c in cells if c[:1] in ("=", "+", "-", "@") and not is_number(c)]


def lists(folder: Path, model: str) -> Outcome:
    """Lists of names that have no end of a line, no end at all, or no names."""
    outcome = Outcome("lists of names")
    picture = os.fsencode(scans(folder / "listed", 1)[0])
    cases = {
        "no newline": picture,
        "one name of 64 MiB": b"a" * 2**26 + b"\n" + picture,
        "zero bytes": picture + b"\nx\0y.png\n" + b"\0" * 2**20 + b"\n" + picture,
        "not UTF-8": b"\xff\xfe\x9b\n" * 100 + picture,
        "lists of lists": b"@list.txt\n-\n" + picture,
        "200 000 empty lines": b"\n" * 200_000 + picture,
        "escapes": b"\x1b[2J\x1b]0;x\x07.png\r\n" + picture,
        "patterns": b"/**/**/**/*?[a\n" + picture,
    }
    for name, data in cases.items():
        done = watched(reading(model, "-"), folder, name=name, stdin=data)
        outcome.add(done, 1, [] if picture.decode() in done.out else ["the picture was not read"])
    return outcome


def hostile_folder(folder: Path, model: str) -> Outcome:
    """Modules of the current folder, each of which says so there if anything runs it."""
    outcome, pictures = Outcome("modules in the current folder"), scans(folder / "safe", 14)
    programs = {"app.py": [sys.executable, str(ROOT / "app.py")],
                "python -m neocog": [sys.executable, "-m", "neocog"]}  # fmt: skip
    if script := shutil.which("neocog", path=str(Path(sys.executable).parent)):
        programs["neocog"] = [script]

    def plant() -> None:
        for name in _MODULES:
            Path(f"{name}.py").write_text(f"open('ran-{name}', 'w')\nraise SystemExit(7)\n")

    planted = {f"left {name}.py in the current folder" for name in _MODULES}
    for name, program in programs.items():
        for word in (str(folder / "safe"), "-"):
            done = watched(
                reading(model, word), folder, name=f"{name} {Path(word).name}", program=program,
                setup=plant, stdin="\n".join(pictures).encode(),
            )  # fmt: skip
            done.left = [what for what in done.left if what not in planted]
            outcome.add(done, len(_MODULES), one_record_each(pictures, done.out))
    return outcome


def odd(folder: Path, model: str) -> Outcome:
    """Surroundings that are unusual, in which all has to be read nevertheless."""
    outcome, pictures = Outcome("unusual surroundings"), scans(folder / "scans", 14)
    long, out = folder / ("t" * 100) / ("u" * 60), folder / "out.jsonl"
    long.mkdir(parents=True)
    cases: dict[str, dict[str, Any]] = {
        "TMPDIR of 160 letters": {"env": {"TMPDIR": str(long)}},
        "TMPDIR that is not there": {"env": {"TMPDIR": "/nowhere"}},
        "no HOME": {"env": {"HOME": None}},
        "HOME that is not there": {"env": {"HOME": "/nowhere"}},
        "no PATH": {"env": {"PATH": None}},
        "LC_ALL=C": {"env": {"LC_ALL": "C", "PYTHONUTF8": "0"}},
        "COLUMNS=0": {"env": {"COLUMNS": "0", "LINES": "-1"}},
        "stdin closed": {"setup": _closed(0)},
        "stdout closed": {"setup": _closed(1)},
        "stderr closed": {"setup": _closed(2)},
        "all closed": {"setup": lambda: [_closed(number)() for number in range(3)]},
    }
    for name, how in cases.items():
        done = watched(reading(model, str(folder / "scans"), out=out), folder, name=name, **how)
        text = out.read_text() if out.is_file() else ""
        broken = [] if done.code == 0 else [f"exit code {done.code}: {done.err[-100:]!r}"]
        outcome.add(done, 1, broken + one_record_each(pictures, text))
        out.unlink(missing_ok=True)
    outcome.broken += [f"left {path.name} in TMPDIR" for path in long.glob("[!n]*")]
    return outcome


def _closed(number: int) -> Setup:
    return lambda: os.close(number)


def _bound(kind: int, most: int) -> Setup:
    return lambda: resource.setrlimit(kind, (most, most))


def limits(folder: Path, model: str) -> Outcome:
    """Limits of the system: all is read, or the exit code says that it was not."""
    outcome, pictures = Outcome("limits of the system"), scans(folder / "scans", 14)
    out = folder / "out.jsonl"
    cases = {
        **{f"{mb} MB of address space": _bound(resource.RLIMIT_AS, mb * 10**6)
           for mb in (120, 200, 250, 300, 350, 400, 450, 500, 600, 800)},
        **{f"{count} open files": _bound(resource.RLIMIT_NOFILE, count)
           for count in (6, 10, 14, 18, 24, 32)},
        **{f"files of {count} bytes": _bound(resource.RLIMIT_FSIZE, count)
           for count in (0, 99, 999)},
        "1 s of processor time": _bound(resource.RLIMIT_CPU, 1),
    }  # fmt: skip
    for name, setup in cases.items():
        for place in (out, None):
            words = reading(model, str(folder / "scans"), out=place)
            done = watched(words, folder, name=name, limit=30.0, setup=setup)
            text = done.out if place is None else out.read_text() if out.is_file() else ""
            broken = one_record_each(pictures, text) if done.code in _WHOLE else []
            if "processor" in name and done.code in (-signal.SIGKILL, -signal.SIGXCPU):
                done.code = 6  # the system ended it, and says so by the signal
            outcome.add(done, 1, broken)
            out.unlink(missing_ok=True)
    return outcome


def outputs(folder: Path, model: str) -> Outcome:
    """Outputs that are removed, replaced, full or not to be written."""
    outcome, pictures = Outcome("outputs"), scans(folder / "output", 60)
    out, other = folder / "o" / "out.jsonl", folder / "other"
    out.parent.mkdir()

    def removed(watch: Watch) -> None:
        out.unlink(missing_ok=True)

    def replaced(watch: Watch) -> None:
        if out.is_file() and out.stat().st_size and other.is_file():
            os.replace(other, out)

    def folder_gone(watch: Watch) -> None:
        if out.is_file() and out.stat().st_size:
            shutil.rmtree(out.parent)

    for name, place, during in (
        ("removed", out, removed),
        ("replaced", out, replaced),
        ("its folder removed", out, folder_gone),
        ("full disk", Path("/dev/full"), None),
        ("a folder", out.parent, None),
        ("no such folder", folder / "none" / "out.jsonl", None),
    ):
        out.parent.mkdir(exist_ok=True)
        other.write_text("")
        words = reading(model, str(folder / "output"), out=place)
        done = watched(words, folder, name=name, during=during)
        text = "".join(path.read_text() for path in out.parent.glob("*out*"))
        outcome.add(done, 1, one_record_each(pictures, text) if done.code in _WHOLE else [])
        shutil.rmtree(out.parent, ignore_errors=True)
    return outcome


def kills(folder: Path, model: str) -> Outcome:
    """Signals to the command and its workers in the middle of a run."""
    outcome, pictures = Outcome("signals"), scans(folder / "killed", 120)
    out = folder / "k" / "out.jsonl"
    out.parent.mkdir()
    cases = [
        (signal.SIGKILL, "worker", 1),
        (signal.SIGKILL, "worker", 3),
        *((number, "command", 1) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)),
        *((number, "worker", 1) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGSEGV)),
        (signal.SIGSTOP, "worker", 1),
    ]
    for number, which, times in cases:
        name = f"{signal.Signals(number).name} to {which}, {times}"
        done = watched(reading(model, str(folder / "killed"), out=out), folder, name=name,
                       during=_sends(number, which, times, out), limit=PATIENCE + 30)  # fmt: skip
        if which == "command" and done.code in (-number, 128 + number):
            done.code = 130
        text = out.read_text() if out.is_file() else ""
        outcome.add(done, 1, _after(done, which, pictures, text))
        out.unlink(missing_ok=True)
    return outcome


def _sends(number: int, which: str, times: int, out: Path) -> Callable[[Watch], None]:
    """Send a signal so many times, once the output has begun."""
    sent = 0

    def during(watch: Watch) -> None:
        nonlocal sent
        chosen = [pid for pid in watch.pids() if (pid == watch.process.pid) == (which == "command")]
        if chosen and sent < times and out.is_file() and out.stat().st_size:
            os.kill(chosen[-1], number)
            sent += 1

    return during


def _after(done: Finished, which: str, pictures: list[str], text: str) -> list[str]:
    """What does not hold after a signal: a run goes on without a worker, or says that it ended."""
    broken = one_record_each(pictures, text) if done.code in _WHOLE else []
    if which == "worker" and done.code not in _WHOLE:
        broken.append(f"exit code {done.code}: the run did not go on")
    return broken
