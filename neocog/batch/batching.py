"""Passes of the network: their size, and who shares them.

Products of another shape may be summed in another order. Where digits of many pictures share a
pass, and which ones do is a matter of chance, every pass is filled up with empty digits to a fixed
size: a digit's answer is then the same, to the last bit, whatever stands beside it. On the CPU the
size is a whole number of digits for each thread, on CUDA the whole pass.
"""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
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

_Question = tuple[Any, int, Future[Any]]  # what, its size, and where the answer goes


class FixedBatches:
    """An engine whose passes are all of one size.

    ``batch``: most digits of a pass, as many as the device and the pictures like by default;
    ``isolated``: whether these are isolated digits, which fill passes of any size.
    """

    def __init__(self, engine: "AnyEngine", *, batch: int | None = None, isolated: bool = True) -> None:
        from neocog.network.engine import PART

        self._engine = engine
        if engine.device == "cpu":
            wanted = batch or max(engine.batch, _LEAST_ON_CPU)
            self.step = PART * int(getattr(engine, "threads", 1))
            self.batch = max(self.step, wanted // self.step * self.step)
        else:
            most = engine.batch if isolated else min(PAGES_PASS, engine.batch)
            self.step = self.batch = batch or most

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


class Batcher:
    """A thread that answers questions of many askers in batches.

    What has come while it was busy is answered together, up to a batch of size ``most``: no
    question waits for company, and the busier it is, the fuller its batches. ``answer`` takes a
    list of questions and returns as many answers.
    """

    def __init__(self, answer: Callable[[list[Any]], Sequence[Any]], *, most: int = 1) -> None:
        self.busy = 0.0  # seconds that it was at work
        self._answer, self._most = answer, most
        self._asked: queue.SimpleQueue[_Question | None] = queue.SimpleQueue()
        self._held: _Question | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="neocog-batcher", daemon=True)
        self._thread.start()

    def ask(self, what: Any, *, size: int = 1) -> Any:
        """Wait for the answer, or for what went wrong; many threads may ask at once.

        EndedEarly if nothing is answered any more.
        """
        future: Future[Any] = Future()
        self._asked.put((what, size, future))
        if self._closed:
            self._refuse()
            self._asked.put(None)  # the thread may still wait for it
        return future.result()

    def close(self) -> None:
        """End the thread once it is done with its batch; nobody waits for the others."""
        self._closed = True
        self._asked.put(None)
        self._thread.join(timeout=10.0)

    def _run(self) -> None:
        while questions := self._gathered():
            start = time.perf_counter()
            try:
                answers = self._answer([what for what, _, _ in questions])
            except BaseException as error:
                for *_, future in questions:
                    future.set_exception(error)
                continue
            self.busy += time.perf_counter() - start
            for (*_, future), answer in zip(questions, answers, strict=True):
                future.set_result(answer)
        self._asked.put(self._held)
        self._refuse()

    def _refuse(self) -> None:
        """Tell all who wait that there is no answer."""
        with suppress(queue.Empty):
            while True:
                if (question := self._asked.get_nowait()) is not None:
                    question[2].set_exception(EndedEarly("the run has ended"))

    def _gathered(self) -> list[_Question]:
        """Wait for a question, and take what else is there as far as it fits into the batch."""
        if self._closed:
            return []
        first, self._held = self._held or self._asked.get(), None
        if first is None or self._closed:
            self._held = first
            return []
        questions, size = [first], first[1]
        while size < self._most and not self._asked.empty():
            more = self._asked.get()
            if more is None or size + more[1] > self._most:
                self._held = more
                break
            questions.append(more)
            size += more[1]
        return questions


class Networks:
    """The digit network, and a finder on a GPU, for processes that have none of their own."""

    def __init__(self, engine: FixedBatches, finder: Any = None) -> None:
        def recognise(digits: list[NDArray[np.uint8]]) -> list["Answers"]:
            answers = engine.recognise(np.concatenate(digits))
            ends = np.cumsum([0, *map(len, digits)]).tolist()
            return [answers[first:last] for first, last in pairwise(ends)]

        def look(pages: list[Any]) -> list[Any]:
            from neocog.vision.finder import find

            return [find(grey, finder, settings) for grey, settings in pages]

        self.digits = Batcher(recognise, most=engine.batch)
        self._pages = None if finder is None else Batcher(look)

    def ask(self, *question: Any) -> Any:
        """Ask for digits (N, 28, 28), or about a grey page with its settings."""
        if len(question) == 1:
            return self.digits.ask(question[0], size=len(question[0]))
        assert self._pages is not None
        return self._pages.ask(question)

    def close(self) -> None:
        """End the threads; nobody waits for what is not begun."""
        self.digits.close()
        if self._pages is not None:
            self._pages.close()
