"""A view drawn: boxes and digits on the frame, the agreed numbers large, figures in a line."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from neocog.batch.records import REJECTED, Box
from neocog.live.expected import Expected
from neocog.live.measures import STAGES, Measures
from neocog.live.pipeline import View
from neocog.live.tracks import Row, Track
from neocog.vision.overlay import SURE_P

Picture = NDArray[np.uint8]
Colour = tuple[int, int, int]

SURE: Colour = (60, 170, 0)  # blue, green, red
UNSURE: Colour = (0, 140, 235)
REFUSED: Colour = (40, 30, 200)
_INK: Colour = (255, 255, 255)
_BACK: Colour = (32, 32, 32)

_SHADE = 0.65  # how far the ground of a text covers the picture
_LARGEST = 0.11  # height of an agreed number, as a share of the frame's
_WIDEST = 0.92  # and its width


def draw(
    view: View, expected: Expected | None = None, *, recording: bool = False, note: str = ""
) -> Picture:
    """Draw what is known about a frame over it.

    Parameters
    ----------
    view : View
    expected : Expected, optional
        Its pattern's signs are shown in the numbers.
    recording : bool
        Whether a red dot is shown.
    note : str
        Shown below the figures.

    Returns
    -------
    ndarray of uint8, shape (H, W, 3)
        A new picture; blue, green, red.
    """
    out = view.frame.pixels.copy()
    bounds = view.seen.found.bounds
    if bounds != (0, 0, *view.frame.size):
        rectangle(out, bounds, (200, 200, 200))
    for row in view.seen.rows:
        draw_row(out, row)
    draw_numbers(out, view.tracks, view.said, expected or Expected())
    lines = [figures(view.measures), stages(view.measures)]
    draw_text(out, [*lines, note] if note else lines, recording=recording)
    return out


def draw_row(out: Picture, row: Row) -> None:
    """Draw the digits of one line as this frame alone shows them, with their probabilities."""
    import cv2

    for digit in row:
        colour = REFUSED if digit.char == REJECTED else SURE if digit.p >= SURE_P else UNSURE
        rectangle(out, digit.box, colour)
        x, y, _, height = digit.box
        scale = min(max(height / 60, 0.5), 1.5)
        place = (x, max(y - round(8 * scale), round(18 * scale)))
        cv2.putText(out, digit.char, place, _font(), scale, colour, 2, cv2.LINE_AA)
        if digit.char != REJECTED:
            below = (x, min(y + height + 14, out.shape[0] - 4))
            cv2.putText(out, f"{100 * digit.p:.0f}", below, _font(), 0.4, colour, 1, cv2.LINE_AA)


def draw_numbers(
    out: Picture, tracks: Sequence[Track], said: Sequence[str | None], expected: Expected
) -> None:
    """Draw the agreed numbers large at the bottom; green once they are announced."""
    import cv2

    height, width = out.shape[:2]
    texts = [
        (expected.shown(track.text), SURE if track.text == before else UNSURE)
        for track, before in zip(tracks, said, strict=True)
        if track.text.strip(REJECTED) and expected.allows(track.text)
    ]
    bottom = height - 10
    for text, colour in reversed(texts):
        (wide, tall), _ = cv2.getTextSize(text, _font(), 1.0, 2)
        scale = min(_LARGEST * height / tall, _WIDEST * width / wide)
        if len(texts) > 2:
            scale /= len(texts) / 2
        wide, tall = round(wide * scale), round(tall * scale)
        left = (width - wide) // 2
        shade(out, (left - 12, bottom - tall - 16, wide + 24, tall + 24))
        cv2.putText(
            out, text, (left, bottom - 4), _font(), scale, colour, max(2, tall // 12), cv2.LINE_AA
        )
        bottom -= tall + 32


def draw_text(out: Picture, lines: Sequence[str], *, recording: bool = False) -> None:
    """Draw lines of small text at the top."""
    import cv2

    widths = [cv2.getTextSize(line, _font(), 0.5, 1)[0][0] for line in lines]
    shade(out, (0, 0, max(widths) + (36 if recording else 16), 20 * len(lines) + 8))
    for number, line in enumerate(lines):
        place = (8, 20 * number + 18)
        cv2.putText(out, line, place, _font(), 0.5, _INK, 1, cv2.LINE_AA)
    if recording:
        cv2.circle(out, (max(widths) + 22, 14), 6, (0, 0, 220), -1, cv2.LINE_AA)


def figures(measures: Measures) -> str:
    """Say rate, age and dropped frames in a line."""
    return (
        f"{measures.fps:.1f} fps  age {measures.age_ms:.0f} ms  "
        f"dropped {measures.dropped} of {measures.frames + measures.dropped}"
    )


def stages(measures: Measures) -> str:
    """Say in a line what the stages take."""
    return "  ".join(f"{name} {measures.ms[name]:.1f}" for name in STAGES if name in measures.ms)


def rectangle(out: Picture, box: Box, colour: Colour) -> None:
    """Draw a box around a place."""
    import cv2

    x, y, width, height = box
    cv2.rectangle(out, (x - 2, y - 2), (x + width + 2, y + height + 2), colour, 2)


def shade(out: Picture, box: Box) -> None:
    """Darken a place so that text on it can be read."""
    x, y, width, height = box
    part = out[max(y, 0) : y + height, max(x, 0) : x + width]
    part[:] = (part * (1 - _SHADE) + np.array(_BACK) * _SHADE).astype(np.uint8)


def _font() -> int:
    import cv2

    return int(cv2.FONT_HERSHEY_SIMPLEX)
