"""Sets the reader's thresholds for model files, on tuning data alone, and writes them to the cards.

    python benchmarks/tune_reading.py DATA MODEL.safetensors ... [--pages N] [--dry]

DATA holds photos, strings and mnist. Tuning data are the photographs, every second cheque, made
pages of the tuned conditions and pages without digits of the tuned kinds, of another seed than
``benchmarks/reading.py`` measures with. Of all settings for which at most one page in twenty
without digits gives one, that with the lowest mean error rate of the three sets wins. The model
must have been through ``benchmarks/ship.py``; its id does not change. Models are tuned side by
side, each by a process of its own (``--jobs``).
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks.reading import GROUPS, made, pictures
from benchmarks.spread import spread
from neocog.batch.context import runs_of
from neocog.batch.policy import Policy
from neocog.batch.reader import Reader
from neocog.evaluation.evaluate import edit_distance
from neocog.learning.datasets import LabelledPictures, open_dataset
from neocog.network.engine import cores
from neocog.network.model import load_model
from neocog.network.once import Once

SEED = 77
TRIED = {
    "min_p": (0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
    "writing": (0.0, 0.3, 0.6, 0.8),
    "page_odds": (0.1, 0.3, 1.0),
    "strip_odds": (0.003, 0.01, 0.1),
}
ALLOWED = 0.05  # share of pages without digits that may give one

Found = tuple[Any, Any, bool, str]
"""Answers to the marks of a page, their runs, whether it is a strip, and what is written on it."""


def samples(data: Path, pages: int) -> Iterator[tuple[str, np.ndarray, str]]:
    """Set, grey page and digits of every picture to tune on."""
    for name, every in (("photos", 1), ("strings", 2)):
        labelled = open_dataset(data / name)
        assert isinstance(labelled, LabelledPictures)
        for place in pictures(labelled[::every]):
            yield name, *place()[1:]
    for group, names in (("made", GROUPS["tuned"][0]), ("blank", GROUPS["no digits"][0])):
        for name in names:
            for place in made(name, data, pages, seed=SEED):
                yield group, *place()[1:]


def answered(reader: Reader, grey: np.ndarray, written: str) -> Found:
    """Find and recognise the marks of a page; how they are judged is left open."""
    lines = reader.find(grey)
    digits = [place.digit for line in lines for place in line.digits]
    answers = reader.engine.recognise(np.stack(digits), batch=reader.batch) if digits else None
    return answers, runs_of(lines), any(line.strip for line in lines), written


def outcome(reader: Reader, found: dict[str, list[Found]], policy: Policy) -> dict[str, float]:
    """Error rate of each set, and share of pages without digits that give one."""
    reader.policy = policy
    rates = {}
    for name, rows in found.items():
        wrong = digits = 0
        for answers, runs, strip, written in rows:
            marks = [(0, 0, 0, 0)] * len(runs)
            judged = reader.judge(answers, marks, runs=runs, strip=strip) if marks else ()
            text = "".join(digit.char for digit in judged)
            blank = name == "blank"
            wrong += any(map(str.isdigit, text)) if blank else edit_distance(text, written)
            digits += 1 if blank else len(written)
        rates[name] = wrong / digits
    return rates


def tune(path: Path, *, data: Path, pages: int, dry: bool) -> None:
    """Read all once, then judge again and again."""
    model = load_model(path)
    reader = Reader(replace(model, card={**model.card, "reading": {}}))
    reader.engine = once = Once(reader.engine)  # type: ignore[assignment]
    found: dict[str, list[Found]] = {}
    for name, grey, written in samples(data, pages):
        once.forget()
        found.setdefault(name, []).append(answered(reader, grey, written))
    usual = chosen = reader.policy
    tried = [replace(usual, **dict(zip(TRIED, v, strict=True))) for v in product(*TRIED.values())]
    tried.sort(key=lambda policy: sum(getattr(policy, n) != getattr(usual, n) for n in TRIED))
    best = (2.0, 2.0)
    for policy in [usual, *tried]:  # where nothing is gained, as little is changed as can be
        rates = outcome(reader, found, policy)
        errors = sum(rate for name, rate in rates.items() if name != "blank") / 3
        rank = (max(rates["blank"] - ALLOWED, 0.0), round(errors, 4))
        if rank < best:
            best, chosen = rank, policy
            print(model.id, {name: getattr(policy, name) for name in TRIED}, rates, flush=True)
    if not dry:
        card = {**model.card, "reading": asdict(chosen)}
        replace(model, card=card).save(path, precision="fp16")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--pages", type=int, default=4, help="made pages of each condition")
    parser.add_argument("--dry", action="store_true", help="change nothing")
    parser.add_argument("--jobs", type=int, default=cores(), help="processes")
    args = parser.parse_args()
    work = partial(tune, data=args.data, pages=args.pages, dry=args.dry)
    list(spread(work, args.models, args.jobs))


if __name__ == "__main__":
    main()
