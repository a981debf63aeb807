"""Training of a finder: pages are drawn while others are learned from, hard ones again.

A run follows from its settings: pages come in chunks, each a list of seeds; a chunk is gone
through ``passes`` times in an order of its own, and seeds of its worst pages are drawn again, with
another variation, in the chunk after the next. Between two chunks the run is kept on disk, so that
a run that was stopped goes on to the same bytes (on a CPU with the same number of threads). With
``seconds`` it goes by the clock instead, and two runs differ.
"""

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neocog.errors import UsageError
from neocog.files import atomic_write
from neocog.learning.checkpoint import Parts, check_same, load_checkpoint, save_checkpoint
from neocog.learning.finder.boxes import compared, shares
from neocog.learning.finder.networks import ConvNorm, FinderNetwork, normalised
from neocog.learning.finder.targets import Targets, loss, targets
from neocog.learning.teacher.page import NO_MARK, Pages, drawn, order, page_pool
from neocog.network.registry import kind_of
from neocog.text import to_json
from neocog.vision.finder import FinderSettings, decode, merged
from neocog.vision.finder_model import load_finder

Tensor = Any
Told = tuple[Tensor, Tensor]
"""Loss of a batch, and how wrong each of its pages is."""

HELD_SEED = 3_000_000_000
"""First seed of the pages for validation; no run learns from seeds from here on."""

_HARD = 0.04, 0.24  # of a chunk's pages, worst first, drawn again; the very worst nobody reads
_AGAIN = 2  # times that a seed is drawn again
_INVERTED = 0.25  # of pages, dark and bright exchanged as they are learned from
_AVERAGE = 0.998  # of the weights before, in the running mean that is shipped
_TRIED = 20  # replays of each way to compute a step
_PAGES_TO_UNFOLD = 256
_WARM = 0.02  # of the run, in which the rate rises


@dataclass(frozen=True, slots=True)
class FinderTraining:
    seed: int = 0
    chunk: int = 4096  #: pages drawn at a time
    chunks: int = 150
    passes: int = 24  #: times that a chunk is gone through
    batch: int = 96  #: pages a step
    rate: float = 3e-3  #: largest rate of AdamW
    decay: float = 0.02  #: its weight decay
    side: int = 256  #: rows and columns of a page
    seconds: float | None = None  #: learn for so long instead of ``chunks``
    validation: int = 512  #: held-back pages that a run is measured on
    mixed: bool = False  #: whether convolutions are computed in bfloat16
    largest: float = 96.0  #: longer side of the largest digits asked of one size, in pixels
    #: checkpoint of another run, or a finder's file, whose weights this one begins with
    start: str | None = None


def train_finder(
    bank: Path,
    folder: Path,
    settings: FinderTraining,
    *,
    workers: int = 2,
    device: str = "cpu",
    tell: Callable[[str], None] = print,
) -> FinderNetwork:
    """Train a finder on pages of a ``bank``'s file, or go on with the run that ``folder`` keeps.

    ``workers`` processes draw the pages; they change nothing of what is learned. Returns the running mean of
    the weights, on the CPU. UsageError if the folder holds a run with other settings or another bank;
    InputError if the bank cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(settings.seed)
    if device.startswith("cuda"):
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    with page_pool(bank, workers) as pool:
        run = _Run(bank, folder, settings, device, tell)
        run.learn(pool)
    average: FinderNetwork = run.average.cpu().eval()
    return average


class _Run:
    def __init__(
        self, bank: Path, folder: Path, settings: FinderTraining, device: str, tell: Callable[[str], None]
    ) -> None:
        self.settings, self.folder, self.place, self.tell = settings, folder, device, tell
        self.network, self.average = (
            FinderNetwork().to(device, memory_format=torch.channels_last) for _ in range(2)
        )
        self.average.load_state_dict(self.network.state_dict())
        weights = list(self.network.parameters())
        groups = [
            {"params": [p for p in weights if p.ndim >= 2], "weight_decay": settings.decay},
            {"params": [p for p in weights if p.ndim < 2], "weight_decay": 0.0},
        ]
        cuda = device.startswith("cuda")
        rate = torch.tensor(settings.rate, device=device) if cuda else settings.rate
        self.optimiser = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.99), capturable=cuda)
        self.told = asdict(settings) | {"bank": hashlib.sha256(bank.read_bytes()).hexdigest()}
        self.number, self.steps, self.used = 0, 0, 0.0
        self.curves: list[dict[str, float]] = []
        self.hard: list[list[list[int]]] = [[], []]
        self.learner = self.network
        self.graph: _Graph | None = None
        self.no_graph = not cuda
        self.folded = False
        file = folder / "run.safetensors"
        if file.is_file():
            parts, state = load_checkpoint(file)
            had = asdict(FinderTraining()) | state["settings"]  # older runs had fewer settings
            check_same(file, had, self.told)
            self._take_weights(parts)
            values: dict[int, dict[str, Tensor]] = {}
            for key, value in parts["optimiser"].items():
                number, _, name = key.partition(".")
                values.setdefault(int(number), {})[name] = value
            self.optimiser.load_state_dict(self.optimiser.state_dict() | {"state": values})
            self.number, self.steps, self.used = state["number"], state["steps"], state["used"]
            self.curves, self.hard = state["curves"], state["hard"]
        elif settings.start is not None and kind_of(Path(settings.start)) == "finder":
            try:  # its normalisations are folded: `learn` mends that
                self.network.take(load_finder(settings.start).tensors)
            except ValueError as error:
                raise UsageError(f"--start {settings.start}: {error}") from None
            self.folded = True
        elif settings.start is not None:
            self._take_weights(load_checkpoint(Path(settings.start))[0])
        self.begin = time.monotonic() - self.used
        self.pairs = [
            [v for v in network.state_dict().values() if v.is_floating_point()]
            for network in (self.average, self.network)
        ]

    def _take_weights(self, parts: Parts) -> None:
        self.network.load_state_dict(parts["network"])
        self.average.load_state_dict(parts["average"])

    def _keep(self, *, curves_alone: bool = False) -> None:
        with atomic_write(self.folder / "curves.json") as stream:
            stream.write(to_json(self.curves, indent=1, sort_keys=True).encode())
        if curves_alone:
            return
        parts = {"network": self.network.state_dict(), "average": self.average.state_dict()}
        adam = self.optimiser.state_dict()["state"].items()
        parts["optimiser"] = {f"{key}.{name}": v for key, own in adam for name, v in own.items()}
        names = ("number", "steps", "used", "curves", "hard")
        state = {"settings": self.told} | {name: getattr(self, name) for name in names}
        save_checkpoint(self.folder / "run.safetensors", parts, state)

    def learn(self, pool: ProcessPoolExecutor) -> None:
        settings, side = self.settings, self.settings.side
        kept = np.arange(HELD_SEED, HELD_SEED + settings.validation)
        kept = np.stack([kept, np.zeros_like(kept)], axis=1)
        validation = order(pool, kept, side=side, held=True)
        coming = [order(pool, self._seeds(self.number + k), side=side) for k in (0, 1)]
        if self.folded:
            x = self._normalised(drawn(coming[0]), slice(0, _PAGES_TO_UNFOLD))
            self.network.normalise(x.contiguous(memory_format=torch.channels_last))
            self.average.load_state_dict(self.network.state_dict())
        while self._progress() < 1:
            pages = drawn(coming.pop(0))
            wrong, mean = self._go_through(pages, coming[0])
            first, last = (int(share * len(pages)) for share in _HARD)
            worst = pages.seeds[np.argsort(-wrong, kind="stable")[first:last]].tolist()
            self.hard[self.number % 2] = [[seed, again + 1] for seed, again in worst if again < _AGAIN]
            self.number += 1
            coming.append(order(pool, self._seeds(self.number + 1), side=side))
            self.used = time.monotonic() - self.begin if settings.seconds else 0.0
            measured = {"chunk": float(self.number), "steps": float(self.steps), "loss": mean}
            if self.number % 8 == 0:
                measured |= self._score(drawn(validation))
            self.curves.append(measured)
            self._keep()
            self.tell(f"{_line(measured)} {time.monotonic() - self.begin:.0f} s")
        last = self._score(drawn(validation))
        self.curves.append({"chunk": float(self.number), "steps": float(self.steps)} | last)
        self._keep(curves_alone=True)
        self.tell(_line(last))

    def _seeds(self, number: int) -> NDArray[np.int64]:
        """Seeds and variations of a chunk: the hard ones of the chunk before the last, new ones."""
        hard, settings = self.hard[number % 2], self.settings
        first = (settings.seed * 1_000_003 + number * settings.chunk) % 2_000_000_000
        new = [[first + k, 0] for k in range(settings.chunk - len(hard))]
        return np.array(new + hard, np.int64).reshape(-1, 2)

    def _progress(self) -> float:
        settings = self.settings
        if settings.seconds:
            return (time.monotonic() - self.begin) / settings.seconds
        each = settings.passes * math.ceil(settings.chunk / settings.batch)
        return self.steps / max(each * settings.chunks, 1)

    def _go_through(self, pages: Pages, coming: list[Future[Pages]]) -> tuple[NDArray[np.float32], float]:
        """Learn from a chunk; return how wrong each page was, and the mean loss."""
        maps, wanted = self._prepared(pages)
        settings = self.settings
        told: list[Tensor] = []
        first: list[tuple[NDArray[np.int64], Tensor]] = []
        rng = np.random.default_rng([settings.seed, self.number, 7])
        for turn in range(settings.passes):
            ready = all(part.done() for part in coming) or self._progress() >= 1
            if turn and settings.seconds and ready:
                break
            mixed = rng.permutation(len(pages))
            batches = [
                np.sort(mixed[at : at + settings.batch]) for at in range(0, len(mixed), settings.batch)
            ]
            flips = np.where(rng.random(len(mixed)) < _INVERTED, -1, 1).astype(np.float32)
            # one copy a turn: each copy to a GPU waits until the GPU has finished its work
            chosen = torch.from_numpy(np.concatenate(batches)).to(self.place)
            signs = torch.from_numpy(flips).to(self.place)
            parts = (part.split(settings.batch) for part in (chosen, signs))
            for index, some, flip in zip(batches, *parts, strict=True):
                asked = Targets(*(each[some] for each in wanted))
                total, by_page = self._step(maps[some], asked, flip)
                told.append(total)
                if turn == 0:
                    first.append((index, by_page))
        wrong = np.zeros(len(pages), np.float32)
        for index, by_page in first:
            wrong[index] = by_page.float().cpu().numpy()
        return wrong, float(torch.stack(told).mean())

    def _prepared(self, pages: Pages) -> tuple[Tensor, Targets]:
        """Normalised pictures (N, 1, side, side), 0 beyond their extents, and what is wanted."""
        maps, wanted, settings = [], [], self.settings
        for at in range(0, len(pages), settings.batch):
            part = slice(at, at + settings.batch)
            x = self._normalised(pages, part)
            maps.append(x.half() if settings.mixed else x)
            most = int((pages.marks[part, :, 0] > NO_MARK).sum(1).max(initial=1))
            marks = torch.from_numpy(pages.marks[part, :most]).to(self.place)
            wanted.append(targets(marks, settings.side, settings.largest))
        return torch.cat(maps), Targets(*map(torch.cat, zip(*wanted, strict=True)))

    def _normalised(self, pages: Pages, part: slice) -> Tensor:
        images, extents = (torch.from_numpy(v[part]) for v in (pages.images, pages.extents))
        return normalised(images.to(self.place), extents.to(self.place))

    def _step(self, maps: Tensor, wanted: Targets, flip: Tensor) -> Told:
        """One step; on a GPU, where so small a network is mostly its launches, as a graph."""
        done = min(self._progress(), 1.0)  # the rate goes up at first, then down along a cosine
        share = min(1.0, done / _WARM + 0.02) * (0.5 + 0.5 * math.cos(math.pi * done)) + 1e-3
        for group in self.optimiser.param_groups:
            if torch.is_tensor(group["lr"]):
                group["lr"].fill_(self.settings.rate * share)
            else:
                group["lr"] = self.settings.rate * share
        whole = len(maps) == self.settings.batch
        if whole and self.graph is None and not self.no_graph:
            try:
                self.graph = _Graph(self, maps, wanted, flip)
            except RuntimeError as error:
                self.tell(f"steps are not a graph: {str(error).partition(chr(10))[0]}")
                self.no_graph = True
        use = self.graph.step if whole and self.graph is not None else self.update
        told = use(maps, wanted, flip)
        self.steps += 1
        keep = min(_AVERAGE, (1 + self.steps) / (10 + self.steps))
        mine, new = self.pairs
        torch._foreach_mul_(mine, keep)
        torch._foreach_add_(mine, new, alpha=1 - keep)
        return told

    def update(self, maps: Tensor, wanted: Targets, flip: Tensor) -> Told:
        """Learn from a batch; ``flip`` (B,) is -1 for pages whose dark and bright are exchanged."""
        self.network.train()
        self.optimiser.zero_grad(set_to_none=True)
        x = maps.float() * flip[:, None, None, None]
        mixed = self.settings.mixed
        with torch.autocast(maps.device.type, torch.bfloat16, enabled=mixed, cache_enabled=False):
            out = self.learner(x.contiguous(memory_format=torch.channels_last))
        total, by_page = loss(out.float(), wanted)
        total.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 2.0, foreach=True)
        self.optimiser.step()
        return total.detach(), by_page

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _score(self, pages: Pages) -> dict[str, float]:
        """Find the digits of pages at the size they have, and compare."""
        settings = FinderSettings()
        self.average.eval()
        total = np.zeros(7, np.int64)
        for at in range(0, len(pages), 32):
            maps = self.average(self._normalised(pages, slice(at, at + 32))).float().cpu().numpy()
            for marks, answer in zip(pages.marks[at : at + 32], maps, strict=True):
                found = merged(decode(answer, settings), settings)
                total += compared(found[found.scores >= settings.score], marks)
        return shares(total)


def _line(values: dict[str, float]) -> str:
    return " ".join(f"{name} {value:.4g}" for name, value in values.items())


@contextmanager
def forgotten(network: Any, optimiser: Any) -> Iterator[None]:
    """Restore a network and its AdamW in place when the block ends: a graph keeps the addresses."""
    values = list(network.state_dict().values())
    had = [value.clone() for value in values]
    before = {p: {name: value.clone() for name, value in own.items()} for p, own in optimiser.state.items()}
    try:
        yield
    finally:
        torch._foreach_copy_(values, had)
        for p, own in optimiser.state.items():
            for name, value in own.items():
                if p in before:
                    value.copy_(before[p][name])
                else:  # AdamW's state begins at zero
                    value.zero_()


class _Graph:
    """A step as a CUDA graph, computed in whichever way is quickest here. Depthwise convolutions as such or
    as full ones, and the quicker of these compiled. What is learned while they are tried is forgotten.
    """

    def __init__(self, run: _Run, maps: Tensor, wanted: Targets, flip: Tensor) -> None:
        self._given = [value.clone() for value in (maps, flip, *wanted)]
        with forgotten(run.network, run.optimiser):
            ways = [(self._spent(run, dense), dense) for dense in (False, True)]
            best, dense = min(ways)
            self._dense(run, dense)
            try:
                run.learner = torch.compile(run.network)
                if self._spent(run, dense, compiled=True) > best:
                    run.learner = run.network
            except Exception as error:  # of the compiler, whatever it is
                run.tell(f"steps are not compiled: {str(error).partition(chr(10))[0]}")
                run.learner = run.network
            self._graph, self._told = self._captured(run)
        run.learner = run.network  # for batches of another size

    def _spent(self, run: _Run, dense: bool, *, compiled: bool = False) -> float:
        """Seconds of a step."""
        self._dense(run, dense)
        graph, _ = self._captured(run)
        torch.cuda.synchronize()
        begin = time.monotonic()
        for _ in range(_TRIED):
            graph.replay()
        torch.cuda.synchronize()
        spent = (time.monotonic() - begin) / _TRIED
        ways = f"{', depthwise kernels as full ones' * dense}{', compiled' * compiled}"
        run.tell(f"step {1e3 * spent:.2f} ms{ways}")
        return spent

    def _dense(self, run: _Run, dense: bool) -> None:
        for part in run.network.modules():
            if isinstance(part, ConvNorm):
                part.dense = dense and part.conv.groups > 1

    def _captured(self, run: _Run) -> tuple[Any, Told]:
        maps, flip, *wanted = self._given
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(stream):
                for _ in range(3):
                    run.update(maps, Targets(*wanted), flip)
        finally:
            torch.cuda.current_stream().wait_stream(stream)
        run.optimiser.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            told = run.update(maps, Targets(*wanted), flip)
        return graph, told

    def step(self, maps: Tensor, wanted: Targets, flip: Tensor) -> Told:
        """Learn from a batch; the loss, and how wrong each page was."""
        for mine, new in zip(self._given, (maps, flip, *wanted), strict=True):
            mine.copy_(new)
        self._graph.replay()
        total, by_page = self._told
        return total.clone(), by_page.clone()
