"""The window: it shows views and does what the keys and the mouse ask for."""

import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import cv2
import numpy as np

from neocog.errors import NeocogError
from neocog.files import atomic_write
from neocog.live.draw import WHITE, Picture, candidates, draw, draw_text, header, layers
from neocog.live.frame_reader import Roi
from neocog.live.pipeline import View
from neocog.live.session import Recorder, Session
from neocog.programs import python
from neocog.text import to_json

TITLE = "neocog"

_ESCAPES = (27, 0xFF1B)  # the second as X names it
_KEYS = (
    "q, Esc\tend", "space\tfreeze the picture", "s\tsave picture and reading", "r\trecord, end recording",
    "b\twhat the finder sees", "l\tthe layers' responses", "mouse\tdrag: read that region; click: all",
    "h\tthese keys",
)  # fmt: skip
_TRY = "import cv2; cv2.namedWindow('display?'); cv2.waitKey(1); cv2.destroyAllWindows()"


class Window:
    """A window of OpenCV and its keys (ask `display_trouble` first); pictures are saved in ``folder``."""

    def __init__(self, session: Session, folder: Path = Path()) -> None:
        self.session, self.folder = session, folder
        self.frozen = self.steps = self.layers = self.help = False
        self.picture: Picture | None = None
        self.note, self._noted = "", 0.0
        self._view: View | None = None
        self._corner: tuple[int, int] | None = None  # where a drag began
        self._at = (0, 0)  # where the mouse is
        self._open = False

    def show(self, view: View) -> None:
        picture = self.take(view)
        if not self._open:
            cv2.namedWindow(TITLE, cv2.WINDOW_AUTOSIZE | cv2.WINDOW_GUI_NORMAL)
            cv2.setMouseCallback(TITLE, lambda event, x, y, *_: self.mouse(event, x, y))
            self._open = True
        cv2.imshow(TITLE, picture)

    def keys(self) -> bool:
        """Do what the keys ask for; False when the run shall end, also once the window was closed."""
        if not self._open:
            return True
        try:
            while (key := cv2.waitKeyEx(1)) >= 0:
                if not self.press(key):
                    return False
            if cv2.getWindowProperty(TITLE, cv2.WND_PROP_VISIBLE) < 1:
                return False
            if self.frozen and self.picture is not None:  # imshow would open a closed window again
                cv2.imshow(TITLE, self.picture)
        except cv2.error:  # Qt's answer about a window that was closed
            return False
        return True

    def close(self) -> None:
        if self._open:
            self._open = False
            with suppress(cv2.error):
                cv2.destroyWindow(TITLE)
                cv2.waitKey(1)

    def take(self, view: View) -> Picture:
        """Take a view and return the picture to show; the old one while it is frozen."""
        if self.picture is None or not self.frozen:
            self._view, self.picture = view, self._composed(view)
        return self.picture

    def press(self, key: int) -> bool:
        """Do what a key asks for; False when it ends the run."""
        code = key & 0xFFFF if key >= 0 else 0  # what stands before tells of Shift, Num Lock, ...
        char = chr(code).lower() if code < 0x80 else ""  # arrows: some have a letter's code as last byte
        match char:
            case " ":
                self.frozen = not self.frozen
                if not self.session.source.live:
                    self.session.pipeline.capture.hold(self.frozen)
            case "s":
                self._save()
            case "r":
                self._record()
            case "b":
                self.steps = not self.steps
            case "l":
                self.layers = self.session.pipeline.layers = not self.layers
            case "h":
                self.help = not self.help
        if self.frozen and self._view is not None:
            self.picture = self._composed(self._view)
        return char != "q" and code not in _ESCAPES

    def mouse(self, event: int, x: int, y: int) -> None:
        """Choose a region by dragging from one corner to the other; a click chooses all."""
        self._at = (x, y)
        if event == cv2.EVENT_LBUTTONDOWN:
            self._corner = (x, y)
        if event != cv2.EVENT_LBUTTONUP or self._corner is None:
            return
        (left, top), self._corner, roi = self._corner, None, None
        wide, tall, told = abs(x - left), abs(y - top), "the whole picture is read"
        if max(wide, tall) >= 12 and self._view is not None:  # a shorter drag is a click
            size = self._view.frame.size
            first, last = (max(v - header(size[1]), 0) for v in sorted((y, top)))  # from the header on, too
            roi = Roi(min(x, left), first, max(wide, 1), max(last - first, 1))
            refused = roi.within(size)[1]
            told = f"region: {refused}" if refused else "only this region is read"
        self.session.pipeline.roi = roi
        self._tell(told)

    def _tell(self, text: str) -> None:
        self.note, self._noted = text, time.monotonic()

    def _composed(self, view: View) -> Picture:
        note = self.note if time.monotonic() - self._noted < 2.0 else ""
        note = note or ("frozen: space continues" if self.frozen else "")
        picture = draw(view, self.session.settings, recording=self.session.recorder is not None, note=note)
        if self._corner:
            cv2.rectangle(picture, self._corner, self._at, WHITE, 2)
        panels, height = [picture], len(picture)
        if self.help:
            draw_text(picture[header(view.frame.size[1]) :], _KEYS)
        if self.steps:
            panels.append(candidates(view.seen, height=height))
        if self.layers and view.maps:
            panels.append(layers(view.maps, height=height))
        return np.concatenate(panels, axis=1)

    def _save(self) -> None:
        """Save the picture that is shown, and what was read in it."""
        if self.picture is None or self._view is None:
            return
        path = self._path(".png")
        try:
            png = cv2.imencode(".png", self.picture)[1].tobytes()
            text = to_json(self.session.record_of(self._view), indent=1) + "\n"
            for name, data in ((path, png), (path.with_suffix(".json"), text.encode())):
                with atomic_write(name) as file:
                    file.write(data)
            self._tell(f"saved {path.name}")
        except (OSError, cv2.error) as error:
            why = getattr(error, "strerror", None) or "no PNG can be made of it"
            self._tell(f"not saved: {why}")

    def _record(self) -> None:
        if recorder := self.session.recorder:
            self.session.end_recording()
            self._tell(f"recorded {recorder.path.name}")
            return
        try:
            self.session.recorder = recorder = Recorder(self._path(".mp4"))
            self._tell(f"recording {recorder.path.name}")
        except NeocogError as error:
            self._tell(str(error))

    def _path(self, suffix: str) -> Path:
        now = datetime.now()
        return self.folder / f"neocog-{now:%Y%m%d-%H%M%S}-{now.microsecond // 1000:03d}{suffix}"


def display_trouble() -> str | None:
    """Say why no window can be opened, or None; tried in another process, which OpenCV 5 would end."""
    os.environ.setdefault("QT_LOGGING_RULES", "*=false")  # Qt's remarks about fonts and plugins
    own = sys.platform in ("win32", "darwin")
    if not own and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return "there is no display"
    if not has_windows():
        return "this OpenCV cannot open windows (opencv-python can, opencv-python-headless cannot)"
    try:
        run = subprocess.run(python("-c", _TRY), capture_output=True, timeout=20.0)
    except subprocess.TimeoutExpired:
        return "the display does not answer"
    return None if run.returncode == 0 else "the display cannot be used"


def has_windows() -> bool:
    """Whether this OpenCV was built with a user interface."""
    return not re.search(r"^\s*GUI:\s*NONE\s*$", cv2.getBuildInformation(), re.M | re.I)
