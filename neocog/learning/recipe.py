"""A recipe: the rule of each layer and its parameters; those that have a name."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from neocog.errors import UsageError
from neocog.network.model import Rule
from neocog.network.spec import PRESETS

MiddleRule = Literal["winning", "silent"]
TopRule = Literal["supervised", "every", "competition", "delta"]

_NAMES: dict[str, tuple[str, ...]] = {
    "preset": PRESETS,
    "middle": get_args(MiddleRule),
    "top": get_args(TopRule),
    "rule": get_args(Rule),
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to learn without gradients; ``experiments/learning/curve.py`` compares those by name.

    Raises
    ------
    UsageError
        If a value makes no sense.
    """

    name: str
    about: str
    preset: str = "fukushima2003"  #: architecture, one of :data:`neocog.network.spec.PRESETS`
    middle: MiddleRule = "winning"  #: rule of US2, US3: Fukushima 2003, or add-if-silent (2013)
    top: TopRule = "supervised"  #: rule of US4
    rule: Rule = "strongest"  #: how UC4 is read; "linear" where the top is "delta", and only there
    thresholds: tuple[float, float] | None = None  #: learning thresholds of US2, US3; the preset's
    limits: tuple[int, int] | None = None  #: planes at which US2, US3 stop; learning decides
    middle_digits: int = 3000  #: digits (the first ones, in the seed's order) for US2 and US3
    cut: float = 0.55  #: share of the seed-selecting plane's maximum that counts as nothing
    passes: int = 4  #: times the digits are shown (top "supervised")
    per_label: int = 20  #: planes of each label (top "competition")
    top_threshold: float | None = None  #: recognition threshold of US4; the preset's

    def __post_init__(self) -> None:
        for name, known in _NAMES.items():
            self._want(name, getattr(self, name) in known, f"one of {', '.join(known)}")
        both = (self.rule == "linear") == (self.top == "delta")
        self._want("rule", both, f"'linear' with top 'delta' and only there; top is {self.top!r}")
        for name in ("middle_digits", "passes", "per_label"):
            self._want(name, _is_count(getattr(self, name)), "a whole number, 1 or more")
        self._want("cut", _is_share(self.cut, 0.0), "a number, 0 to below 1")
        top = self.top_threshold
        self._want("top_threshold", top is None or _is_share(top), "a number between 0 and 1")
        for name, right, wanted in (
            ("thresholds", _is_share, "two numbers between 0 and 1, of US2 and US3"),
            ("limits", _is_count, "two whole numbers, 1 or more, of US2 and US3"),
        ):
            values = getattr(self, name)
            if values is not None:
                pair = tuple(values) if isinstance(values, list | tuple) else ()
                self._want(name, len(pair) == 2 and all(map(right, pair)), wanted)
                object.__setattr__(self, name, pair)  # cards hold lists

    def _want(self, name: str, right: bool, wanted: str) -> None:
        if not right:
            came = f"{name} {getattr(self, name)!r}"
            raise UsageError(f"recipe {self.name!r}: {came}, expected {wanted}")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_share(value: Any, least: float = 1e-6) -> bool:
    return isinstance(value, int | float) and least <= value < 1


def _by_name(*recipes: Recipe) -> dict[str, Recipe]:
    return {recipe.name: recipe for recipe in recipes}


#: Every recipe without gradients by name.
RECIPES = _by_name(
    Recipe("fukushima2003", "the published rules of 2003 as they stand"),
    Recipe(
        "fukushima",
        "the published rules of 2003, at the published 39/110 planes of US2, US3",
        limits=(39, 110),
    ),
    Recipe(
        "ikeda2011",
        "the network of Ikeda et al. 2011: 16/26/78/70 planes, no surrounds",
        preset="ikeda2011",
        top="competition",
        thresholds=(0.85, 0.9),  # at which as many planes are learned
        limits=(26, 78),
        per_label=7,
    ),
    Recipe("nearest", "US2, US3 of 2003; every digit a plane of US4", top="every"),
    Recipe("intvec", "the same, read by interpolating pairs (2013)", top="every", rule="pairs"),
    Recipe("triples", "the same, read by interpolating triples", top="every", rule="triples"),
    Recipe(
        "silent",
        "add-if-silent (2013) below, no surrounds; every digit a plane, interpolating pairs",
        preset="neocog",
        middle="silent",
        top="every",
        rule="pairs",
        thresholds=(0.75, 0.82),
        limits=(100, 300),
    ),
    Recipe(
        "delta",
        "US2, US3 of 2003; a linear top by the delta rule",
        top="delta",
        rule="linear",
        top_threshold=0.001,
    ),
    Recipe(
        "neocog",
        "26/78 planes by the rules of 2003; 30 planes a label compete; interpolating pairs",
        top="competition",
        rule="pairs",
        limits=(26, 78),
        per_label=30,
    ),
    Recipe(
        "neocog-small",
        "the same with the papers' 16/26/78/70 planes: 7 a label",
        top="competition",
        rule="pairs",
        limits=(26, 78),
        per_label=7,
    ),
)

_START: dict[str, Any] = {"preset": "neocog", "middle": "silent", "top": "competition"}

#: What gradient learning starts from, by name.
STARTS = _by_name(
    Recipe(
        "finetuned",
        "40/160/100 planes by add-if-silent and competition, then by gradient (needs PyTorch)",
        thresholds=(0.74, 0.79),
        limits=(40, 160),
        per_label=10,
        **_START,
    ),
    Recipe(
        "finetuned-small",
        "the same with the papers' 16/26/78/70 planes",
        thresholds=(0.72, 0.76),
        limits=(26, 78),
        per_label=7,
        **_START,
    ),
)
