"""Opens picture files without decoding them: tells their format, then what each page would take."""

import re
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from neocog.errors import InputError
from neocog.messages import printable
from neocog.vision.header import COUNTED, MAX_PIXELS, Header, check_exif, header_of

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "GIF", "PPM", "WEBP", "JPEG2000")
"""What is decoded, beside `neocog.vision.documents`. Pillow knows more; some start programs."""

_MOST_BRANDS = 2**12  # bytes; of a HEIC or AVIF file
_BEGINS = re.compile(
    rb"(?P<JPEG>\xff\xd8\xff)|(?P<PNG>\x89PNG\r\n\x1a\n)|(?P<TIFF>II[*+]\0|MM\0[*+])|"
    rb"(?P<PDF>%PDF-)|(?P<GIF>GIF8[79]a)|(?P<HEIF>.{4}ftyp(avi|hei|hev|mif|msf))|"
    rb"(?P<WEBP>RIFF.{4}WEBPVP8[ LX])|"
    rb"(?P<BMP>BM)|(?P<PPM>P[1-6f]\s)|"
    rb"(?P<JPEG2000>\xff\x4f\xff\x51|\0\0\0\x0cjP  \r\n\x87\n)",
    re.DOTALL,
)
"""How a file begins."""
_NO_PICTURE = (
    "the file is not a picture that neocog can decode; use JPEG, PNG, TIFF, BMP, GIF, WebP, HEIC or PDF"
)


def kind_of(stream: IO[bytes]) -> str:
    """Tell by its first bytes what a file is; InputError if it is no picture that is decoded."""
    stream.seek(0)
    begin = stream.read(_MOST_BRANDS)
    if not begin:
        raise InputError("the file is empty, expected a picture")
    if not (known := _BEGINS.match(begin)):
        raise InputError(_NO_PICTURE)
    if known.lastgroup == "HEIF" and re.search(rb"avi[fs]", begin[: int.from_bytes(begin[:4])]):
        return "AVIF"
    return str(known.lastgroup)


def opened(stream: IO[bytes]) -> "Iterator[tuple[Header, Image]]":
    """Open a picture file; yield what is said of each page, and the image turned to that page.

    Only a TIFF has further pages. Nothing is decoded.

    Raises
    ------
    InputError
        If it is no picture that can be decoded, or would cost decoders too much.
    """
    kind, image = kind_of(stream), None
    if kind == "PDF":
        raise InputError(_NO_PICTURE)
    try:
        for index, (extra, passes) in enumerate(COUNTED[kind](stream)):
            if image is None:
                image = _open(stream, kind)
            elif not _turn_to(image, index):
                return
            with damage("cannot be opened"):
                header = header_of(image, extra, passes)
            yield header, image
    except (struct.error, IndexError, ValueError, OverflowError):
        raise InputError("the picture cannot be opened: its header is cut short") from None
    if image is None:
        raise InputError("the file has no page")


@contextmanager
def damage(what: str) -> Iterator[None]:
    """Say in one line whatever a decoder makes of a damaged picture: it may raise anything."""
    try:
        with warnings.catch_warnings():
            # the size is judged by `Header.check`, and odd metadata do not concern the pixels
            warnings.simplefilter("ignore")
            yield
    except InputError:
        raise
    except MemoryError:
        raise InputError(f"the picture {what}: not enough memory") from None
    except Exception as error:
        text = str(error) or type(error).__name__
        if type(error).__name__ == "DecompressionBombError":  # Pillow's, of 2**27.4 pixels
            pixels = int(text.split("(")[1].split()[0])
            raise InputError(
                f"the picture has {pixels:,} pixels, at most {MAX_PIXELS:,} are decoded; make it smaller"
            ) from None
        if type(error).__name__ == "UnidentifiedImageError":
            text = "its header is damaged or cut short"
        raise InputError(f"the picture {what}: {printable(text.splitlines()[0][:120])}") from None


def _open(stream: IO[bytes], kind: str) -> "Image":
    from PIL import Image

    formats: tuple[str, ...] = FORMATS
    if kind in ("AVIF", "HEIF"):
        from neocog.vision.documents import register

        register(kind)
        formats = (kind,)
    with damage("cannot be opened"):
        image = Image.open(stream, formats=formats)
        if data := image.info.get("exif"):
            check_exif(data)
        if text := image.info.get("Raw profile type exif"):
            check_exif(bytes.fromhex("".join(text.splitlines()[3:])))
        return image


def _turn_to(image: "Image", index: int) -> bool:
    """Turn to a page; False where there are no more."""
    with damage(f"has a page {index} that is damaged or cut short"):
        try:
            image.seek(index)
        except EOFError:
            return False
    return True
