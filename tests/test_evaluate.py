"""The figures of an evaluation, from answers that are known."""

from typing import Any

import numpy as np
import pytest

from neocog.evaluation.evaluate import NO_ANSWER, PictureScore, evaluate_digits, evaluate_pictures
from neocog.evaluation.timing import digit_boxes, made_page, made_strips, measure, page_times
from neocog.learning.datasets import Digits, LabelledPictures
from neocog.network.decision import answers
from neocog.network.engine import Engine
from neocog.network.line_engine import LineEngine
from neocog.network.u0 import made_digits
from neocog.reading.reader import Reader
from neocog.reading.records import LineReading, NumberReading
from neocog.reading.results import PageReading
from neocog.vision.crops import digit_of_box
from tests.support import digits_of, page_file, tiny_model
from tests.test_line_engine import tiny_lines


class Parrot:
    """An engine whose answer is the first pixel, -1 for 255."""

    model = property(lambda self: tiny_model())

    def recognise(self, digits, *, batch=None):
        label = digits[:, 0, 0].astype(np.int64)
        score = np.eye(11, 10, dtype=np.float32)[np.minimum(label, 10)]
        return answers(score, temperature=0.1)


def test_all_pages_of_a_picture_are_compared(tmp_path):
    (tmp_path / "a.tif").write_bytes(page_file("12", "34", kind="TIFF"))
    reader = Reader(tiny_model(), device="cpu")
    pages = list(reader.read_pages(tmp_path / "a.tif"))
    score = evaluate_pictures(reader, LabelledPictures((tmp_path / "a.tif",), ("1234",), "made"))
    (found,) = score.readings
    assert len(pages) == 2
    assert (found.text, found.error) == ("\n".join(page.text for page in pages), None)
    assert len(found.digits) == sum(len(page.digits) for page in pages) > 2


def test_confusion_and_accuracy_where_no_answer_is_never_right():
    images = np.zeros((4, 28, 28), np.uint8)
    images[:, 0, 0] = [1, 2, 255, 4]
    told: list[tuple[int, int]] = []
    parrot: Any = Parrot()
    digits = Digits(images, np.array([1, 3, 3, 4]), "made")
    score = evaluate_digits(parrot, digits, progress=lambda *both: told.append(both))
    assert (score.n, score.accuracy, told) == (4, 0.5, [(4, 4)])
    assert score.confusion[3, [2, NO_ANSWER]].tolist() == [1, 1]
    assert list(score.to_dict()) == ["n", "accuracy", "seconds", "confusion"]
    images = np.concatenate([np.zeros((2, 28, 28), np.uint8), digits_of("07")])
    score = evaluate_digits(Engine(tiny_model()), Digits(images, np.array([0, 9, 0, 7]), "two of them empty"))
    assert score.confusion[:, NO_ANSWER].tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    assert score.accuracy == 0.5


def test_picture_score():
    readings = (PageReading("a", text="12\n34"), PageReading("b", text="5?7"),
                PageReading("c", error="empty"), PageReading("d", error="empty"))  # fmt: skip
    score = PictureScore(readings, ("1234", "567", "89", ""), 2.0)
    assert score.distances == (0, 1, 2, 0)
    assert score.failures == ["c: empty", "d: empty"]
    facts = score.to_dict()
    assert facts == {"n": 4, "n_digits": 9, "cer": round(3 / 9, 6), "exact": 0.25, "seconds": 2.0}
    assert score.wrong == [
        {"file": "b", "written": "567", "read": "5?7", "error": None},
        {"file": "c", "written": "89", "read": "", "error": "empty"},
        {"file": "d", "written": "", "read": "", "error": "empty"},
    ]
    blank = PictureScore((PageReading("a", text="7"), PageReading("b", text="")), ("", ""), 1.0).to_dict()
    assert (blank["n_digits"], blank["cer"], blank["exact"]) == (0, None, 0.5)


def test_risk_of_numbers_by_their_p():
    def read(*numbers):
        some = tuple(NumberReading(text, p, (0, 0, 1, 1), ()) for text, p in numbers)
        text = " ".join(one.text for one in some)
        return PageReading("a", text=text, lines=(LineReading(text, (0, 0, 1, 1), (), some),))

    readings = read(("7", 0.99)), read(("7-", 0.97), ("34", 0.6)), read(("?", 0.99)), read()
    score = PictureScore(readings, ("7", "735", "1", "2"), 1.0)
    assert list(score.numbers.right) == [True, True, False, False, False]
    assert [(row["p"], row["n"], row["coverage"], row["wrong"]) for row in score.risk[:2]] == [
        (0.5, 3, 0.6, 1), (0.8, 2, 0.4, 0)]  # fmt: skip
    assert score.risk[0]["limit"] == pytest.approx(0.8647, abs=1e-4)
    signs = PictureScore(readings, ("7.-", "7 34", "", ""), 1.0, signs=True)
    assert list(signs.numbers.right) == [True, False, True, False]  # the third reads ? where nothing is


def test_timing_is_per_batch_and_per_digit_or_strip():
    digits = measure(Engine(tiny_model()), batch=2, seconds=0)
    strips = measure(LineEngine(tiny_lines()), batch=2, seconds=0)
    assert [stage["name"] for stage in digits["stages"]][:2] == ["U0", "UG"]
    assert [stage["name"] for stage in strips["stages"]][-2:] == ["head", "host"]
    for facts, name in ((digits, "ms_per_digit"), (strips, "ms_per_strip")):
        assert sum(stage["ms"] for stage in facts["stages"]) == pytest.approx(2 * facts[name], rel=0.03)
        assert facts[name] <= facts[f"{name}_p95"] <= facts[f"{name}_p99"]
        assert (facts["passes"], facts["batch"]) == (5, 2)
    assert strips["ms_per_strip"] == pytest.approx(5 * strips["ms_per_digit"], rel=1e-3)
    made = made_strips(3)
    assert (made.shape, made.min(), made.max()) == ((3, 48, 190), 0, 1)
    assert made[:, :3].max() < 1


def test_digits_are_made_alike_each_time_and_the_made_page_holds_them():
    digits = made_digits(50)
    np.testing.assert_array_equal(digits, made_digits(50))
    assert 0.05 < digits.mean() / 255 < 0.25  # MNIST's is 0.13
    assert (digits.max(axis=(1, 2)) == 255).all()
    page = made_page(digits[:12])
    assert all(digit_of_box(page, box).max() == 255 for box in digit_boxes(12))
    assert not digit_of_box(page, digit_boxes(13)[-1]).any()
    names = [stage["name"] for stage in page_times(Engine(tiny_model()), 3, repeats=1)]
    assert names == ["decode", "find", "normalise"]
