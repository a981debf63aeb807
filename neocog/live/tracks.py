"""Lines of text followed from frame to frame; each frame votes on the whole text of a line.

A text's likelihood is the product of those that the frames give it: so a text may win that no frame alone had
first. A line is matched as a whole, since a sheet moves with all its characters: for each likely shift by
their distances from where it leads, in heights of a digit, and more where another character stands.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import count
from math import exp, hypot, inf, log
from statistics import fmean, median, mode

import numpy as np
from numpy.typing import NDArray

from neocog.errors import UsageError
from neocog.network.ctc import total
from neocog.reading.records import REJECTED, Box, DigitReading
from neocog.vision.page import around

Row = tuple[DigitReading, ...]
"""A line of a frame, from left to right."""

_SUREST = 0.999  # probability; what is beyond it is as sure
_SURE = 0.95  # the same of a text: there are things that are no digit but look like one
_SAME = 0.55  # lines of two frames are one line below this cost
_ALONE = 0.6  # cost of a character without a partner
_OTHER = 0.45  # cost of a pair of different characters
_MOVED = 0.08  # cost of each height that the line has moved
_SIZE = 1.7  # characters of one line grow or shrink at most so much from frame to frame
_LEADING = 2  # texts of each frame that may be what a line says
_AGAINST = 14.0  # the most that one frame can say against a text, in log likelihood


@dataclass(frozen=True, slots=True)
class Agreement:
    """A text counts once ``k`` of the last ``n`` frames saw its line: more than half of them."""

    k: int = 3
    n: int = 5

    @staticmethod
    def parse(text: str) -> "Agreement":
        """Read ``K/N``, or raise UsageError."""
        match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text)
        if match and int(match[2]) / 2 < int(match[1]) <= int(match[2]):
            return Agreement(int(match[1]), int(match[2]))
        wanted = "expected K/N, K of the last N frames, more than half of them, as in 3/5"
        raise UsageError(f"agreement '{text}': {wanted}")


def core(text: str) -> str:
    """A number from its first digit to its last: the edge of a sheet or a finger is often read as a sign."""
    return re.sub(r"^\D+|\D+$", "", text.replace(" ", "").replace(",", "."))


def moved(row: Row, dx: float, dy: float) -> Row:
    """Return a line that has moved by columns and rows."""
    return tuple(replace(c, box=(round(c.box[0] + dx), round(c.box[1] + dy), *c.box[2:])) for c in row)


class Vote:
    """What one frame says of a line: its characters, and how likely texts are by its columns' likelihoods.

    With ``given`` only ``texts`` may occur. Those of the same `core` are one.
    """

    def __init__(
        self, chars: Row, logp: NDArray[np.float32], texts: Mapping[str, float], *, given: bool = False
    ) -> None:
        self.chars, self._logp, self._known, self.spelt = chars, logp, dict[str, float](), dict[str, str]()
        self.new = True  # False: the frame's line looks as it did when this was read
        for text, value in sorted(texts.items(), key=lambda item: -item[1]):
            self.spelt.setdefault(core(text), text)
            self._known[core(text)] = float(np.logaddexp(self._known.get(core(text), -inf), value))
        self._all = float(np.logaddexp.reduce(list(texts.values()))) if given else 0.0
        self.leading = sorted(self._known, key=lambda text: -self._known[text])[:_LEADING]

    def of(self, text: str, below: float | None = None) -> float:
        """The log likelihood of a text, at least 14 below the best; ``below`` that if it is not known."""
        best = self._known[self.leading[0]]
        if text not in self._known and below is None:
            self._known[text] = total(self._logp, text)
        return max(self._known.get(text, best - (below or 0.0)), best - _AGAINST) - self._all

    def moved(self, dx: int, dy: int) -> "Vote":
        """Return the same vote, in a later frame, of a line that has moved by so many columns and rows."""
        other = copy(self)
        other.chars, other.new = moved(self.chars, dx, dy), False
        return other

    @staticmethod
    def decide(votes: "Sequence[Vote]") -> tuple[str, float]:
        """Return the text with the largest sum over frames, and the median of its probabilities in them."""
        some = sorted({text for vote in votes for text in vote.leading})
        low, high = ([sum(vote.of(one, below) for vote in votes) for one in some] for below in (_AGAINST, 0))
        some = [text for text, most in zip(some, high, strict=True) if most >= max(low)]  # others cannot win
        said = {text: [vote.of(text) for vote in votes] for text in some}
        text = max(said, key=lambda text: sum(said[text]))
        spelt = mode(vote.spelt.get(text, text) for vote in votes)
        return spelt, round(exp(min(median(said[text]), 0.0)), 6)


@dataclass(frozen=True, slots=True)
class Track:
    """A line that is followed."""

    number: int  # tells it from other lines
    chars: Row = ()  # of the newest frame that alone read what is chosen, moved on with the line
    step: tuple[float, float] = (0.0, 0.0)  # columns and rows by which it moved between the last two frames
    steady: int = 0  # frames for which its text has been the same, and no character more about to come
    read: str = ""  # what the newest frame alone read, its `core`; empty if it did not see the line
    reads: int = 0  # how often it was read in all
    votes: tuple[Vote, ...] = ()  # the last n, newest last
    seen: tuple[bool, ...] = ()  # whether the last n frames saw it
    text: str = ""  # what they choose; empty while too few saw the line
    confidence: float = 0.0  # its probability

    @property
    def box(self) -> Box:
        return around([char.box for char in self.chars])

    @property
    def evidence(self) -> float:
        """Log odds of its digits' places by the finder, added up: how surely there is a number at all."""
        return sum(_log_odds(char.place, _SUREST) for char in self.chars if char.char.isdigit())

    @property
    def lasting(self) -> float:
        """These and what the text's probability says of it, which counts once it has stayed for long."""
        return self.evidence + _log_odds(self.confidence, _SURE)


def _log_odds(p: float, surest: float) -> float:
    p = min(max(p, 1 - surest), surest)
    return log(p / (1 - p))


@dataclass(slots=True)
class Tracker:
    """Follows all lines of a source; ``agreement`` says when frames agree."""

    agreement: Agreement
    tracks: tuple[Track, ...] = ()  # from top to bottom
    _numbers: Iterator[int] = field(default_factory=count)

    def update(self, votes: Sequence[Vote]) -> tuple[Track, ...]:
        """Take what one frame says of its lines; return those that are followed, from top to bottom."""
        options = [
            (*_cost(track, vote.chars), track.number, place)
            for track in self.tracks
            for place, vote in enumerate(votes)
        ]
        found, left = dict[int, tuple[Vote, tuple[float, float]]](), set(range(len(votes)))
        for cost, step, number, place in sorted(options, key=lambda option: (option[0], option[2:])):
            if cost < _SAME and number not in found and place in left:
                found[number] = votes[place], step
                left.remove(place)
        # one more frame's vote for each line that is followed, and for those that are new
        still, n, alive = (0.0, 0.0), self.agreement.n, list[Track]()
        given = [(track, *found.get(track.number, (None, still))) for track in self.tracks]
        given += [(Track(next(self._numbers)), votes[at], still) for at in sorted(left)]
        for track, vote, step in given:
            new = vote is not None and (vote.new or not track.votes)
            said = (*track.votes, vote)[-n:] if vote and new else track.votes
            seen = (*track.seen, vote is not None)[-n:]
            text, p = track.text, track.confidence
            if sum(seen) < self.agreement.k:
                text, p = "", 0.0
            elif new or not text:
                text, p = Vote.decide(said)
            read = vote.leading[0] if vote else ""
            kept = vote is None or (text and read != core(text) == core(track.text))
            chars = moved(track.chars, *step) if kept or vote is None else vote.chars
            steady = track.steady if core(track.text) == core(text) else 0
            steady = steady + 1 if text and len(read) <= len(core(text)) else 0
            after = Track(track.number, chars, step, steady, read, track.reads + new, said, seen, text, p)
            if any(seen):
                alive.append(after)
        self.tracks = tuple(sorted(alive, key=lambda track: (track.chars[0].box[1], track.number)))
        return self.tracks


def _cost(track: Track, new: Row) -> tuple[float, tuple[float, float]]:
    """The cost, for each character, of a line being ``new`` now, and by how much it then has moved.

    The cost is near 0 for the same line, above 0.6 for another.
    """
    old, expected = track.chars, track.step
    tall, grown = (max(1, median([char.box[3] for char in row])) for row in (old, new))
    best = 2 * _ALONE, expected
    if not 1 / _SIZE < grown / tall < _SIZE:
        return best
    a, b = ([(x + w / 2, y + h / 2) for x, y, w, h in (char.box for char in row)] for row in (old, new))
    steps = [(b[k][0] - a[k][0], b[k][1] - a[k][1]) for k in (0, -1)]  # of the ends
    (x, y), (u, v) = ((fmean(xs), fmean(ys)) for xs, ys in (zip(*a, strict=True), zip(*b, strict=True)))
    other = [[_OTHER * (p.char != q.char and REJECTED not in (p.char, q.char)) for q in new] for p in old]
    for dx, dy in (expected, (0.0, 0.0), *steps, (u - x, v - y)):  # what is likely
        apart = [
            [hypot(x + dx - u, y + dy - v) / tall + more for (u, v), more in zip(b, row, strict=True)]
            for (x, y), row in zip(a, other, strict=True)
        ]
        longer = apart if len(old) >= len(new) else zip(*apart, strict=True)
        cost = _MOVED * hypot(dx - expected[0], dy - expected[1]) / tall
        cost += fmean(min(_ALONE, *row) for row in longer)
        if cost < best[0]:
            best = cost, (dx, dy)
        if cost < 0.1:
            break
    return best
