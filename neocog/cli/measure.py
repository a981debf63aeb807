"""``neocog eval`` and ``timing``: how well and how fast."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from neocog.cli import options
from neocog.cli.progress import Counter

if TYPE_CHECKING:
    from neocog.batch.reader import Reader
    from neocog.bench.evaluate import DigitScore, PictureScore
    from neocog.learning.datasets import Digits, LabelledPictures

Split = Annotated[
    str | None,
    typer.Option(
        "--split",
        metavar="test|train|validation|learning",
        help="Part of the set [default: test if it has parts].",
    ),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Only so many, from the first.")]


def evaluate(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A labelled set: IDX, USPS, folders, labels.csv.")
    ],
    model: options.Model = options.DEFAULT_MODEL,
    device: options.Device = "auto",
    split: Split = None,
    limit: Limit = None,
    batch: options.Batch = 32,
    as_json: options.Json = False,
) -> None:
    """Measure how well a model reads a labelled set.

    Isolated digits: accuracy and a table of confusions. Pictures of several digits: the
    character error rate, and the share of pictures read exactly.
    """
    from neocog.batch.reader import Reader
    from neocog.learning.datasets import Digits, open_dataset

    dataset = open_dataset(path, split=split)[:limit]
    reader = Reader(model, device=device, batch=batch)
    if isinstance(dataset, Digits):
        _evaluate_digits(reader, dataset, as_json)
    else:
        _evaluate_pictures(reader, dataset, as_json)


def _evaluate_digits(reader: "Reader", digits: "Digits", as_json: bool) -> None:
    from neocog.bench.evaluate import evaluate_digits

    progress = Counter("digits")
    score = evaluate_digits(reader.engine, digits, batch=reader.batch, progress=progress)
    if as_json:
        print(json.dumps({**score.to_dict(), **_about(reader)}))
    else:
        _show_digits(score, digits.name, reader.model.id)


def _evaluate_pictures(reader: "Reader", pictures: "LabelledPictures", as_json: bool) -> None:
    from neocog.bench.evaluate import evaluate_pictures

    score = evaluate_pictures(reader, pictures, progress=Counter("pictures"))
    if as_json:
        print(json.dumps({**score.to_dict(), **_about(reader)}))
    else:
        _show_pictures(score, pictures.name, reader.model.id)
    for reading in score.readings:
        if reading.error is not None:
            print(f"neocog: {reading.source}: {reading.error}", file=sys.stderr)
    if score.failed:
        raise typer.Exit(1)


def _about(reader: "Reader") -> dict[str, str]:
    return {"model": reader.model.id, "device": reader.engine.device}


def _show_digits(score: "DigitScore", name: str, model: str) -> None:
    wrong = score.n - round(score.accuracy * score.n)
    print(f"{name}: {score.n} digits read by {model} in {score.seconds:.1f} s")
    print(f"accuracy {100 * score.accuracy:.2f} %   ({wrong} wrong)")
    print("\nwritten  read as" + "".join(f"{answer:>5}" for answer in [*range(10), "none"])[3:])
    for digit, row in enumerate(score.confusion):
        cells = "".join(f"{count or '.':>5}" for count in row)
        print(f"{digit:>7}  {cells}")


def _show_pictures(score: "PictureScore", name: str, model: str) -> None:
    facts = score.to_dict()
    for reading, expected, distance in zip(
        score.readings, score.expected, score.distances, strict=True
    ):
        if distance:
            read = reading.text.replace("\n", " | ")
            print(f"{reading.source}\n    written {expected}\n    read    {read}")
    print(f"{name}: {facts['n']} pictures, {facts['n_digits']} digits, read by {model}")
    print(
        f"character error rate {100 * facts['cer']:.2f} %   "
        f"pictures read exactly {100 * facts['exact']:.1f} %   in {facts['seconds']:.1f} s"
    )


def timing(
    model: options.Model = options.DEFAULT_MODEL,
    device: options.Device = "auto",
    batch: Annotated[int, typer.Option("--batch", min=1, help="Digits per pass.")] = 8,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.0, help="How long passes are repeated.")
    ] = 3.0,
    as_json: options.Json = False,
) -> None:
    """Measure how long a digit takes, and which stages take it."""
    from neocog.batch.device import choose_device
    from neocog.bench.timing import measure
    from neocog.network.engine import Engine
    from neocog.network.model import load_model

    engine = Engine(load_model(model), device=choose_device(device))
    times = measure(engine, batch=batch, seconds=seconds)
    if as_json:
        about = {"device": engine.device, "model": engine.model.id, "precision": "fp32"}
        print(json.dumps({**times.to_dict(), **about}))
        return
    print(f"{engine.model.id} on {engine.device}, {engine.threads} threads, batch {batch}, float32")
    print(f"{'stage':10s} {'ms a batch':>12} {'ms a digit':>12} {'share':>8}")
    whole = sum(ms for _, ms in times.stages) or 1.0
    for name, ms in times.stages:
        print(f"{name:10s} {ms:12.3f} {ms / batch:12.4f} {100 * ms / whole:6.1f} %")
    print(
        f"whole pass: {times.per_digit():.3f} ms a digit "
        f"(95 % of {len(times.passes)} passes within {times.per_digit(95):.3f})"
    )
