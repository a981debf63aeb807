"""Made pages: those that a finder learns from, drawn by processes, and pages of numbers whose text is known.

A seed gives a page's style, a seed and a variation its pixels: where a finder was wrong, the same kind of
page is drawn again with other digits at other places.
"""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice, product
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.errors import UsageError
from neocog.files import atomic_write
from neocog.learning.datasets import Digits, fetched_mnist, open_digits, read_sklearn
from neocog.learning.drawing import paper
from neocog.learning.drawing.canvas import IGNORE, SIGN, Box, Canvas, Mark
from neocog.learning.drawing.fields import Rng
from neocog.learning.drawing.foreign import typefaces
from neocog.learning.drawing.glyphs import Face
from neocog.learning.drawing.hands import Hand, Hands, hands_of, load_hands
from neocog.learning.drawing.layouts import LAYOUTS, SMALL, clutter, scattered, strikes, write_number
from neocog.learning.drawing.pen import any_pen, log_uniform
from neocog.learning.drawing.texts import any_text
from neocog.vision.finder import FinderSettings, Finding, overlaps

SIDE = 256
SMALLEST, LARGEST = 9.0, 215.0  #: heights of digits on a page, in pixels

_SMALLEST_PICTURE = 40  # pixels of a side
_CUT = {"single": 0.85, "amount": 0.85}  # of the pages with a layout, else 0.28: a part is shown
_TIGHT = {"single": 0.7, "amount": 1.0}  # of those, else 0.35: just around what is written
_ENLARGED = 0.5  # of the small pictures, twice at most, as `neocog.vision.finder.find` does


@dataclass(frozen=True, slots=True)
class Page:
    """A picture and what stands on it."""

    image: NDArray[np.uint8]  #: (H, W)
    marks: NDArray[np.float32]  #: (M, 5): label (`IGNORE`, digit, `SIGN` + k of `SIGNS`), middle, size
    extent: tuple[int, int]  #: rows and columns; beyond, pixels are mirrored
    anchored: bool = False  #: a finder that a run begins with knows such pages: its scores are to stay


_SHARES = {  # sheet: an edge of it; bright: ink on a dark ground; surface: a wall, a board, a monitor
    "rules": 0.27, "through": 0.14, "folds": 0.12, "stains": 0.1, "sheet": 0.2, "bright": 0.08,
    "surface": 0.07, "clutter": 0.3, "strikes": 0.1, "blots": 0.1,
}  # fmt: skip
_SHARES_OF_NOTHING = _SHARES | {"rules": 0.4, "folds": 0.2, "stains": 0.25, "surface": 0.4, "clutter": 0.5}
_QUARTERS = (0.875, 0.05, 0.025, 0.05)  # of the pages, by how many quarter turns they lie
_ALIKE = ({0, 8}, {0, 1, 2, 5, 6, 8, 9})  # digits that may be one on their side, and upside down
_NEW = "document", "letters", "music", "scribbles", "nothing", "foreign"  # with print, and without digits
_FOREIGN = 0.12  # of the pages have no digits, if typefaces of other scripts are given
_SEGMENTED = 0.06  # of the hands, which write digits as displays show them
_LEANT = 0.6  # times as wide as it is high is a 1 that may be one on its side


def draw_page(
    hands: Hands, faces: list[Face], seed: int, variation: int = 0, *,
    side: int = SIDE, written: Sequence[Face] = (),
) -> Page:  # fmt: skip
    """Draw a page; ``seed`` decides layout, size, pen, ground and turn, ``variation`` with it all else."""
    rng, names = np.random.default_rng([seed, 0]), list(LAYOUTS)
    layout = names[int(rng.choice(len(names), p=[LAYOUTS[name][1] for name in names]))]
    if typefaces(*faces) and rng.spawn(1)[0].random() < _FOREIGN:
        layout = "foreign"
    small = layout in SMALL and rng.random() < (0.5 if layout in ("rows", "forms") else 0.85)
    nothing, turned = layout == "nothing", rng.random()
    tall, pen = log_uniform(rng, SMALLEST, 60 if small else LARGEST), any_pen(rng)  # tall: a digit, in pixels
    second, amount = rng.random() < 0.2, int(rng.integers(0, 13 if nothing else 7))  # hand; things beside
    shares = (_SHARES_OF_NOTHING if nothing else _SHARES).items()
    on = frozenset(name for name, share in shares if rng.random() < share)
    turn = rng.normal(0, 0.05) if turned < 0.85 else rng.uniform(-0.8, 0.8)  # radians
    turn = 0.0 if layout == "card" or turned < 0.5 else turn
    if quarters := int(rng.choice(4, p=_QUARTERS)):
        turn = min(max(turn, -0.15), 0.15)  # far from where an upright page may lie
    rng = np.random.default_rng([seed, 1 + variation])
    canvas = ground(hands, faces, on, rng, (side, side), turn=turn)
    canvas.written = list(written)
    if "blots" in on:
        paper.blots(canvas, tall)
    hand = Hand(hands, rng, pen=pen)
    hand.style, hand.running.style = rng.uniform(0, 0.25), rng.uniform(0, 0.35)
    hand.running.body = float(np.exp(rng.normal(0, 0.15)))
    hand.segmented = rng.random() < _SEGMENTED
    LAYOUTS[layout][0](canvas, hand, tall)
    if second and layout in ("scattered", "rows"):
        scattered(canvas, Hand(hands, rng), tall)
    if "strikes" in on:
        strikes(canvas, hand)
    if "clutter" in on and layout != "foreign":
        clutter(canvas, hand, min(tall, 90), amount)
    subject = _on_a_card(canvas) if layout == "card" else None
    sizes = [max(mark[3], mark[4]) for mark in canvas.marks if 0 <= mark[0] < 10]
    picture = paper.photographed(canvas.image, rng, min(sizes, default=min(tall, 60.0)))
    part = _around(subject, rng, side) if subject else _cut(canvas.marks, layout, rng, side)
    left, top, wide, high = part
    inner = picture[top : top + high, left : left + wide]
    marks = canvas.kept(inner, left, top)
    if quarters:
        marks, inner = _lying(marks, quarters, wide, high), np.rot90(inner, quarters)
        high, wide = inner.shape
    if (factor := min(2.0, side / max(high, wide))) > 1 and rng.random() < _ENLARGED:
        size = int(wide * factor), int(high * factor)
        inner = np.asarray(cv2.resize(inner, size, interpolation=cv2.INTER_CUBIC), np.uint8)
        marks[:, 1:] *= np.tile(np.array(size) / (wide, high), 2)
        wide, high = size
    whole = cv2.copyMakeBorder(inner, 0, side - high, 0, side - wide, cv2.BORDER_REFLECT_101)
    anchored = bool(quarters) or not (layout in _NEW or hand.segmented)
    return Page(np.asarray(whole, np.uint8), marks, (high, wide), anchored)


def _lying(marks: NDArray[np.float32], quarters: int, wide: int, high: int) -> NDArray[np.float32]:
    """Marks of a page that is turned as by `np.rot90`: what may pass for a digit still, to be ignored."""
    label, x, y, w, h = marks.T
    alike = np.isin(label, [*_ALIKE[quarters == 2]]) | (label < 0) | (label >= SIGN)
    if quarters != 2:
        alike |= (label == 1) & (w > _LEANT * h)
    for _ in range(quarters):
        x, y, w, h, wide, high = y, wide - x, h, w, high, wide
    ignored: NDArray[np.float32] = np.stack([np.full_like(x, IGNORE), x, y, w, h], axis=1)[alike]
    return ignored


def ground(
    hands: Hands, faces: list[Face], on: frozenset[str], rng: Rng, shape: tuple[int, int], *,
    turn: float = 0.0,
) -> Canvas:  # fmt: skip
    """Make a page of a size with what ``on`` names of `_SHARES`, before anything is written."""
    image = paper.surface(shape, rng) if "surface" in on else paper.blank_paper(shape, rng)
    if "bright" in on:
        image *= np.float32(rng.uniform(0.08, 0.45))
    bright = "bright" in on or float(image.mean()) < 70
    canvas = Canvas(image, rng, faces, bright_ink=bright, turn=turn)
    if "rules" in on:
        paper.rules(canvas)
    if "through" in on:
        paper.show_through(canvas, hands)
    if "folds" in on:
        paper.folds(image, rng)
    if "stains" in on:
        paper.stains(image, rng)
    if "sheet" in on and "surface" not in on:
        canvas.block(paper.sheet_on(image, paper.surface(shape, rng), rng))
    return canvas


def _on_a_card(canvas: Canvas) -> Box:
    """Let all but a card around the digits be a desk, a wall, a room; return the card's box."""
    rng, side = canvas.rng, len(canvas.image)
    boxes = np.array([mark[1:] for mark in canvas.marks if 0 <= mark[0] < 10]).reshape(-1, 4)
    low, far = (side * (0.5 + sign * rng.uniform(0.08, 0.4, 2)) for sign in (-1, 1))
    if len(boxes):
        high = float(np.median(boxes[:, 3]))
        low = boxes[:, :2].min(axis=0) - high * rng.uniform(0.05, 0.9, 2)
        far = (boxes[:, :2] + boxes[:, 2:]).max(axis=0) + high * rng.uniform(0.05, 0.9, 2)
    card = paper.card_on(canvas.image, paper.surface((side, side), rng), (*low, *(far - low)), rng)
    (x, y), size = card[:2], card[2:]
    canvas.marks[:] = [(label, left, top, w, h) for label, left, top, w, h in canvas.marks
                       if 0 <= left + w / 2 - x <= size[0] and 0 <= top + h / 2 - y <= size[1]]  # fmt: skip
    return card


def _around(card: Box, rng: Rng, side: int) -> tuple[int, int, int, int]:
    low, size = np.array(card[:2]), np.array(card[2:])
    first = low - size * rng.uniform(-0.03, 0.35, 2)
    last = np.maximum(low + size * (1 + rng.uniform(-0.03, 0.35, 2)), first + _SMALLEST_PICTURE)
    left, top = np.clip(first, 0, side - _SMALLEST_PICTURE).astype(int).tolist()
    right, bottom = np.clip(last, 0, side).astype(int).tolist()
    return left, top, max(right - left, _SMALLEST_PICTURE), max(bottom - top, _SMALLEST_PICTURE)


def _cut(marks: list[Mark], layout: str, rng: Rng, side: int) -> tuple[int, int, int, int]:
    """Left, top, width, height of the part that is the picture: mostly all, at times a digit in a strip."""
    if rng.random() > _CUT.get(layout, 0.28):
        return 0, 0, side, side
    long = log_uniform(rng, _SMALLEST_PICTURE, side)
    short = max(long * rng.uniform(0.25, 1), _SMALLEST_PICTURE)
    wide, high = (long, short) if rng.random() < 0.5 else (short, long)
    x, y = rng.uniform(0, side, 2)
    if marks and rng.random() < _TIGHT.get(layout, 0.35):
        boxes = np.array([mark[1:] for mark in marks])
        low, high_edge = boxes[:, :2].min(axis=0), (boxes[:, :2] + boxes[:, 2:]).max(axis=0)
        x, y = (low + high_edge) / 2
        margin = rng.uniform(-0.12, 0.3) * float(np.median(boxes[:, 3]))
        wide, high = np.maximum(high_edge - low + margin, _SMALLEST_PICTURE)
    elif marks and rng.random() < 0.8:
        _, left, top, w, h = marks[int(rng.integers(len(marks)))]
        wide, high = max(wide, w * rng.uniform(1.05, 1.8)), max(high, h * rng.uniform(1.05, 1.8))
        x = left + w / 2 + rng.normal(0, 0.15) * (wide - w)
        y = top + h / 2 + rng.normal(0, 0.15) * (high - h)
    width, height = round(min(wide, side)), round(min(high, side))
    left = int(np.clip(x - width / 2, 0, side - width))
    return left, int(np.clip(y - height / 2, 0, side - height)), width, height


def compared(found: Finding, marks: NDArray[np.float32]) -> NDArray[np.int64]:
    """Count what was found of a page with ``marks`` (M, 5): label (-1: any), middle, size.

    Returns digits that stand there; of them found; marks told as digits that are none; signs among these;
    signs that stand there; 1 if nothing was told of an empty page; 1 if it is empty.
    """
    boxes = np.concatenate([marks[:, 1:3] - marks[:, 3:5] / 2, marks[:, 3:5]], axis=1)
    digit, sign, ignored = (marks[:, 0] >= 0) & (marks[:, 0] < 10), marks[:, 0] >= 10, marks[:, 0] == IGNORE
    told = found[found.kinds < 10]
    overlap, _, inside = overlaps(told.boxes, boxes)
    same = FinderSettings().overlap
    free = digit.copy()
    right = false = mistaken = 0
    for alike, within in zip(overlap, inside, strict=True):
        good = np.where(free, alike, 0)
        if good.max(initial=0) >= same:
            right += 1
            free[good.argmax()] = False
        elif (alike[sign] >= same).any():
            mistaken += 1
        elif not (within[ignored] > 0.5).any():
            false += 1
    empty = not (digit.any() or ignored.any())
    clean = empty and not len(told)
    return np.array([digit.sum(), right, false + mistaken, mistaken, sign.sum(), clean, empty], np.int64)


_drawers: list[tuple[dict[bool, Hands], list[Face], list[Face]]] = []  # of a process that draws


def prepare(data: Path, fonts: Sequence[Path]) -> None:
    """Let this process draw with the hands of a folder of sets, and with typefaces."""
    cv2.setNumThreads(1)
    hands = {held: load_hands(data, held=held) for held in (False, True)}
    _drawers.append((hands, faces_of(*fonts), [Face(file) for file in written_typefaces(data)]))


def written_typefaces(data: Path) -> list[Path]:
    """Files of typefaces that look as if written by hand, but for every eighth, of a folder of sets."""
    folder, kinds = data / "hands/free/typefaces", (".otf", ".ttf", ".woff", ".woff2")
    files = sorted(file for file in folder.glob("*.*") if file.suffix in kinds)
    return [file for k, file in enumerate(files) if k % 8]


@cache
def faces_of(*fonts: Path) -> list[Face]:
    """Typefaces of files, and Pillow's own."""
    return [Face(), *map(Face, fonts)]


def draw_pages(seeds: list[tuple[int, int]], side: int, held: bool) -> list[Page]:
    """Draw pages of seeds and variations in a process that is prepared; ``held``: by hands kept apart."""
    hands, faces, written = _drawers[-1]
    return [draw_page(hands[held], faces, *seed, side=side, written=written) for seed in seeds]


CONDITIONS = ("plain", *(name for name in _SHARES if name != "strikes"), "empty")
"""What a page has, as `neocog.learning.drawing.page.ground` names it; on an empty one nothing is written."""

_SIDE, _ROWS = 960, 6


def make_page(hands: Hands, condition: str, rng: Rng) -> tuple[NDArray[np.uint8], str]:
    """Draw a page (960, 960), grey; return it and what is written, rows parted by line ends."""
    while True:  # until all that is written can be seen
        canvas = ground(hands, faces_of(), frozenset({condition}), rng, (_SIDE, _SIDE))
        hand, high = Hand(hands, rng), rng.uniform(36, 90)
        text = "" if condition == "empty" else _write(canvas, hand, high)
        if condition == "blots":
            paper.blots(canvas, high)
        if condition == "clutter":
            clutter(canvas, hand, high, 6)
        picture = paper.photographed(canvas.image, rng, high)
        marks = canvas.kept(picture)
        digits = [str(int(mark[0])) for mark in marks if 0 <= mark[0] < 10]
        if (marks[:, 0] >= 0).all() and digits == [char for char in text if char.isdigit()]:
            return picture, text


def _write(canvas: Canvas, hand: Hand, high: float) -> str:
    rng, y, rows = canvas.rng, canvas.rng.uniform(1, 2) * high, list[str]()
    count, known = int(rng.integers(1, _ROWS)), [str(digit) for digit, own in hand.own.items() if own]
    while not rows or (len(rows) < count and y < _SIDE - 1.5 * high):
        text, none = any_text(rng).replace("÷", "/"), {*"0123456789"} - {*known}
        text = "".join(str(rng.choice(known)) if char in none else char for char in text)
        spare = _SIDE - 1.6 * high * len(text) - 2 * high
        if spare <= 0:
            continue
        if write_number(canvas, hand, high, text, high + rng.uniform(0, spare), y + high) < _SIDE:
            rows.append(text)
            y += high * rng.uniform(1.6, 2.6)
    return "\n".join(rows)


def pen_digits(place: str | Path | None, tell: Callable[[str], None]) -> Digits:
    """Digits that pages are written with: a set, MNIST's last 5 000 training digits, or scikit-learn's."""
    if place is not None and (str(place) == "sklearn" or Path(place).exists()):
        is_mnist = Path(place).is_dir() and any(Path(place).glob("train-images*"))
        return open_digits(place, split="validation" if is_mnist else None)
    if place in (None, "mnist") and fetched_mnist() is not None:
        return open_digits("mnist", split="validation")
    digits = read_sklearn()
    tell(f"{place or 'MNIST'} is not there: the pages are written with scikit-learn's 8x8 digits")
    return digits


def known_conditions(names: Sequence[str]) -> list[str]:
    for name in names:
        if name not in CONDITIONS:
            raise UsageError(f"condition '{name}' is unknown: choose from {', '.join(CONDITIONS)}")
    return list(names) or [name for name in CONDITIONS if name != "empty"]


def write_pages(folder: Path, digits: Digits, *, conditions: Sequence[str], count: int, seed: int) -> int:
    """Write PNG pages, conditions in turn, and ``labels.csv`` into a folder; return how many."""
    folder.mkdir(parents=True, exist_ok=True)
    hands, rounds = hands_of(digits), range(-(-count // len(conditions)))
    rows = [["file", "text", "digits", "condition"]]
    for number, condition in islice(product(rounds, conditions), count):
        rng = np.random.default_rng([seed, number, *condition.encode()])
        picture, text = make_page(hands, condition, rng)
        name = f"{condition}_{number:03d}.png"
        with atomic_write(folder / name) as stream:
            stream.write(cv2.imencode(".png", picture)[1].tobytes())
        rows.append([name, text.replace("\n", "|"), "".join(filter(str.isdigit, text)), condition])
    table = io.StringIO(newline="")
    csv.writer(table).writerows(rows)
    with atomic_write(folder / "labels.csv") as stream:
        stream.write(table.getvalue().encode())
    return len(rows) - 1
