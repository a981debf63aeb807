"""Texts that may occur: patterns and lists of valid numbers, followed character by character."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from datetime import date, timedelta
from functools import lru_cache
from itertools import compress, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.errors import UsageError
from neocog.network.lines import ALPHABET

State = tuple[Any, ...]

PLACE = "#"  # a digit in a pattern
#: Log odds that a text is of the form that is given: where one form in ten is wrong, it is even here.
GIVEN = 5.0
_LONGEST, _MOST = 200, 2_000_000  # characters of a text that may occur, and such texts
_PARTS = {"DD": "%d", "MM": "%m", "YYYY": "%Y", "YY": "%y"}  # of a form of dates, each once
_FIRST, _DAYS = date(1900, 1, 1), 73_049  # dates are of 1900 to 2099


class Automaton:
    """Texts that have one of some patterns, those of a list, or those that do both.

    In a pattern ``#`` is a digit and every other character is itself; one that is not in the alphabet is not
    looked for, nor spaces beside it, and stands in the number as it is. ``DD``, ``MM`` and ``YYYY`` or ``YY``
    are the dates of 1900 to 2099. UsageError if a pattern or a text cannot be read.
    """

    def __init__(self, patterns: Iterable[str] = (), texts: Iterable[str] | None = None) -> None:
        self._patterns: dict[str, str] = {}  # by what of them is looked for
        asked, days = [*patterns], set[str]()
        for form in asked:
            if len(form) <= _LONGEST and (code := _date(form)):
                days.update((_FIRST + timedelta(k)).strftime(code) for k in range(_DAYS))
                continue
            if PLACE not in form or not form.isprintable() or len(form) > _LONGEST:
                wanted = f"a # for each digit, such as ##-####, {_LONGEST} characters at most, or DD.MM.YYYY"
                raise UsageError(f"pattern {form[:80]!r}: expected {wanted}")
            self._patterns["".join(compress(form, _looked_for(form)))] = form
        if days and self._patterns:
            forms = " and ".join(map(repr, asked))[:200]
            raise UsageError(f"patterns {forms}: those of dates do not go with others; give one kind")
        # A state is all texts with the same beginning: its patterns, or a range of the sorted list.
        self.start: State = tuple(self._patterns)
        self._columns: list[bytes] = []  # of the list, by place; 0 after the end
        if texts is not None or days:
            rows = self._sorted(days if texts is None else texts, days)
            self.start, self._columns = (0, len(rows)), [row.tobytes() for row in rows.T]
            self._lengths = set(np.unique((rows > 0).sum(axis=1)).tolist())
            self._allowed = [[ALPHABET.index(chr(c)) for c in {*row} if c] for row in self._columns]
        else:
            self._lengths = set(map(len, self.start))
            places, chars = range(max(self._lengths, default=0)), list(enumerate(ALPHABET))
            self._allowed = [[k for k, c in chars if self.step(self.start, place, c)] for place in places]
        if not any(self._allowed):
            if texts is None:
                raise UsageError("got neither a pattern nor valid numbers; give one of them")
            if not asked:
                raise UsageError("valid numbers: the list is empty; give at least one")
            one = " or ".join(map(repr, asked))
            raise UsageError(f"valid numbers: none has the form {one}; change the list or the pattern")

    def _sorted(self, texts: Iterable[str], days: set[str]) -> NDArray[np.uint8]:
        some = list(islice(texts, _MOST + 1))
        if len(some) > _MOST or len(some) * max(map(len, some), default=0) > 50 * _MOST:
            raise UsageError(f"valid texts: expected at most {_MOST}, of 50 characters each")
        readable = re.compile(f"[{re.escape(ALPHABET)}]{{1,{_LONGEST}}}").fullmatch
        if (wrong := next((text for text in some if not readable(text)), None)) is not None:
            wanted = f"1 to {_LONGEST} of the characters {ALPHABET}"
            raise UsageError(f"valid text {some.index(wrong) + 1}, {wrong[:80]!r}: expected {wanted}")
        some = [text for text in some if self.accepts(text)] if self._patterns else some
        some = [text for text in some if text in days] if days else some
        longest = max(map(len, some), default=0) + 1
        return np.sort(np.array(some, dtype=f"S{longest}")).view(np.uint8).reshape(len(some), longest)

    def step(self, state: State, place: int, char: str) -> State:
        """Return the texts of ``state`` with a character at a place; () if there are none."""
        if not self._columns:
            return tuple(form for form in state if _fits(char, form[place : place + 1]))
        low, high = (find(self._columns[place], ord(char), *state) for find in (bisect_left, bisect_right))
        return (low, high) if low < high else ()

    def final(self, state: State, length: int) -> bool:
        """Whether a text of ``state`` has this length."""
        return not self._columns[length][state[0]] if self._columns else length in map(len, state)

    def ahead(self, sums: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Return for each place what columns t .. T-1 have at most if its character begins at t, (T, n - 1).

        ``sums`` (n, T + 1) are log likelihoods summed along the columns, the blank last. That is the sum over
        all texts with a permitted character at each place and a permitted length, as if equal characters
        needed no blank between them.
        """
        out, blank = list[NDArray[np.float64]](), sums[-1]
        rest = blank[-1] - blank  # blanks to the end
        for place in range(max(self._lengths) - 1, -1, -1):
            allowed = self._allowed[place]
            out.append(np.full((sums.shape[1] - 1, len(ALPHABET)), -np.inf))
            after = np.logaddexp.accumulate((sums[allowed] + rest)[:, :0:-1], axis=1)[:, ::-1]
            out[-1][:, allowed] = (after - sums[allowed, :-1]).T
            end = blank[-1] if place in self._lengths else -np.inf
            waits = np.append(np.logaddexp.reduce(out[-1], axis=1) + blank[:-1], end)
            rest = np.logaddexp.accumulate(waits[::-1])[::-1] - blank
        return out[::-1][: sums.shape[1] - 1]  # a character takes a column at least

    def given(self, text: str) -> float:
        """Log odds that what is written may occur: of a list of N also of N in 10^d numbers of d digits."""
        size = self.start[1] if self._columns else 0
        return GIVEN + max(0.0, np.log(10.0) * sum(map(str.isdigit, text)) - np.log(size)) if size else GIVEN

    def accepts(self, text: str) -> bool:
        """Whether a text may occur."""
        state = self.start
        for place, char in enumerate(text):
            state = state and self.step(state, place, char)
        return bool(state) and self.final(state, len(text))

    def unread(self, text: str) -> list[tuple[int, str]]:
        """Return what is not looked for in a text's pattern, each with the place that it stands before."""
        for form, whole in self._patterns.items():
            if len(form) == len(text) and all(map(_fits, text, form)):
                seen = _looked_for(whole)
                return [(sum(seen[:k]), char) for k, char in enumerate(whole) if not seen[k]]
        return []


_of_patterns = lru_cache(64)(Automaton)


def permitted(patterns: Iterable[str], texts: Iterable[str] | None = None) -> Automaton | None:
    """Return the texts of patterns, of a list, or of both, None without either; UsageError as `Automaton`.

    Those of patterns alone are made once: dates take a fifth of a second.
    """
    if texts is not None:
        return Automaton(patterns, texts)
    return _of_patterns(forms) if (forms := tuple(patterns)) else None


def _date(form: str) -> str:
    """The form of dates as `strftime` wants it; nothing if it is none."""
    parts = re.split("(DD|MM|YYYY|YY)", form.strip(" "))
    if sorted(part[:2] for part in parts[1::2]) != ["DD", "MM", "YY"] or "".join(parts[::2]).strip("-./ "):
        return ""
    return "".join(_PARTS.get(part, part) for part in parts)


def _looked_for(form: str) -> list[bool]:
    """Which characters of a pattern are: neither those that the alphabet lacks nor spaces beside them."""
    seen = [True] * len(form)
    for part in re.finditer(rf" *([^{re.escape(ALPHABET)}]+ *)+|^ +| +$", form):
        seen[slice(*part.span())] = [False] * len(part[0])
    return seen


def _fits(char: str, form: str) -> bool:
    return char in ALPHABET[:10] if form == PLACE else char == form
