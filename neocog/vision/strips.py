"""Strips for the line reader: lines of a page cut out along their baseline, 48 rows of ink each.

The finder's marks that stand at one height make a line. It is parted where marks are far apart or a table's
rule stands between them; each part is bent straight and scaled by the height of its digits.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.network.lines import NARROWEST, ROWS, WIDEST
from neocog.vision.cells import AROUND, repeated, step_of, wider
from neocog.vision.finder import SIGNS, Finding

Grey = NDArray[np.uint8]
Ink = NDArray[np.float32]
Floats = NDArray[np.float64]
Boxes = NDArray[np.floating[Any]]
"""Left, top, width and height in pixels of the page, (N, 4)."""

_SKEWED = 0.15  # skewness of greys from which ink is bright
_INK = 0.2  # from which ink may be print
_FULL = 0.5  # from which it is no blurred edge
_BAND = 64  # rows around a line in which rules and cells are looked for
_CELL = 0.7, 2.6  # how far it is from a cell to the next, in heights of digits
_OWN = 0.6, 0.3  # shares of the ink that is no print: of most digits if there are cells, of each digit
_RULE = 10  # grey levels that a rule stands out of its paper
_HIGH = np.isin(np.arange(10 + len(SIGNS)), [10 + SIGNS.index(sign) for sign in "/()"])  # as digits are


@dataclass(frozen=True, slots=True)
class StripSettings:
    """How marks make lines, and lines strips; lengths count in heights of a line's digits."""

    score: float = 0.35  #: of the finder, from which a digit makes a line
    least: float = 0.15  #: and from which a mark belongs to a line beside it
    tall: float = 34.0  #: rows of a strip that a line's digits fill
    spare: float = 1.0  #: what is read before the first mark and after the last
    gap: float = 2.5  #: a wider one parts two strips
    cell: float = 0.3  #: so does one as wide with a rule in it
    overlap: float = 0.5  #: share of a mark's rows, or the line's, from which it is on the line
    ratio: float = 3.2  #: heights of marks of one line differ less
    much: float = 1.8  #: marks so much lower among the digits of a line are specks
    low: float = 0.3  #: how far above or below its digits a sign's middle may stand
    beside: float = 1.6  #: how far beside them
    noise: float = 0.08  #: how far a digit's middle is off its line,
    tilt: float = 0.06  #: a line's slope off that of the page,
    bend: float = 0.008  #: and a line off a straight one; all three as standard deviations
    full: float = 2.5  #: a wide page less high than this is one line
    even: float = 0.0  #: so does one wider than this where all are near 1: a digit may be missed there
    apart: bool = False  #: whether gaps that part strips part lines
    most: int = 400  #: strips of a page
    columns: int = 2**20  #: of strips, after which no more lines are cut


FRAME = StripSettings(full=0.0, even=4.0, apart=True, columns=300)
"""Of a camera's frame, where what stands far apart is another line; the next shows what was not cut."""


@dataclass(frozen=True, slots=True, eq=False)
class Strip:
    """A piece of a line of writing."""

    ink: Ink  #: 0 paper .. 1 ink, (48, w)
    marks: tuple[int, ...]  #: numbers of the marks it was made of, from left to right
    line: int  #: which line of the page it is of, from the top; strips of one go from left to right
    middle: Floats  #: where the middle of each column is on the page, x and y, (w, 2)
    down: Floats  #: what the next row is further on the page, (w, 2)
    #: returns ``ink`` of its digits and signs alone, without walls of cells and what else is around
    alone: Callable[[], Ink]

    def to_page(self, columns: Any, rows: Any) -> Floats:
        """Where places of the strip are on the page, (..., 2) pixels, to a column; 0, 0 is its corner."""
        k = np.clip(np.floor(columns), 0, len(self.middle) - 1).astype(int)
        return np.asarray(self.middle[k] + (np.asarray(rows) - ROWS / 2)[..., None] * self.down[k])

    def box(self, first: int, last: int) -> tuple[float, float, float, float]:
        """The box on the page (left, top, width, height) of the ink in columns ``first`` to ``last``."""
        rows = np.flatnonzero(self.ink[:, max(0, first) : last + 1].max(axis=1, initial=0) > 0.35)
        top, foot = (rows[0], rows[-1] + 1) if len(rows) else (0, ROWS)
        x, y = self.to_page((first + last) / 2, (top + foot) / 2).tolist()
        unit = float(np.hypot(*self.down[0]))
        wide, high = unit * (last + 1 - first), unit * float(foot - top)
        return x - wide / 2, y - high / 2, wide, high


def ink_of(grey: NDArray[Any], kept: NDArray[np.bool_] | None = None) -> Ink:
    """Turn greys of a strip (48, w), dark on bright, 0 .. 255, into ink, 0 paper .. 1.

    The paper is the mean around of what is brightest close by; full ink is what only 3 % are darker than.
    Where it is not ``kept`` (48, w) there is paper.
    """
    import cv2

    edge = cv2.BORDER_REFLECT_101
    grey = np.ascontiguousarray(grey, np.float32)
    paper = cv2.dilate(cv2.blur(grey, (3, 3), borderType=edge), np.ones((9, 9), np.uint8))
    away = np.maximum(cv2.blur(paper, (31, 31), borderType=edge) - grey, 0)
    if kept is not None:
        away *= kept
    ranks = (away.size - 1) * np.array([0.5, 0.97])
    order = np.partition(away, [int(rank) + k for rank in ranks for k in (0, 1)], axis=None)
    middle, full = np.interp(ranks, np.arange(away.size), order)
    away -= np.float32(middle)
    away /= np.float32(max(4.0, full - middle))
    return np.asarray(np.clip(away, 0, 1, out=away), np.float32)


def strip_of(grey: Grey) -> Ink:
    """Return the ink, (48, w), of a picture (H, W) of one line of writing, and nothing else."""
    import cv2

    grey = tightened(grey)
    wide = int(np.clip(round(grey.shape[1] * ROWS / grey.shape[0]), NARROWEST, WIDEST))
    how = cv2.INTER_AREA if grey.shape[0] > ROWS else cv2.INTER_LINEAR
    return ink_of(_dark(np.asarray(cv2.resize(grey, (wide, ROWS), interpolation=how), np.uint8)))


def tightened(grey: Grey) -> Grey:
    """Cut a picture of one line to the rows of its writing and a little more."""
    return grey[slice(*_rows(grey))]


def _rows(grey: Grey) -> tuple[int, int]:
    """Rows of the writing of a picture of one line, and a little more; printed rules are no writing."""
    import cv2

    high, wide = grey.shape
    soft = cv2.GaussianBlur(grey, (0, 0), 1.0)
    side = max(9, high // 4 | 1)
    ink = cv2.subtract(cv2.dilate(soft, np.ones((side, side), np.uint8)), soft)
    dark = (ink > max(18.0, 0.4 * float(np.percentile(ink, 98)))).astype(np.uint8)
    rules = np.zeros_like(dark)
    for size in ((max(3, int(0.7 * high)), 1), (1, max(9, int(0.8 * high), int(0.45 * wide)))):
        rules |= np.asarray(cv2.morphologyEx(dark, cv2.MORPH_OPEN, np.ones(size, np.uint8)), np.uint8)
    dark[np.asarray(cv2.dilate(rules, np.ones((3, 3), np.uint8))) > 0] = 0
    rows = np.zeros(high)
    for _, top, _, tall, area in cv2.connectedComponentsWithStats(dark, connectivity=8)[2][1:].tolist():
        neighbour = (top == 0 or top + tall == high) and tall < 0.35 * high
        if tall >= 0.14 * high and area > 0.004 * high**2 and not neighbour:
            rows[top : top + tall] += area / tall
    if rows.sum() < 1:
        return 0, high
    way = np.cumsum(rows) / rows.sum()
    first, last = (int(np.searchsorted(way, share)) for share in (0.02, 0.98))
    room = 0.22 * (last - first + 1) + 2
    return max(0, int(first - room)), min(high, int(last + room) + 1)


def _dark(grey: Grey, first: int = 0, last: int | None = None) -> Grey:
    """A strip with dark ink, of one whose ink may be bright: if what stands out of the paper mostly is.

    It is so along the strip and between its digits, from column ``first`` to ``last``: beside them the paper
    may end, between them stand walls of cells.
    """
    import cv2

    for inner in (grey[ROWS // 8 : -ROWS // 8], grey[ROWS // 8 : -ROWS // 8, first:last]):
        small = cv2.resize(inner, (inner.shape[1] // 2, ROWS * 3 // 8), interpolation=cv2.INTER_AREA)
        off = cv2.subtract(small, cv2.blur(small, (15, 15)), dtype=cv2.CV_32F)
        square = off * off
        if not float((square * off).mean()) > _SKEWED * float(square.mean()) ** 1.5:
            return grey
    return 255 - grey


def voted_slope(boxes: Boxes) -> float:
    """The slope of a page's writing, the median of that between neighbours: rows down per column."""
    if len(boxes) < 3:
        return 0.0
    middle = boxes[:, :2] + boxes[:, 2:] / 2
    dx, dy = (middle[None] - middle[:, None]).transpose(2, 0, 1)
    far = np.where(dx > np.abs(dy), dx + 2 * np.abs(dy), np.inf)
    nearest = np.arange(len(boxes)), far.argmin(axis=1)
    near = far[nearest] < 4 * boxes[:, 3]
    votes = (dy[nearest][near] / dx[nearest][near]).tolist()
    return median(votes) if len(votes) > 1 else 0.0


def lines_of(boxes: Boxes, digits: NDArray[np.bool_], settings: StripSettings) -> list[list[int]]:
    """Group marks into lines of their numbers, top to bottom, each from left to right; each has a digit.

    ``boxes`` (N, 4) overlap little. Those of ``digits`` (N,) make the lines: from left to right each joins
    one that ends at its height. Other marks belong to a line that they stand beside or among.
    """
    left, top, wide, high = np.asarray(boxes, np.float64).T
    x, y = left + wide / 2, top + high / 2
    slope = voted_slope(boxes[digits])
    order = np.argsort(x, kind="stable").tolist()
    lines: list[list[int]] = []
    at, level, rise, tall, right = np.zeros((5, len(boxes)))  # of each line, where it ends
    for k in (k for k in order if digits[k]):
        n = len(lines)
        few, many = np.minimum(high[k], tall[:n]), np.maximum(high[k], tall[:n])
        off = np.abs(y[k] - level[:n] - rise[:n] * (x[k] - at[:n]))
        shared = np.minimum(1, ((few + many) / 2 - off) / few)
        worth = shared - off / many - 0.1 * np.maximum(0, left[k] - right[:n]) / many
        worth[(shared < settings.overlap) | (many > settings.ratio * few)] = -np.inf
        line = int(worth.argmax()) if worth.max(initial=-np.inf) > -1 else n
        if line == n:
            lines.append([])
        lines[line].append(k)
        last = lines[line][-5:]
        tall[line], right[line] = median(high[lines[line]].tolist()), max(right[line], left[k] + wide[k])
        at[line], level[line] = x[last].mean(), y[last].mean()
        along, down = x[last] - at[line], y[last] - level[line]
        steady = (settings.noise / settings.tilt * tall[line]) ** 2
        rise[line] = slope + along @ (down - slope * along) / (along @ along + steady)
    owner, tall = np.full(len(boxes), -1), tall[: len(lines)]
    ends = np.array([[f(v[line]) for f in (np.min, np.max) for v in (x, y)] for line in lines]).reshape(-1, 4)
    outer = ends + (0.5 + settings.low) * tall[:, None] * [-1, -1, 1, 1]
    for number, marks in enumerate(lines):  # but for specks among the digits of a larger line
        among = (ends[number, :2] > outer[:, :2]) & (ends[number, 2:] < outer[:, 2:])
        if not (among.all(axis=1) & (tall[number] * settings.much < tall)).any():
            owner[marks] = number
    for k in (*order, *order[::-1]):
        near = np.flatnonzero(owner >= 0)
        if owner[k] >= 0 or not len(near):
            continue
        own = owner[near]
        here = y[near] + rise[own] * (x[k] - x[near])
        off = np.abs(top[k] + high[k] / 2 - here) / tall[own]
        aside = np.maximum(0, np.abs(x[k] - x[near]) - (wide[k] + wide[near]) / 2) / tall[own]
        far = aside + off / 2
        far[(off > 0.5 + settings.low) | (aside > settings.beside) | (high[k] > 1.6 * tall[own])] = np.inf
        if far.min() < np.inf:
            owner[k], y[k] = own[far.argmin()], here[far.argmin()]  # the height of its line, not its own
    kept = [[k for k in order if owner[k] == number] for number in sorted(set(owner[owner >= 0].tolist()))]
    return sorted(kept, key=lambda line: median((y[line] - slope * x[line]).tolist()))


def strips(
    grey: Grey,
    found: Finding,
    settings: StripSettings | None = None,
    *,
    wanted: NDArray[np.bool_] | None = None,
) -> list[Strip]:
    """Cut the lines of a page (H, W) out, of which a mark is ``wanted`` (N,).

    `Strip.marks` counts what of ``found`` is likely enough.
    """
    settings = settings or StripSettings()
    likely = found.scores >= settings.least
    page = _Page(grey, found[likely], settings)
    wanted = np.ones(len(page.boxes), np.bool_) if wanted is None else wanted[likely]
    tall = page.tall(range(len(page.boxes))) if page.digits.any() else 0.0
    low = len(grey) < min(page.wide, settings.full * tall) and page.wide < WIDEST / settings.tall * tall
    if low and page.one_line():
        return [page.whole()]
    return list(islice(page.strips(wanted), settings.most))


class _Page:
    """A page and its marks, of which none is another one."""

    def __init__(self, grey: Grey, found: Finding, settings: StripSettings) -> None:
        self.sizes, self.wide, self.settings = [grey], grey.shape[1], settings
        self.boxes = np.maximum(found.boxes, [-np.inf, -np.inf, 1, 1])
        self.left, self.right = self.boxes[:, 0], self.boxes[:, 0] + self.boxes[:, 2]
        self.middle = self.boxes[:, :2] + self.boxes[:, 2:] / 2
        self.sure = (found.kinds < 10) & (found.scores >= settings.score)
        self.digits = self.sure | (_HIGH[found.kinds] & (found.scores >= settings.score))
        self.signs, self.scores = found.kinds >= 10, found.scores
        self.slope = voted_slope(self.boxes[self.digits])

    def strips(self, wanted: NDArray[np.bool_]) -> Iterator[Strip]:
        number, columns = -1, 0
        for line in (line for line in self.lines() if wanted[line].any()):
            if columns >= self.settings.columns:
                return
            band = self.band(line)
            cells, shown = self.cells(line, *band)
            rules, tall = self.rules(*band), self.tall(shown)
            walls = np.searchsorted(rules, self.right) > np.searchsorted(rules, self.left)
            walls &= (self.boxes[:, 2] < 0.4 * tall) & ~self.sure
            kept = [k for k in shown if not walls[k]]
            own = kept if self.digits[kept].any() else shown
            if cells is not None:  # walls are no rules
                rules = rules[:0]
            for parts in self.parts(own, rules, self.settings.gap if cells is None else np.inf):
                number += 1
                if columns >= self.settings.columns:
                    return
                for part in parts if wanted[list(chain(*parts))].any() else ():
                    at, down = self.path(part, *self.ends(part, rules))
                    own = [k for k in part if self.digits[k]]
                    own_ends = self.left[own].min(), self.right[own].max()
                    first, last = np.searchsorted(at[:, 0], own_ends).tolist()
                    grey = _dark(self.seen(at, down), max(0, first - 2), last + 2)
                    ink = ink_of(grey)
                    plain = np.ones(ink.shape, np.bool_)
                    if cells is not None:
                        plain = ~self.print(ink, line, at, down, cells)
                        ink = ink_of(grey, plain)
                    alone = partial(self.alone, grey, ink, plain, part, at, down)
                    columns += ink.shape[1]
                    yield Strip(ink, tuple(part), number, at, down, alone)

    def lines(self) -> list[list[int]]:
        """`lines_of` digits; a stem of a 7 that is taken for a sign would lead off them."""
        return lines_of(self.boxes, self.sure if self.sure.any() else self.digits, self.settings)

    def one_line(self) -> bool:
        """Whether there is little above and below the line that most marks are of: a third, by scores."""
        lines = self.lines()
        ends = [(self.left[line].min(), self.right[line].max(), self.scores[line].sum()) for line in lines]
        left, right, most = max(ends, key=lambda one: one[2])
        over = [score for first, last, score in ends if first < right and last > left]
        return bool(sum(over) < 4 / 3 * most)

    def whole(self) -> Strip:
        """The page as one strip."""
        grey = self.sizes[0]
        (top, foot), ink = _rows(grey), strip_of(grey)
        wide = ink.shape[1]
        along = (np.arange(wide) + 0.5) * self.wide / wide
        at = np.stack([along, np.full(wide, (top + foot) / 2)], axis=1)
        down = np.tile((0.0, (foot - top) / ROWS), (wide, 1))
        return Strip(
            ink, tuple(np.argsort(self.middle[:, 0], kind="stable").tolist()), 0, at, down, lambda: ink
        )

    def tall(self, part: Sequence[int]) -> float:
        """Height of the digits of a line."""
        return _ranked(self.boxes[[k for k in part if self.digits[k]] or part, 3], 0.9)

    def band(self, line: list[int]) -> tuple[Floats, Floats, Grey]:
        """What is on and around a line: `Strip.middle`, `Strip.down`, and greys (_BAND, w)."""
        edge = 2 * self.tall(line)
        at, down = self.path(line, self.left[line].min() - edge, self.right[line].max() + edge, 8 * WIDEST)
        return at, down, self.seen(at, down, _BAND)

    def rules(self, at: Floats, _: Floats, seen: Grey) -> Floats:
        """Columns of the page at which rules cross a line, and go on above and below; from left to right."""
        import cv2

        found = np.zeros(len(at), np.bool_)
        for way in (cv2.MORPH_BLACKHAT, cv2.MORPH_TOPHAT):
            thin = cv2.morphologyEx(seen, way, np.ones((1, 17), np.uint8))
            found |= (cv2.dilate(thin, np.ones((1, 5), np.uint8)) > _RULE).mean(axis=0) > 0.9
        return np.asarray(at[found, 0])

    def cells(self, line: list[int], at: Floats, down: Floats, seen: Grey) -> tuple[Floats | None, list[int]]:
        """Pixels, x and y, from each cell of a form to the next, if a line has cells; its marks but print."""
        digits = np.searchsorted(at[:, 0], self.middle[[k for k in line if self.sure[k]], 0])
        if len(digits) < 2:
            return None, line
        ink = ink_of(_dark(seen))
        dark = ink > _INK
        least, most = (share * self.settings.tall for share in _CELL)
        found = step_of(dark, self.free(line, at, down, _BAND), digits, least, most)
        if found is None:
            return None, line
        step = found[0] * (at[-1] - at[0]) / (len(at) - 1) + found[1] * down[len(at) // 2]
        plain, own = dark & ~self.print(ink, line, at, down, step), dict[int, float]()
        for k in line:
            inside = self.covered([k], at, down, _BAND)
            own[k] = float((plain & inside).sum() / max(1, (dark & inside).sum()))
        if median(own[k] for k in line if self.digits[k]) < _OWN[0]:
            return None, line
        return step, [k for k in line if own[k] > _OWN[1]]

    def parts(self, line: list[int], rules: Floats, gap: float) -> list[list[list[int]]]:
        """Cut a line where a gap is wide, and at the widest while it is too long; each part has a digit.

        Return lines of parts: one, or if such are ``apart`` one for all that is between two wide gaps.
        """
        out, todo, settings, begun = list[list[list[int]]](), [(line, True)], self.settings, False
        while todo:
            part, begins = todo.pop()
            begun |= begins
            left, right, tall = self.left[part], np.maximum.accumulate(self.right[part]), self.tall(part)
            gaps, long = (left[1:] - right[:-1]) / tall, right[-1] - left.min()
            ruled = np.searchsorted(rules, left[1:]) > np.searchsorted(rules, right[:-1])
            least = gaps.min(initial=np.inf)
            most = max(gap, settings.even * min(1.0, least)) if least <= gap else gap
            wide = gaps > np.where(ruled, settings.cell, most)
            if wide.any() or (len(gaps) and long > (WIDEST / settings.tall - 3) * tall):
                off = np.abs((left[1:] + right[:-1] - left.min() - right[-1]) / long)
                k = int((gaps - off + 1e6 * wide).argmax()) + 1  # of equal gaps the one in the middle
                todo += [(part[k:], settings.apart and bool(wide[k - 1])), (part[:k], False)]
            elif self.digits[part].any():
                if begun:
                    out.append([])
                out[-1].append(part)
                begun = False
        return out

    def ends(self, part: list[int], rules: Floats) -> tuple[float, float]:
        """From where to where a strip is read: with something to spare, but not what others read."""
        tall, (x, y), out = self.tall(part), self.middle.T, []
        sides = (-1, part[0], self.right, self.left, 0), (1, part[-1], self.left, self.right, self.wide)
        for way, k, near, far, page in sides:
            end = (way * far[part]).max()
            beside = (np.abs(y - y[k]) < (self.boxes[:, 3] + tall) / 2) & (way * x > end)
            stops = [end + self.settings.spare * tall, way * page + 0.4 * tall]
            stops += ((way * near[beside] + end) / 2).tolist()
            stops += (way * rules[way * rules > end] - 0.08 * tall).tolist()
            out.append(way * max(min(stops), end + 0.1 * tall))
        return out[0], out[1]

    def path(
        self, part: Sequence[int], left: float, right: float, most: int = WIDEST
    ) -> tuple[Floats, Floats]:
        """`Strip.middle` and `Strip.down`: a parabola through the middles of the digits, ridge regression."""
        settings, tall = self.settings, self.tall(part)
        own = [k for k in part if self.digits[k] and self.boxes[k, 3] > 0.6 * tall] or list(part)
        centre, level = self.middle[own].mean(axis=0)
        x, y = (self.middle[own] - (centre, level)).T / tall
        prior = np.diag((settings.noise / np.array([1e3, settings.tilt, settings.bend])) ** 2)
        powers = np.vander(x, 3, increasing=True).T
        fit = np.linalg.solve(powers @ powers.T + prior, powers @ (y - self.slope * x))
        fit[1] += self.slope
        off = self.boxes[own, 1] - level - tall * (fit @ powers)
        top, foot = _ranked(off, 0.1), _ranked(off + self.boxes[own, 3], 0.9)
        unit = (foot - top) / settings.tall / np.hypot(1, fit[1])
        wide = round((right - left) * np.hypot(1, fit[1]) / unit)
        wide = min(max(wide, NARROWEST), most)
        along = left + (np.arange(wide) + 0.5) * (right - left) / wide
        x = (along - centre) / tall
        y = level + (top + foot) / 2 + tall * (fit @ np.vander(x, 3, increasing=True).T)
        rise = fit[1] + 2 * fit[2] * x
        down = np.stack([-rise, np.ones(wide)]) * unit / np.hypot(1, rise)
        return np.stack([along, y], axis=1), down.T

    def covered(self, marks: Iterable[int], at: Floats, down: Floats, rows: int = ROWS) -> NDArray[np.bool_]:
        """Where boxes of marks are on a strip, (rows, w)."""
        inside = np.zeros((rows, len(at)), np.bool_)
        for k in marks:
            first, last = np.searchsorted(at[:, 0], (self.left[k], self.right[k]))
            middle = at[min((first + last) // 2, len(at) - 1), 1]
            off = self.boxes[k, 1] + (0, self.boxes[k, 3]) - middle
            top, foot = np.clip(off / np.hypot(*down[0]) + rows / 2, 0, rows).astype(int)
            inside[top : foot + 1, first:last] = True
        return inside

    def free(self, line: Sequence[int], at: Floats, down: Floats, rows: int) -> NDArray[np.bool_]:
        """Where none of a line's digits and low signs is, (rows, w); a high sign may be a wall."""
        low = self.signs & (self.boxes[:, 3] < 0.6 * self.tall(line))
        return ~self.covered([k for k in line if self.sure[k] or low[k]], at, down, rows)

    def print(
        self, ink: Ink, line: Sequence[int], at: Floats, down: Floats, step: Floats
    ) -> NDArray[np.bool_]:
        """Where ink (H, w) comes again in the cells around, so it is print, but for strokes across it."""
        import cv2

        dark = ink > _INK
        looked, again = np.zeros((2, len(AROUND), *ink.shape), np.bool_)
        for n, k in enumerate(AROUND):
            there = at + k * step
            on_page = (there[:, 0] >= 0) & (there[:, 0] < self.wide)
            looked[n] = self.free(line, there, down, len(dark)) & on_page
            again[n] = looked[n] & wider(ink_of(_dark(self.seen(there, down, len(dark)))) > _INK)
        out = dark & repeated(looked, again)
        free = self.free(line, at, down, len(ink))
        out |= wider(out) & (free | (ink < _FULL))  # and its edge, but for what may be a stroke
        strokes = cv2.morphologyEx((dark & ~out).astype(np.uint8), cv2.MORPH_CLOSE, np.ones((7, 7), np.uint8))
        return np.asarray(out & (strokes == 0))

    def alone(
        self, grey: Grey, ink: Ink, plain: NDArray[np.bool_], part: list[int], at: Floats, down: Floats
    ) -> Ink:
        """`Strip.alone`: where its marks are, and strokes of which most is there, if that is ``plain``."""
        import cv2

        low = 1.3 * self.tall(part)
        own = [k for k in part if self.sure[k] or (self.signs[k] and self.boxes[k, 3] < low)]
        inside = self.covered(own, at, down)
        count, strokes = cv2.connectedComponents((ink > 0.3).astype(np.uint8))
        most = np.bincount(strokes.ravel(), inside.ravel() - 0.5, count) > 0
        most[0] = False
        near = np.asarray(cv2.dilate(most[strokes].astype(np.uint8), np.ones((3, 3), np.uint8)), np.uint8)
        return ink_of(grey, plain & ((inside | near) > 0))

    def seen(self, middle: Floats, down: Floats, rows: int = ROWS) -> Grey:
        """Greys along a strip, see `Strip`, (rows, w); beyond the page lies what is at its edge."""
        import cv2

        level = max(0, round(float(np.log2(np.hypot(*down[0])))))
        while len(self.sizes) <= level:
            half = [max(1, side // 2) for side in self.sizes[-1].shape[::-1]]
            smaller = cv2.resize(self.sizes[-1], half, interpolation=cv2.INTER_AREA)
            self.sizes.append(np.asarray(smaller, np.uint8))
        page = self.sizes[level]
        size = np.array(page.shape[::-1])
        scale = size / self.sizes[0].shape[::-1]
        first, step = (middle * scale - 0.5).astype(np.float32), (down * scale).astype(np.float32)
        away = (np.arange(rows, dtype=np.float32) - np.float32((rows - 1) / 2))[:, None]
        x, y = (first[:, axis] + away * step[:, axis] for axis in (0, 1))
        return np.asarray(cv2.remap(page, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE), np.uint8)


def _ranked(values: Floats, share: float) -> float:
    return float(np.sort(values)[round(share * (len(values) - 1))])
