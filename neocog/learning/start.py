"""The self-organised network that gradient learning starts from, with planes that reject."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from neocog.errors import UsageError
from neocog.jsontext import to_json
from neocog.learning import top
from neocog.learning.checkpoint import check_same
from neocog.learning.mix import Mix
from neocog.learning.negatives import negatives
from neocog.learning.recipes import STARTS, Progress, Recipe, train
from neocog.network.engine import Engine
from neocog.network.model import Model, from_bytes, load_model, to_bytes
from neocog.network.parallel import one_blas_thread
from neocog.network.registry import find_model
from neocog.network.spec import LABELS, REJECT
from neocog.network.u0 import u0_from_digits

#: Digits that a start learns from, and marks that are none for its rejecting planes.
DIGITS, MARKS = 4000, 1500
_BATCH = 64


def recipe_of(name: str, planes: str | None = None) -> Recipe:
    """Return a start's recipe, one of ``STARTS``, with other plane counts if they are given.

    ``planes`` is K2/K3/K4, e.g. ``"40/160/100"``; K4 is a multiple of 10. UsageError if there is
    no such recipe, or the counts make no sense.
    """
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
    recipe: Recipe,
    mix: Mix,
    *,
    seed: int = 0,
    reject: int = 0,
    count: int = DIGITS,
    progress: Progress | None = None,
) -> Model:
    """Learn the start without gradients, on the CPU: the same seed, the same start on any cores.

    It learns from ``count`` digits of the mix, chosen by the seed and the sets' weights. ``reject``
    planes of US4 answer to what is no digit; they start from marks that are none. ``progress`` is
    that of :func:`neocog.learning.recipes.train`.
    """
    if len(mix.hands) > 1:
        digits = mix.some(count, seed=seed)
        images, labels = digits.images, digits.labels
    else:
        chosen = np.random.default_rng([seed, 5]).permutation(len(mix))[:count]
        images, labels = mix.images[chosen], mix.labels[chosen]
    model = train(recipe, images, labels, seed=seed, progress=progress)
    told = described(recipe, mix.digest, seed=seed, reject=reject)
    model = replace(model, card=model.card | told)
    if not reject:
        return model
    marks = negatives(min(MARKS, 4 * count), images, labels, seed=seed)[0]
    none, rng = np.zeros(len(marks), np.int64), np.random.default_rng([seed, 6])
    engine, parts = Engine(model), np.array_split(marks, -(-len(marks) // _BATCH))
    seen = np.concatenate([engine.maps(u0_from_digits(part))["UC3"] for part in parts])
    maps = np.ascontiguousarray(seen.transpose(0, 2, 3, 1))  # (N, 13, 13, K3)
    with one_blas_thread():  # sums over as many threads as there are cores differ by their number
        found = top.compete_within_labels(maps, none, model.spec.s[3], per_label=reject, rng=rng)
    s4 = replace(model.s[3], reference=np.concatenate([model.s[3].reference, found.references]))
    own = np.full(len(found.labels), REJECT, dtype=np.int64)
    return replace(model, s=(*model.s[:3], s4), labels=np.concatenate([model.labels, own]))


def described(recipe: Recipe, digits: str, *, seed: int, reject: int) -> dict[str, Any]:
    """Return what a start follows from, as its card tells it; ``digits`` is a mix's digest."""
    told = {"recipe": asdict(recipe), "seed": seed, "reject": reject, "learned_from": digits}
    known: dict[str, Any] = json.loads(to_json(told))
    return known


def start_of_run(
    place: Path | None,
    named: str | None,
    recipe: Recipe,
    mix: Mix,
    *,
    seed: int,
    reject: int,
    progress: Progress | None = None,
) -> tuple[Model, bytes]:
    """Return what a run begins with, and its file: one kept at ``place``, one named, or a new one.

    UsageError if the one that is kept is another; the message names the file.
    """
    model = load_model(named) if named is not None else None
    if place is None or not place.exists():
        if named is not None and model is not None:
            return model, find_model(named).read_bytes()
        made = start_model(recipe, mix, seed=seed, reject=reject, progress=progress)
        data = to_bytes(made)
        return from_bytes(data, source=recipe.name), data
    kept = load_model(place)
    if model is not None and kept.id != model.id:
        raise UsageError(
            f"{place} is {kept.id}, not {model.id}; give the options of the run there, or another "
            "--checkpoints"
        )
    if model is None and "finetuning" in kept.card:
        raise UsageError(
            f"{place} is {kept.id}, a model trained by gradient, not a new start; give the --start "
            "of the run in that folder, or another folder"
        )
    if model is None:
        given = described(recipe, mix.digest, seed=seed, reject=reject)
        check_same(place, {name: kept.card.get(name) for name in given}, given)
    return kept, place.read_bytes()
