"""Messages for people, and words of strangers (names of files, headers, reasons) in them."""

import sys
import unicodedata

_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))


def printable(words: str) -> str:
    r"""Return words that any terminal shows as they are, and none obeys.

    Control characters (C0 and C1, escape sequences begin with one), line ends, marks that turn the
    direction of writing, other invisible characters, and bytes of names that are no UTF-8 are
    written as escapes: ``\x1b``, ``\n``, ``\u202e``, ``\udc80``.
    """
    if words.isascii() and words.isprintable():
        return words
    return "".join(
        character.encode("unicode_escape").decode("ascii")
        if unicodedata.category(character) in _HIDDEN
        else character
        for character in words
    )


def tell(words: str) -> None:
    """Print a message, which is one line whatever strangers had a say in it, on stderr."""
    print(f"neocog: {printable(words)}", file=sys.stderr, flush=True)
