"""A model as an ONNX graph, U0 -> US4, for other runtimes.

The S-layers are written as they are computed here, max(0, sum a' u - theta' v) / (v + 1/(theta b)),
a C-layer as one depthwise strided convolution and its saturation.
"""

from typing import Any

import numpy as np

from neocog.errors import UsageError
from neocog.network.fields import contrast_kernel, pooled
from neocog.network.layers import s_constants
from neocog.network.model import Model, SWeights
from neocog.network.spec import INPUT_SIZE, SSpec


def to_onnx(model: Model) -> bytes:
    """Return the network from ``u0`` (B, 1, 65, 65) to ``us4`` (B, K4, 5, 5) as ONNX, opset 17.

    Raises
    ------
    UsageError
        If the package onnx is not installed.
    """
    try:
        import onnx
    except ImportError:
        raise UsageError("onnx is not installed; install neocog[onnx]") from None
    graph = _Graph(onnx)
    u = graph.contrast(model)
    for i, (spec, weights) in enumerate(zip(model.spec.s, model.s, strict=True)):
        u = graph.s_layer(u, spec, weights, f"US{i + 1}")
        if i < 3:
            u = graph.c_layer(u, model, i)
    planes = model.planes[2]
    size = model.spec.size("US4")
    value = onnx.helper.make_tensor_value_info
    made = onnx.helper.make_graph(
        graph.nodes,
        "neocog",
        [value("u0", onnx.TensorProto.FLOAT, ["B", 1, INPUT_SIZE, INPUT_SIZE])],
        [value(u, onnx.TensorProto.FLOAT, ["B", planes, size, size])],
        graph.constants,
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    proto = onnx.helper.make_model(made, opset_imports=opset, ir_version=8)
    onnx.checker.check_model(proto)
    data: bytes = proto.SerializeToString()
    return data


class _Graph:
    """Nodes and constants of a graph, as they are added."""

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def _add(self, op: str, *inputs: str, name: str, **attributes: Any) -> str:
        self.nodes.append(self._onnx.helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def _constant(self, name: str, value: Any) -> str:
        array = np.ascontiguousarray(value, dtype=np.float32)
        self.constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def contrast(self, model: Model) -> str:
        """UG: both planes by one convolution with a_G and -a_G, silence, rectification."""
        spec = model.spec.contrast
        a = contrast_kernel(spec)
        w = self._constant("UG.w", np.stack([a, -a])[:, None])
        y = self._add("Conv", "u0", w, name="UG.y", pads=[spec.padding] * 4)
        heard = self._add("Greater", y, self._constant("UG.silence", spec.silence), name="UG.heard")
        return self._add("Where", heard, y, self._constant("zero", 0), name="UG")

    def s_layer(self, u: str, spec: SSpec, weights: SWeights, name: str) -> str:
        """An S-layer: excitation, inhibition, shunting, rectification."""
        a, theta, silence = s_constants(weights)
        pads = [spec.padding] * 4
        e = self._add("Conv", u, self._constant(f"{name}.a", a), name=f"{name}.e", pads=pads)
        square = self._add("Mul", u, u, name=f"{name}.square")
        energy = self._add("ReduceSum", square, self._axis(), name=f"{name}.energy", keepdims=1)
        c = self._constant(f"{name}.c", weights.c[None, None])
        v2 = self._add("Conv", energy, c, name=f"{name}.v2", pads=pads)
        v = self._add("Sqrt", v2, name=f"{name}.v")
        tv = self._add("Mul", v, self._constant(f"{name}.theta", theta), name=f"{name}.tv")
        above = self._add("Relu", self._add("Sub", e, tv, name=f"{name}.d"), name=f"{name}.above")
        floor = self._constant(f"{name}.silence", silence[None, :, None, None])
        return self._add("Div", above, self._add("Add", v, floor, name=f"{name}.n"), name=name)

    def _axis(self) -> str:
        if not any(c.name == "axis" for c in self.constants):
            axis = np.array([1], dtype=np.int64)
            self.constants.append(self._onnx.numpy_helper.from_array(axis, "axis"))
        return "axis"

    def c_layer(self, u: str, model: Model, stage: int) -> str:
        """A C-layer: blur and pooling as one depthwise convolution of stride 2, then psi."""
        spec, name = model.spec.c[stage], f"UC{stage + 1}"
        planes = model.s[stage].reference.shape[0]
        w = np.broadcast_to(
            pooled(model.blurs[stage].astype(np.float64)),
            (planes, 1, spec.kernel, spec.kernel),
        )
        y = self._add(
            "Conv",
            u,
            self._constant(f"{name}.w", w),
            name=f"{name}.y",
            pads=[spec.padding] * 4,
            strides=[spec.stride] * 2,
            group=planes,
        )
        y = self._add("Relu", y, name=f"{name}.r")
        if model.psi == "sqrt":
            return self._add("Sqrt", y, name=name)
        one = "one"
        if not any(c.name == one for c in self.constants):
            self._constant(one, 1)
        return self._add("Div", y, self._add("Add", y, one, name=f"{name}.1"), name=name)
