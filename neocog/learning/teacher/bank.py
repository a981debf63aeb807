"""What made pages are written with: strokes of digits, scans of digits, glyphs of typefaces.

A bank is built once from the sets that may be learned from (`build_bank`) and kept in one file of
a few MB. It has two parts: of every set the last fifth of the writers (of one writer, or of some
that are not told apart, the last fifth of the digits) write the pages for validation only.
"""

import gzip
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from neocog.errors import InputError
from neocog.files import atomic_write
from neocog.learning.datasets import VALIDATION, last_writers
from neocog.learning.formats import read_idx
from neocog.learning.strokes import FILE, Strokes, read_strokes, trace

Line = NDArray[np.float32]
Digit = tuple[list[Line], int, int, bool]
"""Strokes, label, source, and whether it is of the validation part."""
Scan = tuple[NDArray[np.uint8], int, bool]

SOURCES = ("pendigits", "mnist", "swiss", "bhmsds", "optdigits")
"""Sets whose licences allow a shipped model to learn from them."""

TRACED = {"mnist": 6000, "swiss": 3000, "bhmsds": 1500, "optdigits": 1900}
"""Scans of each set that are traced; one writer wrote bhmsds, so it does not weigh more."""

GLYPHS = string.ascii_letters + "&?!§$€@"
"""Characters of a typeface that are printed; printed digits are no handwriting and left out."""

FACES = (
    "dkg Breip femkeklaver Rufscript010 SteveHand Delphine Kristi Humor-Sans AmaticSC-Regular "
    "BecauseWeBuild-Regular BecauseWeLearn-Regular BecauseWeMentor-Regular BecauseWeOrganize-Regular "
    "Caladea-Regular EBGaramond12-Regular LinLibertine_R LinLibertine_RB LinBiolinum_R Inconsolata "
    "Cantarell-Regular OpenSans-Regular Lato-Regular"
).split()
"""Typefaces that only measure, by the names of their files: no page is printed in them."""

GLYPH_HEIGHT = 44
_STEP = 35.0  # between two points of a stroke; a pen's tablet gives many where it went slowly


@dataclass(frozen=True)
class Bank(Strokes):
    """N digits in strokes, M scans, and G pixels of glyphs in F typefaces."""

    labels: NDArray[np.uint8]  #: (N,)
    sources: NDArray[np.uint8]  #: (N,), index into `SOURCES`
    held: NDArray[np.bool_]  #: (N,), digits of the validation part
    scans: NDArray[np.uint8]  #: (M, 28, 28)
    scan_labels: NDArray[np.uint8]  #: (M,)
    scan_held: NDArray[np.bool_]  #: (M,)
    glyphs: NDArray[np.uint8]  #: (G,), all glyphs one after the other, ink 255
    glyph_box: NDArray[np.int32]
    """First pixel, height, width and top (rows from the ascender) of `GLYPHS` in each typeface."""

    @cached_property
    def pools(self) -> dict[bool, list[NDArray[np.int64]]]:
        """Numbers of the digits of each source, of the part for learning and of the held one."""
        found: dict[bool, list[NDArray[np.int64]]] = {}
        for held in (False, True):
            own = [(self.held == held) & (self.sources == k) for k in np.unique(self.sources)]
            found[held] = [np.flatnonzero(those) for those in own if those.any()]
        return found

    @cached_property
    def scan_pools(self) -> dict[bool, NDArray[np.int64]]:
        """Numbers of the scans of the part for learning and of the held one."""
        return {held: np.flatnonzero(self.scan_held == held) for held in (False, True)}

    @property
    def faces(self) -> int:
        return len(self.glyph_box) // len(GLYPHS)

    def glyph(self, face: int, character: str) -> tuple[NDArray[np.uint8], int]:
        """Return a glyph (h, w), ink 255, and its top below the ascender; 44 pixels are an em."""
        at, high, wide, top = self.glyph_box[face * len(GLYPHS) + GLYPHS.index(character)].tolist()
        return self.glyphs[at : at + high * wide].reshape(high, wide), top

    def save(self, path: Path) -> None:
        with atomic_write(path) as stream:
            np.savez_compressed(stream, **{f.name: getattr(self, f.name) for f in fields(self)})


def load_bank(path: str | Path) -> Bank:
    """Open a bank; InputError if the file is missing or is no bank."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            return Bank(**{field.name: stored[field.name] for field in fields(Bank)})
    except (OSError, ValueError, KeyError, EOFError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{path} cannot be read as a stroke file: {reason}") from None


def build_bank(data: Path, *, fonts: Sequence[Path] = ()) -> Bank:
    """Make a bank of those of the sets `SOURCES` in a folder: ``mnist``, the others in ``hands/free``.

    ``fonts`` are files of typefaces, if any. InputError if there is no set at all, or one is broken.
    """
    digits: list[Digit] = []
    scans: list[Scan] = []
    for number, name in enumerate(SOURCES):
        folder = data / name if name == "mnist" else data / "hands" / "free" / name
        if not folder.is_dir():
            continue
        if name == "pendigits":
            digits += _pen_digits(folder, number)
            continue
        own = list(_scanned(folder))
        digits += [(trace(scan), label, number, held) for scan, label, held in own]
        scans += own[: max(1, len(own) // 2)]
    digits = [digit for digit in digits if digit[0]]
    if not digits:
        raise InputError(f"{data} holds none of the sets {', '.join(SOURCES)}")
    return packed(digits, scans, fonts)


def last_fifth(groups: Sequence[str]) -> NDArray[np.bool_]:
    """Tell which digits are of the last fifth of the writers, in the order they begin in."""
    kept = last_writers(groups)
    return np.arange(len(groups)) >= len(groups) - len(groups) // 5 if kept is None else kept


def _pen_digits(folder: Path, number: int) -> Iterable[Digit]:
    """The digits of a tablet, with points at even steps along their strokes."""
    known = read_strokes(folder / FILE)
    with np.load(folder / FILE) as stored:
        labels, held = stored["labels"], last_fifth([str(name) for name in stored["writers"]])
    for i in range(len(labels)):
        lines = []
        for path in known.paths(i):
            line = path.astype(np.float32)
            length = np.r_[0, np.cumsum(np.hypot(*np.diff(line, axis=0).T))]
            if length[-1] < 1:
                lines.append(np.repeat(line[:1], 2, axis=0))
                continue
            at = np.linspace(0, length[-1], max(2, round(float(length[-1]) / _STEP) + 1))
            even = [np.interp(at, length, line[:, k]) for k in (0, 1)]
            lines.append(np.stack(even, axis=1).astype(np.float32))
        yield lines, int(labels[i]), number, bool(held[i])


def _scanned(folder: Path) -> Iterable[Scan]:
    digits = read_idx(next(folder.glob("train-images*")))
    count = len(digits)
    if folder.name == "mnist":
        held = np.arange(count) >= count - VALIDATION
    else:
        file = folder / "train-writers.txt.gz"
        names = gzip.decompress(file.read_bytes()).decode().splitlines()
        held = last_fifth(names * count if len(names) == 1 else names)
    for i in np.linspace(0, count - 1, min(count, TRACED[folder.name])).astype(int).tolist():
        yield digits.images[i], int(digits.labels[i]), bool(held[i])


def packed(digits: Sequence[Digit], scans: Sequence[Scan], fonts: Sequence[Path] = ()) -> Bank:
    """Make a bank of digits as strokes, of scans, and of files of typefaces."""
    points, strokes, samples = [], [0], [0]
    for lines, *_ in digits:
        whole = np.concatenate(lines)
        low = whole.min(axis=0)
        scale = 1000 / max(float(np.ptp(whole, axis=0).max()), 1.0)
        for line in lines:
            points.append(((line - low) * scale).round().astype(np.int16))
            strokes.append(strokes[-1] + len(line))
        samples.append(samples[-1] + len(lines))
    pixels, boxes = _glyphs(fonts)
    _, labels, sources, held = zip(*digits, strict=True)
    return Bank(
        points=np.concatenate(points), stroke_start=np.array(strokes, np.int32),
        sample_start=np.array(samples, np.int32), labels=np.array(labels, np.uint8),
        sources=np.array(sources, np.uint8), held=np.array(held, np.bool_),
        scans=np.array([s[0] for s in scans], np.uint8).reshape(-1, 28, 28),
        scan_labels=np.array([s[1] for s in scans], np.uint8),
        scan_held=np.array([s[2] for s in scans], np.bool_), glyphs=pixels, glyph_box=boxes,
    )  # fmt: skip


def _glyphs(fonts: Sequence[Path]) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    from PIL import Image, ImageDraw, ImageFont

    pixels: list[NDArray[np.uint8]] = []
    boxes: list[tuple[int, int, int, int]] = []
    at = 0
    for file in fonts:
        try:
            font = ImageFont.truetype(BytesIO(file.read_bytes()), GLYPH_HEIGHT)
        except OSError:
            raise InputError(f"{file} cannot be read as a font") from None
        for character in GLYPHS:
            left, top, right, bottom = (int(v) for v in font.getbbox(character))
            size = (max(1, right - left), max(1, bottom - top))
            sheet = Image.new("L", size, 0)
            ImageDraw.Draw(sheet).text((-left, -top), character, fill=255, font=font)
            picture = np.asarray(sheet, np.uint8)
            pixels.append(picture.ravel())
            boxes.append((at, picture.shape[0], picture.shape[1], top))
            at += picture.size
    whole = np.concatenate(pixels) if pixels else np.zeros(0, np.uint8)
    return whole, np.array(boxes, np.int32).reshape(-1, 4)
