"""The finder's file, and its network in OpenCV's dnn.

The file is safetensors; its metadata hold the network as a list of operations (JSON), which is
written as ONNX in memory. Only the operations of `OPERATIONS` are accepted.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.errors import ModelError
from neocog.files import atomic_write
from neocog.jsontext import to_json
from neocog.network.onnx_graph import OnnxGraph
from neocog.vision.finder import Maps, Network

FORMAT = "neocog finder 1"
OPERATIONS = ("Conv", "Relu", "Add", "Mul", "Div", "Sqrt", "Concat", "Resize")
_DOUBLED = {"coordinate_transformation_mode": "asymmetric", "mode": "nearest", "nearest_mode": "floor"}
_BEGINS = {"stride": 2, "padding": 1, "groups": 1, "dilation": 1}
_LARGEST = 1 << 20  # bytes of a file
_MOST = 400  # operations


@dataclass(frozen=True, slots=True)
class FinderModel:
    """A learned finder."""

    #: operations in order: ``op``, ``inputs``, ``output``; a Conv has ``stride``, ``groups``,
    #: ``padding`` and ``dilation`` too, a Resize doubles rows and columns
    nodes: list[dict[str, Any]]
    tensors: dict[str, NDArray[np.float32]]
    card: dict[str, Any]  #: what it was learned from, by which command
    id: str  #: ``finder@`` and the first figures of the file's hash

    def onnx(self, channels: int = 1) -> bytes:
        """The network as ONNX, from ``x`` (1, channels, H, W)."""
        graph = OnnxGraph("finder")
        output = add_network(graph, self, "x")
        return graph.to_bytes(
            {"x": ("float32", (1, channels, "H", "W"))}, {output: ("float32", (1, "C", "h", "w"))}
        )


def add_network(graph: OnnxGraph, model: FinderModel, x: str) -> str:
    """Append the network's operations on ``x`` (1, C, H, W); return the name of its answer."""
    for name, value in model.tensors.items():
        graph.constant(value, name)
    for node in model.nodes:
        inputs = [x if name == "x" else name for name in node["inputs"]]
        attributes: dict[str, Any] = {}
        if node["op"] == "Conv":
            attributes = {
                "strides": [node["stride"]] * 2, "pads": [node["padding"]] * 4,
                "dilations": [node["dilation"]] * 2, "group": node["groups"],
            }  # fmt: skip
        elif node["op"] == "Concat":
            attributes = {"axis": 1}
        elif node["op"] == "Resize":
            inputs += ["", np.array([1, 1, 2, 2], np.float32)]
            attributes = _DOUBLED
        graph.add(node["op"], *inputs, out=node["output"], **attributes)
    return str(model.nodes[-1]["output"])


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
    """Read a finder's file.

    Raises
    ------
    ModelError
        If the file is missing, broken, too large, or holds another thing.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        data = _bytes(Path(path))
        length = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + length])["__metadata__"]
        if metadata["format"] != FORMAT:
            raise ValueError(f"its format is {metadata['format']!r}")
        tensors = {name: value.astype(np.float32) for name, value in sorted(load(data).items())}
        nodes, card = json.loads(metadata["nodes"]), json.loads(metadata["card"])
        _check(nodes, tensors)
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = str(error).partition("\n")[0][:120]
        raise ModelError(f"finder {path} cannot be used: {reason}") from None
    return FinderModel(nodes, tensors, card, f"finder@{hashlib.sha256(data).hexdigest()[:6]}")


def is_finder(path: Path) -> bool:
    """Whether a model's file says that it holds a finder."""
    try:
        with path.open("rb") as stream:
            header = stream.read(min(int.from_bytes(stream.read(8), "little"), _LARGEST))
        return bool(json.loads(header)["__metadata__"]["format"] == FORMAT)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _bytes(path: Path) -> bytes:
    with path.open("rb") as stream:
        data = stream.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError(f"it is larger than {_LARGEST:,} bytes")
    return data


def _check(nodes: Any, tensors: dict[str, NDArray[np.float32]]) -> None:
    """See that every operation is a known one and reads what is there."""
    if not 0 < len(nodes) <= _MOST:
        raise ValueError(f"it has {len(nodes)} operations, expected 1 to {_MOST}")
    known = {"x", *tensors}
    for node in nodes:
        if node["op"] not in OPERATIONS:
            raise ValueError(f"operation {node['op']!r} is unknown")
        if not set(node["inputs"]) <= known:
            raise ValueError(f"operation {node['output']!r} reads an unknown tensor")
        if node["op"] == "Conv":
            numbers = [node[name] for name in ("stride", "groups", "padding", "dilation")]
            if not all(isinstance(n, int) and 0 <= n <= 512 for n in numbers):
                raise ValueError(f"operation {node['output']!r} has invalid parameters")
        known.add(node["output"])
    if not all(np.isfinite(value).all() for value in tensors.values()):
        raise ValueError("it contains NaN or infinity")


class OpenCV:
    """The network in OpenCV's dnn; its threads are OpenCV's.

    onnxruntime takes half of the time, but its releases write to a service of their maker when
    they are imported (1.31: ``OneDsTelemetry``), which a reader of people's papers must not.
    """

    def __init__(self, model: FinderModel) -> None:
        import cv2

        eight = _of_eight_channels(model)
        data = eight.onnx(8) if eight else model.onnx()
        self._layers: Callable[[Maps], Maps] = _eight_channels if eight else lambda x: x[None]
        self._net = cv2.dnn.readNetFromONNX(np.frombuffer(data, np.uint8))
        self._lock = Lock()

    def __call__(self, x: Maps) -> Maps:
        """(H, W) -> (C, H / 4, W / 4)."""
        layers = self._layers(x)[None]
        with self._lock:
            self._net.setInput(layers)
            return np.asarray(self._net.forward()[0], np.float32)


def _of_eight_channels(model: FinderModel) -> FinderModel | None:
    """The same network for the answer of `_eight_channels`; None if it begins in another way.

    OpenCV takes channels by eights, so that a picture of one costs as much as of eight.
    """
    first, *rest = model.nodes
    weights = model.tensors.get(first["inputs"][1]) if first["op"] == "Conv" else None
    if weights is None or weights.shape[1:] != (1, 3, 3) or any("x" in n["inputs"] for n in rest):
        return None
    if any(first[name] != value for name, value in _BEGINS.items()):
        return None
    wide = np.zeros((len(weights), 8, 2, 1), np.float32)
    for down, right in np.ndindex(3, 3):
        (row, y), (column, x) = divmod(down + 1, 2), divmod(right + 1, 2)
        wide[:, 4 * column + 2 * y + x, row, 0] = weights[:, 0, down, right]
    again = {**first, "stride": 1, "padding": 0}
    tensors = {**model.tensors, first["inputs"][1]: wide}
    return replace(model, nodes=[again, *rest], tensors=tensors)


def _eight_channels(x: Maps) -> Maps:
    """Return the pixels of 2 x 2 blocks, those of the block to the left first, (8, H/2 + 1, W/2).

    A row of zeros comes first.
    """
    high, wide = x.shape[0] // 2, x.shape[1] // 2
    out = np.zeros((8, high + 1, wide), np.float32)
    out[4:, 1:] = x.reshape(high, 2, wide, 2).transpose(1, 3, 0, 2).reshape(4, high, wide)
    out[:4, :, 1:] = out[4:, :, :-1]
    return out


class LazyFinder:
    """A finder whose network is opened when it is first asked; it may go to another process.

    Parameters
    ----------
    model : FinderModel
    opened_by : callable, optional
        What opens the network; OpenCV's by default.
    device : str
        Where that is: ``"cpu"``, or ``"cuda:N"``.
    """

    def __init__(
        self, model: FinderModel, *, opened_by: Callable[[FinderModel], Network] = OpenCV, device: str = "cpu"
    ) -> None:
        self.model, self.device = model, device
        self._opened_by = opened_by
        self._network: Network | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        again = partial(LazyFinder, opened_by=self._opened_by, device=self.device)
        return again, (self.model,)

    def opened(self) -> Network:
        """The network; on the CPU it takes as many threads as OpenCV may."""
        if self._network is None:
            self._network = self._opened_by(self.model)
        return self._network

    def __call__(self, x: Maps) -> Maps:
        """(H, W) -> (C, H / 4, W / 4)."""
        return self.opened()(x)

    @property
    def find(self) -> Any:
        """What finds on its own, see `neocog.vision.finder.find`; None on the CPU."""
        return getattr(self.opened(), "find", None)
