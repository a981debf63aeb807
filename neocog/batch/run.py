"""A whole run: inputs into tasks, tasks into records, by this process, by workers, by a cluster."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import chain, islice

from neocog.batch.gather import Gatherer
from neocog.batch.inputs import Item
from neocog.batch.pool import Pool
from neocog.batch.steady import steady_engine
from neocog.batch.tasks import Block, in_order, into_tasks
from neocog.batch.work import Job
from neocog.errors import UsageError

FEW = 12
"""As many pictures are read in less time than it takes to start workers."""

WINDOW = 8
"""Tasks for each worker that may be begun before one that is not done, where order is kept."""

_MOST_WORKERS = 512
_FILES = 4  # that a worker keeps open in this process
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
        Processes that decode and find; 0: this one. By default as many as there are cores,
        unless there are but few inputs.
    ordered : bool
        Whether blocks come in the order of their inputs.
    tally : Tally, optional
        Where the network's time goes.

    Raises
    ------
    UsageError
        If there cannot be so many workers.
    """
    if workers is None:
        items, few = _begins(items)
        workers = 0 if few else usual_workers()
    _check(workers)
    engine = steady_engine(job.reader.engine, isolated=job.isolated, batch=job.batch)
    reader = copy(job.reader)
    reader.engine, reader.batch = engine, engine.batch  # type: ignore[assignment]
    job = replace(job, reader=reader)
    if workers == 0:
        yield map(job.do, into_tasks(items, job.size))
        return
    reader.engine = None  # type: ignore[assignment]
    gatherer = Gatherer(engine)
    window = WINDOW * workers if ordered else None
    try:
        with Pool(job, gatherer, workers=workers, window=window) as pool:
            blocks = pool.run(into_tasks(items, job.size))
            yield in_order(blocks) if ordered else blocks
    finally:
        gatherer.close()
        if tally is not None:
            tally.spend("network", gatherer.busy)


def usual_workers() -> int:
    """One for each core, as far as there can be so many."""
    from neocog.network.engine import cores

    return max(1, min(cores(), _room()))


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
    if sys.platform == "win32":
        return _MOST_WORKERS
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
