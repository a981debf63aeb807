"""What a run of gradient learning leaves on disk: a checkpoint, its curves, a model's card.

A checkpoint is one safetensors file from which the run goes on: every tensor by name; its metadata
hold the rest as JSON. It is written atomically: after a kill the last whole one is there.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from neocog.errors import ModelError, UsageError
from neocog.files import atomic_write
from neocog.jsontext import to_json
from neocog.learning.settings import Settings
from neocog.network.model import Model, from_bytes, to_bytes

Tensor = Any
_FORMAT = "neocog run 3"
#: Settings that change how long learning takes or where it stops, not what a step learns.
_NOT_ON_CARDS = ("minutes", "save_every", "compiled", "deterministic")


def save_checkpoint(path: str | Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Write tensors and what else a run consists of (JSON values)."""
    from safetensors.torch import save

    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    metadata = {"format": _FORMAT, "state": to_json(state, sort_keys=True)}
    with atomic_write(path) as stream:
        stream.write(save(whole, metadata=metadata))


def load_checkpoint(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors, on the CPU, and the rest of what :func:`save_checkpoint` wrote.

    Raises
    ------
    ModelError
        If the file is no checkpoint.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        data = Path(path).read_bytes()
        tensors = load(data)
        length = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + length])["__metadata__"]
        if metadata["format"] != _FORMAT:
            raise ValueError(f"format {metadata['format']!r}")
        return tensors, json.loads(metadata["state"])
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise ModelError(
            f"checkpoint {path}: cannot be used ({reason}); remove it to start again"
        ) from None


def check_same(path: str | Path, known: dict[str, Any], given: dict[str, Any]) -> None:
    """See that what a file's run follows from (``known``) is what was given now; values by name.

    Raises
    ------
    UsageError
        If any value differs; the message names the file and tells which.
    """
    then, now = _flat(known), _flat(given)
    other = [name for name in {**then, **now} if then.get(name) != now.get(name)]
    if other:
        had, came = (", ".join(f"{n} {values.get(n)}" for n in other) for values in (then, now))
        raise UsageError(
            f"{path} belongs to a run with {had}, not {came}; give the options of that run, or "
            "another folder"
        )


def _flat(values: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Values by name, those of values within named after them; as JSON would give them back."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{before}{name} ")
        else:
            flat[before + name] = list(value) if isinstance(value, tuple) else value
    return flat


def save_curves(folder: str | Path, curves: list[dict[str, float]]) -> None:
    """Write ``curves.json`` and, where matplotlib is installed, ``curves.png`` into a folder."""
    folder = Path(folder)
    with atomic_write(folder / "curves.json") as stream:
        stream.write(to_json(curves, indent=1).encode())
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    epochs = [row["epoch"] for row in curves]
    for name in ("loss", "validation_loss"):
        left.plot(epochs, [row[name] for row in curves], label=name.replace("_", " "))
    errors = [100 * (1 - row["validation_accuracy"]) for row in curves]
    right.plot(epochs, errors, label="validation errors, %")
    if curves and "passed_marks" in curves[0]:
        passed = [100 * row["passed_marks"] for row in curves]
        right.plot(epochs, passed, label="held-out marks read as digits, %")
    for axes in (left, right):
        axes.set(xlabel="epoch", yscale="log")
        axes.legend()
    with atomic_write(folder / "curves.png") as stream:
        figure.savefig(stream, format="png")


def card_of(
    start: Model, settings: Settings, *, accuracy: float, **figures: float
) -> dict[str, Any]:
    """Return the card of a network that was learned by gradient from a start.

    Of the start's card the recipe stays, and how the start itself was learned by gradient. All
    else (accuracies, thresholds, settings tuned for reading, the command) is of another network.

    Parameters
    ----------
    start : Model
    settings : Settings
    accuracy : float
        Share of the validation digits that it reads right.
    figures : float
        ``steps`` of all cycles, ``epochs``, and ``pictures`` that it was learned from.
    """
    learned = {k: v for k, v in asdict(settings).items() if k not in _NOT_ON_CARDS}
    learned |= figures | {"start": id_of(start)}
    if before := start.card.get("finetuning"):
        learned["before"] = before
    kept = {"recipe": start.card["recipe"]} if "recipe" in start.card else {}
    return kept | {"finetuning": learned, "validation_accuracy": round(accuracy, 5)}


def id_of(model: Model) -> str:
    """Return the id of a model; of one that no file holds, the id that it would have in fp32."""
    return model.id if model.version else from_bytes(to_bytes(model), source=model.name).id
