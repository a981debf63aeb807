"""The search in a process of its own: it finds what the search here finds, and ends with it."""

import io
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
import pytest

from neocog.batch.reader import Reader
from neocog.errors import UsageError
from neocog.live import process
from neocog.live.apart import Apart
from neocog.live.crew import Crew, Teams
from neocog.live.finder import Finder
from neocog.live.frames import Frame
from neocog.live.look import Found, Roi
from neocog.live.pipeline import Pipeline, Settings
from neocog.live.process import Board, Process, Question, serve
from neocog.live.sources import FrameSource
from tests.live_support import clip, picture
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


def digits(found: Found) -> list[object]:
    """Of each part apart: in two of them the same digits may be found."""
    return max(([*line.digits] for s in found.searches for line in s.digits()), key=len, default=[])


def kill_scout(crew: Crew) -> None:
    process = crew._scout._process
    assert process is not None
    kill(process)
    searched(crew, frames()[0])
    end = time.perf_counter() + 5
    while crew._scout.there:
        assert time.perf_counter() < end
        time.sleep(0.01)


def kill(one: Process) -> None:
    one._process.kill()
    one._process.wait()


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
        kill(finder._process)
        assert read(finder.find(frames()[0])) == read(Finder().find(frames()[0]))
        assert not finder.apart
        finder.close()

    def test_where_none_can_be_started_this_process_searches(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(process.sys, "executable", "/no/such/python")
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
        question = Question(0, (96, 128, 3))
        asks = io.BytesIO(pickle.dumps((question, False)) + b"half a frame")
        answers = io.BytesIO()
        serve(asks, answers, cuts=True, board=Board())
        assert pickle.loads(answers.getvalue()) is None


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    """Two teams of two processes, and a scout."""
    crew = Crew(Teams(2, 2))
    crew.warm()
    assert crew.apart
    yield crew
    crew.close()


def searched(crew: Crew, frame: Frame, **how: Any) -> Found:
    return crew.ask(crew.team(), frame, **how).found()


class TestCrew:
    def test_it_finds_what_stands_there(self, crew: Crew) -> None:
        for frame in frames():
            found = searched(crew, frame)
            assert len(digits(found)) == 3
            assert found.frame is frame
            assert found.bounds == (0, 0, *frame.size)

    def test_without_a_scout_it_finds_what_the_search_here_finds(self) -> None:
        here, crew = Finder(), Crew(Teams(1, 2))
        crew.warm()
        kill_scout(crew)
        for frame in frames():
            one, two = here.find(frame), searched(crew, frame)
            assert read(one) == read(two)
            assert (one.parts, one.bounds) == (two.parts, two.bounds)
        crew.close()

    def test_frames_asked_for_at_a_time_do_not_mix(self, crew: Crew) -> None:
        tickets = [crew.ask(crew.team(), frames(text)[0]) for text in ("471", "20")]
        assert [len(digits(ticket.found())) for ticket in tickets] == [3, 2]

    def test_the_scout_tells_that_ink_is_bright(self, crew: Crew) -> None:
        bright = Frame(0, 255 - frames()[0].pixels, 0.0, 0.0)
        end = time.perf_counter() + 5
        while len(digits(searched(crew, bright))) < 3:
            assert time.perf_counter() < end
        while len(digits(searched(crew, frames()[0]))) < 3:
            assert time.perf_counter() < end

    def test_small_digits_are_searched_sharply_where_the_scout_saw_them(self, crew: Crew) -> None:
        pixels = picture("4711", size=(1280, 720), at=500, tall=38)
        small = Frame(1, pixels, 0.0, 0.0)
        end = time.perf_counter() + 5
        while len(digits(found := searched(crew, small))) < 4:
            assert time.perf_counter() < end
        assert all(part.region[2] < 1280 for part in found.parts)

    def test_region_and_steps_are_passed_on(self, crew: Crew) -> None:
        found = searched(crew, frames()[0], roi=Roi(0, 0, 0.5, 0.5), steps=True)
        width, height = frames()[0].size
        assert found.bounds == (0, 0, width // 2, height // 2)
        assert "marks" in found.steps

    def test_an_error_of_the_search_is_raised_here(self, crew: Crew) -> None:
        with pytest.raises(cv2.error):
            searched(crew, Frame(0, np.zeros((96, 128), np.uint8), 0.0, 0.0))
        assert len(digits(searched(crew, frames()[0]))) == 3

    @pytest.mark.parametrize("teams", [Teams(1, 1), Teams(1, 3), Teams(2, 2)])
    def test_when_processes_are_killed_others_or_this_one_go_on(self, teams: Teams) -> None:
        crew = Crew(teams)
        crew.warm()
        for _ in list(crew._teams):
            under_way = crew.ask(team := crew.team(), frames()[0])
            kill(team.processes[-1])
            assert len(digits(under_way.found())) == 3
            assert len(digits(searched(crew, frames()[0]))) == 3
        assert not crew.apart
        crew.close()

    def test_they_end_when_whoever_started_them_does(self) -> None:
        code = (
            "import os\n"
            "from neocog.live.crew import Crew, Teams\n"
            "crew = Crew(Teams(2, 2))\n"
            "crew.warm()\n"
            "print(len(crew._teams), flush=True)\n"
            "os.kill(os.getpid(), 9)\n"
        )
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
        assert int(ran.stdout) == 2

    def test_where_memory_cannot_be_shared_frames_go_through_the_pipe(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(process, "_memory", lambda: None)
        crew = Crew(Teams(1, 2))
        crew.warm()
        assert len(digits(searched(crew, frames()[0]))) == 3
        crew.close()

    def test_so_many_processes_as_there_are_cores_for(self) -> None:
        assert Teams.usual(2) == Teams(1, 1)
        for cores in (4, 8, 16, 64):
            teams = Teams.usual(cores)
            assert 3 <= teams.count * teams.each + 1 < cores

    @pytest.mark.parametrize("text", ["", "2", "0x1", "x", "1x0", "axb"])
    def test_a_size_that_is_none_is_refused(self, text: str) -> None:
        with pytest.raises(UsageError, match="TEAMSxPROCESSES"):
            Teams.parse(text)


def test_frames_searched_at_a_time_are_read_in_their_order(reader: Reader) -> None:
    settings = Settings(replay_fps=120, teams=Teams(2, 2))
    source = FrameSource(clip(("471", 60)), fps=120)
    with Pipeline(source, reader, settings) as pipeline:
        finder = pipeline._finder
        assert isinstance(finder, Crew)
        views = list(pipeline)
    indices = [view.frame.index for view in views]
    assert indices == sorted(set(indices))
    assert len(indices) + pipeline.dropped == 60
    assert [one.text for view in views for one in view.news] == ["471"]
    assert not finder.apart


def test_a_run_that_is_stopped_ends_its_processes(reader: Reader) -> None:
    settings = Settings(replay_fps=120, teams=Teams(2, 1))
    with Pipeline(FrameSource(clip(("471", 500)), fps=120), reader, settings) as pipeline:
        next(iter(pipeline))
        finder = pipeline._finder
        start = time.perf_counter()
    assert time.perf_counter() - start < 1.5
    assert isinstance(finder, Crew)
    assert not finder.apart


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
