"""The region of a frame that is read."""

from dataclasses import dataclass
from math import isfinite

from neocog.batch.records import Box
from neocog.errors import UsageError

_LEAST = 24  # pixels of a side

Size = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Roi:
    """A region of interest in pixels; or, if no number is above 1, in shares of the frame."""

    x: float
    y: float
    width: float
    height: float

    @staticmethod
    def parse(text: str) -> "Roi":
        """Read ``X,Y,WIDTH,HEIGHT``, or raise UsageError."""
        try:
            x, y, width, height = (float(part) for part in text.split(","))
        except ValueError:
            x = y = width = height = -1.0
        finite = all(map(isfinite, (x, y, width, height)))
        if not finite or min(x, y) < 0 or min(width, height) <= 0:
            raise UsageError(
                f"roi '{text}': expected X,Y,WIDTH,HEIGHT, in pixels or as fractions of the frame"
            )
        return Roi(x, y, width, height)

    def within(self, size: Size) -> Box:
        """Return the region in a frame of a size (width, height); all of it if nothing is left."""
        box = self._inside(size)
        return (0, 0, *size) if min(box[2:]) < _LEAST else box

    def refused(self, size: Size) -> str | None:
        """Say why another region is read of a frame of a size; None where it is this one."""
        box, frame = self._inside(size), f"the frame is {size[0]}x{size[1]}"
        if min(box[2:]) < _LEAST:
            return (
                f"less than {_LEAST} pixels of it in the frame ({frame}): the whole frame is read"
            )
        left, top, right, bottom = self._sides(size)
        if box == (left, top, right - left, bottom - top):
            return None
        return f"reaches beyond the frame ({frame}): {','.join(map(str, box))} is read"

    def _inside(self, size: Size) -> Box:
        left, top, right, bottom = self._sides(size)
        left, top = max(left, 0), max(top, 0)
        return left, top, min(right, size[0]) - left, min(bottom, size[1]) - top

    def _sides(self, size: Size) -> Box:
        """Left, top, right and bottom in pixels, wherever they are."""
        shares = max(self.x, self.y, self.width, self.height) <= 1.0
        across, down = size if shares else (1, 1)
        right, bottom = (self.x + self.width) * across, (self.y + self.height) * down
        return round(self.x * across), round(self.y * down), round(right), round(bottom)
