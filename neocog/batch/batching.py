"""Passes of the network: their size, and who shares them.

Products of another shape may be summed in another order. So every pass is filled up with empty digits to a
fixed size: a digit's answer is then the same, to the last bit, whatever stands beside it.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neocog.errors import EndedEarly

if TYPE_CHECKING:
    from neocog.network.decision import Answers
    from neocog.network.engine import AnyEngine
    from neocog.network.model import Model

PAGES_PASS = 256
"""Digits of a pass on CUDA while pages are read: a page has tens."""

_LEAST_ON_CPU = 32


class FixedBatches:
    """An engine whose passes are all of one size: on the CPU some digits for each thread, on CUDA the batch.

    ``batch``: most digits of a pass, as the device likes by default; ``isolated`` digits fill any pass.
    """

    def __init__(self, engine: "AnyEngine", *, batch: int | None = None, isolated: bool = True) -> None:
        from neocog.network.engine import PART

        self._engine = engine
        self.model: Model = engine.model
        self.device: str = engine.device
        if engine.device == "cpu":
            wanted = batch or max(engine.batch, _LEAST_ON_CPU)
            self.step = PART * int(getattr(engine, "threads", 1))
            self.batch = max(self.step, wanted // self.step * self.step)
        else:
            most = engine.batch if isolated else min(PAGES_PASS, engine.batch)
            self.step = self.batch = batch or most

    def recognise(self, digits: NDArray[np.uint8], *, batch: int | None = None) -> "Answers":
        """Recognise isolated digits (N, 28, 28); ``batch`` changes nothing."""
        from neocog.network.decision import Answers

        count = len(digits)
        if missing := -count % self.step:
            empty = np.zeros((missing, *digits.shape[1:]), digits.dtype)
            digits = np.concatenate([digits, empty])
        passes = [
            self._engine.recognise(digits[first : first + self.batch], batch=self.batch)
            for first in range(0, len(digits), self.batch)
        ]
        return Answers.join(passes)[:count]


def in_passes(engine: Any, *, batch: int | None = None, isolated: bool = True) -> Any:
    """An engine whose answers depend on no pass: `FixedBatches`; a line engine's never do."""
    if hasattr(engine, "likelihoods"):
        return engine
    return FixedBatches(engine, batch=batch, isolated=isolated)


class Batcher:
    """Answers questions of many threads in batches: one that waits answers for all, up to a size of ``most``.

    No question waits for company. ``answer`` takes a list of questions and returns as many answers.
    """

    def __init__(self, answer: Callable[[list[Any]], Sequence[Any]], *, most: int = 1) -> None:
        self.busy = 0.0  # seconds of work
        self._answer, self._most, self._closed = answer, most, False
        self._waiting: deque[tuple[Any, int, Future[Any]]] = deque()  # what, its size, where the answer goes
        self._at_work = threading.Lock()

    def ask(self, what: Any, *, size: int = 1) -> Any:
        """Return the answer, or raise what went wrong; EndedEarly if nothing is answered any more."""
        future: Future[Any] = Future()
        self._waiting.append((what, size, future))
        while not future.done():
            with self._at_work:
                if not future.done():
                    self._answer_batch()
        return future.result()

    def close(self) -> None:
        self._closed = True
        if self._at_work.acquire(timeout=10.0):
            self._at_work.release()

    def _answer_batch(self) -> None:
        """Answer the questions that came first, as many as fit into a batch, one at least."""
        start, batch = time.perf_counter(), [self._waiting.popleft()]
        while self._waiting and sum(own[1] for own in batch) + self._waiting[0][1] <= self._most:
            batch.append(self._waiting.popleft())
        try:
            if self._closed:
                raise EndedEarly("the run has ended")
            answers = self._answer([what for what, _, _ in batch])
        except BaseException as error:
            for *_, future in batch:
                future.set_exception(error)
        else:
            for (*_, future), answer in zip(batch, answers, strict=True):
                future.set_result(answer)
        self.busy += time.perf_counter() - start


class Networks:
    """The network of digits or lines, and a finder on a GPU, for processes that have none of their own."""

    def __init__(self, engine: Any, finder: Any = None) -> None:
        def recognise(asked: list[Any]) -> list[Any]:
            if hasattr(engine, "likelihoods"):
                answers = engine.likelihoods([strip for strips in asked for strip in strips])
            else:
                answers = engine.recognise(np.concatenate(asked))
            ends = np.cumsum([0, *map(len, asked)]).tolist()
            return [answers[first:last] for first, last in pairwise(ends)]

        def look(pages: list[Any]) -> list[Any]:
            from neocog.vision.finder import find

            return [find(grey, finder, settings) for grey, settings in pages]

        self.digits = Batcher(recognise, most=getattr(engine, "batch", _LEAST_ON_CPU))
        self._pages = Batcher(look)

    def ask(self, *question: Any) -> Any:
        """Ask for digits (N, 28, 28) or strips, or about a grey page with its settings."""
        if len(question) == 1:
            return self.digits.ask(question[0], size=len(question[0]))
        return self._pages.ask(question)

    def close(self) -> None:
        self.digits.close()
        self._pages.close()
