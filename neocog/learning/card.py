"""What the card of a network learned by gradient says: true of it, not of what it started from."""

from dataclasses import asdict
from typing import Any

from neocog.learning.settings import Settings
from neocog.network.model import Model, from_bytes, to_bytes

#: Settings that change how long learning takes or where it stops, not what a step learns.
_LEFT_OUT = ("minutes", "save_every", "compiled", "deterministic")


def card_of(
    start: Model, settings: Settings, *, steps: int, epochs: float, pictures: int, accuracy: float
) -> dict[str, Any]:
    """Return the card of a network that was learned by gradient.

    Of the start's card the recipe stays, and how the start itself was learned by gradient. All
    else (accuracies, thresholds, settings tuned for reading, the command) is of another network.

    Parameters
    ----------
    start : Model
        What it started from.
    settings : Settings
        How it was learned.
    steps : int
        Steps of all cycles.
    epochs : float
        The same as times that all digits were shown.
    pictures : int
        Digits that it was learned from.
    accuracy : float
        Share of the validation digits that it reads right.
    """
    learned = {k: v for k, v in asdict(settings).items() if k not in _LEFT_OUT}
    learned |= {"epochs": epochs, "steps": steps, "pictures": pictures, "start": id_of(start)}
    before = start.card.get("finetuning")
    if before:
        learned["before"] = before
    kept = {"recipe": start.card["recipe"]} if "recipe" in start.card else {}
    return kept | {"finetuning": learned, "validation_accuracy": round(accuracy, 5)}


def id_of(model: Model) -> str:
    """Return the id of a model; of one that no file holds, the id that it would have in fp32."""
    return model.id if model.version else from_bytes(to_bytes(model), source=model.name).id
