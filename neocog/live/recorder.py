"""Records views as a video; a full disk ends the recording while it can still be closed."""

import os
import shutil
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.errors import InputError, UsageError

RESERVE = 32 * 2**20
"""Bytes that are left free on the disk: the table of a video is written at its end."""

_CODES = {".mp4": "mp4v", ".m4v": "mp4v", ".mov": "mp4v", ".avi": "MJPG", ".mkv": "mp4v"}
_LOOK_EVERY = 15  # frames between two looks at the disk
_LONGEST = 10.0  # seconds that a frame stands; a longer gap is left out of the video


class Recorder:
    """Writes frames at an even rate: a frame stands until the next one, ten seconds at most.

    Frames of another size go to a file with a number behind its name, the next that no file has.
    UsageError if the file cannot be written, or is of no kind that is known.
    """

    def __init__(self, path: str | Path, *, fps: float = 30.0) -> None:
        self.path, self.fps, self.written = Path(path), fps, 0
        self._video: cv2.VideoWriter | None = None
        self._first = self._newest = 0.0  # times of the first and of the last frame
        self._last: NDArray[np.uint8] | None = None
        if self.path.suffix.lower() not in _CODES:
            raise UsageError(f"{path}: expected a name that ends in {' or '.join(_CODES)}")
        folder = self.path.parent
        if not folder.is_dir() or not os.access(folder, os.W_OK) or self.path.is_dir():
            raise UsageError(f"{path}: cannot be written; choose another --record")

    def write(self, pixels: NDArray[np.uint8], t: float) -> None:
        """Add a frame (H, W, 3), blue, green, red, of a time in seconds.

        InputError if the disk is full; what was recorded can be played.
        """
        before = self._last
        if before is None or before.shape != pixels.shape:
            self._video = self._begin(self._next_part(), pixels)
            self._first, self._newest, self.written = t, t, 0
        assert self._video is not None
        self._first += max(t - self._newest - _LONGEST, 0.0)
        due = round((t - self._first) * self.fps) + 1 - self.written
        for left in reversed(range(due)):
            if self.written % _LOOK_EVERY == 0:
                self._check_disk()
            self._video.write(before if left and before is not None else pixels)
            self.written += 1
        self._newest, self._last = t, pixels

    def close(self) -> None:
        """Finish the file."""
        if self._video is not None:
            self._video.release()
            self._video = None

    def _next_part(self) -> Path:
        """The file as it was named, then the next that no file has."""
        part, number = self.path, 2
        while self._last is not None and part.exists():
            part = self.path.with_name(f"{self.path.stem}-{number}{self.path.suffix}")
            number += 1
        return part

    def _begin(self, part: Path, pixels: NDArray[np.uint8]) -> cv2.VideoWriter:
        self.close()
        self._check_disk()
        code = cv2.VideoWriter.fourcc(*_CODES[part.suffix.lower()])
        height, width = pixels.shape[:2]
        video = cv2.VideoWriter(os.path.abspath(part), code, self.fps, (width, height))
        if not video.isOpened():
            raise InputError(f"{part}: a video cannot be written there")
        return video

    def _check_disk(self) -> None:
        if shutil.disk_usage(self.path.parent).free < RESERVE:
            self.close()
            raise InputError(f"{self.path}: the disk is full; the recording so far is valid")
