"""Lines that take turns at the network where a frame has more digits than it has time for.

Reading all digits of a full page takes two cores longer than a camera waits. Each frame then reads
some of its lines; the others are left as they were, as is what a frame did not search.
"""

from collections.abc import Sequence

_AWAY = 3  # a line is read in one of so many frames at least


class Turns:
    """Says which lines of a frame are read.

    Parameters
    ----------
    most : int or None
        Digits of a frame that are read in any case; None: all.
    """

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._next = 0

    def choose(self, digits: Sequence[int]) -> list[int]:
        """Return the numbers of the lines that are read.

        Parameters
        ----------
        digits : sequence of int
            How many each line has.

        Examples
        --------
        >>> turns = Turns(6)
        >>> [turns.choose([4, 4, 4]) for _ in range(4)]
        [[0], [1], [2], [0]]
        >>> turns.choose([2, 4])
        [0, 1]
        """
        total = sum(digits)
        if self._most is None or total <= self._most:
            return list(range(len(digits)))
        room = max(self._most, -(-total // _AWAY))
        start = self._next % len(digits)
        chosen: list[int] = []
        for number in (*range(start, len(digits)), *range(start)):
            if chosen and sum(digits[n] for n in chosen) + digits[number] > room:
                break
            chosen.append(number)
        self._next = start + len(chosen)
        return sorted(chosen)
