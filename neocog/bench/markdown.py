"""Tables as Markdown, readable on a terminal as well."""

from collections.abc import Sequence


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of cells, the first the head, as a Markdown table."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])
