"""Going on where a run broke off: what its output file holds already, and where that ends."""

import hashlib
import json
import os
import shlex
import shutil
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.errors import UsageError
from neocog.files import atomic_write
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
    again: bool = False  # whether it has been written anew
    _known: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    _left: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def part(self, text: str) -> tuple[str, str]:
        """Part records that are to be written: those of the last input, and the others.

        Only the first time that it comes up; later it is an input like any other.
        """
        if self.last is None or self.again:
            return "", text
        begin = PageReading(self.last).to_json().partition('"page":')[0] + '"page":'
        start = 0 if text.startswith(f"{begin}0,") else text.find(f"\n{begin}0,") + 1
        if not start and not text.startswith(f"{begin}0,"):
            return "", text
        self.again, end = True, text.index("\n", start) + 1
        while text.startswith(begin, end) and not text.startswith(f"{begin}0,", end):
            end = text.index("\n", end) + 1
        return text[start:end], text[:start] + text[end:]

    def mend(self, path: str | Path) -> None:
        """Cut off what was torn behind the last input, or end a line that lacks but its end."""
        with open(path, "r+b") as stream:
            held = stream.seek(0, os.SEEK_END)
            if held > self.size:
                stream.truncate(self.size)
            stream.write(b"\n" * (self.size - held))  # none where that is negative

    def differs(self, path: str | Path, records: bytes) -> bool:
        """Whether the last input's old records are others than these."""
        with open(path, "rb") as stream:
            stream.seek(self.end)
            return stream.read(self.size - self.end) != records

    def replace_last(self, path: str | Path, records: bytes) -> None:
        """Put records of the last input where its old ones stand, in one step.

        A run that is killed leaves the old ones or the new ones, never neither.
        """
        place = os.path.realpath(path)
        mode = os.stat(place).st_mode
        with open(place, "rb") as old, atomic_write(place) as new:
            shutil.copyfileobj(old, new)
            new.truncate(self.end)
            new.seek(self.end)
            new.write(records)
            old.seek(self.size)
            shutil.copyfileobj(old, new)
        os.chmod(place, mode)

    def take(self, source: str) -> bool:
        """Whether an input is done already; named as often as it has records, it is so often.

        A name is known by 64 bits of its hash: among ten million, one is taken for another with
        a probability of 3e-6.
        """
        if not len(self._known):
            return False
        name = np.uint64(_hash(source))
        place = int(np.searchsorted(self._known, name))
        if place == len(self._known) or self._known[place] != name or not self._left[place]:
            return False
        self._left[place] -= 1
        return True


def read_done(
    path: str | Path, *, model: str, settings: Mapping[str, Any] | None = None, finder: str | None = None
) -> Done:
    """Read an output file of JSON lines back; one that is not there holds nothing.

    A last line that was torn goes. The last input may have more pages: where it comes up again it
    is read again. Inputs are written one after another, all pages together, so every other input
    is whole. UsageError if the file cannot be read, is no output of neocog, is damaged before its
    end, or was written with another ``model``, ``finder`` or other ``settings``; records that tell
    no settings or finder pass.
    """
    try:
        stream = open(path, "rb")  # noqa: SIM115
    except FileNotFoundError:
        return Done()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); choose another -o") from None
    whole, block = Done(), Done()  # all inputs but the last one, and that
    names, start, torn = array("Q"), 0, 0
    with stream:
        for number, line in enumerate(stream, 1):
            record = _record(line)
            if record is None:
                torn = torn or number
                continue
            if torn:
                raise UsageError(f"{path}: line {torn} is damaged; repair it or choose another -o")
            _check_same(path, record, model, finder, settings)
            if record["page"] == 0:
                whole.pages, whole.failed = whole.pages + block.pages, whole.failed + block.failed
                whole.end, block = start, Done(last=record["source"])
                names.append(_hash(record["source"]))
            block.pages += 1
            block.failed += record["error"] is not None
            start += len(line.rstrip(b"\n")) + 1
    if torn and not names and not _is_torn_first(path):
        raise UsageError(f"{path}: does not hold neocog's records; choose another -o")
    whole.inputs, whole.size = max(0, len(names) - 1), start
    whole.last, whole.last_pages, whole.last_failed = block.last, block.pages, block.failed
    whole._known, whole._left = np.unique(np.array(names[:-1], np.uint64), return_counts=True)
    return whole


def _check_same(
    path: str | Path,
    record: Mapping[str, Any],
    model: str,
    finder: str | None,
    settings: Mapping[str, Any] | None,
) -> None:
    """Refuse a record that another model, finder or other settings wrote."""
    if record["model"] != model:
        raise UsageError(
            f"{path}: was written with the model {record['model']}, now {model}; "
            "give that model or choose another -o"
        )
    if finder is not None and record.get("finder", finder) != finder:
        raise UsageError(
            f"{path}: was written with the finder {record['finder']}, now {finder}; "
            "give that one (--finder) or choose another -o"
        )
    found = record.get("settings")
    if settings is not None and found is not None and found != settings:
        raise UsageError(
            f"{path}: was written with {_options(found)}, now {_options(settings)}; "
            "give the same options or choose another -o"
        )


def _options(settings: Mapping[str, Any]) -> str:
    """Settings as the options that ask for them.

    >>> _options({"min_p": 0.4, "isolated": True})
    '--min-p 0.4 --isolated'
    """
    words = []
    for name, value in settings.items():
        option = "--" + name.replace("_", "-")
        words.append(option if value is True else f"{option} {shlex.quote(str(value))}")
    return " ".join(words)


def _is_torn_first(path: str | Path) -> bool:
    """Whether a file without any whole record may be one whose first record was torn."""
    with open(path, "rb") as stream:
        begun = stream.read(len(_BEGIN))
        more = stream.readline().endswith(b"\n")
    return not more and (_BEGIN.startswith(begun) or not any(begun))


def _record(line: bytes) -> dict[str, Any] | None:
    """One line as a record, or None where it is none, or not all of one."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        return None
    wanted = {"source": str, "page": int, "model": str}
    if not all(isinstance(record.get(name), kind) for name, kind in wanted.items()):
        return None
    if not isinstance(record.get("settings", {}), dict):
        return None
    return record if "error" in record else None


def _hash(source: str) -> int:
    name = source.encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big")
