"""What each way of learning reaches on MNIST, from 400 to 55 000 digits, without gradients.

DATA holds mnist/ and usps/. Temperatures are set on the last 5 000 training digits.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.harness.record import arguments, write_results
from neocog.learning.calibrate import best_temperature, score
from neocog.learning.datasets import open_digits
from neocog.learning.mix import Hand, Mix
from neocog.learning.recipes import RECIPES, LayerByLayer, Recipe
from neocog.learning.selforganise import normalised
from neocog.network.arrays import array_module, module_of_device
from neocog.network.decision import Decision, labels_of, planes_of_labels
from neocog.network.model import Model
from neocog.network.parallel import one_blas_thread

SIZES = (400, 3000, 10_000, 55_000)
COLUMNS = {"recipe": "recipe", "rule": "read by", "digits": "learned from", "planes": "K2/K3/K4",
           "bytes_fp16": "bytes (fp16)", "validation": "validation|.2%", "test": "MNIST test|.2%",
           "usps": "USPS, unseen|.2%", "sklearn": "scikit-learn, unseen|.2%"}  # fmt: skip
PAIR_PLANES = 32  #: strongest planes of a label among which pairs are sought
_SAME = 1e-6  # vectors with 1 - g below this are one: float32 responses cannot tell between them
#: part -> (recipe, rules by which its US4 is read, digits to learn from)
PARTS: dict[str, tuple[Recipe, tuple[str, ...], tuple[int, ...]]] = {
    "every": (RECIPES["nearest"], ("strongest", "pairs"), SIZES),
    "silent": (RECIPES["silent"], ("pairs",), (3000, 55_000)),
    "2003": (RECIPES["fukushima2003"], ("strongest",), SIZES),
    "neocog": (RECIPES["neocog"], ("pairs",), SIZES),
    "small": (RECIPES["neocog-small"], ("pairs",), SIZES),
    "fukushima": (RECIPES["fukushima"], ("strongest",), (3000, 55_000)),
}


class Interpolated:
    """Scores (B, 10) from responses (B, 5, 5, K4) by pairs of reference vectors (Fukushima 2013).

    At the place where a label's strongest plane responds, the input is compared with the segments between
    pairs of its reference vectors (triangles: commit 7628e6b2). With s the cosines to two vectors and g that
    between them, the nearest point has the cosine sqrt((s1^2 + s2^2 - 2 g s1 s2) / (1 - g^2)) where
    s1 > g s2 and s2 > g s1; else it is the nearer vector. Planes below their threshold take no part.
    """

    def __init__(self, model: Model, xp: Any = np) -> None:
        index, present = planes_of_labels(model)
        self._index, self._present = xp.asarray(index), xp.asarray(present)
        self._theta = np.float32(model.s[3].threshold)
        weight = xp.asarray(np.sqrt(model.s[3].c))
        self._apart = xp.ones((*index.shape, index.shape[1]), np.float64)  # 1 - g of two planes of a label
        for label, own in enumerate(index):
            x = (xp.asarray(model.s[3].reference[own]) * weight).reshape(len(own), -1).astype(np.float64)
            self._apart[label] -= normalised(x) @ normalised(x).T

    def __call__(self, us4: Any) -> Any:
        xp, flat = array_module(us4), us4.reshape(len(us4), -1, us4.shape[3])
        batch, labels = xp.arange(len(flat))[:, None, None], xp.arange(len(self._index))[None, :, None, None]
        place = (flat[:, :, self._index] * self._present).max(axis=3).argmax(axis=1)
        responses = flat[batch, place[:, :, None], self._index[None]] * self._present  # (B, 10, M)
        cosine = xp.where(responses > 0, responses * (1 - self._theta) + self._theta, 0)
        apart = self._apart[None]
        if cosine.shape[2] > PAIR_PLANES:
            top = xp.argsort(-cosine, axis=2)[:, :, :PAIR_PLANES]
            cosine = xp.take_along_axis(cosine, top, axis=2)
            apart = self._apart[labels, top[:, :, :, None], top[:, :, None, :]]
        best = best_on_segments(cosine, apart.astype(np.float32))
        return xp.maximum(best - self._theta, 0) / (1 - self._theta)


def best_on_segments(s: Any, apart: Any) -> Any:
    """Largest cosine to any segment between two of M vectors: s (B, 10, M) -> (B, 10). Written with h = 1 - g
    instead of g, since near vectors differ in h alone: s1^2 + s2^2 - 2 g s1 s2 = (s1 - s2)^2 + 2 h s1 s2 and
    1 - g^2 = h (2 - h).
    """
    xp = array_module(s)
    a, b = s[..., :, None], s[..., None, :]
    difference = a - b
    inside = (difference + apart * b > 0) & (apart * a - difference > 0) & (apart > _SAME)
    h = xp.maximum(apart, _SAME)
    square = (difference**2 + 2 * h * a * b) / (h * (2 - h))
    return xp.sqrt(xp.where(inside, square, a * a).max(axis=(2, 3)))


def run_part(part: str, data: Path, xp: Any) -> Iterator[dict[str, Any]]:
    """Learn and read; one row per model."""
    recipe, rules, sizes = PARTS[part]
    learning = open_digits(data / "mnist", split="learning")
    sets = {"validation": open_digits(data / "mnist", split="validation"),
            "test": open_digits(data / "mnist", split="test"),
            "usps": open_digits(data / "usps"), "sklearn": open_digits("sklearn")}  # fmt: skip
    for n in sizes:
        start = time.perf_counter()
        order = np.random.default_rng(0).permutation(n)
        shared = LayerByLayer(recipe, xp=xp)
        with one_blas_thread():
            maps = shared.below(learning.images[:n][order])
            model = shared.model(recipe, maps, learning.labels[:n][order])
        for rule in rules:
            scores = Decision(model, xp).scores if rule == "strongest" else Interpolated(model, xp)
            found = {name: score(model, digits.images, xp, scores=scores) for name, digits in sets.items()}
            right = {name: float(np.mean(labels_of(own) == sets[name].labels)) for name, own in found.items()}
            yield {
                "part": part, "recipe": recipe.name, "rule": rule, "digits": n,
                "planes": "/".join(map(str, model.planes)),
                "bytes_fp16": 2 * sum(s.reference.size + s.c.size for s in model.s),
                "temperature": best_temperature(found["validation"], Mix((Hand(sets["validation"]),))),
                **{name: round(share, 5) for name, share in right.items()},
                "seconds": round(time.perf_counter() - start, 1),
            }  # fmt: skip


def main() -> None:
    gpu = (False, "learn on CuPy arrays")
    args = arguments(__doc__, "data", gpu=gpu, parts=",".join(PARTS)).parse_args()
    found, xp = [], module_of_device("cuda" if args.gpu else "cpu")
    for part in args.parts.split(","):
        for row in run_part(part, args.data, xp):
            print(json.dumps(row), flush=True)
            found.append(row)
    write_results(args.output, found, columns=COLUMNS, gpu=args.gpu)


if __name__ == "__main__":
    main()
