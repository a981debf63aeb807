"""Pages of PDF files, drawn and written by pdfium, and what decodes HEIC and AVIF."""

import ctypes
import io
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing
from math import inf
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from neocog.errors import EndedEarly, InputError, UsageError

DPI = 200
"""A page's boxes count in pixels of this resolution."""

_NEEDS = "reading {} needs {}; install it with: pip install 'neocog[documents]'"
_POINTS = 72  # of an inch
_QUALITY = 85  # of the JPEGs of a PDF
_LARGEST = 14400  # points of a PDF's page
MAX_PDF = 2**30  # bytes of a PDF that is written: it is held in memory
_ONE_AT_A_TIME = threading.Lock()  # pdfium is not thread-safe


def pdf_pages(
    stream: IO[bytes],
    long_side: int | None,
    pages: Iterable[int] | None,
    check_page: Callable[[int, tuple[int, int]], None],
    damage: Callable[[], AbstractContextManager[None]],
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
            count = len(document)
    except InputError as error:
        if "password" not in str(error):
            raise
        raise InputError("the PDF is protected by a password; save it without one") from None
    try:
        for index in range(count) if pages is None else pages:
            if index >= count:
                return
            with damage(), _ONE_AT_A_TIME, closing(document[index]) as page:
                wide, high = (max(1, round(side * DPI / _POINTS)) for side in page.get_size())
                check_page(index, (wide, high))
                finer = min(1.0, 2 * (long_side or inf) / max(wide, high))  # it is reduced then
                with closing(page.render(scale=finer * DPI / _POINTS, rev_byteorder=True)) as bitmap:
                    image = bitmap.to_pil().convert("RGB")
                    if long_side is not None:
                        image.thumbnail((long_side, long_side), Image.Resampling.BOX)
                    pixels = np.array(image)  # a copy: the bitmap goes
            yield index, pixels, (wide, high)
    finally:
        with _ONE_AT_A_TIME:
            document.close()


class PdfWriter:
    """Pages of a PDF: pictures, their words as invisible text; UsageError without pypdfium2."""

    def __init__(self) -> None:
        try:
            import pypdfium2
        except ImportError:
            raise UsageError(_NEEDS.format("or writing PDF", "pypdfium2")) from None
        self._library, self._size = pypdfium2, 0
        with _ONE_AT_A_TIME:
            self._document = pypdfium2.PdfDocument.new()

    def add(
        self, pixels: NDArray[np.uint8], size: tuple[int, int], words: Iterable[tuple[str, Any]], turn: int
    ) -> None:
        """Add a page of ``size`` pixels of `DPI`, with words in boxes, read at ``turn``; see `MAX_PDF`."""
        raw, jpeg = self._library.raw, io.BytesIO()
        Image.fromarray(pixels).save(jpeg, "JPEG", quality=_QUALITY)
        self._size += jpeg.tell()
        if self._size > MAX_PDF:
            raise EndedEarly(f"the PDF would have more than {MAX_PDF:,} bytes; read fewer pictures into one")
        unit = min(_POINTS / DPI, _LARGEST / max(size))
        wide, high = (side * unit for side in size)
        with _ONE_AT_A_TIME, closing(self._document.new_page(wide, high)) as page:
            image = self._library.PdfImage.new(self._document)
            image.load_jpeg(jpeg, inline=True)
            image.set_matrix(self._library.PdfMatrix().scale(wide, high))
            page.insert_obj(image)
            for text, (x, y, w, h) in words:
                own = raw.FPDFPageObj_NewTextObj(self._document, b"Helvetica", 1.0)
                data = ctypes.create_string_buffer((text + " \0").encode("utf-16-le", "replace"))
                raw.FPDFText_SetText(own, ctypes.cast(data, raw.FPDF_WIDESTRING))
                raw.FPDFTextObj_SetTextRenderMode(own, raw.FPDF_TEXTRENDERMODE_INVISIBLE)
                sides = [ctypes.c_float() for _ in range(4)]
                raw.FPDFPageObj_GetBounds(own, *sides)
                left, _, right, top = (side.value for side in sides)
                # the text, (left, 0) .. (right, top), onto the box as it is read
                long, tall = (right - left) or 1.0, top or 1.0
                x, y, w, h = x * unit, high - (y + h) * unit, w * unit, h * unit
                a, b, c, d, e, f = {
                    0: (w, 0, 0, h, x, y), 90: (0, h, -w, 0, x + w, y),
                    180: (-w, 0, 0, -h, x + w, y + h), 270: (0, -h, w, 0, x, y + h),
                }[turn]  # fmt: skip
                a, b, c, d = a / long, b / long, c / tall, d / tall
                raw.FPDFPageObj_Transform(own, a, b, c, d, e - a * left, f - b * left)
                raw.FPDFPage_InsertObject(page, own)
            page.gen_content()

    def save(self, stream: IO[bytes]) -> None:
        with _ONE_AT_A_TIME:
            self._document.save(stream)

    def __len__(self) -> int:
        with _ONE_AT_A_TIME:
            return len(self._document)

    def close(self) -> None:
        with _ONE_AT_A_TIME:
            self._document.close()


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
