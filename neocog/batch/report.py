"""Pictures for people: overlays of what was read, and a page of HTML with the doubts first."""

import base64
import hashlib
import heapq
import html
import io
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path, PurePosixPath
from string import Template

from neocog.batch.archives import Item
from neocog.errors import UsageError
from neocog.files import atomic_write, check_output, saving
from neocog.reading.pictures import Files, pages_of, what_went_wrong
from neocog.reading.records import REJECTED
from neocog.reading.results import LARGEST, PageReading
from neocog.text import printable
from neocog.vision.decode import Page
from neocog.vision.overlay import SURE_P, draw_overlay

Card = tuple[int, float, str, str]
"""A page in a report: kind in `_KINDS`, less for what a person should see sooner, model, article."""

_MOST = 1000  # pages that a report shows: the most doubtful ones
_KINDS = ("error", "misfit", "rejected", "empty", "read")  # of pages, the most doubtful first
_THUMBNAIL, _QUALITY = 360, 70  # long side of a small picture, in pixels; quality of its JPEG
_PHOTOGRAPHS = (".jpg", ".jpeg", ".heic", ".heif", ".hif")  # their overlays are JPEG too
_SHORT = 50  # letters that are kept of a folder's or a file's name that digits follow
_LONG = 200  # bytes of a name without its endings: file systems take 255 with all of them
_UNSAFE = re.compile(r'[\\:*?"<>|]')  # in names out of archives, for Windows


def decoded_again(
    item: Item, readings: Iterable[PageReading], long_side: int = LARGEST
) -> Iterator[tuple[Page, PageReading]]:
    """Decode the pages of an input once more that were read, each with its reading."""
    known = {reading.page: reading for reading in readings if reading.error is None}
    for page in pages_of(item.picture(), long_side, sorted(known)) if known else ():
        yield page, known[page.index]


class PictureFolder:
    """A folder of pictures of pages, with what was read drawn over them, that writes over no source.

    ``1/a.jpg`` becomes ``1/a.read.jpg``, others ``.read.png``. Where names are the same, or too long, eight
    digits of the SHA-256 of the source follow: names are the same on every run.
    """

    def __init__(self, folder: str | Path, *, inputs: Iterable[tuple[str, str]] = ()) -> None:
        self.folder, inputs = Path(folder), list(inputs)
        self._sources = Files(source for source, _ in inputs)
        self._names: dict[str, str | None] = {}  # without endings; the source, if it is one
        for source, key in inputs:
            stem = _stem(source, key)
            self._names[stem] = source if self._names.get(stem, source) == source else None
        check_output(self.folder, "--save-overlay", folder=True, make=True)

    def save_all(self, readings: Iterable[tuple[Item, Sequence[PageReading]]]) -> Iterator[str]:
        """Decode pages once more and save what was read; yield what could not be drawn, and why."""
        for item, pages in readings:
            try:
                end = "jpg" if item.source.lower().endswith(_PHOTOGRAPHS) else "png"
                for page, reading in decoded_again(item, pages):
                    path = self.folder / f"{self._name(item, page.index)}.read.{end}"
                    if path in self._sources or path in Files([item.source]):
                        raise UsageError(f"{path}: is also an input; choose another --save-overlay")
                    with saving(path, "--save-overlay"):
                        path.parent.mkdir(parents=True, exist_ok=True)
                        with atomic_write(path) as stream:
                            image = draw_overlay(page.pixels, reading.digits, scales=page.scales)
                            image.save(stream, format="JPEG" if end == "jpg" else "PNG")
            except Exception as error:  # it may be another picture by now, the disk be full
                why = str(error) if isinstance(error, UsageError) else what_went_wrong(error)
                yield f"{printable(item.source)}: not drawn: {printable(why)}"

    def _name(self, item: Item, index: int) -> str:
        stem, page = _stem(item.source, item.key), f"-p{index}" if index else ""
        several = self._names.get(stem) != item.source or (page and stem + page in self._names)
        parts = stem.split("/")
        if several or any(len(os.fsencode(part)) > _LONG for part in parts):
            digest = hashlib.sha256(os.fsencode(item.source)).hexdigest()
            stem = "/".join(part[:_SHORT] for part in parts) + f"-{digest[:8]}"
        return stem + page


def _stem(source: str, key: str) -> str:
    """Name of an input's pictures: that of the file, below the folder that was named."""
    if key == Path(source).as_posix():
        return Path(source).stem
    *folders, last = PurePosixPath(key).parts
    kept = [folder for folder in folders if folder not in ("/", "..")]
    return "/".join(_UNSAFE.sub("_", part) for part in (*kept, PurePosixPath(last).stem))


def card_of(reading: PageReading, picture: bytes = b"") -> Card:
    """Describe a page; sooner in its kind come more rejected places, or less probable digits."""
    note, text, digits = reading.error, "", reading.digits
    rejected = sum(digit.char == REJECTED for digit in digits)
    lowest = min((digit.p for digit in digits), default=0.0)
    if note is not None or not digits:
        kind, much = (3 if note is None else 0), 0.0
        note = note or "no digits found"
    else:
        misfit = ["a line does not fit --pattern or --valid"] if reading.fits is False else []
        note = ", ".join([*misfit, *reading.reasons, f"least probable digit {lowest:.2f}"])
        kind, much = 1 if misfit else 2 if rejected else 4, -rejected / len(digits)
        much = lowest if kind == 4 else much
    left = iter(digits)
    digit = next(left, None)
    for char in reading.text:
        if digit is None or char != digit.char:  # a line end, or what a pattern puts between digits
            text += html.escape(char)
            continue
        said = f"p {digit.p:.2f}" + (f", {digit.reason}" if digit.reason else "")
        shade = "no" if char == REJECTED else "sure" if digit.p >= SURE_P else "unsure"
        text += f'<span class="{shade}" title="{html.escape(said)}">{char}</span>'
        digit = next(left, None)
    name = printable(reading.source) + (f" page {reading.page + 1}" if reading.page else "")
    data = base64.b64encode(picture).decode("ascii")
    shown = f'<img src="data:image/jpeg;base64,{data}" alt="" loading="lazy">' if picture else ""
    return kind, much, reading.model, (
        f'<article class="{_KINDS[kind]}">{shown}<pre>{text}</pre>\n'
        f"<small>{html.escape(name)}</small><small>{html.escape(note)}</small></article>\n"
    )  # fmt: skip


def cards_of(item: Item, readings: tuple[PageReading, ...]) -> Iterator[Card]:
    """Make the cards of an input's pages; each page is decoded once more, small."""
    pages = decoded_again(item, readings, _THUMBNAIL)
    for reading in readings:
        picture = io.BytesIO()
        with suppress(Exception):  # it may have vanished since it was read, or be another one
            if reading.error is None:
                page, _ = next(pages)
                drawn = draw_overlay(page.pixels, reading.digits, scales=page.scales)
                drawn.save(picture, "JPEG", quality=_QUALITY)
        yield card_of(reading, picture.getvalue())


class Report:
    """Gathers cards, and writes the ``most`` doubtful ones as one self-contained file."""

    def __init__(self, path: str | Path, *, most: int = _MOST) -> None:
        check_output(path, "--report")
        self.path, self._most = Path(path), most
        self._kept: list[tuple[tuple[int, float, int], Card]] = []  # the least doubtful first
        self._numbers, self._counts = count(), [0] * len(_KINDS)

    def add(self, card: Card) -> None:
        kind, much, *_ = card
        self._counts[kind] += 1
        heapq.heappush(self._kept, ((-kind, -much, -next(self._numbers)), card))
        if len(self._kept) > self._most:
            heapq.heappop(self._kept)

    def save(self) -> None:
        """Write the file if a page has come; UsageError if it cannot be written."""
        if not (total := sum(self._counts)):
            return
        cards = [card for _, card in sorted(self._kept, reverse=True)]
        counts = {kind: f"{n:,}" for kind, n in zip(_KINDS, self._counts, strict=True)}
        misfits = f" {counts.pop('misfit')} do not fit --pattern or --valid," if self._counts[1] else ""
        left = total - len(cards)
        more = f"<p>{left:,} more pages, none more doubtful than these, are not shown.</p>" if left else ""
        with saving(self.path, "--report"), atomic_write(self.path) as stream:
            model = html.escape(cards[0][2] if cards else "")
            words = Template((Path(__file__).parent / "report.html").read_text(encoding="utf-8"))
            head = words.substitute(counts, total=f"{total:,}", misfits=misfits, model=model)
            for part in (head, *(article for *_, article in cards), f"</main>{more}</body></html>\n"):
                stream.write(part.encode("utf-8", "backslashreplace"))
