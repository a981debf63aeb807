"""A view drawn: boxes and digits on the frame, the agreed numbers large, figures in a line."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from neocog.batch.records import REJECTED, Box
from neocog.live.measures import STAGES, Measures
from neocog.live.pipeline import Settings, View
from neocog.live.tracks import Row
from neocog.vision.overlay import SURE_P

Picture = NDArray[np.uint8]
Colour = tuple[int, int, int]

SURE: Colour = (60, 170, 0)  # blue, green, red
UNSURE: Colour = (0, 140, 235)
REFUSED: Colour = (40, 30, 200)
WHITE: Colour = (255, 255, 255)

_BACK = (32, 32, 32)  # behind a text
_SHADE = 0.65  # how far it covers the picture
_LARGEST = 0.11  # height of an agreed number, as a share of the frame's
_WIDEST = 0.92  # and its width


def draw(
    view: View, settings: Settings | None = None, *, recording: bool = False, note: str = ""
) -> Picture:
    """Return a new picture (H, W, 3), blue, green, red: a frame and what is known about it.

    Parameters
    ----------
    view : View
    settings : Settings, optional
        Only numbers that its pattern allows are shown, with its signs.
    recording : bool
        Whether a red dot is shown.
    note : str
        Shown below the figures.
    """
    out = view.frame.pixels.copy()
    bounds = view.seen.found.bounds
    if bounds != (0, 0, *view.frame.size):
        rectangle(out, bounds, (200, 200, 200))
    for row in view.seen.rows:
        _draw_row(out, row)
    _draw_numbers(out, view, settings or Settings())
    draw_text(out, [*_figures(view.measures), *([note] if note else [])], recording=recording)
    return out


def _draw_row(out: Picture, row: Row) -> None:
    """Draw the digits of one line as this frame alone shows them, with their probabilities."""
    for digit in row:
        colour = REFUSED if digit.char == REJECTED else SURE if digit.p >= SURE_P else UNSURE
        rectangle(out, digit.box, colour)
        x, y, _, height = digit.box
        scale = min(max(height / 60, 0.5), 1.5)
        above = (x, max(y - round(8 * scale), round(18 * scale)))
        write(out, digit.char, above, scale, colour, 2)
        if digit.char != REJECTED:
            below = (x, min(y + height + 14, out.shape[0] - 4))
            write(out, f"{100 * digit.p:.0f}", below, 0.4, colour)


def _draw_numbers(out: Picture, view: View, settings: Settings) -> None:
    """Draw the agreed numbers large at the bottom; green once they are announced."""
    import cv2

    height, width = out.shape[:2]
    texts = [
        (settings.shown(track.text), SURE if track.text == said else UNSURE)
        for track, said in zip(view.tracks, view.said, strict=True)
        if track.text.strip(REJECTED) and settings.allows(track.text)
    ]
    bottom = height - 10
    for text, colour in reversed(texts):
        (wide, tall), _ = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, 1.0, 2)
        scale = min(_LARGEST * height / tall, _WIDEST * width / wide)
        if len(texts) > 2:
            scale /= len(texts) / 2
        wide, tall = round(wide * scale), round(tall * scale)
        left = (width - wide) // 2
        _shade(out, (left - 12, bottom - tall - 16, wide + 24, tall + 24))
        write(out, text, (left, bottom - 4), scale, colour, max(2, tall // 12))
        bottom -= tall + 32


def _figures(measures: Measures) -> list[str]:
    """Rate, age and dropped frames in a line, and milliseconds of the stages in another."""
    return [
        f"{measures.fps:.1f} fps  age {measures.age_ms:.0f} ms  "
        f"dropped {measures.dropped} of {measures.frames + measures.dropped}",
        "  ".join(f"{name} {measures.ms[name]:.1f}" for name in STAGES if name in measures.ms),
    ]


def draw_text(out: Picture, lines: Sequence[str], *, recording: bool = False) -> None:
    """Draw lines of small text at the top."""
    import cv2

    sizes = [cv2.getTextSize(line, cv2.FONT_HERSHEY_SIMPLEX, 0.5, 1)[0] for line in lines]
    width = max(size[0] for size in sizes)
    _shade(out, (0, 0, width + (36 if recording else 16), 20 * len(lines) + 8))
    for number, line in enumerate(lines):
        write(out, line, (8, 20 * number + 18), 0.5, WHITE)
    if recording:
        cv2.circle(out, (width + 22, 14), 6, (0, 0, 220), -1, cv2.LINE_AA)


def write(
    out: Picture, text: str, at: tuple[int, int], scale: float, colour: Colour, pen: int = 1
) -> None:
    """Write a text whose lower left corner is at (x, y)."""
    import cv2

    cv2.putText(out, text, at, cv2.FONT_HERSHEY_SIMPLEX, scale, colour, pen, cv2.LINE_AA)


def rectangle(out: Picture, box: Box, colour: Colour) -> None:
    """Draw a box around a place."""
    import cv2

    x, y, width, height = box
    cv2.rectangle(out, (x - 2, y - 2), (x + width + 2, y + height + 2), colour, 2)


def _shade(out: Picture, box: Box) -> None:
    """Darken a place so that text on it can be read."""
    x, y, width, height = box
    part = out[max(y, 0) : y + height, max(x, 0) : x + width]
    part[:] = (part * (1 - _SHADE) + np.array(_BACK) * _SHADE).astype(np.uint8)
