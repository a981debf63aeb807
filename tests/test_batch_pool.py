"""Worker processes: the same records as without them, whatever becomes of the workers."""

import json
import multiprocessing
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from neocog import Reader
from neocog.batch import worker
from neocog.batch.dispatch import Dispatch
from neocog.batch.forms import Form
from neocog.batch.gather import Gatherer
from neocog.batch.inputs import Item, find_inputs
from neocog.batch.run import Tally, reading, usual_workers
from neocog.batch.steady import SteadyEngine
from neocog.batch.tasks import Block, Place, Task, in_order, into_tasks
from neocog.batch.work import Job
from neocog.errors import DeviceError, NeocogError, NothingToRead, UsageError
from tests.support import digits_of, save_page, tiny_model

COMMAND = [sys.executable, "-m", "neocog", "read"]
posix = pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(tiny_model(), device="cpu")


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scans")
    for number in range(24):
        save_page(folder / f"{number:02}.png", str(number))
    (folder / "05.png").write_bytes(b"broken")
    return folder


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 600 digits."""
    folder = tmp_path_factory.mktemp("single")
    for number in range(600):
        digit = digits_of(str(number % 10))[0]
        Image.fromarray(np.roll(digit, number % 3 - 1, axis=1)).save(folder / f"{number:03}.png")
    return folder


def read_all(reader: Reader, folder: Path, *, isolated: bool = False, **options: object) -> str:
    job = Job(reader, Form("jsonl"), isolated=isolated)
    with reading(job, find_inputs([folder]), **options) as blocks:  # type: ignore[arg-type]
        return "".join(block.text for block in blocks)


# --- records ----------------------------------------------------------------------------------


def test_workers_change_nothing(reader: Reader, scans: Path) -> None:
    alone = read_all(reader, scans, workers=0)
    assert [json.loads(line)["source"][-6:-4] for line in alone.splitlines()] == [
        f"{number:02}" for number in range(24)
    ]
    assert read_all(reader, scans, workers=2, ordered=True) == alone
    among = read_all(reader, scans, workers=3)
    assert sorted(among.splitlines()) == sorted(alone.splitlines())


def test_isolated_digits(reader: Reader, single: Path) -> None:
    tally = Tally()
    alone = read_all(reader, single, isolated=True, workers=0)
    assert read_all(reader, single, isolated=True, workers=2, ordered=True, tally=tally) == alone
    records = [json.loads(line) for line in alone.splitlines()]
    assert [record["text"] for record in records] == [str(n % 10) for n in range(600)]
    assert records[0]["digits"][0]["box"] == [0, 0, 28, 28]
    assert tally.seconds["network"] > 0


def test_isolated_pictures_of_any_kind(reader: Reader, tmp_path: Path) -> None:
    first, second = (Image.fromarray(255 - digits_of(d)[0]).resize((90, 90)) for d in "47")
    first.save(tmp_path / "a.tif", save_all=True, append_images=[second])
    (tmp_path / "b.png").write_bytes(b"")
    large = first.resize((3000, 3000))
    large.save(tmp_path / "c.png")
    os.mkfifo(tmp_path / "d.png")
    text = read_all(reader, tmp_path, isolated=True, workers=0)
    records = [json.loads(line) for line in text.splitlines()]
    assert [record["text"] for record in records] == ["4", "7", "", "4", ""]
    assert [record["page"] for record in records] == [0, 1, 0, 0, 0]
    assert records[3]["digits"][0]["box"] == [0, 0, 3000, 3000]
    assert "empty" in records[2]["error"]
    assert "pipe" in records[4]["error"]


def test_nothing_to_read_is_said_through_workers(reader: Reader, tmp_path: Path) -> None:
    with pytest.raises(NothingToRead):
        read_all(reader, tmp_path, workers=1)


def test_a_network_that_fails_ends_the_run(reader: Reader, scans: Path) -> None:
    class Failing(SteadyEngine):
        def recognise(self, digits: object, *, batch: object = None) -> object:
            raise DeviceError("it fell off")

    from neocog.batch.pool import Pool

    gatherer = Gatherer(Failing(reader.engine))
    job = Job(without_engine(reader), Form("jsonl"))
    with Pool(job, gatherer, workers=1) as pool, pytest.raises(DeviceError, match="fell off"):
        list(pool.run(into_tasks(find_inputs([scans]), 1)))


def without_engine(reader: Reader) -> Reader:
    from copy import copy

    other = copy(reader)
    other.engine = None  # type: ignore[assignment]
    return other


# --- workers that die -------------------------------------------------------------------------


@posix
def test_workers_that_are_killed_lose_nothing(reader: Reader, scans: Path) -> None:
    from neocog.batch.pool import Pool

    alone = read_all(reader, scans, workers=0)
    engine = SteadyEngine(reader.engine)
    gatherer = Gatherer(engine)
    with Pool(Job(without_engine(reader), Form("jsonl")), gatherer, workers=2) as pool:
        text = ""
        for count, block in enumerate(pool.run(into_tasks(find_inputs([scans]), 4))):
            text += block.text
            if count in (1, 3):
                os.kill(pool._workers[0].number, signal.SIGKILL)
    gatherer.close()
    assert sorted(text.splitlines()) == sorted(alone.splitlines())


class Deadly(Form):
    """Ends the process that writes a record of one name."""

    def render(self, reading: object) -> str:
        if "07" in str(getattr(reading, "source", "")) and getattr(reading, "error", "") is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().render(reading)  # type: ignore[arg-type]


@posix
def test_a_picture_that_kills_becomes_a_record(reader: Reader, scans: Path) -> None:
    job = Job(reader, Deadly("jsonl"))
    with reading(job, find_inputs([scans]), workers=2, ordered=True) as blocks:
        text = "".join(block.text for block in blocks)
    records = [json.loads(line) for line in text.splitlines()]
    assert len(records) == 24
    assert records[7]["error"] == (
        "cannot be read: the process that reads it was ended by SIGKILL, twice"
    )
    assert [r["source"] for r in records if r["error"]] == [
        str(scans / "05.png"), str(scans / "07.png")
    ]  # fmt: skip


class Unforeseen(Form):
    """Fails with what no picture is expected to do, over one name."""

    def render(self, reading: object) -> str:
        if "07" in str(getattr(reading, "source", "")) and getattr(reading, "error", "") is None:
            raise KeyboardInterrupt if "odd" in str(getattr(reading, "source", "")) else MemoryError
        return super().render(reading)  # type: ignore[arg-type]


@posix
@pytest.mark.parametrize("name", ["odd07.png", "large07.png"])
def test_a_thread_that_ends_ends_its_worker(reader: Reader, name: str, tmp_path: Path) -> None:
    for picture in (name, "1.png"):
        save_page(tmp_path / picture, "1")
    job = Job(reader, Unforeseen("jsonl"))
    with reading(job, find_inputs([tmp_path]), workers=2) as blocks:
        text = "".join(block.text for block in blocks)
    found = {Path(r["source"]).name: r["error"] for r in map(json.loads, text.splitlines())}
    wanted = "cannot be read: the process that reads it ended with code 1, twice"
    assert found == {name: wanted, "1.png": None}


class Ended(Exception):
    """Stands for the end of a worker process."""


def end_of(code: int) -> None:
    raise Ended(code)


def test_only_a_worker_at_its_own_work_can_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "PATIENCE", 0.05)
    monkeypatch.setattr(worker.os, "_exit", end_of)
    own, theirs = multiprocessing.Pipe()
    link = worker.Link(theirs)
    waits, steps = threading.Event(), threading.Event()

    class Slow:
        """Asks the network, and then does not get on."""

        def do(self, task: Task, *, beat: object) -> Block:
            worker._ask(link, np.zeros((1, 28, 28), np.uint8))
            waits.set()
            steps.wait(5.0)
            return Block(task.place)

    tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
    lane = worker._Lane(Slow(), link, tasks, threading.Lock())  # type: ignore[arg-type]
    lane.start()
    tasks.put(Task(Place(0), ()))
    kind, number, _ = own.recv()
    time.sleep(0.1)
    worker._watch([lane])  # the network takes its time
    link.answer(number, None)  # type: ignore[arg-type]
    waits.wait(5.0)
    time.sleep(0.1)
    with pytest.raises(Ended, match="75"):
        worker._watch([lane])
    steps.set()
    assert (kind, own.recv()[0]) == (worker.DIGITS, worker.BLOCK)


def test_one_lane_works_while_the_other_waits_for_the_network() -> None:
    own, theirs = multiprocessing.Pipe()
    link = worker.Link(theirs)
    at_work, most = [0], [0]

    class Counting:
        """Works, asks the network, and works again."""

        def do(self, task: Task, *, beat: object) -> Block:
            self.work()
            worker._ask(link, np.zeros((1, 28, 28), np.uint8))
            self.work()
            return Block(task.place)

        def work(self) -> None:
            at_work[0] += 1
            most[0] = max(most[0], at_work[0])
            time.sleep(0.02)
            at_work[0] -= 1

    tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
    turn = threading.Lock()
    for _ in range(2):
        worker._Lane(Counting(), link, tasks, turn).start()  # type: ignore[arg-type]
    for number in range(2):
        tasks.put(Task(Place(number), ()))
    asked = [own.recv()[1] for _ in range(2)]  # the second while nobody has answered the first
    for number in asked:
        link.answer(number, None)  # type: ignore[arg-type]
    assert [own.recv()[0] for _ in range(2)] == [worker.BLOCK] * 2
    assert most == [1]


# --- how many ---------------------------------------------------------------------------------


@posix
def test_no_more_workers_than_there_are_files_for(
    reader: Reader, scans: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _: (80, 4096))
    with pytest.raises(UsageError, match=r"9 workers came; .* enough for 4: .*ulimit"):
        read_all(reader, scans, workers=9)
    monkeypatch.setattr("neocog.network.engine.cores", lambda: 64)
    assert usual_workers() == 4


# --- dealing out ------------------------------------------------------------------------------


class Hand:
    """A worker that only takes."""

    def __init__(self) -> None:
        self.tasks: dict[Place, Task] = {}
        self.proven = self.open = True

    def give(self, task: Task) -> None:
        pass


def some_tasks(count: int, taken: list[int]) -> Iterator[Task]:
    for number in range(count):
        taken.append(number)
        yield Task(Place(number), (Item(str(number), str(number)), Item("x", "x")))


def deal(dispatch: Dispatch) -> None:
    for _ in range(5):  # the thread that makes tasks needs a moment
        dispatch.deal()
        time.sleep(0.02)


def test_no_more_is_begun_than_can_be_done() -> None:
    taken: list[int] = []
    hands = [Hand(), Hand()]
    dispatch = Dispatch(some_tasks(1000, taken), hands, depth=3)
    deal(dispatch)
    assert [len(hand.tasks) for hand in hands] == [3, 3]
    assert len(taken) <= 6 + 4 + 1
    dispatch.stop()


def test_pictures_that_are_carried_are_bounded_by_bytes() -> None:
    made: list[int] = []

    def heavy() -> Iterator[Task]:
        for number in range(20):
            made.append(number)
            yield Task(Place(number), (Item("x", "x"),), held=2**28)

    hands = [Hand(), Hand(), Hand(), Hand()]
    dispatch = Dispatch(heavy(), hands, depth=3)
    deal(dispatch)
    assert len(dispatch.under_way()) == 2
    assert len(made) <= 2 + 4
    for hand in hands:
        hand.tasks.clear()
    deal(dispatch)
    assert len(dispatch.under_way()) == 2
    dispatch.stop()


def test_nothing_is_given_to_who_is_not_there() -> None:
    hands = [Hand(), Hand()]
    hands[0].open = False
    dispatch = Dispatch(some_tasks(9, []), hands, depth=2)
    deal(dispatch)
    assert [len(hand.tasks) for hand in hands] == [0, 2]
    dead, hands[1] = hands[1], Hand()
    dispatch.died(dead, "was ended")
    deal(dispatch)
    assert [len(hand.tasks) for hand in hands] == [0, 1]
    dispatch.stop()


def test_order_bounds_what_waits() -> None:
    hands = [Hand(), Hand()]
    dispatch = Dispatch(some_tasks(1000, []), hands, depth=9, window=4)
    deal(dispatch)
    assert sorted(task.place.number for task in dispatch.under_way()) == [0, 1, 2, 3]
    hand = next(hand for hand in hands if Place(1) in hand.tasks)
    del hand.tasks[Place(1)]
    deal(dispatch)
    assert len(dispatch.under_way()) == 3  # 0 is not done
    dispatch.stop()


def test_what_a_dead_worker_had_is_tried_alone() -> None:
    hands = [Hand(), Hand()]
    dispatch = Dispatch(some_tasks(50, []), hands, depth=1)
    deal(dispatch)
    dead = hands[0]
    (lost,) = dead.tasks.values()
    hands[0] = Hand()
    dispatch.died(dead, "was ended")
    deal(dispatch)
    (again,) = hands[0].tasks.values()
    assert again.items == lost.items[:1]
    assert again.place == Place(lost.place.number, 0, 2)
    assert again.deaths == 1
    fresh = Hand()
    fresh.proven = False
    dispatch.died(fresh, "x")
    dispatch.died(fresh, "x")
    with pytest.raises(NeocogError, match="cannot be started"):
        dispatch.died(fresh, "x")
    dispatch.stop()


def test_false_starts_count_in_succession() -> None:
    hands = [Hand()]
    dispatch = Dispatch(some_tasks(50, []), hands, depth=1)
    fresh = Hand()
    fresh.proven = False
    for _ in range(9):
        deal(dispatch)
        dispatch.finished(hands[0], next(iter(hands[0].tasks)))
        dispatch.died(fresh, "was ended")
    dispatch.died(fresh, "was ended")
    with pytest.raises(NeocogError, match="cannot be started"):
        dispatch.died(fresh, "was ended")
    dispatch.stop()


def test_parts_of_a_task_come_in_order() -> None:
    places = [Place(0), Place(1, 0, 3), Place(1, 1, 3), Place(1, 2, 3), Place(2), Place(3, 0, 1)]
    for seed in range(20):
        mixed = random.Random(seed).sample(places, len(places))
        assert [block.place for block in in_order(Block(place) for place in mixed)] == places


# --- passes -----------------------------------------------------------------------------------


def test_answers_do_not_depend_on_the_company(reader: Reader) -> None:
    engine = SteadyEngine(reader.engine)
    digits = digits_of("0123456789" * 3)
    whole = engine.recognise(digits)
    assert len(whole) == 30
    for order in (np.arange(30)[::-1], np.random.default_rng(0).permutation(30)):
        for size in (1, 7, 30):
            some = order[:size]
            answers = engine.recognise(digits[some])
            np.testing.assert_array_equal(answers.score, whole.score[some])
            np.testing.assert_array_equal(answers.p, whole.p[some])


class Slow(SteadyEngine):
    """An engine that is at work until ``busy`` is set; remembers how many digits came at a time."""

    def __init__(self, engine: Any) -> None:
        super().__init__(engine)
        self.sizes: list[int] = []
        self.begun, self.busy = threading.Event(), threading.Event()

    def recognise(self, digits: np.ndarray, *, batch: int | None = None) -> object:  # type: ignore[override]
        self.sizes.append(len(digits))
        self.begun.set()
        self.busy.wait(5.0)
        return super().recognise(digits)


def test_digits_are_gathered_while_the_network_is_busy(reader: Reader) -> None:
    slow = Slow(reader.engine)
    gatherer = Gatherer(slow)  # type: ignore[arg-type]
    digits = digits_of("0123456789")
    came: dict[int, np.ndarray] = {}
    for number in range(10):
        gatherer.submit(
            digits[number : number + 1],
            lambda answers, number=number: came.__setitem__(number, answers.label),  # type: ignore[misc]
        )
        slow.begun.wait(5.0)
    slow.busy.set()
    assert gatherer.recognise(digits[3:5]).label.tolist() == [3, 4]
    gatherer.close()
    assert slow.sizes[0] == 1
    assert len(slow.sizes) <= 3
    assert gatherer.digits == sum(slow.sizes) == 12
    assert [came[number].tolist() for number in range(10)] == [[number] for number in range(10)]


def test_what_nobody_waits_for_is_not_recognised(reader: Reader) -> None:
    slow = Slow(reader.engine)
    gatherer = Gatherer(slow)  # type: ignore[arg-type]
    many = digits_of("0" * gatherer._engine.batch)
    for _ in range(5):
        gatherer.submit(many, lambda answers: None)
    slow.begun.wait(5.0)
    threading.Timer(0.1, slow.busy.set).start()
    gatherer.close()
    assert len(slow.sizes) == 1


# --- as a process -----------------------------------------------------------------------------


@posix
def test_killed_and_resumed(model: str, scans: Path, tmp_path: Path) -> None:
    words = [str(scans), "--model", model, "--workers", "2", "-o"]
    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    subprocess.run([*COMMAND, *words, str(whole)], capture_output=True, check=False)
    for _ in range(2):
        process = subprocess.Popen(
            [*COMMAND, *words, str(out), "--resume"], stderr=subprocess.DEVNULL
        )
        size = out.stat().st_size if out.exists() else 0
        end = time.monotonic() + 30
        while time.monotonic() < end and (not out.exists() or out.stat().st_size <= size):
            time.sleep(0.01)
        process.kill()
        process.wait()
    done = subprocess.run([*COMMAND, *words, str(out), "--resume"], capture_output=True)
    assert done.returncode == 1
    assert sorted(out.read_bytes().splitlines()) == sorted(whole.read_bytes().splitlines())


@posix
def test_ctrl_c_with_workers(model: str, scans: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    process = subprocess.Popen(
        [*COMMAND, "-", "--model", model, "--workers", "2", "-o", str(out)],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    process.stdin.write(f"{scans}/00.png\n{scans}/01.png\n".encode())
    process.stdin.flush()  # and the command waits for more
    end = time.monotonic() + 60
    while time.monotonic() < end and (not out.exists() or out.read_bytes().count(b"\n") < 2):
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, b"neocog: interrupted\n")
    assert sorted(json.loads(line)["text"] for line in out.read_text().splitlines()) == ["0", "1"]


@posix
def test_head_ends_it_quietly_with_workers(model: str, single: Path) -> None:
    command = [*COMMAND, str(single), "--isolated", "--model", model, "--workers", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 0
