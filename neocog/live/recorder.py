"""Records views as a video; a full disk ends the recording while it can still be closed."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.errors import InputError, UsageError
from neocog.live.sources import hush

RESERVE = 32 * 2**20
"""Bytes that are left free on the disk: the table of a video is written at its end."""

_CODES = {".mp4": "mp4v", ".m4v": "mp4v", ".mov": "mp4v", ".avi": "MJPG", ".mkv": "mp4v"}
_LOOK_EVERY = 15  # frames between two looks at the disk
_LONGEST = 10.0  # seconds that a frame stands; a longer gap is left out of the video


class Recorder:
    """Writes frames at an even rate: a frame stands until the next one, ten seconds at most.

    Parameters
    ----------
    path : str or Path
        ``.mp4``, ``.mov``, ``.mkv`` or ``.avi``. Frames of another size go to a file with a
        number behind its name, the next that no file has.
    fps : float
        Frames a second of the video.

    Raises
    ------
    UsageError
        If the file cannot be written, or is of no kind that is known.
    """

    def __init__(self, path: str | Path, *, fps: float = 30.0) -> None:
        self.path, self.fps, self.written = Path(path), fps, 0
        self._size = (0, 0)
        self._video: Any = None
        self._first = self._newest = 0.0  # times of the first and of the last frame
        self._last: NDArray[np.uint8] | None = None
        self._parts = 0
        suffix = self.path.suffix.lower()
        if suffix not in _CODES:
            raise UsageError(f"{path}: expected a name that ends in {' or '.join(_CODES)}")
        self._code = _CODES[suffix]
        folder = self.path.parent
        if not folder.is_dir() or not os.access(folder, os.W_OK) or self.path.is_dir():
            raise UsageError(f"{path}: cannot be written; choose another --record")

    def write(self, pixels: NDArray[np.uint8], t: float) -> None:
        """Add a frame (H, W, 3), blue, green, red, of a time in seconds.

        Raises
        ------
        InputError
            If the disk is full; what was recorded can be played.
        """
        height, width = pixels.shape[:2]
        if self._video is None or self._size != (width, height):
            self._begin((width, height), t)
        self._first += max(t - self._newest - _LONGEST, 0.0)
        due = round((t - self._first) * self.fps) + 1 - self.written
        for left in reversed(range(due)):
            if self.written % _LOOK_EVERY == 0:
                self._check_disk()
            self._video.write(self._last if left and self._last is not None else pixels)
            self.written += 1
        self._newest, self._last = t, pixels

    def close(self) -> None:
        """Finish the file."""
        if self._video is not None:
            self._video.release()
            self._video = None

    def _begin(self, size: tuple[int, int], t: float) -> None:
        import cv2

        self.close()
        self._parts += 1
        part = self.path
        while self._parts > 1:
            part = self.path.with_name(f"{self.path.stem}-{self._parts}{self.path.suffix}")
            if not part.exists():
                break
            self._parts += 1
        self._check_disk()
        hush()
        code = cv2.VideoWriter.fourcc(*self._code)
        self._video = cv2.VideoWriter(os.path.abspath(part), code, self.fps, size)
        if not self._video.isOpened():
            self._video = None
            raise InputError(f"{part}: a video cannot be written there")
        self._size, self._first, self._newest, self.written = size, t, t, 0
        self._last = None

    def _check_disk(self) -> None:
        if shutil.disk_usage(self.path.parent or ".").free < RESERVE:
            self.close()
            raise InputError(f"{self.path}: the disk is full; the recording so far is valid")
