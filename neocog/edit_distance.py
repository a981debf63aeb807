"""The distance between two texts."""

from collections.abc import Sequence


def edit_distance(left: Sequence[str], right: Sequence[str], *, unknown: str | None = None) -> int:
    """Fewest insertions, deletions and substitutions that turn one text into the other.

    Levenshtein's distance, by rows. ``unknown`` on the left may stand for anything at no cost.

    >>> edit_distance("07946", "0?94")
    2
    >>> edit_distance("0?94", "07946", unknown="?")
    1
    """
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        diagonal, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            other = a not in (b, unknown)
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + other)
    return row[-1]
