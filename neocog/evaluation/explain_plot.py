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
_Panel = tuple[Image.Image, ImageDraw.ImageDraw]


def overview(found: Explanation) -> Image.Image:
    """Draw the ink with the scores, a panel for each layer, and what the runner-up lacked."""
    panels = [_scores(found)]
    for layer, pieces in found.pieces.items():
        title, what = f"{layer}: what carried {name(found.label)}", "score lost without a place"
        if layer == "US4":
            panels.append(_panel(found, layer, title, f"{what} of UC3", pieces, (), _FOR))
        else:
            panels.append(_panel(found, layer, title, f"{what}; left without 1 .. n", pieces, pieces, _FOR))
    title, what = f"UC3: what {name(found.runner_up)} lacked", "lead lost with a place; left with 1 .. n"
    panels.append(_panel(found, "needed", title, what, found.needed, found.needed, _LACKING))
    high = max(panel.height for panel in panels)
    out = Image.new("RGB", (len(panels) * (_SIDE + _GAP) + _GAP, high + 2 * _GAP), "white")
    for number, panel in enumerate(panels):
        out.paste(panel, (_GAP + number * (_SIDE + _GAP), _GAP))
    return out


def all_maps(maps: Mapping[str, NDArray[np.float32]]) -> Image.Image:
    """Draw every plane of every layer, square roots of shares of its strongest response."""
    bands = [_band(layer, own[0]) for layer, own in maps.items() if layer != "UC4"]
    return Image.fromarray(np.concatenate([np.asarray(band) for band in bands]))


def _panel(
    found: Explanation, layer: str, title: str, what: str, pieces: Sequence[Piece],
    marked: Sequence[Piece], colour: tuple[int, int, int],
) -> Image.Image:  # fmt: skip
    heat = found.heat[layer][MARGIN : MARGIN + ENLARGED, MARGIN : MARGIN + ENLARGED]
    strength = _resized(heat / max(float(heat.max()), 1e-9))[..., None]
    shade = 1 - strength * (1 - np.array(colour) / 255)  # ink shows through
    out, draw = _empty(found, title, what, len(pieces), shade)
    for number, piece in reversed(list(enumerate(marked, start=1))):
        x, y = (_SIDE * (at + 0.5) / DIGIT_SIZE for at in piece.ink)
        y += _HEAD
        draw.ellipse((x - 9, y - 9, x + 9, y + 9), fill=colour, outline="white")
        draw.text((x, y), str(number), fill="white", font=ImageFont.load_default(12), anchor="mm")
    for number, piece in enumerate(pieces, start=1):
        words = f"{number}  plane {piece.plane}: {100 * max(piece.left, 0):.0f} % left"
        words += f", then {name(piece.answer)}" if piece.answer != found.label else ""
        at = (2, _HEAD + _SIDE + number * _LINE - 12)
        draw.text(at, words, fill="black", font=ImageFont.load_default(13))
    return out


def _scores(found: Explanation) -> Image.Image:
    """The ink, and a bar for each label's score."""
    what = f"next {name(found.runner_up)}; below, the scores of UC4"
    out, draw = _empty(found, f"read as {name(found.label)}, p {found.p:.3f}", what, len(found.scores), 1)
    font, most = ImageFont.load_default(13), max(float(found.scores.max()), 1e-9)
    for label, score in enumerate(found.scores):
        top = _HEAD + _SIDE + (label + 1) * _LINE - 12
        colour = {found.label: _FOR, found.runner_up: _LACKING}.get(label, (150, 150, 150))
        draw.text((2, top), name(label) if label < REJECT else "none", fill="black", font=font)
        draw.rectangle((40, top + 3, 40 + 190 * float(score) / most, top + 13), fill=colour)
        draw.text((240, top), f"{score:.3f}", fill="black", font=font)
    return out


def _empty(found: Explanation, title: str, what: str, lines: int, shade: NDArray[np.float64] | int) -> _Panel:
    """A panel with its titles and the digit, as dark ink, but not so dark that colours drown."""
    out = Image.new("RGB", (_SIDE, _HEAD + _SIDE + (lines + 1) * _LINE), "white")
    paper = (255 - 0.62 * _resized(found.digit.astype(np.float32)))[..., None]
    out.paste(Image.fromarray((shade * paper.repeat(3, axis=2)).astype(np.uint8)), (0, _HEAD))
    draw = ImageDraw.Draw(out)
    draw.text((2, 0), title, fill="black", font=ImageFont.load_default(17))
    draw.text((2, 22), what, fill=(90, 90, 90), font=ImageFont.load_default(13))
    return out, draw


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
    draw.text((2, 14), words, fill="white", font=ImageFont.load_default(17))
    for plane, values in enumerate(response):
        grey = (255 * np.sqrt(values / strongest)).astype(np.uint8)
        large = cv2.resize(grey, (tile, tile), interpolation=cv2.INTER_NEAREST)
        colours = np.asarray(cv2.applyColorMap(large, cv2.COLORMAP_INFERNO))[..., ::-1]
        left, top = plane % across * (tile + 2), _HEAD + plane // across * (tile + 2)
        band.paste(Image.fromarray(np.ascontiguousarray(colours)), (left, top))
        draw.text((left + 3, top + 1), str(plane), fill=(170, 170, 170), font=ImageFont.load_default(11))
        draw.rectangle((left, top, left + tile - 1, top + tile - 1), outline=(60, 60, 60))
    return band
