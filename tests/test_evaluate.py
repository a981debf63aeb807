"""The figures of an evaluation from answers that are known; risk and calibration; corrupted digits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neocog.errors import InputError, UsageError
from neocog.evaluation.confidence import BINS, Confidence, upper_limit
from neocog.evaluation.corruptions import CORRUPTIONS, STRENGTHS, corrupt
from neocog.evaluation.evaluate import NO_ANSWER, PictureScore, evaluate_digits, evaluate_pictures
from neocog.evaluation.timing import digit_boxes, made_page, made_strips, measure
from neocog.learning.datasets import Digits, LabelledPictures
from neocog.network.engine import Engine
from neocog.network.line_engine import LineEngine
from neocog.network.u0 import made_digits
from neocog.reading.records import LineReading, NumberReading
from neocog.reading.results import PageReading
from neocog.vision.crops import digit_of_box
from tests.support import digits_of, page_file, tiny_lines, tiny_model


def test_all_pages_of_a_picture_are_compared(tmp_path, reader):
    (file := tmp_path / "a.tif").write_bytes(page_file("12", "34", kind="TIFF"))
    one, other = reader.read_pages(file)
    (found,) = evaluate_pictures(reader, LabelledPictures((file,), ("1234",), "made")).readings
    assert (found.text, found.error) == (f"{one.text}\n{other.text}", None)
    assert len(found.digits) == len(one.digits) + len(other.digits) > 2


def test_confusion_and_accuracy_where_no_answer_is_never_right():
    images, told = np.concatenate([digits_of("124"), np.zeros((2, 28, 28), np.uint8)]), []
    digits = Digits(images, np.array([1, 3, 4, 3, 0]), "made")
    facts = evaluate_digits(Engine(tiny_model()), digits, progress=lambda *both: told.append(both))
    assert list(facts) == ["n", "accuracy", "seconds", "confusion"]
    assert (facts["n"], facts["accuracy"], told) == (5, 0.4, [(5, 5)])
    confusion = np.array(facts["confusion"])
    assert confusion[3, [2, NO_ANSWER]].tolist() == [1, 1]
    assert confusion[:, NO_ANSWER].tolist() == [1, 0, 0, 1, 0, 0, 0, 0, 0, 0]


def test_a_picture_that_was_not_read_is_a_mistake_and_a_line_end_none():
    readings = PageReading("a", text="12\n34"), PageReading("b", text="5?7"), PageReading("c", error="empty")
    score = PictureScore(readings, ("1234", "567", ""), 2.0)
    assert (score.distances, score.failures) == ((0, 1, 0), ["c: empty"])
    shares = {"cer": round(1 / 7, 6), "exact": round(1 / 3, 6)}
    assert score.to_dict() == {"n": 3, "n_digits": 7, **shares, "seconds": 2.0}
    assert [tuple(row.values()) for row in score.wrong] == [("b", "567", "5?7", None), ("c", "", "", "empty")]
    assert PictureScore(readings[:1], ("",), 1.0).to_dict()["cer"] is None


def test_risk_of_numbers_by_their_p():
    def read(*numbers):
        some = tuple(NumberReading(text, p, (0, 0, 1, 1), (), digits=(0, 0)) for text, p in numbers)
        text = " ".join(one.text for one in some)
        return PageReading("a", text=text, lines=(LineReading(text, (0, 0, 1, 1), some),))

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
    assert [stage["name"] for stage in digits["page"]] == ["decode", "find", "normalise"]
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
    digits = made_digits(12)
    np.testing.assert_array_equal(digits, made_digits(12))
    assert 0.05 < digits.mean() / 255 < 0.25  # MNIST's is 0.13
    page = made_page(digits)
    assert all(digit_of_box(page, box).max() == 255 for box in digit_boxes(12))
    assert not digit_of_box(page, digit_boxes(13)[-1]).any()


# --- risk, coverage, calibration ---


def made(p, right):
    return Confidence(np.array(p, dtype=np.float64), np.array(right, dtype=bool))


def test_four_answers():
    four = made([0.9, 0.8, 0.8, 0.6], [1, 1, 0, 1])
    assert [own.tolist() for own in four.curve()] == [[0.9, 0.8, 0.6], [1, 3, 4], [0, 1, 1]]
    # the two at 0.8 share their error: risks 0, 1/4, 1/3, 1/4
    assert four.aurc() == pytest.approx((0 + 0.25 + 1 / 3 + 0.25) / 4)
    assert [four.threshold_of_coverage(share) for share in (0.25, 0.5, 1.0)] == [0.9, 0.8, 0.6]
    assert [four.threshold_of_risk(risk) for risk in (0.26, 0.1)] == [0.6, 0.9]
    assert list(four.at(0.8).values()) == [0.8, 0.75, pytest.approx(1 / 3), 1]
    rows = four.reliability()
    assert [row["n"] for row in rows] == [1, 2, 1]
    assert rows[1]["accuracy"] == 0.5
    assert four.ece() == pytest.approx((0.4 + 2 * 0.3 + 0.1) / 4)


def test_no_answer_is_never_right_nor_sure():
    sure = Confidence.of(np.array([1, -1, 3]), np.array([0.9, 0.7, 0.6]), np.array([1, -1, 4]))
    assert (sure.p.tolist(), sure.right.tolist()) == ([0.9, 0, 0.6], [True, False, False])
    assert sure.at(0.0)["coverage"] == pytest.approx(2 / 3)
    assert made([0.9, 0.0], [1, 0]).aurc() == pytest.approx(0.25)
    assert made([], []).aurc() == 0
    assert made([0.5, 0.0], [1, 0]).threshold_of_coverage(1.0) is None
    assert made([0.5], [0]).threshold_of_risk(0.1) is None
    assert made([1.0], [1]).reliability()[0]["low"] == (BINS - 1) / BINS


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=1, max_size=60), st.floats(0.01, 0.99))
def test_thresholds_keep_what_they_promise(answers, share):
    sure = made([p / 20 for p, _ in answers], [right and p > 0 for p, right in answers])
    taken, low = sure.threshold_of_coverage(share), sure.threshold_of_risk(share)
    assert taken is None or sure.at(taken)["coverage"] >= share - 1e-9
    assert low is None or sure.at(low)["risk"] <= share + 1e-9
    assert 0 <= sure.aurc() <= 1
    assert 0 <= sure.ece() <= 1


def test_a_long_curve_is_thinned_and_keeps_its_ends():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.1, 1, 5000)
    points = Confidence(p, rng.random(5000) < p).points()
    assert len(points) <= 201
    assert (points[0]["threshold"], points[-1]["coverage"]) == (p.max(), 1)
    coverages = [point["coverage"] for point in points]
    assert coverages == sorted(coverages)


def test_upper_limits_are_those_of_tables():
    for seen, limit in (((0, 300), 1 - 0.05 ** (1 / 300)), ((1, 20), 0.21611), ((5, 100), 0.10225),
                        ((10, 10), 1)):  # fmt: skip
        assert upper_limit(*seen) == pytest.approx(limit, abs=1e-5)
    limits = [upper_limit(wrong / 4, 200) for wrong in range(40)]
    assert limits == sorted(limits)
    assert upper_limit(3, 200, sure=0.5) < upper_limit(3, 200) < upper_limit(3, 200, sure=0.99)


# --- corruptions ---

DIGITS = digits_of("0123456789")


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_same_each_time_and_stronger_by_strength(name):
    before, levels = DIGITS.copy(), [corrupt(DIGITS, name, strength) for strength in STRENGTHS]
    np.testing.assert_array_equal(levels, [corrupt(DIGITS, name, strength) for strength in STRENGTHS])
    np.testing.assert_array_equal(DIGITS, before)
    assert {(out.shape, out.dtype) for out in levels} == {(DIGITS.shape, np.dtype(np.uint8))}
    changed = [np.abs(out.astype(int) - DIGITS).mean() for out in levels]
    assert 0 < changed[0] < changed[4]
    drawn = name not in ("blur", "contrast")
    assert np.array_equal(corrupt(DIGITS, name, 3, seed=1), corrupt(DIGITS, name, 3, seed=2)) is not drawn
    assert corrupt(DIGITS[:0], name, 5).shape == (0, 28, 28)
    corrupt(np.zeros((1, 28, 28), np.uint8), name, 5)  # empty digits are no trouble


def test_what_moves_ink_moves_it_by_its_amount():
    def middles(images):
        weights, at = images / images.sum((1, 2), keepdims=True), np.arange(28)
        return weights.sum(2) @ at, weights.sum(1) @ at

    for strength in (1, 2, 3):
        moved = np.subtract(middles(corrupt(DIGITS, "shift", strength)), middles(DIGITS))
        np.testing.assert_allclose(np.hypot(*moved), strength, atol=0.1)
    ink = DIGITS.astype(np.float32)
    turned = CORRUPTIONS["rotation"][1](ink, 90.0, np.random.default_rng(0))
    both = np.stack([np.rot90(ink, 1, (1, 2)), np.rot90(ink, -1, (1, 2))])
    assert (np.abs(turned - both).max(axis=(2, 3)).min(axis=0) < 0.01).all()
    factor = CORRUPTIONS["scale"][0][1]
    share = corrupt(DIGITS, "scale", 2).sum((1, 2)) / DIGITS.sum((1, 2))
    assert np.minimum(abs(share - factor**2), abs(share - factor**-2)).max() < 0.1


def test_what_hides_ink_and_paper():
    for strength, side in enumerate(CORRUPTIONS["occlusion"][0], 1):
        paper = corrupt(np.full((30, 28, 28), 255, np.uint8), "occlusion", strength) == 0
        assert paper.sum((1, 2)).max() == side**2
    assert corrupt(DIGITS, "contrast", 5).max() == round(255 * 0.15)
    paper = corrupt(np.zeros((3, 28, 28), np.uint8), "background", 5)
    assert 0 < paper.max() <= 128
    assert (paper.std(axis=(1, 2)) > 5).all()


def test_what_is_wrong_is_told():
    for digits, name, strength, message in (
        (DIGITS, "rain", 1, "unknown: choose noise, blur"), (DIGITS[:, :20], "blur", 1, "expected uint8"),
        (DIGITS, "blur", 6, "got strength 6, expected 1 to 5"),
    ):  # fmt: skip
        with pytest.raises((InputError, UsageError), match=message):
            corrupt(digits, name, strength)
