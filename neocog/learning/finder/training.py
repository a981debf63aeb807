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
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neocog.errors import UsageError
from neocog.files import atomic_write
from neocog.jsontext import to_json
from neocog.learning.checkpoint import check_same, load_checkpoint, save_checkpoint
from neocog.learning.finder.measure import Score, score_pages
from neocog.learning.finder.networks import FRONTS, ConvNorm, FinderNetwork, normalised
from neocog.learning.finder.targets import Targets, Weights, joined, loss, targets
from neocog.learning.teacher.pool import NO_MARK, Order, PagePool, Pages

Tensor = Any

HELD_SEED = 3_000_000_000
"""First seed of the pages for validation; no run learns from seeds from here on."""

_HARD = 0.04, 0.24  # of a chunk's pages, worst first, drawn again; the very worst nobody reads
_AGAIN = 2  # times that a seed is drawn again
_INVERTED = 0.25  # of pages, dark and bright exchanged as they are learned from
_AVERAGE = 0.998  # of the weights before, in the running mean that is shipped
_TRIED = 20  # replays of each way to compute a step
_WARM = 0.02  # of the run, in which the rate rises


@dataclass(frozen=True, slots=True)
class FinderTraining:
    """Settings of a run.

    Attributes
    ----------
    front : str
        A key of `FRONTS`.
    seed : int
    chunk : int
        Pages drawn at a time.
    chunks : int
        How many; None with ``seconds``.
    passes : int
        Times that a chunk is gone through.
    batch : int
        Pages a step.
    rate : float
        Largest rate of AdamW.
    decay : float
        Its weight decay.
    side : int
        Rows and columns of a page.
    seconds : float or None
        Learn for so long instead.
    validation : int
        Held-back pages that a run is measured on.
    mixed : bool
        Whether convolutions are computed in bfloat16.
    largest : float
        Longer side of the largest digits that one size of a picture is asked for, in pixels.
    start : str or None
        Checkpoint of another run, whose weights this one begins with.
    """

    front: str = "deep"
    seed: int = 0
    chunk: int = 4096
    chunks: int = 150
    passes: int = 24
    batch: int = 96
    rate: float = 3e-3
    decay: float = 0.02
    side: int = 256
    seconds: float | None = None
    validation: int = 512
    mixed: bool = False
    largest: float = 96.0
    start: str | None = None


@dataclass
class _Run:
    """How far a run has come."""

    network: FinderNetwork
    average: FinderNetwork
    optimiser: Any
    number: int
    steps: int
    used: float
    curves: list[dict[str, float]]
    hard: list[list[list[int]]]
    told: dict[str, Any]
    graph: "_Graph | bool | None" = None  # False: a step cannot be one
    pairs: tuple[list[Tensor], ...] = ()


def train_finder(
    bank: Path,
    folder: Path,
    settings: FinderTraining,
    *,
    workers: int = 2,
    device: str = "cpu",
    tell: Callable[[str], None] = print,
) -> FinderNetwork:
    """Train a finder, or go on with the run in a folder.

    Parameters
    ----------
    bank : Path
        File of `neocog.learning.teacher.bank.Bank`.
    folder : Path
        Keeps the run: ``run.safetensors`` and ``curves.json``.
    workers : int
        Processes that draw pages; they change nothing of what is learned.
    device : str
        Of PyTorch.
    tell : callable
        Is told how it goes, a line at a time.

    Returns
    -------
    FinderNetwork
        The running mean of the weights, on the CPU.

    Raises
    ------
    UsageError
        If the settings make no sense, or the folder holds a run with others or another bank.
    InputError
        If the bank cannot be read.
    """
    if settings.front not in FRONTS:
        raise UsageError(f"no front {settings.front!r}; the fronts are {', '.join(FRONTS)}")
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(settings.seed)
    place = torch.device(device)
    if place.type == "cuda":
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    with PagePool(bank, workers=workers, side=settings.side) as pool:
        run = _begin(folder, settings, place, bank)
        _learn(run, pool, folder, settings, place, tell)
    average: FinderNetwork = run.average.cpu().eval()
    return average


def _begin(folder: Path, settings: FinderTraining, place: Any, bank: Path) -> _Run:
    network = FinderNetwork(settings.front).to(place, memory_format=torch.channels_last)
    average = FinderNetwork(settings.front).to(place, memory_format=torch.channels_last)
    average.load_state_dict(network.state_dict())
    plain = [p for p in network.parameters() if p.ndim < 2 and p.requires_grad]
    decayed = [p for p in network.parameters() if p.ndim >= 2 and p.requires_grad]
    groups = [
        {"params": decayed, "weight_decay": settings.decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    cuda = place.type == "cuda"
    rate = torch.tensor(settings.rate, device=place) if cuda else settings.rate
    optimiser = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.99), capturable=cuda)
    digest = hashlib.sha256(bank.read_bytes()).hexdigest()
    told = asdict(settings) | {"bank": digest}
    run = _Run(network, average, optimiser, 0, 0, 0.0, [], [[], []], told)
    file = folder / "run.safetensors"
    if file.is_file():
        tensors, state = load_checkpoint(file)
        check_same(file, state["settings"], told)
        _restore(run, tensors, state)
    elif settings.start is not None:
        tensors, _ = load_checkpoint(Path(settings.start))
        _take_weights(run, tensors)
    return run


def _keep(run: _Run, folder: Path) -> None:
    tensors = {f"network.{k}": v for k, v in run.network.state_dict().items()}
    tensors |= {f"average.{k}": v for k, v in run.average.state_dict().items()}
    for key, values in run.optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser.{key}.{name}": value for name, value in values.items()}
    state = {
        "settings": run.told, "number": run.number, "steps": run.steps, "used": run.used,
        "curves": run.curves, "hard": run.hard,
    }  # fmt: skip
    save_checkpoint(folder / "run.safetensors", tensors, state)
    with atomic_write(folder / "curves.json") as stream:
        stream.write(to_json(run.curves, indent=1, sort_keys=True).encode())


def _part(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    return {k[len(name) + 1 :]: v for k, v in tensors.items() if k.startswith(name + ".")}


def _take_weights(run: _Run, tensors: dict[str, Tensor]) -> None:
    for name, network in (("network", run.network), ("average", run.average)):
        network.load_state_dict(_part(tensors, name))


def _restore(run: _Run, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    _take_weights(run, tensors)
    values: dict[int, dict[str, Tensor]] = {}
    for key, value in _part(tensors, "optimiser").items():
        number, _, name = key.partition(".")
        values.setdefault(int(number), {})[name] = value
    whole = run.optimiser.state_dict()
    whole["state"] = values
    run.optimiser.load_state_dict(whole)
    run.number, run.steps, run.used = state["number"], state["steps"], state["used"]
    run.curves, run.hard = state["curves"], state["hard"]


def _seeds(run: _Run, settings: FinderTraining, number: int) -> NDArray[np.int64]:
    """Seeds and variations of a chunk: the hard ones of the chunk before the last, and new ones."""
    hard = run.hard[number % 2]
    count = settings.chunk - len(hard)
    first = (settings.seed * 1_000_003 + number * settings.chunk) % 2_000_000_000
    new = [[first + k, 0] for k in range(count)]
    return np.array(new + hard, np.int64).reshape(-1, 2)


def _learn(
    run: _Run, pool: PagePool, folder: Path, settings: FinderTraining, place: Any,
    tell: Callable[[str], None],
) -> None:  # fmt: skip
    begin = time.monotonic() - run.used
    kept = np.arange(HELD_SEED, HELD_SEED + settings.validation)
    validation = pool.order(np.stack([kept, np.zeros_like(kept)], axis=1), held=True)
    coming = [pool.order(_seeds(run, settings, run.number + k)) for k in (0, 1)]
    last: Score | None = None
    while not _over(run, settings, begin):
        pages = coming.pop(0).pages()
        wrong, mean = _go_through(run, pages, settings, place, begin, coming[0], tell)
        run.hard[run.number % 2] = _hardest(pages, wrong)
        run.number += 1
        coming.append(pool.order(_seeds(run, settings, run.number + 1)))
        run.used = time.monotonic() - begin if settings.seconds else 0.0
        measured = {"chunk": float(run.number), "steps": float(run.steps), "loss": mean}
        if run.number % 8 == 0:
            last = score_pages(run.average, validation.pages(), place)
            measured |= last.told()
        run.curves.append(measured)
        _keep(run, folder)
        tell(
            " ".join(f"{k} {v:.4g}" for k, v in measured.items())
            + f" {time.monotonic() - begin:.0f} s"
        )
    last = score_pages(run.average, validation.pages(), place)
    run.curves.append({"chunk": float(run.number), "steps": float(run.steps)} | last.told())
    with atomic_write(folder / "curves.json") as stream:
        stream.write(to_json(run.curves, indent=1, sort_keys=True).encode())
    tell(" ".join(f"{k} {v:.4g}" for k, v in last.told().items()))


def _over(run: _Run, settings: FinderTraining, begin: float) -> bool:
    return _progress(run, settings, begin) >= 1


def _progress(run: _Run, settings: FinderTraining, begin: float) -> float:
    if settings.seconds:
        return (time.monotonic() - begin) / settings.seconds
    each = settings.passes * math.ceil(settings.chunk / settings.batch)
    return run.steps / max(each * settings.chunks, 1)


def _hardest(pages: Pages, wrong: NDArray[np.float32]) -> list[list[int]]:
    first, last = (int(share * len(pages)) for share in _HARD)
    worst = np.argsort(-wrong, kind="stable")[first:last]
    return [[seed, again + 1] for seed, again in pages.seeds[worst].tolist() if again < _AGAIN]


def _go_through(
    run: _Run,
    pages: Pages,
    settings: FinderTraining,
    place: Any,
    begin: float,
    coming: Order,
    tell: Callable[[str], None],
) -> tuple[NDArray[np.float32], float]:
    """Learn from a chunk; return how wrong each page was, and the mean loss."""
    maps, wanted = _prepared(pages, settings, place)
    if run.steps == 0 and settings.start is None:
        run.network.begin(maps[: settings.batch])
        run.average.load_state_dict(run.network.state_dict())
    wrong = np.zeros(len(pages), np.float32)
    told: list[Tensor] = []
    harder: list[tuple[Any, Tensor]] = []
    rng = np.random.default_rng([settings.seed, run.number, 7])
    for turn in range(settings.passes):
        if turn and settings.seconds and (coming.done() or _over(run, settings, begin)):
            break
        order = rng.permutation(len(pages))
        for at in range(0, len(order), settings.batch):
            index = np.sort(order[at : at + settings.batch])
            _pace(run, settings, begin)
            flip = torch.from_numpy(
                np.where(rng.random(len(index)) < _INVERTED, -1, 1).astype(np.float32)
            )
            chosen = torch.from_numpy(index).to(place)
            total, by_page = _step(
                run, maps[chosen], wanted[chosen], flip.to(place), settings, tell
            )
            told.append(total)
            if turn == 0:
                harder.append((index, by_page))
    for index, by_page in harder:
        wrong[index] = by_page.float().cpu().numpy()
    return wrong, float(torch.stack(told).mean())


def _prepared(pages: Pages, settings: FinderTraining, place: Any) -> tuple[Tensor, Targets]:
    """Normalised pictures (N, 1, side, side), 0 beyond their extents, and what is wanted."""
    maps, wanted = [], []
    for at in range(0, len(pages), settings.batch):
        part = slice(at, at + settings.batch)
        images, extents = (torch.from_numpy(v[part]) for v in (pages.images, pages.extents))
        x = normalised(images.to(place), extents.to(place))
        maps.append(x.half() if settings.mixed else x)
        most = int((pages.marks[part, :, 0] > NO_MARK).sum(1).max(initial=1))
        marks = torch.from_numpy(pages.marks[part, : max(most, 1)]).to(place)
        wanted.append(targets(marks, settings.side, settings.largest))
    return torch.cat(maps), joined(wanted)


def _pace(run: _Run, settings: FinderTraining, begin: float) -> None:
    """Rate: up at first, then down along a cosine to nearly nothing."""
    done = min(_progress(run, settings, begin), 1.0)
    share = min(1.0, done / _WARM + 0.02) * (0.5 + 0.5 * math.cos(math.pi * done)) + 1e-3
    for group in run.optimiser.param_groups:
        if torch.is_tensor(group["lr"]):
            group["lr"].fill_(settings.rate * share)
        else:
            group["lr"] = settings.rate * share


def _step(
    run: _Run, maps: Tensor, wanted: Targets, flip: Tensor, settings: FinderTraining,
    tell: Callable[[str], None],
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """One step; on a GPU, where a step of so small a network is mostly its launches, as a graph."""
    if maps.device.type == "cuda" and len(maps) == settings.batch and run.graph is None:
        try:
            run.graph = _Graph(run, maps, wanted, flip, settings, tell)
        except RuntimeError as error:
            tell(f"steps are not a graph: {str(error).partition(chr(10))[0]}")
            run.graph = False
    if isinstance(run.graph, _Graph) and len(maps) == settings.batch:
        told = run.graph.step(maps, wanted, flip)
    else:
        told = _update(run, maps, wanted, flip, settings)
    run.steps += 1
    _average(run)
    return told


def _update(
    run: _Run, maps: Tensor, wanted: Targets, flip: Tensor, settings: FinderTraining
) -> tuple[Tensor, Tensor]:
    run.network.train()
    run.optimiser.zero_grad(set_to_none=True)
    x = maps.float() * flip[:, None, None, None]
    kind = maps.device.type
    with torch.autocast(kind, torch.bfloat16, enabled=settings.mixed, cache_enabled=False):
        out = run.network(x.contiguous(memory_format=torch.channels_last))
    total, by_page = loss(out.float(), wanted, Weights())
    total.backward()
    torch.nn.utils.clip_grad_norm_(run.network.parameters(), 2.0, foreach=True)
    run.optimiser.step()
    return total.detach(), by_page


class _Graph:
    """A step as a CUDA graph, depthwise convolutions in whichever way is quicker here."""

    def __init__(
        self, run: _Run, maps: Tensor, wanted: Targets, flip: Tensor, settings: FinderTraining,
        tell: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._given = (
            maps.clone(),
            *(getattr(wanted, f.name).clone() for f in fields(wanted)),
            flip.clone(),
        )
        best = math.inf
        for dense in (False, True):
            for part in run.network.modules():
                if isinstance(part, ConvNorm):
                    part.dense = dense and part.conv.groups > 1
            graph, told = self._captured(run, settings)
            torch.cuda.synchronize()
            begin = time.monotonic()
            for _ in range(_TRIED):
                graph.replay()
            torch.cuda.synchronize()
            spent = (time.monotonic() - begin) / _TRIED
            tell(f"step {1e3 * spent:.2f} ms, depthwise kernels {'as full ones' * dense}")
            if spent < best:
                best, self._graph, self._told = spent, graph, told

    def _captured(self, run: _Run, settings: FinderTraining) -> tuple[Any, tuple[Tensor, Tensor]]:
        maps, *middle, flip = self._given
        wanted = Targets(*middle)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                _update(run, maps, wanted, flip, settings)
        torch.cuda.current_stream().wait_stream(stream)
        run.optimiser.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            told = _update(run, maps, wanted, flip, settings)
        return graph, told

    def step(self, maps: Tensor, wanted: Targets, flip: Tensor) -> tuple[Tensor, Tensor]:
        """Learn from a batch; the loss, and how wrong each page was."""
        new = (maps, *(getattr(wanted, f.name) for f in fields(wanted)), flip)
        for mine, other in zip(self._given, new, strict=True):
            mine.copy_(other)
        self._graph.replay()
        total, by_page = self._told
        return total.clone(), by_page.clone()


@torch.no_grad()  # type: ignore[untyped-decorator]
def _average(run: _Run) -> None:
    keep = min(_AVERAGE, (1 + run.steps) / (10 + run.steps))
    if not run.pairs:
        states = run.average.state_dict().values(), run.network.state_dict().values()
        run.pairs = tuple([v for v in values if v.is_floating_point()] for values in states)
    mine, new = run.pairs
    torch._foreach_mul_(mine, keep)
    torch._foreach_add_(mine, new, alpha=1 - keep)
