"""Several search processes at one frame, and several frames at a time, where there are the cores.

The parts of a frame are searched by a team at the same time: it is found as soon as its longest
part is. Frames take turns at the teams and come out in their order. One process more goes ahead
as a scout (`neocog.live.split`).
"""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from neocog.errors import UsageError
from neocog.live.apart import begun, ready
from neocog.live.finder import Finder
from neocog.live.frames import Closed, Frame, Handoff
from neocog.live.look import Found, Ready, Roi
from neocog.live.process import BROKEN, Board, Process, Question
from neocog.live.split import Done, Hints, Task
from neocog.live.tracks import Track

_CHOSEN = 0.5  # seconds between two judgements which colour shows ink best


@dataclass(frozen=True, slots=True)
class Teams:
    """How many processes search.

    Attributes
    ----------
    count : int
        Frames that are searched at a time, each by a team.
    each : int
        Processes of a team.
    """

    count: int = 1
    each: int = 1

    @staticmethod
    def parse(text: str) -> "Teams":
        """Read ``COUNTxEACH``.

        Raises
        ------
        UsageError
            If it is something else.
        """
        count, _, each = text.partition("x")
        if not (count.isdecimal() and each.isdecimal() and int(count) and int(each)):
            raise UsageError(f"search '{text}': TEAMSxPROCESSES is wanted, for example 2x3")
        return Teams(int(count), int(each))

    @staticmethod
    def usual(cores: int) -> "Teams":
        """Return what suits a number of cores: some are left to the other stages."""
        if cores >= 12:
            return Teams(3, 2)
        if cores >= 8:
            return Teams(2, 2)
        return Teams(1, 2) if cores >= 4 else Teams()


class Scout:
    """Searches beside what the teams search, in the newest frame whenever it has time.

    Parameters
    ----------
    cuts : bool
        Whether marks that may be several digits are kept.
    """

    def __init__(self, *, cuts: bool = True) -> None:
        self.hints = Hints()
        self._cuts = cuts
        self._board = Board()
        self._process: Process | None = None
        self._news: Handoff[tuple[Question, Frame]] = Handoff(newest=True)
        self._thread = threading.Thread(target=self._run, name="neocog-scout", daemon=True)

    @property
    def there(self) -> bool:
        """Whether its process is there."""
        return self._process is not None

    def start(self) -> None:
        """Start its process."""
        self._process = next(iter(begun(1, self._board, cuts=self._cuts)), None)

    def wait(self) -> None:
        """Wait until it is ready."""
        if self._process is not None:
            self._process = next(iter(ready([self._process])), None)
            self._thread.start()

    def tell(self, question: Question, frame: Frame) -> None:
        """Tell it of a new frame."""
        with suppress(Closed):
            self._news.put((question, frame))

    def close(self) -> None:
        """End its process."""
        self._news.close(forget=True)
        process, self._process = self._process, None
        if process is not None:
            process.close()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)
        self._board.close()

    def _run(self) -> None:
        chosen = 0.0
        with suppress(Closed, *BROKEN):
            while process := self._process:
                question, frame = self._news.get()
                now = time.perf_counter()
                task = Task(hints=self.hints, scouts=True, chooses=now - chosen > _CHOSEN)
                pixels = None if self._board.put(frame.pixels) else frame.pixels
                process.ask(replace(question, task=task), pixels)
                hints = process.answer()
                if isinstance(hints, Hints):  # an error in a frame, a team tells as well
                    self.hints = hints
                    chosen = now if task.chooses else chosen
        self._process = None
        self._news.close(forget=True)


class Team:
    """Processes that search one frame together; without any left, this one searches.

    Parameters
    ----------
    scout : Scout
    each : int
        Processes.
    cuts : bool
        Whether marks that may be several digits are kept; they are not cut apart.
    """

    def __init__(self, scout: Scout, each: int, *, cuts: bool = True) -> None:
        self._scout, self._each, self._cuts = scout, each, cuts
        self._board = Board()
        self._finder = Finder(cuts=cuts)
        self.processes: list[Process] = []

    def start(self) -> None:
        """Start the processes."""
        self.processes = begun(self._each, self._board, cuts=self._cuts)

    def wait(self) -> None:
        """Wait until they are ready; all must be."""
        self.processes = ready(self.processes)
        if len(self.processes) < self._each:
            self.close()

    def close(self) -> None:
        """End the processes."""
        processes, self.processes = self.processes, []
        for process in processes:
            process.tell()
        for process in processes:
            process.close()
        self._board.close()

    def ask(self, question: Question, frame: Frame, pace: int) -> None:
        """Put the processes to work at a frame."""
        every = len(self.processes)
        task = Task(0, every, self._scout.hints, scouted=self._scout.there, pace=pace)
        try:
            pixels = None if self._board.put(frame.pixels) else frame.pixels
            for first, process in enumerate(self.processes):
                process.ask(replace(question, task=replace(task, first=first)), pixels)
        except BROKEN:
            self.close()

    def answer(self, frame: Frame) -> Found | None:
        """Wait for what they find; None where they are no more."""
        if not self.processes:
            return None
        try:
            done = joined([process.answer() for process in self.processes])
        except BROKEN:
            self.close()
            return None
        lines = tuple(Ready(done.lines[number]) for number in range(len(done.parts)))
        return Found(frame, lines, done.parts, done.bounds, 0.0, done.steps)

    def find(self, question: Question, frame: Frame) -> Found:
        """Search in this process."""
        return self._finder.find(
            frame, roi=question.roi, tracks=question.tracks, steps=question.steps
        )


class Ticket:
    """A frame that is searched."""

    def __init__(
        self, crew: "Crew", team: Team, frame: Frame, question: Question, pace: int
    ) -> None:
        self._crew, self._team, self._frame = crew, team, frame
        self._start = time.perf_counter()
        self._question = question
        team.ask(question, frame, pace)

    def found(self) -> Found:
        """Wait for what was found."""
        try:
            found = self._team.answer(self._frame)
            if found is None:
                found = self._team.find(self._question, self._frame)
        finally:
            self._crew.free(self._team)
        return replace(found, ms=1e3 * (time.perf_counter() - self._start))


class Crew:
    """Searches frames, several at a time.

    Parameters
    ----------
    teams : Teams
    cuts : bool
        Whether marks that may be several digits are kept; they are not cut apart.
    """

    def __init__(self, teams: Teams, *, cuts: bool = True) -> None:
        self._scout = Scout(cuts=cuts)
        self._teams = [Team(self._scout, teams.each, cuts=cuts) for _ in range(teams.count)]
        self._free: Handoff[Team] = Handoff(newest=False, depth=teams.count)

    @property
    def apart(self) -> bool:
        """Whether any processes are there."""
        return any(team.processes for team in self._teams)

    @property
    def teams(self) -> int:
        """Frames that may be searched at a time."""
        return len(self._teams)

    def warm(self) -> None:
        """Start all processes, and wait until they have loaded all that they need."""
        self._scout.start()
        for team in self._teams:
            team.start()
        self._scout.wait()
        for team in self._teams:
            team.wait()
        for team in self._teams:
            self.free(team)

    def team(self) -> Team:
        """Wait for a team that is free.

        Raises
        ------
        Closed
            When it shall search no more.
        """
        return self._free.get()

    def ask(
        self,
        team: Team,
        frame: Frame,
        *,
        roi: Roi | None = None,
        tracks: Sequence[Track] = (),
        steps: bool = False,
        pace: int = 1,
    ) -> Ticket:
        """Have a team search a frame; as `Finder.find`, ``pace`` as `planned`."""
        question = Question(frame.index, frame.pixels.shape, roi, tuple(tracks), steps)
        ticket = Ticket(self, team, frame, question, pace)
        self._scout.tell(question, frame)
        return ticket

    def free(self, team: Team) -> None:
        """Take a team back: one without processes only if there is no other."""
        if team.processes or not self.apart:
            with suppress(Closed):
                self._free.put(team)

    def stop(self) -> None:
        """Give out no more teams."""
        self._free.close(forget=True)

    def close(self) -> None:
        """End all processes."""
        self.stop()
        self._scout.close()
        for team in self._teams:
            for process in team.processes:
                process.tell()
        for team in self._teams:
            team.close()


def joined(answers: Sequence[object]) -> Done:
    """Join what came of the tasks of a frame."""
    done: Done | None = None
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Done)
        if done is None:
            done = answer
        else:
            done.lines.update(answer.lines)
            done.steps.update(answer.steps)
    assert done is not None
    return done
