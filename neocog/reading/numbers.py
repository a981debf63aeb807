"""Lines as wholes: a page's strips, what the ten layers say along them, text with its signs."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, pairwise
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from neocog.network import ctc
from neocog.network.lines import ALPHABET, ROWS
from neocog.reading.boxes import PageReader, of_boxes
from neocog.reading.records import REJECTED, Box, DigitReading, NumberReading
from neocog.vision.decode import Page
from neocog.vision.finder import FinderSettings, Finding
from neocog.vision.page import TURNS, around, on_front, seen, turned, turned_back
from neocog.vision.strips import LEAST, SCORE, TALL, Strip, strips
from neocog.vision.struck import struck

Logs = NDArray[np.float32]
Column = tuple[Strip, int]  #: of an answer: its strip, and its number there

SPACE, BLANK = ALPHABET.index(" "), ctc.BLANK
IN_DOUBT = "the number is in doubt"  # as a whole: its likeliest place of an error
STRUCK = "perhaps struck through"  # a digit that is read all the same
FAR = 8.0
"""How far below the best text, in log likelihood, one that is allowed may be; on even rows of strings nine of
ten patterns that mend a reading are nearer, a quarter of those with a digit too many or too few are not."""

STEP, BEFORE = 4, 24  # column t of an answer looks at column 4 t - 24 of its strip, and around it
_REACH = 20  # columns of a strip on each side of a character's middle that may be its own
_GAP = np.full((1, BLANK + 1), -30.0, np.float32)  # between strips of a line, which a wide gap parts:
_GAP[0, [SPACE, BLANK]] = np.log([0.98, 0.02])  # a space, unless a pattern has none there
_STROKE = 0.4  # ink of a stroke that crosses digits out
_WIDE = 2  # columns on each side of the middle of a gap in which nothing is read
# Weights, in log likelihood of a column, of the finder's guess among ten digits, of its log odds that one is
# there, and what digits lose where there is no mark. With 0.7 for the guess 163 of 200 even cheques and 44 of
# 48 photographs are read right, with 0.5 161 and 44 (experiments.reading.measure, photos,strings:even).
# The rest on sheets of seeds 31 and 32 (experiments.sheets.measure).
_GUESS, _SEEN, _UNSEEN = 0.7, 1.0, 1.0
_UNSEEN_FAR, _NEAR = 3.0, 0.6  # and where no mark is so near, in its heights: letters beside print are there
_AMID = 8.0  # and beyond the outermost mark at an end of a strip whose last column has ink: a word goes on
_RARE = 0.1  # share of its likelihood that a space has there if digits are close
_CLEARER = 1.0  # log likelihood that a strip's marks alone have to gain: among walls of cells it is 3 to 8
# Mean probability of a line's characters, times mean score of its digits, below which it is no number:
_NUMBER = 0.3  # 0.5 % of right numbers of photographs, registers and made pages are, and 76 % of false ones
_UPRIGHT = 0.9  # share of characters in right numbers, as expected, from which no turn of a page is looked at
_APART = 0.33  # of a digit's height: from digits that the finder sees to a word in which it sees none
_PART = 0.5  # of numbers with another mark beside them that are wrong, of lines of registers: 30 of 67
_LONG = 3  # characters of numbers that say how a page lies: an upright 0 is one on its side too
_LEGIBLE = 10.0  # pixels of a digit's height
_LOOKED = 28.0  # pixels of digits at which turns are compared: the finder is sure, and half a strip is read
_HALF = FinderSettings(fine=0.0, clear=0.0)  # all sizes but the largest
_SENSE = 0.6  # share of characters that are expected to be right, if a turned page has numbers
_TURNED, _CLEARLY = 5, 1.2  # characters from which a turn worth so much more is taken: 0 of 94 pages wrongly


@dataclass(frozen=True, slots=True)
class TextLine:
    """A line as it was read, boxes in pixels of the page; words without a digit are among its words."""

    words: tuple[NumberReading, ...]
    margin: float | None  #: see `LineReading`; None where it is not what a pattern or a list allows
    logp: Logs  #: log likelihoods that it was read from
    number: ctc.Number  #: what these say: likely texts, and each character with its columns
    places: Sequence[Column] = ()  #: where each column lies; empty where it was read box by box
    unseen: Sequence[int] = ()  #: of ``number.chars``, left out: most likely letters, far from digits
    cut: int = 0  #: digits beyond the marks of a strip that ends amid ink, left out: most likely a word's

    @property
    def chars(self) -> tuple[DigitReading, ...]:
        """All of it but spaces."""
        return tuple(char for word in self.words for char in word.chars)


def page_lines(reader: PageReader, page: Page) -> tuple[list[TextLine], int, int, float, tuple[str, ...]]:
    """Read a page's lines, boxes in pixels of the picture; digits in none, turn, seconds to find, doubts."""
    start, turn, tie = time.perf_counter(), reader.rotate or 0, False
    grey = turned(page.grey[:, ::-1] if reader.mirror else page.grey, turn)
    found = reader.look(grey)
    looked = time.perf_counter()
    lines, left_out = read_lines(reader, grey, found)
    spent = time.perf_counter() - looked
    # long numbers that are likely to be wrong, or hold few of the digits: another way up may read better
    count, right = _worth(lines)
    few = 2 * count < np.count_nonzero((found.kinds < 10) & (found.scores >= SCORE))
    if reader.rotate is None and (right <= _UPRIGHT * count or few):
        turn, tie = best_turn(reader, grey, found)
        if turn:
            grey = turned(grey, turn)
            found = reader.look(grey)
            lines, left_out = read_lines(reader, grey, found)
    # back to pixels of the picture, as it was before it was turned, mirrored and reduced
    (high, wide), (across, down), placed = page.grey.shape, page.scales, list[TextLine]()
    for line in lines:
        words = list[NumberReading]()
        for word in line.words:
            chars = list[DigitReading]()
            for char in word.chars:
                x, y, w, h = turned_back(char.box, turn, wide, high)
                x = wide - x - w if reader.mirror else x
                box = round(x / across), round(y / down), round(w / across), round(h / down)
                chars.append(replace(char, box=box))
            words.append(replace(word, box=around([char.box for char in chars]), chars=tuple(chars)))
        placed.append(replace(line, words=tuple(words)))
    sure = found.boxes[(found.kinds < 10) & (found.scores >= SCORE)]
    small = not found.whole or int((sure[:, 3] < _LEGIBLE).sum()) > 1
    out = any(char.reason == STRUCK for line in placed for char in line.chars)
    warnings = ("small-digits-likely",) * small + ("turns-tie",) * tie + ("struck-through",) * out
    return placed, left_out, turn, time.perf_counter() - start - spent, warnings


def read_lines(reader: PageReader, grey: NDArray[np.uint8], found: Finding) -> tuple[list[TextLine], int]:
    """Read the lines of a page (H, W) around marks that were found; and count the digits in none of them."""
    marks = found[found.scores >= LEAST]
    front = on_front(grey, marks)
    lines, lost = list[TextLine](), int((marks.scores[~front] >= SCORE).sum())
    marks = marks[front]
    left_out = set(np.flatnonzero((marks.kinds < 10) & (marks.scores >= SCORE)).tolist())
    for own, line in each_line(reader, grey, marks):
        if line is not None:
            lines.append(line)
            its = left_out.intersection(own)
            left_out -= its
            lost += len(line.unseen) + line.cut
            lost += max(0, len(its) - len(line.chars))  # more digits are seen than read
    return lines, len(left_out) + lost


def each_line(
    reader: PageReader, grey: NDArray[np.uint8], marks: Finding, wanted: NDArray[np.bool_] | None = None
) -> Iterator[tuple[list[int], TextLine | None]]:
    """Yield the lines around N marks of a page (H, W): their marks, and what is read, None if no number.

    With ``wanted`` (N,) the page is a camera's frame: what stands far apart is a line of its own, each has a
    mark that is wanted, and those that are too much for one frame are left out. A line has a margin if it is
    a text that is allowed and is likely enough.
    """
    bound, automaton = reader.policy.min_p, reader.automaton
    lines = _of_strips if reader.line_model else partial(of_boxes, gap=_GAP[0])
    for own, logp, places, cut in lines(reader, grey, marks, wanted):
        # the likeliest text, or of those that are allowed, if that is not far less likely
        number, margin = ctc.number(logp, bound=bound, automaton=automaton), None
        if automaton is not None:
            if number.text and number.beside < FAR:
                margin = number.margin
            else:
                number = ctc.number(logp, bound=bound)
        if not _is_number(number, marks, own, least=_NUMBER if margin is None else 0.0):
            yield own, None
            continue
        # its characters: ``?`` for the doubtful, also where one was perhaps left out
        chars = list[DigitReading]()
        spans = [(char.first, char.last) for char in number.chars]
        strokes = _strokes(places) if wanted is None else []
        for char, (box, score) in zip(number.chars, _boxes(spans, places, own, marks), strict=True):
            odds = np.exp(logp[min(char.first, len(logp) - 1) : char.last + 1])
            second, first = np.sort(odds[:, :BLANK].max(axis=0))[-2:].tolist()
            there = min(score**2 / (score**2 + (1 - score) ** 2), 1 - float(odds[:, BLANK].min()))
            text = REJECTED if char.reason else char.char
            out = text.isdigit() and any(since < box[0] + box[2] / 2 < until for since, until in strokes)
            reason = STRUCK if out else char.reason
            chars.append(DigitReading(text, float(char.p), first - second, box, reason, there))
        # its words: what is between spaces, each as likely as its own columns say
        others = marks[:0] if wanted is not None else marks[np.setdiff1d(np.arange(len(marks)), own)]
        spaces = [-1, *(k for k, char in enumerate(chars) if char.char == " "), len(chars)]
        parts = [(before + 1, after) for before, after in pairwise(spaces) if before + 1 < after]
        rules, words = places[0][0].rules if places else (), list[NumberReading]()
        boxes = [around([char.box for char in chars[begin:end]]) for begin, end in parts]
        its, unseen = own if wanted is None else [], list[int]()  # of a frame others vote
        sure = [k for k in its if marks.kinds[k] < 10 and marks.scores[k] >= SCORE]
        left, _, wide, high = marks.boxes[sure].T
        # digits seen in a word, or less than its height beside it, that share no column, likeliest first
        within = [list[int]() for _ in parts]
        centre, half = marks.middles[:, 0].tolist(), (marks.boxes[:, 2] / 2).tolist()
        for k in sorted(sure if places else (), key=lambda k: -marks.scores[k]):
            far = [max(x - centre[k], centre[k] - x - w) / h for x, _, w, h in boxes]
            known = within[int(np.argmin(far))]
            if min(far) < 1 and all(abs(centre[k] - centre[j]) >= half[k] + half[j] for j in known):
                known.append(k)
        for (begin, end), box, known in zip(parts, boxes, within, strict=True):
            p, said = max(number.p, likely(number.text, number.texts)), chars[begin:end]
            away = np.maximum(box[0] - left - wide, left - box[0] - box[2]) / high
            text = "".join(char.char for char in number.chars[begin:end])
            if margin is None and min(away, default=-1) > _APART and any(map(str.isdigit, text)):
                unseen += range(begin, end)  # most likely letters
                continue
            if len(parts) > 1 and margin is None:
                since = number.chars[begin - 1].last + 1 if begin else 0
                until = number.chars[end].first if end < len(chars) else len(logp)
                p = likely(text, dict(ctc.beam(logp[since : max(until, since + 1)])))
            lost = float(marks.scores[known[end - begin :]].max(initial=0))  # those that were not read
            p = min(p, 1 - lost, 1 - _PART * _beside(box, others))
            if p < bound and not any(char.char == REJECTED for char in said):
                least = min(range(len(said)), key=lambda k: said[k].p)
                said[least] = replace(said[least], char=REJECTED, reason=IN_DOUBT)
            middle = [one[0] + one[2] / 2 for one in (words[-1].box if words else box, box)]
            ruled = any(middle[0] < rule < middle[1] for rule in rules)
            words.append(NumberReading("".join(char.char for char in said), p, box, tuple(said), ruled))
        line = TextLine(tuple(words), margin, logp, number, places, unseen, cut)
        yield own, line if re.search(r"[\d?]", "".join(word.text for word in words)) else None


def _of_strips(
    reader: PageReader, grey: NDArray[np.uint8], marks: Finding, wanted: NDArray[np.bool_] | None
) -> Iterator[tuple[list[int], Logs, list[Column], int]]:
    """Yield lines: their marks, log likelihoods (T, n), where each column lies, `TextLine.cut`.

    A strip that is in doubt is the ink of its marks alone, if that is likelier; of a frame others vote.
    """
    cut, engine = strips(grey, marks, wanted=wanted), reader.engine
    answers = engine.likelihoods([strip.ink for strip in cut]) if cut else []
    doubtful = [k for k, answer in enumerate(answers) if wanted is None and _best_path(answer) < -_CLEARER]
    alone = [cut[k].alone() for k in doubtful]
    again = engine.likelihoods(alone) if doubtful else []
    for k, ink, answer in zip(doubtful, alone, again, strict=True):
        if _best_path(answer) > _best_path(answers[k]) + _CLEARER:
            answers[k], cut[k] = answer, replace(cut[k], ink=ink)
    for _, parts in groupby(zip(cut, answers, strict=True), key=lambda pair: pair[0].line):
        own, logs, places, several, lost = list[int](), list[Logs](), list[Column](), list(parts), 0
        if len(several) > 1 and reader.automaton is None:  # a label beside a number is left out
            said = [_is_number(ctc.number(logp), marks, strip.marks) for strip, logp in several]
            several = [part for part, one in zip(several, said, strict=True) if one] or several
        for strip, logp in several:
            # times what the finder says: which digit, and where there is none
            logp, unseen, ends = logp.copy(), np.full(len(logp), _UNSEEN_FAR), [len(logp), 0]
            for k in strip.marks:
                left, _, wide, high = marks.boxes[k].tolist()
                near = _NEAR * high
                at = left + np.array([-near, 0, wide / 4, 3 * wide / 4, wide, wide + near])
                edges = (np.searchsorted(strip.middle[:, 0], at) + BEFORE) // STEP
                before, since, first, last, until, after = edges.tolist()
                unseen[before : after + 1] = np.minimum(unseen[before : after + 1], _UNSEEN)
                unseen[since : until + 1] = 0
                ends = [min(ends[0], since), max(ends[1], until + 1)]
                if marks.kinds[k] < 10 and marks.scores[k] >= SCORE:
                    sure = np.log(marks.scores[k] / max(1 - marks.scores[k], 1e-3))
                    guesses = np.maximum(marks.guesses[k] + np.log(10), -5)
                    logp[first : last + 1, :10] += _GUESS * guesses + _SEEN * sure
            # where ink goes on past an end of the strip, no digit beyond the outermost mark
            for column, beyond in (0, slice(ends[0])), (-1, slice(ends[1], None)):
                if strip.ink[:, column].max() > 0.5 and reader.automaton is None:
                    unseen[beyond] = _AMID
                    said = np.r_[False, logp[beyond].argmax(axis=1) < 10]
                    lost += int((said[1:] & ~said[:-1]).sum())
            logp[:, :10] -= unseen[:, None]
            logp -= np.logaddexp.reduce(logp, axis=1, keepdims=True)
            # a space in a wide gap in which nothing is read; a pattern knows its spaces
            gaps = strip.spaces if reader.automaton is None else ()
            for t in (t for column in gaps if (t := (column + BEFORE) // STEP) < len(logp)):
                near = logp[max(0, t - _WIDE) : t + _WIDE + 1]
                if np.logaddexp(near[:, SPACE], near[:, BLANK]).min() > np.log(0.5):
                    logp = np.concatenate([logp[:t], _GAP, logp[t + 1 :]])
            # rarely one between digits that are close
            for t in ((column + BEFORE) // STEP for column in strip.close):
                near = logp[max(0, t - _WIDE) : t + _WIDE + 1]
                near[:, BLANK] = np.logaddexp(near[:, SPACE] + np.log(1 - _RARE), near[:, BLANK])
                near[:, SPACE] += np.log(_RARE)
            own += strip.marks
            logs += [logp, _GAP]
            places += [(strip, t) for t in range(len(logp) + 1)]
        yield own, np.concatenate(logs[:-1]), places, lost


def _strokes(places: Sequence[Column]) -> list[tuple[float, float]]:
    """Where strokes begin and end, columns of the page, that cross out what stands on a line's strips."""
    return [
        (float(strip.middle[first, 0]), float(strip.middle[last, 0]))
        for strip in dict.fromkeys(strip for strip, _ in places)
        for first, last in struck((strip.ink > _STROKE).astype(np.uint8), TALL, ROWS / 2)
    ]


def _is_number(number: ctc.Number, marks: Finding, own: Sequence[int], *, least: float = _NUMBER) -> bool:
    """Whether it has a digit and is no letters, by its probability and the mean score of its digits."""
    score = np.mean([marks.scores[k] for k in own if marks.kinds[k] < 10] or [1.0])
    sure = number.p ** (1 / max(1, len(number.text))) * float(score) >= least
    return sure and any(char.isdigit() for char in number.text)


def _best_path(logp: Logs) -> float:
    """Log likelihood of the likeliest path, if a space is as good as nothing."""
    nothing = np.logaddexp(logp[:, SPACE], logp[:, BLANK])
    return float(np.maximum(logp.max(axis=1), nothing).sum())


def bare(number: str) -> str:
    """A number but for what is no doubt of it: its spaces, a point or a comma, ``. .- =`` at its end."""
    return re.sub(r"(\.-|[.=])+$", "", number.replace(" ", "").replace(",", "."))


def likely(number: str, texts: Mapping[str, float]) -> float:
    """Probability of a `bare` number among ``texts`` with their log likelihoods."""
    wanted = bare(number)
    return float(np.exp([value for other, value in texts.items() if bare(other) == wanted]).sum())


def _beside(box: Box, others: Finding) -> float:
    """Score of the likeliest mark that is beside a number, half as high, and perhaps a part of it."""
    left, top, wide, high = box
    x, y, w, h = others.boxes.T
    shared = np.minimum(top + high, y + h) - np.maximum(top, y)
    gap = np.maximum(x - left - wide, left - x - w)
    near = (2 * h > high) & (shared > 0.4 * np.minimum(high, h)) & (gap < high)
    return float(others.scores[near].max(initial=0))


def _boxes(
    spans: Sequence[tuple[int, int]], places: Sequence[Column], marks: Sequence[int], found: Finding
) -> list[tuple[Box, float]]:
    """The box of each character: of the mark in which it alone is, else of the ink between its neighbours.

    With it goes the score of the mark that it is in, 0.5 if it is in none.
    """
    own, boxes, at = list[int | None](), found.boxes, list[tuple[Strip, float]]()
    if not places:  # box by box: a column for each mark, and one between two
        own += [marks[(first + last) // 4] for first, last in spans]
    for begin, last in spans if places else ():
        strip, column = places[begin]
        middle = STEP * (column + (last - begin) / 2) - BEFORE
        x = strip.to_page(middle, ROWS / 2)[0]
        off = {k: x - boxes[k, 0] - boxes[k, 2] / 2 for k in strip.marks}
        inside = [k for k in off if abs(off[k]) <= boxes[k, 2] / 2]
        own.append(min(inside, key=lambda k: abs(off[k]), default=None))
        at.append((strip, middle))
    out = list[tuple[Box, float]]()
    for n, mark in enumerate(own):
        if mark is not None and (not places or own.count(mark) == 1):
            left, top, wide, high = boxes[mark].tolist()
        else:
            strip, middle = at[n]
            others = [(middle + x) / 2 for other, x in at if other is strip and x != middle]
            since = max([middle - _REACH, *(x for x in others if x < middle)])
            until = min([middle + _REACH, *(x for x in others if x > middle)])
            left, top, wide, high = strip.box(round(since), round(until))
        box = round(left), round(top), max(1, round(wide)), max(1, round(high))
        out.append((box, 0.5 if mark is None else float(found.scores[mark])))
    return out


def best_turn(reader: PageReader, grey: NDArray[np.uint8], found: Finding) -> tuple[int, bool]:
    """Degrees by which a page (H, W) is turned to be read, and whether another turn is about as likely.

    What its marks are on is read at all four, with digits of `_LOOKED` pixels. A turn is worth the characters
    that are expected to be read right and half of the finder's log odds.
    """
    import cv2

    boxes = found.boxes  # the unlikely too: a digit that lies on its side is less like one
    if len(boxes) < _LONG:
        return 0, False
    tall = float(np.median(boxes[:, 2:].max(axis=1)))
    left, top = np.maximum(boxes[:, :2].min(axis=0) - 4 * tall, 0).astype(int)
    right, foot = ((boxes[:, :2] + boxes[:, 2:]).max(axis=0) + 4 * tall).astype(int)
    part, factor = cast(Any, grey[top:foot, left:right]), _LOOKED / tall
    if factor < 1 and factor * min(part.shape) >= 1:
        part = cv2.resize(part, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA)
    worths, upright = [0.0] * len(TURNS), max(0.0, seen(found))
    for k in (1, 2, 3, 0):
        if k == 0 and not any(worths):
            return 0, False
        view = turned(part, TURNS[k])
        for part_of in (2, 1) if k else (1,):  # at half the size first, a quarter of the time: most lie wrong
            marks = reader.look(view, settings=_HALF if part_of == 2 else FinderSettings())
            sure = int(((marks.kinds < 10) & (marks.scores >= SCORE)).sum())
            if k and (part_of * sure < _TURNED - 1 or part_of**2 * _CLEARLY * seen(marks) <= upright):
                break  # print on its side has hundreds
        else:
            count, right_ones = _worth(read_lines(reader, view, marks)[0])
            sense = right_ones >= _SENSE * count and count >= max(_TURNED, sure / 2)  # letters have less
            worths[k] = right_ones + max(0.0, seen(marks)) / 2 if sense or not k else 0.0
    best = int(np.argmax(worths[1:])) + 1
    turn = TURNS[best] if worths[best] > _CLEARLY * worths[0] else 0
    return turn, not turn and _CLEARLY * worths[best] > worths[0] > 0


def _worth(lines: Sequence[TextLine]) -> tuple[int, float]:
    """How many characters long numbers have, and how many of these are expected to be in right ones."""
    words = [word for line in lines for word in line.words if len(word.chars) >= _LONG]
    return sum(len(word.chars) for word in words), sum(word.p * len(word.chars) for word in words)
