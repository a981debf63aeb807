"""A run from its first frame to its last: views go to the window, to files and to stdout."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol

from neocog.errors import InputError, NeocogError
from neocog.live import records
from neocog.live.announce import Announcement
from neocog.live.capture import Notice
from neocog.live.draw import draw
from neocog.live.frames import Closed
from neocog.live.measures import Meter
from neocog.live.pipeline import Pipeline, Settings, View
from neocog.live.recorder import Recorder
from neocog.live.roi import Roi
from neocog.live.sinks import LineFile, check_outputs
from neocog.live.sources import Source
from neocog.messages import tell

if TYPE_CHECKING:
    from neocog.batch.reader import Reader

_WAIT = 0.02  # seconds that the loop waits for a view before it looks at the keys again
_WAIT_HEADLESS = 0.25
_MOST_RECORD_FPS = 60.0
_RECORD_FPS = 30.0  # of a recording where the source does not say


class Screen(Protocol):
    """What shows views and takes keys."""

    def show(self, view: View) -> None:
        """Show a view."""

    def keys(self, pipeline: Pipeline) -> bool:
        """Do what the keys ask for; False when the run shall end."""

    def close(self) -> None:
        """Show nothing any more."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where a run's results go.

    Attributes
    ----------
    jsonl : str or None
        A file of records.
    record : str or None
        A video.
    events : bool
        Whether stdout gets JSON events in place of the numbers alone.
    """

    jsonl: str | None = None
    record: str | None = None
    events: bool = False


class Session:
    """Reads a source until it ends.

    Parameters
    ----------
    source : Source
    reader : Reader
    settings : Settings
    outputs : Outputs
    screen : callable, optional
        Makes the screen for a session; headless without.
    roi : Roi, optional
        Read this region of the frames alone.

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
        screen: "Callable[[Session], Screen] | None" = None,
        *,
        roi: Roi | None = None,
    ) -> None:
        self.source, self.reader, self.settings = source, reader, settings
        self.outputs = outputs
        self.recorder: Recorder | None = None
        self.failed = False
        self._roi = roi
        self._size = (0, 0)  # of the frames for which it was judged
        self._lines: LineFile | None = None
        self._notices: SimpleQueue[Notice] = SimpleQueue()
        self._meter: Meter | None = None
        self._screen = screen(self) if screen else None

    def run(self) -> None:
        """Read until the source ends or the screen is closed.

        Raises
        ------
        NeocogError
            If the source cannot be opened or breaks off for good, or an output cannot be opened
            or is what is read.
        """
        check_outputs(
            getattr(self.source, "files", ()),
            {"--jsonl": self.outputs.jsonl, "--record": self.outputs.record},
        )
        with ExitStack() as stack:
            if self.outputs.jsonl:
                self._lines = stack.enter_context(LineFile(self.outputs.jsonl))
            if self.outputs.record:
                self.record(self.outputs.record)
            stack.callback(self.end_recording)
            if self._screen is not None:
                stack.callback(self._screen.close)
            pipeline = Pipeline(self.source, self.reader, self.settings, tell=self._notices.put)
            pipeline.switches.roi = self._roi
            self._meter = pipeline.meter
            try:
                self._loop(stack.enter_context(pipeline))
            finally:
                self._tell_notices()
            if self.outputs.events:
                _print(records.line(records.end_event(pipeline.measures())))

    @property
    def networks(self) -> dict[str, str]:
        """Names of the networks that read."""
        return {"model": self.reader.model.id, "finder": self.reader.finder.model.id}

    def record(self, path: str) -> None:
        """Begin to record what is shown.

        Raises
        ------
        UsageError
            If the file cannot be written.
        """
        self.recorder = Recorder(path)

    def end_recording(self) -> None:
        """Finish the recording, if there is one."""
        if self.recorder is not None:
            self.recorder.close()
            self.recorder = None

    def complain(self, error: NeocogError) -> None:
        """Say on stderr what went wrong while the reading goes on; the exit code will tell."""
        self.failed = True
        tell(str(error))

    def _loop(self, pipeline: Pipeline) -> None:
        screen = self._screen
        while True:
            try:
                view = pipeline.next(_WAIT if screen else _WAIT_HEADLESS)
            except Closed:
                return
            self._tell_notices()
            if view is not None:
                self._take(view)
            if screen is not None and not screen.keys(pipeline):
                return

    def _take(self, view: View) -> None:
        """Pass a view on to all that want it."""
        self._judge_region(view.frame.size)
        for news in view.news:
            self._announce(news)
        if self.outputs.events:
            for text in view.gone:
                _print(records.line({"event": "gone", "text": self._shown(text)}))
        start = time.perf_counter()
        if self.recorder is not None:
            self._record(view)
        if self._screen is not None:
            self._screen.show(view)
        if self._meter is not None and (self.recorder or self._screen):
            self._meter.stage("draw", 1e3 * (time.perf_counter() - start))

    def _judge_region(self, size: tuple[int, int]) -> None:
        """Say on stderr where the region that was asked for is not what is read."""
        if self._roi is not None and size != self._size:
            self._size = size
            if refused := self._roi.refused(size):
                tell(f"--roi: {refused}")

    def _announce(self, news: Announcement) -> None:
        text = self._shown(news.text)
        record = records.reading(news, text=text, source=self.source.name, **self.networks)
        if self._lines is not None:
            try:
                self._lines.write(record)
            except InputError as error:
                self.complain(error)
        if self.outputs.events:
            _print(records.line({"event": "reading", **record}))
        else:
            _print(text)

    def _record(self, view: View) -> None:
        assert self.recorder is not None
        if self.recorder.written == 0:  # before its first frame a source may not know its rate
            fps = self.settings.replay_fps or self.source.fps or _RECORD_FPS
            self.recorder.fps = min(fps, _MOST_RECORD_FPS)
        try:
            self.recorder.write(draw(view, self.settings.expected), view.frame.t)
        except InputError as error:
            self.end_recording()
            self.complain(error)

    def _tell_notices(self) -> None:
        """Say what happened to the source."""
        while not self._notices.empty():
            notice = self._notices.get()
            tell(told(notice, self.source.name))
            if self.outputs.events:
                _print(records.line(records.source_event(notice)))

    def _shown(self, text: str) -> str:
        return self.settings.expected.shown(text)


def told(notice: Notice, name: str) -> str:
    """Say what happened to a source."""
    if notice.kind == "lost":
        return f"{notice.text}; trying again"
    return f"{name}: {'back, ' if notice.kind == 'back' else ''}{notice.text}"


def _print(text: str) -> None:
    print(text, flush=True)
