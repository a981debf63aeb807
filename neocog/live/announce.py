"""A number is announced after it stood still for long enough, once at each place until it has left.

Never announced is a number that the border may cut off, or that is too little likely to be one. A text waits
longer if a line beside it may be a part of it, or if it is nearly one announced just before (a sheet that
comes, goes or is blurred), and until it has been read far more often than any other reading of its line.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import log

from neocog.live.tracks import Track, core
from neocog.reading.records import Box
from neocog.text import edit_distance
from neocog.vision.finder import SIGNS
from neocog.vision.strips import GAP

# frames for which a text must have been agreed on: usually, if it is like one that was announced, and if it
_HOLD, _DOUBTFUL, _PART = 5, 10, 40  # may be a part of a number at 30 a second (20: 14 wrong instead of 8)
_READS = 2  # how often its line must have been read, once more if there is a doubt
_AGAIN = 2.0  # seconds for which readings count, and announced numbers are doubts
_LEFT = 0.5  # seconds out of view after which a number is new
_APART = 1.0  # heights of its line; what is farther away is another one
_AHEAD = 2.0  # times as often as any other reading of its line a text must have been read, or it is disputed
_BORDER = 0.1  # share of digits' height nearer than which they are at the border, if less than `nearest`
_NEAR = 4  # texts are alike that differ in at most one of so many digits
_EDGES = SIGNS.replace("/", "")  # what a sheet's edge is read as; a 1 that is cut off is read as a slash
_RIVAL = 3  # readings of one line are rivals that do, or of which one has the other in it
_LEAST = 3  # and have at least so many
_LONGER = 2  # a reading with more digits counts so often: a mark is missed more easily than made up


@dataclass(frozen=True, slots=True)
class Rules:
    """When a number is announced (``python -m experiments.live.measure rules`` tells what others announce).

    A desk has something like a digit everywhere, but seldom several: with the default ``evidence`` one in
    fifty such numbers may be none, of texts that stay the same for ``long`` frames one in six.
    """

    min_p: float = 0.3  # probability that readings give its text, in the middle: several agree on it
    evidence: float = log(49)  # log odds that its digits must have together
    #: enough, with those of its text, if it was agreed on for `long` frames and no other number is in view
    lasting: float = log(5)
    long: int = 20
    nearest: float = 0.02  # digits are at the border nearer than this share of the frame's shorter side


@dataclass(frozen=True, slots=True)
class Announcement:
    """A number that is new, and the line that it stands in."""

    track: Track
    text: str
    confidence: float
    t: float  # seconds since the first frame
    frame: int = 0  # number of the frame that decided
    age_ms: float = 0.0  # from its arrival to the decision


@dataclass(slots=True, eq=False)
class _Known:
    """A number that was announced, and where and when it was in view."""

    text: str
    number: int  # of the track that read it last
    box: Box
    t: float


@dataclass(slots=True)
class Announcer:
    """Finds what is new; ``gone`` are numbers out of view for so long that they would be new again."""

    rules: Rules = Rules()
    said: dict[int, _Known] = field(default_factory=dict)  # the last of each line that is followed, by number
    gone: tuple[str, ...] = ()
    _known: list[_Known] = field(default_factory=list)
    _readings: list[tuple[float, int, str]] = field(default_factory=list)
    _began: float = 0.0  # what was in view before that is no doubt
    _before: float = 0.0  # when the last frame was

    def update(
        self, tracks: Sequence[Track], t: float, bounds: Box, *, allows: Callable[[str], bool] = bool
    ) -> tuple[Announcement, ...]:
        """Take the lines that are followed; return what is to be announced.

        ``t`` is in seconds since the first frame, ``bounds`` what is read of it. Lines that may not be
        announced count.
        """
        # what is in view is noted, and what has been out of it for long forgotten
        boxes = {track.number: track.box for track in tracks}
        self.said = {number: known for number, known in self.said.items() if number in boxes}
        for track in tracks:
            x, y, wide, high = boxes[track.number]
            for known in self._known if track.steady else ():  # its own, or one that was there just now
                left, top, w, h = known.box
                off = max(abs(x + wide / 2 - left - w / 2), abs(y + high / 2 - top - h / 2))
                here = known.number == track.number or (off <= _APART * high and t - known.t <= _LEFT)
                if here and core(known.text) == core(track.text):
                    self.said[track.number] = known
                    break
        for number, known in self.said.items():
            known.number, known.box, known.t = number, boxes[number], t
        self.gone = tuple(one.text for one in self._known if self._before - one.t <= _LEFT < t - one.t)
        self._before, self._known = t, [one for one in self._known if t - one.t <= _AGAIN]
        self._readings += [(t, track.number, track.read) for track in tracks if track.read]
        self._readings = [one for one in self._readings if t - one[0] <= _AGAIN]

        # what is sure enough, new and undisputed is announced
        news, (left, top, wide, high) = list[Announcement](), bounds
        nearest = self.rules.nearest * min(wide, high)
        for track in tracks:
            text, rules, last = track.text, self.rules, self.said.get(track.number)
            digits, p = core(text), track.confidence
            if not track.steady or (last and core(last.text) == digits) or not allows(text):
                continue
            sure = track.evidence >= rules.evidence
            likely = all(char.place >= 0.5 for char in track.chars if char.char.isdigit())
            if not sure and likely and track.steady >= rules.long and track.lasting >= rules.lasting:
                sure = all(one.evidence < rules.evidence for one in tracks if one is not track)
            if not sure or p < rules.min_p:
                continue
            gaps = ((min(x - left, y - top, left + wide - x - w, top + high - y - h), h)
                    for x, y, w, h in (one.box for one in track.chars if one.char not in _EDGES))  # fmt: skip
            if any(gap < max(1.0, min(_BORDER * h, nearest)) for gap, h in gaps):  # it may be cut off there
                continue
            again = any(alike(digits, core(k.text)) for k in self._known if k.t >= self._began)
            part = any(_beside(track.box, one.box) for one in tracks)
            held = _PART if part else _DOUBTFUL if again else _HOLD
            if track.steady < held or track.reads < _READS + (held > _HOLD):
                continue
            # a line out of view that read nearly the same may be this one; what others in view read is theirs
            counts = Counter(one for _, n, one in self._readings if n == track.number or n not in boxes)
            own = counts.pop(digits, 0)
            if not any(
                own < _AHEAD * (_LONGER if len(one) > len(digits) else 1) * times and rivals(digits, one)
                for one, times in counts.items()
            ):
                self.said[track.number] = new = _Known(text, track.number, track.box, t)
                self._known.append(new)
                news.append(Announcement(track, text, p, t))
        return tuple(news)

    def forget(self, t: float) -> None:
        """Begin with a new stream at ``t`` seconds: older readings do not count, announced numbers do."""
        self.said, self._readings, self._began = {}, [], t


def _beside(a: Box, b: Box) -> bool:
    """Whether two lines stand side by side, as near as parts of one."""
    gap, off = (max(b[k] - a[k] - a[k + 2], a[k] - b[k] - b[k + 2]) for k in (0, 1))
    return 0 <= gap < GAP * max(a[3], b[3]) and off < 0


def alike(a: str, b: str) -> bool:
    """Whether one text may be the other misread or seen in part.

    >>> alike("12345678", "12345673"), alike("345678", "12345678"), alike("3", "8")
    (True, True, False)
    """
    longer = max(len(a), len(b))
    return a in b or b in a or (longer >= _LEAST and edit_distance(a, b) <= max(1, longer // _NEAR))


def rivals(a: str, b: str) -> bool:
    """Whether two texts may be two readings of one line.

    >>> rivals("354108745", "358745"), rivals("8745", "354108745"), rivals("642", "61")
    (True, True, False)
    """
    shorter, longer = sorted((len(a), len(b)))
    return shorter >= _LEAST and (a in b or b in a or edit_distance(a, b) <= longer // _RIVAL)
