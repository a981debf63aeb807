"""Why a line was read so: where its characters stand, and which planes of US4 spoke for each.

It is the line as ``neocog read`` reads it. A character leads over the next best in its column by the sum of
what each plane says, (own_1 - own_2) y, and of what the head makes of the columns around, see
`neocog.network.lines.Head`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from neocog.errors import NothingToRead, UsageError
from neocog.network.ctc import BLANK
from neocog.network.line_engine import LineEngine
from neocog.network.lines import ALPHABET, LineModel, columns, log_likelihoods
from neocog.reading.numbers import TextLine, page_lines
from neocog.reading.records import DigitReading

if TYPE_CHECKING:
    from neocog.reading.pictures import Picture
    from neocog.reading.reader import Reader
    from neocog.vision.decode import Page

_COUNT = 3  # planes named for each character
_FIRST, _STEP = -24, 4  # where column 0 looks, and each next: an isolated digit's middle is that of column 12
_LARGER, _LEFT, _TOP, _ROW = 4, 28, 30, 12  # pixels of the drawing: for one of the strip, around it, of a row


@dataclass(frozen=True, slots=True, repr=False)
class LineExplanation:
    """Why a line was read so."""

    facts: dict[str, Any]  # as ``neocog explain --json`` prints it
    strips: tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...]  # ink (48, w), probabilities (T, n)

    def __str__(self) -> str:
        lines = [f"read as {self.facts['text']}, p {self.facts['p']:.3f}"]
        for c in self.facts["characters"]:
            lines.append("{char}  p {p:.3f}  strip {strip}, columns {first} to {last}".format(**c))
            if c["char"] != c["best"]:
                lines[-1] += f", perhaps {c['best']} ({c['reason']})"
            if "lead" in c:
                words = ", x {x}: {lead:+.2f} over {next}; planes {own:+.2f}, columns around {around:+.2f}"
                lines[-1] += words.format(**c)
            lines += ["     plane {plane:3d} ({label}) in row {row}: {response:.3f}  {lead:+.2f}".format(**p)
                      for p in c.get("planes", ())]  # fmt: skip
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """As ``neocog explain --json`` prints it."""
        return self.facts

    def plot(self) -> Image.Image:
        """Draw the characters over the ink of each strip, and how probable each and none is, by columns."""
        drawn = [self._drawn(number) for number in range(len(self.strips))]
        out = Image.new("RGB", (max(one.width for one in drawn), sum(one.height for one in drawn)), "white")
        for number, one in enumerate(drawn):
            out.paste(one, (0, sum(above.height for above in drawn[:number])))
        return out

    def _drawn(self, number: int) -> Image.Image:
        strip, probabilities = self.strips[number]
        high, wide = (_LARGER * size for size in strip.shape)
        shares = probabilities[-_FIRST // _STEP :].T  # of the columns that look at the strip
        ink, cells = (Image.fromarray((255 - 255 * part).astype(np.uint8)) for part in (strip, shares))
        size = _LARGER * _STEP * cells.width, _ROW * cells.height
        out = Image.new("RGB", (_LEFT + wide, _TOP + high + size[1]), "white")
        out.paste(ink.resize((wide, high)), (_LEFT, _TOP))
        out.paste(cells.resize(size, Image.Resampling.NEAREST), (_LEFT - _LARGER * _STEP // 2, _TOP + high))
        draw, large, small = ImageDraw.Draw(out), ImageFont.load_default(22), ImageFont.load_default(11)
        for c in self.facts["characters"]:
            if c["strip"] == number + 1:
                draw.text((_LEFT + _LARGER * c["x"], _TOP // 2), c["char"], "black", large, "mm")
        for row, char in enumerate([*ALPHABET, "none"]):
            draw.text((1, _TOP + high + _ROW * row), char, "gray", small)
        return out


def explain_line(picture: "Picture", *, line: int = 1, model: "str | Path | LineModel") -> LineExplanation:
    """Explain how a line of a picture was read, from the top; UsageError if there are not so many."""
    from neocog.reading.pictures import pages_of
    from neocog.reading.reader import Reader

    reader = Reader(model, device="cpu")
    lines = page_lines(reader, next(pages_of(picture, reader.longest)))[0]
    if not lines:
        raise NothingToRead("no line in the picture; give one that 'neocog read' reads")
    if not 1 <= line <= len(lines):
        raise UsageError(f"line {line} does not exist; choose 1 to {len(lines)}")
    return explain_text(lines[line - 1], cast(LineEngine, reader.engine))


def explain_box(reader: "Reader", page: "Page", engine: LineEngine, box: Sequence[float]) -> LineExplanation:
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
    model, spaced = engine.model, [char for char in line.number.chars if char.char != " "]
    pairs = [(char, own) for char, own in zip(spaced, line.chars, strict=True) if wanted(own)]
    at = [line.places[min(char.first, len(line.places) - 1)] for char, _ in pairs]
    strips = list({id(strip): strip for strip, _ in at}.values())
    maps, characters, names = [engine.maps(strip.ink) for strip in strips], [], [*ALPHABET, "none"]
    for (char, own), (strip, begin) in zip(pairs, at, strict=True):
        number = next(k for k, other in enumerate(strips) if other is strip)
        z = maps[number]["Z"][:, : columns(strip.ink.shape[1])]
        last = min(begin + char.last - char.first, z.shape[1] - 1)
        first = min(begin, last)
        told = {"char": own.char, "best": char.char, "p": own.p, "reason": own.reason, "box": list(own.box)}
        told |= {"strip": number + 1, "first": first, "last": last, "x": _FIRST + _STEP * first}
        characters.append(told)
        if char.char not in ALPHABET:  # of a pattern, where it is not looked for
            continue
        scores = z[:BLANK, first : last + 1]
        code = ALPHABET.index(char.char) if char.char else int(scores.max(axis=1).argmax())
        column = first + int(scores[code].argmax())
        others = np.argsort(-z[:BLANK, column], kind="stable").tolist()
        # what may have been left out leads over nothing
        other = next(k for k in others if k != code) if char.char else BLANK
        said = (model.head.own[code] - model.head.own[other]) * maps[number]["UC4"][0, :, column]
        cells = maps[number]["US4"][:, :, column]
        planes = [
            {"plane": int(k), "label": names[model.head.own[:, k].argmax()], "row": int(cells[k].argmax()),
             "response": float(cells[k].max()), "lead": float(said[k])}
            for k in np.argsort(-np.abs(said), kind="stable")[:_COUNT]
        ]  # fmt: skip
        lead, by_planes = float(z[code, column] - z[other, column]), float(said.sum())
        told |= {"best": ALPHABET[code], "x": _FIRST + _STEP * column, "next": names[other]}
        told |= {"lead": lead, "own": by_planes, "around": lead - by_planes, "planes": planes}
    words = [{"text": word.text, "p": word.p, "box": list(word.box)} for word in line.words]
    facts: dict[str, Any] = {"model": model.id, "text": " ".join(word.text for word in line.words)}
    facts |= {"p": min(word.p for word in line.words), "words": words, "characters": characters}
    logs = (log_likelihoods(own["Z"], model.temperature) for own in maps)
    shown = [(s.ink, np.exp(log[: columns(s.ink.shape[1])])) for s, log in zip(strips, logs, strict=True)]
    return LineExplanation(facts, tuple(shown))
