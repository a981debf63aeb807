"""Pictures for looking at: what was read drawn over the page, and the steps of the search."""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neocog.batch.records import DigitReading, PageReading
from neocog.batch.sources import Files
from neocog.errors import UsageError

if TYPE_CHECKING:
    from neocog.batch.reader import Reader
    from neocog.vision.decode import Page

LONG_SIDE = 2048  # larger pages are reduced: an overlay is for looking at
_PER_ROW = 20  # digits in a row of the last step's picture
_SHORT = 50  # letters that are kept of a folder's or a file's name that digits follow
_LONG = 200  # bytes of a name without its endings: file systems take 255 with all of them
_UNSAFE = re.compile(r'[\\:*?"<>|]')  # in names out of archives, for Windows


Names = Mapping[str, str | None]
"""Names of pictures without their endings, and the one source that each is of, if it is one."""


def names_of(inputs: Iterable[tuple[str, str]]) -> Names:
    """Which names the pictures of some inputs have, and which of these are of several inputs.

    Parameters
    ----------
    inputs : iterable of (str, str)
        Sources and keys as of :class:`neocog.batch.inputs.Item`.
    """
    names: dict[str, str | None] = {}
    for source, key in inputs:
        stem = _stem(source, key)
        names[stem] = source if names.get(stem, source) == source else None
    return names


class _Folder(ABC):
    """A folder that pictures are saved into; two pages never get the same name.

    A picture is named after its input, below the folder that was named: the same on every run,
    whatever else is read. Where inputs differ by their endings or folders alone, where it is not
    known beforehand what comes, and to the beginning of a name that is too long, eight digits of
    the SHA-256 of the source are added.

    It may be the folder that the pictures are read from: no source is ever written over.
    """

    _what: str
    _option: str

    def __init__(
        self,
        folder: str | Path,
        *,
        sources: Iterable[str | Path] = (),
        names: Names | None = None,
    ) -> None:
        self.folder = Path(folder)
        self._sources = Files(sources)
        self._names, self._taken = names, dict[str, str]()
        with self._saving(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)

    def save(
        self,
        *readings: PageReading,
        picture: Path | bytes | None = None,
        key: str | None = None,
    ) -> None:
        """Decode a picture once more, page after page, and save what there is to see.

        Parameters
        ----------
        readings : PageReading
            What was read, pages of one picture; those with an error are left out.
        picture : Path or bytes, optional
            The file, where ``source`` of the readings is not its name.
        key : str, optional
            Path of the input relative to the folder that was named.

        Raises
        ------
        UsageError
            If a file cannot be written, or is one that is read.
        InputError
            If a page cannot be had any more.
        """
        from neocog.vision.decode import decode

        left = {reading.page: reading for reading in readings if reading.error is None}
        if not left:
            return
        source = readings[0].source
        with closing(
            decode(source if picture is None else picture, long_side=self._long_side)
        ) as pages:
            for page in pages:
                if reading := left.pop(page.index, None):
                    self._draw(page, reading, self._name(reading, key or source))
                if not left:
                    return

    @property
    @abstractmethod
    def _long_side(self) -> int:
        """Larger pages are reduced to it."""

    @abstractmethod
    def _draw(self, page: "Page", reading: PageReading, name: str) -> None:
        """Save the pictures of a page under names that begin with ``name``."""

    def _name(self, reading: PageReading, key: str) -> str:
        """A name, without an ending, for the pictures of a page."""
        source, stem = reading.source, _stem(reading.source, key)
        names: Names = self._taken if self._names is None else self._names
        if self._names is None:
            self._taken.setdefault(stem, source)
        page = f"-p{reading.page}" if reading.page else ""
        several = names.get(stem) != source or (page and stem + page in names)
        parts = stem.split("/")
        if several or any(len(_bytes_of(part)) > _LONG for part in parts):
            digest = hashlib.sha256(_bytes_of(source)).hexdigest()
            stem = "/".join(part[:_SHORT] for part in parts) + f"-{digest[:8]}"
        return stem + page

    def _place(self, reading: PageReading, name: str) -> Path:
        """Where a picture of that name goes, unless one that is read lies there."""
        path = self.folder / name
        if path in self._sources or path in Files([reading.source]):
            raise UsageError(f"{path}: is one of the inputs; give another {self._option}")
        with self._saving(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
        return path

    @contextmanager
    def _saving(self, place: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UsageError(
                f"{place}: {self._what} cannot be saved there ({error.strerror}); "
                f"give another {self._option}"
            ) from None


class OverlayFolder(_Folder):
    """Saves pages with what was read drawn over them, ``a.jpg`` as ``a.read.png``.

    Parameters
    ----------
    folder : str or Path
        Where to; it is made if it is not there.
    sources : iterable of str or Path
        All pictures that are read: files that must not be written over.
    names : mapping, optional
        As `names_of` tells of all inputs.

    Raises
    ------
    UsageError
        If the folder cannot be made.
    """

    _what, _option = "overlays", "--save-overlay"

    @property
    def _long_side(self) -> int:
        return LONG_SIDE

    def _draw(self, page: "Page", reading: PageReading, name: str) -> None:
        from neocog.vision.overlay import save_overlay

        path = self._place(reading, f"{name}.read.png")
        with self._saving(path):
            save_overlay(path, page.grey, reading.digits, scale=page.scale)


class StepFolder(_Folder):
    """Saves a picture of each step of the search, to see where a digit was lost.

    The steps of ``a.jpg`` are ``a-1-boxes.png``, all places that the finder noticed and how sure
    it is of them, and, as the network gets them, ``a-2-digits.png``.

    Parameters
    ----------
    folder : str or Path
        Where to; it is made if it is not there.
    reader : Reader
        What finds the digits.
    sources : iterable of str or Path
        All pictures that are read: files that must not be written over.
    names : mapping, optional
        As `names_of` tells of all inputs.

    Raises
    ------
    UsageError
        If the folder cannot be made.
    """

    _what, _option = "pictures", "--debug"

    def __init__(
        self,
        folder: str | Path,
        reader: "Reader",
        *,
        sources: Iterable[str | Path] = (),
        names: Names | None = None,
    ) -> None:
        super().__init__(folder, sources=sources, names=names)
        self._reader = reader

    @property
    def _long_side(self) -> int:
        from neocog.vision.page import LONG_SIDE

        return LONG_SIDE

    def _draw(self, page: "Page", reading: PageReading, name: str) -> None:
        from neocog.vision.finder import find
        from neocog.vision.overlay import draw_overlay

        found = find(page.grey, self._reader.finder)
        places = [place for line in self._reader.find(page.grey).lines for place in line.digits]
        boxes = [
            DigitReading(char, score, 0.0, tuple(box.round().astype(int).tolist()))
            for char, score, box in zip(
                found.chars, found.scores.tolist(), found.boxes, strict=True
            )
        ]
        steps = {
            "boxes": np.asarray(draw_overlay(page.grey, boxes)),
            "digits": _sheet([place.digit for place in places]),
        }
        for number, (step, picture) in enumerate(steps.items(), 1):
            path = self._place(reading, f"{name}-{number}-{step}.png")
            with self._saving(path):
                _write(path, picture)


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


def _write(path: Path, picture: NDArray[Any]) -> None:
    from PIL import Image

    from neocog.files import atomic_write

    with atomic_write(path) as stream:
        Image.fromarray(picture).save(stream, format="PNG")
