"""The C-layers' kernels in the emulator, held against the float64 equations."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from neocog.cuda import c_tensor
from neocog.cuda.c_direct_sum import DirectSumC, SeparableC, combined
from neocog.cuda.c_direct_sum import Tiling as Direct
from neocog.cuda.c_tensor import Shape, TensorC, choose, fits, pack
from neocog.cuda.c_tensor import Tiling as Tensor
from neocog.cuda.kernel import PRECISIONS, _table, layouts, shared_limit
from neocog.errors import UsageError
from neocog.network.spec import blur_kernel, preset
from tests.cuda_maps import error_of
from tests.cuda_support import first, thinned
from tests.emulator import Emulator
from tests.support import tiny_model

VERSIONS = {"separable": SeparableC, "box": DirectSumC, "tensor": TensorC}
#: Largest error of a layer, as a share of its strongest response.
BOUND, DIRECT_BOUND = {"fp32": 1e-5, "fp16": 1e-3}, {"fp32": 1e-5, "fp16": 6e-4}
#: Planes of US2, US3, US4 that make no whole group of 16, and two groups.
PLANES = (26, 7, 7)


def model_of(name, blur=None):
    spec = preset(name)
    blurs = (blur_kernel(c).astype(np.float32) for c in spec.c)
    blurs = tuple(map(blur, blurs)) if blur else tuple(blurs)
    return replace(tiny_model(), spec=spec, blurs=blurs, psi=spec.psi)


def crooked(w):
    """A learned blur: no symmetry."""
    rng = np.random.default_rng(3)
    return (w * rng.uniform(0.5, 1.5, w.shape)).astype(np.float32)


def step_of(emulator, version, name, layer, precision, *, blur=None, planes=PLANES, **more):
    model = model_of(name, blur)
    lay = layouts(model.spec, planes, precision)
    return VERSIONS[version](emulator, model, layer, lay, precision, **more)


def check(emulator, version, name, layer, precision, planes=PLANES, **more):
    """Hold a layer against the equations; tensor cores on maps as sparse as those of a digit."""
    step = step_of(emulator, version, name, layer, precision, planes=planes, **more)
    lay = layouts(step.model.spec, planes, precision)
    active, most = (0.03, BOUND) if version == "tensor" else (0.3, DIRECT_BOUND)
    assert error_of(emulator, step, lay, active=active) <= most[precision]


LAYERS = tuple(product(("fukushima2003", "ikeda2011", "neocog"), range(3)))
CROOKED = ("fukushima2003", "ikeda2011")  # blurs that are no outer product
ONE_EACH = (("fukushima2003", 1), ("ikeda2011", 0), ("neocog", 2))
CASES = [
    *thinned(
        ((version, *where, "fp32", (5, 6, 7), {}) for where in LAYERS for version in ("separable", "box")
         if version == "box" or where[0] not in CROOKED),
        lambda version, name, layer, *_: version == "separable" or (name, layer) in ONE_EACH),
    ("box", "ikeda2011", 1, "fp32", (3, 3, 3), {"blur": crooked}),
    ("box", "fukushima2003", 1, "fp16", (9, 3, 3), {}),
    ("separable", "neocog", 1, "fp16", (9, 3, 3), {}),
    *thinned(
        ((*which, "fp32", (11, 3, 3), {"tiling": tiling})
         for which in (("box", "ikeda2011", 1), ("separable", "neocog", 1))
         for tiling in (Direct(1, 1), Direct(5, 4), Direct(21, 3), Direct(7, 2))),
        lambda *case: case[-1]["tiling"] in (Direct(5, 4), Direct(7, 2))),
    # half a group of planes
    *first(2, (("tensor", "neocog", 1, precision, (40, 7, 7), {"tiling": tiling}) for precision, tiling in (
        ("fp16", Tensor(True, 13, 1, 1, 8, 2)), ("fp32", Tensor(False, 3, 1, 8, 1)),
        ("fp32", Tensor(True, 13, 1, 1, 4, 2)), ("fp16", Tensor(False, 3, 1, 8, 1))))),
    *thinned(
        (("tensor", "fukushima2003", 1, precision, PLANES, {"tiling": tiling}) for precision, tiling in (
            ("fp16", Tensor(True, 13, 1, 1, 3, 2)), ("fp16", Tensor(True, 5, 2, 2, 2, 2)),
            ("fp16", Tensor(True, 8, 1, 3, 2, 1)), ("fp16", Tensor(False, 4, 2, 2, 5)),
            ("fp16", Tensor(False, 1, 1, 7, 1)), ("fp32", Tensor(False, 3, 1, 3, 3)),
            ("fp32", Tensor(False, 2, 2, 8, 1)), ("fp32", Tensor(True, 21, 1, 2, 2, 1)))),
        lambda _, name, layer, precision, planes, more:
            more["tiling"].stream == (precision == "fp32") or more["tiling"].rows == 13),
    *(("tensor", "ikeda2011", 1, "fp32", PLANES, {"blur": crooked, "tiling": Tensor(stream, 4, 2, 2, 3, 1)})
      for stream in (False, True)),
]  # fmt: skip


@pytest.mark.parametrize(("version", "name", "layer", "precision", "planes", "more"), CASES)
def test_every_version_and_tiling(emulator, version, name, layer, precision, planes, more):
    check(emulator, version, name, layer, precision, planes, **more)


CHOSEN = thinned(
    [*((*where, "fp16", 2) for where in LAYERS),
     *((*where, p, 1024) for where in (("fukushima2003", 2), ("ikeda2011", 1)) for p in PRECISIONS)],
    lambda name, layer, precision, batch: (
        (name, layer) in (("fukushima2003", 1), ("ikeda2011", 0), ("neocog", 2)) if batch == 2
        else (layer == 2) == (precision == "fp16")),
)  # fmt: skip


@pytest.mark.parametrize(("name", "layer", "precision", "batch"), CHOSEN)
def test_chosen_tilings_of_few_and_many_digits_give_the_equations(emulator, name, layer, precision, batch):
    tiling = step_of(emulator, "tensor", name, layer, precision).tiling(batch)
    assert tiling.stream or batch < 1024
    check(emulator, "tensor", name, layer, precision, tiling=tiling)


@pytest.mark.parametrize(
    ("version", "name", "order", "batch"),
    [*product(("box",), ("fukushima2003",), ("reversed", 5), (2,)),
     *product(("separable",), ("neocog",), ("reversed", 5), (2,)),
     *thinned(product(("tensor",), ("ikeda2011",), ("reversed", 5), (8, 1024)),
              lambda version, name, order, batch: (order == 5) == (batch == 8))],
)  # fmt: skip
def test_in_any_order_of_threads(version, name, order, batch):
    machine = Emulator(order=order)
    more = {"tiling": step_of(machine, version, name, 1, "fp16").tiling(batch)} if version == "tensor" else {}
    check(machine, version, name, 1, "fp16" if version == "tensor" else "fp32", (11, 3, 3), **more)


@pytest.mark.parametrize("version", ["box", "tensor"])
def test_few_digits_are_dealt_to_all_processors(emulator, version):
    for layer, batch in product(range(3), (8, 64, 4096)):
        step = step_of(emulator, version, "fukushima2003", layer, "fp16", planes=(26, 78, 70))
        (launch,) = step.launches(batch, None, None, {})
        assert np.prod(launch.grid) >= 80
        assert launch.kernel.threads <= 1024


def test_few_digits_take_bands_where_streams_are_slow(emulator):
    for precision in PRECISIONS:
        steps = [step_of(emulator, "tensor", "neocog", layer, precision) for layer in range(3)]
        bands = [not step.tiling(8).stream for step in steps]
        assert all(bands) if precision == "fp32" else bands[0]  # of UC1 a stream has five warps
        assert all(step.tiling(64).stream for step in steps)


def test_tilings_that_ship_fit_and_any_shape_has_one():
    for arch, shape, rows in _table()["c"]:
        for _, *row in rows:
            assert fits(Shape(*shape), Tensor(*row), arch)
    for channels, taps, code, arch in product((8, 24, 304), (2, 11, 18), (0, 1), (80, 86, 90)):
        shape = Shape(50, channels, 25, taps, 0, code)
        tiling = choose(shape, 8, arch)
        assert fits(shape, tiling, arch)
        assert shape.shared(tiling) <= shared_limit(arch)


def test_weights_are_rounded_at_a_scale_that_suits_them(emulator):
    a = combined(model_of("fukushima2003").blurs[1])
    shape = step_of(emulator, "tensor", "fukushima2003", 1, "fp16").shape
    scale, words = pack(a, shape)
    halves = words.view(np.float16).astype(np.float64) * scale
    # each tap stands once in each of the 8 columns of its row
    error = halves.reshape(2 * shape.live + 1, -1).sum(axis=1)[: len(a)] / 8 - a.sum(axis=1)
    plain = a.astype(np.float16).astype(np.float64).sum(axis=1) - a.sum(axis=1)
    assert np.abs(error).max() < np.abs(plain).max()


def test_what_does_not_fit_is_refused(emulator, monkeypatch):
    for name, layer in product(CROOKED, range(3)):
        with pytest.raises(UsageError, match="does not fit"):
            step_of(emulator, "separable", name, layer, "fp32")
    with pytest.raises(UsageError, match="up to 34 taps"):
        step_of(emulator, "tensor", "neocog", 0, "fp32", blur=lambda w: np.pad(w, 20))
    monkeypatch.setattr(c_tensor, "fits", lambda *_: False)
    with pytest.raises(UsageError, match="choose box"):
        choose(Shape(49, 8, 25, 3, 0, 0), 8, 90)
