"""Worker processes: the same records as without them, whatever becomes of the workers."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image

from neocog import Reader
from neocog.batch import worker
from neocog.batch.batching import FixedBatches, Networks
from neocog.batch.formats import Format
from neocog.batch.inputs import find_inputs
from neocog.batch.pool import Pool, do, run_tasks
from neocog.batch.run import Tally, reading, usual_workers
from neocog.batch.sources import Item
from neocog.batch.tasks import Block, Job, into_tasks
from neocog.errors import DeviceError, EndedEarly, NothingToRead, UsageError
from neocog.forkserver import ForkServer
from tests.faults import Faulty, GpuFinder
from tests.support import digits_of, run, save_page, until

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
    """A folder of 300 digits."""
    folder = tmp_path_factory.mktemp("single")
    for number in range(300):
        digit = digits_of(str(number % 10))[0]
        Image.fromarray(np.roll(digit, number % 3 - 1, axis=1)).save(folder / f"{number:03}.png")
    return folder


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the processes that are started as workers."""
    numbers: list[int] = []
    start = ForkServer.start

    def noted(own: ForkServer) -> Any:
        connection, number = start(own)
        numbers.append(number)
        return connection, number

    monkeypatch.setattr(ForkServer, "start", noted)
    return numbers


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
@pytest.mark.parametrize("server", [False, True])
def test_workers_that_are_killed_lose_nothing(server: bool, reader: Reader, scans: Path, alone: str) -> None:
    with pool_of(reader, workers=2) as pool:
        text = ""
        for block in run_tasks(into_tasks(find_inputs([scans]), 1), pool.workers):
            if not text:
                os.kill(pool.workers[1].number, signal.SIGKILL)
                if server:  # what forks them
                    pool._server._process.kill()
            text += block.text
    assert sorted(text.splitlines()) == sorted(alone.splitlines())
    assert pool._server._process is None


@posix
@pytest.mark.parametrize(
    ("patience", "ends"),
    [
        (60.0, {"killed": "was ended by SIGKILL", "odd": "ended with code 1",
                "large": "needed more than 1.5 GB", "full": "needed more than 1.5 GB"}),
        (1.0, dict.fromkeys(("stopped", "locked"), "took longer than 1 s")),
    ],
)  # fmt: skip
def test_pictures_that_end_a_worker_become_records(
    patience: float, ends: dict[str, str], reader: Reader, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
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


@posix
def test_the_run_ends_where_workers_die_over_a_record_that_opens_no_input(
    reader: Reader, tmp_path: Path, started: list[int]
) -> None:
    for name in ("1", "2-always-killed"):
        save_page(tmp_path / f"{name}.png", "7")
    job = Job(reader, Faulty("jsonl"))
    with reading(job, find_inputs([tmp_path]), workers=1) as blocks:
        assert json.loads(next(blocks).text)["text"] == "7"
        with pytest.raises(EndedEarly, match=r"^5 worker .*SIGKILL as .*always-killed.png cannot .*again"):
            next(blocks)
    assert len(started) == 5


@posix
@pytest.mark.parametrize(
    ("received", "sends", "tried"),
    [
        ([MemoryError], 9, ["ready"]),  # as it asks for work
        (["task", MemoryError], 9, ["ready", "question"]),  # as the network answers
        (["task"], 1, ["ready", "question"]),  # as it asks the network
        ([None], 1, ["ready", "error"]),  # as it says what went wrong
    ],
)
def test_a_worker_without_memory_ends_at_once(
    received: list[Any], sends: int, tried: list[str],
    reader: Reader, scans: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def leave(code: int) -> None:
        raise SystemExit(code)  # which is no error of a page

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(worker, "_bound_memory", lambda: None)
    monkeypatch.setattr(worker, "limit_process", lambda: None)
    (task,) = islice(into_tasks(find_inputs([scans]), 1), 1)
    link = Mock()
    link.recv.side_effect = [task if what == "task" else what for what in received]
    link.send.side_effect = [None] * sends + [MemoryError]
    with pytest.raises(SystemExit, match=str(worker.NO_MEMORY)):
        worker.run_worker(link, Job(copy(reader), Format("jsonl")), 60.0)
    assert [call.args[0][0] for call in link.send.call_args_list] == tried


@posix
@pytest.mark.parametrize("wait", [0.0, 0.02, 0.3])
def test_the_end_while_workers_start(wait: float) -> None:
    server, came = ForkServer("numpy"), list[tuple[object, int]]()

    def start() -> None:
        while True:
            came.append(server.start())

    with ThreadPoolExecutor(3) as threads:
        ends = [threads.submit(start) for _ in range(3)]
        time.sleep(wait)
        server.close()
        assert server._process is None
        assert {str(end.exception(5.0)) for end in ends} == {"the run has ended"}
    assert not any(Path(f"/proc/{number}").exists() for _, number in came)


@posix
def test_what_may_cost_much_is_read_in_a_worker_however_few_there_are(
    reader: Reader, tmp_path: Path, started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neocog.vision.decode.is_light", lambda path: "heavy" not in str(path))
    for name in ("1", "2-heavy", "3-heavy-large", "4-heavy-killed", "5"):
        save_page(tmp_path / f"{name}.png", "7")
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
def test_workers_that_are_stopped_at_birth_or_idle(
    reader: Reader, scans: Path, started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    start = ForkServer.start

    def stopped(own: ForkServer) -> Any:
        found = start(own)
        if len(started) <= 2:
            os.kill(started[-1], signal.SIGSTOP)
        return found

    monkeypatch.setattr(ForkServer, "start", stopped)
    items = list(find_inputs([scans]))
    with pool_of(reader, workers=2, patience=1.0) as pool:
        assert sum(block.inputs for block in run_tasks(into_tasks(items, 1), pool.workers)) == COUNT
        large = [Item(f"{n}.png", f"{n}.png", data=bytes(2**22)) for n in range(4)]
        (worker,) = pool.workers[:1]
        os.kill(worker.number, signal.SIGSTOP)  # it is sent more than a pipe holds
        blocks = [block for task in into_tasks(large, 1) for block in do(worker, task)]
        assert sum(block.inputs for block in blocks) == 4
    assert len(started) == 5


class Slow(FixedBatches):
    def recognise(self, digits: Any, *, batch: int | None = None) -> Any:
        time.sleep(1.0)
        return super().recognise(digits)


@posix
def test_who_waits_for_the_network_or_for_us_is_not_silent(
    reader: Reader, scans: Path, started: list[int]
) -> None:
    items = list(find_inputs([scans]))[:2]
    networks = Networks(Slow(reader.engine))
    with pool_of(reader, networks, workers=1, patience=0.6) as pool:
        for block in run_tasks(into_tasks(items, 1), pool.workers):
            time.sleep(1.0)  # nobody takes what it has to say
            assert not block.failed
    assert len(started) == 1


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


def test_workers_ask_for_the_finder_of_a_gpu(reader: Reader, scans: Path, alone: str) -> None:
    other = copy(reader)
    other.finder = finder = GpuFinder(reader.finder)  # type: ignore[assignment]
    assert read_all(other, scans, workers=2, ordered=True) == alone
    assert finder.asked >= COUNT - 1


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


# --- as a process -----------------------------------------------------------------------------


@posix
def test_killed_and_resumed(model: str, scans: Path, tmp_path: Path) -> None:
    words = [str(scans), "--model", model, "--workers"]
    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    run("read", *words, 0, "-o", whole)
    words += ["2", "-o", str(out), "--resume"]

    def killed(size: int) -> None:
        with subprocess.Popen([*COMMAND, *words], stderr=subprocess.DEVNULL) as process:
            until(lambda: (out.exists() and out.stat().st_size > size) or process.poll() == 1)
            process.kill()

    killed(0)
    killed(out.stat().st_size)
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
    until(lambda: out.exists() and out.read_bytes().count(b"\n") == 2)
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
