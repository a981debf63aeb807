"""Times dense 7x7 layers by decomposed Winograd convolution, PyTorch's beside them in the same run.

    python benchmarks/winograd.py -o benchmarks/results/winograd.json [--batches 1 16 64]

Layers of Table 2 of Lee and Kwak (ConvNeXt stages with dense filters). Every way is checked against
float64 before it is timed, in graphs of many passes; PyTorch takes the better of its two layouts.
Rows "filters" are the transform of the filters alone, channel-wise and thread-wise.
"""

import argparse
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from record import write_results

from neocog.cuda.kernel import Kernel, Launch
from neocog.cuda.winograd import WinogradConvolution
from neocog.cuda.winograd_plan import Operand, Version
from neocog.cuda.winograd_transforms import Split
from neocog.errors import NeocogError

KERNEL = 7
#: Rows of the output, channels in, channels out.
LAYERS = ((56, 96, 96), (28, 96, 192), (14, 192, 384), (7, 384, 768))
BATCHES = (1, 16, 64)
#: Largest error that is let pass, of the largest output.
TOLERANCE = {"fp32": 5e-5, "tf32": 2e-2, "fp16": 2e-2}
CACHED = 40 << 20  # bytes of the Winograd domain that stay in the L2 cache
TURN_US = 3000.0  # what a graph of passes takes, about
ROUNDS = 7

COLUMNS = {
    "layer": "layer",
    "batch": "batch",
    "precision": "precision",
    "way": "way",
    "products": "multiplications an output",
    "us": "us",
    "error": "largest error",
}
FORMATS = {"us": ".1f", "error": ".1e", "products": ".2f"}


class Way(NamedTuple):
    """A way to compute a layer: parts of the filters, tile and version."""

    sizes: tuple[int, ...]
    m: int
    version: Version
    operand: Operand = "fp32"
    cached: bool = False

    @property
    def name(self) -> str:
        """As the table shows it."""
        split = "+".join(map(str, self.sizes))
        return f"{self.version}, {split}, m = {self.m}" + (", cached" if self.cached else "")


WAYS = (
    Way((4, 3), 4, "global"),
    Way((4, 3), 4, "global", cached=True),
    Way((3, 3, 1), 4, "global"),
    Way((3, 3, 3), 4, "global"),
    Way((3, 3, 3), 3, "fused"),
    Way((3, 3, 3), 4, "fused"),
    Way((4, 3), 4, "tensor", "tf32"),
    Way((3, 3, 1), 2, "tensor", "tf32"),
    Way((4, 3), 4, "tensor", "fp16"),
    Way((4, 3), 4, "tensor", "fp16", cached=True),
    Way((3, 3, 1), 2, "tensor", "fp16"),
)


class Layer:
    """One layer with its input, its filters and what it should give, on the GPU."""

    def __init__(self, machine: Any, size: int, channels: int, planes: int, batch: int) -> None:
        self.machine, self.size, self.channels, self.planes = machine, size, channels, planes
        self.batch = batch
        rng = np.random.default_rng(size)
        border, width = KERNEL // 2, size + KERNEL - 1
        x = np.zeros((batch, width, width, channels), np.float32)
        inside = slice(border, border + size)
        x[:, inside, inside] = rng.random((batch, size, size, channels), dtype=np.float32)
        self.w = rng.standard_normal((planes, channels, KERNEL, KERNEL)).astype(np.float32)
        self.w /= np.float32(np.sqrt(channels) * KERNEL)
        self.x = machine.xp.asarray(x)
        self.checked = sorted({0, batch // 2, batch - 1})
        self.wanted = self._expected(self.x[self.checked])

    @property
    def name(self) -> str:
        """As in KERNELS: rows x columns, channels in -> out."""
        return f"{self.size}x{self.size} {self.channels}->{self.planes}"

    def _expected(self, x: Any) -> Any:
        w = self.machine.xp.asarray(self.w, dtype=np.float64)
        x, y = x.astype(np.float64), 0.0
        for i in range(KERNEL):
            for j in range(KERNEL):
                y = y + x[:, i : i + self.size, j : j + self.size] @ w[:, :, i, j].T
        return y

    def error(self, y: Any) -> float:
        """Largest error of some digits' output (n, size, size, planes), of the largest output."""
        gap = abs(y.astype(np.float64) - self.wanted).max() / abs(self.wanted).max()
        return float(gap)

    def convolution(self, way: Way) -> WinogradConvolution:
        """Return the layer computed in one way; half maps go with half operands."""
        maps = 1 if way.operand == "fp16" else 0
        more = {"scratch_bytes": CACHED} if way.cached else {}
        return WinogradConvolution(
            self.machine,
            self.channels,
            self.planes,
            KERNEL,
            self.size,
            split=Split(KERNEL, way.sizes),
            m=way.m,
            version=way.version,
            operand=way.operand,
            source=maps,
            target=maps,
            **more,  # type: ignore[arg-type]
        )

    def kernels(self, way: Way) -> set[Kernel]:
        """Return the kernels that a way takes; no array is needed to name them."""
        convolution = self.convolution(way)
        nothing = dict.fromkeys(convolution.scratch(self.batch))
        launches = convolution.launches(self.batch, None, None, None, nothing)
        if _filters_are_timed(self, way):
            launches += [convolution.filter_transform(None, None, indexing=i) for i in (0, 1)]
        return {launch.kernel for launch in launches}


def timed(machine: Any, enqueue: Callable[[], None]) -> float:
    """Return the microseconds of what ``enqueue`` puts on the current stream, median of graphs."""
    cupy = machine.xp
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        enqueue()
        repeats = 1
        while True:
            stream.synchronize()
            stream.begin_capture()
            for _ in range(repeats):
                enqueue()
            graph = stream.end_capture()
            times = [_elapsed(cupy, stream, graph) / repeats for _ in range(2)]
            if repeats > 1 or times[1] > TURN_US / 2:
                break
            repeats = int(np.clip(TURN_US / times[1], 2, 100))
        return float(np.median([_elapsed(cupy, stream, graph) / repeats for _ in range(ROUNDS)]))


def _elapsed(cupy: Any, stream: Any, graph: Any) -> float:
    start, stop = cupy.cuda.Event(), cupy.cuda.Event()
    start.record(stream)
    graph.launch(stream)
    stop.record(stream)
    stop.synchronize()
    return 1e3 * float(cupy.cuda.get_elapsed_time(start, stop))


def _launch(machine: Any, launches: list[Launch]) -> None:
    for i, launch in enumerate(launches):
        machine.launch(launch, follows=i > 0)


def _filters_are_timed(layer: Layer, way: Way) -> bool:
    return layer.batch == 1 and way == WAYS[0]


def ours(layer: Layer, way: Way) -> Iterator[dict[str, Any]]:
    """Check one way and time it; yields its row, and those of the filters' transform."""
    machine, xp = layer.machine, layer.machine.xp
    convolution = layer.convolution(way)
    half = way.operand == "fp16"
    x = layer.x.astype(np.float16) if half else layer.x
    dtype = np.float16 if half else np.float32
    y = xp.full((layer.batch, layer.size, layer.size, layer.planes), 7, dtype)
    u = convolution.filters(layer.w)
    scratch = {name: xp.empty(*form) for name, form in convolution.scratch(layer.batch).items()}
    launches = convolution.launches(layer.batch, x, u, y, scratch)
    enqueue = partial(_launch, machine, launches)
    enqueue()
    row = {
        "layer": layer.name,
        "batch": layer.batch,
        "precision": way.operand,
        "way": way.name,
        "products": convolution.plan.split.per_output(way.m, layer.size),
        "launches": len(launches),
        "error": layer.error(y[layer.checked]),
    }
    if row["error"] < TOLERANCE[way.operand]:
        row["us"] = timed(machine, enqueue)
    yield row
    if not _filters_are_timed(layer, way):
        return
    w = xp.asarray(convolution.plan.arrange(layer.w))
    for indexing, name in enumerate(("channel-wise", "thread-wise")):
        made = xp.full(u.shape, 7, u.dtype)
        launch = convolution.filter_transform(w, made, indexing=indexing)
        machine.launch(launch)
        error = float(abs(made - u).max() / abs(u).max())
        us = timed(machine, partial(_launch, machine, [launch])) if error < 1e-5 else None
        yield {
            **{key: row[key] for key in ("layer", "precision")},
            **{"batch": 0, "way": f"filters, {name}", "error": error, "us": us},
        }


def pytorch(layer: Layer) -> Iterator[dict[str, Any]]:
    """Check PyTorch's convolution and time it, the better layout of each precision."""
    try:
        import torch
    except ImportError:
        return
    torch.backends.cudnn.benchmark = True
    size, border = layer.size, KERNEL // 2
    inside = layer.x[:, border : border + size, border : border + size]
    x0 = torch.from_dlpack(inside.copy()).permute(0, 3, 1, 2)
    w0 = torch.from_numpy(layer.w).cuda()
    for precision in ("fp32", "tf32", "fp16"):
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
        dtype = torch.float16 if precision == "fp16" else torch.float32
        best: dict[str, Any] = {}
        for layout in (torch.contiguous_format, torch.channels_last):
            x = x0.to(dtype).contiguous(memory_format=layout)
            w = w0.to(dtype).contiguous(memory_format=layout)
            call = partial(torch.nn.functional.conv2d, x, w, padding=border)
            with torch.no_grad():
                us, y = _torch_timed(torch, call)
            got = layer.machine.xp.from_dlpack(y[layer.checked].permute(0, 2, 3, 1).contiguous())
            if not best or us < best["us"]:
                best = {"us": us, "error": layer.error(got), "layout": str(layout)}
                best["kernels"] = _torch_kernels(torch, call)
        yield {
            "layer": layer.name,
            "batch": layer.batch,
            "precision": precision,
            "way": "PyTorch",
            "products": float(KERNEL**2),
            **best,
        }


def _torch_timed(torch: Any, call: Callable[[], Any]) -> tuple[float, Any]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            y = call()
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record(stream)
        call()
        stop.record(stream)
        stop.synchronize()
        repeats = int(np.clip(TURN_US / (1e3 * start.elapsed_time(stop)), 1, 100))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(repeats):
                call()
        times = []
        for _ in range(ROUNDS + 2):
            start.record(stream)
            graph.replay()
            stop.record(stream)
            stop.synchronize()
            times.append(1e3 * start.elapsed_time(stop) / repeats)
    return float(np.median(times[2:])), y


def _torch_kernels(torch: Any, call: Callable[[], Any]) -> str:
    """Names of the kernels of one call: which algorithm cuDNN chose."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    return "; ".join(event.key[:80] for event in profile.key_averages())


def _build(kernel: Kernel, arch: int) -> None:
    from neocog.cuda.compiler import build

    build(kernel, arch)


def run(machine: Any, batches: tuple[int, ...] = BATCHES) -> list[dict[str, Any]]:
    """Check and time every way of every layer on a machine; PyTorch last."""
    rows: list[dict[str, Any]] = []
    layers = [Layer(machine, *shape, batch) for shape in LAYERS for batch in batches]
    kernels = set[Kernel]().union(*(layer.kernels(way) for layer in layers for way in WAYS))
    if machine.programmatic:
        kernels = {replace(k, defines=(*k.defines, ("PROGRAMMATIC", 1))) for k in kernels}
    with ProcessPoolExecutor(
        len(os.sched_getaffinity(0)), mp_context=multiprocessing.get_context("spawn")
    ) as pool:
        list(pool.map(partial(_build, arch=machine.arch), kernels))
    for layer in layers:
        for way in WAYS:
            try:
                rows += ours(layer, way)
            except NeocogError as error:
                rows.append({"layer": layer.name, "batch": layer.batch, "precision": way.operand,
                             "way": way.name, "failed": str(error)})  # fmt: skip
            machine.xp.get_default_memory_pool().free_all_blocks()
            print(rows[-1], flush=True)
        for row in pytorch(layer):
            rows.append(row)
            print(row, flush=True)
    return rows


def main() -> None:
    """Parse, run, write."""
    from neocog.cuda.launcher import gpu

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    args = parser.parse_args()
    rows = run(gpu(), tuple(args.batches))
    write_results(args.output, rows, columns=COLUMNS, formats=FORMATS, gpu=True)


if __name__ == "__main__":
    main()
