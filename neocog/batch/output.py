"""Where records go: stdout or a file; each is written at once, none torn by Ctrl-C; and how a run goes on."""

import hashlib
import io
import json
import os
import shlex
import signal
import sys
import tempfile
import threading
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any, cast

import numpy as np

from neocog.batch.archives import Item
from neocog.batch.report import decoded_again
from neocog.batch.tasks import Block
from neocog.errors import EndedEarly, UsageError
from neocog.files import AppendFile, atomic_write, check_output, saving
from neocog.reading.formats import Format
from neocog.reading.pictures import what_went_wrong
from neocog.reading.records import SCHEMA
from neocog.reading.results import PageReading
from neocog.text import printable, to_json
from neocog.vision.documents import PdfWriter

_BEGIN = PageReading("").to_json()[: len('{"schema":1,')].encode()


class Sink:
    """Takes one record after another, for a file or for stdout.

    A file that exists is locked at once, and written over when the first record comes. A document that needs
    its end is written as ``.NAME.part`` beside it, and takes its place at the end. UsageError if another run
    has the file; EndedEarly if it cannot be written any more, or is removed, replaced or shortened by others.
    """

    def __init__(self, format: Format, path: str | Path | None = None) -> None:
        self.format, self._path, self._stdout = format, path, sys.stdout  # which others may turn elsewhere
        self._files, self._part = list[AppendFile](), ""  # the one that is written is the last
        self._size, self._watched = 0, False  # bytes that the file has at least; whether its path leads to it
        self._begun = self._ended = False
        self._tail = b""  # records that stay at the end until they are written anew
        self._counts = [0, 0]  # images and annotations of COCO; the latter wait in a file for their place
        self._spool = tempfile.TemporaryFile("w+") if format.kind == "coco" else None  # noqa: SIM115

    def open(self) -> None:
        """Open and lock what is there; UsageError if it cannot be written."""
        if self._path is None:
            return
        with saving(self._path, "-o"):
            if not os.path.exists(self._path):
                check_output(os.path.realpath(self._path) if os.path.islink(self._path) else self._path, "-o")
            elif os.path.isfile(self._path) or os.path.isdir(self._path):  # a pipe would wait for its reader
                self._open(self._path)
            if self.format.tail and (self._files or not os.path.exists(self._path)):
                folder, name = os.path.split(os.path.realpath(self._path))
                part = os.path.join(folder, f".{name}.part")
                if not self._open(part).stands():  # renamed by a run that ends at this moment
                    raise UsageError(f"{self._path}: another run has just ended; start again")
                self._part = part

    def resume(self, done: "Done") -> None:
        """Go on in a file that is there, without what was torn at its end."""
        if done.tail and self._files:
            self._begun, self._tail, file = True, bytes(done.tail), self._files[-1]
            with self._writing():
                # the last line's end may be missing
                os.ftruncate(file.handle, done.end + len(self._tail) - 1)
                file.write(b"\n")

    def put(self, text: str, *, anew: bool = False) -> None:
        """Write records that have their format already and flush them; ``anew``: those kept at the end."""
        if self._spool is not None:  # images and annotations of COCO are numbered here
            images, text = text.splitlines(), ""
            for image, marks in map(json.loads, images):
                self._counts[0] += 1
                text += to_json({"id": self._counts[0], **image}) + "\n"
                for mark in marks:
                    self._counts[1] += 1
                    numbered = {"id": self._counts[1], "image_id": self._counts[0], **mark}
                    self._spool.write(f"{',' * (self._counts[1] > 1)}\n{to_json(numbered)}")
        if self.format.kind in ("json", "labelstudio", "coco"):  # a comma before all but the first
            if not (text := "".join(f",\n{line}" for line in text.split("\n") if line)):
                return
            text = text if self._begun else text[1:]
        self._put(text, anew)

    def finish(self) -> None:
        """Have the file tell of this run, though no record came, and see that it is still there."""
        with defer_interrupt(), self._writing():
            if self._spool is not None:
                self._put('\n],\n"annotations": [')
                self._spool.seek(0)
                for line in self._spool:
                    self._put(line)
            if self._path is not None or self._begun or self.format.tail:
                self._put(self.format.tail)
            self._ended = True
            if self._files and self._files[-1].regular:
                os.fsync(self._files[-1].handle)
            if self._part and self._path is not None:
                if len(self._files) > 1:
                    os.chmod(self._part, os.fstat(self._files[0].handle).st_mode & 0o7777)
                while os.name == "nt" and self._files:  # no open file can be renamed there
                    self._files.pop().close()
                os.replace(self._part, os.path.realpath(self._path))
                self._part = ""

    def close(self) -> None:
        """Close the file; a document that has begun is ended, and takes its place."""
        try:
            if self._begun and self.format.tail and not self._ended:  # the run ended early
                with suppress(EndedEarly):
                    self.finish()
        finally:
            if self._spool is not None:
                self._spool.close()
            if self._part:
                Path(self._part).unlink(missing_ok=True)
            while self._files:
                with suppress(OSError):  # a pipe cannot be brought to the disk
                    os.fsync(self._files[-1].handle)
                self._files.pop().close()

    def _open(self, path: str | Path) -> AppendFile:
        self._files.append(AppendFile(path, lock="-o"))
        self._watched = self._files[-1].regular and self._files[-1].stands()  # not on every network folder
        return self._files[-1]

    def _put(self, text: str, anew: bool = False) -> None:
        with defer_interrupt(), self._writing():
            data = (text if self._begun else self.format.head + text).encode()
            if self._path is None:
                self._begun = True
                self._stdout.write(data.decode())
                self._stdout.flush()
                return
            if not self._files and self._open(self._path).regular and self._files[0].size:
                raise UsageError(f"{self._path}: another run has written it meanwhile; choose another -o")
            file = self._files[-1]
            if file.size < self._size or (self._watched and not file.stands()):
                what = "was removed, replaced or shortened during the run"
                raise EndedEarly(f"{self._path}: {what}; records are missing, read again")
            if not self._begun and file.regular:
                os.ftruncate(file.handle, 0)
            self._begun = True
            if self._tail:
                os.ftruncate(file.handle, file.size - len(self._tail))
                self._tail = b"" if anew else self._tail
            file.write(data + self._tail)
            self._size = file.size

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except EndedEarly:
            self._ended = True
            raise
        except OSError as error:
            self._ended = True
            if self._path is None:
                raise
            rest = "what it holds is valid"
            if self.format.tail:
                rest = "no document is written, what stood there stays" if self._part else "it has no end"
            elif self.format.kind == "jsonl":
                rest += ", continue it with --resume"
            raise EndedEarly(f"{self._path}: cannot be written ({error.strerror or error}); {rest}") from None


class PdfSink(Sink):
    """Takes pages for a PDF, which is written at the end; UsageError without a file, or pypdfium2."""

    _pdf: PdfWriter | None = None

    def open(self) -> None:
        if self._path is None:
            raise UsageError("--format pdf needs a file: add -o FILE.pdf")
        check_output(self._path, "-o")
        self._pdf = PdfWriter()

    def put(self, text: str, *, anew: bool = False) -> None:
        pass

    def draw(self, readings: Iterable[tuple[Item, Sequence[PageReading]]]) -> Iterator[str]:
        """Decode pages once more and add them; yield what could not be, and why. EndedEarly if too large."""
        assert self._pdf is not None
        for item, pages in readings:
            try:
                for page, reading in decoded_again(item, pages):
                    reading.add_to(self._pdf, page)
            except Exception as error:  # it may be another picture by now
                yield f"{printable(item.source)}: not in the PDF: {printable(what_went_wrong(error))}"

    def finish(self) -> None:
        self._ended = True
        with defer_interrupt(), self._writing():
            if self._pdf:
                with atomic_write(str(self._path)) as stream:
                    self._pdf.save(stream)
            elif os.path.isfile(str(self._path)):  # of another day; a PDF has one page at least
                os.remove(str(self._path))

    def close(self) -> None:
        try:
            if self._pdf and not self._ended:  # the run ended early
                with suppress(EndedEarly):
                    self.finish()
        finally:
            if self._pdf is not None:
                self._pdf.close()


@contextmanager
def open_sink(format: Format, path: str | Path | None = None) -> Iterator[Sink]:
    """Open a sink that writes to ``path``, or to stdout; UsageError if it cannot be written."""
    sink = PdfSink(format, path) if format.kind == "pdf" else Sink(format, path)
    try:
        sink.open()
        yield sink
        sink.finish()
    finally:
        sink.close()


@contextmanager
def defer_interrupt() -> Iterator[None]:
    """Put Ctrl-C off to the end of the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append((number, frame))
        if len(came) > 1 and callable(before):  # it is asked for twice
            before(number, frame)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came and callable(before):
            before(*came[0])


class Done:
    """Inputs whose records a file of JSON lines has, the last one's apart; UsageError if it is another."""

    def __init__(
        self, path: str | Path | None = None, *, model: str = "", settings: Mapping[str, Any] | None = None,
        finder: str | None = None,
    ) -> None:  # fmt: skip
        self.before, self.end = Block(), 0  # all inputs but the last one: counts, and bytes of the file
        self.last, self.source, self.tail = Block(), "", bytearray()  # of that: counts, its name, its records
        names, lines = array("Q"), cast("IO[bytes]", io.BytesIO())
        try:
            if path is not None and os.path.exists(path):
                lines = open(path, "rb")  # noqa: SIM115
        except OSError as error:
            raise UsageError(f"{path}: cannot be read ({error.strerror}); choose another -o") from None
        with lines:
            for number, line in enumerate(lines, 1):
                record = _record(line)
                if record is None:
                    if line.endswith(b"\n") and names:
                        raise UsageError(f"{path}: line {number} is damaged; repair it or choose another -o")
                    begin = line[: len(_BEGIN)]  # of the only line; zeros are there after a power cut
                    if line.endswith(b"\n") or not (names or _BEGIN.startswith(begin) or not any(begin)):
                        raise UsageError(f"{path}: does not hold neocog's records; choose another -o")
                    break
                if asked := _difference(record, model, finder, settings):
                    raise UsageError(f"{path}: was written with {asked} or choose another -o")
                if record["page"] == 0:
                    self.before.add(self.last)
                    self.end += len(self.tail)
                    self.last, self.source, self.tail = Block(inputs=1), record["source"], bytearray()
                    names.append(_hash(record["source"]))
                self.last.pages += 1
                self.last.failed += record["error"] is not None
                self.tail += line.rstrip(b"\n") + b"\n"
        self._known, self._left = np.unique(np.array(names[:-1], np.uint64), return_counts=True)

    def take(self, source: str) -> bool:
        """Whether an input is done, as often as it has records; of ten million names one errs with p 3e-6."""
        name = np.uint64(_hash(source))
        place = int(np.searchsorted(self._known, name))
        done = (self._known[place : place + 1] == name) & (self._left[place : place + 1] > 0)
        self._left[place : place + 1] -= done
        return bool(done.any())


def _difference(
    record: Mapping[str, Any], model: str, finder: str | None, settings: Mapping[str, Any] | None
) -> str:
    found = record.get("settings")
    if record["model"] != model:
        return f"the model {record['model']}, now {model}; give that model"
    if finder is not None and record.get("finder", finder) != finder:
        return f"the finder {record['finder']}, now {finder}; give that one (--finder)"
    if settings is None or found is None or found == settings:
        return ""
    for name in ("valid", "form"):  # known by a hash
        if found.get(name) != settings.get(name):
            return f"another --{name}, or none; give that one"
    told = []
    for asked in (found, settings):  # as options: --min-p 0.4 --isolated
        pairs = (("--" + name.replace("_", "-"), value) for name, value in asked.items())
        told.append(" ".join(n if value is True else f"{n} {shlex.quote(str(value))}" for n, value in pairs))
    return f"{told[0]}, now {told[1]}; give the same options"


def _record(line: bytes) -> dict[str, Any] | None:
    """One line as a record, or None where it is none, or not all of one."""
    with suppress(ValueError, RecursionError):  # brackets may be nested without end
        record = json.loads(line)
        if isinstance(record, dict) and record.get("schema") == SCHEMA and "error" in record:
            kinds = {"source": str, "page": int, "model": str, "settings": dict}
            if all(isinstance(({"settings": {}} | record).get(name), kind) for name, kind in kinds.items()):
                return record
    return None


def _hash(source: str) -> int:
    name = source.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big")
