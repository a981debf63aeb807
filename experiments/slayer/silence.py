"""How much of the S-layers' input is silent: cell by cell (the GPU paper's Table 8), by blocks."""

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from experiments.slayer.inputs import STAGES, Fed
from neocog.network.model import Model

#: A product of the tensor cores takes 16 cells by 16 inputs.
_CELLS, _INPUTS = 16, 16
_AT_ONCE = 8  # digits


def silence(model: Model, digits: NDArray[np.uint8]) -> list[dict[str, Any]]:
    """Return the shares of what is heard: a row for each S-layer, and one for all.

    ``heard``: of all inputs (Table 8). ``cells_silent``: cells whose whole window is silent.
    ``blocks``: products of 16 cells by 16 inputs in which anything is heard, cells in rows as they
    come; ``blocks_of_heard_cells``: the same where silent cells are left out first.
    """
    found: dict[str, list[tuple[float, ...]]] = {stage: [] for stage in STAGES}
    inputs = {}
    for at in range(0, len(digits), _AT_ONCE):
        fed = Fed(model, digits[at : at + _AT_ONCE])
        for i, (stage, layer) in enumerate(STAGES.items()):
            heard = fed.maps[layer] > 0
            spec = model.spec.s[i]
            shares = _blocks(heard, np.asarray(model.s[i].c) > 0, spec.kernel, spec.padding)
            found[stage].append((float(heard.mean()), *shares))
            inputs[stage] = heard[0].size
    sizes = [min(_AT_ONCE, len(digits) - at) for at in range(0, len(digits), _AT_ONCE)]
    means = {stage: np.average(rows, axis=0, weights=sizes) for stage, rows in found.items()}
    names = ("heard", "cells_silent", "blocks", "blocks_of_heard_cells")
    rows: list[dict[str, Any]] = [
        {"stage": stage, **dict(zip(names, map(float, mean), strict=True))} for stage, mean in means.items()
    ]
    whole = sum(means[stage][0] * n for stage, n in inputs.items()) / sum(inputs.values())
    return [*rows, {"stage": "all", "heard": float(whole)}]


def _blocks(
    heard: NDArray[np.bool_], connected: NDArray[np.bool_], kernel: int, padding: int
) -> tuple[float, float, float]:
    """Return the shares of silent cells, and of products needed: in rows, and of heard cells."""
    digits, planes = heard.shape[:2]
    depth = min(_INPUTS, planes)
    spare = -planes % depth
    grown = np.pad(heard, ((0, 0), (0, spare), (0, 0), (0, 0)))
    chunks = grown.reshape(digits, -1, depth, *heard.shape[2:]).any(axis=2)
    rim = (padding, padding)
    padded = np.pad(chunks, ((0, 0), (0, 0), rim, rim))
    view = sliding_window_view(padded, (kernel, kernel), axis=(2, 3))
    seen: NDArray[np.bool_] = np.logical_and(view, connected)
    # -> digit, cell, product of its window
    windows = seen.transpose(0, 2, 3, 1, 4, 5).reshape(digits, seen.shape[2] * seen.shape[3], -1)
    hears: NDArray[np.bool_] = np.any(windows, axis=2)
    tiles = -(-windows.shape[1] // _CELLS)
    whole = tiles * windows.shape[2] * digits
    in_rows = _needed(windows).sum()
    compact = sum(_needed(windows[i : i + 1, hears[i]]).sum() for i in range(digits))
    return float(1 - hears.mean()), float(in_rows / whole), float(compact / whole)


def _needed(windows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether any of 16 cells hears anything, (digits, tiles, products)."""
    digits, cells, products = windows.shape
    padded = np.pad(windows, ((0, 0), (0, -cells % _CELLS), (0, 0)))
    needed: NDArray[np.bool_] = np.any(padded.reshape(digits, -1, _CELLS, products), axis=2)
    return needed
