"""Tilings that were measured on an H200, as data: ``tuned.json`` and ``convpool_tuned.json``.

A file names the command that makes it and the fields of its rows (``shape.kernel``, ``batch``,
``tiling.rows``), and has a row of values for each shape and batch.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from neocog.text import to_json

S = TypeVar("S")
T = TypeVar("T")
_PROCESSORS = 132


def read(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file by field; none where there is no file."""
    if not path.is_file():
        return []
    held = json.loads(path.read_text(encoding="utf-8"))
    return [dict(zip(held["fields"], row, strict=True)) for row in held["rows"]]


def text(rows: Sequence[Mapping[str, Any]], command: str) -> str:
    """Return what a file holds."""
    fields = to_json(list(rows[0]) if rows else [])
    lines = ",\n".join(to_json(list(row.values())) for row in rows)
    return f'{{"command": {to_json(command)},\n"fields": {fields},\n"rows": [\n{lines}\n]}}\n'


def rows(path: Path, shape: type[S], tiling: type[T]) -> Iterator[tuple[S, T, dict[str, Any]]]:
    """Yield shape and tiling of each row of a file, and the row."""
    for row in read(path):
        yield part(shape, row, "shape"), part(tiling, row, "tiling"), row


def part(kind: type[T], row: Mapping[str, Any], name: str) -> T:
    """Return a dataclass of the values of a row whose fields begin with a name, lists as tuples."""
    own = {k.removeprefix(f"{name}."): v for k, v in row.items() if k.startswith(f"{name}.")}
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in own.items()})


def row(shape: Any, tiling: Any, **more: Any) -> dict[str, Any]:
    """Return a row of two dataclasses."""
    parts = {"shape": asdict(shape), "tiling": asdict(tiling)}
    named = {f"{name}.{field}": v for name, own in parts.items() for field, v in own.items()}
    return {**more, **{k: list(v) if isinstance(v, tuple) else v for k, v in named.items()}}


def serves(arch: int, processors: int) -> bool:
    """Whether a device is like the one that was measured."""
    return arch == 90 and abs(processors - _PROCESSORS) <= _PROCESSORS // 10


def nearest(measured: Mapping[int, T], batch: int, factor: float) -> T | None:
    """Return what was measured at the batch nearest to ``batch``, up to a ``factor`` away."""
    near = [b for b in measured if max(b, batch) <= factor * min(b, batch)]
    return measured[min(near, key=lambda b: abs(math.log2(b / batch)))] if near else None
