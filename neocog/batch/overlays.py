"""Pictures for looking at: what was read drawn over the page, and the steps of the search."""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from neocog.batch.sources import Files, Item
from neocog.batch.tasks import what_went_wrong
from neocog.errors import UsageError
from neocog.files import atomic_write
from neocog.messages import printable
from neocog.reading.records import LARGEST, DigitReading, PageReading

if TYPE_CHECKING:
    from PIL.Image import Image

    from neocog.reading.reader import Reader
    from neocog.vision.decode import Page

_PHOTOGRAPHS = (".jpg", ".jpeg", ".heic", ".heif", ".hif")  # their overlays are JPEG too
_PER_ROW = 20  # digits in a row of the last step's picture
_SHORT = 50  # letters that are kept of a folder's or a file's name that digits follow
_LONG = 200  # bytes of a name without its endings: file systems take 255 with all of them
_UNSAFE = re.compile(r'[\\:*?"<>|]')  # in names out of archives, for Windows

Draw = Callable[["Page", PageReading], "Iterator[tuple[str, Image]]"]
"""Yields the pictures of a page, each with the end of its name, .png or .jpg."""


class PictureFolder:
    """A folder that pictures are saved into; two pages never get the same name.

    A picture is named after its input, below the folder that was named: the same on every run,
    whatever else is read. Where inputs differ by their endings or folders alone, where it is not
    known beforehand what comes, and to the beginning of a name that is too long, eight digits of
    the SHA-256 of the source are added. It may be the folder that the pictures are read from: no
    source is ever written over.

    ``inputs`` are the sources and keys that are known beforehand; larger pages are reduced to
    ``long_side``. UsageError if the folder, named by ``option``, cannot be made.
    """

    def __init__(
        self,
        folder: str | Path,
        option: str,
        draw: Draw,
        *,
        inputs: Iterable[tuple[str, str]] = (),
        long_side: int = LARGEST,
    ) -> None:
        self.folder, self._option, self._draw = Path(folder), option, draw
        inputs = list(inputs)
        self._sources = Files(source for source, _ in inputs)
        self._names: dict[str, str | None] = {}  # without endings; the source, if it is one
        for source, key in inputs:
            stem = _stem(source, key)
            self._names[stem] = source if self._names.get(stem, source) == source else None
        self._long_side = long_side
        with self._saving(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)

    def save(self, *readings: PageReading, item: Item | None = None) -> None:
        """Decode the pages of a picture once more, and save what there is to see.

        Readings with an error are left out; ``item`` is the file of their source by default.
        UsageError if a file cannot be written or is one that is read, InputError if a page cannot
        be had.
        """
        from neocog.vision.decode import decode

        left = {reading.page: reading for reading in readings if reading.error is None}
        if not left:
            return
        source = readings[0].source
        item = item or Item(source, source)
        for page in decode(item.picture(), long_side=self._long_side, pages=sorted(left)):
            name = self._name(left[page.index], item.key)
            for end, image in self._draw(page, left[page.index]):
                self._write(self.folder / f"{name}{end}", image, source)

    def save_all(self, readings: Iterable[tuple[Item, Sequence[PageReading]]]) -> Iterator[str]:
        """Save what there is to see of inputs; yield what could not be drawn, and why."""
        for item, pages in readings:
            try:
                self.save(*pages, item=item)
            except Exception as error:  # it may be another picture by now, the disk be full
                why = str(error) if isinstance(error, UsageError) else what_went_wrong(error)
                yield f"{printable(item.source)}: not drawn: {printable(why)}"

    def _name(self, reading: PageReading, key: str) -> str:
        """A name, without an ending, for the pictures of a page."""
        source, stem = reading.source, _stem(reading.source, key)
        page = f"-p{reading.page}" if reading.page else ""
        several = self._names.get(stem) != source or (page and stem + page in self._names)
        parts = stem.split("/")
        if several or any(len(_bytes_of(part)) > _LONG for part in parts):
            digest = hashlib.sha256(_bytes_of(source)).hexdigest()
            stem = "/".join(part[:_SHORT] for part in parts) + f"-{digest[:8]}"
        return stem + page

    def _write(self, path: Path, image: "Image", source: str) -> None:
        if path in self._sources or path in Files([source]):
            raise UsageError(f"{path}: is also an input; choose another {self._option}")
        with self._saving(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as stream:
                image.save(stream, format="JPEG" if path.suffix == ".jpg" else "PNG")

    @contextmanager
    def _saving(self, place: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UsageError(
                f"{place}: pictures cannot be saved there ({error.strerror}); choose another {self._option}"
            ) from None


def overlay(page: "Page", reading: PageReading) -> "Iterator[tuple[str, Image]]":
    """Draw what was read over a page: ``a.jpg`` becomes ``a.read.jpg``, others ``.read.png``."""
    from neocog.vision.overlay import draw_overlay

    end = "jpg" if reading.source.lower().endswith(_PHOTOGRAPHS) else "png"
    yield f".read.{end}", draw_overlay(page.pixels, reading.digits, scale=page.scale)


def steps(reader: "Reader") -> Draw:
    """Draw each step of the search, to see where a digit was lost.

    ``a-1-boxes.png`` has all places that the finder noticed and how sure it is of them,
    ``a-2-digits.png`` the digits as the network gets them.
    """

    def draw(page: "Page", reading: PageReading) -> "Iterator[tuple[str, Image]]":
        from PIL import Image

        from neocog.vision.finder import find
        from neocog.vision.overlay import draw_overlay

        found = find(page.grey, reader.finder)
        marks = zip(found.chars, found.scores.tolist(), found.boxes, strict=True)
        boxes = [
            DigitReading(char, score, 0.0, tuple(box.round().astype(int).tolist()))
            for char, score, box in marks
        ]
        yield "-1-boxes.png", draw_overlay(page.grey, boxes)
        places = [place for line in reader.find(page.grey).lines for place in line.digits]
        yield "-2-digits.png", Image.fromarray(_sheet([place.digit for place in places]))

    return draw


def _stem(source: str, key: str) -> str:
    """Name of an input's pictures: that of the file, below the folder that was named."""
    if key == Path(source).as_posix():
        return Path(source).stem
    *folders, last = PurePosixPath(key).parts
    kept = [folder for folder in folders if folder not in ("/", "..")]
    return "/".join(_UNSAFE.sub("_", part) for part in (*kept, PurePosixPath(last).stem))


def _bytes_of(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _sheet(digits: list[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """All digits of a page in rows, at twice their size."""
    rows = max(1, -(-len(digits) // _PER_ROW))
    sheet = np.zeros((rows, 28, _PER_ROW, 28), np.uint8)
    for index, digit in enumerate(digits):
        sheet[index // _PER_ROW, :, index % _PER_ROW] = digit
    flat = sheet.reshape(rows * 28, _PER_ROW * 28)
    return flat.repeat(2, axis=0).repeat(2, axis=1)
