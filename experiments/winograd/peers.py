"""Peers of ``bench winograd``: cuDNN through PyTorch in each precision, and FFT."""

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import torch

from experiments.harness.attended import Watch
from experiments.network.peers import TYPES, Graph, kernels_of, set_precision
from experiments.winograd.gpu import ROUNDS, copies_of, passes_of
from experiments.winograd.layers import KERNEL, TOLERANCE, Data
from neocog.errors import NeocogError

Tensor = Any
_TURN = 3.0  # milliseconds of one measurement, about
_MOST_SECONDS = 120.0  # of one way: loading cuDNN and its trials of algorithms with it
_MOST_SPECTRUM = 8 << 30  # bytes of spectra that are tried


class Peers:
    """One layer at one batch size in PyTorch; a time is the median of ``rounds``."""

    def __init__(self, data: Data, watch: Watch, *, rounds: int = ROUNDS) -> None:
        self.data, self.rounds, self._watch = data, rounds, watch
        border, size = KERNEL // 2, data.layer.size
        inside = slice(border, border + size)
        x = np.ascontiguousarray(data.x[:, inside, inside].transpose(0, 3, 1, 2))
        self._x = torch.from_numpy(x).cuda()
        self._w = torch.from_numpy(data.w).cuda()
        set_precision("fp32")

    def rows(self, precisions: tuple[str, ...]) -> list[dict[str, Any]]:
        """Return a row for each precision of cuDNN, in its better memory format, and FFT's."""
        runs: dict[Any, tuple[str, Callable[[], dict[str, Any]]]]
        runs = {("cuDNN", p): (f"cuDNN {p}", partial(self._cudnn, p)) for p in precisions}
        runs["FFT", "fp32"] = ("FFT", self._fft)
        return [self._about(*about) | self._tried(*run) for about, run in runs.items()]

    def _about(self, way: str, precision: str) -> dict[str, Any]:
        about = {"layer": self.data.layer.name, "batch": self.data.batch}
        return {**about, "way": way, "precision": precision}

    def _tried(self, what: str, run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        words = f"{self.data.layer.name}, batch {self.data.batch}: {what}"
        found = self._watch.attempt(
            words, run, healthy=torch.cuda.synchronize, seconds=_MOST_SECONDS
        )
        return {"us": None, **found}

    def _cudnn(self, precision: str) -> dict[str, Any]:
        set_precision(precision)
        dtype, best = TYPES[precision], dict[str, Any](us=math.inf)
        item = 2 if precision == "fp16" else 4
        copies = copies_of((self._x.numel() + self._w.numel()) * item)
        for layout in (torch.contiguous_format, torch.channels_last):
            sets = [
                tuple(
                    t.to(dtype, copy=True).contiguous(memory_format=layout)
                    for t in (self._x, self._w)
                )
                for _ in range(copies)
            ]
            convolve = partial(torch.nn.functional.conv2d, padding=KERNEL // 2)
            us, error = self._time([partial(convolve, x, w) for x, w in sets], precision)
            if us < best["us"]:
                name = "channels last" if layout is torch.channels_last else "channels first"
                best = {"us": us, "error": error, "layout": name}
            del sets
        return best

    def name(self, rows: Iterable[dict[str, Any]]) -> None:
        """Add the kernels that cuDNN chose to its rows of this layer and batch, by a profiler.

        This comes last: what a profiler leaves behind may slow down what is timed after it.
        """
        for row in rows:
            here = (row["layer"], row["batch"]) == (self.data.layer.name, self.data.batch)
            what = f"{row['layer']}, batch {row['batch']}: names of cuDNN {row['precision']}"
            if not here or row["way"] != "cuDNN" or not row.get("us") or "algorithm" in row:
                continue
            if self._watch.why_not(what):
                continue
            self._watch.doing(what, _MOST_SECONDS)
            set_precision(row["precision"])
            last = row["layout"] == "channels last"
            layout = torch.channels_last if last else torch.contiguous_format
            x, w = (
                t.to(TYPES[row["precision"]]).contiguous(memory_format=layout)
                for t in (self._x, self._w)
            )
            convolve = partial(torch.nn.functional.conv2d, x, w, padding=KERNEL // 2)
            row["algorithm"] = "; ".join(sorted(kernels_of(convolve))) or "not told"

    def _fft(self) -> dict[str, Any]:
        """Spectra of whole maps; those of the filters are taken before, as they stay the same."""
        set_precision("fp32")
        layer = self.data.layer
        side = good_size(layer.size + KERNEL - 1)
        places = side * (side // 2 + 1)
        spectrum = places * layer.channels * layer.planes * 8
        if spectrum > _MOST_SPECTRUM:
            raise NeocogError(f"spectra of the filters take {spectrum >> 30} GB: not tried")
        w = torch.fft.rfft2(self._w, s=(side, side)).conj().permute(2, 3, 1, 0)
        w = w.reshape(places, layer.channels, layer.planes).contiguous()
        copies = copies_of(self._x.numel() * 4 + spectrum)
        sets = [(self._x.clone(), w.clone() if i else w) for i in range(copies)]
        border = KERNEL // 2

        def convolve(x: Tensor, w: Tensor) -> Tensor:
            padded = torch.nn.functional.pad(x, (border, side - layer.size - border) * 2)
            seen = torch.fft.rfft2(padded).permute(2, 3, 0, 1).reshape(places, -1, layer.channels)
            y = torch.bmm(seen, w).reshape(side, side // 2 + 1, -1, layer.planes)
            out = torch.fft.irfft2(y.permute(2, 3, 0, 1), s=(side, side))
            return out[:, :, : layer.size, : layer.size].contiguous()

        us, error = self._time([partial(convolve, x, w) for x, w in sets], "fp32")
        return {"us": us, "error": error, "algorithm": f"cuFFT {side}x{side}, cuBLAS complex64"}

    def _time(self, calls: list[Callable[[], Tensor]], precision: str) -> tuple[float, float]:
        """Microseconds of a call, the calls taken in turn, and its error; checked first."""
        with torch.no_grad():
            y = calls[0]()[self.data.checked].permute(0, 2, 3, 1)
            error = self.data.error(y.float().cpu().numpy())
        if not error < TOLERANCE[precision]:
            raise NeocogError(f"wrong by {error:.1e} of the largest output: not timed")
        once = self._elapsed(calls, len(calls), 1)
        count = passes_of(len(calls), 1e3 * once / len(calls))
        graph = Graph(lambda: [calls[i % len(calls)]() for i in range(count)][-1])
        repeats = max(1, min(50, round(_TURN / max(graph.elapsed(1), 1e-3))))
        ms = [graph.elapsed(repeats) for _ in range(self.rounds)]
        return 1e3 * float(np.median(ms)) / count, error

    def _elapsed(self, calls: list[Callable[[], Tensor]], count: int, repeats: int) -> float:
        graph = Graph(lambda: [calls[i % len(calls)]() for i in range(count)][-1])
        graph.elapsed(repeats)
        return graph.elapsed(repeats)


def good_size(least: int) -> int:
    """Return the least even size that is a product of 2, 3, 5 and 7: what cuFFT does best."""
    size = least + least % 2
    while True:
        rest = size
        for prime in (2, 3, 5, 7):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return size
        size += 2


def facts() -> dict[str, str]:
    """Return the versions of PyTorch and of what it brings."""
    return {
        "torch": torch.__version__,
        "torch CUDA": str(torch.version.cuda),
        "cuDNN": str(torch.backends.cudnn.version()),
    }
