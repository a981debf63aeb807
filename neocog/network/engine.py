"""The CPU engine: digits in, answers out; every layer's maps on request; time per stage.

A batch is split over the cores; each part runs through all layers on its own thread with single-threaded
BLAS, so that everything, not only the matrix products, runs on all cores and the maps of a few digits stay in
the core's cache. Of a single part the largest products are split, from three cores on.
"""

import time
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neocog.errors import UsageError
from neocog.network.decision import Answers, Decision
from neocog.network.layers import CLayer, ContrastLayer, full, s_layer, whole
from neocog.network.model import Model
from neocog.network.parallel import SEQUENTIAL, ParallelMap, one_blas_thread
from neocog.network.spec import INPUT_SIZE
from neocog.network.u0 import check_digits, check_u0, u0_from_digits

Array = Any
BATCH = 32  #: digits of a pass on the CPU
PART = 4  #: digits that one thread takes through the layers at a time


class Layers:
    """UG .. US4 of one model, in order, on NumPy or CuPy arrays (``xp``)."""

    def __init__(self, model: Model, xp: Any = np) -> None:
        spec, size = model.spec, model.spec.size("UG")
        self.stages: list[tuple[str, Any]] = [("UG", ContrastLayer(spec.contrast, xp))]
        for i, (s, weights) in enumerate(zip(spec.s, model.s, strict=True)):
            cells = s_layer(s, weights, size, xp)
            self.stages.append((f"US{i + 1}", cells))
            if i < 3:
                c = CLayer(spec.c[i], model.blurs[i], cells.out, model.psi, xp, whole=cells.whole)
                self.stages.append((f"UC{i + 1}", c))
                size = c.out

    def __call__(self, u0: Array, parallel: ParallelMap = SEQUENTIAL) -> Array:
        """Return the responses of US4, (B, 5, 5, K4), to pictures (B, 65, 65); large products are split."""
        u = u0
        for _, layer in self.stages:
            u = layer(u, parallel)
        return full(u)


class Engine:
    """A model, ready to recognise on the CPU, on all cores or ``threads``; UsageError for less than 1."""

    device, precision, batch = "cpu", "fp32", BATCH

    def __init__(self, model: Model, *, threads: int | None = None) -> None:
        self.model = model
        self._parallel = ParallelMap(threads)
        self.threads = self._parallel.threads
        self._layers, self._decision = Layers(model), Decision(model)

    @property
    def where(self) -> str:
        return f"cpu, {self.threads} threads"

    def recognise(self, digits: NDArray[np.uint8], *, batch: int | None = None) -> Answers:
        """Recognise isolated digits (N, 28, 28) uint8, ink 255 on paper 0, ``batch`` (32) of them a pass.

        InputError if the array has another shape or type, UsageError if ``batch`` is below 1.
        """
        batch = self.batch if batch is None else batch
        if batch < 1:
            raise UsageError(f"got a batch of {batch} digits, expected 1 or more")
        check_digits(digits)
        with one_blas_thread():
            passes = [self._pass(digits[start : start + batch])[0] for start in range(0, len(digits), batch)]
        return Answers.join(passes)

    def maps(self, u0: ArrayLike) -> dict[str, NDArray[np.float32]]:
        """Every layer's response to pictures (B, 65, 65), ink 1 on paper 0, by name: float32 (B, K, H, W)."""
        u: Array = pictures(u0)
        if not len(u):  # the layers cut maps to what is heard in some picture
            none = self.maps(np.zeros((1, INPUT_SIZE, INPUT_SIZE)))
            return {name: maps[:0] for name, maps in none.items()}
        out: dict[str, NDArray[np.float32]] = {"U0": u[:, None]}
        with one_blas_thread():
            for name, layer in self._layers.stages:
                u = layer(u, self._parallel)
                out[name] = full(u).transpose(0, 3, 1, 2)
        out["UC4"] = self._decision.scores(full(u))[:, :, None, None]
        return out

    def scores_from(self, layer: str, u: NDArray[np.float32]) -> NDArray[np.float32]:
        """Score of each label, (B, 10), where a layer, ``"UG"`` .. ``"US4"``, responds u (B, H, W, K)."""
        names = [name for name, _ in self._layers.stages]

        def of(part: Array) -> Array:
            seen = whole(part)
            for _, respond in self._layers.stages[names.index(layer) + 1 :]:
                seen = respond(seen)
            return self._decision.scores(full(seen))

        with one_blas_thread():
            return np.concatenate(self._parallel(of, np.array_split(u, -(-len(u) // PART))))

    def stage_times(self, digits: NDArray[np.uint8], *, repeats: int = 20) -> dict[str, NDArray[np.float64]]:
        """Return milliseconds of each stage for a batch, shared out among threads, and their ``total``."""
        with one_blas_thread():
            times = [self._pass(digits)[1] for _ in range(repeats + 2)][2:]
        names = ["U0", *(name for name, _ in self._layers.stages), "UC4", "total"]
        return dict(zip(names, 1e3 * np.array(times).T, strict=True))

    def _pass(self, digits: NDArray[np.uint8]) -> tuple[Answers, list[float]]:
        """Answer a batch, in parts of at most PART digits, as many for each thread; seconds of each stage."""
        count = -(-len(digits) // PART)
        count = min(len(digits), -(-count // self.threads) * self.threads)
        # splits the products of the only part; two threads wake and wait as long as one works on its half
        within = self._parallel if count == 1 and self.threads > 2 else SEQUENTIAL

        def through(part: NDArray[np.uint8]) -> tuple[Array, NDArray[np.float64]]:
            times = [time.perf_counter()]
            u: Any = u0_from_digits(part)
            times.append(time.perf_counter())
            for _, layer in self._layers.stages:
                u = layer(u, within)
                times.append(time.perf_counter())
            return full(u), np.diff(times)

        begin = time.perf_counter()
        results = self._parallel(through, np.array_split(digits, count))
        responded = time.perf_counter()
        found = self._decision(np.concatenate([us4 for us4, _ in results]))
        end = time.perf_counter()
        seconds = np.sum([spent for _, spent in results], axis=0) / min(self.threads, count)
        return found, [*seconds.tolist(), end - responded, end - begin]


#: Engines on CUDA have the same attributes and methods.
AnyEngine = Engine


def pictures(u0: ArrayLike) -> NDArray[np.float32]:
    """Return pictures for the input layer as float32, (B, 65, 65); InputError if they have another shape."""
    u = np.asarray(u0, dtype=np.float32)
    check_u0(u)
    return u
