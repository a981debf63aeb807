"""Paper and what it lies on, from folds to desks and windows; a camera or a scanner before it."""

from itertools import product
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.learning.drawing.canvas import Box, Canvas
from neocog.learning.drawing.fields import Rng, arc, blurred, line_kernel, noise, octaves, resized, rotation
from neocog.learning.drawing.glyphs import any_word
from neocog.learning.drawing.hands import Hand, Hands
from neocog.learning.drawing.line import Row
from neocog.learning.drawing.pen import log_uniform

Image = NDArray[np.float32]
Shape = tuple[int, int]


def blank_paper(shape: Shape, rng: Rng) -> Image:
    """A sheet of any brightness, plain, rough, recycled, tinted with a fine pattern."""
    level = rng.uniform(150, 250) if rng.random() < 0.75 else rng.uniform(70, 200)
    image = np.full(shape, level, np.float32)
    if rng.random() < 0.6:
        cells = sorted(int(c) for c in rng.choice([2, 3, 5, 8, 16, 32, 64], 3, replace=False))
        image += np.float32(log_uniform(rng, 0.6, 14)) * octaves(shape, cells, rng.uniform(0.5, 1.4), rng)
    kind = rng.random()
    if kind < 0.12:
        rough = blurred(noise(shape, rng), rng.uniform(0.6, 1.6))
        spots = np.clip((rough / float(rough.std()) - rng.uniform(2.2, 3.2)) * 2, 0, 1)
        image -= np.float32(rng.uniform(20, 90)) * spots
        for _ in range(int(rng.integers(0, 25))):  # dark flecks and short fibres
            at = rng.uniform(0, 1, 2) * shape[::-1]
            points = np.cumsum(np.r_[[at], rng.normal(0, 4, (4, 2))], axis=0)
            _path(image, points, float(image[int(at[1]), int(at[0])]) - rng.uniform(8, 50), 1)
    elif kind < 0.28:
        fine_pattern(image, rng)
    return image


def _path(image: Image, points: NDArray[Any], level: float, thick: int) -> None:
    cv2.polylines(image, [points.astype(np.int32)], False, level, max(1, thick), cv2.LINE_AA)


def _lines(shape: Shape) -> tuple[Image, Image]:  # columns (1, W) and rows (H, 1)
    return np.arange(shape[1], dtype=np.float32)[None], np.arange(shape[0], dtype=np.float32)[:, None]


def fine_pattern(image: Image, rng: Rng) -> None:
    """Print the waves or rings of security paper, or a weave."""
    column, row = _lines(image.shape)
    fx, fy = rng.uniform(0.05, 0.9, 2)
    wave = rng.uniform(0, 6) * np.sin(rng.uniform(0.01, 0.08) * row)
    phase = fx * column + fy * row * float(rng.choice([0, 1])) + wave
    if rng.random() < 0.35:
        x, y = rng.uniform(-1, 2, 2).astype(np.float32) * image.shape[::-1]
        phase = fx * np.hypot(column - x, row - y) + wave
    waves = np.sin(phase).astype(np.float32)
    if rng.random() < 0.4:  # fine lines
        waves = np.float32(-2.5) * np.maximum(waves, 0) ** 4
    image += np.float32(rng.uniform(3, 16)) * waves


def rules(canvas: Canvas) -> None:
    """Printed rules, squares, dots or fine squares, at any angle near that of the sheet."""
    rng, image = canvas.rng, canvas.image
    kind = rng.choice(["ruled", "squared", "dotted", "millimetre"], p=[0.4, 0.35, 0.13, 0.12])
    step, wide, high = log_uniform(rng, 9, 90), canvas.wide, canvas.high
    level = float(image.mean()) * rng.uniform(0.35, 0.93)
    pen = 1 if step < 30 or rng.random() < 0.6 else int(rng.integers(1, 4))
    tilt = rng.normal(0, 0.05) if rng.random() < 0.6 else 0.0
    if kind == "dotted":
        step = max(step, 8)
        spots = np.stack(np.meshgrid(np.arange(0, wide, step), np.arange(0, high, step)), -1).reshape(-1, 2)
        spots = canvas.at(spots + spots[:, ::-1] * [tilt, -tilt] + rng.uniform(0, step))
        for x, y in spots.astype(int).tolist():
            cv2.circle(image, (x, y), pen // 2 + 1, level, -1)
        return
    before, start, far = image.copy(), rng.uniform(0, step), 0.1 * max(wide, high)
    thick = [pen + (kind == "millimetre" and k % 5 == 0) for k in range(int(2 * max(wide, high) / step) + 8)]
    rows, columns = (np.arange(start - far, end + far, step) for end in (high, wide))
    paths = [(np.array([[0, y], [wide, y + tilt * wide]]), t) for y, t in zip(rows, thick, strict=False)]
    if kind == "ruled":
        columns = np.array([rng.uniform(0, wide)]) if rng.random() < 0.35 else columns[:0]
        thick = [pen]
    paths += [(np.array([[x + tilt * high, 0], [x, high]]), t) for x, t in zip(columns, thick, strict=False)]
    canvas.rule(paths, level)
    image[:] = before + np.float32(rng.uniform(0.3, 1)) * (image - before)


def show_through(canvas: Canvas, hands: Hands) -> None:
    """Writing or print of the other side, mirrored, pale and soft."""
    rng = canvas.rng
    faint, high = rng.uniform(0.03, 0.25), log_uniform(rng, 10, 90)
    before = canvas.image.copy()
    face = canvas.faces[rng.integers(len(canvas.faces))] if high < 50 and rng.random() < 0.6 else None
    hand, y = Hand(hands, rng), rng.uniform(-10, 30)
    while y < canvas.high:
        x = rng.uniform(-30, 20)
        while x < canvas.wide:
            word = any_word(rng)
            if face:
                x += canvas.print_word(word, x, y, high, face, faint, mirror=True)
            elif rng.random() < 0.5:
                drawn = hand.word(word.lower(), high)
                canvas.lay(drawn.cover[:, ::-1], x, y + drawn.top, faint)
                x += drawn.cover.shape[1]
            else:
                row = Row(hand, high)
                if row.write("".join(map(str, rng.integers(0, 10, int(rng.integers(1, 7)))))):
                    field = row.field()[:, int(row.start) : int(row.right) + 2]
                    canvas.lay(field[:, ::-1], x, y - row.base, faint)
                    x += field.shape[1]
            x += high * rng.uniform(0.2, 1)
        y += high * rng.uniform(1.4, 2.5)
    canvas.image[:] = before + blurred(canvas.image - before, rng.uniform(0.8, 3))


def folds(image: Image, rng: Rng) -> None:
    """Creases: a bright or dark line, the paper a little darker on one side."""
    column, row = _lines(image.shape)
    for _ in range(int(rng.integers(1, 4))):
        way = arc(rng.choice([0, np.pi / 2, rng.uniform(0, np.pi)]))
        x, y, cos, sin = np.array([*(rng.uniform(0, 1, 2) * image.shape[::-1]), *way], np.float32)
        away = cos * (column - x) + sin * (row - y)
        ridge = np.exp(-np.abs(away) / np.float32(rng.uniform(0.7, 4)))
        slope = np.clip(away / np.float32(rng.uniform(3, 60)), -1, 1)
        image *= 1 + np.float32(rng.uniform(-0.25, 0.2)) * ridge + np.float32(rng.uniform(0, 0.06)) * slope


def stains(image: Image, rng: Rng) -> None:
    """Rings of cups, drops, smears: softly darker or brighter than the paper."""
    for _ in range(int(rng.integers(1, 5))):
        spot = np.zeros(image.shape, np.float32)
        middle = (rng.uniform(0, 1, 2) * image.shape[::-1]).astype(int).tolist()
        axes = (int(rng.uniform(5, 110)), int(rng.uniform(5, 110)))
        thick = -1 if rng.random() < 0.5 else int(rng.integers(1, 9))
        cv2.ellipse(spot, middle, axes, rng.uniform(0, 180), 0, 360, 1.0, thick, cv2.LINE_AA)
        soft = blurred(spot, rng.uniform(0.6, 7))
        image *= 1 - np.float32(rng.uniform(-0.1, 0.4)) * soft


def blots(canvas: Canvas, high: float) -> None:
    """Spots of ink and small stains where nothing stands."""
    rng, image = canvas.rng, canvas.image
    for _ in range(int(rng.integers(1, 6))):
        x, y = rng.uniform(0, 1, 2) * image.shape[::-1]
        reach = high * rng.uniform(0.03, 0.5)
        if not canvas.free(x - reach, y - reach, 2 * reach, 2 * reach):
            continue
        angle = np.linspace(0, 2 * np.pi, 18, endpoint=False)
        radius = reach * (1 + rng.uniform(0, 0.3) * rng.normal(size=18))
        ring = arc(angle) * [1, rng.uniform(0.4, 1)] * radius[:, None] + [x, y]
        level = float(image.mean()) * rng.uniform(0.1, 0.85)
        cv2.fillPoly(image, [(ring * 16).astype(np.int32)], level, cv2.LINE_AA, 4)


def surface(shape: Shape, rng: Rng) -> Image:
    """What is no paper: wood, cloth, plaster, a keyboard, a lawn of noise, a plain wall."""
    image = np.full(shape, rng.uniform(15, 235), np.float32)
    kind = rng.random()
    column, row = _lines(shape)
    if kind < 0.3:  # wood
        bend = octaves(shape, (64,), 1, rng)
        along = row if rng.random() < 0.5 else column
        fine, wavy, deep = (np.float32(rng.uniform(*r)) for r in ((0.1, 0.8), (1, 5), (0.02, 0.2)))
        image *= 1 + deep * np.sin(along * fine + wavy * bend)
    elif kind < 0.6:  # rough at many sizes: cloth, plaster, grass, faces out of focus
        strength = np.float32(log_uniform(rng, 2, 45))
        cells = sorted(int(c) for c in rng.choice([2, 4, 8, 16, 32, 64], 4, replace=False))
        image += strength * octaves(shape, cells, rng.uniform(0.8, 1.6), rng)
    elif kind < 0.75:  # weave or tiles
        fx, fy = rng.uniform(0.1, 1.2, 2)
        image += np.float32(rng.uniform(3, 40)) * np.sin(fx * column) * np.sin(fy * row)
    if rng.random() < 0.3:
        things(image, rng)
    return image.astype(np.float32)


def things(image: Image, rng: Rng) -> None:
    """Windows, monitors, keys, cables, pens, faces of soft blobs."""
    for _ in range(int(rng.integers(1, 6))):
        x, y = rng.uniform(-0.05, 1, 2) * image.shape[::-1]
        wide, high = np.exp(rng.uniform(np.log(8), np.log(200), 2))
        level = rng.uniform(5, 250)
        kind, pen = rng.random(), int(rng.integers(1, 9))
        if kind < 0.3:  # a window or a monitor, with a frame
            low, far = np.array([(x, y), (x + wide, y + high)]).astype(int).tolist()
            cv2.rectangle(image, low, far, level, -1)
            cv2.rectangle(image, low, far, 255 - level, pen)
            if rng.random() < 0.5:
                _path(image, np.array([(x + wide / 2, y), (x + wide / 2, y + high)]), 255 - level, pen)
        elif kind < 0.45:  # keys
            step = max(8.0, wide / 4)
            for row, column in product(range(3), range(5)):
                at = np.array([x, y]) + step * np.array([column, row])
                low, far = np.stack([at, at + 0.8 * step]).astype(int).tolist()
                cv2.rectangle(image, low, far, level, -1 if row else pen)
        elif kind < 0.7:  # a cable, a pen, a branch
            points = np.cumsum(rng.normal(0, min(image.shape) / 6, (5, 2)), axis=0) + np.array([x, y])
            if rng.random() < 0.4:
                points = points[:1] + (points[1:2] - points[:1]) * [[0], [3]]
            _path(image, points, level, int(rng.integers(1, 22)))
        else:  # a face, a fist, a cup
            axes, middle = (int(wide / 2) + 2, int(high / 2) + 2), (int(x + wide / 2), int(y + high / 2))
            cv2.ellipse(image, middle, axes, rng.uniform(0, 180), 0, 360, level, -1, cv2.LINE_AA)
            size = (max(1, axes[0] // 6), max(1, axes[1] // 12))
            for eye in (-1, 1):
                at = (int(middle[0] + eye * axes[0] * 0.4), int(middle[1] - axes[1] * 0.25))
                cv2.ellipse(image, at, size, 0, 0, 360, level * 0.5, -1, cv2.LINE_AA)
    if rng.random() < 0.5:
        image[:] = blurred(image, float(np.exp(rng.uniform(-0.5, 2))))


def sheet_on(image: Image, under: Image, rng: Rng) -> NDArray[np.bool_]:
    """Lay a sheet on a surface ``under`` it, its edges across the page; return where none is."""
    side = min(image.shape)
    normal = arc(rng.normal(0, 0.15) + float(rng.choice([0, 0.5, 1, 1.5])) * np.pi)
    edges = [(normal, rng.uniform(0.15, 0.45) * side)]
    if rng.random() < 0.5:
        turned = np.array([-normal[1], normal[0]]) * float(rng.choice([-1, 1]))
        edges.append((turned, rng.uniform(0.15, 0.45) * side))
    if rng.random() < 0.3:
        edges.append((-normal, rng.uniform(0.2, 0.5) * side))
    column, row = _lines(image.shape)
    column, row = column - image.shape[1] / 2, row - image.shape[0] / 2
    inside = np.full(image.shape, 1e3, np.float32)
    for way, reach in edges:
        away = reach - (np.float32(way[0]) * column + np.float32(way[1]) * row)
        inside = np.minimum(inside, away.astype(np.float32))
    sheet = np.clip(inside + 0.5, 0, 1)
    shade = np.exp(np.minimum(inside, 0) / np.float32(rng.uniform(2, 25)))
    dark = under * (1 - np.float32(rng.uniform(0, 0.6)) * shade)
    image[:] = image * sheet + dark * (1 - sheet)
    return np.asarray(inside < 3)


def card_on(image: Image, under: Image, around: Box, rng: Rng) -> Box:
    """Leave a card ``around`` a box, on a surface ``under`` it, at times held by a thumb; return its box."""
    left, top, wide, high = around
    middle = np.array([left + wide / 2, top + high / 2])
    corners = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]) * (wide / 2, high / 2)
    corners = corners * (1 + rng.uniform(0, 0.06, (4, 2)))
    corners = corners @ rotation(-rng.normal(0, 0.05)) + middle
    mask = np.zeros(image.shape, np.float32)
    cv2.fillConvexPoly(mask, (corners * 16).astype(np.int32), 1.0, cv2.LINE_AA, 4)
    soft = blurred(mask, rng.uniform(1, 10))
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


def photographed(
    image: Image, rng: Rng, smallest: float, *, inverted: float = 0.12, page: int = 1
) -> NDArray[np.uint8]:
    """Photograph a page (H, W), or a strip of one ``page`` times as high, digits of ``smallest`` pixels."""
    image = np.clip(image, 0, 255)
    if page == 1:
        _light(image, rng)
    else:
        high, wide = image.shape
        side = max(page * high, wide)
        light = np.full((side // 4, side // 4), 100, np.float32)
        _light(light, rng)
        y, x = int(rng.integers(side - high + 1)), int(rng.integers(side - wide + 1))
        light = resized(light, (side, side))
        image *= light[y : y + high, x : x + wide] / np.float32(100)
    image = _lens(np.clip(image, 0, 255), rng, smallest)
    return _sensor(np.float32(255) - image if rng.random() < inverted else image, rng, smallest)


def _light(image: Image, rng: Rng) -> None:
    """Light that falls off, shadows with soft or hard edges, spots of glare."""
    high, wide = image.shape
    column, row = (np.linspace(-1, 1, side, dtype=np.float32) for side in (wide, high))
    if rng.random() < 0.6:
        a, b = rng.normal(0, 0.22, 2)
        field = 1 + np.float32(a) * column[None] + np.float32(b) * row[:, None]
        if rng.random() < 0.4:
            field = field - np.float32(rng.uniform(0, 0.15)) * (column[None] ** 2 + row[:, None] ** 2)
        image *= np.clip(field, 0.25, 1.6)
    if rng.random() < 0.3:
        depth, shade = np.float32(rng.uniform(0.15, 0.65)), np.zeros((high // 2, wide // 2), np.float32)
        if rng.random() < 0.75:
            corners = rng.uniform(-0.5, 1.5, (int(rng.integers(3, 6)), 2)) * shade.shape[::-1]
            cv2.fillPoly(shade, [cv2.convexHull(corners.astype(np.int32))], 1.0)
        else:  # bars
            step, angle = rng.uniform(8, 60), rng.uniform(0, np.pi)
            x, y = (np.arange(side // 2, dtype=np.float32) for side in (wide, high))
            across = (np.cos(angle) * x[None] + np.sin(angle) * y[:, None]) / step
            shade[:] = across % 1 < rng.uniform(0.3, 0.7)
        image *= 1 - depth * resized(blurred(shade, log_uniform(rng, 0.5, 14)), (wide, high))
    if rng.random() < 0.1:
        x, y = rng.uniform(-1, 1, 2)
        reach = rng.uniform(0.08, 0.6)
        spot = np.exp(-((column[None] - x) ** 2 + (row[:, None] - y) ** 2) / np.float32(reach**2))
        image += (255 - image) * np.float32(rng.uniform(0.2, 0.75)) * spot.astype(np.float32)


def _lens(image: Image, rng: Rng, smallest: float) -> Image:
    """Blur by focus or motion, as far as marks of ``smallest`` pixels stay legible."""
    kind = rng.random()
    if kind < 0.55:
        most = min(0.09 * smallest, 6.0)
        sigma = rng.uniform(0.3, max(0.5, most)) if rng.random() < 0.5 else rng.uniform(0.3, 0.9)
        return blurred(image, sigma)
    if kind >= 0.75:
        return image
    if kind < 0.65:  # a disc, as a lens out of focus gives
        reach = max(1, round(rng.uniform(0.3, 1) * min(0.16 * smallest, 9)))
        kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * reach + 1,) * 2)
    else:
        reach = max(2, round(rng.uniform(0.3, 1) * min(0.28 * smallest, 21)))
        kernel = line_kernel(reach | 1, rng.uniform(0, np.pi))
    return np.asarray(cv2.filter2D(image, -1, kernel / np.float32(kernel.sum())), np.float32)


def _sensor(image: Image, rng: Rng, smallest: float) -> NDArray[np.uint8]:
    """Few pixels, noise, a tone curve, sharpening, JPEG; ink and paper exchanged; a fax."""
    size = image.shape[::-1]
    if rng.random() < 0.2 and smallest > 14:
        share = max(rng.uniform(0.35, 1), 10 / smallest)
        small = tuple(max(16, round(side * share)) for side in size)
        down = cv2.resize(image, small, interpolation=cv2.INTER_AREA)
        way = cv2.INTER_NEAREST if rng.random() < 0.15 else cv2.INTER_LINEAR
        image = np.asarray(cv2.resize(down, size, interpolation=way), np.float32)
    if rng.random() < 0.15:
        soft = blurred(image, rng.uniform(0.8, 2.5))
        image = image + np.float32(rng.uniform(0.3, 1.8)) * (image - soft)
    if rng.random() < 0.3:
        gamma = np.float32(np.exp(rng.normal(0, 0.35)))
        image = np.float32(255) * (np.clip(image, 0, 255) / np.float32(255)) ** gamma
    grain = noise(image.shape, rng)
    if rng.random() < 0.3:
        grain = blurred(grain, 0.8) * np.float32(1.6)
    image = image + np.float32(log_uniform(rng, 0.3, 9)) * grain
    if rng.random() < 0.12:  # a dark picture
        image = image * np.float32(rng.uniform(0.15, 0.5)) + np.float32(rng.uniform(0, 30))
    picture = np.clip(image, 0, 255).astype(np.uint8)
    if rng.random() < 0.08 and picture.mean() > 120:  # a fax
        near = np.asarray(cv2.blur(picture, (61, 61)), np.float32)
        picture = (picture > rng.uniform(0.75, 0.95) * near).astype(np.uint8) * 255
    if rng.random() < 0.45:
        _, file = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, int(rng.integers(12, 95))])
        picture = np.asarray(cv2.imdecode(file, cv2.IMREAD_UNCHANGED), np.uint8)
    return np.asarray(picture)
