"""Fits the weights of evidence for a digit, and sets from when on a place is told.

    python -m experiments.reading.tune DATA [--bank FILE] [--finder FILE] [--model NAME|FILE]
        [--pages N] [--enlarge N | --vary | --small | --coarse] [-o RESULT]

DATA holds photos, strings and mnist. Tuning data are the photographs, every second cheque, made
pages of the tuned conditions, pages without digits of the tuned kinds (of another seed than
``measure.py`` measures with) and pages of the finder's teacher by hands that it did not learn from:
with digits (lines, amounts, scattered, forms) and without (letters, nothing). A place is a digit
where one stands, or where what is read can be aligned with what is written. Each of these six sets
counts alike. Fitted are, one after the other: `own` and `network`, a logistic regression; `trust`
and `guess`, by the likelihood of the digits that are written, whatever is read; `around` and
`link`, from those before, by how likely the chains are that spell the lines (``sequence.py``; needs
PyTorch). ``asked`` is the range of log odds in which the digit
network's answer decides anything. Of all ``told`` for which at most one page in thirty without
digits gives one (or as few as can be), that wins at which photographs, cheques and made pages have
the lowest mean error rate. ``--enlarge`` is the long side to which smaller pages are enlarged
before (0: none is). What is printed goes into `neocog.vision.weigh`.

With ``--vary``, ``--small`` or ``--coarse`` nothing is fitted, the weights are those in use. With
``--vary`` each of `VARIED`, of `neocog.vision.weigh.SearchSettings`, is made a fifth smaller and
larger, one after the other, and what comes of it is listed. With ``--small`` that ``small`` of
`neocog.vision.finder.FinderSettings` is chosen at which photographs and cheques have the lowest
mean error rate. With ``--coarse`` those ``fine`` and ``clear`` are chosen with which the six sets
have no higher mean error rate than when everything is read: the largest ``fine``, then what reads
the fewest pixels.
"""

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy as np

from experiments.harness.arguments import arguments
from experiments.harness.record import write_results
from experiments.reading.align import aligned
from experiments.reading.sequence import Lattice, fitted
from neocog.learning.datasets import LabelledPictures, open_dataset, open_digits
from neocog.learning.pages.conditions import BLANK, CONDITIONS, HELD_BACK, WITHOUT_DIGITS
from neocog.learning.pages.page import make_page
from neocog.learning.teacher.bank import Bank, build_bank, load_bank
from neocog.learning.teacher.page import any_style, draw_page
from neocog.network.decision import Answers
from neocog.reading.policy import combined
from neocog.reading.reader import Reader
from neocog.text import edit_distance
from neocog.vision.decode import decode, to_grey
from neocog.vision.finder import LONG_SIDE, FinderSettings, overlaps
from neocog.vision.lines import into_lines, link_features, links
from neocog.vision.page import lay_out
from neocog.vision.search import Mark, Search
from neocog.vision.weigh import AROUND, NETWORK, OWN, SearchSettings, log_odds

SEED = 77
TOLD = (0.3, 0.4, 0.5, 0.6)
SMALL = (0, 256, 384, 512)
FINE = (32.0, 38.0, 44.0, 50.0, 56.0)
CLEAR = (0.6, 0.8, 0.9)
ALLOWED = 1 / 30  # share of pages without digits that may give one
WIDE = SearchSettings(told=0.1, asked=(-math.inf, math.inf))
"""What is fitted to: more than what is read."""
VARIED = (
    "told", "least", "alike", "narrow", "sure", "beside", "level", "like", "steady", "apart",
    "latest", "reduced", "margin", "rim", "paper", "ink", "extreme", "part", "slack", "line",
    "speck", "thin", "widened", "thick", "thinned", "many",
)  # fmt: skip
RIDGE = 1e-3  # of the weights' squares, beside the mean loss of a place
SIDE = 512  # of the teacher's pages
TAUGHT = {
    "lines": "taught", "amount": "taught", "scattered": "taught", "forms": "taught",
    "letters": "empty", "nothing": "empty",
}  # fmt: skip
"""Layouts of the teacher's pages, and the set that they are part of."""
SETS = ("photos", "strings", "made", "blank", "taught", "empty")


class Sample(NamedTuple):
    """Set, name, grey page, its digits, where they stand (or None), what the finder says of it."""

    set: str
    name: str
    grey: np.ndarray
    text: str
    marks: np.ndarray | None = None
    found: Any = None


class Places(NamedTuple):
    """Of places: set of each, what speaks for it, whether it is a digit."""

    sets: np.ndarray  # (N,)
    x: np.ndarray  # (N, F): OWN, NETWORK, AROUND without its first two
    right: np.ndarray  # (N,)


class Answered(NamedTuple):
    """Of digits: set of each, which it is, what network and finder say of the ten."""

    sets: np.ndarray  # (N,)
    label: np.ndarray  # (N,)
    network: np.ndarray  # (N, 10)
    guesses: np.ndarray  # (N, 10)


def samples(data: Path, bank: Bank, pages: int, blank: int, taught: int) -> Iterator[Sample]:
    """Every picture to tune on."""
    for name, every in (("photos", 1), ("strings", 2)):
        labelled = open_dataset(data / name)
        assert isinstance(labelled, LabelledPictures)
        for file, text in zip(labelled.files[::every], labelled.expected[::every], strict=True):
            grey = next(decode(file, long_side=LONG_SIDE)).grey
            yield Sample(name, file.name, grey, text)
    digits = open_digits(data / "mnist", split="validation")
    written = [c for c in CONDITIONS if c not in {*HELD_BACK, *WITHOUT_DIGITS}]
    for group, names, count in (("made", written, pages), ("blank", BLANK, blank)):
        for name in names:
            for number in range(count):
                rng = np.random.default_rng([SEED, number, *name.encode()])
                picture, text = make_page(name, digits.images, digits.labels, rng)
                text = text.replace("\n", "")
                yield Sample(group, f"{name} {number}", to_grey(picture), text)
    left = dict.fromkeys(TAUGHT, taught)
    seed = 0
    while any(left.values()):
        seed += 1
        layout = any_style(np.random.default_rng([SEED + seed, 0])).layout
        if left.get(layout, 0):
            left[layout] -= 1
            page = draw_page(bank, SEED + seed, side=SIDE, held=True)
            grey = np.ascontiguousarray(page.image[: page.extent[0], : page.extent[1]])
            yield Sample(TAUGHT[layout], f"{layout} {SEED + seed}", grey, "", page.marks)


def spelt(read: list[str], written: str, scores: np.ndarray) -> np.ndarray:
    """Which character of a text each place is, -1 for none: most of them and the surest.

    ``read`` are the digits that each place may be.
    """
    may = np.array([[char in own for char in written] for own in read])
    may = may.reshape(len(read), len(written))
    cost = np.where(may, -1 - scores[:, None], np.inf)
    label = np.full(len(read), -1)
    for i, j in aligned(cost[::-1, ::-1], 0, 0)[1]:  # of equal ones the first
        label[-1 - i] = int(written[-1 - j])
    return label


def places(reader: Reader, sample: Sample) -> Places | None:
    """The places of a page that the digit network was asked for."""
    search = Search(sample.grey, sample.found, reader._known, reader.weights, WIDE)
    marks = search.weigh_places()
    if not marks:
        return None
    order = [k for line in into_lines(np.stack([m.box for m in marks])) for k in line]
    marks = [marks[k] for k in order]
    if sample.marks is None:
        answers = Answers.join([m.answer for m in marks])
        guesses = np.stack([m.guesses for m in marks])
        likely = zip(answers.score.argmax(1), guesses.argmax(1), strict=True)
        may_be = [f"{a}{b}" for a, b in likely]
        label = spelt(may_be, sample.text, np.array([m.score for m in marks]))
        known = np.ones(len(label), np.bool_)
    else:
        label, known = standing(marks, sample.marks)
    x = np.stack([m.features for m in marks])
    whole = Places(np.full(len(marks), sample.set), x, label >= 0)
    return Places(*(part[known] for part in whole))


def beside(marks: list[Mark], there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How far places and what stands there overlap (N, M), and whether each place is ignored."""
    boxes = np.concatenate([there[:, 1:3] - there[:, 3:5] / 2, there[:, 3:5]], axis=1)
    union, inner, _ = overlaps(np.stack([m.box for m in marks]), boxes.astype(np.float32))
    return union, ((inner > 0.5) & (there[:, 0] == -1)).any(axis=1)


def standing(marks: list[Mark], there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which digit stands at each place, -1 for none; and whether that is known."""
    if not len(there):
        return np.full(len(marks), -1), np.ones(len(marks), np.bool_)
    union, ignored = beside(marks, there)
    same = np.where((there[:, 0] >= 0) & (there[:, 0] < 10), union, 0)
    label = np.where(same.max(axis=1) >= FinderSettings().overlap, there[same.argmax(axis=1), 0], -1).astype(
        int
    )
    return label, (label >= 0) | ~ignored


def wrongly_read(marks: list[Mark], read: str, there: np.ndarray) -> tuple[int, int]:
    """Digits missed, too many or misread on a page of which is known what stands where; and all."""
    digits = there[(there[:, 0] >= 0) & (there[:, 0] < 10)]
    if not marks or not len(digits):
        return len(digits) + len(marks), max(1, len(digits))
    label, known = standing(marks, there)
    right = label >= 0
    misread = sum(str(own) != char for own, char in zip(label, read, strict=True) if own >= 0)
    seen = len(set(beside(marks, digits)[0].argmax(axis=1)[right].tolist()))
    wrong = int((known & ~right).sum()) + int(right.sum()) - seen  # and those found twice
    return len(digits) - seen + wrong + misread, len(digits)


def joined(parts: Iterable[Any]) -> Iterator[np.ndarray]:
    """Each field of some tuples of arrays, one after the other; some are None."""
    for each in zip(*(part for part in parts if part is not None), strict=True):
        yield np.concatenate(each)


def logistic(x: np.ndarray, y: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Weights of a logistic regression, by Newton's method."""
    weights = np.zeros(x.shape[1])
    share = share / share.sum()
    for _ in range(50):
        p = 1 / (1 + np.exp(-x @ weights))
        slope = x.T @ (share * (p - y)) + RIDGE * weights
        curve = (x * (share * p * (1 - p))[:, None]).T @ x + RIDGE * np.eye(len(weights))
        weights -= np.linalg.solve(curve, slope)
    return weights


def written(reader: Reader, sample: Sample) -> Answered | None:
    """What network and finder say of the digits of a page, where it is known what they are."""
    search = Search(sample.grey, sample.found, reader._known, reader.weights)
    lines = search.lines()
    search.ask(lines)
    marks = [mark for line in lines for mark in line if mark.is_digit]
    if sample.marks is not None and marks:
        label, _ = standing(marks, sample.marks)
    elif marks and len(marks) == len(sample.text):
        label = np.array([int(char) for char in sample.text])
    else:
        return None
    answers = Answers.join([m.answer for m in marks])
    network = answers.score / reader.model.temperature
    whole = Answered(np.full(len(marks), sample.set), label, network,
                     np.stack([m.guesses for m in marks]))  # fmt: skip
    return Answered(*(part[label >= 0] for part in whole))


def mixed(some: Answered) -> tuple[float, float]:
    """`trust` and `guess`: of a grid, what makes the digits that are written likeliest."""
    share = even(some.sets)
    best = (np.inf, 1.0, 0.0)
    for trust in np.arange(0.1, 1.5, 0.05):
        for guess in np.arange(0, 1.5, 0.05):
            score = trust * some.network + guess * some.guesses
            score -= np.logaddexp.reduce(score, axis=1, keepdims=True)
            loss = -float(share @ score[np.arange(len(share)), some.label])
            best = min(best, (loss, round(float(trust), 2), round(float(guess), 2)))
    return best[1:]


def even(sets: np.ndarray) -> np.ndarray:
    """Weights (N,) with which each set counts alike."""
    return np.asarray(sum((sets == name) / (sets == name).sum() for name in set(sets.tolist())))


def rates(reader: Reader, pages: list[Sample], settings: SearchSettings) -> dict[str, float]:
    """Error rate of each set, share read exactly, and of pages without digits that give one."""
    count: dict[str, list[int]] = {}
    for page in pages:
        layout = lay_out(page.grey, reader.finder, reader._known, weights=reader.weights,
                         settings=settings, found=page.found)  # fmt: skip
        read = "".join(digit.char for digit in reader.recognise(layout.lines))
        row = count.setdefault(page.set, [0, 0, 0, 0])
        if page.text:
            wrong, written = edit_distance(read, page.text), len(page.text)
        elif page.marks is None or page.set == "empty":
            wrong, written = int(bool(read.strip("?"))), 1
        else:
            wrong, written = wrongly_read(layout.digits, read, page.marks)
        row[0] += wrong
        row[1] += written
        row[2] += read == page.text if page.text else not wrong
        row[3] += 1
    out = {name: round(row[0] / row[1], 4) for name, row in count.items()}
    return out | {f"{name} exact": round(row[2] / row[3], 4) for name, row in count.items()}


def rounded(values: np.ndarray) -> tuple[float, ...]:
    return tuple(np.round(values, 2).tolist())


def lattices(reader: Reader, sample: Sample, share: float) -> Iterator[Lattice]:
    """The lines of a page whose digits are known; doubtful ones, too. They share its weight."""
    search = Search(sample.grey, sample.found, reader._known, reader.weights, WIDE)
    search.lines()
    groups = search.candidates()
    if sample.text and len(groups) > 1:  # which part of the text stands where is not known
        return
    for marks in groups:
        if sample.marks is None:
            answers = Answers.join([m.answer for m in marks])
            guesses = np.stack([m.guesses for m in marks])
            score = combined(answers, reader.model, guesses, reader.weights)
            score -= np.logaddexp.reduce(score, axis=1, keepdims=True)
            spells = score[:, [int(char) for char in sample.text]]
        else:
            marks, spells = spelling(marks, sample.marks)
        if marks:
            boxes = np.stack([m.box for m in marks])
            link = link_features(boxes)
            may = np.isfinite(links(boxes, np.zeros(link.shape[2])))
            x = np.stack([around(reader, m) for m in marks])
            yield Lattice(share / len(groups), x, link, may, spells)


def around(reader: Reader, mark: Mark) -> np.ndarray:
    """The features of a mark that `AROUND` names."""
    own = np.concatenate([reader.weights.own, reader.weights.network])
    return np.array([1.0, mark.features[: len(own)] @ own, *mark.features[len(own) :]])


def spelling(marks: list[Mark], there: np.ndarray) -> tuple[list[Mark], np.ndarray]:
    """Marks of a line that are known to be right or wrong; which digit each is, 0 or -inf."""
    union, ignored = beside(marks, there)
    digits = np.flatnonzero((there[:, 0] >= 0) & (there[:, 0] < 10))
    digits = digits[np.argsort(there[digits, 1])]
    same = union[~ignored][:, digits] >= FinderSettings().overlap
    with np.errstate(divide="ignore"):
        spells = np.log(same[:, same.any(axis=0)].astype(float))
    return [mark for mark, out in zip(marks, ignored, strict=True) if not out], spells


def fit(reader: Reader, pages: list[Sample]) -> Places:
    """Set the reader's weights; return the places that they were fitted to."""
    some = Places(*joined(places(reader, page) for page in pages))
    own = len(OWN) + len(NETWORK)
    share = even(some.sets)
    first = rounded(logistic(some.x[:, :own], some.right, share))
    reader.weights = replace(
        reader.weights, own=first[: len(OWN)], network=first[len(OWN) :],
        share=round(float(share @ some.right / share.sum()), 3),
    )  # fmt: skip
    trust, guess = mixed(Answered(*joined(written(reader, page) for page in pages)))
    reader.weights = replace(reader.weights, trust=trust, guess=guess)
    count = Counter(page.set for page in pages)
    lines = [line for page in pages for line in lattices(reader, page, 1 / count[page.set])]
    start = np.concatenate([reader.weights.around, reader.weights.link])
    weights = rounded(fitted(lines, start))
    reader.weights = replace(reader.weights, around=weights[: len(AROUND)], link=weights[len(AROUND) :])
    return some


def asked(reader: Reader, pages: list[Sample]) -> tuple[float, float]:
    """Log odds without the digit network between which its answer decided anything."""
    settings = SearchSettings()
    never = replace(settings, asked=WIDE.asked)
    least, most = 0.0, 0.0
    for page in pages:
        search = Search(page.grey, page.found, reader._known, reader.weights, never)
        told = [mark for line in search.lines() for mark in line if mark.is_digit]
        for mark in (mark for group in search.candidates() for mark in group):
            odds = float(mark.features[: len(OWN)] @ reader.weights.own)
            if mark in told:
                least = min(least, odds)
            if mark.odds < log_odds(settings.sure):
                most = max(most, odds)
    return round(least - 0.05, 1), round(most + 0.05, 1)


def upright(reader: Reader, pages: list[Sample], settings: SearchSettings) -> float:
    """Mean worth of digits that parts best pages that lie as they should from others.

    Made pages of at least twelve digits lie so; on their side they do not, nor do pages without.
    """
    right, wrong = [], []
    for page in pages:
        many = len(page.text) >= SearchSettings().many
        for turn in (0, 1, 2) if many and page.set == "made" else (0,):
            grey = np.ascontiguousarray(np.rot90(page.grey, turn))
            found = reader.look(grey) if turn else page.found
            search = Search(grey, found, reader._known, reader.weights, settings)
            lines = search.lines()
            search.ask(lines)
            worth = [mark.worth for line in lines for mark in line if mark.is_digit]
            if len(worth) >= SearchSettings().many / 2 and (many or not page.text):
                (right if many and not turn else wrong).append(float(np.mean(worth)))
    tried = np.arange(0, 12, 0.1).round(1)
    errors = (np.array(right) < tried[:, None]).sum(1) + (np.array(wrong) >= tried[:, None]).sum(1)
    return float(np.median(tried[errors == errors.min()]).round(1))


def varied(reader: Reader, pages: list[Sample]) -> dict[str, Any]:
    """What comes of the settings, and of each of `VARIED` a fifth smaller and larger."""
    usual = SearchSettings()
    rows = [{"setting": "as they are", "value": ""} | rates(reader, pages, usual)]
    for name in VARIED:
        for factor in (0.8, 1.2):
            value = round(factor * getattr(usual, name), 4)
            if name == "sure":
                value = round(1 - factor * (1 - usual.sure), 4)
            elif isinstance(getattr(usual, name), int):
                value = round(value)
            found = rates(reader, pages, replace(usual, **{name: value}))
            rows.append({"setting": name, "value": value} | found)
    return {"settings": asdict(usual), "weights": asdict(reader.weights), "rows": rows}


def enlarged(reader: Reader, pages: list[Sample]) -> dict[str, Any]:
    """Try every ``small`` on photographs and cheques, and say what came of it."""
    tried = {}
    for small in SMALL:
        settings = FinderSettings(small=small)
        looked = [
            page._replace(found=reader.look(page.grey, settings=settings))
            for page in pages if page.set in ("photos", "strings")
        ]  # fmt: skip
        tried[small] = rates(reader, looked, SearchSettings())
    return {
        "small": min(SMALL, key=lambda way: tried[way]["photos"] + tried[way]["strings"]),
        "rows": [{"setting": "small", "value": way} | row for way, row in tried.items()],
    }  # fmt: skip


class Kept:
    """An engine that keeps its answers: each page is searched with many settings."""

    def __init__(self, engine: Any) -> None:
        self._engine, self._answers = engine, dict[bytes, Answers]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def recognise(self, digits: np.ndarray, *, batch: int | None = None) -> Answers:
        new = {digit.tobytes(): digit for digit in digits}
        new = {key: digit for key, digit in new.items() if key not in self._answers}
        if new:
            answers = self._engine.recognise(np.stack(list(new.values())), batch=batch)
            self._answers |= {key: answers[n : n + 1] for n, key in enumerate(new)}
        return Answers.join([self._answers[digit.tobytes()] for digit in digits])


class Counted:
    """A finder that counts the pixels that it is asked about."""

    def __init__(self, finder: Any) -> None:
        self._finder, self.pixels = finder, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        self.pixels += x.size
        return np.asarray(self._finder(x))


def coarse(reader: Reader, pages: list[Sample]) -> dict[str, Any]:
    """Try every ``fine`` and ``clear``, and say what came of them."""
    reader.finder = finder = Counted(reader.finder)  # type: ignore[assignment]
    rows: list[dict[str, Any]] = []
    for fine, clear in [(math.inf, 0.0), *product(FINE, CLEAR)]:
        finder.pixels = 0
        settings = FinderSettings(fine=fine, clear=clear)
        looked = [page._replace(found=reader.look(page.grey, settings=settings)) for page in pages]
        row = {
            "setting": "fine, clear", "value": f"{fine:g}, {clear:g}" if rows else "everything",
            "pixels": finder.pixels / (rows[0]["all"] if rows else finder.pixels),
            "all": finder.pixels,
        }  # fmt: skip
        rows.append(row | rates(reader, looked, SearchSettings()))
    rows = [{key: value for key, value in row.items() if key != "all"} for row in rows]
    return {"best": careful(rows), "rows": rows}


def careful(rows: list[dict[str, Any]]) -> str:
    """Of the ways that are no worse than the first, that with the largest ``fine``.

    Of several the one that reads the fewest pixels. All differ little, and the tuning sets have few
    digits between the values of ``fine``.
    """
    errors = [sum(row.get(name, 0) for name in SETS) for row in rows]
    good = [row for row, error in zip(rows, errors, strict=True) if error < errors[0] + 1e-9]
    ways = [row for row in good if row is not rows[0]] or rows[:1]
    fine = max(row["value"].partition(",")[0] for row in ways)
    ways = [row for row in ways if row["value"].startswith(fine)]
    return str(min(ways, key=lambda row: row["pixels"])["value"])


def tuned(reader: Reader, pages: list[Sample]) -> dict[str, Any]:
    """Fit the weights, try every ``told``, and say what came of it."""
    some = fit(reader, pages)
    told = [page for page in pages if page.text or page.set in ("blank", "empty")]
    tried = {value: rates(reader, told, SearchSettings(told=value)) for value in TOLD}
    invented = {way: (row["blank"] + row["empty"]) / 2 for way, row in tried.items()}
    allowed = max(ALLOWED, min(invented.values()))
    few = [way for way, share in invented.items() if share <= allowed]
    names = [name for name in ("photos", "strings", "made") if name in some.sets]
    best = min(few, key=lambda way: sum(tried[way][name] for name in names))
    return {
        "features": {"own": OWN, "network": NETWORK, "around": AROUND},
        "weights": asdict(reader.weights), "told": best, "asked": asked(reader, told),
        "upright": upright(reader, told, SearchSettings(told=best)),
        "places": len(some.right), "digits": int(some.right.sum()),
        "rows": [{"setting": "told", "value": way} | row for way, row in tried.items()],
    }  # fmt: skip


def main() -> None:
    parser = arguments(
        __doc__, "data", output=Path, bank=(Path, "strokes that the teacher writes with"),
        finder=Path, model="neocog", pages=(2, "made pages of each condition"),
        blank=(8, "pages of each kind without digits"),
        taught=(60, "teacher's pages of each layout"),
        enlarge=(FinderSettings().small, "pixels; fit to pages enlarged to this long side"),
        vary=(False, "only try other settings"),
        small=(False, "only choose which pictures are enlarged"),
        coarse=(False, "only choose which pictures are read at their largest size"),
    )  # fmt: skip
    given = parser.parse_args()
    if given.small:
        given.blank = 0
    if given.vary or given.small:
        given.pages = given.taught = 0
    reader = Reader(given.model, finder=given.finder, device="cpu" if given.coarse else "auto")
    reader.engine = Kept(reader.engine)  # type: ignore[assignment]
    bank = load_bank(given.bank) if given.bank else build_bank(given.data)
    made = samples(given.data, bank, given.pages, given.blank, given.taught)
    settings = FinderSettings(small=given.enlarge)
    pages = [one._replace(found=reader.look(one.grey, settings=settings)) for one in made]
    task = varied if given.vary else enlarged if given.small else tuned
    task = coarse if given.coarse else task
    about: dict[str, Any] = {"finder": reader.finder.model.id, "model": reader.model.id}
    about |= {} if given.small or given.coarse else {"enlarged": given.enlarge}
    result = about | task(reader, pages)
    print(json.dumps(result, indent=1))
    if given.output:
        rows = result.pop("rows")
        formats = {key: ".1%" for key in rows[0] if key not in ("setting", "value")}
        columns = {key: key for key in rows[0]}
        write_results(given.output, rows, columns=columns, formats=formats, **result)


if __name__ == "__main__":
    main()
