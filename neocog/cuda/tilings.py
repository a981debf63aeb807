"""How kernels deal a layer to blocks: ``tilings.json``, by shape and batch."""

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from neocog.cuda.kernel import shared_limit


@cache
def _table() -> Any:
    return json.loads(Path(__file__).with_name("tilings.json").read_text(encoding="utf-8"))


def tilings(kind: str, shape: Sequence[int], batch: int, arch: int) -> Iterator[list[Any]]:
    """Yield tilings of S-layers (``"s"``) or C-layers (``"c"``): that of the shape, then of the nearest."""
    # architectures other than 90 are told apart by the memory of a block
    fitting = [a for a in (86, 80, 100) if shared_limit(a) <= shared_limit(arch)]
    like = 90 if arch == 90 else fitting[-1] if fitting else 86
    known = [(other, rows) for found, other, rows in _table()[kind] if found == like]
    sizes = np.log1p(shape)
    for _, rows in sorted(known, key=lambda one: float(np.abs(np.log1p(one[0]) - sizes).sum())):
        yield next(tiling for least, *tiling in reversed(rows) if least <= batch)
