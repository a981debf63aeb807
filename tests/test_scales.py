"""Pages searched at every scale, and turned: small digits on large pages, thin strips, silent paper."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from neocog.errors import UsageError
from neocog.reading.reader import Reader
from neocog.vision.finder import FinderSettings
from neocog.vision.scales import search

SAMPLES = Path(__file__).parents[1] / "data/samples"


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(device="cpu")


@pytest.fixture(scope="module")
def line() -> np.ndarray:
    """A line of five digits, some 26 pixels high, on paper of 200."""
    grey = np.asarray(cv2.imread(str(SAMPLES / "postcode.png"), cv2.IMREAD_GRAYSCALE), np.uint8)
    rows, columns = np.nonzero(grey < np.median(grey) - 60)
    cut = grey[rows.min() - 6 : rows.max() + 7, columns.min() - 6 : columns.max() + 7]
    return np.asarray(cv2.resize(cut, None, fx=26 / len(cut), fy=26 / len(cut), interpolation=cv2.INTER_AREA))


def page(line: np.ndarray, shape: tuple[int, int], *at: tuple[int, int]) -> np.ndarray:
    grey = np.full(shape, int(np.median(line[:2])), np.uint8)
    for y, x in at:
        grey[y : y + line.shape[0], x : x + line.shape[1]] = line
    return grey


def test_small_digits_are_read_wherever_they_stand(reader: Reader, line: np.ndarray) -> None:
    wanted = reader.read(page(line, (120, 300), (40, 60))).text
    assert len(wanted) == 5
    for shape, at in (((3508, 2480), (1700, 900)), ((260, 6000), (100, 4000)), ((5000, 300), (3111, 70))):
        read = reader.read(page(line, shape, at))
        assert read.text == wanted
        assert read.scale == 1.0
        assert read.warnings == ()
        assert abs(read.lines[0].box[1] - at[0]) < 12
    found = reader.look(page(line, (3508, 2480), (1700, 900)))  # each digit once
    assert ((found.kinds < 10) & (found.scores >= FinderSettings().score)).sum() == 5


def test_a_page_that_is_reduced_too_far_says_so(line: np.ndarray) -> None:
    grey = page(line, (3508, 2480), (1700, 900), (300, 900), (2300, 300))
    read = Reader(device="cpu", long_side=1400).read(grey)
    assert read.warnings == ("small-digits-likely",)
    assert read.scale == pytest.approx(1400 / 3508, abs=1e-3)
    assert Reader(device="cpu", long_side="full").read(grey).text.count("\n") == 2
    with pytest.raises(UsageError, match="64 pixels or more, or full"):
        Reader(device="cpu", long_side=10)


def test_silent_paper_large_digits_and_print_are_searched_once(reader: Reader, line: np.ndarray) -> None:
    large = np.asarray(cv2.resize(line, None, fx=12, fy=12, interpolation=cv2.INTER_CUBIC))
    silent, text = np.full((3508, 2480), 220, np.uint8), np.full((3508, 2480), 220, np.uint8)
    for y in range(300, 3300, 70):
        cv2.putText(text, "the quick brown fox is here " * 3, (200, y), cv2.FONT_HERSHEY_SIMPLEX, 1.2, 0, 4)
    for grey, most in ((silent, 0.4), (page(large, silent.shape, (1700, 300)), 0.8), (text, 4.5)):
        asked: list[int] = []

        def network(x: np.ndarray, asked: list[int] = asked) -> np.ndarray:
            asked.append(x.size)
            return np.asarray(reader.finder(x))

        search(grey, network)
        assert sum(asked) < most * 1024 * 736


@pytest.mark.parametrize("turn", [0, 90, 180, 270])
def test_a_line_of_five_digits_is_turned_upright(reader: Reader, line: np.ndarray, turn: int) -> None:
    upright = page(line, (400, 700), (200, 300))
    read = reader.read(np.ascontiguousarray(np.rot90(upright, turn // 90)))
    assert (read.turn, read.plain) == (turn, reader.read(upright).plain)


def test_a_mirrored_page(reader: Reader, line: np.ndarray) -> None:
    upright = page(line, (400, 700), (200, 100))
    plain, mirrored = reader.read(upright), reader.changed(mirror=True).read(upright[:, ::-1].copy())
    assert (mirrored.mirror, mirrored.text) == (True, plain.text)
    assert mirrored.to_dict()["mirror"]
    x, y, wide, high = plain.digits[0].box
    assert mirrored.digits[0].box == pytest.approx((700 - x - wide, y, wide, high), abs=2)


@pytest.mark.parametrize("shape", [(1, 50), (50, 1), (2, 1024), (8, 3000), (20, 8192)])
def test_thin_pictures_are_read(reader: Reader, shape: tuple[int, int]) -> None:
    assert reader.read(np.full(shape, 200, np.uint8)).digits == ()


def test_a_page_with_more_small_ink_than_is_searched_says_so(
    reader: Reader, line: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    grey = page(line, (3508, 2480), (1700, 900), (300, 900), (2300, 300))
    assert reader.read(grey).warnings == ()
    monkeypatch.setattr("neocog.vision.scales._WORK", 1000)
    assert reader.read(grey).warnings == ("small-digits-likely",)
