"""Picture files into pages: Pillow decodes, `neocog.vision.documents` draws PDF.

A page is turned upright by its EXIF orientation, and stretched if its resolution says that its pixels are not
square; transparent places become paper, deep and palette pictures eight bits. A JPEG is decoded at a reduced
size, of at least its long side, when less than its full size is wanted. The process bounds memory and time: a
picture that is not light (`is_light`) belongs in a worker.
"""

import io
import re
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count
from math import inf
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from neocog.errors import InputError
from neocog.text import reason_of
from neocog.vision.finder import reduced
from neocog.vision.light import LIGHT_FILE, MAX_SCANS, is_light_jpeg, is_light_png, survey_of_jpeg
from neocog.vision.page import percentiles

Source = str | Path | bytes | IO[bytes]

MAX_PIXELS = 2**27  # of a page
MAX_PAGES = 2500  # of a TIFF or PDF

_JPEG = b"\xff\xd8\xff"
_ORIENTATION = 274  # a tag of EXIF
_LYING = (5, 6, 7, 8)  # those that a page lies on its side in
_STRIP = 2**20  # pixels of a large picture that are made grey or RGB at a time
_SURVEY = 320  # long side at which the channels of a colour picture are compared


class Kind(NamedTuple):
    """A kind of picture files."""

    name: str  #: Pillow's
    words: str  #: what people call it
    suffixes: tuple[str, ...]
    begins: bytes  #: pattern of how its files begin, and no list of file names
    light: Callable[[bytes], bool] | None = None  #: whether any process may decode it; None: only a worker
    document: bool = False  #: decoded by `neocog.vision.documents`


KINDS = (  # all that are read, and no others: some decoders of Pillow start programs
    Kind("JPEG", "JPEG", (".jpg", ".jpeg", ".jfif"), _JPEG, is_light_jpeg),
    Kind("PNG", "PNG", (".png",), rb"\x89PNG\r\n", is_light_png),
    Kind("TIFF", "TIFF", (".tif", ".tiff"), rb"II[*+]\0|MM\0[*+]"),
    Kind("BMP", "BMP", (".bmp",), rb"BM.{4}\0{4}"),
    Kind("GIF", "GIF", (".gif",), rb"GIF8[79]a.{6}\0"),
    Kind("PPM", "PPM", (".ppm", ".pgm", ".pbm", ".pnm"), rb"P[1-6]\s+(#.*?\n\s*)*\d+\s+\d+\s"),
    Kind("WEBP", "WebP", (".webp",), rb"RIFF.{4}WEBP"),
    Kind("JPEG2000", "JPEG 2000", (".jp2",), rb"\0{3}\x0cjP  "),
    Kind("AVIF", "AVIF", (".avif",), rb".{4}ftyp(.{4})*avi[fs]", document=True),
    Kind("HEIF", "HEIC", (".heic", ".heif", ".hif"), rb".{4}ftyp(hei|hev|mif|msf)", document=True),
    Kind("PDF", "PDF", (".pdf",), rb"%PDF-", document=True),
)
FORMATS = tuple(kind.name for kind in KINDS if not kind.document)


@dataclass(frozen=True)
class Page:
    """One page of a picture file."""

    index: int  #: number of the page in its file, from 0
    pixels: NDArray[np.uint8]  #: of the upright page, grey (H, W) or RGB (H, W, 3), reduced or not
    size: tuple[int, int]  #: width and height of the upright picture in its own pixels

    @property
    def scales(self) -> tuple[float, float]:
        """Pixels of the page per pixel of the picture, across and down."""
        return self.pixels.shape[1] / self.size[0], self.pixels.shape[0] / self.size[1]

    @cached_property
    def grey(self) -> NDArray[np.uint8]:
        """The page as it is read (H, W), 0 black to 255 white."""
        return ink_grey(self.pixels)


def decode(
    source: Source,
    *,
    max_pixels: int = MAX_PIXELS,
    long_side: int | None = None,
    pages: Iterable[int] | None = None,
) -> Generator[Page, None, None]:
    """Yield the pages of a picture file, all or those of the numbers given; reduced to a long side if given.

    TIFF and PDF have several; of an animation the first frame is the only one. A number that the file does
    not have ends it. InputError if the file is missing, empty, no picture, damaged or too large.
    """
    with _stream(source) as stream:
        kind = kind_of(stream)
        if kind and kind.name == "PDF":
            from neocog.vision.documents import pdf_pages

            check = partial(check_page, max_pixels=max_pixels)
            yield from (Page(*page) for page in pdf_pages(stream, long_side, pages, check, damage))
            return
        image = _opened(stream, kind, max_pixels)
        for index in count() if pages is None else pages:
            if index and image.format != "TIFF":
                return
            with damage():
                try:
                    image.seek(index)
                except EOFError:
                    return
                check_page(index, image.size, max_pixels)
                page = Page(index, *_pixels(image, long_side))
            yield page


def check_size(data: bytes, *, max_pixels: int = MAX_PIXELS) -> None:
    """Refuse a picture file by its size in pixels, and a JPEG of very many scans (InputError)."""
    _opened(io.BytesIO(data), None, max_pixels)


def is_light(source: Source) -> bool:
    """Whether any process may decode a picture: a small JPEG or PNG, or what is refused as no picture."""
    try:
        with _stream(source) as stream:
            if stream.seek(0, io.SEEK_END) > LIGHT_FILE:
                return False
            kind = kind_of(stream)
            stream.seek(0)
            data = stream.read()
    except InputError:
        return True
    if kind is not None:
        return kind.light is not None and kind.light(data)
    Image.init()  # a decoder that goes by more than the first bytes has no test of them
    tests = [Image.OPEN[name][1] for name in FORMATS if name in Image.OPEN]
    return not any(test is None or test(data[:16].ljust(16, b"\0")) for test in tests)


def kind_of(stream: IO[bytes]) -> Kind | None:
    """Return the kind that a file begins like, if it is known by that; InputError if it is empty."""
    stream.seek(0)
    if not (begin := stream.read(64)):
        raise InputError("the file is empty, expected a picture")
    return next((kind for kind in KINDS if re.match(kind.begins, begin, re.DOTALL)), None)


def check_page(index: int, size: tuple[int, int], max_pixels: int) -> None:
    """Refuse a page by its number or size (InputError)."""
    if index >= MAX_PAGES:
        raise InputError(f"the file has more than {MAX_PAGES:,} pages; split it")
    if not 0 < size[0] * size[1] <= max_pixels:
        told = f"the picture has {size[0]} x {size[1]} pixels, at most {max_pixels:,} are decoded"
        raise InputError(f"{told}; make it smaller")


@contextmanager
def damage() -> Iterator[None]:
    """Turn whatever a decoder raises into an InputError of one line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd metadata do not concern the pixels
            yield
    except (InputError, ImportError):
        raise
    except UnidentifiedImageError:
        told = "the file is not a picture that neocog can decode, or its header is cut short"
        known = f"{', '.join(kind.words for kind in KINDS[:-1])} or {KINDS[-1].words}"
        raise InputError(f"{told}; use {known}") from None
    except (MemoryError, Image.DecompressionBombError):
        raise InputError(f"the picture is too large, or has more than {MAX_PIXELS:,} pixels") from None
    except Exception as error:
        raise InputError(f"the picture is damaged or cut short: {reason_of(error)}") from None


def to_grey(picture: NDArray[Any]) -> NDArray[np.uint8]:
    """Turn pixels into the grey (H, W) in which ink stands out most: luma or a channel.

    They are (H, W), (H, W, 1), (H, W, 3) or (H, W, 4), grey, RGB or RGBA; uint8, uint16, bool, or floats from
    0 to 1. InputError if they are not.
    """
    array = np.asarray(picture)
    array = array[:, :, 0] if array.shape[2:] == (1,) else array
    form = array.ndim > 1 and array.shape[2:] in ((), (3,), (4,))
    if not form or array.size == 0 or array.dtype.kind not in "uifb":
        got = f"got an array of shape {array.shape} and type {array.dtype}"
        raise InputError(f"{got}, expected a picture: (H, W), (H, W, 3) or (H, W, 4)")
    array = _eight_bits(array)
    if array.shape[2:] == (4,):
        alpha = array[:, :, 3:].astype(np.float32) / 255
        array = (array[:, :, :3] * alpha + _paper(array) * (1 - alpha)).round().astype(np.uint8)
    return ink_grey(array)


def ink_grey(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the luma or channel of pixels in which strokes are farthest off their surroundings, by grain."""
    import cv2

    if pixels.ndim == 2:
        return np.ascontiguousarray(pixels)
    small = reduced(pixels, _SURVEY / max(pixels.shape[:2]))
    red, green, blue = channels = cv2.split(small)
    if (cv2.max(cv2.max(red, green), blue) - cv2.min(cv2.min(red, green), blue)).max() >= 40:
        side, details = max(3, max(small.shape[:2]) // 12) | 1, []
        for channel in (*channels, cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)):
            smooth = cv2.blur(channel, (3, 3))
            (grain,) = percentiles(cv2.absdiff(channel, smooth), 50)
            details += percentiles(cv2.absdiff(smooth, cv2.blur(channel, (side, side))), 99)
            details[-1] /= 1 + grain
        best = int(np.argmax(details[:3]))
        if details[best] > details[3]:
            return np.ascontiguousarray(pixels[:, :, best])
    return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), np.uint8)


def at_most(pixels: NDArray[np.uint8], long_side: int) -> NDArray[np.uint8]:
    """Return grey or RGB pixels reduced to a long side, each the mean of its area."""
    if (times := max(pixels.shape[:2]) // long_side) >= 2:
        pixels = np.asarray(Image.fromarray(pixels).reduce(times))
    return reduced(pixels, long_side / max(pixels.shape[:2]))


def _stream(source: Source) -> AbstractContextManager[IO[bytes]]:
    if isinstance(source, bytes):
        return io.BytesIO(source)
    if not isinstance(source, str | Path):
        return nullcontext(source)  # it stays open
    try:
        return Path(source).open("rb")
    except OSError as error:
        raise InputError(f"cannot open the picture: {reason_of(error)}") from None


def _opened(stream: IO[bytes], kind: Kind | None, max_pixels: int) -> Image.Image:
    formats: tuple[str, ...] = FORMATS
    if kind and kind.document:
        from neocog.vision.documents import register

        register(kind.name)
        formats = (kind.name,)
    stream.seek(0)
    if stream.read(3) == _JPEG and survey_of_jpeg(_JPEG + stream.read(2**26))[1] > MAX_SCANS:
        raise InputError(f"the picture has more than {MAX_SCANS} scans or endless segments; save it again")
    with damage():
        image = Image.open(stream, formats=formats)
    check_page(0, image.size, max_pixels)
    return image


def _pixels(image: Image.Image, long_side: int | None) -> tuple[NDArray[np.uint8], tuple[int, int]]:
    """An upright page, grey or RGB, made by strips (a large one is not copied), and the picture's size."""
    import cv2

    # how much it is stretched, across and down, as its resolution says: a fax has 204 x 98 dpi; a resolution
    # that is nearly square or hardly true says nothing
    whole, shape = image.size, (1.0, 1.0)
    names = ("dpi", "aspect", "resolution", "jfif_density")
    stated = next((image.info[name] for name in names if name in image.info), (1, 1))
    with suppress(TypeError, ValueError, ArithmeticError):
        ratio = float(stated[0]) / float(stated[1])
        if image.format == "TIFF" and image.getexif().get(_ORIENTATION) in _LYING:  # its size is turned
            ratio = 1 / ratio
        more = max(ratio, 1 / ratio)
        if 1.2 < more < 4 and image.width * image.height * more < MAX_PIXELS:
            shape = max(1.0, 1 / ratio), max(1.0, ratio)
    # a JPEG is decoded at a reduced size, others are reduced by a whole number, strip by strip
    if long_side is not None:
        image.draft(None, (long_side, long_side))
    size = [max(1, round(side * more)) for side, more in zip(image.size, shape, strict=True)]
    times = max(1, int(max(size) / max(shape)) // (2 * long_side)) if long_side else 1
    rows, most, paper = times * max(1, _STRIP // (image.width * times)), None, 255
    boxes = [(0, top, image.width, min(image.height, top + rows)) for top in range(0, image.height, rows)]
    deep = image.mode.startswith(("I", "F"))
    image.load()
    clear = image.mode in {"RGBA", "LA", "PA", "La", "RGBa"} or "transparency" in image.info
    if deep:
        parts = (np.asarray(image.crop(box)).astype(np.float32) for box in boxes)
        most = max(float(np.max(part, initial=0.0, where=np.isfinite(part))) for part in parts)
    elif clear:
        few = image.resize([min(side, _SURVEY) for side in image.size], Image.Resampling.NEAREST)
        paper = _paper(np.asarray(few.convert("RGBA")))
    pixels = np.empty(0, np.uint8)
    for box in boxes:
        strip = image.crop(box)
        if deep:
            strip = Image.fromarray(_eight_bits(np.asarray(strip), most))
        elif clear:  # transparent places are paper
            layer = strip.convert("RGBA")
            strip = Image.new("RGB", layer.size, (paper, paper, paper))
            strip.paste(layer, mask=layer.getchannel("A"))
        elif strip.mode not in {"L", "RGB"}:
            strip = strip.convert("L" if strip.mode == "1" else "RGB")
        part = np.asarray(strip.reduce(times) if times > 1 else strip)
        if not pixels.size:
            pixels = np.empty((-(-image.height // times), *part.shape[1:]), np.uint8)
        pixels[box[1] // times :][: len(part)] = part
    # then to its long side, and to its shape: first what is reduced, then what is stretched
    if shape != (1.0, 1.0):
        factor = min(1.0, (long_side or inf) / max(size))
        size = [max(1, round(side * factor)) for side in size]
        less = [min(sides) for sides in zip(size, pixels.shape[1::-1], strict=True)]
        for goal, how in ((less, cv2.INTER_AREA), (size, cv2.INTER_LINEAR)):
            pixels = np.asarray(cv2.resize(pixels, goal, interpolation=how), np.uint8)
    elif long_side is not None:
        pixels = at_most(pixels, long_side)
    # and upright, as EXIF says; a TIFF is by now, and says nothing any more
    whole = image.size if image.format == "TIFF" else whole
    if (orientation := image.getexif().get(_ORIENTATION)) in range(2, 9):
        stored = Image.fromarray(pixels)
        stored.getexif()[_ORIENTATION] = orientation
        pixels = np.asarray(ImageOps.exif_transpose(stored))
    return pixels, whole[::-1] if orientation in _LYING else whole


def _paper(layer: NDArray[np.uint8]) -> int:
    """The grey of paper behind pixels in RGBA (H, W, 4): black if all ink is bright, else white."""
    ink = layer[layer[:, :, 3] > 127, :3]
    return 0 if len(ink) and np.percentile(ink @ np.array([0.299, 0.587, 0.114]), 1) > 127 else 255


def _eight_bits(array: NDArray[Any], most: float | None = None) -> NDArray[np.uint8]:
    """Scale floats up to 1 by 255; deep values so that 65535, or the largest if that is more, becomes 255."""
    if array.dtype in (np.uint8, np.bool_):
        return array if array.dtype == np.uint8 else array * np.uint8(255)
    values, scale = np.nan_to_num(array.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0), 1.0
    most = float(values.max(initial=0.0)) if most is None else most
    if array.dtype.kind == "f" and most <= 1.0:
        scale = 255.0
    elif most > 255.0:
        scale = 255.0 / max(most, 65535.0)
    return np.asarray(np.clip((values * np.float32(scale)).round(), 0, 255), np.uint8)
