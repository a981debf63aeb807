"""Where a frame is searched: its sheets, the lines that are followed, now and then all of it.

Searching a whole frame on a desk full of texture takes longer than a camera waits; searching a
sheet takes a tenth of it. Every frame is searched anew; only places are predicted.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import median

from neocog.batch.records import REJECTED, Box
from neocog.live.sheets import Sheet
from neocog.live.tracks import Track, inside

WHOLE_EVERY = 6
"""All of every sixth frame is searched, for what is on no sheet and not followed yet."""

SURE_EVERY = 18
"""All of every eighteenth frame, while there are lines on a sheet."""

BARE_EVERY = 3
"""All of every third frame, while there is no sheet and no line."""

RARELY = 300
"""Where a scout tells where to search, `RUN` of so many frames are searched sharply, and as many
whole, for what it does not tell of: enough for the frames to agree."""

RUN = 5

WHOLE_SIDE = 512
"""Whole frames are searched at this long side, in pixels; regions at up to `REGION_SIDE`."""

GLANCE_SIDE = 288
"""The other frames are searched at this long side while there is no sheet and no line."""

REGION_SIDE = 640

SHARP_EVERY = 6
"""Every sixth time a sheet is searched twice as sharply as its smallest line needs it."""

BARE_SHARP_EVERY = 2
"""Every second time while no line is followed on it, until that found nothing `DULL` times."""

DULL = 2

LEGIBLE = 28
"""Height in pixels at which digits of a followed line are searched; the network sees 20."""

THOUGHT = -1
"""Number of lines that nobody follows: something may stand there."""

_MARGIN = 1.2  # heights of a line around it; it may move, and what is beside it tells what it is
_AHEAD = 2.5  # frames that a line has moved on until its place is searched
_LEAST_HIGH = 0.55  # share of its width that a region is high; a strip is read by other rules
_LARGE = 0.6  # a region larger than this share of the frame is no gain
_LEAST, _ROOM = 48, 96  # pixels that a region has a side at least, and where the frame has room
_SHARP_RUN, _WHOLE_RUN = 15, 45  # which runs of a round
_LEAST_SIDE = 256  # long side in pixels; below it little time is saved


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a frame that is searched by itself.

    Attributes
    ----------
    region : tuple of int
        Left, top, width and height in pixels of the frame.
    long_side : int
        Reduced to this long side.
    entire : bool
        Whether it is a page of its own, a sheet or all of the frame, and as sharp as ever: what is
        read there has all around it that tells writing from print.
    sheet : Sheet or None
        Marks beside this sheet are left out.
    """

    region: Box
    long_side: int
    entire: bool
    sheet: Sheet | None = None


def planned(
    index: int,
    bounds: Box,
    sheets: Sequence[Sheet],
    tracks: Sequence[Track],
    *,
    dull: Collection[int] = (),
    pace: int = 1,
    scouted: bool = False,
) -> tuple[Part, ...]:
    """Say which parts of a frame are searched.

    Parameters
    ----------
    index : int
        Number of the frame among those that are searched: what is done every so many frames goes
        by it, since a camera's frames may be dropped as regularly.
    bounds : tuple of int
        The region that shall be read: the frame, or a part of it.
    sheets : sequence of Sheet
        Sheets that this frame shows.
    tracks : sequence of Track
        Lines that are followed.
    dull : collection of int
        Sheets, by their number, on which sharp searches found nothing lately.
    pace : int
        What is done every so many frames is done so many times as rarely: a camera that gives
        twice the frames shows nothing sooner.
    scouted : bool
        Whether others search sheets sharply and all of the frame, and tell by ``tracks`` where
        something may stand. All of the frame is searched then only where a line beside the sheets
        must still be confirmed, and rarely without need, as are sheets sharply.

    Returns
    -------
    tuple of Part
        The sheets; where lines are followed beside them; and all of the frame every sixth time,
        or, while there is no sheet and no line, every time, sharply every third.
    """
    parts, beside = [], [track for track in tracks if track.shown]
    every, run = WHOLE_EVERY, index // pace % RARELY // RUN if scouted else -1
    for number, sheet in enumerate(sheets):
        own = [track for track in beside if inside(track.digits[0].box, sheet.box)]
        beside = [track for track in beside if track not in own]
        every = SURE_EVERY if own else every
        times = pace * (SHARP_EVERY if own or number in dull else BARE_SHARP_EVERY)
        sharp = run == _SHARP_RUN if scouted else index % times == times // 2
        side = legible(sheet.box, own, sharp=sharp)
        parts.append(Part(sheet.box, side, entire=True, sheet=sheet))
    beside = [track for track in beside if track.text.strip(REJECTED)]
    whole = Part(bounds, WHOLE_SIDE, entire=True)
    unsure = not scouted or any(track.steady and not track.confirmed for track in beside)
    if run == _WHOLE_RUN or (index % (pace * every) == 0 and unsure):
        return (*parts, whole)
    groups = _groups(beside, bounds)
    if groups:
        group = groups[index % len(groups)]
        region = predicted(group, bounds)
        if region:
            return (*parts, Part(region, legible(region, group), entire=False))
        if parts and index % (pace * every) == 0:
            return (*parts, whole)
    if parts:
        return tuple(parts)
    if groups or (index % (pace * BARE_EVERY) == 0 and not scouted):
        return (whole,)
    return (Part(bounds, GLANCE_SIDE, entire=False),)


def _groups(beside: Sequence[Track], bounds: Box) -> list[Sequence[Track]]:
    """Lines beside the sheets of which each frame searches one group: all, if they stand close."""
    if predicted(beside, bounds):
        return [beside]
    followed = [track for track in beside if track.number != THOUGHT]
    close = bool(predicted(followed, bounds))
    alone = [[track] for track in beside if track.number == THOUGHT or not close]
    groups = [group for group in alone if predicted(group, bounds)]
    if close:
        groups.insert(0, followed)
    return [*groups] or [*filter(None, [followed])]


def legible(box: Box, tracks: Sequence[Track], *, sharp: bool = False) -> int:
    """Return the long side at which a region is searched: its smallest line is legible."""
    side: float = REGION_SIDE // 2
    if tracks:
        low = min(median(digit.box[3] for digit in track.digits) for track in tracks)
        side = max(_LEAST_SIDE, max(box[2:]) * LEGIBLE / max(low, 1))
    return min(REGION_SIDE, round(2 * side if sharp else side))


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
    if min(x1 - x0, y1 - y0) <= 0:
        return None
    lacking = (_ROOM - (x1 - x0) + 1) // 2
    if lacking > 0:
        x0, x1 = max(left, x0 - lacking), min(left + width, x1 + lacking)
    lacking = (max(_ROOM, round(_LEAST_HIGH * (x1 - x0))) - (y1 - y0) + 1) // 2
    if lacking > 0:
        y0, y1 = max(top, y0 - lacking), min(top + height, y1 + lacking)
    if min(x1 - x0, y1 - y0) < _LEAST or (x1 - x0) * (y1 - y0) > _LARGE * width * height:
        return None
    return x0, y0, x1 - x0, y1 - y0


def around(track: Track) -> Box:
    """Return a box around a line, where it is thought to be when it is searched next."""
    read = [digit.box for digit in track.digits if digit.char != REJECTED]
    boxes = read or [digit.box for digit in track.digits]  # what it rejects at its ends may be desk
    tall = max(box[3] for box in boxes)
    dx, dy = (round(_AHEAD * step) for step in track.step)
    margin = round(_MARGIN * tall)
    x0 = min(box[0] for box in boxes) - margin + min(dx, 0)
    y0 = min(box[1] for box in boxes) - margin + min(dy, 0)
    x1 = max(box[0] + box[2] for box in boxes) + margin + max(dx, 0)
    y1 = max(box[1] + box[3] for box in boxes) + margin + max(dy, 0)
    return x0, y0, x1 - x0, y1 - y0
