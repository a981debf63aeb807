"""A network as a list of operations with folded weights, for engines that know no PyTorch."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass
class Graph:
    """Operations in the order they run, as `neocog.vision.finder_model.FinderModel` has them."""

    nodes: list[dict[str, Any]] = field(default_factory=list)
    tensors: dict[str, NDArray[np.float32]] = field(default_factory=dict)

    def tensor(self, values: Any) -> str:
        """Keep weights; return their name."""
        name = f"w{len(self.tensors)}"
        values = values.detach().cpu() if hasattr(values, "detach") else values
        self.tensors[name] = np.ascontiguousarray(values, np.float32)
        return name

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Append an operation; return the name of what it makes."""
        name = f"m{len(self.nodes)}"
        self.nodes.append({"op": op, "inputs": list(inputs), "output": name, **attributes})
        return name

    def conv(self, x: str, weight: Any, bias: Any = None, *, stride: int = 1, groups: int = 1,
             padding: int = 0, dilation: int = 1) -> str:  # fmt: skip
        """Append a convolution, weight (K, K' / groups, k, k)."""
        names = [self.tensor(values) for values in (weight, bias) if values is not None]
        return self.add("Conv", x, *names, stride=stride, groups=groups, padding=padding,
                        dilation=dilation)  # fmt: skip
