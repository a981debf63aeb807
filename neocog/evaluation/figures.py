"""Figures of a report: curves as SVG, small pictures as PNG, both ready to stand in a page."""

import base64
import io
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

#: Colours that stay apart for most colour-blind readers (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#444444")
_WIDTH, _HEIGHT = 460, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 24, 14, 44
_CAPTION = 14  # pixels below a small picture for what is written there


class Line(NamedTuple):
    """A line of a chart."""

    name: str  # for the key; nothing if empty
    points: Sequence[tuple[float, float]]  # (x, y), in order
    dots: bool = False  # whether each point is marked


class Axis(NamedTuple):
    """One axis: what it shows, from where to where, and its ticks with their names."""

    title: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]


def chart(lines: Sequence[Line], x: Axis, y: Axis, *, title: str) -> str:
    """Return a chart as an SVG element; values beyond the axes lie on the border."""
    left, right, top, bottom = _LEFT, _WIDTH - _RIGHT, _TOP, _HEIGHT - _BOTTOM

    def across(value: float) -> float:
        return float(np.interp(value, (x.low, x.high), (left, right)))

    def down(value: float) -> float:
        return float(np.interp(value, (y.low, y.high), (bottom, top)))

    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">']
    for value, name in x.ticks:
        at = across(value)
        parts.append(f'<path class="grid" d="M{at:.1f} {bottom:.1f}V{top:.1f}"/>')
        parts.append(f'<text x="{at:.1f}" y="{bottom + 14:.1f}" class="x">{escape(name)}</text>')
    for value, name in y.ticks:
        at = down(value)
        parts.append(f'<path class="grid" d="M{left:.1f} {at:.1f}H{right:.1f}"/>')
        parts.append(f'<text x="{left - 5:.1f}" y="{at + 4:.1f}" class="y">{escape(name)}</text>')
    middle, up = (left + right) / 2, (top + bottom) / 2
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 8}" class="x">{escape(x.title)}</text>')
    turned = f"translate(13 {up}) rotate(-90)"
    parts.append(f'<text transform="{turned}" class="x">{escape(y.title)}</text>')
    named = ""
    for number, line in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        places = [(across(px), down(py)) for px, py in line.points]
        drawn = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
        parts.append(f'<polyline points="{drawn}" stroke="{colour}" class="line"/>')
        if line.dots or len(places) == 1:
            parts += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colour}"/>'
                      for px, py in places]  # fmt: skip
        if line.name:
            named += f' <span><i style="background:{colour}"></i>{escape(line.name)}</span>'
    return "".join([*parts, "</svg>", f'<p class="key">{named[1:]}</p>' if named else ""])


def digit_sheet(images: NDArray[np.uint8], captions: Sequence[str], *, columns: int = 10) -> Image.Image:
    """Return digits (N, 28, 28), dark on white, twice as large, what is written below each."""
    side = 2 * images.shape[1]
    wide, high = side + 8, side + _CAPTION + 4
    sheet = Image.new("L", (columns * wide, -(-len(images) // columns) * high), 255)
    draw = ImageDraw.Draw(sheet)
    for number, (image, caption) in enumerate(zip(images, captions, strict=True)):
        left, top = number % columns * wide + 4, number // columns * high
        sheet.paste(Image.fromarray(255 - image).resize((side, side), Image.Resampling.NEAREST),
                    (left, top))  # fmt: skip
        draw.text((left + side / 2, top + side + 1), caption, fill=0, anchor="ma")
    return sheet


def embedded(picture: Image.Image) -> str:
    """Return a picture as an address that holds it (PNG, base64)."""
    stream = io.BytesIO()
    picture.save(stream, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()
