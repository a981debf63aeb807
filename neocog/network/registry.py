"""Where models lie and what they are called.

In a checkout they lie in ``models/`` beside the package, in an installed wheel in ``neocog/_models``. A name
is a file there; anything with a suffix or a slash is a path. The file ``SHA256SUMS`` beside them holds their
digests, in the form of the program ``sha256sum``.
"""

import hashlib
import json
import os
from pathlib import Path

from neocog.errors import ModelError

DEFAULT = "neocog"  #: the model that is used when none is named
LINES = "neocog-lines"  #: the model that reads whole lines, where none is named
FINDER = "finder"  #: the network that finds the digits of a page; it lies beside the models, and is none
SUFFIX = ".safetensors"
SUMS = "SHA256SUMS"

_PACKAGE = Path(__file__).resolve().parent.parent


def models_dir() -> Path:
    """Return the folder of the shipped models."""
    installed = _PACKAGE / "_models"
    return installed if installed.is_dir() else _PACKAGE.parent / "models"


def list_files() -> list[Path]:
    """Return the files of the shipped models and the finder, sorted by name."""
    return sorted(models_dir().glob(f"*{SUFFIX}"))


def list_models() -> list[Path]:
    """Return the files of the shipped models that recognise digits, sorted by name."""
    return [path for path in list_files() if kind_of(path) == "digits"]


def kind_of(path: Path) -> str:
    """Return what a file says that it holds: ``"lines"``, ``"finder"``, or else ``"digits"``."""
    try:
        with path.open("rb") as stream:
            header = stream.read(min(int.from_bytes(stream.read(8), "little"), 2**20))
        told = json.loads(header)["__metadata__"]
        form = told["format"] if "format" in told else json.loads(told["neocog"])["format"]
        return {"neocog finder 1": "finder", "neocog lines 1": "lines"}.get(form, "digits")
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "digits"


def shipped_digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each model file of a folder as it was shipped, by the file's name."""
    sums = folder / SUMS
    lines = sums.read_text("utf-8", "replace").splitlines() if sums.is_file() else []
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def check_digest(path: Path) -> bool:
    """Whether a digest was shipped beside a model's file; ModelError if it is that of another file."""
    wanted = shipped_digests(path.parent).get(path.name)
    if wanted is None:
        return False
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != wanted:
        what = f"its SHA-256 is {found[:16]}..., not {wanted[:16]}..."
        raise ModelError(f"model {path}: the shipped file was changed: {what}; install neocog again")
    return True


def find_model(name_or_path: str | Path) -> Path:
    """Return the file of a model given by name or path; ModelError if there is none."""
    text, path = str(name_or_path), Path(name_or_path)
    known = [file.stem for file in list_files()]
    names = ", ".join(name for name in known if name != FINDER) or "none"
    if isinstance(name_or_path, Path) or path.suffix or len(path.parts) != 1:
        if not os.path.isfile(path):  # Path.is_file raises on names that no file can have
            what = "a folder" if os.path.isdir(path) else "no such file"
            raise ModelError(f"model {text}: {what}, expected a {SUFFIX} file or one of {names}")
        return path
    if text not in known:
        from difflib import get_close_matches  # 4 ms, and hardly ever needed

        close = get_close_matches(text, known, 1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        raise ModelError(f"no model named {text!r}; {meant}there are {names}, or give a file's path")
    return models_dir() / f"{text}{SUFFIX}"
