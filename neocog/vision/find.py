"""Digits found on a page: from a grey picture to lines of normalised digits.

The steps: reduce, smooth as the noise asks, take the ink off the paper in the polarity that looks
like writing, drop faint marks, frames and borders, join broken strokes, drop what cannot be a
digit, order into lines, normalise.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from neocog.vision.binarise import (
    BRIGHTER,
    Marks,
    excursions,
    find_marks,
    lift_shade,
    off_border,
    settle_marks,
    smooth,
)
from neocog.vision.components import Box, Component, measure
from neocog.vision.cut import PAGE, STRIP, Score, cut_lines
from neocog.vision.filters import (
    LEAST_LEVEL,
    SHORTEST,
    Reference,
    dark_ground,
    evidence,
    reference,
    without_faint,
    without_frames,
)
from neocog.vision.judge import is_drawing, without_print, without_type, written
from neocog.vision.lines import into_lines
from neocog.vision.parts import join_broken, without_fragments
from neocog.vision.rules import is_strip
from neocog.vision.seams import Piece, whole
from neocog.vision.shade import broader, oversized, set_free
from neocog.vision.strip import (
    enlarge,
    is_line,
    is_low,
    strip_components,
    strip_is_dark,
    strip_marks,
)

LONG_SIDE = 1024
"""Pages are searched at this long side, in pixels; larger ones are reduced to it."""

_SHADE = (0.035, 0.024, 0.017)
"""What is broader than the first share of the long side is shade; where broad marks are left then,
shade is narrower (slanting stripes count by the square's diagonal), and the next one is tried."""

_LEAST_HEIGHT = 9  # digits lower than this, in pixels of the reduced page, are not looked for
_MOST = 200  # a page with more marks of a digit's size than this is print or texture
_USUAL = 1.3  # ink is darker than paper unless the reverse looks so many times better
_MINOR = 8  # power of the share of the page that is left to the paper
_SHEET = 0.6  # a bright mark that takes so much of the page is a sheet on a desk
_KNOWN, _NEARLY_ALL = 0.9, 0.8  # probability of a known mark, and share of them in a drawing
_DARKER = 0.8  # ink is dark where bright marks stand off the paper less than so many times
_PAIR = 2  # so many marks beside each other are a line; above another, they make a strip a page
_ABOVE = 0.25  # a mark stands above another where they share so much of the narrower one's width

Trace = Callable[[str, NDArray[np.uint8]], None]
"""Called with the name of a step and a picture of its outcome."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What may be set about the search.

    Attributes
    ----------
    long_side : int
        Pages are reduced to this long side, in pixels.
    ink : {"auto", "dark", "bright"}
        Whether the ink is darker or brighter than the paper.
    strips : bool
        Whether a page that is low may be one line, cut out; a part of a larger picture is not.
    """

    long_side: int = LONG_SIDE
    ink: str = "auto"
    strips: bool = True


@dataclass(frozen=True, slots=True)
class Found:
    """One place that may hold a digit.

    Attributes
    ----------
    box : tuple of int
        Left, top, width and height in pixels of the given page.
    digit : ndarray of uint8, shape (28, 28)
        The ink in MNIST's form, 255 on 0.
    """

    box: Box
    digit: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of writing, from left to right.

    Attributes
    ----------
    digits : tuple of Found
    strip : bool
        Whether the page was taken to be one line, cut out.
    """

    digits: tuple[Found, ...]
    strip: bool = False


@dataclass(frozen=True, slots=True)
class Search:
    """What a search found before any network looks at it: marks in lines, not cut apart yet.

    Attributes
    ----------
    lines : list of list of Component
        Marks that may be digits.
    marks : Marks or None
        What they refer to; None where nothing was found.
    scale : float
        Pixels of the searched page per pixel of the given one.
    shape : tuple of int
        Height and width of the given page.
    drawing : bool
        Whether much of the ink beside the marks is like a drawing: they are digits if the network
        knows nearly all of them for such.
    dark : bool
        Whether the ink was taken to be darker than the paper.
    line : bool
        Whether the page was taken to be one line, cut out.
    """

    lines: list[list[Component]]
    marks: Marks | None
    scale: float
    shape: tuple[int, int]
    drawing: bool = False
    dark: bool = True
    line: bool = False

    def digits(self, score: Score | None = None, *, count: int | None = None) -> list[Line]:
        """Cut apart what touches, if there is a ``score``, and normalise every digit.

        With a ``count``, lines are cut into so many digits where that is possible.
        """
        if self.marks is None:
            return []
        costs = STRIP if self.line else PAGE
        if self.drawing and not self._known(self.marks, score):
            return []
        lines = cut_lines(self.lines, self.marks, score, count=count, costs=costs)
        found = [[_found(p, self.marks, self.scale, self.shape) for p in line] for line in lines]
        return [Line(tuple(digits), self.line) for digits in found]

    def _known(self, marks: Marks, score: Score | None) -> bool:
        """Whether the network knows nearly all marks for digits."""
        digits = [whole(component, marks).digit(marks) for line in self.lines for component in line]
        if score is None or not digits:
            return False
        return float((np.asarray(score(np.stack(digits))) >= _KNOWN).mean()) >= _NEARLY_ALL


def find_digits(
    grey: NDArray[np.uint8],
    *,
    settings: Settings | None = None,
    score: Score | None = None,
    count: int | None = None,
    trace: Trace | None = None,
) -> list[Line]:
    """Find the digits of a page, in reading order.

    Parameters
    ----------
    grey : ndarray of uint8, shape (H, W)
        The upright page.
    settings : Settings, optional
    score : callable, optional
        Given digits (N, 28, 28) uint8, returns the probability (N,) that each is known; with it
        touching digits are cut apart.
    count : int, optional
        Digits that each line is expected to have.
    trace : callable, optional
        Receives a picture of each step, to see where a digit was lost.

    Returns
    -------
    list of Line
        From top to bottom; empty where nothing looks like a digit.
    """
    found = search(grey, settings=settings, cuts=score is not None, trace=trace)
    return found.digits(score, count=count)


def search(
    grey: NDArray[np.uint8],
    *,
    settings: Settings | None = None,
    cuts: bool = True,
    trace: Trace | None = None,
) -> Search:
    """Do all of `find_digits` that needs no network; `Search.digits` does the rest.

    Parameters
    ----------
    grey, settings, trace
        As `find_digits`.
    cuts : bool
        Whether marks that may be several digits are kept, to be cut apart.
    """
    settings = settings or Settings()
    line = settings.strips and is_line(grey.shape)
    if line and is_low(grey.shape):
        strip = _search_strip(grey, settings.ink, trace)
        if strip is not None:
            return strip
        line = False
    small, scale = _reduce(grey, settings.long_side)
    nothing = Search([], None, scale, (grey.shape[0], grey.shape[1]), line=line)
    if min(small.shape) < _LEAST_HEIGHT:
        return nothing
    page, noise = smooth(small)
    dark = _is_dark(page, noise, settings) if settings.ink == "auto" else settings.ink == "dark"
    marks, components, ref = _settled_and_freed(page, noise, dark)
    if trace:
        trace("page", page)
        trace("contrast", marks.contrast)
        trace("marks", (marks.labels > 0).astype(np.uint8) * np.uint8(255))
    if ref is None or ref.contrast < LEAST_LEVEL:
        return nothing
    kept, drawing = _filter(components, marks, page.shape, ref, cuts=cuts)
    if trace:
        trace("kept", _picture(marks, kept))
    lines = without_type(into_lines(kept))
    return replace(nothing, lines=lines, marks=marks, drawing=drawing, dark=dark)


def _search_strip(grey: NDArray[np.uint8], ink: str, trace: Trace | None) -> Search | None:
    """Find the marks of a low picture that holds one line; None where it holds several."""
    page, scale = enlarge(grey)
    dark = strip_is_dark(page) if ink == "auto" else ink == "dark"
    nothing = Search([], None, scale, (grey.shape[0], grey.shape[1]), dark=dark, line=True)
    marks = strip_marks(page, dark=dark)
    if marks is None:
        return nothing
    components = sorted(strip_components(marks), key=lambda c: c.centre[0])
    if _stacked(into_lines(components)):
        return None
    if trace:
        trace("page", page)
        trace("contrast", marks.contrast)
        trace("marks", (marks.labels > 0).astype(np.uint8) * np.uint8(255))
        trace("kept", _picture(marks, components))
    return replace(nothing, lines=[components] if components else [], marks=marks)


def _stacked(lines: Sequence[Sequence[Component]]) -> bool:
    """Whether lines stand above each other; digits that jump up and down stand beside them."""
    pairs = permutations((line for line in lines if len(line) >= _PAIR), 2)
    return any(
        sum(any(_is_above(mark, below) for below in other) for mark in line) >= _PAIR
        for line, other in pairs
    )


def _is_above(one: Component, other: Component) -> bool:
    """Whether two marks of different lines share columns."""
    shared = min(one.right, other.right) - max(one.box[0], other.box[0])
    return shared >= _ABOVE * min(one.width, other.width)


def _reduce(grey: NDArray[np.uint8], long_side: int) -> tuple[NDArray[np.uint8], float]:
    import cv2

    height, width = grey.shape
    scale = long_side / max(height, width)
    if scale >= 1:
        return np.ascontiguousarray(grey), 1.0
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return np.asarray(cv2.resize(grey, size, interpolation=cv2.INTER_AREA), np.uint8), scale


def _settled_and_freed(
    page: NDArray[np.uint8], noise: float, dark: bool
) -> tuple[Marks, list[Component], Reference | None]:
    """Find the marks of one polarity, those freed from what is too large to be a digit as well."""
    least = max(4, _LEAST_HEIGHT // 3)
    ink = page if dark else np.bitwise_not(page)
    marks = _settled(page, noise, dark, least=_LEAST_HEIGHT)
    if is_strip(page.shape):
        marks = off_border(marks)
    components = measure(marks, least=least)
    ref = reference(components, page.shape)
    large = oversized(components, ref) if ref else []
    if ref and large:
        marks = set_free(marks, large, ref, ink)
        components = measure(marks, least=least)
        ref = reference(components, page.shape)
    return marks, components, ref


def _is_dark(page: NDArray[np.uint8], noise: float, settings: Settings) -> bool:
    """Tell dark ink on bright paper from the reverse."""
    darker, brighter = excursions(page)
    if brighter < _DARKER * darker:
        return True
    if darker < BRIGHTER * brighter:
        return False
    return _writing(page, noise, True, settings) >= _writing(page, noise, False, settings)


def _settled(page: NDArray[np.uint8], noise: float, dark: bool, *, least: int) -> Marks:
    """Find the marks of one polarity, those in shadows among them; ``least`` is their height."""
    first = find_marks(page, dark=dark, noise=noise)
    best = settle_marks(first)
    if not dark_ground(measure(first, least=least), page.shape):
        return best
    ink = page if dark else np.bitwise_not(page)
    most = evidence(measure(best, least=least), page.shape, power=2)
    for share in _SHADE:
        broad = share * max(page.shape)
        lifted = settle_marks(lift_shade(first, ink, broad=broad))
        components = measure(lifted, least=least)
        ref = reference(components, page.shape)
        if ref is None:
            break
        own = broader(ref)
        if share < _SHADE[0]:  # a broader square was seen to leave shade behind
            own = min(own, broad)
        bare = settle_marks(lift_shade(first, ink, broad=own, least=ref.contrast / 3))
        worth = evidence(measure(bare, least=least), page.shape, power=2)
        if worth >= most:
            best, most = bare, worth
        if share == _SHADE[-1] or not dark_ground(components, page.shape, ref):
            break
    return best


def _writing(page: NDArray[np.uint8], noise: float, dark: bool, settings: Settings) -> float:
    """Say, from the page at half its size, how much one polarity looks like writing."""
    small, _ = _reduce(page, max(settings.long_side // 2, 64))
    marks = _settled(small, noise / 2, dark, least=4)
    part = [c for c in measure(marks, least=4) if dark or not _is_sheet(c, small.size)]
    worth = evidence(part, small.shape)
    paper = 1.0 - marks.where.size / small.size
    return worth * paper**_MINOR * (_USUAL if dark else 1.0)


def _is_sheet(component: Component, page: int) -> bool:
    """Whether a bright mark is the sheet itself, on a darker desk."""
    return component.width * component.height > _SHEET * page


def _filter(
    components: Sequence[Component],
    marks: Marks,
    page: tuple[int, int],
    ref: Reference,
    *,
    cuts: bool,
) -> tuple[list[Component], bool]:
    """Marks that may be digits, and whether they stand in what is like a drawing."""
    strong = without_faint(components, ref)
    kept = without_frames(strong, page, ref, shaded=marks.shaded)
    large = sum(c.height >= SHORTEST * ref.height for c in kept)
    if large > _MOST or ref.height < _LEAST_HEIGHT:
        return [], False
    joined = join_broken(kept, marks.labels, ref)
    kept = written(without_fragments(joined, ref, cuts=cuts), marks.labels)
    kept = without_print(joined, kept)
    return kept, is_drawing(strong, kept, ref)


def _found(piece: Piece, marks: Marks, scale: float, shape: tuple[int, int]) -> Found:
    x, y, w, h = piece.box
    left, top = int(x / scale), int(y / scale)
    right = min(shape[1], round((x + w) / scale))
    bottom = min(shape[0], round((y + h) / scale))
    return Found((left, top, right - left, bottom - top), piece.digit(marks))


def _picture(marks: Marks, components: Sequence[Component]) -> NDArray[np.uint8]:
    lookup = np.zeros(len(marks.stats), dtype=np.uint8)
    for component in components:
        lookup[list(component.labels)] = 255
    return np.asarray(lookup[marks.labels], dtype=np.uint8)
