"""Attacks from around the pictures: names, lists, folders, limits, descriptors, signals."""

import csv
import io
import os
import resource
import shutil
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from experiments.attacks.archives import hostile_names
from experiments.attacks.pictures import whole
from experiments.attacks.watch import Outcome, Watch, one_record_each, watched
from neocog.batch.pool import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
_MODULES = """numpy cv2 PIL json typing typer rich safetensors threadpoolctl multiprocessing signal
    struct zipfile lzma encodings sitecustomize usercustomize readline""".split()
_WHOLE = (0, 1)  # exit codes that say that every input has its record


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
    cells = (cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row)
    begun = (cell for cell in cells if cell[:1] in ("=", "+", "-", "@"))
    return [f"a cell {c[:20]!r}" for c in begun if not c.replace(".", "", 1).lstrip("+-").isdigit()]


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
    environments: dict[str, dict[str, str | None]] = {
        "TMPDIR of 160 letters": {"TMPDIR": str(long)},
        "TMPDIR that is not there": {"TMPDIR": "/nowhere"},
        "no HOME, no PATH": {"HOME": None, "PATH": None},
        "HOME that is not there": {"HOME": "/nowhere"},
        "LC_ALL=C, COLUMNS=0": {"LC_ALL": "C", "PYTHONUTF8": "0", "COLUMNS": "0", "LINES": "-1"},
    }
    cases: dict[str, dict[str, Any]] = {name: {"env": env} for name, env in environments.items()}
    for numbers in ((0,), (1,), (2,), (0, 1, 2)):
        cases[f"descriptors {numbers} closed"] = {
            "setup": partial(lambda all_: [*map(os.close, all_)], numbers)
        }
    for name, how in cases.items():
        done = watched(reading(model, str(folder / "scans"), out=out), folder, name=name, **how)
        broken = [] if done.code == 0 else [f"exit code {done.code}: {done.err[-100:]!r}"]
        outcome.add(done, 1, broken + one_record_each(pictures, _taken(out)))
    outcome.broken += [f"left {path.name} in TMPDIR" for path in long.glob("[!n]*")]
    return outcome


def _taken(out: Path) -> str:
    """What an output holds, which is removed."""
    text = out.read_text() if out.is_file() else ""
    out.unlink(missing_ok=True)
    return text


def limits(folder: Path, model: str) -> Outcome:
    """Limits of the system: all is read, or the exit code says that it was not."""
    outcome, pictures = Outcome("limits of the system"), scans(folder / "scans", 14)
    out = folder / "out.jsonl"
    cases = [("megabytes of addresses", resource.RLIMIT_AS, mb, mb * 10**6)
             for mb in (150, 200, 250, 300, 350, 400, 450, 500, 600, 800)]  # fmt: skip
    cases += [("open files", resource.RLIMIT_NOFILE, count, count) for count in (6, 10, 14, 18, 24, 32)]
    cases += [("bytes of a file", resource.RLIMIT_FSIZE, count, count) for count in (0, 99, 999)]
    cases += [("seconds of processor", resource.RLIMIT_CPU, 1, 1)]
    for what, kind, number, most in cases:
        for place in (out, None):
            done = watched(
                reading(model, str(folder / "scans"), out=place), folder, name=f"{number} {what}",
                limit=30.0, setup=partial(resource.setrlimit, kind, (most, most)),
            )  # fmt: skip
            text = _taken(out) if place else done.out
            broken = one_record_each(pictures, text) if done.code in _WHOLE else []
            if kind == resource.RLIMIT_CPU and done.code in (-signal.SIGKILL, -signal.SIGXCPU):
                done.code = 6  # the system ended it, and says so by the signal
            outcome.add(done, 1, broken)
    return outcome


def outputs(folder: Path, model: str) -> Outcome:
    """Outputs that are removed, replaced, full or not to be written."""
    outcome, pictures = Outcome("outputs"), scans(folder / "output", 60)
    out, other = folder / "o" / "out.jsonl", folder / "other"

    places = {
        "full disk": Path("/dev/full"),
        "a folder": out.parent,
        "no folder": folder / "none" / "out.jsonl",
    }
    for name in ("removed", "replaced", "its folder removed", *places):

        def during(watch: Watch, name: str = name) -> None:
            begun = out.is_file() and out.stat().st_size
            if name == "removed":
                out.unlink(missing_ok=True)
            elif begun and name == "replaced" and other.is_file():
                os.replace(other, out)
            elif begun and name == "its folder removed":
                shutil.rmtree(out.parent)

        out.parent.mkdir()
        other.write_text("")
        words = reading(model, str(folder / "output"), out=places.get(name, out))
        done = watched(words, folder, name=name, during=during)
        text = "".join(path.read_text() for path in out.parent.glob("*out*"))
        outcome.add(done, 1, one_record_each(pictures, text) if done.code in _WHOLE else [])
        shutil.rmtree(out.parent, ignore_errors=True)
    return outcome


def kills(folder: Path, model: str) -> Outcome:
    """Signals to the command and its processes in the middle of a run; without a worker it goes on."""
    outcome, pictures = Outcome("signals"), scans(folder / "killed", 120)
    out = folder / "k" / "out.jsonl"
    out.parent.mkdir()
    of_worker = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGSEGV, signal.SIGSTOP)
    cases = [*((number, True, 1) for number in of_worker), (signal.SIGKILL, True, 3)]
    cases += [(number, False, 1) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    for number, worker, times in cases:
        left = [number] * times

        def during(watch: Watch, left: list[signal.Signals] = left, worker: bool = worker) -> None:
            workers = [pid for pid in watch.pids() if pid != watch.process.pid]
            chosen = workers[-1:] if worker else [watch.process.pid]
            if left and chosen and out.is_file() and out.stat().st_size:
                os.kill(chosen[0], left.pop())

        name = f"{number.name} to {'worker' if worker else 'command'}, {times}"
        done = watched(reading(model, str(folder / "killed"), out=out), folder, name=name,
                       during=during, limit=PATIENCE + 30)  # fmt: skip
        text = _taken(out)
        broken = one_record_each(pictures, text) if done.code in _WHOLE else []
        if worker and done.code not in _WHOLE:
            broken.append(f"exit code {done.code}: the run did not go on")
        if not worker and done.code in (-number, 128 + number):
            done.code = 130
        outcome.add(done, 1, broken)
    return outcome
