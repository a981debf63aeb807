"""Malformed picture files of many kinds: cut, overwritten, empty, bombs, no pictures at all."""

import gzip
import io
import os
import pickle
import struct
import zlib
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path

import numpy as np
from PIL import Image

_KINDS = {".png": "PNG", ".jpg": "JPEG", ".tif": "TIFF", ".bmp": "BMP", ".webp": "WEBP"}


def write_malformed(folder: Path, count: int) -> set[str]:
    """Write so many malformed files, and return their names."""
    folder.mkdir()
    names = set()
    for number, (suffix, write) in enumerate(islice(cycle(_cases()), count)):
        path = folder / f"bad{number:03}{suffix}"
        write(path)
        names.add(path.name)
    return names


def _cases() -> list[tuple[str, Callable[[Path], object]]]:
    cases: list[tuple[str, Callable[[Path], object]]] = []
    for suffix, data in (*_cut(), *_headless(), *_bombs(), *_others()):
        cases.append((suffix, lambda path, data=data: path.write_bytes(data)))  # type: ignore[misc]
    cases.append((".png", lambda path: os.mkfifo(path)))
    cases.append((".jpg", lambda path: path.symlink_to("nowhere.jpg")))
    cases.append((".tif", lambda path: path.symlink_to(path.name)))
    return cases


def _picture(kind: str) -> bytes:
    grey = np.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(grey).save(stream, kind)
    return stream.getvalue()


def _cut() -> Iterator[tuple[str, bytes]]:
    """Whole pictures, of which the end is missing."""
    for suffix, kind in _KINDS.items():
        data = _picture(kind)
        for share in (0.01, 0.1, 0.3, 0.5, 0.8):
            yield suffix, data[: int(share * len(data))]


def _headless() -> Iterator[tuple[str, bytes]]:
    """Pictures whose beginning is overwritten."""
    noise = np.random.default_rng(1)
    for suffix, kind in _KINDS.items():
        yield suffix, noise.bytes(64) + _picture(kind)[64:]
        yield suffix, bytes(64) + _picture(kind)[64:]


def _bombs() -> Iterator[tuple[str, bytes]]:
    """Few bytes that say that they are many pixels."""
    for side in (20_000, 60_000, 2**30):
        head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
        chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(bytes(10**6))), (b"IEND", b""))
        packed = (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
            for kind, data in chunks
        )
        yield ".png", b"\x89PNG\r\n\x1a\n" + b"".join(packed)
        yield ".ppm", b"P6 %d %d 255\n" % (side, side) + bytes(1000)
        bmp = bytearray(_picture("BMP"))
        struct.pack_into("<ii", bmp, 18, side, side)
        yield ".bmp", bytes(bmp)
    for side in (30_000, 65_535):
        jpeg = bytearray(_picture("JPEG"))
        struct.pack_into(">HH", jpeg, jpeg.index(b"\xff\xc0") + 5, side, side)
        yield ".jpg", bytes(jpeg)
        yield ".gif", b"GIF89a" + struct.pack("<HH", side, side) + bytes(200)


def _others() -> Iterator[tuple[str, bytes]]:
    """What is no picture at all."""
    yield ".png", b""
    yield ".jpg", b"\xff"
    yield ".png", b"\x89PNG\r\n\x1a\n"
    yield ".jpg", b"<!DOCTYPE html><html><body>404</body></html>"
    yield ".tif", np.random.default_rng(2).bytes(5000)
    yield ".png", pickle.dumps({"a": 1})
    yield ".jpg", b"PK\x03\x04" + bytes(200)
    yield ".png", gzip.compress(_picture("PNG"))
    yield ".png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n(x) run\n"
    yield ".tif", b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", 60_000) + bytes(100)
