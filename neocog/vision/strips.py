"""Strips for the line reader: lines of a page cut out along their baseline, 48 rows of ink each.

The finder's marks that stand at one height make a line. It is parted where marks are far apart or a table's
rule stands between them; each part is bent straight and scaled by the height of its digits.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.network.lines import NARROWEST, ROWS, WIDEST
from neocog.vision.cells import AROUND, Mask, repeated, step_of, uncrossed, wider
from neocog.vision.finder import SIGNS, Finding, Grey

Ink = NDArray[np.float32]
Floats = NDArray[np.float64]
Boxes = NDArray[np.floating[Any]]  # left, top, width and height in pixels of the page, (N, 4)

SCORE, LEAST = 0.35, 0.15  #: scores from which a digit makes a line, and a mark belongs to a line beside it
GAP = 2.5  #: a wider one parts two strips, in heights of a line's digits, as all lengths here

TALL = 34.0  # rows of a strip that a line's digits fill
_MOST = 400  # strips of a page
_COLUMNS = 2**20, 300  # of strips of a page, and of a frame, after which no line is cut
_ASTRAY, _ASIDE = 0.3, 1.6  # how far above or below, and beside, its digits a sign may stand
# how far a digit's middle is off its line, its slope off the page's, and a line off a straight one
_NOISE, _TILT, _BEND = 0.08, 0.06, 0.008  # as standard deviations
_INK, _FULL = 0.2, 0.5  # from which ink may be print, and is no blurred edge
_BAND = 64  # rows around a line in which rules and cells are looked for
_CLOSE = 0.2  # between digits that are nearer a space is rare
_CELL = 0.7, 2.6  # how far it is from a cell to the next
_OWN = 0.6, 0.3  # shares of the ink that is no print: of most digits if there are cells, of each digit
_RULE, _CLEAR = 6, 3  # grey levels that a rule stands out of its paper, and how much more than most columns
_EVEN = 0.5  # of the usual contrast of a rule is everywhere
_BLOCKS, _EDGE = 14, 3  # of rows, and how many may be beyond a table if a rule is in all others but one,
_LEANS = -0.5, -0.25, 0, 0.25, 0.5  # and columns that a rule leans from each to the next
_THICK = 24  # columns that it is narrower than
_STROKE = 1.5  # times the contrast that the rule has above and below, from which a stroke is on it
_HIGH = np.isin(np.arange(10 + len(SIGNS)), [10 + SIGNS.index(sign) for sign in "/()"])  # as digits are


@dataclass(frozen=True, slots=True, eq=False)
class Strip:
    """A piece of a line of writing."""

    ink: Ink  #: 0 paper .. 1 ink, (48, w)
    marks: tuple[int, ...]  #: numbers of the marks it was made of, from left to right
    line: int  #: which line of the page it is of, from the top; strips of one go from left to right
    middle: Floats  #: where the middle of each column is on the page, x and y, (w, 2)
    down: Floats  #: what the next row is further on the page, (w, 2)
    alone: Callable[[], Ink]  #: returns ``ink`` of its digits and signs alone, without walls of cells
    spaces: tuple[int, ...] = ()  #: columns in the middle of gaps that are wider than between its digits
    close: tuple[int, ...] = ()  #: columns in the middle of gaps in which a space is rare
    rules: tuple[float, ...] = ()  #: where rules cross its line, columns of the page

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


def ink_of(grey: NDArray[Any], kept: Mask | None = None) -> Ink:
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

    grey = grey[slice(*rows_of(grey))]
    wide = int(np.clip(round(grey.shape[1] * ROWS / grey.shape[0]), NARROWEST, WIDEST))
    how = cv2.INTER_AREA if grey.shape[0] > ROWS else cv2.INTER_LINEAR
    return ink_of(_dark(np.asarray(cv2.resize(grey, (wide, ROWS), interpolation=how), np.uint8)))


def rows_of(grey: Grey) -> tuple[int, int]:
    """Return the rows of the writing of a picture of one line, and a little more; rules are no writing."""
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
    first, last = np.searchsorted(np.cumsum(rows) / rows.sum(), (0.02, 0.98)).tolist()
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
        if not float((off * off * off).mean()) > 0.15 * float((off * off).mean()) ** 1.5:  # their skewness
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


def lines_of(boxes: Boxes, digits: NDArray[np.bool_]) -> list[list[int]]:
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
        worth[(shared < 0.5) | (many > 3.2 * few)] = -np.inf  # it is beside the line, or of another size
        line = int(worth.argmax()) if worth.max(initial=-np.inf) > -1 else n
        if line == n:
            lines.append([])
        lines[line].append(k)
        last = lines[line][-5:]
        tall[line], right[line] = median(high[lines[line]].tolist()), max(right[line], left[k] + wide[k])
        at[line], level[line] = x[last].mean(), y[last].mean()
        along, down = x[last] - at[line], y[last] - level[line]
        steady = (_NOISE / _TILT * tall[line]) ** 2
        rise[line] = slope + along @ (down - slope * along) / (along @ along + steady)
    owner, tall = np.full(len(boxes), -1), tall[: len(lines)]
    ends = np.array([[f(v[line]) for f in (np.min, np.max) for v in (x, y)] for line in lines]).reshape(-1, 4)
    outer = ends + (0.5 + _ASTRAY) * tall[:, None] * [-1, -1, 1, 1]
    for number, marks in enumerate(lines):  # but for specks among the digits of a larger line
        among = (ends[number, :2] > outer[:, :2]) & (ends[number, 2:] < outer[:, 2:])
        if not (among.all(axis=1) & (1.8 * tall[number] < tall)).any():
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
        far[(off > 0.5 + _ASTRAY) | (aside > _ASIDE) | (high[k] > 1.6 * tall[own])] = np.inf
        if far.min() < np.inf:
            owner[k], y[k] = own[far.argmin()], here[far.argmin()]  # the height of its line, not its own
    kept = [[k for k in order if owner[k] == number] for number in sorted(set(owner[owner >= 0].tolist()))]
    return sorted(kept, key=lambda line: median((y[line] - slope * x[line]).tolist()))


def strips(grey: Grey, found: Finding, *, wanted: NDArray[np.bool_] | None = None) -> list[Strip]:
    """Cut the lines of a page (H, W) out; `Strip.marks` are indices of likely ones of ``found``.

    With ``wanted`` (N,) it is a camera's frame: lines of which a mark is wanted, and what stands far apart is
    another line; the next frame shows what was not cut.
    """
    likely, frame = found.scores >= LEAST, wanted is not None
    page, cut = _Page(grey, found[likely]), list[Strip]()
    every = np.ones(len(page.boxes), np.bool_) if wanted is None else wanted[likely]
    left, right, digits = page.left, page.right, page.digits

    # a page of one line is one strip as it is: low, with little above and below what most marks are of
    tall = page.tall(range(len(page.boxes))) if digits.any() else 0.0
    if not frame and len(grey) < min(page.wide, 2.5 * tall) and page.wide < WIDEST / TALL * tall:
        spans = [(left[own].min(), right[own].max(), page.scores[own].sum()) for own in page.lines]
        begin, end, most = max(spans, key=lambda one: one[2])
        if sum(score for first, last, score in spans if first < end and last > begin) < 4 / 3 * most:
            (top, foot), ink = rows_of(grey), strip_of(grey)
            along = (np.arange(ink.shape[1]) + 0.5) * page.wide / ink.shape[1]
            at = np.stack([along, np.full(len(along), (top + foot) / 2)], axis=1)
            down = np.tile((0.0, (foot - top) / ROWS), (len(along), 1))
            order = np.argsort(page.middle[:, 0], kind="stable").tolist()
            return [Strip(ink, tuple(order), 0, at, down, lambda: ink)]

    number, columns = -1, 0
    for line in (line for line in page.lines if every[line].any()):
        if columns >= _COLUMNS[frame]:
            break
        written, rules, step = page.ruled(line)
        # it is cut at rules and wide gaps, and at the widest while it is too long; each part has a digit;
        # of a frame what is between two wide gaps is a line of its own
        gap, begun = np.inf if step is not None else GAP, False
        todo, lines = [(written, True)], list[list[list[int]]]()
        while todo:
            part, begins = todo.pop()
            begun |= begins
            ends, high = np.maximum.accumulate(right[part]), page.tall(part)
            gaps, long = (left[part[1:]] - ends[:-1]) / high, ends[-1] - left[part].min()
            ruled = np.diff(np.searchsorted(rules.mean(axis=1), page.middle[part, 0])) > 0
            least = gaps.min(initial=np.inf)
            # one in which all are far apart is a line: a digit may be missed there
            far = max(gap, 4.0 * min(1.0, least)) if frame and least <= gap else gap
            wide = gaps > np.where(ruled, -0.5, far)  # digits may touch the rule between them
            if wide.any() or (len(gaps) and long > (WIDEST / TALL - 3) * high):
                off = np.abs((left[part[1:]] + ends[:-1] - left[part].min() - ends[-1]) / long)
                k = int((gaps - off + 1e6 * wide).argmax()) + 1  # of equal gaps the one in the middle
                todo += [(part[k:], frame and bool(wide[k - 1])), (part[:k], False)]
            elif digits[part].any():
                if begun:
                    lines.append([])
                lines[-1].append(part)
                begun = False
        for parts in lines:
            number += 1
            if columns >= _COLUMNS[frame]:
                break
            for part in parts if every[list(chain(*parts))].any() else ():
                cut.append(page.cut(part, line, number, rules, step))
                columns += cut[-1].ink.shape[1]
                if len(cut) == _MOST:
                    return cut
    return cut


class _Page:
    """A page and its marks, of which none is another one."""

    def __init__(self, grey: Grey, found: Finding) -> None:
        self.sizes, self.wide = [grey], grey.shape[1]
        self.boxes = np.maximum(found.boxes, [-np.inf, -np.inf, 1, 1])
        self.left, self.right = self.boxes[:, 0], self.boxes[:, 0] + self.boxes[:, 2]
        self.middle = self.boxes[:, :2] + self.boxes[:, 2:] / 2
        self.sure = (found.kinds < 10) & (found.scores >= SCORE)
        self.digits = self.sure | (_HIGH[found.kinds] & (found.scores >= SCORE))
        self.signs, self.scores = found.kinds >= 10, found.scores
        self.slope = voted_slope(self.boxes[self.digits])
        # a stem of a 7 that is taken for a sign would lead off the digits
        self.lines = lines_of(self.boxes, self.sure if self.sure.any() else self.digits)

    def ruled(self, line: list[int]) -> tuple[list[int], Floats, Floats | None]:
        """What of a line is no print, its rules, and the step of its cells if it has some: then no rules.

        Rules, (R, 2), are first and last columns of the page of what crosses a line, goes on above and below
        it, is clearer than most columns, and about even in all rows but a few. The step, pixels x and
        y, leads from each cell of a form to the next.
        """
        import cv2

        edge, shown, step = 2 * self.tall(line), line, None
        at, down = self.path(line, self.left[line].min() - edge, self.right[line].max() + edge, 8 * WIDEST)
        grey = _dark(self.seen(at, down, _BAND))
        ink = ink_of(grey)
        dark = ink > _INK
        digits = np.searchsorted(at[:, 0], self.middle[[k for k in line if self.sure[k]], 0])
        least, most = (share * TALL for share in _CELL)
        free = self.free(line, at, down, _BAND)
        cells = step_of(dark, free, digits, least, most) if len(digits) > 1 else None
        if cells is not None:
            step = cells[0] * (at[-1] - at[0]) / (len(at) - 1) + cells[1] * down[len(at) // 2]
            plain = dark & ~self.print(ink, line, at, down, step)
            own = dict[int, float]()
            for k in line:
                inside = self.covered([k], at, down, _BAND)
                own[k] = float((plain & inside).sum() / max(1, (dark & inside).sum()))
            if median(own[k] for k in line if self.digits[k]) < _OWN[0]:
                step = None
            else:
                shown = [k for k in line if own[k] > _OWN[1]]

        thin = np.asarray(cv2.morphologyEx(grey, cv2.MORPH_BLACKHAT, np.ones((1, 17), np.uint8)))
        blocks = thin[4:-4].reshape(_BLOCKS, -1, len(at)).mean(axis=1, dtype=np.float32)
        blocks = cv2.dilate(blocks, np.ones((1, 3), np.uint8))
        blocks = cv2.copyMakeBorder(np.asarray(blocks), 0, 0, 4, 4, cv2.BORDER_CONSTANT)
        starts = [[4 - round(lean * (k - _BLOCKS // 2)) for k in range(_BLOCKS)] for lean in _LEANS]
        moved = np.array([[blocks[k, x : x + len(at)] for k, x in enumerate(own)] for own in starts])
        edges, enough = np.zeros((0, 2), np.intp), 0
        for some, few in ((0, _BLOCKS), 2), ((_EDGE, _BLOCKS), 1), ((0, _BLOCKS - _EDGE), 1):
            ranked = np.sort(moved[:, slice(*some)], axis=1)
            middle = ranked[:, ranked.shape[1] // 2]
            clear = (ranked[:, few] * (ranked[:, few] > _EVEN * middle)).max(axis=0)
            found = clear > max(_RULE, _CLEAR * _ranked(clear, 0.75))
            ends = np.flatnonzero(np.diff(found, prepend=False, append=False)).reshape(-1, 2)
            ends = ends[(np.diff(ends)[:, 0] > 1) & (np.diff(ends)[:, 0] < _THICK)]
            if len(ends) >= enough:  # rules of a table end together, strokes do not
                edges, enough = ends, len(ends) + 2
        rules = np.stack([at[edges[:, 0], 0], at[edges[:, 1] - 1, 0]], axis=1)
        if len(rules) > 2 and np.median(np.diff(rules.mean(axis=1))) < 1.3 * self.tall(shown):
            rules = rules[:0]  # squared paper: a digit hardly fits between two of them
        beside = ~((at[:, 0] >= rules[:, :1]) & (at[:, 0] <= rules[:, 1:])).any(axis=0)
        tall, kept = self.tall(shown), list[int]()
        for k in shown:  # a mark is a rule if little of its ink is beside one, and what is on it is no stroke
            if not ((rules[:, 1] > self.left[k]) & (rules[:, 0] < self.right[k])).any():
                kept.append(k)
                continue
            stem = not self.sure[k] and self.boxes[k, 2] < 0.4 * tall
            inside = self.covered([k], at, down, _BAND)
            on, own_ink = inside & ~beside, dark & inside
            rows = on.any(axis=1)
            bare = (own_ink & beside).sum() < 0.25 * own_ink.sum()
            if bare and rows.any() and not rows.all():
                through = thin[:, on.any(axis=0)].max(axis=1)
                bare = through[rows].mean() < _STROKE * through[~rows].mean()
            if not (stem or bare):
                kept.append(k)
        kept = kept if self.digits[kept].any() else shown
        inner = [(self.middle[k, 0], 0.35 * self.boxes[k, 2]) for k in kept if self.digits[k]]
        rules = rules[[step is None and all(abs(x - rule.mean()) > w for x, w in inner) for rule in rules]]
        return kept, rules, step

    def cut(self, part: list[int], line: list[int], number: int, rules: Floats, step: Floats | None) -> Strip:
        """The strip of a part of a line, without its print and the rules that no stroke crosses."""
        tall, (x, y), ends = self.tall(part), self.middle.T, []
        sides = (-1, part[0], self.right, self.left, 0), (1, part[-1], self.left, self.right, self.wide)
        for way, k, near, far, page in sides:  # with something to spare, but not what others read
            end = (way * far[part]).max()
            beside = (np.abs(y - y[k]) < (self.boxes[:, 3] + tall) / 2) & (way * x > end)
            edges = rules[:, 0 if way > 0 else 1]
            stops = [end + tall, way * page + 0.4 * tall, *((way * near[beside] + end) / 2).tolist()]
            stops += (way * edges[way * edges > end] - 0.08 * tall).tolist()
            ends.append(way * max(min(stops), end + 0.1 * tall))
        at, down = self.path(part, ends[0], ends[1])
        own = [k for k in part if self.digits[k]]
        first, last = np.searchsorted(at[:, 0], (self.left[own].min(), self.right[own].max())).tolist()
        grey = _dark(self.seen(at, down), max(0, first - 2), last + 2)
        ink, spaces, close = ink_of(grey), list[float](), list[float]()
        plain = np.ones(ink.shape, np.bool_)
        crossed = ((rules[:, :1] <= at[:, 0]) & (at[:, 0] <= rules[:, 1:])).any(axis=0)
        if step is not None:
            plain = ~self.print(ink, line, at, down, step)
        elif crossed.any():
            plain = ~uncrossed((ink > _INK) & crossed, ink > _INK)
        ink = ink_of(grey, plain) if step is not None or crossed.any() else ink
        if step is None:  # one more digit would fit in, as far from both sides as those of the line are
            own = [k for k in line if self.digits[k]]
            gaps = self.left[own[1:]] - np.maximum.accumulate(self.right[own])[:-1]
            usual = np.clip(_ranked(gaps / tall, 0.25), 0.3, 1) if len(gaps) else 1.0
            least = tall * (_ranked(self.boxes[own, 2] / tall, 0.5) + 2 * usual)
            before, after = np.maximum.accumulate(self.right[part])[:-1], self.left[part[1:]]
            middle = (before + after) / 2
            spaces = middle[after - before > least].tolist()
            close = middle[np.abs(after - before) < _CLOSE * tall].tolist()

        def alone() -> Ink:
            """Where its marks are, and strokes of which most is there, if that is ``plain``."""
            import cv2

            some = [k for k in part if self.sure[k] or (self.signs[k] and self.boxes[k, 3] < 1.3 * tall)]
            inside = self.covered(some, at, down)
            count, strokes = cv2.connectedComponents((ink > 0.3).astype(np.uint8))
            most = np.bincount(strokes.ravel(), inside.ravel() - 0.5, count) > 0
            most[0] = False
            return ink_of(grey, plain & (inside | wider(most[strokes])))

        wide, narrow = (tuple(np.searchsorted(at[:, 0], some).tolist()) for some in (spaces, close))
        places = tuple(rules.mean(axis=1).tolist())
        return Strip(ink, tuple(part), number, at, down, alone, wide, narrow, places)

    def print(self, ink: Ink, line: list[int], at: Floats, down: Floats, step: Floats) -> Mask:
        """Where ink (H, w) comes again in the cells around, so it is print, but for strokes across it."""
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
        return uncrossed(out, dark)

    def tall(self, part: Sequence[int]) -> float:
        """Height of the digits of a line."""
        return _ranked(self.boxes[[k for k in part if self.digits[k]] or part, 3], 0.9)

    def path(self, part: list[int], left: float, right: float, most: int = WIDEST) -> tuple[Floats, Floats]:
        """`Strip.middle` and `Strip.down`: a parabola through the middles of the digits, ridge regression."""
        tall = self.tall(part)
        own = [k for k in part if self.digits[k] and self.boxes[k, 3] > 0.6 * tall] or part
        centre, level = self.middle[own].mean(axis=0)
        x, y = (self.middle[own] - (centre, level)).T / tall
        prior = np.diag((_NOISE / np.array([1e3, _TILT, _BEND])) ** 2)
        powers = np.vander(x, 3, increasing=True).T
        fit = np.linalg.solve(powers @ powers.T + prior, powers @ (y - self.slope * x))
        fit[1] += self.slope
        off = self.boxes[own, 1] - level - tall * (fit @ powers)
        top, foot = _ranked(off, 0.1), _ranked(off + self.boxes[own, 3], 0.9)
        unit = (foot - top) / TALL / np.hypot(1, fit[1])
        wide = min(max(round((right - left) * np.hypot(1, fit[1]) / unit), NARROWEST), most)
        along = left + (np.arange(wide) + 0.5) * (right - left) / wide
        x = (along - centre) / tall
        y = level + (top + foot) / 2 + tall * (fit @ np.vander(x, 3, increasing=True).T)
        rise = fit[1] + 2 * fit[2] * x
        down = np.stack([-rise, np.ones(wide)]) * unit / np.hypot(1, rise)
        return np.stack([along, y], axis=1), down.T

    def covered(self, marks: Iterable[int], at: Floats, down: Floats, rows: int = ROWS) -> Mask:
        """Where boxes of marks are on a strip, (rows, w)."""
        inside = np.zeros((rows, len(at)), np.bool_)
        for k in marks:
            first, last = np.searchsorted(at[:, 0], (self.left[k], self.right[k]))
            middle = at[min((first + last) // 2, len(at) - 1), 1]
            off = self.boxes[k, 1] + (0, self.boxes[k, 3]) - middle
            top, foot = np.clip(off / np.hypot(*down[0]) + rows / 2, 0, rows).astype(int)
            inside[top : foot + 1, first:last] = True
        return inside

    def free(self, line: list[int], at: Floats, down: Floats, rows: int) -> Mask:
        """Where none of a line's digits and low signs is, (rows, w); a high sign may be a wall."""
        low = self.signs & (self.boxes[:, 3] < 0.6 * self.tall(line))
        return ~self.covered([k for k in line if self.sure[k] or low[k]], at, down, rows)

    def seen(self, middle: Floats, down: Floats, rows: int = ROWS) -> Grey:
        """Greys along a strip, see `Strip`, (rows, w); beyond the page lies what is at its edge."""
        import cv2

        level = max(0, round(float(np.log2(np.hypot(*down[0])))))
        while len(self.sizes) <= level:
            page = self.sizes[-1]
            half = [max(1, side // 2) for side in page.shape[::-1]]
            self.sizes.append(np.asarray(cv2.resize(page, half, interpolation=cv2.INTER_AREA), np.uint8))
        page = self.sizes[level]
        scale = np.array(page.shape[::-1]) / self.sizes[0].shape[::-1]
        first, step = (middle * scale - 0.5).astype(np.float32), (down * scale).astype(np.float32)
        away = (np.arange(rows, dtype=np.float32) - np.float32((rows - 1) / 2))[:, None]
        x, y = (first[:, axis] + away * step[:, axis] for axis in (0, 1))
        return np.asarray(cv2.remap(page, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE), np.uint8)


def _ranked(values: NDArray[Any], share: float) -> float:
    return float(np.sort(values)[round(share * (len(values) - 1))])
