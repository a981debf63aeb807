"""Which texts may be announced: of one length, or of one pattern."""

from dataclasses import dataclass

from neocog.batch.records import REJECTED
from neocog.errors import UsageError

ANY = "#"
"""Stands for any digit in a pattern."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a number looks like.

    Attributes
    ----------
    pattern : str or None
        ``#`` for any digit, a digit for itself; blanks and signs are not read, and count for
        nothing. None: any number.
    least : int
        Digits that it has at least.
    """

    pattern: str | None = None
    least: int = 1

    def __post_init__(self) -> None:
        if self.pattern is not None and not self.places:
            raise UsageError(f"pattern '{self.pattern}': wanted # for each digit, like '####-##'")

    @property
    def places(self) -> str:
        """The pattern without what is not read."""
        return "".join(c for c in self.pattern or "" if c == ANY or c in "0123456789")

    @staticmethod
    def of(pattern: str | None, length: int | None) -> "Expected":
        """Return what a pattern or a length asks for.

        Raises
        ------
        UsageError
            If they contradict each other.
        """
        if length is None:
            return Expected(pattern)
        expected = Expected(pattern or ANY * length)
        if len(expected.places) != length:
            raise UsageError(f"pattern '{pattern}' has no {length} digits; give one of the two")
        return expected

    def allows(self, text: str) -> bool:
        """Whether a text, perhaps with places that are not known yet, may be a number.

        >>> Expected("##-1").allows("471"), Expected("##-1").allows("472")
        (True, False)
        """
        if self.pattern is None:
            return len(text) >= self.least
        places = self.places
        return len(text) == len(places) and all(
            place in (ANY, char) or char == REJECTED
            for place, char in zip(places, text, strict=True)
        )

    def shown(self, text: str) -> str:
        """Return a text with the signs of the pattern in it.

        >>> Expected("##-#").shown("471")
        '47-1'
        """
        if self.pattern is None or len(text) != len(self.places):
            return text
        chars = iter(text)
        return "".join(next(chars) if c == ANY or c in "0123456789" else c for c in self.pattern)
