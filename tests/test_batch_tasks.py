"""Tasks are dealt out to workers, and digits to passes of the network."""

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from neocog import Reader
from neocog.batch.batching import FixedBatches, Networks
from neocog.batch.pool import WorkerDied, run_tasks
from neocog.batch.sources import Item
from neocog.batch.tasks import Block, Job, Task, in_order, into_tasks
from neocog.errors import EndedEarly
from neocog.reading.formats import Format
from tests.support import digits_of


def written(task: Task) -> Block:
    """A block that tells what a task was about; what `Job.do` does in tests."""
    text = " ".join(item.trouble or item.source for item in task.items)
    return Block(task.first, text, inputs=len(task.items))


JOB: Any = SimpleNamespace(do=written)


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


@pytest.mark.parametrize(
    ("waits_at", "window", "held", "most"),
    [
        ("0", 24, 0, 24 // 2 + 1),  # tasks of two inputs each, and one that waits
        ("x", None, 2**28, 2 + 1),  # a third waits for room
    ],
)
def test_order_and_bytes_bound_what_waits(waits_at: str, window: int | None, held: int, most: int) -> None:
    taken: list[int] = []
    hands = [Hand(waits_at=waits_at) for _ in range(4)]
    seen: list[int] = []

    def go_on() -> None:
        seen.append(len(taken))
        for hand in hands:
            hand.go_on.set()

    threading.Timer(0.3, go_on).start()
    blocks = run_tasks(some_tasks(200, taken, held=held), hands, JOB, window=window)
    firsts = [block.first for block in blocks]
    assert seen[0] <= most
    assert sorted(firsts) == list(range(0, 400, 2))
    assert firsts[0] > 0 or not window


def test_what_a_worker_died_over_is_tried_alone() -> None:
    hand = Hand("1", "x")
    texts = [block.text for block in run_tasks(some_tasks(2, []), [hand], JOB)]
    trouble = "cannot be read: twice, the process that reads it was ended"
    assert texts == ["0", trouble, trouble, trouble]
    assert hand.starts == 1 + 2 + 3


def test_false_starts_and_broken_inputs_end_the_run() -> None:
    hand = Hand(false_starts=2)
    assert sum(block.inputs for block in run_tasks(some_tasks(5, []), [hand], JOB)) == 10
    with pytest.raises(EndedEarly, match="cannot be started: the last one was ended"):
        list(run_tasks(some_tasks(5, []), [Hand(false_starts=3)], JOB))

    def broken() -> Iterator[Task]:
        yield from some_tasks(3, [])
        raise EndedEarly("the list breaks off")

    blocks = run_tasks(broken(), [Hand(), Hand()], JOB)
    assert sorted(block.first for block in islice(blocks, 3)) == [0, 2, 4]
    with pytest.raises(EndedEarly, match="breaks off"):
        next(blocks)


def test_tasks_are_bounded_by_bytes_and_blocks_put_in_order() -> None:
    light = [Item(str(n), str(n)) for n in range(10)]
    assert [len(task.items) for task in into_tasks(light, 4)] == [4, 4, 2]
    tasks = list(into_tasks([item._replace(data=bytes(2**23)) for item in light], 256))
    assert [(task.first, len(task.items)) for task in tasks] == [(0, 3), (3, 3), (6, 3), (9, 1)]
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
    for size in (1, 7, 30):
        some = np.random.default_rng(size).permutation(30)[:size]
        answers = engine.recognise(digits[some])
        np.testing.assert_array_equal(answers.score, whole.score[some])
        np.testing.assert_array_equal(answers.p, whole.p[some])


class Slow(FixedBatches):
    """An engine that is at work until ``busy`` is set; remembers how many digits came at a time."""

    def __init__(self, engine: Any) -> None:
        super().__init__(engine)
        self.sizes: list[int] = []
        self.begun, self.busy = threading.Event(), threading.Event()

    def recognise(self, digits: Any, *, batch: int | None = None) -> Any:
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
    assert slow.sizes[0] == 1
    assert len(slow.sizes) <= 4
    assert sum(slow.sizes) == 12


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
    with pytest.raises(EndedEarly):
        networks.ask(many)


def test_a_long_document_of_single_digits_shows_that_it_is_at_work(reader: Reader, tmp_path: Path) -> None:
    first, *more = [Image.fromarray(digit) for digit in digits_of("12345")]
    first.save(tmp_path / "a.tif", save_all=True, append_images=more)
    beats: list[int] = []
    task = Task(0, (Item(str(tmp_path / "a.tif"), "a.tif"),))
    job = Job(reader, Format("text"), isolated=True, cards=True)  # cards decode the pages once more
    assert job.do(task, beat=lambda: beats.append(1)).pages == 5
    assert len(beats) >= 10
