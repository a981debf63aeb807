"""The same network in PyTorch on a GPU, as fast as PyTorch runs it: the peer of our passes.

A pass is one CUDA graph, of eager PyTorch or torch.compile, in the fastest memory format and layers' forms.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.network.torch_network import FORMS, Network
from neocog.network.model import Model
from neocog.network.spec import LABELS

Tensor = Any

TYPES = {"fp32": torch.float32, "fp16": torch.float16}
_WARM_UP = 3
_RECOMPILE = 1000  # beyond its usual limit of 8 shapes torch.compile silently runs eager code
_HOLD = 20_000  # cycles for each pass that the GPU waits, so that launches queue up behind


def set_precision(precision: str) -> None:
    """Allow TF32 in matrix products and convolutions, or not; let cuDNN try its algorithms."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "fp32"
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


class TorchSide:
    """A network as a captured pass; a Side of ``compare.py``."""

    def __init__(self, network: Network, batch: int, *, compiled: bool = False) -> None:
        self.words, self._run = f"{network.memory_format}, {network.forms}", network
        if compiled:
            torch._dynamo.config.recompile_limit = _RECOMPILE
            self._run = torch.compile(network, dynamic=False)  # kept: the graph launches its kernels
        self._digits = torch.zeros((batch, 28, 28), dtype=torch.uint8, device="cuda")
        self._graph = Graph(lambda: self._run(self._digits))
        self.elapsed = self._graph.elapsed

    def median(self) -> float:
        return self._graph.median(5, 3)

    def load(self, digits: NDArray[np.uint8]) -> None:
        self._digits.copy_(torch.from_numpy(digits))

    def scores(self) -> NDArray[np.float32]:
        self._graph.replay()
        found: NDArray[np.float32] = self._graph.result[:, :LABELS].cpu().numpy()
        return found


def quickest(
    model: Model, digits: NDArray[np.uint8], precision: str, number: int, compiled: bool
) -> TorchSide:
    """Return the quickest side; compiled are the forms that are quickest in either memory format."""
    torch.cuda.set_device(number)
    set_precision(precision)

    def side(channels_last: bool, forms: dict[str, str], compiled: bool = False) -> TorchSide:
        network = Network(model, forms)
        network.to("cuda")
        network.freeze(TYPES[precision], channels_last=channels_last)
        found = TorchSide(network, len(digits), compiled=compiled)
        found.load(digits)
        return found

    def ms(channels_last: bool, forms: dict[str, str]) -> float:
        found = side(channels_last, forms).median()
        torch.cuda.empty_cache()
        return found

    ways: list[tuple[float, bool, dict[str, str]]] = []
    for channels_last in (False, True):
        forms = {name: usual for name, (usual, _) in FORMS.items()}
        least = ms(channels_last, forms)
        for name, (_, other) in FORMS.items():
            if (took := ms(channels_last, forms | {name: other})) < least:
                least, forms = took, forms | {name: other}
        ways.append((least, channels_last, forms))
    ways.sort(key=lambda way: way[0])
    sides = [side(*way[1:], compiled=compiled) for way in ways[: 1 + compiled]]
    return min(sides, key=TorchSide.median)
