"""Recipes: how a whole network learns, layer by layer, without gradients.

Each layer learns while the layers below respond at their recognition thresholds. A recipe is
data; :func:`train` follows it. The same recipe, digits and seed give the same model, on a CPU with
any number of cores.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.errors import UsageError
from neocog.learning import selforganise, top
from neocog.learning.calibrate import calibrated
from neocog.learning.edges import edge_references
from neocog.learning.mix import Mix
from neocog.learning.recipe import RECIPES, Recipe
from neocog.network.arrays import to_numpy
from neocog.network.decision import Decision
from neocog.network.engine import PART, Layers
from neocog.network.fields import bell, blur_kernel
from neocog.network.layers import CLayer, ContrastLayer, SLayer
from neocog.network.model import Model, SWeights
from neocog.network.parallel import ParallelMap, one_blas_thread
from neocog.network.spec import LABELS, NetworkSpec, SSpec, preset
from neocog.network.u0 import check_digits, u0_from_digits

__all__ = ["RECIPES", "Recipe", "score", "train", "train_family", "weights"]

Array = Any
Digits = NDArray[np.uint8]
Labels = NDArray[np.int64]
Progress = Callable[[str], Callable[[int, int], None]]
OnStage = Callable[[str, dict[str, Any]], None]

_BATCH = 64


def train(
    recipe: Recipe,
    images: Digits,
    labels: Labels,
    *,
    seed: int = 0,
    validation: Mix | None = None,
    progress: Progress | None = None,
    on_stage: OnStage | None = None,
    xp: Any = np,
) -> Model:
    """Learn a network from labelled digits.

    Parameters
    ----------
    recipe : Recipe
        How.
    images : ndarray of uint8, shape (N, 28, 28)
        Digits, ink 255 on paper 0.
    labels : ndarray of int, shape (N,)
        0 .. 9.
    seed : int
        Fixes the order of the digits and every other choice.
    validation : Mix, optional
        Digits kept apart, on which the scale of the probabilities and the table of errors at each
        threshold are set (:func:`neocog.learning.calibrate.calibrated`).
    progress : callable, optional
        Called with a stage's name; returns a callable that is told ``(done, total)``.
    on_stage : callable, optional
        Told each stage's name and figures when it is done.
    xp : module
        numpy or cupy: where to compute.

    Raises
    ------
    UsageError
        If it is no recipe, there are no digits, or not a label 0 .. 9 for each.
    InputError
        If the digits have another shape or type.
    """
    return next(
        train_family(
            (recipe,),
            images,
            labels,
            seed=seed,
            validation=validation,
            progress=progress,
            on_stage=on_stage,
            xp=xp,
        )
    )


def train_family(
    recipes: Sequence[Recipe],
    images: Digits,
    labels: Labels,
    *,
    seed: int = 0,
    validation: Mix | None = None,
    progress: Progress | None = None,
    on_stage: OnStage | None = None,
    table: bool = True,
    xp: Any = np,
) -> Iterator[Model]:
    """Learn several recipes that differ above UC3 only; US2 and US3 learn once.

    Yields the models :func:`train` would return for each recipe; parameters as there. Without
    ``table`` the temperature alone is set on the digits kept apart.
    """
    for recipe in recipes:
        if not isinstance(recipe, Recipe):
            raise UsageError(f"recipe {recipe!r} came; wanted a Recipe, such as RECIPES['neocog']")
    images, labels = _labelled(images, labels)
    if validation is not None:
        _labelled(validation.images, validation.labels)
    below = {replace(r, name="", about="", rule="strongest", **_TOP_DEFAULTS) for r in recipes}
    if len(below) != 1:
        raise UsageError("the recipes of a family must agree in everything below US4")
    training = _Training(recipes[0], seed, progress, on_stage, xp)
    order = np.random.default_rng(seed).permutation(len(images))
    images, labels = images[order], labels[order]
    with one_blas_thread():
        training.learn_below(images)
        maps = training.all_maps(images, "US4")
    for recipe in recipes:
        with one_blas_thread():
            model = training.model(recipe, maps, labels)
        if validation is not None:
            model = training.calibrated(model, validation, table=table)
        yield model


def _labelled(images: Digits, labels: Labels) -> tuple[Digits, Labels]:
    """Return digits and their labels as arrays, once it is sure that each has one."""
    images, labels = np.asarray(images), np.asarray(labels)
    check_digits(images)
    if not len(images) or labels.shape != images.shape[:1]:
        count = len(labels) if labels.ndim == 1 else labels.shape
        raise UsageError(f"{len(images)} digits and {count} labels came; wanted one each")
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= LABELS:
        ends = f"{labels.min()} to {labels.max()}" if labels.dtype.kind in "iuf" else "no numbers"
        raise UsageError(f"labels came as {labels.dtype}, {ends}; wanted whole numbers, 0 to 9")
    return images, labels.astype(np.int64)


_TOP_DEFAULTS: dict[str, Any] = {
    "top": "supervised",
    "passes": 1,
    "per_label": 1,
    "top_threshold": None,
}


class _Training:
    """One run of a recipe: the layers learned so far, bottom up."""

    def __init__(
        self,
        recipe: Recipe,
        seed: int,
        progress: Progress | None,
        on_stage: OnStage | None,
        xp: Any,
    ) -> None:
        self.recipe, self.seed, self.xp = recipe, seed, xp
        self.spec: NetworkSpec = preset(recipe.preset)
        self._progress = progress or (lambda what: lambda done, total: None)
        self._on_stage = on_stage or (lambda name, figures: None)
        self._layers: list[Any] = [ContrastLayer(self.spec.contrast, xp)]
        self._weights: list[SWeights] = []
        b1, b2, b3 = (blur_kernel(c).astype(np.float32) for c in self.spec.c)
        self.blurs = (b1, b2, b3)

    def learn_below(self, images: Digits) -> None:
        """US1 from edges, US2 and US3 from the first of the digits."""
        self._keep(0, edge_references(self.spec))
        self._on_stage("US1", {"planes": self.spec.orientations})
        for stage in (1, 2):
            self._learn_middle(stage, images[: self.recipe.middle_digits])

    def _learn_middle(self, stage: int, images: Digits) -> None:
        recipe, spec = self.recipe, self.spec.s[stage]
        rule = {
            "winning": selforganise.learn_by_winning,
            "silent": selforganise.learn_if_silent,
        }[recipe.middle]
        threshold = recipe.thresholds[stage - 1] if recipe.thresholds else spec.learning_threshold
        assert threshold is not None
        planes = rule(
            self._digit_by_digit(images, f"US{stage + 1}"),
            spec,
            threshold=threshold,
            cut=recipe.cut,
            limit=recipe.limits[stage - 1] if recipe.limits else None,
        )
        if not len(planes):
            raise UsageError("the digits are blank: no cell responds to them; give digits with ink")
        self._keep(stage, np.ascontiguousarray(to_numpy(planes.references())))
        self._on_stage(f"US{stage + 1}", {"planes": len(planes), "digits": len(images)})

    def model(self, recipe: Recipe, maps: Array, labels: Labels) -> Model:
        """Learn US4 by ``recipe`` on maps of UC3 and return the whole network."""
        found = self._learn_top(recipe, maps, labels)
        self._on_stage("US4", {"planes": len(found.labels), "digits": len(maps)})
        s4 = weights(self.spec.s[3], found.references)
        if recipe.top_threshold is not None:
            s4 = replace(s4, threshold=recipe.top_threshold)
        s1, s2, s3 = self._weights
        return Model(
            name=recipe.name,
            spec=self.spec,
            s=(s1, s2, s3, s4),
            blurs=self.blurs,
            labels=found.labels,
            psi=self.spec.psi,
            rule=recipe.rule,
            gains=found.gains,
            card={"recipe": asdict(recipe), "seed": self.seed, "digits": len(maps)},
        )

    def _learn_top(self, recipe: Recipe, maps: Array, labels: Labels) -> top.Top:
        spec = self.spec.s[3]
        rng = np.random.default_rng([self.seed, 4])
        if recipe.top == "every":
            return top.every_view(maps, labels, spec)
        if recipe.top == "competition":
            return top.compete_within_labels(
                maps, labels, spec, per_label=recipe.per_label, rng=rng
            )
        if recipe.top == "delta":
            threshold = recipe.top_threshold or spec.threshold
            return top.learn_by_delta_rule(maps, labels, spec, threshold=threshold, rng=rng)
        assert spec.learning_threshold is not None
        return top.learn_supervised(
            maps, labels, spec, threshold=spec.learning_threshold, passes=recipe.passes
        )

    def calibrated(self, model: Model, kept: Mix, *, table: bool) -> Model:
        """Set the model's probabilities on digits kept apart, and tell of it."""
        tell = self._progress("validation")
        model = calibrated(model, kept, table=table, xp=self.xp, tell=tell)
        right = model.card["validation_accuracy"]
        self._on_stage("UC4", {"validation": right, "temperature": model.temperature})
        return model

    def _keep(self, stage: int, references: NDArray[np.float32]) -> None:
        """Put a learned S-layer, at its recognition threshold, and its C-layer into the pass."""
        spec, xp = self.spec, self.xp
        self._weights.append(weights(spec.s[stage], references))
        size = spec.size("UG" if stage == 0 else f"UC{stage}")
        s = SLayer(spec.s[stage], self._weights[stage], size, xp)
        c = CLayer(spec.c[stage], self.blurs[stage], s.out, spec.psi, xp)
        self._layers += [s, c]

    def _batches(self, images: Digits, what: str) -> Iterator[Array]:
        """Maps of the highest layer learned so far, batch by batch."""

        def run(part: Digits) -> Array:
            u = self.xp.asarray(u0_from_digits(part))
            for layer in self._layers:
                u = layer(u).tight()
            return u.full()

        tell = self._progress(what)
        for start in range(0, len(images), _BATCH):
            batch = images[start : start + _BATCH]
            yield _in_parallel(run, batch, self.xp)
            tell(start + len(batch), len(images))

    def _digit_by_digit(self, images: Digits, what: str) -> Iterator[Array]:
        """Maps of one digit after another, on the host: small steps, faster there than on a GPU."""
        for batch in self._batches(images, what):
            yield from to_numpy(batch)

    def all_maps(self, images: Digits, what: str) -> Array:
        """Maps of the highest layer learned so far, for all digits."""
        maps: Array = None
        start = 0
        for u in self._batches(images, what):
            if maps is None:
                maps = self.xp.empty((len(images), *u.shape[1:]), dtype=np.float32)
            maps[start : start + len(u)] = u
            start += len(u)
        return maps


def score(
    model: Model, images: Digits, xp: Any = np, tell: Callable[[int, int], None] | None = None
) -> NDArray[np.float32]:
    """Return a model's scores for isolated digits, (N, 10), computed on NumPy or CuPy."""
    layers, decision = Layers(model, xp), Decision(model, xp)

    def run(part: Digits) -> Array:
        return layers(xp.asarray(u0_from_digits(part)))

    parts = []
    with one_blas_thread():
        for start in range(0, len(images), _BATCH):
            batch = images[start : start + _BATCH]
            parts.append(to_numpy(decision.scores(_in_parallel(run, batch, xp))))
            if tell:
                tell(start + len(batch), len(images))
    return np.concatenate(parts)


def _in_parallel(run: Callable[[Digits], Array], batch: Digits, xp: Any) -> Array:
    """Run a batch on all cores where it is computed on the host, at once where on a GPU."""
    if xp is not np:
        return run(batch)
    parts = [batch[i : i + PART] for i in range(0, len(batch), PART)]  # on any machine the same
    return np.concatenate(_parallel()(run, parts))


@cache
def _parallel() -> ParallelMap:
    return ParallelMap()


def weights(spec: SSpec, references: NDArray[np.float32]) -> SWeights:
    """Return an S-layer's weights at the constants of its architecture."""
    c = bell(spec.kernel, spec.c).astype(np.float32)
    return SWeights(references, c, spec.threshold, spec.q)
