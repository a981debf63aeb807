"""Why a digit or a line was read so.

A digit: which planes and places carried the answer, by taking them away. A piece is what one plane responds
within `REACH` cells of its strongest one. Its responses are set to 0, the rest of the network runs again by
its equations, and what the winning label's score loses is what it carried: nothing is approximated. The piece
that carried most goes first, what carries most without it follows, and so on. What the runner-up lacked is
found in the same way: pieces of UC3 rise to what its strongest plane of US4 has learned.

A line, as ``neocog read`` reads it: a character leads over the next best in its column by the sum of what
each plane of US4 says, (own_1 - own_2) y, and of what the head makes of the columns around, see
`neocog.network.lines.Head`. What the finder says of a digit, weighed in when it is read, comes to it.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil, sqrt
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from neocog.errors import InputError, NothingToRead, UsageError
from neocog.network.ctc import BLANK
from neocog.network.decision import answers
from neocog.network.engine import Engine
from neocog.network.line_engine import LineEngine
from neocog.network.lines import ALPHABET, LineModel, columns, log_likelihoods
from neocog.network.model import Model, load_model
from neocog.network.registry import DEFAULT
from neocog.network.spec import LABELS, REJECT, NetworkSpec
from neocog.network.u0 import DIGIT_SIZE, ENLARGED, MARGIN, u0_from_digits
from neocog.reading.numbers import TextLine, page_lines
from neocog.reading.pictures import Picture, pages_of
from neocog.reading.reader import Reader, read_page
from neocog.reading.records import DigitReading
from neocog.vision.crops import digit_of_box
from neocog.vision.decode import Page
from neocog.vision.page import turned, turned_back

Floats = NDArray[np.float32]

LAYERS = ("US4", "US3", "US2")  # whose pieces are named, from the answer down
REACH = 2  # rows and columns between a piece's strongest cell and the others: what a C-cell blurs into one
COUNT = 8  # pieces named for each layer
_MOST = 24  # pieces that are raised at most until the runner-up wins
_TRIED = 16  # pieces that mattered most before are tried again after one is gone; all would take seconds
_PLANES = 3  # named for each character of a line

_SIDE, _GAP, _HEAD, _LINE = 300, 14, 44, 18  # pixels: a panel, between two, of its titles, a line below it
_FOR, _LACKING = (213, 94, 0), (0, 114, 178)  # apart for most colour-blind readers (Okabe and Ito)
_WIDTH, _LARGEST = 1120, 136  # pixels of the sheet of maps, and of one of them at most
_FIRST, _STEP = -24, 4  # where column 0 looks, and each next: an isolated digit's middle is that of column 12
_LARGER, _LEFT, _TOP, _ROW = 4, 28, 30, 12  # pixels of a line's drawing: of one of ink, around it, of a row


@dataclass(frozen=True, slots=True)
class Piece:
    """What one plane responds near one place."""

    plane: int
    row: int  # of its strongest cell
    column: int
    ink: tuple[float, float]  # where that lies on the digit, x and y in pixels of 28 x 28
    alone: float  # share of the score (of the lead, for what is needed) lost by it alone
    left: float  # share that is left after it and those named before
    answer: int  # what is answered then, 10 for no digit


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """Why a digit was read so."""

    digit: NDArray[np.uint8]  # (28, 28)
    model: str
    label: int  # the strongest, 10 for no digit
    runner_up: int  # the strongest digit but for it
    p: float  # probability of the answer, 0 for no digit
    scores: Floats  # (10,) or (11,)
    pieces: dict[str, tuple[Piece, ...]]  # of each of `LAYERS` those that carried the score, most first
    heat: dict[str, Floats]  # (65, 65): where on U0 that is, for these layers and "needed"
    needed: tuple[Piece, ...]  # of UC3, that the runner-up lacked: with them it wins, or comes nearer
    maps: dict[str, Floats]  # every layer's responses, (1, K, H, W)
    printed: str = ""  # what ``neocog read`` prints of it: what stands around it counts there; "" if unknown

    def __repr__(self) -> str:
        return f"<Explanation: {str(self).splitlines()[0]}>"

    def __str__(self) -> str:
        own, other = _name(self.label), _name(self.runner_up)
        won, next_best = (f"{self.scores[i]:.3f}" for i in (self.label, self.runner_up))
        lines = [f"read as {own} by {self.model}, p {self.p:.3f}: score {won}; next {other}, {next_best}"]
        if self.printed not in ("", str(self.label)):
            lines[0] = f"printed as {self.printed}; on its own {lines[0]}"
        parts = {f"{layer}: what carried {own}; score left without it": p for layer, p in self.pieces.items()}
        parts[f"UC3: what {other} lacked; lead left with it"] = self.needed
        for title, pieces in parts.items():
            lines.append(title)
            for piece in pieces:
                place = f"  plane {piece.plane:3d} at x {piece.ink[0]:4.1f} y {piece.ink[1]:4.1f}"
                lines.append(f"{place}  {100 * max(piece.left, 0):3.0f} %   answer {_name(piece.answer)}")
        return "\n".join(lines)

    def _repr_png_(self) -> bytes | None:  # in a notebook
        return self.plot()._repr_png_()

    def to_dict(self) -> dict[str, Any]:
        """As ``neocog explain --json`` prints it."""
        return {
            "model": self.model, "label": self.label, "runner_up": self.runner_up, "printed": self.printed,
            "p": round(self.p, 4), "scores": [round(float(score), 5) for score in self.scores],
            "pieces": {layer: [asdict(piece) for piece in own] for layer, own in self.pieces.items()},
            "needed": [asdict(piece) for piece in self.needed],
        }  # fmt: skip

    def plot(self) -> Image.Image:
        """Draw the ink with the scores, a panel for each layer, and what the runner-up lacked."""
        own, other = _name(self.label), _name(self.runner_up)
        panels = [("", f"read as {own}, p {self.p:.3f}", f"next {other}; below, the scores of UC4")]
        panels += [(layer, f"{layer}: what carried {own}", "score lost without a place; left without 1 .. n")
                   for layer in self.pieces]  # fmt: skip
        panels[1] = (*panels[1][:2], "score lost without a place of UC3")
        panels += [("needed", f"UC3: what {other} lacked", "lead lost with a place; left with 1 .. n")]
        lines = max(len(self.scores), len(self.needed), *(len(own) for own in self.pieces.values()))
        size = len(panels) * (_SIDE + _GAP) + _GAP, 2 * _GAP + _HEAD + _SIDE + (lines + 1) * _LINE
        out = Image.new("RGB", size, "white")
        draw, small = ImageDraw.Draw(out), ImageFont.load_default(13)
        # dark ink, but not so dark that colours drown
        paper = (255 - 0.62 * _resized(self.digit.astype(np.float32)))[..., None].repeat(3, axis=2)
        for number, (key, title, what) in enumerate(panels):
            left, top, below = _GAP + number * (_SIDE + _GAP), _GAP + _HEAD, _GAP + _HEAD + _SIDE - 12
            colour, shade = _LACKING if key == "needed" else _FOR, np.ones(1)
            if key:
                heat = self.heat[key][MARGIN : MARGIN + ENLARGED, MARGIN : MARGIN + ENLARGED]
                strength = _resized(heat / max(float(heat.max()), 1e-9))[..., None]
                shade = 1 - strength * (1 - np.array(colour) / 255)  # ink shows through
            out.paste(Image.fromarray((shade * paper).astype(np.uint8)), (left, top))
            draw.text((left + 2, _GAP), title, "black", ImageFont.load_default(17))
            draw.text((left + 2, _GAP + 22), what, (90, 90, 90), small)
            pieces = self.needed if key == "needed" else self.pieces.get(key, ())
            for i, piece in reversed(list(enumerate(pieces, 1))):
                words = f"{i}  plane {piece.plane}: {100 * max(piece.left, 0):.0f} % left"
                words += f", then {_name(piece.answer)}" if piece.answer != self.label else ""
                draw.text((left + 2, below + i * _LINE), words, "black", small)
                if key != "US4":
                    x, y = (at + _SIDE * (own + 0.5) / DIGIT_SIZE
                            for at, own in zip((left, top), piece.ink, strict=True))  # fmt: skip
                    draw.ellipse((x - 9, y - 9, x + 9, y + 9), fill=colour, outline="white")
                    draw.text((x, y), str(i), "white", ImageFont.load_default(12), "mm")
            for label, score in enumerate(() if key else self.scores.tolist()):
                y = below + (label + 1) * _LINE
                colour = {self.label: _FOR, self.runner_up: _LACKING}.get(label, (150, 150, 150))
                long = 190 * score / max(float(self.scores.max()), 1e-9)
                draw.text((left + 2, y), str(label) if label < REJECT else "none", "black", small)
                draw.rectangle((left + 40, y + 3, left + 40 + long, y + 13), fill=colour)
                draw.text((left + 240, y), f"{score:.3f}", "black", small)
        return out

    def plot_maps(self) -> Image.Image:
        """Draw every plane of every layer, square roots of shares of its strongest response."""
        import cv2

        bands, font = [], ImageFont.load_default(11)
        for layer, (response,) in self.maps.items():
            if layer == "UC4":
                continue
            planes, size = response.shape[:2]
            across = max(8, ceil(sqrt(2 * planes)))
            tile = min(_LARGEST, _WIDTH // across) - 2
            band = Image.new("RGB", (_WIDTH, _HEAD + ceil(planes / across) * (tile + 2)), "black")
            draw, strongest = ImageDraw.Draw(band), max(float(response.max()), 1e-9)
            words = f"{layer}   {planes} x {size} x {size}, strongest response {strongest:.3f}"
            draw.text((2, 14), words, "white", ImageFont.load_default(17))
            for plane, values in enumerate(response):
                grey = (255 * np.sqrt(values / strongest)).astype(np.uint8)
                large = cv2.resize(grey, (tile, tile), interpolation=cv2.INTER_NEAREST)
                colours = np.asarray(cv2.applyColorMap(large, cv2.COLORMAP_INFERNO))[..., ::-1]
                left, top = plane % across * (tile + 2), _HEAD + plane // across * (tile + 2)
                band.paste(Image.fromarray(np.ascontiguousarray(colours)), (left, top))
                draw.text((left + 3, top + 1), str(plane), (170, 170, 170), font)
                draw.rectangle((left, top, left + tile - 1, top + tile - 1), outline=(60, 60, 60))
            bands.append(np.asarray(band))
        return Image.fromarray(np.concatenate(bands))


def explain(
    picture: Picture, *, digit: int = 1, model: str | Path | Model | None = None, count: int = COUNT
) -> Explanation:
    """Explain how a digit of a picture was read.

    Parameters
    ----------
    picture : str, Path, bytes, PIL image or ndarray
        A picture of a page; or one digit as the network gets it, uint8 (28, 28), ink 255.
    digit : int
        Which digit or ``?`` of those that the page is read as, from 1.
    model : str, Path or Model, optional
        One of digits, by which the page is read too; by default ``neocog``, where a line model reads.
    count : int
        Pieces named for each layer.

    Raises
    ------
    NothingToRead
        If the page has no digits, or no plane of US4 responds to this one.
    UsageError
        If it has not so many digits.
    """
    loaded = model if isinstance(model, Model) else load_model(model or DEFAULT)
    if isinstance(picture, np.ndarray) and picture.shape == (DIGIT_SIZE, DIGIT_SIZE):
        if picture.dtype != np.uint8:
            raise InputError(f"got a digit of {picture.dtype}, expected uint8, ink 255 on paper 0")
        return explain_digit(picture, Engine(loaded), count=count)
    reader = Reader(None if model is None else loaded, device="cpu")
    page = next(pages_of(picture, reader.longest))
    reading = read_page(reader, "", page, 0.0)
    if not reading.digits:
        raise NothingToRead("no digits in the picture; give one that 'neocog read' finds digits in")
    if not 1 <= digit <= len(reading.digits):
        raise UsageError(f"digit {digit} does not exist; choose 1 to {len(reading.digits)}")
    own, upright = reading.digits[digit - 1], turned(page.grey, reading.turn)
    scaled = np.multiply(own.box, 2 * page.scales).tolist()
    box = turned_back(scaled, -reading.turn % 360, *upright.shape[::-1])
    found = explain_digit(digit_of_box(upright, np.array(box, np.float32)), Engine(loaded), count=count)
    return replace(found, printed=own.char)


def explain_digit(digit: NDArray[np.uint8], engine: Engine, *, count: int = COUNT) -> Explanation:
    """Explain how one digit (28, 28) is read; see :func:`explain`."""
    maps = engine.maps(u0_from_digits(digit[None]))
    scores = engine.scores_from("US4", maps["US4"].transpose(0, 2, 3, 1))
    label = int(scores[0].argmax())
    runner_up = next(int(i) for i in np.argsort(-scores[0, :LABELS], kind="stable") if i != label)
    if scores[0, label] <= 0:
        raise NothingToRead("no plane of US4 responds to this digit: there is nothing to explain")
    spec, pieces, heat = engine.model.spec, dict[str, tuple[Piece, ...]](), dict[str, Floats]()
    for layer in LAYERS:
        u = maps[layer][0].transpose(1, 2, 0)
        pieces[layer], alone = carriers(engine, layer, u, np.zeros_like(u), lambda s: s[:, label], count)
        heat[layer] = _heat(spec, layer, alone)
    # where on U0 the label hears: each place of UC3 taken away, all planes
    u = maps["UC3"][0].transpose(1, 2, 0)
    rows, places = np.nonzero(u.any(axis=2))
    without = np.repeat(u[None], len(rows), axis=0)
    without[np.arange(len(rows)), rows, places] = 0
    lost = 1 - engine.scores_from("UC3", without)[:, label] / engine.scores_from("UC3", u[None])[0, label]
    shares, lacked = np.zeros((2, *u.shape[:2]), np.float32)
    shares[rows, places] = np.maximum(lost, 0)
    heat["US4"] = _heat(spec, "UC3", shares)
    # what the runner-up lacked: UC3 rises to what its strongest plane has learned, until it wins
    own, s4 = np.flatnonzero(engine.model.labels == runner_up), engine.model.s[3]
    us4 = maps["US4"][0, own]
    best, row, column = np.unravel_index(int(us4.argmax()), us4.shape)
    learned = s4.reference[own[best]].transpose(1, 2, 0)
    window = np.s_[row : row + len(learned), column : column + len(learned)]
    there, full = (float(np.sqrt((s4.c[:, :, None] * x * x).sum())) for x in (u[window], learned))
    target = u.copy()
    target[window] = np.maximum(u[window], learned * (there / max(full, 1e-9)))
    needed, _ = carriers(engine, "UC3", u, target, lambda s: s[:, label] - s[:, runner_up], _MOST)
    for piece in needed:
        lacked[piece.row, piece.column] += max(piece.alone, 0)
    heat["needed"] = _heat(spec, "UC3", lacked)
    p = float(answers(scores, temperature=engine.model.temperature).p[0])
    return Explanation(digit, engine.model.id, label, runner_up, p, scores[0], pieces, heat, needed, maps)


def split(u: Floats) -> list[tuple[NDArray[np.intp], NDArray[np.intp], int]]:
    """Split responses (H, W, K) into pieces: rows, columns of the cells, the strongest first; the plane."""
    pieces = []
    for plane in range(u.shape[2]):
        left = u[:, :, plane].copy()
        while left.any():
            row, column = divmod(int(left.argmax()), left.shape[1])
            top, first = max(row - REACH, 0), max(column - REACH, 0)
            near = left[top : row + REACH + 1, first : column + REACH + 1]
            rows, places = np.nonzero(near)
            order = np.argsort(-near[rows, places], kind="stable")
            pieces.append((rows[order] + top, places[order] + first, plane))
            near[:] = 0
    return pieces


def carriers(
    engine: Engine, layer: str, u: Floats, target: Floats, worth: Callable[[Floats], Floats], count: int
) -> tuple[tuple[Piece, ...], Floats]:
    """Name pieces of responses (H, W, K) that, as in ``target``, lower most what scores (B, n) are worth.

    The first lowers it most, each next does so after those before it. Returns them, and the shares (H, W)
    that the places carry.
    """
    pieces = split(np.abs(u - target))

    def changed(some: Sequence[int]) -> Floats:  # one piece each as in the target
        out = np.repeat(u[None], len(some), axis=0)
        for one, i in zip(out, some, strict=True):
            one[pieces[i]] = target[pieces[i]]
        return out

    whole = now = float(worth(engine.scores_from(layer, u[None]))[0])
    drops = now - worth(engine.scores_from(layer, changed(range(len(pieces)))))
    alone, named, shares = drops / whole, list[Piece](), np.zeros(u.shape[:2], np.float32)
    for cells, share in zip(pieces, alone, strict=True):
        strength = np.abs(u - target)[cells]
        shares[cells[:2]] += max(share, 0) * strength / strength.sum()
    tried = len(pieces) if layer == "US4" else _TRIED  # there only the strongest shows anything
    while len(named) < min(count, len(pieces)) and now > 0:
        if named:
            again = np.argsort(-drops, kind="stable")[:tried]
            drops[again] = now - worth(engine.scores_from(layer, changed(again.tolist())))
        best = int(drops.argmax())
        if drops[best] <= 0:
            break
        (u,) = changed([best])
        scores = engine.scores_from(layer, u[None])
        now = float(worth(scores)[0])
        row, column = int(pieces[best][0][0]), int(pieces[best][1][0])
        x, y = (round((at - MARGIN - 0.5) / 2, 1) for at in _on_u0(engine.model.spec, layer, column, row))
        answer = int(scores[0].argmax())
        named.append(Piece(pieces[best][2], row, column, (x, y), float(alone[best]), now / whole, answer))
    return tuple(named), shares


def _name(label: int) -> str:
    return str(label) if label < LABELS else "no digit"


def _on_u0(spec: NetworkSpec, layer: str, *at: float) -> tuple[float, ...]:
    """Where the middle of a cell's view lies on U0, for its row or column each."""
    rows = spec.layers()
    last = next(i for i, row in enumerate(rows) if row.name == layer)
    for row in reversed(rows[1 : last + 1]):
        assert row.kernel is not None
        at = tuple(row.stride * x + (row.kernel - 1) / 2 - row.padding for x in at)
    return at


def _heat(spec: NetworkSpec, layer: str, shares: Floats) -> Floats:
    """Spread shares of a layer's places (H, W) over U0: Gaussians that just run together."""
    at = np.array(_on_u0(spec, layer, *range(len(shares))))
    distance = np.arange(spec.size("U0"))[:, None] - at
    spread = np.exp(-0.5 * (distance / (0.6 * (at[1] - at[0]))) ** 2)
    return np.asarray(spread @ shares @ spread.T, np.float32)


def _resized(values: Floats) -> Floats:
    image = Image.fromarray(values.astype(np.float32))
    return np.asarray(image.resize((_SIDE, _SIDE), Image.Resampling.BILINEAR))


@dataclass(frozen=True, slots=True, repr=False)
class LineExplanation:
    """Why a line was read so."""

    facts: dict[str, Any]  # as ``neocog explain --json`` prints it
    strips: tuple[tuple[Floats, Floats], ...]  # ink (48, w), probabilities (T, n)

    def __str__(self) -> str:
        lines = [f"read as {self.facts['text']}, p {self.facts['p']:.3f}"]
        for c in self.facts["characters"]:
            lines.append("{char}  p {p:.3f}  strip {strip}, columns {first} to {last}".format(**c))
            if c["char"] != c["best"]:
                lines[-1] += f", perhaps {c['best']} ({c['reason']})"
            if "lead" in c:
                words = ", x {x}: {lead:+.2f} over {next}; planes {own:+.2f}, columns around {around:+.2f}"
                lines[-1] += f"{words}, finder {{finder:+.2f}}".format(**c)
            lines += ["     plane {plane:3d} ({label}) in row {row}: {response:.3f}  {lead:+.2f}".format(**p)
                      for p in c.get("planes", ())]  # fmt: skip
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """As ``neocog explain --json`` prints it."""
        return self.facts

    def plot(self) -> Image.Image:
        """Draw the characters over the ink of each strip, and how probable each and none is, by columns."""
        wide = max(strip.shape[1] for strip, _ in self.strips)
        high = _TOP + _LARGER * self.strips[0][0].shape[0] + _ROW * (BLANK + 1)
        out = Image.new("RGB", (_LEFT + _LARGER * wide, len(self.strips) * high), "white")
        draw, large, small = ImageDraw.Draw(out), ImageFont.load_default(22), ImageFont.load_default(11)
        for number, (strip, probabilities) in enumerate(self.strips):
            top, shares = number * high, probabilities[-_FIRST // _STEP :].T  # of columns that look at it
            ink, cells = (Image.fromarray((255 - 255 * part).astype(np.uint8)) for part in (strip, shares))
            below = top + _TOP + _LARGER * ink.height
            size = _LARGER * _STEP * cells.width, _ROW * cells.height
            out.paste(ink.resize((_LARGER * ink.width, _LARGER * ink.height)), (_LEFT, top + _TOP))
            out.paste(cells.resize(size, Image.Resampling.NEAREST), (_LEFT - _LARGER * _STEP // 2, below))
            for c in self.facts["characters"]:
                if c["strip"] == number + 1:
                    draw.text((_LEFT + _LARGER * c["x"], top + _TOP // 2), c["char"], "black", large, "mm")
            for row, char in enumerate([*ALPHABET, "none"]):
                draw.text((1, below + _ROW * row), char, "gray", small)
        return out


def explain_line(picture: Picture, *, line: int = 1, model: str | Path | LineModel) -> LineExplanation:
    """Explain how a line of a picture was read, from the top; UsageError if there are not so many."""
    reader = Reader(model, device="cpu")
    lines = page_lines(reader, next(pages_of(picture, reader.longest)))[0]
    if not lines:
        raise NothingToRead("no line in the picture; give one that 'neocog read' reads")
    if not 1 <= line <= len(lines):
        raise UsageError(f"line {line} does not exist; choose 1 to {len(lines)}")
    return explain_text(lines[line - 1], cast(LineEngine, reader.engine))


def explain_box(reader: Reader, page: Page, engine: LineEngine, box: Sequence[float]) -> LineExplanation:
    """Explain how what is in a box of a page's picture was read: of one line, the characters in it."""
    left, top, wide, high = box

    def inside(char: DigitReading) -> bool:
        x, y, w, h = char.box
        return left <= x + w / 2 <= left + wide and top <= y + h / 2 <= top + high

    lines = page_lines(reader, page)[0]
    best = max(lines, key=lambda line: sum(map(inside, line.chars)), default=None)
    if best is None or not any(map(inside, best.chars)):
        raise NothingToRead("nothing was read there: there is nothing to explain")
    return explain_text(best, engine, inside)


def explain_text(
    line: TextLine, engine: LineEngine, wanted: Callable[[DigitReading], bool] = lambda char: True
) -> LineExplanation:
    """Explain how a line was read, or those of its characters that are ``wanted``."""
    model, left_out = engine.model, line.unseen
    read = [c for k, c in enumerate(line.number.chars) if c.char != " " and k not in left_out]
    pairs = [(char, own) for char, own in zip(read, line.chars, strict=True) if wanted(own)]
    at = [line.places[min(char.first, len(line.places) - 1)] for char, _ in pairs]
    strips = list({id(strip): strip for strip, _ in at}.values())
    maps, characters, names = [engine.maps(strip.ink) for strip in strips], [], [*ALPHABET, "none"]
    for (char, own), (strip, begin) in zip(pairs, at, strict=True):
        number = next(k for k, other in enumerate(strips) if other is strip)
        z = maps[number]["Z"][:, : columns(strip.ink.shape[1])]
        last = min(begin + char.last - char.first, z.shape[1] - 1)
        first = min(begin, last)
        facts: dict[str, Any] = {
            "char": own.char, "best": char.char, "p": own.p, "reason": own.reason, "box": list(own.box),
            "strip": number + 1, "first": first, "last": last, "x": _FIRST + _STEP * first,
        }  # fmt: skip
        characters.append(facts)
        if char.char not in ALPHABET:  # of a pattern, where it is not looked for
            continue
        scores = z[:BLANK, first : last + 1]
        code = ALPHABET.index(char.char) if char.char else int(scores.max(axis=1).argmax())
        column = first + int(scores[code].argmax())
        others = np.argsort(-z[:BLANK, column], kind="stable").tolist()
        # what may have been left out leads over nothing
        other = next(k for k in others if k != code) if char.char else BLANK
        odds = line.logp[min(char.first + column - begin, len(line.logp) - 1)]
        said = (model.head.own[code] - model.head.own[other]) * maps[number]["UC4"][0, :, column]
        cells, lead = maps[number]["US4"][:, :, column], float(z[code, column] - z[other, column])
        facts |= {
            "best": ALPHABET[code], "x": _FIRST + _STEP * column, "next": names[other], "lead": lead,
            "own": float(said.sum()), "around": lead - float(said.sum()),
            "finder": model.temperature * float(odds[code] - odds[other]) - lead,
            "planes": [
                {"plane": int(k), "label": names[model.head.own[:, k].argmax()],
                 "row": int(cells[k].argmax()), "response": float(cells[k].max()), "lead": float(said[k])}
                for k in np.argsort(-np.abs(said), kind="stable")[:_PLANES]
            ],
        }  # fmt: skip
    words = [{"text": word.text, "p": word.p, "box": list(word.box)} for word in line.words]
    line_facts = {"model": model.id, "text": " ".join(word.text for word in line.words),
            "p": min(word.p for word in line.words), "words": words, "characters": characters}  # fmt: skip
    logs = (log_likelihoods(own["Z"], model.temperature) for own in maps)
    shown = [(s.ink, np.exp(log[: columns(s.ink.shape[1])])) for s, log in zip(strips, logs, strict=True)]
    return LineExplanation(line_facts, tuple(shown))
