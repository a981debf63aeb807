"""The search in a process of its own: it finds what the search here finds, and ends with it."""

import io
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from neocog import programs
from neocog.batch.reader import Reader
from neocog.errors import UsageError
from neocog.live import process
from neocog.live.crew import Crew, Scout, Team, Teams
from neocog.live.finder import Finder, Searched
from neocog.live.frames import Frame
from neocog.live.look import Found, Roi
from neocog.live.pipeline import Pipeline, Settings
from neocog.live.process import BROKEN, Board, Process, Question, serve
from neocog.live.sources import FrameSource
from neocog.live.split import Hints, Task
from tests.live_support import clip, picture
from tests.support import tiny_model


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(tiny_model(), device="cpu", min_p=0.0)


@pytest.fixture(scope="module")
def other() -> Iterator[Crew]:
    """One process that is ready, without a scout."""
    crew = Crew(Teams())
    crew.warm()
    assert crew.apart
    assert not crew.scouted
    yield crew
    crew.close()


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
    scout = crew._scout
    assert scout is not None
    process = scout._process
    assert process is not None
    kill(process)
    searched(crew, frames()[0])
    until(lambda: not scout.there)


def until(happened: Callable[[], bool]) -> None:
    end = time.perf_counter() + 60
    while not happened():
        assert time.perf_counter() < end
        time.sleep(0.01)


def kill(one: Process) -> None:
    one._process.kill()
    one._process.wait()


class TestOneProcess:
    def test_it_finds_what_the_search_here_finds(self, other: Crew) -> None:
        here = Finder()
        for frame in frames():
            one, two = here.find(frame), searched(other, frame)
            assert read(one) == read(two)
            assert (one.parts, one.bounds) == (two.parts, two.bounds)
            assert two.frame is frame
            assert two.steps == {}

    def test_region_and_steps_are_passed_on(self, other: Crew) -> None:
        found = searched(other, frames()[0], roi=Roi(0, 0, 0.5, 0.5), steps=True)
        width, height = frames()[0].size
        assert found.bounds == (0, 0, width // 2, height // 2)
        assert "marks" in found.steps

    def test_frames_that_are_parts_of_larger_arrays_may_be_searched(self) -> None:
        frame, other = frames()[0], Crew(Teams())  # both at their first frame
        other.warm()
        wide = np.zeros((frame.pixels.shape[0], 2 * frame.pixels.shape[1], 3), np.uint8)
        wide[:, ::2] = frame.pixels
        part = Frame(0, wide[:, ::2], 0.0, 0.0)
        assert read(searched(other, part)) == read(Finder().find(frame))
        assert other.apart
        other.close()

    def test_an_error_of_the_search_is_raised_here(self, other: Crew) -> None:
        with pytest.raises(cv2.error):
            searched(other, Frame(0, np.zeros((96, 128), np.uint8), 0.0, 0.0))
        assert other.apart

    def test_when_it_is_killed_this_process_goes_on(self) -> None:
        crew = Crew(Teams())
        crew.warm()
        kill(crew._teams[0].processes[0])
        assert read(searched(crew, frames()[0])) == read(Finder().find(frames()[0]))
        assert not crew.apart
        assert len(digits(searched(crew, frames()[0]))) == 3
        crew.close()

    def test_where_none_can_be_started_this_process_searches(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(process.sys, "executable", "/no/such/python")
        crew = Crew(Teams())
        crew.warm()
        assert not crew.apart
        assert read(searched(crew, frames()[0])) == read(Finder().find(frames()[0]))
        crew.close()

    def test_modules_of_the_folder_in_which_it_is_run_are_not_loaded(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        for name in ("numpy", "cv2", "mmap"):
            (tmp_path / f"{name}.py").write_text("raise SystemExit(9)")
        monkeypatch.chdir(tmp_path)
        crew = Crew(Teams())
        crew.warm()
        assert crew.apart
        crew.close()
        code = "import cv2, neocog; print(cv2.__file__, neocog.__file__)"
        ran = subprocess.run(programs.python("-c", code), capture_output=True)
        assert ran.returncode == 0
        assert str(tmp_path) not in ran.stdout.decode()

    def test_a_pipe_that_breaks_within_a_frame_ends_it(self) -> None:
        question = Question(0, (96, 128, 3))
        asks = io.BytesIO(pickle.dumps((question, False)) + b"half a frame")
        answers = io.BytesIO()
        serve(asks, answers, cuts=True, board=Board())
        assert pickle.loads(answers.getvalue()) is None

    def test_without_memory_that_both_see_no_frame_is_laid_down(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delattr(os, "memfd_create", raising=False)
        board = Board()
        assert not board.put(frames()[0].pixels)
        board.close()

    @pytest.mark.skipif(os.name != "posix", reason="needs SIGSTOP")
    def test_a_process_that_hangs_is_ended(self) -> None:
        board, told = Board(), threading.Event()
        one, other = Process(board), Process(board)
        for each in (one, other):
            each.answer()
            os.kill(each.pid, signal.SIGSTOP)

        def wait() -> None:
            with pytest.raises(BROKEN):
                one.answer()
            told.set()

        threading.Thread(target=wait, daemon=True).start()
        time.sleep(0.1)
        one.close()
        assert told.wait(60), "who waits for it is told"
        other.limit = 0.5
        with pytest.raises(BROKEN):
            other.answer()
        other.close()
        board.close()


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

    def test_frames_asked_for_at_a_time_do_not_mix(self, crew: Crew) -> None:
        tickets = [crew.ask(crew.team(), frames(text)[0]) for text in ("471", "20")]
        assert [len(digits(ticket.found())) for ticket in tickets] == [3, 2]

    def test_the_scout_tells_that_ink_is_bright(self, crew: Crew) -> None:
        bright = Frame(0, 255 - frames()[0].pixels, 0.0, 0.0)
        until(lambda: len(digits(searched(crew, bright))) == 3)
        until(lambda: len(digits(searched(crew, frames()[0]))) == 3)

    def test_small_digits_are_searched_sharply_where_the_scout_saw_them(self, crew: Crew) -> None:
        pixels = picture("4711", size=(1280, 720), at=500, tall=38)
        small = Frame(1, pixels, 0.0, 0.0)
        scout = crew._scout
        assert scout is not None
        until(lambda: scout.hints(0) is not None)
        until(lambda: len(digits(searched(crew, small))) == 4)
        found = searched(crew, small)
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

    def test_when_processes_are_killed_others_or_this_one_go_on(self) -> None:
        here, crew = Finder(), Crew(Teams(1, 2))
        crew.warm()
        kill_scout(crew)
        crew._turn = 0  # as many as the other has searched
        for frame in frames():
            one, two = here.find(frame), searched(crew, frame)
            assert read(one) == read(two)
            assert (one.parts, one.bounds) == (two.parts, two.bounds)
        for left in (1, 0):
            under_way = crew.ask(team := crew.team(), frames()[0])
            kill(team.processes[-1])
            assert len(digits(under_way.found())) == 3
            assert len(digits(searched(crew, frames()[0]))) == 3
            assert len(team.processes) == left
        assert not crew.apart
        crew.close()

    def test_they_end_when_whoever_started_them_does(self) -> None:
        code = (
            "import os\n"
            "from neocog.live.crew import Crew, Teams\n"
            "crew = Crew(Teams(1, 2))\n"
            "crew.warm()\n"
            "print(len(crew._teams), flush=True)\n"
            "os.kill(os.getpid(), 9)\n"
        )
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
        # run() waits until stdout is closed, which the processes hold open through their stderr
        assert int(ran.stdout) == 1

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


class Puppet:
    """A process that answers as it is told."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.tasks: list[Any] = []
        self.closed = False

    def ask(self, question: Question, pixels: object = None) -> None:
        self.tasks.append(question.task)

    def answer(self) -> object:
        answer = self.answers.pop(0)
        if isinstance(answer, EOFError):
            raise answer
        return answer

    def kill(self) -> None:
        self.closed = True

    close = kill


@pytest.mark.parametrize("teams", [Teams(), Teams(1, 2)])
def test_no_process_is_left_where_the_wait_for_them_is_broken_off(
    monkeypatch: pytest.MonkeyPatch, teams: Teams
) -> None:
    started: list[Process] = []

    def interrupted(self: Process) -> object:
        started.append(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(Process, "answer", interrupted)
    crew = Crew(teams)
    with pytest.raises(KeyboardInterrupt):
        crew.warm()
    crew.close()
    assert started
    assert all(one._process.poll() is not None for one in started)


def test_no_process_is_left_where_a_later_one_is_broken_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[Puppet] = []

    def start(*words: object, **more: object) -> Puppet:
        if started:
            raise KeyboardInterrupt
        started.append(Puppet())
        return started[0]

    monkeypatch.setattr("neocog.live.crew.Process", start)
    with pytest.raises(KeyboardInterrupt):
        Team(Scout(), 2).start()
    assert started[0].closed


def test_without_threads_no_process_and_no_pipe_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, *words: Any, **more: Any) -> None:
            super().__init__(*words, **more)
            started.append(self)

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(subprocess, "Popen", Noted)
    board = Board()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(OSError, match="new thread"):
            Process(board)
    board.close()
    (one,) = started
    assert one.poll() is not None
    assert one.stdin is not None
    assert one.stdin.closed
    scout = Scout()
    scout._process = puppet = Puppet(None)  # type: ignore[assignment]
    monkeypatch.setattr(threading.Thread, "start", start)
    scout.wait()
    assert not scout.there
    assert puppet.closed


def team_of(*puppets: Puppet) -> Team:
    team = Team(Scout(), len(puppets))
    team.processes = list(puppets)  # type: ignore[arg-type]
    return team


def test_an_error_travels_and_if_it_cannot_what_it_says_does() -> None:
    class Own(Exception):
        def __init__(self, a: int, b: int) -> None:
            super().__init__("no good")

    assert isinstance(process._portable(ValueError("a")), ValueError)
    assert str(process._portable(Own(1, 2))) == "Own: no good"


class TestTeam:
    FRAME = Frame(0, np.zeros((96, 128, 3), np.uint8), 0.0, 0.0)
    QUESTION = Question(0, (96, 128, 3), task=Task(turn=7))

    @pytest.mark.parametrize("error", [ValueError("a"), OSError("b"), ZeroDivisionError("c")])
    def test_an_error_of_a_search_is_raised_and_ends_no_process(self, error: Exception) -> None:
        team = team_of(one := Puppet(error), other := Puppet(Searched((), (0, 0, 128, 96))))
        team.ask(self.QUESTION, self.FRAME)
        with pytest.raises(type(error)):
            team.answer(self.FRAME)
        assert len(team.processes) == 2
        assert not one.closed
        assert not other.answers, "its answer was fetched: the next one is the next frame's"
        team.close()
        assert one.closed

    def test_the_others_divide_the_next_frame_when_one_ends(self) -> None:
        done = Searched((), (0, 0, 128, 96))
        team = team_of(Puppet(done, done), ends := Puppet(EOFError()), Puppet(done, done))
        team.ask(self.QUESTION, self.FRAME)
        assert team.answer(self.FRAME) is None
        assert ends.closed
        team.ask(self.QUESTION, self.FRAME)
        assert team.answer(self.FRAME) is not None
        left: list[Any] = team.processes
        assert [(one.tasks[-1].first, one.tasks[-1].every) for one in left] == [(0, 2), (1, 2)]
        assert {one.tasks[-1].turn for one in left} == {7}
        team.close()


class TestScout:
    def tell(self, scout: Scout, frame: Frame) -> None:
        scout.tell(Question(frame.index, frame.pixels.shape, epoch=frame.epoch), frame)

    def test_what_it_knows_holds_for_its_epoch_and_while_it_is_there(self) -> None:
        puppet = Puppet(Hints(epoch=0), Hints(epoch=1), ValueError(), Hints(epoch=1), EOFError())
        scout = Scout()
        scout._process = puppet  # type: ignore[assignment]
        scout._thread.start()
        assert scout.hints(0) is None, "it has seen nothing yet"
        self.tell(scout, TestTeam.FRAME)
        until(lambda: scout.hints(0) is not None)
        assert scout.hints(1) is None
        new = replace(TestTeam.FRAME, epoch=1)
        self.tell(scout, new)
        until(lambda: scout.hints(1) is not None)
        assert scout.hints(0) is None
        assert puppet.tasks[-1].hints is None
        assert puppet.tasks[-1].chooses
        self.tell(scout, new)
        until(lambda: scout.hints(1) is None)
        self.tell(scout, new)
        until(lambda: scout.hints(1) is not None)
        self.tell(scout, new)
        until(lambda: not scout.there and puppet.closed)
        assert scout.hints(1) is None
        scout.close()


SIZES = pytest.mark.parametrize("teams", [Teams(), Teams(1, 2), Teams(2, 1)], ids=str)


def hang(crew: Crew) -> Process:
    one = crew._teams[0].processes[0]
    os.kill(one.pid, signal.SIGSTOP)
    return one


@pytest.mark.skipif(os.name != "posix", reason="needs SIGSTOP")
@SIZES
def test_frames_are_read_in_their_order_though_a_process_hangs(
    reader: Reader, monkeypatch: pytest.MonkeyPatch, teams: Teams
) -> None:
    monkeypatch.setattr("neocog.live.pipeline.cores", lambda: 2)
    settings = Settings(replay_fps=20, teams=teams)
    source = FrameSource(clip(("471", 40)), fps=20)
    with Pipeline(source, reader, settings) as pipeline:
        finder = pipeline._finder
        assert isinstance(finder, Crew)
        views = [next(iter(pipeline))]
        hang(finder).limit = 0.5
        views += pipeline
    indices = [view.frame.index for view in views]
    assert indices == sorted(set(indices))
    assert len(indices) + pipeline.dropped == 40
    assert indices[-1] == 39
    assert not finder.apart


@pytest.mark.skipif(os.name != "posix", reason="needs SIGSTOP")
@SIZES
def test_a_run_that_is_stopped_ends_at_once_though_a_process_hangs(
    reader: Reader, monkeypatch: pytest.MonkeyPatch, teams: Teams
) -> None:
    here: list[Frame] = []
    monkeypatch.setattr("neocog.live.pipeline.cores", lambda: 2)
    monkeypatch.setattr(Team, "find", lambda self, question, frame: here.append(frame))
    settings = Settings(replay_fps=120, teams=teams, every_view=False)
    with Pipeline(FrameSource(clip(("471", 500)), fps=120), reader, settings) as pipeline:
        next(iter(pipeline))
        finder = pipeline._finder
        assert isinstance(finder, Crew)
        one = hang(finder)
        until(lambda: one._wait is not None)
        time.sleep(0.3)
        assert one._wait is not None
        start = time.perf_counter()
        pipeline.stop()
        took = time.perf_counter() - start
    assert took < 1.5
    assert not any(stage.is_alive() for stage in pipeline._stages)
    assert not finder.apart
    assert not here, "nobody wants a frame that is forgotten"


def test_a_source_played_like_a_camera_is_searched_apart(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neocog.live.pipeline.cores", lambda: 2)
    source = FrameSource(clip(("471", 10)), fps=30)
    with Pipeline(source, reader, Settings(replay_fps=30)) as pipeline:
        finder = pipeline._finder
        assert isinstance(finder, Crew)
        assert finder.apart
        assert not finder.scouted
        assert list(pipeline)
    assert not finder.apart
