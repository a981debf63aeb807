"""Records of announced numbers and of single frames."""

from typing import Any

from neocog.batch.records import PageReading
from neocog.live.announce import Announcement
from neocog.live.pipeline import View


def reading(
    news: Announcement, *, text: str, source: str, model: str, finder: str
) -> dict[str, Any]:
    """Return the record of an announced number: that of a page, and when it was read.

    ``frame`` is the number of the frame, ``t`` seconds since the first frame. ``text`` has the
    signs of a pattern in it; ``model`` and ``finder`` name the networks.
    """
    page = PageReading(source, text=text, digits=news.track.shown, model=model, finder=finder)
    return {
        **page.to_dict(),
        "frame": news.frame,
        "t": round(news.t, 3),
        "age_ms": round(news.age_ms, 1),
        "confidence": round(news.confidence, 4),
    }


def frame(view: View, *, source: str, model: str, finder: str) -> dict[str, Any]:
    """Return the record of one frame as it was read alone, with the agreed numbers besides."""
    rows = view.seen.rows
    page = PageReading(
        source,
        text="\n".join("".join(digit.char for digit in row) for row in rows),
        digits=tuple(digit for row in rows for digit in row),
        model=model,
        finder=finder,
        left_out=view.seen.page.left_out,
    )
    return {
        **page.to_dict(),
        "frame": view.frame.index,
        "t": round(view.frame.t, 3),
        "age_ms": round(view.age_ms, 1),
        "agreed": [track.text for track in view.tracks if track.text],
    }
