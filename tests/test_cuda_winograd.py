"""Decomposed Winograd convolution against float64, its kernels run by the emulator."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from experiments.gpu.interpret import read
from experiments.network.ours import stored
from neocog.cuda import winograd
from neocog.cuda.kernel import layouts, up
from neocog.cuda.winograd import Convolution, Shape, Split, WinogradS, best_tile, uniform
from neocog.network import reference
from tests.cuda_maps import excitable_model, responses, sparse
from tests.cuda_support import emulated, first
from tests.emulator import Emulator
from tests.test_cubins import fault


def correlate(x, w):
    """(B, H, W, C) with (K, C, k, k) -> (B, H', W', K) in float64."""
    u = x.astype(np.float64).transpose(0, 3, 1, 2)
    seen = reference.windows(u, w.shape[-1], 0)
    return np.einsum("bchwij,kcij->bhwk", seen, w.astype(np.float64), optimize=True)


def relative(y, r):
    assert np.isfinite(y).all()
    return np.abs(y - r).max() / np.abs(r).max()


def run(plan, x, w, *, machine=None):
    """Launch the plan in the emulator on poisoned buffers; the planes that are real."""
    machine, size, batch = machine or Emulator(), plan.shape.out, len(x)
    y = np.full((batch, size, size, plan.shape.planes), np.nan, np.float32)
    scratch = {name: np.full(n, np.nan, kind) for name, (n, kind) in plan.scratch(batch).items()}
    for launch in plan.launches(batch, x, plan.filters(w), y, scratch, machine.processors):
        machine.launch(launch)
    assert not y[..., len(w) :].any()
    return y[..., : len(w)]


def layer(split, m, *, size, channels=8, planes=8, batch=1, kind=Convolution, **more):
    """A plan with input and filters at random."""
    rng = np.random.default_rng(7)
    shape = Shape(split.kernel, size + split.kernel - 1, channels, up(planes, 8))
    x = rng.random((batch, shape.width, shape.width, channels), dtype=np.float32)
    w = rng.standard_normal((planes, channels, split.kernel, split.kernel)).astype(np.float32)
    return kind(shape, split, m, **more), x, w


# -- transforms ------------------------------------------------------------------------------------
@pytest.mark.parametrize(("m", "r"), [*itertools.product((1, *winograd.TILES), range(1, 5))])
def test_the_transforms_are_exact(m, r):
    output, filters, inputs = winograd.cook_toom(m, r)
    rng = np.random.default_rng(m * 10 + r)
    d = np.array([Fraction(int(v)) for v in rng.integers(-9, 10, m + r - 1)])
    g = np.array([Fraction(int(v)) for v in rng.integers(-9, 10, r)])
    y = output @ ((filters @ g) * (inputs @ d))
    assert y.tolist() == [sum(g[k] * d[i + k] for k in range(r)) for i in range(m)]


def test_the_s_layers_take_a_quarter_of_the_multiplications():
    for sizes, m, wanted in (((3, 3, 1), 2, 25), ((3, 3, 1), 4, 16), ((4, 3), 4, 169 / 16)):
        assert Split(7, sizes).per_output(m) == wanted
    layers, direct, best = ((6, 38, 16 * 26), (6, 22, 26 * 78), (9, 5, 78 * 70)), 0, 0.0
    for k, size, pairs in layers:
        direct += size**2 * k**2 * pairs
        best += uniform(k).per_output(best_tile(uniform(k), size), size) * size**2 * pairs
    assert best_tile(uniform(9), 5) == 5
    assert direct / best > 3.7


# -- kernels ---------------------------------------------------------------------------------------
CASES = [  # sizes, m, size, channels, planes, batch, operand, block
    *first(4, [
        ((3, 3), 3, 7, 16, 40, 1, "fp32", None), ((4, 3), 4, 9, 10, 24, 3, "fp32", None),
        ((3, 3, 1), 2, 5, 8, 70, 2, "fp32", None), ((3, 3, 3), 5, 5, 78, 16, 3, "fp32", None),
        ((4, 4), 4, 13, 5, 8, 1, "fp32", None), ((2, 2), 5, 7, 3, 9, 1, "fp32", None),
        ((4, 4), 3, 5, 3, 9, 1, "fp32", None)]),
    ((3,) * 9, 3, 4, 4, 8, 1, "fp32", None), ((3, 3), 3, 24, 8, 64, 2, "fp32", (128, 64)),
    *first(1, [((4, 3), 4, 9, 40, 72, 2, "fp16", None), ((4, 3), 4, 9, 10, 24, 2, "fp16", None)]),
    *first(3, [  # of 40 channels sums are longer than tensor cores make
        ((4, 4), 4, 14, 40, 72, 1, "tf32x3", (16, 128)), ((4, 3), 4, 9, 10, 24, 1, "tf32x3", (64, 32)),
        ((3, 3), 3, 24, 16, 64, 1, "tf32x3", (128, 64)), ((4, 3), 2, 9, 24, 40, 1, "tf32x3", (32, 64)),
        ((3, 3, 1), 2, 8, 8, 96, 1, "tf32x3", (64, 96)),
        ((4, 4), 4, 12, 32, 128, 1, "tf32x3", (64, 128))]),
]  # fmt: skip


@emulated
@pytest.mark.parametrize(("sizes", "m", "size", "channels", "planes", "batch", "operand", "block"), CASES)
def test_convolutions_of_every_kind(sizes, m, size, channels, planes, batch, operand, block, monkeypatch):
    split = Split(min(sum(sizes), 25), sizes)
    more = {"size": size, "channels": channels, "planes": planes, "batch": batch, "operand": operand}
    plan, x, w = layer(split, m, **more)
    machine = Emulator(order="reversed" if block and m != 2 else "forward")
    if block and operand == "fp32":
        assert plan.block(batch, 1) == block  # many tiles take larger blocks
        machine.processors = 1
    elif block:
        monkeypatch.setattr(Convolution, "block", lambda *_: block)
        x *= 1e-12  # no range is asked for
    bound = {"fp32": 2e-5, "fp16": 1e-2, "tf32x3": 1e-5}[operand]
    assert relative(run(plan, x, w, machine=machine), correlate(x, w)) < bound


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize("block", [(16, 128), (64, 96), (64, 128), (128, 64)])
@pytest.mark.parametrize("arch", [80, 90])
def test_float32_products_spill_nothing(arch, block, monkeypatch):
    monkeypatch.setattr(Convolution, "block", lambda *_: block)
    plan = Convolution(Shape(7, 34, 96, 192), Split(7, (4, 3)), 4, "tf32x3")
    launches = plan.launches(1, None, None, None, dict.fromkeys(plan.scratch(1)), 132)
    assert not any(fault(launch.kernel, arch) for launch in launches)


# -- steps -----------------------------------------------------------------------------------------
def step_of(layer, precision, *, model=None, planes=(17, 20, 30), **machine):
    model, on = model or excitable_model("neocog", planes), Emulator()
    vars(on).update(machine)
    lay = layouts(model.spec, model.planes, precision)
    return WinogradS(on, model, layer, lay, precision), lay


def respond(step, lay, batch, silent=0):
    """What a step makes of maps at random, and its error, by the strongest response."""
    source = lay[step.reads]
    maps = sparse((batch, source.planes, source.size, source.size), active=0.5)
    maps[:, :, :silent] = 0
    held = stored(maps, source)
    wanted = reference.layer(step.writes, read(held, source), step.model)
    assert 0.02 < (wanted > 0).mean() < 0.98
    y = responses(step.machine, step, lay, held)
    return y, np.abs(y - wanted).max() / wanted.max()


ONE = {"batch": 2, "silent": 5}  # of layers in one kernel: the fewer processors, the more rows a block takes
STEPS = [
    *first(2, ((i, "fp32", (5, 9, 7), {}, "tf32x3", {"batch": 1}, 5e-5) for i in (1, 2, 0, 3))),
    *first(2, [(2, "fp16", (17, 20, 30), {"arch": 75}, "fp32", {"batch": 2}, 2e-2),
               (3, "fp16", (17, 20, 30), {}, "fp16", {"batch": 2}, 2e-2),
               (0, "fp16", (17, 20, 30), {"arch": 75}, "fp32", {"batch": 2}, 2e-2)]),
    *first(1, ((i, "fp16", (17, 20, 30), {"processors": n}, "fp16", ONE, 2e-3)
               for i, n in ((2, 132), (1, 1), (2, 1)))),
]  # fmt: skip


@emulated
@pytest.mark.parametrize(("layer", "precision", "planes", "machine", "operand", "given", "bound"), STEPS)
def test_every_s_layer(layer, precision, planes, machine, operand, given, bound):
    step, lay = step_of(layer, precision, planes=planes, **machine)
    assert step.convolution.operand == operand
    assert given is not ONE or len(step.launches(2, None, None, {"v": None})) == 2
    assert respond(step, lay, **given)[1] <= bound


@emulated
def test_silent_windows_beside_ink_give_silence():
    model = excitable_model("fukushima2003", (5, 9, 7))
    s1, s2, s3, s4 = model.s  # the rounding error of a neighbour would be a strong response
    step, lay = step_of(2, "fp32", model=replace(model, s=(s1, s2, replace(s3, q=1e5), s4)))
    y, error = respond(step, lay, batch=1, silent=10)
    assert not y[:, :, :7].any()
    assert error <= 5e-5


@emulated
def test_a_batch_in_pieces_is_the_same():
    step, lay = step_of(3, "fp32", model=excitable_model("ikeda2011", (5, 9, 7)))
    whole, error = respond(step, lay, batch=5)
    assert error <= 5e-5
    one = step.convolution.scratch(1).values()
    step.convolution.most = 2 * sum(int(np.prod(n)) * np.dtype(kind).itemsize for n, kind in one)
    assert len(step.launches(5, None, None, dict.fromkeys(step.scratch(5)))) == 1 + 3 * 3
    assert np.array_equal(whole, respond(step, lay, batch=5)[0])
