"""From the likelihoods of a line's columns to its text: connectionist temporal classification (CTC).

A path names a character or the blank at each of T columns; it spells the text that is left when repeats are
merged and blanks dropped. The likelihood of a text is the sum over its paths (Graves et al. 2006,
doi:10.1145/1143844.1143891); over all texts it sums to 1. ``logp`` is (T, n) log likelihoods, the blank last,
n = 25. A text grows by a character c at all columns at once, t = 0 .. T, in logarithms:

    ended(t) = sum over s < t of ready(s) p(s, c) .. p(t-1, c)          paths of columns 0 .. t-1, c the last
    blank(t) = sum over s < t of ended(s) p(s, blank) .. p(t-1, blank)  those that have a blank after it
    ready(t) = blank(t) + ended(t), or blank(t) if c follows c          those that the next character goes on
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import groupby

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neocog.network.automaton import Automaton, State
from neocog.network.lines import ALPHABET

Array = NDArray[np.float64]

BLANK = len(ALPHABET)
TWO_ANSWERS = "two answers"
NO_CHARACTER = "perhaps no character"
LEFT_OUT = "perhaps a character is left out"

_LEAST = -500.0  # lower logarithms count as this one: differences of sums then stay exact to 1e-10
_FAR = 14.0  # without an automaton, texts less likely than the best by this are not looked for
_SURE, _BESIDE = 8.0, 30.0  # with one, nor are those less likely than its best, and than the best of all
_CELLS = 2**18  # beginnings, times columns, that are looked at with an automaton
_SHARE, _NEAR = 1e-4, 32  # what counts of the texts one edit away: of the best one's likelihood; how many


@dataclass(frozen=True, slots=True)
class Char:
    """A character of a number; ``""`` is a place between two where one may have been left out."""

    char: str
    p: float  #: probability that this, and nothing else, is here
    first: int  #: column
    last: int  #: column
    reason: str | None = None  #: why it is doubtful


@dataclass(frozen=True, slots=True)
class Number:
    """What a line says."""

    text: str
    p: float  #: probability of the whole text; with an automaton see `number`
    margin: float  #: log likelihood over that of the second best text
    beside: float  #: how much likelier (log) the best of all texts is than this one, which is permitted
    chars: tuple[Char, ...]
    texts: Mapping[str, float] = field(default_factory=dict)  #: log likelihoods of all that was weighed

    @property
    def doubtful(self) -> str:
        """The text with ``?`` for each doubtful character, and where one may have been left out."""
        return "".join("?" if char.reason else char.char for char in self.chars)


def best_path(logp: ArrayLike) -> str:
    codes = np.diff(_sums(logp)).argmax(axis=0).tolist()
    return "".join(ALPHABET[code] for code, _ in groupby(codes) if code != BLANK)


def total(logp: ArrayLike, text: str) -> float:
    """Return the log likelihood of a text: the sum over all its paths."""
    return float(np.logaddexp(*_prefixes(_sums(logp), text))[-1, -1])


def beam(logp: ArrayLike, *, width: int = 8, automaton: Automaton | None = None) -> list[tuple[str, float]]:
    """Return the likeliest texts with their log likelihoods, best first, at most ``width``.

    Of each length the ``width`` likeliest beginnings are kept, with all that may follow; others have a bound.
    With an automaton only its texts are looked for, with four times the width, and 16, 64 .. times while
    another text may be likelier than the second best, or than the best less 8. That ends at 2 ** 18 / T
    beginnings, and at once if all that may occur are less likely than the best of any text less 30.
    """
    sums = _sums(logp)
    free = [np.diff(sums)[:BLANK].T] * (sums.shape[1] - 1)
    if automaton is None:
        return _search(free, sums, width, width, far=_FAR)[0]
    ahead, known, least, wide = automaton.ahead(sums), dict[str, float](), -np.inf, width
    while True:
        wide *= 4
        found, missed = _search(ahead, sums, width, wide, automaton, least=least)
        known |= dict(found)
        best = sorted(known.items(), key=lambda t: -t[1])[:width]
        least = max(best[1][1], best[0][1] - _SURE) if len(best) > 1 else least
        if missed <= least or 4 * wide * len(free) > _CELLS:
            return best
        if wide == 4 * width and missed < _search(free, sums, 1, width, far=_FAR)[0][0][1] - _BESIDE:
            return best


def number(logp: ArrayLike, *, bound: float = 0.9, automaton: Automaton | None = None) -> Number:
    """Return the likeliest text of a line, its probability, and what of it is doubtful.

    Other texts, those that `beam` finds and all that have one character more, less or another, count by their
    likelihood against the characters where they differ; those that an automaton refuses by less, see
    `Automaton.given`. A character with a probability below ``bound`` is doubtful; where texts with something
    more between two have a share above 1 - ``bound``, a doubtful ``""`` stands. Whether a space is there or
    nothing, a point or a comma, is no doubt.
    """
    others, sums = dict(beam(logp, automaton=automaton)), _sums(logp)
    if not others:
        return Number("", 0.0, 0.0, np.inf, ())
    for _ in range(3):  # once, but where the beam was too narrow
        text, best = max(others.items(), key=lambda t: t[1])
        columns, near = _near(sums, text, best + np.log(_SHARE))
        near = {t: v for t, v in near.items() if automaton is None or automaton.accepts(t)}
        others |= near
        if max(near.values(), default=best) <= best + 1e-9:
            break
    del others[text]
    free, weighed = beam(logp) if automaton else [], list(others.items())
    for t, value in free:
        if automaton and not automaton.accepts(t) and any(_differences(text, t)):
            weighed.append((t, value - automaton.given(text)))
    likely = np.array([best, *(value for _, value in weighed)])
    shares = np.exp(likely - np.logaddexp.reduce(likely)).tolist()
    doubts = [defaultdict[str, float](float) for _ in range(2 * len(text) + 1)]  # see `_differences`
    for (other, _), share in zip(weighed, shares[1:], strict=True):
        for at, reason in _differences(text, other):
            doubts[at][reason] += share
    edges = [0, *(c for pair in columns for c in pair), sums.shape[1] - 2]
    chars = []
    for at, doubt in enumerate(doubts):
        p = max(0.0, 1 - sum(doubt.values()))
        why = max(doubt, key=doubt.__getitem__) if p < bound else None
        if at % 2 or (why and not automaton):  # a form has no place for more
            chars.append(Char(text[at // 2] if at % 2 else "", p, edges[at], edges[at + 1], why))
    for before, char in reversed(automaton.unread(text) if automaton else []):
        places = [k for k, other in enumerate(chars) if other.char] + [len(chars)]
        chars.insert(places[before], Char(char, 1.0, *[edges[2 * before + 1]] * 2))
    return Number(
        "".join(char.char for char in chars),
        shares[0] if automaton else float(np.exp(min(best, 0.0))),
        max(0.0, best - max(others.values(), default=-np.inf)),
        max(0.0, free[0][1] - best) if automaton else 0.0,
        tuple(chars),
        {text: best} | others,
    )


def _search(
    ahead: list[Array], sums: Array, keep: int, width: int, automaton: Automaton | None = None,
    *, far: float = np.inf, least: float = -np.inf,
) -> tuple[list[tuple[str, float]], float]:  # fmt: skip
    """Return `beam`'s texts, none below ``least``, and the most that one can have that the width left out."""
    ended, blank = np.full((1, sums.shape[1]), -np.inf), sums[None, BLANK]
    texts, last, missed = [""], np.array([-1]), -np.inf
    states: list[State] = [automaton.start if automaton else ()]
    found: list[tuple[str, float]] = []
    for place in range(len(ahead) + 1):
        either = np.logaddexp(ended, blank)
        ends = zip(texts, either[:, -1].tolist(), states, strict=True)
        found += [t[:2] for t in ends if automaton is None or automaton.final(t[2], place)]
        found = sorted(found, key=lambda t: -t[1])[:keep]
        if place == len(ahead):
            break
        # the most, (K, n - 1), that all texts can have that go on with a character after a prefix: the sum,
        # over the columns where it may begin, of what it has and what is ahead; ``top`` keeps exp in range
        top = np.maximum(either.max(axis=0), -1e30)[:-1]
        most = np.maximum((ahead[place] + top[:, None]).max(axis=0), -1e30)
        onward = np.exp(ahead[place] + top[:, None] - most)
        with np.errstate(divide="ignore"):
            fresh, again = (np.log(np.exp(part[:, :-1] - top) @ onward) + most for part in (either, blank))
        bounds = np.where(last[:, None] == np.arange(BLANK), again, fresh)
        least = max(least, found[-1][1] if len(found) == keep else -np.inf)
        least = max(least, max([bounds.max(), *(value for _, value in found[:1])]) - far)
        rows, codes = np.nonzero(bounds > least)
        order = np.argsort(-bounds[rows, codes], kind="stable")
        picked: list[tuple[int, int, State]] = []
        for row, code in zip(rows[order].tolist(), codes[order].tolist(), strict=True):
            state = automaton.step(states[row], place, ALPHABET[code]) if automaton else ()
            if len(picked) == width and (state or not automaton):
                missed = max(missed, float(bounds[row, code]))
                break
            if state or not automaton:
                picked.append((row, code, state))
        if not picked:
            break
        texts, states = [texts[row] + ALPHABET[code] for row, code, _ in picked], [p[2] for p in picked]
        rows, codes = np.array([p[:2] for p in picked]).T
        ended = _runs(np.where((last[rows] == codes)[:, None], blank[rows], either[rows]), sums[codes])
        blank, last = _runs(ended, sums[BLANK]), codes
    return found, missed


def _sums(logp: ArrayLike) -> Array:
    """Return log likelihoods (T, n) summed along the columns, (n, T + 1)."""
    logp = np.asarray(logp, dtype=np.float64)
    if logp.ndim != 2 or logp.shape[1] != BLANK + 1:
        raise ValueError(f"logp {logp.shape}: expected log likelihoods (T, {BLANK + 1})")
    return np.pad(np.fmax(logp, _LEAST).cumsum(axis=0), ((1, 0), (0, 0))).T.copy()


def _runs(ready: Array, sums: Array) -> Array:
    """Return log likelihoods (.., T + 1) of paths that end in a run of a class, see ``ended`` above."""
    out = np.full_like(gain := ready - sums, -np.inf)
    np.logaddexp.accumulate(gain[..., :-1], axis=-1, out=out[..., 1:])
    return np.asarray(out + sums)


def _prefixes(sums: Array, text: str) -> tuple[Array, Array]:
    """Return ``ended`` and ``blank`` of all beginnings of a text of L characters, (L + 1, T + 1) each."""
    ended, blank = np.full((2, len(text) + 1, sums.shape[1]), -np.inf)
    blank[0] = sums[BLANK]
    for k, char in enumerate(text):
        ready = blank[k] if k and char == text[k - 1] else np.logaddexp(ended[k], blank[k])
        ended[k + 1] = _runs(ready, sums[ALPHABET.index(char)])
        blank[k + 1] = _runs(ended[k + 1], sums[BLANK])
    return ended, blank


def _near(sums: Array, text: str, least: float) -> tuple[list[tuple[int, int]], dict[str, float]]:
    """Return median first and last columns of a text's characters, and `_NEAR` texts one edit away."""
    often = np.exp(np.diff(sums[:BLANK])).sum(axis=1)  # no text with a character is likelier than this
    codes, every = [ALPHABET.index(char) for char in text], np.flatnonzero(often > np.exp(least))
    ended, blank = _prefixes(sums, text)
    # columns t .. T-1: a character at t; a blank, or t is T
    starts, waits = (part[::-1, ::-1] for part in _prefixes(sums[:, -1:] - sums[:, ::-1], text[::-1]))
    prefix, suffix = np.logaddexp(ended, blank), np.logaddexp(starts, waits)
    last, following = np.array([-1, *codes]), np.array([*codes, -1])
    same = (last == following)[:, None]
    first_at = np.where(same, blank, prefix)[:-1] + starts[:-1]
    last_at = ended[1:] + np.where(same, waits, suffix)[1:]
    shares = [np.exp(at - at.max(axis=1, keepdims=True)).cumsum(axis=1) for at in (first_at, last_at)]
    first, end = ((share >= share[:, -1:] / 2).argmax(axis=1).tolist() for share in shares)
    columns = [(low, high - 1) for low, high in zip(first, end, strict=True)]

    into = np.where((last[:-2] == following[1:-1])[:, None], blank[:-2], prefix[:-2])
    removed = np.logaddexp.reduce(into + starts[1:-1], axis=1)  # a beginning meets the character after
    removed = np.append(removed, prefix[-2:-1, -1])  # and the last one the end
    out = {text[:k] + text[k + 1 :]: value for k, value in enumerate(removed.tolist()) if value > least}
    for skip in (1, 0):  # the first k characters, one of ``every``, and those from k + skip on
        for k in range(len(codes) + 1 - skip):
            into = np.where((every == last[k])[:, None], blank[k], prefix[k])
            onward = np.where((every == following[k + skip])[:, None], waits[k + skip], suffix[k + skip])
            found = np.logaddexp.reduce(_runs(into, sums[every]) + onward, axis=1)
            for m in np.flatnonzero(found > least).tolist():
                out[text[:k] + ALPHABET[every[m]] + text[k + skip :]] = float(found[m])
    return columns, dict(sorted(out.items(), key=lambda t: -t[1])[:_NEAR])


def _differences(text: str, other: str) -> Iterator[tuple[int, str]]:
    """Yield where two texts differ and why: 2k is before character k, 2k + 1 the character."""
    text, other = text.replace(",", "."), other.replace(",", ".")
    for kind, low, high, begin, end in SequenceMatcher(None, text, other, autojunk=False).get_opcodes():
        if kind == "insert" and other[begin:end].strip():
            yield 2 * low, LEFT_OUT
        elif kind == "replace" or (kind == "delete" and text[low:high].strip()):
            reason = TWO_ANSWERS if kind == "replace" else NO_CHARACTER
            yield from ((2 * k + 1, reason) for k in range(low, high))
