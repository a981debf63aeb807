"""Decomposed Winograd convolution against float64, its kernels run by the emulator."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from experiments.emulator import Emulator
from experiments.winograd.layers import in_paper_layout
from neocog.cuda import conv2d_winograd, devices, s_winograd, winograd_transforms
from neocog.cuda.kernel import up
from neocog.cuda.s_winograd import WinogradS
from neocog.cuda.steps import layouts
from neocog.cuda.winograd import Convolution, Shape
from neocog.cuda.winograd_count import choose, counts, direct_flops
from neocog.cuda.winograd_filters import filter_split, filter_split_kernel
from neocog.cuda.winograd_transforms import PART_SIZES, TILES, Split, best_tile, cook_toom, uniform
from neocog.errors import DeviceError, InputError, UsageError
from neocog.network import reference
from tests import cuda_fake
from tests.cuda_maps import excitable_model, read, responses, s_wanted, sparse, stored, uncleared
from tests.cuda_support import ARCHITECTURES, SHARED, emulated, first
from tests.support import few
from tests.test_cubins import fault


@pytest.fixture
def rng():
    return np.random.default_rng(7)


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
    machine = machine or Emulator()
    size, batch = plan.shape.out, len(x)
    y = np.full((batch, size, size, plan.shape.planes), np.nan, np.float32)
    scratch = {name: np.full(n, np.nan, kind) for name, (n, kind) in plan.scratch(batch).items()}
    u = plan.filters(w)
    for launch in plan.launches(batch, x, u, y, scratch, machine.processors):
        machine.launch(launch)
    assert not y[..., len(w) :].any()
    return y[..., : len(w)]


def layer(rng, split, m, *, size, channels=8, planes=8, batch=1, **more):
    """A plan with input and filters at random."""
    shape = Shape(split.kernel, size + split.kernel - 1, channels, up(planes, 8))
    x = rng.random((batch, shape.width, shape.width, channels), dtype=np.float32)
    w = rng.standard_normal((planes, channels, split.kernel, split.kernel)).astype(np.float32)
    return Convolution(shape, split, m, **more), x, w


# -- transforms ------------------------------------------------------------------------------------
@pytest.mark.parametrize(("m", "r"), list(itertools.product((1, *TILES), PART_SIZES)))
def test_the_transforms_are_exact(m, r):
    output, filters, inputs = cook_toom(m, r)
    rng = np.random.default_rng(m * 10 + r)
    d = np.array([Fraction(int(v)) for v in rng.integers(-9, 10, m + r - 1)])
    g = np.array([Fraction(int(v)) for v in rng.integers(-9, 10, r)])
    y = output @ ((filters @ g) * (inputs @ d))
    assert y.tolist() == [sum(g[k] * d[i + k] for k in range(r)) for i in range(m)]


@pytest.mark.parametrize(
    ("sizes", "m", "wanted"),
    [((3, 3, 1), 2, 25), ((3, 3, 1), 4, 16), ((4, 3), 4, 169 / 16), ((3, 3, 3), 4, 20.25)],
)
def test_multiplications_of_a_7x7_filter(sizes, m, wanted):
    assert Split(7, sizes).per_output(m) == wanted


def test_the_s_layers_take_a_quarter_of_the_multiplications():
    layers = ((6, 38, 16 * 26), (6, 22, 26 * 78), (9, 5, 78 * 70))
    direct = sum(size**2 * k**2 * pairs for k, size, pairs in layers)
    best = 0.0
    for k, size, pairs in layers:
        split = uniform(k)
        best += split.per_output(best_tile(split, size), size) * size**2 * pairs
    assert best_tile(uniform(9), 5) == 5
    assert direct / best > 3.7


@pytest.mark.parametrize("kernel", range(3, 26))
def test_every_filter_from_3_to_25_is_split(kernel):
    split = uniform(kernel)
    assert sum(g.size * g.count for g in split.groups) - kernel in (0, 1, 2)
    assert winograd_transforms.transform_filters(np.ones((kernel, kernel, 1)), split, 3).shape[0] == (
        25 * split.groups[0].count ** 2
    )


@pytest.mark.parametrize("sizes", [(3, 4), (4,), (5, 2), (4, 2, 1), (4, 4, 4)])
def test_parts_that_do_not_make_a_filter_are_refused(sizes):
    with pytest.raises(UsageError, match="parts"):
        Split(7, sizes)


@pytest.mark.parametrize(
    ("m", "operand", "planes", "thread_wise", "words"),
    [(6, "fp32", 8, False, "tiles of 6x6"), (2, "quick", 8, False, "operand 'quick'"),
     (2, "fp32", 7, False, "got 7 planes"), (3, "fp32", 8, True, "share inputs")],
)  # fmt: skip
def test_ways_that_do_not_go_together_are_refused(m, operand, planes, thread_wise, words):
    with pytest.raises(UsageError, match=words):
        Convolution(Shape(7, 13, 8, planes), Split(7, (3, 3, 1)), m, operand, thread_wise=thread_wise)


# -- kernels ---------------------------------------------------------------------------------------
@emulated
@pytest.mark.parametrize(
    ("sizes", "m", "size", "channels", "planes", "batch", "operand", "bound"),
    [
        *first(4, ((*case, "fp32", 2e-5) for case in (
            ((3, 3), 3, 7, 16, 40, 1), ((4, 3), 4, 9, 10, 24, 3), ((3, 3, 1), 2, 5, 8, 70, 2),
            ((3, 3, 3), 5, 5, 78, 16, 3), ((4, 4), 4, 13, 5, 8, 1), ((2, 2), 5, 7, 3, 9, 1),
            ((4, 4), 3, 5, 3, 9, 1)))),
        ((3,) * 9, 3, 4, 4, 8, 1, "fp32", 2e-5),
        *first(2, (((4, 3), 4, 9, *case, 1e-2) for case in (
            (10, 24, 2, "tf32"), (40, 72, 2, "fp16"), (10, 24, 2, "fp16"), (40, 40, 2, "tf32")))),
    ],
)  # fmt: skip
def test_cuda_and_tensor_cores(sizes, m, size, channels, planes, batch, operand, bound, rng):
    split = Split(min(sum(sizes), 25), sizes)
    more = {"size": size, "channels": channels, "planes": planes, "batch": batch, "operand": operand}
    plan, x, w = layer(rng, split, m, **more)
    assert relative(run(plan, x, w), correlate(x, w)) < bound


@emulated
def test_many_tiles_take_larger_blocks(rng):
    plan, x, w = layer(rng, uniform(6), 3, size=24, channels=8, planes=64, batch=2)
    assert plan.block(len(x), 1) == (128, 64)
    machine = Emulator(order="reversed")
    machine.processors = 1
    assert relative(run(plan, x, w, machine=machine), correlate(x, w)) < 1e-5


@emulated
@pytest.mark.parametrize(
    ("operand", "sizes", "m", "size", "channels", "planes", "block"),
    first(5, [  # of 40 channels sums are longer than tensor cores make
        ("tf32x3", (4, 4), 4, 14, 40, 72, (16, 128)), ("tf32x3", (4, 3), 4, 9, 10, 24, (64, 32)),
        ("tf32x3", (3, 3), 3, 24, 16, 64, (128, 64)), ("fp16x3", (4, 4), 4, 14, 40, 72, (16, 128)),
        ("fp16x3", (4, 3), 2, 9, 6, 40, (32, 64)), ("fp16x3", (4, 3), 4, 9, 32, 96, (64, 96)),
        ("tf32x3", (4, 3), 2, 9, 24, 40, (32, 64)), ("tf32x3", (3, 3, 1), 2, 8, 8, 96, (64, 96)),
        ("tf32x3", (4, 4), 4, 12, 32, 128, (64, 128)),
    ]),
)  # fmt: skip
def test_tensor_cores_give_float32(operand, sizes, m, size, channels, planes, block, rng, monkeypatch):
    way = {"size": size, "channels": channels, "planes": planes, "operand": operand}
    if operand == "fp16x3":
        way["largest"] = (1000.0, 0.1)
    plan, x, w = layer(rng, Split(min(7, sum(sizes)), sizes), m, **way)
    monkeypatch.setattr(Convolution, "block", lambda *_: block)
    if operand == "fp16x3":
        x, w = 1000 * x, w * np.float32(0.1 / abs(w).max())
    else:
        x *= 1e-12  # no range is asked for
    machine = Emulator(order="reversed" if m == 4 else "forward")
    assert relative(run(plan, x, w, machine=machine), correlate(x, w)) < 1e-5


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize("block", [(16, 128), (64, 96), (64, 128), (128, 64)])
@pytest.mark.parametrize("arch", [80, 90])
def test_float32_products_spill_nothing(arch, block, monkeypatch):
    monkeypatch.setattr(Convolution, "block", lambda *_: block)
    plan = Convolution(Shape(7, 34, 96, 192), Split(7, (4, 3)), 4, "tf32x3")
    nothing = dict.fromkeys(plan.scratch(1))
    kernels = [launch.kernel for launch in plan.launches(1, None, None, None, nothing, 132)]
    kernels += [filter_split_kernel(plan, "channel-wise")] if block == (16, 128) else []
    assert [fault(kernel, arch) for kernel in kernels] == [None] * len(kernels)


@emulated
@pytest.mark.parametrize("indexing", ["channel-wise", "thread-wise"])
@pytest.mark.parametrize("operand", ["fp32", "tf32x3"])
def test_filters_in_the_papers_layout(indexing, operand, rng):
    plan, _, w = layer(rng, Split(7, (3, 3, 1)), 2, size=4, channels=3, planes=13, operand=operand)
    wanted = in_paper_layout(plan, plan.filters(w), 13, 3)
    u = np.zeros_like(wanted)
    Emulator().launch(filter_split(plan, w, u, indexing, paper_layout=True))
    assert relative(u, wanted) < 1e-6


@emulated
@pytest.mark.parametrize(("sizes", "m"), first(1, [((3, 3, 1), 2), ((4, 3), 2)]))
def test_inputs_transformed_thread_wise(sizes, m, rng):
    plan, x, w = layer(rng, Split(7, sizes), m, size=5, channels=10, batch=2, thread_wise=True)
    assert relative(run(plan, x, w), correlate(x, w)) < 2e-5


# -- steps -----------------------------------------------------------------------------------------
def respond(step, layer, model, lay, batch, silent=0):
    """What a step makes of maps at random, and what the equations make of them, (B, K, H, W)."""
    source = lay[step.reads]
    maps = sparse((batch, source.planes, source.size, source.size), active=0.5)
    maps[:, :, :silent] = 0
    held = stored(maps, source)
    wanted = s_wanted(model, layer, read(held, source))
    assert 0.02 < (wanted > 0).mean() < 0.98
    return responses(Emulator(), step, lay, held), wanted


@emulated
@pytest.mark.parametrize("layer", few(range(4), 1, 2))
def test_every_s_layer_in_float32(layer):
    model = excitable_model("neocog", (5, 9, 7))
    lay = layouts(model.spec, model.planes, "fp32")
    y, wanted = respond(WinogradS(Emulator(), model, layer, lay, "fp32"), layer, model, lay, 1)
    assert np.abs(y - wanted).max() <= 5e-5 * wanted.max()


@emulated
@pytest.mark.parametrize(
    ("precision", "arch", "operand"),
    first(3, [("bf16", 75, "fp32"), ("fp16", 90, "fp16"), ("bf16", 90, "tf32"),
              ("tf32", 80, "tf32")]),
)  # fmt: skip
def test_low_precisions(precision, arch, operand):
    layer, machine = 2, Emulator()
    machine.arch = arch
    model = excitable_model("neocog", (17, 20, 30))
    lay = layouts(model.spec, model.planes, precision)
    step = WinogradS(machine, model, layer, lay, precision, m=3)
    assert step.convolution.operand == operand
    y, wanted = respond(step, layer, model, lay, batch=2)
    assert np.abs(y - wanted).max() <= 2e-2 * wanted.max()


@emulated
@pytest.mark.parametrize(
    ("layer", "processors"), [(2, 132), *(pytest.param(i, 1, marks=pytest.mark.slow) for i in (1, 2))]
)
def test_a_layer_in_one_kernel(layer, processors):
    model, machine = excitable_model("neocog", (17, 20, 30)), Emulator()
    machine.processors = processors  # the fewer, the more rows of tiles a block takes
    lay = layouts(model.spec, model.planes, "fp16")
    step = WinogradS(machine, model, layer, lay, "fp16")
    assert len(step.launches(2, None, None, {"v": None})) == 2
    y, wanted = respond(step, layer, model, lay, batch=2, silent=5)
    assert np.abs(y - wanted).max() <= 2e-3 * wanted.max()


@emulated
def test_silent_windows_beside_ink_give_silence():
    model = excitable_model("fukushima2003", (5, 9, 7))
    s1, s2, s3, s4 = model.s  # the rounding error of a neighbour would be a strong response
    model = replace(model, s=(s1, s2, replace(s3, q=1e5), s4))
    lay = layouts(model.spec, model.planes, "fp32")
    step = WinogradS(Emulator(), model, 2, lay, "fp32", m=4)
    y, wanted = respond(step, 2, model, lay, batch=1, silent=10)
    assert not y[:, :, :7].any()
    assert np.abs(y - wanted).max() <= 5e-5 * wanted.max()


@emulated
def test_a_batch_in_pieces_is_the_same(monkeypatch):
    model = excitable_model("ikeda2011", (5, 9, 7))
    lay = layouts(model.spec, model.planes, "fp32")
    step = WinogradS(Emulator(), model, 3, lay, "fp32")
    whole, wanted = respond(step, 3, model, lay, batch=5)
    one = step.convolution.scratch(1).values()
    held = sum(np.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in one)
    monkeypatch.setattr(s_winograd, "S_BYTES", 2 * int(held))
    assert len(step.launches(5, None, None, dict.fromkeys(step.scratch(5)))) == 1 + 3 * 3
    pieces, _ = respond(step, 3, model, lay, batch=5)
    assert np.abs(whole - wanted).max() <= 5e-5 * wanted.max()
    assert np.array_equal(whole, pieces)


# -- for everybody ---------------------------------------------------------------------------------
@emulated
@pytest.mark.parametrize(
    ("batch", "channels", "height", "width", "planes", "kernel", "padding"),
    first(2, [(2, 5, 9, 6, 11, 7, None), (1, 3, 8, 8, 4, 3, 0), (1, 17, 5, 12, 9, 6, 2),
              (1, 2, 30, 26, 3, 25, None), (1, 2, 9, 12, 3, 31, None)]),
)  # fmt: skip
def test_conv2d_winograd(batch, channels, height, width, planes, kernel, padding, rng):
    x = rng.standard_normal((batch, channels, height, width)).astype(np.float32)
    w = rng.standard_normal((planes, channels, kernel, kernel)).astype(np.float32)
    y = conv2d_winograd(x, w, padding=padding, machine=uncleared(Emulator()))
    border = (kernel - 1) // 2 if padding is None else padding
    padded = np.pad(x, ((0, 0), (0, 0), (border, border), (border, border)))
    wanted = correlate(padded.transpose(0, 2, 3, 1), w).transpose(0, 3, 1, 2)
    assert y.shape == wanted.shape
    assert relative(y, wanted) < 1e-5


@pytest.mark.parametrize(
    ("x", "w", "more", "words"),
    [
        (np.zeros((1, 2, 8, 8)), (3, 2, 7, 7), {}, "got float64, expected float32"),
        ((2, 8, 8), (3, 2, 7, 7), {}, r"got shape \(2, 8, 8\), expected \(B, C, H, W\)"),
        ((1, 2, 8, 8), (3, 2, 7, 5), {}, "got filters of 7x5, expected 3x3 to 51x51"),
        ((1, 2, 8, 8), (3, 4, 7, 7), {}, "x has 2 channels, w is for 4"),
        ((1, 2, 8, 8), (3, 2, 7, 7), {"padding": -1}, "padding: got -1"),
        ((1, 2, 4, 8), (3, 2, 7, 7), {"padding": 1}, "smaller than the 7x7 filters"),
    ],
)
def test_what_conv2d_winograd_cannot_do_is_told_in_a_line(x, w, more, words):
    x = np.zeros(x, np.float32) if isinstance(x, tuple) else x
    with pytest.raises(InputError, match=words):
        conv2d_winograd(x, np.zeros(w, np.float32), machine=Emulator(), **more)


def test_conv2d_winograd_needs_a_gpu(monkeypatch):
    monkeypatch.setattr(devices, "trouble", lambda *_, **__: "no GPU is there")
    x, w = np.zeros((1, 2, 8, 8), np.float32), np.zeros((3, 2, 7, 7), np.float32)
    with pytest.raises(DeviceError, match="it needs a CUDA device"):
        conv2d_winograd(x, w)


@emulated
def test_conv2d_winograd_runs_where_its_arrays_lie(monkeypatch, rng):
    cupy = cuda_fake.install(monkeypatch, Emulator())
    located = cuda_fake.Located(cupy)
    x = rng.standard_normal((1, 3, 6, 5)).astype(np.float32)
    w = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
    wanted = conv2d_winograd(x, w, machine=Emulator())
    located.current = 1
    there = cupy.asarray(x), cupy.asarray(w)
    current = conv2d_winograd(x, w)
    located.current = 0
    for y in (current, conv2d_winograd(*there), conv2d_winograd(x, there[1])):
        assert y.device.id == 1
        np.testing.assert_array_equal(y, wanted)
    assert located.current == 0


@pytest.mark.parametrize("kernel", [*range(3, 26), 31, 51])
def test_a_plan_is_chosen_for_every_filter(kernel):
    for batch, size in ((1, 7), (64, 56)):
        plan = choose(Shape(kernel, size + kernel - 1, 96, 96), batch)
        assert plan.split.kernel == kernel
        assert plan.operand == "tf32x3"


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_chosen_plan_runs_on_every_architecture(arch):
    for kernel, size, channels in itertools.product((*range(3, 26), 31, 51), (7, 28), (16, 384)):
        plan = choose(Shape(kernel, size + kernel - 1, channels, channels), 4, arch=arch)
        launches = plan.launches(4, None, None, None, dict.fromkeys(plan.scratch(4)), 68)
        kernels = [filter_split_kernel(plan, "channel-wise"), *(one.kernel for one in launches)]
        for one in kernels:
            assert one.arch <= arch
            assert one.shared <= 1024 * SHARED[arch], (kernel, size, channels, plan.split, plan.m)


def test_operations_of_a_layer_are_counted():
    """Table 2's last layer, 4+3 split: 13 x 13 products for each tile of 4 x 4."""
    plan = Convolution(Shape(7, 13, 384, 768), Split(7, (4, 3)), 4, "tf32x3")
    steps = counts(plan, batch=2)
    assert steps[1].flops == 2 * 2 * 4 * 169 * 384 * 768
    assert steps[1].bytes == 169 * 384 * 768 * 4
    assert direct_flops(plan, 2) == 2 * 49 * 384 * 768 * 49 * 2
    assert choose(plan.shape, 2, arch=75).operand == "fp32"
