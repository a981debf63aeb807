"""All that may be asked of a reading run, and the run itself: inputs in, records written."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from neocog.batch.forms import Form
from neocog.batch.inputs import STDIN, Item, comes_once, count_inputs, find_inputs
from neocog.batch.overlays import OverlayFolder, StepFolder, names_of
from neocog.batch.report import Report
from neocog.batch.resume import Done, read_done
from neocog.batch.run import Blocks, Tally, reading, usual_workers
from neocog.batch.shards import Shard
from neocog.batch.sinks import alone, open_sink
from neocog.batch.sources import Files, check_written
from neocog.batch.tasks import Block, Place
from neocog.batch.work import Job, what_went_wrong
from neocog.errors import EndedEarly, NothingToRead, UsageError
from neocog.messages import printable

if TYPE_CHECKING:
    from neocog.batch.cluster import Cluster
    from neocog.batch.reader import Reader


@dataclass(frozen=True)
class Request:
    """What to read, how, and where to.

    Attributes
    ----------
    inputs : tuple of str
        As :func:`neocog.batch.inputs.find_inputs` takes them.
    form : Form
        The form of the records.
    output : str or None
        The file that they go to; None: stdout.
    null : bool
        Whether names in lists and on stdin end with a zero byte.
    isolated : bool
        Whether every picture is one digit that need not be searched for.
    resume : bool
        Whether to go on where ``output`` breaks off.
    shard : Shard or None
        The share of the inputs to read.
    ordered : bool
        Whether records come in the order of the inputs, not of completion.
    workers : int or None
        Processes that decode and find; 0: this one, and one for pictures that may cost much;
        None: as many as there are cores, 0 for a few pictures.
    cluster : Cluster or None
        The Ray cluster that reads.
    batch : int or None
        Most digits of a pass.
    overlay, debug, report : str or None
        Folders of pictures of what was read and how it was found, and a page for people.

    Raises
    ------
    UsageError
        If it makes no sense.
    """

    inputs: tuple[str, ...]
    form: Form
    output: str | None = None
    null: bool = False
    isolated: bool = False
    resume: bool = False
    shard: Shard | None = None
    ordered: bool = False
    workers: int | None = None
    cluster: "Cluster | None" = None
    batch: int | None = None
    overlay: str | None = None
    debug: str | None = None
    report: str | None = None

    def __post_init__(self) -> None:
        if self.resume and (self.output is None or self.form.kind != "jsonl"):
            raise UsageError("--resume goes on in a file of JSON lines; give --format jsonl and -o")
        if self.inputs.count(STDIN) > 1:
            raise UsageError(f"{STDIN} came more than once; there is one stdin")
        if self.output is not None and self.report is not None:
            same = os.path.realpath(self.output) == os.path.realpath(self.report)
            if same or self.output in Files([self.report]):
                raise UsageError(f"{self.report}: is the file of -o too; give another --report")
        lists = [word[1:] for word in self.inputs if word.startswith("@")]
        for option, place in self._written():
            if place in Files(lists):
                raise UsageError(f"{place}: is one of the lists; give another {option}")
            if os.path.isfile(place) and not (self.resume and option == "-o"):
                with suppress(NothingToRead):  # that is told later
                    for _ in self._spared(self._files()):
                        pass
            check_written(place, option)

    @cached_property
    def sources(self) -> list[tuple[str, str]]:
        """All files that are known to be read beforehand, by their keys, archives unopened."""
        with suppress(NothingToRead):
            return [(item.source, item.key) for item in self._files()]
        return []

    def items(self, done: Done) -> Iterator[Item]:
        """What is to be read: the shard's inputs, without those that are done.

        Raises
        ------
        UsageError
            If the output is one of the inputs.
        NothingToRead
            If there are no inputs at all.
        """
        for item in self._spared(find_inputs(self.inputs, null=self.null)):
            if self.shard is not None and not self.shard.holds(item.key):
                continue
            if not done.take(item.source):
                yield item

    def count(self) -> int | None:
        """How many inputs there are, or None where that cannot be told beforehand."""
        return count_inputs(self.inputs, null=self.null, shard=self.shard)

    def _files(self) -> Iterator[Item]:
        named = [word for word in self.inputs if not comes_once(word)]
        return find_inputs(named, null=self.null, look_into=False)

    def _written(self) -> list[tuple[str, str]]:
        """The files that are going to be written, each after its option."""
        places = (("-o", self.output), ("--report", self.report))
        return [(option, place) for option, place in places if place is not None]

    def _spared(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield inputs, none of which may be a file that is going to be written."""
        written = self._written()
        files = Files(place for _, place in written)
        names = {os.path.abspath(place): (option, place) for option, place in written}
        last = None
        for item in items:
            file = item.archive or item.source
            if written and file != last and (os.path.abspath(file) in names or file in files):
                option, place = names.get(os.path.abspath(file), written[0])
                raise UsageError(f"{place}: is one of the inputs; give another {option}")
            last = file  # the members of an archive come one after another
            yield item


def read_all(
    request: Request, reader: "Reader", *, watch: Callable[[Block], None] = lambda block: None
) -> Tally:
    """Read what is asked for, and write the records as they come.

    Parameters
    ----------
    request : Request
    reader : Reader
        What reads.
    watch : callable
        Called with each block once its records are written; first, where a run is resumed, with
        an empty one that counts what is done already.

    Returns
    -------
    Tally
        What it has come to.

    Raises
    ------
    UsageError, NothingToRead, DeviceError, EndedEarly
        See `neocog.errors`; what one input does becomes its record.
    """
    settings = reader.settings | ({"isolated": True} if request.isolated else {})
    form = replace(request.form, settings=settings)
    tally = Tally()
    with ExitStack() as stack:
        stack.enter_context(alone(request.output))
        done = Done()
        if request.resume and request.output is not None:
            finder = None if request.isolated else reader.finder.model.id
            done = read_done(
                request.output, model=reader.model.id, settings=settings, finder=finder
            )
        tally.earlier = done.inputs + (done.last is not None)
        folders = _folders(request, reader)
        job = Job(
            reader,
            form,
            isolated=request.isolated,
            keep=bool(folders),
            cards=request.report is not None,
            batch=request.batch,
        )
        report = None
        if request.report is not None:
            report = Report(request.report)
            stack.callback(_save, report, tally, watch)
        resumed = done if request.resume else None
        sink = stack.enter_context(open_sink(form, request.output, done=resumed))
        if done.pages:
            earlier = Block(Place(-1), "", done.inputs, done.pages, done.failed)
            tally.add(earlier)
            watch(earlier)
        feed = _Counted(request.items(done))
        for block in stack.enter_context(_reading(request, job, feed, tally)):
            sink.put(block.text)
            tally.add(block)
            tally.unsaved += _draw(block, folders)
            watch(block)
            if report is not None:
                for card in block.cards:
                    report.add(card)
        if feed.count != (read := tally.inputs - done.inputs):
            raise EndedEarly(f"{feed.count} inputs were found, and records came of {read}")
        if done.last is not None and not done.again:
            tally.add(Block(Place(-1), "", 1, done.last_pages, done.last_failed))
        tally.spend("output", sink.seconds)
    return tally


class _Counted:
    """Inputs, and how many were taken."""

    def __init__(self, items: Iterator[Item]) -> None:
        self.count, self._items = 0, items

    def __iter__(self) -> Iterator[Item]:
        for item in self._items:
            self.count += 1
            yield item


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
        workers = usual_workers()  # nobody knows how many names will come, nor when
    return reading(job, items, workers=workers, ordered=ordered, tally=tally)


def _folders(request: Request, reader: "Reader") -> list[OverlayFolder | StepFolder]:
    folders: list[OverlayFolder | StepFolder] = []
    if request.overlay is None and request.debug is None:
        return folders
    names, sources = names_of(request.sources), [source for source, _ in request.sources]
    if request.overlay is not None:
        folders.append(OverlayFolder(request.overlay, sources=sources, names=names))
    if request.debug is not None:
        folders.append(StepFolder(request.debug, reader, sources=sources, names=names))
    return folders


def _save(report: Report, tally: Tally, watch: Callable[[Block], None]) -> None:
    """Save a report; that it cannot be does not change how the run ends otherwise."""
    if trouble := report.save_if_any():
        tally.unsaved += 1
        watch(Block(Place(-1), said=[trouble]))


def _draw(block: Block, folders: list[OverlayFolder | StepFolder]) -> int:
    """Draw what was read; say what could not be drawn, and how often."""
    said = len(block.said)
    for item, readings in block.readings:
        pages = [page for page in readings if page.error is None]
        for folder in folders if pages else ():
            try:
                folder.save(*pages, picture=item.picture(), key=item.key)
            except Exception as error:  # it may be another picture by now, the disk may be full
                why = str(error) if isinstance(error, UsageError) else what_went_wrong(error)
                block.said.append(f"{printable(item.source)}: not drawn: {printable(why)}")
    return len(block.said) - said
