"""How long a digit or a line takes, and which stages take it: from a page's file to the answers."""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from neocog.network.engine import AnyEngine
from neocog.network.lines import MARGIN, ROWS
from neocog.network.registry import FINDER, find_model
from neocog.network.u0 import DIGIT_SIZE, made_digits, u0_from_digits
from neocog.reading.device import open_finder
from neocog.vision.crops import cut_out
from neocog.vision.decode import decode
from neocog.vision.finder_model import load_finder
from neocog.vision.scales import LONGEST, search

WARM_UP = 3  # passes that are not counted
_LEAST = 5  # passes that are counted, however slow
_MOST_STAGES = 50  # passes that are taken apart into stages
_STEP = 2 * DIGIT_SIZE  # pixels of a digit on the made page, twice its size
_ROW, _MOST_ON_PAGE = 10, 50  # digits of a line of the made page, and of all of it
_PAPER, _INK = 235, 40
_PERCENTILES = (50.0, 95.0, 99.0)
_ON_STRIP, _PITCH = 5, 38  # digits of a made strip, and columns of each


def measure(engine: Any, *, batch: int, seconds: float = 3.0) -> dict[str, Any]:
    """Time whole passes of an engine of digits or of lines, and stages, as ``neocog timing --json`` prints.

    Passes are made for so many seconds, and five at least. ``stages`` of a whole batch add up to the median
    pass (they are made shorter if they are more, and ``host`` is the rest); ``page``: to find so many digits.
    """
    lines = hasattr(engine, "likelihoods")
    made = list(made_strips(batch)) if lines else made_digits(batch)
    whole_pass = partial(engine.likelihoods, made) if lines else partial(engine.recognise, made, batch=batch)
    for _ in range(WARM_UP):
        whole_pass()
    passes: list[float] = []
    end = time.perf_counter() + seconds
    while len(passes) < _LEAST or time.perf_counter() < end:
        passes.append(milliseconds(whole_pass))
    times = engine.stage_times(made, repeats=min(len(passes), _MOST_STAGES))
    times.pop("total")
    whole, *late = np.percentile(passes, _PERCENTILES)
    spent = sum(float(np.median(ms)) for ms in times.values())
    slower = max(1.0, spent / whole)  # while the stages were timed
    stages = [_stage(name, np.percentile(ms / slower, _PERCENTILES)) for name, ms in times.items()]
    rest = max(0.0, whole - spent / slower)
    stages.append(_stage("host", np.array([rest, *(rest + ms - whole for ms in late)])))
    page = [] if lines else page_times(engine, batch, repeats=min(len(passes), _LEAST))
    facts: dict[str, Any] = {"stages": stages, "page": page}
    for end_of_name, ms in zip(("", "_p95", "_p99"), (whole, *late), strict=True):
        facts[f"ms_per_digit{end_of_name}"] = round(float(ms) / batch / (_ON_STRIP if lines else 1), 6)
        if lines:
            facts[f"ms_per_strip{end_of_name}"] = round(float(ms) / batch, 6)
    return {**facts, "passes": len(passes), "batch": batch}


def _stage(name: str, ms: NDArray[np.float64]) -> dict[str, Any]:
    """One stage: its median, 95th and 99th percentile."""
    values = (round(float(value), 5) for value in ms)
    return {"name": name, **dict(zip(("ms", "ms_p95", "ms_p99"), values, strict=True))}


def made_strips(count: int) -> NDArray[np.float32]:
    """Strips of five made digits each, (count, 48, 190), ink 1 on paper 0."""
    u0 = u0_from_digits(made_digits(count * _ON_STRIP))
    ink = u0[:, MARGIN : MARGIN + ROWS, 13 : 13 + _PITCH].reshape(count, _ON_STRIP, ROWS, _PITCH)
    return ink.transpose(0, 2, 1, 3).reshape(count, ROWS, -1)


def page_times(engine: AnyEngine, count: int, *, repeats: int) -> list[dict[str, Any]]:
    """Time decoding a made page, finding, and normalising, in milliseconds for ``count`` digits."""
    finder = open_finder(load_finder(find_model(FINDER)), engine)
    held = min(count, _MOST_ON_PAGE)
    with tempfile.TemporaryDirectory(prefix="neocog-") as folder:
        path = Path(folder) / "page.png"
        Image.fromarray(made_page(made_digits(held))).save(path)
        (page,), boxes = decode(path, long_side=LONGEST), digit_boxes(held)
        work: dict[str, Callable[[], object]] = {
            "decode": lambda: list(decode(path, long_side=LONGEST)),
            "find": lambda: search(page.grey, finder),
            "normalise": lambda: cut_out(page.grey, boxes),
        }
        rows = [[milliseconds(one) for one in work.values()] for _ in range(repeats + 1)]
    times = np.array(rows[1:]) * (count / held)
    return [_stage(name, np.percentile(ms, _PERCENTILES)) for name, ms in zip(work, times.T, strict=True)]


def made_page(digits: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A grey page with digits (N, 28, 28) at twice their size, in lines of ten."""
    page = np.full((2 * -(-len(digits) // _ROW) * _STEP + 2 * _STEP, (_ROW + 4) * _STEP), _PAPER, np.uint8)
    for digit, (left, top, wide, high) in zip(digits, digit_boxes(len(digits)).astype(int), strict=True):
        ink = digit.repeat(2, axis=0).repeat(2, axis=1).astype(np.int64)
        page[top : top + high, left : left + wide] = _PAPER - ink * (_PAPER - _INK) // 255
    return page


def digit_boxes(count: int) -> NDArray[np.float32]:
    """Where the digits of `made_page` stand, (N, 4)."""
    i = np.arange(count)
    place = np.stack([(2 + i % _ROW), (1 + 2 * (i // _ROW)), *np.ones((2, count))], axis=1)
    return np.asarray(_STEP * place, np.float32)


def milliseconds(work: Callable[[], object]) -> float:
    """Time one call."""
    start = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - start)
