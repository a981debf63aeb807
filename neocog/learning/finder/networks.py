"""The finder's networks: a plain convolutional one, and the neocognitron's own front.

Both take the grey picture, normalised (`normalised`), (B, 1, H, W) with H and W multiples of 16,
and give `OUTPUTS` maps at a quarter of the side: is a digit centred here, is a sign, log of the
width and the height over 16 pixels, offset of the middle in cells (x, y), and one number for each
digit and sign, the largest of which tells what it is.
"""

from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from neocog.learning.edges import edge_references
from neocog.learning.finder.graph import Graph
from neocog.learning.teacher.lettering import SIGNS
from neocog.network.fields import bell, contrast_kernel, pooled
from neocog.network.spec import Bell, ContrastSpec, preset
from neocog.vision.finder import CELL, FLOOR, UNIT, WINDOW

Tensor = Any

KINDS = 10 + len(SIGNS)
OUTPUTS = 6 + KINDS
DIGIT, SIGN, WIDE, HIGH, RIGHT, DOWN = range(6)


def normalised(grey: Tensor, extents: Tensor | None = None) -> Tensor:
    """(g - mean) / sqrt(variance + FLOOR^2) over a window of WINDOW pixels; (B, H, W) uint8.

    The same as :func:`neocog.vision.finder.normalised`; 0 beyond the pictures' extents (B, 2).
    """
    g = grey.float()[:, None]
    mean = _box(g)
    variance = (_box(g * g) - mean * mean).clamp_min(0)
    x = (g - mean) * torch.rsqrt(variance + FLOOR**2)
    if extents is None:
        return x
    rows, columns = (torch.arange(side, device=x.device) for side in x.shape[2:])
    high, wide = extents[:, :1], extents[:, 1:]
    return x * ((rows < high)[:, None, :, None] & (columns < wide)[:, None, None, :])


def _box(x: Tensor) -> Tensor:
    reach = WINDOW // 2
    x = F.pad(x, (reach, reach, reach, reach), mode="reflect")
    return F.avg_pool2d(F.avg_pool2d(x, (1, WINDOW), 1), (WINDOW, 1), 1)


class Part(Protocol):
    """A part of a network that can tell itself as a graph."""

    def graph(self, g: Graph, x: str) -> str:
        """Append what it does to ``x``."""


class ConvNorm(nn.Module):  # type: ignore[misc]
    """A convolution, batch normalisation, and a rectifier if wanted.

    With ``dense`` a depthwise convolution is computed as a full one: tensor cores learn a hundred
    times the products sooner than the kernels for depthwise ones learn theirs.
    """

    def __init__(self, planes: int, out: int, kernel: int, *, stride: int = 1, groups: int = 1,
                 rectify: bool = True, padding: int | None = None) -> None:  # fmt: skip
        super().__init__()
        self.padding = kernel // 2 if padding is None else padding
        self.conv = nn.Conv2d(planes, out, kernel, stride, self.padding, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(out)
        self.rectify = rectify
        self.dense = False

    def forward(self, x: Tensor) -> Tensor:
        """(B, planes, H, W) -> (B, out, H / stride, W / stride)."""
        if self.dense:
            x = self.norm(F.conv2d(x, self._dense(), stride=self.conv.stride, padding=self.padding))
        else:
            x = self.norm(self.conv(x))
        return F.relu(x, inplace=True) if self.rectify else x

    def _dense(self) -> Tensor:
        """A depthwise kernel as a full one, zero off its diagonal."""
        kernels = self.conv.weight[:, 0].permute(1, 2, 0)
        return torch.diag_embed(kernels).permute(2, 3, 0, 1)

    def graph(self, g: Graph, x: str) -> str:
        """Fold the normalisation into the convolution."""
        gain = self.norm.weight * torch.rsqrt(self.norm.running_var + self.norm.eps)
        weight = self.conv.weight * gain[:, None, None, None]
        bias = self.norm.bias - self.norm.running_mean * gain
        x = g.conv(x, weight.detach().cpu(), bias.detach().cpu(), stride=self.conv.stride[0],
                   groups=self.conv.groups, padding=self.padding)  # fmt: skip
        return g.add("Relu", x) if self.rectify else x


class Block(nn.Module):  # type: ignore[misc]
    """x + W2 relu(W1 d(x)), d a depthwise kernel and W1, W2 1x1: wide views at little cost."""

    def __init__(self, planes: int, inner: int, kernel: int = 5) -> None:
        super().__init__()
        self.parts = nn.ModuleList([
            ConvNorm(planes, planes, kernel, groups=planes, rectify=False),
            ConvNorm(planes, inner, 1),
            ConvNorm(inner, planes, 1, rectify=False),
        ])  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """(B, planes, H, W) -> the same shape."""
        y = x
        for part in self.parts:
            y = part(y)
        return x + y

    def graph(self, g: Graph, x: str) -> str:
        """The three convolutions and the sum."""
        y = x
        for part in self.parts:
            y = part.graph(g, y)
        return g.add("Add", x, y)


def _all(parts: Any, g: Graph, x: str) -> str:
    for part in parts:
        x = part.graph(g, x)
    return x


class PlainFront(nn.Module):  # type: ignore[misc]
    """Strided convolutions to a quarter, an eighth and a sixteenth of the side.

    Parameters
    ----------
    coarse : int
        Planes of the last map.
    inner : int
        Planes within its blocks.
    blocks : int
        Its blocks.
    fine, middle : int
        Planes of the maps at a quarter and at an eighth of the side.
    """

    def __init__(
        self,
        coarse: int = 48,
        inner: int = 72,
        blocks: int = 3,
        *,
        fine: int = 24,
        middle: int = 32,
    ) -> None:
        super().__init__()
        self.planes = a, b, c = fine, middle, coarse
        self.quarter = nn.Sequential(
            ConvNorm(1, 12, 3, stride=2), ConvNorm(12, a, 3, stride=2), Block(a, 3 * a // 2)
        )
        self.eighth = nn.Sequential(
            ConvNorm(a, b, 2, stride=2, padding=0), *(Block(b, 2 * b) for _ in range(3))
        )
        self.sixteenth = nn.Sequential(
            ConvNorm(b, c, 2, stride=2, padding=0), *(Block(c, inner) for _ in range(blocks))
        )

    def begin(self, x: Tensor) -> None:
        """Nothing is taken from the first pages."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, 1, H, W) -> maps at 1/4, 1/8 and 1/16 of the side."""
        a = self.quarter(x)
        b = self.eighth(a)
        return a, b, self.sixteenth(b)

    def graph(self, g: Graph, x: str) -> tuple[str, str, str]:
        """The three maps."""
        a = _all(self.quarter, g, x)
        b = _all(self.eighth, g, a)
        return a, b, _all(self.sixteenth, g, b)


class SLayer(nn.Module):  # type: ignore[misc]
    """S-cells (Ikeda 2011, eq. 1) with learned reference vectors, thresholds and gain.

    u_S = theta/(1 - theta) max(0, (1 + q e) / (1 + theta q v) - 1), e = sum c X u with
    |X|_c = 1, v = sqrt(sum c u^2): the cosine between window and X above theta, and silence where
    the input is weak against 1/q.

    Parameters
    ----------
    reference : ndarray, shape (K, K', k, k)
        X before learning.
    scale : float
        Of the bell c, cells.
    """

    def __init__(self, reference: Tensor, scale: float, theta: float, q: float, *,
                 stride: int = 1, padding: int, learned: bool = True) -> None:  # fmt: skip
        super().__init__()
        kernel = reference.shape[-1]
        c = torch.tensor(bell(kernel, Bell.gaussian(scale)), dtype=torch.float32)
        self.register_buffer("c", c[None, None])
        self.reference = nn.Parameter(reference.float(), requires_grad=learned)
        logit = float(np.log(theta / (1 - theta)))
        self.theta = nn.Parameter(torch.full((reference.shape[0],), logit))
        self.q = nn.Parameter(torch.tensor(float(np.log(q))))
        self.stride, self.padding = stride, padding

    def _weights(self) -> tuple[Tensor, Tensor, Tensor]:
        x = self.reference
        norm = torch.sqrt((self.c * x * x).sum((1, 2, 3), keepdim=True) + 1e-8)
        theta = torch.sigmoid(self.theta).clamp(0.02, 0.95)
        return self.c * x / norm, theta[None, :, None, None], torch.exp(self.q)

    def forward(self, u: Tensor) -> Tensor:
        """(B, K', H, W) -> (B, K, H / stride, W / stride)."""
        with torch.autocast(u.device.type, enabled=False):
            u = u.float()
            a, theta, q = self._weights()
            e = F.conv2d(u, a, stride=self.stride, padding=self.padding)
            energy = (u * u).sum(1, keepdim=True)
            v = torch.sqrt(
                F.conv2d(energy, self.c, stride=self.stride, padding=self.padding) + 1e-6
            )
            ratio = (1 + q * e) / (1 + theta * q * v)
            return theta / (1 - theta) * F.relu(ratio - 1)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def begin(self, u: Tensor) -> None:
        """Take windows of the input as references, as S-cells do that learn by themselves.

        A reference by chance has a cosine of nearly 0 to any input, which silences its plane for
        ever. Of many windows those are taken that are least like the ones before.
        """
        kernel = self.c.shape[-1]
        windows = F.unfold(u.float(), kernel, stride=3).transpose(1, 2).flatten(0, 1)
        energy = windows.square().sum(1)
        windows = windows[torch.topk(energy, min(len(energy) // 4, 20_000)).indices]
        windows = F.normalize(windows, dim=1)
        nearest = torch.zeros(len(windows), device=u.device)
        chosen = [windows[0]]
        for _ in range(len(self.reference) - 1):
            nearest = torch.maximum(nearest, windows @ chosen[-1])
            chosen.append(windows[nearest.argmin()])
        fresh = torch.stack(chosen).unflatten(1, self.reference.shape[1:])
        self.reference.copy_(fresh * kernel)

    def graph(self, g: Graph, u: str) -> str:
        """The same, operation by operation; 1 / theta-terms folded into the weights."""
        a, theta, q = (t.detach().cpu() for t in self._weights())
        e = g.conv(u, q * a, torch.ones(len(a)), stride=self.stride, padding=self.padding)
        planes = a.shape[1]
        square = g.add("Mul", u, u)
        ones = self.c.cpu().expand(1, planes, *self.c.shape[2:])
        v2 = g.conv(square, ones, torch.full((1,), 1e-6), stride=self.stride, padding=self.padding)
        v = g.add("Sqrt", v2)
        below = g.conv(v, (theta * q).reshape(-1, 1, 1, 1), torch.ones(len(a)))
        ratio = g.add("Div", e, below)
        gain = (theta / (1 - theta)).flatten()
        depth = g.conv(ratio, gain.reshape(-1, 1, 1, 1), -gain, groups=len(a))
        return g.add("Relu", depth)


class CLayer(nn.Module):  # type: ignore[misc]
    """C-cells: a blur and the average of 2x2 cells as one kernel, stride 2, square root."""

    def __init__(self, planes: int, kernel: int, scale: float) -> None:
        super().__init__()
        blur = bell(kernel - 1, Bell.gaussian(scale))
        field = torch.tensor(pooled(blur / blur.sum()), dtype=torch.float32)
        self.register_buffer("field", field.expand(planes, 1, kernel, kernel).contiguous())
        self.planes, self.padding = planes, (kernel - 2) // 2

    def forward(self, u: Tensor) -> Tensor:
        """(B, K, H, W) -> (B, K, H / 2, W / 2)."""
        with torch.autocast(u.device.type, enabled=False):
            x = F.conv2d(u.float(), self.field, stride=2, padding=self.padding, groups=self.planes)
            return torch.sqrt(x + 1e-3)

    def graph(self, g: Graph, u: str) -> str:
        """Convolution and square root."""
        bias = torch.full((self.planes,), 1e-3)
        x = g.conv(u, self.field.cpu(), bias, stride=2, padding=self.padding, groups=self.planes)
        return g.add("Sqrt", x)


class NeocogFront(nn.Module):  # type: ignore[misc]
    """UG, US1/UC1 of the specification, densely over the page, then learned US2/UC2 .. US4."""

    planes = (36, 36, 48)

    def __init__(self) -> None:
        super().__init__()
        kernel = torch.tensor(contrast_kernel(ContrastSpec()), dtype=torch.float32)
        self.register_buffer("contrast", kernel[None, None])
        edges = torch.tensor(edge_references(preset("neocog")))
        self.us1 = SLayer(edges, 2.4, 0.55, 5.0, stride=2, padding=2, learned=False)
        self.uc1 = CLayer(16, 6, 1.6)
        self.us2 = SLayer(torch.randn(20, 16, 5, 5), 2.0, 0.35, 5.0, padding=2)
        self.uc2 = CLayer(20, 4, 1.0)
        self.us3 = SLayer(torch.randn(36, 20, 5, 5), 2.0, 0.35, 5.0, padding=2)
        self.uc3 = CLayer(36, 4, 1.0)
        self.us4 = SLayer(torch.randn(48, 36, 5, 5), 2.0, 0.35, 5.0, padding=2)

    def begin(self, x: Tensor) -> None:
        """Take the references of US2, US3 and US4 from pages, one layer after the other."""
        uc1 = self._edges(x)
        self.us2.begin(uc1)
        uc2 = self.uc2(self.us2(uc1))
        self.us3.begin(uc2)
        self.us4.begin(self.uc3(self.us3(uc2)))

    def _edges(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            y = F.conv2d(x.float(), self.contrast, padding=3)
            ug = torch.cat([F.relu(y), F.relu(-y)], 1)
        return self.uc1(self.us1(ug))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, 1, H, W) -> maps at 1/4, 1/8 and 1/16 of the side."""
        uc1 = self._edges(x)
        us2 = self.us2(uc1)
        us3 = self.us3(self.uc2(us2))
        us4 = self.us4(self.uc3(us3))
        return torch.cat([uc1, us2], 1), us3, us4

    def graph(self, g: Graph, x: str) -> tuple[str, str, str]:
        """The three maps."""
        kernel = self.contrast.cpu()
        ug = g.add("Relu", g.conv(x, torch.cat([kernel, -kernel]), padding=3))
        uc1 = self.uc1.graph(g, self.us1.graph(g, ug))
        us2 = self.us2.graph(g, uc1)
        us3 = self.us3.graph(g, self.uc2.graph(g, us2))
        us4 = self.us4.graph(g, self.uc3.graph(g, us3))
        return g.add("Concat", uc1, us2), us3, us4


class Head(nn.Module):  # type: ignore[misc]
    """From the three maps to what is told of every place, at a quarter of the side."""

    def __init__(self, planes: tuple[int, int, int]) -> None:
        super().__init__()
        a, b, c = planes
        self.from16, self.from8 = (
            ConvNorm(c, 32, 1, rectify=False),
            ConvNorm(32, 24, 1, rectify=False),
        )
        self.side8, self.side4 = (
            ConvNorm(b, 32, 1, rectify=False),
            ConvNorm(a, 24, 1, rectify=False),
        )
        self.block8, self.block4 = Block(32, 64), Block(24, 36)
        self.inner = ConvNorm(24, 32, 1)
        self.out = nn.Conv2d(32, OUTPUTS, 1)
        with torch.no_grad():
            self.out.weight.mul_(0.3)
            self.out.bias.zero_()
            self.out.bias[:2] = -4.0  # a digit is rare

    def forward(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        """Maps at 1/4, 1/8, 1/16 of the side -> (B, OUTPUTS, H / 4, W / 4)."""
        b = self.block8(self.side8(b) + _twice(self.from16(c)))
        a = self.block4(self.side4(a) + _twice(self.from8(b)))
        y = self.inner(F.relu(a))
        with torch.autocast(y.device.type, enabled=False):
            return self.out(y.float())

    def graph(self, g: Graph, a: str, b: str, c: str) -> str:
        """The whole head."""
        b = g.add("Add", self.side8.graph(g, b), g.add("Resize", self.from16.graph(g, c)))
        b = self.block8.graph(g, b)
        a = g.add("Add", self.side4.graph(g, a), g.add("Resize", self.from8.graph(g, b)))
        y = self.inner.graph(g, g.add("Relu", self.block4.graph(g, a)))
        return g.conv(y, self.out.weight.detach().cpu(), self.out.bias.detach().cpu())


def _twice(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2, mode="nearest")


FRONTS: dict[str, Any] = {
    "plain": PlainFront,
    "deep": lambda: PlainFront(64, 128, 4),
    "wide": lambda: PlainFront(96, 192, 5, fine=28, middle=56),
    "neocog": NeocogFront,
}


class FinderNetwork(nn.Module):  # type: ignore[misc]
    """A front and the head.

    Parameters
    ----------
    front : str
        A key of `FRONTS`.
    """

    def __init__(self, front: str) -> None:
        super().__init__()
        self.name = front
        self.front = FRONTS[front]()
        self.head = Head(self.front.planes)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 1, H, W) -> (B, OUTPUTS, H / 4, W / 4)."""
        return self.head(*self.front(x))

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def begin(self, x: Tensor) -> None:
        """Let the front take from the first pages (B, 1, H, W) what it begins with."""
        self.front.begin(x.float())

    def graph(self) -> Graph:
        """The network as operations, its input named ``x``."""
        g = Graph()
        self.head.graph(g, *self.front.graph(g, "x"))
        return g


__all__ = ["CELL", "FRONTS", "OUTPUTS", "UNIT", "FinderNetwork", "normalised"]
