"""``neocog eval`` and ``timing``: how well and how fast."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neocog.cli import options
from neocog.cli.options import flag, option
from neocog.cli.progress import Counter
from neocog.errors import UsageError
from neocog.network.registry import DEFAULT, LINES, find_model, kind_of
from neocog.text import tell, to_json

if TYPE_CHECKING:
    from neocog.learning.datasets import Digits, LabelledPictures
    from neocog.reading.reader import Reader


def evaluate(
    path: Annotated[str | None, typer.Argument(metavar="PATH", show_default=False,
        help="A labelled set: IDX, USPS, folders 0 to 9, labels.csv; or the name mnist or sklearn. With "
        "--report, a folder with some of mnist, usps, photos and strings [default: NEOCOG_DATA].")] = None,
    model: options.PageModel = None,
    device: options.Device = "auto",
    precision: options.Precision = None,
    plan: options.Plan = "default",
    split: Annotated[str | None, option("test|train|validation|learning",
        "Part of the set [default: test, if the set has parts].")] = None,
    limit: Annotated[int | None, option("N", "Only the first N.", min=1)] = None,
    batch: options.Batch = None,
    signs: Annotated[bool, flag(
        "Compare the whole text of pictures too: signs, spaces and line ends.")] = False,
    as_json: options.Json = False,
    report: Annotated[str | None, option("DIR",
        "Measure on every set found; write report.json and report.html to DIR.")] = None,
) -> None:  # fmt: skip
    """Measure how well a model reads a labelled set.

    Isolated digits: accuracy and a confusion matrix. Pictures of several digits: the
    character error rate, and the share of pictures read exactly. With --report: every set
    found (pictures by a line model, digits by a digit model; --model chooses the one that it is),
    corruptions, marks that are not digits, risk against coverage, calibration, mistakes.
    """
    from neocog.learning.datasets import Digits, open_dataset
    from neocog.reading.reader import Reader

    def opened(name: str | None) -> Reader:
        return Reader(name, device=device, precision=precision, plan=plan, batch=batch)

    if report is not None:
        if split is not None:
            raise UsageError("--report chooses the parts itself; leave --split out")
        if signs:
            raise UsageError("--report compares digits; leave --signs out")
        lines = kind_of(find_model(model or LINES)) == "lines"
        digits = opened(DEFAULT if lines else model)
        pages = Reader(model, device=device) if lines else digits
        failures = _report(path, report, limit, as_json, digits, pages)
    elif path is None:
        raise UsageError("PATH: name a data set, or give --report DIR")
    else:
        dataset = open_dataset(path, split=split)[:limit]
        if isinstance(dataset, Digits):
            reader = opened(model or DEFAULT)
            if signs or reader.kind == "lines":
                wrong = "leave --signs out" if signs else f"give a digit model, such as {DEFAULT}"
                raise UsageError(f"{dataset.name}: isolated digits; {wrong}")
            failures = _evaluate_digits(reader, dataset, as_json)
        else:
            if split is not None:
                why = "pictures with a labels.csv have no parts; leave --split out"
                raise UsageError(f"{dataset.name}: {why}")
            if signs and dataset.texts is None:
                raise UsageError(f"{dataset.name}: no column 'text' in its labels.csv; leave --signs out")
            failures = _evaluate_pictures(opened(model), dataset, as_json, signs=signs)
    for failure in failures:
        tell(failure)
    if failures:
        raise typer.Exit(1)


def _evaluate_digits(reader: "Reader", digits: "Digits", as_json: bool) -> list[str]:
    from neocog.evaluation.evaluate import evaluate_digits

    facts = evaluate_digits(reader.engine, digits, batch=reader.batch, progress=Counter("digits"))
    if as_json:
        print(to_json({**facts, "model": reader.model.id, "device": reader.engine.device}))
        return []
    n, right = facts["n"], sum(row[digit] for digit, row in enumerate(facts["confusion"]))
    print(f"{digits.name}: {n} digits read by {reader.model.id} in {facts['seconds']:.1f} s")
    print(f"accuracy {100 * facts['accuracy']:.2f} %   ({n - right} wrong)")
    print("\nwritten  read as" + "".join(f"{answer:>5}" for answer in [*range(10), "none"])[3:])
    for digit, row in enumerate(facts["confusion"]):
        print(f"{digit:>7}  " + "".join(f"{count or '.':>5}" for count in row))
    return []


def _evaluate_pictures(
    reader: "Reader", pictures: "LabelledPictures", as_json: bool, *, signs: bool
) -> list[str]:
    from neocog.evaluation.evaluate import evaluate_pictures

    _say_left_out(pictures)
    score = evaluate_pictures(reader, pictures, progress=Counter("pictures"))
    facts = score.to_dict()
    if signs and pictures.texts:
        score = replace(score, expected=pictures.texts, signs=True)
        facts |= {f"{name}_text": score.to_dict()[name] for name in ("cer", "exact")}
    facts["risk"] = score.risk
    if as_json:
        model = {"model": reader.model.id, "device": reader.engine.device}
        print(to_json({**facts, **model, "wrong": score.wrong}))
        return score.failures
    for reading, expected, edits in score.mistakes:
        if edits:
            written, read = (text.replace("\n", " | ") for text in (expected, reading.text))
            print(f"{reading.source}\n    written {written}\n    read    {read}")
    print(f"{pictures.name}: {facts['n']} pictures, {facts['n_digits']} digits, read by {reader.model.id}")
    exact = "pictures read exactly {:.1f} %".format
    words = f"character error rate {_rate(facts['cer'])}   {exact(100 * facts['exact'])}"
    print(f"{words}   in {facts['seconds']:.1f} s")
    if signs:
        words = f"with signs, spaces and line ends {_rate(facts['cer_text'])}"
        print(f"{words}   {exact(100 * facts['exact_text'])}")
    for row in facts["risk"]:
        print(f"p of {row['p']:g} or more: {100 * row['coverage']:.1f} % of all numbers, {row['wrong']:g} of "
              f"these {row['n']:g} wrong (at most {100 * row['limit']:.1f} % are, 95 % sure)")  # fmt: skip
    return score.failures


def _report(
    path: str | None, folder: str, limit: int | None, as_json: bool, reader: "Reader", pages: "Reader"
) -> list[str]:
    from neocog.evaluation.report import find_sets, measure, write
    from neocog.files import check_output

    sets = find_sets(path, limit=limit)
    check_output(folder, "--report", folder=True, make=True)
    for pictures in sets.pictures.values():
        _say_left_out(pictures)
    report = measure(reader, sets, pages=pages, limit=limit, progress=Counter)
    data, page = write(report, folder)
    facts = report.summary()
    if as_json:
        print(to_json({**facts, "report": str(data)}))
        return report.failures
    for name, own in facts["sets"].items():
        if "cer" in own:
            exact = f"exact {100 * own['exact']:.1f} % of {own['n']} pictures"
            print(f"{name:12s} character error rate {_rate(own['cer'])}, {exact}")
        else:
            print(f"{name:12s} accuracy {100 * own.get('accuracy', 0):.2f} % of {own['n']} digits")
    for name, why in facts["missing"].items():
        print(f"{name:12s} missing: {why}")
    print(f"{facts['model']} in {facts['seconds']:.1f} s: {page}")
    return report.failures


def _say_left_out(pictures: "LabelledPictures") -> None:
    if names := pictures.left_out:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        tell(f"{pictures.name}: {', '.join(names[:3])}{more} left out: no digit in its label")


def _rate(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f} %"  # None where no digit is written


def timing(
    model: options.Model = DEFAULT,
    device: options.Device = "auto",
    precision: options.Precision = None,
    plan: options.Plan = "default",
    batch: Annotated[int, option("N", "Digits, or strips of five, per batch.", min=1)] = 8,
    seconds: Annotated[float, option("N", "Repeat for so many seconds.", min=0.0)] = 3.0,
    as_json: options.Json = False,
) -> None:  # fmt: skip
    """Measure how long a digit, or a strip of five, takes, and which stages take it.

    On CUDA, a stage's time is the difference of the pass with and without it.
    """
    from neocog.evaluation.timing import measure
    from neocog.network.lines import load_any
    from neocog.reading.device import open_engine

    engine = open_engine(load_any(model), device=device, precision=precision, plan=plan)
    times = measure(engine, batch=batch, seconds=seconds)
    if as_json:
        about = {"device": engine.device, "model": engine.model.id, "precision": engine.precision}
        print(to_json({**times, **about, "where": engine.where}))
        return

    def row(stage: dict[str, Any]) -> str:
        spent = (stage["ms"], stage["ms_p95"], stage["ms_p99"], stage["ms"] / batch)
        return f"{stage['name']:10s}" + "".join(f"{ms:12.4f}" for ms in spent)

    each = "strip" if "ms_per_strip" in times else "digit"
    print(f"{engine.model.id} on {engine.where}, batch {batch}, {engine.precision}")
    heads = ("ms a batch", "p95", "p99", f"ms a {each}")
    print(f"{'stage':10s}" + "".join(f"{head:>12}" for head in heads) + "   share")
    for stage in times["page"]:
        print(f"{row(stage)}  (a page)")
    whole = sum(stage["ms"] for stage in times["stages"]) or 1.0
    for stage in times["stages"]:
        print(f"{row(stage)} {100 * stage['ms'] / whole:6.1f} %")
    middle, p95, p99 = (times[f"ms_per_{each}{end}"] for end in ("", "_p95", "_p99"))
    print(f"whole pass: {middle:.5f} ms a {each} (95 % of {times['passes']} passes within {p95:.5f}, "
          f"99 % within {p99:.5f})")  # fmt: skip
