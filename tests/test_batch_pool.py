"""Tasks, passes of the network, workers, a Ray cluster: the same records, whatever becomes of them."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image

from neocog import Reader
from neocog.batch import run as batch_run
from neocog.batch.archives import Item
from neocog.batch.cluster import Cluster
from neocog.batch.inputs import find_inputs
from neocog.batch.pool import Networks, Worker, WorkerDied, WorkerProcess, in_passes, run_tasks
from neocog.batch.run import open_workers, reading, usual_workers
from neocog.batch.tasks import Block, Job, Task, into_tasks
from neocog.batch.worker import BLOCK
from neocog.errors import DeviceError, EndedEarly, NothingToRead, UsageError
from neocog.reading.formats import Format
from tests.faults import Faulty, GpuFinder, SlowJob
from tests.support import children_of, digits_of, failing, records, save_page, until

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


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """What is called for each worker process that is started."""
    popen = Mock(wraps=subprocess.Popen)
    monkeypatch.setattr("neocog.batch.pool.subprocess.Popen", popen)
    return popen


@pytest.fixture(scope="module")
def job(reader: Reader) -> Job:
    return Job(reader, Format("jsonl"))


def read_all(job: Job, folder: Path, **options: Any) -> str:
    with reading(job, find_inputs([folder]), **options) as blocks:
        return "".join(block.text for block in blocks)


def blocks_of(pool: list[WorkerProcess], job: Job, items: Any) -> Iterator[Block]:
    return run_tasks(into_tasks(items, 1), pool, job)


@pytest.fixture(scope="module")
def alone(job: Job, scans: Path) -> str:
    """What is read with no worker."""
    return read_all(job, scans, workers=0)


# --- tasks ------------------------------------------------------------------------------------


def written(task: Task) -> Block:
    """A block that tells what a task was about; what `Job.do` does in tests."""
    text = " ".join(item.trouble or item.source for item in task.items)
    return Block(task.first, text, inputs=len(task.items))


JOB: Any = SimpleNamespace(do=written, size=2)


class Hand(Worker):
    """A worker that dies over some inputs, and waits at others until it may go on."""

    def __init__(self, *dies_over: str, false_starts: int = 0, waits_at: str = "") -> None:
        self.dies_over, self.false_starts, self.waits_at = dies_over, false_starts, waits_at
        self.go_on, self.starts = threading.Event(), 0

    def launch(self) -> None:
        self.starts += 1
        if self.starts <= self.false_starts:
            raise WorkerDied("was ended")

    def attempt(self, task: Task) -> list[Block]:
        names = [item.source for item in task.items]
        if self.waits_at in names:
            self.go_on.wait(10.0)
        if set(self.dies_over) & set(names):
            raise WorkerDied("was ended")
        return [written(task)]


def some_tasks(count: int, taken: list[int], *, held: int = 0) -> Iterator[Task]:
    kind = type("Heavy", (Task,), {"held": held})
    for number in range(count):
        taken.append(number)
        yield kind(2 * number, (Item(str(number), str(number)), Item("x", "x")))


def test_no_more_is_begun_than_is_taken() -> None:
    taken: list[int] = []
    blocks = run_tasks(some_tasks(1000, taken), [Hand(), Hand()], JOB)
    next(blocks)
    time.sleep(0.2)
    assert len(taken) <= 1 + 4 + 2 + 1
    assert sum(1 for _ in blocks) == 999


@pytest.mark.parametrize(("waits_at", "ordered", "held", "most"), [
    ("0", True, 0, 8 * 4 + 1),  # tasks, and one that waits
    ("x", False, 2**28, 2 + 1),  # a third waits for room
])  # fmt: skip
def test_order_and_bytes_bound_what_waits(waits_at, ordered, held, most):
    taken, seen = list[int](), list[int]()
    hands = [Hand(waits_at=waits_at) for _ in range(4)]

    def go_on() -> None:
        seen.append(len(taken))
        for hand in hands:
            hand.go_on.set()

    threading.Timer(0.3, go_on).start()
    blocks = run_tasks(some_tasks(200, taken, held=held), hands, JOB, ordered=ordered)
    firsts = [block.first for block in blocks]
    assert seen[0] <= most
    assert sorted(firsts) == list(range(0, 400, 2))
    assert firsts == sorted(firsts) or not ordered


def test_what_a_worker_died_over_is_tried_alone() -> None:
    hand = Hand("1", "x")
    texts = [block.text for block in run_tasks(some_tasks(2, []), [hand], JOB)]
    trouble = "cannot be read: twice, the process that reads it was ended"
    assert (texts, hand.starts) == (["0", trouble, trouble, trouble], 1 + 2 + 3)


def test_false_starts_and_broken_inputs_end_the_run() -> None:
    two = run_tasks(some_tasks(5, []), [Hand(false_starts=2)], JOB)
    assert sum(block.inputs for block in two) == 10
    with pytest.raises(EndedEarly, match="cannot be started: the last one was ended"):
        list(run_tasks(some_tasks(5, []), [Hand(false_starts=3)], JOB))

    def broken() -> Iterator[Task]:
        yield from some_tasks(3, [])
        raise EndedEarly("the list breaks off")

    blocks = run_tasks(broken(), [Hand(), Hand()], JOB)
    assert sorted(block.first for block in islice(blocks, 3)) == [0, 2, 4]
    with pytest.raises(EndedEarly, match="breaks off"):
        next(blocks)


def test_tasks_are_bounded_by_bytes() -> None:
    light = [Item(str(n), str(n)) for n in range(10)]
    assert [len(task.items) for task in into_tasks(light, 4)] == [4, 4, 2]
    tasks = list(into_tasks([item._replace(data=bytes(2**23)) for item in light], 256))
    assert [(task.first, len(task.items)) for task in tasks] == [(0, 3), (3, 3), (6, 3), (9, 1)]


@pytest.mark.parametrize("how", ["cancelled", "late", "unwanted", "answered"])
def test_a_task_that_is_given_up_is_not_tried_again(how: str) -> None:
    worker, tried = WorkerProcess(b"", lambda: None, 1.0), list[str]()

    def exchange(message: bytes) -> tuple[str, str]:
        tried.append("once")
        time.sleep(0.2 if how == "late" else 0)
        if how != "answered":
            raise WorkerDied("was ended")
        worker.give_up(5)  # its answer has just come
        return BLOCK, "for the next one"

    worker._exchange = exchange  # type: ignore[method-assign]
    worker.launch = lambda: worker.give_up(5 if how == "cancelled" else 4)  # type: ignore[method-assign]
    job: Any = SimpleNamespace(do=written, late=lambda task: "late", is_wanted=lambda task: how != "unwanted")
    task = Task(5, (Item("a", "a"),), limit=0.1 if how == "late" else 60.0)
    assert worker.do(task, job) == ["late"]
    assert len(tried) == (how != "unwanted")


# --- passes -----------------------------------------------------------------------------------


class Slow:
    """An engine that is at work until ``busy`` is set; remembers how many digits came at a time."""

    batch, device, model = 32, "cuda:0", None

    def __init__(self, engine: Any, seconds: float = 5.0) -> None:
        self.engine, self.seconds, self.sizes = engine, seconds, list[int]()
        self.begun, self.busy = threading.Event(), threading.Event()

    def recognise(self, digits: Any, *, batch: int) -> Any:
        self.sizes.append(len(digits))
        self.begun.set()
        self.busy.wait(self.seconds)
        return self.engine.recognise(digits, batch=batch)


def test_digits_share_a_pass(reader: Reader) -> None:
    digits, slow = digits_of("0123456789"), Slow(reader.engine)
    networks = Networks(slow)
    with ThreadPoolExecutor(10) as threads:
        came = []
        for number in range(10):
            came.append(threads.submit(networks.ask, digits[number : number + 1]))
            slow.begun.wait(5.0)
        time.sleep(0.1)
        slow.busy.set()
        assert [future.result().label.tolist() for future in came] == [[n] for n in range(10)]
    assert networks.ask(digits[3:5]).label.tolist() == [3, 4]
    assert slow.sizes[0] == 1
    assert len(slow.sizes) <= 4
    assert sum(slow.sizes) == 12


def test_strips_share_a_pass_and_each_page_gets_its_own() -> None:
    likelihoods = Mock(side_effect=lambda strips: time.sleep(0.1) or strips)
    networks = Networks(SimpleNamespace(likelihoods=likelihoods))
    with ThreadPoolExecutor(7) as threads:
        asked = [threads.submit(networks.ask, [n] * n) for n in range(1, 8)]
        assert [future.result() for future in asked] == [[n] * n for n in range(1, 8)]
    assert likelihoods.call_count < 7


def test_passes_of_a_gpu_are_full(reader: Reader) -> None:
    slow = Slow(reader.engine)
    slow.busy.set()
    for size in (1, 7, 10):
        answers = in_passes(slow, batch=8).recognise(digits_of("0123456789"[:size]))
        assert answers.label.tolist() == list(range(size))
    assert slow.sizes == [8, 8, 16]
    gpu = in_passes(slow, isolated=False)
    assert (gpu.batch, in_passes(reader.engine), gpu.device) == (32, reader.engine, "cuda:0")


def test_what_nobody_waits_for_is_not_recognised(reader: Reader) -> None:
    slow = Slow(reader.engine)
    networks = Networks(slow)
    many = digits_of("0" * slow.batch)
    with ThreadPoolExecutor(5) as threads:
        asked = [threads.submit(networks.ask, many) for _ in range(5)]
        slow.begun.wait(5.0)
        threading.Timer(0.1, slow.busy.set).start()
        networks.close()
        errors = [str(one.exception(5.0)) for one in asked]
    assert sorted(errors) == ["None", *["the run has ended"] * 4]
    assert len(slow.sizes) == 1


def test_a_long_document_of_single_digits_shows_that_it_is_at_work(reader: Reader, tmp_path: Path) -> None:
    first, *more = [Image.fromarray(digit) for digit in digits_of("12345")]
    first.save(tmp_path / "a.tif", save_all=True, append_images=more)
    beats: list[int] = []
    task = Task(0, (Item(str(tmp_path / "a.tif"), "a.tif"),))
    job = Job(reader, Format("text"), isolated=True, cards=True)  # cards decode the pages once more
    assert job.do(task, beat=lambda: beats.append(1)).pages == 5
    assert len(beats) >= 10


# --- records ----------------------------------------------------------------------------------


def test_workers_change_nothing(reader: Reader, job: Job, scans: Path, alone: str) -> None:
    sources = [Path(record["source"]).stem for record in records(alone)]
    assert sources == [f"{number:02}" for number in range(COUNT)]
    finder = GpuFinder(reader.finder)
    for one in (job, replace(job, reader=reader.changed(finder=finder))):
        assert read_all(one, scans, workers=2, ordered=True) == alone
    assert finder.asked >= COUNT - 1


def test_isolated_digits(job: Job, tmp_path: Path) -> None:
    """Many digits, and pictures that are no digit or several."""
    for number, digit in enumerate(np.tile(digits_of("0123456789"), (30, 1, 1))):
        Image.fromarray(np.roll(digit, number % 3 - 1, axis=1)).save(tmp_path / f"{number:03}.png")
    first, second = (Image.fromarray(255 - digit).resize((90, 90)) for digit in digits_of("47"))
    first.save(tmp_path / "a.tif", save_all=True, append_images=[second])
    (tmp_path / "b.png").touch()
    first.resize((3000, 3000)).save(tmp_path / "c.png")
    os.mkfifo(tmp_path / "d.png")
    job = replace(job, isolated=True)
    alone = read_all(job, tmp_path, workers=0)
    assert read_all(job, tmp_path, workers=2, ordered=True) == alone
    every = records(alone)
    assert [record["text"] for record in every[:300]] == [str(n % 10) for n in range(300)]
    odd = every[300:]
    texts = [(record["text"], record["page"]) for record in odd]
    assert texts == [("4", 0), ("7", 1), ("", 0), ("4", 0), ("", 0)]
    assert [own["digits"][0]["box"] for own in (every[0], odd[3])] == [[0, 0, 28, 28], [0, 0, 3000, 3000]]
    assert ["empty" in odd[2]["error"], "pipe" in odd[4]["error"]] == [True, True]


def test_errors_of_inputs_and_of_the_network_end_the_run(reader, job, scans, tmp_path, monkeypatch):
    with pytest.raises(NothingToRead):
        read_all(job, tmp_path, workers=1)
    broken = SimpleNamespace(recognise=failing(DeviceError("it fell off")), device="cpu")
    with pytest.raises(DeviceError, match="fell off"):
        read_all(replace(job, reader=reader.changed(engine=broken)), scans, workers=1)
    monkeypatch.setattr(Job, "do", lambda _, task, **__: Block(task.first, inputs="03.png'" not in str(task)))
    wanted = batch_run.Request((str(scans),), Format("jsonl"), str(tmp_path / "x.jsonl"), workers=0)
    with pytest.raises(EndedEarly, match=f"{COUNT} inputs gave only {COUNT - 1} records"):
        batch_run.read_all(wanted, reader)


# --- workers that die -------------------------------------------------------------------------


ENDS = {
    "killed": "was ended by SIGKILL", "crashed": "was ended by SIGSEGV", "odd": "ended with code 1",
    "large": "needed more than 1.5 GB", "locked": "took longer than 2 s",
}  # fmt: skip


@posix
def test_pictures_that_end_a_worker_become_records(reader, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("neocog.batch.pool.PATIENCE", 2.0)
    for name in (*ENDS, *(f"good{number}" for number in range(9))):
        save_page(tmp_path / f"{name}.png", "1")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})  # workers inherit it
    try:
        every = records(read_all(Job(reader, Faulty("jsonl")), tmp_path, workers=2))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert [record["text"] for record in every].count("1") == 9
    said = {Path(record["source"]).stem: record["error"] for record in every if record["error"]}
    assert said == {
        name: f"cannot be read: twice, the process that reads it {how}" for name, how in ENDS.items()
    }
    assert capfd.readouterr().err == ""


@posix
def test_workers_that_are_killed_from_outside_lose_nothing(job: Job, scans: Path, alone: str) -> None:
    text = ""
    with open_workers(job, 2) as pool:
        for block in blocks_of(pool, job, find_inputs([scans])):
            for worker in [] if text else pool:
                until(lambda worker=worker: worker.process).kill()
            text += block.text
    assert sorted(text.splitlines()) == sorted(alone.splitlines())
    assert all(worker.process.poll() is not None for worker in pool)


@posix
def test_what_may_cost_much_is_read_in_a_worker_however_few_there_are(reader, tmp_path, started, monkeypatch):
    monkeypatch.setattr("neocog.batch.run.is_light", lambda path: "heavy" not in str(path))
    for name in ("1", "2-heavy", "3-heavy-killed", "4"):
        save_page(tmp_path / f"{name}.png", "7")
    every = records(read_all(Job(reader, Faulty("jsonl")), tmp_path))
    assert [record["text"] for record in every] == ["7", "7", "", "7"]
    assert "twice, the process that reads it was ended by SIGKILL" in every[2]["error"]
    assert started.call_count == 3  # for the first heavy one, and after each of two deaths


@posix
def test_who_goes_on_or_waits_for_the_network_does_not_take_too_long(
    reader, job, scans, started, monkeypatch
):
    monkeypatch.setattr("neocog.batch.pool.PATIENCE", 0.8)
    with open_workers(SlowJob(reader, Format("jsonl")), 1) as (worker,):
        worker.start()
        with pytest.raises(WorkerDied, match="was ended by SIGKILL"):
            worker.attempt(Task(0, ()))
    monkeypatch.setattr("neocog.batch.pool.PATIENCE", 2.0)
    waits = replace(job, reader=reader.changed(engine=Slow(reader.engine, seconds=2.5)))
    with open_workers(waits, 1) as pool:
        assert not any(block.failed for block in blocks_of(pool, waits, islice(find_inputs([scans]), 1)))
    assert started.call_count == 2


@posix
def test_workers_that_cannot_be_had_end_the_run(job, scans, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(sys, "path", [place for place in sys.path if "tests" not in place][:1])
        with pytest.raises(EndedEarly, match=r"cannot be started: ModuleNotFoundError"):
            read_all(job, scans, workers=1)
    for words, why in (([sys.executable, "-c", "exit(3)"], "the last one ended with code 3; see"),
                       (["/no/such/python"], ".*No such file")):  # fmt: skip
        monkeypatch.setattr("neocog.batch.pool.python", lambda *_, words=words: words)
        with pytest.raises(EndedEarly, match=f"cannot be started: {why}"):
            read_all(job, scans, workers=1)
    monkeypatch.setattr("resource.getrlimit", lambda _: (72, 4096))
    with pytest.raises(UsageError, match=r"got 9 workers, .* files allows 4; .*ulimit"):
        read_all(job, scans, workers=9)
    monkeypatch.setattr("neocog.batch.run.cores", lambda: 64)
    assert usual_workers() == 4


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, getattr(signal, "SIGKILL", None)])
def test_workers_end_with_the_command(number: int, model: str, scans: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    command = [*COMMAND, "-", "--model", model, "--workers", "2", "-o", str(out)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    process.stdin.write(f"{scans}/00.png\n{scans}/01.png\n".encode())
    process.stdin.flush()  # and the command waits for more
    until(lambda: out.exists() and out.read_bytes().count(b"\n") == 2)
    workers = children_of(process.pid)
    assert len(workers) == 2
    os.killpg(process.pid, number)  # as a terminal does: to every process of the command
    _, errors = process.communicate(timeout=10)
    assert sorted(record["text"] for record in records(out)) == ["0", "1"]
    if number == signal.SIGINT:
        assert (process.returncode, errors) == (130, b"neocog: interrupted\n")
    until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers), 10)


# not imported: Ray reads the environment then
there = sys.platform == "linux" and find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not there, reason="needs Linux, neocog[cluster]")


def test_what_a_cluster_cannot_do(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="auto, cpu or cuda"):
        Cluster("auto", device="cuda:1")
    with pytest.raises(UsageError, match="at least one"):
        Cluster("auto", workers=0)
    monkeypatch.setattr("neocog.batch.cluster.os.environ", {})
    monkeypatch.setitem(sys.modules, "ray", None)  # importing it fails
    with pytest.raises(UsageError, match=r"pip install \"neocog\[cluster\]\""):
        Cluster("auto").reading(job, []).__enter__()
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"127.0.0.1:{server.getsockname()[1]}"
    for address in (place, f"ray://{place}"):  # where nobody is is told at once
        with pytest.raises(UsageError, match=r"no cluster there .*refused"):
            Cluster(address).reading(job, []).__enter__()


@pytest.mark.slow
@needs_ray
def test_a_cluster_of_one_run_is_open_to_nobody_and_ends_with_it(tmp_path: Path) -> None:
    folders = set(Path("/tmp").glob("neocog-ray-*"))
    pictures = [tmp_path / f"{n}.png" for n in range(400)]
    save_page(pictures[0], "1")
    for other in pictures[1:]:
        shutil.copy(pictures[0], other)
    command = [sys.executable, "-m", "neocog", "read", str(tmp_path), "--ray", "local", "--workers", "1"]
    before = listening()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stdout.readline()
        (folder,) = set(Path("/tmp").glob("neocog-ray-*")) - folders
        assert all(address.endswith("0100007F") for address, _ in listening() - before)  # 127.0.0.1
        gcs = next(filter(None, (re.search(rb"--gcs-address=([\d.:]+)", line) for line in commands(folder))))
        code = "import sys, ray; ray.init(address=sys.argv[1])"
        other = subprocess.run([sys.executable, "-c", code, gcs[1]], capture_output=True, timeout=60)
        assert other.returncode
        assert b"authenti" in (other.stderr + other.stdout).lower()
        run.kill()
    until(lambda: not folder.exists() and not commands(folder), 10)


def listening() -> set[tuple[str, str]]:
    """Addresses and ports that anything of this machine listens on, in hex."""
    lines = (Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()).splitlines()
    return {tuple(row[1].split(":")) for row in map(str.split, lines) if row[3] == "0A"}  # type: ignore[misc]


def commands(folder: Path) -> list[bytes]:
    """Return the command lines of processes that name a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes())
    return [line for line in found if bytes(folder) in line]


@pytest.mark.slow
@needs_ray
def test_the_same_records_though_an_actor_is_killed_and_nothing_of_the_folder(job, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(os.path.isabs, sys.path)))
    (tmp_path / "cv2.py").write_text("open('ran', 'w')")
    for number in range(30):
        save_page(tmp_path / f"{number:02}.png", str(number))
    (tmp_path / "bad.png").write_bytes(b"")
    alone = read_all(job, Path(), workers=0)
    with pytest.raises(DeviceError, match="no machine"):
        Cluster("local", device="cuda").reading(job, []).__enter__()
    text = ""
    cluster = Cluster("local", device="cpu", workers=2)
    with cluster.reading(job, find_inputs(["."]), ordered=True) as blocks:
        for count, block in enumerate(blocks):
            text += block.text
            if count == 3:
                places = Path("/proc").glob("[0-9]*/cmdline")
                finders = [place for place in places if place.read_bytes().startswith(b"ray::Finder")]
                os.kill(int(finders[0].parent.name), signal.SIGKILL)
    assert text == alone
    assert len(text.splitlines()) == 31
    assert json.loads(text.splitlines()[0])["text"] == "0"
    assert not (tmp_path / "ran").exists()
