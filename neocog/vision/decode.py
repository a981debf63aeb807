"""Picture files into grey pages.

Pillow decodes. A page is turned upright by its EXIF orientation, transparent places become white
paper, deep and palette pictures become eight bits, and colour becomes the grey in which the ink
stands out most. A JPEG is decoded at a reduced size when less than its full size is wanted.

A page is refused before it is decoded if it is too large or would take too much: see
`neocog.vision.header`.
"""

import io
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neocog.errors import InputError
from neocog.messages import printable
from neocog.vision.header import LIGHT_FILE, MAX_PIXELS
from neocog.vision.opening import damage, kind_of, opened

if TYPE_CHECKING:
    from PIL.Image import Image

Source = str | Path | bytes | IO[bytes]

_DEEP = {"I", "F", "I;16", "I;16B", "I;16L", "I;16N"}
_IN_A_WORKER = ("PDF", "HEIF", "AVIF", "JPEG2000")  # never light, so not even opened elsewhere
_ORIENTATION = 0x0112  # a tag of EXIF
_TURNS = {
    2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE",
    6: "ROTATE_270", 7: "TRANSVERSE", 8: "ROTATE_90",
}  # fmt: skip
_STRIP = 2**20  # pixels of a large or deep picture that are made grey or RGB at a time
_SURVEY = 320  # long side at which the channels of a colour picture are compared


@dataclass(frozen=True)
class Page:
    """One page of a picture file."""

    index: int  #: number of the page in its file, from 0
    pixels: NDArray[np.uint8]  #: of the upright page, grey (H, W) or RGB (H, W, 3)
    scale: float  #: pixels of the page per pixel of the upright picture, 1.0 if it is not reduced

    @cached_property
    def grey(self) -> NDArray[np.uint8]:
        """The page as it is read (H, W), 0 black to 255 white: see `to_grey`."""
        return to_grey(self.pixels)


def decode(
    source: Source, *, max_pixels: int = MAX_PIXELS, long_side: int | None = None
) -> Generator[Page, None, None]:
    """Decode a picture file page by page.

    Every page of a TIFF or PDF is a page; of an animation, or of the previews that telephones put
    behind a JPEG, only the first frame is.

    Parameters
    ----------
    source : str, Path, bytes or binary file
        A file name, the bytes of a file, or a file open for reading.
    max_pixels : int
        A page larger than this is refused before anything of it is decoded.
    long_side : int, optional
        Reduce each page so that its longer side has at most this many pixels.

    Yields
    ------
    Page

    Raises
    ------
    InputError
        If the file is missing, empty, no picture, cut short or too large.
    """
    with _stream(source) as stream:
        if kind_of(stream) == "PDF":
            from neocog.vision.documents import pdf_pages

            yield from pdf_pages(stream, max_pixels, long_side)
            return
        for index, (header, image) in enumerate(opened(stream)):
            header.check(max_pixels, long_side)
            yield _page(image, index, long_side)


def check_size(data: bytes, *, max_pixels: int = MAX_PIXELS) -> None:
    """Refuse, by its header, a picture that any decoder would take too long or too much for.

    Parameters
    ----------
    data : bytes
        Of a picture file.
    max_pixels : int
        It may have so many, or InputError is raised.
    """
    next(opened(io.BytesIO(data)))[0].check(max_pixels, None)


def is_light(source: Source) -> bool:
    """Whether, by its header, a picture takes 0.3 seconds and 300 MB at most to decode.

    Any process may decode it; others are left to one that can be ended. What is no picture is
    light: it is refused by its header.
    """
    try:
        with _stream(source) as stream:
            if kind_of(stream) in _IN_A_WORKER or stream.seek(0, os.SEEK_END) > LIGHT_FILE:
                return False
            return next(opened(stream))[0].is_light
    except InputError:
        return True


def to_grey(picture: NDArray[Any]) -> NDArray[np.uint8]:
    """Turn an array of pixels into the grey in which its ink stands out most.

    Parameters
    ----------
    picture : ndarray, shape (H, W), (H, W, 1), (H, W, 3) or (H, W, 4)
        Grey, RGB or RGBA; uint8, uint16, bool, or floats from 0 to 1.

    Returns
    -------
    ndarray of uint8, shape (H, W)

    Raises
    ------
    InputError
        If the array has another shape or no pixels.
    """
    array = np.asarray(picture)
    array = array[:, :, 0] if array.shape[2:] == (1,) else array
    shape_fits = array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))
    if not shape_fits or array.size == 0 or array.dtype.kind not in "uifb":
        raise InputError(
            f"got an array of shape {array.shape} and type {array.dtype}, expected a picture: "
            "(H, W), (H, W, 3) or (H, W, 4)"
        )
    array = _eight_bits(array)
    if array.ndim == 2:
        return np.ascontiguousarray(array)
    if array.shape[2] == 4:
        alpha = array[:, :, 3:].astype(np.float32) / 255
        array = (array[:, :, :3] * alpha + 255 * (1 - alpha)).round().astype(np.uint8)
    return _clearest_grey(array)


def at_most(frame: "Image", long_side: int) -> NDArray[np.uint8]:
    """Return a grey or RGB picture reduced to a long side, each pixel the mean of its area."""
    import cv2

    if max(frame.size) >= 2 * long_side:
        frame = frame.reduce(max(frame.size) // long_side)
    pixels, factor = np.asarray(frame), long_side / max(frame.size)
    if factor >= 1:
        return pixels
    wide, high = (max(1, round(side * factor)) for side in frame.size)
    return np.asarray(cv2.resize(pixels, (wide, high), interpolation=cv2.INTER_AREA), np.uint8)


@contextmanager
def _stream(source: Source) -> Iterator[IO[bytes]]:
    """Open what was named; a file that was open already stays so."""
    if isinstance(source, bytes):
        yield io.BytesIO(source)
    elif not isinstance(source, str | Path):
        yield source
    else:
        path = Path(source)
        try:
            stream = path.open("rb")
        except OSError as error:
            if isinstance(error, IsADirectoryError | PermissionError) and path.is_dir():
                name = printable(path.name)
                raise InputError(f"{name} is a folder, expected a picture file") from None
            reason = error.strerror or "it cannot be opened"
            raise InputError(f"cannot open the picture: {reason}") from None
        with stream:
            yield stream


def _page(image: "Image", index: int, long_side: int | None) -> Page:
    full = max(image.size)
    with damage("is damaged or cut short"):
        if long_side is not None:
            image.draft(None, (long_side, long_side))
        frame = _upright(_reduced(image, long_side), image)
        pixels = np.asarray(frame) if long_side is None else at_most(frame, long_side)
    return Page(index, pixels, max(pixels.shape[:2]) / full)


def _upright(frame: "Image", image: "Image") -> "Image":
    """Turn what was made of a page as the page's EXIF orientation says."""
    from PIL.Image import Transpose

    turn = _TURNS.get(image.getexif().get(_ORIENTATION, 1))
    return frame if turn is None else frame.transpose(Transpose[turn])


def _reduced(image: "Image", long_side: int | None) -> "Image":
    """A grey or RGB picture; a large one is brought near its size before any copy is made of it."""
    from PIL import Image

    if image.mode in _DEEP:
        image = _shallow(image)
    times = max(image.size) // (2 * long_side) if long_side else 1
    if times < 2:
        return _flat(image)
    small = Image.new(_flat(image.crop((0, 0, 1, 1))).mode, [-(-side // times) for side in image.size])
    for top, strip in _strips(image, times):
        small.paste(_flat(strip).reduce(times), (0, top // times))
    return small


def _strips(image: "Image", times: int = 1) -> "Iterator[tuple[int, Image]]":
    """Where each strip of a picture begins, and the strip: ``times`` rows or a multiple."""
    rows = times * max(1, _STRIP // (image.width * times))
    for top in range(0, image.height, rows):
        yield top, image.crop((0, top, image.width, min(image.height, top + rows)))


def _flat(image: "Image") -> "Image":
    """Return a grey or RGB picture of its own; transparent places are white."""
    from PIL import Image

    if _may_be_clear(image):
        layer = image.convert("RGBA")
        flat = Image.new("RGB", layer.size, "white")
        flat.paste(layer, mask=layer.getchannel("A"))
        return flat
    return image.convert("L" if image.mode in {"1", "L"} else "RGB")


def _shallow(image: "Image") -> "Image":
    """A deep picture in eight bits."""
    from PIL import Image

    image.load()
    flat, top = Image.new("L", image.size), 0
    for strip in _narrowed(lambda: (np.asarray(deep) for _, deep in _strips(image))):
        flat.paste(Image.fromarray(strip), (0, top))
        top += len(strip)
    return flat


def _may_be_clear(image: "Image") -> bool:
    if image.mode in _DEEP:
        return False
    return image.mode in {"RGBA", "LA", "PA", "La", "RGBa"} or "transparency" in image.info


def _eight_bits(array: NDArray[Any]) -> NDArray[np.uint8]:
    if array.dtype in (np.uint8, np.bool_):
        return array if array.dtype == np.uint8 else array * np.uint8(255)
    rows = max(1, _STRIP // max(1, array[:1].size))
    firsts = range(0, len(array), rows)
    return np.concatenate(list(_narrowed(lambda: (array[at : at + rows] for at in firsts))))


def _narrowed(strips: Callable[[], Iterator[NDArray[Any]]]) -> Iterator[NDArray[np.uint8]]:
    """Make the strips of a deep picture eight bits deep; they are gone through twice."""
    top, kind = 0.0, ""
    for strip in strips():
        top, kind = max(top, float(_finite(strip).max(initial=0.0))), strip.dtype.kind
    scale = 1.0
    if kind == "f" and top <= 1.0:
        scale = 255.0
    elif top > 255.0:
        scale = 255.0 / max(top, 65535.0)
    for strip in strips():
        yield np.clip((_finite(strip) * np.float32(scale)).round(), 0, 255).astype(np.uint8)


def _finite(array: NDArray[Any]) -> NDArray[np.float32]:
    return np.nan_to_num(array.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)


def _clearest_grey(rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Choose luma, or the channel in which strokes stand out more from paper and grain."""
    import cv2

    luma = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    height, width = luma.shape
    shrink = _SURVEY / max(height, width)
    small = rgb
    if shrink < 1:
        size = (max(1, round(width * shrink)), max(1, round(height * shrink)))
        small = np.asarray(cv2.resize(rgb, size, interpolation=cv2.INTER_AREA), np.uint8)
    if int(np.ptp(small.astype(np.int16), axis=2).max(initial=0)) < 40:
        return luma.astype(np.uint8)
    channels = [cv2.cvtColor(small, cv2.COLOR_RGB2GRAY), *cv2.split(small)]
    detail = [_detail(np.asarray(channel, np.uint8)) for channel in channels]
    best = int(np.argmax(detail[1:]))
    if detail[best + 1] > detail[0]:
        return np.ascontiguousarray(rgb[:, :, best])
    return luma.astype(np.uint8)


def _detail(channel: NDArray[np.uint8]) -> float:
    """How far the darkest and brightest strokes stand off their surroundings, by the grain."""
    import cv2

    side = max(3, max(channel.shape) // 12) | 1
    smooth = cv2.blur(channel, (3, 3))
    strokes = cv2.absdiff(smooth, cv2.blur(channel, (side, side)))
    grain = float(np.median(cv2.absdiff(channel, smooth)))
    return float(np.percentile(strokes, 99.0)) / (1 + grain)
