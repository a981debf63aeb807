"""The line reader learns: the ten layers along a strip, a small head, and CTC, from drawn and real lines.

A run follows from its settings and seed: lines come in chunks, each drawn from its own seed by whichever
process; step n chooses from the last :attr:`LineTraining.kept` chunks before it.
"""

import math
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from neocog.errors import UsageError
from neocog.files import check_output
from neocog.learning import augment
from neocog.learning.calibrate import line_bias, line_temperature
from neocog.learning.checkpoint import Run, worded
from neocog.learning.drawing.bank import CHUNK, WIDTHS, Bank, by_width, drawers, drawn_lines, prepare
from neocog.learning.drawing.fields import Rng
from neocog.learning.drawing.hands import THANKS, Line, load_hands, own_lines, real_lines
from neocog.learning.drawing.line import ROWS as DRAWN
from neocog.learning.trainable import Layers, double
from neocog.network.ctc import BLANK, best_path
from neocog.network.line_engine import LineEngine
from neocog.network.lines import ALPHABET, BESIDE, MARGIN, ROWS, Head, LineModel, columns, load_lines
from neocog.network.model import Model, load_model
from neocog.network.registry import find_model, kind_of
from neocog.network.spec import REJECT
from neocog.text import edit_distance

_CODES = {char: k for k, char in enumerate(ALPHABET)}
# of the steps, by width
_SHARES = np.array([0.07, 0.11, 0.15, 0.15, 0.13, 0.12, 0.09, 0.06, 0.05, 0.03, 0.025, 0.015])
_READ = 0.7  # CTC loss of a text that a run's start reads right
_MIN_P = 0.5  # from which a number is printed: what `experiments.lines.risk` says of the model that ships
HELD_SEED, _BIAS_SEED = 4_000_000_000, 4_050_000_000


@dataclass(frozen=True, slots=True)
class LineTraining:
    seed: int = 0
    steps: int = 20_000
    columns: int = 60_000  #: of a step's strips together
    rate: float = 2e-3  #: largest rate of AdamW
    core: float = 15.0  #: times that, for what the ten layers had learned before
    fresh: float = 160.0  #: new lines a step
    kept: int = 160  #: chunks of 240 lines to choose from
    real: float = 0.12  #: share of real lines
    inner: int = 160  #: channels of the head
    mixed: bool = False  #: products of US2 .. US4 in bfloat16
    validation: int = 512  #: held-back lines that a run is measured on
    held: float = 0.0  #: weight of the divergence from the start's scores on lines that the start reads right


class LineNetwork(Layers):
    """Strips (B, 1, 48, w), ink 1 -> scores of characters and blank (B, 25, columns)."""

    start = ""  #: id of the model that it begins with
    folded = False  #: the head's normalisations are those of a file, none: `normalise` mends that

    def __init__(self, digits: Model, *, inner: int = 160, mixed: bool = False) -> None:
        if digits.psi != "sqrt":
            raise UsageError(f"psi {digits.psi} does not learn lines; start from a model of preset neocog")
        super().__init__(digits, (2, 2, 1))
        self.digits, self.mixed = digits, mixed
        planes, count = len(digits.labels), BLANK + 1
        own = torch.zeros(count, planes)
        labels = np.where(digits.labels == REJECT, BLANK, digits.labels)
        own[torch.from_numpy(labels), torch.arange(planes)] = 8.0
        self.own = nn.Parameter(own + 0.05 * torch.randn(count, planes))
        self.bias = nn.Parameter(torch.zeros(count))
        self.bias.data[BLANK] = 2.0
        self.head = nn.Sequential(
            nn.Conv1d(2 * planes, inner, 5, padding=2), nn.BatchNorm1d(inner), nn.ReLU(),
            nn.Conv1d(inner, inner, 5, padding=2), nn.BatchNorm1d(inner), nn.ReLU(),
            nn.Dropout(0.1), nn.Conv1d(inner, count, 1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        y, mean = self.uc4(x)
        z = torch.einsum("lk,bkt->blt", self.own, y) + self.bias[:, None]
        return z + self.head(torch.cat([y, mean], 1))

    def uc4(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the strongest and the mean response of each column, (B, K4, columns)."""
        u = functional.pad(x[:, 0], (MARGIN, MARGIN + 1, MARGIN, MARGIN + 1)).clamp(0, 1)
        u = self.contrast(u)
        for k, c in enumerate(self.c):
            u = c(self.s[k](u.contiguous(memory_format=torch.channels_last), mixed=self.mixed and k > 0))
        # a window of US4 takes every second column, so even and odd columns are apart
        columns = u.shape[3]
        u = functional.pad(u, (BESIDE, BESIDE + columns % 2, 0, 0))
        apart = torch.cat([u[..., 0::2], u[..., 1::2]]).contiguous(memory_format=torch.channels_last)
        us4 = torch.stack(self.s[3](apart, mixed=self.mixed).chunk(2), -1).flatten(3)[..., :columns]
        return us4.amax(2), us4.mean(2)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def take(self, model: LineModel) -> None:
        """Take the head of a model, its normalisations folded in."""
        head, convs = model.head, (self.head[0], self.head[3], self.head[7])
        mine = (self.own, self.bias, *(conv.weight for conv in convs), *(conv.bias for conv in convs))
        for own, value in zip(mine, (head.own, head.bias, *head.weights, *head.biases), strict=True):
            own.copy_(torch.from_numpy(value))
        self.folded = True

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def normalise(self, x: Tensor) -> None:
        """Normalise a head that was folded by what it gives for strips; scores stay the same."""
        y = torch.cat(self.uc4(x), 1)
        for conv, norm in ((self.head[0], self.head[1]), (self.head[3], self.head[4])):
            y = conv(y)
            mean, variance = y.mean((0, 2)), y.var((0, 2), unbiased=False)
            norm.bias.copy_(mean)
            norm.running_mean.copy_(mean)
            norm.weight.copy_((variance + norm.eps).sqrt())
            norm.running_var.copy_(variance)
            y = y.relu()
        self.folded = False

    def line_model(self, name: str) -> LineModel:
        """The network as it is now as a model for every engine; batch normalisations are folded."""
        layers = self.learned(self.digits, name=name, card={}, version="")
        weights, biases = [], []
        for conv, norm in ((self.head[0], self.head[1]), (self.head[3], self.head[4]), (self.head[7], None)):
            w, b = map(double, (conv.weight, conv.bias))
            if norm is not None:
                gain = double(norm.weight) / np.sqrt(double(norm.running_var) + norm.eps)
                w, b = w * gain[:, None, None], (b - double(norm.running_mean)) * gain + double(norm.bias)
            weights.append(w.astype(np.float32))
            biases.append(b.astype(np.float32))
        own, bias = (p.detach().cpu().numpy() for p in (self.own, self.bias))
        return LineModel(layers, Head(own, bias, tuple(weights), tuple(biases)))


Seen = tuple[Tensor, NDArray[np.int64], list[str]]  #: strips (B, 1, rows, w), their widths and texts


def batch_of(lines: list[Line], device: str) -> Seen:
    """Strips (B, 1, 64, w) float32 on a device, their last columns repeated, their widths, and texts."""
    widths = np.array([strip.shape[1] for strip, _ in lines])
    block = [np.pad(strip, ((0, 0), (0, widths.max() - strip.shape[1])), mode="edge") for strip, _ in lines]
    whole = torch.from_numpy(np.stack(block)[:, None])
    whole = whole.pin_memory() if device.startswith("cuda") else whole
    return whole.to(device, non_blocking=True).float(), widths, [text for _, text in lines]


class LineRun:
    """A run of learning; ``folder`` keeps it, and it goes on from there."""

    part, parts = 0, 1  #: of each step's strips

    def __init__(
        self, network: LineNetwork, data: Path, folder: Path, settings: LineTraining,
        *, device: str = "cpu", workers: int = 2, tell: Callable[[str], None] = print,
    ) -> None:  # fmt: skip
        hands, real, own = load_hands(data), real_lines(data, DRAWN), own_lines(data, DRAWN)
        if long := len(own) - sum(map(len, by_width(own))):
            tell(f"{long} of {len(own)} own lines are wider than {WIDTHS[-1]} columns: left out")
        check_output(folder, "--checkpoints", folder=True, make=True)
        self.settings, self.folder, self.tell, self.place = settings, folder, tell, device
        self.data, self.workers, self.real = data, workers, by_width(real + own)
        core = [p for layer in (*network.s, *network.c) for p in layer.parameters()]
        cuda = device.startswith("cuda")
        others = [network.own, network.bias, *network.head.parameters()]
        groups = [{"params": others, "share": 1.0}, {"params": core, "share": settings.core}]
        if cuda:
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        self.network = network.to(device)
        # what a run is held to: the start, also when it goes on
        self.begun = deepcopy(network).eval().requires_grad_(False) if settings.held else None
        self.optimiser = torch.optim.AdamW(groups, lr=settings.rate, weight_decay=0.0, fused=cuda)
        learned_from = hands.counts(len(real)) | ({"own": len(own)} if own else {})
        self.told = asdict(settings) | {"start": network.start, "learned_from": learned_from}
        networks = {"network": self.network}
        self.run = Run(folder / "run.safetensors", self.told, networks, self.optimiser, step=0)
        self.step: int = self.run.state.step
        self.curves: list[dict[str, float]] = self.run.state.curves
        losses = self.run.others.get("losses", {}).get("all", ())
        self.losses: list[Tensor] = [loss.to(device) for loss in losses]  # since the last point of the curves
        network.folded &= not self.run.resumed

    def keep(self) -> None:
        self.run.state.step = self.step
        self.run.save(losses={"all": torch.stack(self.losses)} if self.losses else {})

    def learn(self, *, minutes: float | None = None) -> bool:
        """Learn to the last step, or for so long; whether it was the last. The run is kept meanwhile."""
        settings, begin = self.settings, time.monotonic()
        if self.step >= settings.steps:
            instead = "to continue from it, give --start MODEL and another --checkpoints"
            self.tell(f"the run in {self.folder} has finished and this is its model; {instead}")
            return True
        with drawers(self.workers, prepare, self.data) as pool:
            seed, due = settings.seed + 10**6 * self.part, self._chunks(self.step)
            bank = Bank(pool, seed, kept=settings.kept, ahead=2 * self.workers, upto=due)
            held = self.held
            self.tell(f"lines are drawn, {time.monotonic() - begin:.0f} s")
            if self.network.folded:
                self.network.normalise(self._batch(bank.lines())[0])
            every = max(1, settings.steps // 40)
            since, done = time.monotonic(), 0
            while self.step < settings.steps and not self.over(begin, minutes):
                bank.until(self._chunks(self.step))
                self.losses.append(self._learn_from(bank.lines()))
                self.step, done = self.step + 1, done + 1
                if self.step % every == 0 or self.step == settings.steps:
                    values = {"step": float(self.step), "loss": float(torch.stack(self.losses).mean())}
                    spent = 1e3 * (time.monotonic() - since) / done
                    if self.step % (4 * every) == 0 or self.step == settings.steps:
                        values |= self.score(held)
                    self.curves.append(values)
                    self.tell(f"{worded(values)} {spent:.0f} ms a step")
                    self.losses, since, done = [], time.monotonic(), 0
                    self.keep()
        self.keep()
        return self.step >= settings.steps

    def over(self, begin: float, minutes: float | None) -> bool:
        return minutes is not None and time.monotonic() - begin >= 60 * minutes

    def _chunks(self, step: int) -> int:  # that are drawn before a step
        return max(1, self.settings.kept // 4) + int(step * self.settings.fresh / CHUNK)

    def _learn_from(self, drawn: list[list[Line]]) -> Tensor:
        settings, done = self.settings, self.step / self.settings.steps
        share = min(1.0, self.step / min(300, 0.05 * settings.steps + 1) + 0.01)
        rate = settings.rate * share * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done)))
        self.run.set_rate(rate)
        x, wide, texts = self._batch(drawn)
        # CTC of each line over its characters and two more
        lp = self.network(x).float().log_softmax(1)
        codes = torch.tensor([_CODES[c] for text in texts for c in text], device=lp.device)
        lengths = torch.tensor([len(text) for text in texts])  # both lengths stay on the CPU: no waiting
        counted = torch.from_numpy(columns(wide).clip(max=lp.shape[2]))

        def ctc(lp: Tensor, *, finite: bool) -> Tensor:  # a text that does not fit: 0, or infinite
            given = lp.permute(2, 0, 1), codes, counted, lengths, BLANK
            return functional.ctc_loss(*given, reduction="none", zero_infinity=finite)

        each = ctc(lp, finite=True)
        if self.begun:
            with torch.no_grad():
                old = self.begun(x).float().log_softmax(1)
            apart = functional.kl_div(lp, old, reduction="none", log_target=True).sum(1)
            within = (torch.arange(lp.shape[2]) < counted[:, None]).to(lp.device)
            each = each + settings.held * (ctc(old, finite=False) < _READ) * (apart * within).sum(1)
        loss = (each / (lengths + 2.0).to(lp.device, non_blocking=True)).mean()
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        for p in self.network.parameters():
            if p.grad is not None:
                p.grad.nan_to_num_(0.0, 0.0, 0.0)
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0, foreach=True)
        self.optimiser.step()
        self.network.constrain()
        return loss.detach()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _batch(self, drawn: list[list[Line]]) -> Seen:
        """Strips of this step, all of one class of widths; torch's generator begins anew."""
        settings, real = self.settings, self.real
        rng = np.random.default_rng([settings.seed, self.step, 11])
        some = [len(lines) > 0 for lines in drawn]
        k = int(rng.choice(len(WIDTHS), p=(_SHARES * some) / (_SHARES * some).sum()))
        rng = rng.spawn(self.parts)[self.part]
        torch.manual_seed(int(rng.integers(2**62)))
        count = max(8, settings.columns // self.parts // WIDTHS[k] // 8 * 8)
        many = round(count * settings.real) if len(real[k]) > 20 else 0
        lines = [drawn[k][i] for i in rng.integers(0, len(drawn[k]), count - many)]
        lines += [real[k][i] for i in rng.integers(0, len(real[k]), many)] if many else []
        return seen(lines, WIDTHS[k] + 16, self.place, rng)  # type: ignore[no-any-return]

    @cached_property
    def held(self) -> list[Seen]:
        """Strips of held-back hands, seen once."""
        return self._held(self.settings.validation, HELD_SEED)

    def _held(self, count: int, seed: int, **options: Any) -> list[Seen]:
        lines = drawn_lines(load_hands(self.data, held=True), count, seed=seed, **options)
        lines.sort(key=lambda line: line[0].shape[1])
        rng = np.random.default_rng(5)
        torch.manual_seed(5)
        parts = [lines[at : at + 64] for at in range(0, len(lines), 64)]
        return [seen(part, part[-1][0].shape[1] * ROWS // DRAWN + 48, self.place, rng) for part in parts]

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def score(self, held: list[Seen]) -> dict[str, float]:
        """Share of held-back lines read exactly, and of their characters wrong, by the best path."""
        self.network.eval()
        right = wrong = count = total = 0
        for x, widths, texts in held:
            scores = self.network(x).float().transpose(1, 2).cpu().numpy()
            for z, width, text in zip(scores, widths.tolist(), texts, strict=True):
                got = best_path(z[: columns(width)])
                right, count = right + (got == text), count + 1
                wrong, total = wrong + edit_distance(text, got), total + len(text)
        self.network.train()
        return {"exact": right / max(count, 1), "cer": wrong / max(total, 1)}

    def model(self, name: str) -> LineModel:
        """Return what was learned; its bias and its probabilities hold on held-back lines."""
        model: LineModel = self.network.cpu().line_model(name)

        def read(held: list[Seen]) -> tuple[list[NDArray[np.float32]], list[str]]:
            strips = [ink[0, :, : max(16, w)].cpu().numpy() for x, widths, _ in held
                      for ink, w in zip(x, widths, strict=True)]  # fmt: skip
            return LineEngine(model).likelihoods(strips), [text for *_, texts in held for text in texts]

        bias = line_bias(*read(self._held(6 * self.settings.validation, _BIAS_SEED, negatives=False)))
        model = replace(model, head=replace(model.head, bias=model.head.bias + bias))
        logp, texts = read(self.held)
        temperature = line_temperature(logp, texts)
        learned_from = self.told["learned_from"]
        card = {
            "recipe": "lines", "seed": self.settings.seed, "start": self.network.start, "steps": self.step,
            "data": f"{'; '.join(THANKS[name] for name in learned_from)}. Kept apart: the writers, styles "
                    "and pages that neocog/learning/drawing/held.json names",
            "learned_from": learned_from, "training": asdict(self.settings), "reading": {"min_p": _MIN_P},
            "validation": {name: self.curves[-1][name] for name in ("exact", "cer")} | {"lines": len(texts)},
        }  # fmt: skip
        return replace(model, temperature=temperature, card=card)


@torch.no_grad()  # type: ignore[untyped-decorator]
def seen(lines: list[Line], columns: int, device: str, rng: Rng) -> Seen:
    """Strips (B, 1, 48, columns) of lines as the reader sees them, their widths and texts."""
    x, widths, texts = batch_of(lines, device)
    x, wide = augment.warped(x, widths, columns, rng)
    return augment.strips(x, wide), wide, texts


def start(name: str, settings: LineTraining) -> LineNetwork:
    """A network that begins with a digit or a line model; the same seed begins with the same weights."""
    torch.manual_seed(settings.seed)
    lines = load_lines(name) if kind_of(find_model(name)) == "lines" else None
    if settings.held and not lines:
        raise UsageError(f"held {settings.held:g}: {name} is a model of digits; start from one of lines")
    digits, inner = (lines.digits, lines.head.biases[0].size) if lines else (load_model(name), settings.inner)
    network = LineNetwork(digits, inner=inner, mixed=settings.mixed)
    if lines:
        network.take(lines)
    network.start = (lines or digits).id
    return network
