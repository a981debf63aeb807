"""The kernels of a whole pass under NVIDIA's compute-sanitizer: no stray access, no race.

Needs a GPU and compute-sanitizer; ``pytest -m gpu tests/test_cuda_sanitizer.py`` runs it.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

#: Every buffer its own allocation, so that a step beyond it is seen.
PASS = """
import sys
import cupy
import numpy as np
cupy.cuda.set_allocator(None)
from neocog.reading.device import open_engine
from neocog.network.u0 import made_digits
from neocog.network.model import load_model
name, precision, plan, count = sys.argv[1:]
engine = open_engine(load_model(name), device="cuda", precision=precision, plan=plan)
digits = made_digits(int(count))
first, second = engine.recognise(digits), engine.recognise(digits)
assert np.array_equal(first.score, second.score)
print("answers", len(first))
"""

#: A picture, as launches and as a graph.
FINDER = """
import cupy
import numpy as np
cupy.cuda.set_allocator(None)
from neocog.cuda.finder import CudaFinder
from neocog.vision.finder import FinderSettings
from tests.test_cuda_finder import graph_of
g = graph_of()
finder = CudaFinder(g.nodes, g.tensors)
grey = np.random.default_rng(0).integers(0, 256, (75, 210)).astype(np.uint8)
first, second = (finder.find(grey, FinderSettings()) for _ in range(2))
assert np.array_equal(first.boxes, second.boxes)
print("answers", len(first))
"""

CASES = [(PASS, "neocog-small", "fp16", "default", "3"), (PASS, "neocog-small", "fp32", "default", "3"),
         (PASS, "neocog-small", "fp32", "card", "2"), (PASS, "neocog-small", "fp16", "card", "2"),
         (PASS, "neocog", "fp32", "default", "9"), (FINDER,)]  # fmt: skip


def sanitizer():
    """Return where compute-sanitizer is; skip where it is not or cannot watch this GPU."""
    home = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin"
    found = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=home)
    if not found:
        pytest.skip("needs compute-sanitizer")
    return found


@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
@pytest.mark.parametrize("words", CASES, ids=lambda words: " ".join(words[1:]) or "finder")
def test_kernels_read_and_write_only_what_is_their_own(tool, words):
    """A script under a tool, which finds nothing."""
    watched = [sanitizer(), "--tool", tool, "--error-exitcode", "9"]
    command = [*watched, sys.executable, "-c", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    told = done.stdout + done.stderr
    if "answers" not in told and "Device not supported" in told:
        pytest.skip("needs a GPU that compute-sanitizer supports")
    assert "answers" in told, told[-2000:]
    assert done.returncode == 0, told[-4000:]
    assert "SUMMARY: 0" in told, told[-2000:]  # "0 errors", "0 hazards": it did watch
