"""What stands beside the picture: the layers' responses, what the finder sees, the keys."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from neocog.live.draw import SURE, UNSURE, WHITE, Picture, draw_text, rectangle, write
from neocog.live.frame_reader import FrameReading
from neocog.network.spec import LABELS
from neocog.vision.finder import normalised

_GAP = 2  # pixels between two maps
_LABEL = 18  # rows for a layer's name
_TILE = {"U0": 65, "UG": 65, "US1": 44, "UC1": 44, "US2": 32, "UC2": 32, "US3": 22, "UC3": 22}
_LAST_TILE = 14  # of US4
_ROWS = 2  # of maps of one layer; of more planes the strongest are shown
_WIDTH = 640
_BAR = 56  # rows of the longest bar of UC4
_CONTRAST = 48.0  # grey levels for one standard deviation of a window

KEYS = (
    ("q, Esc", "end"),
    ("space", "freeze the picture"),
    ("s", "save picture and reading"),
    ("r", "record, end recording"),
    ("b", "what the finder sees"),
    ("l", "the layers' responses"),
    ("mouse", "drag: read that region; click: all"),
    ("h", "these keys"),
)


def layers(maps: Mapping[str, NDArray[np.float32]], *, height: int) -> Picture:
    """Draw every layer's response to one digit.

    Parameters
    ----------
    maps : mapping
        ``"U0", "UG", "US1" .. "UC4"`` -> (1, K, H, W). Each layer is as bright as its strongest
        response; UC4 has a bar for each digit.
    height : int
        Rows of the picture that is wanted.
    """
    bands = []
    for name, response in maps.items():
        label = np.zeros((_LABEL, _WIDTH, 3), np.uint8)
        write(label, f"{name}  {response.shape[1]} planes", (4, 13), 0.42, WHITE)
        bands += [label, _bars(response[0, :, 0, 0]) if name == "UC4" else _band(name, response[0])]
    return _fitted(np.concatenate(bands), height)


def candidates(seen: FrameReading, *, height: int) -> Picture:
    """Draw what the finder sees: the picture as its network gets it, digits, signs and scores."""
    import cv2

    grey = np.clip(128 + _CONTRAST * normalised(seen.found.grey), 0, 255).astype(np.uint8)
    out = np.asarray(cv2.cvtColor(grey, cv2.COLOR_GRAY2BGR), np.uint8)
    for line in seen.page.lines:
        marks = [(digit.box, f"{100 * digit.score:.0f}", SURE) for digit in line.digits]
        for box, text, colour in [*marks, *((sign.box, sign.char, UNSURE) for sign in line.signs)]:
            rectangle(out, box, colour)
            write(out, text, (box[0], max(box[1] - 5, 10)), 0.4, colour)
    draw_text(out, [f"{seen.page.left_out} more places are not sure enough"])
    return _fitted(out, height)


def help_lines() -> list[str]:
    """What the keys do, for people."""
    return [f"{key:8s} {does}" for key, does in KEYS]


def beside(picture: Picture, panel: Picture) -> Picture:
    """Set a panel of the same height to the right of a picture."""
    return np.concatenate([picture, panel], axis=1)


def _band(name: str, response: NDArray[np.float32]) -> Picture:
    """Draw the maps (K, H, W) of a layer in at most two rows."""
    import cv2

    side = _TILE.get(name, _LAST_TILE)
    across = max(1, (_WIDTH - _GAP) // (side + _GAP))
    strongest = np.argsort(-response.max(axis=(1, 2)), kind="stable")
    chosen = np.sort(strongest[: _ROWS * across])
    rows = -(-len(chosen) // across)
    band = np.zeros((rows * (side + _GAP), _WIDTH), np.uint8)
    top = max(float(response.max()), 1e-9)
    for number, plane in enumerate(chosen):
        tile = cv2.resize(response[plane], (side, side), interpolation=cv2.INTER_AREA)
        y, x = number // across * (side + _GAP), _GAP + number % across * (side + _GAP)
        band[y : y + side, x : x + side] = np.maximum(255 * np.clip(tile / top, 0, 1), 24)
    coloured = np.asarray(cv2.applyColorMap(band, cv2.COLORMAP_INFERNO), np.uint8)
    coloured[band == 0] = 0
    return coloured


def _bars(response: NDArray[np.float32]) -> Picture:
    """Draw a bar for each digit's response."""
    step = _WIDTH // max(len(response), 1)
    band = np.zeros((_BAR + 18, _WIDTH, 3), np.uint8)
    top = max(float(response.max()), 1e-9)
    for label, value in enumerate(response):
        high = round(_BAR * float(value) / top)
        colour = SURE if value == response.max() > 0 else (150, 150, 150)
        band[_BAR - high : _BAR, label * step + 8 : (label + 1) * step - 8] = colour
        name = str(label) if label < LABELS else "-"
        write(band, name, (label * step + step // 2 - 5, _BAR + 14), 0.45, WHITE)
    return band


def _fitted(picture: Picture, height: int) -> Picture:
    import cv2

    width = max(1, round(picture.shape[1] * height / len(picture)))
    return np.asarray(cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA), np.uint8)
