"""Every kind of picture file becomes an upright grey page, or one line that says why not."""

import numpy as np
import pytest
from PIL import Image

from neocog.batch.pictures import pages_of
from neocog.errors import InputError
from neocog.vision.decode import decode, to_grey
from tests.picture_files import file_of, scene


def only_page(data: bytes, **options: int) -> np.ndarray:
    pages = list(decode(data, **options))
    assert len(pages) == 1
    return pages[0].grey


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "I", "F"])
def test_modes(mode):
    if mode in {"I;16", "I"}:
        deep = np.asarray(scene()).astype(np.uint16) * 257
        picture, kind = Image.fromarray(deep), "PNG"
    elif mode == "F":
        picture, kind = Image.fromarray(np.asarray(scene()).astype(np.float32) / 255), "TIFF"
    else:
        picture, kind = scene().convert(mode), "TIFF" if mode == "CMYK" else "PNG"
    grey = only_page(file_of(picture, kind))
    assert grey.dtype == np.uint8
    assert grey.shape == (40, 60)
    assert grey[10, 10] < 40
    assert grey[30, 50] > 220


def test_transparent_places_are_paper():
    layer = Image.new("RGBA", (30, 20), (0, 0, 0, 0))
    layer.paste((0, 0, 0, 255), (5, 5, 10, 10))
    grey = only_page(file_of(layer))
    assert grey[0, 0] == 255
    assert grey[7, 7] == 0


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WebP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation(kind, orientation):
    undo = {
        2: [Image.Transpose.FLIP_LEFT_RIGHT],
        3: [Image.Transpose.ROTATE_180],
        4: [Image.Transpose.FLIP_TOP_BOTTOM],
        5: [Image.Transpose.TRANSPOSE],
        6: [Image.Transpose.ROTATE_90],
        7: [Image.Transpose.TRANSVERSE],
        8: [Image.Transpose.ROTATE_270],
    }
    stored = scene(160, 120)
    for step in undo.get(orientation, []):
        stored = stored.transpose(step)
    exif = Image.Exif()
    exif[0x0112] = orientation
    grey = only_page(file_of(stored.convert("RGB"), kind, exif=exif))
    assert grey.shape == (120, 160)
    assert grey[10, 12] < 60
    assert grey[10, 140] > 200
    assert grey[110, 12] > 200


def test_reduced_jpeg():
    big = scene(60, 40).resize((2400, 1600), Image.Resampling.NEAREST)
    for kind in ("JPEG", "PNG"):
        page = next(decode(file_of(big.convert("RGB"), kind), long_side=512))
        assert max(page.grey.shape) == 512
        assert page.scale == pytest.approx(512 / 2400, rel=0.01)
        assert page.grey[85, 100] < 60


def test_pages_of_a_tiff_but_one_frame_of_an_animation():
    frames = [scene(), scene(50, 30)]
    tiff = file_of(frames[0], "TIFF", save_all=True, append_images=frames[1:])
    assert [(p.index, p.grey.shape) for p in decode(tiff)] == [(0, (40, 60)), (1, (30, 50))]
    gif = file_of(scene(), "GIF", save_all=True, append_images=[Image.new("L", (60, 40), 7)])
    assert only_page(gif)[30, 50] > 220


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty"),
        (b"not a picture at all", "not a picture"),
        (file_of(scene(300, 300).convert("RGB"), "JPEG")[:700], "cut short"),
        (file_of(Image.effect_noise((300, 300), 90))[:4000], "cut short"),
        (file_of(scene(), "TIFF")[:60], "picture"),
    ],
)
def test_refusals_are_one_line(data, says):
    with pytest.raises(InputError, match=says) as caught:
        list(decode(data))
    assert "\n" not in str(caught.value)


def test_names_that_lead_nowhere(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        list(decode(tmp_path / "none.png"))
    folder = tmp_path / "folder.png"
    folder.mkdir()
    with pytest.raises(InputError, match="folder"):
        list(decode(folder))


def test_tiny_picture():
    assert only_page(file_of(Image.new("L", (1, 1), 9))).shape == (1, 1)


def test_arrays():
    shapes = [(5, 4), (5, 4, 1), (5, 4, 3), (5, 4, 4)]
    assert all(to_grey(np.full(shape, 255, np.uint8)).shape == (5, 4) for shape in shapes)
    assert to_grey(np.ones((5, 4), bool)).max() == 255
    assert to_grey(np.full((5, 4), 0.5)).max() == 128
    assert to_grey(np.full((5, 4), 65535, np.uint16)).max() == 255
    for bad in [np.zeros((3, 4, 2)), np.zeros((0, 4)), np.zeros(7), np.array([["a"]])]:
        with pytest.raises(InputError, match="expected"):
            to_grey(bad)


def test_red_on_green_of_one_brightness_is_seen():
    picture = np.empty((80, 80, 3), np.uint8)
    picture[:] = (60, 150, 60)
    picture[20:60, 38:42] = (235, 60, 60)
    grey = to_grey(picture)
    assert abs(int(grey[40, 40]) - int(grey[5, 5])) > 80


def test_grain_is_no_detail():
    grain = np.random.default_rng(1).normal(0, 40, (240, 320))
    picture = np.full((240, 320, 3), 200, np.uint8)
    picture[40:200:20, 30:290] = 60
    picture[..., 2] = (picture[..., 2] + grain).clip(0, 255)
    assert float(to_grey(picture)[:30].std()) < 6


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_a_turned_page_is_reduced_alike(turns):
    noise = np.random.default_rng(2).integers(0, 256, (96, 128), np.uint8)
    picture = np.kron(noise, np.ones((10, 10), np.uint8))
    for kind in (file_of(Image.fromarray(np.rot90(picture, turns)), "PNG"), np.rot90(picture, turns)):
        turned = next(pages_of(kind, 1024)).grey.astype(int)
        upright = next(pages_of(picture, 1024)).grey
        assert np.abs(np.rot90(turned, -turns) - upright).max() <= 1
