"""Scores to probabilities, and what each threshold of them costs: set on digits held apart."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neocog.learning.drawing.marks import negatives
from neocog.learning.mix import Mix
from neocog.network import ctc
from neocog.network.arrays import to_numpy
from neocog.network.decision import Answers, Decision, answers, labels_of, of_lone_digits
from neocog.network.engine import PART, Layers
from neocog.network.lines import ALPHABET
from neocog.network.model import Model
from neocog.network.parallel import ParallelMap, one_blas_thread
from neocog.network.u0 import u0_from_digits

Scores = NDArray[np.floating]
Labels = NDArray[np.integer]

_TRIED = np.geomspace(0.002, 1.0, 120)  # temperatures, from sharp to soft
# shares of the digits that are answered, each a row of the table
_COVERAGE = (1.0, 0.9995, 0.999, 0.998, 0.997, 0.9965, 0.996, 0.995, 0.99, 0.98, 0.97, 0.95, 0.9)
_SEED = 4  # of the marks that thresholds are seen against
BATCH = 64
_parallel = cache(ParallelMap)
Tell = Callable[[int, int], None]  #: is told how many are done, and of how many


def score(
    model: Model, images: NDArray[np.uint8], xp: Any = np, tell: Tell | None = None,
    scores: Callable[[Any], Any] | None = None,
) -> NDArray[np.float32]:  # fmt: skip
    """A model's scores for isolated digits, (N, 10), on NumPy or CuPy; ``scores`` are UC4's if not given."""
    layers, scores = Layers(model, xp), scores or Decision(model, xp).scores

    def run(part: NDArray[np.uint8]) -> Any:
        return scores(layers(xp.asarray(u0_from_digits(part))))

    with one_blas_thread():
        return np.concatenate([to_numpy(u) for u in in_batches(run, images, xp, tell)])


def in_batches(run: Callable[[Any], Any], images: Any, xp: Any, tell: Tell | None) -> Iterator[Any]:
    """Run digits through layers batch by batch: on all cores of the host, or at once on a GPU."""
    for start in range(0, len(images), BATCH):
        batch = images[start : start + BATCH]
        if xp is np:  # cut in the same way on any machine
            parts = [batch[i : i + PART] for i in range(0, len(batch), PART)]
            yield np.concatenate(_parallel()(run, parts))
        else:
            yield run(batch)
        if tell is not None:
            tell(start + len(batch), len(images))


def best_temperature(scores: Scores, shown: Mix) -> float:
    """Return the T for which softmax(scores / T), (N, 10) or (N, 11), is likeliest, in the mean of sets."""
    s = scores.astype(np.float64)
    s = s - s.max(axis=1, keepdims=True)
    own = s[np.arange(len(s)), shown.labels]
    loss = [np.mean(shown.means(np.log(np.exp(s / t).sum(axis=1)) - own / t)) for t in _TRIED]
    return round(float(_TRIED[int(np.argmin(loss))]), 5)


def line_temperature(lines: Sequence[ArrayLike], texts: Sequence[str]) -> float:
    """Return the T for which, with log softmax(logp / T), numbers are right as often as ``p`` says.

    It minimises the sum of -log p over lines kept apart that are read right and of -log(1 - p) over others:
    that is what p is for, and a wrong label or a hopeless line costs less than in the CTC loss.
    """
    best = [ctc.beam(line)[0][0] for line in lines]
    right = np.array(best) == np.array(texts)

    def loss(temperature: float) -> float:
        some = [np.asarray(line, dtype=np.float64) / temperature for line in lines]
        some = [logp - np.logaddexp.reduce(logp, axis=1, keepdims=True) for logp in some]
        p = list(map(ctc.total, some, best))
        return float(-np.where(right, p, np.log(-np.expm1(np.minimum(p, -1e-9)))).sum())

    tried: list[float] = np.geomspace(0.25, 4, 61).tolist()
    return float(f"{min(tried, key=loss):.4f}")


def line_bias(lines: Sequence[NDArray[np.float32]], texts: Sequence[str]) -> NDArray[np.float32]:
    """Return what to add to log likelihoods (T, 25) of lines with a number so that their texts are likeliest.

    A tenth of the lines that are learned from have no number, so blank comes out likelier than on lines that
    have one. Adam on the CTC loss, at most 12 of a line, with a little weight decay.
    """
    import torch
    from torch.nn.functional import ctc_loss

    bias, rng = torch.zeros(ctc.BLANK + 1, requires_grad=True), np.random.default_rng(0)
    adam = torch.optim.Adam([bias], lr=0.05)
    for _ in range(120):
        some = rng.choice(len(lines), min(500, len(lines)), replace=False).tolist()
        logp = torch.nn.utils.rnn.pad_sequence([torch.from_numpy(lines[k]) for k in some])
        codes = torch.tensor([ALPHABET.index(char) for k in some for char in texts[k]])
        sizes = [torch.tensor([len(one[k]) for k in some]) for one in (lines, texts)]
        logp = (logp + bias).log_softmax(2)
        each = ctc_loss(logp, codes, sizes[0], sizes[1], ctc.BLANK, "none", zero_infinity=True)
        adam.zero_grad()
        (each.clamp(max=12).mean() + 0.002 * (bias**2).sum()).backward()
        adam.step()
    return np.asarray(bias.detach().numpy())


def risk_row(p: float, found: Answers, labels: Labels, marks: Answers | None = None) -> dict[str, Any]:
    """Count what a threshold p answers of digits and of marks; ``error`` counts one more than was seen."""
    kept = (found.p >= p) & (found.label >= 0)
    answered, errors = int(kept.sum()), int((kept & (found.label != labels)).sum())
    passed = float(((marks.p >= p) & (marks.label >= 0)).mean()) if marks else 0.0
    coverage, error = answered / max(len(labels), 1), (errors + 1) / (answered + 1)
    return {"p": p, "answered": answered, "errors": errors, "coverage": round(coverage, 6),
            "error": round(error, 6), "marks": round(passed, 5)}  # fmt: skip


def risk_table(found: Answers, labels: Labels, marks: Answers | None = None) -> list[dict[str, Any]]:
    """Rows for thresholds of each of the usual coverages, and for each wrong answer that is rejected."""
    sure = np.where(found.label >= 0, found.p, 0)
    p = np.unique(np.append(sure, (0, 1)).astype(np.float64))
    ordered = np.sort(sure)[::-1]
    last = [ordered[max(round(share * len(ordered)), 1) - 1] for share in _COVERAGE]
    wrong = found.p[(found.label >= 0) & (found.label != labels)]
    at = {int(i) for i in (*np.searchsorted(p, last), *(np.searchsorted(p, wrong) + 1))}
    # halfway to the next lower answer: other engines give probabilities a little off these
    tried = [round(float(p[i] + p[i - 1]) / 2, 9) for i in sorted(at) if 0 < i < len(p)]
    rows = [risk_row(v, found, labels, marks) for v in tried]
    return [row for row in rows if row["answered"] >= max(len(labels) // 2, 1)]


def calibrated(model: Model, shown: Mix, *, xp: Any = np, tell: Tell | None = None) -> Model:
    """Set a model's temperature on digits kept apart, and write what it reads right and risks to its card."""
    images, labels = shown.images, shown.labels
    own = score(model, images, xp, tell)
    temperature = best_temperature(own, shown)
    right = [round(part, 5) for part in shown.means(labels_of(own) == labels)]
    card = {k: v for k, v in model.card.items() if k != "rejection"}
    card["validation_accuracy"] = round(float(np.mean(right)), 5)
    if len(right) > 1:
        card["validation_sets"] = dict(zip(shown.names, right, strict=True))
    set_anew = replace(model, temperature=temperature, card=card)
    first = shown.hands[0].digits
    drawn = negatives(len(first), first.images, first.labels, seed=_SEED)[0]
    found, marks = (of_lone_digits(answers(part, temperature=temperature), set_anew)
                    for part in (own, score(model, drawn, xp)))  # fmt: skip
    table = risk_table(found, labels, marks)
    card["rejection"] = {"digits": len(labels), "marks": len(drawn), "table": table}
    return replace(set_anew, card=card)
