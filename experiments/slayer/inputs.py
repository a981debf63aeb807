"""What the S-layers' experiments are fed with: networks of the paper's sizes, digits, maps."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.errors import NeocogError, UsageError
from neocog.network import reference
from neocog.network.engine import Engine
from neocog.network.model import Model, SWeights, load_model
from neocog.network.spec import REJECT
from neocog.network.u0 import made_digits, u0_from_digits

#: The S-layers, and the layer that each reads.
STAGES = {"US1": "UG", "US2": "UC1", "US3": "UC2", "US4": "UC3"}
#: K2/K3/K4 of the paper's networks (400 and 3000 digits learned), and whose planes stand in.
SIZES = {"26/78/70": "neocog-small", "39/110/103": "fukushima"}
#: Characters that the paper's figures are the mean of.
PAPER_DIGITS = 400


def sized(model: Model, planes: Sequence[int]) -> Model:
    """Return a network of K2, K3, K4 planes, taken evenly from a model's, repeated if too few."""
    layers, before = [model.s[0]], np.arange(len(model.s[0].reference))
    for i, (layer, count) in enumerate(zip(model.s[1:], planes, strict=True), start=1):
        there = np.arange(len(layer.reference)) if i < 3 else np.flatnonzero(model.labels != REJECT)
        evenly = np.arange(count) * len(there) // count
        kept = there[evenly if count <= len(there) else np.arange(count) % len(there)]
        x = np.ascontiguousarray(layer.reference[kept][:, before])
        layers.append(SWeights(x, layer.c, layer.threshold, layer.q))
        before = kept
    name = f"{model.name} {'/'.join(map(str, planes))}"
    s1, s2, s3, s4 = layers
    return replace(model, name=name, s=(s1, s2, s3, s4), labels=model.labels[before], version="")


def networks(sizes: Sequence[str] = tuple(SIZES)) -> dict[str, Model]:
    """Return networks by ``"K2/K3/K4"``, and models, by name or file, as they are."""
    found = {}
    for size in sizes:
        if re.fullmatch(r"[1-9]\d*(/[1-9]\d*){2}", size):
            model = load_model(SIZES.get(size, "neocog-small"))
            found[size] = sized(model, [int(k) for k in size.split("/")])
            continue
        try:
            found[Path(size).stem] = load_model(size)
        except NeocogError as error:
            wanted = f"expected K2/K3/K4, such as 26/78/70, or a model ({error})"
            raise UsageError(f"a network of size {size!r}, {wanted}") from None
    return found


def find_digits(data: Path | None, count: int) -> tuple[NDArray[np.uint8], str]:
    """Return digits (N, 28, 28) and what they are: MNIST's first, else made ones."""
    from neocog.learning.datasets import open_digits

    try:
        images = open_digits(str(data / "mnist") if data is not None else "mnist", split="train").images
    except (NeocogError, OSError):
        if data is not None:
            raise
        return made_digits(count, seed=7), f"{count} made digits (MNIST is not here)"
    return images[:count], f"the first {count} training digits of MNIST"


class Fed:
    """Maps of digits (N, 28, 28) in every layer; the S-layers' answers by the float64 equations."""

    def __init__(self, model: Model, digits: NDArray[np.uint8]) -> None:
        self.model, self.digits = model, digits

    @cached_property
    def maps(self) -> dict[str, NDArray[np.float32]]:
        """Every layer's maps (N, K, H, W) by the CPU engine."""
        return Engine(self.model).maps(u0_from_digits(self.digits))

    def before(self, stage: str) -> NDArray[np.float32]:
        """Return the maps that a stage reads."""
        return self.maps[STAGES[stage]]

    def want(self, stage: str, count: int) -> NDArray[np.float64]:
        """Return the stage's responses to the first digits' maps, float64 (count, K, H, W)."""
        return reference.layer(stage, self.before(stage)[:count].astype(np.float64), self.model)

    def heard(self) -> dict[str, float]:
        """Return the share of each S-layer's inputs that are not silent, and of all (Table 8)."""
        heard = {stage: self.maps[layer] > 0 for stage, layer in STAGES.items()}
        counts = sum(some.sum() for some in heard.values()) / sum(some.size for some in heard.values())
        return {stage: float(some.mean()) for stage, some in heard.items()} | {"all": float(counts)}


def error(got: NDArray[Any], want: NDArray[np.float64]) -> float:
    return float(np.abs(got - want).max() / max(float(np.abs(want).max()), 1e-30))
