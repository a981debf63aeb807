"""What the scripts share: the command line, the result file of rows, and what these are of."""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import cv2

from neocog.network.parallel import cores

Row = dict[str, Any]
Part = TypeVar("Part")
Result = TypeVar("Result")
_PACKAGES = ("numpy", "cupy-cuda13x", "cupy-cuda12x", "opencv-python", "opencv-python-headless",
             "onnxruntime", "torch")  # fmt: skip


def arguments(about: str | None, *paths: str, output: Any = None, **usual: Any) -> argparse.ArgumentParser:
    """Return a parser of ``paths`` and of an option for each of ``usual``: its value if not given, or a type.

    A value False is a switch, a list several, a pair value and help. ``output`` is -o, a path that must be
    given if it is None; there is no -o if it is False.
    """
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(script(), description=about, formatter_class=raw)
    for path in paths:
        parser.add_argument(path, type=Path)
    if output is not False:
        default = output if isinstance(output, Path) else None
        parser.add_argument("-o", "--output", type=Path, default=default, required=output is None)
    for name, value in usual.items():
        value, words = value if isinstance(value, tuple) else (value, None)
        how: dict[str, Any] = {"type": type(value), "default": value}
        if value is False:
            how = {"action": "store_true"}
        elif isinstance(value, list):
            how |= {"type": type(value[0]), "nargs": "+"}
        elif isinstance(value, type):
            how = {"type": value}
        parser.add_argument(f"--{name.replace('_', '-')}", help=words, **how)
    return parser


def script() -> str:
    """Return what runs this script from the top folder, however it was called."""
    path = Path(sys.argv[0])
    return f"python -m experiments.{path.parent.name}.{path.stem}"


def write_results(
    path: Path | None, rows: list[Row], *, columns: dict[str, str], gpu: bool = False,
    read_by: Any = None, **more: Any,
) -> None:  # fmt: skip
    """Write one result file, if there is a path for it; of a reader it tells the models.

    ``columns``: heads of what is shown of a row, by key, "head|format".
    """
    if path is None:
        return
    about = facts(" ".join([script(), *without_places(sys.argv[1:])]), gpu=gpu)
    if read_by is not None:
        about |= {"model": read_by.model.id, "finder": read_by.finder.model.id}
    result = {**about, **more, "columns": columns, "rows": rows}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{path}: {len(rows)} rows", file=sys.stderr)


def earlier(path: Path) -> dict[str, Any]:
    """Return what a result file holds already, nothing if there is none."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return found


def totals(rows: list[Row], by: str, groups: Iterable[Any], shares: Sequence[str], of: str) -> list[Row]:
    """Return sums of rows by group, and "all": ``shares`` by the sum of ``of``, of ``ms`` the median."""
    found = []
    for group in (*groups, "all"):
        if some := [row for row in rows if group in (row[by], "all")]:
            numbers = [key for key, value in rows[0].items() if key != by and isinstance(value, int | float)]
            total: Row = {by: group} | {key: sum(row[key] for row in some) for key in numbers}
            total |= {key: total[key] / max(total[of], 1) for key in shares}
            found.append(total | ({"ms": round(median(row["ms"] for row in some))} if "ms" in total else {}))
            print(found[-1])
    return found


def say(rows: Iterable[Row]) -> None:
    """Print rows, a line each."""
    for row in rows:
        print(", ".join(f"{key} {round(v, 4) if isinstance(v, float) else v}" for key, v in row.items()))


def facts(command: str, *, gpu: bool, number: int = 0) -> dict[str, Any]:
    """Return what a result tells of its making."""
    found = {"command": command, "machine": machine(gpu, number)}
    if gpu:
        query = ("--query-gpu=driver_version", "--format=csv,noheader", "-i", "0")
        found |= {"cpu": machine(False), "driver": asked("nvidia-smi", *query)}
    installed = {own.name.lower(): own.version for own in importlib.metadata.distributions()}
    versions = {name: installed[name] for name in _PACKAGES if name in installed}
    versions = {"python": platform.python_version(), **versions}
    return {**found, "date": today(), "commit": commit(), "versions": versions}


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def machine(gpu: bool, number: int = 0) -> str:
    """Return the GPU's name, or the processor and the cores that may be used."""
    if gpu:
        import cupy

        name: str = cupy.cuda.runtime.getDeviceProperties(number)["name"].decode()
        return name
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(encoding="utf-8") if cpuinfo.is_file() else ""
    found = re.search(r"^model name\s*:(.*)", text, re.MULTILINE)
    return f"{cores()} cores of {found[1].strip() if found else platform.processor() or platform.machine()}"


def commit() -> str:
    """Return the commit the code is of; NEOCOG_COMMIT names it where there is no repository."""
    here = str(Path(__file__).parent)
    named = os.environ.get("NEOCOG_COMMIT") or asked("git", "-C", here, "rev-parse", "--short", "HEAD")
    return named or "unknown"


def asked(*command: str) -> str:
    """Return what a program prints; "" where it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def without_places(words: Sequence[str]) -> list[str]:
    """Return a command's words without places of this machine: the last part of each is left.

    The folder of data, the first that is no option's value (or else the first), becomes ``DATA``.
    """
    folders = [i for i, word in enumerate(words) if word[0] != "-" and Path(word).is_dir()]
    data = next((i for i in folders if i == 0 or words[i - 1][0] != "-"), next(iter(folders), None))
    out = ["DATA" if i == data else word for i, word in enumerate(words)]
    place = re.compile(r"(--?[\w-]+=|-\w)?((?:/|\.\./).*)")  # of an option's value too
    return [place.sub(lambda found: (found[1] or "") + Path(found[2]).name, word)
            if place.fullmatch(word) else word for word in out]  # fmt: skip


def spread(work: Callable[[Part], Result], parts: Iterable[Part], jobs: int) -> Iterator[Result]:
    """Do ``work`` (picklable) on each part, on ``jobs`` processes; with one job: here."""
    parts = list(parts)
    if jobs == 1 or len(parts) < 2:
        yield from map(work, parts)
        return
    with ProcessPoolExecutor(min(jobs, len(parts)), get_context("spawn"), cv2.setNumThreads, (1,)) as pool:
        yield from pool.map(work, parts)
