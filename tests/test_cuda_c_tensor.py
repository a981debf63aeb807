"""The C-layers on tensor cores in the emulator, held against the float64 equations."""

from itertools import product

import numpy as np
import pytest

from neocog.cuda.c_direct_sum import combined
from neocog.cuda.c_tensor import Shape, TensorC, Tiling, choose, fits, pack
from neocog.cuda.kernel import PRECISIONS, layouts, shared_limit
from neocog.cuda.tilings import _table
from neocog.errors import UsageError
from tests.cuda_maps import error_of
from tests.cuda_support import first, thinned
from tests.emulator import Emulator
from tests.test_cuda_c_direct_sum import crooked, model_of

#: Largest error of a layer, as a share of its strongest response.
BOUND = {"fp32": 1e-5, "fp16": 1e-3}
#: Planes of US2, US3, US4 that make no whole group of 16, and two groups.
PLANES = (26, 7, 7)


def step_of(emulator, name, layer, precision, blur=None, planes=PLANES, **more):
    model = model_of(name, blur)
    return TensorC(emulator, model, layer, layouts(model.spec, planes, precision), precision, **more)


def check(emulator, name, layer, precision, planes=PLANES, **more):
    """Hold a layer against the equations, on maps as sparse as those of a digit."""
    step = step_of(emulator, name, layer, precision, planes=planes, **more)
    lay = layouts(step.model.spec, planes, precision)
    assert error_of(emulator, step, lay, active=0.03) <= BOUND[precision]


@pytest.mark.parametrize(
    ("precision", "tiling"),
    first(2, [("fp16", Tiling(True, 13, 1, 1, 8, 2)), ("fp32", Tiling(False, 3, 1, 8, 1)),
              ("fp32", Tiling(True, 13, 1, 1, 4, 2)), ("fp16", Tiling(False, 3, 1, 8, 1))]),
)  # fmt: skip
def test_half_a_group_of_planes_is_not_written_beyond(emulator, precision, tiling):
    check(emulator, "neocog", 1, precision, (40, 7, 7), tiling=tiling)


FEW = thinned(
    product(("fukushima2003", "ikeda2011", "neocog"), range(3), ["fp16"], [2]),
    lambda name, layer, *_: (name, layer) in (("fukushima2003", 1), ("ikeda2011", 0), ("neocog", 2)),
)
MANY = thinned(
    ((*where, p, 1024) for where in (("fukushima2003", 2), ("ikeda2011", 1)) for p in PRECISIONS),
    lambda name, layer, precision, _: (layer == 2) == (precision == "fp16"),
)


@pytest.mark.parametrize(("name", "layer", "precision", "batch"), [*FEW, *MANY])
def test_few_and_many_digits_give_the_equations(emulator, name, layer, precision, batch):
    tiling = step_of(emulator, name, layer, precision).tiling(batch)
    assert tiling.stream or batch < 1024
    check(emulator, name, layer, precision, tiling=tiling)


@pytest.mark.parametrize(
    ("precision", "tiling"),
    thinned(
        [("fp16", Tiling(True, 13, 1, 1, 3, 2)), ("fp16", Tiling(True, 5, 2, 2, 2, 2)),
         ("fp16", Tiling(True, 8, 1, 3, 2, 1)), ("fp16", Tiling(False, 4, 2, 2, 5)),
         ("fp16", Tiling(False, 1, 1, 7, 1)), ("fp32", Tiling(False, 3, 1, 3, 3)),
         ("fp32", Tiling(False, 2, 2, 8, 1)), ("fp32", Tiling(True, 21, 1, 2, 2, 1))],
        lambda precision, tiling: tiling.stream == (precision == "fp32") or tiling.rows == 13,
    ),
)  # fmt: skip
def test_every_way_of_dealing_it_to_blocks(emulator, precision, tiling):
    check(emulator, "fukushima2003", 1, precision, tiling=tiling)


@pytest.mark.parametrize("stream", [False, True])
def test_learned_blurs_need_no_symmetry(emulator, stream):
    check(emulator, "ikeda2011", 1, "fp32", blur=crooked, tiling=Tiling(stream, 4, 2, 2, 3, 1))


@pytest.mark.parametrize(
    ("order", "batch"),
    thinned(product(("reversed", 5), (8, 1024)), lambda order, batch: (order == 5) == (batch == 8)),
)
def test_in_any_order_of_threads(order, batch):
    emulator = Emulator(order=order)
    tiling = step_of(emulator, "ikeda2011", 1, "fp16").tiling(batch)
    check(emulator, "ikeda2011", 1, "fp16", tiling=tiling)


def test_few_digits_are_dealt_to_all_processors(emulator):
    model = model_of("fukushima2003")
    lay = layouts(model.spec, (26, 78, 70), "fp16")
    for layer in range(3):
        step = TensorC(emulator, model, layer, lay, "fp16")
        for batch in (8, 64, 4096):
            (launch,) = step.launches(batch, None, None, {})
            assert np.prod(launch.grid) >= 80


def test_tilings_that_ship_fit_and_any_shape_has_one():
    for arch, shape, rows in _table()["c"]:
        for _, *row in rows:
            assert fits(Shape(*shape), Tiling(*row), arch)
    for channels, taps, code in product((8, 24, 304), (2, 11, 18), (0, 1)):
        for arch in (80, 86, 90):
            shape = Shape(50, channels, 25, taps, 0, code)
            tiling = choose(shape, 8, arch)
            assert fits(shape, tiling, arch)
            assert shape.shared(tiling) <= shared_limit(arch)


def test_weights_are_rounded_at_a_scale_that_suits_them(emulator):
    a = combined(model_of("fukushima2003").blurs[1])
    shape = step_of(emulator, "fukushima2003", 1, "fp16").shape
    scale, words = pack(a, shape)
    halves = words.view(np.float16).astype(np.float64) * scale
    # each tap stands once in each of the 8 columns of its row
    error = halves.reshape(2 * shape.live + 1, -1).sum(axis=1)[: len(a)] / 8 - a.sum(axis=1)
    plain = a.astype(np.float16).astype(np.float64).sum(axis=1) - a.sum(axis=1)
    assert np.abs(error).max() < np.abs(plain).max()


def test_what_does_not_fit_is_refused(emulator):
    shape = step_of(emulator, "neocog", 0, "fp32").shape
    assert choose(shape, 8, 90).rows <= shape.out
    wide = model_of("neocog", lambda w: np.pad(w, 20))
    with pytest.raises(UsageError, match="up to 34 taps"):
        TensorC(emulator, wide, 0, layouts(wide.spec, PLANES, "fp32"), "fp32")


def test_few_digits_take_bands_where_streams_are_slow(emulator):
    for precision in ("fp32", "fp16"):
        steps = [step_of(emulator, "neocog", layer, precision) for layer in range(3)]
        bands = [not step.tiling(8).stream for step in steps]
        assert all(bands) if precision == "fp32" else bands[0]  # of UC1 a stream has five warps
        assert all(step.tiling(64).stream for step in steps)
