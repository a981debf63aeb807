"""Headers of picture files: what a picture is and would cost, before any decoder is opened."""

import io
import os
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, NamedTuple

from neocog.errors import InputError
from neocog.vision.heif import largest_picture
from neocog.vision.tiff import Tiff

MAX_PIXELS = 2**27
"""Pages with more pixels than this (134 million) are refused by their header alone."""

MAX_BYTES = 1_200_000_000
"""A page that would take more memory to decode is refused; a process has 1.5 GB for all it does."""

MAX_SCANS = 64
"""Scans of a JPEG that are decoded: each goes over the whole picture; ten are usual."""

LIGHT_BYTES = 300_000_000
"""Memory of a picture that any process may decode; see `Header.is_light`."""

_SIDE = 1024  # long side at which pictures are read
_GREY = 2  # bytes a pixel that turning a page to grey takes besides
_WHOLE = 8  # and those for each pixel of the reduced page
_MOST_BLOCKS = 2**13  # segments, chunks or blocks beside pixels: decoders keep them all as objects
_MOST_EXIF = 2**18  # bytes; a JPEG's segment has at most 2**16
_MOST_META = 2**26  # bytes before the pixels of a JPEG, which decoders may go through one by one


_MARKER = re.compile(rb"\xff[\x02-\xcf\xd8-\xfe]")  # of a JPEG's segment


class _Kind(NamedTuple):
    """What decoding takes, as measured.

    Attributes
    ----------
    taken : int
        Bytes a pixel, of the decoder and of the picture that comes from it.
    most : int
        Pixels, times the passes over them, that take 30 seconds or less.
    light : int
        And 0.3 seconds or so.
    """

    taken: int
    most: int = MAX_PIXELS
    light: int = 0


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
    """What a header says of a page.

    Attributes
    ----------
    kind : str
        Its format, and its variety where that decodes otherwise.
    width, height : int
        As the page lies in its file.
    extra : int
        Bytes that decoding takes besides those for the pixels.
    passes : int
        Times that the decoder goes over the pixels.
    """

    kind: str
    width: int
    height: int
    extra: int = 0
    passes: int = 1

    @property
    def pixels(self) -> int:
        """Pixels of the page."""
        return self.width * self.height

    @property
    def is_light(self) -> bool:
        """Whether any process may decode it: 0.3 seconds and 300 MB are enough."""
        return (
            self.pixels * self.passes <= _KINDS[self.kind].light and self.cost(_SIDE) <= LIGHT_BYTES
        )

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
                f"the picture has {self.passes} or more layers over one another, at most "
                f"{MAX_SCANS} are decoded; save it again"
            )
        if (cost := self.cost(long_side)) > MAX_BYTES:
            raise InputError(
                f"the picture ({self.kind}, {self.width} x {self.height} pixels) needs "
                f"{cost / 1e9:.1f} GB to decode, the limit is {MAX_BYTES / 1e9:.1f} GB; make it "
                "smaller or save it as JPEG"
            )


def headers(stream: IO[bytes]) -> Iterator[Header]:
    """Yield what the header of each page of a picture file says, by reading nothing else.

    Parameters
    ----------
    stream : binary file
        It is read wherever it stands, also between the pages.

    Raises
    ------
    InputError
        If it is no picture that can be decoded, or would cost decoders too much.
    """
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    begin = stream.read(16)
    if not begin:
        raise InputError("the file is empty, expected a picture")
    read = next((read for form, read in _FORMATS if form.match(begin)), None)
    if read is None:
        raise InputError(
            "the file is not a picture that neocog can decode; "
            "use JPEG, PNG, TIFF, BMP, GIF, WebP, HEIC or PDF"
        )
    pages = 0
    try:
        for pages, header in enumerate(read(stream, size), 1):  # noqa: B007
            yield header
    except (struct.error, IndexError, ValueError, OverflowError):
        raise InputError("the picture cannot be opened: its header is cut short") from None
    if not pages:
        raise InputError("the file has no page")


def is_pdf(stream: IO[bytes]) -> bool:
    """Whether a file begins as a PDF."""
    stream.seek(0)
    return stream.read(5) == b"%PDF-"


def check_exif(data: bytes) -> None:
    """Refuse EXIF data whose tags tell of the same bytes again and again: readers copy them."""
    with suppress(struct.error, IndexError):
        Tiff(io.BytesIO(data[6:] if data[:6] == b"Exif\0\0" else data)).check_tags()


def _unpack(stream: IO[bytes], form: str) -> tuple[int, ...]:
    numbers: tuple[int, ...] = struct.unpack(form, stream.read(struct.calcsize(form)))
    return numbers


def _too_many(what: str) -> InputError:
    return InputError(f"the picture has more {what} than any program writes; save it again")


def _jpeg(stream: IO[bytes], size: int) -> Iterator[Header]:
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
    factors = [divmod(frame[8 + 3 * place], 16) for place in range(count)]
    blocks = sum(across * down for across, down in factors)
    largest = max(max(a for a, _ in factors) * max(d for _, d in factors), 1)
    (parts,) = stream.read(1)
    if frame[0] in (0xC0, 0xC1, 0xC3) and parts == count:
        yield Header("JPEG", width, height)
        return
    kept = 2 * width * height * blocks // largest  # the coefficients, until the last scan has come
    yield Header("JPEG of several scans", width, height, kept, 1 + _scans(stream))


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


def _png(stream: IO[bytes], size: int) -> Iterator[Header]:
    stream.seek(16)
    width, height = _unpack(stream, ">2I")
    at, blocks = 8, 0
    while at + 8 <= size:
        stream.seek(at)
        length, name = struct.unpack(">I4s", stream.read(8))
        if name == b"IEND":
            break
        blocks += name not in (b"IDAT", b"fdAT", b"fcTL")
        if blocks > _MOST_BLOCKS:
            raise _too_many("chunks")
        at += 12 + length
    yield Header("PNG", width, height, size)


def _gif(stream: IO[bytes], size: int) -> Iterator[Header]:
    stream.seek(6)
    width, height, flags = _unpack(stream, "<HHB2x")
    stream.seek(3 * 2 ** (1 + flags % 8) if flags & 0x80 else 0, os.SEEK_CUR)
    for _ in range(_MOST_BLOCKS):
        mark = stream.read(1)
        if mark == b",":
            left, top, across, down = _unpack(stream, "<4H")
            yield Header("GIF", max(width, left + across), max(height, top + down))
            return
        if mark == b"!":
            stream.seek(1, os.SEEK_CUR)
            for _ in range(_MOST_BLOCKS):
                (length,) = stream.read(1) or b"\0"
                stream.seek(length, os.SEEK_CUR)
                if not length:
                    break
            else:
                raise _too_many("blocks")
        elif mark in (b"", b";"):
            raise InputError("the picture cannot be opened: it is cut short")
    raise _too_many("blocks")


def _bmp(stream: IO[bytes], size: int) -> Iterator[Header]:
    stream.seek(14)
    (length,) = _unpack(stream, "<I")
    if length == 12:
        yield Header("BMP", *_unpack(stream, "<2H"))
        return
    width, height, _, packing = _unpack(stream, "<2iII")
    yield Header("packed BMP" if packing in (1, 2) else "BMP", abs(width), abs(height))


def _ppm(stream: IO[bytes], size: int) -> Iterator[Header]:
    stream.seek(0)
    begin = re.sub(rb"#[^\r\n]*[\r\n]", b"", stream.read(2**14))
    mark, width, height, *rest = begin.split(None, 4)[:4]
    top = int(rest[0]) if mark in (b"P2", b"P3", b"P5", b"P6") else 255
    plain = mark in (b"P4", b"Pf") or (
        mark in (b"P5", b"P6") and (top == 255 or (top, mark) == (65535, b"P5"))
    )
    yield Header("PPM" if plain else "unusual PPM", int(width), int(height))


def _webp(stream: IO[bytes], size: int) -> Iterator[Header]:
    """The canvas: what opening it with a decoder allocates."""
    stream.seek(12)
    begin = stream.read(18)
    width = height = 0
    if begin[:4] == b"VP8X":
        low, high, *more = struct.unpack("<HBHB", begin[12:18])
        width, height = low + (high << 16) + 1, more[0] + (more[1] << 16) + 1
    elif begin[:4] == b"VP8L":
        (both,) = struct.unpack("<I", begin[9:13])
        width, height = both % 2**14 + 1, (both >> 14) % 2**14 + 1
    else:
        width, height = (side % 2**14 for side in struct.unpack("<2H", begin[14:18]))
    yield Header("WebP", width, height, 2 * size)


def _jpeg_2000(stream: IO[bytes], size: int) -> Iterator[Header]:
    at = 0
    stream.seek(0)
    if stream.read(4) != b"\xff\x4f\xff\x51":
        for _ in range(_MOST_BLOCKS):
            stream.seek(at)
            length, name = struct.unpack(">I4s", stream.read(8))
            head = 8
            if length == 1:
                (length,), head = _unpack(stream, ">Q"), 16
            if name == b"jp2c":
                at += head
                break
            at += max(length, 8)
        else:
            raise _too_many("boxes")
    stream.seek(at + 8)
    right, bottom, x, y, across, down, left, top, parts = _unpack(stream, ">8IH")
    if parts > 4 or not across or not down:
        raise InputError("the picture cannot be opened: expected 1 to 4 components in tiles")
    tiles = -(-(right - left) // across) * -(-(bottom - top) // down)
    yield Header("JPEG 2000", right - x, bottom - y, tiles * 10_000)


def _heif(stream: IO[bytes], size: int) -> Iterator[Header]:
    yield Header(*largest_picture(stream, size))


def _tiff(stream: IO[bytes], size: int) -> Iterator[Header]:
    for page in Tiff(stream).pages():
        kind = "TIFF" if page.is_usual else "unusual TIFF"
        yield Header(kind, page.width, page.height, page.extra, page.passes)


_FORMATS: tuple[tuple[re.Pattern[bytes], Callable[[IO[bytes], int], Iterator[Header]]], ...] = (
    (re.compile(rb"\xff\xd8\xff"), _jpeg),
    (re.compile(rb"\x89PNG\r\n\x1a\n"), _png),
    (re.compile(rb"II[*+]\0|MM\0[*+]"), _tiff),
    (re.compile(rb"GIF8[79]a"), _gif),
    (re.compile(rb"BM"), _bmp),
    (re.compile(rb"P[1-6f]\s"), _ppm),
    (re.compile(rb"RIFF.{4}WEBPVP8[ LX]", re.DOTALL), _webp),
    (re.compile(rb".{4}ftyp(avi|hei|hev|mif|msf)", re.DOTALL), _heif),
    (re.compile(rb"\xff\x4f\xff\x51|\0\0\0\x0cjP  \r\n\x87\n"), _jpeg_2000),
)
"""How a file begins, and what reads its header."""
