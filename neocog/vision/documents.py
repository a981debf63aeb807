"""Pages of PDF files, drawn by pdfium, and what decodes HEIC and AVIF."""

import threading
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from neocog.errors import InputError
from neocog.vision.decode import Page
from neocog.vision.header import MAX_PAGES, Header
from neocog.vision.opening import damage

if TYPE_CHECKING:
    from PIL.Image import Image

DPI = 200
"""A page's boxes count in pixels of this resolution."""

_POINTS = 72  # of an inch
_FINER = 2  # times the wanted size at which a page is drawn, to be reduced
_ONE_AT_A_TIME = threading.Lock()  # pdfium knows no threads


def pdf_pages(stream: IO[bytes], max_pixels: int, long_side: int | None) -> Iterator[Page]:
    """Yield the pages of a PDF file, as `neocog.vision.decode.decode` does.

    Raises
    ------
    InputError
        If it is damaged or protected, has too many or too large pages, or pdfium is missing.
    """
    document = _opened(stream)
    try:
        for index in range(len(document)):
            if index == MAX_PAGES:
                raise InputError(f"the file has more than {MAX_PAGES:,} pages; split it")
            with damage(f"has a page {index} that is damaged"), _ONE_AT_A_TIME:
                image, scale = _drawn(document, index, max_pixels, long_side)
            yield Page(index, np.asarray(image), scale)
    finally:
        with _ONE_AT_A_TIME:
            document.close()


def register(kind: str) -> None:
    """Have Pillow decode HEIF or AVIF; InputError if there is nothing that does."""
    if kind == "AVIF":
        from PIL import features

        if not features.check("avif"):
            raise InputError("this Pillow cannot decode AVIF; install a newer one, or save as JPEG")
        return
    try:
        import pillow_heif
    except ImportError:
        raise InputError(
            "reading HEIC needs pillow-heif; install it with: pip install 'neocog[documents]'"
        ) from None
    pillow_heif.options.DECODE_THREADS = 1
    pillow_heif.register_heif_opener()


def _opened(stream: IO[bytes]) -> Any:
    try:
        import pypdfium2
    except ImportError:
        raise InputError(
            "reading PDF needs pypdfium2; install it with: pip install 'neocog[documents]'"
        ) from None
    stream.seek(0)
    try:
        with damage("cannot be opened"), _ONE_AT_A_TIME:
            document = pypdfium2.PdfDocument(stream)
            document.init_forms()
            return document
    except InputError as error:
        if "password" not in str(error):
            raise
        raise InputError("the PDF is protected by a password; save it without one") from None


def _drawn(document: Any, index: int, max_pixels: int, long_side: int | None) -> "tuple[Image, float]":
    """A page in colours, and its pixels per pixel of `DPI`."""
    from PIL import Image

    page = document[index]
    try:
        wide, high = (max(1, round(side * DPI / _POINTS)) for side in page.get_size())
        Header("PDF", wide, high).check(max_pixels, long_side)
        full = max(wide, high)
        finer = 1.0 if long_side is None else min(1.0, _FINER * long_side / full)
        bitmap = page.render(scale=finer * DPI / _POINTS, rev_byteorder=True)
        image: Image.Image = bitmap.to_pil().convert("RGB")
        if long_side is not None and max(image.size) > long_side:
            image.thumbnail((long_side, long_side), Image.Resampling.BOX)
        image = image.copy()  # the bitmap goes
        bitmap.close()
    finally:
        page.close()
    return image, max(image.size) / full
