"""Who writes: digits by writer, as pictures and as paths of a pen; real lines; one writer with one pen.

The folder of sets holds ``mnist``, ``hands/free`` (swiss, bhmsds, optdigits, pendigits) and ``lines/free``
(``qmnist-writers.txt.gz``, ``lectaurep``).
"""

import gzip
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.errors import InputError
from neocog.learning.datasets import Digits, read_idx, read_labels_csv
from neocog.learning.drawing.fields import Cover, Rng, inked, of_height
from neocog.learning.drawing.glyphs import HELD_OUT, Face, Running, allograph, segments, shape, styles_of
from neocog.learning.drawing.pen import Pen, Strokes, any_pen, ink, read_strokes, rounded
from neocog.network.lines import ALPHABET
from neocog.text import reason_of, tell
from neocog.vision.decode import decode
from neocog.vision.strips import rows_of

ByDigit = dict[int, list[int]]

THANKS = {  # sets, and whom a card thanks for them
    "mnist": "MNIST (LeCun, Cortes, Burges), its writers from QMNIST (Yadav, Bottou; BSD)",
    "swiss": "kensanata/numbers (CC0)",
    "bhmsds": "BHMSDS (wblachowski/bhmsds, MIT)",
    "optdigits": "Optical Recognition of Handwritten Digits (Alpaydin, Kaynak; UCI, CC BY 4.0)",
    "pendigits": "Pen-Based Recognition of Handwritten Digits (Alpaydin, Alimoglu; UCI, CC BY 4.0)",
    "own": "corrected lines of the user's",
    "lectaurep": "Lectaurep Repertoires (HTR-United, CC BY 4.0)",
}

_SHARES = {"mnist": 0.5, "swiss": 0.28, "bhmsds": 0.14, "optdigits": 0.08}
_WRITERS = "train-writers.txt.gz"
_MOST_OF_A_TEXT = 60  # real lines of one text: a fifth of a register is 2.20


@dataclass(frozen=True, slots=True)
class Pictures:
    """A set of digits as pictures, its writers' digits and everybody's."""

    images: NDArray[np.uint8]
    writers: list[ByDigit]
    every: ByDigit
    share: float  #: of lines that are drawn from it


@dataclass(frozen=True)
class Hands:
    """All hands that may write: those to learn from, or with ``held`` those that are kept apart."""

    sets: dict[str, Pictures]
    strokes: Strokes
    pens: list[ByDigit]  #: writers with a pen's path of every digit
    every: ByDigit
    styles: list[list[int]] = field(default_factory=list)  #: allographs of each digit

    def counts(self, lines: int = 0) -> dict[str, int]:
        """Digits of each set, and of real lines their number where there are any."""
        own = {name: own.every for name, own in self.sets.items()} | {"pendigits": self.every}
        found = {name: sum(map(len, every.values())) for name, every in own.items()}
        return found | {"lectaurep": lines} if lines else found


def load_hands(folder: Path, *, held: bool = False) -> Hands:
    """Load the hands of a folder of sets; InputError if there are none."""
    sets = {}
    for name, share in _SHARES.items():
        place = folder / name if name == "mnist" else folder / "hands/free" / name
        names = folder / "lines/free/qmnist-writers.txt.gz" if name == "mnist" else place / _WRITERS
        if place.is_dir() and (not held or name in HELD_OUT["writers"]):
            digits = read_idx(place / "train-images-idx3-ubyte.gz")
            by, every = _by_writer(name, digits.labels, names, held)
            sets[name] = Pictures(digits.images, [own for own in by if len(own) >= 6], every, share)
    place = folder / "hands/free/pendigits"
    if not sets or not place.is_dir():
        raise InputError(f"{folder}: no hands; expected mnist and hands/free/pendigits (data/README.md)")
    labels = read_idx(place / "train-images-idx3-ubyte.gz").labels
    by, every = _by_writer("pendigits", labels, place / _WRITERS, held)
    pens, known = [own for own in by if len(own) == 10], [range(styles_of(d, rare=True)) for d in range(10)]
    styles = [[k for k in own if ([d, k] in HELD_OUT["styles"]) == held] for d, own in enumerate(known)]
    return Hands(sets, read_strokes(place / "strokes.npz"), pens, every, styles)


def hands_of(*sets: Digits) -> Hands:
    """One hand that writes with all digits of some sets, as they are; InputError if there is no ink."""
    own = {}
    for digits in sets:
        inked = np.flatnonzero(digits.images.max(axis=(1, 2), initial=0) > 100)
        every = {d: inked[digits.labels[inked] == d].tolist() for d in range(10)}
        if not len(inked):
            raise InputError(f"{digits.name}: no digit has ink to write with; choose another set")
        own[digits.name] = Pictures(digits.images, [every], every, len(inked))
    none = np.zeros(1, np.int32)
    return Hands(own, Strokes(np.zeros((0, 2), np.int16), none, none), [], {}, [[] for _ in range(10)])


def _by_writer(name: str, labels: NDArray[np.int64], file: Path, held: bool) -> tuple[list[ByDigit], ByDigit]:
    try:
        writers = gzip.decompress(file.read_bytes()).decode().split()
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"{file}: no list of writers ({reason_of(error)})") from None
    by: dict[str, ByDigit] = {}
    for k, (label, writer) in enumerate(zip(labels.tolist(), writers, strict=False)):
        if (writer in HELD_OUT["writers"].get(name, ())) == held:
            by.setdefault(writer, {}).setdefault(label, []).append(k)
    return [*by.values()], {d: [k for own in by.values() for k in own.get(d, ())] for d in range(10)}


Line = tuple[NDArray[np.uint8], str]  #: grey of a line (rows, w), or its ink, and what it says


def real_lines(folder: Path, rows: int, *, held: bool = False) -> list[Line]:
    """Lines of lectaurep, grey (``rows``, w), and what they say but for spaces; none without that folder."""
    found: list[Line] = []
    seen: Counter[str] = Counter()
    for path in sorted((folder / "lines/free/lectaurep").glob("*.npz")):
        try:
            with np.load(path) as file:  # each look into it unpacks
                images, start, texts, pages = (file[name] for name in ("images", "start", "text", "page"))
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise InputError(f"{path}: no lines of lectaurep ({reason_of(error)})") from None
        for k, (text, page) in enumerate(zip(map(str, texts), map(str, pages), strict=True)):
            text = text.replace(" ", "")
            seen[text] += (page in HELD_OUT["pages"]) == held
            if not text or (page in HELD_OUT["pages"]) != held or (not held and seen[text] > _MOST_OF_A_TEXT):
                continue
            grey = np.asarray(cv2.imdecode(images[start[k] : start[k + 1]], cv2.IMREAD_GRAYSCALE))
            found.append((_strip(grey, rows), text))
    return found


def own_lines(folder: Path, rows: int) -> list[Line]:
    """Lines of ``lines/own``, such as `neocog serve` keeps, grey (``rows``, w); none without that folder."""
    table = folder / "lines/own/labels.csv"
    if not table.is_file():
        return []
    told = read_labels_csv(table)
    if told.texts is None:
        raise InputError(f"{table}: no column 'text', which says what stands in each line")
    pairs = list(zip(told.files, told.texts, strict=True))
    known = [(file, text) for file, text in pairs if text and {*text} <= {*ALPHABET}]
    if len(known) < len(pairs):
        less, others = len(pairs) - len(known), "".join(sorted({*"".join(told.texts)} - {*ALPHABET}))
        why = f"empty, or with a character that no line has{others and f' ({others[:20]})'}"
        tell(f"{less} of {len(pairs)} own lines are left out: {why}")
    return [(_strip(next(decode(file)).grey, rows), text) for file, text in known]


def _strip(grey: NDArray[Any], rows: int) -> NDArray[np.uint8]:
    return of_height(grey[slice(*rows_of(grey))], rows)


Paths = Sequence[NDArray[np.floating[Any]]]
Point = NDArray[np.float32]

_SMALL = {"x": 0.62, "+": 0.75, "=": 0.8, "*": 0.6}
_SEGMENTED = 0.02  # of the hands, which write digits as displays show them
_BOW = 0.06  # standard deviation of how strokes bend


class Drawn(NamedTuple):
    """Ink, where it is about the left of its character on the baseline, and the ends of its path if any."""

    cover: Cover
    left: int
    top: int
    begin: Point | None = None
    end: Point | None = None


class Hand:
    """A writer. Widths are shares of the height of a digit."""

    def __init__(self, hands: Hands, rng: Rng, *, pen: Pen | None = None) -> None:
        self.hands, self.rng, self.pen = hands, rng, pen or any_pen(rng)
        usual, far = rng.random() < 0.8, 1.6 if rng.random() < 0.2 else 0.9  # tangents: 58 and 42 degrees
        self.slant = rng.normal(0.12, 0.2) if usual else rng.uniform(-0.35, far)
        self.wide = float(np.exp(rng.normal(-0.04, 0.16)))
        self.bow = rng.normal(0, _BOW, (3, 2))
        self.unsteady, self.tremor = rng.uniform(0, 0.06), max(0.0, rng.uniform(-0.01, 0.01))
        self.width = min(self.pen.width, 0.17)
        self.by_pen = not hands.sets or (len(hands.strokes) > 0 and rng.random() < 0.45)
        self.in_style = any(hands.styles) and rng.random() < (0.5 if self.by_pen else 0.16)
        self.segmented = rng.random() < _SEGMENTED
        self.bars = 0.9 if rng.random() < 0.15 else 0.05  # of the ones, written as one straight stroke
        self.ones = rng.uniform(0, 0.5) if rng.random() < 0.1 else 0.0  # that they lean more
        self.styles: dict[int, int] = {}
        one = rng.random() < 0.8
        if self.by_pen:
            self.own = hands.pens[rng.integers(len(hands.pens))] if one and hands.pens else hands.every
        else:
            shares = np.array([each.share for each in hands.sets.values()])
            chosen = list(hands.sets.values())[int(rng.choice(len(shares), p=shares / shares.sum()))]
            self.pictures = chosen
            self.own = chosen.writers[rng.integers(len(chosen.writers))] if one else chosen.every
            self.level, self.soft = rng.uniform(0.2, 0.62), rng.uniform(2.5, 6)
            self.width = 0.0  # that of the first picture's strokes
        self.slash = (rng.uniform(0.9, 1.5), rng.uniform(0.2, 0.75), rng.uniform(-0.1, 0.25))
        self.dash = (rng.uniform(0.2, 0.75), rng.uniform(0.4, 0.62))
        self.dot = rng.uniform(0.8, 1.7)
        self.comma = (rng.uniform(0.16, 0.36), rng.uniform(0.02, 0.22))
        self.curl = rng.random() < 0.5
        self.form: dict[str, tuple[int, float, float]] = {}
        self.running = Running(rng)
        self.letters, self.style = dict[str, Point](), 0.0  # how far its letters are bent

    def character(self, char: str, high: float) -> Drawn:
        """Draw a digit, ``00`` in one go, or a sign, the baseline at 0."""
        digit, rng = char.isdigit(), self.rng
        self.measure()
        stroke = char == "1" and not self.segmented and rng.random() < self.bars
        pictured = not self.by_pen and not self.segmented and not (self.in_style and rng.random() < 0.5)
        if pictured and digit and len(char) == 1 and not stroke:
            return self._pictured(int(char), high)
        width = self.width if digit else self.width * rng.uniform(0.75, 1.25)
        if char in ".:":
            width = max(0.06, self.width * self.dot * rng.uniform(0.85, 1.15))
        if not digit:
            return self.drawn(self.sign(char, high), width * high)
        lean = self.ones if char == "1" else 0.0
        return self.drawn(self.digit(char, high, stroke), width * high, lean, bent=True)

    def drawn(self, strokes: Paths, width: float, lean: float = 0.0, *, bent: bool = False) -> Drawn:
        """Draw strokes, slanted about the baseline; ``bent``: and as this hand bends them."""
        rng, points = self.rng, np.concatenate(strokes)
        slant = self.slant + lean + rng.normal(0, self.unsteady)
        if bent:
            low, top = points.min(0), points.max(0)
            half = max(float((top - low).max()) / 2, 1e-6)
            u, v = ((points - (low + top) / 2) / half).T
            points = points + np.stack([u * v, u * u, v * v], 1) @ self.bow * half
            points += rng.normal(0, 1, points.shape) * 2 * half * self.tremor
        points = (points - points[:, 1:] * [slant, 0]).astype(np.float32)
        moved = np.split(points, np.cumsum([len(line) for line in strokes])[:-1])
        cover, left, top_row = ink(moved, max(0.45, width), self.pen, rng)
        return Drawn(cover, left, top_row, moved[0][0], moved[-1][-1])

    def digit(self, char: str, high: float, stroke: bool = False) -> Paths:
        """Paths of a digit (of a 1 as a ``stroke``), or of ``00``: (n, 2), the baseline at 0, up negative."""
        rng, hands = self.rng, self.hands
        if char == "00":
            t = np.linspace(0, 4 * np.pi, 60)
            x = rng.uniform(0.5, 0.8) * np.clip(t - 1.5 * np.pi, 0, 0.9 * np.pi) / (0.9 * np.pi) * 1.1
            r = rng.uniform(0.24, 0.4) * self.wide
            size = np.where(t > 2 * np.pi, rng.uniform(0.8, 1), 1)
            line = np.stack([x + r - r * np.sin(t + 0.5), -0.5 - 0.5 * np.cos(t + 0.5) * size], 1)
            return [(line * high).astype(np.float32)]
        d = int(char)
        raw: Paths
        if stroke:
            raw = [np.stack([np.cumsum(rng.normal(0, 0.025, 3)), [0, rng.uniform(0.3, 0.7), 1]], 1)]
        elif self.segmented:
            raw = segments(d, rng)
        elif ((self.in_style and rng.random() < 0.8) or not self.by_pen) and hands.styles[d]:
            if d not in self.styles:
                self.styles[d] = int(rng.choice(hands.styles[d]))
            raw = allograph(d, self.styles[d], rng)
        else:
            pool = (self.own.get(d) if self.by_pen else None) or hands.every[d]
            paths = hands.strokes.lines(pool[rng.integers(len(pool))])
            raw = [rounded(line, 2 if high > 60 else 1) for line in paths]
        every = np.concatenate(raw)
        low, up = every.min(0), every.max(0)
        side = max(up[1] - low[1], (up[0] - low[0]) * 0.75, 1e-3)
        size = np.array([self.wide * high, high]) / side
        return [((line - [low[0], up[1]]) * size).astype(np.float32) for line in raw]

    def sign(self, char: str, high: float) -> Paths:
        """Paths of a sign, as those of a digit of that height."""
        rng = self.rng

        def about(spread: float = 0.03) -> float:
            return float(rng.normal(0, spread))

        if char == "÷":
            dots = ([[0.22, y], [0.24, y + 0.02]] for y in (-0.74, -0.26))
            lines = [[[0, -0.5], [0.45, -0.5 + about()]], *dots]
        elif char == "/":
            tall, lean, sink = self.slash
            lines = [[[lean + about(), sink - tall], [about(), sink]]]
        elif char == "-":
            long, at = self.dash
            lines = [[[0, about() - at], [long * (1 + about(0.1)), about() - at]]]
        elif char == ".":
            y = about()
            lines = [[[0, y], [rng.uniform(0, 0.05), y + about(0.02)]]]
        elif char == ":":
            upper = -rng.uniform(0.35, 0.6)
            lines = [[[0, y], [0.02, y + about(0.01)]] for y in (about() - 0.08, upper)]
        elif char == ",":
            (long, back), top = self.comma, about() - 0.03
            if self.curl:
                lines = [[[0.03, top], [0.08, top + 0.03], [0.06, top + long * 0.6], [-back, top + long]]]
            else:
                lines = [[[0.05, top], [0.05 - back, top + long]]]
        else:
            forms = shape(char)
            if char not in self.form:
                size, lift = _SMALL.get(char, 1.0) * rng.uniform(0.75, 1.15), rng.normal(0, 0.05)
                self.form[char] = int(rng.integers(len(forms))), size, lift
            which, size, lift = self.form[char]
            wide = [rng.uniform(0.6, 1.1), rng.uniform(1, 1.3)] if char in "()" else [1, 1]
            down = [0, 0.12 if char in "()" else -(1 - size) / 2 - lift if char in "+=*" else 0]
            moved = [(line - [0, 1]) * size * wide + down for line in forms[which]]
            return [rounded((line + rng.normal(0, 0.02, line.shape)) * high, 2) for line in moved]
        return [(np.array(line) * high).astype(np.float32) for line in lines]

    def letter(self, char: str, high: float, face: Face | None = None) -> Drawn:
        """Draw a letter, alone; of another script from a typeface."""
        strokes = [*(face.strokes(char) if face else (line - [0, 1] for line in shape(char)[0]))]
        size = high * np.exp(self.rng.normal(0, 0.1, 2)) * [self.wide, 1]
        if self.style:
            if char not in self.letters:
                self.letters[char] = self.rng.normal(0, self.style, (3, 2)).astype(np.float32)
            for k, line in enumerate(strokes):
                u, v = (line - [0.3, -0.5]).T
                strokes[k] = line + np.stack([u * v, u * u, v * v], 1) @ self.letters[char]
        shaken = [rounded((line + self.rng.normal(0, 0.02, line.shape)) * size, 2) for line in strokes]
        return self.drawn(shaken or [np.zeros((2, 2))], self.measure() * high, bent=True)

    def word(self, word: str, high: float) -> Drawn:
        """Draw a word whose letters hang together."""
        return self.drawn([line * high for line in self.running.word(word)], self.measure() * high)

    def measure(self) -> float:
        """Width of the pen, a share of the height; it writes signs as wide as the strokes of its pictures."""
        if self.width == 0:
            known = [digit for digit, places in self.own.items() if places]
            cover = self._pictured(int(self.rng.choice(known)), 56.0).cover
            depth = cv2.distanceTransform((cover > 0.5).astype(np.uint8), cv2.DIST_L2, 3)
            ridge = depth[depth > 0.6 * depth.max()]
            width = 2 * ridge.mean() * self.rng.uniform(0.8, 1.1) / 56 if ridge.size else 0.09
            self.width = float(np.clip(width, 0.023, 0.17))
        return self.width

    def _pictured(self, d: int, high: float) -> Drawn:
        """Draw a digit of a set of pictures, slanted, as hard and as wide of stroke as the hand's."""
        rng = self.rng
        pool = self.own.get(d) or self.pictures.every[d]
        glyph = self.pictures.images[pool[rng.integers(len(pool))]]
        rows, cols = np.flatnonzero(glyph.max(1) > 60), np.flatnonzero(glyph.max(0) > 60)
        y0, y1, x0, x1 = rows[0], rows[-1] + 1, cols[0], cols[-1] + 1
        scale = high / max(y1 - y0, (x1 - x0) * 0.75)
        across, tall, lean = scale * self.wide, scale * (y1 - y0), self.slant * 0.9
        shift = max(0.0, -lean * tall) + 3
        move = [[across, -lean * scale, shift - across * x0 + lean * scale * y1], [0, scale, 3 - scale * y0]]
        size = (int(across * (x1 - x0) + abs(lean * tall)) + 6, int(tall) + 6)
        cover = cv2.warpAffine(glyph, np.array(move, np.float32), size, flags=cv2.INTER_CUBIC)
        soft = self.soft * max(1.0, scale / 3)
        cover = np.clip((inked(cover) - self.level) * soft + 0.5, 0, 1)
        if self.pen.grain and rng.random() < 0.5:
            self.pen.roughen(cover, rng)
        return Drawn(np.asarray(cover, np.float32), -int(shift), 3 - size[1])
