"""A run from its first frame to its last: views go to the window, to files and to stdout."""

import json
import mmap
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain, compress
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from neocog.errors import InputError, UsageError
from neocog.files import AppendFile
from neocog.live.announce import Announcement
from neocog.live.capture import Closed
from neocog.live.draw import draw
from neocog.live.frame_reader import Roi
from neocog.live.pipeline import Pipeline, Settings, View
from neocog.live.recorder import Recorder
from neocog.live.sources import Source
from neocog.live.tracks import Row
from neocog.reading.pictures import identity
from neocog.reading.records import REJECTED, PageReading
from neocog.text import tell, to_json

if TYPE_CHECKING:
    from neocog.live.window import Window
    from neocog.reading.reader import Reader

_WAIT = 0.02  # seconds that the loop waits for a view before it looks at the keys again
_WAIT_HEADLESS = 0.25
_MOST_RECORD_FPS = 60.0
_RECORD_FPS = 30.0  # of a recording where the source does not say
_BEGINS = b'{"schema":'  # a record of ours


class LineFile(AppendFile):
    """JSON lines appended to a file, each all at once or not at all; a torn last record is taken off.

    UsageError if it cannot be written to, or holds something else than records.
    """

    def __init__(self, path: str | Path) -> None:
        try:
            super().__init__(path)
            with ExitStack() as opened:
                opened.callback(self.close)
                self._mend()
                opened.pop_all()
        except OSError as error:
            raise UsageError(
                f"{path}: cannot be written ({error.strerror}); choose another --jsonl"
            ) from None

    def put(self, record: dict[str, Any]) -> None:
        """Append a record; InputError if there is no room for it."""
        try:
            self.write((_line(record) + "\n").encode())
        except OSError as error:
            raise InputError(f"{self.path}: the reading could not be written ({error.strerror})") from None

    def _mend(self) -> None:
        """Take a torn record off the end; a whole one that lacks its newline gets it."""
        if not self.regular or not os.fstat(self.handle).st_size:
            return
        with mmap.mmap(self.handle, 0, access=mmap.ACCESS_READ) as held:
            start = held.rfind(b"\n") + 1
            first, last = held[:1], held[start:]
        if first != b"{" or last[: len(_BEGINS)] != _BEGINS[: len(last)]:
            raise UsageError(f"{self.path}: is not a file of records; choose another file")
        try:
            json.loads(last)
            self.write(b"\n")
        except ValueError:
            os.ftruncate(self.handle, start)


class Session:
    """Reads a source until it ends; ``window`` makes the window for a session.

    Records are appended to ``jsonl``, what is shown goes to ``video`` (overwritten only with ``force``); with
    ``events`` JSON events are printed instead of numbers. ``failed`` tells whether an output could not be
    written.
    """

    def __init__(
        self,
        source: Source,
        reader: "Reader",
        settings: Settings,
        window: "Callable[[Session], Window] | None" = None,
        *,
        roi: Roi | None = None,
        jsonl: str | None = None,
        video: str | None = None,
        events: bool = False,
        force: bool = False,
    ) -> None:
        self.source, self.reader, self.settings = source, reader, settings
        self.recorder: Recorder | None = None  # while a recording is made
        self.failed = False
        self._jsonl, self._video, self._events, self._force = jsonl, video, events, force
        self._said: SimpleQueue[tuple[str, str]] = SimpleQueue()  # of the source
        self.pipeline = Pipeline(source, reader, settings, tell=lambda *said: self._said.put(said))
        self.pipeline.roi = self._roi = roi
        self._size = (0, 0)  # of the frames for which the region was judged
        self._lines: LineFile | None = None
        self._window = window(self) if window else None

    def run(self) -> None:
        """Read until the end or the window is closed; NeocogError if a source or output cannot be opened."""
        taken: dict[object, str] = {identity(f): "is what is read" for f in self.source.files}
        for option, path in (("--jsonl", self._jsonl), ("--record", self._video)):
            if not path:
                continue
            file = identity(path) or os.path.realpath(path)  # it may not be there yet
            if why := taken.get(file):
                raise UsageError(f"{path}: {why}; choose another {option}")
            taken[file] = f"is the file of {option} already"
        video = self._video
        if video and not self._force and os.path.isfile(video) and os.path.getsize(video):
            raise UsageError(f"{video}: exists; add --force to overwrite it")
        with ExitStack() as stack:
            if self._jsonl:
                self._lines = stack.enter_context(LineFile(self._jsonl))
            if self._video:
                self.recorder = Recorder(self._video)
            stack.callback(self.end_recording)
            if self._window is not None:
                stack.callback(self._window.close)
            try:
                with self.pipeline:
                    self._loop()
            finally:
                self._tell_notices()
            run = self.pipeline.measures()
            fps, age = round(run.fps, 2), round(run.age_ms, 1)
            self._event({"event": "end", "frames": run.frames, "dropped": run.dropped,
                         "fps": fps, "age_ms": age})  # fmt: skip

    def record_of(self, view: View) -> dict[str, Any]:
        """Return the record of one frame as it was read alone, and the numbers agreed on."""
        rows = view.seen.rows
        text = "\n".join("".join(digit.char for digit in row) for row in rows)
        digits, left_out = tuple(chain(*rows)), view.seen.left_out
        record = self._record_of(view.frame.index, view.frame.t, view.age_ms, text, digits, left_out=left_out)
        return record | {"agreed": [track.text for track in view.tracks if track.text]}

    def _record_of(
        self, frame: int, t: float, age_ms: float, text: str, digits: Row, **more: Any
    ) -> dict[str, Any]:
        model, finder = self.reader.model.id, self.reader.finder.model.id
        read = [digit.char == REJECTED or digit.char.isdigit() for digit in digits]
        signs = tuple(sign for sign, digit in zip(digits, read, strict=True) if not digit)
        page = PageReading(
            self.source.name, text=text, digits=tuple(compress(digits, read)), model=model, finder=finder,
            signs=signs, reader=self.reader.kind, **more,
        )  # fmt: skip
        return page.to_dict() | {"frame": frame, "t": round(t, 3), "age_ms": round(age_ms, 1)}

    def end_recording(self) -> None:
        """Finish the recording, if there is one."""
        if self.recorder is not None:
            self.recorder.close()
            self.recorder = None

    def _loop(self) -> None:
        wait = _WAIT if self._window else _WAIT_HEADLESS
        while True:
            try:
                view = self.pipeline.next(wait)
            except Closed:
                return
            self._tell_notices()
            if view is not None:
                self._take(view)
            if self._window is not None and not self._window.keys():
                return

    def _take(self, view: View) -> None:
        """Pass a view on to all that want it."""
        if self._roi is not None and view.frame.size != self._size:
            self._size = view.frame.size
            if refused := self._roi.within(self._size)[1]:
                tell(f"--roi: {refused}")
        for news in view.news:
            self._announce(news)
        for text in view.gone:
            self._event({"event": "gone", "text": text})
        start = time.perf_counter()
        if recorder := self.recorder:
            if recorder.written == 0:  # before its first frame a source may not know its rate
                fps = self.settings.replay_fps or self.source.fps or _RECORD_FPS
                recorder.fps = min(fps, _MOST_RECORD_FPS)
            with self._complaining(self.end_recording):
                recorder.write(draw(view, self.settings), view.frame.t)
        if self._window is not None:
            self._window.show(view)
        if self.recorder or self._window:
            self.pipeline.note("draw", 1e3 * (time.perf_counter() - start))

    def _announce(self, news: Announcement) -> None:
        record = self._record_of(news.frame, news.t, news.age_ms, news.text, news.track.chars)
        record["confidence"] = round(news.confidence, 4)
        if self._lines is not None:
            with self._complaining():
                self._lines.put(record)
        if self._events:
            self._event({"event": "reading", **record})
        else:
            print(news.text, flush=True)

    @contextmanager
    def _complaining(self, clean_up: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Say on stderr what went wrong while the reading goes on; the exit code will tell."""
        try:
            yield
        except InputError as error:
            clean_up()
            self.failed = True
            tell(str(error))

    def _tell_notices(self) -> None:
        while not self._said.empty():
            state, text = self._said.get()
            back = "back, " if state == "back" else ""
            tell(f"{text}; trying again" if state == "lost" else f"{self.source.name}: {back}{text}")
            self._event({"event": "source", "state": state, "text": text})

    def _event(self, event: dict[str, Any]) -> None:
        if self._events:
            print(_line(event), flush=True)


def _line(record: dict[str, Any]) -> str:
    """A record as one line of JSON, without its end."""
    return to_json(record, ensure_ascii=True, separators=(",", ":"))
