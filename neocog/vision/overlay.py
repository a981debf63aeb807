"""The page with what was read drawn over it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

SURE_P = 0.9
"""From this probability on a digit is drawn as sure."""

_SURE, _UNSURE, _REJECTED = (0, 140, 60), (215, 120, 0), (200, 30, 30)


def draw_overlay(
    picture: NDArray[Any], digits: Sequence[Any], *, scales: tuple[float, float] = (1.0, 1.0)
) -> "Image":
    """Draw the box and the reading of every digit over a picture (H, W) or (H, W, 3); return it in RGB.

    Digits have ``char``, ``p`` and ``box`` (left, top, width, height, or None); ``scales`` are pixels of the
    picture per pixel of a box, across and down. Green is sure (p at least `SURE_P`), orange unsure, red
    (``?``) rejected.
    """
    from PIL import Image, ImageDraw, ImageFont

    image = Image.fromarray(picture).convert("RGB")
    draw = ImageDraw.Draw(image)
    pen = max(1, max(image.size) // 500)
    for digit in digits:
        if digit.box is None:
            continue
        x, y, w, h = (value * scale for value, scale in zip(digit.box, 2 * scales, strict=True))
        colour = _REJECTED if digit.char == "?" else _SURE if digit.p >= SURE_P else _UNSURE
        draw.rectangle((x - pen, y - pen, x + w + pen, y + h + pen), outline=colour, width=pen)
        size = min(max(0.45 * h, 14.0), max(image.size) / 12)
        font = ImageFont.load_default(size)
        draw.text((x, max(y - 1.25 * size, 0.0)), digit.char, fill=colour, font=font)
    return image
