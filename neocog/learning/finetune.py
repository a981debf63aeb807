"""Gradient learning of a whole neocognitron: the loop, its schedule, its checkpoints.

Cross-entropy over softmax(score / temperature) of the labels, no digit among them where planes
reject, and of a guide's soft answers where there is one; Adam, the rate rising and falling once in
a cycle; the running mean of the weights is what is measured and kept. Everything drawn at random
follows from the seed and the number of the step, so that a run which goes on from a checkpoint ends
as if it had never stopped.
"""

import copy
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from neocog.errors import NeocogError, UsageError
from neocog.learning.batches import Batches, Pools
from neocog.learning.calibrate import best_temperature
from neocog.learning.checkpoint import (
    card_of,
    check_same,
    id_of,
    load_checkpoint,
    save_checkpoint,
    save_curves,
)
from neocog.learning.mix import Mix
from neocog.learning.settings import Settings
from neocog.learning.trainable import Trainable
from neocog.network.decision import answers, labels_of
from neocog.network.model import Model
from neocog.network.spec import LABELS

Tensor = Any
Figures = dict[str, float]

#: Rates of the kinds of parameters, as shares of the rate.
_SHARES = {
    "direction": 1.0, "c": 0.3, "length": 0.3, "threshold": 0.3, "blur": 0.1, "temperature": 0.3,
}  # fmt: skip
_EVALUATED = 500  # digits at a time that are validated
_REJECTED = 0.005  # share of digits that may be rejected where marks are counted that pass


@dataclass(slots=True)
class Position:
    """How far a run has come: what a checkpoint holds beside tensors.

    ``kept_accuracy`` and ``kept_loss`` are the validation's of the epoch that is kept.
    """

    step: int = 0
    cycle: int = 0
    cycle_step: int = 0
    cycle_seconds: float = 0.0
    epoch: int = 0
    finished: bool = False
    kept_accuracy: float = -1.0
    kept_loss: float = math.inf


class Finetuner:
    """One run of gradient learning.

    Parameters
    ----------
    start : Model
        What it starts from.
    mix, validation : Mix
        Digits to learn from, and digits that the run is measured on, by the mean over their sets;
        they choose the epoch that is kept, unless it is the last.
    settings : Settings
    device : str
        Of PyTorch: ``"cpu"``, ``"cuda"``.
    folder : path, optional
        Where checkpoint and curves are written; a run whose checkpoint lies there goes on, or is
        told to have finished. What it follows from must be the same: start, digits, settings.
    report : callable, optional
        Told the figures of each epoch.
    pools : Pools, optional
        If they were drawn before.
    another : bool
        Where the run in the folder has finished, learn another cycle, from the weights that it
        ended with. Settings other than the seed may differ then.
    guide : callable, optional
        Answers pictures (B, 65, 65) with logits (B, labels) that are learned from as well
        (Hinton, Vinyals and Dean 2015, arXiv:1503.02531).

    Raises
    ------
    UsageError
        If a setting makes no sense, there are fewer digits than a batch, or the checkpoint in the
        folder is of a run with another start, other digits or settings.
    ModelError
        If the checkpoint cannot be read.
    """

    def __init__(
        self,
        start: Model,
        mix: Mix,
        validation: Mix,
        settings: Settings,
        *,
        device: str = "cpu",
        folder: str | Path | None = None,
        report: Callable[[Figures], None] | None = None,
        pools: Pools | None = None,
        another: bool = False,
        guide: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        settings.check()
        self.settings, self.device, self._another = settings, torch.device(device), another
        self._start, self.guide, self._report = start, guide, report or (lambda figures: None)
        self._origin = {
            "start": id_of(start),
            "digits": mix.digest,
            "validation": validation.digest,
            "seed": settings.seed,
        }
        self._folder = Path(folder) if folder is not None else None
        torch.use_deterministic_algorithms(settings.deterministic, warn_only=True)
        on_gpu = self.device.type == "cuda"
        if on_gpu:
            _allow_tf32(settings.precision != "fp32")
            torch.backends.cudnn.benchmark = not settings.deterministic
        network = Trainable(start, precision=settings.precision, channels_last=on_gpu)
        self.network = network.to(self.device).train()
        self.mean = copy.deepcopy(self.network).eval().requires_grad_(False)
        self.mean.precision = "fp32"
        self.network.compiled = settings.compiled
        self._kept = _parameters(self.mean)
        groups = [{"params": own, "share": _SHARES[kind]} for kind, own in self.network.groups()]
        self._optimizer = torch.optim.Adam(groups, lr=settings.rate, betas=(0.9, 0.99))
        marks = start.classes > LABELS
        self.batches = Batches(
            mix, validation, settings, marks=marks, device=self.device, pools=pools
        )
        self._lean = torch.zeros(start.classes, device=self.device)
        self._lean[LABELS:] = settings.lean
        self.position, self.curves = Position(), list[Figures]()
        self._resume()

    def run(
        self, *, until: int | None = None, end: float | None = None, stop: float | None = None
    ) -> Model:
        """Learn to the end of the cycle and return the model; of a finished run, return its model.

        Parameters
        ----------
        until : int, optional
            Step after which to return without writing a checkpoint, as if the process were killed.
        end : float, optional
            Time (of ``time.monotonic``) at which a cycle in minutes ends at the latest.
        stop : float, optional
            Time (of ``time.monotonic``) at which to write a checkpoint and return, within a cycle
            if it has not ended by then.
        """
        place, settings = self.position, self.settings
        if place.finished:
            if not self._another:
                return self.model()
            place.cycle, place.finished = place.cycle + 1, False
            place.cycle_step, place.cycle_seconds = 0, 0.0
        limit = 60 * settings.minutes if settings.minutes is not None else 0.0
        begun = time.monotonic() - place.cycle_seconds
        if end is not None and settings.minutes is not None:
            limit = max(min(limit, end - begun), place.cycle_seconds + 1)
        total = max(1, round(settings.epochs * self.batches.epoch_steps))

        def passed() -> float:
            """Share of the cycle that is over."""
            by_clock = settings.minutes is not None
            return place.cycle_seconds / limit if by_clock else place.cycle_step / total

        losses: list[Tensor] = []
        while not place.finished:
            losses.append(self._step(min(passed(), 1.0)))
            place.step += 1
            place.cycle_step += 1
            place.cycle_seconds = time.monotonic() - begun
            place.finished = passed() >= 1
            stopped = stop is not None and begun + place.cycle_seconds >= stop
            ends = place.finished or stopped
            if place.step % self.batches.epoch_steps == 0 or ends:
                self._end_epoch(losses)
                losses.clear()
            elif place.step % 20 == 0:  # the clock must not run ahead of the GPU
                float(losses[-1])
            if until is not None and place.step >= until and not place.finished:
                break
            if place.step % settings.save_every == 0 or ends:
                self._save()
            if stopped:
                break
        return self.model()

    def model(self) -> Model:
        """Return the network that is kept, its probabilities calibrated on the validation digits.

        It is that of the epoch which read them best so far; with the setting ``last``, that of the
        last epoch.
        """
        kept, batches, step = copy.deepcopy(self.mean), self.batches, self.position.step
        _put(kept, self._kept)
        with _exact_products():
            scores = self._scores(kept, batches.shown)
        card = card_of(
            self._start,
            self.settings,
            epochs=round(step / batches.epoch_steps, 1),
            steps=step,
            pictures=len(batches),
            accuracy=_accuracy(scores, batches.validation),
        )
        model: Model = kept.model()
        temperature = best_temperature(scores, batches.validation)
        return replace(model, temperature=temperature, card=card, version="")

    def _step(self, progress: float) -> Tensor:
        settings, place = self.settings, self.position
        rate = settings.rate * (settings.again if place.cycle else 1.0)
        rate *= _bend(progress, settings.warm_up)
        for group in self._optimizer.param_groups:
            group["lr"] = rate * group["share"]
        u0, labels = self.batches.batch(place.step)
        soft = settings.soft if not place.cycle and progress < settings.soft_share else 0.0
        responses = self.network(u0, soft=soft)
        logits = responses / self.network.temperature.exp() + self._lean
        loss = functional.cross_entropy(logits, labels, label_smoothing=settings.smoothing)
        if self.guide is not None and settings.guided:
            by_guide = _soft_loss(logits, self.guide(u0), settings.heat)
            loss = (1 - settings.guided) * loss + settings.guided * by_guide
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), settings.clip)
        self._optimizer.step()
        self.network.constrain()
        keep = min(settings.mean, (1 + place.step) / (10 + place.step))
        with torch.no_grad():
            torch._foreach_lerp_(
                list(self.mean.parameters()), list(self.network.parameters()), 1 - keep
            )
        return loss.detach()

    # --- measuring --------------------------------------------------------------------------------

    def _end_epoch(self, steps: list[Tensor]) -> None:
        place, batches, mean = self.position, self.batches, float(torch.stack(steps).mean())
        if not math.isfinite(mean):
            raise NeocogError(
                f"the loss is {mean} near step {place.step}; start again with a rate below "
                f"{self.settings.rate}"
            )
        place.epoch += 1
        scores = self._scores(self.mean, batches.shown)
        accuracy = _accuracy(scores, batches.validation)
        logits = torch.from_numpy(scores) / float(self.mean.temperature.exp())
        labels = torch.from_numpy(batches.validation.labels)
        losses = functional.cross_entropy(logits, labels, reduction="none").numpy()
        loss = float(np.mean(batches.validation.means(losses)))
        figures = {
            "epoch": place.step / batches.epoch_steps,
            "step": place.step,
            "seconds": round(place.cycle_seconds, 1),
            "rate": self._optimizer.param_groups[0]["lr"],
            "loss": mean,
            "validation_loss": loss,
            "validation_accuracy": accuracy,
        }
        if batches.held is not None:
            figures |= self._rejection(scores)
        self.curves.append(figures)
        better = (accuracy, -loss) > (place.kept_accuracy, -place.kept_loss)
        if better or self.settings.last:
            place.kept_accuracy, place.kept_loss = accuracy, loss
            self._kept = _parameters(self.mean)
        self._report(figures)

    def _rejection(self, scores: NDArray[np.float32]) -> Figures:
        """Digits rejected outright, and marks that pass where 0.5 % of the digits do not."""
        temperature = float(self.mean.temperature.exp())
        shown = self._scores(self.mean, self.batches.held)
        digits, marks = (answers(part, temperature=temperature) for part in (scores, shown))
        least = float(np.quantile(digits.p, _REJECTED, method="higher"))
        return {
            "passed_marks": float((marks.p >= max(least, 1e-9)).mean()),
            "rejected_digits": float((scores.argmax(axis=1) >= LABELS).mean()),
        }

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _scores(self, network: Any, digits: Tensor) -> NDArray[np.float32]:
        parts = [network(network.enlarged(part)).cpu() for part in digits.split(_EVALUATED)]
        found: NDArray[np.float32] = torch.cat(parts).numpy()
        return found

    # --- checkpoints ------------------------------------------------------------------------------

    def _described(self) -> dict[str, Any]:
        left_out = ("save_every", "compiled")
        return {name: v for name, v in asdict(self.settings).items() if name not in left_out}

    def _save(self) -> None:
        if self._folder is None:
            return
        parts = {"network": _parameters(self.network), "mean": _parameters(self.mean),
                 "kept": self._kept}  # fmt: skip
        tensors = {f"{part}.{name}": v for part, own in parts.items() for name, v in own.items()}
        for name, parameter in self.network.named_parameters():
            for key, value in self._optimizer.state[parameter].items():
                tensors[f"adam.{key}.{name}"] = value
        position = asdict(self.position) | {"kept_loss": repr(self.position.kept_loss)}
        state = {"position": position, "origin": self._origin,
                 "settings": self._described(), "curves": self.curves}  # fmt: skip
        save_checkpoint(self._folder / "checkpoint.safetensors", tensors, state)
        save_curves(self._folder, self.curves)

    def _resume(self) -> None:
        path = self._folder / "checkpoint.safetensors" if self._folder else None
        if path is None or not path.exists():
            return
        tensors, state = load_checkpoint(path)
        told = state["position"]
        position = Position(**told | {"kept_loss": float(told["kept_loss"])})
        known, given = state["origin"], self._origin
        if not (position.finished and self._another):
            known, given = known | state["settings"], given | self._described()
        check_same(path, known, given)
        self.position, self.curves = position, state["curves"]
        parts: dict[str, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            part, _, rest = name.partition(".")
            parts.setdefault(part, {})[rest] = value
        _put(self.network, parts["network"])
        _put(self.mean, parts["mean"])
        self._kept = {name: value.to(self.device) for name, value in parts["kept"].items()}
        for name, parameter in self.network.named_parameters():
            slot = self._optimizer.state[parameter]
            for key in ("step", "exp_avg", "exp_avg_sq"):
                value = parts["adam"][f"{key}.{name}"]
                slot[key] = value if key == "step" else value.to(self.device)


def _bend(progress: float, rise: float) -> float:
    """Share of the largest rate: up in a line, down as a cosine."""
    if progress < rise:
        return max(progress / rise, 0.02)
    return 0.5 * (1 + math.cos(math.pi * (progress - rise) / (1 - rise)))


def _soft_loss(logits: Tensor, told: Tensor, heat: float) -> Tensor:
    """Cross-entropy with a guide's logits (B, labels), both softened (Hinton eq. 1 and 2)."""
    wanted = (told.detach() / heat).softmax(dim=1)
    own = (logits / heat).log_softmax(dim=1)
    return -(wanted * own).sum(dim=1).mean() * heat**2


@contextmanager
def _exact_products() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    _allow_tf32(False)
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def _allow_tf32(allowed: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed


def _parameters(network: Any) -> dict[str, Tensor]:
    """Copies of the parameters by name."""
    return {name: value.detach().clone() for name, value in network.named_parameters()}


@torch.no_grad()  # type: ignore[untyped-decorator]
def _put(network: Any, values: dict[str, Tensor]) -> None:
    for name, parameter in network.named_parameters():
        if name not in values or values[name].shape != parameter.shape:
            raise UsageError(
                f"the checkpoint's {name} does not fit the model; choose another folder"
            )
        parameter.copy_(values[name])


def _accuracy(scores: NDArray[np.float32], validation: Mix) -> float:
    """Share read right, the mean over the sets."""
    return float(np.mean(validation.means(labels_of(scores) == validation.labels)))
