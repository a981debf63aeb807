"""Gradient learning of a whole neocognitron: cross-entropy over softmax(score / temperature) of the labels,
no digit among them where planes reject; Adam; the running mean of the weights is measured and kept. All
follows from the seed and the number of the step: a run that goes on ends as if it had never stopped.
"""

import copy
import math
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from neocog.errors import NeocogError, UsageError
from neocog.learning.augment import augment
from neocog.learning.calibrate import best_temperature
from neocog.learning.checkpoint import Run, RunningMean, id_of
from neocog.learning.drawing.marks import negatives, variants
from neocog.learning.mix import Mix
from neocog.learning.settings import Settings
from neocog.learning.trainable import Trainable
from neocog.network.decision import labels_of
from neocog.network.model import Model
from neocog.network.spec import LABELS, REJECT

Figures = dict[str, float]

# rates of the kinds of parameters, as shares of the rate
_SHARES = {"direction": 1.0, "c_log": 0.3, "length": 0.3, "threshold": 0.3, "profiles": 0.1,
           "temperature": 0.3}  # fmt: skip
_WARM_UP = 0.05  # share of the time in which the rate rises
_SOFT = 0.02  # width of the smooth maximum over planes and places
_CLIP = 1.0  # longest gradient
_OFTEN = 4  # variants, and marks, for a digit at most
_SOURCE = 20_000  # digits of a mix that marks are made of
_EVALUATED = 500  # digits at a time that are validated


class Batches:
    """Batches of digits, variants and marks, which follow from the seed and the number of a step alone."""

    def __init__(
        self, mix: Mix, validation: Mix, settings: Settings, device: Any, *, marks: bool, jobs: int
    ) -> None:
        self._settings, self._device, self.validation, self.count = settings, device, validation, len(mix)
        tensor = partial(torch.tensor, device=device)
        values: tuple[NDArray[Any], ...] = (mix.images, mix.labels, np.array(mix.sizes), mix.shares)
        values += (np.cumsum((0, *mix.sizes))[:-1],)
        self._digits, self._labels, self._sizes, self._shares, self._first = map(tensor, values)
        self.shown, self._per_step = tensor(validation.images), settings.batch
        # what is drawn once, before learning, follows from the digits, pool and seed alone: digits by other
        # pens, as scanners and cameras hand them over, and marks that are none
        seed, most = settings.seed, min(settings.pool, _OFTEN * len(mix))
        seen, told = variants(most if settings.variants else 0, mix, seed=seed, jobs=jobs)
        source = mix.some(min(_SOURCE, len(mix)), seed=seed) if len(mix.hands) > 1 else mix
        count = most if marks and settings.marks else 0
        none = negatives(count, source.images, source.labels, seed=seed, jobs=jobs)[0]
        pools = (seen, told, settings.variants), (none, np.full(len(none), REJECT), settings.marks)
        #: pictures and labels of each pool, and how many of them a step shows
        self._pools: list[tuple[Tensor, Tensor, int]] = []
        for pictures, labels, share in pools:
            if len(pictures):
                count = round(share * settings.batch)
                self._per_step -= count
                self._pools.append((tensor(pictures), tensor(labels), count))
        if len(mix) < self._per_step:
            wanted = f"a step needs {self._per_step}; give more digits or a smaller batch"
            raise UsageError(f"got {len(mix)} digits, {wanted}")
        self.epoch_steps = len(mix) // self._per_step  # that show as many digits as there are
        self._generator = torch.Generator(device=device)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return pictures (B, 65, 65), changed, and labels (B,) of a step."""
        settings, generator = self._settings, self._generator
        generator.manual_seed(settings.seed * 1_000_003 + step)
        count, dice = self._per_step, {"generator": generator}
        which = torch.multinomial(self._shares, count, replacement=True, **dice)
        part = torch.rand(count, device=self._device, dtype=torch.float64, **dice)
        chosen = self._first[which] + (part * self._sizes[which]).long()
        pictures, labels = [self._digits[chosen]], [self._labels[chosen]]
        for pool, own, count in self._pools:
            drawn = torch.randint(len(pool), (count,), device=self._device, **dice)
            pictures.append(pool[drawn])
            labels.append(own[drawn])
        return augment(torch.cat(pictures), settings.augmentation, generator), torch.cat(labels)


class Finetuner:
    """One run of gradient learning of ``mix`` from ``start``, measured on ``validation``, kept in ``folder``.
    UsageError if settings make no sense, digits are fewer than a batch, or the checkpoint is of another run.
    """

    def __init__(
        self, start: Model, mix: Mix, validation: Mix, settings: Settings, *, device: str = "cpu",
        folder: str | Path | None = None, report: Callable[[Figures], None] | None = None, jobs: int = 1,
    ) -> None:  # fmt: skip
        settings.check()
        self.settings, self.device = settings, torch.device(device)
        self._start, self._report = start, report or (lambda figures: None)
        on_gpu = self.device.type == "cuda"
        torch.backends.cudnn.benchmark = on_gpu
        self.network = Trainable(start, channels_last=on_gpu).to(self.device).train()
        self.mean = copy.deepcopy(self.network).eval().requires_grad_(False)
        self._following = RunningMean(self.mean, self.network, settings.mean)
        named = list(self.network.named_parameters())
        groups = [{"params": [value for name, value in named if name.endswith(kind)], "share": share}
                  for kind, share in _SHARES.items()]  # fmt: skip
        self._optimizer = torch.optim.Adam(groups, lr=settings.rate, betas=(0.9, 0.99))
        marks = start.classes > LABELS
        self.batches = Batches(mix, validation, settings, self.device, marks=marks, jobs=jobs)
        self._lean = torch.zeros(start.classes, device=self.device)
        self._lean[LABELS:] = settings.lean
        origin = {"start": id_of(start), "digits": mix.digest, "validation": validation.digest}
        origin |= {name: value for name, value in asdict(settings).items() if name != "save_every"}
        # accuracy and loss are the validation's, of the epoch that is kept
        first = {"step": 0, "seconds": 0.0, "finished": False, "kept_accuracy": -1.0, "kept_loss": 0.0}
        networks = {"network": self.network, "mean": self.mean}
        file = None if folder is None else Path(folder) / "checkpoint.safetensors"
        self._run = Run(file, origin, networks, self._optimizer, **first)
        self.position, self.curves = self._run.state, self._run.state.curves
        self._kept = self._run.others.get("kept") or copy.deepcopy(self.mean.state_dict())

    def run(self) -> Model:
        """Learn to the end and return the model; of a finished run, return its model."""
        place, settings, epoch = self.position, self.settings, self.batches.epoch_steps
        begun = time.monotonic() - place.seconds
        losses: list[Tensor] = []
        _tf32(True)
        while not place.finished:
            losses.append(self._step(self._passed()))
            place.step += 1
            place.seconds = time.monotonic() - begun
            place.finished = self._passed() >= 1
            if place.step % epoch == 0 or place.finished:
                self._end_epoch(losses)
                losses.clear()
            elif place.step % 20 == 0:  # the clock must not run ahead of the GPU
                float(losses[-1])
            if place.step % settings.save_every == 0 or place.finished:
                self._run.save(kept=self._kept)
        return self.model()

    def model(self) -> Model:
        """Return the network of the best epoch (with ``last`` of the last), its probabilities calibrated."""
        kept, batches, step = copy.deepcopy(self.mean), self.batches, self.position.step
        kept.load_state_dict(self._kept)
        _tf32(False)
        scores = self._scores(kept, batches.shown)
        learned = {k: v for k, v in asdict(self.settings).items() if k not in ("minutes", "save_every")}
        learned |= {"epochs": round(step / batches.epoch_steps, 1), "steps": step}
        learned |= {"pictures": batches.count, "start": id_of(self._start)}
        before = self._start.card
        if "finetuning" in before:
            learned["before"] = before["finetuning"]
        card = {"recipe": before["recipe"]} if "recipe" in before else {}
        accuracy = round(_accuracy(scores, batches.validation), 5)
        card |= {"finetuning": learned, "validation_accuracy": accuracy}
        temperature = best_temperature(scores, batches.validation)
        model: Model = kept.model()
        return replace(model, temperature=temperature, card=card, version="")

    def _passed(self) -> float:  # share of the run that is over
        place, settings = self.position, self.settings
        if settings.minutes is not None:
            return float(place.seconds / (60 * settings.minutes))
        return float(place.step / max(1, round(settings.epochs * self.batches.epoch_steps)))

    def _step(self, passed: float) -> Tensor:
        settings, place = self.settings, self.position
        if passed < _WARM_UP:  # the rate goes up in a line, then down as a cosine
            rate = settings.rate * max(passed / _WARM_UP, 0.02)
        else:
            rate = settings.rate * (0.5 * (1 + math.cos(math.pi * (passed - _WARM_UP) / (1 - _WARM_UP))))
        self._run.set_rate(rate)
        u0, labels = self.batches.batch(place.step)
        responses = self.network(u0, soft=_SOFT if passed < settings.soft_share else 0.0)
        logits = responses / self.network.temperature.exp() + self._lean
        wrong = functional.cross_entropy(logits, labels, label_smoothing=settings.smoothing, reduction="none")
        loss = wrong.mean()
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), _CLIP)
        self._optimizer.step()
        self.network.constrain()
        self._following.follow(place.step)
        return loss.detach()

    def _end_epoch(self, steps: list[Tensor]) -> None:
        place, batches, mean = self.position, self.batches, float(torch.stack(steps).mean())
        if not math.isfinite(mean):
            instead = f"start again with a rate below {self.settings.rate}"
            raise NeocogError(f"the loss is {mean} near step {place.step}; {instead}")
        scores = self._scores(self.mean, batches.shown)
        accuracy = _accuracy(scores, batches.validation)
        logits = torch.from_numpy(scores) / float(self.mean.temperature.exp())
        labels = torch.from_numpy(batches.validation.labels)
        losses = functional.cross_entropy(logits, labels, reduction="none").numpy()
        loss = float(np.mean(batches.validation.means(losses)))
        figures = {
            "epoch": place.step / batches.epoch_steps, "step": place.step, "seconds": round(place.seconds, 1),
            "rate": self._optimizer.param_groups[0]["lr"], "loss": mean, "validation_loss": loss,
            "validation_accuracy": accuracy,
        }  # fmt: skip
        self.curves.append(figures)
        better = (accuracy, -loss) > (place.kept_accuracy, -place.kept_loss)
        if better or self.settings.last:
            place.kept_accuracy, place.kept_loss = accuracy, loss
            self._kept = copy.deepcopy(self.mean.state_dict())
        self._report(figures)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _scores(self, network: Any, digits: Tensor) -> NDArray[np.float32]:
        parts = [network(network.enlarged(part)).cpu() for part in digits.split(_EVALUATED)]
        return np.asarray(torch.cat(parts).numpy())


def _tf32(allowed: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed


def _accuracy(scores: NDArray[np.float32], validation: Mix) -> float:
    return float(np.mean(validation.means(labels_of(scores) == validation.labels)))
