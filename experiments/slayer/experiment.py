"""The GPU paper's experiments on the S-layers (Ikeda et al. 2011), each a section of one result.

Every system is checked against float64 before it is timed; a section that fails is noted, the next begins.
"""

import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from experiments.harness.run import Request, Result, Save, progress
from experiments.network.ours import OurSide
from experiments.slayer.gpu import Bench, best_places
from experiments.slayer.inputs import PAPER_DIGITS, SIZES, Fed, find_digits, networks
from experiments.slayer.tables import plots, tables
from neocog.cuda.launcher import gpu
from neocog.errors import UsageError
from neocog.evaluation.timing import milliseconds
from neocog.network.model import load_model
from neocog.network.registry import list_models

__all__ = ["faults", "measure", "plots", "tables"]

Row = dict[str, Any]

#: Digits whose maps the S-layers are fed with.
_FED = 32
#: Frames a second, and digits of each: what the paper wanted to read.
_FRAMES, _DIGITS = 30, 8


class Sections:
    """The sections, a method each, and what they share."""

    def __init__(self, request: Request) -> None:
        self.request, self.quick = request, request.quick
        self.digits, self.source = find_digits(request.data, _FED if self.quick else PAPER_DIGITS)
        self.model = load_model("neocog-small")  # whose whole passes are timed
        some = self.digits[: 8 if self.quick else _FED]
        sizes = request.sizes or tuple(SIZES)
        self.fed = {size: Fed(model, some) for size, model in networks(sizes).items()}

    def silence(self) -> list[Row]:
        """Table 8: how much of each S-layer's input is not silent, in models that ship or are named."""
        models = [load_model(path.stem) for path in list_models()]
        models += [fed.model for size, fed in self.fed.items() if "/" not in size]
        return [{"model": model.id, "stage": stage, "heard": share} for model in models
                for stage, share in Fed(model, self.digits[:100]).heard().items()]  # fmt: skip

    def ladder(self) -> dict[str, list[Row]]:
        """Fig. 6 and Table 5: block sizes tried, the ladder, our plans."""
        found: dict[str, list[Row]] = {"trial": [], "rows": []}
        for size, fed in self.fed.items():
            bench = Bench(gpu(self.request.number), fed, quick=self.quick)
            trial = bench.trial()
            found["trial"] += [{"planes": size, **row} for row in trial]
            rows = [*bench.ladder(best_places(trial)), *bench.ours()]
            found["rows"] += [{"planes": size, **row} for row in rows]
        return found

    def character(self) -> list[Row]:
        """One whole character and a frame's eight: the pass, and from host to host."""
        rows = []
        for batch in (1, _DIGITS):
            side = OurSide(self.model, batch, precision="fp16", number=self.request.number)
            some = self.digits[:batch]
            side.load(some)
            us = 1e3 * float(np.median([side.elapsed(50) for _ in range(9)]))
            whole = 1e3 * float(np.median([milliseconds(partial(side.trip, some)) for _ in range(100)][10:]))
            rows.append({
                "batch": batch, "pass_us": us, "in_all_us": whole, "transfers_us": whole - us,
                "share_of_gpu": 1e-6 * _FRAMES * us, "share_of_time": 1e-6 * _FRAMES * whole,
            })  # fmt: skip
        return rows


#: Sections that need no GPU, and those that do, in order.
ON_CPU = ("silence",)
ON_GPU = ("ladder", "character")


def measure(request: Request, save: Save) -> Result:
    """Run the sections; ``save`` takes the result after each."""
    names = request.sections or (ON_CPU + ON_GPU if request.on_gpu else ON_CPU)
    check_sections(names, request.on_gpu)
    bench = Sections(request)
    result: Result = {
        "experiment": "slayer", **request.about(), "model": bench.model.id, "digits": bench.source,
        "networks": {size: fed.model.name for size, fed in bench.fed.items()}, "sections": {}, "failures": {},
    }  # fmt: skip
    for name in names:
        progress(f"section {name}")
        work: Callable[[], Any] = getattr(bench, name)
        try:
            with gpu(request.number).current() if name in ON_GPU else nullcontext():
                result["sections"][name] = work()
        except Exception as failure:  # the other sections still run; it is told at the end
            traceback.print_exc()
            result["failures"][name] = f"{type(failure).__name__}: {failure}"
        save(result)
    return result


def check_sections(names: Sequence[str], on_gpu: bool) -> None:
    """Raise a UsageError unless these sections are there and the device can do them."""
    for name in names:
        if name not in ON_CPU + ON_GPU:
            raise UsageError(f"slayer has no section {name!r}; choose {', '.join(ON_CPU + ON_GPU)}")
        if name in ON_GPU and not on_gpu:
            raise UsageError(f"section {name!r} needs a GPU: --device cuda")


def faults(result: Result) -> list[str]:
    lines = [f"section {name}: {text}" for name, text in result["failures"].items()]
    for name, section in result["sections"].items():
        rows = [*section["trial"], *section["rows"]] if isinstance(section, dict) else section
        wrong = (row for row in rows if row.get("passed") is False)
        lines += [f"{name}: { {k: v for k, v in row.items() if k not in ('us', 'counts')} }" for row in wrong]
    return lines
