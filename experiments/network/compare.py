"""The same network in neocog and in others on the CPU, in one run: first compared, then timed.

All sides go from digits to answers. They are timed in turn on as many threads, a few passes
at a time; the first pass after a change of sides finds the caches full of the other side and is
not counted.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.errors import NeocogError, UsageError
from neocog.evaluation.timing import WARM_UP, milliseconds
from neocog.network.decision import Answers, answers
from neocog.network.engine import Engine
from neocog.network.model import Model
from neocog.network.u0 import made_digits

TOLERANCE = 2e-4  # of a whole float32 pass, relative to the strongest response
PAUSE = 0.02  # seconds before a turn: onnxruntime's threads spin on for a while after theirs
TURN = 4  # passes that count in a turn
COMPARED = 64  # digits that the outputs are compared on

Digits = NDArray[np.uint8]
Side = Callable[[Digits], Answers]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Milliseconds of each pass by side; ``difference``: of scores, by the strongest."""

    model: str
    batch: int
    threads: int
    passes: dict[str, NDArray[np.float64]]
    difference: float | None

    def per_digit(self, side: str, percentile: float = 50.0) -> float:
        return float(np.percentile(self.passes[side], percentile)) / self.batch

    def ratios(self) -> dict[str, float]:
        return ratios(self.passes)

    def to_dict(self) -> dict[str, Any]:
        ratios = {side: round(ratio, 3) for side, ratio in self.ratios().items()}
        return {
            "model": self.model, "batch": self.batch, "threads": self.threads,
            "passes": len(self.passes["neocog"]),
            "ms_per_digit": {side: round(self.per_digit(side), 4) for side in self.passes},
            "ms_per_digit_p95": {side: round(self.per_digit(side, 95), 4) for side in self.passes},
            "ratio": ratios.get("onnxruntime"), "ratios": ratios, "difference": self.difference,
        }  # fmt: skip

    def lines(self) -> Iterator[str]:
        yield f"{self.model}, batch {self.batch}, {self.threads} threads, digits to answers"
        if self.difference is not None:
            yield f"scores differ by {self.difference:.1e} of the strongest"
        yield f"{'':14s} {'median':>10} {'95 %':>10}   ms a digit"
        for side in self.passes:
            yield f"{side:14s} {self.per_digit(side):10.3f} {self.per_digit(side, 95):10.3f}"
        for side, ratio in self.ratios().items():
            yield f"neocog is {ratio:.2f} times as fast as {side}"


def ratios(passes: Mapping[str, NDArray[np.float64]]) -> dict[str, float]:
    """Return the time of each peer by our quickest: above 1, ours is faster."""
    ms = {name: float(np.median(times)) for name, times in passes.items()}
    ours = [one for name, one in ms.items() if name.startswith("neocog")]
    return {n: one / min(ours) for n, one in ms.items() if ours and not n.startswith("neocog")}


def compare(model: Model, *, batch: int, rounds: int, peers: Sequence[str] = ()) -> Comparison:
    """Time neocog, and the same network in ``peers``, in turns of `TURN` passes.

    A NeocogError says if two do not compute the same; then nothing is timed.
    """
    engine = Engine(model)
    sides: dict[str, Side] = {"neocog": lambda digits: engine.recognise(digits, batch=batch)}
    compared = made_digits(COMPARED)
    differences: list[float] = []
    for peer in dict.fromkeys(peers):
        if peer not in PEERS:
            raise UsageError(f"no peer {peer!r} on the CPU; choose {', '.join(PEERS)}")
        sides[peer] = PEERS[peer](model, engine.threads)
        got, want = (side(compared).score for side in (sides[peer], sides["neocog"]))
        differences.append(difference(peer, got, want, TOLERANCE))
    digits = made_digits(batch)
    for side in sides.values():
        for _ in range(WARM_UP):
            side(digits)
    passes: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            time.sleep(PAUSE)
            side(digits)
            passes[name] += [milliseconds(partial(side, digits)) for _ in range(TURN)]
    measured = {name: np.array(times) for name, times in passes.items()}
    return Comparison(model.id, batch, engine.threads, measured, max(differences, default=None))


def session(onnx: bytes, threads: int) -> Any:
    """Return an onnxruntime session on the CPU."""
    try:
        import onnxruntime
    except ImportError:
        raise UsageError("onnxruntime is not installed; install neocog[onnx]") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(onnx, options, providers=["CPUExecutionProvider"])


def _onnxruntime(model: Model, threads: int) -> Side:
    from neocog.network.onnx import model_to_onnx

    run = session(model_to_onnx(model), threads).run

    def answer(digits: Digits) -> Answers:
        score = run(["scores"], {"digits": digits})[0]
        return answers(score, temperature=model.temperature)

    return answer


def _torch(model: Model, threads: int) -> Side:
    try:
        import torch
    except ImportError:
        raise UsageError("torch is not installed; install neocog[bench]") from None
    from experiments.network.torch_network import Network

    torch.set_num_threads(threads)
    network = Network(model).freeze()

    def answer(digits: Digits) -> Answers:
        with torch.no_grad():
            score = network(torch.from_numpy(digits)).numpy()
        return answers(score, temperature=model.temperature)

    return answer


PEERS = {"onnxruntime": _onnxruntime, "torch": _torch}


def difference(name: str, got: NDArray[np.float32], want: NDArray[np.float32], tolerance: float) -> float:
    """Return the largest difference of a score by the strongest; a NeocogError if too large."""
    found = float(np.abs(got - want).max() / max(float(want.max()), 1e-30))
    if not found <= tolerance:
        raise NeocogError(
            f"{name} computes other scores: they differ by {found:.1e} of the strongest, "
            f"where {tolerance:.0e} is allowed; nothing was timed"
        )
    return found
