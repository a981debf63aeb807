"""The kernels of each layer and of the decision in the emulator and on a GPU, held against the equations."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from experiments.gpu.interpret import digit_stages, interpret, line_stages, read, twin
from experiments.network.ours import stored
from neocog.cuda import c_tensor
from neocog.cuda import s_tensor as s
from neocog.cuda.c_direct_sum import DirectSumC, SeparableC, combined
from neocog.cuda.c_direct_sum import Tiling as Direct
from neocog.cuda.c_tensor import TensorC
from neocog.cuda.c_tensor import Tiling as Band
from neocog.cuda.decide import Decide
from neocog.cuda.kernel import PRECISIONS, _table, layouts, shared_limit
from neocog.cuda.lanes import enqueue
from neocog.cuda.launcher import gpu
from neocog.cuda.lines import LinePass
from neocog.cuda.plan import STAGES, VERSIONS, Pass, Shelf, plan_of
from neocog.cuda.s_tensor import TensorS, Tiling
from neocog.errors import DeviceError, UsageError
from neocog.network import reference
from neocog.network.decision import Decision
from neocog.network.model import load_model
from neocog.network.spec import REJECT
from neocog.network.u0 import u0_from_digits
from tests.cuda_maps import error_of, excitable_model, responses, some_digits, sparse
from tests.cuda_support import first
from tests.emulator import Emulator
from tests.support import digits_of, tiny_model
from tests.test_cuda_lines import drawn, line_model

MADE = {"tensor S": TensorS, "tensor C": TensorC, "separable": SeparableC, "box": DirectSumC}
#: Largest error of a layer, as a share of its strongest response.
BOUND = {"fp32": 1e-5, "fp16": 1e-3}
#: Cells that are active: tensor cores see C-maps as sparse as those of a digit.
ACTIVE = {"tensor S": 0.4, "tensor C": 0.03, "separable": 0.3, "box": 0.3}
CROOKED = ("fukushima2003", "ikeda2011")  # blurs that are no outer product


def crooked(w):  # a learned blur: no symmetry
    return (w * np.random.default_rng(3).uniform(0.5, 1.5, w.shape)).astype(np.float32)


def step_of(machine, version, name, layer, precision, planes=(26, 7, 7), tiling=None, blur=None, model=None):
    """Return a step and its layouts."""
    model = model or excitable_model(name, planes)
    model = replace(model, blurs=tuple(map(blur, model.blurs))) if blur else model
    lay = layouts(model.spec, model.planes, precision)
    return MADE[version](machine, model, layer, lay, precision, tiling=tiling), lay


def check(machine, version, name, layer, precision, planes=(26, 7, 7), tiling=None, batch=3, blur=None):
    step, lay = step_of(machine, version, name, layer, precision, planes, tiling, blur)
    assert error_of(machine, step, lay, active=ACTIVE[version], batch=batch) <= BOUND[precision]


def cases(version, name, *rows, quick=1000):
    """Rows are layer, precision, planes[, tiling, batch, blur]; those after the first so many are slow."""
    return first(quick, [((version, name, *row),) for row in rows])


S_PLANES, C_PLANES = (11, 19, 13), (26, 7, 7)  # of C neither one group of 16 nor two
CASES = [
    *cases("separable", "neocog", *((i, "fp32", (5, 6, 7)) for i in range(3)), (1, "fp16", (9, 3, 3)),
           *((1, "fp32", (11, 3, 3), t) for t in (Direct(5, 4), Direct(7, 2), Direct(1, 1), Direct(21, 3))),
           quick=6),
    *cases("box", "neocog", *((i, "fp32", (5, 6, 7)) for i in (2, 0, 1)), quick=1),
    *cases("box", "ikeda2011", (0, "fp32", (5, 6, 7)), (1, "fp32", (3, 3, 3), None, 2, crooked),
           *((1, "fp32", (11, 3, 3), t) for t in (Direct(5, 4), Direct(7, 2), Direct(1, 1), Direct(21, 3))),
           *((i, "fp32", (5, 6, 7)) for i in (1, 2)), quick=4),
    *cases("box", "fukushima2003", (1, "fp32", (5, 6, 7)), (1, "fp16", (9, 3, 3)),
           *((i, "fp32", (5, 6, 7)) for i in (0, 2)), quick=2),
    *cases("tensor C", "neocog",  # half a group of planes
           *((1, p, (40, 7, 7), t) for p, t in (
               ("fp16", Band(True, 13, 1, 1, 8, 2)), ("fp32", Band(False, 3, 1, 8, 1)),
               ("fp32", Band(True, 13, 1, 1, 4, 2)), ("fp16", Band(False, 3, 1, 8, 1)))), quick=2),
    *cases("tensor C", "fukushima2003", *((1, p, C_PLANES, t) for p, t in (
        ("fp16", Band(True, 13, 1, 1, 3, 2)), ("fp16", Band(False, 4, 2, 2, 5)),
        ("fp16", Band(False, 1, 1, 7, 1)), ("fp32", Band(True, 21, 1, 2, 2, 1)),
        ("fp16", Band(True, 5, 2, 2, 2, 2)), ("fp16", Band(True, 8, 1, 3, 2, 1)),
        ("fp32", Band(False, 3, 1, 3, 3)), ("fp32", Band(False, 2, 2, 8, 1)))), quick=4),
    *cases("tensor C", "ikeda2011",
           *((1, "fp32", C_PLANES, Band(stream, 4, 2, 2, 3, 1), 2, crooked) for stream in (False, True))),
    *cases("tensor S", "fukushima2003",
           *((i, p, S_PLANES) for i, p in enumerate(("fp16", "fp32", "fp32", "fp16"))),
           (1, "fp16", S_PLANES, Tiling(1, 7, 3, 1, 1, 2, 2, stage=5, compact=True)),
           (2, "fp32", S_PLANES, Tiling(1, 11, 3, 1, 1, 2, 2, stage=6, depth=2, compact=True)),
           (2, "fp16", S_PLANES, Tiling(1, 6, 3, 1, 2, 3, 3, ksplit=3, stage=3)),
           (1, "fp16", S_PLANES, Tiling(1, 19, 8, 1, 1, 2, 2, stage=36, depth=3, compact=True, wgmma=True)),
           (2, "fp32", S_PLANES, Tiling(1, 22, 4, 1, 1, 2, 3, stage=3, wgmma=True)),
           (3, "fp16", S_PLANES, Tiling(2, 5, 4, 1, 2, 1, 2, ksplit=3, stage=5, wgmma=True)),
           (3, "fp16", S_PLANES, Tiling(2, 5, 4, 1, 1, 1, 2, stage=27, wgmma=True, chunks=2)),
           *((i, p, S_PLANES) for i, p in enumerate(("fp32", "fp16", "fp16", "fp32"))),
           (2, "fp16", S_PLANES, Tiling(1, 4, 2, 2, 2, 3, 2, stage=9, compact=True)),
           (2, "fp32", S_PLANES, Tiling(1, 11, 2, 1, 1, 2, 3, stage=4)),
           (3, "fp16", S_PLANES, Tiling(2, 5, 2, 1, 3, 2, 2, ksplit=9, stage=4)),
           (0, "fp16", S_PLANES, Tiling(1, 17, 4, 1, 1, 2, 2, stage=6, wgmma=True)),
           (3, "fp16", S_PLANES, Tiling(3, 5, 2, 1, 2, 3, 2, stage=81, chunks=2)),
           (3, "fp32", S_PLANES, Tiling(2, 5, 4, 1, 1, 1, 2, stage=9, wgmma=True, chunks=2)), quick=11),
    # two taps share a step where channels end in half of one
    *cases("tensor S", "fukushima2003", *((2, p, (35, 19, 13), t, 1) for p, t in (
        ("fp16", Tiling(1, 22, 4, 1, 1, 2, 3, stage=2, depth=2, compact=True, wgmma=True)),
        ("fp32", Tiling(1, 11, 2, 1, 1, 2, 3, stage=4)),
        ("fp16", Tiling(1, 11, 3, 1, 1, 2, 3, stage=6, depth=2, compact=True)),
        ("fp16", Tiling(1, 6, 3, 1, 2, 3, 3, ksplit=3, stage=3)),
        ("fp32", Tiling(1, 22, 4, 1, 1, 2, 3, stage=3, wgmma=True)))), quick=3),
    # planes beyond one instruction take two
    *cases("tensor S", "fukushima2003",
           *((3, "fp16", (3, 5, 8 * n - 3), Tiling(2, 5, 4, 1, 1, 1, n, stage=9, wgmma=True), 2)
             for n in (12, 15, 20)),
           *((i, "fp16", planes, None, 1) for i in (2, 3) for planes in ((1, 1, 1), (33, 7, 41)))),
]  # fmt: skip


# an address in a name differs between processes, which then collect other tests
@pytest.mark.parametrize("case", CASES, ids=lambda case: str([getattr(one, "__name__", one) for one in case]))
def test_every_version_and_tiling(emulator, case):
    check(emulator, *case)


@pytest.mark.parametrize(("name", "layer", "precision", "batch"), [
    ("fukushima2003", 1, "fp16", 2), ("ikeda2011", 0, "fp16", 2), ("neocog", 2, "fp16", 2),
    ("fukushima2003", 2, "fp16", 1024), ("ikeda2011", 1, "fp32", 1024),
    *(pytest.param(*rest, marks=pytest.mark.slow) for rest in (
        *((name, i, "fp16", 2) for name in (*CROOKED, "neocog") for i in range(3)),
        ("fukushima2003", 2, "fp32", 1024), ("ikeda2011", 1, "fp16", 1024))),
])  # fmt: skip
def test_chosen_tilings_of_c_layers_give_the_equations(emulator, name, layer, precision, batch):
    tiling = step_of(emulator, "tensor C", name, layer, precision)[0].tiling(batch)
    assert tiling.stream or batch < 1024
    check(emulator, "tensor C", name, layer, precision, tiling=tiling)


@pytest.mark.parametrize("order", ["reversed", 5])
@pytest.mark.parametrize("case", [
    ("box", "fukushima2003", 1, "fp32", (11, 3, 3)), ("separable", "neocog", 1, "fp32", (11, 3, 3)),
    ("tensor C", "ikeda2011", 1, "fp16", (11, 3, 3), Band(False, 2, 1, 6, 1)),
    ("tensor C", "ikeda2011", 1, "fp16", (11, 3, 3), Band(True, 21, 1, 1, 4, 1)),
    ("tensor S", "fukushima2003", 2, "fp16", S_PLANES, Tiling(1, 6, 3, 1, 2, 3, 3, ksplit=3, stage=3), 2),
    ("tensor S", "fukushima2003", 1, "fp16", S_PLANES, Tiling(1, 7, 3, 1, 1, 2, 2, stage=5), 2),
    ("tensor S", "fukushima2003", 3, "fp16", S_PLANES, Tiling(2, 5, 4, 1, 1, 1, 2, stage=81, chunks=2), 2),
], ids=str)  # fmt: skip
def test_threads_may_run_in_any_order(case, order):
    check(Emulator(order=order), *case)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_no_cell_that_responds_is_left_out(emulator, precision):
    """Input and weights that are alike in all planes reach the bound exactly."""
    model = excitable_model("fukushima2003", (3, 2, 1))
    s1, s2, s3, s4 = model.s
    alike = np.broadcast_to(s3.reference[:1, :1], s3.reference.shape).copy()
    model = replace(model, s=(s1, s2, replace(s3, reference=alike, threshold=0.6), s4))
    tiling = Tiling(1, 11, 3, 1, 1, 2, 2, stage=6, compact=True)
    step, lay = step_of(emulator, "tensor S", "", 2, precision, tiling=tiling, model=model)
    source = lay["UC2"]
    one = sparse((2, 1, source.size, source.size), active=0.5)
    held = stored(np.broadcast_to(one, (2, source.planes, source.size, source.size)), source)
    wanted = reference.layer("US3", read(held, source), model)
    assert (wanted > 0).mean() > 0.05
    # the bound is no looser than that: with smaller norms fewer cells respond, with none no cell
    counts = []
    for share in (1.0, 1.0, 0.97, 0.0):
        step._profile *= np.float32(share)
        got = responses(emulator, step, lay, held)
        counts.append(int((got > 0).any(axis=1).sum()))
        assert len(counts) > 1 or np.abs(got - wanted).max() <= BOUND[precision] * wanted.max()
    assert counts[0] == counts[1] > counts[2] > counts[3] == 0


# --- tilings ----------------------------------------------------------------------------------


def test_tilings_that_ship_fit():
    for arch, shape, rows in _table()["c"]:
        assert all(c_tensor.fits(c_tensor.Shape(*shape), Band(*row), arch) for _, *row in rows)
    for kind, choose in (("s", s.choose), ("lines", s.choose_for_strips)):
        for arch, numbers, rows in _table()[kind]:
            shape, ways = s.Shape(*numbers), set()
            for least, *row in rows:
                t = Tiling(*row)
                assert s.fits(shape, t, arch)
                assert choose(shape, least, arch) == t
                assert not t.compact or t.ksplit == t.chunks == 1
                assert not t.clusters or 1 < t.ksplit <= 16
                # what a cell's sum depends on, to the bit
                stages = (t.wgmma or t.depth, t.stage) if shape.mode or t.stage % t.wk else ()
                ways.add((t.wk, t.ksplit, t.wgmma, t.compact, t.chunks, *stages))
            assert len(ways) == 1 or kind == "s"


@pytest.mark.parametrize("arch", [80, 86, 90, 100, 120])
def test_any_shape_has_a_tiling_that_fits(arch):
    for channels, taps, code in product((8, 24, 304), (2, 11, 18), (0, 1)):
        shape = c_tensor.Shape(50, channels, 25, taps, 0, code)
        tiling = c_tensor.choose(shape, 8, arch)
        assert c_tensor.fits(shape, tiling, arch)
        assert shape.shared(tiling) <= shared_limit(arch)
    sizes = ((6, 68, (2,)), (6, 38, (16, 32)), (6, 22, (8, 40, 120)), (9, 5, (16, 80, 240)))
    for (kernel, out, inputs), planes, mode in product(sizes, (1, 16, 77, 400), (0, 3)):
        for channels, batch in product(inputs, (1, 8, 200)):
            shape = s.Shape(kernel, out + kernel - 1, channels, out, planes, mode)
            t = s.choose(shape, batch, arch)
            assert s.fits(shape, t, arch)
            assert not t.wgmma or arch == 90


def test_few_digits_are_dealt_to_all_processors(emulator):
    for version, layer, batch in product(("box", "tensor C"), range(3), (8, 64, 4096)):
        step, _ = step_of(emulator, version, "fukushima2003", layer, "fp16", (26, 78, 70))
        (launch,) = step.launches(batch, None, None, {})
        assert np.prod(launch.grid) >= 80
        assert launch.kernel.threads <= 1024
    for precision in PRECISIONS:  # bands where streams are slow
        steps = [step_of(emulator, "tensor C", "neocog", layer, precision)[0] for layer in range(3)]
        bands = [not step.tiling(8).stream for step in steps]
        assert all(bands) if precision == "fp32" else bands[0]  # of UC1 a stream has five warps
        assert all(step.tiling(64).stream for step in steps)


def test_blocks_of_a_window_are_a_cluster_if_all_fit_at_once():
    shape = s.Shape(9, 13, 80, 5, 96, 0)
    tiling = s.choose(shape, 8, 90)
    assert tiling.ksplit > 1
    assert s.clustered(shape, tiling, 8, 90, 132)
    assert not s.clustered(shape, tiling, 64, 90, 132)
    for arch, processors in ((80, 132), (90, 78), (100, 132), (120, 148)):  # none was measured there
        assert not s.clustered(shape, tiling, 8, arch, processors)


def test_weights_of_c_layers_are_rounded_at_a_scale_that_suits_them(emulator):
    step, _ = step_of(emulator, "tensor C", "fukushima2003", 1, "fp16")
    a = combined(step.model.blurs[1])
    scale, words = c_tensor.pack(a, step.shape)
    halves = words.view(np.float16).astype(np.float64) * scale
    # each tap stands once in each of the 8 columns of its row
    error = halves.reshape(2 * step.shape.live + 1, -1).sum(axis=1)[: len(a)] / 8 - a.sum(axis=1)
    plain = a.astype(np.float16).astype(np.float64).sum(axis=1) - a.sum(axis=1)
    assert np.abs(error).max() < np.abs(plain).max()


def test_what_does_not_fit_is_refused(emulator, monkeypatch):
    for name, layer in product(CROOKED, range(3)):
        with pytest.raises(UsageError, match="does not fit"):
            step_of(emulator, "separable", name, layer, "fp32")
    with pytest.raises(UsageError, match="up to 34 taps"):
        step_of(emulator, "tensor C", "neocog", 0, "fp32", blur=lambda w: np.pad(w, 20))
    with pytest.raises(UsageError, match="--plan card"):
        s.choose(s.Shape(9, 13, 16 * 211, 5, 80, 0), 8, 80)
    monkeypatch.setattr(c_tensor, "fits", lambda *_: False)
    with pytest.raises(UsageError, match="choose box"):
        c_tensor.choose(c_tensor.Shape(49, 8, 25, 3, 0, 0), 8, 90)


# --- contrast ---------------------------------------------------------------------------------

#: Seeds of pale noise with a cell within 3e-10 of silence: float32 alone decides it wrongly.
PALE = (853, 5400, 7994, 9752, 11496)


def digits(count):
    """Drawn digits, noise, faint noise (cells on the edge of silence), nothing, all ink."""
    noise = np.random.default_rng(0).integers(0, [[[256]], [[2]]], (2, 28, 28))
    kinds = [*digits_of("0123456789"), *noise, np.zeros((28, 28)), np.full((28, 28), 255)]
    return np.stack([kinds[i % len(kinds)] for i in range(count)]).astype(np.uint8)


def pale(batch):
    seen = [np.random.default_rng(seed).integers(0, 4, (28, 28)) for seed in PALE]
    return np.resize(np.array(seen, np.uint8), (batch, 28, 28))


def edges():
    """Pictures scaled so that one cell each answers with 1e-4 to the last bits of float32."""
    rng, spec, found = np.random.default_rng(4), tiny_model().spec.contrast, []
    for _ in range(12):
        u0 = rng.uniform(0, 1, (65, 65)).astype(np.float32)
        y = reference.contrast(u0[None], spec)[0, 0].max()
        found += [u0 * np.float64(1e-4 * (1 + off * 2e-8) / y) for off in (-3, -1, 0, 1, 3)]
    return np.stack(found).astype(np.float32)


@pytest.mark.parametrize(("version", "seen", "precision", "bound"), [
    *(("digits", digits(count), "fp32", 1e-6) for count in (1, 14, 140)),
    ("digits", digits(3), "fp16", 5e-4),
    *(("U0", scale * np.random.default_rng(2).normal(size=(3, 65, 65)).astype(np.float32), "fp32", 1e-6)
      for scale in (1, 1e-4, 30)),
    *(("digits", pale(count), "fp32", 1e-6) for count in (5, 140)),
    ("U0", edges(), "fp32", 1e-6),
])  # fmt: skip
def test_contrast_and_silence_are_as_in_float64(emulator, version, seen, precision, bound):
    model = tiny_model()
    lay, spec = layouts(model.spec, model.planes, precision), model.spec.contrast
    step = VERSIONS["UG"][version](emulator, model, 0, lay, precision)
    wanted = reference.contrast(u0_from_digits(seen) if version == "digits" else seen, spec)
    got = responses(emulator, step, lay, seen)
    assert np.abs(got - wanted).max() <= bound * wanted.max()
    assert np.array_equal(got > 0, wanted > 0)


def test_pale_digits_and_edges_are_at_silence():
    spec, u0 = tiny_model().spec.contrast, u0_from_digits(pale(5))
    near, far = (reference.contrast(u0, replace(spec, silence=spec.silence + off)) for off in (-3e-10, 3e-10))
    assert ((near > 0) != (far > 0)).any(axis=(1, 2, 3)).all()
    wanted = reference.contrast(edges(), spec).reshape(60, -1)
    assert 0 < (wanted.max(axis=1) > 0).sum() < 60


# --- decision ---------------------------------------------------------------------------------


def mixed(counts):
    """Labels in no order, each so many times."""
    return np.random.default_rng(0).permutation(np.repeat(np.arange(10), counts))


def decided(emulator, labels, us4):
    """Hold the kernel against the CPU's decision."""
    tiny = tiny_model()
    s4 = replace(tiny.s[3], reference=tiny.s[3].reference[labels % 10])
    model = replace(tiny, s=(*tiny.s[:3], s4), labels=labels)
    lay = layouts(model.spec, model.planes, "fp16")
    step = Decide(emulator, model, 0, lay, "fp16")
    source = np.zeros(lay["US4"].shape(len(us4)), dtype=np.float32)
    source[..., : us4.shape[3]] = us4
    out = np.full((len(us4), 16), np.nan, dtype=np.float32)
    for launch in step.launches(len(us4), source, out, {}):
        emulator.launch(launch)
    assert (out[:, 13:] == 0).all()
    wanted = Decision(model)(us4)
    assert np.array_equal(out[:, 10], wanted.label)
    assert np.array_equal(out[:, :10], wanted.score)
    assert np.allclose(out[:, 11], wanted.margin, rtol=0, atol=1e-6)
    assert np.allclose(out[:, 12], wanted.p, rtol=1e-4, atol=1e-6)
    return wanted.label


def random_us4(batch, planes, active):
    shape = (batch, 5, 5, planes)
    found = (0.5 + 0.2 * sparse(shape, active=1.0)) * (sparse(shape, seed=2, active=active) > 0)
    found[-1] = 0
    return found.astype(np.float32)


@pytest.mark.parametrize(
    "counts", [[7] * 10, [1, 0, 2, 3, 8, 17, 33, 40, 5, 4], [70] * 10, [200, *[0] * 8, 3]],
    ids=["seven", "uneven", "not held", "of two"],
)  # fmt: skip
@pytest.mark.parametrize("active", [0.1, 0.9])
def test_the_decision_is_the_cpus(emulator, counts, active):
    decided(emulator, mixed(counts), random_us4(7, sum(counts), active))


def test_planes_of_no_digit_may_win_and_ties_go_to_the_lower_label(emulator):
    labels = mixed([7] * 10)
    found = decided(emulator, np.where(np.arange(70) % 9 == 0, REJECT, labels), random_us4(12, 70, 0.1))
    assert (found[:-1] == -1).any()
    assert (found >= 0).any()
    tie = np.zeros((2, 5, 5, 70), dtype=np.float32)
    tie[0, 1, 1, [np.flatnonzero(labels == label)[0] for label in (3, 5)]] = 0.5
    assert decided(emulator, labels, tie).tolist() == [3, -1]


# --- whole passes, stage by stage -------------------------------------------------------------

#: Largest error of a stage fed with the device's own maps, as a share of its strongest response.
STAGE_BOUND = {"fp32": 1e-5, "fp16": 5e-3}


def digit_pass(machine, model, precision, plan="default", batch=2):
    shelf = Shelf(machine, model, precision)
    return Pass(machine, shelf.choose(plan_of(plan, precision), batch), shelf.layouts, batch)


@pytest.mark.parametrize("of", ["fp32 default", "fp16 default", "fp16 card", "fp32 strip", "fp16 strip"])
def test_stages_are_their_twins(emulator, of):
    precision, plan = of.split()
    if plan == "strip":
        stages = line_stages(LinePass(emulator, line_model(), precision), drawn(6)[3])
    else:
        work = digit_pass(emulator, tiny_model(), precision, plan)
        stages = digit_stages(work, tiny_model(), some_digits(3)[1:])
    found = list(interpret(emulator, stages))
    assert [name for name, *_ in found] == [*STAGES, *["head"] * (plan == "strip")]
    for name, error, most in found:
        assert error <= STAGE_BOUND[precision], name
        assert most > 0.01, name


def test_an_error_is_told_of_its_own_stage(emulator):
    model, digits = tiny_model(), some_digits(3)[1:]
    work = digit_pass(emulator, model, "fp32")
    next(iter(work.stages[3].step._packed.values()))[:] = 0  # of US2
    found = list(interpret(emulator, digit_stages(work, model, digits), "US2"))
    assert [(name, error > 0.1) for name, error, _ in found] == [
        ("UG", False), ("US1", False), ("UC1", False), ("US2", True)]  # fmt: skip
    want = reference.respond(u0_from_digits(digits), model)  # the twin of a stage that joins layers
    np.testing.assert_array_equal(twin(model, "digits", "UC2", digits), want["UC2"])
    np.testing.assert_array_equal(twin(model, "UC1", "US4", want["UC1"]), want["US4"])


# --- on a GPU ---------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("batch", [1, 3, 8])
def test_a_cluster_answers_as_blocks_that_share_global_memory(batch):
    """Both add the parts of a window in the order of the window, so not a bit differs."""
    machine, found = gpu(0), []
    if not s.serves(machine.arch, machine.processors):
        pytest.skip("no clusters on this device")
    for cluster in (0, 1):
        with machine.xp.cuda.Stream(non_blocking=True) as stream:
            work, launches = digit_pass(machine, load_model("neocog-small"), "fp16", batch=batch), []
            work.arrays["digits"].set(some_digits(batch))
            for one in work.launches:
                defines = dict(one.kernel.defines)
                if defines.get("KSPLIT", 1) != 1:
                    defines["CLUSTER"] = cluster
                kernel = replace(one.kernel, defines=tuple(defines.items()))
                launches.append(one._replace(kernel=kernel))
            enqueue(machine, launches)
            stream.synchronize()
            found.append((work.maps("US4"), work.arrays["answers"].get()))
        assert any(("CLUSTER", 1) in one.kernel.defines for one in launches) == bool(cluster)
    assert (found[0][0] > 0).any()
    for got, want in zip(*found, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", ["tiny", "neocog-small", "fukushima"])
@pytest.mark.parametrize("batch", [1, 5])
def test_every_version_of_every_step(name, stage, precision, batch):
    model = tiny_model() if name == "tiny" else load_model(name)
    machine, digits = gpu(0), some_digits(5)[:batch]
    shelf = Shelf(machine, model, precision)
    maps = {**reference.respond(u0_from_digits(digits), model), "digits": digits}
    maps["U0"] = maps["U0"][:, 0].astype(np.float32)
    tried = 0
    for version in VERSIONS[stage]:
        try:
            step = shelf.step(stage, version)
            work = Pass(machine, [step], shelf.layouts, batch)
            machine.prepare(launch.kernel for launch in work.launches)
        except (UsageError, DeviceError):  # not for this layer, precision or device
            continue
        tried += 1
        ((_, error, _),) = interpret(machine, digit_stages(work, model, maps[step.reads]))
        exact = 5e-5 if "winograd" in version else STAGE_BOUND["fp32"]
        assert error <= (exact if precision == "fp32" else STAGE_BOUND[precision]), version
    assert tried
