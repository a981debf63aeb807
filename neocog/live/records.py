"""Readings as JSON: one object for each agreed number, others for what else happened."""

from typing import Any

from neocog.batch.records import DigitReading, PageReading
from neocog.jsontext import to_json
from neocog.live.announce import Announcement
from neocog.live.capture import Notice
from neocog.live.measures import Measures
from neocog.live.pipeline import View


def reading(
    news: Announcement, *, text: str, source: str, model: str, finder: str
) -> dict[str, Any]:
    """Return the record of an announced number.

    Parameters
    ----------
    news : Announcement
    text : str
        The number as it is shown, signs of a pattern in it.
    source, model, finder : str
        What was read, and by which networks.

    Returns
    -------
    dict
        The record of a page with ``frame`` (its number), ``t`` (seconds since the first frame),
        ``age_ms`` and ``confidence`` besides.
    """
    digits = tuple(
        DigitReading(digit.char, digit.p, digit.margin, digit.box) for digit in news.track.shown
    )
    page = PageReading(source, text=text, digits=digits, model=model, finder=finder).to_dict()
    return {
        **page,
        "frame": news.frame,
        "t": round(news.t, 3),
        "age_ms": round(news.age_ms, 1),
        "confidence": round(news.confidence, 4),
    }


def source_event(notice: Notice) -> dict[str, Any]:
    """Return the event of a source that was opened, lost or found again."""
    return {"event": "source", "state": notice.kind, "text": notice.text}


def end_event(measures: Measures) -> dict[str, Any]:
    """Return the last event of a run."""
    return {
        "event": "end",
        "frames": measures.frames,
        "dropped": measures.dropped,
        "fps": round(measures.fps, 2),
        "age_ms": round(measures.age_ms, 1),
    }


def line(record: dict[str, Any]) -> str:
    """Return a record as one line of JSON, without its end."""
    return to_json(record, ensure_ascii=True, separators=(",", ":"))


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
    ).to_dict()
    return {
        **page,
        "frame": view.frame.index,
        "t": round(view.frame.t, 3),
        "age_ms": round(view.age_ms, 1),
        "agreed": [track.text for track in view.tracks if track.text],
    }
