"""The finder's network as launches of ``kernels/finder_network.cu``, each for all sizes at once.

What belongs together place by place (depthwise, 1x1, 1x1, rectifier, sum) is one launch. Maps are
halves, channel-last, those of one size of the picture after those of the size before.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neocog.cuda.kernel import Array, Kernel, Launch, Machine, up
from neocog.errors import ModelError
from neocog.vision.finder import MULTIPLE

Node = Mapping[str, Any]
Weights = NDArray[np.float32]

ROWS, ACROSS = 4, 16  # places of a tile
_WIDEST = 256  # planes of two products whose sums a warp can hold


class Step(NamedTuple):
    kernel: Kernel
    reads: tuple[str, ...]
    writes: str
    weights: NDArray[np.uint32]


class Maps(NamedTuple):
    """One of the network's maps: planes, and pixels of the picture between two of its places."""

    planes: int
    cell: int

    @property
    def stored(self) -> int:
        """Channels in memory: one alone, else a multiple of 8, the spare ones 0."""
        return 1 if self.planes == 1 else up(self.planes, 8)


@dataclass(frozen=True, slots=True)
class _Conv:
    """A convolution and whether a rectifier follows."""

    node: Node
    weight: Weights  # (K, K' / groups, k, k)
    bias: Weights
    relu: bool

    @property
    def depthwise(self) -> bool:
        return bool(self.node["groups"] == len(self.weight) > 1 == self.weight.shape[1])

    def matrix(self, stored: int) -> Weights:
        """Return B (k k ``stored``, K): a window's values, tap by tap, to planes."""
        n, per_group, high, wide = self.weight.shape
        groups = self.node["groups"]
        out = np.zeros((high, wide, stored, n), np.float32)
        for group in range(groups):
            inside = slice(group * n // groups, (group + 1) * n // groups)
            of = slice(group * per_group, (group + 1) * per_group)
            out[:, :, of, inside] = self.weight[inside].transpose(2, 3, 1, 0)
        return out.reshape(-1, n)


class FinderNetwork:
    """The nodes of a ``FinderModel``, planned for a machine; ModelError for what no kernel knows."""

    def __init__(self, machine: Machine, nodes: Sequence[Node], tensors: Mapping[str, Weights]) -> None:
        self.machine, self._tensors = machine, tensors
        self._by = {node["output"]: node for node in nodes}
        self._uses = Counter(name for node in nodes for name in node["inputs"])
        self.output: str = nodes[-1]["output"]
        self.maps: dict[str, Maps] = {"x": Maps(1, 1)}
        for node in nodes:
            self.maps[node["output"]] = self._shape(node)
        self.steps: list[Step] = []
        self._make(self.output)
        self._held = [machine.xp.asarray(step.weights) for step in self.steps]

    def _shape(self, node: Node) -> Maps:
        op, name = node["op"], node["output"]
        given = node["inputs"][:1] if op == "Conv" else node["inputs"]
        maps = [self.maps[one] for one in given if one in self.maps]
        if len(maps) == len(given) and len(set(maps)) == 1:
            first = maps[0]
            if op == "Conv":
                weight, stride = self._tensors[node["inputs"][1]], node["stride"]
                planes, per_group, high, wide = weight.shape
                edge = 2 * node["padding"] - node["dilation"] * (high - 1) - 1
                fits = node["groups"] >= 1 and per_group * node["groups"] == first.planes
                if fits and high == wide and stride >= 1 and -stride <= edge <= -1:
                    return Maps(planes, first.cell * stride)
            elif op == "Resize" and first.cell % 2 == 0:
                return first._replace(cell=first.cell // 2)
            elif op in ("Relu", "Add"):
                return first
        raise ModelError(f"finder, operation {name!r} ({op}) is not supported on the GPU; use --device cpu")

    # Fusing: from the output back, what is used once goes into the launch that uses it.

    def _alone(self, name: str) -> bool:
        return name in self._by and self._uses[name] == 1 and name != self.output

    def _conv(self, name: str) -> _Conv | None:
        """Return the convolution that makes a map, maybe through a rectifier."""
        node, relu = self._by.get(name), False
        if node and node["op"] == "Relu" and self._alone(node["inputs"][0]):
            node, relu = self._by[node["inputs"][0]], True
        if not node or node["op"] != "Conv":
            return None
        weight, *bias = (self._tensors[name] for name in node["inputs"][1:])
        return _Conv(node, weight, bias[0] if bias else np.zeros(len(weight), np.float32), relu)

    def _make(self, name: str) -> None:
        """Append the steps that make a map, if it is not made yet."""
        if name == "x" or any(step.writes == name for step in self.steps):
            return
        main, skip, halved, end = self._sum(name)
        last = self._conv(main)
        if last is None:
            op = self._by[name]["op"]
            raise ModelError(f"finder, operation {name!r} ({op}) alone has no kernel; use --device cpu")
        layers, depthwise = ([], last) if last.depthwise else ([last], None)
        while layers and depthwise is None:
            node, source = layers[0].node, layers[0].node["inputs"][0]
            single = layers[0].weight.shape[2:] == (1, 1) and node["stride"] == 1 and not node["padding"]
            before = self._conv(source) if single and self._alone(source) else None
            if before is None:
                break
            planes = sum(len(conv.weight) for conv in (before, *layers))
            if before.depthwise:
                depthwise = before
            elif len(layers) == 1 and planes <= _WIDEST:
                layers = [before, *layers]
            else:
                break
        source = (depthwise or layers[0]).node["inputs"][0]
        for one in (source, *([skip] if skip else [])):
            self._make(one)
        self.steps.append(self._chain(name, source, depthwise, layers, skip, halved, end))

    def _sum(self, name: str) -> tuple[str, str | None, bool, bool]:
        """Return (map, what is added to it, whether that is enlarged first, rectified at last)."""
        node = self._by[name]
        end = node["op"] == "Relu" and self._alone(node["inputs"][0])
        add = self._by[node["inputs"][0]] if end else node
        if add["op"] == "Add" and add["inputs"][0] != add["inputs"][1]:
            for main, other in (add["inputs"][::-1], add["inputs"]):
                conv = self._conv(main) if self._alone(main) else None
                if conv and not conv.depthwise:
                    twice = self._by.get(other)
                    if twice and twice["op"] == "Resize" and self._alone(other):
                        return main, twice["inputs"][0], True, end
                    return main, other, False, end
        return name, None, False, False

    def _chain(self, name: str, source: str, depthwise: _Conv | None, layers: list[_Conv],
               skip: str | None, halved: bool, end: bool) -> Step:  # fmt: skip
        ci, first = self.maps[source].stored, depthwise or layers[0]
        parts: dict[str, Array] = {}
        if depthwise:
            parts["TAPS0"] = _wide(depthwise.weight[:, 0].transpose(1, 2, 0), ci)
            parts["BIAS0"] = _wide(depthwise.bias, ci)
        for number, conv in enumerate(layers, 1):
            read = up(len(layers[0].weight), 8) if number == 2 else ci
            parts[f"BIAS{number}"] = _wide(conv.bias, up(len(conv.bias), 8))
            parts["FIRST" if number == 1 else "SECOND"] = fragments(conv.matrix(read))
        ends = np.cumsum([part.size for part in parts.values()]).tolist()
        begins = dict(zip(parts, [0, *ends], strict=False))
        begins.pop("TAPS0", None)
        widths = [self.maps[conv.node["output"]].stored for conv in layers]
        if len(widths) == 2:
            widths[0] = up(widths[0], 8)
        defines = {
            "APART": self.maps[name].cell, "CI": ci,
            "DEPTHWISE": int(depthwise is not None), "LAYERS": len(layers),
            "KSIZE": first.weight.shape[2], "STRIDE": first.node["stride"],
            "PADDING": first.node["padding"], "DILATION": first.node["dilation"],
            "RELU0": int(depthwise is not None and depthwise.relu),
            **{f"N{i}": n for i, n in enumerate(widths, 1)},
            **{f"RELU{i}": int(conv.relu) for i, conv in enumerate(layers, 1)},
            "SKIP": 0 if skip is None else 2 if halved else 1, "RELU_END": int(end), **begins,
        }  # fmt: skip
        defines |= {"ROWS": ROWS, "TARGET_FLOAT": int(name == self.output)}
        kernel = Kernel("finder_network.cu", "chain", tuple(defines.items()), 32 * ROWS, arch=80)
        words = np.concatenate([part.reshape(-1).view(np.uint32) for part in parts.values()])
        return Step(kernel, (source, skip or source), name, words)

    def launches(self, levels: Array, area: int) -> tuple[Array, Array, list[Launch]]:
        """Return input (float16), output (places, channels) and launches of the network for pictures.

        ``levels`` (n, 8), see `level_rows`, may change between launches, within an `area`.
        """
        xp = self.machine.xp
        last_read = {one: i for i, step in enumerate(self.steps) for one in step.reads}
        arrays: dict[str, Array] = {"x": xp.empty(area, "float16")}
        free: dict[int, list[Array]] = {}
        out = []
        for i, step in enumerate(self.steps):
            maps = self.maps[step.writes]
            size, whole = area // maps.cell**2 * maps.stored, step.writes == self.output
            if whole or not free.get(size):
                arrays[step.writes] = xp.empty(size, "float32" if whole else "float16")
            else:
                arrays[step.writes] = free[size].pop()
            a, b = (arrays[one] for one in step.reads)
            args = (levels, np.int32(len(levels)), a, self._held[i], b, arrays[step.writes])
            out.append(Launch(step.kernel, (area // (ROWS * ACROSS * maps.cell**2), 1, 1), args))
            for one in {*step.reads} - {"x"}:
                if last_read[one] == i:
                    free.setdefault(arrays[one].size, []).append(arrays[one])
        told = arrays[self.output].reshape(-1, self.maps[self.output].stored)
        return arrays["x"], told, out


def area(sides: Sequence[tuple[int, int]]) -> int:
    """Return pixels of pictures whose sides are filled up so that tiles of every map fit."""
    return sum(up(high, ROWS * MULTIPLE) * up(wide, ACROSS * MULTIPLE) for high, wide in sides)


def level_rows(shapes: Sequence[tuple[int, int]], sides: Sequence[tuple[int, int]]) -> NDArray[np.int32]:
    """Return what the kernels know of the sizes of a picture: byte, H, W, filled up H and W, first pixel.

    The first of the ``shapes`` is the picture itself, (0, 0) of its ``sides`` if it is not read at its size.
    """
    rows, bytes_, cells = np.zeros((len(shapes), 8), np.int32), 0, 0
    for k, ((high, wide), side) in enumerate(zip(shapes, sides, strict=True)):
        again = k == 1 and shapes[0] == shapes[1]
        rows[k, :6] = 0 if again else bytes_, high, wide, *side, cells
        bytes_, cells = bytes_ + (0 if again else high * wide), cells + math.prod(side)
    return rows


def fragments(b: Weights) -> NDArray[np.uint32]:
    """Return B (K, N) as the lanes of a warp take it for ``mma.m16n8k16``: (K/16, N/8, 32, 2).

    Lane 4 g + t holds rows 2 t, 2 t + 1 and 2 t + 8, 2 t + 9 of column g (PTX manual).
    """
    depth, planes = (math.ceil(n / step) for n, step in zip(b.shape, (16, 8), strict=True))
    padded = np.zeros((16 * depth, 8 * planes), np.float16)
    padded[: b.shape[0], : b.shape[1]] = b
    parts = padded.reshape(depth, 2, 4, 2, planes, 8)  # step, half, t, of a pair, tile, g
    lanes = np.ascontiguousarray(parts.transpose(0, 4, 5, 2, 1, 3))
    return lanes.view(np.uint32).reshape(depth, planes, 32, 2)


def _wide(values: Weights, width: int) -> Weights:
    """Return float32 with the last axis filled with 0 up to ``width``."""
    more = [(0, 0)] * (values.ndim - 1) + [(0, width - values.shape[-1])]
    return np.ascontiguousarray(np.pad(values, more), np.float32)
