"""A whole run: inputs into tasks, tasks into records, by this process, by workers, by a cluster.

A picture that may cost much is read by a worker process, which has limits, however few there are.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import numpy as np

from neocog.batch.archives import PACKED_TAR, Item, Skipped
from neocog.batch.cluster import Cluster
from neocog.batch.inputs import Shard, comes_once, find_inputs
from neocog.batch.output import Done, PdfSink, open_sink
from neocog.batch.pool import Networks, WorkerProcess, in_passes, run_tasks, workers_of
from neocog.batch.report import PictureFolder, Report
from neocog.batch.tasks import ON_BLANK, Block, Job, Task, into_tasks
from neocog.errors import EndedEarly, InputError, NeocogError, NothingToRead, UsageError
from neocog.network.parallel import cores
from neocog.reading.addresses import is_address
from neocog.reading.formats import Format
from neocog.reading.forms import Form
from neocog.reading.pictures import STDIN, Files, check_file, check_written, foreign
from neocog.reading.reader import Reader
from neocog.text import reason_of
from neocog.vision.decode import is_light

_NAMED = 3  # files that a summary names of those that are skipped
_FEW = 12  # as many pictures are read in less time than it takes to start workers
_MOST_WORKERS = 512
_AT_HAND = 2**26  # bytes of inputs that are looked at to see how few there are
_FILES_LEFT = 64  # open files that are left for all else: a worker takes two


@dataclass(frozen=True)
class Request:
    """What to read, how, and where to; UsageError if it makes no sense."""

    inputs: tuple[str, ...]  # as `find_inputs` takes them
    format: Format
    output: str | None = None  # the file of the records; None: stdout
    null: bool = False  # names in lists and on stdin end with a zero byte
    isolated: bool = False  # every picture is one digit
    resume: bool = False  # go on where ``output`` breaks off
    shard: Shard | None = None  # the share of the inputs to read
    ordered: bool = False  # records in the order of the inputs
    workers: int | None = None  # 0: this process; None: one a core, 0 for a few
    cluster: Cluster | None = None  # the Ray cluster that reads
    batch: int | None = None  # most digits of a pass
    overlay: str | None = None  # folder of pictures of what was read
    report: str | None = None  # a page for people
    force: bool = False  # an ``output`` or ``report`` that exists is overwritten
    verbose: bool = False  # files that are skipped are named
    quiet: bool = False  # only what fails is told
    form: Form | None = None  # whose sheets are read

    def __post_init__(self) -> None:
        special = self.output is not None and os.path.exists(self.output) and not os.path.isfile(self.output)
        if self.resume and (self.output is None or special or self.format.kind != "jsonl"):
            raise UsageError("--resume needs a file of JSON lines: add -o FILE.jsonl")
        if self.inputs.count(STDIN) > 1:
            raise UsageError(f"{STDIN} is given more than once, but there is only one stdin")
        if self.output is not None and self.report is not None:
            same = os.path.realpath(self.output) == os.path.realpath(self.report)
            if same or self.output in Files([self.report]):
                raise UsageError(f"{self.report}: is also the file of -o; choose another --report")
        named = Files(word.removeprefix("@") for word in self.inputs)
        for place, option in ((self.output, "-o"), (self.report, "--report")):
            if place is None:
                continue
            if place in named:
                raise UsageError(f"{place}: is also an input; choose another {option}")
            if os.path.isfile(place) and not (self.resume and option == "-o"):
                _ = self.sources  # UsageError if one of them is this file
            if option != "-o" or self.format.kind != "pdf" or foreign(place) != "a picture":
                check_written(place, option)
            if os.path.isfile(place) and os.path.getsize(place) and not (self.force or self.resume):
                more = option == "-o" and self.format.kind == "jsonl"
                resume = "--resume to continue it, " if more else ""
                raise UsageError(f"{place}: exists; add {resume}--force to overwrite it")

    @property
    def sources(self) -> list[tuple[str, str]]:
        """All files that are known to be read beforehand, and their keys, archives unopened."""
        named = [word for word in self.inputs if not comes_once(word)]
        with suppress(NothingToRead):  # that is told later
            found = find_inputs(named, null=self.null, look_into=False)
            return [(item.source, item.key) for item in self._spared(found)]
        return []

    def items(self, skipped: Skipped = lambda name, why: None) -> Iterator[Item]:
        """What is to be read: the shard's inputs; UsageError if one is a file that is written."""
        for item in self._spared(find_inputs(self.inputs, null=self.null, skipped=skipped)):
            if self.shard is None or self.shard.holds(item.key):
                yield item

    def count(self) -> int | None:
        """How many inputs there are, or None where that cannot be told beforehand."""
        if any(comes_once(word) or word.lower().endswith(PACKED_TAR) for word in self.inputs):
            return None
        with suppress(NeocogError):
            return sum(1 for _ in self.items())
        return None

    def first(self) -> bytes:
        """The first of all inputs, whatever the shard; UsageError if it cannot be had, or had again."""
        if any(map(comes_once, self.inputs)):
            why = "the form names no blank, and stdin comes but once"
            raise UsageError(f"{why}; name a picture of the blank in it")
        return blank_from(next(iter(self._spared(find_inputs(self.inputs, null=self.null)))))

    def _spared(self, items: Iterable[Item]) -> Iterator[Item]:
        places = ((self.output, "-o"), (self.report, "--report"))
        written = [(place, Files([place]), option) for place, option in places if place is not None]
        last = None
        for item in items:
            if (file := item.archive or item.source) != last:  # an archive's members come one after another
                for place, its, option in written:
                    if file in its:
                        raise UsageError(f"{place}: is also an input; choose another {option}")
            last = file
            yield item


def blank_from(item: Item) -> bytes:
    """The bytes of an input that is taken for the blank of a form; UsageError if it has none."""
    try:
        picture = item.picture()
        if isinstance(picture, Path):
            check_file(picture)
            picture = picture.read_bytes()
        if not isinstance(picture, bytes):
            raise InputError("pixels are no file; name a picture of the blank in the form")
    except (InputError, OSError) as error:
        raise UsageError(f"{item.source}: as the first page of the form, {reason_of(error)}") from None
    return picture


@dataclass(slots=True)
class Tally(Block):
    """What a run has come to, records of an earlier run among them."""

    earlier: int = 0  # inputs of which the file of an earlier run has records
    unsaved: int = 0  # pictures and pages for people that could not be saved
    skipped: int = 0  # files in folders and archives that are not pictures
    named: list[str] = field(default_factory=list)  # the first of them


def read_all(
    request: Request, reader: Reader, *, watch: Callable[[Block], None] = lambda block: None
) -> Tally:
    """Read and write what is asked for; ``watch`` gets what is written, first what an earlier run did."""
    settings = reader.settings | ({"isolated": True} if request.isolated else {})
    form, noted = request.form, set[str]()
    if form is not None:
        form = form.onto(request.first()) if form.lacks_blank else form
        settings |= {"form": form.digest}
    tally, done = Tally(), Done()
    found, again = 0, -1  # inputs of this run; which of them was the last one of the run before
    folder = PictureFolder(request.overlay, inputs=request.sources) if request.overlay else None
    report = Report(request.report) if request.report else None

    def save() -> None:
        try:
            if report:
                report.save()
        except UsageError as error:  # which does not change how the run ends otherwise
            tally.unsaved += 1
            watch(Block(messages=[str(error)]))

    def skipped(name: str, why: str) -> None:
        tally.skipped += 1
        if len(tally.named) < _NAMED:
            tally.named.append(os.path.basename(name))
        if request.verbose:
            watch(Block(messages=[f"{name}: skipped ({why})"]))

    def items() -> Iterator[Item]:
        nonlocal found, again
        for item in request.items(skipped):
            if not done.take(item.source):
                again = found if done.tail and item.source == done.source else again
                found += 1
                yield item

    with ExitStack() as stack:
        stack.callback(save)
        job = Job(
            reader, replace(request.format, settings=settings), isolated=request.isolated,
            keep=bool(folder) or request.format.kind == "pdf",
            cards=bool(report), batch=request.batch, quiet=request.quiet, form=form,
        )  # fmt: skip
        sink = stack.enter_context(open_sink(job.format, request.output))
        if request.resume:
            finder = None if request.isolated else reader.finder.model.id
            done = Done(request.output, model=reader.model.id, settings=settings, finder=finder)
            sink.resume(done)
        tally.earlier = done.before.inputs + done.last.inputs
        tally.add(done.before)
        if done.before.inputs:
            watch(done.before)
        ordered = request.ordered or request.format.kind == "pdf"
        if request.cluster is not None:
            run = request.cluster.reading(job, items(), ordered=ordered)
        else:
            workers = request.workers
            if workers is None and any(map(comes_once, request.inputs)):  # who knows how many come, and when
                workers = usual_workers(reader.engine.device)
            run = reading(job, items(), workers=workers, ordered=ordered)
        for block in stack.enter_context(run):
            anew = block.first <= again < block.first + block.inputs
            done.last = Block() if anew else done.last
            sink.put(block.text, anew=anew)
            tally.add(block)
            troubles = list(folder.save_all(block.readings)) if folder else []
            troubles += sink.draw(block.readings) if isinstance(sink, PdfSink) else []
            block.messages = [one for one in block.messages if one not in noted] + troubles
            noted |= {one for one in block.messages if one.startswith(ON_BLANK)}
            tally.unsaved += len(troubles)
            watch(block)
            for card in block.cards:
                assert report
                report.add(card)
        if found != (read := tally.inputs - done.before.inputs):
            told = f"{found} inputs gave only {read} records"
            raise EndedEarly(f"internal error: {told}; rerun with --resume")
        tally.add(done.last)
    return tally


@contextmanager
def reading(
    job: Job, items: Iterable[Item], *, workers: int | None = None, ordered: bool = False
) -> Iterator[Iterator[Block]]:
    """Read inputs; the block's value yields their records as they come.

    ``workers`` decode and find; 0: this process, and one more for pictures that may cost much; by default
    `usual_workers`, or 0 for a few inputs. UsageError if there cannot be so many.
    """
    if workers is None:
        items, begin = iter(items), list[Item]()
        while len(begin) <= _FEW and sum(one.held for one in begin) < _AT_HAND:
            if (item := next(items, None)) is None:
                workers = 0
                break
            begin.append(item)
        workers = usual_workers(job.reader.engine.device) if workers is None else workers
        items = chain(begin, items)
    if not 0 <= workers <= _MOST_WORKERS:
        raise UsageError(f"got {workers} workers, expected 0 (none) to {_MOST_WORKERS}")
    if workers > (most := _most_workers()):
        told = f"got {workers} workers, but the limit of open files allows {most}"
        raise UsageError(f"{told}; use fewer workers or raise the limit (ulimit -n)")
    job = job.with_engine(in_passes(job.reader.engine, batch=job.batch, isolated=job.isolated))
    tasks = into_tasks(items, job.size)
    with ExitStack() as stack:
        if workers:
            yield run_tasks(tasks, stack.enter_context(open_workers(job, workers)), job, ordered=ordered)
        else:
            yield _here(job, tasks, stack)


@contextmanager
def open_workers(job: Job, count: int) -> Iterator[list[WorkerProcess]]:
    """Open workers for a job, whose engine is `in_passes`; its networks answer them."""
    finder = job.reader.finder
    asked = None if finder.device == "cpu" or job.isolated else finder
    networks = Networks(job.reader.engine, asked, batch=job.batch)
    workers = workers_of(job, networks.ask, count)
    try:
        yield workers
    finally:
        for worker in workers:
            worker.close()
        networks.close()


def _here(job: Job, tasks: Iterable[Task], stack: ExitStack) -> Iterator[Block]:
    """Do tasks here, but for those that may cost much: the first of these starts a worker."""

    def is_safe(item: Item) -> bool:
        """What cannot be opened is, no address is."""
        if is_address(item.source):
            return item.trouble is not None
        try:
            picture = item.picture()
            if isinstance(picture, Path):
                check_file(picture)
            return isinstance(picture, np.ndarray) or is_light(picture)
        except (InputError, OSError):
            return True

    worker, layouts = None, () if job.form is None else job.form.layouts
    light = all(is_light(page.blank) for layout in layouts for page in layout.pages if page.blank is not None)
    for task in tasks:
        if light and all(map(is_safe, task.items)):
            yield job.do(task)
            continue
        if worker is None:
            (worker,) = stack.enter_context(open_workers(job, 1))
            worker.start()
        yield from worker.do(task, job)


def usual_workers(device: str = "cpu") -> int:
    """One for each core, two where a GPU answers them, as far as there can be so many."""
    return min(cores() if device == "cpu" else 2 * cores(), _most_workers())


def _most_workers() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return _MOST_WORKERS
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return _MOST_WORKERS
    return max(0, min(_MOST_WORKERS, (files - _FILES_LEFT) // 2))
