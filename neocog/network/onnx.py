"""Models as ONNX files for other runtimes, from pixels to answers, written without the package onnx.

ONNX is Protocol Buffers; the few messages that are needed are written field by field, with the numbers of
fields and types of onnx.proto3 of ONNX 1.16. Inside a model's graph outputs have the names of the layers,
``U0`` .. ``UC4``.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from neocog.network.decision import planes_of_labels
from neocog.network.lines import BESIDE, MARGIN, MULTIPLE, ROWS, LineModel
from neocog.network.model import Model, s_constants
from neocog.network.spec import REJECT, contrast_kernel, pooled
from neocog.network.u0 import DIGIT_SIZE, enlarging_matrix

OPSET = 13  #: version of ONNX's operations that graphs are written in
#: Type and sides of an input or output; a name stands for any size.
Value = tuple[str, tuple[int | str, ...]]
_TYPES = {"float32": 1, "uint8": 2, "int64": 7, "bool": 9}
FLOAT = _TYPES["float32"]


class OnnxGraph:
    """A graph, to which operations and constants are added in the order in which they run."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: list[bytes] = []
        self._constants: dict[str, bytes] = {}

    def add(self, op: str, *inputs: Any, out: str = "", **attributes: Any) -> str:
        """Append an operation on names, or arrays, which become constants; return the name of its output."""
        out = out or f"n{len(self._nodes)}"
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        node = b"".join(_field(1, name) for name in names) + _field(2, out) + _field(3, out) + _field(4, op)
        for name, value in attributes.items():
            if isinstance(value, str):
                attribute = _field(4, value) + _field(20, 3)
            elif isinstance(value, int):
                attribute = _field(3, value) + _field(20, 2)
            else:
                attribute = b"".join(_field(8, one) for one in value) + _field(20, 7)
            node += _field(5, _field(1, name) + attribute)
        self._nodes.append(node)
        return out

    def constant(self, value: Any, name: str = "") -> str:
        """Keep an array (floats as float32) and return its name."""
        array = np.asarray(value)
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        name = name or f"c{len(self._constants)}"
        dims = b"".join(_field(1, side) for side in array.shape)
        data = array.astype(array.dtype.newbyteorder("<")).tobytes()
        self._constants[name] = dims + _field(2, _TYPES[array.dtype.name]) + _field(8, name) + _field(9, data)
        return name

    def to_bytes(self, inputs: Mapping[str, Value], outputs: Mapping[str, Value], **facts: str) -> bytes:
        """Return the file; ``facts`` go into its metadata."""
        graph = [_field(1, node) for node in self._nodes] + [_field(2, self._name)]
        graph += [_field(5, constant) for constant in self._constants.values()]
        for number, values in ((11, inputs), (12, outputs)):
            for name, (dtype, shape) in values.items():
                sides = (_field(1, _field(1 if isinstance(side, int) else 2, side)) for side in shape)
                tensor = _field(1, _field(1, _TYPES[dtype]) + _field(2, b"".join(sides)))
                graph.append(_field(number, _field(1, name) + _field(2, tensor)))
        told = [_field(14, _field(1, name) + _field(2, fact)) for name, fact in facts.items()]
        opset = _field(8, _field(1, "") + _field(2, OPSET))
        version = _field(1, 8) + _field(2, "neocog")  # of the format, and who wrote it
        return b"".join([version, opset, _field(7, b"".join(graph)), *told])


def _field(number: int, value: int | str | bytes) -> bytes:
    """A field of a message: an integer, or a text or another message after its length."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value % 2**64)
    content = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def model_to_onnx(model: Model, *, maps: bool = False) -> bytes:
    """Return the network as ONNX.

    Input ``digits`` uint8 (B, 28, 28), ink 255 on paper 0. Outputs ``label`` int64 (B,), 0 .. 9 or -1 for no
    digit; ``p`` float32 (B,), its probability; ``scores`` float32 (B, 10), or (B, 11) with planes that
    reject. With ``maps`` every layer's maps (B, K, H, W) besides.
    """
    graph = OnnxGraph(model.name)
    ink = graph.add("Div", graph.add("Cast", "digits", to=FLOAT), np.float32(255))
    r = enlarging_matrix()
    u0 = graph.add("MatMul", graph.add("MatMul", r, ink), r.T)
    _answers(graph, _layers(graph, u0, model, dense=False), model)
    outputs: dict[str, Value] = {"label": ("int64", ("B",)), "p": ("float32", ("B",))}
    outputs["scores"] = ("float32", ("B", model.classes))
    if maps:
        graph.add("Unsqueeze", "scores", np.array([2, 3]), out="UC4")
        for layer in model.spec.layers(model.planes):
            planes = model.classes if layer.name == "UC4" else layer.planes or 1
            outputs[layer.name] = ("float32", ("B", planes, layer.size, layer.size))
    digits = {"digits": ("uint8", ("B", DIGIT_SIZE, DIGIT_SIZE))}
    return graph.to_bytes(digits, outputs, model=model.id)


def lines_to_onnx(model: LineModel, *, maps: bool = False) -> bytes:
    """Return a network of lines as ONNX.

    Input ``ink`` float32 (B, 48, w), 0 paper .. 1 ink, of any width. Output ``log_likelihoods`` float32 (B,
    columns(w), n); the metadata hold the alphabet, after whose characters comes the blank. With ``maps``
    every layer's maps besides, see :func:`neocog.network.reference.respond_line`.
    """
    graph, head = OnnxGraph(model.name), model.head
    width = graph.add("Gather", graph.add("Shape", "ink"), np.array([2]))
    more = graph.add("Mod", graph.add("Neg", width), np.array([MULTIPLE]))
    right = graph.add("Add", more, np.array([MARGIN + 1]))
    pads = graph.add("Concat", np.array([0, MARGIN, MARGIN, 0, MARGIN + 1]), right, axis=0)
    u0 = graph.add("Pad", graph.add("Clip", "ink", np.float32(0), np.float32(1)), pads)
    us4 = _layers(graph, u0, model.digits, dense=True)
    y, mean = (graph.add(op, us4, axes=[2], keepdims=0) for op in ("ReduceMax", "ReduceMean"))
    x = uc4 = graph.add("Concat", y, mean, axis=1)
    for w, b in zip(head.weights, head.biases, strict=True):
        x = graph.add("Conv", graph.add("Relu", x), w, b, pads=[w.shape[2] // 2] * 2)  # UC4 is not negative
    z = graph.add("Add", graph.add("Conv", y, head.own[:, :, None], head.bias), x, out="Z")
    count = graph.add("Div", graph.add("Add", width, np.array([27])), np.array([4]))  # columns(w)
    own = graph.add("Slice", z, np.array([0]), count, np.array([2]))
    odds = graph.add("LogSoftmax", graph.add("Div", own, np.float32(model.temperature)), axis=1)
    graph.add("Transpose", odds, perm=[0, 2, 1], out="log_likelihoods")
    n = len(model.alphabet) + 1
    outputs: dict[str, Value] = {"log_likelihoods": ("float32", ("B", "columns", n))}
    if maps:
        planes = model.digits.planes
        graph.add("Reshape", uc4, np.array([0, 2, planes[2], -1]), out="UC4")
        for layer in model.spec.layers(planes):
            sides = (2, planes[2]) if layer.name == "UC4" else (layer.planes or 1, layer.size)
            outputs[layer.name] = ("float32", ("B", *sides, layer.name))
        outputs["Z"] = ("float32", ("B", n, "UC4"))
    ink = {"ink": ("float32", ("B", ROWS, "w"))}
    return graph.to_bytes(ink, outputs, model=model.id, alphabet=model.alphabet)


def _layers(graph: OnnxGraph, u0: str, model: Model, *, dense: bool) -> str:
    """The layers of U0 (B, 65, W) up to US4; ``dense`` as along a strip."""
    ug, a = model.spec.contrast, contrast_kernel(model.spec.contrast)
    u = graph.add("Unsqueeze", u0, np.array([1]), out="U0")
    y = graph.add("Conv", u, np.stack([a, -a])[:, None], pads=[ug.padding] * 4)
    u = graph.add("Where", graph.add("Greater", y, np.float32(ug.silence)), y, np.float32(0), out="UG")
    for i, weights in enumerate(model.s):
        # max(0, sum a' u - theta' v) / (v + s)
        last, padding = dense and i == 3, model.spec.s[i].padding
        pads, dilations = [padding, padding + BESIDE * last] * 2, [1, 1 + last]
        a, theta, silence = s_constants(weights)
        excitation = graph.add("Conv", u, a, pads=pads, dilations=dilations)
        energy = graph.add("ReduceSum", graph.add("Mul", u, u), np.array([1]))
        square = graph.add("Conv", energy, weights.c[None, None], pads=pads, dilations=dilations)
        v = graph.add("Sqrt", square)
        above = graph.add("Relu", graph.add("Sub", excitation, graph.add("Mul", v, theta)))
        u = graph.add("Div", above, graph.add("Add", v, silence[None, :, None, None]), out=f"US{i + 1}")
        if i == 3:
            break
        # blur and pooling as one depthwise convolution, then psi
        spec, planes = model.spec.c[i], len(a)
        a = np.broadcast_to(pooled(model.blurs[i].astype(np.float64)), (planes, 1, spec.kernel, spec.kernel))
        strides = [spec.stride, 1 if dense and i == 2 else spec.stride]
        y = graph.add("Relu", graph.add("Conv", u, a, pads=[spec.padding] * 4, strides=strides, group=planes))
        more = () if model.psi == "sqrt" else (graph.add("Add", y, np.float32(1)),)
        u = graph.add("Div" if more else "Sqrt", y, *more, out=f"UC{i + 1}")
    return u


def _answers(graph: OnnxGraph, us4: str, model: Model) -> None:
    """UC4, the strongest plane of each label, and what follows: scores, label, p."""
    index, present = planes_of_labels(model)
    strongest = graph.add("ReduceMax", us4, axes=[2, 3], keepdims=0)
    planes = graph.add("Mul", graph.add("Gather", strongest, index, axis=1), present)
    score = graph.add("ReduceMax", planes, axes=[2], keepdims=0, out="scores")
    best = graph.add("ReduceMax", score, axes=[1], keepdims=1)
    odds = graph.add("Div", graph.add("Sub", score, best), np.float32(model.temperature))
    total = graph.add("ReduceSum", graph.add("Exp", odds), np.array([1]), keepdims=0)
    first = graph.add("ArgMax", score, axis=1, keepdims=0)
    heard = graph.add("Greater", graph.add("Squeeze", best, np.array([1])), np.float32(0))
    sure = graph.add("And", heard, graph.add("Less", first, np.array(REJECT)))
    graph.add("Where", sure, first, np.array(-1), out="label")
    graph.add("Where", sure, graph.add("Reciprocal", total), np.float32(0), out="p")
