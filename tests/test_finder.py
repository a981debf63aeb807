"""The finder: its pages, its networks on every engine, its boxes, its training."""

import math
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save

from neocog.errors import ModelError, UsageError
from neocog.learning.drawing.canvas import IGNORE, SIGN, Canvas, _clear
from neocog.learning.drawing.glyphs import SCRIPTS, Face, Running
from neocog.learning.drawing.hands import Hand, load_hands
from neocog.learning.drawing.layouts import LAYOUTS, write_number
from neocog.learning.drawing.page import compared, draw_page, faces_of
from neocog.learning.drawing.paper import card_on
from neocog.learning.drawing.pen import Pen, trace
from neocog.network.registry import FINDER, find_model
from neocog.vision.finder import (
    SIGNS,
    FinderSettings,
    Finding,
    agreed,
    decode,
    find,
    merged,
    normalised,
    sizes,
)
from neocog.vision.finder_model import FORMAT, MAX_BYTES, OpenCV, load_finder, save_finder


@pytest.fixture(scope="module")
def hands(hands_dir):
    return load_hands(hands_dir)


def test_a_traced_scan_keeps_its_form():
    scan = np.zeros((28, 28), np.uint8)
    scan[4:24, 6:9] = scan[21:24, 6:20] = 255  # an L
    strokes = trace(scan)
    whole = np.concatenate(strokes)
    assert 1 <= len(strokes) <= 3
    assert np.ptp(whole, axis=0) == pytest.approx([3 * 11, 3 * 17], abs=4)  # along the middle of the pen


def pages(hands, seeds):
    return [draw_page(hands, faces_of(), seed, side=128) for seed in seeds]


def test_pages_follow_from_seed_and_variation_and_many_have_no_digit(hands):
    drawn = pages(hands, range(100))
    for page, again in zip(drawn, pages(hands, range(9)), strict=False):
        assert (page.image.tobytes(), page.marks.tobytes()) == (again.image.tobytes(), again.marks.tobytes())
    for page in drawn:
        assert page.image.shape == (128, 128)
        assert ((page.marks[:, 1:3] >= 0) & (page.marks[:, 1:3] <= page.extent[::-1])).all()
    other = draw_page(hands, faces_of(), 3, 1, side=128)
    assert other.image.tobytes() != drawn[3].image.tobytes()
    labels = [page.marks[:, 0] for page in drawn]
    without = np.mean([not ((each >= 0) & (each < 10)).any() for each in labels])
    nothing = np.mean([not (each < 10).any() for each in labels])
    # 51 and 38 % at 256 pixels: letters alone are 20 %, an eighth lies on its side or upside down
    assert 0.3 <= nothing <= 0.55
    assert 0.4 <= without <= 0.75
    assert any((each >= 10).any() for each in labels)


def test_a_page_that_lies_has_no_digits(hands, monkeypatch):
    turned = {}
    for quarters in range(4):
        monkeypatch.setattr("neocog.learning.drawing.page._QUARTERS", np.eye(4)[quarters])
        turned[quarters] = pages(hands, range(60))
    for quarters, alike in ((1, {0, 1, 8}), (2, {0, 1, 2, 5, 6, 8, 9}), (3, {0, 1, 8})):
        ignored = 0
        turn = np.linalg.matrix_power([[0, 1], [-1, 0]], quarters)  # (x, y) of the middle, y down
        for upright, lying in zip(turned[0], turned[quarters], strict=True):
            assert (lying.marks[:, 0] == IGNORE).all()
            before, after = (each.image[: each.extent[0], : each.extent[1]] for each in (upright, lying))
            before = np.rot90(before, quarters)
            if before.shape != after.shape or np.abs(before - after.astype(np.float32)).max() > 2:
                continue  # a page that leans much
            label = upright.marks[:, 0]
            could = upright.marks[np.isin(label, [IGNORE, *alike]) | (label >= SIGN)]
            was = (could[:, 1:3] - np.array(upright.extent[::-1]) / 2) @ turn.T
            for place in lying.marks[:, 1:3] - np.array(lying.extent[::-1]) / 2:
                assert np.abs(was - place).max(1).min() < 0.1
            ignored += len(lying.marks)
        assert ignored > 20


@pytest.mark.parametrize("high", [8, 10, 12, 40])
@pytest.mark.parametrize(("paper", "ink", "noise", "frame", "seen"), [
    (200, 120, 3, False, True), (40, 90, 3, False, True),  # chalk
    (200, 120, 3, True, True), (200, 200, 3, True, False),  # in a frame as dark as its ink; the frame alone
    (200, 198, 0, False, False), (200, 190, 40, False, False),
])  # fmt: skip
def test_ink_that_can_be_told_from_its_paper_is_clear(high, paper, ink, noise, frame, seen):
    rng, covered = np.random.default_rng(1), np.zeros((high + 6, high), np.float32)
    covered[3:-3, 3] = covered[3, 3:-3] = covered[-4, 3:-3] = 1  # a C
    picture = paper + (ink - paper) * covered + rng.normal(0, noise, covered.shape)
    if frame:
        picture[:1] = picture[-1:] = 120
    assert _clear(picture.clip(0, 255).astype(np.uint8), covered) == seen


def test_a_card_is_shown_with_what_lies_around_it(hands, monkeypatch):
    rng, size = np.random.default_rng(0), 128
    for _ in range(20):
        image, under = np.full((size, size), 200, np.float32), np.full((size, size), 50, np.float32)
        left, top, wide, high = card_on(image, under, (40, 50, 48, 30), rng)
        assert max(left - 40, top - 50, 88 - left - wide, 80 - top - high) <= 0
        assert image[65, 64] == 200
        assert image[2, 2] < 60
    monkeypatch.setattr("neocog.learning.drawing.page.LAYOUTS", {"card": (LAYOUTS["card"][0], 1)})
    drawn = pages(hands, range(24))
    assert sum(bool((page.marks[:, 0] >= 0).any()) for page in drawn) > len(drawn) / 2
    for page in drawn:
        x, y, wide, high = page.marks[page.marks[:, 0] >= 0, 1:].T
        assert (x + wide / 2 <= page.extent[1]).all()
        assert (y + high / 2 <= page.extent[0]).all()


@pytest.mark.parametrize("turn", [0.0, 0.7])
def test_marks_are_where_their_ink_is(hands, turn):
    for seed in range(8):
        canvas = Canvas(np.full((256, 256), 220, np.float32), np.random.default_rng(seed), turn=turn)
        hand = Hand(hands, canvas.rng, pen=Pen(0.1, 0.9))
        write_number(canvas, hand, 30, "3,07", canvas.wide / 2 - 40, canvas.high / 2)
        assert [mark[0] for mark in canvas.marks] == [3, SIGN + SIGNS.index(","), 0, 7]
        paper = canvas.image.copy()
        for _, left, top, wide, high in canvas.marks:
            assert canvas.image[int(top) : int(top + high), int(left) : int(left + wide)].min() < 120
            paper[int(top) - 2 : int(top + high) + 2, int(left) - 2 : int(left + wide) + 2] = 220
        assert (paper < 120).mean() < 0.005


@pytest.mark.parametrize("sign", "/,")
def test_a_slash_and_a_comma_are_drawn_whole(hands, sign):
    drawn = [Hand(hands, np.random.default_rng(seed)).character(sign, 40) for seed in range(20)]
    highs, (least, most) = [len(one.cover) / 40 for one in drawn], (0.9, 2.1) if sign == "/" else (0.15, 0.9)
    assert least < min(highs) <= max(highs) < most


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_keeps_to_its_kind_at_every_size(hands, name):
    found = 0
    for seed, high in enumerate((9, 20, 60, 200) * 2):
        image, rng = np.full((160, 224), 220, np.float32), np.random.default_rng(seed)
        canvas = Canvas(image, rng, faces_of(), turn=0.1 * seed)
        LAYOUTS[name][0](canvas, Hand(hands, rng), high)
        assert np.isfinite(canvas.image).all()
        found += sum(label >= 0 for label, *_ in canvas.marks)
    assert (found > 0) == (name not in ("letters", "music", "scribbles", "nothing", "foreign"))


def test_words_of_every_script_are_strokes():
    face = Face()
    for name in face.scripts:
        assert all(len(face.strokes(letter)) for letter in SCRIPTS[name] if letter not in "il")
    whole = np.concatenate(Running(np.random.default_rng(0)).word("jelly"))
    assert whole[:, 1].min() < -0.6
    assert whole[:, 1].max() > 0.2


def heat(at):
    maps = np.zeros((30, 24, 24), np.float32)
    maps[:2] = -8
    for row, column, high, score in at:
        maps[0, row, column] = score
        maps[2:4, row, column] = np.log(high / 16)
        maps[6 + 3, row, column] = 1
    return maps


def test_decoding_and_merging():
    settings = FinderSettings()
    found = decode(heat([(5, 5, 20, 4), (15, 12, 30, 2)]), settings)
    assert found.kinds.tolist() == [3, 3]
    assert np.exp(found.guesses).sum(axis=1) == pytest.approx(1)
    assert found.boxes[0].tolist() == pytest.approx([12, 12, 20, 20])
    once = merged(replace(found[[0, 0, 1, 1]], scores=np.float32([0.5, 0.9, 0.8, 0.4])), settings)
    assert once.scores.tolist() == pytest.approx([0.9, 0.8])
    marks = np.array([[3, 22, 22, 20, 20], [1, 80, 80, 10, 10]], np.float32)
    assert compared(found, marks).tolist() == [2, 1, 1, 0, 0, 0, 0]
    first, *_, last = sizes((480, 640), settings)
    assert (first, 640 * last <= settings.largest) == (1.0, True)
    assert sizes((3000, 4000), settings)[0] == settings.long_side / 4000


@pytest.mark.parametrize(("side", "times"), [(96, 2.0), (288, 4 / 3), (384, 1.0)])
def test_a_small_picture_is_enlarged(side, times):
    shapes = []

    def network(x):
        shapes.append(x.shape)
        maps = np.zeros((30, x.shape[0] // 4, x.shape[1] // 4), np.float32) - 8
        if x.shape[1] == side * times:
            maps[:, :24, :24] = heat([(5, 5, 20, 4)])
        return maps

    found = find(np.zeros((side, side), np.uint8), network, FinderSettings(fine=math.inf))
    assert max(shapes)[1] == side * times
    assert found.boxes[0] == pytest.approx(np.array([12, 12, 20, 20]) / times)


def test_what_a_digit_is_is_guessed_at_all_sizes():
    boxes = np.array([(0, 0, 20, 30), (1, 0, 20, 30), (0, 0, 20, 12), (0, 1, 20, 30)], np.float32)
    p = np.full((4, 10), 0.02, np.float32)
    p[[0, 0, 1, 2, 3], [7, 1, 1, 3, 9]] = 0.3, 0.2, 0.9, 0.9, 0.9
    scores = np.array([0.8, 0.4, 0.7, 0.6], np.float32)
    found = Finding(boxes, scores, np.array([7, 1, 3, 10]), np.log(p))
    told = agreed(found[:1], found)
    mean, sign = np.log(p[0]) * 0.8 / 1.2 + np.log(p[1]) * 0.4 / 1.2, agreed(found[3:], found)
    np.testing.assert_allclose(told.guesses[0], mean - np.log(np.exp(mean).sum()), atol=1e-5)
    assert (told.kinds.tolist(), sign.kinds.tolist()) == ([1], [10])
    np.testing.assert_array_equal(sign.guesses, found.guesses[3:])
    assert len(agreed(found[:0], found)) == len(agreed(found[:0], found[:0])) == 0


def conv(**changes):
    return {"op": "Conv", "inputs": ["x", "w"], "output": "m", "stride": 4, "padding": 0, "dilation": 1,
            "groups": 1, **changes}  # fmt: skip


def relu(output="n", op="Relu"):
    return {"op": op, "inputs": ["m"], "output": output}


def ones(*shape):
    return np.ones(shape, np.float32)


WEIGHTS = {"w": ones(2, 1, 2, 2), "end": ones(30, 2, 1, 1)}


def written(path, *nodes, **tensors):
    """The file of a finder of some operations, which end in a map of two planes, and the answer."""
    answer = conv(inputs=[nodes[-1]["output"], "end"], output="answer", stride=1)
    save_finder(path, [*nodes, answer], WEIGHTS | tensors, {})
    return path


@pytest.mark.parametrize(("nodes", "tensors", "reason"), [
    *(([conv(**{key: value})], {}, "numbers are not allowed|a place for")
      for key, values in {
          "stride": (0, -1, 17, 2**40, 4.0, True, None), "padding": (-1, 1, 512, 2**63, "0"),
          "dilation": (0, -1, 5, 10, [1]), "groups": (0, -1, 2, 2**31),
      }.items() for value in values),
    ([conv(stride=3)], {"w": ones(2, 1, 3, 3)}, "a place for 3 pixels"),
    ([conv(stride=16), conv(inputs=["m", "v"], stride=2, output="n")], {"v": ones(2, 2, 2, 2)},
     "32 pixels"),
    *(([conv()], {"w": ones(*shape)}, "numbers are not allowed") for shape in
      ((), (2,), (2, 1, 1), (2, 2, 1, 1), (2, 1, 1, 2), (2, 1, 10, 10), (0, 1, 1, 1), (2, 1, 0, 0),
       (2, 1, 1, 1, 1))),
    ([conv(inputs=["x", "w", "b"])], {"b": ones(3)}, "numbers are not allowed"),
    ([conv(inputs=["x", "w", "b", "b"])], {"b": ones(2)}, "numbers are not allowed"),
    *(([conv(inputs=names)], {}, "") for names in (
        ["x"], [], ["y", "w"], ["m", "w"], ["w", "w"], "xw", None, [1, "w"])),
    *(([conv(), {**node, "output": "n"}], {}, "") for node in (
        {"op": "Loop", "inputs": ["m"]}, {"op": "Concat", "inputs": ["m", "m"]}, {"op": "Relu"}, {},
        {"op": [], "inputs": ["m"]}, {"op": "Add", "inputs": ["m"]}, {"op": "Add", "inputs": ["m", "x"]},
        {"op": "Add", "inputs": ["m", "w"]}, {"op": "Relu", "inputs": ["m", "m"]},
        {"op": "Relu", "inputs": ["n"]})),
    *(([conv(), relu(name)], {}, "name is taken") for name in "mw"),
    ([conv(stride=1)], {"w": ones(2, 1, 1, 1)}, "30 maps, one place for 1 pixels, not 30 for 4"),
    ([conv(), relu()], {"end": ones(29, 2, 1, 1)}, "in 29 maps"),
    ([conv(stride=1), relu(op="Resize")], {"w": ones(2, 1, 1, 1)}, "beyond the picture"),
    ([conv(stride=1)], {"w": ones(200, 1, 1, 1), "end": ones(30, 200, 1, 1)}, "values, at most"),
    ([conv(stride=1, padding=4)], {"w": ones(150, 1, 9, 9), "end": ones(30, 150, 1, 1)},
     "products, at most"),
    ([conv(), *(relu(f"r{n}") for n in range(400))], {}, "it has not 1 to 400 operations"),
    ([conv()], {"x": ones(1)}, "name of the picture"),
    ([conv()], {"w": np.full((2, 1, 2, 2), np.inf, np.float32)}, "NaN or infinity"),
])  # fmt: skip
def test_what_opencv_must_not_see_is_refused(nodes, tensors, reason, tmp_path):
    path = written(tmp_path / "finder.safetensors", *nodes, **tensors)
    with pytest.raises(ModelError, match=f"cannot be used: .*({reason})") as refused:
        load_finder(path)
    assert "\n" not in str(refused.value)


def test_broken_files_and_answers_that_are_no_numbers_are_refused(tmp_path):
    path = written(tmp_path / "finder.safetensors", conv())
    assert load_finder(path).id.startswith("finder@")
    whole, about = path.read_bytes(), {"format": FORMAT, "card": "{}"}
    broken = [
        save({"w": ones(1)}, metadata=about | {"nodes": nodes})
        for nodes in ("{}", "[]", "[1]", "[" * 100_000, '[{"op": NaN}]', "null")
    ]
    eighths = save({"w": ones(1).astype(np.int8)}, metadata=about | {"nodes": "[1]"})
    for data in (*broken, whole[:40], whole + bytes(MAX_BYTES), b"", whole[:8], eighths):
        path.write_bytes(data)
        with pytest.raises(ModelError, match="'w' is int8" if data is eighths else "cannot be used"):
            load_finder(path)
    for value in (6e4, -6e4):
        weights = {name: np.full_like(ones, value) for name, ones in WEIGHTS.items()}
        network = OpenCV(load_finder(written(path, conv(), **weights)))
        with pytest.raises(ModelError, match="its answers are no numbers or too large"):
            network(np.ones((16, 32), np.float32))


def test_reading_eight_channels_does_not_change_the_answer():
    import cv2

    model = load_finder(find_model("finder"))
    x = np.random.default_rng(0).normal(size=(48, 80)).astype(np.float32)
    plain, network = cv2.dnn.readNetFromONNX(np.frombuffer(model.onnx(), np.uint8)), OpenCV(model)
    plain.setInput(x[None, None])
    wanted, answer = plain.forward()[0], network(x)
    np.testing.assert_allclose(answer, wanted, atol=1e-4 * np.abs(wanted).max())
    again = answer.copy()
    network(-x)
    np.testing.assert_array_equal(answer, again)  # not the network's own memory


@pytest.mark.parametrize(
    ("digit", "score", "read"), [(30, 0.9, None), (20, 0.9, (112, 112)), (30, 0.3, (512, 256))]
)
def test_the_largest_size_is_read_around_small_digits(digit, score, read):
    asked = []

    def network(x):
        asked.append(x.shape[::-1])
        maps = heat([])
        if x.shape == (128, 256):  # half of the size: a digit at (34, 34), of 24 cells shown
            maps = heat([(8, 8, digit, math.log(score / (1 - score)))])
        elif x.shape[::-1] == read == (112, 112):
            np.testing.assert_allclose(x, normalised(grey)[16:128, 16:128], atol=1e-3)
            maps = heat([(10, 12, 40, 5)])
        return maps

    settings = FinderSettings(small=0, largest=130, around=30, fine=44, clear=0.8)
    grey = np.random.default_rng(0).integers(0, 255, (256, 512), np.uint8)
    found = find(grey, network, settings)
    assert asked == [(256, 128), (128, 64), *([read] if read else [])]
    box = [68 - digit, 68 - digit, 2 * digit, 2 * digit]
    if read == (112, 112):  # from (16, 16) on, where a digit was seen 50 to the right and 42 down
        box = [16 + 50 - 20, 16 + 42 - 20, 40, 40]
    assert found.boxes[0] == pytest.approx(np.array(box))
    asked.clear()
    find(grey, network, replace(settings, fine=math.inf))
    assert asked[2:] == [(512, 256)]
    asked.clear()
    find(grey, network, replace(settings, fine=0, clear=0))
    assert len(asked) == 2


@pytest.fixture(scope="module")
def learning():
    """PyTorch, the finder's network in it, its training."""
    torch = pytest.importorskip("torch", reason="needs PyTorch: neocog[train]")
    from neocog.learning.finder import networks, training

    torch.manual_seed(0)
    return torch, networks, training


def test_every_engine_answers_alike(learning, tmp_path):
    torch, networks, _ = learning
    network, path = networks.FinderNetwork().eval(), tmp_path / "finder.safetensors"
    save_finder(path, network.graph().nodes, network.graph().tensors, {})
    grey = np.random.default_rng(0).integers(0, 255, (64, 96), np.uint8)
    x, told = normalised(grey), networks.normalised(torch.from_numpy(grey)[None])
    assert np.abs(told[0, 0].numpy() - x).max() < 1e-3
    with torch.no_grad():
        wanted = network(told)[0].numpy()
    engine = OpenCV(load_finder(path))
    assert engine(x).shape == wanted.shape == (networks.OUTPUTS, 16, 24)
    assert np.abs(engine(x) - wanted).max() < 0.05  # the file holds halves
    assert isinstance(find(grey, engine, FinderSettings()), Finding)


def test_what_is_learned_while_ways_are_tried_is_forgotten(learning):
    torch, _, training = learning

    def learn(network, optimiser):
        optimiser.zero_grad()
        network(torch.linspace(-1, 1, 144).reshape(4, 1, 6, 6)).exp().sum().backward()
        optimiser.step()

    tried = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))
    not_tried = deepcopy(tried)
    both = [(one, torch.optim.AdamW(one.parameters(), lr=0.1)) for one in (tried, not_tried)]
    for _ in range(2):  # of an optimiser that has no state yet, and of one that has
        with training.forgotten(*both[0]):
            for _ in range(3):
                learn(*both[0])
        for one in both:
            learn(*one)
        mine, others = (
            [*one.state_dict().values(), *(v for own in adam.state.values() for v in own.values())]
            for one, adam in both
        )
        assert all(map(torch.equal, mine, others)), len(mine)


def test_a_run_begins_with_the_weights_of_a_file(learning, hands_dir, tmp_path, monkeypatch):
    torch, networks, training = learning
    file, x = find_model(FINDER), torch.randn(2, 1, 64, 64)
    known, network = load_finder(file), networks.FinderNetwork()
    network.take(known, x)
    graph = network.graph()
    assert graph.nodes == known.nodes
    for name, value in known.tensors.items():
        np.testing.assert_allclose(graph.tensors[name], value, atol=1e-5)
    learning, told = network.train()(x), network.eval()(x)
    assert (learning - told).abs().max() < 0.1 * told.abs().max()  # of other pictures normalisations differ
    settings = training.FinderTraining(
        chunk=4, chunks=1, passes=1, batch=4, side=64, validation=4, rate=1e-9, start=str(file)
    )
    run = training.train_finder(hands_dir, tmp_path, settings, workers=1, tell=str).graph()
    far = [np.abs(run.tensors[name] - known.tensors[name]).max() for name in known.tensors]
    assert max(far) < 0.3
    (tmp_path / "none").write_bytes(b"no model")
    with pytest.raises(ModelError, match="none"):
        training.train_finder(hands_dir, tmp_path / "b", replace(settings, start=str(tmp_path / "none")))
    other = replace(known, nodes=known.nodes[:-1])  # a finder, but of other layers
    monkeypatch.setattr(training, "load_finder", lambda path: other)
    with pytest.raises(ModelError, match="layers are others"):
        training.train_finder(hands_dir, tmp_path / "c", settings)


def test_scores_that_are_to_stay_are_left_for_no_mark(learning):
    torch, networks, _ = learning
    marks, out = torch.tensor([[[3.0, 30, 30, 20, 30]]]), torch.randn(1, networks.OUTPUTS, 16, 16)
    out.requires_grad_()
    wanted = networks.targets(marks, 64, 96.0)
    steps = []
    for anchor in (wanted.anchor, torch.sigmoid(out[:, :2].detach())):
        networks.loss(out, wanted._replace(anchor=anchor))[0].backward()
        steps.append(float(out.grad[:, :2].abs().max()))
        out.grad = None
    assert steps[0] > 1e-2 > 1e-6 > steps[1]


@pytest.mark.parametrize("start", [None, FINDER])
def test_a_run_that_was_stopped_goes_on_to_the_same_weights(learning, hands_dir, tmp_path, start):
    torch, _, training = learning
    torch.set_num_threads(1)
    sizes = {"chunk": 8, "chunks": 2, "passes": 1, "batch": 4, "side": 64, "validation": 4}
    given = training.FinderTraining(seed=3, start=start and str(find_model(start)), **sizes)

    def run(folder, settings=given, tell=str, **how):
        return training.train_finder(hands_dir, tmp_path / folder, settings, workers=1, tell=tell, **how)

    whole = run("a")
    with pytest.raises(ZeroDivisionError):
        run("b", tell=lambda _: 1 / 0)  # it stops at the first word
    run("b", minutes=0)
    for one, other in zip(whole.state_dict().values(), run("b").state_dict().values(), strict=True):
        assert torch.equal(one, other)
    assert (tmp_path / "a" / "curves.json").read_text() == (tmp_path / "b" / "curves.json").read_text()
    with pytest.raises(UsageError, match="rate"):
        run("b", replace(given, rate=1.0))
