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
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from neocog.errors import NeocogError, UsageError
from neocog.learning.calibrate import best_temperature
from neocog.learning.card import card_of, id_of
from neocog.learning.checkpoint import (
    check_same,
    load_checkpoint,
    save_checkpoint,
    save_curves,
)
from neocog.learning.guide import soft_loss
from neocog.learning.lessons import Digits, Labels, Lessons, Pools
from neocog.learning.mix import Mix
from neocog.learning.precision import Exactly, prepare
from neocog.learning.settings import Position, Settings
from neocog.learning.trainable import Trainable
from neocog.network.decision import answers, labels_of
from neocog.network.model import Model
from neocog.network.spec import LABELS

Tensor = Any
Report = Callable[[dict[str, float]], None]
Guide = Callable[[Tensor], Tensor]

#: Rates of the kinds of parameters, as shares of the rate.
_SHARES = {
    "direction": 1.0, "c": 0.3, "length": 0.3, "threshold": 0.3, "blur": 0.1, "temperature": 0.3,
}  # fmt: skip
_EVALUATED = 500  # digits at a time that are validated
_REJECTED = 0.005  # share of digits that may be rejected where marks are counted that pass


class Finetuner:
    """One run of gradient learning.

    Parameters
    ----------
    start : Model
        What it starts from.
    mix : Mix
        Sets of digits to learn from.
    validation : Mix
        Digits that the run is measured on, by the mean over their sets; they choose the epoch that
        is kept, unless it is the last.
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
        Answers pictures (B, 65, 65) with logits (B, labels) that are learned from as well.

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
        report: Report | None = None,
        pools: Pools | None = None,
        another: bool = False,
        guide: Guide | None = None,
    ) -> None:
        settings.check()
        self.settings, self.device, self._another = settings, torch.device(device), another
        self._origin = {
            "start": id_of(start),
            "digits": mix.digest,
            "validation": validation.digest,
            "seed": settings.seed,
        }
        self._start = start
        self.guide = guide
        self._report = report or (lambda figures: None)
        self._folder = Path(folder) if folder is not None else None
        prepare(settings, self.device)
        on_gpu = self.device.type == "cuda"
        network = Trainable(start, precision=settings.precision, channels_last=on_gpu)
        self.network = network.to(self.device).train()
        self.mean = copy.deepcopy(self.network).eval()
        self.mean.requires_grad_(False)
        self.mean.precision = "fp32"
        self.network.compiled = settings.compiled
        self._kept = _parameters(self.mean)
        self._optimizer = torch.optim.Adam(
            [
                {"params": parameters, "share": _SHARES[kind]}
                for kind, parameters in self.network.groups()
            ],
            lr=settings.rate,
            betas=(0.9, 0.99),
        )
        given: dict[str, Any] = {"device": self.device, "pools": pools}
        marks = start.classes > LABELS
        self.lessons = Lessons(mix, validation, settings, marks=marks, **given)
        self._lean = torch.zeros(start.classes, device=self.device)
        self._lean[LABELS:] = settings.lean
        self.position, self.curves = Position(), list[dict[str, float]]()
        self._resume()

    def run(
        self, *, until: int | None = None, end: float | None = None, stop: float | None = None
    ) -> Model:
        """Learn to the end of the cycle and return the model; of a finished run, return its model.

        Parameters
        ----------
        until : int, optional
            Step at which to stop before, without writing a checkpoint, as a kill would.
        end : float, optional
            Time (of ``time.monotonic``) at which a cycle in minutes is to end, if it began late.
        stop : float, optional
            Time at which to write a checkpoint and stop, in the middle of a cycle if need be.
        """
        if self.position.finished:
            if not self._another:
                return self.model()
            self.position = self.position.next_cycle()
        place, settings = self.position, self.settings
        limit = 60 * settings.minutes if settings.minutes is not None else 0.0
        begun = time.monotonic() - place.cycle_seconds
        if end is not None and settings.minutes is not None:
            limit = max(min(limit, end - begun), place.cycle_seconds + 1)
        total = max(1, round(settings.epochs * self.lessons.epoch_steps))
        losses: list[Tensor] = []
        while not place.finished:
            if settings.minutes is None:
                progress = place.cycle_step / total
            else:
                progress = place.cycle_seconds / limit
            losses.append(self._step(min(progress, 1.0)))
            place.step += 1
            place.cycle_step += 1
            place.cycle_seconds = time.monotonic() - begun
            if settings.minutes is None:
                over = place.cycle_step >= total
            else:
                over = place.cycle_seconds >= limit
            stopped = stop is not None and begun + place.cycle_seconds >= stop
            if place.step % self.lessons.epoch_steps == 0 or over or stopped:
                self._end_epoch(losses)
                losses.clear()
            elif place.step % 20 == 0:  # the clock must not run ahead of the GPU
                float(losses[-1])
            place.finished = over
            if until is not None and place.step >= until and not over:
                return self.model()
            if place.step % settings.save_every == 0 or over or stopped:
                self._save()
            if stopped:
                break
        return self.model()

    def model(self) -> Model:
        """Return the network that is kept, its probabilities calibrated on the validation digits.

        It is that of the epoch which read them best so far; with the setting ``last``, that of the
        last epoch.
        """
        kept = copy.deepcopy(self.mean)
        _put(kept, self._kept)
        model: Model = kept.model()
        with Exactly():
            scores = self._scores(kept, self.lessons.shown)
        card = card_of(
            self._start,
            self.settings,
            steps=self.position.step,
            epochs=round(self.position.step / self.lessons.epoch_steps, 1),
            pictures=len(self.lessons),
            accuracy=_accuracy(scores, self.lessons.validation),
        )
        temperature = best_temperature(scores, self.lessons.validation)
        return replace(model, temperature=temperature, card=card, version="")

    def accuracy(self, model: Model, images: Digits, labels: Labels) -> float:
        """Return the share of digits that a model reads right, computed on this run's device."""
        network = Trainable(model).to(self.device).eval()
        with Exactly():
            scores = self._scores(network, torch.tensor(images, device=self.device))
        return round(float((labels_of(scores) == labels).mean()), 5)

    def step_times(self, count: int) -> str:
        """Return milliseconds of a step and of its batch, and the memory held, in words.

        The run is of no use afterwards.
        """
        times = {}
        for name, work in (("step", self._step), ("batch", lambda _: self.lessons.batch(0))):
            for turn in range(count + 5):
                if turn == 5:
                    self._wait()
                    begun = time.perf_counter()
                work(0.5)
                self.position.step = turn % self.lessons.epoch_steps
            self._wait()
            times[name] = 1e3 * (time.perf_counter() - begun) / count
        held = torch.cuda.max_memory_allocated() / 2**30 if self.device.type == "cuda" else 0.0
        return ", ".join(f"{n} {t:.2f} ms" for n, t in times.items()) + f", {held:.1f} GiB"

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    # --- one step ---------------------------------------------------------------------------------

    def _step(self, progress: float) -> Tensor:
        settings, place = self.settings, self.position
        rate = settings.rate * (settings.again if place.cycle else 1.0) * self._bend(progress)
        for group in self._optimizer.param_groups:
            group["lr"] = rate * group["share"]
        u0, labels = self.lessons.batch(place.step)
        soft = settings.soft if not place.cycle and progress < settings.soft_share else 0.0
        responses = self.network(u0, soft=soft)
        logits = responses / self.network.temperature.exp() + self._lean
        loss = functional.cross_entropy(logits, labels, label_smoothing=settings.smoothing)
        if self.guide is not None and settings.guided:
            by_guide = soft_loss(logits, self.guide(u0), settings.heat)
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

    def _bend(self, progress: float) -> float:
        """Share of the largest rate: up in a line, down as a cosine."""
        rise = self.settings.warm_up
        if progress < rise:
            return max(progress / rise, 0.02)
        return 0.5 * (1 + math.cos(math.pi * (progress - rise) / (1 - rise)))

    # --- measuring --------------------------------------------------------------------------------

    def _end_epoch(self, steps: list[Tensor]) -> None:
        place = self.position
        mean = float(torch.stack(steps).mean())
        if not math.isfinite(mean):
            raise NeocogError(
                f"the loss is {mean} near step {place.step}; begin anew with a rate below "
                f"{self.settings.rate}"
            )
        place.epoch += 1
        scores = self._scores(self.mean, self.lessons.shown)
        validation = self.lessons.validation
        accuracy = _accuracy(scores, validation)
        logits = torch.from_numpy(scores) / float(self.mean.temperature.exp())
        answers = torch.from_numpy(self.lessons.answers)
        losses = functional.cross_entropy(logits, answers, reduction="none").numpy()
        loss = float(np.mean(validation.means(losses)))
        figures = {
            "epoch": place.step / self.lessons.epoch_steps,
            "step": place.step,
            "seconds": round(place.cycle_seconds, 1),
            "rate": self._optimizer.param_groups[0]["lr"],
            "loss": mean,
            "validation_loss": loss,
            "validation_accuracy": accuracy,
        }
        if self.lessons.held is not None:
            figures |= self._rejection(scores)
        self.curves.append(figures)
        better = (accuracy, -loss) > (place.kept_accuracy, -place.kept_loss)
        if better or self.settings.last:
            place.kept_accuracy, place.kept_loss = accuracy, loss
            self._kept = _parameters(self.mean)
        self._report(figures)

    def _rejection(self, scores: NDArray[np.float32]) -> dict[str, float]:
        """Digits rejected outright, and marks that pass where 0.5 % of the digits do not."""
        temperature = float(self.mean.temperature.exp())
        shown = self._scores(self.mean, self.lessons.held)
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

    # --- cycles and checkpoints -------------------------------------------------------------------

    def _described(self) -> dict[str, Any]:
        settings = asdict(self.settings)
        for name in ("save_every", "compiled"):
            settings.pop(name)
        return settings

    def _save(self) -> None:
        if self._folder is None:
            return
        tensors: dict[str, Tensor] = {}
        for part, values in (
            ("network", _parameters(self.network)),
            ("mean", _parameters(self.mean)),
            ("kept", self._kept),
        ):
            tensors |= {f"{part}.{name}": value for name, value in values.items()}
        for name, parameter in self.network.named_parameters():
            for key, value in self._optimizer.state[parameter].items():
                tensors[f"adam.{key}.{name}"] = value
        state = {"position": self.position.to_dict(), "origin": self._origin,
                 "settings": self._described(), "curves": self.curves}  # fmt: skip
        save_checkpoint(self._folder / "checkpoint.safetensors", tensors, state)
        save_curves(self._folder, self.curves)

    def _resume(self) -> None:
        path = self._folder / "checkpoint.safetensors" if self._folder else None
        if path is None or not path.exists():
            return
        tensors, state = load_checkpoint(path)
        position = Position.from_dict(state["position"])
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


def _parameters(network: Any) -> dict[str, Tensor]:
    """Copies of the parameters by name."""
    return {name: value.detach().clone() for name, value in network.named_parameters()}


@torch.no_grad()  # type: ignore[untyped-decorator]
def _put(network: Any, values: dict[str, Tensor]) -> None:
    for name, parameter in network.named_parameters():
        if name not in values or values[name].shape != parameter.shape:
            raise UsageError(f"the checkpoint's {name} does not fit the model; give another folder")
        parameter.copy_(values[name])


def _accuracy(scores: NDArray[np.float32], validation: Mix) -> float:
    """Share read right, the mean over the sets."""
    return float(np.mean(validation.means(labels_of(scores) == validation.labels)))
