"""How far probabilities can be trusted: risk against coverage, thresholds, calibration.

An answer is *taken* if its probability is at least a threshold. Coverage is the share of all digits whose
answers are taken, risk the share of wrong ones among these. No answer has probability 0, is never taken, and
counts as wrong where all digits are counted.
"""

from dataclasses import dataclass
from math import lgamma
from typing import Any

import numpy as np
from numpy.typing import NDArray

BINS = 15  #: of equal width, of the reliability diagram and of ECE
_POINTS = 200  # of a curve that is kept


def upper_limit(wrong: float, n: int, *, sure: float = 0.95) -> float:
    """Return the one-sided upper limit of a share, ``wrong`` of n being seen (Clopper, Pearson 1934)."""
    whole = int(wrong)
    if wrong > whole:
        low, high = (upper_limit(k, n, sure=sure) for k in (whole, whole + 1))
        return low + (wrong - whole) * (high - low)
    if whole >= n:
        return 1.0
    k = np.arange(whole + 1)
    ways = np.array([lgamma(n + 1) - lgamma(i + 1) - lgamma(n - i + 1) for i in k.tolist()])
    low, high = whole / n, 1.0
    for _ in range(50):  # P(at most so many wrong) falls with the share
        share = (low + high) / 2
        p = np.exp(ways + k * np.log(share) + (n - k) * np.log1p(-share)).sum()
        low, high = (share, high) if p > 1 - sure else (low, share)
    return high


@dataclass(frozen=True, slots=True)
class Confidence:
    """Answers by how sure they are."""

    p: NDArray[np.float64]  # probability of each answer, (N,); 0 for none
    right: NDArray[np.bool_]  # never where there is none

    @classmethod
    def of(cls, label: NDArray[Any], p: NDArray[Any], wanted: NDArray[Any]) -> "Confidence":
        """Answers (N,), -1 for none, their probabilities, and what was written."""
        return cls(np.where(label >= 0, p, 0).astype(np.float64), (label >= 0) & (label == wanted))

    def __len__(self) -> int:
        return len(self.p)

    def curve(self) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
        """Return thresholds (each probability above 0, highest first), answers taken, wrong among them."""
        order = np.argsort(-self.p, kind="stable")
        p, wrong = self.p[order], np.cumsum(~self.right[order], dtype=np.int64)
        at = np.flatnonzero((np.diff(p, append=-1) != 0) & (p > 0))
        return p[at], at + 1, wrong[at]

    def aurc(self) -> float:
        """Mean risk of the n surest answers, n = 1 .. N; those of one p share their errors."""
        if not len(self):
            return 0.0
        _, taken, wrong = self.curve()
        count = np.arange(1, len(self) + 1)
        errors = np.interp(count, [0, *taken, len(self)], [0, *wrong, (~self.right).sum()])
        return float((errors / count).mean())

    def at(self, threshold: float) -> dict[str, float]:
        """Return coverage and risk where answers of at least this probability are taken."""
        is_taken = (self.p >= threshold) & (self.p > 0)
        taken, wrong = int(is_taken.sum()), int((is_taken & ~self.right).sum())
        coverage, risk = taken / max(len(self), 1), wrong / max(taken, 1)
        return {"threshold": float(threshold), "coverage": coverage, "risk": risk, "wrong": wrong}

    def threshold_of_coverage(self, coverage: float) -> float | None:
        """Return the highest threshold that takes at least this share; None if none does."""
        thresholds, taken, _ = self.curve()
        return next(map(float, thresholds[taken >= coverage * len(self) - 1e-9]), None)

    def threshold_of_risk(self, risk: float) -> float | None:
        """Return the lowest threshold whose risk is at most this; None if none is."""
        thresholds, taken, wrong = self.curve()
        return next(map(float, thresholds[wrong <= risk * taken + 1e-9][::-1]), None)

    def points(self) -> list[dict[str, float]]:
        """Return the risk-coverage curve as at most about 200 points, thin where it is sure."""
        thresholds, taken, wrong = self.curve()
        index = np.arange(len(taken))
        if len(taken) > _POINTS:
            left = len(self) - taken + 1  # dense near full coverage, where readers look
            wanted = np.geomspace(left.max(), left.min(), _POINTS)
            index = np.unique(np.searchsorted(-left, -wanted).clip(0, len(left) - 1))
        return [
            {"threshold": float(thresholds[i]), "coverage": taken[i] / len(self), "risk": wrong[i] / taken[i]}
            for i in index
        ]

    def reliability(self) -> list[dict[str, float]]:
        """Return, for each bin that holds answers, their number, mean probability and accuracy."""
        p, right = self.p[self.p > 0], self.right[self.p > 0]
        bin_of = np.minimum((p * BINS).astype(int), BINS - 1)
        return [
            {"low": b / BINS, "high": (b + 1) / BINS, "n": int((bin_of == b).sum()),
             "p": float(p[bin_of == b].mean()), "accuracy": float(right[bin_of == b].mean())}
            for b in np.unique(bin_of)
        ]  # fmt: skip

    def ece(self) -> float:
        """Expected calibration error: mean of abs(accuracy - p) over the bins, by their number."""
        rows = self.reliability()
        total = sum(row["n"] for row in rows)
        return sum(row["n"] * abs(row["accuracy"] - row["p"]) for row in rows) / max(total, 1)
