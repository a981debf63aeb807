"""US1: learned from ideal edges, it has the published strengths."""

import numpy as np
import pytest

from neocog.learning.selforganise import edge_references, ideal_edge
from neocog.network.fields import bell
from neocog.network.reference import excitatory_weights, inhibitory_weights
from neocog.network.spec import preset


@pytest.fixture(scope="module")
def edges() -> np.ndarray:
    return edge_references(preset("fukushima2003")).astype(np.float64)


def test_published_values_of_b(edges: np.ndarray) -> None:
    s = preset("fukushima2003").s[0]
    b = inhibitory_weights(edges, bell(s.kernel, s.c), s.q)
    assert b[:3] == pytest.approx([134.1, 112.6, 114.6], rel=0.01)


def test_b_is_the_length_of_a(edges: np.ndarray) -> None:
    """b = sqrt(sum a^2 / c) always holds."""
    s = preset("fukushima2003").s[0]
    c = bell(s.kernel, s.c)
    a = excitatory_weights(edges, c, s.q)
    inside = c > 0
    length = np.sqrt((a[:, :, inside] ** 2 / c[inside]).sum(axis=(1, 2)))
    np.testing.assert_allclose(inhibitory_weights(edges, c, s.q), length, rtol=1e-12)


def test_a_quarter_turn_turns_the_weights(edges: np.ndarray) -> None:
    np.testing.assert_allclose(edges[4], np.rot90(edges[0], k=-1, axes=(1, 2)), atol=1e-6)
    np.testing.assert_allclose(edges[8], edges[0][:, ::-1, ::-1], atol=1e-6)


def test_the_edge_is_straight_and_anti_aliased() -> None:
    edge = ideal_edge(0, centre=32.5)
    assert (edge[:, :33] == 0).all()
    assert (edge[:, 33:] == 1).all()
    half = ideal_edge(90, centre=32)
    assert half[32] == pytest.approx(0.5)
