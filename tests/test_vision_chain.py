"""The best chain of boxes, and how likely each is part of one, beside trying all of them."""

from itertools import combinations, pairwise

import numpy as np
import pytest

from neocog.vision.lines import best_chain, links, posterior


def every_chain(odds, link):
    """All chains of a line and what they weigh together."""
    numbers = range(len(odds))
    for size in range(len(odds) + 1):
        for chain in combinations(numbers, size):
            yield chain, sum(odds[k] for k in chain) + sum(link[a, b] for a, b in pairwise(chain))


@pytest.fixture(params=range(5))
def line(request):
    rng = np.random.default_rng(request.param)
    boxes = np.stack([np.sort(rng.uniform(0, 90, 7)), rng.uniform(0, 9, 7),
                      rng.uniform(8, 24, 7), rng.uniform(20, 40, 7)], axis=1)  # fmt: skip
    boxes = boxes[np.argsort(boxes[:, 0] + boxes[:, 2] / 2)].astype(np.float32)
    return rng.normal(0, 2, 7), links(boxes, (-2.0, -1.0))


def test_no_chain_is_worth_more(line):
    odds, link = line
    best = max(every_chain(odds, link), key=lambda one: one[1])[0]
    assert tuple(best_chain(odds, link)) == best
    of_three = [one for one in every_chain(odds, link) if len(one[0]) == 3]
    found = tuple(best_chain(odds, link, 3))
    worth, best = max((value, chain) for chain, value in of_three)
    assert found == (best if worth > -np.inf else ())


def test_probabilities_are_those_of_all_chains(line):
    odds, link = line
    chains = list(every_chain(odds, link))
    weight = np.exp([value for _, value in chains])
    wanted = [sum(w for w, (c, _) in zip(weight, chains, strict=True) if k in c) for k in range(7)]
    np.testing.assert_allclose(posterior(odds, link), wanted / weight.sum(), rtol=1e-9)


def test_nothing_is_a_chain_of_nothing():
    none = np.zeros(0)
    assert best_chain(none, np.zeros((0, 0))) == []
    assert posterior(none, np.zeros((0, 0))).shape == (0,)
    assert best_chain(np.array([-1.0]), np.full((1, 1), -np.inf)) == []
