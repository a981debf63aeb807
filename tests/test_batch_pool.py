"""Worker processes: the same records as without them, whatever becomes of the workers."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from neocog import Reader
from neocog.batch import worker
from neocog.batch.batching import Batcher, FixedBatches, Networks
from neocog.batch.formats import Format
from neocog.batch.inputs import find_inputs
from neocog.batch.pool import Pool, WorkerDied, do, run_tasks
from neocog.batch.run import Tally, reading, usual_workers
from neocog.batch.sources import Item
from neocog.batch.tasks import Block, Job, Task, in_order, into_tasks
from neocog.errors import DeviceError, EndedEarly, NothingToRead, UsageError
from neocog.forkserver import ForkServer
from tests.faults import Faulty, GpuFinder
from tests.support import digits_of, run, save_page, tiny_model

COMMAND = [sys.executable, "-m", "neocog", "read"]
COUNT = 14
posix = pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(tiny_model(), device="cpu")


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scans")
    for number in range(COUNT):
        save_page(folder / f"{number:02}.png", str(number))
    (folder / "05.png").write_bytes(b"broken")
    return folder


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 300 digits."""
    folder = tmp_path_factory.mktemp("single")
    for number in range(300):
        digit = digits_of(str(number % 10))[0]
        Image.fromarray(np.roll(digit, number % 3 - 1, axis=1)).save(folder / f"{number:03}.png")
    return folder


def read_all(reader: Reader, folder: Path, *, isolated: bool = False, **options: object) -> str:
    job = Job(reader, Format("jsonl"), isolated=isolated)
    with reading(job, find_inputs([folder]), **options) as blocks:  # type: ignore[arg-type]
        return "".join(block.text for block in blocks)


@pytest.fixture(scope="module")
def alone(reader: Reader, scans: Path) -> str:
    """What is read with no worker."""
    return read_all(reader, scans, workers=0)


# --- records ----------------------------------------------------------------------------------


def test_workers_change_nothing(reader: Reader, scans: Path, alone: str) -> None:
    assert [json.loads(line)["source"][-6:-4] for line in alone.splitlines()] == [
        f"{number:02}" for number in range(COUNT)
    ]
    assert read_all(reader, scans, workers=3, ordered=True) == alone


def test_isolated_digits(reader: Reader, single: Path) -> None:
    tally = Tally()
    alone = read_all(reader, single, isolated=True, workers=0)
    assert read_all(reader, single, isolated=True, workers=2, ordered=True, tally=tally) == alone
    records = [json.loads(line) for line in alone.splitlines()]
    assert [record["text"] for record in records] == [str(n % 10) for n in range(300)]
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
    with pool_of(reader, networks, workers=1) as pool:
        blocks = run_tasks(into_tasks(find_inputs([scans]), 1), pool.workers)
        with pytest.raises(DeviceError, match="fell off"):
            list(blocks)


def pool_of(reader: Reader, networks: Networks | None = None, **options: Any) -> Pool:
    networks = networks or Networks(FixedBatches(reader.engine))
    return Pool(Job(reader, Format("jsonl")), networks.ask, **options)


# --- workers that die -------------------------------------------------------------------------


@posix
def test_workers_that_are_killed_lose_nothing(reader: Reader, scans: Path, alone: str) -> None:
    with pool_of(reader, workers=2) as pool:
        text = ""
        tasks = into_tasks(find_inputs([scans]), 4)
        for count, block in enumerate(run_tasks(tasks, pool.workers)):
            text += block.text
            if count == 1:
                os.kill(pool.workers[0].number, signal.SIGKILL)
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
    assert faults(reader, tmp_path, "killed", "odd", "large", "full") == {
        "killed": _FAILS.format("was ended by SIGKILL"),
        "odd": _FAILS.format("ended with code 1"),
        "large": _FAILS.format("needed more than 1.5 GB"),
        "full": _FAILS.format("needed more than 1.5 GB"),
    }


@posix
def test_the_run_ends_where_workers_die_over_a_record_that_opens_no_input(
    reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    start = ForkServer.start
    monkeypatch.setattr(ForkServer, "start", lambda own: started.append(1) or start(own))
    for name in ("1", "2-always-killed"):
        save_page(tmp_path / f"{name}.png", "7")
    job, records = Job(reader, Faulty("jsonl")), []
    with reading(job, find_inputs([tmp_path]), workers=1) as blocks:
        records.append(json.loads(next(blocks).text))
        with pytest.raises(
            EndedEarly, match=r"^5 worker .*SIGKILL as .*always-killed.png cannot .*again"
        ):
            records += blocks
    assert [record["text"] for record in records] == ["7"]
    assert len(started) == 5


class NoMemory:
    """A worker's connection; memory runs out at the given send or receive."""

    def __init__(self, *received: Any, sends: int = 99) -> None:
        self.received, self.sends, self.sent = list(received), sends, []

    def recv(self) -> Any:
        if not self.received:
            raise MemoryError
        return self.received.pop(0)

    def send(self, message: Any) -> None:
        if len(self.sent) == self.sends:
            raise MemoryError
        self.sent.append(message[0])


@posix
@pytest.mark.parametrize(
    ("connection", "sent"),
    [
        (lambda task: NoMemory(), ["ready"]),  # as it asks for work
        (lambda task: NoMemory(task), ["ready", "question"]),  # as the network answers
        (lambda task: NoMemory(task, sends=1), ["ready"]),  # as it asks the network
        (lambda task: NoMemory(None, sends=1), ["ready"]),  # as it says what went wrong
    ],
)
def test_a_worker_without_memory_ends_at_once(
    reader: Reader, scans: Path, monkeypatch: pytest.MonkeyPatch, connection: Any, sent: list[str]
) -> None:
    def leave(code: int) -> None:
        raise SystemExit(code)  # which is no error of a page

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(worker, "_bound_memory", lambda: None)
    monkeypatch.setattr(worker, "limit_process", lambda: None)
    (task,) = islice(into_tasks(find_inputs([scans]), 1), 1)
    link = connection(task)
    with pytest.raises(SystemExit, match=str(worker.NO_MEMORY)):
        worker.run_worker(link, Job(copy(reader), Format("jsonl")), 60.0)
    assert link.sent == sent


@posix
@pytest.mark.parametrize("wait", [0.0, 0.02, 0.3])
def test_the_end_while_workers_start(wait: float) -> None:
    server, started = ForkServer("numpy"), []

    def start() -> None:
        while True:
            started.append(server.start())

    with ThreadPoolExecutor(3) as pool:
        starts = [pool.submit(start) for _ in range(3)]
        time.sleep(wait)
        server.close()
        assert server._process is None
        assert [str(one.exception(5.0)) for one in starts] == ["the run has ended"] * 3
    assert not [number for _, number in started if Path(f"/proc/{number}").exists()]


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
    monkeypatch.setattr("neocog.batch.pool.PATIENCE", 1.0)
    why = _FAILS.format("took longer than 1 s")
    assert faults(reader, tmp_path, "stopped", "locked") == {"stopped": why, "locked": why}


@posix
def test_workers_that_are_stopped_at_birth_or_idle(
    reader: Reader, scans: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers: list[int] = []
    start = ForkServer.start

    def stopped(own: ForkServer) -> Any:
        connection, number = start(own)
        numbers.append(number)
        if len(numbers) <= 2:
            os.kill(number, signal.SIGSTOP)
        return connection, number

    monkeypatch.setattr(ForkServer, "start", stopped)
    items = list(find_inputs([scans]))
    with pool_of(reader, workers=2, patience=1.0) as pool:
        assert sum(block.inputs for block in run_tasks(into_tasks(items, 1), pool.workers)) == COUNT
        large = [Item(f"{n}.png", f"{n}.png", data=bytes(2**22)) for n in range(4)]
        (worker,) = pool.workers[:1]
        os.kill(worker.number, signal.SIGSTOP)  # it is sent more than a pipe holds
        blocks = [block for task in into_tasks(large, 1) for block in do(worker, task)]
        assert sum(block.inputs for block in blocks) == 4
    assert len(numbers) == 5


@posix
def test_who_waits_for_the_network_or_for_us_is_not_silent(reader: Reader, scans: Path) -> None:
    class Slow(FixedBatches):
        def recognise(self, digits: Any, *, batch: int | None = None) -> Any:
            time.sleep(1.0)
            return super().recognise(digits)

    items = list(find_inputs([scans]))[:2]
    networks = Networks(Slow(reader.engine))
    with pool_of(reader, networks, workers=1, patience=0.6) as pool:
        first = None
        for block in run_tasks(into_tasks(items, 1), pool.workers):
            time.sleep(1.0)  # nobody takes what it has to say
            assert not block.failed
            first = first or pool.workers[0].number
        assert pool.workers[0].number == first


@posix
def test_what_forks_workers_may_end(reader: Reader, scans: Path) -> None:
    items = list(find_inputs([scans]))
    with pool_of(reader, workers=2) as pool:
        count = 0
        for block in run_tasks(into_tasks(items, 1), pool.workers):
            if count == 0:
                pool._server._process.kill()
                os.kill(pool.workers[1].number, signal.SIGKILL)
            count += block.inputs
        assert count == COUNT
    assert pool._server._process is None


@posix
def test_no_worker_comes_back_after_the_end(reader: Reader, scans: Path) -> None:
    items = list(find_inputs([scans]))
    with pool_of(reader, workers=2) as pool:
        blocks = run_tasks(into_tasks(items, 1), pool.workers)
        next(blocks)
    time.sleep(0.5)
    assert pool._server._process is None
    with pytest.raises(EndedEarly, match="has ended"):
        pool._server.start()


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
    from neocog.batch import run as batch_run

    monkeypatch.setattr(
        Job, "do", lambda self, task, beat=None: Block(task.first, inputs="03" not in str(task))
    )
    wanted = batch_run.Request((str(scans),), Format("jsonl"), str(tmp_path / "x.jsonl"), workers=0)
    with pytest.raises(EndedEarly, match=f"{COUNT} inputs gave only {COUNT - 1} records"):
        batch_run.read_all(wanted, reader)


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
    """A worker that dies over some inputs, and waits at others until it may go on."""

    def __init__(self, *dies_over: str, false_starts: int = 0, waits_at: str = "") -> None:
        self.dies_over, self.false_starts, self.waits_at = dies_over, false_starts, waits_at
        self.go_on = threading.Event()
        self.starts = 0

    def start(self) -> None:
        self.starts += 1
        if self.starts <= self.false_starts:
            raise WorkerDied("was ended")

    def do(self, task: Task) -> list[Block]:
        names = [item.source for item in task.items]
        if self.waits_at in names:
            self.go_on.wait(10.0)
        for item in task.items:
            if item.source in self.dies_over and item.trouble is None:
                raise WorkerDied("was ended")
        text = " ".join(item.trouble or item.source for item in task.items)
        return [Block(task.first, text, inputs=len(names))]


def some_tasks(count: int, taken: list[int], *, held: int = 0) -> Iterator[Task]:
    kind = type("Heavy", (Task,), {"held": held})
    for number in range(count):
        taken.append(number)
        yield kind(2 * number, (Item(str(number), str(number)), Item("x", "x")))


def hand_on(hands: list[Hand]) -> None:
    for hand in hands:
        hand.go_on.set()


def test_no_more_is_begun_than_is_taken() -> None:
    taken: list[int] = []
    blocks = run_tasks(some_tasks(1000, taken), [Hand(), Hand()])
    next(blocks)
    time.sleep(0.2)
    assert len(taken) <= 1 + 4 + 2 + 1
    assert sum(1 for _ in blocks) == 999


def test_order_bounds_what_waits() -> None:
    taken: list[int] = []
    hands = [Hand(waits_at="0") for _ in range(4)]
    seen: list[int] = []
    waiting = threading.Timer(0.3, lambda: (seen.append(len(taken)), hand_on(hands)))
    waiting.start()
    firsts = [block.first for block in run_tasks(some_tasks(200, taken), hands, window=24)]
    assert seen[0] <= 24 // 2 + 1, "tasks of two inputs each, and one that waits"
    assert firsts[0] > 0
    assert sorted(firsts) == list(range(0, 400, 2))


def test_pictures_that_are_carried_are_bounded_by_bytes() -> None:
    taken: list[int] = []
    hands = [Hand(waits_at="x") for _ in range(4)]
    seen: list[int] = []
    threading.Timer(0.3, lambda: (seen.append(len(taken)), hand_on(hands))).start()
    assert sum(1 for _ in run_tasks(some_tasks(20, taken, held=2**28), hands)) == 20
    assert seen[0] <= 2 + 1, "a third waits for room"


def test_what_a_worker_died_over_is_tried_alone() -> None:
    hand = Hand("1", "x")
    texts = [block.text for block in run_tasks(some_tasks(2, []), [hand])]
    trouble = "cannot be read: twice, the process that reads it was ended"
    assert texts == ["0", trouble, trouble, trouble]
    assert hand.starts == 1 + 2 + 3


def test_workers_that_die_at_birth_end_the_run() -> None:
    hand = Hand(false_starts=2)
    assert sum(block.inputs for block in run_tasks(some_tasks(5, []), [hand])) == 10
    with pytest.raises(EndedEarly, match="cannot be started: the last one was ended"):
        list(run_tasks(some_tasks(5, []), [Hand(false_starts=3)]))


def test_what_was_begun_is_done_when_the_inputs_break_off() -> None:
    def broken() -> Iterator[Task]:
        yield from some_tasks(3, [])
        raise EndedEarly("the list breaks off")

    blocks = run_tasks(broken(), [Hand(), Hand()])
    assert sorted(block.first for block in islice(blocks, 3)) == [0, 2, 4]
    with pytest.raises(EndedEarly, match="breaks off"):
        next(blocks)


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
    with ThreadPoolExecutor(10) as threads:
        came = []
        for number in range(10):
            came.append(threads.submit(networks.ask, digits[number : number + 1]))
            slow.begun.wait(5.0)
        time.sleep(0.1)
        slow.busy.set()
        assert [future.result().label.tolist() for future in came] == [[n] for n in range(10)]
    assert networks.ask(digits[3:5]).label.tolist() == [3, 4]
    networks.close()
    assert slow.sizes[0] == 1
    assert len(slow.sizes) <= 4
    assert sum(slow.sizes) == 12


def test_what_nobody_waits_for_is_not_recognised(reader: Reader) -> None:
    slow = Slow(reader.engine)
    networks = Networks(slow)
    many = digits_of("0" * slow.batch)
    with ThreadPoolExecutor(5) as threads:
        answers = [threads.submit(networks.ask, many) for _ in range(5)]
        slow.begun.wait(5.0)
        threading.Timer(0.1, slow.busy.set).start()
        networks.close()
    assert len(slow.sizes) == 1
    assert [one.exception() is None for one in answers].count(True) == 1


def test_workers_ask_for_the_finder_of_a_gpu(reader: Reader, scans: Path, alone: str) -> None:
    other = copy(reader)
    other.finder = finder = GpuFinder(reader.finder)  # type: ignore[assignment]
    assert read_all(other, scans, workers=2, ordered=True) == alone
    assert finder.asked >= COUNT - 1


# --- as a process -----------------------------------------------------------------------------


@posix
def test_killed_and_resumed(model: str, scans: Path, tmp_path: Path) -> None:
    words = [str(scans), "--model", model, "--workers"]
    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    run("read", *words, 0, "-o", whole)
    words += ["2", "-o", str(out), "--resume"]
    for _ in range(2):
        process = subprocess.Popen([*COMMAND, *words], stderr=subprocess.DEVNULL)
        size = out.stat().st_size if out.exists() else 0
        end = time.monotonic() + 30
        while time.monotonic() < end and (not out.exists() or out.stat().st_size <= size):
            time.sleep(0.01)
        process.kill()
        process.wait()
    assert run("read", *words).exit_code == 1
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


def test_nobody_waits_for_a_batcher_that_has_ended() -> None:
    busy, go_on = threading.Event(), threading.Event()

    def answer(questions: list[int]) -> list[int]:
        busy.set()
        go_on.wait(10.0)
        return questions

    batcher = Batcher(answer)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(batcher.ask, 0)
        assert busy.wait(10.0)
        others = [pool.submit(batcher.ask, number) for number in (1, 2)]
        threading.Timer(0.2, go_on.set).start()
        batcher.close()
        assert first.result(5.0) == 0
        assert [str(other.exception(5.0)) for other in others] == ["the run has ended"] * 2
    with pytest.raises(EndedEarly):
        batcher.ask(4)
