"""Cameras: which are there, which work, and frames from one of them."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2

from neocog.errors import InputError, NothingToRead
from neocog.live.sources import Pixels, Source, SourceLost, in_colours
from neocog.programs import python

_MOST = 8  # numbers that are tried where the system does not list its cameras
_PROBE = 12.0  # seconds; a camera that says nothing for so long does not work
_FIRST = 60  # frames that a camera may fail to give at first
_LINUX = sys.platform.startswith("linux")
_TRY = (
    "import sys; from neocog.live.cameras import CameraSource; print(CameraSource(int(sys.argv[1])).open())"
)


@dataclass(frozen=True, slots=True)
class Camera:
    """A camera: number, name if known, size, format and rate that it gave (None: does not work)."""

    number: int
    name: str
    grants: str | None = None


def listed(root: Path = Path("/sys/class/video4linux")) -> list[tuple[int, str]]:
    """Numbers and names that may be cameras: those that Linux lists, elsewhere eight numbers.

    A camera often has a second node for data that are no pictures; it counts as one that does not work.
    """
    if not _LINUX:
        return [(number, "") for number in range(_MOST)]
    found = []
    for node in root.glob("video[0-9]*"):
        name = ""
        with suppress(OSError):
            name = (node / "name").read_text(errors="replace").strip()
        found.append((int(node.name.removeprefix("video")), name))
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
        grants = None
        with suppress(subprocess.SubprocessError):
            command = python("-c", _TRY, str(number))
            grants = subprocess.run(
                command, capture_output=True, text=True, timeout=_PROBE, check=True
            ).stdout
        if grants or name:
            yield Camera(number, name, grants and grants.strip())


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
        self._check_node()
        self._video = video = cv2.VideoCapture(self._which, cv2.CAP_V4L2 if _LINUX else cv2.CAP_ANY)
        if video.isOpened():
            for what, value in (
                (cv2.CAP_PROP_FOURCC, cv2.VideoWriter.fourcc(*"MJPG")),
                (cv2.CAP_PROP_FRAME_WIDTH, self._size[0]),
                (cv2.CAP_PROP_FRAME_HEIGHT, self._size[1]),
                (cv2.CAP_PROP_FPS, self._rate),
                (cv2.CAP_PROP_BUFFERSIZE, 2),
            ):
                video.set(what, value)
            self._waiting = any(video.grab() for _ in range(_FIRST))
        if not self._waiting:
            self.close()
            raise InputError(f"{self.name}: exists but gives no picture; another program may be using it")
        sides = cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT
        width, height, fps = map(video.get, (*sides, cv2.CAP_PROP_FPS))
        self.fps = fps if 0 < fps < 1000 else None
        letters = (int(video.get(cv2.CAP_PROP_FOURCC)) & 0xFFFFFFFF).to_bytes(4, "little")
        form = letters.decode("ascii", "replace").strip("\0 ")
        rate = f"{self.fps:g} frames a second" if self.fps else "rate unknown"
        return ", ".join(part for part in (f"{width:.0f}x{height:.0f}", form, rate) if part)

    def _check_node(self) -> None:
        """Say at once what opening would only fail on."""
        node = f"/dev/video{self._which}"
        if _LINUX and not os.path.exists(node):
            raise NothingToRead(f"{self.name}: {node} does not exist; `neocog cameras` lists the cameras")
        if _LINUX and not os.access(node, os.R_OK | os.W_OK):
            raise InputError(f"{self.name}: no permission for {node}; join the group 'video'")

    def grab(self) -> bool:
        if not (self._waiting or self._video.grab()):
            raise SourceLost(f"{self.name}: gives no more pictures")
        self._waiting = False
        return True

    def retrieve(self) -> Pixels:
        done, pixels = self._video.retrieve()
        if not done:
            raise SourceLost(f"{self.name}: a frame could not be decoded")
        return in_colours(pixels)

    def close(self) -> None:
        if self._video is not None:
            self._video.release()
