"""Lines that take turns at the network where a frame has more digits than it has time for.

Reading all digits of a full page takes two cores longer than a camera waits. Each frame then reads
some of its lines; the others are left as they were, as is what a frame did not search.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from neocog.batch.records import Box

_AWAY = 3  # of so many frames running that show a line, one reads it
_REMEMBERED = 12  # frames for which a line is remembered that is not found


@dataclass(slots=True)
class _Line:
    """A line at its place.

    Attributes
    ----------
    box : tuple of int
    left_out : int
        Frames running that showed it and did not read it.
    lost : int
        Frames since it was found.
    new : bool
        Whether it was not known in the last frame: it may be one that moves too far to be known
        again, which would never have a turn behind those left out once.
    """

    box: Box
    left_out: int = 0
    lost: int = 0
    new: bool = True

    @property
    def rank(self) -> int:
        """How long it was left out, as far as that is known."""
        return max(self.left_out, int(self.new))


class Turns:
    """Says which lines of a frame are read: those left out the longest.

    Parameters
    ----------
    most : int or None
        Digits of a frame that are read in any case; None: all.
    """

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._next = 0  # of lines left out equally long
        self._known: list[_Line] = []

    def choose(self, digits: Sequence[int], boxes: Sequence[Box]) -> list[int]:
        """Return the numbers of the lines that are read.

        Of three frames running that show a line, one reads it, and a third of the lines are read
        of each frame at least.

        Parameters
        ----------
        digits : sequence of int
            How many each line has.
        boxes : sequence of tuple of int
            Where each stands in the frame.

        Examples
        --------
        >>> turns = Turns(6)
        >>> boxes = [(0, 0, 90, 20), (0, 40, 90, 20), (0, 80, 90, 20)]
        >>> [turns.choose([4, 4, 4], boxes) for _ in range(4)]
        [[0], [1], [2], [0]]
        >>> turns.choose([2, 4], boxes[:2])
        [0, 1]
        """
        count, total = len(digits), sum(digits)
        if self._most is None:
            return list(range(count))
        lines = self._recognised(boxes)
        if total <= self._most:
            for line in lines:
                line.left_out, line.new = 0, False
            return list(range(count))
        order = sorted(range(count), key=lambda n: (-lines[n].rank, (n - self._next) % count))
        room, least = max(self._most, -(-total // _AWAY)), -(-count // _AWAY)
        chosen: list[int] = []
        for number in order:
            room -= digits[number]
            due = lines[number].left_out >= _AWAY - 1
            if room < 0 and len(chosen) >= least and not due:
                break
            chosen.append(number)
        self._next = (chosen[-1] + 1) % count
        for number, line in enumerate(lines):
            line.left_out = 0 if number in chosen else line.left_out + 1
            line.new = False
        return sorted(chosen)

    def _recognised(self, boxes: Sequence[Box]) -> list[_Line]:
        """Return the line at each place, and remember them; those at new places are new."""
        left = self._known
        lines = []
        for box in boxes:
            line = min(left, key=lambda line: _apart(line.box, box), default=None)
            if line is None or _apart(line.box, box) > 1.0:
                line = _Line(box)
            else:
                left = [other for other in left if other is not line]
            line.box, line.lost = box, 0
            lines.append(line)
        for line in left:
            line.lost += 1
        self._known = [*lines, *(line for line in left if line.lost <= _REMEMBERED)]
        return lines


def _apart(one: Box, other: Box) -> float:
    """Heights by which the middles of two lines are apart; along the line half as much counts."""
    across = abs(one[0] + one[2] / 2 - other[0] - other[2] / 2)
    down = abs(one[1] + one[3] / 2 - other[1] - other[3] / 2)
    return max(across / 2, down) / max(one[3], other[3], 1)
