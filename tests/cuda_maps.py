"""Maps in the layouts of the kernels, poisoned where a kernel has to write; bounds of errors."""

from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np

from neocog.cuda.kernel import Layout
from neocog.network import fields, reference
from neocog.network.model import Model, SWeights
from neocog.network.spec import preset
from neocog.network.u0 import made_digits
from tests.support import digits_of, tiny_model

#: The same of a layer at its place in the pass, where errors add up.
PASS_BOUND = {"fp32": 2e-4, "tf32": 2e-2, "fp16": 2e-2, "bf16": 1e-1}
#: Maps in bfloat16 are rounded by 2^-9 of themselves, as are weights and fields. S-cells: four such
#: roundings (input, weights, inhibition, result) enlarged by 1 / (1 - theta) = 2.4 make 2e-2, and
#: a little comes from the layers before. C-cells: centre and surround of a field weigh up to 310
#: and cancel, so that a weak response is the difference of two strong ones. With independent
#: roundings of input, weights and sums, 2^-9 sqrt(sum (a u)^2) / (1 + x)^2 is 0.022, 0.038, 0.017
#: of UC1 .. UC3 at the worst place of ten digits; four times that is allowed at one place among
#: the 10^5, and the root of the mean square shows an error of any other kind.
BF16_S, BF16_C, BF16_RMS = 2.5e-2, 1.6e-1, 5e-3


def uncleared(machine: Any) -> Any:
    """Make a machine's new arrays hold NaN (of numbers) where they are not asked to be clear."""

    def empty(shape: Any, dtype: Any = float) -> Any:
        out = np.empty(shape, dtype)
        out.view(np.uint8)[...] = 0xFF
        return out

    machine.xp = ModuleType("numpy")
    machine.xp.__dict__.update({**np.__dict__, "empty": empty})
    return machine


def cut(values: Any, layout: Layout) -> Any:
    """Float values in the layout's type of storage, rounded to nearest."""
    out = np.ascontiguousarray(values, dtype=np.float32)
    if layout.dtype == "bfloat16":
        bits = out.view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return out.astype(layout.storage)


def stored(maps: Any, layout: Layout) -> Any:
    """Float64 maps (B, K, H, W) as the layout keeps them: border and spare channels 0."""
    out = np.zeros(layout.shape(len(maps)), dtype=np.float32)
    inside(out, layout)[...] = maps.transpose(0, 2, 3, 1)
    return cut(out, layout)


def poisoned(layout: Layout, batch: int) -> Any:
    """A target for ``batch`` digits: NaN where a kernel must write, 0 elsewhere."""
    out = np.zeros(layout.shape(batch), dtype=np.float32)
    inside(out, layout)[...] = np.nan
    bits = cut(out, layout)
    if layout.dtype == "bfloat16":
        bits[...] = np.where(np.isnan(out), 0x7FC0, 0)
    return bits


def read(array: Any, layout: Layout) -> Any:
    """Float64 maps (B, K, H, W) of a layout's array, whose border and spare channels must be 0."""
    if layout.dtype == "bfloat16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    whole = array.astype(np.float64)
    maps = inside(whole, layout).transpose(0, 3, 1, 2).copy()
    inside(whole, layout)[...] = 0
    assert not whole.any()
    return maps


def responses(machine: Any, step: Any, lay: Any, source: Any) -> Any:
    """What a step makes of ``source``, its target and its scratch poisoned."""
    batch, target = len(source), lay[step.writes]
    out = poisoned(target, batch)
    scratch = {name: np.full(n, np.nan, kind) for name, (n, kind) in step.scratch(batch).items()}
    for launch in step.launches(batch, source, out, scratch):
        machine.launch(launch)
    return read(out, target)


def s_wanted(model: Model, layer: int, maps: Any) -> Any:
    """What the equations of an S-layer make of maps."""
    weights = model.s[layer]
    return reference.s_response(
        maps,
        weights.reference.astype(np.float64),
        weights.c.astype(np.float64),
        threshold=weights.threshold,
        q=weights.q,
        padding=model.spec.s[layer].padding,
    )


def c_wanted(model: Model, layer: int, maps: Any) -> Any:
    """What the equations of a C-layer make of maps."""
    blur = model.blurs[layer].astype(np.float64)
    return reference.c_response(maps, blur, padding=model.spec.c[layer].padding, kind=model.psi)


def inside(array: Any, layout: Layout) -> Any:
    """The cells of the layer, (B, H, W, K), a view."""
    b, size = layout.border, layout.size
    return array[:, b : b + size, b : b + size, : layout.planes]


def sparse(shape: tuple[int, ...], *, seed: int = 1, active: float = 0.3) -> Any:
    """Responses in 0 .. 1 of which a part is active."""
    rng = np.random.default_rng(seed)
    return rng.uniform(0, 1, shape) * (rng.uniform(size=shape) < active)


def excitable_model(name: str, planes: tuple[int, int, int]) -> Model:
    """References and input at random, a threshold that about half of the cells reach."""
    spec = preset(name)
    layers, before = [], 2
    for i, (k, s) in enumerate(zip((spec.orientations, *planes), spec.s, strict=True)):
        x = sparse((k, before, s.kernel, s.kernel), seed=i, active=0.5).astype(np.float32)
        x[k // 2] = 0 if k > 2 else x[k // 2]  # a plane that has learned nothing
        layers.append(SWeights(x, fields.bell(s.kernel, s.c).astype(np.float32), 0.3, s.q))
        before = k
    s1, s2, s3, s4 = layers
    return replace(tiny_model(), spec=spec, s=(s1, s2, s3, s4))


def some_digits(count: int) -> Any:
    return np.concatenate([digits_of("0123456789"), made_digits(count)])[:count]


def assert_maps_agree(got: Any, want: Any, precision: str, psi: str = "") -> None:
    for layer, values in want.items():
        if layer in got:
            found = got[layer].astype(np.float64)
            if psi == "sqrt" and precision == "fp32" and layer in ("UC1", "UC2", "UC3"):
                found, values = found**2, values**2  # the root is infinitely steep at 0
            errors = np.abs(found - values) / np.abs(values).max()
            bound = PASS_BOUND[precision]
            if precision == "bf16":
                bound = BF16_C if layer in ("UC1", "UC2", "UC3") else BF16_S
                assert np.sqrt((errors**2).mean()) <= BF16_RMS, layer
            assert errors.max() <= bound, f"{layer}: {errors.max():.1e}"


def assert_adds_up(times: Any) -> None:
    """Stages add up to the total, in every repeat."""
    parts = sum(ms for name, ms in times.items() if name != "total")
    np.testing.assert_allclose(parts, times["total"], rtol=1e-9)
