"""Training of a finder: pages are drawn while others are learned from, hard ones again.

A run follows from its settings: pages come in chunks of seeds; a chunk is gone through ``passes`` times, and
seeds of its worst pages are drawn again, with another variation, in the chunk after the next. Between two
chunks the run is kept, so that one that was stopped goes on to the same bytes (on a CPU).
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neocog.errors import ModelError
from neocog.learning.checkpoint import Run, RunningMean, worded
from neocog.learning.drawing.bank import drawers
from neocog.learning.drawing.hands import load_hands
from neocog.learning.drawing.page import Page, compared, draw_pages, prepare, written_typefaces
from neocog.learning.finder.networks import ConvNorm, FinderNetwork, Targets, loss, normalised, targets
from neocog.vision.finder import FinderSettings, decode, merged
from neocog.vision.finder_model import load_finder

Told = tuple[Tensor, Tensor]  #: loss of a batch, and how wrong each of its pages is

Seeds = list[tuple[int, int]]  #: A seed and a variation of each page

HELD_SEED = 3_000_000_000  #: first seed of the pages for validation; no run learns from seeds from here on

_HARD = 0.04, 0.24  # of a chunk's pages, worst first, drawn again; the very worst nobody reads
_AGAIN = 2  # times that a seed is drawn again
_INVERTED = 0.25  # of pages, dark and bright exchanged as they are learned from
_AVERAGE = 0.998  # of the weights before, in the running mean that is shipped
_DECAY = 0.02  # of the weights, by AdamW
_LARGEST = 96.0  # longer side of the largest digits asked of one size, in pixels
_NO_MARK = -9.0  # label of rows of marks that are not there
_MOST_MARKS = 256  # of a page that are learned from; pages of more are rare
_PART = 32  # pages that a process draws at a time
_WARM = 0.02  # of the run, in which the rate rises


@dataclass(frozen=True, slots=True)
class FinderTraining:
    seed: int = 0
    chunk: int = 4096  #: pages drawn at a time
    chunks: int = 150
    passes: int = 24  #: times that a chunk is gone through
    batch: int = 96  #: pages a step
    rate: float = 3e-3  #: largest rate of AdamW
    side: int = 256  #: rows and columns of a page
    validation: int = 512  #: held-back pages that a run is measured on
    start: str | None = None  #: file of a finder whose weights the run begins with


def train_finder(
    data: Path, folder: Path, settings: FinderTraining, *, fonts: Sequence[Path] = (), workers: int = 2,
    device: str = "cpu", minutes: float | None = None, tell: Callable[[str], None] = print,
) -> FinderNetwork:  # fmt: skip
    """Train a finder on pages that hands of ``data`` write, or go on with the run of ``folder``; its mean."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(settings.seed)
    torch.backends.cudnn.benchmark = device.startswith("cuda")
    names = {"fonts": sorted(font.name for font in fonts)}
    names["written"] = [font.name for font in written_typefaces(data)]
    learned_from = load_hands(data).counts() | names
    with drawers(workers, prepare, data, fonts) as pool:
        return _Run(learned_from, folder, settings, device, tell).learn(pool, minutes)


class _Run:
    def __init__(
        self, learned_from: dict[str, Any], folder: Path, settings: FinderTraining, device: str,
        tell: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.settings, self.place, self.tell = settings, device, tell
        self.cuda = cuda = device.startswith("cuda")  # where convolutions are computed in bfloat16
        layout = torch.channels_last
        self.network, self.average = (FinderNetwork().to(device, memory_format=layout) for _ in range(2))
        self.average.load_state_dict(self.network.state_dict())
        self.following = RunningMean(self.average, self.network, _AVERAGE)
        weights = list(self.network.parameters())
        groups = [{"params": [p for p in weights if (p.ndim >= 2) == decays], "weight_decay": _DECAY * decays}
                  for decays in (True, False)]  # fmt: skip
        rate = torch.tensor(settings.rate, device=device) if cuda else settings.rate
        self.optimiser = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.99), capturable=cuda)
        self.begin = time.monotonic()
        self.graph: _Graph | None = None
        if cuda:  # tensor cores compute full kernels sooner than the kernels for depthwise ones theirs
            for part in self.network.modules():
                if isinstance(part, ConvNorm):
                    part.dense = part.conv.groups > 1
        networks = {"network": self.network, "average": self.average}
        told = asdict(settings) | {"learned_from": learned_from}
        first = {"number": 0, "steps": 0, "hard": [Seeds(), Seeds()]}
        self.run = Run(folder / "run.safetensors", told, networks, self.optimiser, **first)
        self.state = self.run.state
        self.begun, self.anchor = load_finder(settings.start) if settings.start else None, None
        if self.begun:
            own = self.network.graph()
            shapes = [{name: value.shape for name, value in one.tensors.items()} for one in (own, self.begun)]
            if own.nodes != self.begun.nodes or shapes[0] != shapes[1]:
                words = "its layers are others; give a finder as the shipped"
                raise ModelError(f"--start {settings.start}: {words}")

    def learn(self, pool: ProcessPoolExecutor, minutes: float | None) -> FinderNetwork:
        settings, end = self.settings, self.begin + 60 * (math.inf if minutes is None else minutes)
        state = self.state

        def order(seeds: Seeds, *, held: bool = False) -> tuple[Seeds, list[Future[list[Page]]]]:
            parts = [seeds[at : at + _PART] for at in range(0, len(seeds), _PART)]
            return seeds, [pool.submit(draw_pages, part, settings.side, held) for part in parts]

        def drawn(parts: list[Future[list[Page]]]) -> list[Page]:
            return [page for part in parts for page in part.result()]

        _, kept = order([(HELD_SEED + k, 0) for k in range(settings.validation)], held=True)
        coming = [order(self._seeds(state.number + k)) for k in (0, 1)]
        while state.number < settings.chunks and time.monotonic() < end:
            seeds, parts = coming.pop(0)
            pages = drawn(parts)
            if self.begun:
                # the run's first pages, also when it was stopped and goes on
                first = settings.seed * 1_000_003 % 2_000_000_000
                known = drawn(order([(first + k, 0) for k in range(min(256, settings.chunk))])[1])
                self.anchor = FinderNetwork().to(self.place)
                networks = () if self.run.resumed else (self.network, self.average)
                for network in (self.anchor, *networks):
                    network.take(self.begun, self._normalised(known))
                self.begun = None
            wrong, mean = self._go_through(pages)
            first, last = (int(share * len(seeds)) for share in _HARD)
            worst = [seeds[k] for k in np.argsort(-wrong, kind="stable")[first:last].tolist()]
            state.hard[state.number % 2] = [(seed, again + 1) for seed, again in worst if again < _AGAIN]
            state.number += 1
            coming.append(order(self._seeds(state.number + 1)))
            measured = {"chunk": float(state.number), "steps": float(state.steps), "loss": mean}
            if state.number % 8 == 0:
                measured |= self._score(drawn(kept))
            state.curves.append(measured)
            self.run.save()
            self._say(measured)
        measured = {"chunk": float(state.number), "steps": float(state.steps)} | self._score(drawn(kept))
        if state.number == settings.chunks:
            state.curves.append(measured)
            self.run.plot()
        self._say(measured)
        average: FinderNetwork = self.average.cpu().eval()
        return average

    def _say(self, measured: dict[str, float]) -> None:
        self.tell(f"{worded(measured)} {time.monotonic() - self.begin:.0f} s")

    def _seeds(self, number: int) -> Seeds:
        # of a chunk: new ones, the hard ones of the chunk before the last
        hard, settings = self.state.hard[number % 2], self.settings
        first = (settings.seed * 1_000_003 + number * settings.chunk) % 2_000_000_000
        new = [(first + k, 0) for k in range(settings.chunk - len(hard))]
        return new + [(seed, again) for seed, again in hard]

    def _go_through(self, pages: list[Page]) -> tuple[NDArray[np.float32], float]:
        """Learn from a chunk; return how wrong each page was, and the mean loss."""
        pictures, answers, settings = list[Tensor](), list[Targets](), self.settings
        for at in range(0, len(pages), settings.batch):
            some = pages[at : at + settings.batch]
            x = self._normalised(some)  # 0 beyond their extents
            pictures.append(x.half() if self.cuda else x)
            most = min(max(1, *(len(page.marks) for page in some)), _MOST_MARKS)
            marks = np.zeros((len(some), most, 5), np.float32)
            marks[:, :, 0] = _NO_MARK
            for row, page in zip(marks, some, strict=True):
                row[: len(page.marks)] = page.marks[:most]
            answers.append(targets(torch.from_numpy(marks).to(self.place), settings.side, _LARGEST))
            if self.anchor:  # its scores stay on most pages, and where nothing is asked
                with torch.no_grad():
                    scores = torch.sigmoid(self.anchor(x)[:, :2].float())
                new = torch.tensor([not page.anchored for page in some], device=self.place)
                scores[answers[-1].care[:, None].expand_as(scores) & new[:, None, None, None]] = -1
                answers[-1] = answers[-1]._replace(anchor=scores.half())
        maps, wanted = torch.cat(pictures), Targets(*map(torch.cat, zip(*answers, strict=True)))
        told, first = list[Tensor](), list[tuple[NDArray[np.int64], Tensor]]()
        rng = np.random.default_rng([settings.seed, self.state.number, 7])
        for turn in range(settings.passes):
            ends = range(settings.batch, len(pages), settings.batch)
            batches = list(map(np.sort, np.array_split(rng.permutation(len(pages)), ends)))
            flips = np.where(rng.random(len(pages)) < _INVERTED, -1, 1).astype(np.float32)
            # one copy a turn: each copy to a GPU waits until the GPU has finished its work
            chosen = torch.from_numpy(np.concatenate(batches)).to(self.place)
            signs = torch.from_numpy(flips).to(self.place)
            parts = (part.split(settings.batch) for part in (chosen, signs))
            for index, some, flip in zip(batches, *parts, strict=True):
                total, by_page = self._step(maps[some], Targets(*(each[some] for each in wanted)), flip)
                told.append(total)
                if turn == 0:
                    first.append((index, by_page))
        wrong = np.zeros(len(pages), np.float32)
        for index, by_page in first:
            wrong[index] = by_page.float().cpu().numpy()
        return wrong, float(torch.stack(told).mean())

    def _normalised(self, pages: list[Page]) -> Tensor:
        images = torch.from_numpy(np.stack([page.image for page in pages]))
        extents = torch.tensor([page.extent for page in pages])
        return normalised(images.to(self.place), extents.to(self.place))

    def _step(self, maps: Tensor, wanted: Targets, flip: Tensor) -> Told:
        """One step; on a GPU, where so small a network is mostly its launches, as a graph."""
        settings = self.settings
        steps = settings.passes * math.ceil(settings.chunk / settings.batch) * settings.chunks
        done = min(self.state.steps / steps, 1.0)  # the rate goes up at first, then down along a cosine
        share = min(1.0, done / _WARM + 0.02) * (0.5 + 0.5 * math.cos(math.pi * done)) + 1e-3
        self.run.set_rate(settings.rate * share)
        if self.cuda and len(maps) == settings.batch:
            self.graph = self.graph or _Graph(self, maps, wanted, flip)
            told = self.graph.step(maps, wanted, flip)
        else:
            told = self.update(maps, wanted, flip)
        self.state.steps += 1
        self.following.follow(self.state.steps)
        return told

    def update(self, maps: Tensor, wanted: Targets, flip: Tensor) -> Told:
        """Learn from a batch; ``flip`` (B,) is -1 for pages whose dark and bright are exchanged."""
        self.network.train()
        self.optimiser.zero_grad(set_to_none=True)
        x = maps.float() * flip[:, None, None, None]
        with torch.autocast(maps.device.type, torch.bfloat16, enabled=self.cuda, cache_enabled=False):
            out = self.network(x.contiguous(memory_format=torch.channels_last))
        total, by_page = loss(out.float(), wanted)
        total.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 2.0, foreach=True)
        self.optimiser.step()
        return total.detach(), by_page

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _score(self, pages: list[Page]) -> dict[str, float]:
        """Find the digits of pages at the size they have, and compare."""
        settings = FinderSettings()
        self.average.eval()
        total = np.zeros(7, np.int64)
        for at in range(0, len(pages), 32):
            some = pages[at : at + 32]
            maps = self.average(self._normalised(some)).float().cpu().numpy()
            for page, answer in zip(some, maps, strict=True):
                found = merged(decode(answer, settings), settings)
                total += compared(found[found.scores >= settings.score], page.marks)
        digits, right, false, mistaken, signs, clean, empty = total.tolist()
        recall, precision = right / max(digits, 1), right / max(right + false, 1)
        f1 = 2 * recall * precision / max(recall + precision, 1e-9)
        return {"recall": recall, "precision": precision, "f1": f1,
                "signs_as_digits": mistaken / max(signs, 1), "clean": clean / max(empty, 1)}  # fmt: skip


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
    """A step as a CUDA graph; what is learned before it is captured is forgotten."""

    def __init__(self, run: _Run, maps: Tensor, wanted: Targets, flip: Tensor) -> None:
        self._given = [value.clone() for value in (maps, flip, *wanted)]
        maps, flip, *rest = self._given
        stream, self._graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with forgotten(run.network, run.optimiser):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3):
                    run.update(maps, Targets(*rest), flip)
            torch.cuda.current_stream().wait_stream(stream)
            run.optimiser.zero_grad(set_to_none=True)
            with torch.cuda.graph(self._graph):
                self._told = run.update(maps, Targets(*rest), flip)

    def step(self, maps: Tensor, wanted: Targets, flip: Tensor) -> Told:
        """Learn from a batch; the loss, and how wrong each page was."""
        for mine, new in zip(self._given, (maps, flip, *wanted), strict=True):
            mine.copy_(new)
        self._graph.replay()
        total, by_page = self._told
        return total.clone(), by_page.clone()
