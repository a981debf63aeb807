"""An engine that recognises each digit of a frame once, however often the frame asks for it.

Cutting touching digits apart asks how well the network knows a mark; reading the line asks again
for those that stayed whole. Nothing is kept from one frame to the next.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neocog.network.decision import Answers

if TYPE_CHECKING:
    from neocog.network.engine import AnyEngine


class Once:
    """Answers of one frame, remembered by the digit's pixels; for one thread.

    Parameters
    ----------
    engine : AnyEngine
        What recognises; all but `recognise` is passed on to it.
    """

    def __init__(self, engine: "AnyEngine") -> None:
        self.engine = engine
        self._known: dict[bytes, int] = {}
        self._answers = Answers.none()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def forget(self) -> None:
        """Begin with a new frame."""
        self._known = {}
        self._answers = Answers.none()

    def recognise(self, digits: NDArray[np.uint8], *, batch: int | None = None) -> Answers:
        """Recognise digits (N, 28, 28); those of this frame that are known cost nothing."""
        keys = [digit.tobytes() for digit in digits]
        new = [n for n, key in enumerate(keys) if key not in self._known]
        if new:
            first = len(self._answers)
            answers = self.engine.recognise(digits[new], batch=batch)
            self._answers = Answers.join([self._answers, answers]) if first else answers
            self._known.update({keys[n]: first + place for place, n in enumerate(new)})
        return _chosen(self._answers, [self._known[key] for key in keys])


def _chosen(answers: Answers, rows: list[int]) -> Answers:
    return Answers(*(getattr(answers, name)[rows] for name in Answers.__slots__))
