"""A page of HTML for people: what was read beside a small picture of it, doubts first."""

import base64
import heapq
import html
import io
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from neocog.batch.sources import Item
from neocog.errors import UsageError
from neocog.files import atomic_write
from neocog.messages import printable
from neocog.reading.records import REJECTED, PageReading
from neocog.vision.overlay import SURE_P

if TYPE_CHECKING:
    from neocog.vision.decode import Page

MOST = 1000
"""Pages that a report shows: the most doubtful ones."""

_THUMBNAIL = 360  # long side of a small picture, in pixels
_QUALITY = 70  # of its JPEG
# kinds of pages, the most doubtful first
_KINDS = ("error", "misfit", "rejected", "empty", "read")
_ERROR, _MISFIT, _REJECTED, _EMPTY, _READ = range(len(_KINDS))


@dataclass(frozen=True, slots=True)
class Card:
    """What a report shows of one page; ``picture`` is a small JPEG, empty where there is none."""

    reading: PageReading
    picture: bytes = field(default=b"", repr=False)

    @property
    def doubt(self) -> tuple[int, float]:
        """Smaller for what a person should look at sooner.

        Failures come first, then pages without the pattern that was asked for, then those with
        rejected places, the larger their share the sooner, then pages without digits, then the
        others by their least probable digit.
        """
        digits = self.reading.digits
        if self.reading.error is not None:
            return _ERROR, 0.0
        if not digits:
            return _EMPTY, 0.0
        rejected = sum(digit.char == REJECTED for digit in digits)
        if rejected or self.reading.fits is False:
            kind = _MISFIT if self.reading.fits is False else _REJECTED
            return kind, -rejected / len(digits)
        return _READ, min(digit.p for digit in digits)


def cards_of(item: Item, readings: tuple[PageReading, ...]) -> Iterator[Card]:
    """Make the cards of an input's pages; each page is decoded once more, small."""
    from neocog.vision.decode import decode
    from neocog.vision.overlay import draw_overlay

    numbers = [reading.page for reading in readings if reading.error is None]
    pages: Iterator[Page] | None = None
    for reading in readings:
        picture = b""
        with suppress(Exception):  # it may have vanished since it was read, or be another one
            if reading.error is None:
                pages = pages or decode(item.picture(), long_side=_THUMBNAIL, pages=numbers)
                page, small = next(pages), io.BytesIO()
                drawn = draw_overlay(page.pixels, reading.digits, scale=page.scale)
                drawn.save(small, "JPEG", quality=_QUALITY)
                picture = small.getvalue()
        yield Card(reading, picture)


class Report:
    """Gathers cards, and writes the ``most`` doubtful ones as one self-contained file.

    UsageError if the file's folder is not there.
    """

    def __init__(self, path: str | Path, *, most: int = MOST) -> None:
        self.path, self._most = Path(path), most
        if not self.path.parent.is_dir() or self.path.is_dir():
            raise UsageError(f"{path}: the report cannot be written there; choose another --report")
        self._kept: list[tuple[tuple[float, ...], int, Card]] = []
        self._numbers = count()
        self._counts = [0] * len(_KINDS)

    def add(self, card: Card) -> None:
        """Take one more page."""
        kind, much = card.doubt
        self._counts[kind] += 1
        entry = ((-kind, -much), -next(self._numbers), card)  # the least doubtful leaves first
        if len(self._kept) < self._most:
            heapq.heappush(self._kept, entry)
        else:
            heapq.heappushpop(self._kept, entry)

    def save(self) -> None:
        """Write the file if a page has come, else what stood there stays.

        UsageError if it cannot be written.
        """
        if not any(self._counts):
            return
        cards = [card for *_, card in sorted(self._kept, reverse=True, key=lambda e: e[:2])]
        try:
            with atomic_write(self.path) as stream:
                for part in self._parts(cards):
                    stream.write(part.encode("utf-8", "backslashreplace"))
        except OSError as error:
            raise UsageError(
                f"{self.path}: cannot be written ({error.strerror}); choose another --report"
            ) from None

    def _parts(self, cards: list[Card]) -> Iterator[str]:
        total = sum(self._counts)
        left = total - len(cards)
        errors, misfits, rejected, empty, read = self._counts
        yield _HEAD.substitute(
            total=f"{total:,}",
            errors=f"{errors:,}",
            misfits=f" {misfits:,} do not fit the pattern," if misfits else "",
            rejected=f"{rejected:,}",
            empty=f"{empty:,}",
            read=f"{read:,}",
            model=html.escape(next((c.reading.model for c in cards), "")),
        )
        yield from map(_card, cards)
        more = f"<p>{left:,} more pages, none more doubtful than these, are not shown.</p>"
        yield "</main>" + (more if left else "") + "</body></html>\n"


def _card(card: Card) -> str:
    reading = card.reading
    kind = _KINDS[card.doubt[0]]
    picture = ""
    if card.picture:
        data = base64.b64encode(card.picture).decode("ascii")
        picture = f'<img src="data:image/jpeg;base64,{data}" alt="" loading="lazy">'
    name = printable(reading.source) + (f" page {reading.page}" if reading.page else "")
    return _CARD.substitute(
        kind=kind,
        picture=picture,
        text=_text(reading),
        name=html.escape(name),
        note=html.escape(_note(reading)),
    )


def _text(reading: PageReading) -> str:
    """The text, each digit with its probability, doubtful ones marked."""
    out, left = "", deque(reading.digits)
    for char in reading.text:
        if not left or char != left[0].char:  # a line end, or what a pattern puts between digits
            out += html.escape(char)
            continue
        digit = left.popleft()
        said = f"p {digit.p:.2f}" + (f", {digit.reason}" if digit.reason else "")
        shade = "no" if char == REJECTED else "sure" if digit.p >= SURE_P else "unsure"
        out += f'<span class="{shade}" title="{html.escape(said)}">{char}</span>'
    return out


def _note(reading: PageReading) -> str:
    if reading.error is not None:
        return reading.error
    if not reading.digits:
        return "no digits found"
    reasons = reading.reasons
    if reading.fits is False:
        reasons = ["does not fit the pattern", *reasons]
    lowest = min(digit.p for digit in reading.digits)
    return ", ".join([*reasons, f"least probable digit {lowest:.2f}"])


_HEAD = Template("""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:;\
 style-src 'unsafe-inline'">
<title>neocog: $total pages</title>
<style>
body { font: 15px/1.4 system-ui, sans-serif; margin: 1.5em; color: #222; background: #f4f4f2 }
main { display: grid; grid-template-columns: repeat(auto-fill, minmax(260px, 1fr)); gap: 1em }
article { background: #fff; border-left: 5px solid #888; padding: .7em; overflow-wrap: anywhere }
article.error, article.misfit, article.rejected { border-color: #c81e1e }
article.empty { border-color: #d77800 }
article.read { border-color: #008c3c }
img { max-width: 100%; max-height: 260px; display: block; margin: 0 auto .5em }
pre { font: 20px/1.3 ui-monospace, monospace; margin: 0; white-space: pre-wrap }
.no { color: #c81e1e } .unsure { color: #b06000; text-decoration: underline dotted }
small { color: #555; display: block }
</style></head><body>
<h1>$total pages</h1>
<p>$errors could not be read,$misfits $rejected have rejected places
(<span class="no">?</span>), $empty have no digits, $read were read throughout. Doubts come first.
Model $model.</p>
<main>
""")
_CARD = Template("""<article class="$kind">$picture<pre>$text</pre>
<small>$name</small><small>$note</small></article>
""")
