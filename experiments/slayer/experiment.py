"""The GPU paper's experiments on the S-layers, each a section of one result.

Ikeda et al. (2011) and what they name as future work. Every system is checked against float64
before it is timed; a section that fails is noted, and the next begins.
"""

import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from experiments.harness.run import Request, Result, Save, progress
from experiments.slayer import cpu as slayer_cpu
from experiments.slayer import future
from experiments.slayer.gpu import Bench, best_places
from experiments.slayer.inputs import PAPER_DIGITS, SIZES, Fed, find_digits, networks
from experiments.slayer.silence import silence
from experiments.slayer.tables import plots, tables
from neocog.cuda.engine import CudaEngine
from neocog.cuda.launcher import Gpu, gpu
from neocog.errors import UsageError
from neocog.network.model import Model, load_model
from neocog.network.registry import list_models

__all__ = ["faults", "measure", "plots", "tables"]

Row = dict[str, Any]

#: Digits whose maps the S-layers are fed with.
_FED = 32
#: Batches that layers are timed on.
_BATCHES = (1, 256)


class Sections:
    """The sections, a method each, and what they share."""

    def __init__(self, request: Request) -> None:
        self.request = request
        #: Takes the rows of the section at work, before it is through.
        self.so_far: Callable[[Any], None] = lambda rows: None
        self.quick = quick = request.quick
        self.digits, self.source = find_digits(request.data, _FED if quick else PAPER_DIGITS)
        some = self.digits[: 8 if quick else _FED]
        sizes = request.sizes or tuple(SIZES)
        self.fed = {size: Fed(model, some) for size, model in networks(sizes).items()}
        self.tried: list[Row] = []

    @cached_property
    def gpu(self) -> Gpu:
        return gpu(self.request.number)

    @cached_property
    def model(self) -> Model:
        """Whose whole passes are timed."""
        return load_model(self.request.model)

    @cached_property
    def engine(self) -> CudaEngine:
        return CudaEngine(self.model, device=self.request.device, precision=self.request.precision)

    def silence(self) -> list[Row]:
        """Table 8: how much of each S-layer's input is silent, in models that ship or are named."""
        digits = self.digits[: 16 if self.quick else PAPER_DIGITS]
        models = [load_model(path.stem) for path in list_models()]
        models += [fed.model for size, fed in self.fed.items() if "/" not in size]
        return [{"model": m.id, **row} for m in models for row in silence(m, digits)]

    def of_sizes(self, work: Callable[[Fed], Iterable[Row]]) -> list[Row]:
        return [{"planes": size, **row} for size, fed in self.fed.items() for row in work(fed)]

    def accesses(self) -> list[Row]:
        """Sections 5.2 and 5.3: what CPU F and G read and write."""
        return self.of_sizes(slayer_cpu.accesses)

    def cpu(self) -> list[Row]:
        """Tables 6 and 7: CPU S, F and G, our CPU engine."""
        rivals = partial(slayer_cpu.rivals, quick=self.quick)
        return self.of_sizes(lambda fed: [*rivals(fed), *slayer_cpu.our_engine(fed)])

    def cpu_frame(self) -> list[Row]:
        """One character and a frame's eight on the CPU engine, one thread and two."""
        return [
            {"model": self.model.id, **slayer_cpu.frame(self.model, self.digits, threads=n)} for n in (1, 2)
        ]

    def ladder(self) -> dict[str, list[Row]]:
        """Fig. 6 and Table 5: block sizes tried, the ladder, our versions."""
        batches = (1,) if self.quick else _BATCHES
        self.tried = []
        found: dict[str, list[Row]] = {"trial": self.tried, "rows": []}

        def keep(name: str, size: str, rows: list[Row]) -> None:
            found[name] += [{"planes": size, **row} for row in rows]
            self.so_far(found)

        for size, fed in self.fed.items():
            bench = Bench(self.gpu, fed)
            bench.prepare(batches)
            tried = bench.trial(quick=self.quick)
            keep("trial", size, tried)
            keep("rows", size, bench.ladder(best_places(tried), batches))
            keep("rows", size, bench.ours(batches))
        return found

    def compact(self) -> list[Row]:
        """Our tensor-core kernel with silent cells left out and not."""
        batches = (8,) if self.quick else (1, 8, 256)
        return self.of_sizes(lambda fed: Bench(self.gpu, fed).compact(batches))

    def character(self) -> list[Row]:
        """One whole character and a frame's eight, transfers apart."""
        precision, number = self.request.precision, self.request.number
        return future.character(self.model, self.digits, precision, number)

    def in_flight(self) -> list[Row]:
        counts = (1, 2) if self.quick else (1, 2, 4, 8, 16)
        return future.in_flight(self.engine.runner, self.digits, counts)

    def overlap(self) -> list[Row]:
        return future.overlap(self.engine.runner, self.digits, 4 if self.quick else 64)


#: Sections that need no GPU, and those that do, in order.
ON_CPU = ("silence", "accesses", "cpu", "cpu_frame")
ON_GPU = ("ladder", "compact", "character", "in_flight", "overlap")


def measure(request: Request, save: Save) -> Result:
    """Run the sections; ``save`` takes the result after each and, of long ones, before the end."""
    names = request.sections or (ON_CPU + ON_GPU if request.on_gpu else ON_CPU)
    check_sections(names, request.on_gpu)
    bench = Sections(request)
    result: Result = {
        "experiment": "slayer", **replace(request, command=_command(request)).about(),
        "model": bench.model.id, "precision": request.precision, "digits": bench.source,
        "networks": {size: fed.model.name for size, fed in bench.fed.items()}, "sections": {}, "failures": {},
    }  # fmt: skip
    for name in names:
        progress(f"section {name}")

        def so_far(rows: Any, name: str = name) -> None:
            result["sections"][name] = rows
            save(result)

        bench.so_far = so_far
        try:
            with bench.gpu.current() if name in ON_GPU else nullcontext():
                result["sections"][name] = getattr(bench, name)()
        except Exception as failure:  # the other sections still run; it is told at the end
            traceback.print_exc()
            result["failures"][name] = f"{type(failure).__name__}: {failure}"
        save(result)
    return result


def merged(earlier: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """Return a result with an earlier one's other sections; ``from`` tells what made each."""
    keys = ("command", "machine", "cpu", "date", "commit", "digits", "model", "precision")
    own = {key: result.get(key) for key in keys}
    made = dict.fromkeys(result["sections"], own)
    older = {name: rows for name, rows in earlier.get("sections", {}).items() if name not in made}
    before = {key: earlier.get(key) for key in keys}
    origins = {name: earlier.get("from", {}).get(name, before) for name in older}
    first = earlier if earlier.get("machine") and len(older) > len(made) else result
    return {
        **earlier, **result, **{key: first.get(key) for key in keys},
        "sections": {**older, **result["sections"]}, "from": {**origins, **made},
    }  # fmt: skip


def check_sections(names: Sequence[str], on_gpu: bool) -> None:
    """Raise a UsageError unless these sections are there and the device can do them."""
    for name in names:
        if name not in ON_CPU + ON_GPU:
            known = ", ".join(ON_CPU + ON_GPU)
            raise UsageError(f"slayer has no section {name!r}; choose {known}")
        if name in ON_GPU and not on_gpu:
            raise UsageError(f"section {name!r} needs a GPU: --device cuda")


def faults(result: dict[str, Any]) -> list[str]:
    lines = [f"section {name}: {text}" for name, text in result.get("failures", {}).items()]
    for name, section in result.get("sections", {}).items():
        rows = [row for rows in section.values() for row in rows] if isinstance(section, dict) \
            else section  # fmt: skip
        for row in rows:
            if row.get("passed") is False or row.get("same") is False:
                facts = {k: v for k, v in row.items() if k not in ("us", "counts")}
                lines.append(f"{name}: {facts}")
    return lines


def _command(request: Request) -> str:
    words = ["neocog bench slayer", f"--device {request.device}"]
    if request.data is not None:
        words.append("--data DATA")
    if request.sections:
        words.append(f"--sections {','.join(request.sections)}")
    if request.sizes:
        names = (size if size[0].isdigit() else Path(size).name for size in request.sizes)
        words.append(f"--sizes {','.join(names)}")
    return " ".join(words + ["--quick"] * request.quick)
