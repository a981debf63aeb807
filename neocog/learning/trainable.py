"""The ten layers of :mod:`neocog.network.reference` with everything learnable as parameters.

Of each S-plane, X = |X|_c D / |D|_c: a direction D >= 0 (kept by :meth:`constrain`) and a length; c = exp(..)
where the preset's c is not 0; theta = sigmoid(..). A C-layer's blur is an outer product of profiles >= 0.
In nearly silent windows the slope of v at 0 counts as 0, and that of psi = sqrt is held below a limit.
"""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from neocog.errors import UsageError
from neocog.network.model import Model, SWeights
from neocog.network.spec import ContrastSpec, CSpec, Psi, SSpec, banded, contrast_kernel
from neocog.network.u0 import enlarging_matrix

_STEEPEST = 1e-4  # below this input the slope of psi = sqrt is that at it: 1 / (2 sqrt(1e-4)) = 50
_SILENT = 1e-10  # of v^2: windows that see a stroke start near 1e-4
_SHORTEST, _LONGEST = 0.01, 30.0  # |X|_c of a plane; far longer ones answer to the noise of empty paper
_NEVER = -1e4  # no place of a label responds so little


def silence_of(weights: SWeights) -> float:
    """Return the inhibition v below which a window holds no stroke, but noise of convolutions."""
    return 1e-5 if weights.reference.shape[1] == 2 else 1e-3


class Contrast(nn.Module):  # type: ignore[misc]
    """U0 (B, 65, 65), ink 1 -> UG (B, 2, 71, 71) float32."""

    def __init__(self, spec: ContrastSpec) -> None:
        super().__init__()
        self.padding, self.silence = spec.padding, spec.silence
        a = contrast_kernel(spec)
        # ink is 255 times too dark until here, so that the enlarged digit is exact in TF32 as well
        self.register_buffer("kernel", _float(np.stack([a, -a])[:, None] / 255))

    def forward(self, u0: Tensor) -> Tensor:
        y = functional.conv2d(255 * u0[:, None], self.kernel, padding=self.padding)
        return functional.threshold(y, self.silence, 0.0)


class Response(torch.autograd.Function):  # type: ignore[misc]
    """S-cells (Ikeda eq. 1): max(e - k v, 0) / (v + s) where v is heard; keeps v and the response alone."""

    @staticmethod
    def forward(ctx: Any, e: Tensor, v: Tensor, silence: Tensor, k: Tensor, silent_below: float) -> Tensor:
        scale = (v > silent_below) / (v + silence[:, None, None])
        out = (e - k * v).clamp_(min=0).mul_(scale)
        ctx.save_for_backward(out, v, silence, k)
        ctx.kind = e.dtype
        return out

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, ...]:
        out, v, silence, k = ctx.saved_tensors
        de = slope * (out > 0) / (v + silence[:, None, None])
        both = de * out
        dv = -(k * de.sum(1, keepdim=True) + both.sum(1, keepdim=True))
        return de.to(ctx.kind), dv, -both.sum((0, 2, 3)), -(de.sum(1, keepdim=True) * v).sum(), None


class SCells(nn.Module):  # type: ignore[misc]
    """One layer of S-cells, (B, K', H, W) -> (B, K, H', W') float32."""

    def __init__(self, spec: SSpec, weights: SWeights) -> None:
        super().__init__()
        self.padding, self.q = spec.padding, weights.q
        self.silent_below = silence_of(weights)
        x, c = weights.reference.astype(np.float64), weights.c.astype(np.float64)
        length = np.sqrt((c * x**2).sum(axis=(1, 2, 3)))
        rms = np.maximum(np.sqrt((x**2).mean(axis=(1, 2, 3), keepdims=True)), 1e-20)
        self.direction = nn.Parameter(_float(x / rms))
        self.length = nn.Parameter(_float(np.log(np.clip(length, _SHORTEST, _LONGEST))))
        self.c_log = nn.Parameter(_float(np.log(np.where(c > 0, c, 1))))
        self.register_buffer("c_mask", _float(c > 0))
        self.threshold = nn.Parameter(_float(np.log(weights.threshold / (1 - weights.threshold))))

    def c(self) -> Tensor:
        return self.c_log.exp() * self.c_mask

    def forward(self, u: Tensor, *, rectified: bool = True, mixed: bool = False) -> Tensor:
        """Respond (Ikeda eq. 1), to maps of any size; ``mixed``: products in bfloat16."""
        c, theta, d = self.c(), self.threshold.sigmoid(), self.direction
        norm = (c * d * d).sum(dim=(1, 2, 3)).clamp(min=1e-12).sqrt()
        a = d * c / ((1 - theta) * norm)[:, None, None, None]
        kind = torch.bfloat16 if mixed else u.dtype
        e = functional.conv2d(u.to(kind), a.to(kind), padding=self.padding)
        square = functional.conv2d((u * u).sum(dim=1, keepdim=True), c[None, None], padding=self.padding)
        heard = square > _SILENT
        v = torch.where(heard, torch.where(heard, square, 1.0).sqrt(), 0.0)
        silence, k = torch.exp(-self.length) / (theta * self.q), theta / (1 - theta)
        if rectified:
            return Response.apply(e, v, silence, k, self.silent_below)
        return (e - k * v) * (v > self.silent_below) / (v + silence[:, None, None])

    def weights(self) -> SWeights:
        d, c, log_length = map(double, (self.direction, self.c(), self.length))
        norm = np.maximum(np.sqrt((c * d**2).sum(axis=(1, 2, 3))), 1e-6)
        reference = (d * (np.exp(log_length) / norm)[:, None, None, None]).astype(np.float32)
        threshold = float(self.threshold.detach().double().sigmoid())
        return SWeights(reference=reference, c=c.astype(np.float32), threshold=threshold, q=self.q)


class _Across(torch.autograd.Function):  # type: ignore[misc]
    """One matrix (W', W) times many maps (N, W, K); its slope is one product, not a sum of N."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(matrix, x)
        return torch.bmm(matrix.expand(len(x), -1, -1), x)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor]:
        matrix, x = ctx.saved_tensors
        dx = torch.bmm(matrix.T.expand(len(x), -1, -1), slope)
        return slope.transpose(0, 1).flatten(1) @ x.transpose(0, 1).flatten(1).T, dx


@cache
def _pooling(spec: CSpec, size: int, stride: int, device: Any) -> Tensor:
    """Each of a blur's taps, then the average of two neighbours, along a side: (kernel - 1, cells, size)."""
    basis = np.stack([banded(tap, size, spec.padding, stride) for tap in np.eye(spec.kernel)])
    pair = (np.eye(spec.kernel - 1, spec.kernel) + np.eye(spec.kernel - 1, spec.kernel, 1)) / 2
    return _float(np.einsum("jk,khw->jhw", pair, basis)).to(device)


class CCells(nn.Module):  # type: ignore[misc]
    """C-cells, (B, K, H, W) -> (B, K, H', W'), by banded matrices; ``across``: stride across.

    UsageError if a blur is no outer product of profiles (2, kernel) >= 0.
    """

    def __init__(self, spec: CSpec, blur: NDArray[Any], psi: Psi, *, across: int | None = None) -> None:
        super().__init__()
        u, sigma, vt = np.linalg.svd(blur.astype(np.float64))
        if blur.min() < 0 or sigma[1] > 1e-5 * sigma[0]:
            advice = "start from a model of preset neocog"
            raise UsageError(f"a blur is no outer product of weights >= 0; {advice}")
        self.profiles = nn.Parameter(_float(np.abs(np.stack([u[:, 0], vt[0]])) * np.sqrt(sigma[0])))
        self.spec, self.psi, self.strides = spec, psi, (spec.stride, across or spec.stride)

    def forward(self, u: Tensor) -> Tensor:
        down, across = (
            torch.einsum("j,jhw->hw", profile, _pooling(self.spec, size, stride, profile.device))
            for profile, size, stride in zip(self.profiles, u.shape[2:], self.strides, strict=True)
        )
        x = u.permute(0, 2, 3, 1)  # channels last: no copies
        count, high, wide, planes = x.shape
        x = torch.bmm(down.expand(count, -1, -1), x.reshape(count, high, wide * planes))
        x = _Across.apply(across, x.view(-1, wide, planes))
        y = x.view(count, len(down), len(across), planes).permute(0, 3, 1, 2)
        return GentleRoot.apply(y) if self.psi == "sqrt" else y / (1 + y)


class Layers(nn.Module):  # type: ignore[misc]
    """The ten layers of a model, of whose C-cells ``across`` may change the strides across."""

    def __init__(self, model: Model, across: tuple[int | None, ...] = (None, None, None)) -> None:
        super().__init__()
        spec = model.spec
        self.contrast = Contrast(spec.contrast)
        self.s = nn.ModuleList(SCells(s, w) for s, w in zip(spec.s, model.s, strict=True))
        cells = zip(spec.c, model.blurs, across, strict=True)
        self.c = nn.ModuleList(CCells(c, blur, model.psi, across=stride) for c, blur, stride in cells)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def constrain(self) -> None:
        for s in self.s:
            s.direction.clamp_(min=0)
            s.length.clamp_(np.log(_SHORTEST), np.log(_LONGEST))
            s.c_log.clamp_(-9, 5)
            s.threshold.clamp_(-5, 5)
        for c in self.c:
            c.profiles.clamp_(min=0)

    def learned(self, model: Model, **more: Any) -> Model:
        """A model with these layers as they are now."""
        blurs: Any = tuple(np.asarray(np.outer(*double(c.profiles)), np.float32) for c in self.c)
        return replace(model, s=tuple(s.weights() for s in self.s), blurs=blurs, **more)


class Trainable(Layers):
    """A model whose reference vectors, c, thresholds and blurs learn; planes of US4 are sorted by label.

    ``channels_last`` keeps cuDNN from convolutions by Fourier transforms, whose noise drowns faint windows.
    """

    def __init__(self, model: Model, *, channels_last: bool = False) -> None:
        order = np.argsort(model.labels, kind="stable")
        top = replace(model.s[3], reference=model.s[3].reference[order])
        start = replace(model, s=(*model.s[:3], top), labels=model.labels[order])
        super().__init__(start)
        self.start, self.channels_last = start, channels_last
        self.register_buffer("enlarge", _float(enlarging_matrix()))
        self.temperature = nn.Parameter(_float(np.log(max(model.temperature, 0.02))))
        self.register_buffer("own", torch.from_numpy(np.arange(model.classes)[:, None] == self.start.labels))

    def enlarged(self, digits: Tensor) -> Tensor:
        """Digits (B, 28, 28) uint8 -> U0 (B, 65, 65), ink 1."""
        return self.enlarge @ (digits.float() / 255) @ self.enlarge.T

    def us4(self, u0: Tensor) -> Tensor:
        """Return US4, (B, K4, 5, 5), of pictures (B, 65, 65)."""
        u = self.contrast(u0)
        for stage, s in enumerate(self.s):
            if self.channels_last:
                u = u.contiguous(memory_format=torch.channels_last)
            # while US4 learns, labels whose planes are all below threshold learn too
            u = s(u, rectified=not (self.training and stage == 3))
            if stage < 3:
                u = self.c[stage](u)
        return u

    def forward(self, u0: Tensor, *, soft: float = 0.0) -> Tensor:
        """Score pictures (B, 65, 65): (B, 10), or (B, 11) with planes that reject. ``soft`` > 0: the width
        of a smooth maximum (a weighted mean), so that planes which are nearly strongest learn as well.
        """
        responses = self.us4(u0).flatten(2)
        if soft > 0:
            planes = (responses * (responses / soft).softmax(dim=2)).sum(dim=2)
            own = torch.where(self.own, planes[:, None], _NEVER)
            return ((own / soft).softmax(dim=2) * planes[:, None]).sum(dim=2)
        return torch.where(self.own, responses.amax(dim=2)[:, None], _NEVER).amax(dim=2)

    def model(self) -> Model:
        """Return the network as it is now as a model for every engine."""
        return self.learned(self.start, temperature=float(self.temperature.detach().exp()))


class GentleRoot(torch.autograd.Function):  # type: ignore[misc]
    """sqrt(x) for x >= 0, whose slope is nowhere steeper than that at _STEEPEST."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.clamp(min=0).sqrt()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return slope * (0.5 / y.clamp(min=_STEEPEST**0.5)) * (y > 0)


def _float(values: Any) -> Tensor:
    return torch.tensor(np.asarray(values), dtype=torch.float32)


def double(values: Tensor) -> Any:
    return values.detach().double().cpu().numpy()
