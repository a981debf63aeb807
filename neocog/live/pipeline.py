"""Capture, find, recognise and vote, at the same time for different frames.

Three threads, one of which recognises and votes (OpenCV releases the GIL); with the finder on a GPU, which
takes a millisecond, one finds as well. From a camera the newest frame is read, and those that gave way to it
count as dropped. From a file every frame is read. Whoever draws delays no stage.
"""

import gc
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median_high
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.errors import InputError, NeocogError
from neocog.live.announce import Announcement, Announcer, Rules
from neocog.live.capture import Ahead, Capture, Frame
from neocog.live.frame_reader import FrameReader, FrameReading, Roi
from neocog.live.tracks import Agreement, Track, Tracker
from neocog.live.video import Source
from neocog.network.parallel import cores, one_blas_thread
from neocog.network.u0 import u0_from_digits
from neocog.text import reason_of
from neocog.vision.crops import digit_of_box
from neocog.vision.strips import strip_of

if TYPE_CHECKING:
    from neocog.reading.policy import Pattern
    from neocog.reading.reader import Reader

Maps = dict[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Settings:
    """How a source is read."""

    agreement: Agreement = field(default_factory=Agreement)
    rules: Rules = field(default_factory=Rules)
    pattern: "Pattern | None" = None  # the form of numbers that may be announced; None for any
    length: int | None = None  # their digits
    replay_fps: float | None = None  # a file plays a camera of that rate: the newest frame only
    pace: bool = False  # a file is shown at its own rate, every frame of it
    rotate: int = 0  # degrees clockwise, 0, 90, 180 or 270, by which frames are turned before all else
    mirror: bool = False  # once left and right have changed places, if this is set
    every_view: bool = True  # else whoever takes the views gets the newest, and the news of all

    def allows(self, text: str) -> bool:
        """Whether a text may be announced."""
        fits = self.pattern is None or self.pattern.fits(text)
        return bool(text) and fits and self.length in (None, sum(map(str.isdigit, text)))


@dataclass(frozen=True, slots=True)
class Measures:
    """Figures of a run at one frame."""

    frames: int = 0  # that were read
    dropped: int = 0  # that gave way to newer ones
    fps: float = 0.0  # lately
    age_ms: float = 0.0  # from a frame's arrival to its reading, median of the last ones
    ms: dict[str, float] = field(default_factory=dict)  # of each stage, running means


@dataclass(frozen=True, slots=True)
class View:
    """A frame and what was known when it was read; ``news``, ``gone``: also of views left out just before."""

    seen: FrameReading  # the frame and what was read in it alone
    tracks: tuple[Track, ...]  # the lines that are followed, with what the last frames agree on
    said: tuple[str | None, ...]  # for each of them, the number that was announced
    news: tuple[Announcement, ...]
    gone: tuple[str, ...]  # announced numbers that are out of view
    age_ms: float  # from the frame's arrival to its reading
    measures: Measures
    maps: Maps | None = None  # responses of the layers to a digit of the first line

    @property
    def frame(self) -> Frame:
        return self.seen.frame


class Pipeline:
    """Reads a source; ``tell`` receives what happens to it, see `Capture`.

    ``roi`` (the region that is read, None for all) and ``layers`` (whether views carry responses to a digit)
    may be changed while it runs. Until it ends, BLAS has one thread, OpenCV a few, Python's have short turns.
    """

    def __init__(
        self, source: Source, reader: "Reader", settings: Settings | None = None, *,
        tell: Callable[[str, str], None] = lambda state, text: None,
    ) -> None:  # fmt: skip
        self.settings = settings = settings or Settings()
        self.source, self.reader = source, reader
        self.roi: Roi | None = None
        self.layers = False
        self.measures = Measures()
        self._ms: dict[str, float] = {}
        self.capture = Capture(
            source, pace=settings.replay_fps, own_pace=settings.pace, rotate=settings.rotate,
            mirror=settings.mirror, tell=tell, note=partial(self.note, "capture"),
        )  # fmt: skip
        newest, self._slow = source.live or settings.replay_fps is not None, reader.finder.device == "cpu"
        self._frame_reader = FrameReader(reader, hurry=newest)
        self._frames = Ahead(self.capture.frames(), "capture", (lambda old, new: new) if newest else None)
        self._stages: list[Ahead[Any]] = [self._frames]
        frames, find = iter(self._frames.next, None), self._frame_reader.find
        found: Iterator[FrameReading] = (find(frame, self.roi) for frame in frames)
        if self._slow:  # on a GPU finding takes less than threads cost each other
            self._stages.append(ahead := Ahead(found, "find"))
            found = iter(ahead.next, None)
        self._views = Ahead(self._read(found), "read", None if settings.every_view else _both)
        self._stages.append(self._views)
        self._limits = ExitStack()

    def __enter__(self) -> "Pipeline":
        self._limits.enter_context(one_blas_thread())
        self._limits.callback(sys.setswitchinterval, sys.getswitchinterval())
        self._limits.callback(cv2.setNumThreads, cv2.getNumThreads())
        try:
            sys.setswitchinterval(0.0005)  # at Python's 0.005 s five waits for the GIL take a frame 25 ms
            # the finder on a CPU is hardly faster with more threads; beside a GPU no call is large enough
            cv2.setNumThreads(min(4, cores()) if self._slow else 1)
            pixels = np.full((480, 640, 3), 200, np.uint8)  # so that no frame waits for what is loaded
            pixels[200:260, 300:308] = 40
            self._frame_reader.recognise(self._frame_reader.find(Frame(0, pixels, 0.0, 0.0)))
            gc.collect()
            gc.freeze()  # what is loaded by now stays: the collector need not look at it
            for stage in self._stages:
                stage.thread.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __iter__(self) -> Iterator[View]:
        return iter(self.next, None)

    def next(self, timeout: float | None = None) -> View | None:
        """Return the next view, None after ``timeout`` s; StopIteration at the end, or NeocogError."""
        try:
            return self._views.next(timeout)
        except (NeocogError, StopIteration):
            raise
        except Exception as error:
            told = f"{type(error).__name__}: {reason_of(error)}; please report this"
            raise InputError(told) from error

    def stop(self, *_: object) -> None:
        """End all stages; frames under way are forgotten."""
        self.capture.stop()
        for stage in self._stages:
            stage.stop()
        for stage in self._stages:
            if stage.thread.is_alive():
                stage.thread.join(timeout=2.0)
        self.measures = replace(self.measures, dropped=self._frames.dropped)
        self._limits.close()
        gc.unfreeze()

    __exit__ = stop

    def note(self, stage: str, ms: float) -> None:
        before = self._ms.get(stage, ms)
        self._ms[stage] = before + 0.1 * (ms - before)  # a running mean

    def _read(self, found: Iterator[FrameReading]) -> Iterator[View]:
        tracker, announcer = Tracker(self.settings.agreement), Announcer(self.settings.rules)
        lately: deque[tuple[float, float]] = deque(maxlen=64)  # ends and ages of frames
        epoch, maps, looked = 0, None, 0.0
        for seen in map(self._frame_reader.recognise, found):
            frame, start = seen.frame, time.perf_counter()
            if frame.epoch != epoch:  # what was followed in the stream that broke off says nothing
                tracker.tracks, epoch = (), frame.epoch
                announcer.forget(frame.t)
            tracks = tracker.update(seen.votes)
            news = announcer.update(tracks, frame.t, seen.bounds, allows=self.settings.allows)
            end = time.perf_counter()
            age = 1e3 * (end - frame.arrived)
            news = tuple(replace(one, frame=frame.index, age_ms=age) for one in news)
            self.note("find", seen.find_ms)
            self.note("recognise", seen.ms)
            self.note("vote", 1e3 * (end - start))
            lately.append((end, age))
            spent, middle = end - lately[0][0], median_high(age for _, age in lately)
            fps = (len(lately) - 1) / spent if spent else 0.0
            count, dropped = self.measures.frames + 1, self._frames.dropped
            self.measures = Measures(count, dropped, fps, middle, dict(self._ms))
            if not self.layers:
                maps = None
            elif end - looked > 0.1:  # seconds: to look takes time
                maps, looked = responses(self.reader, seen) or maps, end
            known = [announcer.said.get(track.number) for track in tracks]
            said = tuple(one.text if one else None for one in known)
            yield View(seen, tracks, said, news, announcer.gone, age, self.measures, maps)


def _both(old: View, new: View) -> View:
    return replace(new, news=old.news + new.news, gone=old.gone + new.gone)


def responses(reader: "Reader", seen: FrameReading) -> Maps | None:
    """Return every layer's response to the middle character of a frame's first line, see `draw.layers`."""
    if not seen.votes:
        return None
    chars = seen.votes[0].chars
    x, y, w, h = np.subtract(chars[len(chars) // 2].box, (*seen.bounds[:2], 0, 0)).tolist()
    if reader.line_model is None:
        digit = digit_of_box(seen.grey, np.array([x, y, w, h], np.float32))
        maps = reader.engine.maps(u0_from_digits(digit[None]))
        return {name: response[0] for name, response in maps.items()} | {"UC4": maps["UC4"][0, :, 0, 0]}
    more = h // 8
    part = seen.grey[max(y - more, 0) : y + h + more, max(x - more, 0) : x + w + more]
    maps = dict(reader.engine.maps(strip_of(part)))
    z = maps.pop("Z")  # of each column, the blank being last
    p = np.exp(z - z.max(axis=0))
    return maps | {"UC4": (p / p.sum(axis=0))[:-1].max(axis=1)}
