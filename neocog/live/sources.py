"""Where frames come from: a camera, a folder of pictures, Python; videos and streams: `neocog.live.video`."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.errors import InputError, NothingToRead
from neocog.live.video import MAX_PIXELS, Pixels, Source, SourceLost, Stream, VideoFile
from neocog.programs import python
from neocog.reading.addresses import MAX_BYTES
from neocog.reading.pictures import DOCUMENT_SUFFIXES, PICTURE_SUFFIXES
from neocog.vision.decode import decode, kind_of

Frames: TypeAlias = "Iterable[NDArray[Any]]"

_PROBE = 12.0  # seconds; a camera that says nothing for so long does not work
_LINUX = sys.platform.startswith("linux")
_TRY = (
    "import sys; from neocog.live.sources import CameraSource; print(CameraSource(int(sys.argv[1])).open())"
)


def open_source(
    what: "str | Path | int | Frames", *, size: tuple[int, int] | None = None, fps: float | None = None
) -> Source:
    """The source that is meant, not yet opened; NothingToRead if there is none; or UsageError.

    A camera by number or name, a video file, a folder of pictures, one picture, an address (http, https,
    rtsp), or frames (H, W) or (H, W, 3), blue, green, red. ``size`` (width, height) is asked of a camera;
    ``fps`` as well, and is the rate of pictures and frames.
    """
    if isinstance(what, int):
        return CameraSource(what, size=size, fps=fps)
    if not isinstance(what, str | Path):
        return FrameSource(what, fps=fps)
    text, path = str(what), Path(what)
    if "://" in text:
        return Stream(text)
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
        self.fps: float = fps or 25.0
        self._frames = frames
        self._rest: Iterator[NDArray[Any]] = iter(())

    def open(self) -> str:
        self._rest = iter(self._frames)
        what = f"{len(self.files)} pictures, {self.fps:g}" if self.files else f"{self.fps:g} frames"
        return f"{what} a second"

    def read(self) -> Pixels | None:
        frame, self.arrived = next(self._rest, None), time.perf_counter()
        return None if frame is None else in_colours(frame).copy()  # its array may be used for the next too

    def close(self) -> None:
        self._rest = iter(())


class FolderSource(FrameSource):
    """The pictures of a folder in the order of their names, or one picture; NothingToRead if it has none.

    Those that cannot be decoded are left out; if none can be, the first `read` raises InputError.
    """

    def __init__(self, folder: Path, *, fps: float | None = None) -> None:
        super().__init__(self, fps=fps)
        self.name, self.files = str(folder), (folder,)
        if folder.is_dir():
            self.files = tuple(sorted(e for e in folder.iterdir() if _is_frame(e) and e.is_file()))
        if not self.files:
            raise NothingToRead(f"{folder}: this folder holds no pictures")

    def __iter__(self) -> Iterator[Pixels]:
        why, found = f"none of its {len(self.files)} files is a picture that neocog can decode", False
        for path in self.files:
            try:
                with path.open("rb") as stream:
                    if os.fstat(stream.fileno()).st_size > MAX_BYTES:
                        raise InputError(f"has more than {MAX_BYTES:,} bytes; make it smaller")
                    document = (kind := kind_of(stream)) and kind.document  # whatever its name
                    page = None if document else next(decode(stream, max_pixels=MAX_PIXELS), None)
                if page is None:
                    raise InputError("is not a picture that neocog can decode")
            except (InputError, OSError) as error:
                if len(self.files) == 1:
                    why = getattr(error, "strerror", "") or str(error)
                continue
            found = True
            yield page.pixels[:, :, ::-1] if page.pixels.ndim == 3 else page.pixels
        if not found:
            raise InputError(f"{self.name}: {why}")


def _is_frame(path: Path) -> bool:
    return path.name[:1] != "." and path.suffix.lower() in PICTURE_SUFFIXES - DOCUMENT_SUFFIXES


def in_colours(frame: NDArray[Any]) -> Pixels:
    """Return a frame (H, W) or (H, W, 1 | 3 | 4) as (H, W, 3), on white paper; InputError for all others."""
    frame = np.asarray(frame)
    planes = frame.shape[2] if frame.ndim == 3 else 1
    if frame.ndim not in (2, 3) or planes not in (1, 3, 4) or not frame.size or frame.dtype != np.uint8:
        raise InputError(f"got a frame of {frame.dtype} {frame.shape}, expected uint8 (H, W) or (H, W, 3)")
    if planes == 1:
        return np.repeat(frame.reshape(*frame.shape[:2], 1), 3, axis=2)
    if planes == 4:
        alpha = frame[:, :, 3:].astype(np.float32) / 255
        frame = (frame[:, :, :3] * alpha + 255 * (1 - alpha)).round().astype(np.uint8)
    return np.ascontiguousarray(frame)


@dataclass(frozen=True, slots=True)
class Camera:
    """A camera: number, name if known, size, format and rate that it gave (None: does not work)."""

    number: int
    name: str
    grants: str | None = None


def listed(root: Path = Path("/sys/class/video4linux")) -> list[tuple[int, str]]:
    """Numbers and names that may be cameras: those that Linux lists, elsewhere eight numbers."""
    if not _LINUX:
        return [(number, "") for number in range(8)]
    found = []
    for node in root.glob("video[0-9]*"):
        name = ""
        with suppress(OSError):
            name = (node / "name").read_text(errors="replace").strip()
        found.append((int(node.name.removeprefix("video")), name))  # it may be a camera's node for other data
    return sorted(found)


def find_camera(name: str) -> int:
    """Return the number of the camera of a device file, or whose name holds ``name``; else NothingToRead."""
    if match := re.fullmatch(r"/dev/video(\d+)", name):
        return int(match[1])
    for number, called in listed():
        if name.lower() in called.lower():
            return number
    raise NothingToRead(f"{name}: no file, folder or camera of that name; `neocog cameras` lists the cameras")


def probe() -> Iterator[Camera]:
    """Try every camera, each in a process of its own: a driver that hangs hangs only that."""
    for number, name in listed():
        grants = ""
        with suppress(subprocess.SubprocessError):
            grants = subprocess.run(
                python("-c", _TRY, str(number)), capture_output=True, text=True, timeout=_PROBE, check=True
            ).stdout.strip()
        if grants or name:
            yield Camera(number, name, grants or None)


class CameraSource(Source):
    """Frames from a camera, asked for 1280 x 720 30 a second by default; it gives what it can."""

    live = True

    def __init__(self, number: int, *, size: tuple[int, int] | None = None, fps: float | None = None) -> None:
        self.name, self._which = f"camera {number}", number
        self._video: Any = None
        self._size, self._rate = size or (1280, 720), fps or 30.0
        self._waiting = False  # a frame that was grabbed already

    def open(self) -> str:
        """Open it, wait for its first frame, and say what it granted."""
        node = f"/dev/video{self._which}"  # say at once what opening would only fail on
        if _LINUX and not os.path.exists(node):
            raise NothingToRead(f"{self.name}: {node} does not exist; `neocog cameras` lists the cameras")
        if _LINUX and not os.access(node, os.R_OK | os.W_OK):
            raise InputError(f"{self.name}: no permission for {node}; join the group 'video'")
        self._video = video = cv2.VideoCapture(self._which, cv2.CAP_V4L2 if _LINUX else cv2.CAP_ANY)
        sides = cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT
        if video.isOpened():
            video.set(cv2.CAP_PROP_FOURCC, cv2.VideoWriter.fourcc(*"MJPG"))
            for what, value in zip(sides, self._size, strict=True):
                video.set(what, value)
            video.set(cv2.CAP_PROP_FPS, self._rate)
            video.set(cv2.CAP_PROP_BUFFERSIZE, 2)
            self._waiting = any(video.grab() for _ in range(60))  # it may fail at first
        if not self._waiting:
            self.close()
            raise InputError(f"{self.name}: exists but gives no picture; another program may be using it")
        width, height, fps = map(video.get, (*sides, cv2.CAP_PROP_FPS))
        self.fps = fps if 0 < fps < 1000 else None
        letters = (int(video.get(cv2.CAP_PROP_FOURCC)) & 0xFFFFFFFF).to_bytes(4, "little")
        form = letters.decode("ascii", "replace").strip("\0 ")
        rate = f"{self.fps:g} frames a second" if self.fps else "rate unknown"
        return ", ".join(part for part in (f"{width:.0f}x{height:.0f}", form, rate) if part)

    def read(self) -> Pixels:
        if not (self._waiting or self._video.grab()):
            raise SourceLost(f"{self.name}: gives no more pictures")
        self._waiting, self.arrived = False, time.perf_counter()
        done, pixels = self._video.retrieve()
        if not done:
            raise SourceLost(f"{self.name}: a frame could not be decoded")
        return in_colours(pixels)

    def close(self) -> None:
        if self._video is not None:
            self._video.release()
