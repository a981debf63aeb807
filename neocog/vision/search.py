"""Which of the finder's boxes are digits: one search over the lines of a page.

The finder offers more boxes than there are digits: of other sizes, of parts and of pairs. What
speaks for each is weighed (`neocog.vision.weigh`); the digit network is asked only where that is in
doubt. Where a doubt is left, what overlaps is tried as well. Of each line the chain of boxes that
is worth most is taken (`neocog.vision.lines`).
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.network.decision import Answers
from neocog.vision.crops import Crop, crops_of
from neocog.vision.finder import SIGNS, FinderSettings, Finding, merged, overlaps
from neocog.vision.lines import best_chain, into_lines, links, posterior
from neocog.vision.weigh import (
    NETWORK,
    SLASH_KIND,
    STROKES,
    SearchSettings,
    Weights,
    around_features,
    beside,
    log_odds,
    median,
    own_features,
    same_mark,
)

Grey = NDArray[np.uint8]
Known = Callable[[NDArray[np.uint8], NDArray[np.float32]], tuple[Answers, NDArray[np.floating]]]
"""Given digits (N, 28, 28) and the finder's guesses (N, 10): the digit network's answers, and what
they say of each, (N, 3), see `neocog.vision.weigh.NETWORK`."""

_DATE = re.compile(r"(?<![0/])(00?/00?/(00)?00|0000/00?/00?)(?![0/])")
"""A date with slashes, each digit as 0."""
_COVERED = 0.25
"""Share of a digit's box from which a sign may stand in its place: a dot inside is none."""
SLASH = 0.5
"""Score of the finder from which a slash stands in the text, see `neocog.reading.words.SURE`."""


@dataclass(slots=True, eq=False)
class Mark:
    """A box that may be a digit or a sign."""

    #: left, top, width and height in pixels, whole ones in a `neocog.vision.page.Layout`
    box: tuple[Any, Any, Any, Any]
    score: float  #: how surely the finder takes it for a digit, or a sign, 0 .. 1
    kind: int  #: as `neocog.vision.finder.Finding` has it, like ``guesses`` (10,)
    guesses: NDArray[np.float32]
    crop: Crop | NDArray[np.uint8] | None = None  #: what lies in the box, or its `digit`; no sign's
    features: NDArray[np.float64] | None = None  #: by page and network, `neocog.vision.weigh`
    odds: float = 0.0  #: log odds that it is a digit
    worth: float = 0.0  #: the same above those of being told at all
    p: float = 0.0  #: probability that it is a digit of its line
    whole: float = 1.0  #: probability that none beside it was left out
    answer: Answers | None = None  #: of the digit network, a single one, once it was asked
    #: a sign that the finder rather sees at a digit's place, but for strokes that look like a 1
    sign: "Mark | None" = None

    @property
    def digit(self) -> NDArray[np.uint8]:
        """For the network, (28, 28), ink 255; nothing in a sign. Cut out when first asked for."""
        crop = self.crop
        if isinstance(crop, Crop):
            self.crop = crop = crop.digit()
        return np.zeros((28, 28), np.uint8) if crop is None else crop

    @property
    def is_digit(self) -> bool:
        return self.kind < 10

    @property
    def char(self) -> str:
        """The sign that it may be, or the digit by the finder's guess."""
        return ("0123456789" + SIGNS)[self.kind]


class Search:
    """The search over one page (H, W), where the finder has found boxes that may overlap."""

    def __init__(
        self,
        grey: Grey,
        found: Finding,
        known: Known,
        weights: Weights | None = None,
        settings: SearchSettings | None = None,
    ) -> None:
        self._grey, self._known, self._weights = grey, known, weights or Weights()
        self.settings = settings = settings or SearchSettings()
        found = found[found.scores >= settings.least]
        self._found, self._signs = found[found.kinds < 10], found[found.kinds >= 10]
        self._places = merged(self._found, FinderSettings())
        self._strong = 0.0  # logarithm of the contrast of the page's sure marks
        self._of_places = np.zeros(0)  # log odds
        self._all: list[Mark] = []
        self.ms = 0.0  # that the digit network took

    def lines(self, count: int | None = None) -> list[list[Mark]]:
        """Return each line in reading order, with ``count`` digits where that leaves no more doubt."""
        self.weigh_places()
        doubtful = log_odds(self.settings.sure)
        self._try_others([mark for mark in self._all if mark.odds < doubtful])
        told = [(marks, self._chain(marks)) for marks in self.candidates()]
        if count is not None:
            off = [k for k, (_, line) in enumerate(told) if len(line) != count]
            self._try_others([mark for k in off for mark in told[k][1]])
            again = self.candidates()
            for k in off if len(again) == len(told) else ():
                told[k] = again[k], self._counted(told[k][1], again[k], count)
        for marks, line in told:
            self._tell(marks, line)
        return self._with_signs([line for _, line in told if line], count)

    def weigh_places(self) -> list[Mark]:
        """Weigh the finder's best box of each place; return those that were looked at."""
        self._weigh(self._places)
        return list(self._all)

    def ask(self, lines: Sequence[Sequence[Mark]]) -> None:
        """Have the digit network answer for all digits of lines, which changes what they are worth."""
        marks = [mark for line in lines for mark in line if mark.is_digit and mark.answer is None]
        said = self._ask(marks, np.array([mark.guesses for mark in marks]))
        more = self._weights.around[1] * (said @ np.array(self._weights.network))
        for mark, worth in zip(marks, more.tolist(), strict=True):
            mark.worth += worth

    def _ask(self, marks: Sequence[Mark], guesses: NDArray[np.float32]) -> NDArray[np.floating]:
        """Set the answer of marks; return what the digit network says of them, (N, 3)."""
        if not marks:
            return np.zeros((0, len(NETWORK)))
        digits = np.stack([mark.digit for mark in marks])
        start = time.perf_counter()
        answers, said = self._known(digits, guesses)
        self.ms += 1e3 * (time.perf_counter() - start)
        for number, mark in enumerate(marks):
            mark.answer = answers[number : number + 1]
        return said

    def left_out(self, lines: Sequence[Sequence[Mark]]) -> int:
        """Count the places that the finder takes for digits and that no line has."""
        told = [mark for line in lines for mark in line]
        return int((~self._same(self._places.boxes, _boxes(told)).any(axis=1)).sum())

    def _weigh(self, found: Finding) -> None:
        """Crop boxes, ask the network about the doubtful, and weigh how likely they are digits."""
        sure = found.scores >= FinderSettings().score
        room = self.settings.most - len(self._all)
        found = found[sure | (np.cumsum(~sure) <= max(0, room - int(sure.sum())))]
        if not len(found):
            return
        weights, crops = self._weights, crops_of(self._grey, found.boxes, self.settings)
        contrast = np.log1p([crop.contrast for crop in crops])
        first = not self._all  # of the page, these are the places
        if first:
            self._strong = median(contrast, found.scores.astype(np.float64) ** 2)
        off = contrast - self._strong
        own = own_features(
            found, off, self._places, self._signs, self.settings, long_side=max(self._grey.shape)
        )
        odds = own @ np.array(weights.own)
        least, most = self.settings.asked
        asked = np.flatnonzero((odds > least) & (odds < most))
        said = np.zeros((len(found), len(NETWORK)))
        marks = _marks(found, crops)
        said[asked] = self._ask([marks[k] for k in asked], found.guesses[asked])
        odds += said @ np.array(weights.network)
        if first:
            unseen = np.full(len(self._places) - len(odds), -np.inf)
            self._of_places = np.concatenate([odds, unseen])
        others = ~self._same(found.boxes, self._places.boxes)
        steady = self.settings.steady
        around = around_features(odds, others, self._of_places, weights.share, steady)
        odds = around @ np.array(weights.around)
        told = log_odds(self.settings.told)
        features = np.concatenate([own, said, around[:, 2:]], axis=1)
        for k, mark in enumerate(marks):
            mark.features = features[k]
            mark.odds, mark.worth = float(odds[k]), float(odds[k]) - told
            self._all.append(mark)

    def _try_others(self, marks: Sequence[Mark]) -> None:
        """Weigh what else may stand where some marks do."""
        near = self._same(self._found.boxes, _boxes(marks)).any(axis=1)
        known = {mark.box for mark in self._all}
        new = [tuple(box) not in known for box in self._found.boxes.tolist()]
        self._weigh(self._found[near & np.array(new, np.bool_)])

    def candidates(self) -> list[list[Mark]]:
        """What may stand on each line, from left to right.

        The best digits that exclude each other make the lines; what stands in the place of one of
        a line's digits, or beside it and in no other line's place, is a candidate.
        """
        worth = sorted((mark for mark in self._all if mark.worth > 0), key=lambda m: -m.worth)
        boxes = _boxes(worth)
        same = self._same(boxes, boxes)
        kept: list[int] = []
        for number in range(len(worth)):
            if not same[number, kept].any():
                kept.append(number)
        best, everything = boxes[kept], _boxes(self._all)
        groups = into_lines(best, self.settings)
        same = self._same(everything, best)
        near = beside(everything, best, self.settings, same)
        left = np.ones(len(everything), np.bool_)
        middle = everything[:, 0] + everything[:, 2] / 2
        out: list[list[Mark]] = [[] for _ in groups]
        for k in np.argsort([-sum(worth[kept[i]].worth for i in line) for line in groups]):
            own, free = same[:, groups[k]].any(axis=1), ~same.any(axis=1)
            here = left & (own | (near[:, groups[k]].any(axis=1) & free))
            left &= ~here
            out[k] = [self._all[i] for i in np.flatnonzero(here)[np.argsort(middle[here])]]
        return out

    def _chain(self, marks: list[Mark], count: int | None = None) -> list[Mark]:
        """The chain that is worth most, with ``count`` digits if given."""
        worth = np.array([mark.worth for mark in marks])
        return [marks[k] for k in best_chain(worth, self._links(_boxes(marks)), count)]

    def _same(self, a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.bool_]:
        return same_mark(a, b, self.settings)

    def _links(self, boxes: NDArray[np.float32]) -> NDArray[np.float64]:
        return links(boxes, self._weights.link, self.settings)

    def _counted(self, line: list[Mark], marks: list[Mark], count: int) -> list[Mark]:
        """The best chain of so many digits, if it leaves no digit out and no more are in doubt."""
        other = self._chain(marks, count)
        doubts, fewer = (sum(mark.worth < 0 for mark in some) for some in (other, line))
        if not other or doubts > fewer:
            return line
        return other if self._same(_boxes(line), _boxes(other)).any(axis=1).all() else line

    def _tell(self, marks: Sequence[Mark], line: Sequence[Mark]) -> None:
        """Have digits know how likely they are, and that none beside them was left out."""
        boxes, told = _boxes(marks), _boxes(line)
        p = posterior(np.array([mark.odds for mark in marks]), self._links(boxes))
        same = self._same(told, boxes)
        near = beside(told, boxes, self.settings, same)
        missing = np.where(same.any(axis=0), 0, p)
        for k, mark in enumerate(line):
            mark.p = float(p[same[k]].sum())
            mark.whole = 1 - float(missing[near[k]].max(initial=0))

    def _with_signs(self, lines: list[list[Mark]], count: int | None) -> list[list[Mark]]:
        """Lines with the signs among their digits: what no digit has, in a line's rows."""
        sure = self._signs[self._signs.scores >= FinderSettings().score]
        signs = merged(sure, FinderSettings())
        told = [mark for line in lines for mark in line]
        same = self._same(_boxes(told), signs.boxes)
        covers = overlaps(_boxes(told), signs.boxes)[2] > _COVERED
        for mark, here in zip(told, covers & ~STROKES[signs.kinds], strict=True):
            rather = signs[here & (signs.scores > mark.score)]
            mark.sign = _marks(rather)[0] if len(rather) else None
        free = _marks(signs[~same.any(axis=0)])
        out = []
        for line in lines:
            boxes = _boxes(line)
            low, high = boxes[:, 1].min(), (boxes[:, 1] + boxes[:, 3]).max()
            own = [sign for sign in free if low <= sign.box[1] + sign.box[3] / 2 <= high]
            free = [sign for sign in free if sign not in own]
            whole = sorted([*line, *own], key=lambda mark: mark.box[0] + mark.box[2] / 2)
            out.append(self._dated(whole, count))
        return out

    def _dated(self, line: list[Mark], count: int | None) -> list[Mark]:
        """A line whose digits are slashes where that makes a date, the likeliest one first.

        A slash looks like a leaning 1. That two places which the finder rather takes for slashes
        stand just where a date has them tells what they are; specks beside them do not matter.
        """
        found = self._signs[(self._signs.kinds == SLASH_KIND) & (self._signs.scores >= SLASH)]
        slashes, same = _marks(found), self._same(_boxes(line), found.boxes)
        may = {}  # place in the line: the slash that it may be
        for k, mark in enumerate(line):
            here = [slashes[i] for i in np.flatnonzero(same[k]) if slashes[i].score >= mark.score]
            if here and (mark.is_digit or mark.kind == SLASH_KIND):
                may[k] = max(here, key=lambda slash: slash.score)
        near = {k + step for k in may for step in (-1, 1)}
        clean = [k for k, mark in enumerate(line) if not (mark.char in ".," and k in near)]
        marks, may = [line[k] for k in clean], {n: may[k] for n, k in enumerate(clean) if k in may}
        pairs = [
            (k, other) for k in may for other in (k + 2, k + 3)
            if other in may and (marks[k].is_digit or marks[other].is_digit)
        ]  # fmt: skip
        pairs.sort(key=lambda pair: -sum(may[k].score - marks[k].score for k in pair))
        out, taken = list(line), set[int]()
        for pair in pairs:
            date = _date_of(marks, pair)
            if date and not date & taken:
                taken |= date
                for k in pair:
                    out[clean[k]] = may[k]
        return line if count not in (None, sum(mark.is_digit for mark in out)) else out


def _date_of(line: Sequence[Mark], slashes: tuple[int, int]) -> set[int]:
    """Which marks of a line are a date if two of them are its slashes; none if they make none."""
    text, places = "", []
    for k in range(max(0, slashes[0] - 5), min(len(line), slashes[1] + 6)):
        mark, before = line[k], line[max(0, k - 1)].box
        gap = " " * (mark.box[0] - before[0] - before[2] > mark.box[3])
        text += gap + ("/" if k in slashes else "0" if mark.is_digit else mark.char)
        places += [k] * (len(gap) + 1)
    for date in _DATE.finditer(text):
        marks = set(places[date.start() : date.end()])
        if marks.issuperset(slashes):
            return marks
    return set()


def _marks(found: Finding, crops: Sequence[Crop] | None = None) -> list[Mark]:
    rows = zip(found.boxes.tolist(), found.scores.tolist(), found.kinds.tolist(), strict=True)
    cut = [None] * len(found) if crops is None else crops
    return [
        Mark(tuple(box), score, kind, guesses, crop)
        for (box, score, kind), guesses, crop in zip(rows, found.guesses, cut, strict=True)
    ]


def _boxes(marks: Sequence[Mark]) -> NDArray[np.float32]:
    return np.array([mark.box for mark in marks], np.float32).reshape(-1, 4)
