"""Every kind of picture file becomes an upright grey page, or one line that says why not."""

import io
import pickle
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image, ImageDraw, ImageFont, ImageOps

from neocog.errors import InputError
from neocog.reading.pictures import DOCUMENT_SUFFIXES, PICTURE_SUFFIXES, pages_of
from neocog.vision import decode as vision_decode
from neocog.vision.decode import FORMATS, KINDS, check_size, decode, is_light, to_grey
from neocog.vision.light import LIGHT_FILE
from tests.bombs import bombs, tiff_of
from tests.support import file_of, page, page_file, scene


def only_page(data: bytes, **options: int) -> np.ndarray:
    pages = list(decode(data, **options))
    assert len(pages) == 1
    return pages[0].grey


DEEP = {"I;16": (np.uint16, 257.0, "PNG"), "I": (np.int32, 257.0, "TIFF"), "F": (np.float32, 1 / 255, "TIFF")}


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "JPEG", *DEEP])
def test_a_picture_of_any_mode_whole_and_reduced(mode):
    small = page("12") if mode != "1" else page("12") // 128 * 255
    large = np.kron(small, np.ones((4, 4), np.uint8))
    if mode in DEEP:
        dtype, unit, kind = DEEP[mode]
        picture = Image.fromarray((large * unit).astype(dtype))
    else:
        picture = Image.fromarray(large).convert("L" if mode == "JPEG" else mode)
        kind = {"CMYK": "TIFF", "JPEG": "JPEG"}.get(mode, "PNG")
    data = file_of(picture, kind, **({"quality": 95} if mode == "JPEG" else {}))
    (reduced,) = decode(data, long_side=max(small.shape))
    assert min(reduced.scales) == pytest.approx(1 / 4)
    for found, wanted in ((only_page(data), large), (reduced.grey, small)):
        assert (found.dtype, found.shape) == (np.uint8, wanted.shape)
        assert np.abs(found.astype(int) - wanted).max() <= (12 if mode == "JPEG" else 2)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WebP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation(kind, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = file_of(scene(160, 120, "RGB"), kind, exif=exif)
    upright = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("L"), int)
    grey = only_page(data)
    assert grey.shape == ((120, 160) if orientation < 5 else (160, 120))
    assert np.abs(grey - upright).max() <= 2


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "array"])
def test_a_page_has_the_size_of_its_picture(kind):
    exif = Image.Exif()
    exif[0x0112] = 6
    whole = Image.effect_noise((2020, 1500), 50)
    picture = np.rot90(np.asarray(whole), -1) if kind == "array" else file_of(whole, kind, exif=exif)
    found = next(pages_of(picture, 200))
    assert (found.size, found.grey.shape) == ((1500, 2020), (200, 149))


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_a_turned_page_is_reduced_alike(turns):
    noise = np.random.default_rng(2).integers(0, 256, (96, 128), np.uint8)
    picture = np.kron(noise, np.ones((10, 10), np.uint8))
    for kind in (file_of(Image.fromarray(np.rot90(picture, turns)), "PNG"), np.rot90(picture, turns)):
        turned = next(pages_of(kind, 1024)).grey.astype(int)
        upright = next(pages_of(picture, 1024)).grey
        assert np.abs(np.rot90(turned, -turns) - upright).max() <= 1


def test_pages_of_a_tiff_but_one_frame_of_an_animation(monkeypatch):
    frames = [scene(), scene(50, 30), scene(20, 20)]
    tiff = file_of(frames[0], "TIFF", save_all=True, append_images=frames[1:])
    assert [(p.index, p.grey.shape) for p in decode(tiff)] == [(0, (40, 60)), (1, (30, 50)), (2, (20, 20))]
    assert [(p.index, p.grey.shape) for p in decode(tiff, pages=[2, 5])] == [(2, (20, 20))]
    gif = file_of(scene(), "GIF", save_all=True, append_images=[Image.new("L", (60, 40), 7)])
    assert only_page(gif)[30, 50] > 220
    assert not list(decode(gif, pages=[1]))
    assert [len(list(pages_of(scene(), 99, pages=[n]))) for n in (0, 1)] == [1, 0]
    circle = tiff_of(60, 40, following=8) + bytes(2400)
    assert only_page(circle).shape == (40, 60)
    cut = page_file("1", "2", kind="TIFF")[:-40_000]
    for data, why in ((cut, "cut short"), (tiff, "more than 2 pages")):
        monkeypatch.setattr(vision_decode, "MAX_PAGES", 2)
        pages = decode(data)
        assert next(pages).index == 0
        with pytest.raises(InputError, match=why):
            list(pages)


@pytest.mark.parametrize(("data", "says"), [
    (b"", "empty"),
    (b"not a picture at all", "not a picture"),
    (b"\xff\xd8\xff", "cut short"),
    (b"II*\0\0\0\0\0", "not a picture"),
    (file_of(scene(300, 300, "RGB"), "JPEG")[:700], "cut short"),
    (file_of(Image.effect_noise((300, 300), 90))[:4000], "cut short"),
    (file_of(scene(), "TIFF")[:60], "picture"),
    (file_of(scene(50, 50, "RGB"), "EPS"), "not a picture that neocog can decode"),
])  # fmt: skip
def test_refusals_are_one_line(data, says, monkeypatch):
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_, **__: pytest.fail("a program was started"))
    with pytest.raises(InputError, match=says) as caught:
        list(decode(data))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ink", ["white", (255, 230, 60), (90, 90, 90), "black"])
def test_bright_ink_on_nothing_is_on_dark_paper(ink):
    layer = Image.new("RGBA", (300, 200), (0, 0, 0, 0))
    ImageDraw.Draw(layer).text((60, 40), "47", ink, ImageFont.load_default(90))
    bright = ink not in ("black", (90, 90, 90))
    found = [only_page(file_of(layer)), to_grey(np.asarray(layer)), only_page(file_of(layer), long_side=99)]
    if bright:
        found.append(only_page(file_of(layer.quantize(8))))
    for grey in found:
        assert grey[0, 0] == (0 if bright else 255)
        assert np.ptp(grey) > 150
    assert ink != "black" or found[0].min() == 0
    card = Image.new("RGBA", layer.size, "white")  # with dark ink, in a picture without a ground
    card.paste("black", mask=layer)
    layer.paste(card.resize((150, 100)), (70, 50))
    assert only_page(file_of(layer))[0, 0] == 255


@pytest.mark.parametrize(("kind", "dpi", "high"), [
    ("TIFF", (204, 98), 250), ("PNG", (204, 98), 250), ("JPEG", (204, 98), 250), ("TIFF", (204, 196), 120),
    ("TIFF", (98, 204), 120), ("JPEG", (300, 1), 120), ("PNG", (300, 300), 120),
])  # fmt: skip
def test_pixels_are_square_as_the_resolution_says(kind, dpi, high):
    if high == 250 and kind != "PNG":  # a turned fax
        (exif := Image.Exif())[0x0112] = 6
        page = next(decode(file_of(scene(160, 120, "L"), kind, dpi=dpi, exif=exif)))
        assert (page.size, page.grey.shape) == ((120, 160), (160, 250))
    page = next(decode(file_of(scene(160, 120, "L"), kind, dpi=dpi)))
    wide = 333 if dpi == (98, 204) else 160
    assert (page.size, page.grey.shape) == ((160, 120), (high, wide))
    assert page.scales == (wide / 160, high / 120)
    small = next(decode(file_of(scene(160, 120, "L"), kind, dpi=dpi), long_side=80))
    assert max(small.grey.shape) == 80
    assert small.grey.shape[0] / small.grey.shape[1] == pytest.approx(high / wide, abs=0.01)


@pytest.mark.parametrize("kind", FORMATS)
def test_the_size_is_checked_before_pixels_are_decoded(kind, monkeypatch):
    monkeypatch.setattr(vision_decode, "_pixels", lambda *_: pytest.fail("it was decoded"))
    data = file_of(scene(mode="RGB"), kind)
    check_size(data, max_pixels=2400)
    for take in (lambda: check_size(data, max_pixels=2399), lambda: next(decode(data, max_pixels=2399))):
        with pytest.raises(InputError, match="60 x 40 pixels, at most 2,399"):
            take()


@pytest.mark.parametrize("kind", FORMATS)
def test_damage_at_random(kind):
    written = Image.fromarray(page("12")).convert("RGB").resize((90, 60))
    whole = np.frombuffer(file_of(written, kind, save_all=kind == "TIFF"), np.uint8)
    random = np.random.default_rng(0)
    readable, said = 0, []
    for _ in range(150):
        damaged = whole.copy()
        reach = len(whole) if random.random() < 0.5 else min(200, len(whole))
        places = random.integers(0, reach, random.integers(1, 9))
        damaged[places] = random.integers(0, 256, len(places))
        is_light(damaged.tobytes())
        try:
            for found in decode(damaged.tobytes(), long_side=100):
                assert max(found.grey.shape) <= 100
            readable += 1
        except InputError as error:
            said.append(str(error))
    assert readable or kind == "PNG"  # whose every byte is under a checksum
    assert said
    assert all("\n" not in line and len(line) > 20 for line in said)


def test_arrays():
    shapes = [(5, 4), (5, 4, 1), (5, 4, 3), (5, 4, 4)]
    assert all(to_grey(np.full(shape, 255, np.uint8)).shape == (5, 4) for shape in shapes)
    assert to_grey(np.ones((5, 4), bool)).max() == 255
    assert to_grey(np.full((5, 4), 0.5)).max() == 128
    assert to_grey(np.full((5, 4), 65535, np.uint16)).max() == 255
    for bad in [np.zeros((3, 4, 2)), np.zeros((0, 4)), np.zeros(7), np.array([["a"]])]:
        with pytest.raises(InputError, match="expected"):
            to_grey(bad)
    # red on green of one brightness is seen
    picture = np.full((80, 80, 3), (60, 150, 60), np.uint8)
    picture[20:60, 38:42] = (235, 60, 60)
    grey = to_grey(picture)
    assert abs(int(grey[40, 40]) - int(grey[5, 5])) > 80


# --- files that take a decoder long, or much memory -------------------------------------------


BOMBS = dict(bombs())
LIGHT_BOMBS = {"exif.jpg", "exif.png", "nothing.jpg"}  # they cost little

WORKER = """
import os, pickle, resource, signal, sys
import cv2
from neocog.errors import InputError
from neocog.vision.decode import decode
from neocog.vision.scales import LONGEST
datas, memory, seconds = pickle.load(sys.stdin.buffer)
held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
results = []
for data in datas:
    ours, theirs = os.pipe()
    if not os.fork():
        resource.setrlimit(resource.RLIMIT_AS, (held + memory, held + memory))
        signal.alarm(seconds)
        try:
            said = [len(page.grey.shape) for page in decode(data, long_side=LONGEST)]
        except InputError as error:
            said = str(error)
        os.write(theirs, repr(said).encode())
        os._exit(0)
    os.close(theirs)
    _, status, usage = os.wait4(-1, 0)
    results.append((eval(os.read(ours, 999) or "None"), status, usage.ru_utime + usage.ru_stime))
sys.stdout.buffer.write(pickle.dumps(results))
"""


def decoded_in_workers(*datas: bytes) -> list[tuple[list[int] | str, int, float]]:
    """What forks of a process with 1.5 GB and 60 seconds each say of files, their status and seconds."""
    asked = pickle.dumps((datas, 1_500_000_000, 60))
    done = subprocess.run([sys.executable, "-c", WORKER], input=asked, capture_output=True, check=True)
    return pickle.loads(done.stdout)


needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and fork")


@pytest.fixture(scope="module")
def outcomes():
    return dict(zip(BOMBS, decoded_in_workers(*BOMBS.values()), strict=True))


@needs_linux
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_bounded_in_a_worker(name, outcomes):
    start = time.process_time()
    assert is_light(BOMBS[name]) is (name in LIGHT_BOMBS)
    assert time.process_time() - start < 0.1
    said, status, seconds = outcomes[name]
    assert status == 0
    assert said == [2] or re.fullmatch(r"[ -~]{20,220}", said)
    assert seconds < (0.3 if name in LIGHT_BOMBS else 10)


def test_scans_are_counted_in_every_process():
    with pytest.raises(InputError, match="more than 64 scans"):
        check_size(BOMBS["scans.jpg"])
    behind = file_of(scene(400, 300), "JPEG", progressive=True) + b"\xff\xda" * 99
    assert is_light(behind), "what lies behind the picture is not counted"
    assert only_page(behind).shape == (300, 400)


LIGHT = {
    "JPEG": file_of(scene(4032, 3024, "RGB"), "JPEG"),
    "JPEG of several scans": file_of(scene(2000, 1500), "JPEG", progressive=True),
    "PNG": file_of(scene(2000, 2000), "PNG"),
    "PNG and more": file_of(scene(), "PNG") + bytes(999),
    "text": b"no picture",  # it is refused at once
    "P": b"P",
    "a kind that no row has": file_of(scene(), "EPS"),
    "nothing": b"",
}
HEAVY = {
    "JPEG": file_of(Image.new("L", (4200, 3000)), "JPEG"),
    "PNG": file_of(Image.new("1", (2001, 2000)), "PNG"),
    "scans": BOMBS["scans.jpg"],
    **{
        kind.name: file_of(scene(mode="RGB"), kind.name)
        for kind in KINDS
        if not (kind.document or kind.light)
    },
    # what Pillow takes although no row's first bytes fit
    **{begin.hex(): begin + bytes(99) for begin in (b"Pf", b"BM1234x", b"GIF87a12x", b"\xff\x4f\xff\x51")},
}


def test_what_any_process_may_decode(tmp_path):
    for pictures, light in ((LIGHT, True), (HEAVY, False)):
        for name, data in pictures.items():
            (tmp_path / "a").write_bytes(data)
            assert (name, is_light(data), is_light(tmp_path / "a")) == (name, light, light)
    (tmp_path / "a").write_bytes(page_file("1"))
    with (tmp_path / "a").open("ab") as stream:
        stream.truncate(LIGHT_FILE + 1)
    assert not is_light(tmp_path / "a")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_kind_of_pictures_is_one_row(kind):
    assert {*kind.suffixes} <= PICTURE_SUFFIXES
    assert (kind.suffixes[0] in DOCUMENT_SUFFIXES, kind.name in FORMATS) == (kind.document, not kind.document)
    assert kind.words in (Path(__file__).parents[1] / "docs/batch.md").read_text()
    with pytest.raises(InputError, match=f"[, ]{kind.words}($|, | or )"):
        next(decode(b"of no known kind"))
    if not kind.document:
        data = file_of(scene(mode="RGB"), kind.name)
        assert re.match(kind.begins, data, re.DOTALL)
        assert is_light(data) is (kind.light is not None)


@needs_linux
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["PNG RGBA", "PNG I;16", "TIFF F", "JPEG CMYK", "GIF P"])
def test_a_page_of_108_million_pixels(kind):
    form, mode = kind.split()
    white = np.full((9000, 12_000), 200, np.float32 if mode == "F" else np.uint16)
    picture = Image.fromarray(white) if mode in ("F", "I;16") else Image.new(mode, (12_000, 9000), "white")
    assert decoded_in_workers(file_of(picture, form))[0][:2] == ([2], 0)
