"""An engine that remembers the digits of the last frames: what hardly changed is not asked again.

On a CPU a digit takes the network 2 ms, a tenth of what a frame may take.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neocog.network.decision import Answers

if TYPE_CHECKING:
    from neocog.network.engine import AnyEngine

ALIKE = 0.95
"""Cosine between two digits (28 x 28) from which they are one; of such pairs from two frames
running the network takes 99 % for the same digit (``python -m experiments.live.measure alike``)."""

_LIVES = (2, 3, 4)  # frames for which an answer holds, in turn: digits do not fall due together


class RecentAnswers:
    """Answers of the last frames, found again by the digit's pixels; for one thread.

    Parameters
    ----------
    engine : AnyEngine
        What recognises; all but `recognise` is passed on to it.
    """

    def __init__(self, engine: "AnyEngine") -> None:
        self.engine = engine
        self._digits = np.zeros((0, 28 * 28), np.float32)  # of length 1
        self._left = np.zeros(0, np.int64)  # frames for which each answer still holds
        self._answers = Answers.none()
        self._asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def next_frame(self) -> None:
        """Begin with a new frame: answers that are too old are forgotten."""
        self._left -= 1
        kept = np.flatnonzero(self._left > 0)
        self._digits, self._left = self._digits[kept], self._left[kept]
        self._answers = chosen(self._answers, kept)

    def forget(self) -> None:
        """Remember nothing."""
        self._left[:] = 0
        self.next_frame()

    def recognise(self, digits: NDArray[np.uint8], *, batch: int | None = None) -> Answers:
        """Recognise digits (N, 28, 28); those that are known cost next to nothing."""
        flat = digits.reshape(len(digits), -1).astype(np.float32)
        flat /= np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1.0)
        rows = np.full(len(digits), -1)
        if len(self._left) and len(digits):
            alike = flat @ self._digits.T
            rows = np.where(alike.max(axis=1) >= ALIKE, alike.argmax(axis=1), -1)
        new = np.flatnonzero(rows < 0)
        if len(new):
            rows[new] = len(self._left) + np.arange(len(new))
            answers = self.engine.recognise(digits[new], batch=batch)
            lives = np.take(_LIVES, np.arange(self._asked, self._asked + len(new)), mode="wrap")
            self._answers = Answers.join([self._answers, answers]) if len(self._left) else answers
            self._digits = np.concatenate([self._digits, flat[new]])
            self._left = np.concatenate([self._left, lives])
            self._asked += len(new)
        return chosen(self._answers, rows)


def chosen(answers: Answers, rows: NDArray[np.int64]) -> Answers:
    """Return some of the answers."""
    return Answers(*(getattr(answers, name)[rows] for name in Answers.__slots__))
