"""Tables of the S-layers' experiments, for a terminal and for a page."""

from typing import Any


def lines(result: dict[str, Any]) -> list[str]:
    """Return the result as lines for a terminal."""
    return [f"{name}: {len(rows)} rows" for name, rows in result["sections"].items()]
