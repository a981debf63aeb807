"""The same network in neocog and in others, in one run: first compared, then timed in turn.

On the CPU all sides go from digits to answers, on as many threads; on a GPU from digits to scores that lie
there, each as one CUDA graph, whose scores are held against those of the CPU engine first.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.harness.run import message_of, needed, progress
from neocog.errors import NeocogError, UsageError
from neocog.evaluation.timing import WARM_UP, milliseconds
from neocog.network.engine import Engine
from neocog.network.line_engine import LineEngine
from neocog.network.lines import LineModel
from neocog.network.model import Model
from neocog.network.parallel import cores
from neocog.network.u0 import made_digits, u0_from_digits

#: Largest difference of a score that is allowed to be rounding, relative to the strongest score.
TOLERANCES = {"fp32": 2e-4, "fp16": 2e-2}
GPU_PEERS = ("torch", "compile")
_COMPARED = 64  # digits that the scores are compared on; larger batches repeat them

Digits = NDArray[np.uint8]
Times = dict[str, NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Milliseconds of passes by side; differences of scores from neocog's on the CPU, by the strongest."""

    model: str
    batch: int
    precision: str
    passes: Times
    differences: dict[str, float]
    threads: int = 0
    notes: dict[str, str] = field(default_factory=dict)  # how a peer ran

    def per_digit(self, side: str, percentile: float = 50.0) -> float:
        """Return milliseconds."""
        return float(np.percentile(self.passes[side], percentile)) / self.batch

    def ratios(self) -> dict[str, float]:
        """Return the time of each peer by our quickest: above 1, ours is faster."""
        each = {name: self.per_digit(name) for name in self.passes}
        ours = min(ms for name, ms in each.items() if name.startswith("neocog"))
        return {name: ms / ours for name, ms in each.items() if not name.startswith("neocog")}

    def to_dict(self) -> dict[str, Any]:
        facts = {key: value for key, value in asdict(self).items() if key != "passes"}
        for key, percentile in (("ms_per_digit", 50), ("ms_per_digit_p95", 95)):
            facts[key] = {side: round(self.per_digit(side, percentile), 6) for side in self.passes}
        return facts | {"ratios": {side: round(ratio, 3) for side, ratio in self.ratios().items()}}

    def lines(self) -> Iterator[str]:
        where = f"{self.threads} threads, digits to answers" if self.threads else "one CUDA graph a pass"
        yield f"{self.model}, batch {self.batch}, {self.precision}, {where}"
        yield f"{'':22s}{'us a digit':>12}{'95 %':>12}{'difference':>12}"
        for side in self.passes:
            us, slow = (1e3 * self.per_digit(side, percentile) for percentile in (50, 95))
            yield f"{side:22s}{us:12.3f}{slow:12.3f}{self.differences.get(side, 0.0):12.1e}"
        for side, ratio in self.ratios().items():
            yield f"neocog is {ratio:.2f} times as fast as {side}"
        for side, note in self.notes.items():
            yield f"{side}: {note}"


def difference(name: str, got: NDArray[np.float32], want: NDArray[np.float32], tolerance: float) -> float:
    """Return the largest difference of a score by the strongest; a NeocogError if too large."""
    found = float(np.abs(got - want).max() / max(float(np.abs(want).max()), 1e-30))
    if not found <= tolerance:
        far = f"they differ by {found:.1e} of the strongest, where {tolerance:.0e} is allowed"
        raise NeocogError(f"{name} computes other scores: {far}; nothing was timed")
    return found


def strips_of(digits: Digits) -> NDArray[np.float32]:
    """Return strips of eight digits each, (N, 48, 352)."""
    ink = u0_from_digits(digits)[:, 8:56, 10:54].astype(np.float32)
    return ink.reshape(-1, 8, 48, 44).swapaxes(1, 2).reshape(-1, 48, 352)


# -- on the CPU ------------------------------------------------------------------------------------
def compare(
    model: Model | LineModel, *, batch: int, rounds: int, peers: Sequence[str] = (),
    threads: int | None = None, seconds: float = math.inf,
) -> Comparison:  # fmt: skip
    """Time neocog, and the same network in ``peers``, in turns; NeocogError if one computes something else.

    Of a line model ``batch`` counts strips of eight digits. No round but three begins after ``seconds``.
    """
    sides: dict[str, Callable[[Any], Any]]
    given: Any = made_digits(batch)
    compared: Any = made_digits(_COMPARED)
    if isinstance(model, LineModel):
        lines = LineEngine(model, threads=threads)
        sides = {"neocog": lambda strips: np.stack(lines.likelihoods(strips))}
        given = compared = strips_of(np.concatenate([made_digits(8, seed=i) for i in range(batch)]))
    else:
        engine = Engine(model, threads=threads)
        sides = {"neocog": lambda digits: engine.recognise(digits, batch=batch).score}
    threads, differences = threads or cores(), dict[str, float]()
    for peer in dict.fromkeys(peers):
        if peer not in PEERS:
            raise UsageError(f"no peer {peer!r} on the CPU; choose {', '.join(PEERS)}")
        sides[peer] = PEERS[peer](model, threads)
        got, want = (sides[side](compared) for side in (peer, "neocog"))
        differences[peer] = difference(peer, got[..., : want.shape[-1]], want, TOLERANCES["fp32"])
    for side in sides.values():
        for _ in range(WARM_UP):
            side(given)
    passes: dict[str, list[float]] = {name: [] for name in sides}
    begin = time.perf_counter()
    for turn in range(rounds):
        if turn > 2 and time.perf_counter() > begin + seconds:
            break
        for name in list(sides)[:: -1 if turn % 2 else 1]:
            time.sleep(0.02)  # onnxruntime's threads spin on for a while after their turn
            sides[name](given)  # finds the caches full of the other side
            passes[name] += [milliseconds(partial(sides[name], given)) for _ in range(4)]
    measured = {name: np.array(times) for name, times in passes.items()}
    return Comparison(model.id, batch, "fp32", measured, differences, threads)


def _onnxruntime(model: Model | LineModel, threads: int) -> Callable[[Any], Any]:
    from neocog.network.onnx import lines_to_onnx, model_to_onnx

    onnxruntime, lines = needed("onnxruntime"), isinstance(model, LineModel)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    data: Any = lines_to_onnx if lines else model_to_onnx
    given, asked = ("ink", "log_likelihoods") if lines else ("digits", "scores")
    session = onnxruntime.InferenceSession(data(model), options, providers=["CPUExecutionProvider"])
    return lambda some: session.run([asked], {given: some})[0]


def _torch(model: Model, threads: int) -> Callable[[Digits], Any]:
    torch = needed("torch")
    from experiments.network.torch_network import Network

    torch.set_num_threads(threads)
    network: Any = Network(model).freeze()
    return lambda digits: network(torch.from_numpy(digits)).numpy()


PEERS: dict[str, Callable[[Any, int], Callable[[Any], Any]]] = {"onnxruntime": _onnxruntime, "torch": _torch}


# -- on a GPU --------------------------------------------------------------------------------------
def compare_on_gpu(
    model: Model, *, batch: int, precision: str | None = None, plans: Sequence[str] = ("default",),
    peers: Sequence[str] = GPU_PEERS, rounds: int = 30, number: int = 0, digits: Digits | None = None,
) -> Comparison:  # fmt: skip
    """Time our passes by ``plans`` and the peers'; NeocogError if a side computes something else.

    ``digits``: what is read, made ones if not given; how much is silent, and so the time, depends on it.
    """
    from experiments.network.ours import OurSide
    from neocog.cuda.devices import number_of
    from neocog.cuda.kernel import precision_on
    from neocog.cuda.launcher import gpu

    if unknown := set(peers) - set(GPU_PEERS):
        raise UsageError(f"peer {sorted(unknown)[0]!r} does not run on a GPU; choose {', '.join(GPU_PEERS)}")
    if peers:
        torch = needed("torch")
        if number >= (torch.cuda.device_count() if torch.cuda.is_available() else 0):
            instead = f"install a torch for the CUDA of the driver, or leave out --peers {','.join(peers)}"
            raise UsageError(f"torch {torch.__version__} does not find GPU {number}; {instead}")
    if precision not in TOLERANCES:
        precision = precision_on(gpu(number_of(f"cuda:{number}")).arch, precision)
    few = min(batch, _COMPARED)
    seen = [made_digits(few, seed=i) if digits is None else digits[i * few :][:few] for i in range(4)]
    sets = [some[np.arange(batch) % few] for some in seen]
    ours = partial(OurSide, model, batch, precision=precision, number=number)
    makers: dict[str, Callable[[], Any]] = {f"neocog {plan}": partial(ours, plan=plan) for plan in plans}
    if peers:
        from experiments.network.torch_network import quickest

        makers |= {p: partial(quickest, model, sets[0], precision, number, p == "compile") for p in peers}
    sides: dict[str, Any] = {}
    notes: dict[str, str] = {}
    for name, make in makers.items():
        progress(f"{name} {precision} batch {batch}")
        try:
            sides[name] = make()
        except Exception as error:  # a side that fails must not cost the run of the others
            if name.startswith("neocog") and len(plans) == 1:
                raise
            notes[name] = f"did not run: {message_of(error)}"
    notes |= {name: side.words for name, side in sides.items() if hasattr(side, "words")}
    differences = differences_from_cpu(model, sides, sets[0], TOLERANCES[precision])
    return Comparison(model.id, batch, precision, race(sides, sets, rounds=rounds), differences, notes=notes)


def race(sides: Mapping[str, Any], sets: Sequence[Digits], *, rounds: int) -> Times:
    """Return milliseconds of passes by side; a clock that slows down slows all."""
    repeats = {}
    for name, side in sides.items():
        side.load(sets[0])
        # a turn of about 3 ms; more than 200 passes would not fit a stream's queue of launches
        repeats[name] = int(np.clip(3.0 / max(side.elapsed(3), 1e-3), 3, 200))
    passes: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds):
        for name, side in sides.items():
            side.load(sets[turn % len(sets)])
            passes[name].append(side.elapsed(repeats[name]))
    return {name: np.array(ms) for name, ms in passes.items()}


def differences_from_cpu(
    model: Model, sides: Mapping[str, Any], digits: Digits, tolerance: float
) -> dict[str, float]:
    """Return how far each side's scores are from the CPU engine's, by the strongest."""
    few = digits[:_COMPARED]
    want = Engine(model).recognise(few).score[np.arange(len(digits)) % len(few)]
    found: dict[str, float] = {}
    for name, side in sides.items():
        side.load(digits)
        found[name] = difference(name, side.scores(), want, tolerance)
    return found
