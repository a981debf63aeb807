"""All that may be asked of a reading run, checked before anything is read or written."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from neocog.batch.formats import Format
from neocog.batch.inputs import Shard, comes_once, count_inputs, find_inputs
from neocog.batch.resume import Done
from neocog.batch.sources import STDIN, Files, Item, Skipped, check_written
from neocog.errors import NothingToRead, UsageError

if TYPE_CHECKING:
    from neocog.batch.cluster import Cluster


@dataclass(frozen=True)
class Request:
    """What to read, how, and where to; UsageError if it makes no sense."""

    inputs: tuple[str, ...]  # as `find_inputs` takes them
    form: Format
    output: str | None = None  # the file of the records; None: stdout
    null: bool = False  # names in lists and on stdin end with a zero byte
    isolated: bool = False  # every picture is one digit
    resume: bool = False  # go on where ``output`` breaks off
    shard: Shard | None = None  # the share of the inputs to read
    ordered: bool = False  # records in the order of the inputs
    workers: int | None = None  # 0: this process; None: one a core, 0 for a few
    cluster: "Cluster | None" = None  # the Ray cluster that reads
    batch: int | None = None  # most digits of a pass
    overlay: str | None = None  # folder of pictures of what was read
    debug: str | None = None  # folder of pictures of how it was found
    report: str | None = None  # a page for people
    force: bool = False  # an ``output`` that exists is overwritten
    verbose: bool = False  # files that are skipped are named
    quiet: bool = False  # only what fails is told

    def __post_init__(self) -> None:
        if self.resume and (self.output is None or self.form.kind != "jsonl"):
            raise UsageError("--resume needs a file of JSON lines: add -o FILE.jsonl")
        if self.inputs.count(STDIN) > 1:
            raise UsageError(f"{STDIN} is given more than once, but there is only one stdin")
        if self.output is not None and self.report is not None:
            same = os.path.realpath(self.output) == os.path.realpath(self.report)
            if same or self.output in Files([self.report]):
                raise UsageError(f"{self.report}: is also the file of -o; choose another --report")
        lists = [word[1:] for word in self.inputs if word.startswith("@")]
        for option, place in self._written():
            if place in Files(lists):
                raise UsageError(f"{place}: is also a list of inputs; choose another {option}")
            if os.path.isfile(place) and not (self.resume and option == "-o"):
                with suppress(NothingToRead):  # that is told later
                    for _ in self._spared(self._files()):
                        pass
            check_written(place, option)
        self._check_free()

    def _check_free(self) -> None:
        """Refuse to overwrite records."""
        output = self.output
        if output is None or self.force or self.resume or not os.path.isfile(output):
            return
        if os.path.getsize(output):
            more = "--resume to continue it, " if self.form.kind == "jsonl" else ""
            raise UsageError(f"{output}: exists; add {more}--force to overwrite it")

    @cached_property
    def sources(self) -> list[tuple[str, str]]:
        """All files that are known to be read beforehand, by their keys, archives unopened."""
        with suppress(NothingToRead):
            return [(item.source, item.key) for item in self._files()]
        return []

    def items(self, done: Done, skipped: Skipped = lambda name, why: None) -> Iterator[Item]:
        """What is to be read: the shard's inputs, without those that are done.

        UsageError if the output is one of the inputs, NothingToRead if there are no inputs at all.
        """
        found = find_inputs(self.inputs, null=self.null, skipped=skipped)
        for item in self._spared(found):
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
                raise UsageError(f"{place}: is also an input; choose another {option}")
            last = file  # the members of an archive come one after another
            yield item
