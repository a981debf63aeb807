"""Why a picture was read wrong, told from what was written, what was read and where."""

from statistics import median

from neocog.batch.records import REJECTED, PageReading

CAUSES = {
    "empty": "nothing was found",
    "lines": "parted into several lines, or lines joined",
    "touching": "too few: a mark as broad as two was read as one",
    "lost": "too few: digits lost or left out",
    "too_many": "too many: other marks read, or digits cut in two",
    "given_up": "all found, one or more given up",
    "misread": "all found, one or more misread",
}
"""Each cause with what it means; the first that holds is counted."""

_BROAD = 1.15  # a box wider than so many heights of the line may hold two digits


def cause(reading: PageReading, written: str, *, lines: int = 0) -> str:
    """Name the first cause of `CAUSES` that holds of a picture that was read wrong.

    Parameters
    ----------
    reading : PageReading
    written : str
        The digits alone, without line ends.
    lines : int
        Lines that are written, 0 where that is not known.
    """
    read = reading.text.replace("\n", "")
    if not read:
        return "empty"
    if lines and len(reading.text.split("\n")) != lines:
        return "lines"
    if len(read) < len(written):
        boxes = [digit.box for digit in reading.digits if digit.box]
        tall = median(height for *_, height in boxes)
        broad = any(width > _BROAD * max(tall, height) for _, _, width, height in boxes)
        return "touching" if broad else "lost"
    if len(read) > len(written):
        return "too_many"
    return "given_up" if REJECTED in read else "misread"
