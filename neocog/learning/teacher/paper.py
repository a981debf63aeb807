"""Paper and what it lies on: texture, rules, print, show-through, folds, stains; desks, windows."""

from itertools import product

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.learning.teacher.canvas import Canvas
from neocog.learning.teacher.pen import Rng, any_word, log_uniform, noise, octaves

Image = NDArray[np.float32]


def blank_paper(side: int, rng: Rng) -> Image:
    """A sheet of any brightness, plain, rough, recycled, tinted with a fine pattern."""
    level = rng.uniform(150, 250) if rng.random() < 0.75 else rng.uniform(70, 200)
    image = np.full((side, side), level, np.float32)
    if rng.random() < 0.6:
        cells = sorted(int(c) for c in rng.choice([2, 3, 5, 8, 16, 32, 64], 3, replace=False))
        image += np.float32(log_uniform(rng, 0.6, 14)) * octaves(side, cells, rng.uniform(0.5, 1.4), rng)
    kind = rng.random()
    if kind < 0.12:
        rough = cv2.GaussianBlur(noise((side, side), rng), (0, 0), rng.uniform(0.6, 1.6))
        spots = np.clip((np.asarray(rough) / float(rough.std()) - rng.uniform(2.2, 3.2)) * 2, 0, 1)
        image -= np.float32(rng.uniform(20, 90)) * spots
        for _ in range(int(rng.integers(0, 25))):  # dark flecks and short fibres
            x, y = rng.uniform(0, side, 2)
            points = np.cumsum(np.r_[[(x, y)], rng.normal(0, 4, (4, 2))], axis=0)
            _path(image, points, float(image[int(y), int(x)]) - rng.uniform(8, 50), 1)
    elif kind < 0.28:
        fine_pattern(image, rng)
    return image


def _path(image: Image, points: NDArray[np.float64], level: float, thick: int) -> None:
    at = points.astype(np.int32)
    cv2.polylines(image, [at], False, level, max(1, thick), cv2.LINE_AA)


def fine_pattern(image: Image, rng: Rng) -> None:
    """Print the waves or rings of security paper, or a weave."""
    side = len(image)
    line = np.arange(side, dtype=np.float32)
    fx, fy = rng.uniform(0.05, 0.9, 2)
    wave = rng.uniform(0, 6) * np.sin(rng.uniform(0.01, 0.08) * line)
    phase = fx * line[None] + fy * line[:, None] * float(rng.choice([0, 1])) + wave[:, None]
    if rng.random() < 0.35:
        x, y = rng.uniform(-1, 2, 2).astype(np.float32) * side
        phase = fx * np.hypot(line[None] - x, line[:, None] - y) + wave[:, None]
    waves = np.sin(phase).astype(np.float32)
    if rng.random() < 0.4:  # fine lines
        waves = np.float32(-2.5) * np.maximum(waves, 0) ** 4
    image += np.float32(rng.uniform(3, 16)) * waves


def rules(image: Image, rng: Rng) -> None:
    """Printed rules, squares, dots or fine squares, at any angle near upright."""
    side = len(image)
    kind = rng.choice(["ruled", "squared", "dotted", "millimetre"], p=[0.4, 0.35, 0.13, 0.12])
    step = log_uniform(rng, 9, 90)
    level = float(image.mean()) * rng.uniform(0.35, 0.93)
    pen = 1 if step < 30 or rng.random() < 0.6 else int(rng.integers(1, 4))
    tilt = rng.normal(0, 0.05) if rng.random() < 0.6 else 0.0
    start = rng.uniform(0, step)
    if kind == "dotted":
        spots = np.arange(start, side, max(step, 8))
        for y in spots:
            for x in spots:
                cv2.circle(image, (int(x + tilt * y), int(y - tilt * x)), pen // 2 + 1, level, -1)
        return
    overlay = image.copy()
    both = kind != "ruled"
    for number, at in enumerate(np.arange(start - step * 3, side + step * 3, step)):
        thick = pen + (1 if kind == "millimetre" and number % 5 == 0 else 0)
        a, b = at, at + tilt * side
        cv2.line(overlay, (0, int(a)), (side, int(b)), level, thick, cv2.LINE_AA)
        if both:
            cv2.line(overlay, (int(a), side), (int(b), 0), level, thick, cv2.LINE_AA)
    if kind == "ruled" and rng.random() < 0.35:
        x = int(rng.uniform(0, side))
        cv2.line(overlay, (x, side), (int(x + tilt * side), 0), level, pen, cv2.LINE_AA)
    share = np.float32(rng.uniform(0.3, 1))
    image += share * (overlay - image)


def show_through(canvas: Canvas) -> None:
    """Writing or print of the other side, mirrored, pale and soft."""
    rng, side = canvas.rng, canvas.side
    faint = rng.uniform(0.03, 0.22)
    before = canvas.image.copy()
    high = log_uniform(rng, 10, 90)
    y = rng.uniform(-10, 30)
    while y < side:
        x = rng.uniform(-30, 20)
        while x < side:
            if canvas.bank.faces and high < 50:
                face, word = int(rng.integers(canvas.bank.faces)), any_word(rng)
                x += canvas.print_word(word, x, y, high, face, faint, mirror=True)
            else:
                points = np.cumsum(rng.normal(0, high / 3, (6, 2)), axis=0) + np.array([x, y])
                _path(canvas.image, points, float(before.mean()) * (1 - faint), int(high / 12))
                x += high * 0.5
            x += high * rng.uniform(0.2, 1)
        y += high * rng.uniform(1.4, 2.5)
    change = canvas.image - before
    canvas.image[:] = before + cv2.GaussianBlur(change, (0, 0), rng.uniform(0.8, 3))


def folds(image: Image, rng: Rng) -> None:
    """Creases: a bright or dark line, the paper a little darker on one side."""
    side = len(image)
    line = np.arange(side, dtype=np.float32)
    for _ in range(int(rng.integers(1, 4))):
        angle = rng.choice([0, np.pi / 2, rng.uniform(0, np.pi)])
        x, y = rng.uniform(0, side, 2)
        cos, sin = np.float32(np.cos(angle)), np.float32(np.sin(angle))
        away = cos * (line[None] - x) + sin * (line[:, None] - y)
        ridge = np.exp(-np.abs(away) / np.float32(rng.uniform(0.7, 4)))
        slope = np.clip(away / np.float32(rng.uniform(3, 60)), -1, 1)
        bright, darker = np.float32(rng.uniform(-0.25, 0.2)), np.float32(rng.uniform(0, 0.06))
        image *= 1 + bright * ridge + darker * slope


def stains(image: Image, rng: Rng) -> None:
    """Rings of cups, drops, smears: softly darker or brighter than the paper."""
    side = len(image)
    for _ in range(int(rng.integers(1, 5))):
        spot = np.zeros((side, side), np.float32)
        middle = rng.integers(0, side, 2).tolist()
        axes = (int(rng.uniform(5, 110)), int(rng.uniform(5, 110)))
        thick = -1 if rng.random() < 0.5 else int(rng.integers(1, 9))
        cv2.ellipse(spot, middle, axes, rng.uniform(0, 180), 0, 360, 1.0, thick, cv2.LINE_AA)
        soft = np.asarray(cv2.GaussianBlur(spot, (0, 0), rng.uniform(0.6, 7)))
        image *= 1 - np.float32(rng.uniform(-0.1, 0.4)) * soft


def surface(side: int, rng: Rng) -> Image:
    """What is no paper: wood, cloth, plaster, a keyboard, a lawn of noise, a plain wall."""
    level = rng.uniform(15, 235)
    image = np.full((side, side), level, np.float32)
    kind = rng.random()
    line = np.arange(side, dtype=np.float32)
    if kind < 0.3:  # wood
        bend = octaves(side, (64,), 1, rng)
        along = line[:, None] if rng.random() < 0.5 else line[None]
        fine, wavy, deep = (np.float32(rng.uniform(*r)) for r in ((0.1, 0.8), (1, 5), (0.02, 0.2)))
        image *= 1 + deep * np.sin(along * fine + wavy * bend)
    elif kind < 0.6:  # rough at many sizes: cloth, plaster, grass, faces out of focus
        strength = np.float32(log_uniform(rng, 2, 45))
        cells = sorted(int(c) for c in rng.choice([2, 4, 8, 16, 32, 64], 4, replace=False))
        image += strength * octaves(side, cells, rng.uniform(0.8, 1.6), rng)
    elif kind < 0.75:  # weave or tiles
        fx, fy = rng.uniform(0.1, 1.2, 2)
        grid = np.sin(fx * line)[None] * np.sin(fy * line)[:, None]
        image += np.float32(rng.uniform(3, 40)) * grid
    if rng.random() < 0.3:
        things(image, rng)
    return image


def things(image: Image, rng: Rng) -> None:
    """Windows, monitors, keys, cables, pens, faces of soft blobs."""
    side = len(image)
    for _ in range(int(rng.integers(1, 6))):
        x, y = rng.uniform(-20, side, 2)
        wide, high = np.exp(rng.uniform(np.log(8), np.log(200), 2))
        level = rng.uniform(5, 250)
        kind, pen = rng.random(), int(rng.integers(1, 9))
        if kind < 0.3:  # a window or a monitor, with a frame
            _rectangle(image, x, y, wide, high, level, -1)
            _rectangle(image, x, y, wide, high, 255 - level, pen)
            if rng.random() < 0.5:
                bar = np.array([(x + wide / 2, y), (x + wide / 2, y + high)])
                _path(image, bar, 255 - level, pen)
        elif kind < 0.45:  # keys
            step = max(8.0, wide / 4)
            for row, column in product(range(3), range(5)):
                key, fill = 0.8 * step, -1 if row else pen
                _rectangle(image, x + column * step, y + row * step, key, key, level, fill)
        elif kind < 0.7:  # a cable, a pen, a branch
            points = np.cumsum(rng.normal(0, side / 6, (5, 2)), axis=0) + np.array([x, y])
            if rng.random() < 0.4:
                points = points[:1] + (points[1:2] - points[:1]) * [[0], [3]]
            _path(image, points, level, int(rng.integers(1, 22)))
        else:  # a face, a fist, a cup
            axes = (int(wide / 2) + 2, int(high / 2) + 2)
            middle = (int(x + wide / 2), int(y + high / 2))
            cv2.ellipse(image, middle, axes, rng.uniform(0, 180), 0, 360, level, -1, cv2.LINE_AA)
            size = (max(1, axes[0] // 6), max(1, axes[1] // 12))
            for eye in (-1, 1):
                at = (int(middle[0] + eye * axes[0] * 0.4), int(middle[1] - axes[1] * 0.25))
                cv2.ellipse(image, at, size, 0, 0, 360, level * 0.5, -1, cv2.LINE_AA)
    if rng.random() < 0.5:
        image[:] = cv2.GaussianBlur(image, (0, 0), float(np.exp(rng.uniform(-0.5, 2))))


def _rectangle(image: Image, x: float, y: float, wide: float, high: float, level: float, pen: int) -> None:
    cv2.rectangle(image, (int(x), int(y)), (int(x + wide), int(y + high)), level, pen)


def sheet_on(image: Image, under: Image, rng: Rng) -> NDArray[np.bool_]:
    """Lay a sheet on a surface ``under`` it, its edges across the page; return where none is."""
    side = len(image)
    angle = rng.normal(0, 0.15) + float(rng.choice([0, 0.5, 1, 1.5])) * np.pi
    normal = np.array([np.cos(angle), np.sin(angle)])
    edges = [(normal, rng.uniform(0.15, 0.45) * side)]
    if rng.random() < 0.5:
        turned = np.array([-normal[1], normal[0]]) * float(rng.choice([-1, 1]))
        edges.append((turned, rng.uniform(0.15, 0.45) * side))
    if rng.random() < 0.3:
        edges.append((-normal, rng.uniform(0.2, 0.5) * side))
    line = np.arange(side, dtype=np.float32) - side / 2
    inside = np.full((side, side), 1e3, np.float32)
    for way, reach in edges:
        away = reach - (np.float32(way[0]) * line[None] + np.float32(way[1]) * line[:, None])
        inside = np.minimum(inside, away.astype(np.float32))
    sheet = np.clip(inside + 0.5, 0, 1)
    shade = np.exp(np.minimum(inside, 0) / np.float32(rng.uniform(2, 25)))
    dark = under * (1 - np.float32(rng.uniform(0, 0.6)) * shade)
    image[:] = image * sheet + dark * (1 - sheet)
    return np.asarray(inside < 3)


def card_on(
    image: Image, under: Image, around: tuple[float, float, float, float], rng: Rng
) -> tuple[float, float, float, float]:
    """Leave a card ``around`` a box, on a surface ``under`` it, at times held by a thumb; return its box."""
    left, top, wide, high = around
    middle = np.array([left + wide / 2, top + high / 2])
    corners = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]) * (wide / 2, high / 2)
    corners = corners * (1 + rng.uniform(0, 0.06, (4, 2)))
    turn = rng.normal(0, 0.05)
    cos, sin = np.cos(turn), np.sin(turn)
    corners = corners @ np.array([[cos, sin], [-sin, cos]]) + middle
    mask = np.zeros(image.shape, np.float32)
    cv2.fillConvexPoly(mask, (corners * 16).astype(np.int32), 1.0, cv2.LINE_AA, 4)
    soft = np.asarray(cv2.GaussianBlur(mask, (0, 0), rng.uniform(1, 10)))
    dark = under * (1 - np.float32(rng.uniform(0, 0.6)) * soft)
    image[:] = image * mask + dark * (1 - mask)
    if rng.random() < 0.25:  # on an edge, hardly over what is written
        at = int(rng.integers(4))
        edge = corners[at] + (corners[(at + 1) % 4] - corners[at]) * rng.uniform(0.1, 0.9)
        way = (edge - middle) / max(float(np.hypot(*(edge - middle))), 1.0)
        thick, level = 0.12 * min(wide, high) * rng.uniform(0.6, 1.4), rng.uniform(60, 190)
        for share, shade in ((1.0, 0.8), (0.85, 1.0)):
            _path(image, np.array([edge, edge + 4 * thick * way]), level * shade, int(2 * share * thick))
    low, far = corners.min(axis=0).tolist(), corners.max(axis=0).tolist()
    return low[0], low[1], far[0] - low[0], far[1] - low[1]
