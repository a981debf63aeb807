"""Checks and times the finder on one GPU, the CPU and PyTorch beside it in the same run.

    python -m experiments.gpu.finder FINDER -o experiments/gpu/results/gpu_finder.json [--seconds 1]
        [--no-compile]

FINDER is a file of weights. Pages are made from ``data/samples``, four for each size, and taken in
turn. From a grey picture in the host's memory to the marks there: median and p95. First of all
marks are compared with those that the CPU finds. PyTorch: the same sizes, contrast, network
(channels_last, fp16), peaks and the best 800 in one CUDA graph, plain and after torch.compile;
boxes and what overlaps are then worked out by NumPy, as on the CPU.
"""

import math
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import cv2
import numpy as np
import torch

from experiments.harness.arguments import arguments
from experiments.harness.record import write_results
from experiments.network.compare import session
from experiments.network.peers import Graph
from neocog.evaluation.timing import milliseconds
from neocog.network.parallel import cores
from neocog.reading.device import open_finder
from neocog.vision import finder as cpu
from neocog.vision.finder import CELL, FLOOR, WINDOW, FinderSettings, Finding, find
from neocog.vision.finder_model import FinderModel, OpenCV, load_finder

SAMPLES = Path(__file__).resolve().parents[2] / "data" / "samples"
NAMES = ("note.jpg", "phone.jpg", "dates.jpg", "meter.jpg")
SIZES = {"frame 640x480": (480, 640), "frame 1280x720": (720, 1280), "page 1600x1200": (1200, 1600)}
#: Marks that count when they are compared: those near the threshold may come or go.
CLEAR = 0.15
COLUMNS = {
    "picture": "picture", "way": "way", "median": "median, ms|.2f", "p95": "p95, ms|.2f",
    "device": "of it on the GPU, ms|.3f", "marks": "marks", "missed": "of the CPU's clear marks not found",
    "score": "largest difference of a score|.1e", "box": "of a box, pixels|.2f",
}  # fmt: skip
Row = dict[str, Any]


def with_onnxruntime(model: FinderModel, threads: int) -> Any:
    run = session(model.onnx(), threads).run
    return lambda x: run(None, {"x": x[None, None]})[0][0]


def pictures(shape: tuple[int, int]) -> list[np.ndarray]:
    out = []
    for name in NAMES:
        grey = cv2.imread(str(SAMPLES / name), cv2.IMREAD_GRAYSCALE)
        out.append(np.asarray(cv2.resize(grey, shape[::-1], interpolation=cv2.INTER_AREA)))
    return out


def timed(work: Callable[[np.ndarray], Any], pages: list[np.ndarray], seconds: float) -> Row:
    for page in pages * 2:
        work(page)
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while len(taken) < 8 or time.perf_counter() < end:
        taken.append(milliseconds(partial(work, pages[len(taken) % len(pages)])))
    median, p95 = (float(q) for q in np.percentile(taken, (50, 95)))
    return {"median": median, "p95": p95, "passes": len(taken)}


def compared(got: list[Finding], wanted: list[Finding]) -> Row:
    """Marks of the CPU without one of the same kind within a tenth of its size, and back."""
    marks = missed = added = 0
    score = box = 0.0
    for one, other in zip(got, wanted, strict=True):
        marks += int((other.scores >= CLEAR).sum())
        for mine, theirs in ((one, other), (other, one)):
            for at, s, kind in zip(theirs.boxes, theirs.scores, theirs.kinds, strict=True):
                if s < CLEAR:
                    continue
                apart = np.abs(mine.boxes - at).max(axis=1, initial=0.0)
                apart[mine.kinds != kind] = np.inf
                best = int(apart.argmin()) if len(apart) else -1
                if best < 0 or apart[best] > 0.1 * at[2:].max():
                    missed, added = (missed + 1, added) if mine is one else (missed, added + 1)
                    continue
                box = max(box, float(apart[best]))
                score = max(score, abs(float(mine.scores[best] - s)))
    return {"marks": marks, "missed": missed, "added": added, "score": score, "box": box}


class TorchFinder:
    """What one would write in PyTorch: all sizes in one CUDA graph for each size of picture."""

    def __init__(self, model: FinderModel, settings: FinderSettings) -> None:
        self.model, self.settings = model, settings
        self.weights = {
            name: torch.from_numpy(value).to("cuda", torch.float16) for name, value in model.tensors.items()
        }
        for name, value in self.weights.items():
            if value.ndim == 4:
                self.weights[name] = value.to(memory_format=torch.channels_last)
        self.network: Callable[..., Any] = self.answers
        self._graphs: dict[tuple[int, int], Any] = {}

    def answers(self, x: Any) -> Any:
        functional = torch.nn.functional
        maps = {"x": x, **self.weights}
        for node in self.model.nodes:
            a, op = [maps[name] for name in node["inputs"]], node["op"]
            if op == "Conv":
                out = functional.conv2d(
                    a[0], a[1], a[2] if len(a) > 2 else None, node["stride"], node["padding"],
                    node["dilation"], node["groups"],
                )  # fmt: skip
            elif op == "Resize":
                out = functional.interpolate(a[0], scale_factor=2, mode="nearest")
            elif op == "Concat":
                out = torch.cat(a, 1)
            else:
                ways = {"Relu": "relu", "Sqrt": "sqrt", "Add": "add", "Mul": "mul", "Div": "div"}
                out = getattr(torch, ways[op])(*a)
            maps[node["output"]] = out
        return out

    def contrast(self, g: Any) -> Any:
        functional, reach = torch.nn.functional, WINDOW // 2

        def box(x: Any) -> Any:
            x = functional.pad(x, (reach,) * 4, mode="reflect")
            return functional.avg_pool2d(functional.avg_pool2d(x, (1, WINDOW), 1), (WINDOW, 1), 1)

        mean = box(g)
        variance = (box(g * g) - mean * mean).clamp_min(0)
        x = (g - mean) * torch.rsqrt(variance + FLOOR**2)
        return functional.pad(x, (0, -x.shape[3] % 16, 0, -x.shape[2] % 16))

    def levels(self, grey: Any) -> list[Any]:
        """For each size: answers (C, h, w) at the best 800 peaks and where they are."""
        functional = torch.nn.functional
        g, out = grey[None, None].float(), []
        while True:
            x = self.contrast(g).half().contiguous(memory_format=torch.channels_last)
            maps = self.network(x)[0].float()
            best = maps[:2].amax(0)
            peak = functional.max_pool2d(best[None], 3, 1, 1)[0]
            told = torch.where(best >= peak, best, -torch.inf).flatten()
            score, place = told.topk(min(self.settings.most, told.numel()))
            at = maps.flatten(1)[:, place]
            out.append(torch.cat([score[None], place[None].float(), at]))
            if max(g.shape[2:]) <= self.settings.largest:
                return out
            half = [max(1, round(side / 2)) for side in g.shape[2:]]
            g = functional.interpolate(g, size=half, mode="area").round()

    def capture(self, shape: tuple[int, int]) -> Any:
        host = torch.zeros(shape, dtype=torch.uint8).pin_memory()
        grey = host.cuda()
        graph = Graph(lambda: self.levels(grey.copy_(host, non_blocking=True)))
        return graph, host, [one.cpu().pin_memory() for one in graph.result]

    def raw(self, grey: np.ndarray) -> list[np.ndarray]:
        if grey.shape not in self._graphs:
            self._graphs[grey.shape] = self.capture(grey.shape)
        graph, host, pinned = self._graphs[grey.shape]
        host.numpy()[...] = grey
        graph.replay()
        for to, one in zip(pinned, graph.result, strict=True):
            to.copy_(one, non_blocking=True)
        torch.cuda.synchronize()
        return [one.numpy() for one in pinned]

    def find(self, grey: np.ndarray, settings: FinderSettings) -> Finding:
        parts, shapes = [], []
        h, w = grey.shape
        for one in self.raw(grey):
            one = one[:, np.isfinite(one[0])]
            columns = -(-w // 16) * 16 // CELL
            parts.append(boxes_at(one[2:], one[1].astype(np.int64), columns, settings))
            shapes.append((h, w))
            h, w = max(1, round(h / 2)), max(1, round(w / 2))
        found = cpu.the_best(cpu.joined(parts, shapes, grey.shape, settings), settings.most)
        return cpu.agreed(cpu.merged(found, settings), found)


def boxes_at(at: np.ndarray, places: np.ndarray, columns: int, settings: FinderSettings) -> Finding:
    """Decode answers that have been picked out: `decode` of a map one row high, no neighbours."""
    row = np.full((at.shape[0], 1, max(2, 2 * at.shape[1])), -50, np.float32)
    row[:, 0, ::2][:, : at.shape[1]] = at  # every second place: none is another's neighbour
    y, x = places // columns, places % columns
    row[4, 0, ::2][: len(x)] += x - 2 * np.arange(len(x))
    row[5, 0, ::2][: len(y)] += y
    return cpu.decode(row, settings)


def main() -> None:
    args = arguments(__doc__, "finder", output=None, seconds=1.0, no_compile=False).parse_args()
    settings, model = FinderSettings(fine=math.inf), load_finder(args.finder)  # all sizes
    on_gpu, reference, opencv = open_finder(model, device="cuda"), open_finder(model), OpenCV(model)
    torch_finder, rows = TorchFinder(model, settings), []

    def add(name: str, way: str, work: Callable[[np.ndarray], Finding], **more: Any) -> None:
        pages = pictures(SIZES[name])
        begin = time.perf_counter()
        try:
            same = compared([work(page) for page in pages], wanted[name])
            row = {"picture": name, "way": way, **same, **timed(work, pages, args.seconds), **more}
        except Exception as error:  # a way that fails leaves the others their rows
            row = {"picture": name, "way": way, "error": str(error).partition("\n")[0][:200]}
        rows.append(row)
        print(row, f"{time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)

    wanted = {
        name: [find(page, reference, settings) for page in pictures(shape)] for name, shape in SIZES.items()
    }
    for name, shape in SIZES.items():
        page = pictures(shape)[0]
        device = on_gpu.elapsed(page, 100, settings)
        add(name, "neocog", lambda g: find(g, on_gpu, settings), device=device)
        if name == next(iter(SIZES)):  # elsewhere its marks are others
            add(name, "PyTorch fp16", lambda g: torch_finder.find(g, settings))
        for threads in (2, cores()):
            with_onnx = with_onnxruntime(model, threads)
            cv2.setNumThreads(threads)
            add(name, f"onnxruntime, {threads} threads", lambda g, n=with_onnx: find(g, n, settings))
        add(name, f"OpenCV, {cores()} threads", lambda g: find(g, opencv, settings))
    write_results(args.output, rows, columns=COLUMNS, gpu=True)
    if not args.no_compile:
        torch_finder._graphs.clear()
        torch_finder.network = torch.compile(torch_finder.answers, dynamic=True)
        for name in SIZES:
            add(name, "torch.compile fp16", lambda g: torch_finder.find(g, settings))
            write_results(args.output, rows, columns=COLUMNS, gpu=True)


if __name__ == "__main__":
    main()
