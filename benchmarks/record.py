"""Writes a result file: rows, and the machine, versions, date and commit they are of."""

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

PACKAGES = ("numpy", "cupy-cuda13x", "cupy-cuda12x", "opencv-python", "opencv-python-headless",
            "onnxruntime", "torch")  # fmt: skip


def write_results(
    path: Path,
    rows: list[dict[str, Any]],
    *,
    columns: dict[str, str],
    formats: dict[str, str] | None = None,
    gpu: bool = False,
    **more: Any,
) -> None:
    """Write one result file, readable by ``tables.py``."""
    result = {
        "command": "python " + " ".join([Path(sys.argv[0]).as_posix(), *_options()]),
        "machine": machine(gpu),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit(),
        "versions": versions(),
        **more,
        "columns": columns,
        "formats": formats or {},
        "rows": rows,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{path}: {len(rows)} rows", file=sys.stderr)


def _options() -> list[str]:
    """The command's options, without folders of this machine: the data's is DATA."""
    words = ["DATA" if Path(word).is_dir() else word for word in sys.argv[1:]]
    return [Path(word).name if word.startswith("/") else word for word in words]


def machine(gpu: bool) -> str:
    """The GPU, or the processor and the cores that may be used."""
    if gpu:
        import cupy

        name: str = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
        return name
    cores = len(os.sched_getaffinity(0))
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return f"{cores} cores of {model}"


def commit() -> str:
    """The commit the code is of; NEOCOG_COMMIT names it where there is no repository."""
    named = os.environ.get("NEOCOG_COMMIT")
    if named:
        return named
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"


def versions() -> dict[str, str]:
    """Python and the packages that matter, as far as installed."""
    out = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            out[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return out
