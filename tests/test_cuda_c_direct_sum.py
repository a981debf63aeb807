"""The C-layers' kernels in the emulator, held against the float64 equations."""

from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from experiments.emulator import Emulator
from neocog.cuda.c_direct_sum import VERSIONS, DirectSumC, Tiling
from neocog.cuda.steps import Precision, layouts
from neocog.errors import UsageError
from neocog.network import fields
from neocog.network.model import Model
from neocog.network.spec import preset
from tests.cuda_maps import c_wanted, read, responses, sparse, stored
from tests.cuda_support import thinned
from tests.support import tiny_model


def model_of(name: str, blur: Any = None) -> Model:
    spec = preset(name)
    blurs = tuple(fields.blur_kernel(c).astype(np.float32) for c in spec.c)
    if blur is not None:
        blurs = tuple(blur(w) for w in blurs)
    return replace(tiny_model(), spec=spec, blurs=blurs, psi=spec.psi)


def quickest(emulator: Emulator, model: Model, layer: int, lay: Any, precision: Precision) -> Any:
    """The layer by the quickest version that fits its blur."""
    for version in VERSIONS.values():
        with suppress(UsageError):
            return version(emulator, model, layer, lay, precision)


def crooked(w: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A learned blur: no symmetry."""
    rng = np.random.default_rng(3)
    return (w * rng.uniform(0.5, 1.5, w.shape)).astype(np.float32)


def check(step: DirectSumC, emulator: Any, model: Model, layer: int, lay: Any, bound: float) -> None:
    source = lay[step.reads]
    held = stored(sparse((2, source.planes, source.size, source.size)), source)
    wanted = c_wanted(model, layer, read(held, source))
    assert np.abs(responses(emulator, step, lay, held) - wanted).max() <= bound * wanted.max()


SMALL = (5, 6, 7)


@pytest.mark.parametrize(
    ("name", "layer", "version"),
    thinned(
        product(("fukushima2003", "ikeda2011", "neocog"), range(3), VERSIONS),
        lambda name, layer, version: (
            version == "separable" or (name, layer) in (("fukushima2003", 1), ("ikeda2011", 0), ("neocog", 2))
        ),
    ),
)
def test_every_version_gives_the_equations(emulator: Emulator, name: str, layer: int, version: str) -> None:
    model = model_of(name)
    lay = layouts(model.spec, SMALL, "fp32")
    if version == "separable" and name != "neocog":
        with pytest.raises(UsageError, match="does not fit"):
            VERSIONS[version](emulator, model, layer, lay, "fp32")
        return
    step = VERSIONS[version](emulator, model, layer, lay, "fp32")
    check(step, emulator, model, layer, lay, 1e-5)


def test_learned_blurs_need_no_symmetry(emulator: Emulator) -> None:
    model = model_of("ikeda2011", crooked)
    lay = layouts(model.spec, (3, 3, 3), "fp32")
    step = quickest(emulator, model, 1, lay, "fp32")
    assert step.version == "box"
    check(step, emulator, model, 1, lay, 1e-5)


@pytest.mark.parametrize(
    ("precision", "bound", "name"),
    thinned(
        (
            (*precision, name)
            for precision in (("fp16", 6e-4), ("bf16", 5e-3), ("tf32", 1e-5))
            for name in ("fukushima2003", "neocog")
        ),
        lambda precision, bound, name: precision == "fp16" or name == "fukushima2003",
    ),
)
def test_maps_in_16_bits(emulator: Emulator, precision: Precision, bound: float, name: str) -> None:
    model = model_of(name)
    lay = layouts(model.spec, (9, 3, 3), precision)
    step = quickest(emulator, model, 1, lay, precision)
    assert step.version == {"fukushima2003": "box", "neocog": "separable"}[name]
    check(step, emulator, model, 1, lay, bound)


@pytest.mark.parametrize(
    ("name", "version", "tiling"),
    thinned(
        (
            (*which, tiling)
            for which in (("ikeda2011", "box"), ("neocog", "separable"))
            for tiling in (Tiling(1, 1), Tiling(5, 4), Tiling(21, 3), Tiling(7, 2))
        ),
        lambda name, version, tiling: tiling in (Tiling(5, 4), Tiling(7, 2)),
    ),
)
def test_every_way_of_dealing_it_to_blocks(
    emulator: Emulator, tiling: Tiling, name: str, version: str
) -> None:
    model = model_of(name)
    lay = layouts(model.spec, (11, 3, 3), "fp32")
    step = VERSIONS[version](emulator, model, 1, lay, "fp32", tiling=tiling)
    check(step, emulator, model, 1, lay, 1e-5)


def test_few_digits_are_dealt_to_all_processors(emulator: Emulator) -> None:
    model = model_of("fukushima2003")
    lay = layouts(model.spec, (26, 78, 70), "fp16")
    for layer in range(3):
        step = quickest(emulator, model, layer, lay, "fp16")
        for batch in (8, 4096):
            (launch,) = step.launches(batch, None, None, {})
            assert np.prod(launch.grid) >= min(0.9 * emulator.processors, 10 * batch)
            assert launch.kernel.threads <= 1024


@pytest.mark.parametrize("name", ["fukushima2003", "neocog"])
def test_in_any_order_of_threads(name: str) -> None:
    model = model_of(name)
    lay = layouts(model.spec, (11, 3, 3), "fp32")
    for emulator in (Emulator(order="reversed"), Emulator(order=5)):
        check(quickest(emulator, model, 1, lay, "fp32"), emulator, model, 1, lay, 1e-5)
