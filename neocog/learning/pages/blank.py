"""Pages without any digit: texture, print, drawings, noise."""

import cv2
import numpy as np

from neocog.learning.pages.drawn import WORDS, print_words
from neocog.learning.pages.page import Canvas, any_colour, enlarged, places


def texture(canvas: Canvas) -> None:
    """Rough paper, cloth or plaster: bright and dark spots of one size."""
    rng = canvas.rng
    high, wide = canvas.size
    cell = int(rng.integers(2, 40))
    rough = enlarged(rng.normal(0, 1, (high // cell + 2, wide // cell + 2)), canvas.size)
    canvas.image[:] += rough[:, :, None] * rng.uniform(4, 18)


def full_text(canvas: Canvas) -> None:
    """A page full of print."""
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
