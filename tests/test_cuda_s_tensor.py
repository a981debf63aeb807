"""The S-layers' tensor-core kernel in the emulator, held against the float64 equations."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from experiments.gpu.interpret import read
from experiments.network.ours import stored
from neocog.cuda.kernel import _table, layouts
from neocog.cuda.lanes import enqueue
from neocog.cuda.launcher import gpu
from neocog.cuda.plan import Pass, Shelf, plan_of
from neocog.cuda.s_tensor import Shape, TensorS, Tiling, choose, clustered, fits, serves
from neocog.errors import UsageError
from neocog.network import reference
from neocog.network.model import load_model
from tests.cuda_maps import error_of, excitable_model, responses, some_digits, sparse
from tests.cuda_support import first, thinned
from tests.emulator import Emulator

BOUND = {"fp32": 1e-5, "fp16": 1e-3}
S2 = Shape(6, 43, 16, 38, 32, 0)


def step_of(machine, layer, precision, tiling=None, *, batch=3, planes=(11, 19, 13), model=None):
    model = model or excitable_model("fukushima2003", planes)
    lay = layouts(model.spec, model.planes, precision)
    return TensorS(machine, model, layer, lay, precision, tilings={batch: tiling} if tiling else None), lay


def check(machine, layer, precision, tiling, *, batch=3, **more):
    step, lay = step_of(machine, layer, precision, tiling, batch=batch, **more)
    assert error_of(machine, step, lay, active=0.4, batch=batch) <= BOUND[precision]


TILINGS = [
    (1, "fp16", Tiling(1, 7, 3, 1, 1, 2, 2, stage=5, compact=True)),
    (2, "fp32", Tiling(1, 11, 3, 1, 1, 2, 2, stage=6, depth=2, compact=True)),
    (2, "fp16", Tiling(1, 6, 3, 1, 2, 3, 3, ksplit=3, stage=3)),
    (1, "fp16", Tiling(1, 19, 8, 1, 1, 2, 2, stage=36, depth=3, compact=True, wgmma=True)),
    (2, "fp32", Tiling(1, 22, 4, 1, 1, 2, 3, stage=3, wgmma=True)),
    (3, "fp16", Tiling(2, 5, 4, 1, 2, 1, 2, ksplit=3, stage=5, wgmma=True)),
    (3, "fp16", Tiling(2, 5, 4, 1, 1, 1, 2, stage=27, wgmma=True, chunks=2)),
    (2, "fp16", Tiling(1, 4, 2, 2, 2, 3, 2, stage=9, compact=True)),
    (2, "fp32", Tiling(1, 11, 2, 1, 1, 2, 3, stage=4)),
    (3, "fp16", Tiling(2, 5, 2, 1, 3, 2, 2, ksplit=9, stage=4)),
    (0, "fp16", Tiling(1, 17, 4, 1, 1, 2, 2, stage=6, wgmma=True)),
    (3, "fp16", Tiling(3, 5, 2, 1, 2, 3, 2, stage=81, chunks=2)),
    (3, "fp32", Tiling(2, 5, 4, 1, 1, 1, 2, stage=9, wgmma=True, chunks=2)),
]
#: Of US3 with 35 planes before it: two taps share a step where channels end in half of one.
JOINED = [
    ("fp16", Tiling(1, 22, 4, 1, 1, 2, 3, stage=2, depth=2, compact=True, wgmma=True)),
    ("fp32", Tiling(1, 11, 2, 1, 1, 2, 3, stage=4)),
    ("fp16", Tiling(1, 11, 3, 1, 1, 2, 3, stage=6, depth=2, compact=True)),
    ("fp16", Tiling(1, 6, 3, 1, 2, 3, 3, ksplit=3, stage=3)),
    ("fp32", Tiling(1, 22, 4, 1, 1, 2, 3, stage=3, wgmma=True)),
]
PLANES = (11, 19, 13)
CASES = [
    *thinned(product(range(4), BOUND, [None], [3], [PLANES]),
             lambda layer, precision, *_: precision == ("fp16", "fp32", "fp32", "fp16")[layer]),
    *first(7, ((*case, 3, PLANES) for case in TILINGS)),
    *first(3, ((2, *case, 1, (35, 19, 13)) for case in JOINED)),
    *((3, "fp16", Tiling(2, 5, 4, 1, 1, 1, tiles, stage=9, wgmma=True), 2, (3, 5, 8 * tiles - 3))
      for tiles in (12, 15, 20)),  # planes beyond one instruction take two
    *product((2, 3), ["fp16"], [None], [1], ((1, 1, 1), (33, 7, 41))),
]  # fmt: skip


@pytest.mark.parametrize(("layer", "precision", "tiling", "batch", "planes"), CASES, ids=str)
def test_any_tiling_gives_the_equations(emulator, layer, precision, tiling, batch, planes):
    check(emulator, layer, precision, tiling, batch=batch, planes=planes)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_no_cell_that_responds_is_left_out(emulator, precision):
    """Input and weights that are alike in all planes reach the bound exactly."""
    model = excitable_model("fukushima2003", (3, 2, 1))
    s1, s2, s3, s4 = model.s
    alike = np.broadcast_to(s3.reference[:1, :1], s3.reference.shape).copy()
    model = replace(model, s=(s1, s2, replace(s3, reference=alike, threshold=0.6), s4))
    tiling = Tiling(1, 11, 3, 1, 1, 2, 2, stage=6, compact=True)
    step, lay = step_of(emulator, 2, precision, tiling, batch=2, model=model)
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


@pytest.mark.parametrize("order", ["reversed", 3])
def test_threads_may_run_in_any_order(order):
    for layer, tiling in (
        (2, Tiling(1, 6, 3, 1, 2, 3, 3, ksplit=3, stage=3)),
        (1, Tiling(1, 7, 3, 1, 1, 2, 2, stage=5)),
        (3, Tiling(2, 5, 4, 1, 1, 1, 2, stage=81, chunks=2)),
    ):
        check(Emulator(order=order), layer, "fp16", tiling, batch=2)


def test_tilings_that_ship_fit():
    for arch, numbers, rows in _table()["s"]:
        shape = Shape(*numbers)
        for least, *row in rows:
            t = Tiling(*row)
            assert fits(shape, t, arch)
            assert choose(shape, least, arch) == t
            assert not t.compact or t.ksplit == t.chunks == 1
            assert t.ksplit > 1 or not t.clusters
            assert t.ksplit <= 16 or not t.clusters


@pytest.mark.parametrize("arch", [80, 86, 90, 100, 120])
def test_any_shape_has_a_tiling_that_fits(arch):
    sizes = ((6, 68, (2,)), (6, 38, (16, 32)), (6, 22, (8, 40, 120)), (9, 5, (16, 80, 240)))
    for (kernel, out, inputs), planes, mode in product(sizes, (1, 16, 77, 400), (0, 3)):
        for channels in inputs:
            shape = Shape(kernel, out + kernel - 1, channels, out, planes, mode)
            for batch in (1, 8, 200):
                t = choose(shape, batch, arch)
                assert fits(shape, t, arch)
                assert not t.wgmma or arch == 90
    assert choose(S2, 8, 90) == choose(S2, 9, 90)


def test_blocks_of_a_window_are_a_cluster_if_all_fit_at_once():
    shape = Shape(9, 13, 80, 5, 96, 0)
    tiling = choose(shape, 8, 90)
    assert tiling.ksplit > 1
    assert clustered(shape, tiling, 8, 90, 132)
    assert not clustered(shape, tiling, 64, 90, 132)
    for arch, processors in ((80, 132), (90, 78), (100, 132), (120, 148)):  # none was measured there
        assert not clustered(shape, tiling, 8, arch, processors)


@pytest.mark.gpu
@pytest.mark.parametrize("batch", [1, 3, 8])
def test_a_cluster_answers_as_blocks_that_share_global_memory(batch):
    """Both add the parts of a window in the order of the window, so not a bit differs."""
    machine = gpu(0)
    if not serves(machine.arch, machine.processors):
        pytest.skip("no clusters on this device")
    shelf = Shelf(machine, load_model("neocog-small"), "fp16")
    steps = shelf.choose(plan_of("default", "fp16"), batch)
    found = []
    for cluster in (0, 1):
        with machine.xp.cuda.Stream(non_blocking=True) as stream:
            work = Pass(machine, steps, shelf.layouts, batch)
            work.arrays["digits"].set(some_digits(batch))
            launches = []
            for one in work.launches:
                defines = dict(one.kernel.defines)
                if defines.get("KSPLIT", 1) != 1:
                    defines["CLUSTER"] = cluster
                launches.append(one._replace(kernel=replace(one.kernel, defines=tuple(defines.items()))))
            enqueue(machine, launches)
            stream.synchronize()
            found.append((work.maps("US4"), work.arrays["answers"].get()))
        kernels = {launch.kernel for launch in launches}
        assert any(("CLUSTER", 1) in kernel.defines for kernel in kernels) == bool(cluster)
    assert (found[0][0] > 0).any()
    for got, want in zip(*found, strict=True):
        np.testing.assert_array_equal(got, want)


def test_too_many_channels_are_refused():
    with pytest.raises(UsageError, match="--plan card"):
        choose(Shape(9, 13, 16 * 211, 5, 80, 0), 8, 80)
