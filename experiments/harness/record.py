"""Writes a result file: rows, and the machine, versions, date and commit they are of."""

import datetime
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.harness.machine import commit, machine, versions

__all__ = ["commit", "machine", "versions", "without_places", "write_results"]


def write_results(
    path: Path,
    rows: list[dict[str, Any]],
    *,
    columns: dict[str, str],
    formats: dict[str, str] | None = None,
    gpu: bool = False,
    **more: Any,
) -> None:
    """Write one result file, readable by ``tables.py``."""
    result = {
        "command": " ".join([_script(), *without_places(sys.argv[1:])]),
        "machine": machine(gpu),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit(),
        "versions": versions(),
        **more,
        "columns": columns,
        "formats": formats or {},
        "rows": rows,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{path}: {len(rows)} rows", file=sys.stderr)


def _script() -> str:
    """The command that runs the script from the top folder, however it was called."""
    path = Path(sys.argv[0])
    return f"python -m experiments.{path.parent.name}.{path.stem}"


def without_places(words: Sequence[str]) -> list[str]:
    """Return a command's words without places of this machine.

    The folder of data, the first that is no option's value, becomes ``DATA``; after an option
    that takes none (``--gpu DATA``) it is found if no other folder follows. Of other places
    outside the folder that the command runs in the last part is left.
    """
    folders = [i for i, word in enumerate(words) if not _is_option(word) and Path(word).is_dir()]
    free = [i for i in folders if i == 0 or not _is_option(words[i - 1])]
    data = next(iter(free or folders), None)
    return ["DATA" if i == data else _last_part(word) for i, word in enumerate(words)]


def _is_option(word: str) -> bool:
    return word.startswith("-")


def _last_part(word: str) -> str:
    """Return a word, of an option's value too, with no more than the last part of a place."""
    found = re.fullmatch(r"(--?[\w-]+=|-\w)?((?:/|\.\./).*)", word)
    return word if found is None else (found[1] or "") + Path(found[2]).name
