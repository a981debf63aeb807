"""One frame read as a still is: digits found in it, then recognised, nothing taken from before."""

import time
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from neocog.batch.records import Box, DigitReading
from neocog.errors import UsageError
from neocog.live.frames import Frame
from neocog.live.regions import Part
from neocog.live.sheets import Sheet
from neocog.live.tracks import Row, inside
from neocog.live.turns import Turns
from neocog.network.once import Once

if TYPE_CHECKING:
    from neocog.batch.reader import Reader
    from neocog.network.engine import AnyEngine
    from neocog.vision.cut import Score
    from neocog.vision.find import Line

_BROAD = 1.1  # heights of its line; a broader mark may be several digits that touch
_MOST_BROAD = 6  # marks of a frame that are cut apart; on the CPU none
_LEAST_ROI = 24  # pixels of a side of the region that is read


@dataclass(frozen=True, slots=True)
class Roi:
    """The region of a frame that is read.

    Attributes
    ----------
    x, y, width, height : float
        In pixels; or, if none is above 1, in shares of the frame.
    """

    x: float
    y: float
    width: float
    height: float

    @staticmethod
    def parse(text: str) -> "Roi":
        """Read ``X,Y,WIDTH,HEIGHT``.

        Raises
        ------
        UsageError
            If it is something else.
        """
        try:
            x, y, width, height = (float(part) for part in text.split(","))
        except ValueError:
            x = y = width = height = -1.0
        if min(x, y) < 0 or min(width, height) <= 0 or not np.isfinite((x, y, width, height)).all():
            raise UsageError(
                f"roi '{text}': X,Y,WIDTH,HEIGHT is wanted, in pixels or in shares of the frame"
            )
        return Roi(x, y, width, height)

    def within(self, size: tuple[int, int]) -> Box:
        """Return the region in a frame of a size (width, height); all of it if nothing is left."""
        box = self._inside(size)
        return (0, 0, *size) if min(box[2:]) < _LEAST_ROI else box

    def refused(self, size: tuple[int, int]) -> str | None:
        """Say why another region is read of a frame of a size; None where it is this one."""
        box, frame = self._inside(size), f"the frame is {size[0]}x{size[1]}"
        if min(box[2:]) < _LEAST_ROI:
            return f"less than {_LEAST_ROI} pixels of it in the frame ({frame}): all is read"
        left, top, right, bottom = self._sides(size)
        if box == (left, top, right - left, bottom - top):
            return None
        return f"reaches beyond the frame ({frame}): {','.join(map(str, box))} is read"

    def _inside(self, size: tuple[int, int]) -> Box:
        """What is left of it in the frame."""
        left, top, right, bottom = self._sides(size)
        left, top = max(left, 0), max(top, 0)
        return left, top, min(right, size[0]) - left, min(bottom, size[1]) - top

    def _sides(self, size: tuple[int, int]) -> tuple[int, int, int, int]:
        """Left, top, right and bottom in pixels, wherever they are."""
        shares = max(self.x, self.y, self.width, self.height) <= 1.0
        across, down = size if shares else (1, 1)
        return (
            round(self.x * across),
            round(self.y * down),
            round((self.x + self.width) * across),
            round((self.y + self.height) * down),
        )


class Marks(Protocol):
    """What a search found, as `neocog.vision.find.Search`."""

    def digits(self, score: "Score | None" = None, *, count: int | None = None) -> "list[Line]":
        """Normalise the digits; with a ``score`` those that touch are cut apart before."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Marks that are normalised and will not be cut apart."""

    lines: "list[Line]"

    def digits(self, score: "Score | None" = None, *, count: int | None = None) -> "list[Line]":
        """Return them."""
        return self.lines


@dataclass(frozen=True, slots=True)
class Found:
    """What was found in a frame, before the network looked at it.

    Attributes
    ----------
    frame : Frame
    searches : tuple of Marks
        For each part its marks in lines, in pixels of the part.
    parts : tuple of Part
        What was searched of the frame.
    bounds : tuple of int
        Left, top, width and height of the region that shall be read.
    ms : float
        What finding took.
    steps : dict
        Pictures of the steps of the search, if they were asked for.
    """

    frame: Frame
    searches: "tuple[Marks, ...]"
    parts: tuple[Part, ...]
    bounds: Box
    ms: float
    steps: dict[str, NDArray[np.uint8]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Seen:
    """What was read in one frame.

    Attributes
    ----------
    found : Found
    rows : tuple of Row
        Its lines, boxes in pixels of the frame.
    digits : tuple of ndarray
        For each row its digits as the network got them, (N, 28, 28) uint8.
    unread : tuple of tuple of int
        Boxes of lines that were found and not read: others had their turn.
    ms : dict
        What normalising and recognising took.
    """

    found: Found
    rows: tuple[Row, ...]
    digits: tuple[NDArray[np.uint8], ...]
    ms: dict[str, float]
    unread: tuple[Box, ...] = ()


class Looker:
    """Reads what was found in a frame.

    Parameters
    ----------
    reader : Reader
    cuts : bool
        Whether digits that touch are cut apart where the network is on a GPU.
    most : int, optional
        Digits of a frame that are read in any case; of more, the lines take turns.
    """

    def __init__(self, reader: "Reader", *, cuts: bool = True, most: int | None = None) -> None:
        self._turns = Turns(most)
        self._most_broad = _MOST_BROAD if cuts and reader.engine.device != "cpu" else 0
        self._count = reader.pattern.digits if reader.pattern else None
        self._reader = copy(reader)
        self._once = Once(reader.engine)
        self._reader.engine = cast("AnyEngine", self._once)

    def read(self, found: Found) -> Seen:
        """Normalise and recognise the digits of a frame, all that it reads in one batch."""
        start = time.perf_counter()
        self._once.forget()
        whole, unread = self._in_turn(found)
        digits = [place.digit for lines in whole for line in lines for place in line.digits]
        normalised = time.perf_counter()
        if digits:
            self._once.recognise(np.stack(digits), batch=self._reader.batch)
        rows: list[Row] = []
        pictures: list[NDArray[np.uint8]] = []
        for number, (search, part) in enumerate(zip(found.searches, found.parts, strict=True)):
            score = self._score(whole[number])
            lines = search.digits(score, count=self._count) if score else whole[number]
            read = iter(self._reader.recognise(lines))
            before = [other.region for other in found.parts[:number]]
            for line in lines:
                pairs = [(_in_frame(next(read), part), place.digit) for place in line.digits]
                kept = [pair for pair in pairs if part.sheet is None or _on(part.sheet, pair[0])]
                middle = kept[len(kept) // 2][0].box if kept else None
                if middle and not any(inside(middle, region) for region in before):
                    rows.append(tuple(digit for digit, _ in kept))
                    pictures.append(np.stack([picture for _, picture in kept]))
        ms = {
            "normalise": 1e3 * (normalised - start),
            "recognise": 1e3 * (time.perf_counter() - normalised),
        }
        return Seen(found, tuple(rows), tuple(pictures), ms, unread)

    def _in_turn(self, found: Found) -> "tuple[list[list[Line]], tuple[Box, ...]]":
        """For each search the lines that are read, and the boxes of the others in the frame."""
        whole = [search.digits() for search in found.searches]
        lines = [
            (number, line) for number, part in enumerate(whole) for line in part if line.digits
        ]
        boxes = [_moved(_around(line), found.parts[number].region) for number, line in lines]
        chosen = set(self._turns.choose([len(line.digits) for _, line in lines], boxes))
        if len(chosen) == len(lines):
            return whole, ()
        read: list[list[Line]] = [[] for _ in whole]
        unread = []
        for index, (number, line) in enumerate(lines):
            if index in chosen:
                read[number].append(line)
            else:
                unread.append(boxes[index])
        return read, tuple(unread)

    def _score(self, lines: "list[Line]") -> "Score | None":
        """Return what says how well a mark, or a part of one, is known; None if none is broad.

        Marks that are no broader than digits count as known: a still would offer them cuts too,
        but forty parts of a doubtful mark cost as much as five frames.
        """
        if not self._reader.cut:
            return None
        single, broad = set(), 0
        for line in lines:
            tall = float(np.median([place.box[3] for place in line.digits]))
            narrow = [p for p in line.digits if p.box[2] <= _BROAD * tall]
            single |= {place.digit.tobytes() for place in narrow}
            broad += len(line.digits) - len(narrow)
        if not broad or broad > self._most_broad:
            return None

        def score(digits: NDArray[np.uint8]) -> NDArray[np.floating]:
            p = np.ones(len(digits), np.float32)
            asked = [n for n, digit in enumerate(digits) if digit.tobytes() not in single]
            if asked:
                p[asked] = self._reader._known(digits[asked])
            return p

        return score


def _on(sheet: Sheet, digit: DigitReading) -> bool:
    x, y, width, height = digit.box
    return sheet.holds(x + width / 2, y + height / 2)


def _around(line: "Line") -> Box:
    boxes = [place.box for place in line.digits]
    left, top = min(box[0] for box in boxes), min(box[1] for box in boxes)
    right, low = max(box[0] + box[2] for box in boxes), max(box[1] + box[3] for box in boxes)
    return left, top, right - left, low - top


def _in_frame(digit: DigitReading, part: Part) -> DigitReading:
    return replace(digit, box=_moved(digit.box, part.region))


def _moved(box: Box, region: Box) -> Box:
    left, top, width, height = box
    return left + region[0], top + region[1], width, height
