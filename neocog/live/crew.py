"""Several search processes at one frame, and several frames at a time, where there are the cores.

Of one frame, some processes search its parts and one judges the ink (`neocog.live.split`): it is
found as soon as its longest part is. Frames take turns at such teams and come out in their order.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Lock

from neocog.errors import UsageError
from neocog.live.apart import begun, ready
from neocog.live.finder import Finder
from neocog.live.frames import Closed, Frame, Handoff
from neocog.live.ink import JUDGED_EVERY, Polarity
from neocog.live.look import Found, Ready, Roi
from neocog.live.process import BROKEN, Board, Process, Question
from neocog.live.split import Done, Task, of
from neocog.live.tracks import Track

_SHEETS = 2  # of a frame
_INVERTS = 4  # a team of so many has a process for the ink that is not thought of


@dataclass(frozen=True, slots=True)
class Teams:
    """How many processes search.

    Attributes
    ----------
    count : int
        Frames that are searched at a time, each by a team.
    each : int
        Processes of a team; of two or more the last one judges.
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
        if cores >= 16:
            return Teams(3, 4)
        if cores >= 8:
            return Teams(2, 3)
        return Teams(1, 3) if cores >= 4 else Teams()


class Ink:
    """What is known of the ink in view, by all teams together."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._polarity = Polarity()
        self._guess: dict[int, bool] = {}
        self._channel: int | None = None
        self._left = 0

    def task(self, pace: int) -> Task:
        """Return a task that knows it."""
        with self._lock:
            inks = {sheet: self._polarity.of(sheet) for sheet in range(_SHEETS)}
            known = {sheet: ink for sheet, ink in inks.items() if ink != "auto"}
            chooses = self._left <= 0
            self._left = JUDGED_EVERY * pace if chooses else self._left - 1
            return Task(
                inks=known,
                guess=dict(self._guess),
                channel=self._channel,
                chooses=chooses,
                pace=pace,
            )

    def note(self, done: Done) -> None:
        """Take what all tasks of a frame found together."""
        with self._lock:
            for number, part in enumerate(done.parts):
                if part.sheet:
                    dark = done.ink(number)
                    written = bool(done.lines[number, dark])
                    self._polarity.note(number, written=written, dark=dark)
            for number, dark in done.dark.items():
                self._guess[of(number, done.parts[number])] = dark
            if done.channel:
                self._channel = done.channel[0]


class Team:
    """Processes that search one frame together; without any left, this one searches.

    Parameters
    ----------
    ink : Ink
    each : int
        Processes.
    cuts : bool
        Whether marks that may be several digits are kept; they are not cut apart.
    """

    def __init__(self, ink: Ink, each: int, *, cuts: bool = True) -> None:
        self._ink, self._each, self._cuts = ink, each, cuts
        self._board = Board()
        self._finder = Finder(cuts=cuts)
        self._later: Process | None = None  # one whose answer may not be needed
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
        processes, self.processes, self._later = self.processes, [], None
        for process in processes:
            process.tell()
        for process in processes:
            process.close()
        self._board.close()

    def ask(self, question: Question, frame: Frame, pace: int) -> list[Question]:
        """Put the processes to work at a frame; return what each was asked."""
        tasks = divided(self._ink.task(pace), len(self.processes))
        questions = [replace(question, task=own) for own in tasks]
        try:
            if self._later is not None:
                self._later.answer()  # of the frame before, where nobody needed it
            pixels = None if self._board.put(frame.pixels) else frame.pixels
            for process, own in zip(self.processes, questions, strict=False):
                process.ask(own, pixels)
            inverts = [own.task is not None and own.task.inverts for own in questions]
            self._later = self.processes[inverts.index(True)] if any(inverts) else None
        except BROKEN:
            self.close()
        return questions

    def answer(self, questions: list[Question], frame: Frame) -> Found | None:
        """Wait for what they find; None where they are no more."""
        if not self.processes:
            return None
        try:
            done = self._together(questions, frame)
        except BROKEN:
            self.close()
            return None
        self._ink.note(done)
        lines = tuple(
            Ready(done.lines[number, done.ink(number)]) for number in range(len(done.parts))
        )
        return Found(frame, lines, done.parts, done.bounds, 0.0, done.steps)

    def find(self, question: Question, frame: Frame) -> Found:
        """Search in this process."""
        return self._finder.find(
            frame, roi=question.roi, tracks=question.tracks, steps=question.steps
        )

    def _together(self, questions: list[Question], frame: Frame) -> Done:
        """Collect the answers; what was searched for ink that it has not is asked for then."""
        done = joined([one.answer() for one in self.processes if one is not self._later])
        if done.wrong() and self._later is not None:
            later, self._later = self._later, None
            done = joined([done, later.answer()])
        if wrong := done.wrong():
            task = questions[0].task
            assert task is not None
            pixels = None if self._board.file is not None else frame.pixels
            again = replace(task, again=wrong, judges=False, chooses=False)
            self.processes[0].ask(replace(questions[0], task=again), pixels)
            done = joined([done, self.processes[0].answer()])
        return done


class Ticket:
    """A frame that is searched."""

    def __init__(
        self, crew: "Crew", team: Team, frame: Frame, question: Question, pace: int
    ) -> None:
        self._crew, self._team, self._frame = crew, team, frame
        self._start = time.perf_counter()
        self._question = question
        self._asked = team.ask(question, frame, pace)

    def found(self) -> Found:
        """Wait for what was found."""
        try:
            found = self._team.answer(self._asked, self._frame)
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
        ink = Ink()
        self._teams = [Team(ink, teams.each, cuts=cuts) for _ in range(teams.count)]
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
        for team in self._teams:
            team.start()
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
        return Ticket(self, team, frame, question, pace)

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
        for team in self._teams:
            for process in team.processes:
                process.tell()
        for team in self._teams:
            team.close()


def divided(task: Task, each: int) -> list[Task]:
    """Divide a frame's task over a team of so many processes."""
    if each < 2:
        return [replace(task, judges=True)]
    searching = each - 1 - (each >= _INVERTS)
    tasks = [replace(task, first=n, every=searching, chooses=False) for n in range(searching)]
    if each >= _INVERTS:
        tasks.append(replace(task, every=0, inverts=True, chooses=False))
    return [*tasks, replace(task, every=0, judges=True)]


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
            done.add(answer)
    assert done is not None
    return done
