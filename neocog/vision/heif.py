"""Boxes of HEIC and AVIF files: what they tell of their pictures."""

import re
import struct
from typing import IO

from neocog.errors import InputError

_MOST_BOXES = 2**13
_MOST_BRANDS = 2**12  # bytes
_NESTED = {b"meta": 4, b"iprp": 0, b"ipco": 0}  # where the boxes in them begin


def largest_picture(stream: IO[bytes], size: int) -> tuple[str, int, int]:
    """Return Pillow's name of the format, and the sides of the largest picture: tiles are smaller.

    struct.error if the file is cut short, InputError if it has too many boxes.
    """
    stream.seek(0)
    (length,) = struct.unpack(">I", stream.read(4))
    brands = stream.read(min(length, _MOST_BRANDS))
    left, sides = [(0, size)], [(0, 0)]
    for _ in range(_MOST_BOXES):
        if not left:
            wide, high = max(sides, key=lambda side: side[0] * side[1])
            return "AVIF" if re.search(rb"avi[fs]", brands) else "HEIF", wide, high
        at, end = left.pop()
        if at + 8 > end:
            continue
        stream.seek(at)
        length, name = struct.unpack(">I4s", stream.read(8))
        head = 8
        if length == 1:
            (length,), head = struct.unpack(">Q", stream.read(8)), 16
        after = at + max(length, 8) if length else end
        left.append((after, end))
        if name in _NESTED:
            left.append((at + head + _NESTED[name], min(after, end)))
        elif name == b"ispe":
            _, wide, high = struct.unpack(">3I", stream.read(12))
            sides.append((wide, high))
    raise InputError("the picture has more boxes than any program writes; save it again")
