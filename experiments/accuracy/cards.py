"""Writes a model's card from measurements: accuracy, confusion, robustness, risk and coverage.

DATA holds mnist/ and, as far as wanted, usps/, photos/ and strings/. Each file is measured as it is going to
be shipped (fp16) and written anew; its id, and what its card holds of learning and thresholds, stay.
"""

import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
from experiments.harness.record import arguments, earlier, spread, write_results
from experiments.learning.ship import LEARNED_FROM, write_sums
from neocog.evaluation.report import Sets, find_sets, measure, write
from neocog.network.model import Model, Precision, from_bytes, load_model, to_bytes
from neocog.network.registry import SUMS, find_model, kind_of
from neocog.reading.reader import Reader

RESULTS = Path(__file__).resolve().parent / "results" / "models.json"
LARGEST = 4 * 2**20
_SETS = {"mnist": "test", "usps": "usps", "sklearn": "sklearn"}  # what the card calls the sets


def measured(facts: dict[str, Any]) -> dict[str, Any]:
    """The part of a card that comes from a report."""

    def row(own: dict[str, Any]) -> dict[str, Any]:
        return {"p": own["threshold"], "coverage": round(own["coverage"], 6),
                "error": round(own["risk"], 6), "wrong": own["wrong"]}  # fmt: skip

    digits, own = facts["digits"], facts["corruptions"]
    about = {key: facts[key] for key in ("model", "date", "neocog", "device", "precision", "min_p")}
    card: dict[str, Any] = {"measured": {part: about for part in ("digits", "pictures") if facts[part]}}
    for name, found in facts["pictures"].items():
        shares = {key: found[key] for key in ("n", "n_digits", "cer", "exact")}
        card.setdefault("pictures", {})[name] = shares
    if not digits:
        return card
    for key in ("accuracy", "forced"):
        card[key] = {_SETS.get(name, name): found[key] for name, found in digits.items()}
    if facts["validation"]:
        card["accuracy"]["validation"] = facts["validation"]["accuracy"]
    if test := digits.get("mnist"):
        card["confusion"] = test["confusion"]
        card["risk_coverage"] = list(map(row, test["error_at_coverage"]))
        card["calibration"] = {key: round(test[key], 6) for key in ("ece", "aurc")}
    fixed = [one for one in facts["fixed_on_validation"] if one["fixed_at"] == "coverage"]
    card["fixed_on_validation"] = [
        {"wanted": one["wanted"], **row(one["test"]), "marks": round(one["marks"], 5)} for one in fixed
    ]
    means = own["means"] | {"mean": own["mean"]}
    card["robustness"] = {name: round(mean, 5) for name, mean in means.items()}
    card["marks"] = {"n": facts["marks"]["n"], "read_as_digits": round(facts["marks"]["read_as_digits"], 5)}
    return card


def result(model: Model, size: int) -> dict[str, Any]:
    """A row of the result file, from a card."""
    card = model.card
    row: dict[str, Any] = {
        "model": model.id, "name": model.name,
        "planes": "/".join(map(str, (len(model.s[0].reference), *model.planes))),
        "bytes": size, "size": f"{size / 2**20:.2f} MiB",
        **{name: card.get("accuracy", {}).get(own) for name, own in _SETS.items()},
        "corruptions": card.get("robustness", {}).get("mean"),
        "marks": card.get("marks", {}).get("read_as_digits"),
        "robustness": card.get("robustness", {}), "risk_coverage": card.get("risk_coverage", []),
        "fixed": card.get("fixed_on_validation", []), "confusion": card.get("confusion", []),
        "measured": card["measured"],
    }  # fmt: skip
    for name, own in card.get("pictures", {}).items():
        row |= {f"{name}_{key}": own[key] for key in ("cer", "exact")}
    return row


def write_card(
    path: Path, sets: Sets, *, device: str = "auto", precision: Precision = "fp16",
    limit: int | None = None, reports: Path | None = None,
) -> Model:  # fmt: skip
    """Measure a model file as it is going to be shipped, and write it with its card."""
    shipped = from_bytes(to_bytes(load_model(path), precision=precision), source=str(path))
    report = measure(Reader(shipped, device=device), sets, limit=limit)
    if reports is not None:
        write(report, reports / shipped.name)
    card = {"data": LEARNED_FROM, **shipped.card, **measured(report.facts)}
    saved = replace(shipped, card=card).save(path, precision=precision)
    if path.stat().st_size > LARGEST:
        print(f"{path}: {path.stat().st_size} bytes, more than {LARGEST}", file=sys.stderr)
    return saved


def _row_of(path: Path, **how: Any) -> dict[str, Any]:
    return result(write_card(path, **how), path.stat().st_size)


def merged(path: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with those of other models that a result file holds already."""
    together = {row["name"]: row for row in (*earlier(path).get("rows", []), *rows)}
    return [together[name] for name in sorted(together)]


def main() -> None:
    parser = arguments(
        __doc__, "data", output=RESULTS, device="auto", reports=Path,
        limit=(int, "only so many of each set: for a trial"),
        jobs=(1, "models that are measured at a time"),
    )  # fmt: skip
    parser.add_argument("models", nargs="+", help="model files, or names of shipped ones")
    parser.add_argument("--precision", choices=("fp16", "fp32"), default="fp16")
    args = parser.parse_args()
    sets = find_sets(args.data, limit=args.limit)
    for name, why in sets.missing.items():
        print(f"{name}: {why}", file=sys.stderr)
    work = partial(_row_of, sets=sets, device=args.device, precision=args.precision,
                   limit=args.limit, reports=args.reports)  # fmt: skip
    rows = []
    paths = [path for path in map(find_model, args.models) if kind_of(path) == "digits"]
    for row in spread(work, paths, args.jobs):
        rows.append(row)
        print(row["model"], {k: v for k, v in row.items() if isinstance(v, float)}, flush=True)
    for folder in {path.parent for path in paths if (path.parent / SUMS).is_file()}:
        write_sums(folder)
    command = "python -m experiments.accuracy.cards DATA models/*.safetensors"
    command += f" --device {args.device}" * (args.device != "auto")
    command += f" --limit {args.limit}" * bool(args.limit)
    write_results(args.output, merged(args.output, rows), columns={"model": "model"},
                  gpu=args.device.startswith("cuda"), limit=args.limit, command=command)  # fmt: skip


if __name__ == "__main__":
    main()
