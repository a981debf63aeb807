"""The whole pass on a GPU beside PyTorch: first compared, then timed in one run.

All sides go from uint8 digits on the GPU to scores on the GPU, each as one CUDA graph. The scores
of every side, of the very pass that is timed, are held against those of the CPU engine first.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from experiments.harness.run import progress, told
from experiments.network.compare import difference, ratios
from neocog.errors import UsageError
from neocog.evaluation.timing import milliseconds
from neocog.network.engine import Engine
from neocog.network.model import Model
from neocog.network.u0 import made_digits

Digits = NDArray[np.uint8]

#: Largest difference of a score that is allowed to be rounding, relative to the strongest score.
TOLERANCES = {"fp32": 2e-4, "fp16": 2e-2}
PEERS = ("torch", "compile")
_TURN_MS = 3.0  # what one turn of a side takes, about
_MOST_REPEATS = 200  # passes of a turn: more would not fit a stream's queue of launches
_INPUT_SETS = 4
_COMPARED = 64  # digits of which the CPU engine says the scores; larger batches repeat them


class Side(Protocol):
    """One way to compute the answers of a batch on a GPU, ready to run again and again."""

    def load(self, digits: Digits) -> None:
        """Put a batch of digits (B, 28, 28) where the passes read it."""

    def elapsed(self, repeats: int) -> float:
        """Return milliseconds of one pass by the GPU's own clock, over ``repeats`` in a row."""

    def scores(self) -> NDArray[np.float32]:
        """Return the scores (B, 10) of the digits last loaded."""

    def trip(self, digits: Digits) -> NDArray[np.float32]:
        """Return scores of digits that lie on the host: transfers, one pass, waiting."""


@dataclass(frozen=True, slots=True)
class GpuComparison:
    """Milliseconds of passes, and of trips from host to host, by side, one for each round."""

    model: str
    precision: str
    batch: int
    passes: dict[str, NDArray[np.float64]]
    differences: dict[str, float]  # of scores from the CPU engine's, by the strongest
    trips: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)  # how a peer ran

    def us(self, side: str) -> float:
        return 1e3 * float(np.median(self.passes[side]))

    def ratios(self) -> dict[str, float]:
        return ratios(self.passes)

    def to_dict(self) -> dict[str, Any]:
        us = {side: self.us(side) for side in self.passes}
        slow = {side: 1e3 * float(np.percentile(ms, 95)) for side, ms in self.passes.items()}
        trips = {side: 1e3 * float(np.median(ms)) for side, ms in self.trips.items()}
        return {
            "model": self.model, "precision": self.precision, "batch": self.batch,
            "us": {side: round(value, 3) for side, value in us.items()},
            "us_p95": {side: round(value, 3) for side, value in slow.items()},
            "us_per_digit": {side: round(value / self.batch, 4) for side, value in us.items()},
            "ratio": {side: round(ratio, 3) for side, ratio in self.ratios().items()},
            "trip_us": {side: round(value, 2) for side, value in trips.items()},
            "difference": self.differences, "notes": self.notes,
        }  # fmt: skip

    def lines(self) -> Iterator[str]:
        yield f"{self.model}, batch {self.batch}, {self.precision}, one CUDA graph a pass"
        yield f"{'':22s}{'us a pass':>12}{'us a digit':>12}{'difference':>12}"
        for side in self.passes:
            us = self.us(side)
            yield f"{side:22s}{us:12.2f}{us / self.batch:12.3f}{self.differences[side]:12.1e}"
        for side, ms in self.trips.items():
            yield f"{side:22s}{1e3 * float(np.median(ms)):12.1f} us from host to host"
        for side, ratio in self.ratios().items():
            yield f"neocog is {ratio:.2f} times as fast as {side}"
        for side, note in self.notes.items():
            yield f"{side}: {note}"


def compare_on_gpu(
    model: Model,
    *,
    batch: int,
    precision: str | None = None,
    plans: Sequence[str] = ("default",),
    peers: Sequence[str] = ("torch", "compile"),
    rounds: int = 30,
    host: bool = False,
    number: int = 0,
    digits: Digits | None = None,
) -> GpuComparison:
    """Time our passes by some ``plans`` and the peers' on this machine's GPU.

    ``host``: from host to host too. ``digits``: what is read, made ones if not given; how much is
    silent, and so the time, depends on it. A NeocogError says if a side computes something else.
    """
    from experiments.network.ours import OurSide

    _check_peers(peers, number)
    precision = _precision(precision, number)
    few = min(batch, _COMPARED)
    seen = [made_digits(few, seed=i) if digits is None else digits[i * few : (i + 1) * few]
            for i in range(_INPUT_SETS)]  # fmt: skip
    sets = [some[np.arange(batch) % few] for some in seen]
    sides: dict[str, Side] = {}
    notes: dict[str, str] = {}
    ours = partial(OurSide, model, batch, precision=precision, number=number)
    makers: dict[str, Callable[[], Side]] = {f"neocog {plan}": partial(ours, plan=plan) for plan in plans}
    if peers:
        makers |= _peers(notes, model, sets[0], precision, peers, number)
    for name, make in makers.items():
        progress(f"{name} {precision} batch {batch}")
        try:
            sides[name] = make()
        except Exception as error:  # a side that fails must not cost the run of the others
            if name.startswith("neocog") and len(plans) == 1:
                raise
            notes[name] = f"did not run: {told(error)}"
    differences = differences_from_cpu(model, sides, sets[0], TOLERANCES[precision])
    passes = race(sides, sets, rounds=rounds)
    times = trips(sides, sets, rounds=rounds) if host else {}
    return GpuComparison(model.id, precision, batch, passes, differences, times, notes)


def race(sides: Mapping[str, Side], sets: Sequence[Digits], *, rounds: int) -> dict[str, NDArray[np.float64]]:
    """Return milliseconds of a pass by side, one a round; a clock that slows down slows all."""
    repeats = {}
    for name, side in sides.items():
        side.load(sets[0])
        once = side.elapsed(3)
        repeats[name] = int(np.clip(_TURN_MS / max(once, 1e-3), 3, _MOST_REPEATS))
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds):
        for name, side in sides.items():
            side.load(sets[turn % len(sets)])
            times[name].append(side.elapsed(repeats[name]))
    return {name: np.array(ms) for name, ms in times.items()}


def trips(
    sides: Mapping[str, Side], sets: Sequence[Digits], *, rounds: int
) -> dict[str, NDArray[np.float64]]:
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds):
        for name, side in sides.items():
            # the first after a change of sides finds other caches
            trip = partial(side.trip, sets[turn % len(sets)])
            times[name] += [milliseconds(trip) for _ in range(4)][1:]
    return {name: np.array(ms) for name, ms in times.items()}


def differences_from_cpu(
    model: Model, sides: dict[str, Side], digits: Digits, tolerance: float
) -> dict[str, float]:
    """Return how far each side's scores are from the CPU engine's, by the strongest."""
    few = digits[:_COMPARED]
    want = Engine(model).recognise(few).score
    whole = want[np.arange(len(digits)) % len(few)]
    found: dict[str, float] = {}
    for name, side in sides.items():
        side.load(digits)
        found[name] = difference(name, side.scores(), whole, tolerance)
    return found


def _precision(wanted: str | None, number: int) -> str:
    if wanted in TOLERANCES:
        return wanted
    from neocog.cuda.devices import number_of
    from neocog.cuda.engine import precision_on
    from neocog.cuda.launcher import gpu

    return precision_on(gpu(number_of(f"cuda:{number}")).arch, wanted)


def _check_peers(peers: Sequence[str], number: int) -> None:
    unknown = set(peers) - set(PEERS)
    if unknown:
        raise UsageError(f"peer {sorted(unknown)[0]!r} does not run on a GPU; choose {', '.join(PEERS)}")
    if not peers:
        return
    try:
        import torch
    except ImportError:
        raise UsageError("torch is not installed; install neocog[bench]") from None
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if number >= found:
        raise UsageError(
            f"torch {torch.__version__} does not find GPU {number}; install a torch for the CUDA "
            f"of the driver, or leave out --peers {','.join(peers)}"
        )


def _peers(
    notes: dict[str, str], model: Model, digits: Digits, precision: str, peers: Sequence[str], number: int
) -> dict[str, Callable[[], Side]]:
    """Return what makes each peer; ``notes`` take how it runs."""
    import torch

    from experiments.network.peers import choices, quickest

    torch.cuda.set_device(number)
    found = choices(model, digits, precision)

    def side(peer: str) -> Side:
        best, choice = quickest(model, digits, precision, found, compiled=peer == "compile")
        notes[peer] = choice.words()
        return best

    return {peer: partial(side, peer) for peer in peers}
