"""What one does with a page that was read: save it, draw it, have it as a data frame."""

import base64
import html
import io
import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from neocog.errors import InputError, UsageError
from neocog.files import atomic_write, check_output
from neocog.reading.formats import Format, kind_of
from neocog.reading.pictures import Files, check_written, pages_of
from neocog.reading.records import PageRecord
from neocog.vision.decode import Page
from neocog.vision.documents import PdfWriter
from neocog.vision.overlay import draw_overlay

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from PIL.Image import Image

LARGEST = 8192  # long side, in pixels, to which pictures are reduced that are drawn over
DRAWN = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}  # formats of drawings, by the suffix of their file
_THUMBNAIL = 480  # long side in a notebook


class PageReading(PageRecord):
    """What stands on one page, or why that is not known."""

    __slots__ = ()

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        """The text beside the picture, for notebooks; alone where that is not at hand."""
        words, small = f"<pre>{html.escape(self.error or self.text)}</pre>", io.BytesIO()
        try:
            self._drawn(_THUMBNAIL).save(small, "JPEG", quality=80)
        except InputError:
            return words
        data = base64.b64encode(small.getvalue()).decode("ascii")
        return f'<img src="data:image/jpeg;base64,{data}" alt="">{words}'

    def to_pandas(self) -> "pandas.DataFrame":
        """A row per digit: source, line, word, char, p, margin, x, y, width, height, reason."""
        try:
            import pandas
        except ImportError:
            raise UsageError("to_pandas needs pandas; install it with: pip install pandas") from None
        place = dict[int, tuple[int, int]]()
        for line, one in enumerate(self.lines):
            for word, own in enumerate(one.words):
                first, last = own.digits or (0, -1)
                place |= dict.fromkeys(range(first, last + 1), (line, word))
        rows = [
            (self.source, *place.get(n, (0, 0)), digit.char, digit.p, digit.margin, *digit.box, digit.reason)
            for n, digit in enumerate(self.digits)
        ]
        names = "source line word char p margin x y width height reason"
        return pandas.DataFrame(rows, columns=names.split())

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the picture with what was read over it, by matplotlib, and return the axes."""
        try:
            from matplotlib import pyplot
        except ImportError:
            raise UsageError("plot needs matplotlib; install it with: pip install matplotlib") from None
        ax = pyplot.gca() if ax is None else ax
        ax.imshow(self._drawn())
        ax.set_axis_off()
        return ax

    def save(self, path: str | Path) -> None:
        """Write a .json, .jsonl, .csv, .tsv, .hocr, .xml (ALTO) or text file, a .pdf, or a picture.

        A .pdf is the picture with the text as an invisible layer, a .png or .jpg the picture with boxes and
        digits drawn over it. UsageError if the file is the picture that was read, or cannot be written.
        """
        if path in Files([self.source]):
            raise UsageError(f"{path}: is the picture that was read; choose another name")
        if (kind := DRAWN.get(os.path.splitext(path)[1].lower())) is not None:
            check_output(path, "name")
            image = self._drawn()
            with atomic_write(path) as stream:
                image.save(stream, kind)
            return
        written = Format(kind_of(str(path)), names=False, source=self.source)
        if written.kind == "pdf":
            check_output(path, "name")
            with closing(PdfWriter()) as pdf:
                self.add_to(pdf, self._page(LARGEST))
                with atomic_write(path) as stream:
                    pdf.save(stream)
            return
        check_written(path, "name")
        text = written.render(self)
        text = f"[\n{text.removesuffix(chr(10))}" if written.kind == "json" else written.head + text
        with atomic_write(path) as stream:
            stream.write((text + written.tail).encode())

    def add_to(self, pdf: PdfWriter, page: Page) -> None:
        """Add the picture of this page to a PDF, with its text as an invisible layer."""
        words = ((word.shown, word.box) for line in self.lines for word in line.words)
        pdf.add(page.pixels, page.size, words, self.turn)

    def _drawn(self, long_side: int = LARGEST) -> "Image":
        page = self._page(long_side)
        return draw_overlay(page.pixels, self.digits, scales=page.scales)

    def _page(self, long_side: int) -> Page:
        """The page once more; InputError if it is not at hand."""
        picture = self.source if self.picture is None else self.picture
        for page in pages_of(picture, long_side, pages=[self.page]):
            return page
        raise InputError(f"{self.source} has no page {self.page + 1}")
