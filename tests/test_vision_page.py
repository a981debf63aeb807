"""From the finder's boxes to lines: order, overlaps, signs, counts, turns, what is left out."""

from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from neocog.network.decision import answers
from neocog.reading.reader import Reader, _parted
from neocog.reading.records import DigitReading
from neocog.vision.crops import cut_out, digit_of_box
from neocog.vision.finder import SIGNS, Finding
from neocog.vision.lines import best_chain, into_lines, links, posterior
from neocog.vision.page import TURNS, _line, turned_back
from neocog.vision.search import Known, Mark, Search
from neocog.vision.weigh import OWN, SLASH_KIND, SearchSettings, Weights
from tests.support import page

Boxes = list[tuple[float, float, float, float]]


def finding(boxes: Boxes, scores: list[float], kinds: list[int]) -> Finding:
    guesses = np.zeros((len(boxes), 10), np.float32)
    for row, kind in zip(guesses, kinds, strict=True):
        row[kind % 10] = 5
    return Finding(
        np.array(boxes, np.float32).reshape(-1, 4), np.array(scores, np.float32),
        np.array(kinds, np.int64), guesses - np.log(np.exp(guesses).sum(1, keepdims=True)),
    )  # fmt: skip


def row(*columns: float, level: float = 100, tall: float = 40) -> Boxes:
    return [(x, level, 0.6 * tall, tall) for x in columns]


WEIGHTS = Weights(own=(-2.0, 2.0, 0.0, 0.0, 0.0, 3.0, *[0.0] * 6), network=(0.0, 1.0, 0.0), around=(0, 1, 0))
"""So that tests do not hang on what was fitted last."""


def said(odds: float) -> Known:
    """A digit network that finds every box as likely."""
    return lambda digits, guesses: (
        answers(guesses, temperature=1.0),
        np.full((len(digits), 3), (0.0, odds, 0.0)),
    )


def searched(found: Finding, count: int | None = None) -> tuple[list[list[Mark]], int]:
    """Search a page on which the digit network finds every box as likely."""
    blank = np.full((300, 400), 200, np.uint8)
    search = Search(blank, found, said(2.0), WEIGHTS)
    lines = search.lines(count)
    return lines, search.left_out(lines)


def chars(lines: list[list[Mark]]) -> list[str]:
    return ["".join(mark.char for mark in line) for line in lines]


def read(found: Finding, count: int | None = None) -> list[str]:
    return chars(searched(found, count)[0])


@pytest.mark.parametrize("degrees", [-25, -8, 0, 8, 25])
def test_lines_are_told_by_their_skew(degrees: float) -> None:
    boxes = np.array(row(*range(50, 350, 40)) + row(*range(50, 350, 40), level=190))
    boxes[:, 1] += np.tan(np.radians(degrees)) * boxes[:, 0]
    rng = np.random.default_rng(3)
    order = rng.permutation(len(boxes))
    lines = [order[line].tolist() for line in into_lines(boxes[order])]
    assert lines == [list(range(8)), list(range(8, 16))]


HALVES: Boxes = [*row(50, 74), (50, 100, 48, 40)]  # and the box of both
OVER: Boxes = [(100, 100, 30, 40), (100, 142, 30, 40), (100, 112, 30, 66)]


@pytest.mark.parametrize(
    ("boxes", "scores", "kinds", "lines", "left"),
    [
        ([], [], [], [], 0),
        (row(90, 50, 130) + row(100, 50, level=20), [0.9] * 5, [2, 1, 3, 5, 4], ["45", "123"], 0),
        (HALVES, [0.8, 0.8, 0.5], [3, 4, 8], ["34"], 0),
        (HALVES, [0.4, 0.45, 0.85], [3, 4, 8], ["8"], 0),
        (OVER, [0.95, 0.6, 0.7], [3, 4, 8], ["3", "4"], 0),  # no mark stands on two lines
        (row(50, 80, 110, 140, 170), [0.9] * 5, [1, 2, SLASH_KIND, 0, 3], ["12/03"], 0),
        (row(50, 80, 80), [0.9, 0.3, 0.8], [4, 1, SLASH_KIND], ["4/"], 0),
        (row(50, 80, 80), [0.9, 0.8, 0.3], [4, 1, SLASH_KIND], ["41"], 0),
        (row(50, 90, 130) + row(300, level=250), [0.9, 0.9, 0.2, 0.18], [1, 2, 3, 4], ["12"], 2),
    ],
)
def test_boxes_become_lines(
    boxes: Boxes, scores: list[float], kinds: list[int], lines: list[str], left: int
) -> None:
    found, out = searched(finding(boxes, scores, kinds))
    assert (chars(found), out) == (lines, left)
    assert all(mark.is_digit == mark.char.isdigit() for line in found for mark in line)


def test_a_count_that_is_asked_for_decides() -> None:
    found = finding([*row(50, 74, 120), (50, 100, 48, 40)], [0.6, 0.6, 0.9, 0.9], [3, 4, 5, 8])
    assert read(found, count=3) == ["345"]
    assert read(found, count=2) == ["85"]
    assert read(found, count=9) == read(found) in (["345"], ["85"])


@pytest.mark.parametrize(("x", "plain", "told"), [(50, "/42", "142"), (140, "42/", "42/")])
def test_a_slash_that_begins_a_number_is_rather_a_one(x: int, plain: str, told: str) -> None:
    boxes = row(80, 110) + row(x, x)
    found = finding(boxes, [0.9, 0.9, 0.2, 0.7], [4, 2, 1, SLASH_KIND])
    assert read(found) == [plain]
    own = [2.0 if name == "first" else value for name, value in zip(OWN, WEIGHTS.own, strict=True)]
    weights = replace(WEIGHTS, own=tuple(own))
    search = Search(np.full((300, 400), 200, np.uint8), found, said(2.0), weights)
    assert chars(search.lines()) == [told]


def test_marks_that_are_far_fainter_are_left_out() -> None:
    grey = np.full((200, 300), 220, np.uint8)
    for x, ink in ((50, 30), (100, 40), (150, 200)):
        grey[60:100, x + 8 : x + 16] = ink
    found = finding([(x, 60, 24, 40) for x in (50.0, 100.0, 150.0)], [0.8, 0.8, 0.6], [1, 1, 1])
    assert chars(Search(grey, found, said(2.0), WEIGHTS).lines()) == ["11"]


def test_noise_takes_no_longer() -> None:
    rng = np.random.default_rng(0)
    boxes = [(*rng.uniform(0, 380, 2), 8.0, 12.0) for _ in range(900)]
    found = finding(boxes, [0.3] * 900, [1] * 900)
    search = Search(np.full((400, 400), 200, np.uint8), found, said(-5.0), WEIGHTS)
    assert len(search.weigh_places()) <= SearchSettings().most
    assert search.lines() == []


def test_ink_of_a_box_is_told_by_its_own_contrast() -> None:
    grey = np.full((100, 100), 200, np.uint8)
    grey[30:70, 46:52] = 180
    boxes = np.array([(40, 28, 20, 44), (0, 0, 20, 20)], np.float32)
    digits, contrasts = cut_out(grey, boxes)
    np.testing.assert_allclose(contrasts, (20, 0), atol=1)
    bright, same = cut_out(255 - grey, boxes)
    np.testing.assert_array_equal(bright, digits)
    np.testing.assert_allclose(same, contrasts, atol=0.01)
    assert digits[0, 14, 14] > 200
    assert not digits[1].any()
    assert not cut_out(np.full_like(grey, 9), boxes)[0].any()


def test_a_digit_is_as_sure_as_that_no_neighbour_was_missed() -> None:
    whole = [searched(finding(row(50, 90, 130), [0.9, 0.9, score], [1, 2, 3]))[0][0]
             for score in (0.16, 0.4)]  # fmt: skip
    assert chars(whole) == ["12", "12"]
    (_, far), (_, near) = ([mark.whole for mark in line] for line in whole)
    assert 0.3 < near < far < 1
    assert whole[1][0].whole == 1


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
    digits, contrasts = cut_out(seen, boxes)
    np.testing.assert_allclose(contrasts, 140, atol=2)
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
    (alone,), _ = cut_out(ways(grey), box)
    grey[:, at + wide + 2 : at + wide + 4] = 60  # the outline of a cell
    grey[at + 2 * size // 3] = 60  # and a rule that the digit crosses
    (digit,), _ = cut_out(ways(grey), box)
    assert np.abs(digit.astype(int) - alone).mean() < 8
    assert (digit[10:24].max(axis=1) > 120).all()  # the stroke is whole


def test_boxes_beyond_the_picture() -> None:
    grey = np.full((40, 30), 200, np.uint8)
    grey[:, 10:] = 60
    digits, contrasts = cut_out(grey, np.array([(0, 0, 30, 40), (-20, -20, 90, 90), (29, 39, 9, 9)], "f4"))
    assert (np.isfinite(contrasts).all(), digits.shape) == (True, (3, 28, 28))


@pytest.mark.parametrize("turn", TURNS)
def test_boxes_are_turned_back(turn: int) -> None:
    grey = np.zeros((30, 50), np.uint8)
    grey[5:9, 10:24] = 255
    rows, columns = np.nonzero(np.rot90(grey, -turn // 90))
    box = columns.min(), rows.min(), np.ptp(columns) + 1, np.ptp(rows) + 1
    assert turned_back(box, turn, 50, 30) == (10, 5, 14, 4)


@pytest.fixture(scope="module")
def small() -> tuple[Reader, NDArray[np.uint8], str]:
    """A reader that tells digits by their side, a page and what it reads there."""
    reader = Reader("neocog-small", device="cpu")
    upright = page("2734523\n4257374")  # none of which stands upside down as another
    return reader, upright, reader.read(upright).text


@pytest.mark.parametrize("turn", TURNS)
def test_a_page_on_its_side_is_read_as_it_should_be(
    turn: int, small: tuple[Reader, NDArray[np.uint8], str]
) -> None:
    reader, upright, text = small
    lying = np.ascontiguousarray(np.rot90(upright, turn // 90))
    told = Reader("neocog-small", device="cpu", rotate=turn).read(lying)
    assert (told.text, told.turn) == (text, turn)
    found = reader.read(lying)
    assert (found.text, found.turn) == (text, turn)
    assert (found.to_dict()["turn"], found.to_dict()["finder"]) == (turn, reader.finder.model.id)


def slashed(text: str, likely: str, *, score: float = 0.7, gap: int = -1) -> Finding:
    """A line of digits; those that ``likely`` marks with / may be slashes as well."""
    columns = [10 + 30 * k + 60 * (0 <= gap <= k) for k in range(len(text))]
    also = [k for k, char in enumerate(likely) if char == "/"]
    boxes = row(*columns) + row(*(columns[k] for k in also))
    scores = [0.65 if k in also else 0.9 for k in range(len(text))] + [score] * len(also)
    return finding(boxes, scores, [int(c) for c in text] + [SLASH_KIND] * len(also))


@pytest.mark.parametrize(
    ("text", "likely", "more", "dated"),
    [
        ("1210312024", "  /  /    ", {}, "12/03/2024"),
        ("713124", " / /  ", {}, "7/3/24"),
        ("2024109123", "    /  /  ", {}, "2024/09/23"),
        ("121031202", "  /  /   ", {}, "121031202"),  # no year has three digits
        ("4914", " /  ", {}, "4914"),  # one alone is no date
        ("12103120241", "  /  /    /", {}, "12103120241"),
        ("1210312024", "  /  /    ", {"score": 0.6}, "1210312024"),  # rather digits
        ("99121031202", "    /  /   ", {"gap": 2}, "99121031202"),  # a year of three digits
        ("9912103124", "    /  /  ", {"gap": 2}, "9912/03/24"),  # a date beside a number
    ],
)
def test_slashes_make_a_date(text: str, likely: str, more: dict[str, Any], dated: str) -> None:
    assert read(slashed(text, likely, **more)) == [dated]


def test_dates_with_a_count() -> None:
    found = slashed("1210312024", "  /  /    ")
    assert [read(found, count) for count in (10, 8)] == [["1210312024"], ["12/03/2024"]]


@pytest.mark.parametrize(
    ("sign", "score", "kept"), [(":", 0.8, ":"), (":", 0.6, ""), ("/", 0.8, ""), (".", 0.8, "")]
)
def test_a_digit_that_is_rejected_gives_way_to_the_sign_at_its_place(
    sign: str, score: float, kept: str
) -> None:
    boxes = [*row(10, 50, 90), (52, 106, 14, 30)]
    found = finding(boxes, [0.9, 0.7, 0.9, score], [1, 4, 2, 10 + SIGNS.index(sign)])
    line = _line(searched(found)[0][0], 0, (300, 400))
    told = [DigitReading(char, 0.3, 1.0, mark.box) for char, mark in zip("1?2", line.digits, strict=True)]
    digits, signs = _parted(line, told, None)
    assert "".join(digit.char for digit in digits) == ("12" if kept else "1?2")
    assert "".join(mark.char for mark in signs) == kept
    assert _parted(line, told, 3) == (told, [])  # as many digits as were asked for


def test_a_dot_inside_a_digit_does_not_stand_in_its_place() -> None:
    found = finding([*row(10, 50), (55, 115, 8, 8)], [0.9, 0.7, 0.8], [1, 4, 10 + SIGNS.index(",")])
    assert [mark.sign for mark in searched(found)[0][0]] == [None, None]


@pytest.mark.parametrize("seed", range(5))
def test_chains_are_the_best_and_as_likely_as_among_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    boxes = np.stack([np.sort(rng.uniform(0, 90, 7)), rng.uniform(0, 9, 7),
                      rng.uniform(8, 24, 7), rng.uniform(20, 40, 7)], axis=1)  # fmt: skip
    boxes = boxes[np.argsort(boxes[:, 0] + boxes[:, 2] / 2)].astype(np.float32)
    odds, link = rng.normal(0, 2, 7), links(boxes, (-2.0, -1.0))
    chains = {
        chain: sum(odds[k] for k in chain) + sum(link[a, b] for a, b in pairwise(chain))
        for size in range(8) for chain in combinations(range(7), size)
    }  # fmt: skip
    assert tuple(best_chain(odds, link)) == max(chains, key=chains.__getitem__)
    three = max((chain for chain in chains if len(chain) == 3), key=chains.__getitem__)
    assert tuple(best_chain(odds, link, 3)) == (three if chains[three] > -np.inf else ())
    weight = {chain: np.exp(value) for chain, value in chains.items()}
    likely = [sum(w for chain, w in weight.items() if k in chain) / sum(weight.values()) for k in range(7)]
    np.testing.assert_allclose(posterior(odds, link), likely, rtol=1e-9)
