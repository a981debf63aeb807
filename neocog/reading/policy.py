"""When an answer is rejected: "?"; what numbers may be: their form, lists of them."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from neocog.errors import UsageError
from neocog.network.automaton import permitted
from neocog.network.decision import Answers
from neocog.network.lines import ALPHABET
from neocog.text import reason_of

if TYPE_CHECKING:
    from neocog.network.model import Model

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

        The card may hold ``reading`` (values of this class) and ``rejection``, for ``max_error``: a table of
        isolated digits (:func:`neocog.learning.calibrate.risk_table`), of a line model one of numbers.
        """
        if min_p is not None and max_error is not None:
            raise UsageError("min_p and max_error set the same threshold; give one of them")
        reading = model.card.get("reading", {})
        usual = cls(**{name: reading[name] for name in cls.__slots__ if name in reading})
        if max_error is not None:
            min_p = max(usual.min_p, threshold_for(model, max_error))
        return usual if min_p is None else cls(min_p)

    def reason(self, answers: Answers, index: int) -> str | None:
        """Why an answer is rejected, or None if it stands."""
        if answers.label[index] < 0:
            return "not a digit" if answers.margin[index] > 0 else "no response"
        if answers.p[index] >= self.min_p:
            return None
        # the second response may be that of planes that reject, which the scores do not have
        first, second = np.sort(answers.score[index])[:-3:-1]
        is_digit = first - second <= answers.margin[index] * (1 + 1e-4) + 1e-6
        return "two answers" if is_digit else "not a digit"


@dataclass(frozen=True, slots=True)
class Pattern:
    """The form of a line, such as ``##/##/####`` or ``#.###,##``: a # for each digit; or DD/MM/YYYY.

    UsageError if it is neither, or there are digits or line ends among the other characters.
    """

    form: str

    def __post_init__(self) -> None:
        if any(char.isdigit() for char in self.form):
            raise UsageError(f"pattern {self.form!r}: a pattern cannot hold digits; write # for each digit")
        permitted([self.form])

    @property
    def digits(self) -> int:
        """How many digits a text of this form has."""
        return self.form.count("#") or sum(map(self.form.count, "DMY"))

    def fits(self, text: str) -> bool:
        """Whether a text has the form, wherever spaces stand."""
        read = "".join(char for char in text if char in ALPHABET and char != " ")
        known = permitted([self.form.replace(" ", "")])
        return bool(known and known.accepts(read))


def read_valid(path: str | Path) -> tuple[str, ...]:
    """Return the numbers that a file lists, one a line; UsageError if it cannot be read or is too large."""
    wanted = "expected a file with the numbers that may occur, one on each line; give another --valid"
    try:
        if Path(path).is_fifo():  # it may never end
            raise UsageError(f"{path}: is a pipe, {wanted}")
        with open(path, "rb") as stream:
            data = stream.read(MAX_VALID + 1)
        if len(data) > MAX_VALID:
            raise UsageError(f"{path}: more than {MAX_VALID >> 20} MiB of valid numbers; list fewer")
        numbers = tuple(filter(None, map(str.strip, data.decode("utf-8-sig").splitlines())))
        if numbers and b"\0" not in data:
            return numbers
        why = "holds zero bytes" if numbers else "is empty"
    except UnicodeDecodeError:
        why = "is not UTF-8 text"
    except (OSError, ValueError) as error:  # a zero byte in its name
        why = f"cannot be opened ({reason_of(error).lower()})"
    raise UsageError(f"{path}: {why}, {wanted}")


def threshold_for(model: "Model", max_error: float) -> float:
    """Return the lowest probability from which at most so many answers are wrong, as the model's table says.

    UsageError if its card has no table, or no row of it bears so few errors: of a few thousand answers,
    none wrong does not mean that none ever is.
    """
    if not 0 < max_error < 1:
        raise UsageError(f"max_error {max_error}: expected a share between 0 and 1, e.g. 0.01")
    rows = model.card.get("rejection", {}).get("table", [])
    if not rows:
        raise UsageError(f"{model.name}: its card has no table of errors; give min_p instead of max_error")
    good = [row["p"] for row in rows if row["error"] <= max_error]
    if not good:
        least = math.ceil(1e4 * min(row["error"] for row in rows)) / 100  # such a bound can be had
        why = f"model {model.name} can promise no fewer wrong answers than {least:.4g}%"
        raise UsageError(f"max_error {100 * max_error:.4g}%: {why}; give {least:.4g}% or more")
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
