"""Lines of digits followed from frame to frame; each frame's reading is one vote."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import log

from neocog.batch.records import REJECTED, Box, DigitReading
from neocog.live.align import Pairs, align, moved
from neocog.live.vote import Agreement, Votes

Row = tuple[DigitReading, ...]
"""A line of a frame, from left to right."""

_SUREST = 0.999  # probability; what is beyond it is as sure
_SAME = 0.55  # lines of two frames are one line below this cost


@dataclass(frozen=True, slots=True)
class Digit:
    """One digit of a line that is followed.

    Attributes
    ----------
    box : tuple of int
        Where it was seen last, moved along with its line since.
    votes : tuple
        What the last frames say of it.
    char, p : str, float
        What they agree on, ``?`` and 0 until they do.
    present : bool
        Whether enough of them saw anything there.
    margin : float
        Best response minus the second, as it was seen last.
    """

    box: Box
    votes: Votes
    char: str
    p: float
    present: bool
    margin: float = 0.0

    @property
    def fresh(self) -> bool:
        """Whether the newest frame saw it."""
        return self.votes[-1] is not None


@dataclass(frozen=True, slots=True)
class Track:
    """A line of digits that is followed.

    Attributes
    ----------
    number : int
        Tells it from other lines.
    digits : tuple of Digit
        From left to right.
    step : tuple of float
        Columns and rows by which it moved between the last two frames.
    steady : int
        Frames for which its text has been complete and the same.
    read : str
        What the newest frame alone read, empty if it did not see the line.
    """

    number: int
    digits: tuple[Digit, ...]
    step: tuple[float, float] = (0.0, 0.0)
    steady: int = 0
    read: str = ""

    @property
    def shown(self) -> tuple[Digit, ...]:
        """The digits that enough frames saw."""
        return tuple(digit for digit in self.digits if digit.present)

    @property
    def text(self) -> str:
        """What the frames agree on, ``?`` where they do not."""
        return "".join(digit.char for digit in self.shown)

    @property
    def complete(self) -> bool:
        """Whether all is agreed on and no new digit is about to come or an old one to go."""
        shown = self.shown
        sure = bool(shown) and all(digit.char != REJECTED for digit in shown)
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

    @property
    def alive(self) -> bool:
        """Whether any of the last frames saw it."""
        return any(vote is not None for digit in self.digits for vote in digit.votes)


class Tracker:
    """Follows all lines of a source.

    Parameters
    ----------
    agreement : Agreement
        When frames agree.
    """

    def __init__(self, agreement: Agreement) -> None:
        self.agreement = agreement
        self.tracks: tuple[Track, ...] = ()
        self._numbers: Iterator[int] = count()

    def update(self, rows: Sequence[Row]) -> tuple[Track, ...]:
        """Take what one frame shows; return the lines that are followed now, top to bottom."""
        matches, left = match(self.tracks, rows)
        tracks = []
        for track in self.tracks:
            found = matches.get(track.number)
            if found:
                after = seen(track, rows[found[0]], found[1], self.agreement)
            else:
                after = unseen(track, self.agreement)
            if after.alive:
                tracks.append(after)
        for number in left:
            pairs = tuple((None, j) for j in range(len(rows[number])))
            new = Track(next(self._numbers), ())
            tracks.append(seen(new, rows[number], pairs, self.agreement))
        self.tracks = tuple(sorted(tracks, key=_height))
        return self.tracks

    def forget(self) -> None:
        """Follow nothing: what was seen says nothing about the frames to come."""
        self.tracks = ()


def match(
    tracks: Sequence[Track], rows: Sequence[Row]
) -> tuple[dict[int, tuple[int, Pairs]], list[int]]:
    """Tell which line of a frame is which line that is followed.

    Returns
    -------
    matches : dict
        Track's number -> number of the row, and how their digits pair.
    left : list of int
        Rows that are new.
    """
    options = []
    for track in tracks:
        for row, new in enumerate(rows):
            pairs, cost = align(track.digits, new, expected=track.step)
            if cost < _SAME:
                options.append((cost, track.number, row, pairs))
    matches: dict[int, tuple[int, Pairs]] = {}
    left = set(range(len(rows)))
    for _, number, row, pairs in sorted(options, key=lambda option: option[:3]):
        if number not in matches and row in left:
            matches[number] = row, pairs
            left.discard(row)
    return matches, sorted(left)


def seen(track: Track, row: Row, pairs: Pairs, agreement: Agreement) -> Track:
    """Return a track with the votes of one more frame."""
    step = moved(track.digits, row, pairs)
    digits = []
    for i, j in pairs:
        old = track.digits[i] if i is not None else None
        new = row[j] if j is not None else None
        digit = _voted(old, new, step, agreement)
        if any(vote is not None for vote in digit.votes):
            digits.append(digit)
    read = "".join(digit.char for digit in row)
    return _settled(track, replace(track, digits=tuple(digits), step=step, read=read))


def unseen(track: Track, agreement: Agreement) -> Track:
    """Return a track after a frame that did not show it."""
    digits = tuple(_voted(digit, None, (0.0, 0.0), agreement) for digit in track.digits)
    kept = tuple(d for d in digits if any(vote is not None for vote in d.votes))
    return _settled(track, replace(track, digits=kept, step=(0.0, 0.0), read=""))


def _settled(before: Track, after: Track) -> Track:
    """Count the frames for which the text has stood."""
    if not after.complete:
        return replace(after, steady=0)
    same = before.complete and before.text == after.text
    return replace(after, steady=before.steady + 1 if same else 1)


def _voted(
    old: Digit | None, new: DigitReading | None, step: tuple[float, float], agreement: Agreement
) -> Digit:
    vote = (new.char, new.p) if new else None
    votes = agreement.add(old.votes if old else (), vote)
    char, p = agreement.decide(votes)
    box = new.box if new else _shifted(old.box if old else (0, 0, 0, 0), step)
    margin = new.margin if new else old.margin if old else 0.0
    return Digit(box, votes, char, p, agreement.present(votes), margin)


def _shifted(box: Box, step: tuple[float, float]) -> Box:
    return round(box[0] + step[0]), round(box[1] + step[1]), box[2], box[3]


def _height(track: Track) -> tuple[int, int]:
    return track.digits[0].box[1], track.number
