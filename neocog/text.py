"""Text: messages and words of strangers in them, JSON without NaN, the distance between two texts."""

import json
import math
import sys
import unicodedata
from collections.abc import Sequence
from typing import Any

_HIDDEN = frozenset(("Cc", "Cs", "Zl", "Zp"))
_TURNS = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff\ufffe\uffff"
)


def printable(words: str) -> str:
    r"""Return words that any terminal shows as they are, and none obeys.

    Control characters, line ends, marks that turn the direction of writing, and bytes of names that are no
    UTF-8 are written as escapes: ``\x1b``, ``\n``, ``\u202e``, ``\udc80``.
    """
    if words.isascii() and words.isprintable():
        return words
    return "".join(
        char.encode("unicode_escape").decode("ascii")
        if char in _TURNS or unicodedata.category(char) in _HIDDEN
        else char
        for char in words
    )


def reason_of(error: BaseException) -> str:
    """Return one short line about an error: what the system says, else its first line, else its type."""
    text = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
    return printable(text.splitlines()[0][:120])


def tell(words: str) -> None:
    """Print a message, which is one line whatever strangers had a say in it, on stderr."""
    print(f"neocog: {printable(words)}", file=sys.stderr, flush=True)


def to_json(value: Any, **options: Any) -> str:
    """Return a value as JSON, with null for each number that is not finite; options as of `json.dumps`."""
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, **options)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key) if isinstance(key, float) else key: _finite(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(own) for own in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def edit_distance(left: Sequence[str], right: Sequence[str]) -> int:
    """Fewest insertions, deletions and substitutions that turn one text into the other (Levenshtein)."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        diagonal, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (a != b))
    return row[-1]
