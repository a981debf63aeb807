"""The finder as an ONNX file, for other runtimes: from a grey picture to boxes.

What :mod:`neocog.vision.finder` does for one size of the picture is written as operations: taking off the
mean and the variance, the network, peaks, boxes, and of boxes that overlap the best, by its own guess.
"""

import numpy as np

from neocog.network.onnx import FLOAT, OnnxGraph, Value
from neocog.vision.finder import CELL, FLOOR, MULTIPLE, SURE, UNIT, WINDOW, FinderSettings
from neocog.vision.finder_model import FinderModel, add_network


def finder_to_onnx(model: FinderModel) -> bytes:
    """Return the finder as ONNX.

    Input ``grey`` uint8 (H, W), both above 24. Outputs, best first, those that are sure enough: ``boxes``
    float32 (N, 4), left, top, width, height in pixels; ``scores`` float32 (N,); ``kinds`` int64 (N,), 0 .. 9
    for a digit, 10 + k for the sign ``SIGNS[k]``.
    """
    graph, settings = OnnxGraph("finder"), FinderSettings()
    middle, size, scores, kinds = _marks(graph, add_network(graph, model, _normalised(graph)), settings)
    boxes = graph.add("Unsqueeze", graph.add("Concat", middle, size, axis=1), np.array([0]))
    limits = np.array([settings.most]), np.array([settings.overlap], np.float32)
    every = graph.add("Unsqueeze", scores, np.array([0, 1]))
    kept = graph.add("NonMaxSuppression", boxes, every, *limits, center_point_box=1)
    kept = graph.add("Gather", kept, np.array(2), axis=1)
    middle, size = (graph.add("Gather", x, kept, axis=0) for x in (middle, size))
    corner = graph.add("Sub", middle, graph.add("Div", size, np.float32(2)))
    graph.add("Concat", corner, size, axis=1, out="boxes")
    graph.add("Gather", scores, kept, axis=0, out="scores")
    graph.add("Gather", kinds, kept, axis=0, out="kinds")
    outputs: dict[str, Value] = {"boxes": ("float32", ("N", 4)), "scores": ("float32", ("N",))}
    outputs["kinds"] = ("int64", ("N",))
    return graph.to_bytes({"grey": ("uint8", ("H", "W"))}, outputs, model=model.id)


def _normalised(graph: OnnxGraph) -> str:
    """(g - mean) / sqrt(variance + FLOOR^2), and zeros up to multiples of 16: (1, 1, H', W')."""
    grey = graph.add("Cast", "grey", to=FLOAT)
    g = graph.add("Unsqueeze", grey, np.array([0, 1]))
    reach = WINDOW // 2
    margins = np.array([0, 0, reach, reach] * 2)
    wide = graph.add("Pad", g, margins, mode="reflect")
    squares = graph.add("Mul", wide, wide)
    rows = (graph.add("AveragePool", x, kernel_shape=[1, WINDOW]) for x in (wide, squares))
    mean, square = (graph.add("AveragePool", x, kernel_shape=[WINDOW, 1]) for x in rows)
    variance = graph.add("Relu", graph.add("Sub", square, graph.add("Mul", mean, mean)))
    spread = graph.add("Sqrt", graph.add("Add", variance, np.float32(FLOOR**2)))
    x = graph.add("Div", graph.add("Sub", g, mean), spread)
    missing = graph.add("Mod", graph.add("Neg", graph.add("Shape", x)), np.array([1, 1, MULTIPLE, MULTIPLE]))
    pads = graph.add("Concat", np.zeros(4, np.int64), missing, axis=0)
    return graph.add("Pad", x, pads, out="x")


def _marks(graph: OnnxGraph, maps: str, settings: FinderSettings) -> tuple[str, str, str, str]:
    """Peaks as middles (N, 2), sizes (N, 2), scores (N,) and kinds (N,)."""

    def columns(x: str, first: int, last: int, axis: int = 1) -> str:
        return graph.add("Slice", x, np.array([first]), np.array([last]), np.array([axis]))

    told = columns(maps, 0, 2)
    best = graph.add("ReduceMax", told, axes=[1], keepdims=1)
    around = graph.add("MaxPool", best, kernel_shape=[3, 3], pads=[1] * 4)
    peak = graph.add("GreaterOrEqual", best, around)
    least = np.float32(np.log(settings.score / (1 - settings.score)))
    marks = graph.add("And", peak, graph.add("GreaterOrEqual", told, least))
    place = graph.add("Transpose", graph.add("NonZero", marks), perm=[1, 0])  # 0, which, row, column
    at = graph.add(
        "GatherND",
        graph.add("Squeeze", graph.add("Transpose", maps, perm=[0, 2, 3, 1]), np.array([0])),
        columns(place, 2, 4),
    )
    size = graph.add("Exp", graph.add("Clip", columns(at, 2, 4), np.float32(-4), np.float32(4)))
    size = graph.add("Mul", size, np.float32(UNIT))
    cell = graph.add("Cast", graph.add("Gather", place, np.array([3, 2]), axis=1), to=FLOAT)
    offset = graph.add("Add", columns(at, 4, 6), np.float32(0.5))
    middle = graph.add("Mul", graph.add("Add", cell, offset), np.float32(CELL))
    which = graph.add("Gather", place, np.array(1), axis=1)
    sign = graph.add("Equal", which, np.array(1))
    digit, mark = (graph.add("Gather", at, np.array(i), axis=1) for i in (0, 1))
    sure = graph.add("Where", sign, mark, digit)
    scores = graph.add("Sigmoid", graph.add("Clip", sure, np.float32(-SURE), np.float32(SURE)))
    figure = graph.add("ArgMax", columns(at, 6, 16), axis=1, keepdims=0)
    other = graph.add("ArgMax", columns(at, 16, 2**31), axis=1, keepdims=0)
    kinds = graph.add("Where", sign, graph.add("Add", other, np.array(10)), figure)
    return middle, size, scores, kinds
