"""The window: what is drawn, what every key does, and that none is opened without a display."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from neocog.errors import InputError, UsageError
from neocog.live import window as live_window
from neocog.live.draw import SURE, candidates, draw, header, layers
from neocog.live.pipeline import Pipeline, Settings, View
from neocog.live.session import Recorder, Session
from neocog.live.sources import FrameSource, open_source
from neocog.live.window import TITLE, Window
from neocog.reading.policy import Pattern
from neocog.reading.reader import Reader
from tests.live_support import LIVE, MODEL, clip, frames_in, picture, save_video
from tests.support import failing, until


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(MODEL, device="cpu")


@pytest.fixture(scope="module")
def view(reader: Reader) -> View:
    pipeline = Pipeline(open_source(clip(("471", 12))), reader)
    pipeline.layers = True
    with pipeline:
        return list(pipeline)[-1]


@pytest.fixture
def window(reader: Reader, view: View, tmp_path: Path) -> Iterator[Window]:
    """A window that has taken a view, and is not on any display."""
    window = Window(Session(FrameSource([]), reader, Settings()), tmp_path)
    window.take(view)
    yield window
    window.session.end_recording()


def press(window: Window, *keys: int | str) -> bool:
    return all(window.press(ord(key) if isinstance(key, str) else key) for key in keys)


def test_drawing(view: View) -> None:
    before, top = view.frame.pixels.copy(), header(240)
    out, other = draw(view), draw(view, Settings(pattern=Pattern("####")))
    assert out.shape == (240 + top, 320, 3)
    assert (view.frame.pixels == before).all(), "the frame itself is drawn on"
    assert (out[top:] != before).any()
    large = (out != other).any(axis=(1, 2))  # a number that does not fit is not drawn large
    assert 10 < large.sum() == large[:top].sum(), "numbers stand above the frame, where no writing is"
    assert (out[:top] == SURE).all(axis=2).any()
    noted = draw(view, note="frozen", recording=True)
    assert (noted[:22] != out[:22]).any()
    seen = candidates(view.seen, height=240)
    assert seen.shape == (240, 320, 3)
    assert (seen == SURE).all(axis=2).any()


def test_layers_come_with_the_views_when_asked_for_and_are_drawn(view: View) -> None:
    names = ["U0", "UG", *(f"U{kind}{n}" for n in range(1, 5) for kind in "SC")]
    assert (list(view.maps), view.maps["U0"].shape, view.maps["UC4"].ndim) == (names, (1, 65, 65), 1)
    panel = layers(view.maps, height=480)
    assert (panel.shape[0], panel.dtype) == (480, np.uint8)
    assert panel.std() > 5
    many = {"US4": np.zeros((700, 5, 5), np.float32)}  # of many planes the strongest are drawn
    many["US4"][650, 2, 2] = 1.0
    assert layers(many, height=100).max() > 200


def test_q_and_escape_end_with_num_lock_and_caps_lock_too_and_other_keys_do_nothing(window, tmp_path):
    for key in ("q", "Q", "\x1b", 0x100071, 0x20051, 0xFF1B, 0x10001B):
        assert not press(window, key)
    assert press(window, *"xyz1", -1, *range(0xFF50, 0xFF58), *range(0xFF60, 0xFF6A), *range(0xFFBE, 0xFFEF),
                 *range(0xF700, 0xF72F), 0x4FF51, 0xFE03, 0x250000, 0x2D0000, 0xF1, 0xEB, 0xFF0D)  # fmt: skip
    assert not any((window.session.recorder, window.frozen, window.help, window.steps, window.layers))
    assert not list(tmp_path.iterdir())


def test_space_freezes_and_goes_on(window, view, reader):
    running = window.session.pipeline.capture.running
    assert press(window, " ")
    frozen = window.picture
    with Pipeline(open_source([picture("2086")]), reader) as other:
        later = next(iter(other))
    assert window.take(later) is frozen
    assert not running.is_set(), "a file waits"
    press(window, " ")
    assert running.is_set()
    assert window.take(later) is not frozen


def test_s_saves_picture_and_record_and_r_records_until_it_is_pressed_again(
    window, view, tmp_path, monkeypatch
):
    for owner, name, error in ((cv2, "imencode", cv2.error("no")), (os, "fsync", OSError(28, "No room")),
                               (window, "folder", None)):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, failing(error) if error else tmp_path / "nowhere")
            assert press(window, "s")
        assert window.note.startswith("not saved: ")
        assert not list(tmp_path.iterdir())
    press(window, "s")
    (png,), (record,) = tmp_path.glob("neocog-*.png"), tmp_path.glob("neocog-*.json")
    assert cv2.imread(str(png)).shape == draw(view).shape
    told = json.loads(record.read_text())
    assert (told["text"], told["agreed"], len(told["digits"])) == ("471", ["471"], 3)
    press(window, "r")
    for t in (0.0, 1.0):
        window.session.recorder.write(draw(view), t)
    press(window, "r")
    assert window.session.recorder is None
    assert frames_in(*tmp_path.glob("neocog-*.mp4")) >= 25


def test_b_l_and_h_show_more_and_less(window: Window, view: View) -> None:
    plain = window.take(view).copy()
    for key in "bl":
        press(window, key)
        assert window.session.pipeline.layers is (key == "l")
        assert window.take(view).shape[1] > plain.shape[1]
        press(window, key)
    assert window.take(view).shape == plain.shape
    press(window, "h")
    assert (window.take(view) != plain).any()
    keys = {line.split()[0].rstrip(",") for line in live_window._KEYS}
    assert keys == {"q", "space", "s", "r", "b", "l", "mouse", "h"}


@pytest.mark.parametrize(
    ("start", "to", "box", "told"),
    [
        ((200, 150), (50, 40), (50, 40, 150, 110), "only"),
        ((100, 60), (-50, 90), (0, 60, 100, 30), "reaches beyond"),
        ((50, -20), (200, 150), (50, 0, 150, 150), "only"),  # from the header
        ((100, 60), (300, 63), (0, 0, 320, 240), "24 pixels"),
        ((100, 60), (500, 200), (100, 60, 220, 140), "100,60,220,140"),
    ],
)
def test_dragging_chooses_a_region_and_a_click_all(window, start, to, box, told):
    for event, (x, y) in ((cv2.EVENT_LBUTTONDOWN, start), (cv2.EVENT_LBUTTONUP, to)):
        window.mouse(event, x, y + header(240))
    assert window.session.pipeline.roi.within((320, 240))[0] == box
    assert told in window.note
    window.mouse(cv2.EVENT_LBUTTONDOWN, 60, 60)
    window.mouse(cv2.EVENT_LBUTTONUP, 61, 61)
    assert window.session.pipeline.roi is None


class FakeScreen:
    """OpenCV's windows without a display: keys are given, pictures are kept."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, keys: dict[int, str]) -> None:
        self.shown, self.keys = list[Any](), keys
        calls = {"imshow": lambda title, picture: self.shown.append(picture), "waitKey": lambda wait: -1,
                 "waitKeyEx": lambda wait: self._key(), "getWindowProperty": lambda *_: 1.0}  # fmt: skip
        nothing = dict.fromkeys(("namedWindow", "setMouseCallback", "destroyWindow"), lambda *_: None)
        for name, call in (calls | nothing).items():
            monkeypatch.setattr(cv2, name, call)

    def _key(self) -> int:
        keys = self.keys.get(len(self.shown), "")
        self.keys[len(self.shown)] = keys[1:]
        return ord(keys[0]) if keys else -1


@pytest.mark.parametrize(("key", "closed"), [("q", None), ("", 0.0), ("", cv2.error("NULL window"))])
def test_q_ends_and_so_does_closing_the_window(reader, monkeypatch, tmp_path, key, closed):
    screen, video = FakeScreen(monkeypatch, {3: "l", 5: "b", 7: "h", 9: key}), tmp_path / "a.avi"
    if not key:  # Qt answers with an error
        answer = failing(closed) if isinstance(closed, Exception) else lambda *_: closed
        monkeypatch.setattr(cv2, "getWindowProperty", answer)
    session = Session(FrameSource(clip(("471", 60))), reader, Settings(), Window, video=str(video))
    session.run()
    assert len(screen.shown) == (9 if key else 1)
    assert (screen.shown[-1].shape[1] > 320) is bool(key)
    assert frames_in(video) == len(screen.shown)


def test_a_window_that_is_closed_while_frozen_stays_closed(window, view, monkeypatch):
    screen = FakeScreen(monkeypatch, {1: " "})
    window.show(view)
    monkeypatch.setattr(cv2, "getWindowProperty", lambda *_: 0.0)
    assert not window.keys()
    assert len(screen.shown) == 1


def test_a_recording_keeps_time(tmp_path):
    video, written = Recorder(tmp_path / "a.avi", fps=20), []
    for t, shade in {0.0: 0, 1.0: 120, 61.0: 240, 61.05: 60, 61.1: 180}.items():
        video.write(np.full((48, 64, 3), shade, np.uint8), t)
        written.append(video.written)
    video.close()
    assert written == [1, 21, 221, 222, 223]  # a frame stands until the next one; a long gap is left out
    played = cv2.VideoCapture(str(tmp_path / "a.avi"))
    means = [round(float(np.mean(played.read()[1])) / 60) for _ in range(223)]
    assert means == [0] * 20 + [2] * 200 + [4, 1, 3]


def test_a_recording_keeps_its_size(tmp_path):
    video = Recorder(tmp_path / "12:30.avi", fps=20)
    for number, size in enumerate([(320, 240), (640, 480), (48, 240), (1, 1), (320, 240)]):
        video.write(np.full((size[1], size[0], 3), 200, np.uint8), number / 20)
    video.close()
    assert [path.name for path in tmp_path.iterdir()] == ["12:30.avi"]
    played = cv2.VideoCapture(str(tmp_path / "12:30.avi"))
    widths = [int((played.read()[1][120, :, 0] > 100).sum()) for _ in range(5)]
    assert (widths, played.read()[0]) == (pytest.approx([320, 320, 48, 240, 320], abs=8), False)


def test_a_recording_can_be_played_though_the_disk_is_full(tmp_path, monkeypatch):
    video, usage = Recorder(tmp_path / "a.mp4", fps=30), shutil.disk_usage(tmp_path)
    for n in range(40):
        video.write(picture("1"), n / 30)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(InputError, match="disk is full"):
        video.write(picture("1"), 2.0)
    assert frames_in(tmp_path / "a.mp4") >= 40
    for name, why in (("a.txt", "mp4"), ("nowhere/a.mp4", "--record")):
        with pytest.raises(UsageError, match=why):
            Recorder(tmp_path / name)


def test_without_a_display_no_window_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(live_window, "has_windows", lambda: True)
    monkeypatch.setenv("DISPLAY", ":31337")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert live_window.display_trouble() == "the display cannot be used"
    monkeypatch.delenv("DISPLAY")
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: pytest.fail("a window was tried"))
    assert live_window.display_trouble() == "there is no display"


CLOSE = """
import ctypes, sys
x = ctypes.CDLL("libX11.so.6")
x.XOpenDisplay.restype, x.XInternAtom.restype = ctypes.c_void_p, ctypes.c_ulong
display, window = ctypes.c_void_p(x.XOpenDisplay(None)), int(sys.argv[1])
kind, quit = (x.XInternAtom(display, name, 0) for name in (b"WM_PROTOCOLS", b"WM_DELETE_WINDOW"))
event = (ctypes.c_long * 24)(33, 0, 1, display.value, window, kind, 32, quit)  # as the X of a frame sends it
x.XSendEvent(display, ctypes.c_ulong(window), 0, 0, event)
x.XSync(display, 0)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not live_window.has_windows() or not shutil.which("Xvfb") or not shutil.which("xdotool"),
    reason="needs opencv-python (not headless), Xvfb and xdotool",
)
def test_every_key_and_closing_the_window_on_a_display(tmp_path, monkeypatch):
    """Also closing it ends with 0 and a whole recording."""
    save_video(tmp_path / "clip.avi", clip(("471", 400)))

    def window() -> str:
        words = ["xdotool", "search", "--name", f"^{TITLE}$"]
        found = until(lambda: subprocess.run(words, capture_output=True, text=True).stdout.split())
        time.sleep(1)
        return found[-1]

    words = ["Xvfb", "-displayfd", "1", "-screen", "0", "1600x900x24"]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        monkeypatch.setenv("DISPLAY", f":{server.stdout.readline().strip()}")  # told once it takes windows
        with subprocess.Popen([*LIVE, "clip.avi"], cwd=tmp_path, stdout=subprocess.PIPE) as run:
            number = window()
            for key in ("h", "b", "l", "s", "space", "space", "r", "r", "h", "b", "l", "q"):
                subprocess.run(["xdotool", "key", "--window", number, key], check=True)
                time.sleep(0.4)
            assert run.wait(20) == 0
            assert run.stdout.read() == b"471\n"
        assert {path.suffix for path in tmp_path.glob("neocog-*")} == {".png", ".json", ".mp4"}
        assert frames_in(*tmp_path.glob("neocog-*.mp4")) >= 1
        with subprocess.Popen(
            [*LIVE, "clip.avi", "--record", "a.mp4"], cwd=tmp_path, stderr=subprocess.PIPE
        ) as run:
            subprocess.run([sys.executable, "-c", CLOSE, window()], check=True)
            assert run.wait(20) == 0
            assert b"Traceback" not in run.stderr.read()
        assert 1 <= frames_in(tmp_path / "a.mp4") < 400
    finally:
        server.terminate()
        server.wait()
