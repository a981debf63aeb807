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
from neocog.errors import DeviceError
from neocog.evaluation.timing import milliseconds
from neocog.network.engine import Engine
from neocog.network.model import Model, s_constants
from neocog.network.u0 import u0_from_digits

_FLAGS = ("-std=c11", "-O3", "-march=native", "-fPIC", "-shared")
_KINDS = ("read u", "read u for v", "read a", "read c", "read v", "read us", "write v", "write us",
          "operations")  # fmt: skip
#: Largest error of a layer in float32 that counts as right.
ALLOWED = 1e-5
#: Digits that each way is timed on: what skips depends on them.
DIGITS = {"S": 2, "F": 20, "G": 2}


class _Shape(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("inputs", "size", "planes", "out", "kernel", "pad")]


@cache
def built(counting: bool = False) -> ctypes.CDLL:
    """Return the rivals' library; with ``counting`` it counts accesses instead of being quick."""
    names = (os.environ.get("CC"), "cc", "gcc", "clang")
    compiler = next((path for name in names if name and (path := shutil.which(name))), None)
    if compiler is None:
        raise DeviceError("no C compiler is found to build the CPU rivals: install gcc, or name one in CC")
    source = Path(__file__).with_name("s_layer.c")
    with tempfile.TemporaryDirectory() as folder:  # loaded, a library needs its file no more
        target = Path(folder) / "s_layer.so"
        flags = (*_FLAGS, *["-DCOUNT"] * counting)
        subprocess.run([compiler, *flags, str(source), "-o", str(target), "-lm"], check=True)
        return ctypes.CDLL(str(target))


class Rival:
    """One S-layer of a model as the paper's CPU code computes it, one character at a time."""

    def __init__(self, model: Model, stage: str) -> None:
        i, spec = int(stage[-1]) - 1, model.spec
        a, self._theta, silence = s_constants(model.s[i])
        self._a, self._silence = (np.ascontiguousarray(x, np.float32) for x in (a, silence))
        self._c = np.ascontiguousarray(model.s[i].c, np.float32)
        out = spec.size(stage)
        kernel, padding = spec.s[i].kernel, spec.s[i].padding
        self._shape = _Shape(a.shape[1], spec.size(STAGES[stage]), len(a), out, kernel, padding)
        self.responses = np.zeros((len(a), out, out), np.float32)
        self._v = np.zeros((out, out), np.float32)

    def run(self, way: str, u: NDArray[np.float32], *, counting: bool = False) -> float:
        """Compute by a way of ``DIGITS``; return the seconds of processor time."""
        code, whole = built(counting), 0  # places or planes at a time: all
        given = (ctypes.byref(self._shape), *map(_address, (u, self._a, self._c, self._silence)))
        theta, us = ctypes.c_float(float(self._theta)), _address(self.responses)
        start = time.thread_time()  # other programs do not count
        if way == "G":
            code.s_gather(*given, theta, whole, us)
        else:
            code.s_scatter(*given, theta, int(way == "F"), whole, _address(self._v), us)
        return time.thread_time() - start

    def counts(self, way: str, maps: list[NDArray[np.float32]]) -> dict[str, float]:
        """Return how often each kind of array is read and written, and the operations, of a character."""
        out = (ctypes.c_longlong * len(_KINDS))()
        built(True).s_counts(out, 1)
        for u in maps:
            self.run(way, u, counting=True)
        built(True).s_counts(out, 1)
        return {kind: count / len(maps) for kind, count in zip(_KINDS, out, strict=True)}


def _address(array: NDArray[np.float32]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def rivals(fed: Fed, *, quick: bool = False) -> list[dict[str, Any]]:
    """Check, time and count every way on every stage: a row for each, counts of a character."""
    rows: list[dict[str, Any]] = []
    for stage, layer in STAGES.items():
        rival, want = Rival(fed.model, stage), fed.want(stage, 1)[0]
        maps = [np.ascontiguousarray(u) for u in fed.maps[layer][: 2 if quick else None]]
        for way, most in DIGITS.items():
            rival.run(way, maps[0])
            wrong = error(rival.responses, want)
            ms = 1e3 * float(np.mean([rival.run(way, u) for u in maps[:most]]))
            counts = rival.counts(way, maps[: most if way == "F" else 1])  # what skips nothing counts alike
            moved = 4 * sum(count for kind, count in counts.items() if kind != "operations")
            rows.append({
                "stage": stage, "system": f"CPU {way}", "error": wrong, "passed": wrong <= ALLOWED, "ms": ms,
                "counts": counts, "mb_s": 1e-3 * moved / ms, "mflops": 1e-3 * counts["operations"] / ms,
            })  # fmt: skip
            progress(f"CPU {way} {stage}: {ms:.2f} ms, error {wrong:.1e}")
    return rows


def our_engine(fed: Fed) -> list[dict[str, Any]]:
    """Time our CPU engine's S-layers on one thread: the least of some passes, a mean of digits."""
    engine, rows = Engine(fed.model, threads=1), list[dict[str, Any]]()
    digits = fed.digits[: DIGITS["F"]]
    spent = [engine.stage_times(digits[i : i + 1], repeats=5) for i in range(len(digits))]
    got = engine.maps(u0_from_digits(digits[:1]))
    for stage in STAGES:
        ms, wrong = np.mean([np.min(times[stage]) for times in spent]), error(got[stage], fed.want(stage, 1))
        rows.append({"system": "our CPU engine", "stage": stage, "ms": float(ms), "error": wrong,
                     "passed": wrong <= ALLOWED})  # fmt: skip
    return rows


def frame(model: Model, digits: NDArray[np.uint8], *, threads: int) -> dict[str, Any]:
    """Time our CPU engine on one character and on a frame's 8; return milliseconds of each."""
    engine, found = Engine(model, threads=threads), dict[str, Any](threads=threads)
    for count in (1, 8):
        some = [digits[i : i + count] for i in range(0, min(len(digits), 64) - count + 1, count)]
        times = [milliseconds(partial(engine.recognise, one)) for one in some[:16] * 7]
        found[f"ms_{count}"] = float(np.median(times[16:]))
    found["share_of_cores"] = 30e-3 * found["ms_8"]
    return found
