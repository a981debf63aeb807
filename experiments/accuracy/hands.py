"""How models read digits by hands of many countries.

``--validation`` reads only what may decide something: digits kept apart of the sets that are learned from.
No digit is the answer at odds of 300 to 1 only, and then a wrong one. Tables go by --what; other rows stay.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.harness.record import arguments, earlier, spread, write_results
from experiments.learning.ship import LEARNED
from neocog.errors import InputError, UsageError
from neocog.evaluation.evaluate import NO_ANSWER, confusion_of
from neocog.learning.calibrate import score
from neocog.learning.datasets import Digits, open_digits
from neocog.network.arrays import module_of_device
from neocog.network.decision import answers, of_lone_digits
from neocog.network.model import load_model
from neocog.network.registry import find_model, kind_of

COLUMNS = {"model": "model", "set": "set", "digits": "digits", "right": "right|.2%",
           "refused": "refused|.2%", "confused": "most frequent mistakes"}  # fmt: skip


def sets_of(data: Path, *, validation: bool) -> dict[str, Digits]:
    """Digits of writers kept apart, by set; and sets that nothing is learned from and that decide nothing."""
    sets = {f"{Path(name).name}, kept apart": open_digits(data / name, split="validation")
            for name in LEARNED if (data / name).is_dir()}  # fmt: skip
    if validation:
        return sets
    sets["mnist, test"] = open_digits(data / "mnist", split="test")
    for folder in sorted((data / "hands" / "measure").glob("*")):
        sets[folder.name] = open_digits(folder, split="test")
    if (data / "usps").is_dir():
        sets["usps"] = open_digits(data / "usps", split="train")
    try:
        sets["sklearn"] = open_digits("sklearn")
    except (InputError, UsageError) as error:
        print(error, file=sys.stderr)
    return sets


def measure(name: str, *, sets: dict[str, Digits], gpu: bool) -> list[dict[str, Any]]:
    """Rows of one model."""
    model, rows = load_model(name), []
    for key, digits in sets.items():
        scores = score(model, digits.images, module_of_device("cuda" if gpu else "cpu"))
        found = of_lone_digits(answers(scores, temperature=model.temperature), model)
        confusion = confusion_of(digits.labels, found.label)
        wrong = confusion[:, :NO_ANSWER] * (1 - np.eye(10, dtype=np.int64))
        most = [divmod(int(i), 10) for i in np.argsort(-wrong, axis=None, kind="stable")[:3]]
        rows.append({
            "model": model.id, "set": key, "digits": len(digits),
            "right": float(np.trace(confusion)) / len(digits),
            "refused": float(confusion[:, NO_ANSWER].mean() * 10 / len(digits)),
            "confused": ", ".join(f"{a} as {b}: {wrong[a, b]}" for a, b in most if wrong[a, b]),
        })  # fmt: skip
    return rows


def main() -> None:
    parser = arguments(
        __doc__, "data", validation=False, gpu=False, limit=(int, "only so many of each set: for a trial"),
        jobs=(1, "models at a time, on a CPU"),
    )  # fmt: skip
    parser.add_argument("models", nargs="+")
    parser.add_argument("--what", default="ships", choices=("ships", "without-styles", "mnist-alone", "seed"))
    args = parser.parse_args()
    sets = {n: digits[: args.limit] for n, digits in sets_of(args.data, validation=args.validation).items()}
    rows = list[dict[str, Any]]()
    models = [name for name in args.models if kind_of(find_model(name)) == "digits"]
    for own in spread(partial(measure, sets=sets, gpu=args.gpu), models, args.jobs):
        rows += [row | {"what": args.what} for row in own]
        for row in own:
            print(f"{row['model']:30} {row['set']:24} {row['digits']:6} right {row['right']:.2%}  "
                  f"refused {row['refused']:.2%}  {row['confused']}", flush=True)  # fmt: skip
    measured = {row["model"] for row in rows}
    rows = [row for row in earlier(args.output).get("rows", []) if row["model"] not in measured] + rows
    write_results(args.output, rows, columns=COLUMNS, gpu=args.gpu)


if __name__ == "__main__":
    main()
