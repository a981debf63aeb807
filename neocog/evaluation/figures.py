"""Figures of a report: curves as SVG, small pictures as PNG, both ready to stand in a page."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

#: Colours that stay apart for most colour-blind readers (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#444444")
_WIDTH, _HEIGHT = 460, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 24, 14, 44
_CAPTION = 14  # pixels below a small picture for what is written there


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart."""

    name: str  # for the key; nothing if empty
    points: Sequence[tuple[float, float]]  # (x, y), in order
    dots: bool = False  # whether each point is marked


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: what it shows, from where to where, and its ticks with their names."""

    title: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]

    def share(self, value: float) -> float:
        """How far along the axis a value lies, cut off at its ends."""
        return (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)


def chart(lines: Sequence[Line], x: Axis, y: Axis, *, title: str) -> str:
    """Return a chart as an SVG element; values beyond the axes lie on the border."""

    def place(point: tuple[float, float]) -> tuple[float, float]:
        width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
        return _LEFT + x.share(point[0]) * width, _TOP + (1 - y.share(point[1])) * height

    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">']
    for value, name in x.ticks:
        (at, low), (_, high) = place((value, y.low)), place((value, y.high))
        parts.append(f'<path class="grid" d="M{at:.1f} {low:.1f}V{high:.1f}"/>')
        parts.append(f'<text x="{at:.1f}" y="{low + 14:.1f}" class="x">{escape(name)}</text>')
    for value, name in y.ticks:
        (left, at), (right, _) = place((x.low, value)), place((x.high, value))
        parts.append(f'<path class="grid" d="M{left:.1f} {at:.1f}H{right:.1f}"/>')
        parts.append(f'<text x="{left - 5:.1f}" y="{at + 4:.1f}" class="y">{escape(name)}</text>')
    middle = _LEFT + (_WIDTH - _LEFT - _RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 8}" class="x">{escape(x.title)}</text>')
    up = _TOP + (_HEIGHT - _TOP - _BOTTOM) / 2
    parts.append(
        f'<text transform="translate(13 {up}) rotate(-90)" class="x">{escape(y.title)}</text>'
    )
    for number, line in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        places = [place(point) for point in line.points]
        drawn = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
        parts.append(f'<polyline points="{drawn}" stroke="{colour}" class="line"/>')
        if line.dots or len(places) == 1:
            parts += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colour}"/>'
                      for px, py in places]  # fmt: skip
    return "".join([*parts, "</svg>", _key(lines)])


def _key(lines: Sequence[Line]) -> str:
    named = [(line.name, COLOURS[i % len(COLOURS)]) for i, line in enumerate(lines) if line.name]
    entries = (f'<span><i style="background:{colour}"></i>{escape(name)}</span>'
               for name, colour in named)  # fmt: skip
    return f'<p class="key">{" ".join(entries)}</p>' if named else ""


def digit_sheet(
    images: NDArray[np.uint8], captions: Sequence[str], *, columns: int = 10, zoom: int = 2
) -> Image.Image:
    """Return digits (N, 28, 28), dark on white, in rows, what is written below each."""
    side = images.shape[1] * zoom
    wide, high = side + 8, side + _CAPTION + 4
    rows = -(-len(images) // columns)
    sheet = Image.new("L", (columns * wide, max(rows, 1) * high), 255)
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
