"""Fields cut out of forms: low pictures with one line, a few pixels a stroke."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from support import glyph, page, tiny_model

from neocog.batch.policy import Policy
from neocog.batch.reader import Reader
from neocog.vision.find import Settings, find_digits, search
from neocog.vision.strip import HEIGHT, enlarge, is_line, is_low, strip_marks


def strip(text: str, *, high: int = 44) -> NDArray[np.uint8]:
    """A line of digits, cut out and reduced."""
    whole = page(text)
    rows = np.flatnonzero((whole < 128).any(axis=1))
    cut = whole[max(0, rows[0] - 14) : rows[-1] + 15]
    size = (round(cut.shape[1] * high / len(cut)), high)
    small = cv2.resize(cut, size, interpolation=cv2.INTER_AREA)
    return (120 + 0.4 * small).astype(np.uint8)


def test_what_is_a_low_strip() -> None:
    assert is_low((44, 180))
    assert is_low((46, 75))
    assert not is_low((300, 900))
    assert is_line((300, 900))
    assert not is_line((28, 28))
    assert not is_line((480, 640))


def test_a_strip_is_read() -> None:
    assert Reader(tiny_model()).read(strip("3052")).text == "3052"


@pytest.mark.parametrize("row", [1, 41])
def test_a_rule_along_the_border_is_no_mark(row: int) -> None:
    ruled = strip("3052")
    ruled[row : row + 2] = 95
    assert len(find_digits(ruled)[0].digits) == 4


def test_bright_ink_is_told_and_may_be_asked_for() -> None:
    dark, bright = strip("3052"), 255 - strip("3052")
    for page_, is_dark in ((dark, True), (bright, False)):
        found = search(page_)
        assert found.dark is is_dark
        assert [len(line) for line in found.lines] == [4]
        asked = search(page_, settings=Settings(ink="dark" if is_dark else "bright"))
        assert [len(line) for line in asked.lines] == [4]
        other = search(page_, settings=Settings(ink="bright" if is_dark else "dark"))
        assert other.dark is not is_dark
        assert [len(line) for line in other.lines] != [4]


def two_lines() -> NDArray[np.uint8]:
    """A low picture that is no strip: one line above the other."""
    lines = [strip("2735", high=60), strip("8264", high=60)]
    wide = 4 * 60 + max(line.shape[1] for line in lines)
    out = np.full((120, wide), 222, np.uint8)
    for number, line in enumerate(lines):
        out[60 * number :][:60, 40 + 60 * number :][:, : line.shape[1]] = line
    return out


def test_two_lines_are_not_read_as_one() -> None:
    assert is_low(two_lines().shape)
    assert [len(line.digits) for line in find_digits(two_lines())] == [4, 4]
    assert not search(two_lines()).line


def test_a_small_picture_of_three_lines_is_a_page() -> None:
    with Image.open(Path(__file__).parents[1] / "data/samples/note.jpg") as note:
        small = np.asarray(note.convert("L").resize((160, 120)))
    assert is_low(small.shape)
    assert [len(line.digits) for line in find_digits(small)] == [4, 5, 4]


def scattered(seed: int, *, high: int = 100, tall: int = 40) -> NDArray[np.uint8]:
    """One line of six digits that jump up and down."""
    rng = np.random.default_rng(seed)
    ink = np.zeros((high, 300), np.float32)
    for column, digit in enumerate(rng.integers(0, 10, 6)):
        mark = glyph(int(digit), tall, 4.0)
        top = (high - tall) // 2 + int(rng.integers(-18, 19))
        ink[top:, 30 + 40 * column :][:tall, : mark.shape[1]] = mark
    return (225 - 180 * ink).astype(np.uint8)


@pytest.mark.parametrize("high", [90, 110])
@pytest.mark.parametrize("seed", range(6))
def test_digits_that_jump_up_and_down_are_one_line(seed: int, high: int) -> None:
    jumping = scattered(seed, high=high)
    assert search(jumping).line
    assert [len(line.digits) for line in find_digits(jumping)] == [6]


def test_a_part_of_a_picture_is_no_strip() -> None:
    found = search(strip("3052"), settings=Settings(strips=False))
    assert not found.line
    assert [len(line) for line in found.lines] == [4]
    assert search(strip("3052")).line


def test_the_policy_goes_by_what_the_search_took_a_picture_for() -> None:
    asked = []

    class Asked(Policy):
        def unwritten(self, p: NDArray[np.floating], *, strip: bool) -> bool:
            asked.append(strip)
            return super().unwritten(p, strip=strip)

    reader = Reader(tiny_model())
    reader.policy = Asked()
    reader.read(strip("3052"))
    reader.read(two_lines())
    reader.recognise(reader.find(strip("3052"), settings=Settings(strips=False)))
    assert asked == [True, False, False]


def test_a_printed_pattern_stays_paper() -> None:
    printed = strip("3052").astype(int)
    printed[:, ::7] -= 25
    printed[::9] -= 20
    found = find_digits(printed.clip(0, 255).astype(np.uint8))
    assert [len(line.digits) for line in found] == [4]


def test_dots_and_dashes_are_left_out() -> None:
    marked = strip("35")
    middle = marked.shape[1] // 2
    cv2.circle(marked, (middle, 36), 1, 120, -1)
    cv2.line(marked, (marked.shape[1] - 14, 22), (marked.shape[1] - 4, 22), 120, 2)
    assert len(find_digits(marked)[0].digits) == 2


def test_an_empty_strip_has_no_digits() -> None:
    rng = np.random.default_rng(0)
    assert find_digits(rng.integers(180, 200, (40, 160)).astype(np.uint8)) == []
    assert find_digits(np.full((40, 160), 200, np.uint8)) == []


def test_a_strip_is_brought_to_one_height() -> None:
    page_, scale = enlarge(strip("35", high=50))
    assert page_.shape[0] == HEIGHT
    assert scale == pytest.approx(HEIGHT / 50)
    assert strip_marks(page_) is not None
