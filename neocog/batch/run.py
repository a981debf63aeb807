"""A whole run: inputs into tasks, tasks into records, by this process, by workers, by a cluster.

A picture that may cost much is read by a worker process, which has limits, however few there are.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path

from neocog.batch.gather import Gatherer
from neocog.batch.inputs import Item
from neocog.batch.pool import Pool
from neocog.batch.sources import check_file
from neocog.batch.steady import steady_engine
from neocog.batch.tasks import Block, Task, in_order, into_tasks
from neocog.batch.work import Job
from neocog.errors import InputError, UsageError

FEW = 12
"""As many pictures are read in less time than it takes to start workers."""

WINDOW = 8
"""Tasks for each worker that may be begun before one that is not done, where order is kept."""

_MOST_WORKERS = 512
_CAN_FORK = hasattr(os, "fork")  # Windows cannot: there all is read here, without limits
_FILES = 1  # that a worker keeps open in this process
_FILES_LEFT = 64  # that are left for all else

Blocks = Iterator[Block]


@dataclass(slots=True)
class Tally:
    """What a run has come to.

    Attributes
    ----------
    inputs, pages, failed : int
        Inputs, records, and records that tell of a failure, those of an earlier run among them.
    earlier : int
        Inputs of which the file of an earlier run has records.
    unsaved : int
        Pictures and pages for people that could not be saved.
    seconds : dict
        What each stage took, over all workers; ``network`` is the engine's own time.
    """

    inputs: int = 0
    pages: int = 0
    failed: int = 0
    earlier: int = 0
    unsaved: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, block: Block) -> None:
        """Count a block."""
        self.inputs += block.inputs
        self.pages += block.pages
        self.failed += block.failed
        for stage, seconds in block.seconds.items():
            self.spend(stage, seconds)

    def spend(self, stage: str, seconds: float) -> None:
        """Count time."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds


@contextmanager
def reading(
    job: Job,
    items: Iterable[Item],
    *,
    workers: int | None = None,
    ordered: bool = False,
    tally: Tally | None = None,
) -> Iterator[Blocks]:
    """Read inputs; the block's value yields their records as they come.

    Parameters
    ----------
    job : Job
        How; its reader has the engine.
    items : iterable of Item
        What; it is taken a little ahead of what is being read.
    workers : int, optional
        Processes that decode and find; 0: this one, and one more for pictures that may cost much.
        By default as many as there are cores, unless there are but few inputs.
    ordered : bool
        Whether blocks come in the order of their inputs.
    tally : Tally, optional
        Where the network's time goes.

    Raises
    ------
    UsageError
        If there cannot be so many workers.
    EndedEarly
        If workers cannot be started, at first or later.
    """
    if workers is None:
        items, few = _begins(items)
        workers = 0 if few else usual_workers()
    _check(workers)
    engine = steady_engine(job.reader.engine, isolated=job.isolated, batch=job.batch)
    reader = copy(job.reader)
    reader.engine, reader.batch = engine, engine.batch  # type: ignore[assignment]
    job = replace(job, reader=reader)
    with ExitStack() as stack:
        if workers == 0:
            yield _here(job, into_tasks(items, job.size), stack)
            return
        window = WINDOW * workers if ordered else None
        blocks = _pool(job, stack, workers, tally, window).run(into_tasks(items, job.size))
        yield in_order(blocks) if ordered else blocks


def _pool(
    job: Job, stack: ExitStack, workers: int, tally: Tally | None = None, window: int | None = None
) -> Pool:
    """Start workers; ``job`` has the engine that answers them."""
    reader = copy(job.reader)
    gatherer = Gatherer(reader.engine)  # type: ignore[arg-type]
    reader.engine = None  # type: ignore[assignment]
    if tally is not None:
        stack.callback(lambda: tally.spend("network", gatherer.busy))
    stack.callback(gatherer.close)
    return stack.enter_context(
        Pool(replace(job, reader=reader), gatherer, workers=workers, window=window)
    )


def _here(job: Job, tasks: Iterable[Task], stack: ExitStack) -> Blocks:
    """Do tasks here, but for those that may cost much: the first of these starts a worker."""
    pool = None
    for task in tasks:
        if not _CAN_FORK or all(map(_is_light, task.items)):
            yield job.do(task)
        else:
            pool = pool or _pool(job, stack, 1)
            yield from pool.run([task])


def _is_light(item: Item) -> bool:
    """Whether an input is safe to read here; one that cannot be opened is."""
    from neocog.vision.decode import is_light

    try:
        picture = item.picture()
        if isinstance(picture, Path):
            check_file(picture)
        return is_light(picture)
    except (InputError, OSError):
        return True


def usual_workers() -> int:
    """One for each core, as far as there can be so many."""
    from neocog.network.parallel import cores

    return min(cores(), _room()) if _CAN_FORK else 0


def _check(workers: int) -> None:
    if not 0 <= workers <= _MOST_WORKERS:
        raise UsageError(f"{workers} workers came; wanted 0 (none) to {_MOST_WORKERS}")
    if workers > (room := _room()):
        raise UsageError(
            f"{workers} workers came; the open files of a process are enough for {room}: take "
            "fewer, or raise that limit (ulimit -n)"
        )


def _room() -> int:
    """Workers that the system lets this process have."""
    if not _CAN_FORK:
        return 0
    import resource

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return _MOST_WORKERS
    return max(0, min(_MOST_WORKERS, (files - _FILES_LEFT) // _FILES))


def _begins(items: Iterable[Item]) -> tuple[Iterator[Item], bool]:
    """The same inputs, and whether they are few."""
    items = iter(items)
    first = list(islice(items, FEW + 1))
    return chain(first, items), len(first) <= FEW
