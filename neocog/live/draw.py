"""A view drawn: boxes, digits, the agreed numbers, figures; beside it layers and what the finder sees."""

from collections.abc import Mapping, Sequence
from itertools import chain

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.live.frame_reader import FrameReading
from neocog.live.pipeline import Settings, View
from neocog.network.lines import ALPHABET
from neocog.reading.numbers import bare
from neocog.reading.records import REJECTED, Box
from neocog.vision.finder import SIGNS, normalised
from neocog.vision.overlay import SURE_P
from neocog.vision.strips import LEAST, SCORE

Picture = NDArray[np.uint8]
Colour = tuple[int, int, int]
"""Blue, green, red."""

SURE, UNSURE, REFUSED, WHITE = (60, 170, 0), (0, 140, 235), (40, 30, 200), (255, 255, 255)
_STAGES = ("capture", "find", "recognise", "vote", "draw")
_BACK = (32, 32, 32)  # behind a text
_SHADE = 0.65  # how far it covers the picture
_LARGEST = 0.11  # height of an agreed number, as a share of the frame's
_WIDEST = 0.92  # and its width
_SHARES = (1.0, 0.7, 0.5)  # of that size, tried in turn
_FIGURES = 44  # rows of the figures at the top
_FONT = cv2.FONT_HERSHEY_SIMPLEX
_GAP = 2  # pixels between two maps
_LABEL = 18  # rows for a layer's name
_TILE = {"U0": 65, "UG": 65, "US1": 44, "UC1": 44, "US2": 32, "UC2": 32, "US3": 22, "UC3": 22}
_LAST_TILE = 14  # of US4
_ROWS = 2  # of maps of one layer; of more planes the strongest are shown
_WIDTH = 640
_BAR = 56  # rows of the longest bar of UC4
_CONTRAST = 48.0  # grey levels for one standard deviation of a window


def draw(view: View, settings: Settings | None = None, *, recording: bool = False, note: str = "") -> Picture:
    """Return a new picture (H, W, 3), blue, green, red: a frame and what is known about it.

    Only numbers that the pattern allows are drawn large, green once they are announced; ``recording`` adds a
    dot, ``note`` a line.
    """
    out = view.frame.pixels.copy()
    high, wide = out.shape[:2]
    if view.seen.bounds != (0, 0, wide, high):
        _rectangle(out, view.seen.bounds, (200, 200, 200))
    for digit in chain(*view.seen.rows):  # as this frame alone shows it
        colour = REFUSED if digit.char == REJECTED else SURE if digit.p >= SURE_P else UNSURE
        _rectangle(out, digit.box, colour)
        x, y, _, height = digit.box
        scale = min(max(height / 60, 0.5), 1.5)
        _write(out, digit.char, (x, max(y - round(8 * scale), round(18 * scale))), scale, colour, 2)
        if digit.char != REJECTED:
            _write(out, f"{100 * digit.p:.0f}", (x, min(y + height + 14, high - 4)), 0.4, colour)
    numbers = [
        (track.text, SURE if track.bare == bare(said or "") else UNSURE)
        for track, said in zip(view.tracks, view.said, strict=True)
        if (settings or Settings()).allows(track.text)
    ]
    sizes = [tuple(cv2.getTextSize(text, _FONT, 1.0, 2)[0]) for text, _ in numbers]
    places = _places(sizes, (wide, high), [digit.box for digit in chain(*view.seen.rows)])
    for (text, colour), (_, h), (left, top, width, height) in zip(numbers, sizes, places, strict=True):
        _shade(out, (left - 12, top - 12, width + 24, height + 24))
        _write(out, text, (left, top + height), height / h, colour, max(2, height // 12))
    run = view.measures
    dropped = f"dropped {run.dropped} of {run.frames + run.dropped}"
    figures = f"{run.fps:.1f} fps  age {run.age_ms:.0f} ms  {dropped}"
    stages = "  ".join(f"{name} {run.ms[name]:.1f}" for name in _STAGES if name in run.ms)
    draw_text(out, [figures, stages, *([note] if note else [])], recording=recording)
    return out


def _places(sizes: Sequence[tuple[int, ...]], frame: tuple[int, int], writing: Sequence[Box]) -> list[Box]:
    """A column of numbers, (w, h) at scale 1, at the bottom or top, smaller if that covers less writing."""
    (wide, high), found = frame, list[tuple[int, list[Box]]]()
    for share in _SHARES:
        column, bottom = list[Box](), 0
        for w, h in sizes:
            scale = share * min(_LARGEST * high / h, _WIDEST * wide / w, 2 * _LARGEST * high / h / len(sizes))
            width, height = round(w * scale), round(h * scale)
            column.append(((wide - width) // 2, bottom + 16, width, height))
            bottom += height + 32
        for down in (high - bottom + 2, _FIGURES):
            places = [(x, y + down, w, h) for x, y, w, h in column]
            covered = sum(
                left < x + w + 12 and x - 12 < left + width and top < y + h + 12 and y - 12 < top + height
                for left, top, width, height in writing for x, y, w, h in places
            )  # fmt: skip
            found.append((covered, places))
    return min(found, key=lambda one: one[0])[1]


def draw_text(out: Picture, lines: Sequence[str], *, recording: bool = False) -> None:
    """Draw lines of small text at the top."""
    width = max(cv2.getTextSize(line, _FONT, 0.5, 1)[0][0] for line in lines)
    _shade(out, (0, 0, width + (36 if recording else 16), 20 * len(lines) + 8))
    for number, line in enumerate(lines):
        _write(out, line, (8, 20 * number + 18), 0.5, WHITE)
    if recording:
        cv2.circle(out, (width + 22, 14), 6, (0, 0, 220), -1, cv2.LINE_AA)


def _write(out: Picture, text: str, at: tuple[int, int], scale: float, colour: Colour, pen: int = 1) -> None:
    cv2.putText(out, text, at, _FONT, scale, colour, pen, cv2.LINE_AA)


def _rectangle(out: Picture, box: Box, colour: Colour) -> None:
    x, y, width, height = box
    cv2.rectangle(out, (x - 2, y - 2), (x + width + 2, y + height + 2), colour, 2)


def _shade(out: Picture, box: Box) -> None:
    """Darken a place so that text on it can be read."""
    x, y, width, height = box
    part = out[max(y, 0) : y + height, max(x, 0) : x + width]
    part[:] = (part * (1 - _SHADE) + np.array(_BACK) * _SHADE).astype(np.uint8)


def layers(maps: Mapping[str, NDArray[np.float32]], *, height: int) -> Picture:
    """Draw every layer's response to one character, by name (K, H, W), at last (K,): maps, and bars.

    Each layer is as bright as its strongest response.
    """
    bands = []
    for name, response in maps.items():
        label, top = np.zeros((_LABEL, _WIDTH, 3), np.uint8), max(float(response.max()), 1e-9)
        _write(label, f"{name}  {len(response)} planes", (4, 13), 0.42, WHITE)
        if response.ndim == 1:
            step = _WIDTH // max(len(response), 1)
            bars = np.zeros((_BAR + 18, _WIDTH, 3), np.uint8)
            for k, value in enumerate(response):
                colour = SURE if value == response.max() > 0 else (150, 150, 150)
                bars[_BAR - round(_BAR * float(value) / top) : _BAR, k * step + 5 : (k + 1) * step - 5] = (
                    colour
                )
                char = ALPHABET[k] if k < 10 or len(response) == len(ALPHABET) else "-"
                _write(bars, char, (k * step + step // 2 - 5, _BAR + 14), 0.45, WHITE)
            bands += [label, bars]
            continue
        side = _TILE.get(name, _LAST_TILE)
        across = max(1, (_WIDTH - _GAP) // (side + _GAP))
        strongest = np.argsort(-response.max(axis=(1, 2)), kind="stable")[: _ROWS * across]
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
    grey = np.clip(128 + _CONTRAST * normalised(seen.grey), 0, 255).astype(np.uint8)
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
