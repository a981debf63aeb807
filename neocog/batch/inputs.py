"""Which pictures a command line names: files, folders, archives, patterns, lists, stdin."""

import glob
import hashlib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple

from neocog.batch.archives import Item, Skipped, is_archive_name, members
from neocog.errors import EndedEarly, InputError, NothingToRead, UsageError
from neocog.reading.addresses import MAX_BYTES, is_address
from neocog.reading.pictures import HIDDEN, STDIN, is_picture_name, why_skipped
from neocog.text import reason_of
from neocog.vision.decode import KINDS

MAX_NAME = 2**16  # bytes of a name in a list: twice the longest that any system takes

_ENOUGH = 16  # bytes that tell a picture from names
_PICTURE = re.compile(b"|".join(b"(?:%b)" % kind.begins for kind in KINDS), re.DOTALL)


class Shard(NamedTuple):
    """Share ``number``, from 1, of ``total`` shares: the SHA-256 of an input's key chooses it."""

    number: int
    total: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Read ``"I/N"``; UsageError if it is none of 1/N to N/N."""
        found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        if not found or not 1 <= int(found[1]) <= int(found[2]):
            raise UsageError(f"shard '{text}': expected I/N, from 1/N to N/N, e.g. 2/8")
        return cls(int(found[1]), int(found[2]))

    def holds(self, key: str) -> bool:
        """Whether the input of this key is of this share."""
        digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
        return int.from_bytes(digest[:8], "big") % self.total == self.number - 1


def find_inputs(
    words: Iterable[str | Path], *, null: bool = False, stdin: IO[bytes] | None = None,
    look_into: bool = True, skipped: Skipped = lambda name, why: None,
) -> Iterator[Item]:  # fmt: skip
    """Yield what the words of a command line stand for (docs/batch.md), as it is found.

    ``null``: names in lists end with a zero byte; without ``look_into`` an archive is an item itself.
    UsageError if a list or pattern cannot be read; NothingToRead at the end if there is no picture.
    """
    found, end = False, b"\0" if null else b"\n"
    for word in words:
        names: Iterable[str] = (str(word),)
        if word == STDIN:
            blocks, begin = _blocks(STDIN, stdin or _stdin()), b""
            # as much as tells a picture from names, and no wait behind a name
            while len(begin) < _ENOUGH and end not in begin and (block := next(blocks, b"")):
                begin += block
            blocks = chain((begin,), blocks)
            if _PICTURE.match(begin):
                found, data = True, bytearray()
                while len(data) <= MAX_BYTES and (block := next(blocks, b"")):
                    data += block
                if len(data) <= MAX_BYTES:
                    yield Item(STDIN, STDIN, data=bytes(data))
                else:
                    yield Item(STDIN, STDIN, trouble=f"has more than {MAX_BYTES:,} bytes; make it smaller")
                continue
            names = _names(STDIN, blocks, end)
        elif isinstance(word, str) and word.startswith("@"):
            try:
                stream = open(word[1:], "rb")  # noqa: SIM115
            except (OSError, ValueError) as error:
                why = f"cannot be opened ({reason_of(error).lower()}); expected a file with one name per line"
                raise UsageError(f"{word}: the list {why}") from None
            names = _names(word, _blocks(word, stream), end)
        elif isinstance(word, str) and _is_pattern(word):
            try:
                names = sorted(glob.iglob(word, recursive=True))
            except RecursionError:
                deep = "the folders are nested too deeply for a pattern; name the folder itself"
                raise UsageError(f"{word}: {deep}") from None
            if "**" in word:
                some = (name for name in names if is_picture_name(os.path.basename(name)))
                names = (name for name in some if not os.path.isdir(name))
        for name in names:
            for item in _named(name, look_into, skipped):
                found = True
                yield item
    if not found:
        where = "name pictures, or folders, archives or lists with pictures (png, jpg, tif, ...)"
        raise NothingToRead(f"no pictures found; {where}")


def is_one_file(words: list[str]) -> bool:
    """Whether the words name one picture file and nothing else."""
    if len(words) != 1:
        return False
    word = words[0]
    several = word == STDIN or word.startswith("@") or _is_pattern(word) or is_archive_name(word)
    return is_address(word) or not (several or os.path.isdir(word))


def comes_once(word: str) -> bool:
    """Whether the names that a word stands for can be read but once: stdin, a list in a pipe."""
    place = word[1:] if word.startswith("@") else ""
    return word == STDIN or (os.path.exists(place) and not os.path.isfile(place))


def _named(name: str, look_into: bool, skipped: Skipped) -> Iterator[Item]:
    path = str(Path(name))
    if not name:
        empty = "this name is empty, expected a picture or a folder; leave it out, or name one"
        yield Item("''", "", trouble=empty)
    elif is_address(name):
        yield Item(name, name)
    elif os.path.isdir(name):  # it takes names that no file can have, Path.is_dir raises on them
        yield from _folder(path, skipped)
    elif look_into and is_archive_name(name) and os.path.isfile(name):
        try:
            yield from members(path, lambda own, why: skipped(f"{path}/{own}", why))
        except InputError as error:
            yield Item(path, Path(path).name, trouble=str(error))
    else:
        yield Item(path, Path(path).as_posix())


def _folder(named: str, skipped: Skipped) -> Iterator[Item]:
    """Pictures in a folder and below it: the order is that of a walk, its depth has no bound."""
    left = [(named, "")]
    while left:
        folder, below = left.pop()
        try:
            with os.scandir(folder) as entries:
                listed = sorted((e.name, e.is_dir(follow_symlinks=False), e.is_symlink()) for e in entries)
        except OSError as error:
            why = f"the folder cannot be listed ({reason_of(error).lower()})"
            yield Item(folder, below or ".", trouble=why)
            continue
        folders = []
        for name, is_folder, is_link in listed:
            path = os.path.join(folder, name)
            if is_folder and name.startswith("."):
                skipped(path, f"{HIDDEN} folder")
            elif is_folder:
                folders.append((path, f"{below}{name}/"))
            elif is_link and os.path.isdir(path):
                skipped(path, "link to a folder")
            elif (reason := why_skipped(name)) is not None:
                skipped(path, reason)
            else:
                yield Item(path, below + name)
        left += reversed(folders)


def _blocks(word: str, stream: IO[bytes]) -> Iterator[bytes]:
    read = getattr(stream, "read1", stream.read)
    try:
        while block := read(MAX_NAME):
            yield block
    except OSError as error:
        why = reason_of(error).lower()
        raise EndedEarly(f"{word}: the list breaks off ({why}); pass the complete list") from None
    finally:
        if word != STDIN:
            stream.close()


def _names(word: str, blocks: Iterable[bytes], end: bytes) -> Iterator[str]:
    """Names that end with a line, or with a zero byte, as they come; of a far too long one a part."""

    def name_of(data: bytes) -> str:
        name = data.decode(errors="surrogateescape")
        # what is no UTF-8 may be the name of an old file
        if "\0" in name or (re.search("[\udc80-\udcff]", name) and not os.path.lexists(name)):
            why = f"{word}: got binary data, expected names in UTF-8 (or, on stdin, a picture)"
            raise UsageError(f"{why}; give an archive by its name, add -0 if zero bytes end the names")
        return name

    rest = b""
    for block in blocks:
        *names, rest = (rest + block).split(end)
        rest = rest[:MAX_NAME]
        yield from (name_of(name) for whole in names if (name := whole.removesuffix(b"\r")))
    if rest:
        yield name_of(rest)


def _stdin() -> IO[bytes]:
    """Standard input without a buffer: a thread that waits for it must not hold its lock."""
    try:
        os.set_blocking(sys.stdin.fileno(), True)  # or its end cannot be told from a pause
        return open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)
    except (OSError, AttributeError, ValueError):  # a test's stdin has no file behind it
        return sys.stdin.buffer


def _is_pattern(word: str) -> bool:
    return glob.has_magic(word) and not is_address(word) and not os.path.lexists(word)
