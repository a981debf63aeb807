"""What a reader takes for a picture: a file, an address, bytes, a stream, an image or an array."""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from neocog.errors import InputError, NeocogError, UsageError, no_opencv
from neocog.reading.addresses import fetch, is_address
from neocog.text import reason_of
from neocog.vision.decode import KINDS, Page, at_most, decode, to_grey

if TYPE_CHECKING:
    from PIL.Image import Image

Picture: TypeAlias = "str | Path | bytes | IO[bytes] | Image | NDArray[Any]"
"""A picture file or its address, its bytes, a file that is open, a PIL image, or pixels (H, W) or
(H, W, 3) in RGB order."""


PICTURE_SUFFIXES = frozenset(suffix for kind in KINDS for suffix in kind.suffixes)

DOCUMENT_SUFFIXES = frozenset(suffix for kind in KINDS if kind.document for suffix in kind.suffixes)
"""Pictures among them that `neocog live` does not read."""

_KINDS = {
    "a picture": PICTURE_SUFFIXES,
    "a video": ".avi .m4v .mkv .mov .mp4 .mpeg .mpg .webm .wmv".split(),
    "an archive": ".7z .rar .zip .tar .gz .tgz .bz2 .tbz2 .xz .txz".split(),
    "a model": [".safetensors"],
    "a workbook (neocog writes .csv, which a spreadsheet opens)": ".ods .xls .xlsx".split(),
}  # what no words are written to

HIDDEN = "hidden"  # why a file or folder is skipped

STDIN = "-"
"""The input that is what comes on stdin."""


def why_skipped(name: str) -> str | None:
    """Why a file of this name is left out when a folder is read; None if it is not."""
    if name.startswith("."):
        return HIDDEN
    return None if os.path.splitext(name)[1].lower() in PICTURE_SUFFIXES else "not a picture, by its name"


def is_picture_name(name: str) -> bool:
    """Whether a file of this name is looked at when a folder is read."""
    return why_skipped(name) is None


def pages_of(picture: Picture, long_side: int, pages: Iterable[int] | None = None) -> Iterator[Page]:
    """Decode the pages of a picture, all or those of the numbers given, reduced to a long side."""
    data = loaded(picture)
    if isinstance(data, str) and is_address(data):
        data = fetch(data)
    if isinstance(data, np.ndarray):  # reduced as those of a file, before anyone asks how high the picture is
        plain = data.dtype == np.uint8 and data.shape[2:] in ((), (3,)) and data.size
        whole = data if plain else to_grey(data)
        page = Page(0, at_most(whole, long_side), whole.shape[1::-1])
        return iter([page] if pages is None or 0 in pages else [])
    if isinstance(data, str | Path):
        check_file(data)
    return decode(data, long_side=long_side, pages=pages)


def loaded(picture: Picture) -> str | Path | bytes | NDArray[Any]:
    """Return the bytes of an open file, the upright pixels of a PIL image; anything else as it is."""
    if isinstance(picture, str | Path | bytes | np.ndarray):
        return picture
    if not hasattr(picture, "read"):
        from PIL import Image, ImageOps

        if not isinstance(picture, Image.Image):
            raise InputError(f"got a {type(picture).__name__}, expected a file name, a PIL image or an array")
        upright = ImageOps.exif_transpose(picture)
        plain = upright.mode in {"1", "L", "RGB", "RGBA", "F"} or upright.mode.startswith("I")
        return np.asarray(upright if plain else upright.convert("RGBA"))  # modes that `to_grey` knows
    stream = cast(IO[bytes], picture)
    if stream.seekable():
        stream.seek(0)
    data = stream.read()
    if not isinstance(data, bytes):
        raise InputError("the file is open for text; open it with mode 'rb'")
    return data


def check_file(path: str | Path) -> None:
    """Refuse what cannot be opened, and what would wait for ever (InputError)."""
    try:
        kind = os.stat(path).st_mode
    except OSError as error:
        why = reason_of(error).lower()
        raise InputError(f"cannot be opened ({why}); check its name and permissions") from None
    except ValueError:
        raise InputError("a file name cannot hold a zero byte") from None
    if stat.S_ISDIR(kind):
        raise InputError("is a folder, expected a picture file")
    if not stat.S_ISREG(kind):
        raise InputError("is a pipe or device, expected a picture file")


def name_of(picture: object) -> str:
    """What records call a picture: its file, or its type."""
    if isinstance(picture, str | Path):
        return str(picture)
    name = getattr(picture, "filename", "") or getattr(picture, "name", "")
    return str(name) or f"<{type(picture).__name__}>"


def check_written(name: str | Path, option: str) -> None:
    """Refuse names that say picture, video, archive or model for words (UsageError)."""
    if kind := foreign(name):
        raise UsageError(f"{name}: this is the suffix of {kind}; choose another {option}")


def foreign(name: str | Path) -> str | None:
    """What a file of this name holds, where that is no words."""
    suffix = Path(name).suffix.lower()
    return next((kind for kind, suffixes in _KINDS.items() if suffix in suffixes), None)


class Files:
    """Which files paths lead to, by any name; those that lead nowhere count for nothing."""

    def __init__(self, paths: Iterable[str | Path]) -> None:
        self._known = {identity(path) for path in paths} - {None}

    def __contains__(self, path: str | Path) -> bool:
        return identity(path) in self._known


def identity(path: str | Path) -> tuple[int, int] | None:
    """Return what all names of a file have in common; None if there is no such file."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return None
    return found.st_dev, found.st_ino


def what_went_wrong(error: Exception) -> str:
    """One line about an error that nobody foresaw; those of neocog itself are raised again."""
    if isinstance(error, NeocogError) and not isinstance(error, InputError):
        raise error
    if isinstance(error, ImportError) and error.name == "cv2":
        raise no_opencv(error) from None
    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, MemoryError):
        return "cannot be read: it needs more memory than neocog allows"
    return f"cannot be read: {type(error).__name__}: {reason_of(error)}; please report this"
