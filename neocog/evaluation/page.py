"""The page of a report: tables, curves and pictures in one HTML file that needs nothing else."""

import base64
import contextlib
import io
import os
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neocog.errors import InputError, UsageError
from neocog.evaluation.corruptions import CORRUPTIONS, STRENGTHS, corrupt

if TYPE_CHECKING:
    from neocog.evaluation.evaluate import PictureScore
    from neocog.evaluation.report import Facts, Report
    from neocog.learning.datasets import Digits

NAMES = {
    "mnist": "MNIST, test", "usps": "USPS, training file", "sklearn": "scikit-learn's digits",
    "photos": "photographs", "strings": "strings of digits",
}  # fmt: skip
_PICTURES = 12  # shown of those that were read wrong
_LONG_SIDE = 260  # of these
_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:62rem;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:.6rem 0 1.2rem}h2{margin-top:2.2rem;border-bottom:2px solid #0072b2}
td,th{padding:.15rem .6rem;text-align:right;border-bottom:1px solid #ddd}
td:first-child,th:first-child{text-align:left}.row{display:flex;flex-wrap:wrap;gap:1rem;align-items:start}img{max-width:100%}
figure{margin:.4rem;max-width:18rem}figcaption{font-size:12px;overflow-wrap:anywhere}
"""


def load_matplotlib() -> Any:
    """Import matplotlib, which draws the curves; UsageError if it is not installed."""
    try:
        with contextlib.chdir(os.path.dirname(__file__)):  # not a matplotlibrc of the current folder
            import matplotlib.figure
    except ImportError as error:
        raise UsageError(f"--report draws with matplotlib: pip install matplotlib ({error})") from None
    return matplotlib


def page(report: "Report") -> str:
    """Return the HTML of a report."""
    facts, digits = report.facts, report.sets.digits
    about = ("planes", "where", "precision", "date", "neocog", "seconds", "min_p")
    shown = ("n", "n_digits", "cer", "exact", "failed", "model")
    keys = ("n", "accuracy", "forced", "wrong", "no_answer", "ece", "aurc")
    parts = [
        f"<h1>{escape(facts['model'])}</h1>",
        _table([{key: facts[key] for key in about}]),
        "<h2>Overview</h2>",
        _table([{"set": NAMES[name]} | {key: own[key] for key in keys}
                | {"printed as ?": 1 - own["as_read"]["coverage"]}
                for name, own in facts["digits"].items()]),
        _table([{"set": NAMES[name]} | {key: own[key] for key in shown}
                for name, own in facts["pictures"].items()]),
    ]  # fmt: skip
    if facts["missing"]:
        parts.append("<h2>Missing</h2><p>Not measured:</p>")
        parts.append(_table([{"set": NAMES.get(k, k), "why": why} for k, why in facts["missing"].items()]))
    parts += [_digits(name, own, digits[name]) for name, own in facts["digits"].items()]
    if facts["fixed_on_validation"]:
        parts.append("<h2>Thresholds fixed on validation digits, on MNIST's test set</h2>")
        parts.append(_table(facts["fixed_on_validation"]))
    if facts["corruptions"]:
        parts.append(_corruptions(facts["corruptions"], next(iter(digits.values()))))
        marks = {"all": facts["marks"], **facts["marks"]["kinds"]}
        parts.append(
            "<h2>Marks that are not digits</h2><p>Nothing is learned from their kinds and fonts.</p>"
        )
        parts.append(_table([{"kind": k, **{key: own[key] for key in ("n", "read_as_digits")}}
                             for k, own in marks.items()]))  # fmt: skip
    parts += [_pictures(name, own, report.scores[name]) for name, own in facts["pictures"].items()]
    head = f'<meta charset="utf-8"><title>{escape(facts["model"])}</title><style>{_STYLE}</style>'
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'


def _table(rows: "Sequence[Facts]") -> str:
    """Rows of equal keys as a table; figures at a threshold become columns of their own."""
    flat = []
    for row in rows:
        cells: dict[str, Any] = {}
        for key, value in row.items():
            if not isinstance(value, dict):
                cells[key] = value
            else:
                cells |= {f"{key} {name}": own for name, own in value.items() if name != "threshold"}
        flat.append(cells)
    if not flat:
        return ""
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in flat[0])
    body = "".join(f"<tr>{''.join(f'<td>{_cell(own)}</td>' for own in row.values())}</tr>" for row in flat)
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(value: object) -> str:
    if value is None or value != value:  # NaN
        return "–"
    return f"{value:.5g}" if isinstance(value, float) else escape(str(value))


def _figure(panels: int = 1, *, size: tuple[float, float] = (4.4, 3.0)) -> tuple[Any, list[Any]]:
    figure = load_matplotlib().figure.Figure((panels * size[0], size[1]), layout="constrained", dpi=110)
    return figure, list(figure.subplots(1, panels, squeeze=False)[0])


def _png(figure: Any, about: str) -> str:
    """A figure of matplotlib's, or a picture of Pillow's, as an element of the page."""
    stream = io.BytesIO()
    (figure.savefig if hasattr(figure, "savefig") else figure.save)(stream, format="png")
    data = base64.b64encode(stream.getvalue()).decode()
    return f'<img src="data:image/png;base64,{data}" alt="{escape(about)}">'


def _sheet(images: NDArray[np.uint8], captions: Sequence[str], columns: int, about: str) -> str:
    """Digits (N, 28, 28), dark on white, with a caption below each."""
    rows, high, wide = -(-len(images) // columns), images.shape[1] + 14, images.shape[2] + 8
    sheet = np.zeros((rows * high, columns * wide), np.uint8)
    figure, (axes,) = _figure(size=(sheet.shape[1] / 45, sheet.shape[0] / 45))
    for i, (image, caption) in enumerate(zip(images, captions, strict=True)):
        top, left = i // columns * high, i % columns * wide + 4
        sheet[top : top + image.shape[0], left : left + image.shape[1]] = image
        axes.text(left + image.shape[1] / 2, top + high - 8, caption, ha="center", va="center", fontsize=8)
    axes.imshow(sheet, cmap="gray_r", vmin=0, vmax=255)
    axes.axis("off")
    return _png(figure, about)


def _draw_risk(axes: Any, own: "Facts", what: str) -> None:
    points = [(row["coverage"], 100 * row["risk"]) for row in own["risk_coverage"]]
    last = points[-1][1] if points else 0.0
    left = 0.9 if last < 3 else 0.5 if last < 15 else 0.0  # where readers look
    highest = max((risk for coverage, risk in points if coverage >= max(left, 0.05)), default=0.0)
    axes.plot([x for x, _ in points], [y for _, y in points])
    axes.set(title="risk and coverage", xlabel=f"coverage: share of {what} taken", xlim=(left, 1))
    axes.set(ylabel="risk: wrong among them, %", ylim=(0, max(1.05 * highest, 0.5)))
    axes.grid(alpha=0.3)


def _digits(name: str, own: "Facts", digits: "Digits") -> str:
    figure, (risk, reliability) = _figure(2)
    _draw_risk(risk, own, "digits")
    rows, worst, counts = own["reliability"], own["worst"], np.array(own["confusion"])
    reliability.plot((0, 1), (0, 1), color="grey", label="as it should be")
    reliability.plot([row["p"] for row in rows], [row["accuracy"] for row in rows], "o-", label="found")
    reliability.set(title="reliability", xlabel="probability given", ylabel="share right")
    reliability.legend()
    with np.errstate(invalid="ignore"):  # a digit that is never written has no recall
        recall, precision = np.diag(counts) / counts.sum(axis=1), np.diag(counts) / counts.sum(axis=0)[:10]
    heads = ("digit", *map(str, range(10)), "none", "recall", "precision")
    cells = ((i, *(n or "·" for n in counts[i]), recall[i], precision[i]) for i in range(10))
    confusion = [dict(zip(heads, row, strict=True)) for row in cells]
    answers = ("none" if row["read"] < 0 else row["read"] for row in worst)
    captions = [f"{row['digit']}>{read} {row['p']:.2f}" for row, read in zip(worst, answers, strict=True)]
    mistakes = "<p>None.</p>"
    if worst:
        mistakes = _sheet(digits.images[[row["index"] for row in worst]], captions, 10, "digits read wrong")
        mistakes += "<p>Written &gt; read, and its probability; the surest mistakes first.</p>"
    return (
        f"<h2>{NAMES[name]}</h2>{_png(figure, 'risk and coverage, reliability')}"
        f"<div class='row'>{_table(own['error_at_coverage'])}{_table(own['coverage_at_error'])}</div>"
        f"<h3>Digits written (rows) and read (columns)</h3>{_table(confusion)}"
        f"<h3>Worst mistakes</h3>{mistakes}"
    )


def _corruptions(own: "Facts", digits: "Digits") -> str:
    figure, (axes,) = _figure()
    for name, values in own["accuracy"].items():
        axes.plot(STRENGTHS, values, "o-", label=name, markersize=3)
    axes.set(xlabel="strength", ylabel="accuracy", xticks=STRENGTHS, ylim=(0, 1.02))
    axes.legend(fontsize=7)
    images = [corrupt(digits.images[:1], name, strength)[0] for name in CORRUPTIONS for strength in STRENGTHS]
    captions = [str(s) if s > 1 else name for name in CORRUPTIONS for s in STRENGTHS]
    sheet = _sheet(np.stack(images), captions, len(STRENGTHS), "a digit under every corruption")
    heads = ("corruption", *map(str, STRENGTHS), "mean", "what")
    rows = []
    for name, values in own["accuracy"].items():
        what = CORRUPTIONS[name].about.format("/".join(map(str, CORRUPTIONS[name].amounts)))
        rows.append(dict(zip(heads, (name, *values, own["means"][name], what), strict=True)))
    return (
        f"<h2>Corruptions</h2><p>{own['n']} digits of {escape(own['name'])}; mean {own['mean']:.4f}.</p>"
        f"<div class='row'><div>{_png(figure, 'corruptions')}</div><div>{sheet}</div></div>{_table(rows)}"
    )


def _pictures(name: str, own: "Facts", score: "PictureScore") -> str:
    from PIL import Image

    from neocog.vision.decode import decode

    figure, (axes,) = _figure()
    _draw_risk(axes, own, "numbers")
    wrong = [reading.source for reading, _, edits in score.mistakes if edits]
    readable = [pair for pair in zip(wrong, own["wrong"], strict=True) if pair[1]["error"] is None]
    shown = ""
    for source, row in readable[:_PICTURES]:
        with contextlib.suppress(InputError):
            picture = Image.fromarray(next(decode(source, long_side=_LONG_SIDE)).grey)
            picture.thumbnail((_LONG_SIDE, _LONG_SIDE))
            words = map(escape, (row["picture"], f"written {row['written']}", f"read {row['read']}"))
            shown += f"<figure>{_png(picture, '')}<figcaption>{'<br>'.join(words)}</figcaption></figure>"
    left_out = ""
    if own["left_out"]:
        names = escape(", ".join(own["left_out"]))
        left_out = f"<p>Left out, as what is written there holds no digit: {names}.</p>"
    return (
        f"<h2>{NAMES[name]}</h2><div class='row'><div>{_png(figure, 'risk and coverage')}</div>"
        f"<div>Numbers from a probability on: {_table(own['stricter'])}</div></div>{left_out}"
        f"<h3>Read wrong: {len(own['wrong'])} of {own['n']}</h3><div class='row'>{shown}</div>"
        f"<details><summary>all of them</summary>{_table(own['wrong'])}</details>"
    )
