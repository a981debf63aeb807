"""A run from its first frame to its last: views go to the window, to files and to stdout."""

import json
import mmap
import os
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

from neocog.errors import InputError, UsageError
from neocog.files import AppendFile, check_output
from neocog.live.announce import Announcement
from neocog.live.draw import draw
from neocog.live.frame_reader import Roi
from neocog.live.pipeline import Pipeline, Settings, View
from neocog.live.video import Pixels, Source
from neocog.reading.pictures import identity
from neocog.reading.records import REJECTED
from neocog.reading.results import PageReading
from neocog.text import tell, to_json

if TYPE_CHECKING:
    from neocog.reading.reader import Reader

_BEGINS = b'{"schema":'  # a record of ours
_CODES = {".mp4": "mp4v", ".m4v": "mp4v", ".mov": "mp4v", ".avi": "MJPG", ".mkv": "mp4v"}


class LineFile(AppendFile):
    """JSON lines appended to a file, each all at once or not at all; a torn last record is taken off.

    UsageError if it cannot be written to, or holds something else than records.
    """

    def __init__(self, path: str | Path) -> None:
        try:
            super().__init__(path)
            if not (self.regular and self.size):
                return
            with mmap.mmap(self.handle, 0, access=mmap.ACCESS_READ) as held:
                start = held.rfind(b"\n") + 1
                first, last = held[:1], held[start:]
            if first != b"{" or last[: len(_BEGINS)] != _BEGINS[: len(last)]:
                self.close()
                raise UsageError(f"{path}: is not a file of records; choose another file")
            try:
                json.loads(last)
                self.write(b"\n")  # a whole record lacked it
            except ValueError:
                os.ftruncate(self.handle, start)
        except OSError as error:
            why = f"cannot be written ({error.strerror}); choose another --jsonl"
            raise UsageError(f"{path}: {why}") from None

    def put(self, record: dict[str, Any]) -> None:
        """Append a record; InputError if there is no room for it."""
        try:
            self.write((_line(record) + "\n").encode())
        except OSError as error:
            raise InputError(f"{self.path}: the reading could not be written ({error.strerror})") from None


class Recorder:
    """Writes frames at an even rate: a frame stands until the next one, ten seconds at most.

    Frames of another size get black borders. UsageError if the file cannot be written or is of no known kind.
    """

    def __init__(self, path: str | Path, *, fps: float = 30.0) -> None:
        self.path, self.fps, self.written = Path(path), fps, 0
        self._video: cv2.VideoWriter | None = None
        self._first = self._newest = 0.0  # times of the first and of the last frame
        self._last: Pixels | None = None
        if self.path.suffix.lower() not in _CODES:
            raise UsageError(f"{path}: expected a name that ends in {' or '.join(_CODES)}")
        check_output(path, "--record")

    def write(self, pixels: Pixels, t: float) -> None:
        """Add a frame (H, W, 3), blue, green, red, at ``t`` seconds; InputError if the disk is full."""
        if shutil.disk_usage(self.path.parent).free < 2**25:  # a video's table is written at its end
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
                np.zeros_like(self._last),
            )
            pixels[(high - h) // 2 :, (wide - w) // 2 :][:h, :w] = small
        self._first += max(t - self._newest - 10.0, 0.0)  # a longer gap is left out
        for left in reversed(range(round((t - self._first) * self.fps) + 1 - self.written)):
            self._video.write(self._last if left and self._last is not None else pixels)
            self.written += 1
        self._newest, self._last = t, pixels

    def close(self) -> None:
        if self._video is not None:
            self._video.release()
            self._video = None


class Session:
    """Reads a source until it ends; ``window`` makes the window for a session.

    Records are appended to ``jsonl``, what is shown goes to ``video`` (overwritten only with ``force``); with
    ``events`` JSON events are printed instead of numbers. ``failed`` tells whether an output could not be
    written.
    """

    def __init__(
        self, source: Source, reader: "Reader", settings: Settings,
        window: "Callable[[Session], Any] | None" = None, *, roi: Roi | None = None,
        jsonl: str | None = None, video: str | None = None, events: bool = False, force: bool = False,
    ) -> None:  # fmt: skip
        self.source, self.reader, self.settings = source, reader, settings
        self.recorder: Recorder | None = None  # while a recording is made
        self.failed = False
        self._jsonl, self._video, self._events, self._force = jsonl, video, events, force
        self._said: SimpleQueue[tuple[str, str]] = SimpleQueue()  # of the source
        self.pipeline = Pipeline(source, reader, settings, tell=lambda *said: self._said.put(said))
        self.pipeline.roi = self._roi = roi
        self._size = (0, 0)  # of the frames for which the region was judged
        self._lines: LineFile | None = None
        self.window = window(self) if window else None

    def run(self) -> None:
        """Read until the end or the window is closed; NeocogError if a source or output cannot be opened."""
        taken: dict[object, str] = {identity(f): "is what is read" for f in self.source.files}
        for option, path in (("--jsonl", self._jsonl), ("--record", self._video)):
            if path:
                file = identity(path) or os.path.realpath(path)  # it may not be there yet
                if why := taken.get(file):
                    raise UsageError(f"{path}: {why}; choose another {option}")
                taken[file] = f"is the file of {option} already"
        video, window = self._video, self.window
        if video and not self._force and os.path.isfile(video) and os.path.getsize(video):
            raise UsageError(f"{video}: exists; add --force to overwrite it")
        with ExitStack() as stack:
            if self._jsonl:
                self._lines = stack.enter_context(LineFile(self._jsonl))
            self.recorder = Recorder(video) if video else None
            stack.callback(self.end_recording)
            if window is not None:
                stack.callback(window.close)
            try:
                with self.pipeline:
                    while True:
                        try:
                            view = self.pipeline.next(0.02 if window else 0.25)  # seconds until the next key
                        except StopIteration:
                            break
                        self._tell_notices()
                        if view is not None:
                            self._take(view)
                        if window is not None and not window.keys():
                            break
            finally:
                self._tell_notices()
            run = self.pipeline.measures
            self._event("end", frames=run.frames, dropped=run.dropped, fps=round(run.fps, 2),
                        age_ms=round(run.age_ms, 1))  # fmt: skip

    def record_of(self, view: View, news: Announcement | None = None) -> dict[str, Any]:
        """Return the record of a number, or of a frame as it was read alone, and the numbers agreed on."""
        rows, left_out, at = view.seen.rows, view.seen.left_out, (view.frame.index, view.frame.t, view.age_ms)
        if news is None:
            text = "\n".join("".join(char.char for char in row) for row in rows)
            more: dict[str, Any] = {"agreed": [track.text for track in view.tracks if track.text]}
        else:
            rows, left_out, at = (news.track.chars,), 0, (news.frame, news.t, news.age_ms)
            text, more = news.text, {"confidence": round(news.confidence, 4)}
        chars = tuple(chain(*rows))
        digits = tuple(one for one in chars if one.char == REJECTED or one.char.isdigit())
        page = PageReading(
            self.source.name, text=text, model=self.reader.model.id, finder=self.reader.finder.model.id,
            digits=digits, signs=tuple(one for one in chars if one not in digits), left_out=left_out,
            reader=self.reader.kind,
        )  # fmt: skip
        index, t, age_ms = at
        return page.to_dict() | {"frame": index, "t": round(t, 3), "age_ms": round(age_ms, 1)} | more

    def end_recording(self) -> None:
        """Finish the recording, if there is one."""
        if self.recorder is not None:
            self.recorder.close()
            self.recorder = None

    def _take(self, view: View) -> None:
        """Pass a view on to all that want it."""
        if self._roi is not None and view.frame.size != self._size:
            self._size = view.frame.size
            if refused := self._roi.within(self._size)[1]:
                tell(f"--roi: {refused}")
        for news in view.news:
            record = self.record_of(view, news)
            if self._lines is not None:
                self._try(self._lines.put, record)
            if self._events:
                self._event("reading", **record)
            else:
                print(news.text, flush=True)
        for text in view.gone:
            self._event("gone", text=text)
        start = time.perf_counter()
        if recorder := self.recorder:
            if recorder.written == 0:  # before its first frame a source may not know its rate
                recorder.fps = min(self.settings.replay_fps or self.source.fps or recorder.fps, 60.0)
            if not self._try(recorder.write, draw(view, self.settings), view.frame.t):
                self.end_recording()
        if self.window is not None:
            self.window.show(view)
        if recorder or self.window:
            self.pipeline.note("draw", 1e3 * (time.perf_counter() - start))

    def _try(self, write: Callable[..., None], *what: Any) -> bool:
        """Write something; if that fails it is said, the reading goes on, and the exit code will tell."""
        try:
            write(*what)
        except InputError as error:
            self.failed = True
            tell(str(error))
            return False
        return True

    def _tell_notices(self) -> None:
        while not self._said.empty():
            state, text = self._said.get()
            back = "back, " if state == "back" else ""
            tell(f"{text}; trying again" if state == "lost" else f"{self.source.name}: {back}{text}")
            self._event("source", state=state, text=text)

    def _event(self, event: str, **facts: Any) -> None:
        if self._events:
            print(_line({"event": event, **facts}), flush=True)


def _line(record: dict[str, Any]) -> str:
    """A record as one line of JSON, without its end."""
    return to_json(record, ensure_ascii=True, separators=(",", ":"))
