"""Nsight Compute: functions of the experiments run under it, and what it prints as CSV."""

import csv
import io
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from neocog.errors import DeviceError
from neocog.programs import python

_PLACES = ("ncu", "/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/ncu")
_ROOT = str(Path(__file__).parents[2])
_CALL = f"""import sys; sys.path.insert(0, {_ROOT!r})
from {{}} import {{}} as work; work(*sys.argv[1:])"""


def program() -> str:
    found = next((path for name in _PLACES if (path := shutil.which(name))), None)
    if found is None:
        raise DeviceError("ncu is not installed")
    return found


def profiled(
    metrics: Iterable[str], module: str, function: str, *words: str, more: Iterable[str] = (),
    seconds: float | None = None,
) -> "subprocess.CompletedProcess[str]":  # fmt: skip
    """Run a function of a module with words in a process of its own, and measure its kernels."""
    command = [program(), "--csv", "--page", "raw", "--clock-control", "none", *more,
               "--metrics", ",".join(metrics),
               *python("-c", _CALL.format(module, function), *words)]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)


_FACTORS = {"nsecond": 1e-9, "ns": 1e-9, "usecond": 1e-6, "us": 1e-6, "msecond": 1e-3, "ms": 1e-3,
            "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}  # fmt: skip


def launches(text: str, kernel: str, but: str = "no kernel") -> list[dict[str, float]]:
    """Return the metrics of each launch of the kernels whose name holds ``kernel``, not ``but``.

    Times are in seconds, sizes in bytes. Nothing where there is no such table.
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]
    head, *rows = csv.reader(io.StringIO("\n".join(lines))) if lines else [[]]
    if "Kernel Name" not in head:
        return []
    at = head.index("Kernel Name")
    units = rows.pop(0) if rows and not rows[0][0] else [""] * len(head)
    found = []
    for row in rows:
        if kernel in row[at] and but not in row[at]:
            cells = [
                (name, float(value.replace(",", "")) * _FACTORS.get(unit, 1.0))
                for name, value, unit in zip(head, row, units, strict=False)
                if "." in name and value.replace(",", "").replace(".", "", 1).isdecimal()
            ]
            found.append(dict(cells))
    return found
