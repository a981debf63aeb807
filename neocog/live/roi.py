"""The region of a frame that is read."""

from dataclasses import dataclass
from math import isfinite

from neocog.batch.records import Box
from neocog.errors import UsageError

_LEAST = 24  # pixels of a side


@dataclass(frozen=True, slots=True)
class Roi:
    """A region of interest.

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
        if (
            min(x, y) < 0
            or min(width, height) <= 0
            or not all(map(isfinite, (x, y, width, height)))
        ):
            raise UsageError(
                f"roi '{text}': X,Y,WIDTH,HEIGHT is wanted, in pixels or in shares of the frame"
            )
        return Roi(x, y, width, height)

    def within(self, size: tuple[int, int]) -> Box:
        """Return the region in a frame of a size (width, height); all of it if nothing is left."""
        box = self._inside(size)
        return (0, 0, *size) if min(box[2:]) < _LEAST else box

    def refused(self, size: tuple[int, int]) -> str | None:
        """Say why another region is read of a frame of a size; None where it is this one."""
        box, frame = self._inside(size), f"the frame is {size[0]}x{size[1]}"
        if min(box[2:]) < _LEAST:
            return f"less than {_LEAST} pixels of it in the frame ({frame}): all is read"
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
