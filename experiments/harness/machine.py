"""What a measurement was made on: machine, versions, date, commit."""

import datetime
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

PACKAGES = ("numpy", "cupy-cuda13x", "cupy-cuda12x", "opencv-python", "opencv-python-headless",
            "onnxruntime", "torch")  # fmt: skip


def about(command: str, *, gpu: bool, number: int = 0) -> dict[str, Any]:
    """Return command, machine, date, commit and versions, as a result file holds them.

    ``command`` makes the measurement again; ``number`` is the GPU, ``cpu`` is told in any case.
    """
    facts: dict[str, Any] = {"command": command}
    facts |= {"machine": machine(gpu, number), "cpu": machine(False)}
    if gpu:
        facts["driver"] = driver()
    facts["date"] = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {**facts, "commit": commit(), "versions": versions()}


def machine(gpu: bool, number: int = 0) -> str:
    """Return the GPU's name, or the processor and the cores that may be used."""
    if gpu:
        import cupy

        name: str = cupy.cuda.runtime.getDeviceProperties(number)["name"].decode()
        return name
    return f"{len(os.sched_getaffinity(0))} cores of {processor()}"


def processor() -> str:
    """Return the processor's name."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def driver() -> str:
    """Return what nvidia-smi says of the driver; "" where it says nothing."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "-i", "0"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""


def commit() -> str:
    """Return the commit the code is of; NEOCOG_COMMIT names it where there is no repository."""
    if named := os.environ.get("NEOCOG_COMMIT"):
        return named
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return found.stdout.strip() or "unknown"


def versions() -> dict[str, str]:
    """Return Python and the packages that matter, as far as installed."""
    out = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            out[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return out
