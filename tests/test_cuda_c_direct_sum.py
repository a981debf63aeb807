"""The C-layers' kernels in the emulator, held against the float64 equations."""

from contextlib import suppress
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from neocog.cuda.c_direct_sum import DirectSumC, SeparableC, Tiling
from neocog.cuda.kernel import layouts
from neocog.errors import UsageError
from neocog.network.spec import blur_kernel, preset
from tests.cuda_maps import error_of
from tests.cuda_support import thinned
from tests.emulator import Emulator
from tests.support import tiny_model

VERSIONS = {"separable": SeparableC, "box": DirectSumC}


def model_of(name, blur=None):
    spec = preset(name)
    blurs = (blur_kernel(c).astype(np.float32) for c in spec.c)
    blurs = tuple(map(blur, blurs)) if blur else tuple(blurs)
    return replace(tiny_model(), spec=spec, blurs=blurs, psi=spec.psi)


def quickest(emulator, model, layer, lay, precision):
    """The layer by the quickest version that fits its blur."""
    for version in VERSIONS.values():
        with suppress(UsageError):
            return version(emulator, model, layer, lay, precision)


def crooked(w):
    """A learned blur: no symmetry."""
    rng = np.random.default_rng(3)
    return (w * rng.uniform(0.5, 1.5, w.shape)).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "layer", "version"),
    thinned(
        product(("fukushima2003", "ikeda2011", "neocog"), range(3), VERSIONS),
        lambda name, layer, version: (
            version == "separable" or (name, layer) in (("fukushima2003", 1), ("ikeda2011", 0), ("neocog", 2))
        ),
    ),
)
def test_every_version_gives_the_equations(emulator, name, layer, version):
    model = model_of(name)
    lay = layouts(model.spec, (5, 6, 7), "fp32")
    if version == "separable" and name != "neocog":
        with pytest.raises(UsageError, match="does not fit"):
            VERSIONS[version](emulator, model, layer, lay, "fp32")
        return
    assert error_of(emulator, VERSIONS[version](emulator, model, layer, lay, "fp32"), lay) <= 1e-5


def test_learned_blurs_need_no_symmetry(emulator):
    model = model_of("ikeda2011", crooked)
    lay = layouts(model.spec, (3, 3, 3), "fp32")
    step = quickest(emulator, model, 1, lay, "fp32")
    assert step.version == "box"
    assert error_of(emulator, step, lay) <= 1e-5


@pytest.mark.parametrize(
    ("precision", "bound", "name"), [("fp16", 6e-4, "fukushima2003"), ("fp16", 6e-4, "neocog")]
)
def test_maps_in_16_bits(emulator, precision, bound, name):
    model = model_of(name)
    lay = layouts(model.spec, (9, 3, 3), precision)
    step = quickest(emulator, model, 1, lay, precision)
    assert step.version == {"fukushima2003": "box", "neocog": "separable"}[name]
    assert error_of(emulator, step, lay) <= bound


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
def test_every_way_of_dealing_it_to_blocks(emulator, tiling, name, version):
    model = model_of(name)
    lay = layouts(model.spec, (11, 3, 3), "fp32")
    step = VERSIONS[version](emulator, model, 1, lay, "fp32", tiling=tiling)
    assert error_of(emulator, step, lay) <= 1e-5


def test_few_digits_are_dealt_to_all_processors(emulator):
    model = model_of("fukushima2003")
    lay = layouts(model.spec, (26, 78, 70), "fp16")
    for layer in range(3):
        step = quickest(emulator, model, layer, lay, "fp16")
        for batch in (8, 4096):
            (launch,) = step.launches(batch, None, None, {})
            assert np.prod(launch.grid) >= min(0.9 * emulator.processors, 10 * batch)
            assert launch.kernel.threads <= 1024


@pytest.mark.parametrize("name", ["fukushima2003", "neocog"])
def test_in_any_order_of_threads(name):
    model = model_of(name)
    lay = layouts(model.spec, (11, 3, 3), "fp32")
    for emulator in (Emulator(order="reversed"), Emulator(order=5)):
        assert error_of(emulator, quickest(emulator, model, 1, lay, "fp32"), lay) <= 1e-5
