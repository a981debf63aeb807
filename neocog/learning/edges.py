"""US1: sixteen edge detectors, each learned from one ideal straight edge (Fukushima 2003).

Check values with q = 100 (2003, learned kernels): b = 134.1 at 0 degrees, 112.6 at 22.5, 114.6
at 45, each within 1 %.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from neocog.network.fields import bell
from neocog.network.reference import contrast, windows
from neocog.network.spec import INPUT_SIZE, NetworkSpec

#: Sub-samples per pixel side when the edge is drawn.
_FINE = 32


def ideal_edge(angle: float, *, centre: float) -> NDArray[np.float64]:
    """Return a (65, 65) picture, 1 on one side of a straight edge, anti-aliased.

    The edge's normal stands at ``angle`` degrees from the column axis towards the row axis; row and
    column of a point that it runs through are ``centre``, in cells of U0.
    """
    fine = (np.arange(INPUT_SIZE * _FINE) + 0.5) / _FINE - 0.5 - centre
    direction = np.deg2rad(angle)
    across = np.cos(direction) * fine
    picture = np.empty((INPUT_SIZE, INPUT_SIZE))
    for row, along in enumerate((np.sin(direction) * fine).reshape(INPUT_SIZE, _FINE)):
        side = np.add.outer(along, across)
        twice = np.count_nonzero(side > -1e-9, axis=0) + np.count_nonzero(side >= 1e-9, axis=0)
        picture[row] = twice.reshape(INPUT_SIZE, _FINE).sum(axis=1) / (2 * _FINE**2)
    return picture


def edge_references(spec: NetworkSpec) -> NDArray[np.float32]:
    """Return the reference vectors of US1, shape (16, 2, 6, 6).

    For each orientation X is what the cell in the middle of US1 sees, through UG, of an ideal
    edge of height 1 through the centre of its receptive field.
    """
    return _references(spec).copy()


@cache
def _references(spec: NetworkSpec) -> NDArray[np.float32]:
    s = spec.s[0]
    cell = spec.size("US1") // 2
    # The window of that cell starts at row cell - padding of UG; UG's row r lies on U0's row
    # r + (kernel - 1) / 2 - padding.
    g = spec.contrast
    centre = cell - s.padding + (s.kernel - 1) / 2 + (g.kernel - 1) / 2 - g.padding
    references = []
    for k in range(spec.orientations):
        edge = ideal_edge(360 * k / spec.orientations, centre=centre)
        seen = windows(contrast(edge[None], g), s.kernel, s.padding)[0, :, cell, cell]
        references.append(seen * (bell(s.kernel, s.c) > 0))
    return np.stack(references).astype(np.float32)
