"""Worker processes: the same records as without them, whatever becomes of the workers."""

import json
import os
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
from neocog.batch import run as batch_run
from neocog.batch.batching import FixedBatches, Networks
from neocog.batch.inputs import find_inputs
from neocog.batch.pool import Pool, WorkerDied, WorkerProcess, do, run_tasks, start
from neocog.batch.run import Tally, reading, usual_workers
from neocog.batch.sources import Item
from neocog.batch.tasks import Block, Job, Task, into_tasks
from neocog.errors import DeviceError, EndedEarly, NothingToRead, UsageError
from neocog.reading.formats import Format
from tests.faults import Faulty, GpuFinder, SlowJob
from tests.support import digits_of, save_page, until

COMMAND = [sys.executable, "-m", "neocog", "read"]
COUNT = 14
posix = pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scans")
    for number in range(COUNT):
        save_page(folder / f"{number:02}.png", str(number))
    (folder / "05.png").write_bytes(b"broken")
    return folder


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 300 digits, and pictures that are no digit or several."""
    folder = tmp_path_factory.mktemp("single")
    for number in range(300):
        digit = digits_of(str(number % 10))[0]
        Image.fromarray(np.roll(digit, number % 3 - 1, axis=1)).save(folder / f"{number:03}.png")
    first, second = (Image.fromarray(255 - digits_of(d)[0]).resize((90, 90)) for d in "47")
    first.save(folder / "a.tif", save_all=True, append_images=[second])
    (folder / "b.png").write_bytes(b"")
    first.resize((3000, 3000)).save(folder / "c.png")
    os.mkfifo(folder / "d.png")
    return folder


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the worker processes, as they are started."""
    numbers: list[int] = []

    class Noted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *words: Any, **options: Any) -> None:
            super().__init__(*words, **options)
            numbers.append(self.pid)

    monkeypatch.setattr("neocog.batch.pool.subprocess.Popen", Noted)
    return numbers


def read_all(reader: Reader, folder: Path, *, isolated: bool = False, **options: Any) -> str:
    job = Job(reader, Format("jsonl"), isolated=isolated)
    with reading(job, find_inputs([folder]), **options) as blocks:
        return "".join(block.text for block in blocks)


def pool_of(reader: Reader, networks: Networks | None = None, **options: Any) -> Pool:
    networks = networks or Networks(FixedBatches(reader.engine))
    return Pool(Job(reader, Format("jsonl")), networks.ask, **options)


def blocks_of(pool: Pool, reader: Reader, items: Any) -> Iterator[Block]:
    return run_tasks(into_tasks(items, 1), pool.workers, Job(reader, Format("jsonl")))


@pytest.fixture(scope="module")
def alone(reader: Reader, scans: Path) -> str:
    """What is read with no worker."""
    return read_all(reader, scans, workers=0)


# --- records ----------------------------------------------------------------------------------


def test_workers_change_nothing(reader: Reader, scans: Path, alone: str) -> None:
    sources = [json.loads(line)["source"][-6:-4] for line in alone.splitlines()]
    assert sources == [f"{number:02}" for number in range(COUNT)]
    other = copy(reader)
    other.finder = finder = GpuFinder(reader.finder)  # type: ignore[assignment]
    for one in (reader, other):
        assert read_all(one, scans, workers=2, ordered=True) == alone
    assert finder.asked >= COUNT - 1


def test_isolated_digits(reader: Reader, single: Path) -> None:
    tally = Tally()
    alone = read_all(reader, single, isolated=True, workers=0)
    assert read_all(reader, single, isolated=True, workers=2, ordered=True, tally=tally) == alone
    assert tally.seconds["network"] > 0
    records = [json.loads(line) for line in alone.splitlines()]
    assert [record["text"] for record in records[:300]] == [str(n % 10) for n in range(300)]
    assert records[0]["digits"][0]["box"] == [0, 0, 28, 28]
    odd = records[300:]
    texts = [(record["text"], record["page"]) for record in odd]
    assert texts == [("4", 0), ("7", 1), ("", 0), ("4", 0), ("", 0)]
    assert odd[3]["digits"][0]["box"] == [0, 0, 3000, 3000]
    assert "empty" in odd[2]["error"]
    assert "pipe" in odd[4]["error"]


def test_errors_of_inputs_and_of_the_network_end_the_run(
    reader: Reader, scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(FixedBatches):
        def recognise(self, digits: object, *, batch: object = None) -> Any:
            raise DeviceError("it fell off")

    with pytest.raises(NothingToRead):
        read_all(reader, tmp_path, workers=1)
    networks = Networks(Failing(reader.engine))
    with pool_of(reader, networks, workers=1) as pool, pytest.raises(DeviceError, match="fell off"):
        list(blocks_of(pool, reader, find_inputs([scans])))
    monkeypatch.setattr(
        Job, "do", lambda self, task, beat=None: Block(task.first, inputs="03" not in str(task))
    )
    wanted = batch_run.Request((str(scans),), Format("jsonl"), str(tmp_path / "x.jsonl"), workers=0)
    with pytest.raises(EndedEarly, match=f"{COUNT} inputs gave only {COUNT - 1} records"):
        batch_run.read_all(wanted, reader)


# --- workers that die -------------------------------------------------------------------------


@posix
@pytest.mark.parametrize(
    ("patience", "ends"),
    [
        (60.0, {"killed": "was ended by SIGKILL", "crashed": "was ended by SIGSEGV",
                "odd": "ended with code 1", "large": "needed more than 1.5 GB",
                "full": "needed more than 1.5 GB"}),
        (2.0, dict.fromkeys(("stopped", "locked"), "took longer than 2 s")),
    ],
)  # fmt: skip
def test_pictures_that_end_a_worker_become_records(
    patience: float, ends: dict[str, str], reader: Reader, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capfd: Any,
) -> None:  # fmt: skip
    monkeypatch.setattr("neocog.batch.pool.PATIENCE", patience)
    for name in (*ends, *(f"good{number}" for number in range(9))):
        save_page(tmp_path / f"{name}.png", "1")
    with reading(Job(reader, Faulty("jsonl")), find_inputs([tmp_path]), workers=2) as blocks:
        records = [json.loads(line) for block in blocks for line in block.text.splitlines()]
    assert [record["text"] for record in records].count("1") == 9
    twice = "cannot be read: twice, the process that reads it "
    said = {Path(record["source"]).stem: record["error"] for record in records if record["error"]}
    assert said == {name: twice + how for name, how in ends.items()}
    assert capfd.readouterr().err == ""


@posix
def test_workers_that_are_killed_from_outside_lose_nothing(reader: Reader, scans: Path, alone: str) -> None:
    with pool_of(reader, workers=2) as pool:
        text = ""
        for block in blocks_of(pool, reader, find_inputs([scans])):
            for worker in [] if text else pool.workers:
                process = until(lambda worker=worker: worker.process)
                os.kill(process.pid, signal.SIGKILL)
            text += block.text
    assert sorted(text.splitlines()) == sorted(alone.splitlines())
    assert all(worker.process.poll() is not None for worker in pool.workers)


@posix
def test_what_may_cost_much_is_read_in_a_worker_however_few_there_are(
    reader: Reader, tmp_path: Path, started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neocog.vision.decode.is_light", lambda path: "heavy" not in str(path))
    for name in ("1", "2-heavy", "3-heavy-full", "4-heavy-killed", "5"):
        save_page(tmp_path / f"{name}.png", "7")
    job = Job(reader, Faulty("jsonl"))
    for workers in (None, 0):
        with reading(job, find_inputs([tmp_path]), workers=workers) as blocks:
            records = [json.loads(block.text) for block in blocks]
        assert [record["text"] for record in records] == ["7", "7", "", "", "7"]
        assert "twice, the process that reads it needed more than 1.5 GB" in records[2]["error"]
        assert "SIGKILL" in records[3]["error"]
    assert len(started) == 10  # for the first heavy one, and after each of four deaths


@pytest.mark.slow
@posix
def test_workers_that_are_stopped_at_birth_or_idle(
    reader: Reader, scans: Path, started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = WorkerProcess._exchange

    def stopped(own: WorkerProcess, message: bytes, *options: Any) -> Any:
        if message is own._pool.begin and len(started) == 1:
            os.kill(started[0], signal.SIGSTOP)
        return exchange(own, message, *options)

    monkeypatch.setattr(WorkerProcess, "_exchange", stopped)
    monkeypatch.setattr("neocog.batch.pool.STARTS", 6.0)
    with pool_of(reader, workers=1, patience=2.0) as pool:
        (worker,) = pool.workers
        start(worker)
        os.kill(started[-1], signal.SIGSTOP)  # it is sent more than a pipe holds
        task = Task(0, (Item("x", "x", data=bytes(2**22)),))
        assert do(worker, task, Job(reader, Format("jsonl")))[0].failed == 1
    assert len(started) == 3


@posix
def test_a_worker_that_goes_on_and_dies_did_not_take_too_long(reader: Reader) -> None:
    with Pool(SlowJob(reader, Format("jsonl")), lambda: None, workers=1, patience=1.3) as pool:
        start(pool.workers[0])
        with pytest.raises(WorkerDied, match="was ended by SIGKILL"):
            pool.workers[0].do(Task(0, ()))


def test_a_deadline_that_is_withdrawn_ends_nothing(reader: Reader) -> None:
    with pool_of(reader, workers=1) as pool:
        (worker,), begun = pool.workers, threading.Event()
        give_up = worker.give_up

        def slowly() -> None:
            begun.set()
            time.sleep(0.2)
            give_up()

        worker.give_up = slowly  # type: ignore[method-assign]
        worker.set_deadline(0)
        begun.wait()
        worker.set_deadline()
        assert not worker._given_up


@posix
def test_who_waits_for_the_network_is_not_silent(reader: Reader, scans: Path, started: list[int]) -> None:
    class Slow(FixedBatches):
        def recognise(self, digits: Any, *, batch: int | None = None) -> Any:
            time.sleep(4.0)
            return super().recognise(digits)

    items = list(find_inputs([scans]))[:1]
    with pool_of(reader, Networks(Slow(reader.engine)), workers=1, patience=3.0) as pool:
        assert not any(block.failed for block in blocks_of(pool, reader, items))
    assert len(started) == 1


@posix
def test_workers_that_cannot_be_had_end_the_run(
    reader: Reader, scans: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [place for place in sys.path if "tests" not in place][:1])
    with pytest.raises(EndedEarly, match=r"cannot be started: ModuleNotFoundError"):
        read_all(reader, scans, workers=1)
    monkeypatch.undo()
    for words, why in (([sys.executable, "-c", "exit(3)"], "the last one ended with code 3; see"),
                       (["/no/such/python"], ".*No such file")):  # fmt: skip
        monkeypatch.setattr("neocog.batch.pool.python", lambda *_, words=words: words)
        with pytest.raises(EndedEarly, match=f"cannot be started: {why}"):
            read_all(reader, scans, workers=1)


@posix
def test_no_more_workers_than_there_are_files_for(
    reader: Reader, scans: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _: (72, 4096))
    with pytest.raises(UsageError, match=r"got 9 workers, .* files allows 4; .*ulimit"):
        read_all(reader, scans, workers=9)
    monkeypatch.setattr("neocog.network.parallel.cores", lambda: 64)
    assert usual_workers() == 4


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_the_command(number: int, model: str, scans: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    command = [*COMMAND, "-", "--model", model, "--workers", "2", "-o", str(out)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    assert process.stdin is not None
    process.stdin.write(f"{scans}/00.png\n{scans}/01.png\n".encode())
    process.stdin.flush()  # and the command waits for more
    until(lambda: out.exists() and out.read_bytes().count(b"\n") == 2)
    threads = Path(f"/proc/{process.pid}/task").iterdir()
    workers = [pid for thread in threads for pid in (thread / "children").read_text().split()]
    assert len(workers) == 2
    os.killpg(process.pid, number)  # as a terminal does: to every process of the command
    _, errors = process.communicate(timeout=10)
    assert sorted(json.loads(line)["text"] for line in out.read_text().splitlines()) == ["0", "1"]
    if number == signal.SIGINT:
        assert (process.returncode, errors) == (130, b"neocog: interrupted\n")
    until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers), 10)


@posix
def test_head_ends_it_quietly_with_workers(model: str, single: Path) -> None:
    command = [*COMMAND, f"{single}/[0-9]*.png", "--isolated", "--model", model, "--workers", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0
