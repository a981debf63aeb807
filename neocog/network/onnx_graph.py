"""A graph of operations as an ONNX file, written without the package onnx.

ONNX is Protocol Buffers; the few messages that are needed are written field by field. Numbers of
fields and types: onnx.proto3 of ONNX 1.16.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Version of ONNX's operations that graphs are written in.
OPSET = 13
_IR = 8
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
        """Append an operation and return the name of its output.

        ``inputs`` are names, or arrays, which become constants; ``out`` names the output.
        """
        out = out or f"n{len(self._nodes)}"
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        self._nodes.append(
            b"".join(_text(1, name) for name in names)
            + _text(2, out) + _text(3, out) + _text(4, op)
            + b"".join(_message(5, _attribute(name, own)) for name, own in attributes.items())
        )  # fmt: skip
        return out

    def constant(self, value: Any, name: str = "") -> str:
        """Keep an array (floats as float32) and return its name."""
        array = np.asarray(value)
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        name = name or f"c{len(self._constants)}"
        self._constants[name] = _tensor(name, array)
        return name

    def to_bytes(self, inputs: Mapping[str, Value], outputs: Mapping[str, Value], **facts: str) -> bytes:
        """Return the file; ``facts`` go into its metadata."""
        graph = b"".join([
            *(_message(1, node) for node in self._nodes),
            _text(2, self._name),
            *(_message(5, constant) for constant in self._constants.values()),
            *(_message(11, _value(name, value)) for name, value in inputs.items()),
            *(_message(12, _value(name, value)) for name, value in outputs.items()),
        ])  # fmt: skip
        opset = _text(1, "") + _integer(2, OPSET)
        told = [_message(14, _text(1, name) + _text(2, fact)) for name, fact in facts.items()]
        return b"".join([_integer(1, _IR), _text(2, "neocog"), _message(8, opset),
                         _message(7, graph), *told])  # fmt: skip


def _attribute(name: str, value: Any) -> bytes:
    if isinstance(value, str):
        return _text(1, name) + _text(4, value) + _integer(20, 3)
    if isinstance(value, int):
        return _text(1, name) + _integer(3, value) + _integer(20, 2)
    return _text(1, name) + b"".join(_integer(8, own) for own in value) + _integer(20, 7)


def _tensor(name: str, value: NDArray[Any]) -> bytes:
    dims = b"".join(_integer(1, side) for side in value.shape)
    data = value.astype(value.dtype.newbyteorder("<")).tobytes()
    return dims + _integer(2, _TYPES[value.dtype.name]) + _text(8, name) + _message(9, data)


def _value(name: str, value: Value) -> bytes:
    dtype, shape = value
    sides: Iterable[bytes] = (
        _message(1, _integer(1, side) if isinstance(side, int) else _text(2, side)) for side in shape
    )
    kind = _message(1, _integer(1, _TYPES[dtype]) + _message(2, b"".join(sides)))
    return _text(1, name) + _message(2, kind)


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value % 2**64)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _text(field: int, value: str) -> bytes:
    return _message(field, value.encode())
