"""The tables of results in README.md and docs.

    python -m experiments.tables            # write them anew
    python -m experiments.tables --check    # exit code 1 if they are out of date

A table stands between ``<!-- table NAME -->`` and ``<!-- end -->`` and comes from
``experiments/*/results/NAME.json``::

    {"command": "neocog eval mnist", "machine": "2 cores of ...", "date": "2026-01-31",
     "columns": {"recipe": "recipe", "mnist": "MNIST, %"}, "formats": {"mnist": ".2f"},
     "rows": [{"recipe": "2003", "mnist": 95.5}]}

A value that a row lacks is shown as a dash; keys that are no columns are for other readers. Some
tables are views of such a file (``VIEWS``): chosen rows, or one value spread over columns.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
RESULTS = ROOT / "experiments"
#: Experiments whose pages are filled here; ``neocog bench report`` fills those of the papers.
OWN = ("accuracy", "attacks", "batch", "documents", "gpu", "learning", "live", "reading")
PART = re.compile(r"(<!-- table ([\w-]*) -->\n).*?(<!-- end -->)", re.DOTALL)


def accuracy(result: dict[str, Any]) -> dict[str, Any]:
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
    return result | {"rows": sorted(rows, key=lambda row: row["test"]), "columns": columns}


def learning_curve(result: dict[str, Any]) -> dict[str, Any]:
    """Accuracy on the test set by digits learned from."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for row in result["rows"]:
        if "test" in row:
            own = rows.setdefault(
                (row["recipe"], row["rule"]), {"recipe": row["recipe"], "rule": row["rule"]}
            )
            own[str(row["digits"])] = row["test"]
    sizes = {"400": "400", "3000": "3 000", "10000": "10 000", "55000": "55 000"}
    return result | {
        "rows": list(rows.values()),
        "columns": {"recipe": "recipe", "rule": "read by", **sizes},
        "formats": dict.fromkeys(sizes, ".2%"),
    }


def reading_sets(result: dict[str, Any]) -> dict[str, Any]:
    """How all pictures of each set are read; columns that no set has are left out."""
    return _filled(result, [r for r in result["rows"] if r.get("kind") in ("all", "even", "odd")])


def reading_conditions(result: dict[str, Any]) -> dict[str, Any]:
    """How made pages of each kind are read."""
    sets = ("conditions", "blank", "forms", "amounts", "turned", "letters")
    rows = [r for r in result["rows"] if r.get("kind", "all") != "all" and r["set"] in sets]
    return _filled(result, rows)


def _filled(result: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    columns = {key: name for key, name in result["columns"].items() if any(key in r for r in rows)}
    return result | {"rows": rows, "columns": columns}


def reading_risk(result: dict[str, Any]) -> dict[str, Any]:
    """What is left of the errors of strings where "?" is allowed."""
    columns = {"min_p": "threshold", "strings": "strings", "answered": "without ?",
               "wrong": "of these wrong", "risk": "share of wrong ones"}  # fmt: skip
    return result | {"rows": result.get("risk", []), "columns": columns, "formats": {"risk": ".1%"}}


def reading_time(result: dict[str, Any]) -> dict[str, Any]:
    """How long reading takes on two cores, decoding apart."""
    columns = {"kind": "what", "pictures": "pictures", "median_ms": "median, ms",
               "worst_ms": "worst, ms", "decode_ms": "decoding beside it, ms",
               "peak_mb": "peak memory, MB"}  # fmt: skip
    return result | {"rows": result.get("times", []), "columns": columns}


def models(result: dict[str, Any]) -> dict[str, Any]:
    """How each shipped model reads every set."""
    columns = {"model": "model", "planes": "K1/K2/K3/K4", "size": "file", "mnist": "MNIST test",
               "usps": "USPS, unseen", "sklearn": "scikit-learn, unseen",
               "corruptions": "corrupted", "photos_cer": "photographs, error rate",
               "photos_exact": "exact", "strings_cer": "strings, error rate",
               "strings_exact": "exact"}  # fmt: skip
    shares = {key: ".2%" for key in columns if key not in ("model", "planes", "size")}
    devices = {part: about["device"] for row in result["rows"]
               for part, about in row["measured"].items()}  # fmt: skip
    where = ", ".join(f"{part} on {device}" for part, device in devices.items())
    command = "python -m experiments.accuracy.cards DATA models/*.safetensors"
    about = {"command": command, "machine": where}
    return result | about | {"columns": columns, "formats": shares}


def hands(result: dict[str, Any]) -> dict[str, Any]:
    """How the models that ship read each set of digits by hands of many countries."""
    return result | {"rows": [row for row in result["rows"] if row["what"] == "ships"]}


def by_set(result: dict[str, Any], titles: dict[str, str]) -> dict[str, Any]:
    """A row for each set, a column for each of some models: read right (called no digit)."""
    rows: dict[str, dict[str, Any]] = {}
    for row in result["rows"]:
        if row["model"] in titles:
            own = rows.setdefault(row["set"], {"set": row["set"], "digits": row["digits"]})
            own[row["model"]] = f"{row['right']:.2%} ({row['refused']:.2%})"
    columns = {"set": "set", "digits": "digits", **titles}
    return result | {"rows": list(rows.values()), "columns": columns, "formats": {}}


def hands_short(result: dict[str, Any]) -> dict[str, Any]:
    """The models that ship beside the default before."""
    what = {row["model"]: row["what"] for row in result["rows"]}
    titles = {model: f"{model}, before" for model, own in what.items()
              if own == "before" and model.startswith("neocog@")}  # fmt: skip
    return by_set(result, titles | {model: model for model, own in what.items() if own == "ships"})


def hands_seeds(result: dict[str, Any]) -> dict[str, Any]:
    """The default's three seeds on the sets that all of them read, and their mean."""
    titles = {row["model"]: row["model"] for row in result["rows"]
              if row["what"] != "before" and row["model"].startswith("neocog@")}  # fmt: skip
    table = by_set(result, titles)
    rows = [row for row in table["rows"] if row.keys() >= titles.keys()]
    for row in rows:
        own = [r["right"] for r in result["rows"]
               if r["set"] == row["set"] and r["model"] in titles]  # fmt: skip
        row["mean"] = f"{sum(own) / len(own):.2%}"
    return table | {"rows": rows, "columns": table["columns"] | {"mean": "mean"}}


def models_robustness(result: dict[str, Any]) -> dict[str, Any]:
    """Accuracy of each shipped model under each corruption, mean of its strengths."""
    rows = [{"model": row["model"], **row["robustness"]} for row in result["rows"]]
    kinds = [*sorted({key for row in rows for key in row} - {"model", "mean"}), "mean"]
    names = {key: key for key in ("model", *kinds)}
    return result | {"rows": rows, "columns": names, "formats": dict.fromkeys(kinds, ".1%")}


def models_risk(result: dict[str, Any]) -> dict[str, Any]:
    """What thresholds that were fixed on validation digits do on MNIST's test set."""
    rows = [{"model": row["model"], **own} for row in result["rows"] for own in row["fixed"]]
    columns = {"model": "model", "wanted": "taken of validation", "p": "from p =",
               "coverage": "taken of test", "error": "wrong among them",
               "marks": "marks read as digits"}  # fmt: skip
    formats = {"wanted": ".1%", "p": ".6g", "coverage": ".2%", "error": ".3%", "marks": ".1%"}
    return result | {"rows": rows, "columns": columns, "formats": formats}


def models_confusion(result: dict[str, Any]) -> dict[str, Any]:
    """The most frequent mistakes of each shipped model on MNIST's test set."""
    rows = []
    for row in result["rows"]:
        found = [
            (count, digit, read)
            for digit, counts in enumerate(row["confusion"])
            for read, count in enumerate(counts)
            if count and digit != read
        ]
        words = [
            f"{digit} as {read if read < 10 else 'none'}: {count}"
            for count, digit, read in sorted(found, key=lambda one: -one[0])[:8]
        ]
        rows.append({"model": row["model"], "mistakes": ", ".join(words) or "none"})
    return result | {"rows": rows, "columns": {"model": "model", "mistakes": "most frequent"}}


def systems(result: dict[str, Any]) -> dict[str, Any]:
    """Every neocognitron that was made quick, from 1990 to today, ours last."""
    sys.path.insert(0, str(ROOT))
    from experiments.slayer.systems import COLUMNS, OURS, made_on, systems

    rows = [dict(zip(COLUMNS, row, strict=True)) for row in systems(result)]
    made = [made_on(result, name) for name in OURS if name in result["sections"]]
    about = {
        "command": "`, `".join(dict.fromkeys(one["command"] for one in made)),
        "machine": ", ".join(dict.fromkeys(one["machine"] for one in made)),
        "date": max(one["date"] for one in made),
    }
    return result | about | {"rows": rows, "columns": {name: name for name in COLUMNS}}


#: table -> (result file, what makes the table of it)
def gpu_section(name: str, result: dict[str, Any]) -> dict[str, Any]:
    """Rows of one section of the GPU's results, with the command that measured it."""
    section = result["sections"][name]
    command = f"python -m experiments.gpu.measure {' '.join(section['options'])}"
    return result | {"rows": section["rows"], "command": command, "formats": {}}


def gpu_speed(result: dict[str, Any]) -> dict[str, Any]:
    """The network beside PyTorch, with what plan card gains."""
    for row in result["rows"]:
        row["card_ratio"] = min(row["torch"], row["compile"]) / row["card"]
    columns = result["columns"] | {"ratio": "default", "card_ratio": "card", "commit": "commit"}
    times = {key: f"{columns[key]}, times as fast as the better" for key in ("ratio", "card_ratio")}
    last = {"difference": columns.pop("difference")}
    return result | {"columns": columns | times | last,
                     "formats": result["formats"] | {"card_ratio": ".2f"}}  # fmt: skip


def gpu_speed_short(result: dict[str, Any]) -> dict[str, Any]:
    """The same in half precision, for eight digits and many."""
    columns = {"model": "model", "batch": "batch", "neocog": "us a digit", "card": "plan card",
               "torch": "PyTorch", "compile": "torch.compile"}  # fmt: skip
    rows = [row for row in result["rows"] if row["precision"] == "fp16" and row["batch"] != 64]
    return result | {"rows": rows, "columns": columns}


def gpu_c(result: dict[str, Any]) -> dict[str, Any]:
    """Each C-layer alone, by every form."""
    section = gpu_section("c", result)
    forms = ("separable", "box", "naive", "tensor")
    rows = [
        row | {"torch": min(value for key, value in row.items() if key.startswith("torch "))}
        for row in section["rows"] if row["precision"] != "tf32"
    ]  # fmt: skip
    columns = {"layer": "layer", "precision": "precision", "batch": "batch",
               **{f"neocog {form}": f"{form}, us" for form in forms}, "torch": "PyTorch, us",
               "gb_per_s": "GB/s of the quickest"}  # fmt: skip
    formats = {key: ".1f" for key in columns if key.startswith("neocog")} | {"torch": ".1f"}
    return section | {"rows": rows, "columns": columns, "formats": formats | {"gb_per_s": ".0f"}}


def gpu_decisions(result: dict[str, Any]) -> dict[str, Any]:
    """How many test digits are decided as on the CPU."""
    columns = {"model": "model", "precision": "precision", "digits": "digits",
               "plan": "plan", "same": "same decision", "accuracy": "accuracy",
               "score_difference": "largest difference of a score"}  # fmt: skip
    formats = {"accuracy": ".2%", "score_difference": ".1e"}
    return gpu_section("decisions", result) | {"columns": columns, "formats": formats}


def gpu_layers(result: dict[str, Any]) -> dict[str, Any]:
    """Each S-layer alone: time of every version by batch, and its error."""
    section = gpu_section("s", result)
    batches = ("1", "8", "256")
    rows = [row | row.get("us_step", {}) for row in section["rows"] if row["precision"] != "tf32"]
    columns = {"layer": "layer", "precision": "precision", "version": "version",
               **{n: f"batch {n}, us" for n in batches}, "error": "error"}  # fmt: skip
    formats = dict.fromkeys(batches, ".1f") | {"error": ".0e"}
    return section | {"rows": rows, "columns": columns, "formats": formats}


def readme_accuracy(result: dict[str, Any]) -> dict[str, Any]:
    """A few sets, and the models that ship by their names alone."""
    sets = {"mnist, test": "MNIST, test", "usps": "USPS", "crohme": "CROHME, pens",
            "unipen": "UNIPEN, pens", "ardis": "ARDIS, church books",
            "orand": "ORAND, cheques"}  # fmt: skip
    models = {row["model"]: row["model"].partition("@")[0]
              for row in result["rows"] if row["what"] == "ships"}  # fmt: skip
    rows: dict[str, dict[str, Any]] = {key: {"set": name} for key, name in sets.items()}
    for row in result["rows"]:
        if row["set"] in sets and row["model"] in models:
            rows[row["set"]] |= {"digits": row["digits"], models[row["model"]]: row["right"]}
    names = list(models.values())
    columns = {key: key for key in ("set", "digits", *names)}
    command = "python -m experiments.accuracy.hands DATA models/*.safetensors"
    about = {"command": command, "columns": columns, "formats": dict.fromkeys(names, ".1%")}
    return result | about | {"rows": list(rows.values())}


def readme_speed(result: dict[str, Any]) -> dict[str, Any]:
    """The default model's time on a CPU and on a GPU, beside the quickest of the others."""
    gpu = json.loads(next(RESULTS.glob("gpu/results/gpu.json")).read_text())
    rows = []
    for row in result["rows"]:
        if row["model"].startswith("neocog@") and row["batch"] in (1, 32):
            other = f"onnxruntime {row['onnxruntime']:.2f} ms"
            rows.append({"where": result["machine"], "batch": row["batch"], "other": other,
                         "ours": f"{row['neocog']:.2f} ms", "times": row["ratio"]})  # fmt: skip
    for row in gpu["rows"]:
        if (
            row["model"].startswith("neocog@")
            and row["precision"] == "fp16"
            and row["batch"] in (8, 4096)
        ):
            name, best = min(("torch.compile", row["compile"]), ("PyTorch", row["torch"]),
                             key=lambda one: one[1])  # fmt: skip
            rows.append({"where": f"{gpu['machine']}, fp16", "batch": row["batch"],
                         "ours": f"{row['neocog']:.2f} us", "other": f"{name} {best:.2f} us",
                         "times": row["ratio"]})  # fmt: skip
    columns = {"where": "machine", "batch": "digits at a time", "ours": "neocog, a digit",
               "other": "beside it", "times": "times as fast"}  # fmt: skip
    command = "python -m experiments.network.speed`, `python -m experiments.gpu.measure DATA speed"
    about = {"command": command, "machine": "", "columns": columns, "formats": {"times": ".1f"}}
    return result | about | {"rows": rows}


VIEWS: dict[str, tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "accuracy": ("learning", accuracy),
    "learning-curve": ("learning", learning_curve),
    "reading-sets": ("reading", reading_sets),
    "reading-conditions": ("reading", reading_conditions),
    "strings": ("reading", reading_risk),
    "reading-time": ("reading", reading_time),
    "gpu": ("gpu", gpu_speed),
    "gpu-short": ("gpu", gpu_speed_short),
    "gpu-c": ("gpu", gpu_c),
    "gpu-decisions": ("gpu", gpu_decisions),
    "gpu-layers": ("gpu", gpu_layers),
    "readme-accuracy": ("hands", readme_accuracy),
    "readme-speed": ("speed", readme_speed),
    "models": ("models", models),
    "hands": ("hands", hands),
    "hands-short": ("hands", hands_short),
    "hands-seeds": ("hands", hands_seeds),
    "systems": ("slayer", systems),
    "models-robustness": ("models", models_robustness),
    "models-risk": ("models", models_risk),
    "models-confusion": ("models", models_confusion),
}


def table(name: str) -> str:
    """Return the Markdown table of one result file."""
    source, view = VIEWS.get(name, (name, dict))
    path = next(RESULTS.glob(f"*/results/{source}.json"), None)
    if path is None:
        return "*Not measured yet.*\n"
    result = view(json.loads(path.read_text()))
    columns: dict[str, str] = result["columns"]
    formats: dict[str, str] = result.get("formats", {})
    lines = ["| " + " | ".join(columns.values()) + " |", "|" + " --- |" * len(columns)]
    for row in result["rows"]:
        cells = (_cell(row.get(key), formats.get(key, "")) for key in columns)
        lines.append("| " + " | ".join(cells) + " |")
    where = ", ".join(result[key] for key in ("machine", "date") if result.get(key))
    lines += ["", f"`{result['command']}`" + (f" ({where})" if where else "")]
    return "\n".join(lines) + "\n"


def _cell(value: Any, form: str) -> str:
    return "–" if value is None else format(value, form)


def render(text: str) -> str:
    """Return a page's text with its tables made anew."""

    def part(match: re.Match[str]) -> str:
        opening, name, end = match.groups()
        return opening + table(name) + end

    return PART.sub(part, text)


def pages() -> list[Path]:
    """Return all pages that hold tables of results."""
    own = [RESULTS / name / "README.md" for name in OWN]
    return [README, *sorted((ROOT / "docs").glob("*.md")), *own]


def main() -> int:
    if sys.argv[1:] not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    stale = 0
    for page in pages():
        old = page.read_text()
        new = render(old)
        if new == old:
            continue
        if sys.argv[1:]:
            name = page.relative_to(ROOT)
            print(f"{name} is out of date: run python -m experiments.tables", file=sys.stderr)
            stale = 1
        else:
            page.write_text(new)
    return stale


if __name__ == "__main__":
    sys.exit(main())
