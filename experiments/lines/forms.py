"""What right and wrong forms and lists do to drawn lines: python -m experiments.lines.forms FOLDER ...

A wrong form has a digit more or less, or a sign less or a digit in its place. For each kind: lines; the
share printed without ``?``, and also right; and less than 1 .. 8 below the best text of all.
"""

import csv
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np

from neocog.network import ctc
from neocog.network.automaton import Automaton
from neocog.network.line_engine import LineEngine
from neocog.network.lines import load_lines
from neocog.network.registry import LINES
from neocog.reading.numbers import FAR
from neocog.vision.strips import strip_of

BOUNDS = np.arange(1, 9)


def lists(text: str, rng: np.random.Generator) -> Iterator[tuple[str, list[str]]]:
    """Yield a list of 100 other numbers of a text's form, with it and without."""
    others = [re.sub(r"\d", lambda _: str(rng.integers(10)), text) for _ in range(100)]
    yield "listed", [text, *others]
    if any(own != text for own in others):
        yield "not listed", [own for own in others if own != text]


def forms(text: str, rng: np.random.Generator) -> Iterator[tuple[str, str]]:
    """Yield kinds and forms of a text that has a digit."""
    form = re.sub(r"\d", "#", text)
    yield "right", form
    digits, signs = (
        [k for k, c in enumerate(form) if (c == "#") == own and c != " "] for own in (True, False)
    )
    k = int(rng.choice(digits))
    yield "digit more", form[:k] + "#" + form[k:]
    if len(digits) > 1:
        yield "digit less", form[:k] + form[k + 1 :]
    if signs:
        k = int(rng.choice(signs))
        yield "sign less", form[:k] + form[k + 1 :]
        yield "sign a digit", form[:k] + "#" + form[k + 1 :]


if __name__ == "__main__":
    engine, rng, rows = LineEngine(load_lines(LINES), threads=1), np.random.default_rng(43), defaultdict(list)
    for folder in map(Path, sys.argv[1:]):
        for row in csv.DictReader((folder / "labels.csv").open()):
            if any(map(str.isdigit, text := row["text"])):
                grey = cv2.imread(str(folder / row["file"]), cv2.IMREAD_GRAYSCALE)
                (logp,) = engine.likelihoods([strip_of(np.asarray(grey, np.uint8))])
                allowed = [(kind, Automaton([form])) for kind, form in forms(text, rng)]
                allowed += [(kind, Automaton(texts=some)) for kind, some in lists(text, rng)]
                for kind, automaton in allowed:
                    found = ctc.number(logp, bound=0.5, automaton=automaton)
                    sure = found.beside < FAR and found.p >= 0.5 and "?" not in found.doubtful
                    rows[kind].append((sure, sure and found.text == text, *(found.beside < BOUNDS)))
    for kind, some in rows.items():
        print(f"{kind:14s} {len(some):5d}", *(f"{share:6.1%}" for share in np.mean(some, axis=0)))
