"""The tables of results in README.md, docs and the experiments' pages.

    python -m experiments.tables            # write them anew
    python -m experiments.tables --check    # exit code 1 if they are out of date

A table stands between ``<!-- table NAME -->`` and ``<!-- end -->`` and comes from
``experiments/*/results/NAME.json``::

    {"command": "neocog eval mnist", "machine": "2 cores of ...", "date": "2026-01-31",
     "columns": {"recipe": "recipe", "mnist": "MNIST, %"}, "formats": {"mnist": ".2f"},
     "rows": [{"recipe": "2003", "mnist": 95.5}]}

A value that a row lacks is shown as a dash; keys that are no columns are for other readers. Rows of
several runs name them: ``"runs": [{"command": ..., "of": "the rows of this run"}]``. Some
tables are views of such a file (``VIEWS``): chosen rows, or one value spread over columns. The
papers' pages have tables of their own (``tables`` of their experiment).
"""

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from experiments.harness.pages import fill, markdown, page_of, show
from experiments.harness.run import NAMES, load
from experiments.slayer import paper

RESULTS = Path(__file__).resolve().parent
ROOT = RESULTS.parent
#: Rows, columns and the rest of a result file, or a view of it.
Result = dict[str, Any]


def of_rows(
    result: Result, rows: Iterable[Any], columns: dict[str, str], formats: Any = (), **about: Any
) -> Result:
    """Return a view: other rows and columns ("head|format"), and what else is different."""
    rows = list(rows)
    if dates := {row["date"] for row in rows if "date" in row}:
        about = {"date": ", ".join(sorted(dates)), **about}
    return result | about | {"rows": rows, "columns": columns, "formats": dict(formats)}


def accuracy(result: Result) -> Result:
    """What each recipe reaches with all the digits it is meant for."""
    wanted = {"fukushima": 3000}
    rows = [
        row
        for row in result["rows"]
        if row["part"] != "sizes" and row["digits"] == wanted.get(row["recipe"], 55_000)
    ]
    columns = {key: name for key, name in result["columns"].items() if key != "validation"}
    for row in rows:
        row["bytes_fp16"] = f"{row['bytes_fp16'] / 1e6:.1f} MB"
    columns["bytes_fp16"] = "weights"
    rows.sort(key=lambda row: row["test"])
    return of_rows(result, rows, columns, result["formats"])


def learning_curve(result: Result) -> Result:
    """Accuracy on the test set by digits learned from."""
    rows: dict[tuple[str, str], Result] = {}
    for row in result["rows"]:
        if "test" in row:
            own = {"recipe": row["recipe"], "rule": row["rule"]}
            rows.setdefault((row["recipe"], row["rule"]), own)[str(row["digits"])] = row["test"]
    sizes = {"400": "400|.2%", "3000": "3 000|.2%", "10000": "10 000|.2%", "55000": "55 000|.2%"}
    return of_rows(result, rows.values(), {"recipe": "recipe", "rule": "read by", **sizes})


def reading_conditions(result: Result) -> Result:
    """How synthetic pages of each kind are read."""
    sets = ("conditions", "blank", "forms", "amounts", "turned", "letters")
    rows = [r for r in result["rows"] if r.get("kind", "all") != "all" and r["set"] in sets]
    columns = {key: name for key, name in result["columns"].items() if any(key in r for r in rows)}
    return of_rows(result, rows, columns, result["formats"])


def models(result: Result) -> Result:
    """How each shipped model reads every set."""
    shares = {"mnist": "MNIST test", "usps": "USPS, unseen", "sklearn": "scikit-learn, unseen",
              "corruptions": "corrupted", "photos_cer": "photographs, error rate",
              "photos_exact": "exact", "strings_cer": "strings, error rate",
              "strings_exact": "exact"}  # fmt: skip
    columns = {"model": "model", "planes": "K1/K2/K3/K4", "size": "file", **shares}
    devices = {part: about["device"] for row in result["rows"]
               for part, about in row["measured"].items()}  # fmt: skip
    where = ", ".join(f"{part} on {device}" for part, device in devices.items())
    command = "python -m experiments.accuracy.cards DATA models/*.safetensors"
    formats = dict.fromkeys(shares, ".2%")
    return of_rows(result, result["rows"], columns, formats, command=command, machine=where)


def hands(result: Result) -> Result:
    """How the models that ship read each set of digits by hands of many countries."""
    return result | {"rows": [row for row in result["rows"] if row["what"] == "ships"]}


def by_set(result: Result, titles: dict[str, str]) -> Result:
    """A row for each set, a column for each of some models: read right (called no digit)."""
    rows: dict[str, Result] = {}
    for row in result["rows"]:
        if row["model"] in titles:
            name = row["set"].replace("kept apart", "held out")
            digits = f"{row['digits']:,}".replace(",", " ")
            own = rows.setdefault(row["set"], {"set": row["set"], "name": name, "digits": digits})
            own[row["model"]] = f"{row['right']:.2%} ({row['refused']:.2%})"
    return of_rows(result, rows.values(), {"name": "set", "digits": "digits", **titles})


def hands_short(result: Result) -> Result:
    """The models that ship, and the default that learned from MNIST alone, and without styles."""
    named = {"mnist-alone": "MNIST alone {}", "without-styles": "without styles {}", "ships": "{}"}
    what = {row["model"]: row["what"] for row in result["rows"]}
    titles = {model: title.format(model) for kind, title in named.items()
              for model, own in what.items() if own == kind}  # fmt: skip
    return by_set(result, titles)


def hands_seeds(result: Result) -> Result:
    """Three seeds of what the default goes on from, on the sets that all read, and their mean."""
    titles = {
        row["model"]: row["model"]
        for row in result["rows"]
        if row["what"] in ("without-styles", "seed") and row["model"].startswith("neocog@")
    }
    table = by_set(result, titles)
    rows = [row for row in table["rows"] if row.keys() >= titles.keys()]
    for row in rows:
        own = [r["right"] for r in result["rows"]
               if r["set"] == row["set"] and r["model"] in titles]  # fmt: skip
        row["mean"] = f"{sum(own) / len(own):.2%}"
    return table | {"rows": rows, "columns": table["columns"] | {"mean": "mean"}}


def models_robustness(result: Result) -> Result:
    """Accuracy of each shipped model under each corruption, mean of its strengths."""
    rows = [{"model": row["model"], **row["robustness"]} for row in result["rows"]]
    kinds = [*sorted({key for row in rows for key in row} - {"model", "mean"}), "mean"]
    names = {key: key for key in ("model", *kinds)}
    return of_rows(result, rows, names, dict.fromkeys(kinds, ".1%"))


def models_confusion(result: Result) -> Result:
    """The most frequent mistakes of each shipped model on MNIST's test set."""
    rows = []
    for row in result["rows"]:
        found = [(count, f"{digit} as {read if read < 10 else 'none'}: {count}")
                 for digit, counts in enumerate(row["confusion"])
                 for read, count in enumerate(counts) if count and digit != read]  # fmt: skip
        words = [words for _, words in sorted(found, key=lambda one: -one[0])[:8]]
        rows.append({"model": row["model"], "mistakes": ", ".join(words) or "none"})
    return of_rows(result, rows, {"model": "model", "mistakes": "most frequent"})


def systems(result: Result) -> Result:
    """Every neocognitron that was made quick, from 1990 to today, ours last."""
    columns = paper.COLUMNS
    rows = [dict(zip(columns, row, strict=True)) for row in paper.systems(result)]
    ours = (name for name in paper.OURS if name in result["sections"])
    made = [paper.made_on(result, name) for name in ours]
    commands = dict.fromkeys(one["command"] for one in made)
    about = {"runs": [{"command": command} for command in commands],
             "machine": ", ".join(dict.fromkeys(one["machine"] for one in made)),
             "date": max(one["date"] for one in made)}  # fmt: skip
    return of_rows(result, rows, {name: name for name in columns}, **about)


def gpu_speed(result: Result) -> Result:
    """The network and PyTorch, with what plan card gains."""
    for row in result["rows"]:
        row["card_ratio"] = min(row["torch"], row["compile"]) / row["card"]
    ratios = {"ratio": "default, times as fast as the better",
              "card_ratio": "card, times as fast as the better|.2f"}  # fmt: skip
    columns = result["columns"] | ratios
    last = {"difference": columns.pop("difference"), "date": "measured", "commit": "commit"}
    return of_rows(result, result["rows"], columns | last, result["formats"])


def readme_accuracy(result: Result) -> Result:
    """A few sets, and the models that ship by their names alone."""
    sets = {"mnist, test": "MNIST, test", "usps": "USPS", "crohme": "CROHME, pen input",
            "unipen": "UNIPEN, pen input", "ardis": "ARDIS, church books",
            "orand": "ORAND, cheques"}  # fmt: skip
    models = {row["model"]: row["model"].partition("@")[0]
              for row in result["rows"] if row["what"] == "ships"}  # fmt: skip
    rows: dict[str, Result] = {key: {"set": name} for key, name in sets.items()}
    for row in result["rows"]:
        if row["set"] in sets and row["model"] in models:
            digits = f"{row['digits']:,}".replace(",", " ")
            rows[row["set"]] |= {"digits": digits, models[row["model"]]: row["right"]}
    columns = {"set": "set", "digits": "digits", **{m: f"{m}|.1%" for m in models.values()}}
    command = "python -m experiments.accuracy.hands DATA models/*.safetensors"
    return of_rows(result, rows.values(), columns, command=command)


def readme_speed(result: Result) -> Result:
    """The default model's time on a CPU and on a GPU, and that of the fastest other software."""
    gpu = json.loads((RESULTS / "gpu/results/gpu.json").read_text())
    rows = [
        {"where": result["machine"], "batch": row["batch"], "ours": f"{row['neocog']:.2f} ms",
         "other": f"onnxruntime {row['onnxruntime']:.2f} ms", "times": row["ratio"]}
        for row in result["rows"]
        if row["model"].startswith("neocog@") and row["batch"] in (1, 32)
    ]  # fmt: skip
    for row in gpu["rows"]:
        own = row["model"].startswith("neocog@") and row["precision"] == "fp16"
        if own and row["batch"] in (8, 4096):
            best, name = min((row["compile"], "torch.compile"), (row["torch"], "PyTorch"))
            rows.append({"where": f"{gpu['machine']}, fp16", "batch": row["batch"],
                         "ours": f"{row['neocog']:.2f} us", "other": f"{name} {best:.2f} us",
                         "times": row["ratio"], "date": row["date"]})  # fmt: skip
    columns = {"where": "machine", "batch": "batch size", "ours": "neocog, per digit",
               "other": "fastest other software", "times": "times as fast|.1f"}  # fmt: skip
    runs = [{"command": "python -m experiments.network.speed"},
            {"command": "python -m experiments.gpu.measure DATA speed"}]  # fmt: skip
    dates = sorted({result["date"], *(row.pop("date") for row in rows if "date" in row)})
    return of_rows(result, rows, columns, runs=runs, machine="", date=", ".join(dates))


def shown(
    columns: dict[str, str], rows: Callable[[Result], Iterable[Result]], section: str = ""
) -> Callable[[Result], Result]:
    """Return a view of these rows; of a section of the GPU's results with its command."""

    def view(result: Result) -> Result:
        about: Result = {}
        if section:
            own = result["sections"][section]
            command = f"python -m experiments.gpu.measure {' '.join(own['options'])}"
            about = {"runs": [{"command": command}], "date": own.get("date", result["date"])}
        formats = result.get("formats", {})
        return of_rows(result, rows(result), columns, formats, **about)

    return view


def reading_rows(digits: bool, *kinds: str) -> Callable[[Result], list[Result]]:
    """Choose the sets whose pages hold digits, or those whose pages hold none."""
    return lambda result: [
        row | {"set": row["set"] if row["kind"] == "all" else f"{row['set']}, {row['kind']}"}
        for row in result["rows"]
        if row.get("kind") in kinds and ("digits" in row) is digits
    ]


def best_of_torch(result: Result) -> list[Result]:
    """Each C-layer alone, with the best of PyTorch's ways."""
    return [
        row | {"torch": min(value for key, value in row.items() if key.startswith("torch "))}
        for row in result["sections"]["c"]["rows"]
        if row["precision"] != "tf32"
    ]


#: table -> (result file, what makes the table of it)
VIEWS: dict[str, tuple[str, Callable[[Result], Result]]] = {
    "accuracy": ("learning", accuracy),
    "learning-curve": ("learning", learning_curve),
    "reading-sets": ("reading", shown(
        {"set": "set", "pictures": "pictures", "digits": "digits", "cer": "CER", "exact": "exact",
         "missed": "missed", "extra": "extra", "misread": "misread", "refused": "?",
         "signs_kept": "no sign as a digit", "as_upright": "same as upright"},
        reading_rows(True, "all", "even", "odd"),
    )),
    "reading-empty": ("reading", shown(
        {"set": "set", "pictures": "pictures", "letters": "letters", "printed": "digits printed",
         "any": "pages with a digit"},
        reading_rows(False, "all"),
    )),
    "reading-conditions": ("reading", reading_conditions),
    "strings": ("reading", shown(
        {"min_p": "threshold", "strings": "strings", "answered": "printed without ?",
         "wrong": "wrong", "risk": "wrong, of those printed|.1%"},
        lambda result: result.get("risk", ()),
    )),
    "reading-time": ("reading", shown(
        {"kind": "what", "pictures": "pictures", "median_ms": "median, ms",
         "worst_ms": "worst, ms", "decode_ms": "decoding, not included, ms",
         "peak_mb": "peak memory, MB"},
        lambda result: result.get("times", ()),
    )),
    "gpu": ("gpu", gpu_speed),
    "gpu-short": ("gpu", shown(
        {"model": "model", "batch": "batch", "neocog": "plan default, us per digit",
         "card": "plan card", "torch": "PyTorch", "compile": "torch.compile"},
        lambda result: [row for row in result["rows"]
                        if row["precision"] == "fp16" and row["batch"] != 64],
    )),
    "gpu-c": ("gpu", shown(
        {"layer": "layer", "precision": "precision", "batch": "batch",
         **{f"neocog {way}": f"{way}, us|.1f" for way in ("separable", "box", "tensor")},
         "torch": "PyTorch, us|.1f", "gb_per_s": "GB/s of the quickest|.0f"},
        best_of_torch, "c",
    )),
    "gpu-decisions": ("gpu", shown(
        {"model": "model", "precision": "precision", "digits": "digits", "plan": "plan",
         "same": "same decision", "accuracy": "accuracy|.2%",
         "score_difference": "largest difference of a score|.1e"},
        lambda result: result["sections"]["decisions"]["rows"], "decisions",
    )),
    "gpu-layers": ("gpu", shown(
        {"layer": "layer", "precision": "precision", "version": "version",
         **{n: f"batch {n}, us|.1f" for n in ("1", "8", "64", "256")}, "error": "error|.0e"},
        lambda result: [row | row.get("us_step", {}) for row in result["sections"]["s"]["rows"]
                        if row["precision"] != "tf32"], "s",
    )),
    "readme-accuracy": ("hands", readme_accuracy),
    "readme-speed": ("speed", readme_speed),
    "models": ("models", models),
    "hands": ("hands", hands),
    "hands-short": ("hands", hands_short),
    "hands-seeds": ("hands", hands_seeds),
    "systems": ("slayer", systems),
    "models-robustness": ("models", models_robustness),
    "models-risk": ("models", shown(
        {"model": "model", "wanted": "validation digits answered|.1%", "p": "from p =|.6g",
         "coverage": "test digits answered|.2%", "error": "wrong, of those answered|.3%",
         "marks": "marks read as digits|.1%"},
        lambda result: [{"model": row["model"], **own}
                        for row in result["rows"] for own in row["fixed"]],
    )),
    "models-confusion": ("models", models_confusion),
}  # fmt: skip


def table(name: str) -> str:
    """Return the Markdown table of one result file, and what made it."""
    source, view = VIEWS.get(name, (name, dict))
    path = next(RESULTS.glob(f"*/results/{source}.json"), None)
    if path is None:
        return "*Not measured yet.*"
    result = view(json.loads(path.read_text()))
    formats, columns = result.get("formats", {}), {}
    for key, head in result["columns"].items():
        head, _, form = head.partition("|")
        columns[key] = (head, form or formats.get(key, ""))
    rows = [[show(row.get(key), form) for key, (_, form) in columns.items()]
            for row in result["rows"]]  # fmt: skip
    where = ", ".join(result[key] for key in ("machine", "date") if result.get(key))
    runs = [f"`{run['command']}`" + (f" ({run['of']})" if "of" in run else "")
            for run in result.get("runs", [result])]  # fmt: skip
    about = ", ".join(runs) + (f" ({where})" if where else "")
    return f"{markdown([[head for head, _ in columns.values()], *rows])}\n\n{about}"


def render(page: Path) -> str:
    """Return a page's text with its tables made anew."""
    name = page.parent.name
    if name not in NAMES:
        return fill(page.read_text(), table)
    path = page.parent / "results" / f"{name}.json"
    return page_of(name, load([path])[name]) if path.exists() else page.read_text()


def pages() -> list[Path]:
    """Return all pages that hold tables of results."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")),
            *sorted(RESULTS.glob("*/README.md"))]  # fmt: skip


def main() -> int:
    """Write the pages, or check them."""
    if sys.argv[1:] not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    stale = {page: new for page in pages() if (new := render(page)) != page.read_text()}
    for page, new in stale.items():
        if not sys.argv[1:]:
            page.write_text(new)
            continue
        name = page.relative_to(ROOT)
        print(f"{name} is out of date: run python -m experiments.tables", file=sys.stderr)
    return int(bool(stale and sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
