"""What the segments of a JPEG and the chunks of a PNG say: whether any process may decode it."""

import re
import struct

MAX_SCANS = 64  # of a JPEG: each goes over the whole picture; ten are usual
LIGHT_FILE, LIGHT_PNG, LIGHT_JPEG = 2**25, 4_000_000, 12_500_000  # bytes; pixels that take 0.5 s and 300 MB

_MAX_BLOCKS = 2**14  # twice the segments of a JPEG; chunks of a light PNG
_MAX_EXIF = 2**16  # bytes in a light picture; Pillow may copy them for every tag
_SEGMENT = re.compile(rb"\xff[\x02-\xcf\xd8-\xfe]")  # marker of a segment of a JPEG
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # markers of the segments that tell the size
_BARE = {0xC8, 0xD8, 0xD9, *range(0xF0, 0xFE)}  # markers without a segment, as Pillow reads them


def is_light_jpeg(data: bytes) -> bool:
    pixels, scans, exif = survey_of_jpeg(data)
    return pixels * max(1, scans / 3) <= LIGHT_JPEG and scans <= MAX_SCANS and exif <= _MAX_EXIF


def survey_of_jpeg(data: bytes) -> tuple[int, int, int]:
    """Return pixels, scans and bytes of EXIF; with endless segments more than `MAX_SCANS` scans."""
    at, left, pixels, scans, exif = 2, _MAX_BLOCKS, 0, 0, 0
    while True:
        marker = _SEGMENT.search(data, at)
        left -= 1 if scans else (marker.end() if marker else len(data)) - at  # Pillow goes byte by byte
        if left < 0:
            return pixels, MAX_SCANS + 1, exif
        if marker is None or (scans and marker[0] == b"\xff\xd9"):  # the end; previews may follow
            return pixels, scans, exif
        at, kind = marker.end(), marker[0][1]
        length = 0 if kind in _BARE else int.from_bytes(data[at : at + 2])
        scans += kind == 0xDA
        if kind in _FRAMES:
            high, wide = data[at + 3 : at + 5], data[at + 5 : at + 7]
            pixels = max(pixels, int.from_bytes(high) * int.from_bytes(wide))
        if data.startswith(b"Exif", at + 2):
            exif += length
        at += length


def is_light_png(data: bytes) -> bool:
    at = 8
    for _ in range(_MAX_BLOCKS):
        if at + 16 > len(data) or data.startswith(b"IEND", at + 4):
            return True
        length, name, wide, high = struct.unpack_from(">I4s2I", data, at)
        if name == b"IHDR" and wide * high > LIGHT_PNG:
            return False
        if (name == b"eXIf" and length > _MAX_EXIF) or data.startswith(b"Raw profile type exif", at + 8):
            return False  # the latter is EXIF too, and may be packed
        at += 12 + length
    return False
