"""The finder's file, and its network in OpenCV's dnn.

The file is safetensors; its metadata hold the network as a list of operations (JSON), which is
written as ONNX in memory. Before OpenCV sees it, the shape of every map is followed from operation to
operation; see `_check`.
"""

import hashlib
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from neocog.errors import ModelError
from neocog.files import atomic_write
from neocog.network.model import header_json
from neocog.network.onnx import OnnxGraph, Value
from neocog.text import reason_of, to_json
from neocog.vision.finder import CELL, LONG_SIDE, MULTIPLE, SIGNS, Maps

FORMAT = "neocog finder 1"
_READS = {"Conv": 1, "Relu": 1, "Add": 2, "Resize": 1}  # maps that each operation reads; there are no others
OUTPUTS = 6 + 10 + len(SIGNS)
MAX_BYTES = 1 << 20  # of a file: the shipped one has 596 296
MAX_VALUES, MAX_PRODUCTS = 200_000_000, 10_000_000_000
"""Values of all maps of a page of LONG_SIDE pixels square, and products: the shipped finder has 84 million
and 2.6e9."""
MAX_ANSWER = 1e4  # logits, logarithms and cells of the shipped finder stay below 100
_MOST = 400  # operations
_WIDEST = 9  # rows and columns of a kernel, and places between its taps


@dataclass(frozen=True, slots=True)
class FinderModel:
    """A learned finder."""

    #: ``op``, ``inputs``, ``output``; a Conv has ``stride``, ``groups``, ``padding`` and ``dilation`` too
    nodes: list[dict[str, Any]]
    tensors: dict[str, NDArray[np.float32]]
    card: dict[str, Any]  #: what it was learned from, by which command
    id: str  #: ``finder@`` and the first figures of the file's hash

    def onnx(self, channels: int = 1) -> bytes:
        """The network as ONNX, from ``x`` (1, channels, H, W)."""
        graph = OnnxGraph("finder")
        outputs: dict[str, Value] = {add_network(graph, self, "x"): ("float32", (1, "C", "h", "w"))}
        return graph.to_bytes({"x": ("float32", (1, channels, "H", "W"))}, outputs)


def add_network(graph: OnnxGraph, model: FinderModel, x: str) -> str:
    """Append the network's operations on ``x`` (1, C, H, W); return the name of its answer."""
    names = [*model.tensors, *(str(node["output"]) for node in model.nodes)]  # odd ones are left in the file
    own = {name: name if re.fullmatch(r"[mw]\d{1,4}", name) else f"n{k}" for k, name in enumerate(names)}
    for name, value in model.tensors.items():
        graph.constant(value, own[name])
    for node in model.nodes:
        inputs: list[Any] = [x if name == "x" else own[name] for name in node["inputs"]]
        more: dict[str, Any] = {}
        if node["op"] == "Conv":
            more = {"strides": [node["stride"]] * 2, "pads": [node["padding"]] * 4}
            more |= {"dilations": [node["dilation"]] * 2, "group": node["groups"]}
        elif node["op"] == "Resize":
            inputs += ["", np.array([1, 1, 2, 2], np.float32)]
            more = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
            more["mode"] = "nearest"
        graph.add(node["op"], *inputs, out=own[str(node["output"])], **more)
    return own[str(model.nodes[-1]["output"])]


def save_finder(
    path: Path, nodes: list[dict[str, Any]], tensors: dict[str, NDArray[np.float32]], card: dict[str, Any]
) -> None:
    """Write a finder's file, weights as float16."""
    from safetensors.numpy import save

    metadata = {"format": FORMAT, "nodes": to_json(nodes), "card": to_json(card)}
    halves = {name: value.astype(np.float16) for name, value in tensors.items()}
    with atomic_write(path) as stream:
        stream.write(save(halves, metadata=metadata))


def load_finder(path: str | Path) -> FinderModel:
    """Read a finder's file; ModelError if it is missing, broken, too large, or holds another thing."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        with Path(path).open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError(f"it is larger than {MAX_BYTES:,} bytes")
        metadata = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
        if metadata["format"] != FORMAT:
            raise ValueError(f"its format is {metadata['format']!r}")
        tensors = dict(sorted(load(data).items()))
        nodes, card = header_json(metadata["nodes"]), header_json(metadata["card"])
        if not isinstance(card, dict):
            raise ValueError("its card is not a JSON object")
        _check(nodes, tensors)
    except (OSError, SafetensorError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise ModelError(f"finder {path} cannot be used: {reason_of(error)}") from None
    tensors = {name: value.astype(np.float32) for name, value in tensors.items()}
    return FinderModel(nodes, tensors, card, f"finder@{hashlib.sha256(data).hexdigest()[:6]}")


def _want(right: bool, what: str) -> None:
    if not right:
        raise ValueError(what)


def _check(nodes: Any, tensors: dict[str, NDArray[Any]]) -> None:
    """Follow the operations on a page of LONG_SIDE pixels square; ValueError for what OpenCV must not see.

    A map is known by its planes and its cell, the pixels between two of its places, which divides
    MULTIPLE: every map is exactly 1 / cell as high and wide as the picture.
    """
    _want(isinstance(nodes, list) and 0 < len(nodes) <= _MOST, f"it has not 1 to {_MOST} operations")
    for name, value in tensors.items():
        _want(value.dtype in (np.float16, np.float32), f"{name!r} is {value.dtype}, not float16 or float32")
        _want(bool(np.isfinite(value).all()), f"{name!r} contains NaN or infinity")
    _want("x" not in tensors, "its tensor x has the name of the picture")
    maps, values, products = {"x": (1, 1)}, 0, 0
    for node in nodes:
        op, inputs, name = node["op"], node["inputs"], node["output"]
        here = f"operation {str(name)[:20]!r}"
        known = isinstance(op, str) and op in _READS
        _want(known, f"{here} is {str(op)[:20]!r}, not one of {', '.join(_READS)}")
        texts = isinstance(inputs, list) and all(isinstance(text, str) for text in (name, *inputs))
        free = texts and name not in maps and name not in tensors
        _want(free, f"{here}: its name is taken, or it has no names")
        _want(op == "Conv" or len(inputs) == _READS[op], f"{here} reads {len(inputs)} maps")
        read = [maps.get(one) for one in inputs[: _READS[op]]]
        if not read or None in read or len(set(read)) != 1:
            raise ValueError(f"{here} reads what is no map before it, or maps of two shapes")
        planes, cell = cast("tuple[int, int]", read[0])
        if op == "Conv":
            stride, groups, padding, dilation = (node[k] for k in ("stride", "groups", "padding", "dilation"))
            weights = [tensors[one].shape for one in inputs[1:]]
            fits = all(type(number) is int for number in (stride, groups, padding, dilation))
            fits = fits and bool(weights) and len(weights[0]) == 4 and weights[1:] in ([], [weights[0][:1]])
            if fits:
                out, of_group, side, wide = weights[0]
                fits = 0 < side == wide <= _WIDEST and 1 <= dilation <= _WIDEST and min(groups, stride) >= 1
                # exactly 1 / stride of the rows and columns, whatever multiple of the stride they are
                edge = 2 * padding - dilation * (side - 1) - 1
                fits = fits and -stride <= edge <= -1 and padding >= 0
                fits = fits and of_group * groups == planes and out % groups == 0
            _want(fits, f"{here}: its weights {weights} do not fit, or its numbers are not allowed")
            planes, cell = out, cell * stride
            products += planes * of_group * side * side * (LONG_SIDE // cell) ** 2
        elif op == "Resize":
            _want(cell > 1, f"{here} enlarges beyond the picture")
            cell //= 2
        _want(MULTIPLE % cell == 0, f"{here} has a place for {cell} pixels, not for a part of {MULTIPLE}")
        values += planes * (LONG_SIDE // cell) ** 2
        maps[name] = planes, cell
    _want(values <= MAX_VALUES, f"its maps of a page have {values:,} values, at most {MAX_VALUES:,}")
    _want(products <= MAX_PRODUCTS, f"a page takes {products:,} products, at most {MAX_PRODUCTS:,}")
    answer = maps[nodes[-1]["output"]]
    _want(answer == (OUTPUTS, CELL), f"it ends in {answer[0]} maps, one place for {answer[1]} pixels,"
          f" not {OUTPUTS} for {CELL}")  # fmt: skip


class OpenCV:
    """The network in OpenCV's dnn, opened when it is first asked; it may go to another process.

    Its threads are OpenCV's. onnxruntime takes half of the time, but its releases write to a service of their
    maker when they are imported (1.31: ``OneDsTelemetry``), which a reader of people's papers must not.
    """

    device = "cpu"

    def __init__(self, model: FinderModel) -> None:
        self.model, self._lock, self._net = model, Lock(), cast(Any, None)
        self._eight: FinderModel | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return OpenCV, (self.model,)

    def __call__(self, x: Maps) -> Maps:
        with self._lock:
            if self._net is None:
                import cv2

                self._eight = _of_eight_channels(self.model)
                data = self._eight.onnx(8) if self._eight else self.model.onnx()
                self._net = cv2.dnn.readNetFromONNX(np.frombuffer(data, np.uint8))
            layers = x[None]
            if self._eight:  # pixels of 2 x 2 blocks, those to the left first, below a row of zeros
                high, wide = x.shape[0] // 2, x.shape[1] // 2
                layers = np.zeros((8, high + 1, wide), np.float32)
                layers[4:, 1:] = x.reshape(high, 2, wide, 2).transpose(1, 3, 0, 2).reshape(4, high, wide)
                layers[:4, :, 1:] = layers[4:, :, :-1]
            self._net.setInput(layers[None])
            answer = np.asarray(self._net.forward()[0], np.float32)
        if not max(answer.max(), -answer.min()) <= MAX_ANSWER:
            raise ModelError("finder: its answers are no numbers or too large; its weights are broken")
        return answer


def _of_eight_channels(model: FinderModel) -> FinderModel | None:
    """The same network for pixels of 2 x 2 blocks, as OpenCV takes channels by eights; or None."""
    first, *rest = model.nodes
    weights = model.tensors[first["inputs"][1]] if first["op"] == "Conv" else np.empty(0)
    form = [first.get(name) for name in ("stride", "padding", "dilation")]
    if weights.shape[1:] != (1, 3, 3) or form != [2, 1, 1] or any("x" in node["inputs"] for node in rest):
        return None
    wide = np.zeros((len(weights), 8, 2, 1), np.float32)
    for down, right in np.ndindex(3, 3):
        (row, y), (column, x) = divmod(down + 1, 2), divmod(right + 1, 2)
        wide[:, 4 * column + 2 * y + x, row, 0] = weights[:, 0, down, right]
    nodes = [{**first, "stride": 1, "padding": 0}, *rest]
    return replace(model, nodes=nodes, tensors=model.tensors | {first["inputs"][1]: wide})
