"""Pictures with what was read drawn over them, one PNG file per page."""

from pathlib import Path

from neocog.batch.records import PageReading
from neocog.errors import UsageError

LONG_SIDE = 2048  # larger pages are reduced: an overlay is for looking at


class OverlayFolder:
    """A folder that overlays are saved into; two pages never get the same name.

    Raises
    ------
    UsageError
        If the folder cannot be made.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._names: set[str] = set()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"{folder}: overlays cannot be saved there ({error.strerror}); "
                "give another --save-overlay"
            ) from None

    def save(self, reading: PageReading) -> None:
        """Decode the page once more, draw what was read over it, and save it.

        Raises
        ------
        UsageError
            If the file cannot be written.
        """
        from neocog.vision.decode import decode
        from neocog.vision.overlay import save_overlay

        if reading.error is not None:
            return
        path = self._folder / self._name(reading)
        for page in decode(reading.source, long_side=LONG_SIDE):
            if page.index == reading.page:
                try:
                    save_overlay(path, page.grey, reading.digits, scale=page.scale)
                except OSError as error:
                    raise UsageError(f"{path}: cannot be written ({error.strerror})") from None
                return

    def _name(self, reading: PageReading) -> str:
        stem = Path(reading.source).stem + (f"-p{reading.page}" if reading.page else "")
        name, number = f"{stem}.png", 2
        while name in self._names:
            name, number = f"{stem}-{number}.png", number + 1
        self._names.add(name)
        return name
