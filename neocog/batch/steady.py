"""Passes of one size: a digit's answer is the same, to the last bit, whatever stands beside it.

Products of another shape may be summed in another order. Where digits of many pictures share a
pass, and which ones do is a matter of chance, every pass is therefore filled up with empty digits
to one size. On the CPU that is a whole number of digits for each thread, on CUDA the whole pass.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from neocog.network.decision import Answers
    from neocog.network.engine import AnyEngine
    from neocog.network.model import Model

PAGES_PASS = 256
"""Digits of a pass on CUDA while pages are read: a page has tens."""

_LEAST_ON_CPU = 32


class SteadyEngine:
    """An engine whose passes are all of one size.

    Parameters
    ----------
    engine : AnyEngine
        What recognises.
    batch : int, optional
        Most digits of a pass, as many as the device likes by default.
    """

    def __init__(self, engine: "AnyEngine", *, batch: int | None = None) -> None:
        from neocog.network.engine import PART

        self._engine = engine
        wanted = batch or max(engine.batch, _LEAST_ON_CPU)
        if engine.device == "cpu":
            self.step = PART * int(getattr(engine, "threads", 1))
            self.batch = max(self.step, wanted // self.step * self.step)
        else:
            self.step = self.batch = wanted

    @property
    def model(self) -> "Model":
        """What it recognises with."""
        return self._engine.model

    @property
    def device(self) -> str:
        """Where the network runs."""
        return self._engine.device

    def recognise(self, digits: NDArray[np.uint8], *, batch: int | None = None) -> "Answers":
        """Recognise isolated digits (N, 28, 28); ``batch`` changes nothing."""
        from neocog.network.decision import Answers

        count = len(digits)
        if missing := -count % self.step:
            empty = np.zeros((missing, *digits.shape[1:]), digits.dtype)
            digits = np.concatenate([digits, empty])
        # pass by pass: several GPUs would divide more among themselves as its number asks
        passes = [
            self._engine.recognise(digits[first : first + self.batch], batch=self.batch)
            for first in range(0, len(digits), self.batch)
        ]
        whole = passes[0] if len(passes) == 1 else Answers.join([Answers.none(), *passes])
        return whole[:count]


def steady_engine(engine: "AnyEngine", *, isolated: bool, batch: int | None = None) -> SteadyEngine:
    """Return the engine of a run over many pictures.

    Parameters
    ----------
    engine : AnyEngine
    isolated : bool
        Whether the pictures are isolated digits, which fill passes of any size.
    batch : int, optional
        Most digits of a pass, as many as the device and the pictures like by default.
    """
    if batch is None and not isolated and engine.device != "cpu":
        batch = min(PAGES_PASS, engine.batch)
    return SteadyEngine(engine, batch=batch)
