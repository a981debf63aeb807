"""What decoding a picture would take, told before any pixel is decoded.

Blocks and tags that decoders would go through again and again are counted before Pillow opens a
file (`neocog.vision.opening`), which then tells the size.
"""

import io
import math
import os
import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

from neocog.errors import InputError

MAX_PIXELS = 2**27
"""Pages with more pixels than this (134 million) are refused by their header alone."""

MAX_BYTES = 1_200_000_000
"""A page that would take more memory to decode is refused; a process has 1.5 GB for all it does."""

MAX_SCANS = 64
"""Scans of a JPEG that are decoded: each goes over the whole picture; ten are usual."""

MAX_PAGES = 2500
"""Pages of a TIFF or PDF that are read; the record of the next one says so."""

LIGHT_BYTES = 300_000_000
"""Memory of a picture that any process may decode; see `Header.is_light`."""

LIGHT_FILE = 2**25
"""Bytes of a file that any process may open: some decoders read all of it to tell the size."""

MAX_STRIPS = 2**16
"""Strips or tiles of a TIFF's page: decoders make an object of each when they open it."""

_SIDE = 1024  # long side at which pictures are read
_GREY = 2  # bytes a pixel that turning a page to grey takes besides
_WHOLE = 8  # and those for each pixel of the reduced page
_MOST_BLOCKS = 2**13  # segments, chunks or blocks beside pixels: decoders keep them all as objects
_MOST_EXIF = 2**18  # bytes; a JPEG's segment has at most 2**16
_MOST_META = 2**26  # bytes before the pixels of a JPEG, which decoders may go through one by one
_MOST_TAGS = 2**12  # of a TIFF's directory; a hundred are many
_STRIP = 800  # bytes that decoders keep for each strip or tile of a TIFF

_PPM = re.compile(rb"(P[14]\s+\S+|P[2356f]\s+\S+\s+\S+)\s+\S+\s")  # without its remarks
_NESTED = {b"meta": 4, b"iprp": 0, b"ipco": 0}  # boxes of HEIC, and where those in them begin
_MARKER = re.compile(rb"\xff[\x02-\xcf\xd8-\xfe]")  # of a JPEG's segment
_TAG_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4,
              16: 8}  # fmt: skip
_ONCE = {256, 257, 258, 259, 273, 277, 278, 322, 323, 324}  # readers differ in which they believe
_PIECES = (258, 273, 279, 324, 325, 339)  # tags of the strips, tiles and samples
_BELOW = (34665, 34853, 40965)  # tags of further directories that are read with a page's own
_USUAL = {1, 2, 3, 4, 5, 8, 32773, 32946}  # packing of a TIFF: none, fax, LZW, deflate, PackBits
_JPEG_IN_TIFF = (6, 7)  # unpacked to RGBA


class _Kind(NamedTuple):
    """What decoding takes, as measured."""

    taken: int  #: bytes a pixel, of the decoder and of the picture that comes from it
    most: int = MAX_PIXELS  #: pixels, times the passes over them, that take 30 seconds or less
    light: int = 0  #: and 0.3 seconds or so


_KINDS = {
    "JPEG": _Kind(4, MAX_PIXELS, 50_000_000),
    "JPEG of several scans": _Kind(4, MAX_SCANS * MAX_PIXELS, 150_000_000),
    "PNG": _Kind(4, MAX_PIXELS, 13_000_000),
    "GIF": _Kind(2, MAX_PIXELS, 12_000_000),
    "BMP": _Kind(4, MAX_PIXELS, 25_000_000),
    "packed BMP": _Kind(4, 2**25),
    "PPM": _Kind(4, MAX_PIXELS, 6_000_000),
    "unusual PPM": _Kind(13, 2**23),
    "TIFF": _Kind(4, MAX_PIXELS, 9_000_000),
    "unusual TIFF": _Kind(4, MAX_PIXELS),
    "WebP": _Kind(16, MAX_PIXELS, 6_000_000),
    "JPEG 2000": _Kind(25, MAX_PIXELS),
    "AVIF": _Kind(10),
    "HEIF": _Kind(10),
    "PDF": _Kind(4),
}


@dataclass(frozen=True, slots=True)
class Header:
    """What a header says of a page."""

    kind: str  #: its format, and its variety where that decodes otherwise
    width: int  #: as the page lies in its file
    height: int
    extra: int = 0  #: bytes that decoding takes besides those for the pixels
    passes: int = 1  #: times that the decoder goes over the pixels

    @property
    def pixels(self) -> int:
        """Pixels of the page."""
        return self.width * self.height

    @property
    def is_light(self) -> bool:
        """Whether any process may decode it: 0.3 seconds and 300 MB are enough."""
        return self.pixels * self.passes <= _KINDS[self.kind].light and self.cost(_SIDE) <= LIGHT_BYTES

    def cost(self, long_side: int | None) -> int:
        """Bytes that decoding takes at its peak, with the page reduced to a long side or whole."""
        width, height = self.width, self.height
        times = 1
        if long_side is not None:
            if self.kind.startswith("JPEG") and self.kind != "JPEG 2000":
                fits = min(width, height) // long_side
                shrink = next((s for s in (8, 4, 2) if s <= fits), 1)
                width, height = -(-width // shrink), -(-height // shrink)
            times = max(1, max(width, height) // (2 * long_side))
        taken = _KINDS[self.kind].taken
        return self.extra + width * height * (taken + _GREY) + width * height * _WHOLE // times**2

    def check(self, max_pixels: int, long_side: int | None) -> None:
        """Refuse a page that would take too many bytes or too long.

        Raises
        ------
        InputError
        """
        most = min(max_pixels, MAX_PIXELS if self.passes > 1 else _KINDS[self.kind].most)
        if not self.pixels:
            raise InputError("the picture has no pixels; is it cut short?")
        if self.pixels > most:
            raise InputError(
                f"the picture has {self.width} x {self.height} pixels, at most {most:,} are "
                "decoded; make it smaller"
            )
        if self.pixels * self.passes > _KINDS[self.kind].most or self.passes > MAX_SCANS:
            raise InputError(
                f"the picture has {self.passes} or more scans or layers, at most "
                f"{MAX_SCANS} are decoded; save it again"
            )
        if (cost := self.cost(long_side)) > MAX_BYTES:
            raise InputError(
                f"the picture ({self.kind}, {self.width} x {self.height} pixels) needs "
                f"{cost / 1e9:.1f} GB to decode, the limit is {MAX_BYTES / 1e9:.1f} GB; make it "
                "smaller or save it as JPEG"
            )


def header_of(image: Any, extra: int, passes: int) -> Header:
    """Say what decoding takes, given the bytes and passes that were counted in its file."""
    width, height = image.size
    codec = image.tile[0][0] if image.tile else ""
    kind = {"MPO": "JPEG", "WEBP": "WebP", "JPEG2000": "JPEG 2000"}.get(image.format, image.format)
    if kind == "JPEG" and extra:
        kind = "JPEG of several scans"
    elif codec in ("ppm", "ppm_plain"):
        kind = "unusual PPM"
    elif codec == "bmp_rle":
        kind = "packed BMP"
    elif kind == "TIFF":
        tags = image.tag_v2
        packing, across, down = tags.get(259, 1), width, min(tags.get(278, height), height)
        if 324 in tags:
            across, down = tags[322], tags[323]
        if packing != 1:  # the piece that is being unpacked
            depth = max(8, *tags.get(258, (1,))) * tags.get(277, 1) // 8
            extra += across * down * (depth + (4 if packing in _JPEG_IN_TIFF else 0))
        extra += _STRIP * len(tags.get(324, tags.get(273, ())))
        pieces = (part for _, part, *_ in image.tile)
        area = sum((right - left) * (low - top) for left, top, right, low in pieces)
        passes = -(-area // max(width * height, 1)) or 1
        kind = "TIFF" if packing in _USUAL and not image.is_animated else "unusual TIFF"
    return Header(kind, width, height, extra, passes)


def check_exif(data: bytes) -> None:
    """Refuse EXIF data whose tags tell of the same bytes again and again: readers copy them."""
    with suppress(struct.error, IndexError):
        next(_tiff(io.BytesIO(data[6:] if data[:6] == b"Exif\0\0" else data)), None)


def _unpack(stream: IO[bytes], form: str) -> tuple[int, ...]:
    numbers: tuple[int, ...] = struct.unpack(form, stream.read(struct.calcsize(form)))
    return numbers


def _too_many(what: str) -> InputError:
    return InputError(f"the picture has too many {what}; it may be damaged, save it again")


def _bmp(stream: IO[bytes]) -> Iterator[tuple[int, int]]:
    stream.seek(14)
    (length,) = _unpack(stream, "<I")
    if length > _MOST_TAGS:
        raise _too_many("data about itself")
    yield 0, 1


def _ppm(stream: IO[bytes]) -> Iterator[tuple[int, int]]:
    stream.seek(0)
    begin = re.sub(rb"#[^\r\n]*([\r\n]|$)", b"", stream.read(2**14))
    if not _PPM.match(begin):
        raise InputError("the picture cannot be opened: its header is cut short or too long")
    yield 0, 1


def _webp(stream: IO[bytes]) -> Iterator[tuple[int, int]]:
    """Opening one makes its canvas and reads all of the file."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(12)
    begin = stream.read(18)
    if begin[:4] == b"VP8X":
        low, high, *more = struct.unpack("<HBHB", begin[12:])
        width, height = low + (high << 16) + 1, more[0] + (more[1] << 16) + 1
    elif begin[:4] == b"VP8L":
        (both,) = struct.unpack("<I", begin[9:13])
        width, height = both % 2**14 + 1, (both >> 14) % 2**14 + 1
    else:
        width, height = (side % 2**14 for side in struct.unpack("<2H", begin[14:]))
    Header("WebP", width, height, 2 * size).check(MAX_PIXELS, 1)
    yield 2 * size, 1


def _jpeg_2000(stream: IO[bytes]) -> Iterator[tuple[int, int]]:
    """Bytes that decoders keep for each tile."""
    at = 0
    stream.seek(0)
    if stream.read(4) != b"\xff\x4f\xff\x51":
        for _ in range(_MOST_BLOCKS):
            name, head, length = _box(stream, at)
            if name == b"jp2c":
                at += head
                break
            at += head if name in (b"jp2h", b"res ") else max(length, 8)
        else:
            raise _too_many("boxes")
    stream.seek(at + 4)
    length, right, bottom, x, y, across, down, left, top, parts = _unpack(stream, ">H2x8IH")
    if parts > 4 or not across or not down:
        raise InputError("the picture cannot be opened: expected 1 to 4 components in tiles")
    extra = 10_000 * -(-(right - left) // across) * -(-(bottom - top) // down)
    Header("JPEG 2000", right - x, bottom - y, extra).check(MAX_PIXELS, 1)
    at, mark = at + 4 + length, 0
    for _ in range(_MOST_BLOCKS):
        stream.seek(at)
        mark, length = _unpack(stream, ">xBH")
        if mark in (0x64, 0x90, 0xD9):  # a remark, the pixels or the end
            break
        at += 2 + length
    else:
        raise _too_many("segments")
    yield extra, 1


def _box(stream: IO[bytes], at: int) -> tuple[bytes, int, int]:
    """The name of a box of JPEG 2000 or HEIC, the bytes of its head, and those of all of it."""
    stream.seek(at)
    length, name = struct.unpack(">I4s", stream.read(8))
    return (name, 16, _unpack(stream, ">Q")[0]) if length == 1 else (name, 8, length)


def _heif(stream: IO[bytes]) -> Iterator[tuple[int, int]]:
    """The largest picture of all that are told of: tiles are smaller than what they make up."""
    size = stream.seek(0, os.SEEK_END)
    left, sides = [(0, size)], [(0, 0)]
    for _ in range(_MOST_BLOCKS):
        if not left:
            break
        at, end = left.pop()
        if at + 8 > end:
            continue
        name, head, length = _box(stream, at)
        after = at + max(length, 8) if length else end
        left.append((after, end))
        if name in _NESTED:
            left.append((at + head + _NESTED[name], min(after, end)))
        elif name == b"ispe":
            sides.append(struct.unpack(">4x2I", stream.read(12)))
    else:
        raise _too_many("boxes")
    Header("HEIF", *max(sides, key=math.prod), size).check(MAX_PIXELS, 1)
    yield size, 1


def _jpeg(stream: IO[bytes]) -> Iterator[tuple[int, int]]:
    """Bytes of the coefficients, which are kept until the last scan has come, and the scans."""
    at, exif = 2, b""
    frame: bytes = b""
    for _ in range(_MOST_BLOCKS):
        stream.seek(at)
        begin, mark, length = _unpack(stream, ">BBH")
        if begin != 0xFF or mark in (0, 0xFF):
            at += 1
        elif 0xD0 <= mark <= 0xD9 or mark == 1:
            at += 2
        elif mark == 0xDA:
            break
        else:
            if 0xC0 <= mark <= 0xCF and mark not in (0xC4, 0xC8, 0xCC):
                frame = bytes((mark,)) + stream.read(length - 2)
            elif mark in (0xE1, 0xE2):
                data = stream.read(length - 2)
                if data[:4] == b"Exif":
                    exif += data[6 if exif else 0 :]
                elif data[:4] == b"MPF\0":
                    check_exif(data[4:])
            at += 2 + length
        if len(exif) > _MOST_EXIF or at > _MOST_META:
            raise _too_many("data about itself")
    else:
        raise _too_many("segments")
    check_exif(exif)
    height, width, count = struct.unpack(">HHB", frame[2:7])
    (parts,) = stream.read(1)
    if frame[0] in (0xC0, 0xC1, 0xC3) and parts == count:
        yield 0, 1
        return
    factors = [divmod(frame[8 + 3 * place], 16) for place in range(count)]
    blocks = sum(across * down for across, down in factors)
    largest = max(max(a for a, _ in factors) * max(d for _, d in factors), 1)
    yield 2 * width * height * blocks // largest, 1 + _scans(stream)


def _scans(stream: IO[bytes]) -> int:
    """Further scans of a JPEG, counted as far as they may go; what lies behind its end is not."""
    scans, at, data = 0, 0, stream.read(_MOST_META)
    for _ in range(_MOST_BLOCKS):
        marker = _MARKER.search(data, at)
        if marker is None or marker[0] == b"\xff\xd9" or scans > MAX_SCANS:
            return scans
        scans += marker[0] == b"\xff\xda"
        at = marker.end() + int.from_bytes(data[marker.end() : marker.end() + 2])
    return MAX_SCANS + 1


def _png(stream: IO[bytes]) -> Iterator[tuple[int, int]]:
    size = stream.seek(0, os.SEEK_END)
    at, blocks, beside = 8, 0, 0
    while at + 8 <= size:
        stream.seek(at)
        length, name = struct.unpack(">I4s", stream.read(8))
        if name == b"IEND":
            break
        blocks += name not in (b"IDAT", b"fdAT", b"fcTL")
        beside += length if name not in (b"IDAT", b"fdAT") else 0
        if blocks > _MOST_BLOCKS or beside > _MOST_META:
            raise _too_many("chunks")
        at += 12 + length
    yield size, 1


def _gif(stream: IO[bytes]) -> Iterator[tuple[int, int]]:
    stream.seek(10)
    (flags,) = _unpack(stream, "<B2x")
    stream.seek(3 * 2 ** (1 + flags % 8) if flags & 0x80 else 0, os.SEEK_CUR)
    mark, blocks = stream.read(1), 0
    while mark not in (b"", b",", b";"):  # others than "!" are skipped
        stream.seek(mark == b"!", os.SEEK_CUR)
        length = 1
        while length:
            (length,) = (stream.read(1) if mark == b"!" else b"") or b"\0"
            stream.seek(length, os.SEEK_CUR)
            blocks += 1
            if blocks > _MOST_BLOCKS:
                raise _too_many("blocks")
        mark = stream.read(1)
    yield 0, 1


def _tiff(stream: IO[bytes]) -> Iterator[tuple[int, int]]:
    """Of each directory the bytes that decoders keep for its tags."""
    stream.seek(0)
    begin = stream.read(16)
    order, big = ">" if begin[:2] == b"MM" else "<", 43 in begin[2:4]
    forms = ("Q", "HHQ8s", "Q") if big else ("H", "HHI4s", "I")
    structs = [struct.Struct(order + form) for form in forms]
    link = structs[2]
    (at,), seen = link.unpack_from(begin, 8 if big else 4), set[int]()
    while at:
        if at in seen:
            raise InputError(f"page {len(seen)} of the file repeats an earlier page")
        if len(seen) == MAX_PAGES:
            raise InputError(f"the file has more than {MAX_PAGES:,} pages; split it")
        seen.add(at)
        tags, kept, at = _tags(stream, structs, at)
        if any(tags[tag][1] > MAX_STRIPS for tag in _PIECES if tag in tags):
            raise _too_many("strips or tiles")
        for tag in _BELOW:
            with suppress(struct.error):  # that one is broken does not concern the pixels
                if tag in tags and (below := _place(stream, order, link, *tags[tag])):
                    _tags(stream, structs, below)
        yield 4 * kept, 1


def _place(stream: IO[bytes], order: str, link: struct.Struct, kind: int, _: int, value: bytes) -> int:
    """The number that a tag holds, or that lies where it says."""
    form = struct.Struct(order + {3: "H", 8: "H", 16: "Q"}.get(kind, "I"))
    if form.size > len(value):
        stream.seek(link.unpack(value)[0])
        value = stream.read(form.size)
    return int(form.unpack_from(value)[0])


def _tags(
    stream: IO[bytes], structs: list[struct.Struct], at: int
) -> tuple[dict[int, tuple[int, int, bytes]], int, int]:
    """The tags of a directory, the bytes that they tell of, and where the next one is."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(at)
    count, entry, link = structs
    (number,) = count.unpack(stream.read(count.size))
    if number > _MOST_TAGS:
        raise InputError(f"the picture has {number:,} tags, at most {_MOST_TAGS:,} are allowed")
    data = stream.read(number * entry.size + link.size)
    after = data[number * entry.size :]
    tags: dict[int, tuple[int, int, bytes]] = {}
    told = 0
    for tag, kind, amount, value in entry.iter_unpack(data[: number * entry.size]):
        if (length := amount * _TAG_BYTES.get(kind, 0)) > len(value):
            told += min(length, max(size - link.unpack(value)[0], 0))
        if told > 2 * size + _MOST_TAGS:
            raise InputError("several tags of the picture share the same bytes; save it again")
        if tag in _ONCE and tags.get(tag, (kind, amount, value)) != (kind, amount, value):
            raise InputError("the picture states its size or format twice; save it again")
        tags[tag] = kind, amount, value
    return tags, told, link.unpack(after)[0] if len(after) == link.size else 0


COUNTED = {
    "JPEG": _jpeg, "PNG": _png, "GIF": _gif, "TIFF": _tiff, "WEBP": _webp, "BMP": _bmp,
    "PPM": _ppm, "JPEG2000": _jpeg_2000, "HEIF": _heif, "AVIF": _heif,
}  # fmt: skip
"""What counts the blocks or tags of a file; yields bytes and passes, once for each page."""
