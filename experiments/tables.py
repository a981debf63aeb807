"""The tables of results in README.md, docs and the experiments' pages; ``--check``: are they up to date?

A table stands between ``<!-- table NAME -->`` and ``<!-- end -->`` and comes from
``experiments/*/results/NAME.json``, or is a view of one (``VIEWS``); the papers' pages have their own::

    {"command": "neocog eval mnist", "machine": "2 cores of ...", "date": "2026-01-31",
     "columns": {"recipe": "recipe", "mnist": "MNIST, %|.2f"}, "rows": [{"recipe": "2003", "mnist": 95.5}]}

A missing value is shown as a dash; several ``"runs": [{"command": ..., "of": "the rows of this run"}]``.
"""

import json
import sys
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.commands import page_of
from experiments.harness.pages import fill, markdown, shown
from experiments.harness.run import FOLDER, NAMES, load

ROOT = FOLDER.parent
Result = dict[str, Any]  # rows, columns and the rest of a result file, or a view of it


def of_rows(result: Result, rows: Any, columns: dict[str, str], **about: Any) -> Result:
    """Return a view: other rows and columns ("head|format"), and what else is different."""
    rows = list(rows)
    if dates := {row["date"] for row in rows if "date" in row}:
        about = {"date": ", ".join(sorted(dates)), **about}
    return result | about | {"rows": rows, "columns": columns}


def spaced(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def accuracy(result: Result) -> Result:
    """What each recipe reaches with all the digits it is meant for."""
    rows = [row | {"bytes_fp16": f"{row['bytes_fp16'] / 1e6:.1f} MB"} for row in result["rows"]
            if row["digits"] == {"fukushima": 3000}.get(row["recipe"], 55_000)]  # fmt: skip
    columns = result["columns"] | {"bytes_fp16": "weights"}
    del columns["validation"]
    return of_rows(result, sorted(rows, key=itemgetter("test")), columns)


def learning_curve(result: Result) -> Result:
    """Accuracy on the test set by digits learned from."""
    wide = pd.DataFrame(result["rows"]).pivot_table("test", ["recipe", "rule"], "digits", sort=False)
    columns: dict[Any, str] = {"recipe": "recipe", "rule": "read by"}
    columns |= {n: f"{spaced(n)}|.2%" for n in wide}
    return of_rows(result, wide.reset_index().to_dict("records"), columns)


def models(result: Result) -> Result:
    """How each shipped model reads every set."""
    shares = {"mnist": "MNIST test", "usps": "USPS, unseen", "sklearn": "scikit-learn, unseen",
              "corruptions": "corrupted", "photos_cer": "photographs, error rate", "photos_exact": "exact",
              "strings_cer": "strings, error rate", "strings_exact": "exact"}  # fmt: skip
    columns = {"model": "model", "planes": "K1/K2/K3/K4", "size": "file"}
    columns |= {key: f"{head}|.2%" for key, head in shares.items()}
    devices = {part: about["device"] for row in result["rows"] for part, about in row["measured"].items()}
    where = ", ".join(f"{part} on {device}" for part, device in devices.items())
    return of_rows(result, result["rows"], columns, machine=where)


def models_robustness(result: Result) -> Result:
    """Accuracy of each shipped model under each corruption, mean of its strengths."""
    rows = [{"model": row["model"], **row["robustness"]} for row in result["rows"]]
    kinds = [*sorted({key for row in rows for key in row} - {"model", "mean"}), "mean"]
    return of_rows(result, rows, {"model": "model", **{key: f"{key}|.1%" for key in kinds}})


def models_risk(result: Result) -> Result:
    """What thresholds fixed on validation digits do to the test set and to marks."""
    columns = {"model": "model", "wanted": "validation digits answered|.1%", "p": "from p =|.6g",
               "coverage": "test digits answered|.2%", "error": "wrong, of those answered|.3%",
               "marks": "marks read as digits|.1%"}  # fmt: skip
    rows = ({"model": row["model"], **own} for row in result["rows"] for own in row["fixed"])
    return of_rows(result, rows, columns)


def hands(result: Result) -> Result:
    return result | {"rows": [row for row in result["rows"] if row["what"] == "ships"]}


def hands_short(result: Result) -> Result:
    """The models that ship, and the default that learned from MNIST alone, and without styles."""
    named = {"mnist-alone": "MNIST alone {}", "without-styles": "without styles {}", "ships": "{}"}
    what = {row["model"]: row["what"] for row in result["rows"]}
    titles = {model: title.format(model) for kind, title in named.items()
              for model, own in what.items() if own == kind}  # fmt: skip
    rows: dict[str, Result] = {}
    for row in (row for row in result["rows"] if row["model"] in titles):
        own = {"name": row["set"].replace("kept apart", "held out"), "digits": spaced(row["digits"])}
        rows.setdefault(row["set"], own)[row["model"]] = f"{row['right']:.2%} ({row['refused']:.2%})"
    return of_rows(result, rows.values(), {"name": "set", "digits": "digits", **titles})


def gpu_speed(result: Result) -> Result:
    """The network and PyTorch, with what plan card gains."""
    rows = [row | {"card_ratio": min(row["torch"], row["compile"]) / row["card"]} for row in result["rows"]]
    columns = {**result["columns"], "ratio": "default, times as fast as the better|.2f",
               "card_ratio": "card, times as fast as the better|.2f"}  # fmt: skip
    columns |= {"difference": columns.pop("difference"), "date": "measured", "commit": "commit"}
    return of_rows(result, rows, columns)


def gpu_short(result: Result) -> Result:
    heads = {"model": "model", "batch": "batch", "neocog": "plan default, us per digit",
             "card": "plan card|.2f", "torch": "PyTorch", "compile": "torch.compile"}  # fmt: skip
    rows = [row for row in result["rows"] if row["precision"] == "fp16" and row["batch"] != 64]
    return of_rows(result, rows, heads)


def gpu_decisions(result: Result) -> Result:
    own = result["sections"]["decisions"]
    columns = {"model": "model", "precision": "precision", "digits": "digits", "plan": "plan",
               "same": "same decision", "accuracy": "accuracy|.2%",
               "score_difference": "largest difference of a score|.1e"}  # fmt: skip
    command = f"python -m experiments.gpu.measure {' '.join(own['options'])}"
    about = {"runs": [{"command": command}], "date": own.get("date", result["date"])}
    return of_rows(result, own["rows"], columns, **about)


def readme_accuracy(result: Result) -> Result:
    """A few sets, and the models that ship by their names alone."""
    sets = {"mnist, test": "MNIST, test", "usps": "USPS", "crohme": "CROHME, pen input",
            "unipen": "UNIPEN, pen input", "ardis": "ARDIS, church books",
            "orand": "ORAND, cheques"}  # fmt: skip
    rows, columns = {name: {"set": head} for name, head in sets.items()}, {"set": "set", "digits": "digits"}
    for row in hands(result)["rows"]:
        name = row["model"].partition("@")[0]
        if row["set"] in sets:
            rows[row["set"]] |= {"digits": spaced(row["digits"]), name: row["right"]}
            columns[name] = f"{name}|.1%"
    command = "python -m experiments.accuracy.hands DATA models/*.safetensors"
    return of_rows(result, rows.values(), columns, command=command)


def readme_speed(result: Result) -> Result:
    """The default model's time on a CPU and on a GPU, and that of the fastest other software."""
    gpu = json.loads((FOLDER / "gpu/results/gpu.json").read_text())

    def row(where: str, own: Result, unit: str, *others: tuple[str, str]) -> Result:
        best, name = min((own[key], name) for key, name in others)
        return {"where": where, "batch": own["batch"], "ours": f"{own['neocog']:.2f} {unit}",
                "other": f"{name} {best:.2f} {unit}", "times": own["ratio"]}  # fmt: skip

    def ours(result: Result, key: str, value: Any, *batches: int) -> list[Result]:
        return [own for own in result["rows"] if own["model"].startswith("neocog@")
                and own[key] == value and own["batch"] in batches]  # fmt: skip

    cpu, most = ("onnxruntime", "onnxruntime"), max(own["threads"] for own in result["rows"])
    rows = [row(result["machine"], own, "ms", cpu) for own in ours(result, "threads", most, 1, 32)]
    peers = ("compile", "torch.compile"), ("torch", "PyTorch")
    rows += [row(f"{gpu['machine']}, fp16", own, "us", *peers)
             for own in ours(gpu, "precision", "fp16", 8, 4096)]  # fmt: skip
    columns = {"where": "machine", "batch": "batch size", "ours": "neocog, per digit",
               "other": "fastest other software", "times": "times as fast|.1f"}  # fmt: skip
    runs = [{"command": "python -m experiments.network.speed"},
            {"command": "python -m experiments.gpu.measure DATA speed"}]  # fmt: skip
    dates = ", ".join(sorted({result["date"], *(row["date"] for row in gpu["rows"])}))
    return of_rows(result, rows, columns, runs=runs, machine="", date=dates)


#: table -> (result file, what makes the table of it); others are result files as they are
VIEWS: dict[str, tuple[str, Callable[[Result], Result]]] = {
    "accuracy": ("learning", accuracy), "learning-curve": ("learning", learning_curve),
    "gpu": ("gpu", gpu_speed), "gpu-short": ("gpu", gpu_short), "gpu-decisions": ("gpu", gpu_decisions),
    "readme-accuracy": ("hands", readme_accuracy), "readme-speed": ("speed", readme_speed),
    "models": ("models", models), "models-robustness": ("models", models_robustness),
    "models-risk": ("models", models_risk), "hands": ("hands", hands), "hands-short": ("hands", hands_short),
}  # fmt: skip


def table(name: str) -> str:
    """Return the Markdown table of one result file, and what made it."""
    source, made = VIEWS.get(name, (name, dict))
    path = next(FOLDER.glob(f"*/results/{source}.json"), None)
    if path is None:
        return "*Not measured yet.*"
    result = made(json.loads(path.read_text()))
    where = ", ".join(result[key] for key in ("machine", "date") if result.get(key))
    runs = [f"`{run['command']}`" + (f" ({run['of']})" if "of" in run else "")
            for run in result.get("runs", [result])]  # fmt: skip
    about = ", ".join(runs) + (f" ({where})" if where else "")
    formats = result.get("formats", {})
    columns = {key: head if "|" in head else f"{head}|{formats.get(key, '')}"
               for key, head in result["columns"].items()}  # fmt: skip
    return f"{markdown(shown(result['rows'], columns))}\n\n{about}"


def render(page: Path) -> str:
    """Return a page's text with its tables made anew."""
    name = page.parent.name
    if name not in NAMES:
        return fill(page.read_text(), table)
    return page_of(load(page.parent / "results" / f"{name}.json"))


def pages() -> list[Path]:
    """Return all pages that hold tables of results."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")),
            *sorted(FOLDER.glob("*/README.md"))]  # fmt: skip


def main() -> int:
    """Write the pages, or check them."""
    if sys.argv[1:] not in ([], ["--check"]):
        print("python -m experiments.tables [--check]", file=sys.stderr)
        return 2
    stale = {page: new for page in pages() if (new := render(page)) != page.read_text()}
    for page, new in stale.items():
        if sys.argv[1:]:
            name = page.relative_to(ROOT)
            print(f"{name} is out of date: run python -m experiments.tables", file=sys.stderr)
        else:
            page.write_text(new)
    return int(bool(stale and sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
