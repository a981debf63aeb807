"""The search in a process of its own: it finds what the search here finds, and ends with it."""

import io
import pickle
import subprocess
import sys
from collections.abc import Iterator

import cv2
import numpy as np
import pytest

from neocog.batch.reader import Reader
from neocog.live import apart
from neocog.live.apart import Apart, serve
from neocog.live.finder import Finder
from neocog.live.frames import Frame
from neocog.live.look import Found, Roi
from neocog.live.pipeline import Pipeline, Settings
from neocog.live.sources import FrameSource
from tests.live_support import clip
from tests.support import tiny_model


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(tiny_model(), device="cpu", min_p=0.0)


@pytest.fixture(scope="module")
def other() -> Iterator[Apart]:
    """A process that is ready."""
    finder = Apart()
    finder.warm()
    assert finder.apart
    yield finder
    finder.close()


def frames(text: str = "471") -> list[Frame]:
    return [Frame(n, picture, n / 30, 0.0) for n, picture in enumerate(clip((text, 4)))]


def read(found: Found) -> list[object]:
    return [
        [(place.box, place.digit.tobytes()) for place in line.digits]
        for search in found.searches
        for line in search.digits()
    ]


class TestApart:
    def test_it_finds_what_the_search_here_finds(self, other: Apart) -> None:
        here = Finder()
        for frame in frames():
            one, two = here.find(frame), other.find(frame)
            assert read(one) == read(two)
            assert (one.parts, one.bounds) == (two.parts, two.bounds)
            assert two.frame is frame
            assert two.steps == {}

    def test_region_and_steps_are_passed_on(self, other: Apart) -> None:
        found = other.find(frames()[0], roi=Roi(0, 0, 0.5, 0.5), steps=True)
        width, height = frames()[0].size
        assert found.bounds == (0, 0, width // 2, height // 2)
        assert "marks" in found.steps

    def test_frames_that_are_parts_of_larger_arrays_may_be_searched(self, other: Apart) -> None:
        frame = frames()[0]
        wide = np.zeros((frame.pixels.shape[0], 2 * frame.pixels.shape[1], 3), np.uint8)
        wide[:, ::2] = frame.pixels
        part = Frame(0, wide[:, ::2], 0.0, 0.0)
        assert read(other.find(part)) == read(Finder().find(frame))

    def test_an_error_of_the_search_is_raised_here(self, other: Apart) -> None:
        with pytest.raises(cv2.error):
            other.find(Frame(0, np.zeros((96, 128), np.uint8), 0.0, 0.0))
        assert other.apart

    def test_when_it_is_killed_this_process_goes_on(self) -> None:
        finder = Apart()
        finder.warm()
        assert finder._process is not None
        finder._process.kill()
        finder._process.wait()
        assert read(finder.find(frames()[0])) == read(Finder().find(frames()[0]))
        assert not finder.apart
        finder.close()

    def test_where_none_can_be_started_this_process_searches(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(apart.sys, "executable", "/no/such/python")
        finder = Apart()
        finder.warm()
        assert not finder.apart
        assert read(finder.find(frames()[0])) == read(Finder().find(frames()[0]))

    def test_it_ends_when_whoever_started_it_does(self) -> None:
        code = (
            "import os\n"
            "from neocog.live.apart import Apart\n"
            "finder = Apart()\n"
            "finder.warm()\n"
            "print(finder._process.pid, flush=True)\n"
            "os._exit(1)\n"
        )
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
        # run() waits until stdout is closed, which the process holds open through its stderr
        assert int(ran.stdout) > 0

    def test_a_pipe_that_breaks_within_a_frame_ends_it(self) -> None:
        asks = io.BytesIO(pickle.dumps((0, (96, 128, 3), (None, (), False))) + b"half a frame")
        answers = io.BytesIO()
        serve(asks, answers, cuts=True)
        assert pickle.loads(answers.getvalue()) is None


def test_a_source_played_like_a_camera_is_searched_apart(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neocog.live.pipeline.cores", lambda: 2)
    with Pipeline(
        FrameSource(clip(("471", 30)), fps=30), reader, Settings(replay_fps=30)
    ) as pipeline:
        finder = pipeline._finder
        assert isinstance(finder, Apart)
        assert finder.apart
        news = [one.text for view in pipeline for one in view.news]
    assert news == ["471"]
    assert not finder.apart
