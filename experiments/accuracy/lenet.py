"""LeNet-5 on the field of U0, as wide as wanted: what models are shown beside."""

import math
import time
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from neocog.learning.augment import augment
from neocog.learning.settings import augmentation

#: Side of what a LeNet sees: U0 without its last row and column, halved.
FIELD = 32


def _widths(width: float) -> list[int]:
    return [max(1, round(width * count)) for count in (6, 16, 120, 84)]  # LeCun et al. 1998


class LeNet(nn.Module):  # type: ignore[misc]
    """LeNet-5 (LeCun et al. 1998) with rectifiers and max pooling, each layer ``width`` as wide."""

    def __init__(self, width: float = 1.0) -> None:
        super().__init__()
        a, b, c, d = _widths(width)
        self.layers = nn.Sequential(
            nn.Conv2d(1, a, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(a, b, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(25 * b, c), nn.ReLU(), nn.Linear(c, d), nn.ReLU(),
            nn.Linear(d, 10),
        )  # fmt: skip

    def forward(self, u0: Any) -> Any:
        return self.layers(functional.avg_pool2d(u0[:, None, : 2 * FIELD, : 2 * FIELD], 2))

    @property
    def parameters_held(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())


def as_large_as(parameters: int) -> LeNet:
    """The LeNet whose number of parameters comes nearest."""

    def size(width: float) -> int:
        a, b, c, d = _widths(width)
        return 26 * a + (25 * a + 1) * b + (25 * b + 1) * c + (c + 1) * d + 10 * (d + 1)

    widths = (n / 20 for n in range(5, 241))
    return LeNet(min(widths, key=lambda width: abs(size(width) - parameters)))


def learn(
    network: LeNet,
    images: np.ndarray,
    labels: np.ndarray,
    *,
    how: str = "none",
    epochs: float = 15,
    seconds: float = math.inf,
    batch: int = 256,
    rate: float = 2e-3,
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, Any]:
    """Learn from digits (N, 28, 28) by Adam, the rate falling as a cosine; at most so long. ``how`` is a
    preset of :mod:`neocog.learning.settings`: what each digit is changed by, at every step anew, before it is
    laid into U0.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    shown = torch.tensor(images, device=device)
    wanted = torch.tensor(labels.astype(np.int64), device=device)
    network.to(device).train()
    changes = augmentation(how)
    optimizer = torch.optim.Adam(network.parameters(), lr=rate, weight_decay=1e-5)
    total = max(1, round(epochs * len(shown) / batch))
    begun, order, used = time.monotonic(), torch.empty(0, dtype=torch.long, device=device), 0
    for step in range(total):
        spent = (time.monotonic() - begun) / seconds
        for group in optimizer.param_groups:
            group["lr"] = rate * 0.5 * (1 + math.cos(math.pi * min(1.0, max(step / total, spent))))
        if spent >= 1:
            break
        if used + batch > len(order):
            order = torch.randperm(len(shown), generator=generator, device=device)
            used = 0
        chosen = order[used : used + batch]
        used += batch
        loss = functional.cross_entropy(network(augment(shown[chosen], changes, generator)), wanted[chosen])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            float(loss.detach())  # keeps the clock with the GPU
    return {"epochs": round((step + 1) * batch / len(shown), 1),
            "seconds": round(time.monotonic() - begun, 1)}  # fmt: skip


@torch.no_grad()  # type: ignore[untyped-decorator]
def labels_of(network: LeNet, u0: np.ndarray, *, device: str) -> np.ndarray:
    """What pictures U0 (N, 65, 65) are read as."""
    network.eval()
    return np.asarray(network(torch.from_numpy(u0).to(device)).argmax(1).cpu().numpy())
