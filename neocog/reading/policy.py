"""What finder and digit network say together; when an answer is rejected: "?"; what lines look like."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neocog.errors import UsageError
from neocog.network.ctc import Automaton
from neocog.network.decision import Answers, all_scores
from neocog.network.lines import ALPHABET
from neocog.text import reason_of
from neocog.vision.finder import SURE

if TYPE_CHECKING:
    from neocog.network.model import Model
    from neocog.vision.search import Mark
    from neocog.vision.weigh import Weights

NO_RESPONSE = "no response"
TWO_ANSWERS = "two answers"
NOT_A_DIGIT = "not a digit"
PLACE = "#"
"""A digit in a `Pattern`."""

MAX_VALID = 2**22
"""Bytes of a list of valid numbers."""


@dataclass(frozen=True, slots=True)
class Policy:
    """When an answer is rejected: below the probability ``min_p``."""

    min_p: float = 0.4

    def __post_init__(self) -> None:
        if not 0.0 <= self.min_p <= 1.0:
            raise UsageError(f"min_p {self.min_p}: expected a probability, 0 (keep all) to 1")

    @classmethod
    def of(cls, model: "Model", *, min_p: float | None = None, max_error: float | None = None) -> "Policy":
        """Return what a model's card says, or what is asked for instead; UsageError if both are.

        The card may hold ``reading`` (values of this class) and ``rejection``, the table of
        :func:`neocog.learning.calibrate.risk_table`, for ``max_error``: see `threshold_for`.
        """
        if min_p is not None and max_error is not None:
            raise UsageError("min_p and max_error set the same threshold; give one of them")
        reading = model.card.get("reading", {})
        usual = cls(**{name: reading[name] for name in cls.__slots__ if name in reading})
        if max_error is not None:
            min_p = max(usual.min_p, threshold_for(model.card, max_error))
        return usual if min_p is None else cls(min_p)

    def reason(self, answers: Answers, index: int) -> str | None:
        """Why an answer is rejected, or None if it stands."""
        if answers.label[index] < 0:
            return NOT_A_DIGIT if answers.margin[index] > 0 else NO_RESPONSE
        if answers.p[index] >= self.min_p:
            return None
        # the second response may be that of planes that reject, which the scores do not have
        first, second = np.sort(answers.score[index])[:-3:-1]
        is_digit = first - second <= answers.margin[index] * (1 + 1e-4) + 1e-6
        return TWO_ANSWERS if is_digit else NOT_A_DIGIT


@dataclass(frozen=True, slots=True)
class Pattern:
    """The form of a line, such as ``##-####``: a # for each digit.

    Other characters stand in the text as they are; they are not looked for in the picture, where dashes and
    dots are no digits anyway. UsageError if there is no ``#``, or there are digits or line ends among them.
    """

    form: str

    def __post_init__(self) -> None:
        if PLACE not in self.form:
            raise UsageError(f"pattern {self.form!r}: expected a # for each digit, such as ##-####")
        if any(char.isdigit() or not char.isprintable() for char in self.form):
            raise UsageError(f"pattern {self.form!r}: a pattern cannot hold digits; write # for each digit")

    @property
    def digits(self) -> int:
        return self.form.count(PLACE)

    def fits(self, chars: Sequence[str]) -> bool:
        """Whether a line of so many characters, ``?`` among them, has the form."""
        return len(chars) == self.digits

    def fill(self, chars: Sequence[str]) -> str:
        """Return the line with the fixed characters in it; as it is where it does not fit."""
        if not self.fits(chars):
            return "".join(chars)
        rest = iter(chars)
        return "".join(next(rest) if char == PLACE else char for char in self.form)


class LinePattern(Pattern):
    """A `Pattern` whose other characters are read as digits are, such as ``##/##/####`` or ``#.###,##``."""

    __slots__ = ()

    def fits(self, chars: Sequence[str]) -> bool:
        """Whether a line has the form, wherever spaces stand."""
        read = "".join(char for char in "".join(chars) if char in ALPHABET and char != " ")
        return Automaton([self.form.replace(" ", "")]).accepts(read)

    def fill(self, chars: Sequence[str]) -> str:
        """Return the line as it is: its signs were read."""
        return "".join(chars)


def read_valid(path: str | Path) -> tuple[str, ...]:
    """Return the numbers that a file lists, one a line; UsageError if it cannot be read or is too large."""
    try:
        if Path(path).is_fifo():  # it may never end
            raise UsageError(f"{path}: no file of valid numbers, one a line; give another --valid")
        with open(path, "rb") as stream:
            data = stream.read(MAX_VALID + 1)
        if len(data) > MAX_VALID:
            raise UsageError(f"{path}: more than {MAX_VALID >> 20} MiB of valid numbers; list fewer")
        if b"\0" not in data:
            return tuple(filter(None, map(str.strip, data.decode("utf-8-sig").splitlines())))
        why = "not text"
    except UnicodeDecodeError:
        why = "not UTF-8 text"
    except OSError as error:
        why = reason_of(error).lower()
    raise UsageError(f"{path}: no list of valid numbers, one a line ({why}); give another --valid")


def features(found: Answers, model: "Model", guesses: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return what the digit network says of places, (B, 3), see `neocog.vision.weigh.NETWORK`.

    These are log odds of the best digit and the second, of any digit and none, and the logarithm of
    how probably finder and network take it for the same digit. ``guesses`` (B, 10) are log
    probabilities of the digits by the finder.
    """
    rows = np.ascontiguousarray(found.score)  # in another order of memory, sums differ in the last bit
    score = all_scores(replace(found, score=rows), model) / model.temperature
    digits, none = score[:, :-1], score[:, -1]
    first, second = np.sort(digits, axis=1)[:, :-3:-1].T
    any_digit = np.logaddexp.reduce(digits, axis=1)
    same = np.logaddexp.reduce(digits - any_digit[:, None] + guesses, axis=1)
    told = np.minimum(first - second, SURE), np.clip(any_digit - none, -SURE, SURE), np.maximum(same, -SURE)
    return np.stack(told, axis=1)


def weighed(found: Answers, model: "Model", places: "Sequence[Mark]", weights: "Weights") -> Answers:
    """Return answers whose label and probability count what the finder and the page say of places.

    Also where the network alone would have said that it is none, the label is that of the likeliest
    digit, with a margin of 0; a place without any response stays without an answer. The probability
    is that the place holds this digit, and at most that none beside it was left out.
    """
    guesses = np.stack([place.guesses for place in places])
    score = combined(found, model, guesses, weights)
    best = 1 / np.exp(score - score.max(axis=1, keepdims=True)).sum(axis=1)
    silent = (found.label < 0) & (found.margin <= 0)
    p = np.minimum(best * [place.p for place in places], [place.whole for place in places])
    return Answers(
        np.where(silent, -1, score.argmax(axis=1)).astype(np.int64),
        found.score,
        np.where((found.label < 0) & ~silent, 0, found.margin).astype(found.margin.dtype),
        np.where(silent, 0.0, p).astype(np.float32),
    )


def combined(
    found: Answers, model: "Model", guesses: NDArray[np.floating], weights: "Weights"
) -> NDArray[np.float64]:
    """Return log probabilities of the digits by network and finder, but for a constant, (B, 10)."""
    score = weights.trust * found.score.astype(np.float64) / model.temperature
    return np.asarray(score + weights.guess * guesses)


def threshold_for(card: Mapping[str, Any], max_error: float) -> float:
    """Return the lowest probability from which errors are at most so frequent.

    Errors are those of digits that the model was not learned from, one counted more than were
    seen: of a few thousand digits, none wrong does not mean that none ever is. UsageError if the
    card has no table, or no row of it is so good.
    """
    if not 0 < max_error < 1:
        raise UsageError(f"max_error {max_error}: expected a share between 0 and 1, e.g. 0.001")
    rows = card.get("rejection", {}).get("table", [])
    if not rows:
        raise UsageError("the model's card has no table of errors; give min_p instead of max_error")
    good = [row["p"] for row in rows if row["error"] <= max_error]
    if not good:
        least = min(row["error"] for row in rows)
        raise UsageError(
            f"max_error {100 * max_error:.4g}%: the model's table has no error rate below "
            f"{least:.3%}; ask for that or more"
        )
    return float(min(good))


def parse_share(words: str) -> float:
    """Read a share as it is given on the command line: ``0.1%`` or ``0.001``.

    >>> parse_share("0.1%")
    0.001
    """
    number, percent, rest = words.strip().partition("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = -1.0
    if rest or not 0 <= share <= 1:
        raise UsageError(f"{words!r}: expected a share, such as 0.1% or 0.001")
    return share
