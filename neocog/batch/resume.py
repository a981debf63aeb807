"""Going on where a run broke off: what its output file holds already, and where that ends."""

import hashlib
import json
import shlex
from array import array
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.errors import UsageError
from neocog.reading.records import SCHEMA, PageReading

_BEGIN = PageReading("").to_json()[: len('{"schema":1,')].encode()


@dataclass(slots=True)
class Done:
    """The inputs that an output file has the records of."""

    end: int = 0  # bytes of the file up to the last input
    size: int = 0  # bytes with it, without what was torn; a missing line end counted
    inputs: int = 0  # before ``end``; so ``pages`` and ``failed``
    pages: int = 0
    failed: int = 0
    last: str | None = None  # the last input, which may have more pages
    last_pages: int = 0  # its records
    last_failed: int = 0
    _known: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    _left: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def take(self, source: str) -> bool:
        """Whether an input is done already, as often as it has records.

        Of ten million names, known by 64 bits of a hash, one is taken for another with a probability of 3e-6.
        """
        name = np.uint64(_hash(source))
        place = int(np.searchsorted(self._known, name))
        done = (self._known[place : place + 1] == name) & (self._left[place : place + 1] > 0)
        self._left[place : place + 1] -= done
        return bool(done.any())


def read_done(
    path: str | Path, *, model: str, settings: Mapping[str, Any] | None = None, finder: str | None = None
) -> Done:
    """Read an output file of JSON lines back; one that is not there holds nothing.

    A last line that was torn does not count. Only the last input may have more pages. UsageError if the file
    is no output of neocog, damaged, or written with another ``model``, ``finder`` or other ``settings``.
    """
    try:
        stream = open(path, "rb")  # noqa: SIM115
    except FileNotFoundError:
        return Done()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); choose another -o") from None
    whole, block = Done(), Done()  # all inputs but the last one, and that
    names, start = array("Q"), 0
    with stream:
        for number, line in enumerate(stream, 1):
            record = _record(line)
            if record is None:
                if line.endswith(b"\n") and names:
                    raise UsageError(f"{path}: line {number} is damaged; repair it or choose another -o")
                begin = line[: len(_BEGIN)]  # of the only line; zeros are there after a power cut
                if line.endswith(b"\n") or not (names or _BEGIN.startswith(begin) or not any(begin)):
                    raise UsageError(f"{path}: does not hold neocog's records; choose another -o")
                break
            _check_same(path, record, model, finder, settings)
            if record["page"] == 0:
                whole.pages, whole.failed = whole.pages + block.pages, whole.failed + block.failed
                whole.end, block = start, Done(last=record["source"])
                names.append(_hash(record["source"]))
            block.pages += 1
            block.failed += record["error"] is not None
            start += len(line.rstrip(b"\n")) + 1
    whole.inputs, whole.size = max(0, len(names) - 1), start
    whole.last, whole.last_pages, whole.last_failed = block.last, block.pages, block.failed
    whole._known, whole._left = np.unique(np.array(names[:-1], np.uint64), return_counts=True)
    return whole


def _check_same(
    path: str | Path, record: Mapping[str, Any], model: str, finder: str | None,
    settings: Mapping[str, Any] | None,
) -> None:  # fmt: skip
    """Refuse a record that another model, finder or other settings wrote."""
    found, asked = record.get("settings"), ""
    if record["model"] != model:
        asked = f"the model {record['model']}, now {model}; give that model"
    elif finder is not None and record.get("finder", finder) != finder:
        asked = f"the finder {record['finder']}, now {finder}; give that one (--finder)"
    elif settings is not None and found is not None and found.get("valid") != settings.get("valid"):
        asked = "another --valid, or none; give that list"
    elif settings is not None and found is not None and found != settings:
        asked = f"{_options(found)}, now {_options(settings)}; give the same options"
    if asked:
        raise UsageError(f"{path}: was written with {asked} or choose another -o")


def _options(settings: Mapping[str, Any]) -> str:
    """Settings as the options that ask for them: ``--min-p 0.4 --isolated``."""
    pairs = (("--" + name.replace("_", "-"), value) for name, value in settings.items())
    return " ".join(name if value is True else f"{name} {shlex.quote(str(value))}" for name, value in pairs)


def _record(line: bytes) -> dict[str, Any] | None:
    """One line as a record, or None where it is none, or not all of one."""
    with suppress(ValueError, RecursionError):  # brackets may be nested without end
        record = json.loads(line)
        if isinstance(record, dict) and record.get("schema") == SCHEMA and "error" in record:
            kinds = {"source": str, "page": int, "model": str, "settings": dict}
            if all(isinstance(({"settings": {}} | record).get(name), kind) for name, kind in kinds.items()):
                return record
    return None


def _hash(source: str) -> int:
    name = source.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big")
