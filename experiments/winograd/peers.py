"""Peers of ``bench winograd``: cuDNN through PyTorch in each precision, and FFT."""

import math
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import torch

from experiments.harness.run import tried
from experiments.network.peers import TYPES, Graph, kernels_of, set_precision
from experiments.winograd.gpu import ROUNDS, copies_of, passes_of, turns
from experiments.winograd.layers import KERNEL, TOLERANCE, Data
from neocog.errors import NeocogError

Tensor = Any
LAYOUTS = {"channels first": torch.contiguous_format, "channels last": torch.channels_last}
_MOST_SPECTRUM = 8 << 30  # bytes of spectra that are tried


class Peers:
    """One layer at one batch size in PyTorch; a time is the median of ``rounds``."""

    def __init__(self, data: Data, *, rounds: int = ROUNDS) -> None:
        self.data, self.rounds = data, rounds
        border, size = KERNEL // 2, data.layer.size
        inside = slice(border, border + size)
        x = np.ascontiguousarray(data.x[:, inside, inside].transpose(0, 3, 1, 2))
        self._x = torch.from_numpy(x).cuda()
        self._w = torch.from_numpy(data.w).cuda()
        set_precision("fp32")

    def rows(self, precisions: tuple[str, ...]) -> list[dict[str, Any]]:
        runs: dict[tuple[str, str], Callable[[], dict[str, Any]]] = {
            ("cuDNN", precision): partial(self._cudnn, precision) for precision in precisions
        }
        runs["FFT", "fp32"] = self._fft
        return [
            {"layer": self.data.layer.name, "batch": self.data.batch, "way": way,
             "precision": precision, "us": None, **tried(run, torch.cuda.synchronize)}
            for (way, precision), run in runs.items()
        ]  # fmt: skip

    def _cudnn(self, precision: str) -> dict[str, Any]:
        set_precision(precision)
        best = dict[str, Any](us=math.inf)
        item = 2 if precision == "fp16" else 4
        copies = copies_of((self._x.numel() + self._w.numel()) * item)
        for layout in LAYOUTS:
            calls = [self._call(precision, layout) for _ in range(copies)]
            us, error = self._time(calls, precision)
            if us < best["us"]:
                best = {"us": us, "error": error, "layout": layout}
        return best

    def _call(self, precision: str, layout: str) -> Callable[[], Tensor]:
        form = LAYOUTS[layout]
        x, w = (t.to(TYPES[precision], copy=True).contiguous(memory_format=form)
                for t in (self._x, self._w))  # fmt: skip
        return partial(torch.nn.functional.conv2d, x, w, padding=KERNEL // 2)

    def name(self, rows: Iterable[dict[str, Any]]) -> None:
        """Name the kernels that cuDNN chose; last of all, as a profiler slows down what follows."""
        here = (self.data.layer.name, self.data.batch, "cuDNN")
        for row in rows:
            if (row["layer"], row["batch"], row["way"]) == here and row["us"]:
                set_precision(row["precision"])
                names = kernels_of(self._call(row["precision"], row["layout"]))
                row["algorithm"] = "; ".join(sorted(names)) or "not told"

    def _fft(self) -> dict[str, Any]:
        """Spectra of whole maps; those of the filters are taken before, as they stay the same."""
        set_precision("fp32")
        layer = self.data.layer
        least = layer.size + KERNEL - 1
        # cuFFT does best with even products of 2, 3, 5 and 7: these divide a high power of 210
        side = next(size for size in count(least + least % 2, 2) if pow(210, 20, size) == 0)
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
        once = self._graph(calls, len(calls)).elapsed(1)
        count = passes_of(len(calls), 1e3 * once / len(calls))
        graph = self._graph(calls, count)
        return 1e3 * graph.median(self.rounds, turns(graph.elapsed(1))) / count, error

    def _graph(self, calls: list[Callable[[], Tensor]], count: int) -> Graph:
        return Graph(lambda: [calls[i % len(calls)]() for i in range(count)][-1])


def facts() -> dict[str, str]:
    return {
        "torch": torch.__version__,
        "torch CUDA": str(torch.version.cuda),
        "cuDNN": str(torch.backends.cudnn.version()),
    }
