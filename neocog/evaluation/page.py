"""The page of a report: tables, curves and pictures in one HTML file that needs nothing else."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from neocog.errors import InputError
from neocog.evaluation.corruptions import CORRUPTIONS, STRENGTHS, corrupt
from neocog.evaluation.figures import Axis, Line, chart, digit_sheet, embedded
from neocog.evaluation.measures import Facts

if TYPE_CHECKING:
    from neocog.evaluation.evaluate import PictureScore
    from neocog.evaluation.report import Report
    from neocog.learning.datasets import Digits

NAMES = {
    "mnist": "MNIST, test", "usps": "USPS, training file", "sklearn": "scikit-learn's digits",
    "photos": "photographs", "strings": "strings of digits", "validation": "MNIST, validation",
}  # fmt: skip
_SHARES = [(v / 100, f"{v} %") for v in (0, 20, 40, 60, 80, 100)]
_THUMBNAIL = 260  # long side of a picture that was read wrong
_PICTURES = 12  # of these shown

_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:62rem;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:.6rem 0 1.2rem}
td,th{padding:.15rem .6rem;text-align:right;border-bottom:1px solid #ddd}
th{font-weight:600}td:first-child,th:first-child{text-align:left}td.off{color:#bbb}
h2{margin-top:2.2rem;border-bottom:2px solid #0072b2}.charts{display:flex;flex-wrap:wrap;gap:1rem}
.charts>div{flex:1 1 26rem;max-width:30rem}svg{width:100%;height:auto}
svg text{font-size:11px;fill:#444}svg .x{text-anchor:middle}svg .y{text-anchor:end}
.grid{stroke:#e4e4e4;fill:none}.line{fill:none;stroke-width:2}.key span{margin-right:1rem}
.key i{display:inline-block;width:1em;height:.6em;margin-right:.4em}.key{font-size:13px}
figure{display:inline-block;margin:.4rem;vertical-align:top;max-width:18rem}
figcaption{font-size:12px;overflow-wrap:anywhere}img{max-width:100%}.note{color:#666;font-size:13px}
"""


def page(report: "Report") -> str:
    """Return the HTML of a report."""
    facts, digits = report.facts, report.sets.digits
    parts = [_head(facts), _overview(facts), _missing(facts)]
    parts += [_digits(name, own, digits[name]) for name, own in facts["digits"].items()]
    parts.append(_fixed(facts["fixed_on_validation"]))
    if facts["corruptions"]:
        parts.append(_corruptions(facts["corruptions"], next(iter(digits.values()))))
    if facts["marks"]:
        parts.append(_marks(facts["marks"]))
    parts += [_pictures(name, own, report.scores[name]) for name, own in facts["pictures"].items()]
    title = f"<title>{escape(facts['model'])}</title>"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">{title}'
        f"<style>{_STYLE}</style></head><body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


# --- words and tables -----------------------------------------------------------------------------


def _head(facts: Facts) -> str:
    planes = "/".join(map(str, facts["planes"]))
    return (
        f"<h1>{escape(facts['model'])}</h1><p>{planes} cell-planes, on {escape(facts['where'])}, "
        f"{escape(facts['precision'])}; {facts['date']}, neocog {escape(facts['neocog'])}; "
        f"{facts['seconds']:.0f} s. A reader prints ? below p = {facts['min_p']:g}.</p>"
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _share(value: float | None, places: int = 2) -> str:
    return "–" if value is None else f"{100 * value:.{places}f} %"


def _overview(facts: Facts) -> str:
    rows = [
        (NAMES[name], str(own["n"]), _share(own["accuracy"]), _share(own["forced"]),
         str(own["wrong"]), str(own["no_answer"]), _share(1 - own["as_read"]["coverage"]),
         f"{own['ece']:.4f}", f"{own['aurc']:.2e}")
        for name, own in facts["digits"].items()
    ]  # fmt: skip
    heads = ["isolated digits", "digits", "accuracy", "forced", "wrong", "no answer",
             "printed as ?", "ECE", "AURC"]  # fmt: skip
    out = "<h2>Overview</h2>" + _table(heads, rows)
    pictures = [
        (NAMES[name], str(own["n"]), str(own["n_digits"]), _share(own["cer"]),
         _share(own["exact"], 1), str(own["failed"]))
        for name, own in facts["pictures"].items()
    ]  # fmt: skip
    if pictures:
        heads = ["pictures", "pictures", "digits", "character error rate", "exact", "failed"]
        out += _table(heads, pictures)
    if facts["corruptions"]:
        out += f"<p>Mean accuracy under corruption: {_share(facts['corruptions']['mean'])}.</p>"
    if facts["marks"]:
        marks = facts["marks"]
        out += f"<p>Marks that are not digits, read as one: {_share(marks['read_as_digits'])}.</p>"
    return out


def _missing(facts: Facts) -> str:
    if not facts["missing"]:
        return ""
    rows = "".join(
        f"<li>{escape(NAMES.get(name, name))}: {escape(why)}</li>" for name, why in facts["missing"].items()
    )
    return f"<h2>Missing</h2><p>Not measured:</p><ul>{rows}</ul>"


# --- isolated digits ------------------------------------------------------------------------------


def _digits(name: str, own: Facts, digits: "Digits") -> str:
    charts = f"<div>{_risk_chart(own)}</div><div>{_reliability_chart(own)}</div>"
    coverage = _table(
        ("digits taken", "from p =", "wrong among them", "wrong"),
        ((_share(row["coverage"]), f"{row['threshold']:.6g}", _share(row["risk"], 3),
          str(row["wrong"])) for row in own["error_at_coverage"]),
    )  # fmt: skip
    error = _table(
        ("at most wrong", "from p =", "digits taken"),
        ((_share(row["wanted"]), f"{row['threshold']:.6g}", _share(row["coverage"]))
         for row in own["coverage_at_error"]),
    )  # fmt: skip
    return (
        f"<h2>{escape(NAMES[name])}</h2><div class='charts'>{charts}</div>"
        f"<div class='charts'><div>{coverage}</div><div>{error}</div></div>"
        f"<h3>Digits written (rows) and read (columns)</h3>{_confusion(own)}"
        f"<h3>Worst mistakes</h3>{_mistakes(own, digits)}"
    )


def _confusion(own: Facts) -> str:
    heads = "".join(f"<th>{name}</th>" for name in [*range(10), "none", "recall", "precision"])
    rows = ""
    for digit, (counts, row) in enumerate(zip(own["confusion"], own["per_digit"], strict=True)):
        cells = "".join(f"<td>{count}</td>" if count else '<td class="off">·</td>' for count in counts)
        shares = f"<td>{_share(row['recall'])}</td><td>{_share(row['precision'])}</td>"
        rows += f"<tr><th>{digit}</th>{cells}{shares}</tr>"
    return f"<table><tr><th></th>{heads}</tr>{rows}</table>"


def _mistakes(own: Facts, digits: "Digits") -> str:
    worst = own["worst"]
    if not worst:
        return "<p>None.</p>"
    captions = [
        f"{row['digit']}>{'none' if row['read'] < 0 else row['read']} {row['p']:.2f}" for row in worst
    ]
    sheet = digit_sheet(digits.images[[row["index"] for row in worst]], captions)
    return (
        f'<img src="{embedded(sheet)}" alt="digits read wrong">'
        "<p class='note'>Written &gt; read, and its probability; the surest mistakes first.</p>"
    )


def _risk_chart(own: Facts, *, what: str = "digits") -> str:
    points = [(row["coverage"], 100 * row["risk"]) for row in own["risk_coverage"]]
    last = points[-1][1] if points else 0.0
    left = 0.9 if last < 3 else 0.5 if last < 15 else 0.0
    points = [point for point in points if point[0] >= left]
    highest = max((risk for coverage, risk in points if coverage > 0.05), default=0.0)
    top = next(t for t in (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0) if t >= min(highest, 100))
    x = Axis(f"coverage: share of {what} taken", left, 1.0, _ticks(left, 1.0, 100))
    y = Axis("risk: wrong among them, %", 0.0, top, _ticks(0.0, top, 1))
    return chart([Line("", points)], x, y, title="risk and coverage")


def _ticks(low: float, high: float, factor: float) -> list[tuple[float, str]]:
    unit = " %" if factor == 100 else ""
    values = np.linspace(low, high, 6)
    return [(float(v), f"{factor * v:.3g}{unit}") for v in values]


def _reliability_chart(own: Facts) -> str:
    seen = [(row["p"], row["accuracy"]) for row in own["reliability"]]
    lines = [Line("as it should be", [(0, 0), (1, 1)]), Line("found", seen, dots=True)]
    x, y = Axis("probability given", 0, 1, _SHARES), Axis("share right", 0, 1, _SHARES)
    return chart(lines, x, y, title="reliability")


def _fixed(rows: list[Facts]) -> str:
    if not rows:
        return ""
    table = _table(
        ("fixed at", "from p =", "validation: taken", "wrong", "test: taken", "wrong",
         "marks read as digits"),
        (
            (f"{row['fixed_at']} {_share(row['wanted'])}", f"{row['threshold']:.6g}",
             _share(row["validation"]["coverage"]), _share(row["validation"]["risk"], 3),
             _share(row["test"]["coverage"]), _share(row["test"]["risk"], 3),
             _share(row["marks"], 1))
            for row in rows
        ),
    )  # fmt: skip
    return f"<h2>Thresholds fixed on validation digits, on MNIST's test set</h2>{table}"


# --- corruptions, marks, pictures -----------------------------------------------------------------


def _corruptions(own: Facts, digits: "Digits") -> str:
    lines = [
        Line(name, list(zip(STRENGTHS, values, strict=True)), dots=True)
        for name, values in own["accuracy"].items()
    ]
    x = Axis("strength", 1, 5, [(s, str(s)) for s in STRENGTHS])
    shown = chart(lines, x, Axis("accuracy", 0, 1, _SHARES), title="corruptions")
    rows = [
        (name, *(_share(value) for value in values), _share(own["means"][name]),
         CORRUPTIONS[name].about.format("/".join(f"{a:g}" for a in CORRUPTIONS[name].amounts)))
        for name, values in own["accuracy"].items()
    ]  # fmt: skip
    heads = ("corruption", *map(str, STRENGTHS), "mean", "what")
    return (
        f"<h2>Corruptions</h2><p>{own['n']} digits of {escape(own['name'])}; mean of all "
        f"{_share(own['mean'])}.</p>"
        f"<div class='charts'><div>{shown}</div>{_examples(digits)}</div>{_table(heads, rows)}"
    )


def _examples(digits: "Digits") -> str:
    """One digit under every corruption at every strength."""
    one = digits.images[:1]
    images = [corrupt(one, name, strength)[0] for name in CORRUPTIONS for strength in STRENGTHS]
    captions = [str(s) if s > 1 else name for name in CORRUPTIONS for s in STRENGTHS]
    sheet = digit_sheet(np.stack(images), captions, columns=len(STRENGTHS))
    return f'<div><img src="{embedded(sheet)}" alt="a digit under every corruption"></div>'


def _marks(own: Facts) -> str:
    rows = [(name, str(kind["n"]), _share(kind["read_as_digits"], 1)) for name, kind in own["kinds"].items()]
    return (
        f"<h2>Marks that are not digits</h2><p>{own['n']} marks of kinds and fonts that nothing is "
        f"learned from; {_share(own['read_as_digits'])} are read as a digit.</p>"
        + _table(("kind", "marks", "read as a digit"), rows)
    )


def _pictures(name: str, own: Facts, score: "PictureScore") -> str:
    stricter = _table(
        ("? below p =", "digits that are ?", "error rate, ? an error", "error rate beside ?"),
        ((f"{row['threshold']:g}", _share(row["unknown"]), _share(row["cer"]),
          _share(row["cer_beside"])) for row in own["stricter"]),
    )  # fmt: skip
    wrong = [reading for reading, _, edits in score.mistakes if edits]
    figures = [
        _wrong_picture(reading.source, row)
        for reading, row in zip(wrong, own["wrong"], strict=True)
        if reading.error is None
    ][:_PICTURES]
    rest = _table(
        ("picture", "written", "read", "edits"),
        ((row["picture"], row["written"], row["error"] or row["read"], str(row["edits"]))
         for row in own["wrong"]),
    )  # fmt: skip
    left_out = ""
    if own["left_out"]:
        left_out = "<p class='note'>Left out, as what is written there holds no digit: "
        left_out += f"{escape(', '.join(own['left_out']))}.</p>"
    return (
        f"<h2>{escape(NAMES[name])}</h2><div class='charts'>"
        f"<div>{_risk_chart(own, what='pictures')}</div><div>{stricter}</div></div>{left_out}"
        f"<h3>Read wrong: {len(own['wrong'])} of {own['n']}</h3>{''.join(figures)}"
        f"<details><summary>all of them</summary>{rest}</details>"
    )


def _wrong_picture(source: str, row: Facts) -> str:
    from neocog.vision.decode import decode

    try:
        grey = next(decode(source, long_side=_THUMBNAIL)).grey
    except InputError:
        return ""
    picture = Image.fromarray(grey)
    picture.thumbnail((_THUMBNAIL, _THUMBNAIL))
    return (
        f'<figure><img src="{embedded(picture)}" alt=""><figcaption>{escape(row["picture"])}<br>'
        f"written {escape(row['written'])}<br>read {escape(row['read'])}</figcaption></figure>"
    )
