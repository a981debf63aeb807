"""Where frames come from: a camera, a video file, a folder of pictures, a stream, Python."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.errors import InputError, NothingToRead
from neocog.live.player import MAX_PIXELS
from neocog.reading.addresses import MAX_BYTES
from neocog.reading.pictures import DOCUMENT_SUFFIXES, is_picture_name
from neocog.vision.decode import decode, kind_of

Pixels: TypeAlias = "NDArray[np.uint8]"
Frames: TypeAlias = "Iterable[NDArray[Any]]"

_FOLDER_FPS = 25.0  # of the pictures of a folder, unless another rate is asked for


class SourceLost(InputError):
    """A camera or stream that gave pictures gives none any more; it may come back."""


class Source:
    """Gives frames, one after another."""

    name = ""  # as people call it
    live = False  # goes on by itself: only its newest frame is of use, and once lost it may be back
    fps: float | None = None  # frames a second, where that is known
    files: tuple[Path, ...] = ()  # that it reads: no output may be one of them

    def open(self) -> str:
        """Open it, and say in a few words what it grants; InputError if it cannot be opened."""
        raise NotImplementedError

    def grab(self) -> bool:
        """Wait for the next frame; False at the end, SourceLost if it broke off."""
        raise NotImplementedError

    def retrieve(self) -> Pixels:
        """Decode the frame that was grabbed, (H, W, 3) in the order blue, green, red."""
        raise NotImplementedError

    def interrupt(self) -> None:
        """End a long wait for a frame."""

    def close(self) -> None:
        """Release it; it may be opened again."""


def open_source(
    what: "str | Path | int | Frames", *, size: tuple[int, int] | None = None, fps: float | None = None
) -> Source:
    """Find out which source is meant; nothing is opened yet.

    A camera by number or name, a video file, a folder of pictures, one picture, an address (http, https,
    rtsp), or frames (H, W) or (H, W, 3), blue, green, red. ``size`` (width, height) is asked of a camera;
    ``fps`` as well, and is the rate of pictures and frames. NothingToRead if there is none; UsageError for a
    senseless address.
    """
    from neocog.live.cameras import CameraSource, find_camera
    from neocog.live.video import VideoFile, open_stream

    if isinstance(what, int):
        return CameraSource(what, size=size, fps=fps)
    if not isinstance(what, str | Path):
        return FrameSource(what, fps=fps)
    text, path = str(what), Path(what)
    if "://" in text:
        return open_stream(text)
    if path.is_dir() or (path.is_file() and _is_frame(path)):
        return FolderSource(path, fps=fps)
    if path.is_file():
        return VideoFile(path)
    number = int(text) if text.isdecimal() else find_camera(text)
    return CameraSource(number, size=size, fps=fps)


class FrameSource(Source):
    """Frames from Python: uint8 (H, W) or (H, W, 3), blue, green, red; 25 a second by default."""

    name = "<frames>"

    def __init__(self, frames: Frames, *, fps: float | None = None) -> None:
        self.fps: float = fps or _FOLDER_FPS
        self._frames = frames
        self._rest: Iterator[NDArray[Any]] = iter(())
        self._at: NDArray[Any] | None = None

    def open(self) -> str:
        self._rest = iter(self._frames)
        return f"{self.fps:g} frames a second"

    def grab(self) -> bool:
        self._at = next(self._rest, None)
        return self._at is not None

    def retrieve(self) -> Pixels:
        assert self._at is not None
        return in_colours(self._at).copy()  # its array may be used for the next frame as well

    def close(self) -> None:
        self._rest = iter(())


class FolderSource(FrameSource):
    """The pictures of a folder in the order of their names, or one picture; NothingToRead if it has none.

    Those that cannot be decoded are left out; if none can be, the first `grab` raises InputError.
    """

    def __init__(self, folder: Path, *, fps: float | None = None) -> None:
        super().__init__((), fps=fps)
        self.name, self.files = str(folder), (folder,)
        if folder.is_dir():
            self.files = tuple(sorted(e for e in folder.iterdir() if _is_frame(e) and e.is_file()))
        if not self.files:
            raise NothingToRead(f"{folder}: this folder holds no pictures")

    def open(self) -> str:
        self._rest = self._pictures()
        return f"{len(self.files)} pictures, {self.fps:g} a second"

    def _pictures(self) -> Iterator[Pixels]:
        why, found = "", False
        for path in self.files:
            try:
                yield _picture(path)
                found = True
            except InputError as error:
                why = str(error)
        if not found:
            count = len(self.files)
            none = f"none of its {count} files is a picture that neocog can decode"
            raise InputError(f"{self.name}: {why if count == 1 else none}")


def _is_frame(path: Path) -> bool:
    return is_picture_name(path.name) and path.suffix.lower() not in DOCUMENT_SUFFIXES


def _picture(path: Path) -> Pixels:
    """Decode a picture, grey or in the order blue, green, red."""
    try:
        with path.open("rb") as stream:
            if os.fstat(stream.fileno()).st_size > MAX_BYTES:
                raise InputError(f"has more than {MAX_BYTES:,} bytes; make it smaller")
            kind = kind_of(stream)  # a document is refused here whatever its name
            page = None if kind and kind.document else next(decode(stream, max_pixels=MAX_PIXELS), None)
    except OSError as error:
        raise InputError(f"cannot be opened ({error.strerror})") from None
    if page is None:
        raise InputError("is not a picture that neocog can decode")
    return page.pixels[:, :, ::-1] if page.pixels.ndim == 3 else page.pixels


def in_colours(frame: NDArray[Any]) -> Pixels:
    """Return a frame (H, W) or (H, W, 1 | 3 | 4) as (H, W, 3), on white paper; InputError for all others."""
    frame = np.asarray(frame)
    planes = frame.shape[2] if frame.ndim == 3 else 1
    shaped = frame.ndim in (2, 3) and planes in (1, 3, 4) and frame.size
    if not shaped or frame.dtype != np.uint8:
        raise InputError(f"got a frame of {frame.dtype} {frame.shape}, expected uint8 (H, W) or (H, W, 3)")
    if planes == 1:
        return np.repeat(frame.reshape(*frame.shape[:2], 1), 3, axis=2)
    if planes == 4:
        alpha = frame[:, :, 3:].astype(np.float32) / 255
        frame = (frame[:, :, :3] * alpha + 255 * (1 - alpha)).round().astype(np.uint8)
    return np.ascontiguousarray(frame)


def posed(pixels: Pixels, *, rotate: int = 0, mirror: bool = False) -> Pixels:
    """Return a frame (H, W, 3), left and right swapped if asked for, and then turned clockwise by degrees."""
    pixels = np.asarray(cv2.flip(pixels, 1), np.uint8) if mirror else pixels
    return np.asarray(cv2.rotate(pixels, rotate // 90 - 1), np.uint8) if rotate else pixels
