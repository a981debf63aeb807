"""A model as an ONNX file, for other runtimes: from digits to answers.

The S-layers are written as they are computed here, max(0, sum a' u - theta' v) / (v + s), see
:func:`neocog.network.s_layer.s_constants`; a C-layer is one depthwise strided convolution and its
saturation. Names of outputs inside the graph are those of the layers, ``U0`` .. ``UC4``.
"""

import numpy as np

from neocog.network.decision import planes_of_labels
from neocog.network.fields import contrast_kernel, pooled
from neocog.network.layers import s_constants
from neocog.network.model import Model, SWeights
from neocog.network.onnx_graph import FLOAT, OnnxGraph, Value
from neocog.network.spec import REJECT, ContrastSpec, SSpec
from neocog.network.u0 import DIGIT_SIZE, enlarging_matrix


def model_to_onnx(model: Model, *, maps: bool = False) -> bytes:
    """Return the network as ONNX.

    Input ``digits`` uint8 (B, 28, 28), ink 255 on paper 0. Outputs ``label`` int64 (B,), 0 .. 9 or
    -1 for no digit; ``p`` float32 (B,), its probability; ``scores`` float32 (B, 10), or (B, 11)
    with planes that reject. With ``maps`` every layer's maps (B, K, H, W) besides.
    """
    graph = OnnxGraph(model.name)
    ink = graph.add("Div", graph.add("Cast", "digits", to=FLOAT), np.float32(255))
    r = enlarging_matrix()
    u0 = graph.add("MatMul", graph.add("MatMul", r, ink), r.T)
    u = graph.add("Unsqueeze", u0, np.array([1]), out="U0")
    u = _contrast(graph, u, model.spec.contrast)
    for i, (spec, weights) in enumerate(zip(model.spec.s, model.s, strict=True)):
        u = _s_layer(graph, u, spec, weights, f"US{i + 1}")
        if i < 3:
            u = _c_layer(graph, u, model, i)
    _answers(graph, u, model)
    outputs: dict[str, Value] = {
        "label": ("int64", ("B",)),
        "p": ("float32", ("B",)),
        "scores": ("float32", ("B", model.classes)),
    }
    if maps:
        graph.add("Unsqueeze", "scores", np.array([2, 3]), out="UC4")
        for layer in model.spec.layers(model.planes):
            planes = model.classes if layer.name == "UC4" else layer.planes or 1
            outputs[layer.name] = ("float32", ("B", planes, layer.size, layer.size))
    digits = {"digits": ("uint8", ("B", DIGIT_SIZE, DIGIT_SIZE))}
    return graph.to_bytes(digits, outputs, model=model.id)


def _contrast(graph: OnnxGraph, u: str, spec: ContrastSpec) -> str:
    """UG: both planes by one convolution with a_G and -a_G, silence, rectification."""
    a = contrast_kernel(spec)
    y = graph.add("Conv", u, np.stack([a, -a])[:, None], pads=[spec.padding] * 4)
    heard = graph.add("Greater", y, np.float32(spec.silence))
    return graph.add("Where", heard, y, np.float32(0), out="UG")


def _s_layer(graph: OnnxGraph, u: str, spec: SSpec, weights: SWeights, name: str) -> str:
    """An S-layer: excitation, inhibition, shunting, rectification."""
    a, theta, silence = s_constants(weights)
    pads = [spec.padding] * 4
    excitation = graph.add("Conv", u, a, pads=pads)
    energy = graph.add("ReduceSum", graph.add("Mul", u, u), np.array([1]))
    v = graph.add("Sqrt", graph.add("Conv", energy, weights.c[None, None], pads=pads))
    above = graph.add("Sub", excitation, graph.add("Mul", v, theta))
    floor = graph.add("Add", v, silence[None, :, None, None])
    return graph.add("Div", graph.add("Relu", above), floor, out=name)


def _c_layer(graph: OnnxGraph, u: str, model: Model, stage: int) -> str:
    """A C-layer: blur and pooling as one depthwise convolution of stride 2, then psi."""
    spec, name = model.spec.c[stage], f"UC{stage + 1}"
    planes = len(model.s[stage].reference)
    a = pooled(model.blurs[stage].astype(np.float64))
    y = graph.add(
        "Conv", u, np.broadcast_to(a, (planes, 1, spec.kernel, spec.kernel)),
        pads=[spec.padding] * 4, strides=[spec.stride] * 2, group=planes,
    )  # fmt: skip
    y = graph.add("Relu", y)
    if model.psi == "sqrt":
        return graph.add("Sqrt", y, out=name)
    return graph.add("Div", y, graph.add("Add", y, np.float32(1)), out=name)


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
