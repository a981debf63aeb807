"""The whole finder as an ONNX file for other runtimes."""

import numpy as np

from neocog.network.onnx import FLOAT, OnnxGraph, Value
from neocog.vision.finder import CELL, FLOOR, MULTIPLE, SURE, UNIT, WINDOW, FinderSettings
from neocog.vision.finder_model import FinderModel, add_network


def finder_to_onnx(model: FinderModel) -> bytes:
    """Return the finder as ONNX: what `neocog.vision.finder` does for one size, marks by their own guess.

    Input ``grey`` uint8 (H, W), both above 24. Outputs, best first, those that are sure enough: ``boxes``
    float32 (N, 4), left, top, width, height in pixels; ``scores`` float32 (N,); ``kinds`` int64 (N,), 0 .. 9
    for a digit, 10 + k for the sign ``SIGNS[k]``.
    """
    graph, settings = OnnxGraph("finder"), FinderSettings()
    add, of = graph.add, np.float32
    # (g - mean) / sqrt(variance + FLOOR^2), and zeros up to multiples of 16: (1, 1, H', W')
    g, reach = add("Unsqueeze", add("Cast", "grey", to=FLOAT), np.array([0, 1])), WINDOW // 2
    wide = add("Pad", g, np.array([0, 0, reach, reach] * 2), mode="reflect")
    rows = (add("AveragePool", x, kernel_shape=[1, WINDOW]) for x in (wide, add("Mul", wide, wide)))
    mean, square = (add("AveragePool", x, kernel_shape=[WINDOW, 1]) for x in rows)
    variance = add("Relu", add("Sub", square, add("Mul", mean, mean)))
    x = add("Div", add("Sub", g, mean), add("Sqrt", add("Add", variance, of(FLOOR**2))))
    missing = add("Mod", add("Neg", add("Shape", x)), np.array([1, 1, MULTIPLE, MULTIPLE]))
    maps = add_network(
        graph, model, add("Pad", x, add("Concat", np.zeros(4, np.int64), missing, axis=0), out="x")
    )

    def columns(x: str, first: int, last: int) -> str:
        return add("Slice", x, np.array([first]), np.array([last]), np.array([1]))

    # peaks: middles (N, 2), sizes (N, 2), scores (N,) and kinds (N,)
    told = columns(maps, 0, 2)
    best = add("ReduceMax", told, axes=[1], keepdims=1)
    peak = add("GreaterOrEqual", best, add("MaxPool", best, kernel_shape=[3, 3], pads=[1] * 4))
    least = of(np.log(settings.score / (1 - settings.score)))
    marks = add("And", peak, add("GreaterOrEqual", told, least))
    place = add("Transpose", add("NonZero", marks), perm=[1, 0])  # 0, which, row, column
    values = add("Squeeze", add("Transpose", maps, perm=[0, 2, 3, 1]), np.array([0]))
    at = add("GatherND", values, columns(place, 2, 4))
    size = add("Mul", add("Exp", add("Clip", columns(at, 2, 4), of(-4), of(4))), of(UNIT))
    cell = add("Cast", add("Gather", place, np.array([3, 2]), axis=1), to=FLOAT)
    middle = add("Mul", add("Add", cell, add("Add", columns(at, 4, 6), of(0.5))), of(CELL))
    sign = add("Equal", add("Gather", place, np.array(1), axis=1), np.array(1))
    digit, mark = (add("Gather", at, np.array(i), axis=1) for i in (0, 1))
    scores = add("Sigmoid", add("Clip", add("Where", sign, mark, digit), of(-SURE), of(SURE)))
    figure, other = (add("ArgMax", columns(at, *some), axis=1, keepdims=0) for some in ((6, 16), (16, 2**31)))
    kinds = add("Where", sign, add("Add", other, np.array(10)), figure)

    boxes = add("Unsqueeze", add("Concat", middle, size, axis=1), np.array([0]))
    limits = np.array([settings.most]), np.array([settings.overlap], np.float32)
    every = add("Unsqueeze", scores, np.array([0, 1]))
    kept = add("NonMaxSuppression", boxes, every, *limits, center_point_box=1)
    kept = add("Gather", kept, np.array(2), axis=1)
    middle, size = (add("Gather", x, kept, axis=0) for x in (middle, size))
    add("Concat", add("Sub", middle, add("Div", size, of(2))), size, axis=1, out="boxes")
    add("Gather", scores, kept, axis=0, out="scores")
    add("Gather", kinds, kept, axis=0, out="kinds")
    outputs: dict[str, Value] = {"boxes": ("float32", ("N", 4)), "scores": ("float32", ("N",))}
    outputs["kinds"] = ("int64", ("N",))
    return graph.to_bytes({"grey": ("uint8", ("H", "W"))}, outputs, model=model.id)
