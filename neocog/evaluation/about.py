"""What a user asks of a model's file: what it reads, how well, how fast, whether it is whole."""

from pathlib import Path
from typing import Any

import numpy as np

from neocog.errors import ModelError
from neocog.evaluation.timing import made_page, milliseconds
from neocog.network.engine import Engine
from neocog.network.line_engine import LineEngine
from neocog.network.lines import MARGIN, MULTIPLE, ROWS, LineModel, load_lines
from neocog.network.model import Model, load_model
from neocog.network.registry import FINDER, check_digest, find_model, kind_of
from neocog.network.u0 import made_digits, u0_from_digits

_TESTS = {"test": "MNIST", "usps": "USPS", "sklearn": "scikit-learn"}  # the cards' names for sets
_PASSES, _BATCH = 6, 8  # the first pass is not counted


def about(name: str | Path) -> dict[str, Any]:
    """Return facts of a model, or of the finder; ModelError if the file is missing or broken.

    ``ms`` is the time of a digit (of a line, of a page) on this machine's CPU, measured now.
    """
    from neocog.vision.finder import find
    from neocog.vision.finder_model import LazyFinder, load_finder

    path = find_model(name)
    file = {"kind": (kind := kind_of(path)), "path": str(path), "bytes": path.stat().st_size}
    if kind == "finder":
        finder, page = LazyFinder(load_finder(path)), made_page(made_digits(50))
        ms = float(np.median([milliseconds(lambda: find(page, finder)) for _ in range(_PASSES)][1:]))
        reads = f"where digits and signs stand on a page (timed: {page.shape[1]} x {page.shape[0]})"
        card = finder.model.card
        return {"id": finder.model.id, "reads": reads, "accuracy": {}, "ms": ms, "card": card} | file
    whole: Model | LineModel = load_lines(name) if kind == "lines" else load_model(name)
    digits, count = made_digits(_BATCH), _BATCH
    if isinstance(whole, LineModel):
        model, reader, count = whole.digits, LineEngine(whole), 1
        strip = np.hstack(list(u0_from_digits(digits[:5])[:, MARGIN : MARGIN + ROWS, MARGIN : MARGIN + ROWS]))
        reads = f"a line of numbers: {' '.join(whole.alphabet)} (timed: {strip.shape[1]} columns)"
        times = [milliseconds(lambda: reader.likelihoods([strip])) for _ in range(_PASSES)]
    else:
        model, engine = whole, Engine(whole)
        reads = f"one digit of 28 x 28 pixels{', and tells what is none' if model.classes > 10 else ''}"
        times = [milliseconds(lambda: engine.recognise(digits, batch=_BATCH)) for _ in range(_PASSES)]
    found = whole.card.get("accuracy", {})
    return {
        "id": whole.id,
        "reads": reads,
        "accuracy": {_TESTS[key]: found[key] for key in _TESTS if key in found},
        "ms": float(np.median(times[1:])) / count,
        "planes": list(model.planes),
        "preset": model.spec.name,
        "thresholds": [layer.threshold for layer in model.s],
        "psi": model.psi,
        **file,
        "card": whole.card,
    }


def verify(name: str) -> str:
    """Compare a model's file with its digest, load it, and try it on silence and on ink; return what it is.

    ModelError if it cannot be loaded, is not as it was shipped, or answers wrongly.
    """
    from neocog.vision.finder import find
    from neocog.vision.finder_model import LazyFinder, load_finder

    path = find_model(name)
    shipped = "as shipped" if check_digest(path) else "not compared: no digest was shipped with it"
    if path.stem == FINDER or (kind := kind_of(path)) == "finder":
        finder = LazyFinder(load_finder(path))
        try:
            finder.opened()
        except ImportError as error:
            raise ModelError(f"finder {path}: cannot run without OpenCV ({error})") from None
        if len(find(np.full((200, 300), 230, np.uint8), finder)):
            raise ModelError(f"finder {path}: finds digits on an empty page")
        if not len(find(made_page(made_digits(15)), finder)):
            raise ModelError(f"finder {path}: finds nothing on a page; train it again")
        return f"{finder.model.id}  {shipped}"
    if kind == "lines":
        lines, paper = load_lines(name), np.zeros((ROWS, MULTIPLE), np.float32)
        if (LineEngine(lines).likelihoods([paper])[0].argmax(axis=1) != lines.blank).any():
            raise ModelError(f"model {name}: reads something on empty paper")
        return f"{lines.id}  planes {'/'.join(map(str, lines.digits.planes))}  {shipped}"
    model = load_model(name)
    digits = np.concatenate([np.zeros((1, 28, 28), np.uint8), made_digits(15)])
    answers = Engine(model).recognise(digits, batch=len(digits))
    if answers.label[0] != -1:
        raise ModelError(f"model {name}: reads {answers.label[0]} in an empty picture")
    if not np.isfinite(answers.score).all() or (answers.label[1:] < 0).all():
        raise ModelError(f"model {name}: finds no digit in drawn digits; train it again")
    return f"{model.id}  planes {'/'.join(map(str, model.planes))}  {shipped}"
