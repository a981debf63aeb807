"""In which numbers PyTorch computes products: set for a run, set exactly for a while."""

from typing import Any

import torch

from neocog.learning.settings import Settings


def prepare(settings: Settings, device: Any) -> None:
    """Set PyTorch up for a run on a device."""
    torch.use_deterministic_algorithms(settings.deterministic, warn_only=True)
    if device.type == "cuda":
        _allow_tf32(settings.precision != "fp32")
        torch.backends.cudnn.benchmark = not settings.deterministic


class Exactly:
    """A block in which products are float32."""

    def __enter__(self) -> None:
        self._before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
        _allow_tf32(False)

    def __exit__(self, *_: object) -> None:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = self._before


def _allow_tf32(allowed: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
