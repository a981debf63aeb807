"""A number is announced once: when it has stood still for long enough, and is no doubtful variant.

A number that the frame's border may cut off is not announced, nor one that is too little likely to
be a number. What speaks against a text makes it wait longer: a low confidence, and a text that is
nearly one announced just before (the sheet comes, goes or is blurred). Where frames read a line in
two ways the one must have been read far more often than the other; until then nothing is announced.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log

from neocog.batch.records import Box
from neocog.live.tracks import Track

_EVEN = 0.5  # probability from which a digit is more likely right than wrong
_NEAR = 4  # texts are alike that differ in at most one of so many digits
_RIVAL = 3  # readings of one line are rivals that do; more, since places may be unknown in them
_LEAST = 3  # and have at least so many
_LONGER = 2  # a reading with more digits counts so often: a mark is missed more easily than made up


@dataclass(frozen=True, slots=True)
class Rules:
    """When a number is announced.

    Attributes
    ----------
    hold : int
        Frames for which a text must have been agreed on.
    doubtful : int
        So many times as long if something speaks against it.
    sure : float
        A confidence below this does.
    again : float
        Seconds after which a number that was out of view is a new one, and what was read before
        no longer speaks against what is read now.
    ahead : float
        A text must have been read so many times as often as any other reading of its line.
    evidence : float
        Log odds that its digits must have together. A desk has something like a digit everywhere,
        but seldom several; by default one in a hundred such numbers may be none.
    border : float
        Digits are at the frame's border nearer than this share of their height.
    """

    hold: int = 5
    doubtful: int = 2
    sure: float = 0.8
    again: float = 2.0
    ahead: float = 2.0
    evidence: float = log(99)
    border: float = 0.1


@dataclass(frozen=True, slots=True)
class Announcement:
    """A number that is new.

    Attributes
    ----------
    track : Track
        The line that it stands in.
    text : str
    confidence : float
    t : float
        Seconds since the first frame.
    frame : int
        Number of the frame that decided.
    age_ms : float
        Milliseconds from that frame's arrival to the decision.
    """

    track: Track
    text: str
    confidence: float
    t: float
    frame: int = 0
    age_ms: float = 0.0


class Announcer:
    """Tells what is new.

    Parameters
    ----------
    rules : Rules

    Attributes
    ----------
    gone : tuple of str
        Numbers that the last update found out of view for so long that they would be new again.
    """

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        self._last: dict[str, float] = {}
        self._said: dict[int, str] = {}
        self._readings: list[tuple[float, int, str]] = []
        self.gone: tuple[str, ...] = ()

    def update(
        self,
        tracks: Sequence[Track],
        t: float,
        size: tuple[int, int],
        *,
        allows: Callable[[str], bool] = lambda _: True,
    ) -> tuple[Announcement, ...]:
        """Take the lines that are followed; return what is to be announced.

        Parameters
        ----------
        tracks : sequence of Track
            All of them: what frames read of those that may not be announced counts as well.
        t : float
            Seconds since the first frame.
        size : tuple of int
            Width and height of the frame.
        allows : callable
            Whether a text may be announced.
        """
        self._remember(tracks, t)
        news = []
        for track in tracks:
            if not track.complete or track.text in self._last or not allows(track.text):
                continue
            if not self._likely(track) or self._cut(track, size):
                continue
            if track.steady < self._needed(track):
                continue
            if self._disputed(track, tracks):
                continue
            self._last[track.text] = t
            self._said[track.number] = track.text
            news.append(Announcement(track, track.text, track.confidence, t))
        return tuple(news)

    def said(self, track: Track) -> str | None:
        """What was announced of a line last."""
        return self._said.get(track.number)

    def _remember(self, tracks: Sequence[Track], t: float) -> None:
        """Renew what is in view still, and forget what has long been out of it."""
        numbers = {track.number for track in tracks}
        self._said = {number: text for number, text in self._said.items() if number in numbers}
        for track in tracks:
            if track.complete and track.text in self._last:
                self._last[track.text] = t
                self._said[track.number] = track.text
        for text in self._said.values():
            self._last[text] = t
        self.gone = tuple(text for text, last in self._last.items() if t - last > self.rules.again)
        for text in self.gone:
            del self._last[text]
        self._readings += [(t, track.number, track.read) for track in tracks if track.read]
        self._readings = [one for one in self._readings if t - one[0] <= self.rules.again]

    def _likely(self, track: Track) -> bool:
        """Whether there is a number, and each digit of it is more likely right than wrong."""
        return track.evidence >= self.rules.evidence and track.confidence >= _EVEN

    def _cut(self, track: Track, size: tuple[int, int]) -> bool:
        """Whether the frame's border may cut a line off."""
        return any(at_border(digit.box, size, self.rules.border) for digit in track.shown)

    def _disputed(self, track: Track, tracks: Sequence[Track]) -> bool:
        """Whether frames read a line otherwise too often.

        A line that is out of view is taken for the same if it read nearly the same: it may be
        back. What other lines in view read says nothing.
        """
        others = {other.number for other in tracks} - {track.number}
        told = Counter(text for _, number, text in self._readings if number not in others)
        own = told.pop(track.text, 0)
        for text, count in told.items():
            if rivals(track.text, text):
                count *= _LONGER if len(text) > len(track.text) else 1
                if own < self.rules.ahead * count:
                    return True
        return False

    def _needed(self, track: Track) -> int:
        """Frames for which a line's text must have stood."""
        rules = self.rules
        doubts = (track.confidence < rules.sure) + any(
            alike(track.text, text) for text in self._last
        )
        needed: int = rules.hold * rules.doubtful ** int(doubts)
        return needed


def at_border(box: Box, size: tuple[int, int], share: float) -> bool:
    """Whether a digit is so near to the frame's border that it may be cut off.

    Parameters
    ----------
    box : tuple of int
        Left, top, width and height.
    size : tuple of int
        Width and height of the frame.
    share : float
        Of the digit's height.
    """
    x, y, width, height = box
    margin = max(1.0, share * height)
    beyond = x + width > size[0] - margin or y + height > size[1] - margin
    return beyond or x < margin or y < margin


def alike(a: str, b: str) -> bool:
    """Whether one text may be the other misread or seen in part.

    >>> alike("12345678", "12345673"), alike("345678", "12345678"), alike("3", "8")
    (True, True, False)
    """
    if a in b or b in a:
        return True
    longer = max(len(a), len(b))
    return longer >= _LEAST and distance(a, b) <= max(1, longer // _NEAR)


def rivals(a: str, b: str) -> bool:
    """Whether two texts may be two readings of one line.

    >>> rivals("354108745", "35?8745"), rivals("642", "61"), rivals("123456", "654321")
    (True, False, False)
    """
    shorter, longer = sorted((len(a), len(b)))
    return shorter >= _LEAST and distance(a, b) <= longer // _RIVAL


def distance(a: str, b: str) -> int:
    """Return how many characters must be changed, taken out or put in to make ``b`` of ``a``.

    >>> distance("1234", "134")
    1
    """
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]
