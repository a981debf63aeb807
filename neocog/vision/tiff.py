"""Directories of TIFF files, and of the EXIF data in others: what the tags say, and where."""

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import IO, Any, NamedTuple

from neocog.errors import InputError

MAX_PAGES = 2500
"""Pages of a TIFF that are read; the record of the next one says so."""

_MOST_TAGS = 2**12  # of a directory; a hundred are many
_STRIP = 800  # bytes that decoders keep for each strip or tile
_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8}
_NUMBERS = {1: "B", 3: "H", 4: "I", 13: "I", 16: "Q"}

_WIDTH, _HEIGHT, _BITS, _PACKING, _ROWS, _SAMPLES = 256, 257, 258, 259, 278, 277
_STRIPS, _TILE_WIDTH, _TILE_HEIGHT, _TILES = 273, 322, 323, 324
_ONCE = {256, 257, 258, 259, 273, 277, 278, 322, 323, 324}  # readers differ in which they believe
_BELOW = (34665, 34853, 40965)  # tags of further directories that are read with a page's own
_JPEG = (6, 7)  # unpacked to RGBA
_USUAL = {1, 2, 3, 4, 5, 8, 32773, 32946}  # none, fax, LZW, deflate, PackBits


class Page(NamedTuple):
    """What the tags of a page say.

    Attributes
    ----------
    width, height : int
    extra : int
        Bytes that decoding takes besides those for the pixels.
    passes : int
        Times that its strips or tiles cover it.
    is_usual : bool
        Whether it is the only page, and unpacked as quickly as most.
    """

    width: int
    height: int
    extra: int
    passes: int
    is_usual: bool


class Tiff:
    """The directories of a TIFF file.

    Parameters
    ----------
    stream : binary file
        The file, or the data of an EXIF block.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        begin = stream.read(16)
        self._order = order = ">" if begin[:2] == b"MM" else "<"
        big = 43 in begin[2:4]
        self._count, self._entry, self._next = (
            struct.Struct(order + form)
            for form in (("Q", "HHQ8s", "Q") if big else ("H", "HHI4s", "I"))
        )
        (self._first,) = self._next.unpack_from(begin, 8 if big else 4)

    def pages(self) -> Iterator[Page]:
        """Yield the pages.

        Raises
        ------
        InputError
            If their chain has no end, or their tags cost too much.
        """
        at, seen = self._first, set[int]()
        while at:
            if at in seen:
                raise InputError(f"page {len(seen)} of the file repeats an earlier page")
            if len(seen) == MAX_PAGES:
                raise InputError(f"the file has more than {MAX_PAGES:,} pages; split it")
            seen.add(at)
            tags, at = self._tags(at)
            yield self._page(tags, alone=not at and len(seen) == 1)

    def check_tags(self) -> None:
        """Refuse a first directory whose tags tell of more bytes than there are.

        Raises
        ------
        InputError
        """
        self._tags(self._first)

    def _tags(self, at: int) -> tuple[dict[int, tuple[int, int, bytes]], int]:
        """The type, count and value of each tag of a directory, and where the next one is."""
        self._stream.seek(at)
        (count,) = self._count.unpack(self._stream.read(self._count.size))
        if count > _MOST_TAGS:
            raise InputError(f"the picture has {count:,} tags, at most {_MOST_TAGS:,} are allowed")
        data = self._stream.read(count * self._entry.size + self._next.size)
        tags: dict[int, tuple[int, int, bytes]] = {}
        told = 0
        for tag, kind, number, value in self._entry.iter_unpack(data[: count * self._entry.size]):
            size = number * _BYTES.get(kind, 0)
            if size > len(value):
                there = self._size - self._next.unpack(value)[0]
                told += min(size, max(there, 0))
            if told > 2 * self._size + _MOST_TAGS:
                raise InputError("several tags of the picture share the same bytes; save it again")
            if tag in _ONCE and tags.get(tag, (kind, number, value)) != (kind, number, value):
                raise InputError("the picture states its size or format twice; save it again")
            tags[tag] = kind, number, value
        tags[0] = 4, told, b""
        following = data[count * self._entry.size :]
        return tags, self._next.unpack(following)[0] if len(following) == self._next.size else 0

    def _numbers(self, tag: tuple[int, int, bytes] | None, default: int) -> tuple[int, ...]:
        """The first few values of a tag."""
        if tag is None:
            return (default,)
        kind, count, value = tag
        form = f"{self._order}{min(count, 8)}{_NUMBERS.get(kind, 's')}"
        if count * _BYTES.get(kind, 0) > len(value):
            self._stream.seek(self._next.unpack(value)[0])
            value = self._stream.read(struct.calcsize(form))
        numbers: tuple[Any, ...] = struct.unpack_from(form, value)
        return numbers if numbers and isinstance(numbers[0], int) else (0,)

    def _page(self, tags: dict[int, tuple[int, int, bytes]], *, alone: bool) -> Page:
        def number(tag: int, default: int = 0) -> int:
            return max(self._numbers(tags.get(tag), default))

        for tag in _BELOW:
            with suppress(struct.error):  # that one is broken does not concern the pixels
                if tag in tags and (place := number(tag)):
                    self._tags(place)
        width, height = number(_WIDTH), number(_HEIGHT)
        across, down = width, min(number(_ROWS, height) or height, height)
        pieces = tags.get(_STRIPS, (0, 0, b""))[1]
        if _TILES in tags:
            across, down = number(_TILE_WIDTH), number(_TILE_HEIGHT)
            pieces = max(pieces, tags[_TILES][1])
        samples = number(_SAMPLES, 1)
        bits = max(8, number(_BITS, 1)) * samples
        packing = number(_PACKING, 1)
        needed = -(-width // max(across, 1)) * -(-height // max(down, 1)) * samples
        held = 0  # the piece that is being unpacked
        if packing != 1:
            held = across * down * (bits // 8 + (4 if packing in _JPEG else 0))
        return Page(
            width,
            height,
            held + pieces * _STRIP + 4 * tags[0][1],
            -(-pieces // max(needed, 1)) or 1,
            alone and packing in _USUAL,
        )
