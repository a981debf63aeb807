"""Passes of the network: their size, and who shares them.

Products of another shape may be summed in another order. So every pass is filled up with empty digits to a
fixed size: a digit's answer is then the same, to the last bit, whatever stands beside it.
"""

import threading
from collections import deque
from concurrent.futures import Future
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neocog.errors import EndedEarly

if TYPE_CHECKING:
    from neocog.network.decision import Answers
    from neocog.network.engine import AnyEngine

_PAGES_PASS = 256  # digits of a pass on CUDA while pages are read: a page has tens
_LEAST_ON_CPU = 32


class FixedBatches:
    """An engine whose passes are all of one size: on the CPU some digits for each thread, on CUDA the batch.

    ``batch``: most digits of a pass, as the device likes by default; ``isolated`` digits fill any pass.
    """

    def __init__(self, engine: "AnyEngine", *, batch: int | None = None, isolated: bool = True) -> None:
        from neocog.network.engine import PART

        self._engine, self.model, self.device = engine, engine.model, engine.device
        if engine.device == "cpu":
            self.step = PART * int(getattr(engine, "threads", 1))
            wanted = batch or max(engine.batch, _LEAST_ON_CPU)
            self.batch = max(self.step, wanted // self.step * self.step)
        else:
            self.step = self.batch = batch or (engine.batch if isolated else min(_PAGES_PASS, engine.batch))

    def recognise(self, digits: NDArray[np.uint8], *, batch: int | None = None) -> "Answers":
        """Recognise isolated digits (N, 28, 28); ``batch`` changes nothing."""
        from neocog.network.decision import Answers

        count = len(digits)
        if missing := -count % self.step:
            digits = np.concatenate([digits, np.zeros((missing, *digits.shape[1:]), digits.dtype)])
        parts = (digits[first : first + self.batch] for first in range(0, len(digits), self.batch))
        return Answers.join([self._engine.recognise(part, batch=self.batch) for part in parts])[:count]


def in_passes(engine: Any, *, batch: int | None = None, isolated: bool = True) -> Any:
    """An engine whose answers depend on no pass: `FixedBatches`; a line engine's never do."""
    return engine if hasattr(engine, "likelihoods") else FixedBatches(engine, batch=batch, isolated=isolated)


class Networks:
    """The network of digits or lines, and a finder on a GPU, for processes that have none of their own.

    Questions of many threads share passes: one that waits answers for all, and none waits for company.
    """

    def __init__(self, engine: Any, finder: Any = None) -> None:
        self._engine, self._finder, self._closed = engine, finder, False
        self._most = getattr(engine, "batch", _LEAST_ON_CPU)
        self._waiting: deque[tuple[Any, Future[Any]]] = deque()
        self._at_work, self._looking = threading.Lock(), threading.Lock()

    def ask(self, what: Any, *settings: Any) -> Any:
        """Ask for digits (N, 28, 28) or strips, or about a grey page with settings; EndedEarly if closed."""
        if settings:
            from neocog.vision.finder import find

            with self._looking:
                self._check()
                return find(what, self._finder, *settings)
        future: Future[Any] = Future()
        self._waiting.append((what, future))
        while not future.done():
            with self._at_work:
                if not future.done():
                    self._answer()
        return future.result()

    def close(self) -> None:
        """Answer nothing any more, once what is asked just now is answered (or 10 s have passed)."""
        self._closed = True
        for lock in (self._at_work, self._looking):
            if lock.acquire(timeout=10.0):
                lock.release()

    def _check(self) -> None:
        if self._closed:
            raise EndedEarly("the run has ended")

    def _answer(self) -> None:
        # the questions that came first, as many as fit into a pass, one at least
        batch = [self._waiting.popleft()]
        while self._waiting and sum(len(a) for a, _ in batch) + len(self._waiting[0][0]) <= self._most:
            batch.append(self._waiting.popleft())
        asked = [what for what, _ in batch]
        try:
            self._check()
            if hasattr(self._engine, "likelihoods"):
                answers = self._engine.likelihoods([strip for strips in asked for strip in strips])
            else:
                answers = self._engine.recognise(np.concatenate(asked))
        except BaseException as error:
            for _, future in batch:
                future.set_exception(error)
        else:
            ends = pairwise(np.cumsum([0, *map(len, asked)]).tolist())
            for (_, future), (first, last) in zip(batch, ends, strict=True):
                future.set_result(answers[first:last])
