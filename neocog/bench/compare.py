"""The same network in neocog and in onnxruntime, in one run: first compared, then timed.

Both sides go from digits to answers: what onnxruntime does not do (enlarging the digits, deciding)
is done for it by neocog's own functions. They are timed in turn on as many threads, a few passes
at a time; the first pass after a change of sides finds the caches full of the other side and is
not counted.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.bench.timing import WARM_UP, made_digits
from neocog.errors import NeocogError, UsageError
from neocog.network.decision import Answers, Decision
from neocog.network.engine import Engine
from neocog.network.model import Model
from neocog.network.u0 import u0_from_digits

TOLERANCE = 2e-4  # of a whole float32 pass, relative to the strongest response
PAUSE = 0.02  # seconds before a turn: onnxruntime's threads spin on for a while after theirs
TURN = 4  # passes that count in a turn
COMPARED = 64  # digits that the outputs are compared on

Digits = NDArray[np.uint8]
Side = Callable[[Digits], Answers]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Times of the sides of a comparison.

    Attributes
    ----------
    model : str
        Name and version.
    batch, threads : int
        Digits per pass, and threads of each side.
    passes : dict of ndarray
        Milliseconds of each pass by side.
    difference : float or None
        Largest difference of US4, relative to the strongest response; None with one side.
    """

    model: str
    batch: int
    threads: int
    passes: dict[str, NDArray[np.float64]]
    difference: float | None

    def per_digit(self, side: str, percentile: float = 50.0) -> float:
        """Milliseconds of a digit."""
        return float(np.percentile(self.passes[side], percentile)) / self.batch

    @property
    def ratio(self) -> float | None:
        """Time of onnxruntime by neocog's: above 1, neocog is faster."""
        if "onnxruntime" not in self.passes:
            return None
        return self.per_digit("onnxruntime") / self.per_digit("neocog")

    def to_dict(self) -> dict[str, Any]:
        """As ``neocog bench network --json`` prints it."""
        return {
            "model": self.model,
            "batch": self.batch,
            "threads": self.threads,
            "passes": len(self.passes["neocog"]),
            "ms_per_digit": {side: round(self.per_digit(side), 4) for side in self.passes},
            "ms_per_digit_p95": {side: round(self.per_digit(side, 95), 4) for side in self.passes},
            "ratio": self.ratio and round(self.ratio, 3),
            "difference": self.difference,
        }

    def lines(self) -> Iterator[str]:
        """As ``neocog bench network`` prints it."""
        yield f"{self.model}, batch {self.batch}, {self.threads} threads, digits to answers"
        if self.difference is not None:
            yield f"outputs differ by {self.difference:.1e} of the strongest response"
        yield f"{'':14s} {'median':>10} {'95 %':>10}   ms a digit"
        for side in self.passes:
            yield f"{side:14s} {self.per_digit(side):10.3f} {self.per_digit(side, 95):10.3f}"
        if self.ratio is not None:
            yield f"neocog is {self.ratio:.2f} times as fast as onnxruntime"


def compare(model: Model, *, batch: int, rounds: int, onnx: bool) -> Comparison:
    """Time neocog, and with ``onnx`` the same network in onnxruntime.

    Parameters
    ----------
    model : Model
    batch : int
        Digits per pass.
    rounds : int
        Turns of each side, of `TURN` passes each.
    onnx : bool
        Whether onnxruntime takes part.

    Raises
    ------
    UsageError
        If onnx or onnxruntime is not installed.
    NeocogError
        If the two do not compute the same; then nothing is timed.
    """
    engine = Engine(model)
    sides: dict[str, Side] = {"neocog": lambda digits: engine.recognise(digits, batch=batch)}
    difference = None
    if onnx:
        respond = _onnxruntime(model, engine.threads)
        difference = _difference(engine, respond)
        decide = Decision(model)
        sides["onnxruntime"] = lambda digits: decide(respond(digits).transpose(0, 2, 3, 1))
    digits = made_digits(batch)
    for side in sides.values():
        for _ in range(WARM_UP):
            side(digits)
    passes: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            time.sleep(PAUSE)
            side(digits)
            for _ in range(TURN):
                start = time.perf_counter()
                side(digits)
                passes[name].append(1e3 * (time.perf_counter() - start))
    measured = {name: np.array(times) for name, times in passes.items()}
    return Comparison(model.id, batch, engine.threads, measured, difference)


def _onnxruntime(model: Model, threads: int) -> Callable[[Digits], NDArray[np.float32]]:
    """US4, (B, K4, 5, 5), from digits, by onnxruntime."""
    try:
        import onnxruntime
    except ImportError:
        raise UsageError("onnxruntime is not installed; install neocog[onnx]") from None
    from neocog.network.export import to_onnx

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        to_onnx(model), options, providers=["CPUExecutionProvider"]
    )

    def respond(digits: Digits) -> NDArray[np.float32]:
        us4: NDArray[np.float32] = session.run(None, {"u0": u0_from_digits(digits)[:, None]})[0]
        return us4

    return respond


def _difference(engine: Engine, respond: Callable[[Digits], NDArray[np.float32]]) -> float:
    digits = made_digits(COMPARED)
    ours, theirs = engine.maps(u0_from_digits(digits))["US4"], respond(digits)
    difference = float(np.abs(ours - theirs).max() / max(float(np.abs(ours).max()), 1e-30))
    if not difference <= TOLERANCE:
        raise NeocogError(
            f"onnxruntime computes another US4: it differs by {difference:.1e} of the strongest "
            f"response, where {TOLERANCE:.0e} is allowed; nothing was timed"
        )
    return difference
