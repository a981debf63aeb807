"""Digits of many pictures gathered into full passes of the network."""

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from neocog.batch.steady import SteadyEngine
    from neocog.network.decision import Answers

Reply = Callable[["Answers"], None]


class _Request(NamedTuple):
    digits: NDArray[np.uint8]
    reply: Reply


class Gatherer:
    """A thread that recognises what comes from many sides.

    Whatever has come while the network was busy goes through it together, up to a full pass: no
    request waits for company, and the busier the network, the fuller its passes.

    Parameters
    ----------
    engine : SteadyEngine
        What recognises; its answers do not depend on the company.

    Attributes
    ----------
    busy : float
        Seconds that the network was at work.
    digits, passes : int
        How many were recognised, in how many goes.
    """

    def __init__(self, engine: "SteadyEngine") -> None:
        self.busy, self.digits, self.passes = 0.0, 0, 0
        self._engine = engine
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._held: _Request | None = None
        self._closed = False
        self._error: BaseException | None = None
        self._on_error: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="neocog-network", daemon=True)
        self._thread.start()

    def submit(self, digits: NDArray[np.uint8], reply: Reply) -> None:
        """Ask for digits (N, 28, 28); ``reply`` is called with the answers, on another thread."""
        self._requests.put(_Request(digits, reply))

    def recognise(self, digits: NDArray[np.uint8]) -> "Answers":
        """Recognise digits (N, 28, 28) and wait for the answers; many threads may do so at once."""
        future: Future[Answers] = Future()
        self.submit(digits, future.set_result)
        while True:
            try:
                return future.result(timeout=1.0)
            except TimeoutError:
                self.check()

    def check(self) -> None:
        """Raise what stopped the network, if anything did."""
        if self._error is not None:
            raise self._error

    def when_failing(self, call: Callable[[], None]) -> None:
        """Have ``call`` called, on another thread, if the network fails."""
        self._on_error = call

    def close(self) -> None:
        """End the thread once it is done with the pass it is at; nobody waits for the others."""
        self._closed = True
        self._requests.put(None)
        self._thread.join(timeout=10.0)

    def _run(self) -> None:
        try:
            while (requests := self._gathered()) is not None:
                self._answer(requests)
        except BaseException as error:
            self._error = error
            self._on_error()

    def _gathered(self) -> list[_Request] | None:
        """Wait for a request, and take what else is there as far as it fits into the pass."""
        first, self._held = self._held, None
        first = first or self._requests.get()
        if first is None or self._closed:
            return None
        requests, count = [first], len(first.digits)
        while count < self._engine.batch:
            try:
                more = self._requests.get_nowait()
            except queue.Empty:
                break
            if more is None:
                self._requests.put(None)
                break
            count += len(more.digits)
            if count > self._engine.batch:
                self._held = more
                break
            requests.append(more)
        return requests

    def _answer(self, requests: list[_Request]) -> None:
        from neocog.network.decision import Answers

        start = time.perf_counter()
        digits = requests[0].digits
        if len(requests) > 1:
            digits = np.concatenate([request.digits for request in requests])
        answers = self._engine.recognise(digits)
        self.busy += time.perf_counter() - start
        self.digits += len(digits)
        self.passes += 1
        first = 0
        for request in requests:
            end = first + len(request.digits)
            own = slice(first, end)
            first = end
            request.reply(
                Answers(answers.label[own], answers.score[own], answers.margin[own], answers.p[own])
            )
