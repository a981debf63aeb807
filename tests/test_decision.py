"""UC4 and the answers that follow from it."""

from dataclasses import replace

import numpy as np

from neocog.network.decision import Answers, Decision, answers
from tests.support import tiny_model


def test_strongest_plane_of_each_label_anywhere() -> None:
    model = replace(tiny_model(), labels=np.array([0, 0, 1, 1, 1, 5, 5, 5, 5, 9]))
    us4 = np.zeros((1, 5, 5, 10), dtype=np.float32)
    us4[0, 4, 0, 1], us4[0, 0, 4, 3], us4[0, 2, 2, 4] = 0.7, 0.2, 0.3
    score = Decision(model).scores(us4)[0]
    np.testing.assert_allclose(score, [0.7, 0.3, 0, 0, 0, 0, 0, 0, 0, 0])


def test_answers_from_scores() -> None:
    score = np.array([[0.2, 0.5, 0.5] + [0] * 7, [0] * 10, [0.9] + [0] * 9], dtype=np.float32)
    found = answers(score, temperature=0.1)
    assert found.label.tolist() == [1, -1, 0]  # a tie goes to the lower label
    np.testing.assert_allclose(found.margin, [0, 0, 0.9])
    assert found.p[0] < 0.5
    assert found.p[1] == 0
    assert found.p[2] > 0.99


def test_joined_answers_keep_their_order() -> None:
    one = answers(np.eye(10, dtype=np.float32)[:3], temperature=0.1)
    both = Answers.join([one, Answers.none(), one])
    assert both.label.tolist() == [0, 1, 2, 0, 1, 2]
