"""Why a line was read so: where its characters stand, and which planes of US4 spoke for each.

A character leads over the next best in its column by the sum of what each plane says, (own_1 - own_2) y,
and of what the head makes of the columns around, see `neocog.network.lines.Head`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from neocog.errors import NothingToRead, UsageError
from neocog.evaluation.explain import name
from neocog.network import ctc
from neocog.network.line_engine import LineEngine
from neocog.network.lines import ALPHABET, LineModel, columns, log_likelihoods

if TYPE_CHECKING:
    from neocog.reading.pictures import Picture

_COUNT = 3  # planes named for each character
_FIRST, _STEP = -24, 4  # where column 0 looks, and each next: an isolated digit's middle is that of column 12
_LARGER, _LEFT, _TOP, _ROW = 4, 28, 30, 12  # pixels of the drawing: for one of the strip, around it, of a row


@dataclass(frozen=True, slots=True, repr=False)
class LineExplanation:
    """Why a strip was read so."""

    facts: dict[str, Any]  # as ``neocog explain --json`` prints it
    ink: NDArray[np.float32]  # (48, w)
    probabilities: NDArray[np.float32]  # of each column, (T, n)

    def __str__(self) -> str:
        lines = ["read as {text}, p {p:.3f}".format(**self.facts)]
        for c in self.facts["characters"]:
            lines.append("{char}  p {p:.3f}  columns {first} to {last}, x {x}: {lead:+.2f} over {next}; "
                         "planes {own:+.2f}, columns around {around:+.2f}".format(**c))  # fmt: skip
            lines += ["     plane {plane:3d} ({label}) in row {row}: {response:.3f}  {lead:+.2f}".format(**p)
                      for p in c["planes"]]  # fmt: skip
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """As ``neocog explain --json`` prints it."""
        return self.facts

    def plot(self) -> Image.Image:
        """Draw the characters over the ink, and below how probable each and none is, by columns."""
        high, wide = (_LARGER * size for size in self.ink.shape)
        shares = self.probabilities[-_FIRST // _STEP :].T  # of the columns that look at the strip
        ink, cells = (Image.fromarray((255 - 255 * part).astype(np.uint8)) for part in (self.ink, shares))
        size = _LARGER * _STEP * cells.width, _ROW * cells.height
        out = Image.new("RGB", (_LEFT + wide, _TOP + high + size[1]), "white")
        out.paste(ink.resize((wide, high)), (_LEFT, _TOP))
        out.paste(cells.resize(size, Image.Resampling.NEAREST), (_LEFT - _LARGER * _STEP // 2, _TOP + high))
        draw, large, small = ImageDraw.Draw(out), ImageFont.load_default(22), ImageFont.load_default(11)
        for c in self.facts["characters"]:
            draw.text((_LEFT + _LARGER * c["x"], _TOP // 2), c["char"], "black", large, "mm")
        for row, char in enumerate([*ALPHABET, "none"]):
            draw.text((1, _TOP + high + _ROW * row), char, "gray", small)
        return out


def explain_line(picture: "Picture", *, line: int = 1, model: "str | Path | LineModel") -> LineExplanation:
    """Explain how a strip of a picture was read, from the top; UsageError if there are not so many."""
    from neocog.reading.numbers import answered
    from neocog.reading.pictures import pages_of
    from neocog.reading.reader import Reader
    from neocog.vision.finder import LONG_SIDE
    from neocog.vision.page import turned

    reader = Reader(model, device="cpu")
    grey = next(pages_of(picture, LONG_SIDE)).grey
    grey = turned(grey, reader.read(grey).turn)
    found, _ = answered(reader.engine, grey, reader.look(grey))
    if not found:
        raise NothingToRead("no line in the picture; give one that 'neocog read' reads")
    if not 1 <= line <= len(found):
        raise UsageError(f"line {line} does not exist; choose 1 to {len(found)}")
    return explain_strip(found[line - 1].ink, cast(LineEngine, reader.engine))


def explain_strip(ink: NDArray[np.float32], engine: LineEngine) -> LineExplanation:
    """Explain how a strip (48, w) is read; NothingToRead if no character is."""
    model, maps = engine.model, engine.maps(ink)
    logs = log_likelihoods(maps["Z"], model.temperature)[: columns(ink.shape[1])]
    text, likelihood = ctc.beam(logs)[0]
    if not text:
        raise NothingToRead("no character in this line: there is nothing to explain")
    characters = []
    for char, place in zip(text, ctc.align(logs, text), strict=True):
        code = ALPHABET.index(char)
        at = place.first + int(maps["Z"][code, place.first : place.last + 1].argmax())
        z, cells = maps["Z"][:-1, at], maps["US4"][:, :, at]
        other = next(int(i) for i in np.argsort(-z, kind="stable") if i != code)
        said = (model.head.own[code] - model.head.own[other]) * maps["UC4"][0, :, at]
        lead, own = float(z[code] - z[other]), float(said.sum())
        planes = [
            {"plane": int(k), "label": name(int(model.digits.labels[k])), "row": int(cells[k].argmax()),
             "response": float(cells[k].max()), "lead": float(said[k])}
            for k in np.argsort(-np.abs(said), kind="stable")[:_COUNT]
        ]  # fmt: skip
        characters.append({
            "char": char, "p": place.p, "first": place.first, "last": place.last, "x": _FIRST + _STEP * at,
            "next": ALPHABET[other], "lead": lead, "own": own, "around": lead - own, "planes": planes,
        })  # fmt: skip
    facts = {"model": model.id, "text": text, "p": float(np.exp(likelihood)), "characters": characters}
    return LineExplanation(facts, ink, np.exp(logs))
