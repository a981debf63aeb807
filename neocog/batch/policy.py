"""When an answer is rejected and "?" stands in the text, and why."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neocog.batch.context import odds_of_page
from neocog.errors import UsageError
from neocog.network.spec import LABELS

if TYPE_CHECKING:
    from neocog.network.decision import Answers
    from neocog.network.model import Model

NO_RESPONSE = "no response"
TWO_ANSWERS = "two answers"
NOT_A_DIGIT = "not a digit"
NO_WRITING = "no writing"

_WRITING = 0.92  # `Policy.writing` of a network that takes every mark for a digit


@dataclass(frozen=True, slots=True)
class Policy:
    """When an answer is rejected.

    Attributes
    ----------
    min_p : float
        Answers of a lower probability are rejected.
    writing, many : float, int
        Where the median probability of at least so many marks of a page is lower, they are
        letters, a texture or a drawing, and all but clean numbers are rejected as ``no writing``.
        A strip is spared: who cuts one line out of a page knows what stands there.
    page_odds, strip_odds, cut_odds : float
        How frequent marks that are no digits are, as a multiple of what the network learned with:
        in the numbers of a page (its own marks shift that), in a strip, and among the ways to cut
        touching digits apart; see :mod:`neocog.batch.context`.
    """

    min_p: float = 0.4
    writing: float = 0.6
    many: int = 5
    page_odds: float = 0.3
    strip_odds: float = 0.01
    cut_odds: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.min_p <= 1.0:
            raise UsageError(f"min_p {self.min_p}: a probability is wanted, 0 (keep all) to 1")

    @classmethod
    def of(
        cls, model: "Model", *, min_p: float | None = None, max_error: float | None = None
    ) -> "Policy":
        """Return what a model's card says, or what is asked for instead.

        Parameters
        ----------
        model : Model
            Its card may hold ``reading`` (values of this class) and ``rejection`` (the table of
            :func:`neocog.learning.calibrate.risk_table`).
        min_p : float, optional
            Threshold instead of the card's.
        max_error : float, optional
            Largest share of wrong digits among those that are answered: takes the threshold from
            the card's table, if it is above the card's own.

        Raises
        ------
        UsageError
            If both are given, or the table shows no error as rare as that.
        """
        if min_p is not None and max_error is not None:
            raise UsageError("min_p and max_error set the same threshold; give one of them")
        reading = model.card.get("reading", {})
        known: dict[str, Any] = {"writing": _WRITING} if model.classes == LABELS else {}
        known |= {name: reading[name] for name in cls.__slots__ if name in reading}
        usual = cls(**known)
        if max_error is not None:
            min_p = max(usual.min_p, threshold_for(model.card, max_error))
        return usual if min_p is None else cls(**known | {"min_p": min_p})

    def odds(
        self, found: "Answers", model: "Model", runs: NDArray[np.int64]
    ) -> float | NDArray[np.float64]:
        """How frequent marks that are no digits are among those of a page.

        ``runs`` as :func:`neocog.batch.context.runs_of` numbers them.
        """
        return odds_of_page(found, model, self.page_odds, runs)

    def unwritten(self, p: NDArray[np.floating]) -> bool:
        """Whether the marks of a page are, by their probabilities, no digits."""
        if self.min_p == 0 or len(p) < self.many:
            return False
        return float(np.median(p)) < self.writing

    def reason(self, answers: "Answers", index: int) -> str | None:
        """Why an answer is rejected, or None if it stands."""
        if answers.label[index] < 0:
            return NOT_A_DIGIT if answers.margin[index] > 0 else NO_RESPONSE
        if answers.p[index] >= self.min_p:
            return None
        return TWO_ANSWERS if _rival_is_digit(answers, index) else NOT_A_DIGIT


def _rival_is_digit(answers: "Answers", index: int) -> bool:
    """Whether the second response is that of a digit, not of planes that reject."""
    first, second = np.sort(answers.score[index])[:-3:-1]
    return bool(first - second <= answers.margin[index] * (1 + 1e-4) + 1e-6)


def threshold_for(card: Mapping[str, Any], max_error: float) -> float:
    """Return the lowest probability from which errors are at most so frequent.

    Errors are those of digits that the model was not learned from, one counted more than were
    seen: of a few thousand digits, none wrong does not mean that none ever is.

    Raises
    ------
    UsageError
        If the card has no table, or no row of it is so good.
    """
    if not 0 < max_error < 1:
        raise UsageError(f"max_error {max_error}: wanted a share between 0 and 1, e.g. 0.001")
    rows = card.get("rejection", {}).get("table", [])
    if not rows:
        raise UsageError("the model's card has no table of errors; give min_p instead of max_error")
    good = [row["p"] for row in rows if row["error"] <= max_error]
    if not good:
        least = min(row["error"] for row in rows)
        raise UsageError(
            f"max_error {max_error:.3%}: the digits that the model was tried on show no error "
            f"rarer than {least:.3%}; give that or more"
        )
    return float(min(good))


def parse_share(words: str) -> float:
    """Read a share as it is given on the command line: ``0.1%`` or ``0.001``.

    >>> parse_share("0.1%")
    0.001

    Raises
    ------
    UsageError
        If it is neither.
    """
    number, percent, rest = words.strip().partition("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = -1.0
    if rest or not 0 <= share <= 1:
        raise UsageError(f"{words!r}: wanted a share, such as 0.1% or 0.001")
    return share
