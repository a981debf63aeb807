"""``neocog eval --report``: one model on every set at hand, as one JSON file and one page."""

import base64
import contextlib
import datetime
import io
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from neocog import __version__
from neocog.errors import InputError, UsageError
from neocog.evaluation.confidence import Confidence
from neocog.evaluation.corruptions import CORRUPTIONS, STRENGTHS, corrupt
from neocog.evaluation.evaluate import PictureScore, Progress, answer_digits, confusion_of, evaluate_pictures
from neocog.files import atomic_write, check_output
from neocog.learning.datasets import SETS, Digits, LabelledPictures, fetched_mnist, open_dataset, open_digits
from neocog.learning.drawing.marks import negatives
from neocog.network.decision import Answers
from neocog.reading.reader import Reader
from neocog.text import to_json
from neocog.vision.decode import decode

SCHEMA = 2
VARIABLE = "NEOCOG_DATA"  #: names the folder of the sets if the command names none
NAMES = {
    "mnist": "MNIST, test", "usps": "USPS, training file", "sklearn": "scikit-learn's digits",
    "photos": "photographs", "strings": "strings of digits",
}  # fmt: skip
_OURS = ("sklearn", "validation", "corruptions", "marks")  # what a report names so; such a set is renamed
_PARTS = {"mnist": "test", "usps": "train"}  # what is measured of these sets
# Shares of digits that are taken, and shares of wrong ones among them, that tables stand at.
_COVERAGES = (1.0, 0.999, 0.995, 0.99, 0.98, 0.95, 0.9)
_RISKS = (0.0005, 0.001, 0.002, 0.005, 0.01)
_CORRUPTED = _MARKS = 2000  # digits at most that corruptions are measured on, evenly spread; and marks
_MARKS_SEED = 20
_WORST = 40
_STRICTER = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
_PICTURES, _LONG_SIDE = 12, 260  # shown of those that were read wrong, and their pixels
_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:62rem;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:.6rem 0 1.2rem}h2{margin-top:2.2rem;border-bottom:2px solid #0072b2}
td,th{padding:.15rem .6rem;text-align:right;border-bottom:1px solid #ddd}
td:first-child,th:first-child{text-align:left}.row{display:flex;flex-wrap:wrap;gap:1rem;align-items:start}img{max-width:100%}
figure{margin:.4rem;max-width:18rem}figcaption{font-size:12px;overflow-wrap:anywhere}
"""

Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sets:
    """The sets that are at hand, by name."""

    digits: dict[str, Digits]  # "mnist" (test), "usps" (training), "sklearn"; or one of another name
    validation: Digits | None  # MNIST's
    pictures: dict[str, LabelledPictures]  # "photos" and "strings"; or one of another name
    missing: dict[str, str]  # why a set is not there


@dataclass(frozen=True, slots=True)
class Report:
    """A model on every set at hand."""

    facts: Facts  # what ``report.json`` holds; see docs/evaluation.md
    sets: Sets
    scores: dict[str, PictureScore] = field(default_factory=dict)  # of each set of pictures

    @property
    def failures(self) -> list[str]:
        """One line for each picture that could not be read."""
        return [line for score in self.scores.values() for line in score.failures]

    def summary(self) -> Facts:
        """What ``neocog eval --report --json`` prints."""
        facts = self.facts
        sets = {name: {"n": s["n"], "accuracy": s["accuracy"]} for name, s in facts["digits"].items()}
        for name, found in facts["pictures"].items():
            sets[name] = {key: found[key] for key in ("n", "n_digits", "cer", "exact")}
        if corrupted := facts["corruptions"]:
            sets["corruptions"] = {"n": corrupted["n"], "accuracy": round(corrupted["mean"], 6)}
        return {"sets": sets} | {key: facts[key] for key in ("missing", "seconds", "model", "device")}


def find_sets(place: str | Path | None = None, *, limit: int | None = None) -> Sets:
    """Open the sets of a folder, or the one that it is, and scikit-learn's; ``limit``: so many of each.

    By default it is the folder that NEOCOG_DATA names, else only what was fetched is taken. InputError if the
    folder is missing or holds no set, or a set is malformed.
    """
    named = place if place is not None else os.environ.get(VARIABLE) or None
    missing = dict.fromkeys(SETS, f"not in a folder named by PATH or {VARIABLE}")
    if named is None:
        there = {} if (mnist := fetched_mnist()) is None else {"mnist": mnist}
        missing["mnist"] = "not downloaded; run 'neocog data fetch mnist', or name a folder that holds it"
    else:
        if not (folder := Path(named)).is_dir():
            raise InputError(f"{folder}: no such folder, expected one that holds {', '.join(SETS)}")
        missing = dict.fromkeys(SETS, f"not in {folder}")
        there = {  # with more in it than a transfer that broke off leaves
            name: folder / name for name in SETS
            if (folder / name).is_dir() and any(e.suffix != ".part" for e in (folder / name).iterdir())
        }  # fmt: skip
        if not there:
            try:
                open_dataset(folder)
            except InputError as error:
                none = f"{folder}: contains none of these folders: {', '.join(SETS)}"
                raise InputError(f"{none}; as one set: {error}") from None
            name = "mnist" if any(folder.glob("t10k-images*")) else folder.resolve().name
            there = {f"{name} (named)" if name in _OURS else name: folder}
    digits, validation, pictures = dict[str, Digits](), None, dict[str, LabelledPictures]()
    for name, own in there.items():
        found = open_dataset(own, split=_PARTS.get(name))[:limit]
        if isinstance(found, Digits):
            digits[name] = found
        else:
            pictures[name] = found
    try:
        digits["sklearn"] = open_digits("sklearn")[:limit]
    except (InputError, UsageError) as error:
        missing["sklearn"] = str(error)
    try:
        if "mnist" in there:
            validation = open_digits(there["mnist"], split="validation")[:limit]
    except InputError as error:
        missing["validation"] = str(error)
    missing = {name: why for name, why in missing.items() if name not in there}
    return Sets(digits, validation, dict(sorted(pictures.items())), missing)


def _digit_facts(digits: Digits, answers: Answers, sure: Confidence, *, min_p: float) -> Facts:
    """What a report says of isolated digits; a reader prints ``?`` for probabilities below ``min_p``."""
    # the digit whose own score is the best of the ten, also where no digit is answered
    forced = (answers.score.argmax(axis=1) == digits.labels) & (answers.score.max(axis=1) > 0)
    taken = [(c, sure.threshold_of_coverage(c)) for c in _COVERAGES[1:]]
    if (sure.p > 0).any():  # every answer there is, also where some digits have none
        taken.insert(0, (_COVERAGES[0], float(sure.p[sure.p > 0].min())))
    risks = [(r, sure.threshold_of_risk(r)) for r in _RISKS]
    wrong = np.flatnonzero(~sure.right)  # the surest first, those without an answer last
    worst = wrong[np.argsort(-sure.p[wrong], kind="stable")][:_WORST]
    count = max(len(digits), 1)
    return {
        "name": digits.name, "n": len(digits), "accuracy": round(float(sure.right.sum()) / count, 6),
        "forced": round(float(forced.sum()) / count, 6),
        "wrong": int((answers.label >= 0).sum() - sure.right.sum()),
        "no_answer": int((answers.label < 0).sum()), "as_read": sure.at(min_p), "ece": sure.ece(),
        "aurc": sure.aurc(),
        "error_at_coverage": [{"wanted": c, **sure.at(t)} for c, t in taken if t is not None],
        "coverage_at_error": [{"wanted": r, **sure.at(t)} for r, t in risks if t is not None],
        "confusion": confusion_of(digits.labels, answers.label).tolist(),
        "reliability": sure.reliability(), "risk_coverage": sure.points(),
        "worst": [{"index": int(i), "digit": int(digits.labels[i]), "read": int(answers.label[i]),
                   "p": sure.p[i]} for i in worst],
    }  # fmt: skip


def _corruption_facts(reader: Reader, digits: Digits, progress: Progress | None) -> Facts:
    """Accuracy on the same digits under each corruption at each strength, and means."""
    if len(digits) > _CORRUPTED:
        digits = digits[np.linspace(0, len(digits), _CORRUPTED, endpoint=False).astype(int)]
    kinds, total = {name: list[float]() for name in CORRUPTIONS}, len(CORRUPTIONS) * len(STRENGTHS)
    for done, (name, strength) in enumerate(((k, s) for k in kinds for s in STRENGTHS), 1):
        images = corrupt(digits.images, name, strength)
        right = answer_digits(reader.engine, images, batch=reader.batch).label == digits.labels
        kinds[name].append(round(float(right.mean()), 6))
        if progress:
            progress(done * len(digits), total * len(digits))
    means = {name: float(np.mean(values)) for name, values in kinds.items()}
    mean = float(np.mean(list(means.values())))
    return {"name": digits.name, "n": len(digits), "mean": mean, "means": means, "accuracy": kinds}


def measure(
    reader: Reader, sets: Sets, *, pages: Reader | None = None, limit: int | None = None,
    progress: Callable[[str], Progress | None] = lambda name: None,
) -> Report:  # fmt: skip
    """Read every set, pictures by ``pages``; ``limit`` marks; ``progress`` makes a part's callback."""
    start, model, engine, min_p = time.perf_counter(), reader.model, reader.engine, reader.policy.min_p
    facts: Facts = {
        "schema": SCHEMA, "model": model.id, "planes": [len(model.s[0].reference), *model.planes],
        "device": engine.device, "where": engine.where, "precision": engine.precision, "min_p": min_p,
        "neocog": __version__, "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seconds": 0.0, "missing": dict(sets.missing), "digits": {}, "validation": None,
        "fixed_on_validation": [], "corruptions": None, "marks": None, "pictures": {},
    }  # fmt: skip
    sure: dict[str, Confidence] = {}
    known = sets.digits if sets.validation is None else sets.digits | {"validation": sets.validation}
    for name, own in known.items():
        answers = answer_digits(engine, own.images, batch=reader.batch, progress=progress(own.name))
        sure[name] = Confidence.of(answers.label, answers.p, own.labels)
        if name != "validation":
            facts["digits"][name] = _digit_facts(own, answers, sure[name], min_p=min_p)
    if sets.digits:
        base = next(iter(sets.digits.values()))
        facts["corruptions"] = _corruption_facts(reader, base, progress("corruptions"))
        # how many marks of held-out kinds and fonts are read as digits, by kind
        count = min(limit or _MARKS, _MARKS)
        marks, kind, names = negatives(count, base.images, base.labels, seed=_MARKS_SEED, held=True)
        answers = answer_digits(engine, marks, batch=reader.batch)
        passed = Confidence.of(answers.label, answers.p, np.full(count, -1))
        taken = (passed.p > 0) & (passed.p >= min_p)
        kinds = {name: {"n": int((kind == k).sum()), "read_as_digits": float(taken[kind == k].mean())}
                 for k, name in enumerate(names) if (kind == k).any()}  # fmt: skip
        facts["marks"] = {"n": count, "min_p": min_p, "read_as_digits": float(taken.mean()), "kinds": kinds}
        if "validation" in sure and "mnist" in sure:  # what thresholds fixed there do to other sets
            fixed = sure["validation"]
            facts["validation"] = {"n": len(fixed), "accuracy": round(float(fixed.right.mean()), 6)}
            wanted = [("coverage", c, fixed.threshold_of_coverage(c)) for c in _COVERAGES[1:]]
            wanted += [("risk", r, fixed.threshold_of_risk(r)) for r in _RISKS]
            facts["fixed_on_validation"] = [
                {"fixed_at": way, "wanted": value, "threshold": t, "validation": fixed.at(t),
                 "test": sure["mnist"].at(t), "marks": passed.at(t)["coverage"]}
                for way, value, t in wanted if t is not None
            ]  # fmt: skip
    else:
        facts["missing"] |= dict.fromkeys(("corruptions", "marks"), "no isolated digits to make them from")
    scores = {}
    for name, pictures in sets.pictures.items():
        score = scores[name] = evaluate_pictures(pages or reader, pictures, progress=progress(pictures.name))
        facts["pictures"][name] = {
            "name": pictures.name, **score.to_dict(), "failed": len(score.failures),
            "left_out": list(pictures.left_out),  # no digit stands in these
            "stricter": [score.numbers.at(threshold) for threshold in _STRICTER],
            "risk_coverage": score.numbers.points(),
            "wrong": [
                {"picture": Path(reading.source).name, "written": expected,
                 "read": reading.text.replace("\n", " "), "edits": edits, "error": reading.error}
                for reading, expected, edits in score.mistakes if edits
            ],
            "model": (pages or reader).model.id,
        }  # fmt: skip
    facts["seconds"] = round(time.perf_counter() - start, 3)
    return Report(facts, sets, scores)


def write(report: Report, folder: str | Path) -> tuple[Path, Path]:
    """Write ``report.json`` and ``report.html`` into a folder and return their places; see `check_output`."""
    check_output(folder, "--report", folder=True, make=True)
    data, shown = Path(folder) / "report.json", Path(folder) / "report.html"
    for path, text in ((data, to_json(report.facts, indent=1) + "\n"), (shown, page(report))):
        with atomic_write(path) as stream:
            stream.write(text.encode())
    return data, shown


def page(report: Report) -> str:
    """Return a report as HTML that needs nothing else; without matplotlib it has no curves."""
    facts, parts = report.facts, list[str]()
    sets = {name: NAMES.get(name, name) for name in (*facts["digits"], *facts["pictures"], *facts["missing"])}
    about = ("planes", "where", "precision", "date", "neocog", "seconds", "min_p")
    keys = ("n", "accuracy", "forced", "wrong", "no_answer", "ece", "aurc")
    shown = ("n", "n_digits", "cer", "exact", "failed", "model")
    parts += [f"<h1>{escape(facts['model'])}</h1>", _table([{key: facts[key] for key in about}])]
    if _matplotlib() is None:
        parts.append("<p>The curves are drawn with matplotlib: pip install matplotlib</p>")
    rows = [{"set": sets[name], **{key: own[key] for key in keys},
             "printed as ?": 1 - own["as_read"]["coverage"]}
            for name, own in facts["digits"].items()]  # fmt: skip
    parts.append(f"<h2>Overview</h2>{_table(rows)}")
    parts.append(_table([{"set": sets[name], **{key: own[key] for key in shown}}
                         for name, own in facts["pictures"].items()]))  # fmt: skip
    if facts["missing"]:
        rows = [{"set": sets[name], "why": why} for name, why in facts["missing"].items()]
        parts.append(f"<h2>Missing</h2><p>Not measured:</p>{_table(rows)}")
    for name, own in facts["digits"].items():
        parts.append(f"<h2>{escape(sets[name])}</h2>{_curves(own, 'digits')}")
        parts += [_table(own["error_at_coverage"]), _table(own["coverage_at_error"])]
        heads = ("digit", *map(str, range(10)), "none")
        rows = [dict(zip(heads, (i, *row), strict=True)) for i, row in enumerate(own["confusion"])]
        parts.append(f"<h3>Digits written (rows) and read (columns)</h3>{_table(rows)}")
        parts.append(f"<h3>Worst mistakes</h3>{_mistakes(own['worst'], report.sets.digits[name])}")
    if facts["fixed_on_validation"]:
        parts.append("<h2>Thresholds fixed on validation digits, on MNIST's test set</h2>")
        parts.append(_table(facts["fixed_on_validation"]))
    if own := facts["corruptions"]:
        heads = ("corruption", *map(str, STRENGTHS), "mean")
        rows = [dict(zip(heads, (kind, *values, own["means"][kind]), strict=True))
                for kind, values in own["accuracy"].items()]  # fmt: skip
        mean = f"{own['n']} digits of {escape(own['name'])}; mean {own['mean']:.4f}."
        parts.append(f"<h2>Corruptions</h2><p>{mean}</p>{_curves(own, 'corruptions')}{_table(rows)}")
        rows = [{"kind": kind, "n": marks["n"], "read as digits": marks["read_as_digits"]}
                for kind, marks in {"all": facts["marks"], **facts["marks"]["kinds"]}.items()]  # fmt: skip
        parts.append("<h2>Marks that are not digits</h2>"
                     f"<p>Nothing is learned from their kinds and fonts.</p>{_table(rows)}")  # fmt: skip
    for name, own in facts["pictures"].items():
        parts.append(f"<h2>{escape(sets[name])}</h2>{_curves(own, 'numbers')}")
        parts.append(f"<p>Numbers from a probability on:</p>{_table(own['stricter'])}")
        if own["left_out"]:
            names = escape(", ".join(own["left_out"]))
            parts.append(f"<p>Left out, as what is written there holds no digit: {names}.</p>")
        parts.append(f"<h3>Read wrong: {len(own['wrong'])} of {own['n']}</h3><div class='row'>")
        wrong = [reading for reading, _, edits in report.scores[name].mistakes if edits]
        readable = [pair for pair in zip(wrong, own["wrong"], strict=True) if pair[0].error is None]
        for reading, row in readable[:_PICTURES]:
            with contextlib.suppress(InputError):
                picture = Image.fromarray(next(decode(reading.source, long_side=_LONG_SIDE)).grey)
                picture.thumbnail((_LONG_SIDE, _LONG_SIDE))
                words = map(escape, (row["picture"], f"written {row['written']}", f"read {row['read']}"))
                caption = f"<figcaption>{'<br>'.join(words)}</figcaption>"
                parts.append(f"<figure>{_png(picture, '')}{caption}</figure>")
        parts.append(f"</div><details><summary>all of them</summary>{_table(own['wrong'])}</details>")
    head = f'<meta charset="utf-8"><title>{escape(facts["model"])}</title><style>{_STYLE}</style>'
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'


def _table(rows: Sequence[Facts]) -> str:
    """Rows of equal keys as a table; figures at a threshold become columns of their own."""

    def cell(value: object) -> str:
        if value is None or value != value:  # NaN
            return "<td>–</td>"
        return f"<td>{value:.5g}</td>" if isinstance(value, float) else f"<td>{escape(str(value))}</td>"

    flat = []
    for row in rows:
        cells: dict[str, Any] = {}
        for key, value in row.items():
            inner = value if isinstance(value, dict) else {"": value}
            cells |= {f"{key} {name}".strip(): own for name, own in inner.items() if name != "threshold"}
        flat.append(cells)
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in (flat[0] if flat else ()))
    body = "".join(f"<tr>{''.join(map(cell, row.values()))}</tr>" for row in flat)
    return f"<table><tr>{head}</tr>{body}</table>" if flat else ""


def _mistakes(worst: list[Facts], digits: Digits) -> str:
    """Digits that were read wrong, dark on white, twice as large, with a caption below each."""
    if not worst:
        return "<p>None.</p>"
    wide, high, columns = 72, 74, 10
    sheet = Image.new("L", (columns * wide, -(-len(worst) // columns) * high), 255)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(11)
    for i, row in enumerate(worst):
        left, top = i % columns * wide, i // columns * high
        sheet.paste(Image.fromarray(255 - digits.images[row["index"]]).resize((56, 56)), (left + 8, top))
        words = f"{row['digit']}>{'none' if row['read'] < 0 else row['read']} {row['p']:.2f}"
        draw.text((left + wide // 2, top + 64), words, 0, font, "mm")
    return f"{_png(sheet, '')}<p>Written &gt; read, and its probability; the surest mistakes first.</p>"


def _matplotlib() -> Any:
    try:
        with contextlib.chdir(os.path.dirname(__file__)):  # not a matplotlibrc of the current folder
            import matplotlib.figure
    except ImportError:
        return None
    return matplotlib


def _curves(own: Facts, what: str) -> str:
    """Draw the curves of a set of digits, of numbers, or of corruptions; nothing without matplotlib."""
    if (matplotlib := _matplotlib()) is None:
        return ""
    panels = 2 if what == "digits" else 1
    figure = matplotlib.figure.Figure((4.4 * panels, 3.0), layout="constrained", dpi=110)
    axes, *others = figure.subplots(1, panels, squeeze=False)[0]
    if what == "corruptions":
        for name, values in own["accuracy"].items():
            axes.plot(STRENGTHS, values, "o-", label=name, markersize=3)
        axes.set(xlabel="strength", ylabel="accuracy", xticks=STRENGTHS, ylim=(0, 1.02))
        axes.legend(fontsize=7)
        return _png(figure, what)
    points = [(row["coverage"], 100 * row["risk"]) for row in own["risk_coverage"]]
    last = points[-1][1] if points else 0.0
    left = 0.9 if last < 3 else 0.5 if last < 15 else 0.0  # where readers look
    highest = max((risk for coverage, risk in points if coverage >= max(left, 0.05)), default=0.0)
    axes.plot([x for x, _ in points], [y for _, y in points])
    axes.set(title="risk and coverage", xlabel=f"coverage: share of {what} taken", xlim=(left, 1))
    axes.set(ylabel="risk: wrong among them, %", ylim=(0, max(1.05 * highest, 0.5)))
    axes.grid(alpha=0.3)
    for axes in others:
        rows = own["reliability"]
        axes.plot((0, 1), (0, 1), color="grey", label="as it should be")
        axes.plot([row["p"] for row in rows], [row["accuracy"] for row in rows], "o-", label="found")
        axes.set(title="reliability", xlabel="probability given", ylabel="share right")
        axes.legend()
    return _png(figure, f"risk and coverage of {what}")


def _png(image: Any, about: str) -> str:
    """A figure of matplotlib's, or a picture of Pillow's, as an element of the page."""
    (image.savefig if hasattr(image, "savefig") else image.save)(stream := io.BytesIO(), format="png")
    data = base64.b64encode(stream.getvalue()).decode()
    return f'<img src="data:image/png;base64,{data}" alt="{escape(about)}">'
