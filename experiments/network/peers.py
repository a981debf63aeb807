"""The same network in PyTorch on a GPU, as fast as PyTorch runs it: the peer of our passes.

Every pass is one CUDA graph, captured from eager PyTorch or from torch.compile. Before that the
fastest of what PyTorch offers is sought for the batch at hand: memory format, the form of each
layer (see :mod:`experiments.network.torch_network`), cuDNN's algorithm, and how many digits go
through the layers at a time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.harness.run import progress
from experiments.network.torch_network import Network
from neocog.network.model import Model
from neocog.network.spec import LABELS

Tensor = Any

TYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
CHUNKS = (256, 1024)  # digits at a time that are tried for larger batches
_WARM_UP = 3
_ASKED = 2  # times that a profiler is asked: the first may come too early for it
_RECOMPILE = 1000  # beyond its usual limit of 8 shapes torch.compile silently runs eager code
_HOLD = 20_000  # cycles for each pass that the GPU waits, so that launches queue up behind


@dataclass(frozen=True, slots=True)
class Choice:
    """How PyTorch runs a batch fastest: memory format, form by layer, digits at a time."""

    channels_last: bool
    forms: dict[str, str] = field(default_factory=dict)
    chunk: int = 1
    ms: float = 0.0

    def words(self) -> str:
        layout = "channels last" if self.channels_last else "channels first"
        forms = ", ".join(f"{name} {form}" for name, form in self.forms.items())
        return f"{layout}, {self.chunk} digits at a time, {forms}"


def set_precision(precision: str) -> None:
    """Allow TF32 in matrix products and convolutions, or not; let cuDNN try its algorithms."""
    allowed = precision != "fp32"
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
    torch.backends.cudnn.benchmark = True


class Graph:
    """A function of nothing, captured as a CUDA graph and timed as one."""

    def __init__(self, function: Callable[[], Tensor]) -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), torch.no_grad():
            for _ in range(_WARM_UP):
                function()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(self._graph):
            self.result = function()

    def replay(self) -> None:
        self._graph.replay()

    def elapsed(self, repeats: int) -> float:
        """Return milliseconds of one replay, over ``repeats`` in a row."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._graph.replay()
        torch.cuda._sleep(_HOLD * repeats)
        start.record()
        for _ in range(repeats):
            self._graph.replay()
        end.record()
        end.synchronize()
        ms: float = start.elapsed_time(end) / repeats
        return ms

    def median(self, rounds: int, repeats: int) -> float:
        return float(np.median([self.elapsed(repeats) for _ in range(rounds)]))


def kernels_of(run: Callable[[], Tensor]) -> list[str]:
    """Return the names of the kernels of a call, the longest first; none if nobody tells."""
    from torch.profiler import ProfilerActivity, profile

    def spent(event: Any) -> float:
        names = ("self_device_time_total", "self_cuda_time_total")  # of newer and older PyTorch
        return float(next((getattr(event, name) for name in names if hasattr(event, name)), 0.0))

    try:
        with torch.no_grad():
            run()  # the library may still try its algorithms
            for _ in range(_ASKED):
                with profile(activities=[ProfilerActivity.CUDA]) as told:
                    run()
                    torch.cuda.synchronize()
                events = sorted(told.key_averages(), key=spent, reverse=True)
                if names := [str(event.key)[:90] for event in events if spent(event) > 0]:
                    return names
    except Exception:  # a name is not worth a run: profilers fail in many ways
        return []
    return []


class TorchSide:
    """A network as a captured pass, ``chunk`` digits at a time; a Side of ``gpu.py``."""

    def __init__(self, network: Network, batch: int, *, chunk: int, compiled: bool = False) -> None:
        self._network = network
        # kept for the life of the graph: it launches the kernels that belong to it
        self._run = network
        if compiled:
            torch._dynamo.config.recompile_limit = _RECOMPILE
            self._run = torch.compile(network, dynamic=False)
        self._host = torch.empty((batch, 28, 28), dtype=torch.uint8, pin_memory=True)
        classes = network.decide.classes
        self._answer = torch.empty((batch, classes), dtype=torch.float32, pin_memory=True)
        self._digits = torch.zeros((batch, 28, 28), dtype=torch.uint8, device="cuda")
        parts = self._digits.split(chunk)
        self._graph = Graph(
            lambda: (
                self._run(self._digits) if len(parts) == 1 else torch.cat([self._run(part) for part in parts])
            )
        )

    def load(self, digits: NDArray[np.uint8]) -> None:
        self._digits.copy_(torch.from_numpy(digits))

    def elapsed(self, repeats: int) -> float:
        return self._graph.elapsed(repeats)

    def median(self) -> float:
        return self._graph.median(5, 3)

    def scores(self) -> NDArray[np.float32]:
        self._graph.replay()
        found: NDArray[np.float32] = self._graph.result[:, :LABELS].cpu().numpy()
        return found

    def trip(self, digits: NDArray[np.uint8]) -> NDArray[np.float32]:
        self._host.copy_(torch.from_numpy(digits))
        self._digits.copy_(self._host, non_blocking=True)
        self._graph.replay()
        self._answer.copy_(self._graph.result, non_blocking=True)
        torch.cuda.current_stream().synchronize()
        found: NDArray[np.float32] = self._answer[:, :LABELS].numpy().copy()
        return found


def make_network(model: Model, precision: str, choice: Choice) -> Network:
    set_precision(precision)
    network = Network(model)
    network.to("cuda")
    network.freeze(TYPES[precision], channels_last=choice.channels_last)
    network.take(choice.forms)
    return network


def choices(model: Model, digits: NDArray[np.uint8], precision: str) -> list[Choice]:
    """Find the fastest forms and chunks of eager PyTorch in each memory format, fastest first."""
    batch = len(digits)
    best: list[Choice] = []
    for channels_last in (False, True):
        choice = Choice(channels_last)
        network = make_network(model, precision, choice)
        first = torch.from_numpy(digits[: CHUNKS[-1]]).cuda()
        forms = _fastest_forms(network, first)
        found: list[Choice] = []
        for chunk in sorted({min(c, batch) for c in (*CHUNKS, batch)}):
            side = TorchSide(network, batch, chunk=chunk)
            side.load(digits)
            found.append(Choice(channels_last, forms, chunk, side.median()))
            del side
        torch.cuda.empty_cache()
        best.append(min(found, key=lambda choice: choice.ms))
    best.sort(key=lambda choice: choice.ms)
    progress(f"torch {precision} batch {batch}: {best[0].words()}, {1e3 * best[0].ms:.1f} us")
    return best


def quickest(
    model: Model, digits: NDArray[np.uint8], precision: str, found: Sequence[Choice], *, compiled: bool
) -> tuple[TorchSide, Choice]:
    """Return the quickest side and how it runs; what is compiled is tried in every choice."""
    whole = replace(found[0], chunk=len(digits))
    tried = [*found, *[whole] * (whole not in found)] if compiled else list(found[:1])
    sides = [
        TorchSide(make_network(model, precision, c), len(digits), chunk=c.chunk, compiled=compiled)
        for c in tried
    ]
    times = []
    for side in sides:
        side.load(digits)
        times.append(side.median())
    best = int(np.argmin(times))
    return sides[best], replace(tried[best], ms=times[best])


def layer_times(model: Model, layer: str, before: NDArray[np.float32], precision: str) -> dict[str, float]:
    """Return microseconds of a layer fed with maps (B, K, H, W) by form and memory format."""
    times: dict[str, float] = {}
    for channels_last in (False, True):
        network = make_network(model, precision, Choice(channels_last))
        part = dict(network.parts())[layer]
        seen = torch.from_numpy(before).cuda().to(network.dtype)
        seen = seen.contiguous(memory_format=network.memory_format)
        for form, ms in _form_times(part, partial(part, seen), 10).items():
            times[form + ", channels last" * channels_last] = 1e3 * ms
    return times


def _form_times(part: Any, run: Callable[[], Tensor], repeats: int) -> dict[str, float]:
    """Return milliseconds of a layer by form; forms that do not run at this size are left out."""
    times: dict[str, float] = {}
    for form in part.forms:
        part.form = form
        try:
            graph = Graph(lambda: [run() for _ in range(repeats)][-1])
            times[form] = graph.median(3, 3) / repeats
        except RuntimeError:  # this size is beyond what the library's kernel takes
            torch.cuda.synchronize()
    return times


def _fastest_forms(network: Network, digits: Tensor) -> dict[str, str]:
    """Time each form of each layer on the layer's own input; leave the network in the fastest."""
    with torch.no_grad():
        maps = {"digits": digits, **network.maps(digits)}
    before = "digits"
    for name, part in network.parts():
        run = partial(network.ug if name == "UG" else part, maps[before])
        if len(part.forms) > 1:
            times = _form_times(part, run, 2)
            part.form = min(times, key=lambda form: times[form])
        before = name
    return network.forms()
