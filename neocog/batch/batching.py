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
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from neocog.network.decision import Answers
    from neocog.network.engine import AnyEngine
    from neocog.network.model import Model

PAGES_PASS = 256
"""Digits of a pass on CUDA while pages are read: a page has tens."""

_LEAST_ON_CPU = 32


class FixedBatches:
    """An engine whose passes are all of one size.

    ``batch``: most digits of a pass, as many as the device and the pictures like by default;
    ``isolated``: whether these are isolated digits, which fill passes of any size.
    """

    def __init__(
        self, engine: "AnyEngine", *, batch: int | None = None, isolated: bool = True
    ) -> None:
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


class _Question(NamedTuple):
    what: Any
    size: int
    reply: Callable[[Any], None]


class Batcher:
    """A thread that answers questions of many askers in batches.

    What has come while it was busy is answered together, up to a batch of size ``most``: no
    question waits for company, and the busier it is, the fuller its batches. ``answer`` takes a
    list of questions and returns as many answers.
    """

    def __init__(self, answer: Callable[[list[Any]], Sequence[Any]], *, most: int = 1) -> None:
        self.busy = 0.0  # seconds that it was at work
        self.answered = 0  # size of all questions together
        self._answer, self._most = answer, most
        self._questions: queue.SimpleQueue[_Question | None] = queue.SimpleQueue()
        self._held: _Question | None = None
        self._closed = False
        self._error: BaseException | None = None
        self.on_error: Callable[[], None] = lambda: None
        """Called, on this thread, if answering fails."""
        self._thread = threading.Thread(target=self._run, name="neocog-batcher", daemon=True)
        self._thread.start()

    def submit(self, what: Any, reply: Callable[[Any], None], *, size: int = 1) -> None:
        """Ask; ``reply`` is called with the answer, on another thread."""
        self._questions.put(_Question(what, size, reply))

    def check(self) -> None:
        """Raise what stopped it, if anything did."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """End the thread once it is done with its batch; nobody waits for the others."""
        self._closed = True
        self._questions.put(None)
        self._thread.join(timeout=10.0)

    def _run(self) -> None:
        try:
            while questions := self._gathered():
                start = time.perf_counter()
                answers = self._answer([question.what for question in questions])
                self.busy += time.perf_counter() - start
                self.answered += sum(question.size for question in questions)
                for question, answer in zip(questions, answers, strict=True):
                    question.reply(answer)
        except BaseException as error:
            self._error = error
            self.on_error()

    def _gathered(self) -> list[_Question]:
        """Wait for a question, and take what else is there as far as it fits into the batch."""
        first, self._held = self._held, None
        first = first or self._questions.get()
        if first is None or self._closed:
            return []
        questions, size = [first], first.size
        while size < self._most:
            try:
                more = self._questions.get_nowait()
            except queue.Empty:
                break
            if more is None:
                self._questions.put(None)
                break
            size += more.size
            if size > self._most:
                self._held = more
                break
            questions.append(more)
        return questions


class Networks:
    """The digit network, and a finder on a GPU, for processes that have none of their own."""

    def __init__(self, engine: FixedBatches, finder: Any = None) -> None:
        def recognise(digits: list[NDArray[np.uint8]]) -> list["Answers"]:
            answers = engine.recognise(digits[0] if len(digits) == 1 else np.concatenate(digits))
            ends = np.cumsum([0, *map(len, digits)]).tolist()
            return [answers[ends[n] : ends[n + 1]] for n in range(len(digits))]

        def look(pages: list[Any]) -> list[Any]:
            from neocog.vision.finder import find

            return [find(grey, finder, settings) for grey, settings in pages]

        self.digits = Batcher(recognise, most=engine.batch)
        self.pages = None if finder is None else Batcher(look)

    def submit(self, question: tuple[Any, ...], reply: Callable[[Any], None]) -> None:
        """Ask for digits, ``(array (N, 28, 28),)``, or about a page, ``(grey, settings)``."""
        if len(question) == 1:
            self.digits.submit(question[0], reply, size=len(question[0]))
        elif self.pages is not None:
            self.pages.submit(question, reply)

    def ask(self, *question: Any) -> Any:
        """Ask as `submit` and wait for the answer; many threads may do so at once."""
        future: Future[Any] = Future()
        self.submit(question, future.set_result)
        while True:
            try:
                return future.result(timeout=1.0)
            except TimeoutError:
                self.check()

    def when_failing(self, call: Callable[[], None]) -> None:
        """Have ``call`` called, on another thread, if a network fails."""
        for batcher in self._batchers():
            batcher.on_error = call

    def check(self) -> None:
        """Raise what stopped a network, if anything did."""
        for batcher in self._batchers():
            batcher.check()

    def close(self) -> None:
        """End the threads; nobody waits for what is not begun."""
        for batcher in self._batchers():
            batcher.close()

    def _batchers(self) -> list[Batcher]:
        return [self.digits] if self.pages is None else [self.digits, self.pages]


class RemoteEngine:
    """Stands in for the engine in a process that has none; ``ask`` is `Networks.ask`."""

    device = "cpu"

    def __init__(self, model: "Model", ask: Callable[..., Any], *, batch: int) -> None:
        self.model, self.batch, self._ask = model, batch, ask

    def recognise(self, digits: NDArray[np.uint8], *, batch: int | None = None) -> "Answers":
        """Recognise isolated digits (N, 28, 28)."""
        answers: Answers = self._ask(digits)
        return answers


class RemoteFinder:
    """Stands in for a finder on a GPU in a process that opens none."""

    def __init__(self, model: Any, ask: Callable[..., Any]) -> None:
        self.model, self.find = model, ask
