"""One frame read as a still picture is; answers for digits that stand still are kept."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from neocog.errors import UsageError
from neocog.live.capture import Frame
from neocog.live.tracks import Row, Texts
from neocog.network.decision import Answers
from neocog.reading.numbers import read_lines
from neocog.reading.records import REJECTED, Box, DigitReading
from neocog.vision.finder import FinderSettings, Finding

if TYPE_CHECKING:
    from neocog.reading.reader import Reader

LONG_SIDE = 640
"""A frame, or the region of it that is read, is searched at this long side, in pixels."""

ALIKE = 0.95
"""Cosine between two digits (28 x 28) from which they are one; of such pairs from two frames
running the network takes 99 % for the same digit (``python -m experiments.live.measure alike``)."""

_LEAST = 24  # pixels of a region's side
#: Frames for which an answer holds, in turn: fewer than `neocog.live.announce.Rules.hold`.
_LIVES = (3, 4)
_SLOW = 28.0  # milliseconds that finding may take: a camera gives a frame every 33
_LEGIBLE = 28  # pixels of the searched picture; with a lower digit, all of each frame is read
_ENTIRE_EVERY = 4  # frames
_ENTIRE = FinderSettings(long_side=LONG_SIDE, most=64, fine=math.inf)
_USUAL = replace(_ENTIRE, fine=32.0)  # coarse to fine, less carefully than a picture: other frames vote
_HURRIED = replace(_USUAL, clear=0.0)


@dataclass(frozen=True, slots=True)
class Roi:
    """A region of interest in pixels; or, if no number is above 1, in shares of the frame."""

    x: float
    y: float
    width: float
    height: float

    @staticmethod
    def parse(text: str) -> "Roi":
        """Read ``X,Y,WIDTH,HEIGHT``, or raise UsageError."""
        try:
            x, y, width, height = (float(part) for part in text.split(","))
        except ValueError:
            x = y = width = height = -1.0
        finite = all(map(math.isfinite, (x, y, width, height)))
        if not finite or min(x, y) < 0 or min(width, height) <= 0:
            raise UsageError(
                f"roi '{text}': expected X,Y,WIDTH,HEIGHT, in pixels or as fractions of the frame"
            )
        return Roi(x, y, width, height)

    def within(self, size: tuple[int, int]) -> tuple[Box, str | None]:
        """Return what is read of a frame (width, height); and why, where that is another region."""
        across, down = size if max(self.x, self.y, self.width, self.height) <= 1.0 else (1, 1)
        left, right = round(self.x * across), round((self.x + self.width) * across)
        top, bottom = round(self.y * down), round((self.y + self.height) * down)
        x, y = max(left, 0), max(top, 0)
        box = x, y, min(right, size[0]) - x, min(bottom, size[1]) - y
        frame = f"the frame is {size[0]}x{size[1]}"
        if min(box[2:]) < _LEAST:
            why = f"less than {_LEAST} pixels of it in the frame ({frame}): the whole frame is read"
            return (0, 0, *size), why
        if box != (left, top, right - left, bottom - top):
            return box, f"reaches beyond the frame ({frame}): {','.join(map(str, box))} is read"
        return box, None


class RecentAnswers:
    """Answers for the digits of the last frames, which may have changed a little."""

    def __init__(self, recognise: Callable[[NDArray[np.uint8]], Answers]) -> None:
        self._recognise, self._asked = recognise, 0
        self.forget()

    def forget(self) -> None:
        """Keep no answer."""
        self._answers = Answers.none()
        self._digits = np.zeros((0, 28 * 28), np.float32)  # of length 1
        self._left = np.zeros(0, np.int64)  # frames for which each answer still holds

    def next_frame(self) -> None:
        """Begin with a new frame: answers that are too old are forgotten."""
        kept = self._left > 1
        self._digits, self._answers = self._digits[kept], self._answers[kept]
        self._left = self._left[kept] - 1

    def recognise(self, digits: NDArray[np.uint8], *, batch: int | None = None) -> Answers:
        """Answer for digits (N, 28, 28); only those that are new are computed."""
        flat = digits.reshape(len(digits), -1).astype(np.float32)
        flat /= np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1.0)
        rows = np.full(len(digits), -1)
        if len(self._digits):
            alike = flat @ self._digits.T
            rows = np.where(alike.max(axis=1) >= ALIKE, alike.argmax(axis=1), -1)
        new = np.flatnonzero(rows < 0)
        if len(new):
            rows[new] = len(self._answers) + np.arange(len(new))
            self._answers = Answers.join([self._answers, self._recognise(digits[new])])
            self._digits = np.concatenate([self._digits, flat[new]])
            lives = np.take(_LIVES, self._asked + np.arange(len(new)), mode="wrap")
            self._left = np.concatenate([self._left, lives])
            self._asked += len(new)
        return self._answers[rows]


@dataclass(frozen=True, slots=True)
class FrameReading:
    """What one frame alone reads."""

    frame: Frame
    bounds: Box  # left, top, width and height of the region that is read
    grey: NDArray[np.uint8]  # its pixels (H, W)
    found: Finding  # what the finder's network says of it, boxes in pixels of the region
    entire: bool  # whether all of it was searched for the smallest digits
    find_ms: float
    ms: float = 0.0  # that choosing and recognising took
    left_out: int = 0  # digits that were found and that no line has
    rows: tuple[Row, ...] = ()  # the lines from top to bottom, boxes in pixels of the frame
    texts: tuple[Texts, ...] = ()  # and what each may be


class FrameReader:
    """Reads frame after frame; `find` and `recognise` may run in two threads.

    No frame is turned or made to fit a pattern. With ``hurry`` (a camera's), if finding takes over 28 ms on a
    CPU, frames without a clear digit are halved, but for every fourth and those with small digits.
    """

    def __init__(self, reader: "Reader", *, hurry: bool = False) -> None:
        self._reader, self._hurry, self._count = reader, hurry, 0
        self._recent = RecentAnswers(lambda digits: reader.engine.recognise(digits, batch=reader.batch))
        if reader.line_model is None:
            self._reader = reader.changed(engine=self._recent)
        self.forget = self._recent.forget  # where another stream begins
        self._ms = 0.0  # that finding takes, running mean
        self._small = False  # whether the last entire frame had digits that are hardly legible

    def warm(self) -> None:
        """Load all that is needed, so that no frame waits for it."""
        pixels = np.full((480, 640, 3), 200, np.uint8)
        pixels[200:260, 300:308] = 40
        self.recognise(self.find(Frame(0, pixels, 0.0, 0.0)))

    def find(self, frame: Frame, roi: Roi | None = None) -> FrameReading:
        """Ask the finder's network for the digits of a frame, or of a region of it."""
        import cv2

        start = time.perf_counter()
        bounds = roi.within(frame.size)[0] if roi else (0, 0, *frame.size)
        left, top, width, height = bounds
        region = frame.pixels[top : top + height, left : left + width]
        grey = np.asarray(cv2.cvtColor(region, cv2.COLOR_BGR2GRAY), np.uint8)
        entire = self._small or self._count % _ENTIRE_EVERY == 0
        self._count += 1
        others = _HURRIED if self._hurry and self._ms > _SLOW else _USUAL
        found = self._reader.look(grey, settings=_ENTIRE if entire else others)
        ms = 1e3 * (time.perf_counter() - start)
        if others is _USUAL or entire:
            self._ms += (ms - self._ms) / 8
        return FrameReading(frame, bounds, grey, found, entire, ms)

    def recognise(self, seen: FrameReading) -> FrameReading:
        """Choose the digits of a frame among what was found, and recognise them."""
        start = time.perf_counter()
        left, top, *sides = seen.bounds
        self._recent.next_frame()
        lines, left_out = read_lines(self._reader, seen.grey, seen.found, apart=True)
        rows = tuple(tuple(_moved(char, left, top) for char in line.chars) for line in lines)
        texts = tuple(Texts(line.logp, line.texts, given=line.margin is not None) for line in lines)
        if seen.entire:
            heights = [char.box[3] for line in lines for char in line.chars if char.char != REJECTED]
            self._small = min(heights, default=math.inf) * LONG_SIDE < _LEGIBLE * max(sides)
        ms = 1e3 * (time.perf_counter() - start)
        return replace(seen, left_out=left_out, rows=rows, texts=texts, ms=ms)


def _moved(digit: DigitReading, x: int, y: int) -> DigitReading:
    return replace(digit, box=(digit.box[0] + x, digit.box[1] + y, *digit.box[2:]))
