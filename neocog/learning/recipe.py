"""A recipe: the rule of each layer and its parameters; those that have a name."""

from collections.abc import Callable
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
    """How to learn.

    Parameters
    ----------
    name, about : str
        What it is called, and what it is in a line.
    preset : str
        Architecture, one of :data:`neocog.network.spec.PRESETS`.
    middle : {"winning", "silent"}
        Rule of US2 and US3: Fukushima 2003, or add-if-silent (2013).
    top : {"supervised", "every", "competition", "delta"}
        Rule of US4.
    rule : {"strongest", "pairs", "triples", "linear"}
        How UC4 is read; "linear" where the top is "delta", and only there.
    thresholds : tuple of 2 float, optional
        Learning thresholds of US2 and US3; those of the preset by default.
    limits : tuple of 2 int, optional
        Planes at which US2 and US3 stop growing; learning decides by default.
    middle_digits : int
        Digits (the first ones, in the seed's order) that US2 and US3 learn from.
    cut : float
        Share of the seed-selecting plane's maximum that counts as nothing (US2, US3).
    passes : int
        Times the digits are shown (top "supervised").
    per_label : int
        Planes of each label (top "competition").
    top_threshold : float, optional
        Recognition threshold of US4; the preset's by default.

    Raises
    ------
    UsageError
        If a value makes no sense.
    """

    name: str
    about: str
    preset: str = "fukushima2003"
    middle: MiddleRule = "winning"
    top: TopRule = "supervised"
    rule: Rule = "strongest"
    thresholds: tuple[float, float] | None = None
    limits: tuple[int, int] | None = None
    middle_digits: int = 3000
    cut: float = 0.55
    passes: int = 4
    per_label: int = 20
    top_threshold: float | None = None

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
        self._want_pair("thresholds", _is_share, "two numbers between 0 and 1, of US2 and US3")
        self._want_pair("limits", _is_count, "two whole numbers, 1 or more, of US2 and US3")

    def _want(self, name: str, right: bool, wanted: str) -> None:
        if not right:
            came = f"{name} {getattr(self, name)!r}"
            raise UsageError(f"recipe {self.name!r}: {came}; wanted {wanted}")

    def _want_pair(self, name: str, right: Callable[[Any], bool], wanted: str) -> None:
        values = getattr(self, name)
        if values is None:
            return
        pair = tuple(values) if isinstance(values, list | tuple) else ()
        self._want(name, len(pair) == 2 and all(map(right, pair)), wanted)
        object.__setattr__(self, name, pair)  # cards hold lists


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_share(value: Any, least: float = 1e-6) -> bool:
    return isinstance(value, int | float) and least <= value < 1


_ALL = (
    Recipe("fukushima2003", "the published rules of 2003 as they stand"),
    Recipe(
        "fukushima",
        "the published rules of 2003, at the published 39/110 planes of US2, US3",
        limits=(39, 110),
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

#: Every recipe by name.
RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in _ALL}
