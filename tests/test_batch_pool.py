"""Worker processes: the same records as without them, whatever becomes of the workers."""

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from neocog import Reader
from neocog.batch import worker
from neocog.batch.batching import FixedBatches, Networks
from neocog.batch.formats import Format
from neocog.batch.inputs import Item, find_inputs
from neocog.batch.pool import Pool
from neocog.batch.run import Tally, reading, usual_workers
from neocog.batch.scheduler import Scheduler
from neocog.batch.tasks import Block, Job, Task, in_order, into_tasks
from neocog.errors import DeviceError, EndedEarly, NothingToRead, UsageError
from neocog.forkserver import ForkServer
from tests.faults import Faulty, GpuFinder
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
    job = Job(reader, Format("jsonl"), isolated=isolated)
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
    class Failing(FixedBatches):
        def recognise(self, digits: object, *, batch: object = None) -> object:
            raise DeviceError("it fell off")

    networks = Networks(Failing(reader.engine))
    with pytest.raises(DeviceError, match="fell off"), pool_of(reader, networks, workers=1) as pool:
        list(pool.run(into_tasks(find_inputs([scans]), 1)))


def pool_of(reader: Reader, networks: Networks | None = None, **options: Any) -> Pool:
    networks = networks or Networks(FixedBatches(reader.engine))
    return Pool(Job(reader, Format("jsonl")), networks, **options)


# --- workers that die -------------------------------------------------------------------------


@posix
def test_workers_that_are_killed_lose_nothing(reader: Reader, scans: Path) -> None:
    alone = read_all(reader, scans, workers=0)
    with pool_of(reader, workers=2) as pool:
        text = ""
        for count, block in enumerate(pool.run(into_tasks(find_inputs([scans]), 4))):
            text += block.text
            if count == 1:
                os.kill(pool._workers[0].number, signal.SIGKILL)
    assert sorted(text.splitlines()) == sorted(alone.splitlines())


def faults(reader: Reader, folder: Path, *names: str) -> dict[str, str | None]:
    """Read good pictures among some that do to a worker what their names say."""
    for name in (*names, *(f"good{number}" for number in range(9))):
        save_page(folder / f"{name}.png", "1")
    with reading(Job(reader, Faulty("jsonl")), find_inputs([folder]), workers=2) as blocks:
        records = [json.loads(line) for block in blocks for line in block.text.splitlines()]
    assert len(records) == 9 + len(names)
    return {Path(r["source"]).stem: r["error"] for r in records if not r["text"]}


_FAILS = "cannot be read: twice, the process that reads it {}"


@posix
def test_pictures_that_end_a_worker_become_records(reader: Reader, tmp_path: Path) -> None:
    assert faults(reader, tmp_path, "killed", "odd", "large") == {
        "killed": _FAILS.format("was ended by SIGKILL"),
        "odd": _FAILS.format("ended with code 1"),
        "large": _FAILS.format("needed more than 1.5 GB"),
    }


@posix
def test_what_may_cost_much_is_read_in_a_worker_however_few_there_are(
    reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_light(source: object) -> bool:
        return "heavy" not in str(source)

    monkeypatch.setattr("neocog.vision.decode.is_light", is_light)
    for name in ("1", "2-heavy", "3-heavy-large", "4-heavy-killed", "5"):
        save_page(tmp_path / f"{name}.png", "7")
    started: list[int] = []
    start = ForkServer.start
    monkeypatch.setattr(ForkServer, "start", lambda own: started.append(1) or start(own))
    job = Job(reader, Faulty("jsonl"))
    for workers in (None, 0):
        with reading(job, find_inputs([tmp_path]), workers=workers) as blocks:
            records = [json.loads(block.text) for block in blocks]
        assert [record["text"] for record in records] == ["7", "7", "", "", "7"]
        assert "twice, the process that reads it needed more than 1.5 GB" in records[2]["error"]
        assert "SIGKILL" in records[3]["error"]
    assert len(started) == 10  # for the first heavy one, and after each of four deaths
    with reading(job, find_inputs([tmp_path / "1.png", tmp_path / "5.png"])) as blocks:
        assert [block.failed for block in blocks] == [0, 0]
    assert len(started) == 10


@posix
def test_pictures_that_make_a_worker_silent_become_records(
    reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neocog.batch.pool.PATIENCE", 2.0)
    why = _FAILS.format("took longer than 2 s")
    assert faults(reader, tmp_path, "stopped", "locked") == {"stopped": why, "locked": why}


@posix
def test_workers_that_are_stopped_at_birth_or_idle(reader: Reader, scans: Path) -> None:
    items = list(find_inputs([scans]))
    with pool_of(reader, workers=2, patience=1.0) as pool:
        for worker in pool._workers:
            os.kill(worker.number, signal.SIGSTOP)
        assert sum(block.inputs for block in pool.run(into_tasks(items, 1))) == 24
        large = [Item(f"{n}.png", f"{n}.png", data=bytes(2**22)) for n in range(4)]
        os.kill(pool._workers[0].number, signal.SIGSTOP)  # it is sent more than a pipe holds
        assert sum(block.inputs for block in pool.run(into_tasks(large, 1))) == 4


@posix
def test_who_waits_for_the_network_or_for_us_is_not_silent(reader: Reader, scans: Path) -> None:
    class Slow(FixedBatches):
        def recognise(self, digits: Any, *, batch: int | None = None) -> Any:
            time.sleep(1.0)
            return super().recognise(digits)

    items = list(find_inputs([scans]))[:4]
    with pool_of(reader, Networks(Slow(reader.engine)), workers=1, patience=0.6) as pool:
        first = pool._workers[0]
        for block in pool.run(into_tasks(items, 1)):
            time.sleep(1.0)  # nobody takes what it has to say
            assert not block.failed
        assert pool._workers[0] is first


@posix
def test_what_forks_workers_may_end(reader: Reader, scans: Path) -> None:
    items = list(find_inputs([scans]))
    with pool_of(reader, workers=2) as pool:
        count = 0
        for block in pool.run(into_tasks(items, 1)):
            if count == 0:
                pool._server._process.kill()
                os.kill(pool._workers[1].number, signal.SIGKILL)
            count += block.inputs
        assert count == 24
    assert pool._server._process is None


@posix
def test_workers_that_cannot_be_had_end_the_run(
    reader: Reader, scans: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neocog.batch.pool.PRELOAD", ["neocog", "no_such_module"])
    with pytest.raises(EndedEarly, match=r"cannot be started: ModuleNotFoundError"):
        read_all(reader, scans, workers=1)
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(EndedEarly, match=r"cannot be started: .*No such file"):
        read_all(reader, scans, workers=1)


def test_records_that_are_missing_are_an_error(
    reader: Reader, scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from neocog.batch import request, run

    monkeypatch.setattr(
        Job, "do", lambda self, task, beat=None: Block(task.first, inputs="03" not in str(task))
    )
    wanted = request.Request((str(scans),), Format("jsonl"), str(tmp_path / "x.jsonl"), workers=0)
    with pytest.raises(EndedEarly, match="24 inputs were found but only 23 gave records"):
        run.read_all(wanted, reader)


def test_one_thread_works_while_the_other_waits_for_the_network(reader: Reader) -> None:
    own, theirs = multiprocessing.Pipe()
    at_work, most = [0], [0]

    class Counting(Job):
        """Works, asks the network, and works again."""

        def do(self, task: Task, *, beat: object = None) -> Block:
            self.work()
            self.reader.engine.recognise(np.zeros((1, 28, 28), np.uint8))
            self.work()
            return Block(task.first)

        def work(self) -> None:
            at_work[0] += 1
            most[0] = max(most[0], at_work[0])
            time.sleep(0.02)
            at_work[0] -= 1

    inside = worker.Worker(theirs, Counting(copy(reader), Format("jsonl")), 2, 1.0)
    for number in range(2):
        inside._tasks.put(Task(number, ()))
    asked = [own.recv()[1] for _ in range(2)]  # the second while nobody has answered the first
    for number in asked:
        inside._waiting.pop(number).set_result(None)
    assert [own.recv()[0] for _ in range(2)] == [worker.BLOCK] * 2
    assert most == [1]


# --- how many ---------------------------------------------------------------------------------


@posix
def test_no_more_workers_than_there_are_files_for(
    reader: Reader, scans: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _: (68, 4096))
    with pytest.raises(UsageError, match=r"got 9 workers, .* files allows 4; .*ulimit"):
        read_all(reader, scans, workers=9)
    monkeypatch.setattr("neocog.network.parallel.cores", lambda: 64)
    assert usual_workers() == 4


# --- dealing out ------------------------------------------------------------------------------


class Hand:
    """A worker that only takes."""

    def __init__(self) -> None:
        self.tasks: dict[int, Task] = {}
        self.proven = self.open = True

    def give(self, task: Task) -> None:
        pass


def some_tasks(count: int, taken: list[int]) -> Iterator[Task]:
    for number in range(count):
        taken.append(number)
        yield Task(2 * number, (Item(str(number), str(number)), Item("x", "x")))


def deal(scheduler: Scheduler) -> None:
    for _ in range(5):  # the thread that makes tasks needs a moment
        scheduler.deal()
        time.sleep(0.02)


def test_no_more_is_begun_than_can_be_done() -> None:
    taken: list[int] = []
    hands = [Hand(), Hand()]
    scheduler = Scheduler(some_tasks(1000, taken), hands, depth=3)
    deal(scheduler)
    assert [len(hand.tasks) for hand in hands] == [3, 3]
    assert len(taken) <= 6 + 4 + 1
    scheduler.stop()


class Heavy(Task):
    held = 2**28  # type: ignore[assignment]


def test_pictures_that_are_carried_are_bounded_by_bytes() -> None:
    made: list[int] = []

    def heavy() -> Iterator[Task]:
        for number in range(20):
            made.append(number)
            yield Heavy(number, (Item("x", "x"),))

    hands = [Hand(), Hand(), Hand(), Hand()]
    scheduler = Scheduler(heavy(), hands, depth=3)
    deal(scheduler)
    assert len(scheduler.under_way()) == 2
    assert len(made) <= 2 + 4
    for hand in hands:
        hand.tasks.clear()
    deal(scheduler)
    assert len(scheduler.under_way()) == 2
    scheduler.stop()


def test_nothing_is_given_to_who_is_not_there() -> None:
    hands = [Hand(), Hand()]
    hands[0].open = False
    scheduler = Scheduler(some_tasks(9, []), hands, depth=2)
    deal(scheduler)
    assert [len(hand.tasks) for hand in hands] == [0, 2]
    dead, hands[1] = hands[1], Hand()
    scheduler.died(dead, "was ended")
    deal(scheduler)
    assert [len(hand.tasks) for hand in hands] == [0, 1]
    scheduler.stop()


def test_order_bounds_what_waits() -> None:
    hands = [Hand(), Hand()]
    scheduler = Scheduler(some_tasks(1000, []), hands, depth=9, window=8)
    deal(scheduler)
    assert sorted(task.first for task in scheduler.under_way()) == [0, 2, 4, 6]
    hand = next(hand for hand in hands if 2 in hand.tasks)
    del hand.tasks[2]
    deal(scheduler)
    assert len(scheduler.under_way()) == 3  # 0 is not done
    scheduler.stop()


def test_what_a_dead_worker_had_is_tried_alone() -> None:
    hands = [Hand(), Hand()]
    scheduler = Scheduler(some_tasks(50, []), hands, depth=1)
    deal(scheduler)
    dead = hands[0]
    (lost,) = dead.tasks.values()
    hands[0] = Hand()
    scheduler.died(dead, "was ended")
    deal(scheduler)
    (again,) = hands[0].tasks.values()
    assert again.items == lost.items[:1]
    assert (again.first, again.deaths) == (lost.first, 1)
    fresh = Hand()
    fresh.proven = False
    scheduler.died(fresh, "x")
    scheduler.died(fresh, "x")
    with pytest.raises(EndedEarly, match="cannot be started"):
        scheduler.died(fresh, "x")
    scheduler.stop()


def test_false_starts_count_in_succession() -> None:
    hands = [Hand()]
    scheduler = Scheduler(some_tasks(50, []), hands, depth=1)
    fresh = Hand()
    fresh.proven = False
    for _ in range(9):
        deal(scheduler)
        scheduler.finished(hands[0], next(iter(hands[0].tasks)))
        scheduler.died(fresh, "was ended")
    scheduler.died(fresh, "was ended")
    with pytest.raises(EndedEarly, match="cannot be started"):
        scheduler.died(fresh, "was ended")
    scheduler.stop()


def test_blocks_are_put_in_order() -> None:
    blocks = [Block(0, inputs=1), Block(1, inputs=3), Block(4, inputs=2), Block(6, inputs=1)]
    for seed in range(20):
        mixed = random.Random(seed).sample(blocks, len(blocks))
        assert [block.first for block in in_order(mixed)] == [0, 1, 4, 6]


# --- passes -----------------------------------------------------------------------------------


def test_answers_do_not_depend_on_the_company(reader: Reader) -> None:
    engine = FixedBatches(reader.engine)
    digits = digits_of("0123456789" * 3)
    whole = engine.recognise(digits)
    assert len(whole) == 30
    for order in (np.arange(30)[::-1], np.random.default_rng(0).permutation(30)):
        for size in (1, 7, 30):
            some = order[:size]
            answers = engine.recognise(digits[some])
            np.testing.assert_array_equal(answers.score, whole.score[some])
            np.testing.assert_array_equal(answers.p, whole.p[some])


class Slow(FixedBatches):
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


def test_digits_share_a_pass_while_the_network_is_busy(reader: Reader) -> None:
    slow = Slow(reader.engine)
    networks = Networks(slow)
    digits = digits_of("0123456789")
    came: dict[int, np.ndarray] = {}
    for number in range(10):
        networks.submit(
            (digits[number : number + 1],),
            lambda answers, number=number: came.__setitem__(number, answers.label),
        )
        slow.begun.wait(5.0)
    slow.busy.set()
    assert networks.ask(digits[3:5]).label.tolist() == [3, 4]
    networks.close()
    assert slow.sizes[0] == 1
    assert len(slow.sizes) <= 3
    assert networks.digits.answered == sum(slow.sizes) == 12
    assert [came[number].tolist() for number in range(10)] == [[number] for number in range(10)]


def test_what_nobody_waits_for_is_not_recognised(reader: Reader) -> None:
    slow = Slow(reader.engine)
    networks = Networks(slow)
    many = digits_of("0" * slow.batch)
    for _ in range(5):
        networks.submit((many,), lambda answers: None)
    slow.begun.wait(5.0)
    threading.Timer(0.1, slow.busy.set).start()
    networks.close()
    assert len(slow.sizes) == 1


def test_workers_ask_for_the_finder_of_a_gpu(reader: Reader, scans: Path) -> None:
    other = copy(reader)
    other.finder = finder = GpuFinder(reader.finder)  # type: ignore[assignment]
    texts = read_all(other, scans, workers=2, ordered=True)
    assert finder.asked >= 23
    assert texts == read_all(reader, scans, workers=0)


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
