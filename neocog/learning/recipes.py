"""Recipes (``experiments/learning/curve.py`` compares them), and learning by one, without gradients.

Each layer learns while the layers below respond at their recognition thresholds. The same recipe, digits and
seed give the same model, on a CPU with any number of cores.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from neocog.errors import UsageError
from neocog.learning import selforganise
from neocog.learning.calibrate import BATCH, calibrated, in_batches
from neocog.learning.drawing.marks import negatives
from neocog.learning.mix import Mix
from neocog.learning.settings import want
from neocog.network.arrays import to_numpy
from neocog.network.blurs import blur_kernel
from neocog.network.engine import Engine
from neocog.network.layers import CLayer, ContrastLayer, full, s_layer
from neocog.network.model import Model, SWeights
from neocog.network.parallel import one_blas_thread
from neocog.network.spec import LABELS, PRESETS, REJECT, SSpec, bell, preset
from neocog.network.u0 import check_digits, u0_from_digits
from neocog.text import to_json

MiddleRule = Literal["winning", "silent"]
TopRule = Literal["supervised", "every", "competition"]
Array = Any
Digits = NDArray[np.uint8]
Labels = NDArray[np.int64]
Progress = Callable[[str], Callable[[int, int], None]]
OnStage = Callable[[str, dict[str, Any]], None]

DIGITS, MARKS = 4000, 1500  #: that a start learns from; marks are for its rejecting planes


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to learn without gradients: a rule for each layer. UsageError where it makes no sense."""

    name: str
    about: str
    preset: str = "fukushima2003"  #: architecture, one of :data:`neocog.network.spec.PRESETS`
    middle: MiddleRule = "winning"  #: rule of US2, US3: Fukushima 2003, or add-if-silent (2013)
    top: TopRule = "supervised"  #: rule of US4
    thresholds: tuple[float, float] | None = None  #: learning thresholds of US2, US3; the preset's
    limits: tuple[int, int] | None = None  #: planes at which US2, US3 stop; learning decides
    middle_digits: int = 3000  #: digits (the first ones, in the seed's order) for US2 and US3
    cut: float = 0.55  #: share of the seed-selecting plane's maximum that counts as nothing
    passes: int = 4  #: times the digits are shown (top "supervised")
    per_label: int = 20  #: planes of each label (top "competition")

    def __post_init__(self) -> None:
        limits, thresholds = self.limits or (1, 1), self.thresholds or (0.5, 0.5)
        counts = (self.middle_digits, self.passes, self.per_label, *limits)
        right = all(0 < share < 1 for share in thresholds) and 0 <= self.cut < 1
        right = right and len(limits) == len(thresholds) == 2 and self.preset in PRESETS
        right = right and self.middle in get_args(MiddleRule) and self.top in get_args(TopRule)
        right = right and all(isinstance(count, int) and count >= 1 for count in counts)
        wanted = "rules and a preset that there are, two thresholds and limits, shares below 1, counts from 1"
        want(right, f"{self}", wanted)


_EACH = (
    Recipe("fukushima2003", "the published rules of 2003 as they stand"),
    Recipe("fukushima", "the published rules of 2003, at the published 39/110 planes of US2, US3",
           limits=(39, 110)),
    Recipe("ikeda2011", "the network of Ikeda et al. 2011: 16/26/78/70 planes, no surrounds",
           preset="ikeda2011", top="competition", thresholds=(0.85, 0.9), limits=(26, 78), per_label=7),
    Recipe("nearest", "US2, US3 of 2003; every digit a plane of US4", top="every"),
    Recipe("silent", "add-if-silent (2013) below, no surrounds; every digit a plane", preset="neocog",
           middle="silent", top="every", thresholds=(0.75, 0.82), limits=(100, 300)),
    Recipe("neocog", "26/78 planes by the rules of 2003; 30 planes a label compete", top="competition",
           limits=(26, 78), per_label=30),
    Recipe("neocog-small", "the same with the papers' 16/26/78/70 planes: 7 a label", top="competition",
           limits=(26, 78), per_label=7),
)  # fmt: skip
RECIPES = {recipe.name: recipe for recipe in _EACH}

_START = Recipe(
    "finetuned", "40/160/100 planes by add-if-silent and competition, then by gradient (needs PyTorch)",
    preset="neocog", middle="silent", top="competition", thresholds=(0.74, 0.79), limits=(40, 160),
    per_label=10,
)  # fmt: skip
STARTS = {"finetuned": _START, "finetuned-small": replace(
    _START, name="finetuned-small", about="the same with the papers' 16/26/78/70 planes",
    thresholds=(0.72, 0.76), limits=(26, 78), per_label=7,
)}  # fmt: skip
"""What gradient learning starts from, by name."""


def train(
    recipe: Recipe, images: Digits, labels: Labels, *, seed: int = 0, validation: Mix | None = None,
    progress: Progress | None = None, on_stage: OnStage | None = None, xp: Any = np,
) -> Model:  # fmt: skip
    """Learn a network from digits (N, 28, 28) uint8, ink 255 on paper 0, labelled 0 .. 9, on numpy or cupy.

    Probabilities are calibrated on ``validation``. ``progress`` is called with a stage's name and returns
    what is told ``(done, total)``. UsageError or InputError if they are no labelled digits.
    """
    if not isinstance(recipe, Recipe):
        raise UsageError(f"got recipe {recipe!r}, expected a Recipe, such as RECIPES['neocog']")
    images, labels = _labelled(images, labels)
    if validation is not None:
        _labelled(validation.images, validation.labels)
    learning = LayerByLayer(recipe, seed, progress, on_stage, xp)
    order = np.random.default_rng(seed).permutation(len(images))
    with one_blas_thread():
        model = learning.model(recipe, learning.below(images[order]), labels[order])
    if validation is None:
        return model
    model = calibrated(model, validation, xp=xp, tell=learning.progress("validation"))
    told = {"validation": model.card["validation_accuracy"], "temperature": model.temperature}
    learning.on_stage("UC4", told)
    return model


def _labelled(images: Digits, labels: Labels) -> tuple[Digits, Labels]:
    images, labels = np.asarray(images), np.asarray(labels)
    check_digits(images)
    count = len(labels) if labels.ndim == 1 else labels.shape
    one_each = len(images) and labels.shape == images.shape[:1]
    want(bool(one_each), f"got {len(images)} digits and {count} labels", "one each")
    ends = f"{labels.min()} to {labels.max()}" if labels.dtype.kind in "iuf" else "no numbers"
    right = labels.dtype.kind in "iu" and labels.min() >= 0 and labels.max() < LABELS
    want(right, f"got labels of {labels.dtype}, {ends}", "whole numbers, 0 to 9")
    return images, labels.astype(np.int64)


class LayerByLayer:
    """One run of a recipe: the layers learned so far, bottom up; within `one_blas_thread`."""

    def __init__(
        self, recipe: Recipe, seed: int = 0, progress: Progress | None = None,
        on_stage: OnStage | None = None, xp: Any = np,
    ) -> None:  # fmt: skip
        self.recipe, self.seed, self.xp, self.spec = recipe, seed, xp, preset(recipe.preset)
        self.progress = progress or (lambda what: lambda done, total: None)
        self.on_stage = on_stage or (lambda name, figures: None)
        self._layers: list[Any] = [ContrastLayer(self.spec.contrast, xp)]
        self._weights: list[SWeights] = []
        self._blurs = [blur_kernel(c).astype(np.float32) for c in self.spec.c]

    def below(self, images: Digits) -> Array:
        """Learn US1 from edges, US2 and US3 from the first digits; return UC3 of all digits."""
        recipe = self.recipe
        self._keep(0, selforganise.edge_references(self.spec))
        self.on_stage("US1", {"planes": self.spec.orientations})
        thresholds, limits = recipe.thresholds or (None, None), recipe.limits or (None, None)
        for stage, threshold, limit in zip((1, 2), thresholds, limits, strict=True):
            first, name = images[: recipe.middle_digits], f"US{stage + 1}"
            # one digit after another, on the host: small steps, faster there than on a GPU
            maps = (u for batch in self._batches(first, name) for u in to_numpy(batch))
            planes = selforganise.learn(maps, self.spec.s[stage], threshold=threshold, cut=recipe.cut,
                                        limit=limit, winners_learn=recipe.middle == "winning")  # fmt: skip
            if not len(planes):
                raise UsageError("the digits are blank: no cell responds to them; give digits with ink")
            self._keep(stage, np.ascontiguousarray(planes.references()))
            self.on_stage(name, {"planes": len(planes), "digits": len(first)})
        side, planes3 = self.spec.size("UC3"), len(self._weights[2].reference)
        found, done = self.xp.empty((len(images), side, side, planes3), dtype=np.float32), 0
        for u in self._batches(images, "US4"):
            found[done : done + len(u)] = u
            done += len(u)
        return found

    def model(self, recipe: Recipe, maps: Array, labels: Labels) -> Model:
        """Learn US4 on maps of UC3, (N, 13, 13, K3), by a recipe; return the whole network."""
        spec = self.spec.s[3]
        if recipe.top == "every":
            references, own = selforganise.every_view(maps, labels, spec)
        elif recipe.top == "competition":
            rng = np.random.default_rng([self.seed, 4])
            references, own = selforganise.compete_within_labels(maps, labels, spec, recipe.per_label, rng)
        else:
            references, own = selforganise.learn_supervised(maps, labels, spec, passes=recipe.passes)
        self.on_stage("US4", {"planes": len(own), "digits": len(maps)})
        (s1, s2, s3), (b1, b2, b3) = self._weights, self._blurs
        card = {"recipe": asdict(recipe), "seed": self.seed, "digits": len(maps)}
        layers = (s1, s2, s3, _weights(spec, references))
        return Model(recipe.name, self.spec, layers, (b1, b2, b3), own, psi=self.spec.psi, card=card)

    def _keep(self, stage: int, references: NDArray[np.float32]) -> None:
        spec, xp = self.spec, self.xp
        self._weights.append(_weights(spec.s[stage], references))
        size = spec.size("UG" if stage == 0 else f"UC{stage}")
        s = s_layer(spec.s[stage], self._weights[stage], size, xp)
        self._layers += [s, CLayer(spec.c[stage], self._blurs[stage], s.out, spec.psi, xp)]

    def _batches(self, images: Digits, what: str) -> Iterator[Array]:
        def run(part: Digits) -> Array:
            u = self.xp.asarray(u0_from_digits(part))
            for layer in self._layers:
                u = layer(u)
            return full(u)

        return in_batches(run, images, self.xp, self.progress(what))


def _weights(spec: SSpec, references: NDArray[np.float32]) -> SWeights:
    c = bell(spec.kernel, spec.c).astype(np.float32)
    return SWeights(references, c, spec.threshold, spec.q)


def recipe_of(name: str, planes: str | None = None) -> Recipe:
    """Return a start's recipe, with other plane counts K2/K3/K4 if given; UsageError if there is none."""
    if name not in STARTS:
        raise UsageError(f"start {name!r} is unknown: choose {', '.join(STARTS)}")
    if planes is None:
        return STARTS[name]
    try:
        k2, k3, k4 = map(int, planes.split("/"))
    except ValueError:
        k2 = k3 = k4 = 0
    if min(k2, k3, k4) < 1 or k4 % LABELS:
        raise UsageError(f"planes {planes!r}, expected K2/K3/K4, K4 a multiple of 10: 40/160/100")
    return replace(STARTS[name], limits=(k2, k3), per_label=k4 // LABELS)


def start_model(
    recipe: Recipe, mix: Mix, *, seed: int = 0, reject: int = 0, count: int = DIGITS,
    progress: Progress | None = None,
) -> Model:  # fmt: skip
    """Learn the start without gradients from ``count`` digits; ``reject`` planes of US4 start from marks."""
    chosen = np.random.default_rng([seed, 5]).permutation(len(mix))[:count]
    digits = mix.some(count, seed=seed) if len(mix.hands) > 1 else mix.hands[0].digits[chosen]
    images, labels = digits.images, digits.labels
    model = train(recipe, images, labels, seed=seed, progress=progress)
    model = replace(model, card=model.card | described(recipe, mix.digest, seed=seed, reject=reject))
    if not reject:
        return model
    marks = negatives(min(MARKS, 4 * count), images, labels, seed=seed)[0]
    none, rng = np.zeros(len(marks), np.int64), np.random.default_rng([seed, 6])
    engine, parts = Engine(model), np.array_split(marks, -(-len(marks) // BATCH))
    seen = np.concatenate([engine.maps(u0_from_digits(part))["UC3"] for part in parts])
    maps = np.ascontiguousarray(seen.transpose(0, 2, 3, 1))  # (N, 13, 13, K3)
    with one_blas_thread():  # sums over as many threads as there are cores differ by their number
        learned, _ = selforganise.compete_within_labels(maps, none, model.spec.s[3], reject, rng)
    s4 = replace(model.s[3], reference=np.concatenate([model.s[3].reference, learned]))
    own = np.full(len(learned), REJECT, dtype=np.int64)
    return replace(model, s=(*model.s[:3], s4), labels=np.concatenate([model.labels, own]))


def described(recipe: Recipe, digits: str, *, seed: int, reject: int) -> dict[str, Any]:
    """Return what a start follows from, as its card tells it; ``digits`` is a mix's digest."""
    told = {"recipe": asdict(recipe), "seed": seed, "reject": reject, "learned_from": digits}
    known: dict[str, Any] = json.loads(to_json(told))
    return known
