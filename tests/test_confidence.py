"""Risk, coverage and calibration, from answers that are known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neocog.evaluation.confidence import BINS, Confidence, upper_limit


def made(p, right):
    return Confidence(np.array(p, dtype=np.float64), np.array(right, dtype=bool))


def test_four_answers():
    four = made([0.9, 0.8, 0.8, 0.6], [True, True, False, True])
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
    assert made([0.9, 0.0], [True, False]).aurc() == pytest.approx(0.25)
    assert made([], []).aurc() == 0
    assert made([0.5, 0.0], [True, False]).threshold_of_coverage(1.0) is None
    assert made([0.5], [False]).threshold_of_risk(0.1) is None
    assert made([1.0], [True]).reliability()[0]["low"] == (BINS - 1) / BINS


ANSWERS = st.lists(
    st.tuples(st.integers(0, 20).map(lambda n: n / 20), st.booleans()), min_size=1, max_size=60
)


@given(ANSWERS, st.floats(0.01, 0.99))
def test_thresholds_keep_what_they_promise(answers, share):
    sure = made([p for p, _ in answers], [right and p > 0 for p, right in answers])
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


def test_upper_limits():
    # of tables; those for none wrong are 1 - 0.05^(1/n)
    rows = ((0, 10, 0.25887), (0, 300, 0.00994), (1, 20, 0.21611), (5, 100, 0.10225), (10, 10, 1))
    for wrong, n, limit in rows:
        assert upper_limit(wrong, n) == pytest.approx(limit, abs=1e-5)
    limits = [upper_limit(wrong / 4, 200) for wrong in range(40)]
    assert limits == sorted(limits)
    assert upper_limit(3, 200, sure=0.5) < upper_limit(3, 200) < upper_limit(3, 200, sure=0.99)
