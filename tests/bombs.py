"""Pictures that attack their reader: bombs of every format."""

import struct
import zlib
from collections.abc import Iterator

from PIL import Image

from tests.support import file_of, scene

Case = tuple[str, bytes]  # the name of a file, and what it holds
Tag = tuple[int, int, int, int]  # of a TIFF: number, type, count, value


def bombs() -> Iterator[Case]:
    """Yield files made quickly that stand for much memory or time."""
    exif = directory(*((1000 + tag, 7, 14_000, 8) for tag in range(3000))) + bytes(13_000)  # tags over tags
    exif = b"II*\0\x08\0\0\0" + exif
    packed = zlib.compress(b"\nexif\n%8d\n%s\n" % (len(exif), exif.hex().encode()))
    segment = b"\xff\xe1" + struct.pack(">H", len(exif) + 8) + b"Exif\0\0" + exif
    boxes, jp2 = struct.pack(">I4s", 8, b"free") * 2**17, b"\0\0\0\x0cjP  \r\n\x87\n"
    gif, bmp, tiff = b"GIF89a\x08\0\x08\0\0\0\0", b"BM" + bytes(12), b"II*\0\x08\0\0\0"
    wide = struct.pack(">2I5B", 2**30, 2**30, 8, 2, 0, 0, 0)
    yield "canvas.webp", _large_webp()
    yield "scans.jpg", _scans(3000, 5000)
    yield "nothing.jpg", b"\xff\xd8\xff"
    yield "chunks.png", _between("PNG", 33, _chunk(b"abCd", b"") * 20_000)
    yield "segments.jpg", _between("JPEG", 2, b"\xff\xfe\0\2" * 20_000)
    yield "fill.jpg", b"\xff\xd8" + b"\xff" * 2**20
    yield "hidden.jpg", b"\xff\xd8" + b"\xff\xf0\xff\xff" + b"\xff\xd8" * 2**17
    yield "remarks.gif", _between("GIF", b",", b"!\xfe\1x\0" * 20_000, "P")
    yield "exif.jpg", _between("JPEG", 2, segment)
    yield "exif-segments.jpg", _between("JPEG", 2, segment * 9)
    yield "exif.png", _between("PNG", 33, _chunk(b"eXIf", exif))
    yield "exif-packed.png", _between("PNG", 33, _chunk(b"zTXt", b"Raw profile type exif\0\0" + packed))
    yield "exif.webp", file_of(scene(), "WEBP", exif=exif)
    yield "exif.tif", exif
    yield "large.jp2", _jpeg2000(11_000, 11_000)
    yield "tiles.jp2", _jpeg2000(400_000, 1)
    yield "components.jp2", _jpeg2000(100, 100, 9000)
    yield "segments.jp2", _jpeg2000(8, 8) + b"\xff\x52\0\2" * 2**17
    yield "boxes.jp2", jp2 + struct.pack(">I4s", 8 + 2**20, b"jp2h") + boxes
    yield "boxes.heic", struct.pack(">I8s4x", 16, b"ftypheic") + boxes
    tile = (259, 3, 1, 5), (322, 4, 1, 60_000), (323, 4, 1, 60_000), (324, 4, 1, 8)
    yield "tile.tif", tiff_of(10, 10, *tile)
    yield "strips.tif", tiff_of(9000, 9000, (273, 4, 9000, 8), (278, 4, 1, 4500)) + bytes(36_000)
    yield "strip-a-byte.tif", tiff_of(8, 8, (273, 1, 2**16, 8), (278, 4, 1, 1)) + bytes(2**16)
    yield "depths.tif", tiff_of(8, 8, (258, 3, 2**18, 8)) + bytes(2**19)
    yield "sizes.tif", tiff + directory((256, 4, 1, 5), (256, 4, 1, 9**9), (257, 4, 1, 5))
    yield "plain.ppm", b"P3\n9000 9000\n255\n"
    yield "maximum.ppm", b"P5 9000#x\n 9000 254\n"
    yield "remark.ppm", b"P6\n#" + b"a" * 2**20 + b"\n8 8\n255\n" + bytes(192)
    yield "packed.bmp", bmp + struct.pack("<IiiHHI", 40, 9000, -9000, 1, 8, 1) + bytes(20)
    yield "header.bmp", bmp + struct.pack("<I", 2**22) + bytes(2**22)
    yield "wide.gif", b"GIF89a\1\0\1\0\0\0\0," + struct.pack("<4H", *[2**16 - 1] * 4)
    yield "odd-bytes.gif", gif + bytes(2**17) + b","
    yield "wide.png", _between("PNG", 8, _chunk(b"IHDR", wide))


def directory(*tags: Tag, following: int = 0) -> bytes:
    """A TIFF's directory, and where the following one lies."""
    packed = b"".join(struct.pack("<HHII", *tag) for tag in sorted(tags))
    return struct.pack("<H", len(tags)) + packed + struct.pack("<I", following)


def tiff_of(width: int, height: int, *more: Tag, following: int = 0) -> bytes:
    """A grey TIFF without its pixels; ``more`` tags replace the usual ones."""
    values = {256: width, 257: height, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: height}
    values[279] = width * height
    tags = {tag: (tag, 4, 1, value) for tag, value in values.items()} | {tag[0]: tag for tag in more}
    return b"II*\0\x08\0\0\0" + directory(*tags.values(), following=following)


def _between(kind: str, place: int | bytes, data: bytes, mode: str = "RGB") -> bytes:
    """A picture with data put in at a place, or before some bytes."""
    picture = file_of(scene(mode=mode), kind)
    at = place if isinstance(place, int) else picture.index(place, 13)
    return picture[:at] + data + picture[at:]


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _large_webp() -> bytes:
    """An animation on a large canvas, whose frames are small."""
    frames = [scene(mode="RGBA"), scene(mode="RGBA").rotate(90)]
    data = bytearray(file_of(frames[0], "WEBP", save_all=True, append_images=frames[1:]))
    data[24:30] = (11_499).to_bytes(3, "little") * 2
    return bytes(data)


def _scans(side: int, count: int) -> bytes:
    """A progressive JPEG whose last scan is there many times, its size changed in the header."""
    data = bytearray(file_of(Image.new("L", (256, 256), 200), "JPEG", progressive=True))
    struct.pack_into(">HH", data, data.index(b"\xff\xc2") + 5, side, side)
    last = data.rindex(b"\xff\xda")
    return bytes(data[:last] + data[last:-2] * count + data[-2:])


def _jpeg2000(side: int, tile: int, parts: int = 3) -> bytes:
    """A header alone."""
    size = struct.pack(">H8IH", 0, side, side, 0, 0, tile, tile, 0, 0, parts) + b"\7\1\1" * parts
    return b"\xff\x4f\xff\x51" + struct.pack(">H", len(size) + 2) + size
