"""Records views as a video; a full disk ends the recording while it can still be closed."""

import os
import shutil
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.errors import InputError, UsageError

_RESERVE = 32 * 2**20  # bytes that are left free on the disk: the table of a video is written at its end
_CODES = {".mp4": "mp4v", ".m4v": "mp4v", ".mov": "mp4v", ".avi": "MJPG", ".mkv": "mp4v"}
_LONGEST = 10.0  # seconds that a frame stands; a longer gap is left out of the video


class Recorder:
    """Writes frames at an even rate: a frame stands until the next one, ten seconds at most.

    Frames of another size get black borders. UsageError if the file cannot be written or is of no known kind.
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
        """Add a frame (H, W, 3), blue, green, red, at ``t`` seconds; InputError if the disk is full."""
        if shutil.disk_usage(self.path.parent).free < _RESERVE:
            self.close()
            raise InputError(f"{self.path}: the disk is full; the recording so far is valid")
        high, wide = pixels.shape[:2] if self._last is None else self._last.shape[:2]
        if self._video is None:
            code = cv2.VideoWriter.fourcc(*_CODES[self.path.suffix.lower()])
            self._video = cv2.VideoWriter(os.path.abspath(self.path), code, self.fps, (wide, high))
            if not self._video.isOpened():
                raise InputError(f"{self.path}: a video cannot be written there")
            self._first = self._newest = t
        if pixels.shape[:2] != (high, wide):  # the largest that fits, in the middle of a black one
            scale = min(high / pixels.shape[0], wide / pixels.shape[1])
            h, w = (max(1, round(scale * side)) for side in pixels.shape[:2])
            small, pixels = (
                cv2.resize(pixels, (w, h), interpolation=cv2.INTER_AREA),
                np.zeros((high, wide, 3), np.uint8),
            )
            pixels[(high - h) // 2 :, (wide - w) // 2 :][:h, :w] = small
        self._first += max(t - self._newest - _LONGEST, 0.0)
        for left in reversed(range(round((t - self._first) * self.fps) + 1 - self.written)):
            self._video.write(self._last if left and self._last is not None else pixels)
            self.written += 1
        self._newest, self._last = t, pixels

    def close(self) -> None:
        if self._video is not None:
            self._video.release()
            self._video = None
