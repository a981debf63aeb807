"""Pages of PDF files, drawn by pdfium, and what decodes HEIC and AVIF."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import IO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from neocog.errors import InputError
from neocog.vision.decode import check_page, damage

DPI = 200
"""A page's boxes count in pixels of this resolution."""

_NEEDS = "reading {} needs {}; install it with: pip install 'neocog[documents]'"
_POINTS = 72  # of an inch
_FINER = 2  # times the wanted size at which a page is drawn, to be reduced
_ONE_AT_A_TIME = threading.Lock()  # pdfium is not thread-safe


def pdf_pages(
    stream: IO[bytes], max_pixels: int, long_side: int | None, pages: Iterable[int] | None
) -> Iterator[tuple[int, NDArray[np.uint8], tuple[int, int]]]:
    """Draw pages of a PDF file as `neocog.vision.decode.decode`: number, RGB, size in pixels of `DPI`."""
    try:
        import pypdfium2
    except ImportError:
        raise InputError(_NEEDS.format("PDF", "pypdfium2")) from None
    stream.seek(0)
    try:
        with damage(), _ONE_AT_A_TIME:
            document = pypdfium2.PdfDocument(stream)
            document.init_forms()
    except InputError as error:
        if "password" not in str(error):
            raise
        raise InputError("the PDF is protected by a password; save it without one") from None
    try:
        for index in range(len(document)) if pages is None else pages:
            if index >= len(document):
                return
            with damage(), _ONE_AT_A_TIME, closing(document[index]) as page:
                wide, high = (max(1, round(side * DPI / _POINTS)) for side in page.get_size())
                check_page(index, (wide, high), max_pixels)
                finer = 1.0 if long_side is None else min(1.0, _FINER * long_side / max(wide, high))
                with closing(page.render(scale=finer * DPI / _POINTS, rev_byteorder=True)) as bitmap:
                    image = bitmap.to_pil().convert("RGB")
                    if long_side is not None:
                        image.thumbnail((long_side, long_side), Image.Resampling.BOX)
                    pixels = np.array(image)  # a copy: the bitmap goes
            yield index, pixels, (wide, high)
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
        raise InputError(_NEEDS.format("HEIC", "pillow-heif")) from None
    pillow_heif.options.DECODE_THREADS = 1
    pillow_heif.register_heif_opener()
