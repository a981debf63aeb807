"""What ink is like on the sheets before the camera: which colour shows it best, dark or bright.

Both depend on pen, paper and light, not on the frame, and are judged anew from time to time.
"""

import numpy as np
from numpy.typing import NDArray

_JUDGED_EVERY = 15  # searches between two judgements which colour shows ink best
_JUDGED_AT = 320  # long side of the picture that is judged
_KEPT = 5  # searches of a sheet between two judgements whether its ink is dark


class Grey:
    """Turns frames into the grey that shows ink best.

    Which colour that is (luma, or one channel) is judged anew from time to time, in a picture
    of reduced size: it depends on pen, paper and light, not on the frame.
    """

    def __init__(self) -> None:
        self._channel: int | None = None
        self._left = 0

    def __call__(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return a picture (H, W, 3; blue, green, red) in grey, (H, W)."""
        if self._left <= 0:
            self._channel, self._left = clearest_channel(pixels), _JUDGED_EVERY
        self._left -= 1
        return in_grey(pixels, self._channel)


def in_grey(pixels: NDArray[np.uint8], channel: int | None) -> NDArray[np.uint8]:
    """Return one channel of a picture (H, W, 3), or its luma for None; (H, W)."""
    import cv2

    if channel is None:
        return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY), np.uint8)
    return np.asarray(cv2.extractChannel(pixels, channel), np.uint8)


def clearest_channel(pixels: NDArray[np.uint8]) -> int | None:
    """Return the channel of a picture in which ink stands out most; None for its luma."""
    import cv2

    from neocog.vision.decode import to_grey

    height, width = pixels.shape[:2]
    shrink = min(1.0, _JUDGED_AT / max(height, width))
    size = max(1, round(width * shrink)), max(1, round(height * shrink))
    small = np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), np.uint8)
    grey = to_grey(np.ascontiguousarray(small[:, :, ::-1]))
    if np.array_equal(grey, cv2.cvtColor(small, cv2.COLOR_BGR2GRAY)):
        return None
    return next((c for c in range(3) if np.array_equal(grey, small[:, :, c])), None)


class Polarity:
    """Whether ink is dark or bright, as the last search of a sheet found it that found anything.

    Telling it from one picture takes two searches more where neither is plain.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[bool, int]] = {}  # and how often it may still be taken

    def of(self, sheet: int) -> str:
        """Return "dark", "bright", or "auto" where it must be judged, for a sheet by its number."""
        dark, left = self._known.pop(sheet, (True, 0))
        if not left:
            return "auto"
        self._known[sheet] = dark, left - 1
        return "dark" if dark else "bright"

    def note(self, sheet: int, *, written: bool, dark: bool) -> None:
        """Take what a search found: whether there was writing, and whether its ink was dark."""
        if written:
            self._known.setdefault(sheet, (dark, _KEPT))
        else:
            self._known.pop(sheet, None)
