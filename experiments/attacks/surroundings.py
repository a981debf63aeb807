"""Attacks from around the pictures: names, lists, folders, limits, descriptors, signals."""

import csv
import io
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
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


def attacked(
    outcome: Outcome,
    model: str,
    pictures: list[str],
    *,
    word: str = "",
    out: Path | None = None,
    tried: int = 1,
    judge: Callable[[Watch], list[str]] = lambda done: [],
    **how: Any,
) -> None:
    """Read a folder of pictures; where the exit code says so, each must have its record."""
    place = Path(pictures[0]).parent
    done = watched(reading(model, word or str(place), out=out), place.parent, **how)
    text = done.out if out is None else ""
    if out is not None and out.is_file():
        text = out.read_text()
        out.unlink()
    broken = judge(done)
    outcome.add(done, tried, broken + (one_record_each(pictures, text) if done.code in _WHOLE else []))


def names(folder: Path, model: str) -> Outcome:
    """Names that a terminal, a spreadsheet, a shell or an option would obey."""
    outcome, place = Outcome("names of files"), folder / "names"
    place.mkdir()
    for name in hostile_names():
        stem = Path(name).name.removesuffix(".png").lstrip(".")[:200]
        (place / f"{stem}.png").write_bytes(whole("PNG"))
        (place / f"{stem}.jpg").write_bytes(b"no picture")
    Path(os.fsdecode(os.fsencode(place) + b"/raw\xff\xfe\x9b31m.png")).write_bytes(b"no picture")
    inputs = [os.path.join(place, name) for name in os.listdir(place)]
    attacked(outcome, model, inputs, tried=len(inputs), name="jsonl",
             judge=lambda done: [] if done.code == 1 else [f"exit code {done.code}"])  # fmt: skip
    here = [f"./{name.replace('/', '_')}.png" for name in hostile_names()]
    for form, words in (("text", [str(place)]), ("csv", [str(place)]), ("csv", here)):
        done = watched(["read", *words, "--model", model, "--format", form], folder, name=form)
        cells = (cell for row in csv.reader(io.StringIO(done.out, newline="")) for cell in row)
        begun = [cell for cell in cells if cell[:1] in ("=", "+", "-", "@")]  # a spreadsheet calculates them
        formulas = [c for c in begun if not c.replace(".", "", 1).lstrip("+-").isdigit()]
        broken = [f"a cell {cell[:20]!r}" for cell in formulas if form == "csv"]
        outcome.add(done, len(here if words is here else inputs), broken)
    files = [f"./{name}.safetensors" for name in hostile_names()]
    done = watched(["models", "verify", *files], folder, name="models")
    outcome.add(done, len(files), [] if done.code == 4 else [f"exit code {done.code}"])
    return outcome


def lists(folder: Path, model: str) -> Outcome:
    """Lists of names that have no end of a line, no end at all, or no names."""
    outcome = Outcome("lists of names")
    picture = os.fsencode(scans(folder / "listed", 1)[0])
    cases = {
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

    def without_planted(done: Watch) -> list[str]:
        done.left = [
            w for w in done.left if w not in {f"left {n}.py in the current folder" for n in _MODULES}
        ]
        return [] if done.code == 0 else [f"exit code {done.code}"]

    for name, program in programs.items():
        for word in ("", "-"):
            attacked(
                outcome, model, pictures, word=word, tried=len(_MODULES), judge=without_planted,
                name=f"{name} {word}", program=program, setup=plant, stdin="\n".join(pictures).encode(),
            )  # fmt: skip
    return outcome


def odd(folder: Path, model: str) -> Outcome:
    """Surroundings that are unusual, in which all has to be read nevertheless."""
    outcome, pictures = Outcome("unusual surroundings"), scans(folder / "scans", 14)
    long = folder / ("t" * 100) / ("u" * 60)
    long.mkdir(parents=True)
    cases: dict[str, dict[str, Any]] = {
        "TMPDIR of 160 letters": {"env": {"TMPDIR": str(long)}},
        "TMPDIR that is not there": {"env": {"TMPDIR": "/nowhere"}},
        "no HOME, no PATH": {"env": {"HOME": None, "PATH": None}},
        "HOME that is not there": {"env": {"HOME": "/nowhere"}},
        "LC_ALL=C, COLUMNS=0": {"env": {"LC_ALL": "C", "PYTHONUTF8": "0", "COLUMNS": "0", "LINES": "-1"}},
        "no stdin": {"setup": partial(os.close, 0)},
        "no stdout": {"setup": partial(os.close, 1)},
        "no stderr": {"setup": partial(os.close, 2)},
        "no standard streams": {"setup": partial(os.closerange, 0, 3)},
    }
    for name, how in cases.items():
        attacked(
            outcome, model, pictures, out=folder / "out.jsonl", name=name, **how,
            judge=lambda done: [] if done.code == 0 else [f"exit code {done.code}: {done.err[-100:]!r}"],
        )  # fmt: skip
    outcome.broken += [f"left {path.name} in TMPDIR" for path in long.glob("[!n]*")]
    return outcome


def limits(folder: Path, model: str) -> Outcome:
    """Limits of the system: all is read, or the exit code says that it was not."""
    outcome, pictures = Outcome("limits of the system"), scans(folder / "scans", 14)
    cases = [("megabytes of addresses", resource.RLIMIT_AS, mb, mb * 10**6)
             for mb in (150, 250, 300, 350, 400, 450, 500, 600, 800)]  # fmt: skip
    cases += [("open files", resource.RLIMIT_NOFILE, count, count) for count in (6, 10, 14, 18, 24, 32)]
    cases += [("bytes of a file", resource.RLIMIT_FSIZE, count, count) for count in (0, 99, 999)]
    cases += [("seconds of processor", resource.RLIMIT_CPU, 1, 1)]

    def ended_by_system(done: Watch) -> list[str]:
        if done.code in (-signal.SIGKILL, -signal.SIGXCPU):
            done.code = 6  # the signal tells
        return []

    for what, kind, number, most in cases:
        for out in (folder / "out.jsonl", None):
            attacked(
                outcome, model, pictures, out=out, name=f"{number} {what}", limit=30.0,
                setup=partial(resource.setrlimit, kind, (most, most)),
                judge=ended_by_system if kind == resource.RLIMIT_CPU else lambda done: [],
            )  # fmt: skip
    return outcome


def outputs(folder: Path, model: str) -> Outcome:
    """Outputs that are removed, replaced, full or not to be written."""
    outcome, pictures = Outcome("outputs"), scans(folder / "output", 60)
    out, other = folder / "o" / "out.jsonl", folder / "other"
    places = {"full disk": Path("/dev/full"), "a folder": out.parent, "no folder": folder / "none" / "out"}
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
        attacked(outcome, model, pictures, out=places.get(name, out), name=name, during=during)
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

        def judge(done: Watch, number: signal.Signals = number, worker: bool = worker) -> list[str]:
            if worker and done.code not in _WHOLE:
                return [f"exit code {done.code}: the run did not go on"]
            if not worker and done.code in (-number, 128 + number):
                done.code = 130
            return []

        name = f"{number.name} to {'worker' if worker else 'command'}, {times}"
        attacked(outcome, model, pictures, out=out, name=name, during=during, judge=judge,
                 limit=PATIENCE + 30)  # fmt: skip
    return outcome


SURROUNDINGS = {"names": names, "lists": lists, "folder": hostile_folder, "odd": odd, "limits": limits,
                "outputs": outputs, "kills": kills}  # fmt: skip
