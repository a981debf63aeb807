"""Sheets of a form: each page is laid onto its blank, its fields are cut out and read, rules are weighed."""

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import compress
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import cv2
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from neocog.errors import InputError, UsageError
from neocog.network import ctc
from neocog.network.lines import NARROWEST, ROWS, WIDEST
from neocog.reading.forms import Field, Form, Layout, Rule, amount, digits, joint
from neocog.reading.numbers import BEFORE, FAR, IN_DOUBT, STEP, Logs, TextLine, bare, likely, read_lines
from neocog.reading.pictures import Picture, name_of, pages_of, what_went_wrong
from neocog.reading.records import REJECTED, CellReading, SheetReading
from neocog.vision.decode import at_most
from neocog.vision.strips import SCORE, ink_of, rows_of
from neocog.vision.struck import crossing

if TYPE_CHECKING:
    from neocog.network.line_engine import LineEngine
    from neocog.reading.reader import Reader
    from neocog.vision.decode import Page
    from neocog.vision.finder import Finding

Grey = NDArray[Any]  # uint8; OpenCV does not say so
Floats = NDArray[np.float64]

FITS = 0.6
"""Share of a blank's print that a page must have where the blank has it."""
SLIP = 0.01
"""How often what is written is taken to break a rule: a rule that is broken speaks against the reading."""

_SEEN = 1200  # long side, in pixels, at which pages are compared with blanks
_PAPER = 220.0  # grey level of paper to which dark pages are made brighter, at most 6 times
_INLIERS = 12  # matches that a homography must explain
_THICK = 9, 25  # pixels of the thickest strokes of print on a page of `_SEEN`, and of writing in a field
_REACH = 8  # pixels at `_SEEN` that print around a field may lie off
_HERE, _ALIKE = 0.7, 0.4  # share of print around a field that is there, and its correlation
_OTHER = 0.25  # share of fields, two at least, around which print differs on a sheet of another edition
_ROWS = 96  # to which the box of a field is reduced: digits in it are 40 to 80 high
_ROOM = 0.3  # of a box's height that is seen around it: ink may cross the frame
_INK = 0.25  # of the usual contrast, from which a pixel is ink
_TRACE, _REST = 0.05, 0.25  # ink of no number, in squares of half the box's height: alone, and beside one
# In heights of a number's digits, how high a piece of ink is that may be one more of them: from, up to beyond
# the box, where others write too, and up to within it, where it may be a scribble.
_MARK, _TALLER, _SCRIBBLE = 0.4, 1.6, 2.5
_SPECK = 20  # pixels of ink that may be a number
_GOES_ON = "goes on beyond its box"
_SOFT = "crossed out", "ink beside it, as high as a digit"
_DOUBT, _MENDED = 0.9, 0.95  # probability of a text below which a rule may choose one with the second
# Digits of one sheet are of one hand. How sharply likeness (cosine) counts, what of it is none, its weight;
# by what log likelihoods among digits are divided; what a digit that is not sure teaches (LOG, 2026-11-26).
_SHARP, _UNLIKE, _LIKE, _COOLER, _UNSURE = 16.0, 0.5, 0.8, 1.4, 0.5


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """A page as it is compared."""

    greys: list[Grey]  #: (H, W), each half as large as the one before
    scale: Floats  #: from pixels of the first to those of ``ink``, (3, 3)
    points: NDArray[np.float32]  #: features' places, in pixels of ``ink``, (N, 2)
    features: NDArray[np.float32]  #: (N, 128), the strongest first
    ink: NDArray[np.float32]  #: 0 paper .. 1 usual ink, `_SEEN` pixels long
    contrast: float  #: grey levels of usual ink


class _Blank(NamedTuple):
    """A blank page of a form, as it is compared."""

    layout: Layout
    number: int  #: in its layout
    seen: _Seen
    written: list[bool]  #: whether digits stand in its fields, once that is known


class _Once(NamedTuple):
    """A reading of a field: its columns' log likelihoods, where each is: a strip's ink, a column of that."""

    number: ctc.Number
    logp: Logs
    places: Sequence[tuple[NDArray[Any], int]]


class _Written(NamedTuple):
    """What was cut out of a page for a field, and read."""

    field: Field
    lines: Sequence[TextLine]  #: around its marks
    read: tuple[_Once | None, _Once | None]  #: around its marks, if that was one line, and as a whole
    ink: Grey  #: that of no print, (H, W)
    unit: float  #: half the height of its box
    hard: str  #: why no number can be sure
    corners: tuple[tuple[int, int], ...]
    page: int


class _Laid(NamedTuple):
    """How a page lies on its blank: ``way`` leads from pixels of the blank to those of the page, (3, 3)."""

    blank: _Blank
    way: Floats
    fit: float
    residual: float
    part: float  #: `fit` of the print that is within the page


class _Spot(NamedTuple):
    """Where a field lies: its box on the blank, the way to the page, whether print around it differs."""

    field: Field
    box: Floats  #: left, top, right, foot
    way: Floats
    differs: bool
    alike: float | None  #: correlation of words around it; None where there are none


class _Page(NamedTuple):
    """A page of a sheet: its number in the file, and what stands in its fields."""

    at: int
    laid: _Laid
    read: dict[str, _Written | CellReading]  #: what is not on it has its cell


def read_sheets(
    reader: "Reader", form: Form, picture: Picture, *, beat: Callable[[], None] = lambda: None
) -> Iterator[SheetReading]:
    """Read the sheets in a picture's pages; a sheet ends when it is complete, or another one begins.

    A page that fits no layout, or cannot be decoded, gives a record with an error. UsageError if a blank
    cannot be decoded. ``beat`` is called again and again.
    """
    held, lost = list[SheetReading](), set[int]()  # since a sheet that lacks pages: what that are
    for sheet in _each_sheet(reader, form, picture, beat):
        missing = {number for number, page in enumerate(sheet.pages) if page is None}
        if not missing and lost and len(sheet.pages) != 1:
            held.append(sheet)
            continue
        if missing:  # what the last such sheet lacked is here: pages between may be of different sheets
            mixed = any(sheet.pages[number] is not None for number in lost if number < len(sheet.pages))
            for one in held:
                if mixed and not one.error:
                    why = "its pages may be of different sheets"
                    cells = {n: replace(cell, text=REJECTED, why=why) for n, cell in one.fields.items()}
                    told = f"{why}: those before and after lack some; put them in order"
                    one = replace(one, fields=cells, before={}, error=told)
                yield one
            held, lost = [], missing
        yield sheet
    yield from held


def _each_sheet(
    reader: "Reader", form: Form, picture: Picture, beat: Callable[[], None]
) -> Iterator[SheetReading]:
    blanks, begun, at = _blanks(form), time.perf_counter(), 0
    sheet, layout = dict[int, _Page](), blanks[0].layout  # pages by their numbers in the layout
    record = partial(SheetReading, name_of(picture), model=reader.model.id)

    def whole() -> Iterator[SheetReading]:
        nonlocal begun
        if not sheet:
            return
        pages, count, least = dict(sheet), len(layout.pages), reader.policy.min_p
        sheet.clear()
        cells, written = dict[str, CellReading](), dict[str, _Written]()
        for number, page in enumerate(layout.pages):
            none = CellReading(REJECTED, why=f"page {number + 1} is missing")
            for one in page.fields:
                found = pages[number].read[one.name] if number in pages else none
                written |= {one.name: found} if isinstance(found, _Written) else {}
                cells[one.name] = found if isinstance(found, CellReading) else _said(found, least)
        missing = ", ".join(str(n + 1) for n in range(count) if n not in pages)
        told = f"page {missing} of {count} is missing; scan the whole sheet into one file"
        cells |= _taught(weigh(cells, layout.rules, least), written, least, beat)
        since, begun = begun, time.perf_counter()
        yield record(
            page=min(page.at for page in pages.values()), layout=layout.name,
            pages=tuple(pages[n].at if n in pages else None for n in range(count)),
            residual=tuple(page.laid.residual for page in pages.values()),
            fit=tuple(page.laid.fit for page in pages.values()), before=cells if layout.rules else {},
            fields=weigh(cells, layout.rules, least), error=told if missing else None,
            warnings=("blank-is-written",) * any(any(page.laid.blank.written) for page in pages.values()),
            ms={"read": 1e3 * (begun - since)},
        )  # fmt: skip

    try:
        for page in pages_of(picture, reader.longest):
            at, seen = page.index, _seen(page.grey)
            laid, spots, why = _laid(seen, blanks)
            if laid is None or why:
                yield from whole()
                yield record(page=at, error=f"page {at + 1} {why}")
            else:
                blank, boxes = laid.blank, [one.box for one in spots]
                if blank.layout is not layout or blank.number <= max(sheet, default=-1):
                    yield from whole()
                layout = blank.layout
                if not blank.written:
                    blank.written.extend(_is_written(reader, blank.seen, box) for box in boxes)
                own = _Page(at, laid, {})
                for one in spots:
                    own.read[one.field.name] = _read_field(reader, seen, blank, one, page, boxes)
                    beat()
                sheet[blank.number] = own
                if len(sheet) == len(layout.pages):
                    yield from whole()
            at += 1
            beat()
        yield from whole()
    except Exception as error:  # whatever one picture does, the others are still read
        yield from whole()
        yield record(page=at, error=what_went_wrong(error))


def weigh(cells: Mapping[str, CellReading], rules: Sequence[Rule], least: float) -> dict[str, CellReading]:
    """Return a sheet's cells after its rules: what one confirms is likelier, what breaks one is in doubt.

    ``least``: the probability from which a text is printed. A rule with a cell that breaks another confirms
    nothing.
    """
    wrong, known = dict[str, CellReading](), dict[Any, Any]()
    for rule in rules:
        holds, after = _after(rule, cells, cells, least, known)
        wrong = {**after, **wrong} if holds is False else wrong
    while True:
        out, unchecked = {**cells, **wrong}, list[Rule]()
        for rule in rules:
            holds, after = None, dict[str, CellReading]()
            if wrong.keys().isdisjoint(rule.names):
                holds, after = _after(rule, cells, out, least, known)
            if holds is False:  # after what another one changed
                wrong |= after
                break
            out |= after
            unchecked += [rule] * (holds is None)
        else:
            break
    for rule in unchecked:
        cell = out[rule.names[-1]]
        concerned = cell.text or (len(rule.names) > 2 and any(cells[name].text for name in rule.names))
        if concerned and REJECTED not in cell.text:
            why = "; ".join(filter(None, (cell.why, f"{rule.words} not checked")))
            out[rule.names[-1]] = replace(cell, why=why)
    return out


def _after(
    rule: Rule, cells: Mapping[str, CellReading], now: Mapping[str, CellReading], least: float, known: Any
) -> tuple[bool | None, dict[str, CellReading]]:
    """Whether a rule holds, None if that is not known, and its cells after it; ``now``: after other rules.

    ``known``: what rules said of the same texts before. A hand that errs in two rows alike does so in others
    too, so what such rules said of one row tells nothing more of the next.
    """
    own, out = [now[name] for name in rule.names], dict[str, CellReading]()
    before = [cells[name] for name in rule.names]
    anew = rule.alike and all(cell.read == first.read for cell, first in zip(own, before, strict=True))
    texts = [{"": 1.0} if cell.text == "" else cell.texts for cell in (before if anew else own)]
    empty, pair = [cell.text == "" for cell in own], len(own) == 2
    uneven = pair and rule.words != "increases by one" and empty[0] != empty[1]
    if not uneven and (not all(texts) or empty[-1] or (pair and empty[0])):
        return None, {}  # something was not read, or is not there
    best, weighed, holds = tuple(cell.read for cell in own), [dict(one) for one in texts], None
    if all(texts):
        key = rule, *(tuple(one.items()) for one in texts)
        best, weighed, holds = known[key] = known.get(key) or joint(rule, texts, SLIP)
    hard = any(cell.hard for cell in own)
    both = list(zip(rule.names, own, best, weighed, strict=True))
    changed = {name for name, cell, text, _ in both if bare(text) != bare(cell.read)}
    if uneven or any(max(cells[name].p or 0, now[name].p or 0) >= _DOUBT for name in changed):
        holds = False  # what was read without doubt is not changed
    if anew and holds:  # what other rules said of it stays
        other = [{} if cell is cells[name] else cell.texts for name, cell, *_ in both]
        both = [(name, cell, text, p | {text: max(p[text], of.get(text, 0.0))})
                for (name, cell, text, p), of in zip(both, other, strict=True)]  # fmt: skip
    unsure = {name for name, _, text, p in both if p.get(text, 0) < max(least, _MENDED * (name in changed))}
    if hard and (unsure or not holds):  # it confirms what was written, or tells nothing
        return None, {}
    for name, cell, text, likelier in both:
        if holds is False:
            if cell.texts or (uneven and not cell.text):
                first, target = cells[name], f" for {rule.names[-1]}" * (name != rule.names[-1])
                p = None if first.p is None else min(first.p, likelier.get(first.read, first.p))
                why = f"{first.read or 'empty'}: {rule.words} does not hold{target}"
                out[name] = replace(first, text=REJECTED, p=p, why=why)
        elif not text:
            continue
        elif holds is None:  # it holds if marks part thousands, or if they do not
            plain = digits(text)
            if plain in cell.texts and amount(text) != amount(text, grouped=False) and (cell.p or 0) < _DOUBT:
                out[name] = replace(cell, text=REJECTED, why=f"{text}, or {plain}")
        elif not unsure:
            why = f"{rule.words} holds" + f", with {cell.read} it would not" * (name in changed)
            if cell.why and REJECTED not in cell.text:
                why = cell.why if why in cell.why else f"{cell.why}; {why}"
            p, text = likelier[text], text.replace(" ", "") if len(own) > 1 else text
            out[name] = replace(cell, text=text, read=text, p=p, why=why, texts=likelier)
        elif name in unsure:
            why = f"{cell.read}: {rule.words} speaks against it"
            shown, why = (cell.text, cell.why) if REJECTED in cell.text else (REJECTED, why)
            out[name] = replace(cell, text=shown, p=likelier.get(cell.read, 0.0), why=why, texts=likelier)
        else:
            out[name] = replace(cell, texts=likelier)
    return holds, out


@lru_cache(maxsize=1)
def _blanks(form: Form) -> list[_Blank]:
    out = list[_Blank]()
    for layout in form.layouts:
        for number, page in enumerate(layout.pages):
            where = f"blank page {number + 1} of {layout.name}"
            if page.blank is None:
                raise UsageError(f"{where}: the form names none; name a picture of it")
            try:
                decoded = next(pages_of(page.blank, 2400, [page.number]), None)  # reduced to a long side
            except InputError as error:
                raise UsageError(f"{where}: {error}") from None
            if decoded is None:
                raise UsageError(f"{where}: its file has no page {page.number + 1}; change blank_page")
            seen = _seen(decoded.grey)
            if len(seen.points) < 2 * _INLIERS or not (seen.ink > 2 * _INK).any():
                why = "has too little print to lay pages onto it; give a sheet with more"
                raise UsageError(f"{where}: {why}")
            out.append(_Blank(layout, number, seen, []))
    return out


def _seen(grey: Grey) -> _Seen:
    paper = float(np.percentile(grey, 90))
    if paper < _PAPER:  # features and ink have a least contrast
        grey = cv2.convertScaleAbs(grey, None, min(_PAPER / max(paper, 1.0), 6.0))
    small = at_most(grey, _SEEN)
    points, features = cv2.SIFT_create(2000).detectAndCompute(small, None)  # type: ignore[attr-defined]
    order = np.argsort([-point.response for point in points], kind="stable")
    at = np.array([point.pt for point in points], np.float32).reshape(-1, 2)[order]
    features = features[order] if len(order) else np.zeros((0, 128), np.float32)
    away = _away(small, _THICK[0])
    contrast = max(24.0, float(np.percentile(away, 98)))
    ink = np.minimum(away / np.float32(contrast), 1)
    return _Seen([grey], _resized(grey.shape, small.shape), at, features, ink, contrast)


def _ones(size: int) -> Grey:
    return np.ones((size, size), np.uint8)


def _away(grey: Grey, thick: int) -> NDArray[np.float32]:
    """How many levels strokes that are less than so ``thick`` are darker than what is around."""
    soft = cv2.blur(grey, (3, 3))
    return np.asarray(cv2.morphologyEx(soft, cv2.MORPH_BLACKHAT, _ones(thick)), np.float32)


def _shifted(x: float, y: float) -> Floats:
    return np.array([[1, 0, x], [0, 1, y], [0, 0, 1]], np.float64)


def _resized(size: Sequence[int], to: Sequence[int]) -> Floats:
    """From pixels of a picture (H, W) to those of another size; middles of pixels are whole numbers."""
    down, across = (b / a for a, b in zip(size, to, strict=True))
    return np.array([[across, 0, across / 2 - 0.5], [0, down, down / 2 - 0.5], [0, 0, 1]])


def _moved(way: Floats, points: Any) -> Floats:
    """Where a homography (3, 3) puts points (N, 2)."""
    at = np.c_[points, np.ones(len(points))] @ way.T
    return np.asarray(at[:, :2] / at[:, 2:])


def _warped(picture: NDArray[Any], way: Floats, size: Sequence[int]) -> NDArray[Any]:
    """A part of a picture, ``size`` wide and high; ``way`` leads from its pixels to those of the picture."""
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    return cv2.warpPerspective(picture, way, tuple(size), flags=flags, borderMode=cv2.BORDER_REPLICATE)


def _matches(page: _Seen, blank: _Seen) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Places of a blank and of a page, (M, 2), with features like each other's alone (Lowe's ratio)."""
    if min(len(page.features), len(blank.features)) < 2:
        return blank.points[:0], page.points[:0]
    likeness = blank.features @ page.features.T  # all have one length: |a - b|^2 = 2 (length - a b)
    second, first = np.partition(likeness, -2, axis=1)[:, -2:].T
    length = float(np.median((page.features**2).sum(axis=1)))
    clear = np.flatnonzero(np.maximum(0, length - first) < 0.64 * np.maximum(0, length - second))
    return blank.points[clear], page.points[likeness[clear].argmax(axis=1)]


def _laid(page: _Seen, blanks: Sequence[_Blank]) -> tuple[_Laid | None, list[_Spot], str]:
    """Lay a page onto the blank that fits best, and find its fields; or what is wrong with it."""
    laid, spots, why, else_ = _lay(page, blanks), list[_Spot](), "", "; look at it, or add its layout"
    if laid is None:
        return None, spots, f"does not fit the form{else_}"
    layout = laid.blank.layout
    fields, share = layout.pages[laid.blank.number].fields, f"{laid.fit:.0%} of {layout.name}'s print"
    if laid.fit < FITS or laid.residual * page.scale[0, 0] > 3:  # as far off as inliers may be
        why = f"does not fit the form ({share}){else_}"
        if laid.fit < FITS <= laid.part:
            why = f"has only {share}, the rest is cut off; scan the whole sheet"
    else:
        spots = [_spot(page, laid.blank.seen, laid.way, one) for one in fields]
        worded = [one.alike for one in spots if one.alike is not None]
        if (other := sum(one.differs for one in spots)) >= max(2, _OTHER * len(spots)):
            why = f"does not fit the form: print around {other} of {len(spots)} fields differs{else_}"
        elif len(worded) > 1 and median(worded) < 0.6:  # photographs have 0.66 to 0.97
            why = f"does not fit the form: words around its fields are others{else_}"
    return laid, spots, why * bool(fields)


def _lay(page: _Seen, blanks: Sequence[_Blank]) -> _Laid | None:
    """Lay a page onto the blank that fits best: features, a homography, its refinement; None if none fits."""
    matches = sorted(((*_matches(page, one.seen), one) for one in blanks), key=lambda one: -len(one[0]))
    best: tuple[float, Floats, _Blank, Any, Any] | None = None
    for since, to, blank in matches[:6]:  # of many those with the most matches
        if len(since) < _INLIERS:
            break
        found, inliers = cv2.findHomography(since, to, cv2.USAC_MAGSAC, 3.0, maxIters=5000, confidence=0.999)
        if found is None or inliers.sum() < _INLIERS:
            continue
        way, (high, wide) = np.asarray(found, np.float64), blank.seen.ink.shape
        ends = _moved(way, [[0, 0], [wide, 0], [wide, high], [0, high]])
        sides = np.roll(ends, -1, axis=0) - ends
        turns = sides[:, 0] * np.roll(sides[:, 1], -1) - sides[:, 1] * np.roll(sides[:, 0], -1)
        if np.isfinite(ends).all() and (turns > 0.01 * wide * high).all():  # not mirrored, folded, or tiny
            fit, used = _fit(page, blank.seen, way), inliers.ravel() > 0
            if best is None or fit > best[0]:
                best = fit, way, blank, since[used], to[used]
    if best is None:
        return None
    fit, way, blank, since, to = best
    better = _refined(page, blank.seen, way)
    fit, way = max((fit, way), (_fit(page, blank.seen, better), better), key=lambda one: one[0])
    off = _moved(way, since) - to
    residual = float(np.median(np.hypot(*off.T))) / float(page.scale[0, 0])
    part, way = _fit(page, blank.seen, way, within=True), np.linalg.inv(page.scale) @ way @ blank.seen.scale
    return _Laid(blank, way / way[2, 2], fit, residual, part)


def _fit(page: _Seen, blank: _Seen, way: Floats, *, within: bool = False) -> float:
    """Share of a blank's print, or of that ``within`` the page, that a page has there."""
    near = cv2.dilate(_warped(page.ink, way, blank.ink.shape[::-1]), _ones(3)) > _INK
    print_ = blank.ink > 2 * _INK
    if within:
        print_ = _inside(print_, way, page)
    return float(near[print_].mean()) if print_.any() else 0.0


def _inside(print_: NDArray[np.bool_], way: Floats, page: _Seen) -> NDArray[np.bool_]:
    """Print (H, W), as far as ``way`` leads to pixels of the page's ink."""
    rows, columns = np.nonzero(print_)
    at, out = _moved(way, np.c_[columns, rows]), print_.copy()
    out[rows, columns] = ((at >= 0) & (at < page.ink.shape[::-1])).all(axis=1)
    return out


def _refined(page: _Seen, blank: _Seen, way: Floats) -> Floats:
    """Refine a homography where the blank has print: enhanced correlation (Evangelidis, Psarakis 2008)."""
    soft = [cv2.GaussianBlur(one.ink, (0, 0), 1.5) for one in (blank, page)]
    halves = [cv2.resize(ink, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA) for ink in soft]
    here, there = (_resized(ink.shape, half.shape) for ink, half in zip(soft, halves, strict=True))
    mask = (cv2.dilate(halves[0], _ones(7)) > _INK / 2).astype(np.uint8)
    steps = cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 15, 1e-4
    start = there @ way @ np.linalg.inv(here)
    start = (start / start[2, 2]).astype(np.float32)
    try:
        better = cv2.findTransformECC(halves[0], halves[1], start, cv2.MOTION_HOMOGRAPHY, steps, mask, 5)[1]
    except cv2.error:  # it does not converge
        return way
    return np.asarray(np.linalg.inv(there) @ better.astype(np.float64) @ here)


def _around(blank: _Seen, box: Floats, room: float) -> tuple[int, int, NDArray[np.float32]]:
    """A blank's ink in a box and so far around it, behind its left and top."""
    left, top = np.maximum(np.floor(box[:2] - room), 0).astype(int).tolist()
    right, foot = np.minimum(np.ceil(box[2:] + room), blank.ink.shape[::-1]).astype(int).tolist()
    return left, top, blank.ink[top:foot, left:right]


def _shift(page: _Seen, blank: _Seen, way: Floats, box: Floats) -> tuple[float, float]:
    """How far print around a box is off where ``way`` puts it, x and y, in pixels of ``ink``; paper curls."""
    left, top, template = _around(blank, box, 0.7 * (box[3] - box[1]))
    if min(template.shape) < 4 or template.std() < 0.02:
        return 0.0, 0.0
    high, wide = template.shape
    here = way @ _shifted(left - _REACH, top - _REACH)
    seen = _warped(page.ink, here, (wide + 2 * _REACH, high + 2 * _REACH))
    off = np.arange(-_REACH, _REACH + 1)
    alike = cv2.matchTemplate(seen, template, cv2.TM_CCOEFF_NORMED)
    alike = alike - 0.005 * np.hypot(off[:, None], off)  # a long rule fits anywhere along itself
    y, x = np.unravel_index(int(alike.argmax()), alike.shape)
    better = alike[y, x] > alike[_REACH, _REACH] + 0.02
    return (float(off[x]), float(off[y])) if better else (0.0, 0.0)


def _cut(page: _Seen, way: Floats, size: tuple[int, int]) -> Grey:
    """A part of a page, as `_warped`, from the greys that are about as fine."""
    origin, right, down = _moved(way, [[0, 0], [size[0], 0], [0, size[1]]])
    finer = max(np.hypot(*(right - origin)) / size[0], np.hypot(*(down - origin)) / size[1])
    level = int(np.clip(round(math.log2(max(1.0, finer))), 0, 6))
    while len(page.greys) <= level:
        half = [max(1, side // 2) for side in page.greys[-1].shape[::-1]]
        page.greys.append(cv2.resize(page.greys[-1], half, interpolation=cv2.INTER_AREA))
    return _warped(page.greys[level], _resized(page.greys[0].shape, page.greys[level].shape) @ way, size)


def _window(box: Floats, tall: float, beyond: float) -> tuple[tuple[int, int], Floats, float, int, int]:
    """A view of a box that is so ``tall`` in a page: its size, way to the blank, rows of the box, edge.

    So many of its heights ``beyond`` are columns more on each side, whose number is the last.
    """
    wide, high = box[2:] - box[:2]
    unit, room = max(high / min(max(tall, 8.0), _ROWS), wide / 8192), _ROOM * high
    more = round(beyond * high / unit)
    size = round((wide + 2 * room) / unit) + 2 * more, round((high + 2 * room) / unit)
    way = np.array([[unit, 0, box[0] - room - more * unit], [0, unit, box[1] - room], [0, 0, 1]])
    return size, way, high / unit, round(0.5 * room / unit), more


def _marks(reader: "Reader", grey: Grey, edge: int) -> "Finding":
    """What is found in a view of a field, but for its edge."""
    found = reader.look(grey)
    middle = found.boxes[:, :2] + found.boxes[:, 2:] / 2
    return found[((middle > edge) & (middle < np.array(grey.shape[::-1]) - edge)).all(axis=1)]


def _is_written(reader: "Reader", blank: _Seen, box: Floats) -> bool:
    """Whether a digit stands in the field of a blank: it is no print, for the blank is a sheet in use."""
    size, way, _, edge, _ = _window(box, _ROWS, 0)
    found = _marks(reader, _cut(blank, way, size), 2 * edge)  # what is around it may be print
    return bool(((found.kinds < 10) & (found.scores >= SCORE)).any())


def _spot(page: _Seen, blank: _Seen, way: Floats, field: Field) -> _Spot:
    """Where a field lies on a page, ``way`` corrected by the print around it, which is compared."""
    left, top, wide, high = field.box  # in pixels of the blank: left, top, right, foot
    box = np.array([left, top, left + wide, top + high]) * (blank.greys[0].shape[::-1] * 2) - 0.5
    small = page.scale @ way @ np.linalg.inv(blank.scale)
    shrink = blank.scale[[0, 1, 0, 1], [0, 1, 0, 1]]
    inner = box * shrink
    x, y = _shift(page, blank, small, inner)
    way = way @ _shifted(x / shrink[0], y / shrink[1])
    room = inner[3] - inner[1]
    left, top, plain = _around(blank, inner, room)
    here = small @ _shifted(x, y) @ _shifted(left, top)
    seen = _warped(page.ink, here, plain.shape[::-1])
    near = cv2.dilate(seen, _ones(3)) > _INK
    print_ = _inside(plain > 2 * _INK, here, page).astype(np.uint8)
    rules = cv2.dilate(np.maximum(*_rules(print_, 0.8 * room, 0.6 * room)), _ones(3)) > 0
    x, y = round(inner[0] - left), round(inner[1] - top)
    outside = ~rules
    outside[max(0, y) : y + round(room) + 1, max(0, x) : x + round(inner[2] - inner[0]) + 1] = False
    words = (print_ > 0) & outside
    beside = (cv2.dilate(words.astype(np.uint8), _ones(5)) > 0) & outside
    shares = [near[own].mean() for own in ((print_ > 0) & rules, words) if own.sum() > _SPECK]
    alike = None
    if words.sum() > _SPECK and plain[beside].std() > 0:
        alike = float(np.corrcoef(plain[beside], seen[beside])[0, 1]) if seen[beside].std() > 0 else 0.0
    differs = min(shares, default=1.0) < _HERE or (alike is not None and alike < _ALIKE)
    return _Spot(field, box, way, differs, alike)


def _rules(print_: Grey, across: float, down: float) -> tuple[Grey, Grey]:
    """Rules of print (H, W) that are so long: those across and those down."""
    kernels = np.ones((1, max(3, round(across))), np.uint8), np.ones((max(3, round(down)), 1), np.uint8)
    across_, down_ = (cv2.morphologyEx(print_, cv2.MORPH_OPEN, kernel) for kernel in kernels)
    return across_, down_


def _read_field(
    reader: "Reader", seen: _Seen, blank: _Blank, spot: _Spot, page: "Page", boxes: Sequence[Floats]
) -> _Written | CellReading:
    """Read a field: cut it out at the page's own resolution, take print out, find and read what is left.

    ``boxes``: of all fields.
    """
    field, box, way, differs, _ = spot
    corners = _moved(way, box[[[0, 1], [2, 1], [2, 3], [0, 3]]])
    places = tuple((round(x), round(y)) for x, y in ((corners + 0.5) / page.scales).tolist())
    tall = float(np.hypot(*(corners[3] + corners[2] - corners[0] - corners[1]))) / 2
    limits = np.array(seen.greys[0].shape[::-1])
    if (corners < -0.1 * tall - 1).any() or (corners > limits + 0.1 * tall).any():
        return CellReading(REJECTED, why="leaves the page", corners=places, page=page.index)
    size, own, high, edge, more = _window(box, tall, 1.1)  # what was written may go on beside it
    grey, plain = _cut(seen, way @ own, size), _cut(blank.seen, own, size)
    dark = _away(grey, _THICK[1]) > _INK * seen.contrast
    print_: Grey = (_away(plain, _THICK[1]) > _INK * blank.seen.contrast).astype(np.uint8)
    if blank.layout.pages[blank.number].used or any(blank.written):  # rules alone are print
        print_ = np.maximum(*_rules(print_, 1.2 * high, 0.9 * high))
    grey, print_, gone = _erased(grey, print_, dark, high, seen.contrast)
    away = _away(grey, _THICK[1])
    inner = np.s_[edge : size[1] - edge, more + edge : size[0] - more - edge]
    clear: Grey = ((away > _INK * seen.contrast) & ~gone).astype(np.uint8)
    if clear[inner].any():  # what is faint beside it is no ink
        clear[away < 0.4 * np.percentile(away[inner][clear[inner] > 0], 90)] = 0
    ink = np.zeros_like(clear)
    ink[inner] = clear[inner]
    ink, clear = (cv2.morphologyEx(one, cv2.MORPH_OPEN, _ones(3)) for one in (ink, clear))
    near = cv2.dilate(print_, _ones(2 * round(0.08 * high) + 1)) > 0
    core = np.s_[:, more : size[0] - more]
    grey, ink = np.ascontiguousarray(grey[core]), np.ascontiguousarray(ink[core])
    lines, _ = read_lines(reader.changed(automaton=field.automaton), grey, _marks(reader, grey, edge))
    again = _again(reader, grey, ink, field)
    hard = "the print beside it differs" if differs else ""
    chars = np.array([char.box for line in lines for char in line.chars if char.box[3] > 0.2 * high])
    if len(chars) and not hard:
        tall = float(np.median(chars[:, 3]))
        for other in boxes:  # what stands there is of another field
            if other is not box:
                (x, y), (right, foot) = np.round((other.reshape(2, 2) - own[:2, 2]) / own[0, 0]).astype(int)
                clear[max(0, y) : max(0, foot), max(0, x) : max(0, right)] = 0
        clear[near] = 0
        if _goes_on(clear, chars + np.array([more, 0, 0, 0]), tall, inner[1], _TALLER):
            hard = _GOES_ON
        elif any(free for _, free in crossing(ink, tall, 1.1, np.arange(24) * (np.pi / 24))):
            hard = _SOFT[0]
        elif _goes_on(ink, chars, tall, slice(0, 0), _SCRIBBLE):
            hard = _SOFT[1]
    around = None
    if len(lines) == 1 and (found := lines[0].places):
        around = _Once(lines[0].number, lines[0].logp, [(strip.ink, t) for strip, t in found])
    ink = np.where(near[core], 0, ink).astype(np.uint8)  # what is left of print is none
    return _Written(field, lines, (around, again), ink, 0.5 * high, hard, places, page.index)


def _view(ink: NDArray[Any], x: int) -> NDArray[np.float32]:
    """A digit around column x of a strip, its ink in the middle and 30 rows high, blurred, (576,)."""
    part = np.zeros((48, 48), np.float32)
    first, last = max(0, x - 24), min(ink.shape[1], x + 24)
    if first < last:
        part[:, first - x + 24 : last - x + 24] = ink[:, first:last]
    part *= np.exp(-0.5 * ((np.arange(48, dtype=np.float32) - 23.5) / 9) ** 2)
    if (rows := part.sum(axis=1)).sum() < 5:
        return np.zeros(576, np.float32)
    low, high = np.searchsorted(rows.cumsum() / rows.sum(), (0.03, 0.97)).tolist()
    size, middle = 30 / max(10, high - low), float((part.sum(axis=0) * np.arange(48)).sum() / part.sum())
    way = np.array([[size, 0, 24 - size * middle], [0, size, 24 - size * (low + high) / 2]])
    soft = cv2.GaussianBlur(cv2.warpAffine(part, way, (48, 48)), (0, 0), 2.0)
    return np.asarray(soft[::2, ::2].ravel(), np.float32)


def _taught(
    cells: Mapping[str, CellReading], written: Mapping[str, _Written], least: float, beat: Callable[[], None]
) -> dict[str, CellReading]:
    """Read fields again: a digit is likelier what digits like it are in other cells, the sure most of all."""
    sure = {name: digits(one.read) for name, one in cells.items() if one.text and REJECTED not in one.text}
    numbers = {name: list[ctc.Number | None]([None, None]) for name in written}
    for k in (0, 1):
        found, ways = list[tuple[str, int, int]](), list[tuple[Floats, NDArray[np.float32]]]()
        read = {name: once for name, one in written.items() if (once := one.read[k]) is not None}
        for name, once in read.items():
            spans = [(c.first, c.last) for c in once.number.chars if c.char.isdigit()]
            for at, (first, last) in enumerate(spans):
                share = np.exp(np.asarray(once.logp[first : last + 1, :10], np.float64)).sum(axis=0)
                share *= _UNSURE / (share.sum() + 1e-12)
                if len(sure.get(name, "")) == len(spans):
                    share = (np.arange(10) == int(sure[name][at])) * (cells[name].p or 0.0)
                ink, column = once.places[(first + last) // 2]
                x = STEP * (column + (last - first) % 2 / 2) - BEFORE
                found.append((name, first, last))
                ways.append((share, _view(ink, round(x))))
        if not found:
            continue
        shares, views = (np.array(part, np.float64) for part in zip(*ways, strict=True))
        views = views - views.mean(axis=0)
        views /= np.linalg.norm(views, axis=1, keepdims=True) + 1e-6
        names = np.array([one[0] for one in found])
        for name, once in read.items():
            mine, logp = names == name, once.logp.copy()
            like = np.exp(_SHARP * (views[mine] @ views.T - 1))
            like[:, mine] = 0
            known = np.log(like @ shares + np.exp(-_SHARP * _UNLIKE)) - np.log(1 + shares[~mine].sum(axis=0))
            for (_, first, last), row in zip(compress(found, mine), known, strict=True):
                part = logp[max(0, first - 1) : last + 2, :10]
                every = np.logaddexp.reduce(part, axis=1, keepdims=True)
                part[:] = part / _COOLER + _LIKE * row
                part += every - np.logaddexp.reduce(part, axis=1, keepdims=True)
            number = ctc.number(logp, bound=least, automaton=written[name].field.automaton)
            numbers[name][k] = number if number.text and number.beside < FAR else None
            beat()
    return {name: _said(one, least, *numbers[name]) for name, one in written.items()}


def _erased(
    grey: Grey, print_: Grey, dark: NDArray[np.bool_], high: float, contrast: float
) -> tuple[Grey, Grey, NDArray[np.bool_]]:
    """Take print out of a view of a box so ``high``: what is left (H, W), the print as wide as it is here,
    and where print was that is no rule, but where a stroke crosses it.
    """
    within, rows = np.zeros_like(print_), slice(round(_ROOM * high), round((1 + _ROOM) * high))
    within[rows] = print_[rows]
    rules = _rules(print_, 1.2 * high, high)[0], _rules(within, high, 0.4 * high)[1]  # separators are low
    letters = cv2.morphologyEx(cv2.subtract(print_, np.maximum(*rules)), cv2.MORPH_OPEN, _ones(3))
    for grown in range(2, 9):  # until little of what is around is dark
        wider = cv2.dilate(print_, _ones(3))
        around = dark[wider > print_]
        if grown > 2 and (not around.size or around.mean() < 0.3):
            break
        print_ = wider
    wide = _ones(2 * grown - 1)
    across, down = (cv2.dilate(rule, wide) for rule in rules)
    beside, kernel = (dark & (print_ == 0)).astype(np.uint8), _ones(2 * grown + 7)
    strokes = cv2.morphologyEx(beside, cv2.MORPH_CLOSE, kernel)
    zone = (np.maximum(across, down) > 0) & (cv2.dilate(letters, wide) == 0)  # print may cross a rule, too
    gone = (print_ > 0) & ~zone & (strokes == 0)
    grey = _without_rules(grey, across, contrast)
    grey = np.ascontiguousarray(_without_rules(np.ascontiguousarray(grey.T), down.T, contrast).T)
    left = (_away(grey, _THICK[1]) > _INK * contrast) & ~gone
    _, pieces, sizes, _ = cv2.connectedComponentsWithStats(left.astype(np.uint8))
    thin = sizes[:, 2:4].min(axis=1) < 0.06 * high  # a point on a rule is none
    gone |= left & thin[pieces] & ~np.isin(pieces, pieces[~zone])  # of rules
    return cv2.inpaint(grey, gone.astype(np.uint8), 3, cv2.INPAINT_TELEA), print_, gone


def _without_rules(grey: Grey, zone: Grey, contrast: float) -> Grey:
    """Take rules across, each within a part of ``zone`` (H, W), out of a picture.

    A rule is the median of each row around a place: so much brighter that is made. Where it hides strokes,
    there is ink if there is some above and below it, along one of some slopes.
    """
    out = grey.copy()
    _, _, parts, _ = cv2.connectedComponentsWithStats(np.ascontiguousarray(zone))
    for left, top, wide, tall, _ in parts[1:].tolist():
        part = np.s_[max(0, top - 3) : top + tall + 3, left : left + wide]
        reach = min(wide // 2, 60)  # pixels on each side that say how dark it is
        windows = np.pad(out[part], ((0, 0), (reach, reach)), "symmetric")
        rows = np.median(sliding_window_view(windows, 2 * reach + 1, axis=1)[:, :, ::3], axis=2)
        lift = np.where(zone[part] > 0, rows.max(axis=0) - rows, 0)
        clean = np.minimum(out[part] + lift, 255).astype(np.uint8)
        hidden = lift > 0.6 * contrast  # as dark, it hides strokes
        y, x = np.indices(hidden.shape, np.float32)
        above, below = -_run(hidden), _run(hidden[::-1])[::-1]  # rows to the next that is not hidden
        darkest = np.full_like(clean, 255)
        for slope in np.linspace(-0.9, 0.9, 7, dtype=np.float32) if hidden.any() else ():
            ways = [(x + slope * off, y + off, cv2.INTER_LINEAR) for off in (above, below)]
            both = [cv2.remap(clean, *way, borderMode=cv2.BORDER_REPLICATE) for way in ways]
            darkest = np.minimum(darkest, np.maximum(*both))
        out[part] = np.where(hidden, darkest, clean)
    return out


def _run(hidden: NDArray[np.bool_]) -> NDArray[np.float32]:
    """How many places one after another are hidden down to each, 0 where none is, (H, W)."""
    count = hidden.cumsum(axis=0)
    return (count - np.maximum.accumulate(np.where(hidden, 0, count), axis=0)).astype(np.float32)


def _goes_on(ink: Grey, chars: NDArray[Any], tall: float, inner: slice, most: float) -> bool:
    """Whether ink beyond columns ``inner``, at most ``most`` times as high, is as close to characters,
    ``tall``, as one of them.
    """
    ink, (top, foot) = ink.copy(), (chars[:, 1].min(), (chars[:, 1] + chars[:, 3]).max())
    ink[:, inner] = 0
    for x, y, wide, high in chars.astype(int).tolist():
        ink[max(0, y - 3) : y + high + 3, max(0, x - 3) : x + wide + 3] = 0
    _, _, found, middles = cv2.connectedComponentsWithStats(ink)
    for (left, _, wide, high, _), (_, y) in zip(found[1:].tolist(), middles[1:].tolist(), strict=True):
        gap = np.maximum(left - chars[:, 0] - chars[:, 2], chars[:, 0] - left - wide).min()
        if _MARK * tall < high < most * tall and top < y < foot and gap < tall:
            return True
    return False


def _again(reader: "Reader", grey: Grey, ink: Grey, field: Field) -> _Once | None:
    """Read all ink (H, W) of a field as one line, whatever is found in it: a second opinion."""
    rows, columns = np.nonzero(ink)
    if reader.line_model is None or len(rows) < _SPECK:
        return None
    part = grey[max(0, rows.min() - 4) : rows.max() + 5, max(0, columns.min() - 8) : columns.max() + 9]
    part = part[slice(*rows_of(part))]
    wide = int(np.clip(round(part.shape[1] * ROWS / part.shape[0]), NARROWEST, WIDEST))
    how = cv2.INTER_AREA if len(part) > ROWS else cv2.INTER_LINEAR
    strip = ink_of(cv2.resize(part, (wide, ROWS), interpolation=how))  # its ink is dark: no `strip_of`
    (logp,) = cast("LineEngine", reader.engine).likelihoods([strip])
    number = ctc.number(logp, bound=reader.policy.min_p, automaton=field.automaton)
    return _Once(number, logp, [(strip, t) for t in range(len(logp))])


def _texts(number: ctc.Number, names: dict[str, str], fits: bool) -> dict[str, float]:
    """Probabilities of texts, those that differ in spaces or a point for a comma as one, and ``names``."""
    likelihoods, out = np.array(list(number.texts.values())), dict[str, float]()
    shares = np.exp(likelihoods - (np.logaddexp.reduce(likelihoods) if fits else 0.0)).tolist()
    for text, share in sorted(zip(number.texts, shares, strict=True), key=lambda pair: -pair[1]):
        names.setdefault(bare(text), (number.text if bare(number.text) == bare(text) else text).strip())
        out[bare(text)] = out.get(bare(text), 0.0) + share
    return out


def _said(
    one: _Written, least: float, other: ctc.Number | None = None, again: ctc.Number | None = None
) -> CellReading:
    """What a field says, read twice; ``other``, ``again``: numbers in the place of those of its readings."""
    field, lines, ink, more = one.field, one.lines, one.ink.copy(), round(0.1 * one.unit)
    if other and (field.automaton is None or lines[0].margin is not None):  # else it stays no allowed one
        # its words are sure, unless more than their columns made them doubtful
        before = max(lines[0].number.p, likely(lines[0].number.text, lines[0].number.texts))
        words = [replace(word, p=word.p if word.p < before - 1e-6 else 1.0) for word in lines[0].words]
        lines = [replace(lines[0], words=tuple(words), number=other)]
    again = again or (one.read[1].number if one.read[1] else None)
    for x, y, w, h in (char.box for line in lines for char in line.chars):
        ink[max(0, y - more) : y + h + more, max(0, x - more) : x + w + more] = 0
    rest, line = float(ink.sum()) / one.unit**2, max(lines, key=lambda one: len(one.chars), default=None)
    hard, names, listed = one.hard, dict[str, str](), field.automaton is not None
    cell = partial(CellReading, corners=one.corners, page=one.page)
    if line is None and rest <= _TRACE and not hard:
        return cell(REJECTED, why="empty, but required") if field.required else cell("")
    first, second, same = dict[str, float](), dict[str, float](), ""
    if line is not None:
        first = _texts(line.number, names, listed and line.margin is not None)
        same = max(first, key=first.__getitem__)
        first[same] = min(first[same], *(word.p for word in line.words))
    if again is not None and again.text and (not listed or again.beside < FAR):
        second = _texts(again, names, listed)
    both = {text: (first.get(text, 0) + second.get(text, 0)) / 2 for text in {**first, **second} if text}
    best = max(both, key=both.__getitem__, default="")
    read, p = names.get(best, ""), both.get(best, 0.0)
    beside = max((one.beside for one in (line and line.number, again) if one), default=0.0)
    hard = "" if hard in _SOFT and p >= _DOUBT and beside < 1 else hard  # hardly another number is likelier
    if line is None:
        hard = "ink that is no number"
    elif not hard and listed and line.margin is None:
        read, p, both = line.number.text.strip(), line.number.p, {}
        hard = f"{read} is not " + ("in the list" if field.listed else "of the pattern")
    elif not hard and len(lines) > 1:
        hard = f"{read} is one of several lines"
    elif not hard and rest > _REST and p < 0.65:  # the second reading saw it too; it may be a stamp
        hard = f"ink beside {read}"
    counts = 0 if hard == _GOES_ON else 0.5 if hard and line else 1  # in a rule: 31 of 47 such are right
    texts = {names[text]: share * counts for text, share in both.items() if counts}
    if line is None or hard:
        return cell(REJECTED, p if read else None, hard, read, texts=texts, hard=line is not None)
    if p >= least:
        return cell(read, p, "is in the list" * field.listed, read, texts=texts)
    shown = " ".join("".join(char.char for char in word.chars) for word in line.words)
    why = ", ".join(
        dict.fromkeys(char.reason for char in line.chars if char.reason and char.char == REJECTED)
    )
    like = re.sub(r"[^\d?]", "", shown).replace(REJECTED, ".?")  # its characters may be of another number
    if best != same or REJECTED not in shown or not re.fullmatch(like, digits(read)):
        likeliest = [names[max(some, key=some.__getitem__)] for some in (first, second) if some]
        rival = next((text for text in likeliest if text != read), "")
        shown, why = REJECTED, f"{read}, or {rival}" if rival else IN_DOUBT
    return cell(shown, p, why, read, texts=texts)
