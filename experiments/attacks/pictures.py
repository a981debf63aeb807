"""Pictures that attack their reader: damaged at random, and bombs of every format."""

import io
import struct
import zlib
from collections.abc import Iterator

import numpy as np
from PIL import Image

from neocog.vision.decode import FORMATS
from tests.support import page

Case = tuple[str, bytes]  # the name of a file, and what it holds
_SUFFIX = {"PNG": "png", "JPEG": "jpg", "TIFF": "tif", "BMP": "bmp", "GIF": "gif", "PPM": "ppm",
           "WEBP": "webp", "JPEG2000": "jp2"}  # fmt: skip
_HUGE = (0x7FFFFFFF, 0xFFFFFFFF, 65_535, 1 << 20, 0)


def whole(kind: str) -> bytes:
    """A picture of two digits in a format."""
    picture = Image.fromarray(page("12")).convert("RGB").resize((90, 60))
    stream = io.BytesIO()
    more = {"save_all": True, "append_images": [picture]} if kind in ("TIFF", "GIF") else {}
    picture.save(stream, kind, **more)
    return stream.getvalue()


def damaged(count: int, *, seed: int = 0) -> Iterator[Case]:
    """Yield so many pictures, every format in turn, each damaged in one of five ways."""
    random = np.random.default_rng(seed)
    formats = {kind: whole(kind) for kind in FORMATS if _written(kind)}
    ways = (_flipped, _cut, _swapped, _lying, _noisy)
    for number in range(count):
        kind = list(formats)[number % len(formats)]
        way = ways[number // len(formats) % len(ways)]
        data = bytearray(formats[kind])
        way(data, random)
        yield f"{number:04}-{way.__name__[1:]}.{_SUFFIX[kind]}", bytes(data)


def _written(kind: str) -> bool:
    try:
        return bool(whole(kind))
    except (OSError, KeyError):  # a Pillow built without it
        return False


def _flipped(data: bytearray, random: np.random.Generator) -> None:
    """A few bits, half of the time near the beginning."""
    reach = len(data) if random.random() < 0.5 else min(200, len(data))
    for _ in range(random.integers(1, 9)):
        data[random.integers(reach)] ^= 1 << random.integers(8)


def _cut(data: bytearray, random: np.random.Generator) -> None:
    del data[random.integers(1, len(data)) :]


def _swapped(data: bytearray, random: np.random.Generator) -> None:
    """Two stretches change places, or one is there twice."""
    size = int(random.integers(4, max(5, len(data) // 4)))
    first, second = (int(random.integers(len(data) - size)) for _ in range(2))
    data[first : first + size], data[second : second + size] = (
        data[second : second + size], data[first : first + size]
    )  # fmt: skip
    if random.random() < 0.5:
        data[first:first] = data[second : second + size]


def _lying(data: bytearray, random: np.random.Generator) -> None:
    """A number of the header becomes huge."""
    order, wide = random.choice(["<", ">"]), bool(random.integers(2))
    value = int(random.choice(_HUGE)) & (0xFFFFFFFF if wide else 0xFFFF)
    struct.pack_into(order + "HI"[wide], data, int(random.integers(min(80, len(data) - 4))), value)


def _noisy(data: bytearray, random: np.random.Generator) -> None:
    keep = int(random.integers(8, min(100, len(data))))
    data[keep:] = random.bytes(len(data) - keep)


def bombs() -> Iterator[Case]:
    """Yield small files that stand for much memory or time, some within the limits on pixels."""
    for side in (11_500, 20_000, 2**31 - 1):
        yield f"png-{side}.png", _png(side, side, min(side * (side + 1), 2**27))
    yield "png-colour.png", _png(11_000, 11_000, 11_000 * 33_001, colour=2)
    text = _chunk(b"zTXt", b"a\0\0" + zeros(2**26))
    yield "png-text.png", _png(8, 8, 72, more=40 * text)
    for width, height in ((16_383, 8_192), (16_383, 16_383)):
        yield f"webp-{height}.webp", _riff(_lossless(width, height))
        yield f"webp-moving-{height}.webp", _moving_webp(width, height)
    for width, height in ((11_000, 11_000), (65_535, 65_535)):
        yield f"gif-{width}.gif", _gif(width, height)
    for name, width, height in (("near", 11_000, 11_000), ("far", 65_500, 65_500)):
        yield f"tif-{name}.tif", _tiff(width, height, pages=1)
        yield f"bmp-{name}.bmp", _bmp(width, height)
        yield f"ppm-{name}.ppm", b"P6 %d %d 255\n" % (width, height) + bytes(1000)
        yield f"ppm-text-{name}.ppm", b"P3 %d %d 255\n" % (width, height) + b"0 " * 1000
    yield "tif-circle.tif", _tiff(16, 16, pages=1, circle=True)
    yield "tif-pages.tif", _tiff(16, 16, pages=20_000)
    yield "tif-large-pages.tif", _tiff(9_000, 9_000, pages=30)
    yield "jpg-scans.jpg", _scans(2_000, 400)
    yield "jpg-large-scans.jpg", _scans(11_000, 500)
    yield "jpg-far.jpg", _scans(65_500, 1)
    yield "jp2-tiles.jp2", _jpeg2000(4, xsiz=60_000, ysiz=60_000, xt=1, yt=1)
    yield "jp2-huge.jp2", _jpeg2000(4, xsiz=2**31, ysiz=2**31, xt=2**31, yt=2**31)
    yield "jp2-near.jp2", _jpeg2000(4, xsiz=11_000, ysiz=11_000, xt=11_000, yt=11_000)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def zeros(count: int, wbits: int = zlib.MAX_WBITS) -> bytes:
    """Return so many zero bytes, packed by zlib."""
    packer, block = zlib.compressobj(1, wbits=wbits), bytes(2**20)
    parts = [packer.compress(block) for _ in range(count // len(block))]
    return b"".join(parts) + packer.compress(bytes(count % len(block))) + packer.flush()


def _png(width: int, height: int, rows: int, *, colour: int = 0, more: bytes = b"") -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + more + _chunk(b"IDAT", zeros(rows))
            + _chunk(b"IEND", b""))  # fmt: skip


def _moving_webp(width: int, height: int) -> bytes:
    """An animation on a large canvas, whose frames are of one pixel."""
    size = struct.pack("<II", width - 1, height - 1)
    canvas = size[:3] + size[4:7]
    frame = bytes(6) + bytes(6) + b"\1\0\0\0" + _lossless(1, 1)
    frames = 100 * (b"ANMF" + struct.pack("<I", len(frame)) + frame)
    head = b"VP8X" + struct.pack("<I", 10) + b"\2\0\0\0" + canvas
    return _riff(head + b"ANIM" + struct.pack("<I", 6) + bytes(6) + frames)


def _riff(chunks: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", len(chunks) + 4) + b"WEBP" + chunks


def _lossless(width: int, height: int) -> bytes:
    """A chunk of a picture of one colour: each of its five codes has one symbol of no bits."""
    bits = f"{width - 1:014b}"[::-1] + f"{height - 1:014b}"[::-1] + "0" + "000" + "000"
    bits += "10" + "0" + "0" + ("10" + "1" + "1" * 8) * 3 + "10" + "0" + "0"
    bits += "0" * (-len(bits) % 8) + "0" * 64
    data = bytes(int(bits[i : i + 8][::-1], 2) for i in range(0, len(bits), 8))
    return b"VP8L" + struct.pack("<I", len(data) + 1) + b"\x2f" + data + bytes((len(data) + 1) % 2)


def _gif(width: int, height: int) -> bytes:
    stream = io.BytesIO()
    Image.new("P", (4, 4)).save(stream, "GIF")
    data = bytearray(stream.getvalue())
    struct.pack_into("<HH", data, 6, width, height)
    return bytes(data)


def _tiff(width: int, height: int, *, pages: int, circle: bool = False) -> bytes:
    """Pages of zeros, packed, that share their bytes."""
    packed = zeros(width * min(height, 2**27 // width))
    entries = ((256, 4, width), (257, 4, height), (258, 3, 8), (259, 3, 8), (262, 3, 1),
               (273, 4, 8), (277, 3, 1), (278, 4, height), (279, 4, len(packed)))  # fmt: skip
    table = struct.pack("<H", len(entries))
    table += b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in entries)
    first, size = 8 + len(packed) + len(packed) % 2, len(table) + 4
    parts = [b"II*\0" + struct.pack("<I", first) + packed + bytes(len(packed) % 2)]
    for number in range(1, pages + 1):
        after = first + number * size if number < pages else first if circle else 0
        parts.append(table + struct.pack("<I", after))
    return b"".join(parts)


def _bmp(width: int, height: int) -> bytes:
    """Run-length coded, with little in it."""
    head = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, 6, 0, 0, 256, 0)
    body = head + bytes(1024) + b"\xff\0\xff\0\0\1"
    return b"BM" + struct.pack("<IHHI", 14 + len(body), 0, 0, 14 + 40 + 1024) + body


def _scans(side: int, count: int) -> bytes:
    """A progressive JPEG whose last scan is there many times, its size changed in the header."""
    stream = io.BytesIO()
    Image.new("L", (256, 256), 200).save(stream, "JPEG", progressive=True)
    data = bytearray(stream.getvalue())
    struct.pack_into(">HH", data, data.index(b"\xff\xc2") + 5, side, side)
    last = data.rindex(b"\xff\xda")
    return bytes(data[:last] + data[last:-2] * count + data[-2:])


def _jpeg2000(side: int, *, xsiz: int, ysiz: int, xt: int, yt: int) -> bytes:
    """A picture whose header says another size of it and of its tiles."""
    stream = io.BytesIO()
    try:
        Image.new("L", (side, side)).save(stream, "JPEG2000")
    except (OSError, KeyError):
        return b"\0\0\0\x0cjP  \r\n\x87\n"
    data = bytearray(stream.getvalue())
    place = data.index(b"\xff\x51") + 6
    struct.pack_into(">IIIIII", data, place, xsiz, ysiz, 0, 0, xt, yt)
    head = data.index(b"ihdr") + 4
    struct.pack_into(">II", data, head, ysiz, xsiz)
    return bytes(data)
