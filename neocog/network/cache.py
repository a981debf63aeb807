"""A cache of the network's answers: a digit that was recognised is not computed again."""

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neocog.network.decision import Answers

if TYPE_CHECKING:
    from neocog.network.engine import AnyEngine

Digits = NDArray[np.uint8]


class AnswerCache:
    """An engine that finds answers again by the digit's pixels; for one thread.

    A page asks for most digits twice: touching digits are segmented by how well the network knows
    each candidate, and the line is read from the candidates that were chosen.

    Parameters
    ----------
    engine : AnyEngine
        What recognises; everything but `recognise` is passed on to it.

    Attributes
    ----------
    ms : float
        Milliseconds that `recognise` took in all.
    """

    ms = 0.0

    def __init__(self, engine: "AnyEngine") -> None:
        self.engine = engine
        self.forget()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def forget(self) -> None:
        """Empty the cache."""
        self._answers = Answers.none()
        self._rows: dict[bytes, int] = {}

    def recognise(self, digits: Digits, *, batch: int | None = None) -> Answers:
        """Recognise digits (N, 28, 28); only those that are not in the cache are computed."""
        start = time.perf_counter()
        rows = self._find(digits)
        new = np.flatnonzero(rows < 0)
        if len(new):
            rows[new] = len(self._answers) + np.arange(len(new))
            computed = self.engine.recognise(digits[new], batch=batch)
            self._answers = Answers.join([self._answers, computed])
            self._add(digits[new], rows[new])
        answers = self._answers[rows]
        self.ms += 1e3 * (time.perf_counter() - start)
        return answers

    def _find(self, digits: Digits) -> NDArray[np.int64]:
        """Return the row of each digit's answer, -1 where there is none."""
        rows = [self._rows.get(digit.tobytes(), -1) for digit in digits]
        return np.array(rows, np.int64)

    def _add(self, digits: Digits, rows: NDArray[np.int64]) -> None:
        self._rows.update(zip((digit.tobytes() for digit in digits), rows.tolist(), strict=True))
