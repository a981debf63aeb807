"""Strips for the line reader: cut out of a page along the baselines of the finder's marks."""

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from neocog.vision.finder import Finding
from neocog.vision.strips import ROWS, WIDEST, Strip, ink_of, strip_of, strips
from neocog.vision.struck import struck


def page(
    *texts: tuple[str, int, int], slope: float = 0.0, shape: tuple[int, int] = (300, 600)
) -> tuple[np.ndarray, np.ndarray]:
    """A page of printed lines (text, left, baseline) and the boxes of all characters, in their order."""
    grey, boxes = np.full(shape, 210, np.uint8), []
    for text, x, y in texts:
        for char in text:
            one, at = np.full(shape, 210, np.uint8), (x, round(y + slope * x))
            cv2.putText(one, char, at, cv2.FONT_HERSHEY_SIMPLEX, 40 / 22, 40, 4, cv2.LINE_AA)
            boxes.append(cv2.boundingRect((one < 150).astype(np.uint8)))
            grey = np.minimum(grey, one)
            x += 37
    return grey, np.array(boxes, np.float32)


def cut(grey: np.ndarray, *boxes: Any, kinds: Sequence[int] = (), **how: Any) -> list[Strip]:
    """The strips of a page, cut around boxes of what are zeros if their kinds are not given."""
    boxes, n = np.float32(np.concatenate(boxes)), sum(map(len, boxes))
    scores, guesses = np.full(n, 0.9, np.float32), np.zeros((n, 10), np.float32)
    return strips(grey, Finding(boxes, scores, np.array(kinds or [0] * n, int), guesses), **how)


def centres(strip: Strip) -> np.ndarray:
    """Middle rows of what stands apart in a strip."""
    _, _, stats, middle = cv2.connectedComponentsWithStats((strip.ink > 0.4).astype(np.uint8))
    return middle[1:][stats[1:, cv2.CC_STAT_AREA] > 60, 1]


def test_a_sloping_line_is_straight_and_as_high_as_asked_for() -> None:
    grey, boxes = page(("20468035", 60, 90), slope=0.2)
    (strip,) = cut(grey, boxes)
    assert strip.marks == tuple(range(8))
    rows = np.flatnonzero((strip.ink > 0.5).any(axis=1))
    assert 30 <= rows[-1] - rows[0] <= 40
    assert np.ptp(centres(strip)) < 4
    left, top, wide, high = boxes[3]
    _, y = strip.to_page(*np.argwhere(strip.ink > 0.5).mean(axis=0)[::-1])
    assert abs(y - (boxes[:, 1] + boxes[:, 3] / 2).mean()) < 3
    columns = np.array([np.abs(strip.middle[:, 0] - side).argmin() for side in (left, left + wide)])
    assert np.abs(np.subtract(strip.box(*columns), (left, top, wide, high))).max() < 5


def test_bright_ink_reads_as_dark_ink_and_beside_one_mark_what_the_finder_missed_is_seen_too() -> None:
    grey, boxes = page(("170", 60, 90))
    (dark,), (bright,), (strip,) = cut(grey, boxes), cut(255 - grey, boxes), cut(grey, boxes[1:2])
    np.testing.assert_array_equal(dark.ink, bright.ink)
    assert len(centres(strip)) == 3


def test_lines_and_far_columns_are_parted_and_nothing_is_read_twice() -> None:
    found = cut(*page(("123", 30, 80), ("45", 330, 80), ("67", 30, 140), ("89", 330, 140)))
    told = [(strip.marks, strip.line, len(centres(strip))) for strip in found]
    assert told == [((0, 1, 2), 0, 3), ((3, 4), 0, 2), ((5, 6), 1, 2), ((7, 8), 1, 2)]


@pytest.mark.parametrize(("rules", "top", "foot", "lean", "walls"), [
    ((18, 118, 212), 10, 200, 4, []), ((18, 118, 212), 44, 200, 0, []), ((18, 118, 212), 10, 79, 0, []),
    ((118, 212), 10, 200, 0, [(116, 36, 5, 60), (209, 36, 6, 60)]),  # which are taken for a 1
])  # fmt: skip
def test_rules_of_a_table_and_at_its_edge_part_cells_and_are_not_read(rules, top, foot, lean, walls) -> None:
    grey, boxes = page(("12", 30, 80), ("34", 124, 80), ("56", 218, 80))
    for x in rules:
        cv2.line(grey, (x, top), (x + lean, foot), 60, 3)
    found = cut(grey, [*boxes, *walls])
    assert [(strip.marks, len(centres(strip))) for strip in found] == [((0, 1), 2), ((2, 3), 2), ((4, 5), 2)]
    assert not walls or np.allclose(found[0].rules, rules, atol=3)


def test_a_gap_wider_than_those_between_digits_is_a_space() -> None:
    grey, boxes = page(("123", 30, 80), ("456", 195, 80))
    (strip,) = cut(grey, boxes)
    middle = (boxes[2, 0] + boxes[2, 2] + boxes[3, 0]) / 2
    assert np.abs(strip.middle[list(strip.spaces), 0] - middle).max() < 2
    assert not cut(grey, boxes[::2])[0].spaces, "all of them are far apart"
    boxes[1, 2] = boxes[2, 0] - boxes[1, 0] - 2
    (strip,) = cut(grey, boxes)
    assert np.abs(strip.middle[list(strip.close), 0] - boxes[2, 0]).min() < 3


def test_a_wide_picture_of_one_line_is_a_strip_as_a_whole_if_that_is_not_too_long() -> None:
    grey, boxes = page(("12 345", 30, 60), shape=(80, 300))
    (strip,) = cut(grey, boxes[[0, 1, 3, 4]])  # the last digit is not found
    assert strip.marks == (0, 1, 2, 3)
    np.testing.assert_array_equal(strip.ink, strip_of(grey))
    left, top, wide, high = boxes[5]
    columns = [np.abs(strip.middle[:, 0] - side).argmin() for side in (left, left + wide)]
    assert np.abs(np.subtract(strip.box(*columns), (left, top, wide, high))).max() < 5
    assert len(cut(*page(("8" * 40, 30, 60), shape=(80, 1600)))) > 1
    tight = cut(*page(("12345", 30, 50), ("67890", 30, 95), shape=(100, 300)))  # two lines are two
    assert [len(strip.marks) for strip in tight] == [5, 5]


def test_marks_alone_are_seen_without_the_walls_of_their_cells() -> None:
    grey, boxes = page(("52", 60, 190))
    walls = grey.copy()
    for left, top, wide, high in boxes.astype(int):
        cv2.rectangle(walls, (left - 5, top - 8), (left + wide + 4, top + high + 8), 40, 3)
    (plain,), (strip,) = cut(grey, boxes), cut(walls, boxes)
    assert plain.ink.shape == strip.ink.shape
    assert np.abs(strip.ink - plain.ink).mean() > 0.1 > 0.05 > np.abs(strip.alone() - plain.ink).mean()


@pytest.mark.parametrize("ring", [False, True])
def test_what_comes_again_in_each_cell_of_a_form_is_not_read(ring: bool) -> None:
    form, boxes = page(*((char, 50 + 66 * k, 190) for k, char in enumerate("59 10") if char != " "))
    for x in range(68, 560, 66):  # some cells are empty
        if ring:
            cv2.circle(form, (x, 170), 31, 60, 2)
        else:
            cv2.rectangle(form, (x - 28, 140), (x + 28, 200), 60, 3)
    empty = [[169, 139, 62, 62]]  # is taken for a 0
    (strip,) = cut(form, boxes, empty, kinds=[5, 9, 1, 0, 0])
    assert (strip.marks, len(centres(strip))) == ((0, 1, 2, 3), 4)


def test_small_marks_belong_to_their_line_and_a_long_one_is_cut_at_its_widest_gap() -> None:
    grey, boxes = page(("1805", 60, 90))
    comma, small = [[210, 85, 6, 10]], [[220, 50, 12, 18], [240, 50, 12, 18]]
    (strip,) = cut(grey, boxes, comma, small, kinds=[1, 8, 0, 5, 12, 0, 0])
    assert strip.marks == tuple(range(7))
    found = cut(*page(("1234567890123", 30, 60), ("1234567890123", 540, 60), shape=(120, 1100)))
    assert [len(strip.marks) for strip in found] == [13, 13]
    assert max(strip.ink.shape[1] for strip in found) <= WIDEST
    assert min(len(strip.marks) for strip in cut(*page(("8" * 40, 30, 60), shape=(120, 1600)))) > 5


def test_of_a_frame_a_few_lines_are_cut_that_are_wanted_and_a_long_one_is_cut_whole() -> None:
    shown = page(("8" * 40, 30, 60), ("12", 30, 200), ("34", 530, 200), shape=(260, 1600))
    lines = [strip.line for strip in cut(*shown, wanted=np.arange(44) == 2)]
    assert lines == [lines[0]] * len(lines) != [lines[0]]
    assert cut(*shown, wanted=np.ones(44, bool))[-1].line == 0, "more is too much for one frame"
    far = cut(*shown, wanted=np.arange(44) >= 40)
    assert [(strip.marks, strip.line) for strip in far] == [((40, 41), 0), ((42, 43), 1)]
    alone = page(("1", 30, 60), ("2", 130, 60), ("4", 300, 60))
    for wanted, parts in ((None, [2, 1]), (np.ones(3, bool), [3])):  # one may be missed
        assert [len(strip.marks) for strip in cut(*alone, wanted=wanted)] == parts


@pytest.mark.parametrize("shape", [(1, 1), (2, 4000), (4000, 2), (48, 16), (7, 100)])
def test_any_picture_makes_a_strip(shape: tuple[int, int]) -> None:
    grey = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    ink = strip_of(grey)
    assert (ink.shape[0], ink.dtype) == (ROWS, np.float32)
    assert 16 <= ink.shape[1] <= WIDEST
    assert 0 <= ink.min() <= ink.max() <= 1
    assert all(16 <= strip.ink.shape[1] <= WIDEST for strip in cut(grey, [[0, 0, shape[1], shape[0]]]))


def test_ink_is_what_its_equations_say() -> None:
    grey = np.random.default_rng(3).uniform(0, 255, (ROWS, 50)).astype(np.float32)

    def windows(x: np.ndarray, side: int, mode: str = "reflect") -> np.ndarray:
        return sliding_window_view(np.pad(x, side // 2, mode), (side, side))

    soft = windows(grey.astype(np.float64), 3).mean(axis=(2, 3))
    paper = windows(windows(soft, 9, "edge").max(axis=(2, 3)), 31).mean(axis=(2, 3))
    away = np.maximum(paper - grey, 0)
    away -= np.median(away)
    ink = np.clip(away / max(4, np.percentile(away, 97)), 0, 1)
    np.testing.assert_allclose(ink_of(grey), ink, atol=1e-5)
    assert not ink_of(np.full((ROWS, 100), 77.0)).any()
    assert not strip_of(np.full((30, 100), 77, np.uint8)).any()
    assert cut(np.zeros((40, 40), np.uint8), np.zeros((0, 4))) == []


@pytest.mark.parametrize(("ends", "rows", "found"), [
    ((30, 130), (23, 26), [(30, 130)]), ((30, 86), (27, 24), [(30, 86)]),  # through three digits, through two
    ((0, 159), (24, 24), []), ((30, 130), (43, 42), []), ((40, 60), (24, 24), []), (None, None, []),
    ((30, 130), (38, 38), []),
], ids=["all", "some", "a rule", "underlined", "a bar", "none", "low"])  # fmt: skip
def test_a_stroke_that_crosses_digits_is_no_rule_and_no_part_of_a_digit(ends, rows, found) -> None:
    ink = np.zeros((48, 160), np.uint8)
    for x, text in ((40, "8"), (70, "4"), (100, "0")):
        cv2.putText(ink, text, (x, 41), cv2.FONT_HERSHEY_SIMPLEX, 1.5, 1, 3)
    if ends:
        cv2.line(ink, (ends[0], rows[0]), (ends[1], rows[1]), 1, 3)
    if ends == (30, 130):  # what follows on one side is no rule
        ink = np.pad(ink, ((0, 0), (0, 240)))
        ink[rows[0] - 1 : rows[0] + 2, 160:] = 1
    got = np.array(struck(ink, 34, 24)).reshape(-1, 2)
    assert bool(len(got)) == bool(found)
    if found:
        assert np.abs([got.min() - found[0][0], got.max() - found[0][1]]).max() <= 12  # into what it touches
    cv2.rectangle(ink, (36, 14), (96, 34), 1, -1)  # a blot
    assert ends or struck(ink, 34, 24) == []
