"""Networks whose soft answers a neocognitron learns from: convolutional ones, or a model.

A guide sees what the neocognitron sees, U0 with every change that is made to it, and answers how
likely each digit, and none, is. Where a change made a digit illegible its answer says so, which the
label does not. A guide may be several networks; their logits are averaged.

Sources: Hinton, Vinyals and Dean 2015, arXiv:1503.02531; He et al. 2016, arXiv:1512.03385.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import nn
from torch.nn import functional

from neocog.errors import ModelError
from neocog.files import atomic_write
from neocog.learning.trainable import Trainable
from neocog.network.model import Model, load_model
from neocog.network.spec import LABELS

Tensor = Any


class Block(nn.Module):  # type: ignore[misc]
    """Two convolutions and what passes them by."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))
        self.by = nn.Conv2d(before, width, 1, stride, bias=False) if before != width else None

    def forward(self, x: Tensor) -> Tensor:
        """Respond to (B, C, H, W)."""
        y = functional.relu(self.norms[0](self.first(x)))
        y = self.norms[1](self.second(y))
        return functional.relu(y + (x if self.by is None else self.by(x)))


class Convolutional(nn.Module):  # type: ignore[misc]
    """A residual network: U0 (B, 65, 65), ink 1 -> logits (B, classes).

    Its first of three stages has ``width`` maps; each later one has twice as many.
    """

    def __init__(self, classes: int, width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 5, 2, 2, bias=False)
        self.norm = nn.BatchNorm2d(width)
        stages = [(width, width, 1), (width, width, 1), (width, 2 * width, 2)]
        stages += [(2 * width, 2 * width, 1), (2 * width, 4 * width, 2), (4 * width, 4 * width, 1)]
        self.blocks = nn.Sequential(*(Block(*stage) for stage in stages))
        self.dropout = nn.Dropout(0.2)
        self.top = nn.Linear(4 * width * 9, classes)

    def forward(self, u0: Tensor) -> Tensor:
        """Answer pictures."""
        x = u0[:, None].contiguous(memory_format=torch.channels_last)
        x = self.blocks(functional.relu(self.norm(self.stem(x))))
        x = functional.adaptive_avg_pool2d(x, 3).flatten(1)
        return self.top(self.dropout(x))


class Neocognitron(nn.Module):  # type: ignore[misc]
    """A model learned before, in float32: S-cells divide by what may be close to 0."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.network = Trainable(model)

    def forward(self, u0: Tensor) -> Tensor:
        """Answer pictures."""
        with torch.autocast(u0.device.type, enabled=False):
            return self.network(u0) / self.network.temperature.exp()


class Guide:
    """Networks that answer together."""

    def __init__(self, networks: Sequence[nn.Module], device: Any) -> None:
        self._device = torch.device(device)
        self._networks = [
            network.to(self._device).to(memory_format=torch.channels_last).eval() for network in networks
        ]

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def __call__(self, u0: Tensor) -> Tensor:
        """Return logits (B, classes) float32 of pictures (B, 65, 65)."""
        kind = self._device.type
        with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
            answers = [network(u0).float().log_softmax(dim=1) for network in self._networks]
        return torch.stack(answers).mean(dim=0)


def save_network(network: Convolutional, path: Path) -> None:
    """Write a network, weights as float16 (statistics of the batches too)."""
    halves = {
        name: value.detach().cpu().half().contiguous() if value.is_floating_point() else value.cpu()
        for name, value in network.state_dict().items()
    }
    with atomic_write(path) as stream:
        stream.write(save(halves))


def load_guide(paths: Sequence[str | Path], device: Any) -> Guide:
    """Read the networks of a guide, models of neocog among them.

    ModelError if a file is missing or holds another thing.
    """
    networks: list[nn.Module] = []
    for path in paths:
        try:
            tensors = load_file(path)
            if "top.bias" not in tensors:
                model = load_model(path)
                if model.classes <= LABELS:
                    raise ModelError(f"{path} is no guide: it does not know what is no digit")
                networks.append(Neocognitron(model))
                continue
            classes, width = len(tensors["top.bias"]), len(tensors["norm.weight"])
            network = Convolutional(classes, width)
            network.load_state_dict(tensors)
        except (OSError, SafetensorError, KeyError, RuntimeError) as error:
            reason = str(error).partition("\n")[0]
            raise ModelError(f"{path} is no guide that can be read: {reason}") from None
        networks.append(network)
    return Guide(networks, device)
