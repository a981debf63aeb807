"""The cheapest alignment of two sequences: which of the one stands for which of the other."""

import numpy as np
from numpy.typing import ArrayLike


def aligned(
    pair: np.ndarray, skip_row: ArrayLike = 1, skip_column: ArrayLike = 1
) -> tuple[float, list[tuple[int, int]]]:
    """Return the least cost, and the pairs (row, column) in order.

    ``pair`` (N, M): what a row costs as a column; ``skip_row``, ``skip_column``: what each costs alone.
    """
    n, m = pair.shape
    rows, columns = np.broadcast_to(skip_row, n), np.broadcast_to(skip_column, m)
    cost = np.zeros((n + 1, m + 1))
    cost[1:, 0], cost[0, 1:] = np.cumsum(rows), np.cumsum(columns)
    for i in range(n):
        for j in range(m):
            alone = min(cost[i, j + 1] + rows[i], cost[i + 1, j] + columns[j])
            cost[i + 1, j + 1] = min(alone, cost[i, j] + pair[i, j])
    pairs, i, j = [], n, m
    while i and j:
        if cost[i, j] == cost[i - 1, j - 1] + pair[i - 1, j - 1]:
            i, j = i - 1, j - 1
            pairs.append((i, j))
        elif cost[i, j] == cost[i - 1, j] + rows[i - 1]:
            i -= 1
        else:
            j -= 1
    return float(cost[-1, -1]), pairs[::-1]
