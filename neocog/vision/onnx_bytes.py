"""A list of operations as an ONNX file, written without the package onnx.

ONNX is Protocol Buffers; the few messages that are needed are written field by field. Numbers of
fields: onnx.proto3 of ONNX 1.16.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_OPSET, _IR = 13, 8
_FLOAT = 1  # TensorProto.FLOAT
_RESIZE = {
    "coordinate_transformation_mode": "asymmetric",
    "mode": "nearest",
    "nearest_mode": "floor",
}
_SCALES = "scales"


def onnx_bytes(
    nodes: Sequence[Mapping[str, Any]],
    tensors: Mapping[str, NDArray[np.float32]],
    *,
    shape: tuple[int | str, ...] = (1, 1, "H", "W"),
) -> bytes:
    """Write a graph from the input ``x`` to what its last node makes.

    Parameters
    ----------
    nodes : sequence of mapping
        ``op``, ``inputs``, ``output``; a Conv has ``stride``, ``groups``, ``padding`` and
        ``dilation`` too, a Resize doubles rows and columns.
    tensors : mapping
        Weights by name.
    shape : tuple
        Of the input, (B, K, H, W); a name stands for any size.
    """
    output = nodes[-1]["output"]
    scales = np.array([1, 1, 2, 2], np.float32)
    weights = {**tensors, _SCALES: scales}
    graph = b"".join([
        *(_message(1, _node(node)) for node in nodes),
        _text(2, "finder"),
        *(_message(5, _tensor(name, value)) for name, value in weights.items()),
        _message(11, _value("x", shape)),
        _message(12, _value(output, (shape[0], "C", "h", "w"))),
    ])  # fmt: skip
    opset = _text(1, "") + _integer(2, _OPSET)
    return _integer(1, _IR) + _message(8, opset) + _message(7, graph)


def _node(node: Mapping[str, Any]) -> bytes:
    inputs, attributes = list(node["inputs"]), b""
    if node["op"] == "Conv":
        attributes = b"".join([
            _integers("strides", [node["stride"]] * 2), _integers("pads", [node["padding"]] * 4),
            _integers("dilations", [node["dilation"]] * 2), _whole("group", node["groups"]),
        ])  # fmt: skip
    elif node["op"] == "Concat":
        attributes = _whole("axis", 1)
    elif node["op"] == "Resize":
        inputs += ["", _SCALES]
        attributes = b"".join(_word(name, value) for name, value in _RESIZE.items())
    begin = b"".join(_text(1, name) for name in inputs) + _text(2, node["output"])
    return begin + _text(3, node["output"]) + _text(4, node["op"]) + attributes


def _tensor(name: str, value: NDArray[np.float32]) -> bytes:
    dims = b"".join(_integer(1, side) for side in value.shape)
    return dims + _integer(2, _FLOAT) + _text(8, name) + _message(9, value.astype("<f4").tobytes())


def _value(name: str, shape: Iterable[int | str]) -> bytes:
    sides = b"".join(
        _message(1, _integer(1, side) if isinstance(side, int) else _text(2, side))
        for side in shape
    )
    kind = _message(1, _integer(1, _FLOAT) + _message(2, sides))
    return _text(1, name) + _message(2, kind)


def _whole(name: str, value: int) -> bytes:
    return _message(5, _text(1, name) + _integer(3, value) + _integer(20, 2))


def _word(name: str, value: str) -> bytes:
    return _message(5, _text(1, name) + _text(4, value) + _integer(20, 3))


def _integers(name: str, values: Sequence[int]) -> bytes:
    return _message(5, _text(1, name) + b"".join(_integer(8, v) for v in values) + _integer(20, 7))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _text(field: int, value: str) -> bytes:
    return _message(field, value.encode())
