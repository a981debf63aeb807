"""The search in processes of its own: several at one frame, and several frames at a time.

Search and network are Python as much as they are OpenCV and NumPy, and threads of one process take
turns at Python. With two cores one process searches. Where there are more, the parts of a frame
are searched by a team at the same time: it is found as soon as its longest part is. Frames take
turns at the teams and come out in their order. One process more then goes ahead as a scout
(`neocog.live.split`).
"""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from neocog.errors import UsageError
from neocog.live.finder import Finder, joined
from neocog.live.frames import Closed, Frame, Handoff
from neocog.live.look import Found, Roi
from neocog.live.process import BROKEN, Board, Process, Question
from neocog.live.split import Hints, Task
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
        self._hints: Hints | None = None
        self._cuts = cuts
        self._board = Board()
        self._process: Process | None = None
        self._news: Handoff[tuple[Question, Frame]] = Handoff(newest=True)
        self._thread = threading.Thread(target=self._run, name="neocog-scout", daemon=True)

    @property
    def there(self) -> bool:
        """Whether its process is there."""
        return self._process is not None

    def hints(self, epoch: int) -> Hints | None:
        """Return what it knows of an epoch; None before it saw a frame of it, and without it."""
        hints = self._hints
        return hints if hints and hints.epoch == epoch else None

    def start(self) -> None:
        """Start its process."""
        self._process = next(iter(begun(1, self._board, cuts=self._cuts)), None)

    def wait(self) -> None:
        """Wait until it is ready."""
        if self._process is not None:
            self._process = next(iter(ready([self._process])), None)
        if self._process is not None:
            try:
                self._thread.start()
            except RuntimeError:  # no thread more can be had: the teams search all themselves
                self.close()

    def tell(self, question: Question, frame: Frame) -> None:
        """Tell it of a new frame."""
        with suppress(Closed):
            self._news.put((question, frame))

    def kill(self) -> None:
        """End its process, without waiting until it is gone."""
        self._news.close(forget=True)
        if process := self._process:
            process.kill()

    def close(self) -> None:
        """End its process."""
        self.kill()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)
        if process := self._process:
            process.close()
        self._process = None
        self._board.close()

    def _run(self) -> None:
        process = self._process
        assert process is not None
        try:
            self._scout(process)
        finally:  # nothing that it knew steers a search any more
            self._hints = self._process = None
            self._news.close(forget=True)
            process.close()

    def _scout(self, process: Process) -> None:
        chosen = 0.0
        with suppress(Closed, *BROKEN):
            while True:
                question, frame = self._news.get()
                now = time.perf_counter()
                hints = self.hints(frame.epoch)
                chooses = hints is None or now - chosen > _CHOSEN
                task = Task(hints=hints, scouts=True, chooses=chooses)
                pixels = None if self._board.put(frame.pixels) else frame.pixels
                process.ask(replace(question, task=task), pixels)
                answer = process.answer()
                # where it fails the teams search all themselves, and raise what they meet
                self._hints = answer if isinstance(answer, Hints) else None
                chosen = now if chooses else chosen


class Team:
    """Processes that search one frame together.

    The frame that one of them ends at is searched in this one, and all frames where none is left.

    Parameters
    ----------
    scout : Scout
    each : int
        Processes.
    cuts : bool
        Whether marks that may be several digits are kept; they are not cut apart.
    """

    def __init__(self, scout: Scout | None, each: int, *, cuts: bool = True) -> None:
        self._scout, self._each, self._cuts = scout, each, cuts
        self._board = Board()
        self._finder = Finder(cuts=cuts)
        self.processes: list[Process] = []
        self._asked: list[Process] = []

    def start(self) -> None:
        """Start the processes."""
        self.processes = begun(self._each, self._board, cuts=self._cuts)

    def wait(self) -> None:
        """Wait until they are ready; go on with those that are, or in this process."""
        self.processes = ready(self.processes)
        if not self.processes:
            self._finder.warm()

    def kill(self) -> None:
        """End the processes, without waiting until they are gone."""
        for process in list(self.processes):  # whoever waits for one takes it out
            process.kill()

    def close(self) -> None:
        """End the processes."""
        self.kill()
        for process in list(self.processes):
            self._drop(process)
        self._board.close()

    def ask(self, question: Question, frame: Frame) -> None:
        """Put the processes to work at a frame."""
        self._asked = list(self.processes)
        hints = self._scout.hints(frame.epoch) if self._scout is not None else None
        task = replace(question.task, every=len(self._asked), hints=hints)
        pixels = None if self._asked and self._board.put(frame.pixels) else frame.pixels
        for first, process in enumerate(self._asked):
            try:
                process.ask(replace(question, task=replace(task, first=first)), pixels)
            except BROKEN:
                self._drop(process)

    def answer(self, frame: Frame) -> Found | None:
        """Wait for what they find; None where one of them is no more."""
        answers = []
        for process in self._asked:
            try:
                answers.append(process.answer())
            except BROKEN:
                self._drop(process)
        if not answers or len(answers) < len(self._asked):
            return None
        return joined(answers).found(frame, time.perf_counter())

    def find(self, question: Question, frame: Frame) -> Found:
        """Search in this process."""
        return self._finder.find(
            frame,
            roi=question.roi,
            tracks=question.tracks,
            steps=question.steps,
            pace=question.task.pace,
            turn=question.task.turn,
        )

    def _drop(self, process: Process) -> None:
        """Go on without a process."""
        process.close()
        with suppress(ValueError):  # whoever closes the team was first
            self.processes.remove(process)


class Ticket:
    """A frame that is searched."""

    def __init__(self, crew: "Crew", team: Team, frame: Frame, question: Question) -> None:
        self._crew, self._team, self._frame = crew, team, frame
        self._start = time.perf_counter()
        self._question = question
        team.ask(question, frame)

    def found(self) -> Found:
        """Wait for what was found.

        Raises
        ------
        Closed
            If the crew was stopped before.
        """
        try:
            found = self._team.answer(self._frame)
            if found is None and self._crew.stopped:
                raise Closed
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
        self._scout = Scout(cuts=cuts) if teams != Teams() else None
        self._teams = [Team(self._scout, teams.each, cuts=cuts) for _ in range(teams.count)]
        self._free: Handoff[Team] = Handoff(newest=False, depth=teams.count)
        self._turn = 0  # frames that were asked for
        self.stopped = False  # nobody wants what is still searched

    @property
    def apart(self) -> bool:
        """Whether any processes are there."""
        return any(team.processes for team in self._teams)

    @property
    def scouted(self) -> bool:
        """Whether a scout is meant to go ahead: where there are cores for all."""
        return self._scout is not None

    @property
    def teams(self) -> int:
        """Frames that may be searched at a time."""
        return len(self._teams)

    def warm(self) -> None:
        """Start all processes, and wait until they have loaded all that they need."""
        if self._scout is not None:
            self._scout.start()
        for team in self._teams:
            team.start()
        if self._scout is not None:
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
        task = Task(pace=pace, turn=self._turn)
        question = Question(
            frame.index, frame.pixels.shape, roi, tuple(tracks), steps, task, frame.epoch
        )
        ticket = Ticket(self, team, frame, question)
        self._turn += 1
        if self._scout is not None:
            self._scout.tell(question, frame)
        return ticket

    def free(self, team: Team) -> None:
        """Take a team back: one without processes only if there is no other."""
        if team.processes or not self.apart:
            with suppress(Closed):
                self._free.put(team)

    def stop(self) -> None:
        """Give out no more teams."""
        self.stopped = True
        self._free.close(forget=True)

    def kill(self) -> None:
        """End all processes, without waiting until they are gone; whoever waits for one is told."""
        self.stop()
        for part in self._parts():
            part.kill()

    def close(self) -> None:
        """End all processes."""
        self.kill()
        for part in self._parts():
            part.close()

    def _parts(self) -> "list[Scout | Team]":
        return [*self._teams, *filter(None, [self._scout])]


def begun(count: int, board: Board, *, cuts: bool) -> list[Process]:
    """Start processes, all at once; those that can be started."""
    processes: list[Process] = []
    try:
        for _ in range(count):
            processes.append(Process(board, cuts=cuts))
    except OSError:
        pass
    except BaseException:  # Ctrl-C: nobody knows of them yet
        for process in processes:
            process.close()
        raise
    return processes


def ready(processes: list[Process]) -> list[Process]:
    """Wait until processes are ready; return those that are."""
    able = []
    for process in processes:
        try:
            process.answer()
        except BROKEN:
            process.close()
        else:
            able.append(process)
    return able
