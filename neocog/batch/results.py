"""What one does with a page that was read: a notebook's view, a data frame, a plot, a file."""

import base64
import html
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neocog.batch.formats import Format, kind_of
from neocog.batch.records import PageReading
from neocog.batch.sources import check_written
from neocog.errors import InputError, UsageError
from neocog.files import atomic_write

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from PIL.Image import Image

LARGEST = 8192
"""Long side, in pixels, to which pictures are reduced that are drawn over."""

_PICTURES = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}
_THUMBNAIL = 480  # long side in a notebook


def drawn(reading: PageReading, long_side: int = LARGEST) -> "Image":
    """Return the picture with boxes and digits over it; InputError if it is not at hand."""
    from neocog.batch.pictures import pages_of
    from neocog.vision.overlay import draw_overlay

    picture = reading.source if reading.picture is None else reading.picture
    for page in pages_of(picture, long_side):
        if page.index == reading.page:
            return draw_overlay(page.pixels, reading.digits, scale=page.scale)
    raise InputError(f"{reading.source} has no page {reading.page}")


def as_html(reading: PageReading) -> str:
    """The text beside a small picture; the text alone where that is not at hand."""
    words = f"<pre>{html.escape(reading.error or reading.text)}</pre>"
    small = io.BytesIO()
    try:
        drawn(reading, _THUMBNAIL).save(small, "JPEG", quality=80)
    except InputError:
        return words
    data = base64.b64encode(small.getvalue()).decode("ascii")
    return f'<img src="data:image/jpeg;base64,{data}" alt="">{words}'


def as_frame(reading: PageReading) -> "pandas.DataFrame":
    """A row per digit."""
    try:
        import pandas
    except ImportError:
        raise UsageError("to_pandas needs pandas; install it with: pip install pandas") from None
    spans = [
        (line, word, *span.digits)
        for line, one in enumerate(reading.lines)
        for word, span in enumerate(one.words)
        if span.digits is not None
    ]
    place = {n: (line, word) for line, word, low, high in spans for n in range(low, high + 1)}
    rows: list[dict[str, Any]] = []
    for number, digit in enumerate(reading.digits):
        where = dict(zip(("line", "word"), place.get(number, (0, 0)), strict=True))
        box = dict(zip(("x", "y", "width", "height"), digit.box, strict=True))
        said = {"char": digit.char, "p": digit.p, "margin": digit.margin}
        rows.append({**where, **said, **box, "reason": digit.reason})
    return pandas.DataFrame(rows)


def plot(reading: PageReading, ax: "Axes | None") -> "Axes":
    """Draw the overlay on axes."""
    try:
        from matplotlib import pyplot
    except ImportError:
        raise UsageError("plot needs matplotlib; install it with: pip install matplotlib") from None
    ax = pyplot.gca() if ax is None else ax
    ax.imshow(drawn(reading))
    ax.set_axis_off()
    return ax


def save(reading: PageReading, path: str | Path) -> None:
    """Write a file whose suffix says what it holds."""
    path = Path(path)
    if (form := _PICTURES.get(path.suffix.lower())) is not None:
        image = drawn(reading)
        with atomic_write(path) as stream:
            image.save(stream, form)
        return
    check_written(path, "name")
    kind = Format(kind_of(str(path)), names=False, source=reading.source)
    text = kind.render(reading)
    text = f"[\n{text.removesuffix(chr(10))}" if kind.kind == "json" else kind.head + text
    with atomic_write(path) as stream:
        stream.write((text + kind.tail).encode())
