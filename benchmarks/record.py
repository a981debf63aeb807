"""Writes a result file: rows, and the machine, versions, date and commit they are of."""

import datetime
import json
import sys
from pathlib import Path
from typing import Any

from neocog.bench.machine import commit, machine, versions

__all__ = ["commit", "machine", "versions", "write_results"]


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
        "command": "python " + " ".join([_script(), *_options()]),
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
    """The script as seen from the top folder, however it was called."""
    return f"benchmarks/{Path(sys.argv[0]).name}"


def _options() -> list[str]:
    """The command's options, without folders of this machine: the data's is DATA."""
    words = ["DATA" if Path(word).is_dir() else word for word in sys.argv[1:]]
    return [Path(word).name if word.startswith("/") else word for word in words]
