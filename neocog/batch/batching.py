"""Passes of the network: who shares them, and their size.

A digit's answer is the same, to the last bit, whatever stands beside it in a pass.
"""

import threading
from collections import deque
from concurrent.futures import Future
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.errors import EndedEarly
from neocog.network.decision import Answers
from neocog.vision.finder import find

_PAGES_PASS = 256  # digits of a pass on CUDA while pages are read: a page has tens
_STRIPS = 32  # of a pass


class FullPasses:
    """A CUDA engine of digits whose passes are filled up to ``batch``: others may take other steps."""

    def __init__(self, engine: Any, batch: int) -> None:
        self._engine, self.model, self.device, self.batch = engine, engine.model, engine.device, batch

    def recognise(self, digits: NDArray[np.uint8], *, batch: int | None = None) -> Answers:
        """Recognise isolated digits (N, 28, 28); ``batch`` changes nothing."""
        count = len(digits)
        rest = np.zeros((-count % self.batch, *digits.shape[1:]), digits.dtype)
        found: Answers = self._engine.recognise(np.concatenate([digits, rest]), batch=self.batch)
        return found[:count]


def in_passes(engine: Any, *, batch: int | None = None, isolated: bool = True) -> Any:
    """An engine whose answers depend on no pass; ``isolated`` digits fill any, those of pages do not."""
    if engine.device == "cpu" or hasattr(engine, "likelihoods"):
        return engine
    return FullPasses(engine, batch or (engine.batch if isolated else min(_PAGES_PASS, engine.batch)))


class Networks:
    """The network of digits or lines, and a finder on a GPU, for processes that have none of their own.

    Questions of many threads share passes: one that waits answers for all, and none waits for company.
    """

    def __init__(self, engine: Any, finder: Any = None, *, batch: int | None = None) -> None:
        self._engine, self._finder, self._closed = engine, finder, False
        self._most: int = getattr(engine, "batch", _STRIPS) if batch is None else batch
        self._waiting: deque[tuple[Any, Future[Any]]] = deque()
        self._at_work, self._looking = threading.Lock(), threading.Lock()

    def ask(self, what: Any, *settings: Any) -> Any:
        """Ask for digits (N, 28, 28) or strips, or about a grey page with settings; EndedEarly if closed."""
        if settings:
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
                answers = self._engine.recognise(np.concatenate(asked), batch=self._most)
        except BaseException as error:
            for _, future in batch:
                future.set_exception(error)
        else:
            ends = pairwise(np.cumsum([0, *map(len, asked)]).tolist())
            for (_, future), (first, last) in zip(batch, ends, strict=True):
                future.set_result(answers[first:last])
