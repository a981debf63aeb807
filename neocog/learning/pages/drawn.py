"""What stands on the paper beside digits (rules, print, frames, stains), and on pages without."""

import cv2
import numpy as np

from neocog.learning.pages.page import Canvas, Colour, Image, any_colour, blurred, enlarged, places

WORDS = (
    "the quick brown fox jumps over a lazy dog invoice date name street city amount payable "
    "please write clearly inside number of your form and return it before end month school"
).split()


def rule_lines(canvas: Canvas, *, squared: bool) -> None:
    """Printed rules across the page, or squares, at times with a margin."""
    plan, rng, image = canvas.plan, canvas.rng, canvas.image
    step = rng.uniform(24, 48) if squared else rng.uniform(55, 100)
    pen = int(rng.integers(1, 4))
    colour = np.array(plan.paper) * (rng.uniform(0.5, 0.88), rng.uniform(0.6, 0.9), 0.95)
    high, wide = canvas.size
    phase = rng.uniform(0, step)
    for at in np.arange(phase, high, step):
        cv2.line(image, (0, int(at)), (wide, int(at)), colour.tolist(), pen, cv2.LINE_AA)
    if squared:
        for at in np.arange(phase, wide, step):
            cv2.line(image, (int(at), 0), (int(at), high), colour.tolist(), pen, cv2.LINE_AA)
    elif rng.random() < 0.4:
        at = int(rng.uniform(0.02, 0.06) * wide)
        cv2.line(image, (at, 0), (at, high), (200, 80, 80), pen, cv2.LINE_AA)


def print_words(
    canvas: Canvas, x: int, y: int, size: int, words: int, colour: Colour, strength: float = 1.0,
    *, mirror: bool = False,
) -> None:  # fmt: skip
    from PIL import Image as Picture
    from PIL import ImageDraw, ImageFont

    text = " ".join(canvas.rng.choice(WORDS, words))
    font = ImageFont.load_default(size)
    left, top, right, bottom = (int(v) for v in font.getbbox(text))
    sheet = Picture.new("L", (right - left + 4, bottom - top + 4), 0)
    ImageDraw.Draw(sheet).text((2 - left, 2 - top), text, fill=255, font=font)
    cover: Image = np.asarray(sheet, np.float32) / np.float32(255)
    canvas.lay(cover[:, ::-1] if mirror else cover, x, y, colour, strength)


def print_through(canvas: Canvas) -> None:
    """Print on the back of the sheet, seen mirrored and faint."""
    rng = canvas.rng
    size, strength = int(rng.integers(22, 46)), rng.uniform(0.1, 0.28)
    y = int(rng.uniform(10, 60))
    while y < canvas.size[0] - size:
        x = int(rng.uniform(10, 80))
        print_words(canvas, x, y, size, 12, (60, 60, 70), strength, mirror=True)
        y += int(size * 1.7)
    canvas.image[:] = blurred(canvas.image, 1.2)


def text_near(canvas: Canvas) -> None:
    """Lines of small print and a logo beside the writing."""
    rng = canvas.rng
    high = canvas.size[0]
    top = min((y for _, y, _, _ in canvas.taken), default=high)
    bottom = max((y + h for _, y, _, h in canvas.taken), default=0)
    low, up = (0, top) if top > high - bottom else (bottom, high)  # the taller of the two free bands
    size = int(rng.integers(15, 26))
    y = low + 24
    for _ in range(int(rng.integers(1, 5))):
        if y + size + 16 > up:
            break
        x = int(rng.uniform(40, 160))
        print_words(canvas, x, y, size, int(rng.integers(4, 11)), (50, 50, 55))
        y += int(size * 1.6)
    if up - y > 150:
        middle = (int(rng.uniform(900, 1100)), y + 75)
        cv2.circle(canvas.image, middle, 50, (40, 70, 160), -1, cv2.LINE_AA)
        cv2.circle(canvas.image, middle, 26, (230, 230, 230), -1, cv2.LINE_AA)


def drawn_box(canvas: Canvas) -> None:
    """A frame drawn by hand around all the writing, or one around each line."""
    rng, boxes = canvas.rng, np.array(canvas.taken)
    pad = rng.uniform(0.25, 0.5) * boxes[:, 3].max()
    low = boxes[:, :2].min(0) - pad
    high = (boxes[:, :2] + boxes[:, 2:]).max(0) + pad
    corners = np.array([low, (high[0], low[1]), high, (low[0], high[1])])
    corners += rng.normal(0, 5, (4, 2))
    pen = max(2, int(rng.uniform(0.04, 0.1) * boxes[:, 3].mean()))
    points = np.r_[corners, corners[:1] + rng.normal(0, 3, (1, 2))].astype(np.int32)
    cv2.polylines(canvas.image, [points], False, canvas.plan.ink, pen, cv2.LINE_AA)


def signs(canvas: Canvas) -> None:
    """Dots, dashes and underlines near the digits: none of them reads as one."""
    rng, image, ink = canvas.rng, canvas.image, canvas.plan.ink
    for x, y, w, h in canvas.taken:
        chance = rng.random()
        pen, right, middle = max(2, int(0.07 * h)), int(x + w + 0.14 * h), y + h // 2
        if chance < 0.12:
            cv2.circle(image, (right, y + h), pen, ink, -1, cv2.LINE_AA)
        elif chance < 0.2:
            end = (right + int(0.1 * h), middle)
            cv2.line(image, (right - 4, middle), end, ink, pen, cv2.LINE_AA)
    if rng.random() < 0.5:
        x0 = min(x for x, *_ in canvas.taken)
        x1 = max(x + w for x, _, w, _ in canvas.taken)
        y = max(y + h for _, y, _, h in canvas.taken) + int(0.35 * canvas.taken[0][3])
        cv2.line(image, (x0, y), (x1, y + int(rng.normal(0, 8))), ink, 4, cv2.LINE_AA)


def rub_gaps(canvas: Canvas) -> None:
    """A pen that skips: thin scratches without ink cross the strokes."""
    rng, paper = canvas.rng, canvas.plan.paper
    for x, y, w, h in canvas.taken:
        for _ in range(int(rng.integers(0, 3))):
            ends = rng.uniform((x, y), (x + w, y + h), (2, 2))
            middle, way = ends.mean(0), rng.normal(0, 1, 2)
            way *= 0.25 * h / np.hypot(*way)
            a, b = (middle - way).astype(int).tolist(), (middle + way).astype(int).tolist()
            pen = max(1, int(rng.uniform(0.02, 0.05) * h))
            cv2.line(canvas.image, a, b, paper, pen, cv2.LINE_AA)


def dots(canvas: Canvas) -> None:
    rng = canvas.rng
    step, colour = rng.uniform(26, 44), (np.array(canvas.plan.paper) * 0.68).tolist()
    high, wide = canvas.size
    for y in np.arange(rng.uniform(0, step), high, step):
        for x in np.arange(rng.uniform(0, 2), wide, step):
            cv2.circle(canvas.image, (int(x), int(y)), 2, colour, -1, cv2.LINE_AA)


def _darken(canvas: Canvas, cover: Image, colour: object) -> None:
    canvas.image *= 1 - cover[:, :, None] * np.array(colour, np.float32)


def stains(canvas: Canvas) -> None:
    """Rings and blots of coffee, some over the writing."""
    rng = canvas.rng
    high, wide = canvas.size
    for _ in range(int(rng.integers(1, 4))):
        ring = np.zeros((high, wide), np.float32)
        middle = (int(rng.uniform(0, wide)), int(rng.uniform(0, high)))
        radius = int(rng.uniform(90, 240))
        cv2.circle(ring, middle, radius, rng.uniform(0.1, 0.3), -1, cv2.LINE_AA)
        cv2.circle(ring, middle, radius, rng.uniform(0.35, 0.6), int(rng.integers(5, 16)))
        _darken(canvas, blurred(ring, rng.uniform(1.5, 5)), (0.35, 0.5, 0.7))


def tape(canvas: Canvas) -> None:
    """Strips of clear tape over the writing: yellowish, with a thin dark edge and a streak."""
    rng = canvas.rng
    high, wide = canvas.size
    for _ in range(int(rng.integers(1, 3))):
        middle = rng.uniform((0.2 * wide, 0.15 * high), (0.8 * wide, 0.85 * high))
        size = (rng.uniform(0.4, 1.3) * wide, rng.uniform(70, 190))
        corners = cv2.boxPoints((middle.tolist(), size, rng.uniform(-35, 35))).astype(np.int32)
        strip = np.zeros((high, wide), np.float32)
        cv2.fillPoly(strip, [corners], rng.uniform(0.06, 0.22))
        cv2.polylines(strip, [corners], True, rng.uniform(0.2, 0.5), int(rng.integers(1, 4)))
        _darken(canvas, blurred(strip, rng.uniform(0.7, 1.6)), (0.4, 0.55, 0.9))


def blotches(canvas: Canvas) -> None:
    """Water that dried, or wash that ran: patches of any outline, darker than the paper."""
    rng = canvas.rng
    cells = int(rng.integers(4, 9))
    level = enlarged(rng.normal(0, 1, (cells, cells + 2)), canvas.size)
    inside = (level > np.quantile(level, rng.uniform(0.6, 0.9))).astype(np.float32)
    cover = blurred(inside, rng.uniform(1, 7))
    rim = np.abs(blurred(inside, 4) - cover)
    _darken(canvas, cover * rng.uniform(0.12, 0.4) + rim * rng.uniform(0, 0.5), rng.uniform(0.5, 1.0, 3))


# --- pages without any digit --------------------------------------------------------------------


def texture(canvas: Canvas) -> None:
    """Rough paper, cloth or plaster: bright and dark spots of one size."""
    rng = canvas.rng
    high, wide = canvas.size
    cell = int(rng.integers(2, 40))
    rough = enlarged(rng.normal(0, 1, (high // cell + 2, wide // cell + 2)), canvas.size)
    canvas.image[:] += rough[:, :, None] * rng.uniform(4, 18)


def full_text(canvas: Canvas) -> None:
    rng = canvas.rng
    size, y = int(rng.integers(18, 60)), 40
    while y < 900:
        words = max(2, int(420 / size))
        print_words(canvas, int(rng.uniform(30, 90)), y, size, words, (40, 40, 45))
        y += int(size * 1.6)


def drawing(canvas: Canvas) -> None:
    """Polygons and ovals, drawn in pens of many colours."""
    rng = canvas.rng
    for _ in range(int(rng.integers(3, 9))):
        points = rng.uniform((60, 60), (1220, 900), (int(rng.integers(3, 12)), 2)).cumsum(0)
        points = points / np.arange(1, len(points) + 1)[:, None] ** rng.uniform(0.5, 1)
        colour = any_colour(rng, 20, 120)
        pen = int(rng.integers(2, 9))
        if rng.random() < 0.5:
            cv2.polylines(canvas.image, [points.astype(np.int32)], True, colour, pen, cv2.LINE_AA)
        else:
            axes = rng.uniform(60, 300, 2).astype(int).tolist()
            middle = points[0].astype(int).tolist()
            cv2.ellipse(canvas.image, middle, axes, rng.uniform(0, 180), 0, 360, colour, pen)


def noise_face(canvas: Canvas) -> None:
    """Blobs of many sizes, soft and hard, as a face or a landscape has them."""
    total = np.zeros(canvas.size, np.float32)
    for octave in range(2, 8):
        coarse = canvas.rng.normal(0, 1, (2**octave, 2**octave))
        total += enlarged(coarse, canvas.size) / 1.6**octave
    canvas.image[:] = 128 + 55 * (total / total.std())[:, :, None]


def other_type(canvas: Canvas) -> None:
    """Lines of words in other typefaces, plain, slanted or of double strokes."""
    rng = canvas.rng
    face = int(rng.choice([cv2.FONT_HERSHEY_COMPLEX, cv2.FONT_HERSHEY_TRIPLEX,
                           cv2.FONT_HERSHEY_DUPLEX, cv2.FONT_HERSHEY_PLAIN]))  # fmt: skip
    if rng.random() < 0.3:
        face |= cv2.FONT_ITALIC
    size = rng.uniform(0.8, 2.2) * (1.8 if face == cv2.FONT_HERSHEY_PLAIN else 1.0)
    pen, y = int(rng.integers(1, 4)), 70
    while y < 930:
        words = " ".join(rng.choice(WORDS, int(rng.integers(2, 7))))
        _put(canvas, words, (int(rng.uniform(20, 80)), y), face, size, pen)
        y += int(rng.uniform(38, 60) * size)


def letters_by_hand(canvas: Canvas) -> None:
    """Words in a script hand, each letter a little off its line."""
    rng = canvas.rng
    face = int(rng.choice([cv2.FONT_HERSHEY_SCRIPT_SIMPLEX, cv2.FONT_HERSHEY_SCRIPT_COMPLEX]))
    size, pen = rng.uniform(1.4, 3.0), int(rng.integers(2, 6))
    for row in range(int(rng.integers(1, 5))):
        x, y = rng.uniform(40, 120), 140 + row * 80 * size
        for word in rng.choice(WORDS, int(rng.integers(1, 4))):
            for letter in str(word):
                at = (int(x), int(y + rng.normal(0, 2 * size)))
                _put(canvas, letter, at, face, size, pen)
                (wide, _), _ = cv2.getTextSize(letter, face, size, pen)
                x += wide * rng.uniform(0.9, 1.1)
            x += 30 * size


def _put(canvas: Canvas, words: str, at: tuple[int, int], face: int, size: float, pen: int) -> None:
    cover = np.zeros(canvas.size, np.uint8)
    cv2.putText(cover, words, at, face, size, 255, pen, cv2.LINE_AA)
    canvas.lay(cover.astype(np.float32) / np.float32(255), 0, 0, canvas.plan.ink)


def plant(canvas: Canvas) -> None:
    """A drawing of a plant: stems that bend, leaves along them, a flower on top."""
    rng, image, ink = canvas.rng, canvas.image, canvas.plan.ink
    pen = int(rng.integers(2, 7))
    for _ in range(int(rng.integers(1, 5))):
        turn = rng.uniform(-0.05, 0.05) + np.cumsum(rng.normal(0, 0.03, 24)) - np.pi / 2
        step = np.c_[np.cos(turn), np.sin(turn)] * rng.uniform(14, 30)
        stem = rng.uniform((200, 850), (1080, 930)) + np.cumsum(step, axis=0)
        cv2.polylines(image, [stem.astype(np.int32)], False, ink, pen, cv2.LINE_AA)
        for number in range(3, 22, int(rng.integers(2, 6))):
            side = float(rng.choice([-1, 1])) * rng.uniform(0.5, 1.1)
            axes = (int(rng.uniform(18, 70)), int(rng.uniform(7, 22)))
            angle = turn[number] + side
            middle = stem[number] + np.array([np.cos(angle), np.sin(angle)]) * axes[0]
            centre, turned = middle.astype(int).tolist(), float(np.degrees(angle))
            cv2.ellipse(image, centre, axes, turned, 0, 360, ink, pen, cv2.LINE_AA)
        top = stem[-1].astype(int).tolist()
        cv2.circle(image, top, int(rng.uniform(10, 40)), ink, pen, cv2.LINE_AA)


def grain(canvas: Canvas) -> None:
    """Wood: wavy lines of one direction, some round knots."""
    rng = canvas.rng
    high, wide = canvas.size
    rows, columns = places(canvas.size)
    bend = enlarged(rng.normal(0, 1, (4, 4)), canvas.size)
    for _ in range(int(rng.integers(0, 4))):
        x, y = rng.uniform((0, 0), (wide, high))
        bend += 3 * np.exp(-np.hypot((columns - x) / 120, (rows - y) / 40))
    rings = np.sin(2 * np.pi * (rows / rng.uniform(14, 60) + 2 * bend))
    canvas.image[:] = np.array(any_colour(rng, 110, 190), np.float32)
    canvas.image *= (1 + rng.uniform(0.03, 0.2) * rings)[:, :, None]


def cartoon(canvas: Canvas) -> None:
    """Faces of a few strokes: an oval, two eyes, a nose, a mouth."""
    rng, image, ink = canvas.rng, canvas.image, canvas.plan.ink
    pen = int(rng.integers(2, 8))
    for number in range(int(rng.integers(1, 4))):
        middle = np.array([220 + 400 * number, rng.uniform(250, 700)])
        size = rng.uniform(70, 170)
        oval = (int(size), int(1.25 * size))
        centre = middle.astype(int).tolist()
        cv2.ellipse(image, centre, oval, 0, 0, 360, ink, pen, cv2.LINE_AA)
        for side in (-1, 1):
            eye = (middle + np.array((0.4 * side, -0.3)) * size).astype(int).tolist()
            cv2.circle(image, eye, max(3, int(0.13 * size)), ink, pen, cv2.LINE_AA)
        nose = middle + np.array([(0, -0.2), (-0.12, 0.15), (0.08, 0.15)]) * size
        cv2.polylines(image, [nose.astype(np.int32)], False, ink, pen, cv2.LINE_AA)
        mouth = (middle + np.array((0, 0.5)) * size).astype(int).tolist()
        smile = (int(0.4 * size), int(0.2 * size))
        cv2.ellipse(image, mouth, smile, 0, 10, 170, ink, pen, cv2.LINE_AA)
