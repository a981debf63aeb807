"""How read lines differ from what is written, with 95 % intervals by the bootstrap over lines.

Only the alphabet's characters and ``?`` count, in the cheapest alignment; dashes are what they look like.
"""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Row = dict[str, Any]
DIGITS, SIGNS, DOUBT = "0123456789", ".,-/:+()=x*%#", "?"
ALIKE = str.maketrans("‐‑–—−×", "-----x")


def plain(text: str) -> str:
    """Return the characters that count, words apart by one space."""
    text = unicodedata.normalize("NFKC", text).translate(ALIKE)
    return " ".join("".join(c for c in text if c in DIGITS + SIGNS + DOUBT or c.isspace()).split())


def only(text: str, wanted: str) -> str:
    return "".join(c for c in text if c in wanted)


def aligned(
    pair: np.ndarray, skip_row: ArrayLike = 1, skip_column: ArrayLike = 1
) -> tuple[float, list[tuple[int, int]]]:
    """Return the least cost, and the pairs (row, column) in order.

    ``pair`` (N, M): what a row costs as a column; ``skip_row``, ``skip_column``: what each costs alone.
    """
    (n, m), pairs = pair.shape, []
    rows, columns = np.broadcast_to(skip_row, n), np.broadcast_to(skip_column, m)
    cost = np.zeros((n + 1, m + 1))
    cost[1:, 0], cost[0, 1:] = np.cumsum(rows), np.cumsum(columns)
    for i in range(n):
        for j in range(m):
            alone = min(cost[i, j + 1] + rows[i], cost[i + 1, j] + columns[j])
            cost[i + 1, j + 1] = min(alone, cost[i, j] + pair[i, j])
    while n and m:
        if cost[n, m] == cost[n - 1, m - 1] + pair[n - 1, m - 1]:
            n, m = n - 1, m - 1
            pairs.append((n, m))
        elif cost[n, m] == cost[n - 1, m] + rows[n - 1]:
            n -= 1
        else:
            m -= 1
    return float(cost[-1, -1]), pairs[::-1]


def edits(first: str, second: str) -> tuple[int, dict[int, int]]:
    """Return the Levenshtein distance, and the place in ``second`` of the characters of ``first``."""
    differs = np.array([*first])[:, None] != np.array([*second])
    cost, pairs = aligned(differs.reshape(len(first), len(second)))
    return int(cost), dict(pairs)


def compared(written: str, read: str, *, signs: bool, spaces: bool) -> Row:
    """Compare one `plain` line; ``signs`` and ``spaces``: whether its label has those that are written.

    ``lost``: a sign is missing or read as a digit, although digits and no "?" are printed.
    """
    digits = only(written, DIGITS)
    row: Row = {"digits": len(digits), "wrong": edits(digits, only(read, DIGITS + DOUBT))[0]}
    if not signs:
        return row
    if not spaces:
        written, read = written.replace(" ", ""), read.replace(" ", "")
    wrong, pairs = edits(written, read)
    told = [(c, read[pairs[i]] if i in pairs else "") for i, c in enumerate(written) if c not in DIGITS]
    row |= {"text": not wrong, "written": Counter(c for c, _ in told),
            "right": Counter(c for c, as_what in told if c == as_what),
            "read": Counter(c for c in read if c not in DIGITS + DOUBT)}  # fmt: skip
    if only(written, SIGNS):
        gone = any(as_what in ("", *DIGITS) for c, as_what in told if c != " ")
        row["lost"] = gone and DOUBT not in read and only(read, DIGITS) != ""
    return row


def by_line(written: Sequence[str], read: Sequence[str]) -> list[str]:
    """Return what was read of each line of a page; a line too many is added to the one before it."""
    cost = np.array([[edits(a, b)[0] / max(len(a), len(b), 1) for b in read] for a in written])
    pairs = {j: i for i, j in aligned(cost.reshape(len(written), len(read)))[1]}
    out, at = [""] * len(written), 0
    for j, text in enumerate(read):
        at = pairs.get(j, at)
        out[at] = f"{out[at]} {text}".strip()
    return out


def chosen(lines: int) -> NDArray[np.int64]:
    return np.random.default_rng(0).integers(0, lines, (2000, lines))


def share(parts: ArrayLike, wholes: ArrayLike | None = None) -> tuple[float, ...]:
    """Return a mean over lines, or the ratio of two sums, and its interval; nothing of nothing."""
    upper = np.asarray(parts, np.float64)
    lower = np.ones_like(upper) if wholes is None else np.asarray(wholes, np.float64)
    if not lower.sum():
        return ()
    some = chosen(len(upper))
    ratios = upper[some].sum(axis=1) / np.maximum(lower[some].sum(axis=1), 1)
    return float(upper.sum() / lower.sum()), *np.quantile(ratios, (0.025, 0.975)).tolist()


def paired(first: ArrayLike, second: ArrayLike) -> Row:
    """Return by how much the mean of ``first`` is larger, line by line: standard error, interval."""
    off = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    means = off[chosen(len(off))].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975)).tolist()
    return {"difference": float(off.mean()), "error": float(means.std()), "low": low, "high": high}


def summary(rows: Sequence[Row]) -> Row:
    """Sum lines; ``KEY_low`` and ``KEY_high`` are the ends of an interval."""
    wrong, digits = np.array([(row["wrong"], row["digits"]) for row in rows]).T
    out: Row = {"lines": len(rows), "digits": int(digits.sum())}
    shares = {"exact": share(wrong == 0), "cer": share(wrong, digits)}
    shares |= {key: share([row[key] for row in rows if key in row]) for key in ("text", "lost")}
    for key, values in shares.items():
        out |= dict(zip((key, f"{key}_low", f"{key}_high"), values, strict=False))
    return out


def of_signs(rows: Sequence[Row]) -> list[Row]:
    """Recall and precision of each sign, and of the space."""
    total = {key: sum((row.get(key, Counter()) for row in rows), Counter[str]())
             for key in ("written", "read", "right")}  # fmt: skip
    return [
        {"sign": sign, "written": (written := total["written"][sign]), "read": (read := total["read"][sign]),
         "recall": total["right"][sign] / written if written else None,
         "precision": total["right"][sign] / read if read else None}
        for sign in SIGNS + " " if total["written"][sign] + total["read"][sign]
    ]  # fmt: skip
