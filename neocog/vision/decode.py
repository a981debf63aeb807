"""Picture files into grey pages.

Pillow decodes. A page is turned upright by its EXIF orientation, transparent places become white
paper, deep and palette pictures become eight bits, and colour becomes the grey in which the ink
stands out most. A JPEG is decoded at a reduced size when less than its full size is wanted.

Memory: a page is refused by its header if it has more than `MAX_PIXELS`; one that is decoded takes
at most about twelve bytes a pixel on its way to grey, whatever its kind, where it is then reduced.
"""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
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

FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "GIF", "PPM", "WEBP", "JPEG2000")
"""What is decoded. Pillow knows more, some of which start other programs."""

_DEEP = {"I", "F", "I;16", "I;16B", "I;16L", "I;16N"}
_PLAIN = {"L", "RGB", "RGBA", "LA", "CMYK"}  # kinds that can be reduced as they are
_STRIP = 2**20  # pixels of a deep picture that are made eight bits deep at a time
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
            index = 0
            while True:
                _refuse_too_large(image.size, max_pixels)
                yield _page(image, index, long_side)
                index += 1
                if image.format != "TIFF" or not _turn_to(image, index):
                    return
    except Image.DecompressionBombError:
        raise _too_large(max_pixels) from None
    finally:
        if close:
            stream.close()


def decode_clear(source: Source, *, max_pixels: int = MAX_PIXELS) -> NDArray[np.uint8] | None:
    """Decode the first page of a picture file in colours, if its header says it may be transparent.

    Parameters
    ----------
    source : str, Path, bytes or binary file
        As for `decode`.
    max_pixels : int
        A page larger than this is refused before anything of it is decoded.

    Returns
    -------
    ndarray of uint8, shape (H, W, 3), or None
        Red, green and blue of the upright page on white paper; None where it is opaque: of that
        nothing is decoded.

    Raises
    ------
    InputError
        As `decode`.
    """
    from PIL import Image

    stream, close = _open_stream(source)
    try:
        with _open_image(stream) as image:
            if not _may_be_clear(image):
                return None
            _refuse_too_large(image.size, max_pixels)
            with _damage("is damaged or cut short"):
                return np.array(_upright(_flat(image), image).convert("RGB"))
    except Image.DecompressionBombError:
        raise _too_large(max_pixels) from None
    finally:
        if close:
            stream.close()


def check_size(data: bytes, *, max_pixels: int = MAX_PIXELS) -> None:
    """Refuse a picture by its header alone.

    Raises
    ------
    InputError
        If it is no picture, or has more pixels.
    """
    from PIL import Image

    try:
        with _open_image(io.BytesIO(data)) as image:
            _refuse_too_large(image.size, max_pixels)
    except Image.DecompressionBombError:
        raise _too_large(max_pixels) from None


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

    with _damage("cannot be opened"):
        try:
            return Image.open(stream, formats=FORMATS)
        except UnidentifiedImageError:
            raise InputError(_not_a_picture(stream)) from None


@contextmanager
def _damage(what: str) -> Iterator[None]:
    """Say in one line whatever a decoder makes of a damaged file: it may raise anything."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            # the size is judged by max_pixels, and odd metadata do not concern the pixels
            warnings.simplefilter("ignore")
            yield
    except (InputError, Image.DecompressionBombError):
        raise
    except MemoryError:
        raise InputError(f"the picture {what}: it takes more memory than there is") from None
    except Exception as error:
        raise InputError(f"the picture {what}: {_first_line(error)}") from None


def _not_a_picture(stream: IO[bytes]) -> str:
    stream.seek(0)
    if not stream.read(1):
        return "the file is empty where a picture was wanted"
    return "the file is no picture that can be decoded; wanted JPEG, PNG, TIFF, BMP, GIF or WebP"


def _turn_to(image: "Image", index: int) -> bool:
    """Turn to a page; False where there are no more."""
    with _damage(f"has a page {index} that is damaged or cut short"):
        try:
            image.seek(index)
        except EOFError:
            return False
    return True


def _too_large(max_pixels: int) -> InputError:
    return InputError(f"the picture is larger than {max_pixels:,} pixels; make it smaller")


def _refuse_too_large(size: tuple[int, int], max_pixels: int) -> None:
    width, height = size
    if width * height > max_pixels:
        raise InputError(
            f"the picture has {width} x {height} pixels, at most {max_pixels:,} are decoded; "
            "make it smaller"
        )


def _page(image: "Image", index: int, long_side: int | None) -> Page:
    from PIL import Image

    full = max(image.size)
    with _damage("is damaged or cut short"):
        if long_side is not None:
            image.draft(None, (long_side, long_side))
        frame = _upright(_flat(_much_reduced(image, long_side)), image)
        if long_side is not None and max(frame.size) > long_side:
            frame.thumbnail((long_side, long_side), Image.Resampling.BOX, reducing_gap=2.0)
        return Page(index, to_grey(np.asarray(frame)), max(frame.size) / full)


def _upright(frame: "Image", image: "Image") -> "Image":
    """Turn what was made of a page as the page's EXIF orientation says."""
    from PIL import ImageOps

    exif = image.getexif()
    if exif:
        frame.info["exif"] = exif.tobytes()
        ImageOps.exif_transpose(frame, in_place=True)
    return frame


def _much_reduced(image: "Image", long_side: int | None) -> "Image":
    """Bring a very large picture near its size before any copy is made of it."""
    times = max(image.size) // (2 * long_side) if long_side else 1
    if times < 2 or image.mode not in _PLAIN or "transparency" in image.info:
        return image
    return image.reduce(times)


def _flat(image: "Image") -> "Image":
    """Return a grey or RGB picture of its own; transparent places are white."""
    from PIL import Image

    if image.mode in _DEEP:
        return Image.fromarray(_eight_bits(np.asarray(image)))
    if _may_be_clear(image):
        layer = image.convert("RGBA")
        flat = Image.new("RGB", layer.size, "white")
        flat.paste(layer, mask=layer.getchannel("A"))
        return flat
    return image.convert("L" if image.mode in {"1", "L"} else "RGB")


def _may_be_clear(image: "Image") -> bool:
    if image.mode in _DEEP:
        return False
    return image.mode in {"RGBA", "LA", "PA", "La", "RGBa"} or "transparency" in image.info


def _eight_bits(array: NDArray[Any]) -> NDArray[np.uint8]:
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    rows = max(1, _STRIP // max(1, array[:1].size))
    strips = [slice(first, first + rows) for first in range(0, len(array), rows)]
    top = max((float(_finite(array[strip]).max(initial=0.0)) for strip in strips), default=0.0)
    scale = 1.0
    if array.dtype.kind == "f" and top <= 1.0:
        scale = 255.0
    elif top > 255.0:
        scale = 255.0 / max(top, 65535.0)
    out = np.empty(array.shape, np.uint8)
    for strip in strips:
        out[strip] = np.clip((_finite(array[strip]) * np.float32(scale)).round(), 0, 255)
    return out


def _finite(array: NDArray[Any]) -> NDArray[np.float32]:
    return np.nan_to_num(array.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)


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
