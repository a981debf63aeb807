"""Why a digit was read so: which planes and places carried the answer, by taking them away.

A piece is what one plane responds within `REACH` cells of its strongest one. Its responses are set to 0, the
rest of the network runs again by its equations, and what the winning label's score loses is what it carried:
nothing is approximated. The piece that carried most goes first, what carries most without it follows, and so
on. What the runner-up lacked is found in the same way: pieces of UC3 rise to what its strongest plane of US4
has learned.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from neocog.errors import InputError, NothingToRead, UsageError
from neocog.network.decision import answers
from neocog.network.engine import Engine
from neocog.network.model import Model, load_model
from neocog.network.registry import DEFAULT
from neocog.network.spec import LABELS, REJECT, NetworkSpec
from neocog.network.u0 import DIGIT_SIZE, ENLARGED, MARGIN, u0_from_digits

if TYPE_CHECKING:
    from neocog.reading.pictures import Picture

Floats = NDArray[np.float32]

LAYERS = ("US4", "US3", "US2")  # whose pieces are named, from the answer down
REACH = 2  # rows and columns between a piece's strongest cell and the others: what a C-cell blurs into one
COUNT = 8  # pieces named for each layer
_MOST = 24  # pieces that are raised at most until the runner-up wins
_TRIED = 16  # pieces that mattered most before are tried again after one is gone; all would take seconds

_SIDE = 300  # pixels of a panel
_GAP = 14
_HEAD, _LINE = 44, 18  # rows above a panel, and of a line below
_FOR, _LACKING = (213, 94, 0), (0, 114, 178)  # apart for most colour-blind readers (Okabe and Ito)
_WIDTH = 1120  # of the sheet of maps
_LARGEST = 136  # pixels of a map


def name(label: int) -> str:
    """Say a label."""
    return str(label) if label < LABELS else "no digit"


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
        won, next_best = (f"{self.scores[i]:.3f}" for i in (self.label, self.runner_up))
        lines = [f"read as {name(self.label)}, p {self.p:.3f}: score {won}; "
                 f"next {name(self.runner_up)}, {next_best}"]  # fmt: skip
        if self.printed not in ("", str(self.label)):
            lines[0] = f"printed as {self.printed}; on its own {lines[0]}"
        parts = {f"{layer}: what carried {name(self.label)}; score left without it": pieces
                 for layer, pieces in self.pieces.items()}  # fmt: skip
        parts[f"UC3: what {name(self.runner_up)} lacked; lead left with it"] = self.needed
        for title, pieces in parts.items():
            lines.append(title)
            for piece in pieces:
                place = f"  plane {piece.plane:3d} at x {piece.ink[0]:4.1f} y {piece.ink[1]:4.1f}"
                lines.append(f"{place}  {100 * max(piece.left, 0):3.0f} %   answer {name(piece.answer)}")
        return "\n".join(lines)

    def _repr_png_(self) -> bytes | None:  # in a notebook
        return self.plot()._repr_png_()

    def to_dict(self) -> dict[str, Any]:
        """As ``neocog explain --json`` prints it."""
        facts: dict[str, Any] = {"model": self.model, "label": self.label, "runner_up": self.runner_up}
        facts |= {
            "printed": self.printed,
            "p": round(self.p, 4),
            "scores": [round(float(score), 5) for score in self.scores],
        }
        facts["pieces"] = {layer: [asdict(p) for p in own] for layer, own in self.pieces.items()}
        return facts | {"needed": [asdict(piece) for piece in self.needed]}

    def plot(self) -> Image.Image:
        """Draw the ink with the scores, a panel for each layer, and what the runner-up lacked."""
        panels = [self._scores()]
        for layer, pieces in self.pieces.items():
            title, what = f"{layer}: what carried {name(self.label)}", "score lost without a place"
            what += " of UC3" if layer == "US4" else "; left without 1 .. n"
            panels.append(self._panel(layer, title, what, pieces, _FOR))
        title, what = f"UC3: what {name(self.runner_up)} lacked", "lead lost with a place; left with 1 .. n"
        panels.append(self._panel("needed", title, what, self.needed, _LACKING))
        high = max(panel.height for panel in panels)
        out = Image.new("RGB", (len(panels) * (_SIDE + _GAP) + _GAP, high + 2 * _GAP), "white")
        for number, panel in enumerate(panels):
            out.paste(panel, (_GAP + number * (_SIDE + _GAP), _GAP))
        return out

    def plot_maps(self) -> Image.Image:
        """Draw every plane of every layer, square roots of shares of its strongest response."""
        bands = [_band(layer, own[0]) for layer, own in self.maps.items() if layer != "UC4"]
        return Image.fromarray(np.concatenate([np.asarray(band) for band in bands]))

    def _panel(
        self, layer: str, title: str, what: str, pieces: Sequence[Piece], colour: tuple[int, int, int]
    ) -> Image.Image:
        heat = self.heat[layer][MARGIN : MARGIN + ENLARGED, MARGIN : MARGIN + ENLARGED]
        strength = _resized(heat / max(float(heat.max()), 1e-9))[..., None]
        shade = 1 - strength * (1 - np.array(colour) / 255)  # ink shows through
        out, draw = self._empty(title, what, len(pieces), shade)
        marked = () if layer == "US4" else pieces
        for number, piece in reversed(list(enumerate(marked, start=1))):
            x, y = (_SIDE * (at + 0.5) / DIGIT_SIZE for at in piece.ink)
            y += _HEAD
            draw.ellipse((x - 9, y - 9, x + 9, y + 9), fill=colour, outline="white")
            draw.text((x, y), str(number), fill="white", font=ImageFont.load_default(12), anchor="mm")
        for number, piece in enumerate(pieces, start=1):
            words = f"{number}  plane {piece.plane}: {100 * max(piece.left, 0):.0f} % left"
            words += f", then {name(piece.answer)}" if piece.answer != self.label else ""
            at = (2, _HEAD + _SIDE + number * _LINE - 12)
            draw.text(at, words, fill="black", font=ImageFont.load_default(13))
        return out

    def _scores(self) -> Image.Image:
        """The ink, and a bar for each label's score."""
        title = f"read as {name(self.label)}, p {self.p:.3f}"
        what = f"next {name(self.runner_up)}; below, the scores of UC4"
        out, draw = self._empty(title, what, len(self.scores), 1)
        font, most = ImageFont.load_default(13), max(float(self.scores.max()), 1e-9)
        for label, score in enumerate(self.scores):
            top = _HEAD + _SIDE + (label + 1) * _LINE - 12
            colour = {self.label: _FOR, self.runner_up: _LACKING}.get(label, (150, 150, 150))
            draw.text((2, top), name(label) if label < REJECT else "none", fill="black", font=font)
            draw.rectangle((40, top + 3, 40 + 190 * float(score) / most, top + 13), fill=colour)
            draw.text((240, top), f"{score:.3f}", fill="black", font=font)
        return out

    def _empty(
        self, title: str, what: str, lines: int, shade: NDArray[np.float64] | int
    ) -> tuple[Image.Image, ImageDraw.ImageDraw]:
        """A panel with its titles and the digit, as dark ink, but not so dark that colours drown."""
        out = Image.new("RGB", (_SIDE, _HEAD + _SIDE + (lines + 1) * _LINE), "white")
        paper = (255 - 0.62 * _resized(self.digit.astype(np.float32)))[..., None]
        out.paste(Image.fromarray((shade * paper.repeat(3, axis=2)).astype(np.uint8)), (0, _HEAD))
        draw = ImageDraw.Draw(out)
        draw.text((2, 0), title, fill="black", font=ImageFont.load_default(17))
        draw.text((2, 22), what, fill=(90, 90, 90), font=ImageFont.load_default(13))
        return out, draw


def explain(
    picture: "Picture", *, digit: int = 1, model: "str | Path | Model | None" = None, count: int = COUNT
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
    from neocog.reading.numbers import read_page
    from neocog.reading.pictures import pages_of
    from neocog.reading.reader import Reader
    from neocog.vision.crops import digit_of_box
    from neocog.vision.page import turned, turned_back

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
    spec, pieces, heat = engine.model.spec, {}, {}
    for layer in LAYERS:
        u = maps[layer][0].transpose(1, 2, 0)
        pieces[layer], alone = taken_away(engine, layer, u, label, count=count)
        heat[layer] = _heat(spec, layer, alone)
    # where on U0 the label hears: each place of UC3 taken away, all planes
    u = maps["UC3"][0].transpose(1, 2, 0)
    rows, columns = np.nonzero(u.any(axis=2))
    without = np.repeat(u[None], len(rows), axis=0)
    without[np.arange(len(rows)), rows, columns] = 0
    lost = 1 - engine.scores_from("UC3", without)[:, label] / engine.scores_from("UC3", u[None])[0, label]
    shares, lacked = np.zeros((2, *u.shape[:2]), np.float32)
    shares[rows, columns] = np.maximum(lost, 0)
    heat["US4"] = _heat(spec, "UC3", shares)
    needed = _needed(engine, maps, label, runner_up)
    for piece in needed:
        lacked[piece.row, piece.column] += max(piece.alone, 0)
    heat["needed"] = _heat(spec, "UC3", lacked)
    p = float(answers(scores, temperature=engine.model.temperature).p[0])
    return Explanation(digit, engine.model.id, label, runner_up, p, scores[0], pieces, heat, needed, maps)


class Cells(NamedTuple):
    """The cells of a piece, the strongest first, and their responses, which sum to 1."""

    plane: int
    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    strength: Floats


def taken_away(
    engine: Engine, layer: str, u: Floats, label: int, *, count: int = COUNT
) -> tuple[tuple[Piece, ...], Floats]:
    """Name the pieces of responses (H, W, K) that carry a label; and what each place carries, (H, W)."""
    return _one_by_one(engine, layer, u, np.zeros_like(u), lambda scores: scores[:, label], count)


def split(u: Floats) -> list[Cells]:
    """Split responses (H, W, K) into pieces."""
    pieces = []
    for plane in range(u.shape[2]):
        left = u[:, :, plane].copy()
        while left.any():
            row, column = divmod(int(left.argmax()), left.shape[1])
            top, first = max(row - REACH, 0), max(column - REACH, 0)
            near = left[top : row + REACH + 1, first : column + REACH + 1]
            rows, columns = np.nonzero(near)
            order = np.argsort(-near[rows, columns], kind="stable")
            rows, columns = rows[order], columns[order]
            strength = near[rows, columns] / near.sum()
            pieces.append(Cells(plane, rows + top, columns + first, strength))
            near[:] = 0
    return pieces


def changed(u: Floats, target: Floats, pieces: Sequence[Cells]) -> Floats:
    """Return (B, H, W, K): ``u`` with one piece each as in ``target``."""
    out = np.repeat(u[None], len(pieces), axis=0)
    for one, cells in zip(out, pieces, strict=True):
        where = cells.rows, cells.columns, cells.plane
        one[where] = target[where]
    return out


def _one_by_one(
    engine: Engine, layer: str, u: Floats, target: Floats, worth: Callable[[Floats], Floats], count: int
) -> tuple[tuple[Piece, ...], Floats]:
    """Change the piece that lowers what is of worth most, then that which does it next."""
    pieces = split(np.abs(u - target))
    whole = now = float(worth(engine.scores_from(layer, u[None]))[0])
    drops = now - worth(engine.scores_from(layer, changed(u, target, pieces)))
    alone = drops / whole
    named: list[Piece] = []
    shares = np.zeros(u.shape[:2], np.float32)
    for cells, share in zip(pieces, alone, strict=True):
        shares[cells.rows, cells.columns] += max(share, 0) * cells.strength
    tried = len(pieces) if layer == "US4" else _TRIED  # there only the strongest shows anything
    while len(named) < min(count, len(pieces)) and now > 0:
        if named:
            again = np.argsort(-drops, kind="stable")[:tried]
            tries = changed(u, target, [pieces[i] for i in again])
            drops[again] = now - worth(engine.scores_from(layer, tries))
        best = int(drops.argmax())
        if drops[best] <= 0:
            break
        u = changed(u, target, [pieces[best]])[0]
        scores = engine.scores_from(layer, u[None])
        now = float(worth(scores)[0])
        row, column = int(pieces[best].rows[0]), int(pieces[best].columns[0])
        x, y = (round((at - MARGIN - 0.5) / 2, 1) for at in on_u0(engine.model.spec, layer, column, row))
        answer = int(scores[0].argmax())
        named.append(Piece(pieces[best].plane, row, column, (x, y), float(alone[best]), now / whole, answer))
    return tuple(named), shares


def _needed(engine: Engine, maps: dict[str, Floats], label: int, runner_up: int) -> tuple[Piece, ...]:
    """Raise pieces of UC3 to what the runner-up's strongest plane has learned, until it wins."""
    own = np.flatnonzero(engine.model.labels == runner_up)
    u, s4 = maps["UC3"][0].transpose(1, 2, 0), engine.model.s[3]
    last = maps["US4"][0, own]
    best, row, column = np.unravel_index(int(last.argmax()), last.shape)
    learned = s4.reference[own[best]].transpose(1, 2, 0)
    window = np.s_[row : row + len(learned), column : column + len(learned)]
    there, full = (float(np.sqrt((s4.c[:, :, None] * x * x).sum())) for x in (u[window], learned))
    wanted = u.copy()
    wanted[window] = np.maximum(u[window], learned * (there / max(full, 1e-9)))
    return _one_by_one(
        engine, "UC3", u, wanted, lambda scores: scores[:, label] - scores[:, runner_up], _MOST
    )[0]


def on_u0(spec: NetworkSpec, layer: str, *at: float) -> tuple[float, ...]:
    """Return where the middle of a cell's view lies on U0, for its row or column each."""
    rows = spec.layers()
    last = next(i for i, row in enumerate(rows) if row.name == layer)
    for row in reversed(rows[1 : last + 1]):
        assert row.kernel is not None
        at = tuple(row.stride * x + (row.kernel - 1) / 2 - row.padding for x in at)
    return at


def _heat(spec: NetworkSpec, layer: str, shares: Floats) -> Floats:
    """Spread shares of a layer's places (H, W) over U0: Gaussians that just run together."""
    at = np.array(on_u0(spec, layer, *range(len(shares))))
    distance = np.arange(spec.size("U0"))[:, None] - at
    spread = np.exp(-0.5 * (distance / (0.6 * (at[1] - at[0]))) ** 2)
    return np.asarray(spread @ shares @ spread.T, np.float32)


def _resized(values: NDArray[np.float32]) -> NDArray[np.float32]:
    image = Image.fromarray(values.astype(np.float32))
    return np.asarray(image.resize((_SIDE, _SIDE), Image.Resampling.BILINEAR))


def _band(layer: str, response: NDArray[np.float32]) -> Image.Image:
    """The maps (K, H, W) of one layer."""
    import cv2

    planes, size = response.shape[:2]
    across = max(8, ceil(sqrt(2 * planes)))
    tile = min(_LARGEST, _WIDTH // across) - 2
    band = Image.new("RGB", (_WIDTH, _HEAD + ceil(planes / across) * (tile + 2)), "black")
    draw = ImageDraw.Draw(band)
    strongest = max(float(response.max()), 1e-9)
    words = f"{layer}   {planes} x {size} x {size}, strongest response {strongest:.3f}"
    draw.text((2, 14), words, fill="white", font=ImageFont.load_default(17))
    for plane, values in enumerate(response):
        grey = (255 * np.sqrt(values / strongest)).astype(np.uint8)
        large = cv2.resize(grey, (tile, tile), interpolation=cv2.INTER_NEAREST)
        colours = np.asarray(cv2.applyColorMap(large, cv2.COLORMAP_INFERNO))[..., ::-1]
        left, top = plane % across * (tile + 2), _HEAD + plane // across * (tile + 2)
        band.paste(Image.fromarray(np.ascontiguousarray(colours)), (left, top))
        draw.text((left + 3, top + 1), str(plane), fill=(170, 170, 170), font=ImageFont.load_default(11))
        draw.rectangle((left, top, left + tile - 1, top + tile - 1), outline=(60, 60, 60))
    return band
