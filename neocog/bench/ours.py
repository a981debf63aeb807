"""Our own passes on a GPU as a side of a comparison."""

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.network.model import Model

_HOLD = 20_000  # cycles for each pass that the GPU waits, so that launches queue up behind
_HOLD_SOURCE = """
extern "C" __global__ void hold(long long cycles) {
    long long start = clock64();
    while (clock64() - start < cycles) { }
}
"""


class OurSide:
    """One batch size of our engine; a :class:`neocog.bench.race.Side`.

    Parameters
    ----------
    model : Model
    batch : int
        Digits per pass.
    precision : {"fp32", "tf32", "fp16", "bf16"}
    plan : str
        Which version of each step: ``auto``, ``card``, ``direct``.
    """

    def __init__(self, model: Model, batch: int, *, precision: str, plan: str = "auto") -> None:
        import cupy

        self._cupy, self._batch = cupy, batch
        engines: Any = import_module("neocog.network.engine")
        self._engine = engines.open_engine(model, device="cuda", precision=precision, plan=plan)
        self._pass: Any = self._engine.replay(batch)
        self._stream: Any = self._engine.stream
        self._hold = cupy.RawKernel(_HOLD_SOURCE, "hold")

    def load(self, digits: NDArray[np.uint8]) -> None:
        """Put a batch of digits on the GPU."""
        self._pass.load(digits)

    def elapsed(self, repeats: int) -> float:
        """Return milliseconds of one pass."""
        cuda = self._cupy.cuda
        start, end = cuda.Event(), cuda.Event()
        with self._stream:
            self._pass()
            self._hold((1,), (1,), (np.int64(_HOLD * repeats),))
            start.record()
            for _ in range(repeats):
                self._pass()
            end.record()
        end.synchronize()
        ms: float = cuda.get_elapsed_time(start, end) / repeats
        return ms

    def scores(self) -> NDArray[np.float32]:
        """Return the scores of the digits last loaded."""
        self._pass()
        found: NDArray[np.float32] = self._pass.scores()
        return found

    def trip(self, digits: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return scores of digits on the host."""
        found: NDArray[np.float32] = self._engine.recognise(digits, batch=self._batch).score
        return found
