"""Where a frame is searched: all of it from time to time, else around the lines that are followed.

Searching a whole frame on a desk full of texture takes longer than a camera waits; searching a
sheet takes a tenth of it. Every frame is searched anew; only the place is predicted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from neocog.batch.records import Box
from neocog.live.tracks import Track

WHOLE_EVERY = 3
"""While lines are followed all of every third frame is searched, for new ones."""

WHOLE_SIDE = 640
"""Whole frames are searched at this long side, in pixels; regions at up to `REGION_SIDE`."""

GLANCE_SIDE = 320
"""While nothing is followed every other frame is searched at this long side."""

REGION_SIDE = 1024

_MARGIN = 1.2  # heights of a line around it; it may move, and what is beside it tells what it is
_AHEAD = 2.5  # frames that a line has moved on until its place is searched
_LEAST_HIGH = 0.55  # share of its width that a region is high; a strip is read by other rules
_LARGE = 0.6  # a region larger than this share of the frame is no gain
_LEAST = 48  # pixels


@dataclass(frozen=True, slots=True)
class Plan:
    """What is searched of one frame.

    Attributes
    ----------
    region : tuple of int
        Left, top, width and height in pixels of the frame.
    long_side : int
        Reduced to this long side.
    whole : bool
        Whether all that shall be read is searched, as sharply as ever.
    """

    region: Box
    long_side: int
    whole: bool


def planned(
    index: int, bounds: Box, followed: Box | None, *, following: bool, sharp: int = WHOLE_SIDE
) -> Plan:
    """Say where a frame is searched.

    Parameters
    ----------
    index : int
        Number of the frame.
    bounds : tuple of int
        The region that shall be read: the frame, or a part of it.
    followed : tuple of int or None
        Where the followed lines are thought to be.
    following : bool
        Whether any line is followed.
    sharp : int
        Long side of a search of the whole.
    """
    if following:
        if followed is None or index % WHOLE_EVERY == 0:
            return Plan(bounds, sharp, whole=True)
        return Plan(followed, REGION_SIDE, whole=False)
    if index % 2 and max(bounds[2:]) > GLANCE_SIDE:
        return Plan(bounds, GLANCE_SIDE, whole=False)
    return Plan(bounds, sharp, whole=True)


def predicted(tracks: Sequence[Track], bounds: Box) -> Box | None:
    """Return the region in which the followed lines will be; None if all must be searched.

    Parameters
    ----------
    tracks : sequence of Track
    bounds : tuple of int
        The region that shall be read.
    """
    boxes = [around(track) for track in tracks]
    if not boxes:
        return None
    left, top, width, height = bounds
    x0 = max(left, min(box[0] for box in boxes))
    y0 = max(top, min(box[1] for box in boxes))
    x1 = min(left + width, max(box[0] + box[2] for box in boxes))
    y1 = min(top + height, max(box[1] + box[3] for box in boxes))
    lacking = round(_LEAST_HIGH * (x1 - x0)) - (y1 - y0)
    if lacking > 0:
        y0 = max(top, y0 - (lacking + 1) // 2)
        y1 = min(top + height, y1 + (lacking + 1) // 2)
    if min(x1 - x0, y1 - y0) < _LEAST or (x1 - x0) * (y1 - y0) > _LARGE * width * height:
        return None
    return x0, y0, x1 - x0, y1 - y0


def around(track: Track) -> Box:
    """Return a box around a line, where it is thought to be when it is searched next."""
    boxes = [digit.box for digit in track.digits]
    tall = max(box[3] for box in boxes)
    dx, dy = (round(_AHEAD * step) for step in track.step)
    margin = round(_MARGIN * tall)
    x0 = min(box[0] for box in boxes) - margin + min(dx, 0)
    y0 = min(box[1] for box in boxes) - margin + min(dy, 0)
    x1 = max(box[0] + box[2] for box in boxes) + margin + max(dx, 0)
    y1 = max(box[1] + box[3] for box in boxes) + margin + max(dy, 0)
    return x0, y0, x1 - x0, y1 - y0
