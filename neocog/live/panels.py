"""What stands beside the picture: the layers' responses, what the finder sees, the keys."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from neocog.batch.records import Box
from neocog.live.draw import SURE, UNSURE, Colour, Picture, draw_text, rectangle
from neocog.live.frame_reader import FrameReading
from neocog.vision.finder import normalised

_GAP = 2  # pixels between two maps
_LABEL = 18  # rows for a layer's name
_TILE = {"U0": 65, "UG": 65, "US1": 44, "UC1": 44, "US2": 32, "UC2": 32, "US3": 22, "UC3": 22}
_LAST_TILE = 14  # of US4
_ROWS = 2  # of maps of one layer; of more planes the strongest are shown
_WIDTH = 640
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

    Returns
    -------
    ndarray of uint8, shape (height, width, 3)
    """
    bands = []
    for name, response in maps.items():
        band = _bars(response[0, :, 0, 0]) if name == "UC4" else _band(name, response[0])
        bands.append(_labelled(name, response.shape[1], band))
    return _fitted(np.concatenate(bands), height)


def candidates(seen: FrameReading, *, height: int) -> Picture:
    """Draw what the finder sees: the picture as its network gets it, digits, signs and scores."""
    import cv2

    grey = np.clip(128 + _CONTRAST * normalised(seen.found.grey), 0, 255).astype(np.uint8)
    out = np.asarray(cv2.cvtColor(grey, cv2.COLOR_GRAY2BGR), np.uint8)
    for line in seen.page.lines:
        for digit in line.digits:
            _marked(out, digit.box, f"{100 * digit.score:.0f}", SURE)
        for sign in line.signs:
            _marked(out, sign.box, sign.char, UNSURE)
    draw_text(out, [f"{seen.page.left_out} more places are not sure enough"])
    return _fitted(out, height)


def _marked(out: Picture, box: Box, text: str, colour: Colour) -> None:
    import cv2

    rectangle(out, box, colour)
    place = (box[0], max(box[1] - 5, 10))
    cv2.putText(out, text, place, cv2.FONT_HERSHEY_SIMPLEX, 0.4, colour, 1, cv2.LINE_AA)


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
    chosen = np.arange(len(response))
    if len(response) > _ROWS * across:
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
    import cv2

    tall, step = 56, _WIDTH // max(len(response), 1)
    band = np.zeros((tall + 18, _WIDTH, 3), np.uint8)
    top = max(float(response.max()), 1e-9)
    for digit, value in enumerate(response):
        high = round(tall * float(value) / top)
        colour = (60, 170, 0) if value == response.max() > 0 else (150, 150, 150)
        band[tall - high : tall, digit * step + 8 : (digit + 1) * step - 8] = colour
        name = str(digit) if digit < 10 else "-"
        place = (digit * step + step // 2 - 5, tall + 14)
        cv2.putText(
            band, name, place, cv2.FONT_HERSHEY_SIMPLEX, 0.45, (255, 255, 255), 1, cv2.LINE_AA
        )
    return band


def _labelled(name: str, planes: int, band: Picture) -> Picture:
    import cv2

    label = np.zeros((_LABEL, _WIDTH, 3), np.uint8)
    text = f"{name}  {planes} planes"
    cv2.putText(
        label, text, (4, 13), cv2.FONT_HERSHEY_SIMPLEX, 0.42, (255, 255, 255), 1, cv2.LINE_AA
    )
    return np.concatenate([label, band])


def _fitted(picture: Picture, height: int) -> Picture:
    import cv2

    width = max(1, round(picture.shape[1] * height / len(picture)))
    return np.asarray(cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA), np.uint8)
