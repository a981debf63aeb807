"""The S-layers' kernels on CUDA cores in the emulator, held against the float64 equations."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from experiments.emulator import Emulator
from neocog.cuda.kernel import Kernel, Launch
from neocog.cuda.s_direct import VERSIONS, CudaCoreS, DirectS, Tiling, choose
from neocog.cuda.steps import Precision, layouts
from neocog.errors import UsageError
from neocog.network import reference
from neocog.network.model import Model
from tests.cuda_maps import excitable_model, poisoned, read, sparse, stored
from tests.cuda_support import thinned


@pytest.fixture(scope="module")
def machine() -> Emulator:
    return Emulator()


def check(
    step: CudaCoreS, machine: Any, model: Model, layer: int, lay: Any, bound: float, batch: int = 2
) -> None:
    source, target = lay[step.reads], lay[step.writes]
    held = stored(sparse((batch, source.planes, source.size, source.size), active=0.5), source)
    weights, spec = model.s[layer], model.spec.s[layer]
    wanted = reference.s_response(
        read(held, source),
        weights.reference.astype(np.float64),
        weights.c.astype(np.float64),
        threshold=weights.threshold,
        q=weights.q,
        padding=spec.padding,
    )
    assert (wanted > 0).any()
    out = poisoned(target, batch)
    for launch in step.launches(batch, held, out, {}):
        machine.launch(launch)
    assert np.abs(read(out, target) - wanted).max() <= bound * wanted.max()


@pytest.mark.parametrize(
    ("name", "layer"),
    thinned(
        product(("fukushima2003", "neocog"), range(4)),
        lambda name, layer: (name == "neocog") == (layer % 2 == 1),
    ),
)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_gives_the_equations(
    machine: Emulator, name: str, layer: int, version: str
) -> None:
    model = excitable_model(name, (5, 9, 7))
    lay = layouts(model.spec, model.planes, "fp32")
    step = VERSIONS[version](machine, model, layer, lay, "fp32")
    check(step, machine, model, layer, lay, 1e-5)


@pytest.mark.parametrize(
    ("precision", "bound", "layer"),
    thinned(
        (
            (*precision, layer)
            for precision in (("fp16", 6e-4), ("bf16", 5e-3), ("tf32", 1e-5))
            for layer in (0, 2)
        ),
        lambda precision, bound, layer: (layer == 2) == (precision == "fp16"),
    ),
)
def test_maps_in_16_bits(machine: Emulator, precision: Precision, bound: float, layer: int) -> None:
    model = excitable_model("ikeda2011", (17, 12, 3))
    lay = layouts(model.spec, model.planes, precision)
    check(DirectS(machine, model, layer, lay, precision), machine, model, layer, lay, bound)


@pytest.mark.parametrize("tiling", [
    Tiling(1, 22, 1, 2, 3, 8, 4), Tiling(1, 5, 4, 2, 1, 8, 8), Tiling(2, 22, 2, 16, 1, 4, 8),
    Tiling(1, 1, 8, 1, 1, 8, 4, 2), Tiling(3, 22, 1, 6, 2, 8, 8), Tiling(1, 11, 4, 8, 1, 4, 4, 2),
    Tiling(1, 2, 2, 2, 2, 2, 4, 4),
])  # fmt: skip
def test_every_way_of_dealing_it_to_blocks(machine: Emulator, tiling: Tiling) -> None:
    model = excitable_model("ikeda2011", (6, 20, 3))
    lay = layouts(model.spec, model.planes, "fp32")
    step = DirectS(machine, model, 2, lay, "fp32", tilings={4: tiling})
    check(step, machine, model, 2, lay, 1e-5, batch=4)


@pytest.mark.parametrize("batch", [1, 5])
def test_the_top_layer_at_its_full_size(machine: Emulator, batch: int) -> None:
    model = excitable_model("neocog", (3, 78, 33))
    lay = layouts(model.spec, model.planes, "fp16")
    step = DirectS(machine, model, 3, lay, "fp16")
    check(step, machine, model, 3, lay, 1e-5, batch=batch)


def test_silence_gives_silence(machine: Emulator) -> None:
    model = excitable_model("neocog", (3, 4, 5))
    lay = layouts(model.spec, model.planes, "fp32")
    for version in VERSIONS.values():
        step = version(machine, model, 1, lay, "fp32")
        out = poisoned(lay["US2"], 1)
        for launch in step.launches(1, np.zeros(lay["UC1"].shape(1), np.float32), out, {}):
            machine.launch(launch)
        assert not out.any()


@pytest.mark.parametrize("batch", [1, 8, 256])
def test_a_tiling_fits_the_device(machine: Emulator, batch: int) -> None:
    model = excitable_model("fukushima2003", (26, 78, 70))
    lay = layouts(model.spec, model.planes, "fp32")
    for layer in range(4):
        (launch,) = DirectS(machine, model, layer, lay, "fp32").launches(batch, None, None, {})
        kernel = launch.kernel
        assert kernel.threads * kernel.registers <= 65536
        assert kernel.shared <= 227 * 1024
        assert np.prod(launch.grid) >= min(60, 4 * batch)


def test_too_many_planes_are_an_error(machine: Emulator) -> None:
    model = excitable_model("neocog", (3, 4, 5))
    lay = layouts(model.spec, model.planes, "fp32")
    shape = replace(DirectS(machine, model, 3, lay, "fp32").shape, depth=4000)
    with pytest.raises(UsageError, match="4000 input planes"):
        choose(shape, 8, 90, 132)


def test_in_any_order_of_threads() -> None:
    model = excitable_model("ikeda2011", (6, 20, 3))
    lay = layouts(model.spec, model.planes, "fp32")
    tilings = {4: Tiling(1, 11, 4, 8, 1, 4, 4, 2)}
    for machine in (Emulator(order="reversed"), Emulator(order=5)):
        step = DirectS(machine, model, 2, lay, "fp32", tilings=tilings)
        check(step, machine, model, 2, lay, 1e-5, batch=4)


@pytest.mark.parametrize(
    ("layer", "precision", "strip"),
    thinned(
        ((*which, strip) for which in ((0, "fp32"), (1, "fp16"), (3, "bf16")) for strip in (1, 4)),
        lambda layer, precision, strip: (strip == 1) == (precision == "fp16"),
    ),
)
def test_inhibition(machine: Emulator, layer: int, precision: Precision, strip: int) -> None:
    model = excitable_model("neocog", (5, 20, 3))
    lay = layouts(model.spec, model.planes, precision)
    spec, source = model.spec.s[layer], lay[f"UC{layer}" if layer else "UG"]
    out = lay[f"US{layer + 1}"].size
    held = stored(sparse((2, source.planes, source.size, source.size)), source)
    wanted = reference.inhibition(read(held, source), model.s[layer].c.astype(float), spec.padding)
    v = np.full((2, out, out), np.nan, dtype=np.float32)
    strips = 3
    defines = {"MAP": source.code, "WIDTH": source.width, "CHANNELS": source.channels,
               "KSIZE": spec.kernel, "OUT": out, "STRIP": strip, "STRIPS": strips}  # fmt: skip
    seen = strip * strips + spec.kernel - 1
    shared = 4 * (seen * source.width + spec.kernel**2)
    kernel = Kernel("inhibition.cu", "inhibition", tuple(defines.items()), 256, shared)
    grid = (-(-out // (strip * strips)), 1, 2)
    machine.launch(Launch(kernel, grid, (held, model.s[layer].c, v)))
    assert np.abs(v - wanted).max() <= 2e-6 * wanted.max()
