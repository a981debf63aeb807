"""A network as a list of operations with folded weights, for engines that know no PyTorch."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


@dataclass
class Graph:
    """Operations in the order they run; each makes one map, named by its number.

    Attributes
    ----------
    nodes : list of dict
        ``op`` (an operation of ONNX), ``inputs`` and ``output`` (names), and what else it needs.
    tensors : dict
        Weights by name.
    """

    nodes: list[dict[str, Any]] = field(default_factory=list)
    tensors: dict[str, Array] = field(default_factory=dict)

    def tensor(self, values: Any) -> str:
        """Keep weights; return their name."""
        name = f"w{len(self.tensors)}"
        self.tensors[name] = np.ascontiguousarray(np.asarray(values, np.float32))
        return name

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Append an operation; return the name of what it makes."""
        name = f"m{len(self.nodes)}"
        node: dict[str, Any] = {"op": op, "inputs": list(inputs), "output": name}
        self.nodes.append(node | attributes)
        return name

    def conv(self, x: str, weight: Any, bias: Any = None, *, stride: int = 1, groups: int = 1,
             padding: int = 0, dilation: int = 1) -> str:  # fmt: skip
        """A convolution, weight (K, K' / groups, k, k)."""
        names = [self.tensor(weight)] + ([] if bias is None else [self.tensor(bias)])
        return self.add(
            "Conv", x, *names, stride=stride, groups=groups, padding=padding, dilation=dilation
        )  # fmt: skip
