"""A plain convolutional reader of lines, as dear as the ten layers: the peer that they are compared with."""

from typing import Any

from torch import nn
from torch.nn import functional

from neocog.learning.lines import LineTraining
from neocog.network.ctc import BLANK

Tensor = Any


def _down(a: int, b: int, stride: int | tuple[int, int]) -> nn.Sequential:
    conv = nn.Conv2d(a, b, 3, stride=stride, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(b), nn.ReLU())


class _Residual(nn.Module):  # type: ignore[misc]
    def __init__(self, planes: int) -> None:
        super().__init__()
        conv = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.body = nn.Sequential(_down(planes, planes, 1), conv, nn.BatchNorm2d(planes))

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(x + self.body(x))


class PlainReader(nn.Module):  # type: ignore[misc]
    """Strips (B, 1, 48, w) -> scores (B, 25, columns); ``planes`` of its five stages."""

    start, folded = "", False

    def __init__(self, planes: tuple[int, ...] = (32, 64, 96, 128, 192)) -> None:
        super().__init__()
        a, b, c, d, e = planes
        self.body = nn.Sequential(
            _down(1, a, 2), _Residual(a), _down(a, b, 2), _Residual(b), _Residual(b),
            _down(b, c, (2, 1)), _Residual(c), _Residual(c), _down(c, d, (2, 1)), _Residual(d),
            nn.Conv2d(d, e, (3, 1), bias=False), nn.BatchNorm2d(e), nn.ReLU(),
        )  # fmt: skip
        self.around = nn.Sequential(*(part for _ in range(4) for part in self._mix(e)))
        self.out = nn.Conv1d(e, BLANK + 1, 1)

    @staticmethod
    def _mix(planes: int) -> list[nn.Module]:
        return [
            nn.Conv1d(planes, planes, 5, padding=2, groups=planes, bias=False), nn.BatchNorm1d(planes),
            nn.Conv1d(planes, planes, 1, bias=False), nn.BatchNorm1d(planes), nn.ReLU(),
        ]  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        # as many columns as the ten layers answer, so that both can vote
        x = functional.pad(x, (12, 20, 0, 0))
        y = self.body(x)[:, :, 0]
        return self.out(functional.dropout(self.around(y) + y, 0.1, self.training))

    def constrain(self) -> None:
        pass

    def groups(self, settings: LineTraining) -> list[dict[str, Any]]:
        return [{"params": list(self.parameters()), "times": 1.0, "weight_decay": 0.01}]
