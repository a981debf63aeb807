"""Lines read box by box: what finder and digit network say of each, as log likelihoods of a line."""

from collections.abc import Iterator
from itertools import chain, pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from neocog.network.automaton import Automaton
from neocog.network.ctc import BLANK
from neocog.network.decision import all_scores
from neocog.network.lines import ALPHABET, LineModel
from neocog.network.model import Model
from neocog.network.spec import LABELS
from neocog.reading.policy import Policy
from neocog.vision.crops import cut_out
from neocog.vision.finder import SIGNS, SURE, FinderSettings, Finding
from neocog.vision.strips import GAP, SCORE, lines_of

_NEVER = -30.0  # log likelihood
_LEAST = 1e-4  # and least probability
_FINDER, _NETWORK = 2.0, 0.25  # how much log odds count that there is a digit


class PageReader(Protocol):
    """What of a `neocog.reading.reader.Reader` reads a page."""

    finder: Any
    engine: Any
    model: Model
    line_model: LineModel | None
    batch: int
    policy: Policy
    automaton: Automaton | None
    rotate: int | None
    mirror: bool
    digits_only: bool

    def look(self, grey: NDArray[np.uint8], *, settings: FinderSettings | None = None) -> Finding: ...


def of_boxes(
    reader: PageReader,
    grey: NDArray[np.uint8],
    marks: Finding,
    wanted: NDArray[np.bool_] | None,
    *,
    gap: NDArray[np.float32],
) -> Iterator[tuple[list[int], NDArray[np.float32], list[Any], int]]:
    """Yield lines of a page (H, W): their marks, log likelihoods (T, n), no places of strips, none left out.

    Every mark has a column; between two is one for nothing, or where they are far apart ``gap`` (n,).
    """
    sure = (marks.kinds < 10) & (marks.scores >= SCORE)
    lines = lines_of(marks.boxes, sure)
    lines = lines if wanted is None else [line for line in lines if wanted[line].any()]
    logs, among = np.zeros((len(marks), BLANK + 1), np.float32), sorted(chain(*lines))
    logs[among] = likelihoods(reader, grey, marks[among])
    nothing = np.where(np.arange(BLANK + 1) == BLANK, 0, _NEVER).astype(np.float32)
    for line in lines:
        tall = float(np.median(marks.boxes[line, 3][sure[line]]))
        ends = marks.boxes[line, 0] + marks.boxes[line, 2]
        gaps = (marks.boxes[line[1:], 0] - np.maximum.accumulate(ends)[:-1]) / tall
        # one more digit would fit into a space, as far from both neighbours as those of the line usually are
        space = np.median(marks.boxes[line, 2]) / tall + 2 * np.clip(np.median([*gaps] or 0), 0, 1)
        cuts = (np.flatnonzero(gaps > GAP) + 1).tolist() if wanted is not None else []
        for first, last in pairwise([0, *cuts, len(line)]):
            part, columns = line[first:last], [logs[line[first]]]
            for mark, wide in zip(part[1:], gaps[first : last - 1] > space, strict=True):
                columns += [gap if wide else nothing, logs[mark]]
            yield part, np.stack(columns), [], 0


def likelihoods(reader: PageReader, grey: NDArray[np.uint8], marks: Finding) -> NDArray[np.float32]:
    """Return log likelihoods of what each of N marks is, (N, n): a digit, its sign, or nothing.

    The finder's log odds and the network's are added: that it is a digit, and which one.
    """
    scores = np.clip(marks.scores.astype(np.float64), _LEAST, 1 - _LEAST)
    odds = _FINDER * np.log(scores / (1 - scores))
    out = np.full((len(marks), BLANK + 1), _NEVER)
    out[:, BLANK] = 0
    for k, kind in enumerate(marks.kinds.tolist()):
        if kind >= 10 and SIGNS[kind - 10] in ALPHABET:
            out[k, ALPHABET.index(SIGNS[kind - 10])] = odds[k]
    digits = np.flatnonzero(marks.kinds < 10)
    if len(digits):
        model = reader.model
        answers = reader.engine.recognise(cut_out(grey, marks.boxes[digits]), batch=reader.batch)
        said = all_scores(answers, model) / model.temperature
        some = np.logaddexp.reduce(said[:, :LABELS], axis=1)
        if model.classes > LABELS:  # it has learned what is no digit
            odds[digits] += _NETWORK * np.clip(some - said[:, LABELS], -SURE, SURE)
        which = said[:, :LABELS] - some[:, None] + marks.guesses[digits]
        which -= np.logaddexp.reduce(which, axis=1, keepdims=True)
        out[digits, :LABELS] = which + odds[digits, None]
    out -= np.logaddexp.reduce(out, axis=1, keepdims=True)
    return np.asarray(np.maximum(out, _NEVER), np.float32)
