"""What a picture would cost is told by its header, and what would cost too much is refused."""

import io
import re
import struct
import subprocess
import sys
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from neocog.errors import InputError
from neocog.vision import decode as vision_decode
from neocog.vision import header
from neocog.vision.decode import check_size, decode, is_light
from neocog.vision.header import LIGHT_FILE, MAX_BYTES, MAX_SCANS
from neocog.vision.opening import opened
from tests.picture_files import file_of, scene


def paper(width: int = 60, height: int = 40, mode: str = "RGB") -> Image.Image:
    return scene(width, height, mode)


def chunk(name: bytes, data: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(name + data))
    return struct.pack(">I", len(data)) + name + data + check


def directory(*tags: tuple[int, int, int, int], following: int = 0) -> bytes:
    """A TIFF directory of tags: number, type, count, value."""
    packed = b"".join(struct.pack("<HHII", *tag) for tag in sorted(tags))
    return struct.pack("<H", len(tags)) + packed + struct.pack("<I", following)


def tiff_of(width: int, height: int, *more: tuple[int, int, int, int], following: int = 0) -> bytes:
    told = {256: (256, 4, 1, width), 257: (257, 4, 1, height), 258: (258, 3, 1, 8),
            259: (259, 3, 1, 1), 262: (262, 3, 1, 1), 273: (273, 4, 1, 8), 277: (277, 3, 1, 1),
            278: (278, 4, 1, height), 279: (279, 4, 1, width * height)}  # fmt: skip
    told.update((tag[0], tag) for tag in more)
    return b"II*\0" + struct.pack("<I", 8) + directory(*told.values(), following=following)


def sparse_webp() -> bytes:
    frames = [paper(mode="RGBA"), paper(mode="RGBA").rotate(90)]
    data = bytearray(file_of(frames[0], "WEBP", save_all=True, append_images=frames[1:]))
    data[24:30] = (11_499).to_bytes(3, "little") * 2
    return bytes(data)


def many_scans(scans: int) -> bytes:
    """A progressive JPEG that goes over the same coefficients again and again."""
    whole = file_of(paper(3000, 2000), "JPEG", progressive=True)
    return whole[:-2] + b"\xff\xda\0\x08\1\1\0\1\x3f\0" * scans + whole[-2:]


def many_chunks() -> bytes:
    whole = file_of(paper(), "PNG")
    return whole[:33] + chunk(b"abCd", b"") * 20_000 + whole[33:]


def many_segments() -> bytes:
    whole = file_of(paper(), "JPEG")
    return whole[:2] + b"\xff\xfe\0\2" * 20_000 + whole[2:]


def many_remarks() -> bytes:
    whole = file_of(paper(mode="P"), "GIF")
    at = whole.index(b",", 13)
    return whole[:at] + b"!\xfe\1x\0" * 20_000 + whole[at:]


def tags_over_tags(begin: bytes = b"") -> bytes:
    """Tags of which each takes all that follows."""
    count = 3000
    tags = directory(*((1000 + tag, 7, 50_000 - 12 * count, 8) for tag in range(count)))
    return begin + b"II*\0" + struct.pack("<I", 8) + tags + bytes(13_000)


def jpeg_with(segment: bytes) -> bytes:
    whole = file_of(paper(), "JPEG")
    return whole[:2] + b"\xff\xe1" + struct.pack(">H", len(segment) + 2) + segment + whole[20:]


def jp2_of(side: int, tile: int, parts: int = 3) -> bytes:
    said = struct.pack(">H8IH", 0, side, side, 0, 0, tile, tile, 0, 0, parts) + b"\7\1\1" * parts
    return b"\xff\x4f\xff\x51" + struct.pack(">H", len(said) + 2) + said


BOMBS = {
    "a WebP of a large canvas": (sparse_webp(), "GB to decode"),
    "scan over scan": (many_scans(5000), "layers"),
    "endless chunks": (many_chunks(), "chunks"),
    "endless segments": (many_segments(), "segments"),
    "endless remarks": (many_remarks(), "blocks"),
    "EXIF in a JPEG": (jpeg_with(tags_over_tags(b"Exif\0\0")), "same bytes"),
    "a large JPEG 2000": (jp2_of(11_000, 11_000), "GB to decode"),
    "tile by tile": (jp2_of(400_000, 1), "pixels"),
    "many components": (jp2_of(100, 100, 9000), "1 to 4 components"),
    "one huge tile": (
        tiff_of(10, 10, (259, 3, 1, 5), (322, 4, 1, 60_000), (323, 4, 1, 60_000), (324, 4, 1, 8)),
        "GB to decode",
    ),
    "strips upon strips": (
        tiff_of(9000, 9000, (273, 4, 9000, 8), (278, 4, 1, 4500)) + bytes(36_000), "layers",
    ),
    "a size told twice": (
        b"II*\0\x08\0\0\0" + directory((256, 4, 1, 5), (256, 4, 1, 9**9), (257, 4, 1, 5)), "twice",
    ),
    "tags in a TIFF": (tags_over_tags(), "same bytes"),
    "a plain PPM": (b"P3\n9000 9000\n255\n", "pixels"),
    "an odd maximum": (b"P5 9000#x\n 9000 254\n", "pixels"),
    "a packed BMP": (
        b"BM" + bytes(12) + struct.pack("<IiiHHI", 40, 9000, -9000, 1, 8, 1) + bytes(20), "pixels",
    ),
    "a wide GIF frame": (b"GIF89a\1\0\1\0\0\0\0," + struct.pack("<4H", *[2**16 - 1] * 4), "pixels"),
    "a wide PNG": (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", 2**30, 2**30, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", b""), "pixels",
    ),
    "a JPEG of nothing": (b"\xff\xd8\xff", "cut short"),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_what_would_cost_too_much_is_refused_by_its_header(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name_of_step in ("_page", "_flat"):
        monkeypatch.setattr(vision_decode, name_of_step, lambda *_: pytest.fail("it was decoded"))
    data, says = BOMBS[name]
    start = time.process_time()
    for take in (lambda: list(decode(data, long_side=1024)), lambda: check_size(data)):
        with pytest.raises(InputError, match=says) as caught:
            take()
        assert re.fullmatch(r"[ -~]{20,200}", str(caught.value))
    is_light(data)  # what is refused by its header is refused at once, anywhere
    assert time.process_time() - start < 0.5


def boxes(count: int) -> bytes:
    return struct.pack(">I4s", 8, b"free") * count


JP2 = b"\0\0\0\x0cjP  \r\n\x87\n"
GIF = b"GIF89a\x08\0\x08\0\0\0\0"
SLOW_TO_OPEN = {
    "a strip for each byte": tiff_of(8, 8, (273, 1, 2**18, 8), (278, 4, 1, 1)) + bytes(2**18),
    "a tile for each byte": tiff_of(8, 8, (324, 1, 2**18, 8)) + bytes(2**18),
    "a depth for each byte": tiff_of(8, 8, (258, 3, 2**18, 8)) + bytes(2**19),
    "a long remark in a PPM": b"P6\n#" + b"a" * 2**20 + b"\n8 8\n255\n" + bytes(192),
    "a remark within a number": b"P6 8 8 255#" + b"a" * 2**20 + b"\n" + bytes(192),
    "a long gap in a PPM": b"P6\n8 8" + b" " * 2**20 + b"255\n" + bytes(192),
    "boxes": JP2 + boxes(2**17),
    "boxes in a box": JP2 + struct.pack(">I4s", 8 + 2**20, b"jp2h") + boxes(2**17),
    "segments of a JPEG 2000": jp2_of(8, 8) + b"\xff\x52\0\2" * 2**17,
    "tiles of a JPEG 2000": jp2_of(4000, 8),
    "boxes of a HEIC": struct.pack(">I8s4x", 16, b"ftypheic") + boxes(2**17),
    "an odd byte before remarks": GIF + b"\0" + b"!\xfe\1a\0" * 2**16 + b",",
    "odd bytes": GIF + bytes(2**17) + b",",
    "a BMP of header alone": b"BM" + bytes(12) + struct.pack("<I", 2**22) + bytes(2**22),
}


@pytest.mark.parametrize("name", SLOW_TO_OPEN)
def test_what_is_slow_to_open_is_not_opened(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "open", lambda *_, **__: pytest.fail("it was opened"))
    stream = io.BytesIO(SLOW_TO_OPEN[name])
    start = time.process_time()
    tracemalloc.start()
    try:
        with pytest.raises(InputError):
            list(decode(stream))
        is_light(stream)
        assert tracemalloc.get_traced_memory()[1] < 2**21
    finally:
        tracemalloc.stop()
    assert time.process_time() - start < 0.5


@pytest.mark.parametrize(
    "begin", [b"RIFF\0\0\0\0WEBPVP8L" + bytes(4) + b"\x2f" + bytes(20), b"\x89PNG\r\n\x1a\n", b"BM"]
)
def test_large_files_are_not_light(begin: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "open", lambda *_, **__: pytest.fail("it was opened"))
    with (tmp_path / "large").open("wb") as stream:
        stream.write(begin)
        stream.truncate(LIGHT_FILE + 1)
    assert not is_light(tmp_path / "large")


def test_what_decoders_read_whole_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "open", lambda *_, **__: pytest.fail("it was opened"))
    chunks = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4s", 2**31 - 1, b"abCd")
    for begin in (file_of(paper(), "WEBP"), chunks):
        with (tmp_path / "huge").open("wb") as stream:
            stream.write(begin)
            stream.truncate(2**32)
        with pytest.raises(InputError, match=r"GB to decode|too many"):
            list(decode(tmp_path / "huge"))


def test_where_exif_lies_is_read_by_its_type() -> None:
    tags = struct.pack(">HHIHH", 34665, 3, 1, 64, 0)
    data = b"MM\0*\0\0\0\x08\0\1" + tags + bytes(4)
    data = data.ljust(64, b"\0") + b"\xff\xff"
    with pytest.raises(InputError, match="65,535 tags"):
        list(decode(data))


def test_exif_elsewhere_is_looked_at_too() -> None:
    exif = tags_over_tags()
    whole = file_of(paper(), "PNG")
    text = b"Raw profile type exif\0\0\nexif\n%8d\n%s\n" % (len(exif), exif.hex().encode())
    packed = text[:23] + zlib.compress(text[23:])
    for data in (
        whole[:33] + chunk(b"eXIf", exif) + whole[33:],
        whole[:33] + chunk(b"zTXt", packed) + whole[33:],
        file_of(paper(), "WEBP", exif=exif),
    ):
        with pytest.raises(InputError, match="same bytes"):
            list(decode(data))


def test_pages_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = [paper(mode="L") for _ in range(4)]
    data = file_of(pages[0], "TIFF", save_all=True, append_images=pages[1:])

    def read(data: bytes) -> Iterator[int | str]:
        try:
            yield from (page.index for page in decode(data))
        except InputError as error:
            yield str(error)

    assert list(read(data)) == [0, 1, 2, 3]
    monkeypatch.setattr(header, "MAX_PAGES", 2)
    assert list(read(data)) == [0, 1, "the file has more than 2 pages; split it"]
    loop = tiff_of(60, 40, following=8) + bytes(2400)
    assert list(read(loop)) == [0, "page 1 of the file repeats an earlier page"]


LIGHT = {
    "JPEG": file_of(paper(4000, 3000), "JPEG"),
    "JPEG of several scans": file_of(paper(4000, 3000, "L"), "JPEG", progressive=True),
    "PNG": file_of(paper(2000, 3000), "PNG"),
    "GIF": file_of(paper(mode="P"), "GIF"),
    "BMP": file_of(paper(), "BMP"),
    "PPM": file_of(paper(), "PPM"),
    "TIFF": file_of(paper(), "TIFF", compression="tiff_lzw"),
    "WebP": file_of(paper(), "WEBP"),
    "text": b"no picture",  # its header refuses it, nothing is decoded
    "nothing": b"",
}
HEAVY = {
    "PNG": file_of(Image.new("1", (9000, 9000)), "PNG"),
    "TIFF of pages": file_of(paper(), "TIFF", save_all=True, append_images=[paper()]),
    "TIFF of JPEG": file_of(paper(), "TIFF", compression="jpeg"),
    "JPEG 2000": file_of(paper(), "JPEG2000"),
    "scans": many_scans(MAX_SCANS - 20),
}


@pytest.mark.parametrize("name", [*LIGHT, *HEAVY])
def test_what_any_process_may_decode(name: str, tmp_path: Path) -> None:
    for pictures, light in ((LIGHT, True), (HEAVY, False)):
        if name in pictures:
            (tmp_path / "a").write_bytes(pictures[name])
            assert is_light(pictures[name]) is light
            assert is_light(tmp_path / "a") is light
            times = [time.process_time()]
            for _ in range(20):
                is_light(tmp_path / "a")
                times.append(time.process_time())
            assert min(b - a for a, b in pairwise(times)) < 1e-3
    assert is_light(tmp_path / "missing")  # nothing is decoded


def test_sizes_of_frames() -> None:
    for kind in ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "PPM", "JPEG2000"):
        data = file_of(paper(), kind)
        ((told, _),) = opened(io.BytesIO(data))
        assert (told.width, told.height) == (60, 40)
        check_size(data, max_pixels=2400)
        with pytest.raises(InputError, match="60 x 40 pixels, at most 2,399"):
            check_size(data, max_pixels=2399)


MEASURE = """
import sys
import cv2, numpy
from neocog.errors import InputError
from neocog.vision.decode import decode
from neocog.vision.opening import opened
def at(name):
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])
list(decode(sys.argv[2]))
before = at("VmRSS")
try:
    pages = [page.grey.shape for page in decode(sys.argv[1], long_side=1024)]
    assert pages and max(pages[0]) == 1024
    told = next(opened(open(sys.argv[1], "rb")))[0].cost(1024)
except InputError:
    told = 0
print(at("VmHWM") - before, told)
"""


def taken(path: Path) -> tuple[int, int]:
    """Bytes that decoding takes at its peak, and those told by the header, 0 if it is refused."""
    small = path.with_name("small.png")
    paper().save(small)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path), str(small)],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    peak, told = map(int, done.stdout.split())
    return peak, told


def large(kind: str, path: Path) -> None:
    """Write the largest page of a kind that is taken, or one of 108 million pixels."""
    side = {"WEBP": (7700, 7700), "JPEG2000": (6500, 6500)}.get(kind.split()[0], (12_000, 9000))
    mode = kind.split()[1]
    if mode in ("F", "I;16"):
        array = np.full(side[::-1], 200, np.float32 if mode == "F" else np.uint16)
        picture = Image.fromarray(array)
    else:
        picture = Image.new(mode, side, "white")
    options = {"JPEG": {"progressive": True, "subsampling": 0}, "TIFF": {"strip_size": 2**30}}
    if kind == "TIFF RGB packed":
        options["TIFF"] = {"compression": "tiff_lzw", "strip_size": 2**30}
    picture.save(path, kind.split()[0], **options.get(kind.split()[0], {}))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize(
    "kind",
    ["JPEG L", "JPEG RGB", "JPEG CMYK", "PNG 1", "PNG L", "PNG P", "PNG RGB", "PNG RGBA",
     "PNG I;16", "TIFF F", "TIFF RGB", "TIFF RGB packed", "BMP RGB", "PPM RGB", "GIF P",
     "WEBP RGB", "JPEG2000 RGB"],
)  # fmt: skip
def test_the_largest_pages(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "large"
    large(kind, path)
    peak, told = taken(path)
    assert peak <= 1.1 * told <= 1.1 * MAX_BYTES


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_page_of_54_million_pixels(tmp_path: Path) -> None:
    page = file_of(Image.new("L", (9000, 6000), "white"), "JPEG", progressive=True)
    (tmp_path / "large").write_bytes(page)
    peak, told = taken(tmp_path / "large")
    assert peak <= told < MAX_BYTES


def test_a_file_without_any_page_is_refused() -> None:
    for data in (b"II*\0\0\0\0\0", b"MM\0*\0\0\0\0"):
        with pytest.raises(InputError, match="no page"):
            list(decode(data))
        assert is_light(data)


def test_what_lies_behind_a_picture_is_not_counted() -> None:
    data = file_of(paper(400, 300, "L"), "JPEG", progressive=True)
    (told, _), (same, _) = (next(opened(io.BytesIO(whole))) for whole in (data + b"\xff\xda" * 99, data))
    assert told.passes == same.passes
    assert len(list(decode(data + b"\xff\xda" * 99))) == 1


def test_a_broken_place_of_exif_does_not_concern_the_pixels() -> None:
    data = file_of(paper(40, 30, "L"), "TIFF", tiffinfo={34665: 2**30})
    assert len(list(decode(data))) == 1
