"""Pictures for looking at: what was read drawn over the page, and the steps of the search."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neocog.batch.records import PageReading
from neocog.batch.sources import Files
from neocog.errors import UsageError

if TYPE_CHECKING:
    from neocog.batch.reader import Reader
    from neocog.vision.decode import Page

LONG_SIDE = 2048  # larger pages are reduced: an overlay is for looking at
_PER_ROW = 20  # digits in a row of the last step's picture


class _Folder:
    """A folder that pictures are saved into; two pages never get the same name.

    It may be the folder that the pictures are read from: no source is ever written over.
    """

    def __init__(
        self, folder: str | Path, *, what: str, option: str, sources: Iterable[str | Path]
    ) -> None:
        self.folder = Path(folder)
        self._option = option
        self._sources = Files(sources)
        self._names: set[str] = set()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"{folder}: {what} cannot be saved there ({error.strerror}); give another {option}"
            ) from None

    def name(self, reading: PageReading) -> str:
        """A name, without an ending, for the pictures of a page."""
        stem = Path(reading.source).stem + (f"-p{reading.page}" if reading.page else "")
        name, number = stem, 2
        while name in self._names:
            name, number = f"{stem}-{number}", number + 1
        self._names.add(name)
        return name

    def place(self, reading: PageReading, name: str) -> Path:
        """Where a picture of that name goes, unless one that is read lies there."""
        path = self.folder / name
        if path in self._sources or path in Files([reading.source]):
            raise UsageError(f"{path}: is one of the inputs; give another {self._option}")
        return path


def _page_of(reading: PageReading, picture: Path | bytes | None, long_side: int) -> "Page | None":
    """Decode the page of a reading once more; None where it could not be read."""
    from neocog.vision.decode import decode

    if reading.error is not None:
        return None
    pages = decode(reading.source if picture is None else picture, long_side=long_side)
    return next((page for page in pages if page.index == reading.page), None)


class OverlayFolder(_Folder):
    """Saves pages with what was read drawn over them, ``a.jpg`` as ``a.read.png``.

    Parameters
    ----------
    folder : str or Path
        Where to; it is made if it is not there.
    sources : iterable of str or Path
        All pictures that are read: files that must not be written over.

    Raises
    ------
    UsageError
        If the folder cannot be made.
    """

    def __init__(self, folder: str | Path, *, sources: Iterable[str | Path] = ()) -> None:
        super().__init__(folder, what="overlays", option="--save-overlay", sources=sources)

    def save(self, reading: PageReading, picture: Path | bytes | None = None) -> None:
        """Decode the page once more, draw what was read over it, and save it.

        Parameters
        ----------
        reading : PageReading
            What was read.
        picture : Path or bytes, optional
            The file, where ``reading.source`` is not its name.

        Raises
        ------
        UsageError
            If the file cannot be written, or is one that is read.
        """
        from neocog.vision.overlay import save_overlay

        page = _page_of(reading, picture, LONG_SIDE)
        if page is None:
            return
        path = self.place(reading, f"{self.name(reading)}.read.png")
        try:
            save_overlay(path, page.grey, reading.digits, scale=page.scale)
        except OSError as error:
            raise UsageError(f"{path}: cannot be written ({error.strerror})") from None


class StepFolder(_Folder):
    """Saves a picture of each step of the search, to see where a digit was lost.

    The steps of ``a.jpg`` are ``a-1-page.png``, ``a-2-contrast.png``, ``a-3-marks.png``,
    ``a-4-kept.png`` and, as the network gets them, ``a-5-digits.png``.

    Parameters
    ----------
    folder : str or Path
        Where to; it is made if it is not there.
    reader : Reader
        What finds the digits.
    sources : iterable of str or Path
        All pictures that are read: files that must not be written over.

    Raises
    ------
    UsageError
        If the folder cannot be made.
    """

    def __init__(
        self, folder: str | Path, reader: "Reader", *, sources: Iterable[str | Path] = ()
    ) -> None:
        super().__init__(folder, what="pictures", option="--debug", sources=sources)
        self._reader = reader

    def save(self, reading: PageReading, picture: Path | bytes | None = None) -> None:
        """Decode and search the page once more, and save what the search saw.

        Parameters
        ----------
        reading : PageReading
            What was read.
        picture : Path or bytes, optional
            The file, where ``reading.source`` is not its name.

        Raises
        ------
        UsageError
            If a file cannot be written, or is one that is read.
        """
        from neocog.vision.find import LONG_SIDE

        page = _page_of(reading, picture, LONG_SIDE)
        if page is not None:
            self._save_steps(page.grey, reading)

    def _save_steps(self, grey: NDArray[np.uint8], reading: PageReading) -> None:
        name = self.name(reading)
        steps: dict[str, NDArray[np.uint8]] = {}
        lines = self._reader.find(grey, trace=steps.__setitem__)
        steps["digits"] = _sheet([found.digit for line in lines for found in line.digits])
        for number, (step, picture) in enumerate(steps.items(), 1):
            _write(self.place(reading, f"{name}-{number}-{step}.png"), picture)


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

    try:
        with atomic_write(path) as stream:
            Image.fromarray(picture).save(stream, format="PNG")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror})") from None
