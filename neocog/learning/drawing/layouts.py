"""Where digits stand: in rows, scattered, alone, on cards, forms, tables, documents; pages without any."""

from collections.abc import Callable
from itertools import pairwise

import cv2
import numpy as np

from neocog.learning.drawing import glyphs
from neocog.learning.drawing.canvas import Canvas
from neocog.learning.drawing.fields import Rng
from neocog.learning.drawing.foreign import foreign
from neocog.learning.drawing.glyphs import LETTERS, Face, alike_word, any_word
from neocog.learning.drawing.hands import Hand
from neocog.learning.drawing.line import Frames, Path, Row
from neocog.learning.drawing.paper import fine_pattern
from neocog.learning.drawing.pen import any_pen, log_uniform
from neocog.learning.drawing.texts import any_text
from neocog.vision.finder import SIGNS


def _digits(rng: Rng, least: int, most: int) -> str:
    return "".join(map(str, rng.integers(0, 10, int(rng.integers(least, most)))))


def _text(rng: Rng) -> str:  # more often than for lines with signs that pass for digits
    kind = str(rng.choice(["", "sum", "marked", "grade"], p=[0.72, 0.15, 0.08, 0.05]))
    return any_text(rng, kind or None)


def _row(hand: Hand, high: float, text: str, *, unit: float = 0.0, touching: bool = True) -> Row:
    """Write a number, with a unit or a currency beside it at times."""
    tries = 0
    while not (row := Row(hand, high)).write(text, touching=touching, twins=False):
        tries += 1
        if tries > 4:  # a hand that cannot write it so
            hand = Hand(hand.hands, hand.rng, pen=hand.pen)
    if hand.rng.random() < unit:
        row.beside(letters="x" not in text)
    return row


def write_number(canvas: Canvas, hand: Hand, high: float, text: str, x: float, y: float) -> float:
    """Write a number of digits that stand apart from x on, its baseline at y; return where it ends."""
    return canvas.write(_row(hand, high, text, touching=False), x, y)


def _word(
    canvas: Canvas, hand: Hand, high: float, x: float, y: float, *, joined: bool, script: str = "latin"
) -> float:
    """Write a word by hand, in letters that hang together or apart, or of another script; return its end."""
    rng, face, word = canvas.rng, None, any_word(canvas.rng, None if joined else LETTERS)
    alike = alike_word(rng) if script == "latin" and rng.random() < 0.2 else None
    word = alike or word
    if joined:
        return canvas.put(hand, hand.word(word.lower() if rng.random() < 0.7 else word, high), x, y)
    if script != "latin":
        face = _face(canvas, script)
        word = face.any_word(rng, script)
    elif rng.random() < 0.6:  # printed letters as many hands write them
        face, word = _face(canvas), alike or any_word(rng)
    gap, tied, end = rng.uniform(-0.05, 0.12), rng.random() < 0.3, None
    for letter in word:
        drawn = hand.letter(letter, high, face)
        origin = np.array([x - drawn.left, y])
        if tied and end is not None and drawn.begin is not None:
            middle = (end + drawn.begin + origin) / 2 + [0, rng.uniform(0, 0.3) * high]
            tie = glyphs.curve(np.stack([end, middle, drawn.begin + origin]), 9)
            canvas.draw([tie], hand, hand.measure() * high)
        end = None if drawn.end is None else drawn.end + origin
        x = canvas.put(hand, drawn, x, y) + gap * high
        if x > canvas.wide + high:
            break
    return x


def _script(canvas: Canvas) -> str:
    """Choose a script of any typeface, Latin only if there is no other."""
    known = sorted({script for face in canvas.faces for script in face.scripts} - {"latin"})
    return str(canvas.rng.choice(known or ["latin"]))


def _face(canvas: Canvas, script: str = "latin") -> Face:
    faces = [face for face in canvas.faces if script in face.scripts]
    return faces[int(canvas.rng.integers(len(faces)))]


def rows(canvas: Canvas, hand: Hand, high: float) -> None:
    """Lines of numbers, at times with words and signs between them."""
    rng, wide = canvas.rng, canvas.wide
    words, joined = rng.random() < 0.25, rng.random() < 0.5
    slope = rng.normal(0, 0.04) if rng.random() < 0.3 else 0.0
    y = rng.uniform(0.8, 1.7) * high + (rng.uniform(0, 0.6) * canvas.high if rng.random() < 0.5 else 0)
    for _ in range(int(rng.integers(1, max(10, canvas.high / high / 2)))):
        if y - 0.8 * high > canvas.high:
            break
        x = rng.uniform(-0.6, 2.0) * high if high < wide / 3 else rng.uniform(-0.1, 0.3) * wide
        while x < wide:
            text = _text(rng) if rng.random() < 0.6 else _digits(rng, 1, 9)
            if words and rng.random() < 0.5:
                x = _word(canvas, hand, high * rng.uniform(0.8, 1.2), x, y + slope * x, joined=joined)
            else:
                x = canvas.write(_row(hand, high, text, unit=0.2), x, y + slope * x)
            x += high * rng.uniform(0.5, 2.5)
            if rng.random() < 0.35:
                break
        y += high * rng.uniform(1.15, 2.4)


def amount(canvas: Canvas, hand: Hand, high: float) -> None:
    """One line across a patterned field, quickly written: most digits touch, many are joined."""
    rng, wide = canvas.rng, canvas.wide
    text = any_text(rng, "amount")
    high = float(np.clip(high, 14, max(18, 1.8 * wide / len(text))))
    fine_pattern(canvas.image, rng)
    if rng.random() < 0.4:
        hand.slant = float(rng.uniform(0.1, 1.0))
    left, y = max(0.0, wide / 2 - 0.35 * high * len(text)), canvas.high * rng.uniform(0.4, 0.8)
    x = canvas.write(_row(hand, high, text, unit=0.1), left * rng.uniform(0.2, 1), y)
    if rng.random() < 0.4:  # dashes and flourishes behind it, so that nothing can be added
        count = int(rng.integers(2, 6))
        step = high * np.stack([rng.uniform(0.1, 0.6, count), rng.normal(0, 0.25, count)], axis=1)
        at = np.array([x, y - 0.5 * high]) + high * rng.uniform([0, -0.4], [0.4, 0.4])
        canvas.draw([glyphs.curve(at + np.cumsum(step, axis=0), 30)], hand, hand.measure() * high)


def scattered(canvas: Canvas, hand: Hand, high: float) -> None:
    """Digits of several sizes anywhere, at times of several pens, few of them touching."""
    rng, side = canvas.rng, canvas.side
    spread, room = rng.uniform(0.05, 0.6), 0.35 if rng.random() < 0.15 else 0.6
    hands = [hand, Hand(hand.hands, rng)] if rng.random() < 0.4 else [hand]
    for _ in range(int(rng.integers(1, 26))):
        own = float(np.clip(high * np.exp(rng.normal(0, spread)), 8, 0.9 * side))
        x, y = rng.uniform(0, 1, 2) * [canvas.wide, canvas.high]
        if not canvas.free(x - room * own, y - room * own, 2 * room * own, 2 * room * own):
            continue
        char = SIGNS[rng.integers(len(SIGNS))] if rng.random() < 0.18 else str(rng.integers(10))
        canvas.write(_row(hands[rng.integers(len(hands))], own, char), x - 0.3 * own, y + own / 2)


def single(canvas: Canvas, hand: Hand, high: float) -> None:
    """One digit, or two, of any size; mostly the picture is cut around it."""
    rng, side = canvas.rng, canvas.side
    own = float(np.clip(high, 12, 0.85 * side))
    x, y = np.clip(rng.normal(0.5, 0.12, 2), 0.2, 0.8) * [canvas.wide, canvas.high]
    text = _digits(rng, 2, 3)
    if rng.random() < 0.8:  # a stroke alone is a one, if it is anything
        hand.bars, text = 0.75, "1" if rng.random() < 0.4 else _digits(rng, 1, 2)
    own *= 0.6 if len(text) > 1 else 1
    canvas.write(_row(hand, own, text), x - 0.3 * own * len(text), y + own / 2)


def card(canvas: Canvas, hand: Hand, high: float) -> None:
    """A number, mostly of one to three digits, that is to fill a card; or a word, or nothing."""
    rng, wide = canvas.rng, canvas.wide
    kind = rng.random()
    count = int(rng.integers(1, 4) if rng.random() < 0.8 else rng.integers(4, 9))
    own = float(np.clip(high, 14, min(0.6, 0.95 / count) * wide))
    y = canvas.high * rng.normal(0.5, 0.03) + own / 2
    if kind < 0.1:
        return
    if kind < 0.2:
        _word(canvas, hand, own, 0.1 * wide, y, joined=rng.random() < 0.5)
    else:
        canvas.write(_row(hand, own, _digits(rng, count, count + 1)), wide / 2 - 0.42 * own * count, y)


def _ruled(canvas: Canvas) -> float:
    return float(canvas.image.mean()) * canvas.rng.uniform(0.05, 0.85)


def forms(canvas: Canvas, hand: Hand, high: float, letters: float = 0.0) -> None:
    """Rows of boxes, rings, combs and cells with a digit, or ``letters`` of them, in each; some are empty."""
    rng, frames, level = canvas.rng, Frames(canvas.rng, high), _ruled(canvas)
    pitch, across = rng.uniform(0.75, 1.9) * high, 1.0 if rng.random() < 0.5 else rng.uniform(0.65, 1.0)
    shade = float(np.clip(canvas.image.mean() * rng.uniform(0.75, 1.15), 0, 255))
    empty, letters = rng.uniform(0, 0.8), letters or 0.5 * (rng.random() < 0.15)
    tall = high + float(frames.spare.sum())
    y = rng.uniform(0.6, 1.5) * tall + (rng.uniform(0, 0.6) * canvas.high if rng.random() < 0.5 else 0)
    gap = 0.0 if rng.random() < 0.4 else rng.uniform(0.1, 1.5) * tall
    whole = rng.random() < 0.12 and letters < 1  # a box for the whole number
    for _ in range(int(rng.integers(1, 8))):
        if y - high > canvas.high:
            break
        x = rng.uniform(-0.5, 1.0) * pitch
        if rng.random() < 0.3:
            size = min(0.5 * tall, 30)
            x += canvas.print_word(any_word(rng), x, y - 0.7 * high, size, _face(canvas), 0.8) + 5
        row = Row(hand, high)
        text = _digits(rng, 1, 14) if not whole else _text(rng)
        if whole:
            row = _row(hand, high, text)
            spans = [(row.start - rng.uniform(0.05, 0.4) * high, row.right + rng.uniform(0.05, 2) * high)]
        else:
            slots = ["" if rng.random() < empty else "x" if letters and rng.random() < letters else c
                     for c in text]  # fmt: skip
            slots = [rng.choice(list("ACEFHKMNRUVWX")) if c == "x" else c for c in slots]
            if not row.fill(slots, pitch, across):
                continue
            spans = row.spans
            if not all(slots):  # walls around nothing would be 1s
                frames.closed = max(frames.closed, 1)
        move = np.array([x - row.begin, y - row.base])
        y0, y1 = row.base - high - frames.spare[0], row.base + frames.spare[1]
        for x0, x1 in spans if frames.kind == "fields" else ():
            ring = canvas.at(np.array([(x0, y0), (x1, y0), (x1, y1), (x0, y1)]) + move)
            cv2.fillPoly(canvas.image, [(ring * 16).astype(np.int32)], shade, cv2.LINE_AA, 4)
        paths = frames.paths(spans, row.base - high, row.base)
        canvas.rule([(path + move, width) for path, width in paths], level)
        canvas.write(row, x, y)
        y += tall + gap


def table(canvas: Canvas, hand: Hand, high: float) -> None:
    """A ruled table: numbers, words by hand or in print; what is written may touch its walls."""
    rng, level, face = canvas.rng, _ruled(canvas), _face(canvas)
    tall, width = high * rng.uniform(1.15, 2.6), log_uniform(rng, 1, max(1.5, 0.09 * high))
    walls = np.cumsum([rng.uniform(-0.3, 1) * high, *(high * rng.uniform(1.2, 7, int(rng.integers(2, 9))))])
    walls = walls[walls < canvas.wide + 8 * high]
    levels = np.arange(rng.uniform(-0.5, 1.2) * tall, canvas.high + tall, tall)
    levels = levels[: int(rng.integers(3, max(14, len(levels))))]
    paths: list[Path] = [(np.array([[walls[0], y], [walls[-1], y]]), width) for y in levels]
    if rng.random() < 0.7 or rng.random() < 0.5:
        paths += [(np.array([[x, levels[0]], [x, levels[-1]]]), width) for x in walls]
    canvas.rule(paths, level)
    kinds = rng.choice(["number", "number", "digit", "print", "word", "any"], len(walls))
    full, inside = rng.uniform(0.4, 1), rng.uniform(-0.06, 0.25)
    for top, foot in pairwise(levels):
        for kind, left, right in zip(kinds, walls[:-1], walls[1:], strict=False):
            y, room = foot - max((tall - high) * rng.uniform(0.1, 0.6), 0), right - left
            if rng.random() > full:
                continue
            if kind == "print":
                size = min(0.8 * tall, high) * 0.8
                canvas.print_word(any_word(rng), left + 0.2 * high, top + (tall - size) / 2, size, face, 0.8)
            elif kind == "word":
                word = any_word(rng).lower()[: max(2, int(room / high))]
                canvas.put(hand, hand.word(word, 0.8 * high), left + 0.2 * high, y)
            else:
                text = _text(rng) if kind == "any" else _digits(rng, 1, 2 if kind == "digit" else 9)
                row = _row(hand, high, text[: max(1, int(room / (0.7 * high)))])
                wide = row.right - row.begin
                spare = max(room - wide, 0) * rng.choice([0.5, 0.1, 0.9]) or inside * high
                canvas.write(row, left + spare, y)


def document(canvas: Canvas, hand: Hand, high: float) -> None:
    """Print, with numbers written behind it, over rules, between its lines or at the margin."""
    rng, wide = canvas.rng, canvas.wide
    script = _script(canvas) if rng.random() < 0.15 else "latin"
    face = _face(canvas, script)
    size, contrast = max(6.0, high * rng.uniform(0.35, 1.4)), rng.uniform(0.4, 0.97)
    step, hands, tight = size * rng.uniform(1.25, 1.9), rng.uniform(0.1, 0.7), rng.random() < 0.3
    margin = rng.uniform(*((-2, 2) if wide < 30 * size else (2, 8))) * size
    y = rng.uniform(-0.5, 1) * step
    while y < canvas.high:
        written, x = rng.random() < hands, margin
        if written and not tight:
            y += max(0, 1.1 * high - 0.8 * size)
        for _ in range(int(rng.integers(0, 4)) if written else 60):
            word = face.any_word(rng, script) if script != "latin" else any_word(rng)
            kind = rng.random()
            word = _text(rng) if kind < 0.12 else word + ",.:;-"[rng.integers(5)] if kind < 0.25 else word
            x += canvas.print_word(word, x, y, size, face, contrast) + 0.35 * size
            if x > wide - max(margin, 0) - 3 * size or (not written and rng.random() < 0.04):
                break
        if written and x < wide:
            base = y + 0.8 * size + rng.normal(0, 0.08) * high
            row = _row(hand, high, _text(rng) if rng.random() < 0.6 else _digits(rng, 1, 9), unit=0.1)
            if rng.random() < 0.4:
                end = x + row.right - row.start + rng.uniform(0, 6) * high
                canvas.rule([(np.array([[x, base + 2], [end, base + 2]]), 1)], _ruled(canvas))
            canvas.write(row, x + rng.uniform(0.1, 0.6) * high, base)
            y = max(base + high * rng.uniform(-0.2 if tight else 0.2, 0.6), y + step)
        else:
            y += step
        if rng.random() < 0.1:
            y += step * rng.uniform(0.5, 3)


def letters(canvas: Canvas, hand: Hand, high: float) -> None:
    """Words by hand, of letters apart or joined, of several scripts, or in a typeface; no digits."""
    rng = canvas.rng
    how = str(rng.choice(["joined", "apart", "foreign", "print", "boxes"], p=[0.25, 0.29, 0.1, 0.3, 0.06]))
    if how == "boxes":
        return forms(canvas, hand, min(high, canvas.side / 3), letters=1.0)
    script = _script(canvas) if how == "foreign" or rng.random() < 0.4 else "latin"
    face, slope = _face(canvas, script), rng.normal(0, 0.03)
    if how == "print" and script == "latin" and canvas.written and rng.random() < 0.7:
        face = canvas.written[rng.integers(len(canvas.written))]
    high = min(max(high, 11 if how == "print" else 14), canvas.side / 3)
    if how == "print" and rng.random() < 0.6:
        high = log_uniform(rng, 9, 34)
    y = rng.uniform(0, high)
    while y < canvas.high + high:
        x = rng.uniform(-high, high)
        while x < canvas.wide:
            base = y + slope * x
            if how == "print":
                word = face.any_word(rng, script) if script != "latin" else any_word(rng)
                x += canvas.print_word(word, x, base - high, high, face, hand.pen.contrast)
            else:
                own = script if how == "foreign" else "latin"
                x = _word(canvas, hand, high, x, base, joined=how == "joined", script=own)
            x += high * rng.uniform(0.3, 1)
            if rng.random() < 0.15:
                break
        y += high * rng.uniform(1.2, 2.2)


def _place(canvas: Canvas, hand: Hand, lines: list[glyphs.Curve], x: float, y: float, size: float) -> None:
    """Draw lines of about 0 .. 1 at a place, in a size."""
    canvas.draw([(line * size + [x, y]).astype(np.float32) for line in lines], hand, hand.pen.width * size)
    every = np.concatenate(lines) * size + [x, y]
    low, far = every.min(0), every.max(0)
    canvas.take(*low, *(far - low))


def music(canvas: Canvas, hand: Hand, high: float) -> None:
    """Staves with notes, by hand."""
    rng, high = canvas.rng, float(np.clip(high, 14, canvas.side / 3))
    y, x = float(rng.uniform(0, high)), float(rng.uniform(-0.5, 0.5) * high)
    hand.pen = any_pen(rng, most=0.05)
    while y < canvas.high:
        _place(canvas, hand, glyphs.music(rng), x, y, high)
        y += high * rng.uniform(1.5, 3)


def scribbles(canvas: Canvas, hand: Hand, high: float) -> None:
    """Drawings, scribbles, loops that run along: one large, or many."""
    rng = canvas.rng
    for _ in range(int(rng.integers(2, 20))):
        own = float(np.clip(min(high, 60) * np.exp(rng.normal(0.6, 0.6)), 12, 0.9 * canvas.side))
        x, y = rng.uniform(-0.2, 0.9, 2) * [canvas.wide, canvas.high]
        if canvas.free(x, y, own, own):
            hand.pen = any_pen(rng)
            _place(canvas, hand, glyphs.any_drawing(rng), x, y, own)


def clutter(canvas: Canvas, hand: Hand, high: float, count: int) -> None:
    """Draw or write some things where nothing stands yet."""
    rng, own_pen = canvas.rng, hand.pen
    for _ in range(count):
        own = float(np.clip(high * np.exp(rng.normal(0.2, 0.7)), 8, canvas.side))
        x, y = rng.uniform(0, 1, 2) * [canvas.wide, canvas.high]
        hand.pen, small = any_pen(rng), min(own, canvas.side / 4)
        kind = rng.random()
        if kind < 0.3 and canvas.free(x, y - small, 3 * small, small):
            if rng.random() < 0.33:
                canvas.print_word(any_word(rng), x, y - small, small, _face(canvas), hand.pen.contrast)
            else:
                _word(canvas, hand, small, x, y, joined=rng.random() < 0.5)
        elif kind > 0.3 and canvas.free(x - own / 2, y - own / 2, own, own):
            _place(canvas, hand, glyphs.any_drawing(rng), x - own / 2, y - own / 2, own)
    hand.pen = own_pen


def strikes(canvas: Canvas, hand: Hand) -> None:
    """Underline, ring or strike some digits; crossed out by many strokes they are neither right nor wrong."""
    rng = canvas.rng
    digits = [mark for mark in canvas.marks if 0 <= mark[0] < 10]
    if not digits or canvas.turn:
        return
    _, x, y, wide, high = digits[int(rng.integers(len(digits)))]
    long = wide + high * rng.uniform(0, 2.5)
    kind = rng.random()
    if kind < 0.45:  # a line below
        level = y + high * rng.uniform(1.12, 1.3)
        line = np.array([(x - 0.2 * high, level), (x + long, level + rng.normal(0, 0.04) * high)])
    elif kind < 0.7:  # a ring around
        angle = np.linspace(0, 6.6, 24)
        across = x + wide / 2 + np.cos(angle) * (wide / 2 + 0.45 * high)
        line = np.stack([across, y + high / 2 + np.sin(angle) * 0.85 * high], axis=1)
    else:  # crossed out
        count = 1 if rng.random() < 0.4 else int(rng.integers(2, 8))
        t = np.linspace(0, 1, 2 * count)
        reach = 0.35 * np.where(np.arange(2 * count) % 2, 1, -1) * min(1, count / 3)
        levels = y + high * (0.5 + reach) + rng.normal(0, 0.06 * high, 2 * count)
        line = np.stack([x - 0.15 * high + t * (long + 0.3 * high), levels], axis=1)
        if count > 1:  # by one stroke it is still read
            canvas.crossed(x - 0.2 * high, y - 0.2 * high, long + 0.4 * high, 1.4 * high)
    canvas.draw([line.astype(np.float32)], hand, hand.measure() * high)


LAYOUTS: dict[str, tuple[Callable[[Canvas, Hand, float], None], float]] = {
    "rows": (rows, 0.1), "amount": (amount, 0.06), "scattered": (scattered, 0.05), "single": (single, 0.06),
    "card": (card, 0.06), "forms": (forms, 0.08), "table": (table, 0.06), "document": (document, 0.23),
    "letters": (letters, 0.2), "music": (music, 0.015), "scribbles": (scribbles, 0.035),
    "nothing": (lambda canvas, hand, high: None, 0.05), "foreign": (foreign, 0.0),
}  # fmt: skip
"""Each layout and the share of pages that have it, but `foreign`, which wants typefaces of other scripts."""
SMALL = "rows", "forms", "table", "document", "foreign"
"""Layouts of which half the pages, or more, have small digits, or words."""
