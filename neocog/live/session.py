"""A run from its first frame to its last: views go to the window, to files and to stdout."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from neocog.errors import InputError, NeocogError
from neocog.live import records
from neocog.live.announce import Announcement
from neocog.live.capture import Notice
from neocog.live.draw import draw
from neocog.live.frames import Closed
from neocog.live.pipeline import Pipeline, Settings, View
from neocog.live.recorder import Recorder
from neocog.live.roi import Roi
from neocog.live.sinks import LineFile, check_outputs, line
from neocog.live.sources import Source
from neocog.messages import tell

if TYPE_CHECKING:
    from neocog.batch.reader import Reader
    from neocog.live.window import Window

_WAIT = 0.02  # seconds that the loop waits for a view before it looks at the keys again
_WAIT_HEADLESS = 0.25
_MOST_RECORD_FPS = 60.0
_RECORD_FPS = 30.0  # of a recording where the source does not say


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where a run's results go: a file of records, a video; JSON events on stdout or numbers."""

    jsonl: str | None = None
    record: str | None = None
    events: bool = False


class Session:
    """Reads a source until it ends; ``window`` makes the window for a session.

    Attributes
    ----------
    recorder : Recorder or None
        While a recording is made.
    failed : bool
        Whether an output could not be written.
    """

    def __init__(
        self,
        source: Source,
        reader: "Reader",
        settings: Settings,
        outputs: Outputs,
        window: "Callable[[Session], Window] | None" = None,
        *,
        roi: Roi | None = None,
    ) -> None:
        self.source, self.reader, self.settings = source, reader, settings
        self.outputs = outputs
        self.recorder: Recorder | None = None
        self.failed = False
        self._notices: SimpleQueue[Notice] = SimpleQueue()
        self.pipeline = Pipeline(source, reader, settings, tell=self._notices.put)
        self.pipeline.roi = self._roi = roi
        self._size = (0, 0)  # of the frames for which the region was judged
        self._lines: LineFile | None = None
        self._window = window(self) if window else None

    def run(self) -> None:
        """Read until the source ends or the window is closed.

        Raises
        ------
        NeocogError
            If the source cannot be opened or breaks off for good, or an output cannot be opened
            or is what is read.
        """
        jsonl, record = self.outputs.jsonl, self.outputs.record
        read = getattr(self.source, "files", ())
        check_outputs(read, {"--jsonl": jsonl, "--record": record})
        with ExitStack() as stack:
            if jsonl:
                self._lines = stack.enter_context(LineFile(jsonl))
            if record:
                self.record(record)
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

    @property
    def networks(self) -> dict[str, str]:
        """Names of the networks that read."""
        return {"model": self.reader.model.id, "finder": self.reader.finder.model.id}

    def record(self, path: str) -> None:
        """Begin to record what is shown; UsageError if the file cannot be written."""
        self.recorder = Recorder(path)

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
            if refused := self._roi.refused(self._size):
                tell(f"--roi: {refused}")
        for news in view.news:
            self._announce(news)
        for text in view.gone:
            self._event({"event": "gone", "text": self.settings.shown(text)})
        start = time.perf_counter()
        if self.recorder is not None:
            self._record(self.recorder, view)
        if self._window is not None:
            self._window.show(view)
        if self.recorder or self._window:
            self.pipeline.meter.stage("draw", 1e3 * (time.perf_counter() - start))

    def _announce(self, news: Announcement) -> None:
        text = self.settings.shown(news.text)
        record = records.reading(news, text=text, source=self.source.name, **self.networks)
        if self._lines is not None:
            try:
                self._lines.put(record)
            except InputError as error:
                self._complain(error)
        if self.outputs.events:
            self._event({"event": "reading", **record})
        else:
            print(text, flush=True)

    def _record(self, recorder: Recorder, view: View) -> None:
        if recorder.written == 0:  # before its first frame a source may not know its rate
            fps = self.settings.replay_fps or self.source.fps or _RECORD_FPS
            recorder.fps = min(fps, _MOST_RECORD_FPS)
        try:
            recorder.write(draw(view, self.settings), view.frame.t)
        except InputError as error:
            self.end_recording()
            self._complain(error)

    def _complain(self, error: NeocogError) -> None:
        """Say on stderr what went wrong while the reading goes on; the exit code will tell."""
        self.failed = True
        tell(str(error))

    def _tell_notices(self) -> None:
        """Say what happened to the source."""
        while not self._notices.empty():
            notice = self._notices.get()
            back = "back, " if notice.kind == "back" else ""
            lost = f"{notice.text}; trying again"
            tell(lost if notice.kind == "lost" else f"{self.source.name}: {back}{notice.text}")
            self._event({"event": "source", "state": notice.kind, "text": notice.text})

    def _event(self, event: dict[str, Any]) -> None:
        if self.outputs.events:
            print(line(event), flush=True)
