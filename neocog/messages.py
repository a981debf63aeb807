"""Messages for people, and words of strangers (names of files, headers, reasons) in them."""

import sys
import unicodedata

_HIDDEN = frozenset(("Cc", "Cs", "Zl", "Zp"))
_TURNS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff")


def printable(words: str) -> str:
    r"""Return words that any terminal shows as they are, and none obeys.

    Control characters (C0 and C1, escape sequences begin with one), line ends, marks that turn the
    direction of writing, and bytes of names that are no UTF-8 are written as escapes: ``\x1b``,
    ``\n``, ``\u202e``, ``\udc80``.
    """
    if words.isascii() and words.isprintable():
        return words
    return "".join(
        character.encode("unicode_escape").decode("ascii")
        if character in _TURNS or unicodedata.category(character) in _HIDDEN
        else character
        for character in words
    )


def reason_of(error: BaseException) -> str:
    """Return one short line about an error: what the system says, else its first line, else its type."""
    text = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
    return printable(text.splitlines()[0][:120])


def tell(words: str) -> None:
    """Print a message, which is one line whatever strangers had a say in it, on stderr."""
    print(f"neocog: {printable(words)}", file=sys.stderr, flush=True)
