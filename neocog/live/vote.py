"""Agreement of frames: a digit is what k of the last n frames saw."""

import re
from dataclasses import dataclass
from statistics import fmean

from neocog.batch.records import REJECTED
from neocog.errors import UsageError

Vote = tuple[str, float] | None
"""What one frame says of a digit: character and probability; None where it saw nothing."""

Votes = tuple[Vote, ...]
"""Of the last n frames, the newest last."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How many of how many frames must agree.

    Attributes
    ----------
    k, n : int
        k of the last n frames; more than half of them, so that no two answers can agree.
    """

    k: int = 3
    n: int = 5

    def __post_init__(self) -> None:
        if not 1 <= self.k <= self.n or 2 * self.k <= self.n:
            raise UsageError(
                f"agreement {self.k}/{self.n}: K/N is wanted, K of the last N frames, "
                "more than half of them"
            )

    @staticmethod
    def parse(text: str) -> "Agreement":
        """Read ``K/N``.

        Raises
        ------
        UsageError
            If it is something else.
        """
        match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text)
        if not match:
            raise UsageError(f"agreement '{text}': K/N is wanted, for example 3/5")
        return Agreement(int(match[1]), int(match[2]))

    def add(self, votes: Votes, vote: Vote) -> Votes:
        """Return votes with one more, those beyond n forgotten."""
        return (*votes, vote)[-self.n :]

    def present(self, votes: Votes) -> bool:
        """Whether k of the last n frames saw something there."""
        return sum(vote is not None for vote in votes) >= self.k

    def decide(self, votes: Votes) -> tuple[str, float]:
        """Return the character that k of the last n frames saw, and its mean probability.

        Returns
        -------
        char : str
            ``?`` until so many agree.
        p : float
            Mean probability over the frames that agree, 0 for ``?``.

        Examples
        --------
        >>> Agreement(2, 3).decide((("7", 0.9), ("1", 0.6), ("7", 0.7)))
        ('7', 0.8)
        """
        told: dict[str, list[float]] = {}
        for vote in votes:
            if vote is not None and vote[0] != REJECTED:
                told.setdefault(vote[0], []).append(vote[1])
        for char, p in told.items():
            if len(p) >= self.k:
                return char, round(fmean(p), 6)
        return REJECTED, 0.0
