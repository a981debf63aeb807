"""Tables as Markdown, readable on a terminal as well."""

from collections.abc import Mapping, Sequence
from typing import Any


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of cells, the first the head, as a Markdown table."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])


def left(result: Mapping[str, Any]) -> str:
    """Return a paragraph on what an experiment did not measure; "" if there is nothing."""
    parts = []
    if result.get("not_run"):
        parts.append(f"Not run for want of time: {'; '.join(result['not_run'])}.")
    broken = (f"{what} ({why})" for what, why in result.get("broken", {}).items())
    told = "; ".join(broken)
    if told:
        parts.append(f"Broke off, and the run went on without: {told}.")
    failures = result.get("failures") or {}
    parts += [f"Section {name} failed: {why}." for name, why in failures.items()]
    return " ".join(parts)


def between(values: Sequence[float], form: str) -> str:
    """Return the least and the largest value as "a to b", or one of them if they look alike."""
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


def rest(result: Mapping[str, Any], full: str) -> str:
    """Return an experiment's last paragraph: what was not measured, and where all tables are."""
    link = f"All tables: [{full}]({full})."
    return f"{left(result)} {link}".lstrip()
