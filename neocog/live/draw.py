"""A view drawn: boxes, digits, the agreed numbers, figures; beside it layers and what the finder sees."""

from collections.abc import Mapping, Sequence
from itertools import chain

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.live.frame_reader import FrameReading
from neocog.live.pipeline import Settings, View
from neocog.live.tracks import core
from neocog.network.lines import ALPHABET
from neocog.reading.records import REJECTED, Box
from neocog.vision.finder import SIGNS, normalised
from neocog.vision.overlay import SURE_P
from neocog.vision.strips import LEAST, SCORE

Picture = NDArray[np.uint8]
Colour = tuple[int, int, int]
"""Blue, green, red."""

SURE, UNSURE, REFUSED, WHITE = (60, 170, 0), (0, 140, 235), (40, 30, 200), (255, 255, 255)
_STAGES = ("capture", "find", "recognise", "vote", "draw")
_LINE = 22  # rows of a line of small text
_BACK, _SHADE = 32, 0.65  # grey behind a text, and how far it covers the picture
_FONT = cv2.FONT_HERSHEY_SIMPLEX
_GAP = 2  # pixels between two maps
_TILE = {"U0": 65, "UG": 65, "US1": 44, "UC1": 44, "US2": 32, "UC2": 32, "US3": 22, "UC3": 22, "US4": 14}
_WIDTH = 640
_BAR = 56  # rows of the longest bar of UC4


def header(height: int) -> int:
    """Rows above a frame of so many rows, for what is known about it: nothing covers the writing."""
    return _LINE + max(32, height // 18 * 2)


def draw(view: View, settings: Settings | None = None, *, recording: bool = False, note: str = "") -> Picture:
    """Return a picture (H, W, 3), blue, green, red: a `header` with numbers and figures, the frame below it.

    Only numbers that the pattern allows are drawn large, green once they are announced; ``recording`` adds a
    dot, ``note`` takes the figures' place.
    """
    wide, high = view.frame.size
    top, settings, run = header(high), settings or Settings(), view.measures
    out = np.full((top + high, wide, 3), _BACK, np.uint8)
    frame = out[top:]
    frame[:] = view.frame.pixels
    if view.seen.bounds != (0, 0, wide, high):
        _rectangle(frame, view.seen.bounds, (200, 200, 200))
    for digit in chain(*view.seen.rows):  # as this frame alone shows it
        colour = REFUSED if digit.char == REJECTED else SURE if digit.p >= SURE_P else UNSURE
        _rectangle(frame, digit.box, colour)
        x, y, _, height = digit.box
        scale = min(max(height / 60, 0.5), 1.5)
        _write(frame, digit.char, (x, max(y - round(8 * scale), round(18 * scale))), scale, colour, 2)
        if digit.char != REJECTED:
            _write(frame, f"{100 * digit.p:.0f}", (x, min(y + height + 14, high - 4)), 0.4, colour)
    dropped = f"dropped {run.dropped} of {run.frames + run.dropped}"
    stages = [f"{name} {run.ms[name]:.1f}" for name in _STAGES if name in run.ms]
    figures = note or "  ".join([f"{run.fps:.1f} fps", f"age {run.age_ms:.0f} ms", dropped, *stages])
    width = cv2.getTextSize(figures, _FONT, 0.5, 1)[0][0]
    _write(out, figures, (8, _LINE - 6), 0.5 * min(1.0, (wide - 32) / width), WHITE)
    if recording:
        cv2.circle(out, (wide - 12, 11), 6, (0, 0, 220), -1, cv2.LINE_AA)
    lines = [(one.text, said) for one, said in zip(view.tracks, view.said, strict=True)]
    numbers = [(text, core(text) == core(said or "")) for text, said in lines if settings.allows(text)]
    (width, height), _ = cv2.getTextSize("  ".join(text for text, _ in numbers) or "0", _FONT, 1.0, 2)
    scale, x = min(0.7 * (top - _LINE) / height, (wide - 16) / width), 8
    for text, known in numbers:
        pen = max(1, round(2 * scale))
        _write(out, text, (x, top - round(0.2 * (top - _LINE))), scale, SURE if known else UNSURE, pen)
        x += cv2.getTextSize(f"{text}  ", _FONT, scale, pen)[0][0]
    return out


def draw_text(out: Picture, lines: Sequence[str]) -> None:
    """Draw lines of small text at the top, what stands after a tab in a second column."""
    width = max(cv2.getTextSize(line.replace("\t", 10 * " "), _FONT, 0.5, 1)[0][0] for line in lines)
    part = out[: _LINE * len(lines) + 6, : width + 16]
    part[:] = (part * (1 - _SHADE) + _BACK * _SHADE).astype(np.uint8)  # so that text on it can be read
    for number, line in enumerate(lines, 1):
        for column, text in enumerate(line.split("\t")):
            _write(out, text, (8 + 70 * column, _LINE * number - 4), 0.5, WHITE)


def _write(out: Picture, text: str, at: tuple[int, int], scale: float, colour: Colour, pen: int = 1) -> None:
    cv2.putText(out, text, at, _FONT, scale, colour, pen, cv2.LINE_AA)


def _rectangle(out: Picture, box: Box, colour: Colour) -> None:
    x, y, width, height = box
    cv2.rectangle(out, (x - 2, y - 2), (x + width + 2, y + height + 2), colour, 2)


def layers(maps: Mapping[str, NDArray[np.float32]], *, height: int) -> Picture:
    """Draw every layer's response to one character, by name (K, H, W), at last (K,): maps, and bars.

    Each layer is as bright as its strongest response.
    """
    bands = []
    for name, response in maps.items():
        label, top = np.zeros((18, _WIDTH, 3), np.uint8), max(float(response.max()), 1e-9)
        _write(label, f"{name}  {len(response)} planes", (4, 13), 0.42, WHITE)
        if response.ndim == 1:
            step = _WIDTH // max(len(response), 1)
            bars = np.zeros((_BAR + 18, _WIDTH, 3), np.uint8)
            for k, value in enumerate(response):
                bar = bars[_BAR - round(_BAR * float(value) / top) : _BAR, k * step + 5 : (k + 1) * step - 5]
                bar[:] = SURE if value == response.max() > 0 else (150, 150, 150)
                char = ALPHABET[k] if k < 10 or len(response) == len(ALPHABET) else "-"
                _write(bars, char, (k * step + step // 2 - 5, _BAR + 14), 0.45, WHITE)
            bands += [label, bars]
            continue
        side = _TILE.get(name, _TILE["US4"])
        across = max(1, (_WIDTH - _GAP) // (side + _GAP))
        strongest = np.argsort(-response.max(axis=(1, 2)), kind="stable")[: 2 * across]  # in two rows
        band = np.zeros((-(-len(strongest) // across) * (side + _GAP), _WIDTH), np.uint8)
        for k, plane in enumerate(np.sort(strongest)):
            tile = cv2.resize(response[plane], (side, side), interpolation=cv2.INTER_AREA)
            y, x = k // across * (side + _GAP), _GAP + k % across * (side + _GAP)
            band[y : y + side, x : x + side] = np.maximum(255 * np.clip(tile / top, 0, 1), 24)
        coloured = np.asarray(cv2.applyColorMap(band, cv2.COLORMAP_INFERNO), np.uint8)
        coloured[band == 0] = 0
        bands += [label, coloured]
    return _fitted(np.concatenate(bands), height)


def candidates(seen: FrameReading, *, height: int) -> Picture:
    """Draw what the finder sees: the picture as its network gets it, digits, signs and scores."""
    grey = np.clip(128 + 48 * normalised(seen.grey), 0, 255).astype(np.uint8)  # 48 for a standard deviation
    out = np.asarray(cv2.cvtColor(grey, cv2.COLOR_GRAY2BGR), np.uint8)
    marks = seen.found[seen.found.scores >= LEAST]
    for box, score, kind in zip(marks.boxes.tolist(), marks.scores, marks.kinds, strict=True):
        x, y, w, h = map(round, box)
        colour = SURE if kind < 10 and score >= SCORE else UNSURE
        _rectangle(out, (x, y, w, h), colour)
        text = f"{100 * score:.0f}" if kind < 10 else SIGNS[kind - 10]
        _write(out, text, (x, max(y - 5, 10)), 0.4, colour)
    draw_text(out, [f"{seen.left_out} more places are not sure enough"])
    return _fitted(out, height)


def _fitted(picture: Picture, height: int) -> Picture:
    width = max(1, round(picture.shape[1] * height / len(picture)))
    return np.asarray(cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA), np.uint8)
