"""What a user asks of a model's file: what it reads, how well, how fast."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from neocog.network.engine import Engine
from neocog.network.made import made_digits
from neocog.network.model import Model, load_model
from neocog.network.registry import find_model

_TESTS = {"test": "MNIST", "usps": "USPS", "sklearn": "scikit-learn"}  # the cards' names for sets
_PASSES, _BATCH = 5, 8


def about(name: str | Path) -> dict[str, Any]:
    """Return facts of a model, or of the finder, in the order in which they are told.

    ``ms`` is the time of a digit (of a page, for the finder) on this machine's CPU, measured now.

    Raises
    ------
    ModelError
        If it is missing or broken.
    """
    from neocog.vision.finder_model import is_finder

    path = find_model(name)
    file = {"path": str(path), "bytes": path.stat().st_size}
    if is_finder(path):
        return _finder(path) | file
    model = load_model(name)
    digits = "one digit of 28 x 28 pixels"
    more = ", and tells what is none" if model.classes > 10 else ""
    found = model.card.get("accuracy", {})
    return {
        "id": model.id,
        "reads": digits + more,
        "accuracy": {_TESTS[key]: found[key] for key in _TESTS if key in found},
        "ms": _speed(model),
        "planes": list(model.planes),
        "preset": model.spec.name,
        "thresholds": [layer.threshold for layer in model.s],
        "psi": model.psi,
        "rule": model.rule,
        **file,
        "card": model.card,
    }


def _finder(path: Path) -> dict[str, Any]:
    from neocog.evaluation.timing import made_page
    from neocog.vision.finder import find
    from neocog.vision.finder_model import LazyFinder, load_finder

    finder = LazyFinder(load_finder(path))
    page = made_page(made_digits(50))
    ms = _median(lambda: find(page, finder))
    reads = f"where digits and signs stand on a page (timed: {page.shape[1]} x {page.shape[0]})"
    card = finder.model.card
    return {"id": finder.model.id, "reads": reads, "accuracy": {}, "ms": ms, "card": card}


def _speed(model: Model) -> float:
    engine, digits = Engine(model), made_digits(_BATCH)
    return _median(lambda: engine.recognise(digits, batch=_BATCH)) / _BATCH


def _median(work: Any) -> float:
    spent = []
    for _ in range(1 + _PASSES):
        start = time.perf_counter()
        work()
        spent.append(1e3 * (time.perf_counter() - start))
    return float(np.median(spent[1:]))
