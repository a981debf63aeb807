"""The finder's kernels in the emulator, against the finder on the CPU."""

import math
import pickle
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from neocog.cuda import finder
from neocog.cuda.finder import CudaFinder, Frame, brought, finding, level_shapes
from neocog.cuda.finder_network import FinderNetwork, area, level_rows
from neocog.cuda.launcher import Gpu
from neocog.errors import DeviceError, ModelError
from neocog.learning.finder.graph import Graph
from neocog.network.registry import models_dir
from neocog.reading.device import open_finder
from neocog.vision import finder as cpu
from neocog.vision.finder import FinderSettings, find
from neocog.vision.finder_model import FinderModel, load_finder
from neocog.vision.scales import search
from tests import cuda_fake
from tests.emulator import Emulator
from tests.support import failing
from tests.test_cubins import fault

SHIPPED = models_dir() / "finder.safetensors"
SAMPLES = Path(__file__).resolve().parent.parent / "data" / "samples"
#: Largest error of a map, as a share of its strongest response: every map on the way and every
#: weight is rounded to a half, by 2^-11 of itself.
BOUND = 5e-3
#: Marks that count when answers are compared: those near the threshold may come or go.
CLEAR = 0.15


def graph_of(seed=0):
    """Every operation, and what the kernels make one launch of."""
    rng, g = np.random.default_rng(seed), Graph()

    def conv(x, k, n, side, **how):
        per_group = k // how.get("groups", 1)
        weight = rng.normal(size=(n, per_group, side, side)) / np.sqrt(per_group * side**2)
        return g.conv(x, weight, rng.normal(size=n) / 4, **how)

    a = g.add("Relu", conv("x", 1, 12, 3, stride=2, padding=1))
    a = g.add("Relu", conv(a, 12, 20, 4, stride=2, padding=1))
    inner = g.add("Relu", conv(conv(a, 20, 20, 5, groups=20, padding=2), 20, 28, 1))
    block = g.add("Add", a, conv(inner, 28, 20, 1))
    both = g.add("Relu", conv(block, 20, 40, 3, padding=1, groups=2))
    low = conv(conv(both, 40, 40, 4, stride=2, padding=1, groups=40), 40, 16, 1)
    side = g.add("Add", conv(both, 40, 16, 1), g.add("Resize", low))
    wide = g.add("Add", side, conv(side, 16, 16, 3, padding=2, dilation=2))
    g.conv(g.add("Relu", conv(g.add("Relu", wide), 16, 24, 1)), rng.normal(size=(30, 24, 1, 1)) / 4)
    return g


def computed(g, x):
    """The graph in float64, operation by operation; (H, W) -> (C, h, w)."""
    maps = {"x": x[None].astype(np.float64)}
    for node in g.nodes:
        given, conv = [maps[name] for name in node["inputs"] if name in maps], node["op"] == "Conv"
        maps[node["output"]] = convolved(*given, g, node) if conv else OPERATIONS[node["op"]](*given)
    return maps[g.nodes[-1]["output"]]


OPERATIONS = {
    "Relu": lambda a: np.maximum(a, 0),
    "Add": np.add,
    "Resize": lambda a: a.repeat(2, axis=1).repeat(2, axis=2),
}


def convolved(u, g, node):
    weight = g.tensors[node["inputs"][1]].astype(np.float64)
    n, per_group, side, _ = weight.shape
    stride, dilation, edge = node["stride"], node["dilation"], node["padding"]
    u = np.pad(u, ((0, 0), (edge, edge), (edge, edge)))
    reach = dilation * (side - 1) + 1
    seen = sliding_window_view(u, (reach, reach), (1, 2))[:, ::stride, ::stride, ::dilation, ::dilation]
    groups = (node["groups"], -1, per_group, side, side)
    seen = seen.reshape(node["groups"], per_group, *seen.shape[1:])
    out = np.einsum("gnkyx,gkhwyx->gnhw", weight.reshape(groups), seen).reshape(n, *seen.shape[2:4])
    bias = g.tensors[node["inputs"][2]] if len(node["inputs"]) > 2 else np.zeros(n)
    return out + bias[:, None, None]


def network_of(machine, g):
    return FinderNetwork(machine, g.nodes, g.tensors)


@pytest.mark.parametrize("order", ["forward", 11])
@pytest.mark.usefixtures("emulator")
def test_every_operation_on_pictures_of_several_sizes(order):
    g, emulator, start = graph_of(), Emulator(order=order), 0
    network = network_of(emulator, g)
    assert len(network.steps) < len(g.nodes) * 0.6
    sides = [(32, 80), (16, 32), (16, 16)]
    pictures = [np.random.default_rng(i).normal(size=side) for i, side in enumerate(sides)]
    x, maps, launches = network.launches(level_rows(sides, sides), area(sides))
    places = sum(map(math.prod, sides))
    assert len(x) > places
    x[:places] = np.concatenate([one.reshape(-1) for one in pictures])
    maps[...] = np.nan
    for launch in launches:
        emulator.launch(launch)
    assert np.isnan(maps[places // 16 :]).all()
    assert not maps[: places // 16, 30:].any()
    for picture in pictures:
        h, w = (side // 4 for side in picture.shape)
        got = maps[start : start + h * w, :30].reshape(h, w, 30).transpose(2, 0, 1)
        wanted = computed(g, picture.astype(np.float16))
        assert np.abs(got - wanted).max() <= BOUND * np.abs(wanted).max()
        start += h * w


def frame_of(machine, g, grey, settings):
    """A frame with all that goes up of a picture; the spare room holds what a larger one left."""
    need, parts = brought(grey, settings)
    frame = Frame(network_of(machine, g), need, settings)
    frame.given[...] = 99
    frame.given[: sum(map(len, parts))] = np.concatenate(parts)
    return frame


def launch_of(frame, name):
    return next(launch for launch in frame.launches if launch.kernel.name == name)


@pytest.mark.parametrize(("shape", "long_side", "order"), [
    ((50, 300), 1600, "reversed"), ((333, 170), 200, 7), ((21, 9), 1600, "forward"),
    ((1, 40), 1600, "forward"),
])  # fmt: skip
@pytest.mark.usefixtures("emulator")
def test_sizes_and_contrast_are_those_of_the_cpu(shape, long_side, order):
    emulator, settings = Emulator(order=order), FinderSettings(long_side=long_side, largest=60)
    grey = np.random.default_rng(1).integers(0, 256, shape).astype(np.uint8)
    grey[:, : shape[1] // 3] = 200
    frame = frame_of(emulator, last_only(), grey, settings)
    for launch in frame.launches:
        if launch.kernel.name in ("reduce", "normalise"):
            emulator.launch(launch)
    levels, _, greys, x, count = launch_of(frame, "normalise").args
    assert count[0] == 0
    before, factors = grey, cpu.sizes(shape, settings)
    for row, (h, w), (rows, columns), factor in zip(
        levels[1:], *level_shapes(shape, settings), factors, strict=True
    ):
        now = resized(before, (h, w)) if factor < 1 else grey
        before = greys[row[0] : row[0] + h * w].reshape(h, w)
        assert np.abs(before.astype(int) - now).max() <= 1  # OpenCV's own last bit differs
        seen = x[row[5] : row[5] + rows * columns].reshape(rows, columns)
        wanted = cpu.normalised(before)
        assert np.abs(seen[:h, :w] - wanted).max() <= 2e-3 * max(1, np.abs(wanted).max())
        assert not seen[h:].any()
        assert not seen[:, w:].any()


def resized(grey, shape):
    return np.asarray(cv2.resize(grey, shape[::-1], interpolation=cv2.INTER_AREA))


def last_only():
    """A small network of the right form: 30 planes at a quarter of the side."""
    g, rng = Graph(), np.random.default_rng(0)
    g.conv("x", rng.normal(size=(30, 1, 4, 4)), np.full(30, -1.0), stride=4)
    return g


@pytest.mark.parametrize(("most", "order"), [(7, "forward"), (800, "reversed"), (800, 5)])
@pytest.mark.usefixtures("emulator")
def test_marks_are_those_of_the_cpu(most, order):
    emulator, shape, settings = Emulator(order=order), (100, 200), FinderSettings(largest=60, most=most)
    frame = frame_of(emulator, last_only(), np.zeros(shape, np.uint8), settings)
    maps = launch_of(frame, "peaks").args[3]
    maps[...] = np.random.default_rng(3).normal(size=maps.shape) * 0.8
    maps[:, :2] -= 2.0
    shapes, padded = level_shapes(shape, settings)
    levels = np.split(maps[:, :30], np.cumsum([rows * columns // 16 for rows, columns in padded]))[:-1]
    found = [cpu.decode(level.reshape(rows // 4, columns // 4, 30).transpose(2, 0, 1), settings)
             for level, (rows, columns) in zip(levels, padded, strict=True)]  # fmt: skip
    whole = cpu.joined(found, shapes, shape, settings)
    alone = cpu.merged(whole, settings)
    wanted = cpu.agreed(alone, cpu.the_best(whole, most))
    assert np.allclose(wanted.guesses, alone.guesses, atol=1e-3) == (most == 7)
    for name in ("peaks", "rank", "suppress"):
        emulator.launch(launch_of(frame, name))
    got = finding(frame.best, settings)
    assert int(frame.count[0]) == len(whole) > 20
    assert 3 < len(got) == len(wanted) < len(whole)
    assert got.kinds.tolist() == wanted.kinds.tolist()
    for part, near in (("boxes", 1e-4), ("scores", 1e-8), ("guesses", 1e-5)):
        np.testing.assert_allclose(getattr(got, part), getattr(wanted, part), rtol=1e-5, atol=near)


def sample(name):
    return np.asarray(cv2.imread(str(SAMPLES / name), cv2.IMREAD_GRAYSCALE))


def agree(got, wanted, bound=0.02):
    """Every clear mark of one is among the other's: kind, score, box."""
    for some, others in ((got, wanted), (wanted, got)):
        for box, score, kind in zip(some.boxes, some.scores, some.kinds, strict=True):
            if score < CLEAR:
                continue
            near = np.abs(others.boxes - box).max(axis=1) <= 0.05 * box[2:].max()
            near &= (np.abs(others.scores - score) <= bound) & (others.kinds == kind)
            assert near.any(), (box, score, kind)


@pytest.fixture
def faked(monkeypatch, emulator):
    cuda_fake.install(monkeypatch, emulator)
    monkeypatch.setattr(finder, "number_of", lambda device: 0)
    monkeypatch.setattr(finder, "gpu", Gpu)
    g = last_only()
    return CudaFinder(g.nodes, g.tensors)


def test_pictures_of_changing_sizes_one_after_another(faked, emulator):
    rng, g, settings = np.random.default_rng(5), last_only(), FinderSettings(small=0, fine=math.inf)
    shapes = [(40, 60), (40, 60), (40, 60), (48, 48), (40, 60), *((16, 20 + n) for n in range(5))]
    for shape in shapes:
        grey = rng.integers(0, 256, shape).astype(np.uint8)
        frame = frame_of(emulator, g, grey, settings)
        for launch in frame.launches:
            emulator.launch(launch)
        got, wanted = find(grey, faked, settings), finding(frame.best, settings)
        assert len(got) > 0
        assert got.boxes.tobytes() == wanted.boxes.tobytes()
        assert got.scores.tobytes() == wanted.scores.tobytes()
    for change in ({"least": 0.4}, {"overlap": 0.05}, {"inside": 0.1}, {"most": 3}):  # of the last picture
        changed = replace(settings, **change)
        frame = frame_of(emulator, g, grey, changed)
        for launch in frame.launches:
            emulator.launch(launch)
        wanted, before = finding(frame.best, changed), got
        assert find(grey, faked, changed).boxes.tobytes() == wanted.boxes.tobytes() != before.boxes.tobytes()
    x = rng.normal(size=(48, 64)).astype(np.float32)
    assert np.abs(faked(x) - computed(g, x)).max() < 0.02


@pytest.mark.skipif(not SHIPPED.is_file(), reason="needs models/finder.safetensors")
def test_pages_are_searched_in_the_tiles_of_the_cpu(faked, monkeypatch):
    """Small digits are found at twice the scale in a tile; of a small picture some parts are left out."""
    model, sizes, at_once = load_finder(SHIPPED), [], faked.find
    monkeypatch.setattr(faked, "_network", FinderNetwork(faked._gpu, model.nodes, model.tensors))
    monkeypatch.setattr(faked, "find", lambda grey, how: sizes.append(grey.shape) or at_once(grey, how))
    grey = np.full((90, 400), 210, np.uint8)
    page = resized(sample("note.jpg"), (120, 160))
    grey[40:70, 200:260] = resized(page[20:100], (30, 60))
    got, on_cpu = search(grey, faked), open_finder(model)
    assert len(got) > 10
    assert sizes == [(45, 200), (90, 368), (148, 192)]
    agree(got, search(grey, on_cpu), 2e-3)
    for fine in (56.0, math.inf):  # some parts of it, or all sizes at once
        small = FinderSettings(small=0, largest=80, overlap=0.5, fine=fine)  # two marks share 0.400 of theirs
        agree(find(page, faked, small), find(page, on_cpu, small), 5e-3)


def test_a_finder_on_a_gpu_is_opened_when_it_is_asked_in_whatever_process(faked, monkeypatch):
    asked, model = [], FinderModel(last_only().nodes, last_only().tensors, {}, "f")
    monkeypatch.setattr(finder, "CudaFinder", lambda *what, device: asked.append(device) or faked)
    sent, settings = pickle.loads(pickle.dumps(open_finder(model, "cuda:1"))), FinderSettings(small=0)
    assert (sent.device, sent.model.id, asked) == ("cuda:1", model.id, [])
    grey = np.random.default_rng(5).integers(0, 256, (40, 60)).astype(np.uint8)
    assert find(grey, sent, settings).boxes.tobytes() == faked.find(grey, settings).boxes.tobytes()
    x = np.zeros((48, 64), np.float32)
    assert sent(x).tobytes() == faked(x).tobytes()
    assert asked == ["cuda:1"]


@pytest.mark.parametrize(("arch", "device"), [(75, "cpu"), (80, "cuda:1")])
def test_the_finder_beside_an_engine_is_on_its_gpu_if_that_can(monkeypatch, arch, device):
    monkeypatch.setattr("neocog.cuda.devices.number_of", lambda name: 1)
    monkeypatch.setattr("neocog.cuda.launcher.gpu", lambda number: SimpleNamespace(arch=arch))
    model = FinderModel([], {}, {}, "f")
    assert open_finder(model, SimpleNamespace(device="cuda:1")).device == device
    assert open_finder(model, SimpleNamespace(device="cpu")).device == "cpu"


def test_what_fails_on_the_device_is_one_line(faked, monkeypatch):
    fail = failing(cuda_fake.CUDAError("no\nmore"))
    monkeypatch.setattr(faked._gpu.xp.cuda.runtime, "memcpyAsync", fail)
    with pytest.raises(DeviceError, match=r"failed: no$"):
        faked.find(np.zeros((20, 20), np.uint8), FinderSettings())


UNFIT = {
    "side": lambda g: g.conv("x", np.ones((30, 1, 3, 3))),
    "planes": lambda g: g.conv("x", np.ones((30, 2, 4, 4)), stride=4),
    "weights": lambda g: g.add("Add", "x", g.tensor(np.ones(1))),
    "operation": lambda g: g.add("Sqrt", "x"),
    "alone": lambda g: g.add("Relu", "x"),
    "sizes": lambda g: g.add("Add", g.conv("x", np.ones((30, 1, 4, 4)), stride=4), "x"),
}


@pytest.mark.parametrize("change", UNFIT.values(), ids=UNFIT)
def test_a_network_that_the_kernels_do_not_know_is_refused(change):
    change(g := Graph())
    with pytest.raises(ModelError, match="use --device cpu"):
        network_of(Emulator(), g)


@pytest.mark.parametrize("arch", [80, 90, 120])
def test_kernels_build_within_their_registers(arch, nvrtc):
    frame = frame_of(Emulator(), graph_of(), np.zeros((100, 200), np.uint8), FinderSettings())
    assert not any(fault(kernel, arch) for kernel in {launch.kernel for launch in frame.launches})


@pytest.mark.gpu
def test_the_gpu_answers_as_the_equations():
    g = graph_of()
    network = CudaFinder(g.nodes, g.tensors)
    x = np.random.default_rng(0).normal(size=(320, 480)).astype(np.float16).astype(np.float32)
    wanted = computed(g, x)
    assert np.abs(network(x) - wanted).max() <= BOUND * np.abs(wanted).max()


@pytest.mark.gpu
@pytest.mark.skipif(not SHIPPED.is_file(), reason="needs models/finder.safetensors")
@pytest.mark.parametrize("shape", [(480, 640), (720, 1280), (333, 517)])
@pytest.mark.parametrize("name", ["note.jpg", "phone.jpg"])
def test_the_gpu_finds_what_the_cpu_finds(shape, name):
    model, settings = load_finder(SHIPPED), FinderSettings(fine=math.inf)
    on_gpu, on_cpu = open_finder(model, device="cuda"), open_finder(model)
    grey = np.asarray(cv2.resize(sample(name), shape[::-1]))
    wanted = find(grey, on_cpu, settings)
    for _ in range(3):  # without a graph, as one, and again
        agree(find(grey, on_gpu, settings), wanted)
    agree(search(grey, on_gpu), search(grey, on_cpu))
