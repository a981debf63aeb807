"""Digits are found on made pages, in reading order; what is no digit stays out."""

import cv2
import numpy as np
import pytest

from neocog.vision.find import Settings, find_digits

INK, PAPER = 40, 225


def page(height=480, width=640, paper=PAPER):
    return np.full((height, width), paper, np.uint8)


def zero(canvas, x, y, *, tall=60, pen=6, ink=INK):
    cv2.ellipse(canvas, (x, y), (tall // 3, tall // 2), 0, 0, 360, ink, pen, cv2.LINE_AA)


def one(canvas, x, y, *, tall=60, pen=6, ink=INK):
    cv2.line(canvas, (x, y - tall // 2), (x, y + tall // 2), ink, pen, cv2.LINE_AA)


def seven(canvas, x, y, *, tall=60, pen=6, ink=INK):
    half = tall // 2
    corner = (x + half // 2, y - half)
    cv2.line(canvas, (x - half // 2, y - half), corner, ink, pen, cv2.LINE_AA)
    cv2.line(canvas, corner, (x - half // 4, y + half), ink, pen, cv2.LINE_AA)


def centres(lines):
    return [[(d.box[0] + d.box[2] / 2, d.box[1] + d.box[3] / 2) for d in x.digits] for x in lines]


def counts(grey, **options):
    return [len(line.digits) for line in find_digits(grey, **options)]


def three_lines(paper=PAPER, ink=INK):
    canvas = page(paper=paper)
    for row, marks in enumerate(["07", "1", "770"]):
        for column, mark in enumerate(marks):
            draw = {"0": zero, "1": one, "7": seven}[mark]
            draw(canvas, 100 + 90 * column, 90 + 130 * row, ink=ink)
    return canvas


@pytest.mark.parametrize(("paper", "ink"), [(225, 40), (30, 220), (120, 80), (255, 0)])
def test_lines_in_reading_order(paper, ink):
    lines = centres(find_digits(three_lines(paper, ink)))
    assert [len(line) for line in lines] == [2, 1, 3]
    for row, line in enumerate(lines):
        for column, (x, y) in enumerate(line):
            assert (x, y) == pytest.approx((100 + 90 * column, 90 + 130 * row), abs=16)


def test_digit_is_in_the_form_of_mnist():
    digit = find_digits(three_lines())[0].digits[0].digit
    assert digit.shape == (28, 28)
    assert digit.dtype == np.uint8
    assert digit[14, 14] < 60  # the hole of the zero
    assert digit.max() > 240


def test_boxes_count_in_pixels_of_the_given_page():
    large = cv2.resize(three_lines(), None, fx=5, fy=5, interpolation=cv2.INTER_CUBIC)
    (x, y), *_ = centres(find_digits(large))[0]
    assert (x, y) == pytest.approx((500, 450), abs=60)


@pytest.mark.parametrize("degrees", [-20, -6, 6, 20, 35])
def test_slanting_lines(degrees):
    canvas = page(900, 900)
    slope = np.tan(np.radians(degrees))
    for row in range(2):
        for column in range(5):
            x = 150 + 140 * column
            zero(canvas, x, int(330 + 230 * row + slope * (x - 430)))
    assert counts(canvas) == [5, 5]


@pytest.mark.parametrize("blank", [0, 255, 128])
def test_nothing_on_empty_paper(blank):
    assert find_digits(page(paper=blank)) == []


def test_nothing_in_noise_and_in_the_smallest_pictures():
    rng = np.random.default_rng(3)
    assert find_digits(rng.integers(0, 256, (400, 500)).astype(np.uint8)) == []
    for shape in [(1, 1), (1, 300), (8, 8), (300, 3)]:
        assert find_digits(np.zeros(shape, np.uint8)) == []


def test_drawn_box_is_left_out():
    canvas = three_lines()
    cv2.rectangle(canvas, (40, 30), (420, 420), INK, 5)
    assert counts(canvas) == [2, 1, 3]


@pytest.mark.parametrize("squared", [False, True])
def test_rules_are_left_out(squared):
    canvas = page()
    for at in range(20, 480, 40):
        cv2.line(canvas, (0, at), (640, at + 2), 150, 2)
    if squared:
        for at in range(20, 640, 40):
            cv2.line(canvas, (at, 0), (at, 480), 150, 2)
    for x in (100, 200, 300):
        seven(canvas, x, 210)
    assert counts(canvas) == [3]


def test_soft_shadow_across_the_writing():
    canvas = three_lines().astype(np.float32)
    shade = np.zeros(canvas.shape, np.float32)
    cv2.line(shade, (60, 480), (330, 0), 1.0, 90)
    canvas *= 1 - 0.4 * cv2.GaussianBlur(shade, (0, 0), 9)
    assert counts(canvas.astype(np.uint8)) == [2, 1, 3]


@pytest.mark.parametrize("broad", [84, 130])
@pytest.mark.parametrize("angle", [0.2, 0.8, 2.4])
def test_stripes_of_shade_across_the_writing(broad, angle):
    rows, columns = np.mgrid[:768, :1024]
    along = columns * np.sin(angle) - rows * np.cos(angle)
    shade = 1 - 0.3 / (1 + np.exp(-9 * np.sin(2 * np.pi * along / broad)))
    canvas = page(768, 1024)
    for column, draw in enumerate((zero, seven, one, zero)):
        draw(canvas, 300 + 80 * column, 400)
    assert counts((canvas * shade).astype(np.uint8)) == [4]


def test_rule_along_a_strip_that_digits_touch():
    strip = page(60, 180)
    for column, draw in enumerate((zero, seven, one, zero)):
        draw(strip, 25 + 42 * column, 31, tall=46, pen=4)
    strip[53:56, 4:176] = INK + 40
    assert counts(strip) == [4]


def test_light_that_falls_off():
    light = np.linspace(0.25, 1, 640)[None, :]
    assert counts((three_lines() * light).astype(np.uint8)) == [2, 1, 3]


def test_print_that_shows_through():
    canvas = page()
    for row in range(30, 470, 24):
        cv2.putText(canvas, "printed on the back of the page", (20, row), 0, 0.6, 200, 1)
    for x in (100, 200, 300):
        zero(canvas, x, 220)
    assert counts(canvas) == [3]


def test_small_signs_are_left_out():
    canvas = page()
    for x in (100, 200, 300):
        zero(canvas, x, 220)
    cv2.circle(canvas, (150, 250), 5, INK, -1, cv2.LINE_AA)  # a full stop
    cv2.line(canvas, (235, 220), (262, 220), INK, 6)  # a dash
    cv2.line(canvas, (370, 220), (410, 220), INK, 6)  # a plus
    cv2.line(canvas, (390, 200), (390, 240), INK, 6)
    assert counts(canvas) == [3]


def test_parts_of_one_digit_are_joined():
    canvas = page()
    zero(canvas, 100, 220)
    zero(canvas, 400, 220)
    canvas[180:188, 235:275] = INK  # the bar of a five, apart from its body
    cv2.ellipse(canvas, (250, 228), (22, 26), 0, -120, 120, INK, 6, cv2.LINE_AA)
    assert counts(canvas) == [3]


def touching():
    canvas = page(200, 400)
    for x in (60, 135):
        zero(canvas, x, 100)
    for x in (240, 282):  # these two touch
        zero(canvas, x, 100)
    return canvas


def test_touching_digits_are_cut_where_the_network_knows_the_parts():
    def knows_zeros(digits):
        width = (digits.max(axis=1) > 60).sum(axis=1)
        return np.where((width > 9) & (width < 18), 0.95, 0.05)

    assert counts(touching()) == [3]
    assert counts(touching(), score=knows_zeros) == [4]


def test_known_digits_are_not_cut():
    def always(digits):
        return np.full(len(digits), 0.99)

    assert counts(three_lines(), score=always) == [2, 1, 3]


def test_ink_may_be_prescribed():
    assert counts(three_lines(), settings=Settings(ink="dark")) == [2, 1, 3]
    assert counts(three_lines(30, 220), settings=Settings(ink="bright")) == [2, 1, 3]


def test_trace_shows_each_step():
    seen = {}
    find_digits(three_lines(), trace=lambda name, picture: seen.setdefault(name, picture))
    assert {"page", "contrast", "marks", "kept"} <= set(seen)
    assert all(picture.shape == (480, 640) for picture in seen.values())
    assert all(picture.dtype == np.uint8 for picture in seen.values())
