"""Picture files into grey pages.

Pillow decodes. A page is turned upright by its EXIF orientation, transparent places become white
paper, deep and palette pictures become eight bits, and colour becomes the grey in which the ink
stands out most. A JPEG is decoded at a reduced size when less than its full size is wanted.
"""

import io
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neocog.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

Source = str | Path | bytes | IO[bytes]

MAX_PIXELS = 2**27
"""Pictures with more pixels than this (134 million) are refused by their header alone."""

_DEEP = {"I", "F", "I;16", "I;16B", "I;16L", "I;16N"}
_SURVEY = 320  # long side at which the channels of a colour picture are compared
_CLEARER = 1.35  # a channel replaces the luma when the ink stands out so many times more


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a picture file.

    Attributes
    ----------
    index : int
        Number of the page in its file, from 0.
    grey : ndarray of uint8, shape (H, W)
        The upright page, 0 black to 255 white.
    scale : float
        Pixels of ``grey`` per pixel of the upright picture (1.0 when it was not reduced).
    """

    index: int
    grey: NDArray[np.uint8]
    scale: float


def decode(
    source: Source, *, max_pixels: int = MAX_PIXELS, long_side: int | None = None
) -> Iterator[Page]:
    """Decode a picture file page by page.

    Every page of a TIFF is a page; of an animation, or of the preview pictures that telephones
    put behind a JPEG, only the first frame is.

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
    from PIL import Image

    stream, close = _open_stream(source)
    try:
        with _open_image(stream) as image:
            pages = getattr(image, "n_frames", 1) if image.format == "TIFF" else 1
            for index in range(pages):
                _seek(image, index)
                _refuse_too_large(image.size, max_pixels)
                yield _page(image, index, long_side)
    except Image.DecompressionBombError:
        raise InputError(
            f"the picture is larger than {max_pixels:,} pixels; make it smaller"
        ) from None
    finally:
        if close:
            stream.close()


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
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    shape_fits = array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))
    if not shape_fits or array.size == 0 or array.dtype.kind not in "uifb":
        raise InputError(
            f"an array of shape {array.shape} and type {array.dtype} came where a picture "
            "(H, W), (H, W, 3) or (H, W, 4) was wanted"
        )
    array = _eight_bits(array)
    if array.ndim == 2:
        return np.ascontiguousarray(array)
    if array.shape[2] == 4:
        alpha = array[:, :, 3:].astype(np.float32) / 255
        array = (array[:, :, :3] * alpha + 255 * (1 - alpha)).round().astype(np.uint8)
    return _clearest_grey(array)


def _open_stream(source: Source) -> tuple[IO[bytes], bool]:
    if isinstance(source, bytes):
        return io.BytesIO(source), True
    if not isinstance(source, str | Path):
        return source, False
    path = Path(source)
    if path.is_dir():
        raise InputError(f"{path.name} is a folder where a picture file was wanted")
    try:
        return path.open("rb"), True
    except OSError as error:
        reason = error.strerror or "it cannot be opened"
        raise InputError(f"cannot open the picture: {reason}") from None


def _open_image(stream: IO[bytes]) -> "Image":
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the size is judged by max_pixels instead
            return Image.open(stream)
    except UnidentifiedImageError:
        raise InputError(_not_a_picture(stream)) from None
    except (OSError, ValueError, SyntaxError, EOFError) as error:
        raise InputError(f"the picture cannot be opened: {_first_line(error)}") from None


def _not_a_picture(stream: IO[bytes]) -> str:
    stream.seek(0)
    if not stream.read(1):
        return "the file is empty where a picture was wanted"
    return "the file is no picture that can be decoded; wanted JPEG, PNG, TIFF, BMP, GIF or WebP"


def _seek(image: "Image", index: int) -> None:
    try:
        image.seek(index)
    except (OSError, EOFError, ValueError) as error:
        raise InputError(
            f"page {index} of the picture is damaged or cut short: {_first_line(error)}"
        ) from None


def _refuse_too_large(size: tuple[int, int], max_pixels: int) -> None:
    width, height = size
    if width * height > max_pixels:
        raise InputError(
            f"the picture has {width} x {height} pixels, at most {max_pixels:,} are decoded; "
            "make it smaller"
        )


def _page(image: "Image", index: int, long_side: int | None) -> Page:
    from PIL import Image, ImageOps

    full = max(image.size)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # remarks on odd metadata do not concern the pixels
            if long_side is not None:
                image.draft(None, (long_side, long_side))
            frame = image.copy() if image.mode in _DEEP else _flat(image)
            frame = ImageOps.exif_transpose(frame)
            if image.mode in _DEEP:
                frame = Image.fromarray(_eight_bits(np.asarray(frame)))
            if long_side is not None and max(frame.size) > long_side:
                frame.thumbnail((long_side, long_side), Image.Resampling.BOX, reducing_gap=2.0)
    except Image.DecompressionBombError:
        raise
    except (OSError, ValueError, SyntaxError, EOFError, MemoryError, KeyError) as error:
        raise InputError(f"the picture is damaged or cut short: {_first_line(error)}") from None
    return Page(index, to_grey(np.asarray(frame)), max(frame.size) / full)


def _flat(image: "Image") -> "Image":
    """Return a grey or RGB picture; transparent places are white."""
    from PIL import Image

    transparent = image.mode in {"RGBA", "LA", "PA", "La", "RGBa"} or "transparency" in image.info
    if transparent:
        layer = image.convert("RGBA")
        paper = Image.new("RGBA", layer.size, "white")
        flat = Image.alpha_composite(paper, layer).convert("RGB")
    else:
        flat = image.convert("L" if image.mode in {"1", "L"} else "RGB")
    if image.getexif():
        flat.info["exif"] = image.getexif().tobytes()
    return flat


def _eight_bits(array: NDArray[Any]) -> NDArray[np.uint8]:
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    values = np.nan_to_num(array.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    top = float(values.max(initial=0.0))
    if array.dtype.kind == "f" and top <= 1.0:
        values = values * 255.0
    elif top > 255.0:
        values = values * (255.0 / max(top, 65535.0))
    return np.clip(values.round(), 0, 255).astype(np.uint8)


def _clearest_grey(rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Choose luma, or the one channel in which fine detail stands out clearly more."""
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
    if detail[best + 1] > _CLEARER * detail[0]:
        return np.ascontiguousarray(rgb[:, :, best])
    return luma.astype(np.uint8)


def _detail(channel: NDArray[np.uint8]) -> float:
    """How far the darkest and brightest strokes stand off their surroundings."""
    import cv2

    side = max(3, max(channel.shape) // 12) | 1
    difference = cv2.absdiff(cv2.blur(channel, (3, 3)), cv2.blur(channel, (side, side)))
    return float(np.percentile(difference, 99.0))


def _first_line(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    return text.splitlines()[0][:120]
