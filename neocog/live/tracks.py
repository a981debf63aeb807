"""Lines of digits followed from frame to frame; each frame's reading is one vote.

Frames vote on each digit; those of a line reader on the whole text, by the sum of its log likelihoods.

A line is matched as a whole: a sheet moves with all its digits. For each likely shift the line as it was and
as it may be now are aligned by dynamic programming; a pair costs the distance that the shift leaves between
its places, and more for different characters, as does a digit without a partner. Costs are in heights of a
digit.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import exp, hypot, inf, log
from statistics import fmean, median, mode

import numpy as np
from numpy.typing import NDArray

from neocog.errors import UsageError
from neocog.network.ctc import total
from neocog.reading.records import REJECTED, DigitReading

Row = tuple[DigitReading, ...]
"""A line of a frame, from left to right."""

Shift = tuple[float, float]
"""Columns and rows by which a line moves."""

Pairs = tuple[tuple[int | None, int | None], ...]
"""Numbers in the old and in the new row, in reading order; None where a partner is missing."""

Vote = DigitReading | None
"""What one frame says of a digit; None where it saw nothing."""

_SUREST = 0.999  # probability; what is beyond it is as sure
_SAME = 0.55  # lines of two frames are one line below this cost
_ALONE = 0.6  # cost of a digit without a partner
_OTHER = 0.45  # cost of a pair with different characters
_UNKNOWN = 0.15  # cost of a pair of which one was not recognised
_FAR = 0.9  # no pair is further apart than so many heights
_MOVED = 0.08  # cost of each height that the line has moved
_SIZE = 1.7  # digits of one line grow or shrink at most so much from frame to frame
_LEADING = 2  # texts of each frame that may be what a line says
_AGAINST = 14.0  # the most that one frame can say against a text, in log likelihood


@dataclass(frozen=True, slots=True)
class Agreement:
    """A digit is what ``k`` of the last ``n`` frames saw: more than half, so that one can win."""

    k: int = 3
    n: int = 5

    def __post_init__(self) -> None:
        if not 1 <= self.k <= self.n or 2 * self.k <= self.n:
            raise UsageError(
                f"agreement {self.k}/{self.n}: expected K/N, K of the last N frames, more than half of them"
            )

    @staticmethod
    def parse(text: str) -> "Agreement":
        """Read ``K/N``, or raise UsageError."""
        match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text)
        if not match:
            raise UsageError(f"agreement '{text}': expected K/N, for example 3/5")
        return Agreement(int(match[1]), int(match[2]))

    def decide(self, votes: Sequence[Vote]) -> tuple[str, float]:
        """Return the character that k frames saw and its mean probability, else ``?`` and 0.

        >>> box = (0, 0, 9, 9)
        >>> frames = [DigitReading("7", 0.9, 1.0, box), None, DigitReading("7", 0.7, 1.0, box)]
        >>> Agreement(2, 3).decide(frames)
        ('7', 0.8)
        """
        seen: dict[str, list[float]] = {}
        for vote in votes:
            if vote is not None and vote.char != REJECTED:
                seen.setdefault(vote.char, []).append(vote.p)
        for char, p in seen.items():
            if len(p) >= self.k:
                return char, round(fmean(p), 6)
        return REJECTED, 0.0


def bare(text: str) -> str:
    """Return a text without its spaces."""
    return text.replace(" ", "")


class Texts:
    """What a line may be by one frame of a line reader; ``given``: only the likely ``texts`` may occur.

    Texts that differ in spaces alone are one: whether there is a space is seldom sure.
    """

    def __init__(self, logp: NDArray[np.float32], texts: Mapping[str, float], *, given: bool = False) -> None:
        self._logp, self._known, self.spelt = logp, dict[str, float](), dict[str, str]()
        for text, value in sorted(texts.items(), key=lambda item: -item[1]):
            self.spelt.setdefault(bare(text), text)
            self._known[bare(text)] = float(np.logaddexp(self._known.get(bare(text), -inf), value))
        self._all = float(np.logaddexp.reduce(list(texts.values()))) if given else 0.0
        self.leading = sorted(self._known, key=lambda text: -self._known[text])[:_LEADING]

    def of(self, text: str, below: float | None = None) -> float:
        """The log likelihood of a text, at least 14 below the best; ``below`` that if it is not known."""
        best = self._known[self.leading[0]]
        if text not in self._known and below is None:
            self._known[text] = total(self._logp, text)
        return max(self._known.get(text, best - (below or 0.0)), best - _AGAINST) - self._all

    @staticmethod
    def decide(votes: "Sequence[Texts]") -> tuple[str, float]:
        """Return the text with the largest sum over frames, and the median of its probabilities in them."""
        some = sorted({text for vote in votes for text in vote.leading})
        low, high = (
            [sum(vote.of(text, below) for vote in votes) for text in some] for below in (_AGAINST, 0)
        )
        some = [text for text, most in zip(some, high, strict=True) if most >= max(low)]  # others cannot win
        said = {text: [vote.of(text) for vote in votes] for text in some}
        text = max(said, key=lambda text: sum(said[text]))
        spelt = mode(vote.spelt.get(text, text) for vote in votes)
        return spelt, round(exp(min(median(said[text]), 0.0)), 6)


@dataclass(frozen=True, slots=True)
class Digit:
    """One digit of a line that is followed.

    ``reading`` is what the votes agree on, else ``?`` with probability 0; its ``place`` is their mean, box
    and margin those of the last frame that saw it; the box moves on with its line.
    """

    reading: DigitReading
    votes: tuple[Vote, ...]  # of the last n frames, newest last
    present: bool  # whether k of them saw anything there


@dataclass(frozen=True, slots=True)
class Track:
    """A line of digits that is followed."""

    number: int  # tells it from other lines
    digits: tuple[Digit, ...] = ()
    step: Shift = (0.0, 0.0)  # by which it moved between the last two frames
    steady: int = 0  # frames for which its text has been complete and the same
    read: str = ""  # what the newest frame alone read, spaces left out; empty if it did not see the line
    texts: tuple[Texts | None, ...] = ()  # what each of the last n frames of a line reader says, newest last
    chosen: tuple[str, float] = ("", 0.0)  # by them, and its probability

    @property
    def shown(self) -> Row:
        """The digits that enough frames saw."""
        return tuple(digit.reading for digit in self.digits if digit.present)

    @property
    def text(self) -> str:
        """What the frames agree on, ``?`` where they do not."""
        return self.chosen[0] if self.texts else "".join(digit.char for digit in self.shown)

    @property
    def bare(self) -> str:
        """Its text without spaces."""
        return bare(self.text)

    @property
    def complete(self) -> bool:
        """Whether all is agreed on and no new digit is about to come or an old one to go."""
        if self.texts:
            return bool(self.text) and len(self.read) <= len(self.bare)
        sure = bool(self.text) and REJECTED not in self.text
        return sure and all(digit.present or digit.votes[-1] is None for digit in self.digits)

    @property
    def confidence(self) -> float:
        """Mean probability of the least probable digit; of a line reader, that of the text."""
        if self.texts:
            return self.chosen[1]
        return min((digit.p for digit in self.shown), default=0.0)

    @property
    def evidence(self) -> float:
        """Log odds of its digits' places, added up: how surely there is a number at all."""
        p = [min(max(digit.place, 1 - _SUREST), _SUREST) for digit in self.shown]
        return sum(log(one / (1 - one)) for one in p)


class Tracker:
    """Follows all lines of a source; ``agreement`` says when frames agree."""

    def __init__(self, agreement: Agreement) -> None:
        self.agreement = agreement
        self.tracks: tuple[Track, ...] = ()
        self._numbers = count()

    def update(self, rows: Sequence[Row], texts: Sequence[Texts] = ()) -> tuple[Track, ...]:
        """Take the lines of one frame, and what a line reader says of each; return those that are followed.

        They go from top to bottom.
        """
        said: Sequence[Texts | None] = texts or [None] * len(rows)
        lines = list(zip(rows, said, strict=True))
        matches, left = _match(self.tracks, rows)
        tracks = []
        for track in self.tracks:
            unseen = tuple((i, None) for i in range(len(track.digits)))
            number, pairs = matches.get(track.number, (None, unseen))
            tracks.append(self._voted(track, *((), None) if number is None else lines[number], pairs))
        for number in left:
            pairs = tuple((None, j) for j in range(len(rows[number])))
            tracks.append(self._voted(Track(next(self._numbers)), *lines[number], pairs))
        alive = [track for track in tracks if track.digits]
        self.tracks = tuple(sorted(alive, key=lambda t: (t.digits[0].reading.box[1], t.number)))
        return self.tracks

    def forget(self) -> None:
        """Forget all tracks (after a broken stream)."""
        self.tracks = ()

    def _voted(self, track: Track, row: Row, said: Texts | None, pairs: Pairs) -> Track:
        """Return a track with the votes of one more frame; none of its digits if none is left."""
        steps = [
            _step(track.digits[i].reading, row[j])
            for i, j in pairs if i is not None and j is not None
        ] or [(0.0, 0.0)]  # fmt: skip
        step = median([dx for dx, _ in steps]), median([dy for _, dy in steps])
        if said or track.texts:
            return self._stood(track, self._chosen(track, row, said, step))
        digits = []
        for i, j in pairs:
            old = track.digits[i] if i is not None else None
            digit = self._digit(old, row[j] if j is not None else None, step)
            if any(vote is not None for vote in digit.votes):
                digits.append(digit)
        read = "".join(digit.char for digit in row)
        return self._stood(track, replace(track, digits=tuple(digits), step=step, read=read))

    def _chosen(self, track: Track, row: Row, said: Texts | None, step: Shift) -> Track:
        """Return a track with what one more frame of a line reader says.

        Its characters are those of the newest frame that alone read the text that is chosen.
        """
        texts = (*track.texts, said)[-self.agreement.n :]
        votes = [one for one in texts if one is not None]
        chosen = Texts.decide(votes) if len(votes) >= self.agreement.k else ("", 0.0)
        read = said.leading[0] if said else ""
        digits = tuple(replace(one, reading=_shifted(one.reading, step)) for one in track.digits)
        after = replace(track, step=step, read=read, texts=texts, chosen=chosen)
        if said and (read == after.bare or track.bare != after.bare or not after.bare):
            digits = tuple(Digit(one, (one,), True) for one in row)
        return replace(after, digits=digits if votes else ())

    def _stood(self, track: Track, after: Track) -> Track:
        """Count the frames for which its text has been complete and the same."""
        same = track.complete and track.bare == after.bare
        steady = (track.steady + 1 if same else 1) if after.complete else 0
        return replace(after, steady=steady)

    def _digit(self, old: Digit | None, new: DigitReading | None, step: Shift) -> Digit:
        votes = (*(old.votes if old else ()), new)[-self.agreement.n :]
        char, p = self.agreement.decide(votes)
        last = new or (old.reading if old else None)
        assert last is not None
        box = last.box if new else _shifted(last, step).box
        seen = [vote.place for vote in votes if vote is not None]
        place = fmean(seen) if seen else 0.0
        reading = DigitReading(char, p, last.margin, box, place=place)
        present = sum(vote is not None for vote in votes) >= self.agreement.k
        return Digit(reading, votes, present)


def _shifted(digit: DigitReading, step: Shift) -> DigitReading:
    x, y, width, height = digit.box
    return replace(digit, box=(round(x + step[0]), round(y + step[1]), width, height))


def _match(tracks: Sequence[Track], rows: Sequence[Row]) -> tuple[dict[int, tuple[int, Pairs]], list[int]]:
    """Find each track's row, by number, and how their digits pair, cheapest first; and the rows left over."""
    options = []
    for track in tracks:
        before = tuple(digit.reading for digit in track.digits)
        for number, row in enumerate(rows):
            pairs, cost = align(before, row, expected=track.step)
            options.append((cost, track.number, number, pairs))
    matches: dict[int, tuple[int, Pairs]] = {}
    left = list(range(len(rows)))
    for cost, track_number, number, pairs in sorted(options, key=lambda option: option[:3]):
        if cost < _SAME and track_number not in matches and number in left:
            matches[track_number] = number, pairs
            left.remove(number)
    return matches, left


def align(old: Row, new: Row, *, expected: Shift = (0.0, 0.0)) -> tuple[Pairs, float]:
    """Pair the digits of two rows that are not empty; ``expected``: how the line is thought to have moved.

    The second value is the cost per digit of the longer row: near 0 for the same line, above 0.6 for another.
    """
    tall = median([p.box[3] for p in old])
    grown = median([p.box[3] for p in new]) / max(tall, 1)
    strangers = (*((i, None) for i in range(len(old))), *((None, j) for j in range(len(new))))
    best: tuple[Pairs, float] = strangers, 2 * _ALONE
    if not 1 / _SIZE < grown < _SIZE:
        return best
    tall, longer = max(tall, 1.0), max(len(old), len(new))
    (xs, ys), (new_xs, new_ys) = (zip(*map(_centre, old), strict=True), zip(*map(_centre, new), strict=True))
    middles = fmean(new_xs) - fmean(xs), fmean(new_ys) - fmean(ys)
    ends = _step(old[0], new[0]), _step(old[-1], new[-1])
    for dx, dy in (expected, (0.0, 0.0), *ends, middles):  # what is likely
        pairs, cost = _cheapest(old, new, (dx, dy), tall)
        surprise = hypot(dx - expected[0], dy - expected[1])
        cost = cost / longer + _MOVED * surprise / tall
        if cost < best[1]:
            best = pairs, cost
        if cost < 0.1:
            break
    return best


def _centre(digit: DigitReading) -> tuple[float, float]:
    x, y, width, height = digit.box
    return x + width / 2, y + height / 2


def _step(a: DigitReading, b: DigitReading) -> Shift:
    """Columns and rows from the centre of one digit to that of the other."""
    (x0, y0), (x1, y1) = _centre(a), _centre(b)
    return x1 - x0, y1 - y0


def _cheapest(old: Row, new: Row, shift: Shift, tall: float) -> tuple[Pairs, float]:
    """Align two rows for one shift; return the pairs and their whole cost."""
    best: list[list[tuple[float, int, int]]] = []  # cost so far, and the step that led there
    for i in range(len(old) + 1):
        best.append([])
        for j in range(len(new) + 1):
            ways = [(0.0, 0, 0)] if i == j == 0 else []
            if i and j:
                pair = _pair_cost(old[i - 1], new[j - 1], shift, tall)
                ways.append((best[i - 1][j - 1][0] + pair, 1, 1))
            if i:
                ways.append((best[i - 1][j][0] + _ALONE, 1, 0))
            if j:
                ways.append((best[i][j - 1][0] + _ALONE, 0, 1))
            best[i].append(min(ways))
    pairs: list[tuple[int | None, int | None]] = []
    i, j = len(old), len(new)
    while i or j:
        _, up, left = best[i][j]
        i, j = i - up, j - left
        pairs.append((i if up else None, j if left else None))
    return tuple(reversed(pairs)), best[-1][-1][0]


def _pair_cost(a: DigitReading, b: DigitReading, shift: Shift, tall: float) -> float:
    x, y = _step(a, b)
    apart = hypot(x - shift[0], y - shift[1]) / tall
    if apart > _FAR:
        return inf
    if a.char == b.char:
        return apart
    return apart + (_UNKNOWN if REJECTED in (a.char, b.char) else _OTHER)
