"""Digits cut out at boxes take the form of MNIST's; pages on their side, at every scale; lines box by box."""

import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from neocog.errors import UsageError
from neocog.reading.numbers import each_line, read_lines
from neocog.reading.policy import Pattern
from neocog.reading.reader import Reader
from neocog.vision import alone, scales
from neocog.vision.crops import cut_out, digit_of_box
from neocog.vision.finder import SIGNS, FinderSettings, Finding
from neocog.vision.normalise import normalise, stroke_width
from neocog.vision.page import TURNS, on_front, percentiles, turned_back
from neocog.vision.scales import search
from tests.support import glyph, page, tiny_model


def marks(boxes: Any, scores: Any = 0.99, kinds: Any = 0) -> Finding:
    """What a finder says of boxes (N, 4): each of the ten digits is as likely."""
    boxes, n = np.float32(boxes), len(boxes)
    scores, kinds = np.broadcast_to(np.float32(scores), n).copy(), np.broadcast_to(np.int64(kinds), n)
    return Finding(boxes, scores, kinds, np.full((n, 10), np.log(0.1), np.float32))


@pytest.mark.parametrize("pen", [1, 2, 5, 12, 26])
def test_strokes_come_near_those_of_mnist(pen: int) -> None:
    radius = np.hypot(*(np.indices((120, 120)) - 59.5))
    ring = (np.abs(radius - 60 + pen / 2 + 1) < pen / 2).astype(float)
    assert 1.5 < stroke_width(normalise(ring) / 255.0) < 4.2


def test_stroke_width_of_a_bar_and_of_nothing_and_the_centre_of_mass_is_in_the_middle() -> None:
    assert stroke_width(np.pad(np.ones((100, 6)), ((0, 0), (12, 12)))) == pytest.approx(6, rel=0.35)
    assert stroke_width(np.zeros((4, 4))) == 0
    assert not any(normalise(np.zeros(shape)).any() for shape in ((9, 5), (0, 0)))
    ink = np.zeros((60, 30))
    ink[:4, :] = 1  # a bar on top, a heavy blob at its right, a tail: nothing is symmetric
    ink[4:20, 18:30] = 1
    ink[20:60, 26:30] = 1
    digit = normalise(ink)
    middle = [(place * digit).sum() / digit.sum(dtype=float) for place in np.indices(digit.shape)]
    assert middle == pytest.approx([14, 14], abs=0.6)


def test_ink_of_a_box_is_told_by_its_own_contrast() -> None:
    grey = np.full((100, 100), 200, np.uint8) + np.linspace(0, 12, 100).astype(np.uint8)
    grey[30:70, 46:52] -= 20
    boxes = np.array([(40, 28, 20, 44), (0, 0, 20, 20)], np.float32)
    digits = cut_out(grey, boxes)
    np.testing.assert_array_equal(cut_out(255 - grey, boxes), digits)
    assert digits[0, 14, 14] > 200
    assert not digits[1].any()
    assert not cut_out(np.full_like(grey, 9), boxes).any()
    beyond = np.array([(0, 0, 30, 40), (-20, -20, 190, 190), (99, 99, 9, 9)], np.float32)
    assert cut_out(grey, beyond).shape == (3, 28, 28)


def test_percentiles_are_those_of_numpy_to_the_bit() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        grey = rng.integers(0, rng.integers(1, 256), rng.integers(1, 40, 2), np.uint8)[:: rng.integers(1, 3)]
        assert percentiles(grey, 50, 98, 99.5) == np.percentile(grey, (50, 98, 99.5)).tolist()


@pytest.mark.parametrize("bright", [False, True])
def test_a_heavy_outline_is_not_the_paper_of_its_cell(bright: bool) -> None:
    grey = np.full((100, 200), 200, np.uint8)
    for left in (0, 100):
        grey[30:70, left + 47 : left + 53] = 60  # a stroke
        grey[30:36, left + 40 : left + 60] = 60  # and another
    cell = grey[22:78, 32:68].copy()
    grey[:, :100] = 50
    grey[22:78, 32:68] = cell
    boxes = np.array([(39, 29, 22, 42), (139, 29, 22, 42)], np.float32)
    seen = 255 - grey if bright else grey
    digits = cut_out(seen, boxes)
    np.testing.assert_array_equal(digits[0], digits[1])
    np.testing.assert_array_equal(digit_of_box(seen, boxes[0]), digits[0])


@pytest.mark.parametrize("bright", [False, True])
@pytest.mark.parametrize("size", [14, 20, 28, 40, 60])
def test_lines_that_go_on_beyond_a_box_are_no_part_of_its_digit(size: int, bright: bool) -> None:
    grey = np.full((2 * size + 30, 2 * size + 30), 200, np.uint8)
    pen, wide, at = max(2, size // 7), size // 2, size // 2 + 15
    grey[at : at + size, at + wide - pen : at + wide] = 60
    grey[at : at + pen, at : at + wide] = 60
    box = np.array([(at, at, wide, size)], np.float32)
    ways = (lambda page: 255 - page) if bright else (lambda page: page)
    (alone,) = cut_out(ways(grey), box)
    grey[:, at + wide + 2 : at + wide + 4] = 60  # the outline of a cell
    grey[at + 2 * size // 3] = 60  # and a rule that the digit crosses
    (digit,) = cut_out(ways(grey), box)
    assert np.abs(digit.astype(int) - alone).mean() < 8
    assert (digit[10:24].max(axis=1) > 120).all()  # the stroke is whole


@pytest.mark.parametrize("turn", TURNS)
def test_boxes_are_turned_back(turn: int) -> None:
    grey = np.zeros((30, 50), np.uint8)
    grey[5:9, 10:24] = 255
    rows, columns = np.nonzero(np.rot90(grey, -turn // 90))
    box = columns.min(), rows.min(), np.ptp(columns) + 1, np.ptp(rows) + 1
    assert turned_back(box, turn, 50, 30) == (10, 5, 14, 4)


@pytest.mark.parametrize("model", ["neocog-small", "neocog-lines"])
def test_a_page_on_its_side_is_read_as_it_should_be(model: str) -> None:
    reader, upright = (
        Reader(model, device="cpu"),
        page("2734523\n4257374"),
    )  # none stands upside down as another
    text = reader.read(upright).text.replace(" ", "")
    for turn in TURNS:
        lying = np.ascontiguousarray(np.rot90(upright, turn // 90))
        for rotate in (turn, None):
            found = reader.changed(rotate=rotate).read(lying)
            assert (found.text.replace(" ", ""), found.turn, found.to_dict()["turn"]) == (text, turn, turn)


def written(text: str, *, pitch: int = 40, level: int = 60) -> tuple[NDArray[np.uint8], Finding]:
    """A page with a line of glyphs, 40 high, and what a finder sees: a box around each, sure of it.

    A sign has no ink; a space none at all.
    """
    grey, found = np.full((160, 100 + pitch * len(text)), 220, np.uint8), dict[int, int]()
    for k, char in enumerate(text):
        x = 40 + pitch * k
        if char.isdigit():
            grey[level : level + 40, x : x + 30] = 220 - 180 * glyph(int(char), 40, 4)
        if char != " ":
            found[x] = int(char) if char.isdigit() else 10 + SIGNS.index(char)
    return grey, marks([(x, level, 30, 40) for x in found], kinds=list(found.values()))


def tiny(**options: Any) -> Reader:
    return Reader(tiny_model(), device="cpu", **options)


def read(grey: NDArray[np.uint8], found: Finding) -> list[str]:
    return [" ".join(word.text for word in line.words) for line in read_lines(tiny(), grey, found)[0]]


@pytest.mark.parametrize(("text", "told"), [
    ("3071", "3071"), ("12/03/2024", "12/03/2024"), ("-5,20", "-5,20"), ("30  71", "30 71"), ("7", "7"),
    ("4\u00f72", "42"),  # a sign that no line has
])  # fmt: skip
def test_boxes_are_read_with_the_signs_between_them(text: str, told: str) -> None:
    assert read(*written(text)) == [told]


def test_what_stands_far_apart_is_a_line_of_its_own_if_asked_for() -> None:
    (grey, found), reader, every = written("30    71"), tiny(), np.ones(4, np.bool_)
    assert [len(list(each_line(reader, grey, found, wanted))) for wanted in (None, every)] == [1, 2]
    wanted = np.array([False, False, False, True])
    ((own, line),) = each_line(reader, *written("3071"), wanted)
    assert (own, line and len(line.chars)) == ([0, 1, 2, 3], 4)
    assert not list(each_line(reader, grey, found, ~every))


def test_a_doubtful_box_is_left_out() -> None:
    grey, found = written("307")
    found.scores[1] = 0.16
    grey[:, 80:120] = 220  # nothing is there
    assert read(grey, found) == ["37"]


@pytest.mark.parametrize(("options", "allowed"), [
    ({"pattern": "####"}, True), ({"pattern": "##/##"}, False),
    ({"valid": ["3071", "3077"]}, True), ({"valid": ["1234"]}, False),
])  # fmt: skip
def test_patterns_and_lists_hold_for_boxes_too(options: Any, allowed: bool) -> None:
    (line,), left_out = read_lines(tiny(**options), *written("3071"))
    assert ("".join(char.char for char in line.chars), line.margin is not None) == ("3071", allowed)
    assert [char.box for char in line.chars] == [(40 + 40 * k, 60, 30, 40) for k in range(4)]
    assert left_out == 0


def test_ink_from_the_back_is_left_out_and_faint_pencil_is_not() -> None:
    grey, found = written("3071 8 5")
    for left, soft in ((240, True), (320, False)):
        place = np.s_[50:110, left - 10 : left + 50]
        faint = 220 - (220 - grey[place].astype(np.float32)) * 0.25
        grey[place] = cv2.GaussianBlur(faint, (0, 0), 2.5) if soft else faint
    assert on_front(grey, found).tolist() == [True] * 4 + [False, True]
    lines, left_out = read_lines(tiny(), grey, found)
    assert ([char.char for char in lines[0].chars], left_out) == ([*"30715"], 1)
    assert on_front(grey, found[:0]).tolist() == []
    found.boxes[:2, :2] = (-90, -90), (9999, 9999)  # beyond the page
    assert on_front(grey, found)[2:4].all()


def test_patterns() -> None:
    fits = Pattern("##/##").fits
    assert [fits(text) for text in ("12/30", "12 / 30", "12130", "12/3")] == [True, True, False, False]
    for form in ("", "--", "20##", "##\n##"):
        with pytest.raises(UsageError, match="pattern"):
            Pattern(form)


# --- every scale ---


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(device="cpu")


@pytest.fixture(scope="module")
def line() -> np.ndarray:
    """A line of five digits, some 26 pixels high, on paper of 200."""
    sample = Path(__file__).parents[1] / "data/samples/postcode.png"
    grey = np.asarray(cv2.imread(str(sample), cv2.IMREAD_GRAYSCALE), np.uint8)
    rows, columns = np.nonzero(grey < np.median(grey) - 60)
    cut = grey[rows.min() - 6 : rows.max() + 7, columns.min() - 6 : columns.max() + 7]
    return np.asarray(cv2.resize(cut, None, fx=26 / len(cut), fy=26 / len(cut), interpolation=cv2.INTER_AREA))


def laid(line: np.ndarray, shape: tuple[int, int], *at: tuple[int, int]) -> np.ndarray:
    grey = np.full(shape, int(np.median(line[:2])), np.uint8)
    for y, x in at:
        grey[y : y + line.shape[0], x : x + line.shape[1]] = line
    return grey


def test_small_digits_are_read_wherever_they_stand(reader: Reader, line: np.ndarray) -> None:
    wanted = reader.read(laid(line, (120, 300), (40, 60))).text
    assert len(wanted) == 5
    for shape, at in (((3508, 2480), (1700, 900)), ((260, 6000), (100, 4000)), ((5000, 300), (3111, 70))):
        read = reader.read(laid(line, shape, at))
        assert (read.text, read.scale, read.warnings) == (wanted, 1.0, ())
        assert abs(read.lines[0].box[1] - at[0]) < 12
    found = reader.look(laid(line, (3508, 2480), (1700, 900)))  # each digit once
    assert ((found.kinds < 10) & (found.scores >= FinderSettings().score)).sum() == 5


class Asked:
    """A finder's network that gives one answer, and notes the sizes of the pictures that it is asked for."""

    def __init__(self, answer: Finding) -> None:
        self.answer, self.seen = answer, list[tuple[int, ...]]()

    def find(self, grey: NDArray[np.uint8], _: FinderSettings) -> Finding:
        self.seen.append(grey.shape)
        return self.answer


@pytest.mark.parametrize(("scores", "then", "told"), [
    ([0.2, 0.3, 0.2], [0.8, 0.9, 0.7], [0.8, 0.9, 0.7]),
    ([0.2, 0.3, 0.2], [0.6, 0.5, 0.9], [0.2, 0.3, 0.2]),  # letters
    ([0.2, 0.9, 0.8], [0.8, 0.9, 0.7], [0.2, 0.9, 0.8]),  # one alone
])  # fmt: skip
def test_rows_of_unsure_digits_are_looked_at_alone(scores: Any, then: Any, told: list[float]) -> None:
    """Each without what is around it, 64 pixels high here: its digits have 32 then."""
    boxes = np.float32([[100, 100, 40, 64], [150, 104, 40, 64], [200, 98, 40, 64]])
    network = Asked(marks((boxes - [36, 34, 0, 0]) / 2, then))
    again = alone.again(np.zeros((300, 400), np.uint8), marks(boxes, scores), network)
    order = again.boxes[:, 0].argsort()
    np.testing.assert_array_equal(again.boxes[order], boxes)
    assert again.scores[order] == pytest.approx(told)
    assert network.seen == ([(99, 134)] if scores[1] < 0.5 else [])


@pytest.mark.parametrize("shape", [(1, 1), (4, 3000), (120, 200)])
@pytest.mark.parametrize("box", [(-5, -500, 400, 1000), (8, 2, 3, 4), (210, 40, 2, 2), (-9, -9, 4, 6)])
def test_unsure_digits_at_the_edge_of_a_picture_and_beyond(shape: tuple[int, int], box: Any) -> None:
    found = marks([box, np.add(box, (box[2], 0, 0, 0))], 0.3)
    network = Asked(found[:0])
    assert alone.again(np.zeros(shape, np.uint8), found, network) == found
    assert min(map(min, network.seen), default=1) > 0


@pytest.mark.parametrize(("slope", "read"), [(0, [(64, 38400)]), (5, [])])  # all over the page is no row
def test_a_long_row_of_unsure_digits_is_one(slope: int, read: list[tuple[int, int]]) -> None:
    order = np.random.default_rng(0).permutation(2000)
    found = marks(np.stack([12 * order, slope * order, 0 * order + 10, 0 * order + 20], axis=1), 0.3)
    network, start = Asked(found[:0]), time.process_time()
    alone.again(np.zeros((40 + 2000 * slope, 24000), np.uint8), found, network)
    assert network.seen == read
    assert time.process_time() - start < 2


def test_a_page_of_too_small_digits_or_too_many_says_so(reader: Reader, line: Any, monkeypatch: Any) -> None:
    grey, small = laid(line, (3508, 2480), (1700, 900), (300, 900), (2300, 300)), ("small-digits-likely",)
    read = Reader(device="cpu", long_side=1400).read(grey)
    assert (read.warnings, read.scale) == (small, pytest.approx(1400 / 3508, abs=1e-3))
    read = Reader(device="cpu", long_side="full").read(grey)
    assert (read.warnings, read.text.count("\n")) == ((), 2)
    monkeypatch.setattr("neocog.vision.scales._WORK", 1000)
    assert reader.read(grey).warnings == small
    with pytest.raises(UsageError, match="64 pixels or more, or full"):
        Reader(device="cpu", long_side=10)


@pytest.mark.parametrize(("kind", "pieces", "explained"), [
    (3, [(0, 20), (10, 6)], True),  # a digit, its high stroke and a low piece
    (3, [(0, 6), (10, 6)], False),  # nothing in it is half as high
    (14, [(-10, 11), (10, 11)], True), (14, [(-20, 11), (0, 11), (20, 11)], False),  # signs
])  # fmt: skip
@pytest.mark.parametrize("x", [600, 1020])  # in one tile, and where two meet
def test_which_marks_explain_small_ink(kind: int, pieces: Any, explained: bool, x: int) -> None:
    grey = np.full((300, 2048), 220, np.uint8)
    for at, high in pieces:
        grey[150 - high // 2 : 150 - high // 2 + high, x + at - 2 : x + at + 2] = 20
    box = np.array([[x - 30, 140, 60, 20]], np.float32)
    found = Finding(box, np.ones(1, np.float32), np.array([kind]), np.zeros((1, 10), np.float32))
    scale = scales._Scale(grey, grey, 1.0)
    _, middle, _ = scales._small_ink(scale, np.ones(scale.cells, bool), found)
    assert (len(middle) == 0) is explained


def test_small_digits_in_columns_are_no_sign(reader: Reader) -> None:
    """Of a page at an eighth of its size rows of print are dashes: no sign of several explains them."""
    image = Image.new("L", (4000, 3000), 240)
    draw, digits = ImageDraw.Draw(image), np.random.default_rng(3).integers(0, 10, (4, 2, 5))
    for (row, column), number in zip(np.ndindex(4, 2), digits.reshape(-1, 5), strict=True):
        place = 500 + 1600 * column, 1000 + 60 * row
        draw.text(place, "".join(map(str, number)), 60, ImageFont.load_default(14))
    found = reader.look(np.asarray(image))
    small = (found.kinds < 10) & (found.scores > 0.35) & (found.boxes[:, 3] < 40)
    assert small.sum() >= 34


def test_beside_a_clear_digit_a_thin_stroke_of_ten_pixels_is_looked_at() -> None:
    """At an eighth of the page's size it is dust."""
    grey, seen = np.full((3000, 4000), 240, np.uint8), list[tuple[int, ...]]()
    grey[2000:2010, 2500:2502] = 60

    def network(x: np.ndarray) -> np.ndarray:
        seen.append(x.shape)
        maps = np.full((30, x.shape[0] // 4, x.shape[1] // 4), -9, np.float32)
        if x.shape == (384, 512):
            maps[:4, 20, 30] = 6, -9, 1, 1
        return maps

    assert len(search(grey, network)) == 1
    assert seen[4:] == [(128, 192)]  # after four sizes of the whole page


def test_silent_paper_large_digits_and_print_are_searched_once(reader: Reader, line: np.ndarray) -> None:
    large = np.asarray(cv2.resize(line, None, fx=12, fy=12, interpolation=cv2.INTER_CUBIC))
    silent, text = np.full((3508, 2480), 220, np.uint8), np.full((3508, 2480), 220, np.uint8)
    for y in range(300, 3300, 70):
        cv2.putText(text, "the quick brown fox is here " * 3, (200, y), cv2.FONT_HERSHEY_SIMPLEX, 1.2, 0, 4)
    for grey, most in ((silent, 0.4), (laid(large, silent.shape, (1700, 300)), 0.8), (text, 4.5)):
        asked: list[int] = []

        def network(x: np.ndarray, asked: list[int] = asked) -> np.ndarray:
            asked.append(x.size)
            return np.asarray(reader.finder(x))

        search(grey, network)
        assert sum(asked) < most * 1024 * 736


@pytest.mark.parametrize(("turn", "times"), [
    (0, 1), (180, 1), (270, 1), (90, 1.4),
    pytest.param(90, 1, marks=pytest.mark.xfail(reason="26 pixels: no digit is seen")),
])  # fmt: skip
def test_a_line_of_five_digits_is_turned_upright(
    reader: Reader, line: np.ndarray, turn: int, times: float
) -> None:
    upright = cv2.resize(laid(line, (400, 700), (200, 300)), None, fx=times, fy=times)
    read = reader.read(np.ascontiguousarray(np.rot90(upright, turn // 90)))
    assert (read.turn, read.plain) == (turn, reader.read(upright).plain)


def test_a_mirrored_page(reader: Reader, line: np.ndarray) -> None:
    upright = laid(line, (400, 700), (200, 100))
    plain, mirrored = reader.read(upright), reader.changed(mirror=True).read(upright[:, ::-1].copy())
    assert (mirrored.mirror, mirrored.text) == (True, plain.text)
    assert mirrored.to_dict()["mirror"]
    x, y, wide, high = plain.digits[0].box
    assert mirrored.digits[0].box == pytest.approx((700 - x - wide, y, wide, high), abs=2)


@pytest.mark.parametrize("shape", [(1, 50), (50, 1), (2, 1024), (8, 3000), (20, 8192)])
def test_thin_pictures_are_read(reader: Reader, shape: tuple[int, int]) -> None:
    assert reader.read(np.full(shape, 200, np.uint8)).digits == ()
