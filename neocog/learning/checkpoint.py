"""What a run of gradient learning keeps on disk: its start, a checkpoint and its curves."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from neocog.errors import ModelError, UsageError
from neocog.files import atomic_write
from neocog.learning.mix import Mix
from neocog.learning.recipes import Progress, Recipe, described, start_model
from neocog.network.model import Model, from_bytes, load_model, to_bytes
from neocog.network.registry import find_model
from neocog.text import to_json

Parts = dict[str, dict[str, Any]]
_FORMAT = "neocog run 6"


class Run:
    """A run of learning by gradient, and its file, written whole: tensors, and as JSON the rest.

    ``told``: what it follows from; ``state``: what else goes on with it, and its curves. A file that is there
    is gone on with; UsageError if it is another run, ModelError if it is none.
    """

    def __init__(
        self, file: Path | None, told: dict[str, Any], networks: dict[str, Any], optimiser: Any, **state: Any
    ) -> None:
        self.file, self.told, self.networks, self.optimiser = file, told, networks, optimiser
        self.state, self.others = SimpleNamespace(curves=[], **state), Parts()
        self.resumed = file is not None and file.exists()
        if file is not None and self.resumed:
            self.others, kept = load_checkpoint(file)
            check_same(file, kept.pop("settings", {}), told)
            vars(self.state).update(kept)
            for name, network in networks.items():
                network.load_state_dict(self.others.pop(name))
            slots = {int(name[5:]): self.others.pop(name) for name in [*self.others] if name[:5] == "adam "}
            optimiser.load_state_dict(optimiser.state_dict() | {"state": slots})

    def save(self, **others: dict[str, Any]) -> None:
        """Write the run, with other tensors, and ``curves.json`` beside it."""
        from safetensors.torch import save

        if self.file is None:
            return
        parts = {name: network.state_dict() for name, network in self.networks.items()} | others
        parts |= {f"adam {number}": slot for number, slot in self.optimiser.state_dict()["state"].items()}
        whole = {f"{part}/{name}": tensor.detach().cpu().contiguous()
                 for part, tensors in parts.items() for name, tensor in tensors.items()}  # fmt: skip
        values = to_json(vars(self.state) | {"settings": self.told}, sort_keys=True)
        with atomic_write(self.file) as stream:
            stream.write(save(whole, metadata={"format": _FORMAT, "state": values}))
        self.plot()

    def plot(self) -> None:
        if self.file is not None:
            with atomic_write(self.file.parent / "curves.json") as stream:
                stream.write(to_json(self.state.curves, indent=1, sort_keys=True).encode())

    def set_rate(self, rate: float) -> None:
        """Give each group of the optimiser its share of a rate."""
        for group in self.optimiser.param_groups:
            own = rate * group.get("share", 1.0)
            # that of a graph keeps its address
            group["lr"] = group["lr"].fill_(own) if hasattr(group["lr"], "fill_") else own


class RunningMean:
    """The mean of a network's weights over its steps, in another; ``most``: weight of the past."""

    def __init__(self, mean: Any, network: Any, most: float) -> None:
        both = ([v for v in one.state_dict().values() if v.is_floating_point()] for one in (mean, network))
        self._both, self._most = list(both), most

    def follow(self, step: int) -> None:
        from torch import _foreach_lerp_

        _foreach_lerp_(*self._both, 1 - min(self._most, (1 + step) / (10 + step)))


def worded(figures: dict[str, float]) -> str:
    return " ".join(f"{name} {value:.4g}" for name, value in figures.items())


def load_checkpoint(path: Path) -> tuple[Parts, dict[str, Any]]:
    """Return what :meth:`Run.save` wrote, tensors on the CPU; ModelError if it is none."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata()
            if metadata["format"] != _FORMAT:
                raise ValueError(f"format {metadata['format']!r}")
            parts: Parts = {}
            for key in file.keys():  # noqa: SIM118
                part, _, name = key.partition("/")
                parts.setdefault(part, {})[name] = file.get_tensor(key)
            return parts, json.loads(metadata["state"])
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        reason, instead = str(error).partition("\n")[0], "name another, or remove it to start again"
        raise ModelError(f"checkpoint {path}: cannot be used ({reason}); {instead}") from None


def check_same(path: Path, known: dict[str, Any], given: dict[str, Any]) -> None:
    """See that what a file's run follows from is what was given now, else UsageError tells what differs."""
    then, now = _flat(known), _flat(given)
    other = [name for name in {**then, **now} if then.get(name) != now.get(name)]
    if other:
        had, came = (", ".join(f"{n} {values.get(n)}" for n in other) for values in (then, now))
        change = "use the same options or another folder"
        raise UsageError(f"{path} is from a run with other options ({had}, not {came}); {change}")


def _flat(values: dict[str, Any], before: str = "") -> dict[str, Any]:
    # values by name, those of values within named after them; as JSON would give them back
    flat: dict[str, Any] = {}
    for name, value in values.items():
        own = [*value] if isinstance(value, tuple) else value
        flat |= _flat(own, f"{before}{name} ") if isinstance(own, dict) else {before + name: own}
    return flat


def start_of_run(
    place: Path | None, named: str | None, recipe: Recipe, mix: Mix, *, seed: int, reject: int,
    progress: Progress | None = None,
) -> tuple[Model, bytes]:  # fmt: skip
    """Return a run's start and its file: at ``place``, named, or new; UsageError if the first two differ."""
    model = load_model(named) if named is not None else None
    if place is None or not place.exists():
        if model is not None:
            return model, find_model(str(named)).read_bytes()
        data = to_bytes(start_model(recipe, mix, seed=seed, reject=reject, progress=progress))
        return from_bytes(data, source=recipe.name), data
    kept, instead = load_model(place), "give the --start of the run in that folder, or another --checkpoints"
    if model is None and "finetuning" in kept.card:
        raise UsageError(f"{place} is {kept.id}, a model trained by gradient, not a new start; {instead}")
    if model is None:
        given = described(recipe, mix.digest, seed=seed, reject=reject)
        check_same(place, {name: kept.card.get(name) for name in given}, given)
    elif kept.id != model.id:
        raise UsageError(f"{place} is {kept.id}, not {model.id}; {instead}")
    return kept, place.read_bytes()


def id_of(model: Model) -> str:
    """Return the id of a model; of one that no file holds, the id that it would have in fp32."""
    return model.id if model.version else from_bytes(to_bytes(model), source=model.name).id
