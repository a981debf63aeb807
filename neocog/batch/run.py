"""A whole run: inputs into tasks, tasks into records, by this process, by workers, by a cluster.

A picture that may cost much is read by a worker process, which has limits, however few there are.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from neocog.batch.addresses import is_address
from neocog.batch.batching import FixedBatches, Networks
from neocog.batch.formats import Format
from neocog.batch.inputs import comes_once
from neocog.batch.output import open_sink
from neocog.batch.overlays import PictureFolder, overlay, steps
from neocog.batch.pool import Pool, WorkerProcess, do, run_tasks, start
from neocog.batch.report import Report
from neocog.batch.request import Request
from neocog.batch.resume import Done, read_done
from neocog.batch.sources import Item, check_file
from neocog.batch.tasks import (
    Block,
    Counts,
    Job,
    Task,
    in_order,
    into_tasks,
    what_went_wrong,
)
from neocog.errors import EndedEarly, InputError, UsageError
from neocog.files import file_lock
from neocog.messages import printable

if TYPE_CHECKING:
    from neocog.batch.reader import Reader

FEW = 12
"""As many pictures are read in less time than it takes to start workers."""

WINDOW = 8
"""Tasks for each worker that may be begun before one that is not done, where order is kept."""

_MOST_WORKERS = 512
_CAN_FORK = hasattr(os, "fork")  # Windows cannot: there all is read here, without limits
_FILES_LEFT = 64  # open files that are left for all else: a worker takes one

Blocks = Iterator[Block]
Watch = Callable[[Block], None]


@dataclass(slots=True)
class Tally(Counts):
    """What a run has come to, records of an earlier run among them."""

    found: int = 0  # inputs of this run
    earlier: int = 0  # inputs of which the file of an earlier run has records
    unsaved: int = 0  # pictures and pages for people that could not be saved
    skipped: int = 0  # files in folders and archives that are not pictures


def read_all(request: Request, reader: "Reader", *, watch: Watch = lambda block: None) -> Tally:
    """Read what is asked for, and write the records as they come.

    ``watch`` is called with each block once its records are written; first, where a run is resumed,
    with an empty one that counts what is done already.

    Raises
    ------
    UsageError, NothingToRead, DeviceError, EndedEarly
        See `neocog.errors`.
    """
    settings = reader.settings | ({"isolated": True} if request.isolated else {})
    form = replace(request.form, settings=settings)
    tally = Tally()
    with ExitStack() as stack:
        stack.enter_context(file_lock(request.output))
        done = Done()
        if request.resume and request.output is not None:
            finder = None if request.isolated else reader.finder.model.id
            done = read_done(
                request.output, model=reader.model.id, settings=settings, finder=finder
            )
        tally.earlier = done.inputs + (done.last is not None)
        people = _ForPeople(request, reader, tally, watch)
        stack.callback(people.close)
        sink = stack.enter_context(
            open_sink(form, request.output, done=done if request.resume else None)
        )
        if done.pages:
            earlier = Block(inputs=done.inputs, pages=done.pages, failed=done.failed)
            tally.add(earlier)
            watch(earlier)
        job = people.job(form)

        def skipped(name: str, why: str) -> None:
            tally.skipped += 1
            if request.verbose:
                watch(Block(messages=[f"{name}: skipped ({why})"]))

        def items() -> Iterator[Item]:
            for item in request.items(done, skipped):
                tally.found += 1
                yield item

        for block in stack.enter_context(_reading(request, job, items(), tally)):
            sink.put(block.text)
            people.take(block)
        if tally.found != (read := tally.inputs - done.inputs):
            raise EndedEarly(f"{tally.found} inputs were found but only {read} gave records")
        if done.last is not None and not done.again:
            tally.add(Block(inputs=1, pages=done.last_pages, failed=done.last_failed))
        tally.spend("output", sink.seconds)
    return tally


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

    ``workers`` are the processes that decode and find; 0: this one, and one more for pictures that
    may cost much; by default as `usual_workers`, unless there are but few inputs. ``tally``
    gets the network's time. UsageError if there cannot be so many workers, EndedEarly if they
    cannot be started.
    """
    if workers is None:
        items, few = _begins(items)
        workers = 0 if few else usual_workers(job.reader.engine.device)
    _check(workers)
    engine = FixedBatches(job.reader.engine, batch=job.batch, isolated=job.isolated)
    reader = copy(job.reader)
    reader.engine, reader.batch = engine, engine.batch  # type: ignore[assignment]
    job = replace(job, reader=reader)
    tasks = into_tasks(items, job.size)
    with ExitStack() as stack:
        if workers == 0:
            yield _here(job, tasks, stack)
            return
        window = WINDOW * workers * job.size if ordered else None
        blocks = run_tasks(tasks, _started(job, stack, workers, tally), window=window)
        yield in_order(blocks) if ordered else blocks


def _started(
    job: Job, stack: ExitStack, workers: int, tally: Tally | None = None
) -> Sequence[WorkerProcess]:
    """Workers for a job, which has the networks that answer them."""
    finder = job.reader.finder
    networks = Networks(
        job.reader.engine,  # type: ignore[arg-type]
        None if finder.device == "cpu" or job.isolated else finder,
    )
    stack.callback(networks.close)
    if tally is not None:
        stack.callback(lambda: tally.spend("network", networks.digits.busy))
    return stack.enter_context(Pool(job, networks.ask, workers=workers)).workers


def _here(job: Job, tasks: Iterable[Task], stack: ExitStack) -> Blocks:
    """Do tasks here, but for those that may cost much: the first of these starts a worker."""
    worker = None
    for task in tasks:
        if not _CAN_FORK or all(map(_is_light, task.items)):
            yield job.do(task)
            continue
        if worker is None:
            (worker,) = _started(job, stack, 1)
            start(worker)
        yield from do(worker, task)


def _is_light(item: Item) -> bool:
    """Whether an input is safe to read here; one that cannot be opened is, no address is."""
    from neocog.vision.decode import is_light

    if is_address(item.source):
        return item.trouble is not None
    try:
        picture = item.picture()
        if isinstance(picture, Path):
            check_file(picture)
        return is_light(picture)
    except (InputError, OSError):
        return True


def usual_workers(device: str = "cpu") -> int:
    """One for each core, as far as there can be so many; two where a GPU answers them."""
    from neocog.network.parallel import cores

    return min(cores() if device == "cpu" else 2 * cores(), _most_workers())


def _check(workers: int) -> None:
    if not 0 <= workers <= _MOST_WORKERS:
        raise UsageError(f"got {workers} workers, expected 0 (none) to {_MOST_WORKERS}")
    if workers > (most := _most_workers()):
        raise UsageError(
            f"got {workers} workers, but the limit of open files allows {most}; use fewer "
            "workers or raise the limit (ulimit -n)"
        )


def _most_workers() -> int:
    """Workers that the system lets this process have."""
    if not _CAN_FORK:
        return 0
    import resource

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return _MOST_WORKERS
    return max(0, min(_MOST_WORKERS, files - _FILES_LEFT))


def _begins(items: Iterable[Item]) -> tuple[Iterator[Item], bool]:
    """The same inputs, and whether they are few."""
    items = iter(items)
    first = list(islice(items, FEW + 1))
    return chain(first, items), len(first) <= FEW


def _reading(
    request: Request, job: Job, items: Iterable[Item], tally: Tally
) -> AbstractContextManager[Blocks]:
    ordered = request.ordered or request.form.kind == "table"  # which nobody sees before its end
    if request.cluster is not None:
        return request.cluster.reading(job, items, ordered=ordered)
    workers = request.workers
    if request.debug is not None:
        workers = 0  # what it shows is searched for in this process
    elif workers is None and any(map(comes_once, request.inputs)):
        workers = usual_workers(
            job.reader.engine.device
        )  # nobody knows how many names will come, nor when
    return reading(job, items, workers=workers, ordered=ordered, tally=tally)


class _ForPeople:
    """What a run shows to people: pictures of pages, a report, progress."""

    def __init__(self, request: Request, reader: "Reader", tally: Tally, watch: Watch) -> None:
        self._request, self._reader, self._tally, self._watch = request, reader, tally, watch
        self._folders: list[PictureFolder] = []
        if request.overlay is not None:
            self._folders.append(
                PictureFolder(request.overlay, "--save-overlay", overlay, inputs=request.sources)
            )
        if request.debug is not None:
            from neocog.vision.finder import LONG_SIDE

            self._folders.append(
                PictureFolder(
                    request.debug, "--debug", steps(reader),
                    inputs=request.sources, long_side=LONG_SIDE,
                )
            )  # fmt: skip
        self._report = None if request.report is None else Report(request.report)

    def job(self, form: Format) -> Job:
        """How tasks are done so that blocks carry what is wanted here."""
        return Job(
            self._reader,
            form,
            isolated=self._request.isolated,
            keep=bool(self._folders),
            cards=self._report is not None,
            batch=self._request.batch,
            quiet=self._request.quiet,
        )

    def take(self, block: Block) -> None:
        """Count a block, draw what was read, and say what could not be drawn."""
        self._tally.add(block)
        for item, readings in block.readings:
            pages = [page for page in readings if page.error is None]
            for folder in self._folders if pages else ():
                try:
                    folder.save(*pages, picture=item.picture(), key=item.key)
                except Exception as error:  # it may be another picture by now, the disk be full
                    why = str(error) if isinstance(error, UsageError) else what_went_wrong(error)
                    name = printable(item.source)
                    block.messages.append(f"{name}: not drawn: {printable(why)}")
                    self._tally.unsaved += 1
        self._watch(block)
        for card in block.cards if self._report else ():
            self._report.add(card)  # type: ignore[union-attr]

    def close(self) -> None:
        """Save the report; that it cannot be does not change how the run ends otherwise."""
        if self._report is not None and (trouble := self._report.save_if_any()):
            self._tally.unsaved += 1
            self._watch(Block(messages=[trouble]))
