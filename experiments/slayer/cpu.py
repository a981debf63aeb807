"""The GPU paper's CPU rivals S, F and G, built from C on first use, beside our CPU engine."""

import ctypes
import os
import shutil
import subprocess
import tempfile
import time
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.harness.run import progress
from experiments.slayer.inputs import STAGES, Fed, error
from neocog.cuda.kernel import kernel_folder
from neocog.errors import DeviceError
from neocog.evaluation.timing import milliseconds
from neocog.network.engine import Engine
from neocog.network.layers import s_constants
from neocog.network.model import Model
from neocog.network.u0 import u0_from_digits

_FLAGS = ("-std=c11", "-O3", "-march=native", "-fPIC", "-shared")
_KINDS = ("read u", "read u for v", "read a", "read c", "read v", "read us", "write v", "write us",
          "operations")  # fmt: skip
#: Largest error of a layer in float32 that counts as right.
ALLOWED = 1e-5
#: Planes that the cache-blocked F takes at a time, and side of the square of places of G.
BLOCK = 8
#: Digits that each way is timed on: what skips depends on them.
DIGITS = {"S": 2, "F": 20, "F blocked": 20, "G": 2, "G blocked": 2}
#: Frames before those that are timed, and how often each is timed.
_WARM_UP, _TURNS = 8, 6


class _Shape(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("inputs", "size", "planes", "out", "kernel", "pad")]


@cache
def built(counting: bool = False) -> ctypes.CDLL:
    """Return the rivals' library; with ``counting`` it counts accesses instead of being quick."""
    names = (os.environ.get("CC"), "cc", "gcc", "clang")
    compiler = next((path for name in names if name and (path := shutil.which(name))), None)
    if compiler is None:
        raise DeviceError(
            "no C compiler is found, and the CPU rivals S, F and G are built with one: install "
            "gcc, or name one in CC"
        )
    source = kernel_folder() / "cpu" / "s_layer.c"
    with tempfile.TemporaryDirectory() as folder:  # loaded, a library needs its file no more
        target = Path(folder) / "s_layer.so"
        flags = (*_FLAGS, *["-DCOUNT"] * counting)
        command = [compiler, *flags, str(source), "-o", str(target), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = done.stderr.splitlines()
            first = next((line for line in lines if "error" in line), "no message")
            raise DeviceError(f"{source.name} does not build: {first.strip()}")
        return ctypes.CDLL(str(target))


class Rival:
    """One S-layer of a model as the paper's CPU code computes it, one character at a time."""

    def __init__(self, model: Model, stage: str) -> None:
        i = int(stage[-1]) - 1
        spec = model.spec
        a, self._theta, silence = s_constants(model.s[i])
        self._a, self._silence = (np.ascontiguousarray(x, np.float32) for x in (a, silence))
        self._c = np.ascontiguousarray(model.s[i].c, np.float32)
        out = spec.size(stage)
        self._shape = _Shape(
            a.shape[1], spec.size(STAGES[stage]), len(a), out, spec.s[i].kernel, spec.s[i].padding
        )
        self._us = np.zeros((len(a), out, out), np.float32)
        self._v = np.zeros((out, out), np.float32)

    def run(self, way: str, u: NDArray[np.float32], *, counting: bool = False) -> float:
        """Compute by a way of ``DIGITS``; return the seconds of processor time."""
        code = built(counting)
        given = (ctypes.byref(self._shape), *map(_address, (u, self._a, self._c, self._silence)))
        theta = ctypes.c_float(float(self._theta))
        block = BLOCK if way.endswith("blocked") else 0
        start = time.thread_time()  # other programs do not count
        if way.startswith("G"):
            code.s_gather(*given, theta, block, _address(self._us))
        else:
            skip = int(way != "S")
            code.s_scatter(*given, theta, skip, block, _address(self._v), _address(self._us))
        return time.thread_time() - start

    @property
    def responses(self) -> NDArray[np.float32]:
        return self._us

    def counts(self, way: str, u: NDArray[np.float32]) -> dict[str, int]:
        """Return how often each kind of array is read and written, and the operations."""
        out = (ctypes.c_longlong * len(_KINDS))()
        built(True).s_counts(out, 1)
        self.run(way, u, counting=True)
        built(True).s_counts(out, 1)
        return dict(zip(_KINDS, map(int, out), strict=True))


def _address(array: NDArray[np.float32]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def rivals(fed: Fed, *, quick: bool = False) -> list[dict[str, Any]]:
    """Check, time and count every way on every stage: a row for each, counts of a character."""
    return [
        {"stage": stage, **row, "passed": row["error"] <= ALLOWED}
        for stage, layer in STAGES.items()
        for row in _stage_rows(Rival(fed.model, stage), fed, (stage, layer), quick)
    ]


def _stage_rows(rival: Rival, fed: Fed, which: tuple[str, str], quick: bool) -> list[dict[str, Any]]:
    """Return a row for each way; the ways take turns, so that what disturbs one disturbs all."""
    stage, layer = which
    want = fed.want(stage, 1)[0]
    maps = [np.ascontiguousarray(u) for u in fed.maps[layer][: max(DIGITS.values())]]
    spent: dict[str, list[float]] = {way: [] for way in DIGITS}
    errors = {}
    for way in DIGITS:
        rival.run(way, maps[0])
        errors[way] = error(rival.responses, want)
    for i, u in enumerate(maps[:2] if quick else maps):
        for way, most in DIGITS.items():
            if i < most:
                spent[way].append(1e3 * rival.run(way, u))
    rows = []
    for way, times in spent.items():
        row: dict[str, Any] = {"system": f"CPU {way}", "error": errors[way]}
        row["ms"] = float(np.mean(times))
        if not way.endswith("blocked"):
            some = maps[: len(times) if way == "F" else 1]  # what skips nothing counts alike
            row["counts"] = mean = _mean(rival, way, some)
            moved = 4 * sum(value for kind, value in mean.items() if kind != "operations")
            row["mb_s"] = 1e-3 * moved / row["ms"]
            row["mflops"] = 1e-3 * mean["operations"] / row["ms"]
        progress(f"{row['system']} {stage}: {row['ms']:.2f} ms, error {row['error']:.1e}")
        rows.append(row)
    return rows


def accesses(fed: Fed) -> list[dict[str, Any]]:
    """Count reads, writes and operations of a character by F and G (mean); nothing is timed."""
    return [
        {"stage": stage, "system": f"CPU {way}", "counts": _mean(rival, way, maps)}
        for stage, layer in STAGES.items()
        for rival in [Rival(fed.model, stage)]
        for maps in [[np.ascontiguousarray(u) for u in fed.maps[layer][: DIGITS["F"]]]]
        for way in ("F", "G")
    ]


def _mean(rival: Rival, way: str, maps: list[NDArray[np.float32]]) -> dict[str, float]:
    counted = [rival.counts(way, u) for u in maps]
    return {kind: float(np.mean([one[kind] for one in counted])) for kind in _KINDS}


def our_engine(fed: Fed) -> list[dict[str, Any]]:
    """Time our CPU engine's S-layers on one thread: the least of some passes, a mean of digits."""
    engine = Engine(fed.model, threads=1)
    count = min(len(fed.digits), DIGITS["F"])
    spent: dict[str, list[float]] = {stage: [] for stage in STAGES}
    for i in range(count):
        times = engine.stage_times(fed.digits[i : i + 1], repeats=5)
        for stage, values in spent.items():
            values.append(float(np.min(times[stage])))
    got = engine.maps(u0_from_digits(fed.digits[:1]))
    return [
        {"system": "our CPU engine", "stage": stage, "ms": float(np.mean(values)),
         "error": (wrong := error(got[stage], fed.want(stage, 1))), "passed": wrong <= ALLOWED}
        for stage, values in spent.items()
    ]  # fmt: skip


def frame(model: Model, digits: NDArray[np.uint8], *, threads: int) -> dict[str, Any]:
    """Time our CPU engine on one character and on a frame's 8; return milliseconds of each."""
    engine = Engine(model, threads=threads)
    found: dict[str, Any] = {"threads": threads}
    for count in (1, 8):
        some = [digits[i : i + count] for i in range(0, min(len(digits), 64) - count + 1, count)]
        for digit in some[:_WARM_UP]:
            engine.recognise(digit)
        times = [milliseconds(partial(engine.recognise, one)) for one in some[:16] * _TURNS]
        found[f"ms_{count}"] = float(np.median(times))
    found["share_of_cores"] = 30e-3 * found["ms_8"]
    return found
