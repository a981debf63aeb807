"""Lines of digits followed from frame to frame; each frame's reading is one vote."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import log
from statistics import fmean

from neocog.batch.records import REJECTED, DigitReading
from neocog.errors import UsageError
from neocog.live.align import Pairs, Shift, align, moved

Row = tuple[DigitReading, ...]
"""A line of a frame, from left to right."""

Vote = tuple[str, float] | None
"""What one frame says of a digit: character and probability; None where it saw nothing."""

_SUREST = 0.999  # probability; what is beyond it is as sure
_SAME = 0.55  # lines of two frames are one line below this cost


@dataclass(frozen=True, slots=True)
class Agreement:
    """A digit is what ``k`` of the last ``n`` frames saw: more than half, so that one can win."""

    k: int = 3
    n: int = 5

    def __post_init__(self) -> None:
        if not 1 <= self.k <= self.n or 2 * self.k <= self.n:
            raise UsageError(
                f"agreement {self.k}/{self.n}: expected K/N, K of the last N frames, "
                "more than half of them"
            )

    @staticmethod
    def parse(text: str) -> "Agreement":
        """Read ``K/N``, or raise UsageError."""
        match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text)
        if not match:
            raise UsageError(f"agreement '{text}': expected K/N, for example 3/5")
        return Agreement(int(match[1]), int(match[2]))

    def present(self, votes: Sequence[Vote]) -> bool:
        """Whether k of the last n frames saw something there."""
        return sum(vote is not None for vote in votes) >= self.k

    def decide(self, votes: Sequence[Vote]) -> tuple[str, float]:
        """Return the character that k frames saw and its mean probability, else ``?`` and 0.

        >>> Agreement(2, 3).decide((("7", 0.9), ("1", 0.6), ("7", 0.7)))
        ('7', 0.8)
        """
        seen: dict[str, list[float]] = {}
        for vote in votes:
            if vote is not None and vote[0] != REJECTED:
                seen.setdefault(vote[0], []).append(vote[1])
        for char, p in seen.items():
            if len(p) >= self.k:
                return char, round(fmean(p), 6)
        return REJECTED, 0.0


@dataclass(frozen=True, slots=True)
class Digit:
    """One digit of a line that is followed, with the votes of the last n frames, newest last.

    ``reading`` is what they agree on, ``?`` with probability 0 until they do; box and margin are
    those of the last frame that saw it, and the box moves on with its line. ``present`` tells
    whether enough frames saw anything there.
    """

    reading: DigitReading
    votes: tuple[Vote, ...]
    present: bool

    @property
    def fresh(self) -> bool:
        """Whether the newest frame saw it."""
        return self.votes[-1] is not None


@dataclass(frozen=True, slots=True)
class Track:
    """A line of digits that is followed; ``number`` tells it from other lines.

    ``step``: columns and rows by which it moved between the last two frames; ``steady``: frames
    for which its text has been complete and the same; ``read``: what the newest frame alone read,
    empty if it did not see the line.
    """

    number: int
    digits: tuple[Digit, ...]
    step: Shift = (0.0, 0.0)
    steady: int = 0
    read: str = ""

    @property
    def readings(self) -> Row:
        """All digits."""
        return tuple(digit.reading for digit in self.digits)

    @property
    def shown(self) -> Row:
        """The digits that enough frames saw."""
        return tuple(digit.reading for digit in self.digits if digit.present)

    @property
    def text(self) -> str:
        """What the frames agree on, ``?`` where they do not."""
        return "".join(digit.char for digit in self.shown)

    @property
    def complete(self) -> bool:
        """Whether all is agreed on and no new digit is about to come or an old one to go."""
        sure = bool(self.text) and REJECTED not in self.text
        return sure and not any(digit.fresh and not digit.present for digit in self.digits)

    @property
    def confidence(self) -> float:
        """Mean probability of the least probable digit."""
        return min((digit.p for digit in self.shown), default=0.0)

    @property
    def evidence(self) -> float:
        """Log odds of its digits, added up: how surely there is a number at all."""
        p = [min(max(digit.p, 1 - _SUREST), _SUREST) for digit in self.shown]
        return sum(log(one / (1 - one)) for one in p)


class Tracker:
    """Follows all lines of a source; ``agreement`` says when frames agree."""

    def __init__(self, agreement: Agreement) -> None:
        self.agreement = agreement
        self.tracks: tuple[Track, ...] = ()
        self._numbers: Iterator[int] = count()

    def update(self, rows: Sequence[Row]) -> tuple[Track, ...]:
        """Take the lines of one frame; return the lines that are followed, top to bottom."""
        matches, left = _match(self.tracks, rows)
        tracks = []
        for track in self.tracks:
            row, pairs = matches.get(track.number, ((), _unpaired(len(track.digits))))
            tracks.append(self._voted(track, row, pairs))
        for row in left:
            pairs = tuple((None, j) for j in range(len(row)))
            tracks.append(self._voted(Track(next(self._numbers), ()), row, pairs))
        alive = [track for track in tracks if track.digits]
        self.tracks = tuple(sorted(alive, key=lambda t: (t.digits[0].reading.box[1], t.number)))
        return self.tracks

    def forget(self) -> None:
        """Follow nothing: what was seen says nothing about the frames to come."""
        self.tracks = ()

    def _voted(self, track: Track, row: Row, pairs: Pairs) -> Track:
        """Return a track with the votes of one more frame; none of its digits if none is left."""
        step = moved(track.readings, row, pairs)
        digits = []
        for i, j in pairs:
            old = track.digits[i] if i is not None else None
            digit = self._digit(old, row[j] if j is not None else None, step)
            if any(vote is not None for vote in digit.votes):
                digits.append(digit)
        read = "".join(digit.char for digit in row)
        after = replace(track, digits=tuple(digits), step=step, read=read)
        same = track.complete and track.text == after.text
        steady = (track.steady + 1 if same else 1) if after.complete else 0
        return replace(after, steady=steady)

    def _digit(self, old: Digit | None, new: DigitReading | None, step: Shift) -> Digit:
        vote = (new.char, new.p) if new else None
        votes = (*(old.votes if old else ()), vote)[-self.agreement.n :]
        char, p = self.agreement.decide(votes)
        last = new or (old.reading if old else None)
        assert last is not None
        x, y, width, height = last.box
        if new is None:
            x, y = round(x + step[0]), round(y + step[1])
        reading = DigitReading(char, p, last.margin, (x, y, width, height))
        return Digit(reading, votes, self.agreement.present(votes))


def _unpaired(count: int) -> Pairs:
    return tuple((i, None) for i in range(count))


def _match(
    tracks: Sequence[Track], rows: Sequence[Row]
) -> tuple[dict[int, tuple[Row, Pairs]], list[Row]]:
    """Find each track's row and how their digits pair, cheapest first; and the rows left over."""
    options = []
    for track in tracks:
        for number, row in enumerate(rows):
            pairs, cost = align(track.readings, row, expected=track.step)
            if cost < _SAME:
                options.append((cost, track.number, number, pairs))
    matches: dict[int, tuple[Row, Pairs]] = {}
    left = dict(enumerate(rows))
    for _, track_number, number, pairs in sorted(options, key=lambda option: option[:3]):
        if track_number not in matches and number in left:
            matches[track_number] = left.pop(number), pairs
    return matches, list(left.values())
