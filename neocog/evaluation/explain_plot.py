"""Pictures of an explanation: pieces over the ink, and every plane of every layer."""

from collections.abc import Mapping, Sequence
from math import ceil, sqrt

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from neocog.evaluation.explain import Explanation, Piece, name
from neocog.network.spec import REJECT
from neocog.network.u0 import DIGIT_SIZE, ENLARGED, MARGIN

_SIDE = 300  # pixels of a panel
_GAP = 14
_HEAD, _LINE = 44, 18  # rows above a panel, and of a line below
_FOR, _LACKING = (213, 94, 0), (0, 114, 178)  # apart for most colour-blind readers (Okabe and Ito)
_WIDTH = 1120  # of the sheet of maps
_LARGEST = 136  # pixels of a map


def overview(found: Explanation) -> Image.Image:
    """Draw the ink with the scores, a panel for each layer, and what the runner-up lacked."""
    panels = [_scores(found)]
    for layer, pieces in found.pieces.items():
        what = "score lost without a place; left without 1 .. n"
        what = "score lost without a place of UC3" if layer == "US4" else what
        marks = () if layer == "US4" else pieces
        panels.append(_panel(found, layer, f"{layer}: what carried {name(found.label)}", what,
                             pieces, marks, _FOR))  # fmt: skip
    title = f"UC3: what {name(found.runner_up)} lacked"
    panels.append(_panel(found, "needed", title, "lead lost with a place; left with 1 .. n",
                         found.needed, found.needed, _LACKING))  # fmt: skip
    high = max(panel.height for panel in panels)
    out = Image.new("RGB", (len(panels) * (_SIDE + _GAP) + _GAP, high + 2 * _GAP), "white")
    for number, panel in enumerate(panels):
        out.paste(panel, (_GAP + number * (_SIDE + _GAP), _GAP))
    return out


def all_maps(maps: Mapping[str, NDArray[np.float32]]) -> Image.Image:
    """Draw every plane of every layer, square roots of shares of its strongest response."""
    bands = [_band(layer, own[0]) for layer, own in maps.items() if layer != "UC4"]
    out = Image.new("RGB", (_WIDTH, sum(band.height for band in bands)), "black")
    top = 0
    for band in bands:
        out.paste(band, (0, top))
        top += band.height
    return out


def _panel(
    found: Explanation, layer: str, title: str, what: str, pieces: Sequence[Piece],
    marked: Sequence[Piece], colour: tuple[int, int, int],
) -> Image.Image:  # fmt: skip
    heat = found.heat[layer][MARGIN : MARGIN + ENLARGED, MARGIN : MARGIN + ENLARGED]
    strength = _resized(heat / max(float(heat.max()), 1e-9))[..., None]
    shade = 1 - strength * (1 - np.array(colour) / 255)  # ink shows through
    out, draw = _empty(title, what, len(pieces))
    out.paste(Image.fromarray((shade * _paper(found)[..., None]).astype(np.uint8)), (0, _HEAD))
    for number, piece in reversed(list(enumerate(marked, start=1))):
        x, y = (_SIDE * (at + 0.5) / DIGIT_SIZE for at in piece.ink)
        y += _HEAD
        draw.ellipse((x - 9, y - 9, x + 9, y + 9), fill=colour, outline="white")
        draw.text((x, y), str(number), fill="white", font=_font(12), anchor="mm")
    for number, piece in enumerate(pieces, start=1):
        words = f"{number}  plane {piece.plane}: {100 * max(piece.left, 0):.0f} % left"
        words += f", then {name(piece.answer)}" if piece.answer != found.label else ""
        draw.text((2, _HEAD + _SIDE + number * _LINE - 12), words, fill="black", font=_font(13))
    return out


def _scores(found: Explanation) -> Image.Image:
    """The ink, and a bar for each label's score."""
    out, draw = _empty(f"read as {name(found.label)}, p {found.p:.3f}",
                       f"next {name(found.runner_up)}; below, the scores of UC4",
                       len(found.scores))  # fmt: skip
    out.paste(Image.fromarray(_paper(found).astype(np.uint8)), (0, _HEAD))
    most = max(float(found.scores.max()), 1e-9)
    for label, score in enumerate(found.scores):
        top = _HEAD + _SIDE + (label + 1) * _LINE - 12
        colour = {found.label: _FOR, found.runner_up: _LACKING}.get(label, (150, 150, 150))
        draw.text((2, top), name(label) if label < REJECT else "none", fill="black", font=_font(13))
        draw.rectangle((40, top + 3, 40 + 190 * float(score) / most, top + 13), fill=colour)
        draw.text((240, top), f"{score:.3f}", fill="black", font=_font(13))
    return out


def _empty(title: str, what: str, lines: int) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    out = Image.new("RGB", (_SIDE, _HEAD + _SIDE + (lines + 1) * _LINE), "white")
    draw = ImageDraw.Draw(out)
    draw.text((2, 0), title, fill="black", font=_font(17))
    draw.text((2, 22), what, fill=(90, 90, 90), font=_font(13))
    return out, draw


def _paper(found: Explanation) -> NDArray[np.float32]:
    """The digit as dark ink, not so dark that colours drown."""
    return 255 - 0.62 * _resized(found.digit.astype(np.float32))


def _resized(values: NDArray[np.float32]) -> NDArray[np.float32]:
    image = Image.fromarray(values.astype(np.float32))
    return np.asarray(image.resize((_SIDE, _SIDE), Image.Resampling.BILINEAR))


def _band(layer: str, response: NDArray[np.float32]) -> Image.Image:
    """The maps (K, H, W) of one layer."""
    import cv2

    planes, size = response.shape[:2]
    across = max(8, ceil(sqrt(2 * planes)))
    tile = min(_LARGEST, _WIDTH // across) - 2
    band = Image.new("RGB", (_WIDTH, _HEAD + ceil(planes / across) * (tile + 2)), "black")
    draw = ImageDraw.Draw(band)
    strongest = max(float(response.max()), 1e-9)
    words = f"{layer}   {planes} x {size} x {size}, strongest response {strongest:.3f}"
    draw.text((2, 14), words, fill="white", font=_font(17))
    for plane, values in enumerate(response):
        grey = (255 * np.sqrt(values / strongest)).astype(np.uint8)
        large = cv2.resize(grey, (tile, tile), interpolation=cv2.INTER_NEAREST)
        colours = np.asarray(cv2.applyColorMap(large, cv2.COLORMAP_INFERNO))[..., ::-1]
        left, top = plane % across * (tile + 2), _HEAD + plane // across * (tile + 2)
        band.paste(Image.fromarray(np.ascontiguousarray(colours)), (left, top))
        draw.text((left + 3, top + 1), str(plane), fill=(170, 170, 170), font=_font(11))
        draw.rectangle((left, top, left + tile - 1, top + tile - 1), outline=(60, 60, 60))
    return band


def _font(size: int) -> ImageFont.ImageFont | ImageFont.FreeTypeFont:
    return ImageFont.load_default(size)
