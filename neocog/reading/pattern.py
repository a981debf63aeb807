"""What a line is expected to look like: so many digits, and fixed characters between them."""

from collections.abc import Sequence
from dataclasses import dataclass

from neocog.errors import UsageError

PLACE = "#"


@dataclass(frozen=True, slots=True)
class Pattern:
    """The form of a line, such as ``##-####``.

    Each ``#`` is a digit. Other characters stand in the text as they are; they are not looked
    for in the picture, where dashes and dots are no digits anyway.

    Attributes
    ----------
    form : str

    Raises
    ------
    UsageError
        If there is no ``#``, or there are digits or line ends among the fixed characters.
    """

    form: str

    def __post_init__(self) -> None:
        if PLACE not in self.form:
            raise UsageError(f"pattern {self.form!r}: expected a # for each digit, such as ##-####")
        if any(char.isdigit() or not char.isprintable() for char in self.form):
            raise UsageError(f"pattern {self.form!r}: a pattern cannot hold digits; write # for each digit")

    @property
    def digits(self) -> int:
        """Number of digits in a line."""
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
