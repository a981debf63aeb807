"""Which texts may be announced: any, or those of one form."""

from dataclasses import dataclass

from neocog.batch.pattern import PLACE, Pattern
from neocog.errors import UsageError


@dataclass(frozen=True, slots=True)
class Expected:
    """What a number looks like.

    Attributes
    ----------
    pattern : Pattern or None
        Its form; None for any number.
    """

    pattern: Pattern | None = None

    @staticmethod
    def of(form: str | None = None, length: int | None = None) -> "Expected":
        """Return what a pattern's form or a number of digits asks for.

        Raises
        ------
        UsageError
            If they contradict each other, or the form is none.
        """
        if form is None and length is None:
            return Expected()
        pattern = Pattern(PLACE * length if form is None and length else form or "")
        if length is not None and pattern.digits != length:
            raise UsageError(f"pattern '{form}' has no {length} digits; give one of the two")
        return Expected(pattern)

    @property
    def digits(self) -> int | None:
        """Number of digits, where that is known."""
        return self.pattern.digits if self.pattern else None

    def allows(self, text: str) -> bool:
        """Whether a text, perhaps with places that are not known yet, may be a number.

        >>> Expected.of("##-#").allows("47?"), Expected.of("##-#").allows("4712")
        (True, False)
        """
        return bool(text) and (self.pattern is None or self.pattern.fits(text))

    def shown(self, text: str) -> str:
        """Return a text with the signs of the pattern in it.

        >>> Expected.of("##-#").shown("471")
        '47-1'
        """
        return self.pattern.fill(text) if self.pattern else text
