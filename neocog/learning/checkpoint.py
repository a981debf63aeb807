"""A run of gradient learning on disk: one safetensors file from which it goes on, and its curves.

The file holds every tensor by name; its metadata hold the rest as JSON. It is written atomically:
after a kill at any moment the last whole one is there.
"""

import json
from pathlib import Path
from typing import Any

from neocog.errors import ModelError, UsageError
from neocog.files import atomic_write
from neocog.jsontext import to_json

Tensor = Any
_FORMAT = "neocog run 3"


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
            f"checkpoint {path}: cannot be used ({reason}); remove it to begin anew"
        ) from None


def check_same(path: str | Path, known: dict[str, Any], given: dict[str, Any]) -> None:
    """See that a run in a folder follows from what was given now.

    Parameters
    ----------
    path : path
        File that tells ``known``; named in the message.
    known, given : dict
        What the run there follows from, and what the one to begin would: values by name.

    Raises
    ------
    UsageError
        If any value differs; the message tells which.
    """
    then, now = _flat(known), _flat(given)
    other = [name for name in {**then, **now} if then.get(name) != now.get(name)]
    if other:
        had, came = (
            ", ".join(f"{name} {values.get(name)}" for name in other) for values in (then, now)
        )
        raise UsageError(
            f"{path} is of a run with {had}; {came} came; give what it began with, or another "
            "folder"
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
    left.set(xlabel="epoch", yscale="log")
    errors = [100 * (1 - row["validation_accuracy"]) for row in curves]
    right.plot(epochs, errors, label="validation errors, %")
    if curves and "passed_marks" in curves[0]:
        passed = [100 * row["passed_marks"] for row in curves]
        right.plot(epochs, passed, label="held-back marks read as digits, %")
    right.set(xlabel="epoch", yscale="log")
    for axes in (left, right):
        axes.legend()
    with atomic_write(folder / "curves.png") as stream:
        figure.savefig(stream, format="png")
