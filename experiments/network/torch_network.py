"""The network in PyTorch, from digits to scores, as fast as PyTorch runs it: the peer of our passes.

A pass is one CUDA graph, of eager PyTorch or torch.compile, in the fastest memory format and layers' forms.
UG and C-layers are products with banded matrices (or a convolution of all planes, ``stacked``), US4 cuDNN's
or a product of copied windows: the quickest forms on an H200 in 25 of 32 cases (commit bfe9938 has more).
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from neocog.learning.trainable import silence_of
from neocog.network.decision import planes_of_labels
from neocog.network.model import Model, SWeights, s_constants
from neocog.network.spec import LABELS, ContrastSpec, CSpec, SSpec, banded, contrast_kernel, pooled
from neocog.network.u0 import enlarging_matrix

Tensor = Any

TYPES = {"fp32": torch.float32, "fp16": torch.float16}
#: Forms of the layers that have several, the usual one first.
FORMS = dict.fromkeys(("UC1", "UC2", "UC3"), ("products", "stacked")) | {"US4": ("windows", "conv")}


class Contrast(nn.Module):  # type: ignore[misc]
    """Digits (B, 28, 28) uint8 -> UG (B, 2, 71, 71)."""

    def __init__(self, spec: ContrastSpec) -> None:
        super().__init__()
        self.silence = spec.silence
        enlarge = enlarging_matrix()
        down, across = _factors(contrast_kernel(spec), len(enlarge), spec.padding, 1)
        self.rank = len(down)
        # ink is 255 times too dark until here, so that the enlarged digit is exact in TF32 as well
        self.register_buffer("down", _float(np.concatenate([d @ enlarge for d in down])))
        self.register_buffer("across", _float(np.concatenate([(s @ enlarge).T for s in across]) / 255))

    def forward(self, digits: Tensor) -> Tensor:
        ink = digits.float()
        half = (self.down @ ink).view(len(ink), self.rank, -1, ink.shape[2])
        one = half.transpose(1, 2).flatten(2) @ self.across
        return functional.threshold(torch.stack([one, -one], dim=1), self.silence, 0.0)


class SLayer(nn.Module):  # type: ignore[misc]
    """S-cells (Ikeda eq. 1), max(0, sum a' u - theta' v) / (v + s), by cuDNN or copied windows."""

    a: Tensor
    silence: Tensor
    c: Tensor

    def __init__(self, spec: SSpec, weights: SWeights, form: str = "conv") -> None:
        super().__init__()
        self.form, self.padding, self.silent_below = form, spec.padding, silence_of(weights)
        a, theta, silence = s_constants(weights)
        self.theta = float(theta)
        self.register_buffer("a", _float(a))
        self.register_buffer("silence", _float(silence)[None, :, None, None])
        self.register_buffer("c", _float(weights.c[None, None]))

    def freeze(self, dtype: Any, memory_format: Any) -> None:
        """Keep the constants in the given type and memory format."""
        self.a = self.a.to(dtype).contiguous(memory_format=memory_format)
        # in fp16 an s of 0 would make 0/0 where all is silent
        self.silence = self.silence.clamp(min=torch.finfo(dtype).tiny).to(dtype)
        self.c = self.c.to(dtype)

    def forward(self, u: Tensor) -> Tensor:
        """Respond to the layer before, (B, K', H, W) -> (B, K, H', W')."""
        energy = (u * u).sum(dim=1, keepdim=True)
        v = functional.conv2d(energy, self.c, padding=self.padding).sqrt()
        above = functional.relu(self._excite(u) - self.theta * v)
        # fast convolutions leave rounding noise where all is silent, and s is tiny there
        return above / (v + self.silence) * (v > self.silent_below)

    def _excite(self, u: Tensor) -> Tensor:
        if self.form == "conv":
            return functional.conv2d(u, self.a, padding=self.padding)
        k = self.a.shape[-1]
        seen = u.permute(0, 2, 3, 1).unfold(1, k, 1).unfold(2, k, 1)  # (B, H', W', K', ky, kx)
        n, height, width = seen.shape[:3]
        e = seen.reshape(n * height * width, -1) @ self.a.reshape(len(self.a), -1).T
        return e.view(n, height, width, -1).permute(0, 3, 1, 2)


class CLayer(nn.Module):  # type: ignore[misc]
    """C-cells: psi(max(0, a_C * u)) at stride 2, (B, K, H, W) -> (B, K, H', W')."""

    def __init__(self, spec: CSpec, blur: NDArray[np.float32], size: int, psi: str, form: str) -> None:
        super().__init__()
        self.form, self.psi, self.padding, self.stride = form, psi, spec.padding, spec.stride
        a = pooled(blur.astype(np.float64))
        down, across = _factors(a, size, spec.padding, spec.stride)
        self.rank = len(down)
        self.register_buffer("kernel", _float(a)[None, None])
        self.register_buffer("down", _float(np.concatenate(down)))
        self.register_buffer("across", _float(np.concatenate([s.T for s in across])))

    def freeze(self, dtype: Any, memory_format: Any) -> None:
        for name in ("kernel", "down", "across"):
            setattr(self, name, getattr(self, name).to(dtype))

    def forward(self, u: Tensor) -> Tensor:
        y = functional.relu(self._products(u) if self.form == "products" else self._stacked(u))
        return y.sqrt() if self.psi == "sqrt" else y / (1 + y)

    def _stacked(self, u: Tensor) -> Tensor:
        n, k = u.shape[:2]
        planes = u.reshape(n * k, 1, *u.shape[2:])
        y = functional.conv2d(planes, self.kernel, stride=self.stride, padding=self.padding)
        return y.view(n, k, *y.shape[2:])

    def _products(self, u: Tensor) -> Tensor:
        n, k, h, w = u.shape
        if not u.is_contiguous():  # channels last: planes are the columns of the products
            rows = (self.down @ u.permute(0, 2, 3, 1).reshape(n, h, w * k)).view(n, self.rank, -1, w, k)
            rows = rows.transpose(1, 2).reshape(n, -1, self.rank * w, k)
            return (self.across.T @ rows).permute(0, 3, 1, 2)
        rows = (self.down @ u).view(n, k, self.rank, -1, w)
        return rows.transpose(2, 3).reshape(n, k, -1, self.rank * w) @ self.across


class Network(nn.Module):  # type: ignore[misc]
    """A model as a PyTorch module: digits (B, 28, 28) uint8 -> scores (B, 10) float32."""

    def __init__(self, model: Model, forms: Mapping[str, str] | None = None) -> None:
        super().__init__()
        spec = model.spec
        self.forms = {name: usual for name, (usual, _) in FORMS.items()} | dict(forms or {})
        layers: dict[str, nn.Module] = {}
        for i in range(4):
            s, c = f"US{i + 1}", f"UC{i + 1}"
            layers[s] = SLayer(spec.s[i], model.s[i], self.forms.get(s, "conv"))
            if i < 3:
                layers[c] = CLayer(spec.c[i], model.blurs[i], spec.size(s), model.psi, self.forms[c])
        self.contrast, self.layers = Contrast(spec.contrast), nn.ModuleDict(layers)
        index, present = planes_of_labels(model)
        self.register_buffer("index", torch.from_numpy(index))
        self.register_buffer("present", _float(present))

    def freeze(self, dtype: Any = torch.float32, *, channels_last: bool = False) -> "Network":
        """Make the module ready for recognition alone; maps after UG have the given type."""
        self.requires_grad_(False)
        self.dtype = dtype
        self.memory_format = torch.channels_last if channels_last else torch.contiguous_format
        for layer in self.layers.values():
            layer.freeze(dtype, self.memory_format)
        return self

    def forward(self, digits: Tensor) -> Tensor:
        planes = self.maps(digits)["US4"].float().amax(dim=(2, 3))
        return (planes[:, self.index] * self.present).amax(dim=2)  # the strongest of each label

    def maps(self, digits: Tensor) -> dict[str, Tensor]:
        u = self.contrast(digits).to(self.dtype).contiguous(memory_format=self.memory_format)
        out = {"UG": u}
        for name, layer in self.layers.items():
            u = out[name] = layer(u)
        return out


def _float(values: Any) -> Tensor:
    return torch.tensor(np.asarray(values), dtype=torch.float32)


def _factors(
    kernel: NDArray[np.float64], size: int, padding: int, stride: int
) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    """Return banded matrices D, A with sum_r D_r U A_r^T the correlation of U with a kernel."""
    u, sigma, vt = np.linalg.svd(kernel)
    rank = int((sigma > 1e-7 * sigma[0]).sum())  # below it is rounding
    down = [banded(u[:, r] * sigma[r], size, padding, stride) for r in range(rank)]
    return down, [banded(vt[r], size, padding, stride) for r in range(rank)]


def set_precision(precision: str) -> None:
    """Allow TF32 in matrix products and convolutions, or not; let cuDNN try its algorithms."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "fp32"
    torch.backends.cudnn.benchmark = True


class Graph:
    """A function of nothing, captured as a CUDA graph and timed as one."""

    def __init__(self, function: Callable[[], Tensor]) -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), torch.no_grad():
            for _ in range(3):
                function()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            self.result = function()
        self.replay: Callable[[], None] = graph.replay

    def elapsed(self, repeats: int) -> float:
        """Return milliseconds of one replay, over ``repeats`` in a row."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.replay()
        torch.cuda._sleep(20_000 * repeats)  # cycles in which launches queue up behind
        start.record()
        for _ in range(repeats):
            self.replay()
        end.record()
        end.synchronize()
        ms: float = start.elapsed_time(end) / repeats
        return ms

    def median(self, rounds: int, repeats: int) -> float:
        return float(np.median([self.elapsed(repeats) for _ in range(rounds)]))


class TorchSide(Graph):
    """A network as a captured pass; a Side of ``compare.py``."""

    def __init__(self, network: Network, batch: int, *, compiled: bool = False) -> None:
        self.words, self._run = f"{network.memory_format}, {network.forms}", network
        if compiled:
            torch._dynamo.config.recompile_limit = 1000  # beyond 8 shapes it would silently run eager code
            self._run = torch.compile(network, dynamic=False)  # kept: the graph launches its kernels
        self._digits = torch.zeros((batch, 28, 28), dtype=torch.uint8, device="cuda")
        super().__init__(lambda: self._run(self._digits))

    def load(self, digits: NDArray[np.uint8]) -> None:
        self._digits.copy_(torch.from_numpy(digits))

    def scores(self) -> NDArray[np.float32]:
        self.replay()
        found: NDArray[np.float32] = self.result[:, :LABELS].cpu().numpy()
        return found


def quickest(
    model: Model, digits: NDArray[np.uint8], precision: str, number: int, compiled: bool
) -> TorchSide:
    """Return the quickest side; compiled are the forms that are quickest in either memory format."""
    torch.cuda.set_device(number)
    set_precision(precision)

    def side(channels_last: bool, forms: dict[str, str], compiled: bool = False) -> TorchSide:
        network = Network(model, forms)
        network.to("cuda")
        network.freeze(TYPES[precision], channels_last=channels_last)
        found = TorchSide(network, len(digits), compiled=compiled)
        found.load(digits)
        return found

    def ms(channels_last: bool, forms: dict[str, str]) -> float:
        found = side(channels_last, forms).median(5, 3)
        torch.cuda.empty_cache()
        return found

    ways: list[tuple[float, bool, dict[str, str]]] = []
    for channels_last in (False, True):
        forms = {name: usual for name, (usual, _) in FORMS.items()}
        least = ms(channels_last, forms)
        for name, (_, other) in FORMS.items():
            if (took := ms(channels_last, forms | {name: other})) < least:
                least, forms = took, forms | {name: other}
        ways.append((least, channels_last, forms))
    ways.sort(key=lambda way: way[0])
    sides = [side(*way[1:], compiled=compiled) for way in ways[: 1 + compiled]]
    return min(sides, key=lambda side: side.median(5, 3))
