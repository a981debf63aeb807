"""The learned finder: a grey picture in, boxes of digits and signs with scores out.

The picture is read at several sizes, each half of the one before; a network tells of every fourth pixel
whether a digit or a sign is centred there and how large it is. Boxes of all sizes are put together and of
those that overlap the best stays; what digit it is tells the mean of all. The largest size is three quarters
of the work: if the others show a clear digit, it is read only around small digits (coarse to fine).

Sources: Zhou et al. 2019, Objects as points, arXiv:1904.07850.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Grey = NDArray[np.uint8]
Maps = NDArray[np.float32]
Region = tuple[slice, slice]  # rows and columns of a picture, from multiples of 16 on
Network = Callable[[Maps], Maps]  # of a normalised picture, (H, W) multiples of 16 -> (C, H / 4, W / 4)

SIGNS = "/-.,:+=()x*%÷#"  #: signs that are told from digits, in the order of the network's answers
LONG_SIDE = 1024  #: pixels: the long side of pages as the finder has learned them
CELL = 4  #: pixels between two places that the network answers for
UNIT = 16.0  #: pixels of which the logarithm of a width or a height counts
WINDOW = 49  #: rows and columns of the window whose mean and variance are taken off
FLOOR = 12.0  #: grey levels that are added to a window's variance as their square: flat paper stays flat
SURE = 12.0  #: logits beyond this are certainty
MULTIPLE = 16  #: the network halves its maps four times
_SAME = 0.5  # share of the union of two boxes from which they tell of the same digit
_MOST = 2048  # marks of a picture at one size: a page has 2 000 at most, a block of a GPU memory for so many


@dataclass(frozen=True, slots=True)
class FinderSettings:
    """How a picture is searched: sizes that the network is trained for, bounds of the work."""

    long_side: int = LONG_SIDE  #: pixels; larger pictures are reduced to it
    small: int = 384  #: pixels; smaller pictures are enlarged to it, at most twice
    step: float = 2.0  #: between two sizes that the picture is read at
    least: float = 0.1  #: score below which nothing is told
    score: float = 0.35  #: score from which a box is a digit
    smallest: float = 9.0  #: longer side of marks that one size is asked for, in its pixels
    largest: float = 76.0
    overlap: float = 0.4  #: share of the union of two boxes from which they are one mark (1: all are told)
    inside: float = 0.75  #: share of the smaller of two boxes from which they are one mark
    most: int = 800  #: boxes of one page that are looked at, the best: noise takes no longer
    clear: float = 0.9  #: score at a smaller size from which only parts of the largest are read (0: always)
    fine: float = 56.0  #: longer side, in pixels of the largest size, of digits with a part around them
    faint: float = 0.03  #: score from which there is one
    around: float = 96.0  #: pixels of the largest size on each side of such digits


@dataclass(frozen=True, slots=True)
class Finding:
    """Marks that were found on a page, best first."""

    boxes: NDArray[np.float32]  #: left, top, width, height in pixels of the picture, (N, 4)
    scores: NDArray[np.float32]  #: how surely it is a digit, or a sign, 0 .. 1, (N,)
    #: 0 .. 9 for a digit (a guess of the finder's), 10 + k for the sign `SIGNS[k]`, (N,)
    kinds: NDArray[np.int64]
    guesses: NDArray[np.float32]  #: log probabilities of the ten digits, if it is one, (N, 10)
    whole: bool = True  #: whether all of the page was searched that may hold more

    @classmethod
    def join(cls, parts: Sequence["Finding"]) -> "Finding":
        arrays: list[Any] = [np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS]
        return cls(*arrays)

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, index: Any) -> "Finding":
        return replace(self, **{name: getattr(self, name)[index] for name in _ARRAYS})

    @property
    def middles(self) -> NDArray[np.float32]:
        """Of its boxes, x and y, (N, 2)."""
        return np.asarray(self.boxes[:, :2] + self.boxes[:, 2:] / 2)

    def long_from(self, small: float, large: float) -> NDArray[np.bool_]:
        """Which marks have a longer side from ``small``, of signs from 0.4 of that, to ``large``, (N,)."""
        long = self.boxes[:, 2:].max(axis=1)
        return np.asarray((long >= np.where(self.kinds < 10, small, 0.4 * small)) & (long <= large))

    def scaled(self, x: float, y: float) -> "Finding":
        """The same marks on a picture so many times as wide and high."""
        return replace(self, boxes=self.boxes * np.array([x, y, x, y], np.float32))


_ARRAYS = "boxes", "scores", "kinds", "guesses"


def normalised(grey: Grey) -> Maps:
    """Return (g - mean) / sqrt(variance + FLOOR^2), (H, W), both over a window of WINDOW pixels."""
    import cv2

    window = (WINDOW, WINDOW)
    mean = np.asarray(cv2.boxFilter(grey, cv2.CV_32F, window), np.float32)
    square = np.asarray(cv2.sqrBoxFilter(grey, cv2.CV_32F, window), np.float32)
    square -= mean * mean
    np.maximum(square, 0, out=square)
    square += np.float32(FLOOR**2)
    x = np.asarray(cv2.subtract(grey, mean, dtype=cv2.CV_32F), np.float32)
    x /= np.sqrt(square, out=square)
    return x


def reduced(pixels: Grey, factor: float, shape: Sequence[int] = ()) -> Grey:
    """Return grey or RGB pixels at a factor below 1 of their shape, or of ``shape``, by means of areas."""
    import cv2

    if factor >= 1:
        return pixels
    size = [max(1, round(side * factor)) for side in (shape or pixels.shape)[1::-1]]
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), np.uint8)


def sizes(shape: tuple[int, int], settings: FinderSettings) -> list[float]:
    """Return the factors by which a picture (H, W) is reduced, the largest first."""
    factors = [min(1.0, settings.long_side / max(shape))]
    while factors[-1] * max(shape) > settings.largest:
        factors.append(factors[-1] / settings.step)
    return factors


def find(grey: Grey, network: Network, settings: FinderSettings | None = None) -> Finding:
    """Find digits and signs of a picture (H, W), all from ``settings.least`` on."""
    import cv2

    settings = settings or FinderSettings()
    factor = min(2.0, settings.small / max(grey.shape))
    if factor > 1:
        large = cv2.resize(grey, None, fx=factor, fy=factor, interpolation=cv2.INTER_CUBIC)
        found = find(np.asarray(large, np.uint8), network, replace(settings, small=0))
        return found.scaled(grey.shape[1] / large.shape[1], grey.shape[0] / large.shape[0])
    whole = getattr(network, "find", None)
    # a GPU reads all of it at all sizes at once; what a worker has asks the process that has the GPU
    if whole and (math.isinf(settings.fine) or not callable(network)):
        return cast(Finding, whole(grey, settings))
    pictures: list[Grey] = []
    for factor in sizes((grey.shape[0], grey.shape[1]), settings):
        pictures.append(reduced(pictures[-1] if pictures else grey, factor, grey.shape))
    largest, *others = pictures
    faint = replace(settings, least=min(settings.faint, settings.least))
    marks = [read(network, picture, faint) for picture in others]
    regions: list[Region | None] = [None]  # of the largest picture: all of it
    if others:
        told = joined(marks, [picture.shape for picture in others], largest.shape, settings)
        digits = told[told.kinds < 10]
        marks = [found[found.scores >= settings.least] for found in marks]
        clear = not settings.clear or digits.scores.max(initial=0.0) >= settings.clear
        if clear and not math.isinf(settings.fine):
            boxes = digits.boxes[digits.boxes[:, 2:].max(axis=1) < settings.fine]
            first = boxes[:, :2].min(axis=0, initial=np.inf) - settings.around
            last = (boxes[:, :2] + boxes[:, 2:]).max(axis=0, initial=0) + settings.around
            ends = np.stack([np.floor(first / MULTIPLE), np.ceil(last / MULTIPLE)]) * MULTIPLE
            ends = ends.clip(0, largest.shape[::-1]).astype(int)
            regions = [(slice(*ends[:, 1]), slice(*ends[:, 0]))] if len(boxes) else []
    marks = [*(read(network, largest, settings, region) for region in regions), *marks]
    shapes = [picture.shape for picture in pictures[-len(marks) :]]
    found = the_best(joined(marks, shapes, grey.shape, settings), settings.most)
    return found if settings.overlap >= 1 else agreed(merged(found, settings), found)


def read(network: Network, picture: Grey, settings: FinderSettings, region: Region | None = None) -> Finding:
    """The marks of a picture at its size, or of a region of it."""
    everything = slice(0, picture.shape[0]), slice(0, picture.shape[1])
    rows, columns = region or everything
    if (whole := getattr(network, "find", None)) and (rows, columns) == everything:
        one = replace(settings, small=0, long_side=max(picture.shape), largest=math.inf, fine=math.inf)
        return cast(Finding, whole(picture, replace(one, overlap=1.0, inside=1.0, most=_MOST)))
    top, left = (max(0, span.start - WINDOW // 2) for span in (rows, columns))
    x = normalised(picture[top : rows.stop + WINDOW // 2, left : columns.stop + WINDOW // 2])
    x = x[rows.start - top : rows.stop - top, columns.start - left : columns.stop - left]
    found = decode(network(np.pad(x, [(0, -side % MULTIPLE) for side in x.shape])), settings)
    found.boxes[:, :2] += columns.start, rows.start
    return found


def joined(
    marks: Sequence[Finding], shapes: Sequence[Any], shape: Sequence[int], settings: FinderSettings
) -> Finding:
    """Put the marks of several sizes, the largest first, together as they stand in a picture (H, W).

    Marks stay whose longer side is from ``settings.smallest`` (in the first size: from nothing) to
    ``settings.largest`` pixels (in the last: to anything).
    """
    parts = []
    for number, (found, (high, wide)) in enumerate(zip(marks, shapes, strict=True)):
        small = settings.smallest if number else 0.0
        large = settings.largest if number + 1 < len(marks) else math.inf
        parts.append(found[found.long_from(small, large)].scaled(shape[1] / wide, shape[0] / high))
    return Finding.join(parts)


def decode(maps: Maps, settings: FinderSettings) -> Finding:
    """Turn the network's answers for one size, (C, h, w), into boxes.

    The maps are digit, sign, log width, log height, offset x, offset y, one for each kind of mark.
    """
    import cv2

    least = math.log(settings.least / (1 - settings.least))
    best = maps[:2].max(axis=0)
    peak = np.asarray(cv2.dilate(best, np.ones((3, 3), np.uint8)))
    rows, columns = np.nonzero((best >= peak) & (best > least))
    which, mark = np.nonzero(maps[:2, rows, columns] > least)
    rows, columns, sign = rows[mark], columns[mark], which == 1
    at = maps[:, rows, columns]
    size = UNIT * np.exp(np.clip(at[2:4], -4, 4))
    middle = (np.stack([columns, rows]) + 0.5 + at[4:6]) * CELL
    kinds = np.where(sign, 10 + at[16:].argmax(axis=0), at[6:16].argmax(axis=0))
    guesses = at[6:16] - at[6:16].max(axis=0)
    guesses -= np.log(np.exp(guesses).sum(axis=0))
    boxes = np.concatenate([middle - size / 2, size]).T
    scores = 1 / (1 + np.exp(-np.clip(np.where(sign, at[1], at[0]), -SURE, SURE)))
    boxes, scores, guesses = (some.astype(np.float32) for some in (boxes, scores, guesses.T))
    return Finding(boxes, scores, kinds.astype(np.int64), guesses)


def the_best(found: Finding, most: int) -> Finding:
    return found[np.argsort(-found.scores, kind="stable")[:most]]


def merged(found: Finding, settings: FinderSettings) -> Finding:
    """Of marks that overlap keep the best, best first."""
    found = the_best(found, settings.most)
    union, smaller, _ = overlaps(found.boxes, found.boxes)
    other = (union <= settings.overlap) & (smaller <= settings.inside)
    alive, kept = np.ones(len(found), np.bool_), list[int]()
    for i in range(len(found)):
        if alive[i]:
            kept.append(i)
            alive &= other[i]
    return found[np.array(kept, np.int64)]


def agreed(told: Finding, found: Finding) -> Finding:
    """Let the log probabilities of digits ``told`` be the mean of those ``found`` at their places.

    They are weighted by their scores; those that are told are among these.
    """
    digits, also, guesses = told.kinds < 10, found[found.kinds < 10], told.guesses.copy()
    share = np.where(overlaps(told.boxes[digits], also.boxes)[0] >= _SAME, also.scores, 0)
    guesses[digits] = share @ also.guesses / share.sum(axis=1, keepdims=True)
    guesses[digits] -= np.log(np.exp(guesses[digits]).sum(axis=1, keepdims=True))
    return replace(told, guesses=guesses, kinds=np.where(digits, guesses.argmax(axis=1), told.kinds))


def overlaps(a: NDArray[np.float32], b: NDArray[np.float32]) -> tuple[NDArray[np.float32], ...]:
    """What boxes (N, 4), (M, 4) share: of their union, of the smaller one, of the first; (N, M) each."""
    sides = []
    for axis in (0, 1):
        low, high = a[:, axis], a[:, axis] + a[:, axis + 2]
        shared = np.minimum(high[:, None], b[:, axis] + b[:, axis + 2])
        shared -= np.maximum(low[:, None], b[:, axis])
        sides.append(np.maximum(shared, 0, out=shared))
    common, first, second = sides[0] * sides[1], (a[:, 2] * a[:, 3])[:, None], b[:, 2] * b[:, 3]
    wholes = first + second - common, np.minimum(first, second), first
    return tuple(np.asarray(common / np.maximum(whole, 1e-6), np.float32) for whole in wholes)
