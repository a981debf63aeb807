"""Where frames come from: a camera, a video file, a folder of pictures, a stream, Python."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from neocog.batch.sources import DOCUMENT_SUFFIXES, is_picture_name
from neocog.errors import InputError, NothingToRead
from neocog.live.player import MAX_PIXELS
from neocog.vision.decode import check_size, decode_clear

Pixels: TypeAlias = "NDArray[np.uint8]"
Frames: TypeAlias = "Iterable[NDArray[Any]]"
Given: TypeAlias = "str | Path | int | Frames"
"""What names a source."""

FOLDER_FPS = 25.0
"""Pictures of a folder that make a second, unless another rate is asked for."""

_MOST_BYTES = 2**28  # of a picture's file; a longer one counts as cut short


class SourceLost(InputError):
    """A camera or stream that gave pictures gives none any more; it may come back."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of a source.

    ``size``: width and height of a camera's frames; ``fps``: frames a second of a camera, or of a
    folder's pictures.
    """

    size: tuple[int, int] | None = None
    fps: float | None = None


class Source(Protocol):
    """Gives frames, one after another.

    A source that reads files names them in an attribute ``files``: no output may be one of them.
    One that may wait long for a frame has a method ``interrupt`` that ends the wait.
    """

    @property
    def name(self) -> str:
        """As people call it."""

    @property
    def live(self) -> bool:
        """Whether it goes on by itself, so that only its newest frame is of use."""

    @property
    def returns(self) -> bool:
        """Whether it may be opened again when it was lost."""

    @property
    def fps(self) -> float | None:
        """Frames a second, where that is known."""

    def open(self) -> str:
        """Open it, and say in a few words what it grants; InputError if it cannot be opened."""

    def grab(self) -> bool:
        """Wait for the next frame; False at the end, SourceLost if it broke off."""

    def retrieve(self) -> Pixels:
        """Decode the frame that was grabbed, (H, W, 3) in the order blue, green, red."""

    def close(self) -> None:
        """Release it; it may be opened again."""


def open_source(what: Given, wanted: Wanted | None = None) -> Source:
    """Find out which source is meant; nothing is opened yet.

    Parameters
    ----------
    what : str, Path, int or iterable of arrays
        A camera by its number or name, a video file, a folder of pictures, an address (http,
        https, rtsp), or frames (H, W) or (H, W, 3), in the order blue, green, red.
    wanted : Wanted, optional
        Size and rate to ask for.

    Raises
    ------
    NothingToRead
        If there is nothing of that name.
    UsageError
        If it is an address that makes no sense.
    """
    from neocog.live.cameras import CameraSource, find_camera
    from neocog.live.video import VideoFile, open_stream

    wanted = wanted or Wanted()
    if isinstance(what, int):
        return CameraSource(what, wanted)
    if not isinstance(what, str | Path):
        return FrameSource(what, fps=wanted.fps)
    text, path = str(what), Path(what)
    if "://" in text:
        return open_stream(text)
    if text.isdecimal() and not path.exists():
        return CameraSource(int(text), wanted)
    if path.is_dir() or (path.is_file() and _is_frame(path)):
        return FolderSource(path, fps=wanted.fps)
    return VideoFile(path) if path.is_file() else CameraSource(find_camera(text), wanted)


class FrameSource:
    """Frames from Python.

    Parameters
    ----------
    frames : iterable of ndarray
        (H, W) or (H, W, 3) in the order blue, green, red, uint8.
    fps : float, optional
        Frames a second that they stand for, 25 by default.
    """

    live = False
    returns = False
    name = "<frames>"

    def __init__(self, frames: Frames, *, fps: float | None = None) -> None:
        self.fps: float | None = fps or FOLDER_FPS
        self._frames = frames
        self._rest: Iterator[NDArray[Any]] = iter(())
        self._at: NDArray[Any] | None = None

    def open(self) -> str:
        """Begin."""
        self._rest = iter(self._frames)
        return f"{self.fps:g} frames a second"

    def grab(self) -> bool:
        """Take the next frame."""
        self._at = next(self._rest, None)
        return self._at is not None

    def retrieve(self) -> Pixels:
        """Return a copy of it in colours: its array may be used for the next frame as well."""
        assert self._at is not None
        return in_colours(self._at).copy()

    def close(self) -> None:
        """Take no more."""
        self._rest = iter(())


class FolderSource(FrameSource):
    """The pictures of a folder in the order of their names, or one picture.

    Pictures that cannot be decoded are left out; that none can be is an InputError when the first
    frame is grabbed. A folder without pictures is NothingToRead.
    """

    def __init__(self, folder: Path, *, fps: float | None = None) -> None:
        self.name = str(folder)
        self.files = [folder]
        if folder.is_dir():
            entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
            self.files = [e for e in entries if _is_frame(e) and e.is_file()]
        if not self.files:
            raise NothingToRead(f"{folder}: this folder holds no pictures")
        super().__init__((), fps=fps)

    def open(self) -> str:
        """Begin with the first picture."""
        self._rest = self._pictures()
        return f"{len(self.files)} pictures, {self.fps:g} a second"

    def _pictures(self) -> Iterator[Pixels]:
        hush()
        why, found = "", False
        for path in self.files:
            try:
                yield _picture(path)
                found = True
            except InputError as error:
                why = str(error)
        if not found:
            count = len(self.files)
            what = (
                why
                if count == 1
                else f"none of its {count} files is a picture that neocog can decode"
            )
            raise InputError(f"{self.name}: {what}")


def _is_frame(path: Path) -> bool:
    return is_picture_name(path.name) and path.suffix.lower() not in DOCUMENT_SUFFIXES


def _picture(path: Path) -> Pixels:
    """Return an upright picture in colours, on white paper."""
    import cv2

    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES)
    except OSError as error:
        raise InputError(f"cannot be opened ({error.strerror})") from None
    check_size(data, max_pixels=MAX_PIXELS)
    # OpenCV drops the transparency, or keeps it and leaves the picture as it lies
    with suppress(InputError):
        clear = decode_clear(data, max_pixels=MAX_PIXELS)
        if clear is not None:
            return np.asarray(cv2.cvtColor(clear, cv2.COLOR_RGB2BGR), np.uint8)
    with suppress(cv2.error):
        picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        if picture is not None:
            return np.asarray(picture, np.uint8)
    raise InputError("is not a picture that neocog can decode")


def in_colours(frame: NDArray[Any]) -> Pixels:
    """Return a frame (H, W), (H, W, 1), (H, W, 3) or (H, W, 4) as (H, W, 3), on white paper.

    Raises
    ------
    InputError
        If it has another shape or type, or no pixels.
    """
    import cv2

    frame = np.asarray(frame)
    planes = frame.shape[2] if frame.ndim == 3 else 1
    shaped = frame.ndim in (2, 3) and planes in (1, 3, 4) and frame.size
    if not shaped or frame.dtype != np.uint8:
        raise InputError(
            f"got a frame of {frame.dtype} {frame.shape}, expected uint8 (H, W) or (H, W, 3)"
        )
    if planes == 1:
        return np.asarray(cv2.cvtColor(frame, cv2.COLOR_GRAY2BGR), np.uint8)
    if planes == 4:
        alpha = frame[:, :, 3:].astype(np.float32) / 255
        frame = (frame[:, :, :3] * alpha + 255 * (1 - alpha)).round().astype(np.uint8)
    return np.ascontiguousarray(frame)


def hush() -> None:
    """Keep the remarks of OpenCV and FFmpeg off stderr: a line of ours says what matters."""
    import cv2

    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")
    places = (getattr(cv2.utils, "logging", None), cv2)  # the second one before OpenCV 4.12
    for place in places:
        if tell := getattr(place, "setLogLevel", None):
            tell(0)
            return
