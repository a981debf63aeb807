"""The GPU paper's experiments on the S-layers, each a section of one result.

Ikeda et al. (2011) and what they name as future work. Every system is checked against float64
before it is timed; a section that fails is noted, and the next begins.
"""

import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from experiments.harness.attended import Result, Save, Watch
from experiments.harness.run import Request, progress
from experiments.slayer import cpu as slayer_cpu
from experiments.slayer.inputs import PAPER_DIGITS, SIZES, Fed, find_digits, networks
from experiments.slayer.silence import silence
from experiments.slayer.tables import plots, tables
from neocog.errors import DeviceError, UsageError
from neocog.network.model import Model, load_model

if TYPE_CHECKING:
    from neocog.cuda.engine import CudaEngine
    from neocog.cuda.launcher import Gpu

__all__ = ["asked", "faults", "measure", "plots", "tables"]

Row = dict[str, Any]

#: Digits whose maps the S-layers are fed with.
_FED = 32
#: Batches that layers are timed on.
_BATCHES = (1, 256)


#: Seconds until everything is ended, whatever it does.
_MOST_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Options(Request):
    """What to measure; ``sections``: which, empty for all that the device can do."""

    seconds: float = _MOST_SECONDS
    model: str = "neocog-small"
    precision: str = "fp16"
    sizes: tuple[str, ...] = tuple(SIZES)
    sections: tuple[str, ...] = ()


def asked(request: Request) -> Options:
    """Return what is asked of this experiment where all are run."""
    own = {field.name: getattr(request, field.name) for field in fields(request)}
    return Options(**{**own, "seconds": _MOST_SECONDS})


class Bench:
    """The sections, and what they share."""

    def __init__(self, options: Options, watch: Watch) -> None:
        self.options, self.log, self.watch = options, progress, watch
        #: Takes the rows of the section at work, before it is through.
        self.so_far: Callable[[Any], None] = lambda rows: None
        self.quick = options.quick
        self.digits, self.source = find_digits(
            options.data, _FED if options.quick else PAPER_DIGITS
        )
        self.fed = {
            size: Fed(model, self.digits[: 8 if self.quick else _FED])
            for size, model in networks(options.sizes).items()
        }
        self.tried: list[Row] = []

    @cached_property
    def gpu(self) -> "Gpu":
        """The GPU that single kernels run on."""
        from neocog.cuda.launcher import gpu

        return gpu(self.options.number)

    @cached_property
    def model(self) -> Model:
        """Whose whole passes are timed."""
        return load_model(self.options.model)

    @cached_property
    def engine(self) -> "CudaEngine":
        """The engine on all GPUs that were asked for."""
        from neocog.cuda.engine import CudaEngine

        return CudaEngine(self.model, device=self.options.device, precision=self.options.precision)

    def silence(self) -> list[Row]:
        """Table 8: how much of each S-layer's input is silent, for every shipped model."""
        from neocog.network.registry import list_models

        rows = []
        for entry in list_models():
            model = load_model(entry.name)
            digits = self.digits[: 16 if self.quick else PAPER_DIGITS]
            rows += [{"model": model.id, **row} for row in silence(model, digits)]
            self.log(f"{model.id}: {rows[-1]['heard']:.1%} of inputs are heard")
        return rows

    def cpu(self) -> list[Row]:
        """Tables 6 and 7: CPU S, F and G, our CPU engine."""
        rows = []
        for size, fed in self.fed.items():
            found = slayer_cpu.rivals(fed, quick=self.quick, log=self.log)
            rows += [{"planes": size, **row} for row in (*found, *slayer_cpu.our_engine(fed))]
        return rows

    def cpu_frame(self) -> list[Row]:
        """One character and a frame's eight on the CPU engine, one thread and two."""
        return [
            {"model": self.model.id, **slayer_cpu.frame(self.model, self.digits, threads=n)}
            for n in (1, 2)
        ]

    def ladder(self) -> dict[str, list[Row]]:
        """Fig. 6 and Table 5: block sizes tried, the ladder, our versions."""
        from experiments.slayer import gpu as slayer_gpu

        batches = (1,) if self.quick else _BATCHES
        self.tried = []
        found: dict[str, list[Row]] = {"trial": self.tried, "rows": []}

        def keep(name: str, size: str, rows: list[Row]) -> None:
            found[name] += [{"planes": size, **row} for row in rows]
            self.so_far(found)

        told: Any = {"log": self.log, "watch": self.watch}
        for size, fed in self.fed.items():
            self.watch.doing(f"kernels of {size}", _BUILDING)
            slayer_gpu.prepare(self.gpu, fed, batches=batches, log=self.log)
            best, tried = slayer_gpu.trial(self.gpu, fed, quick=self.quick, **told)
            keep("trial", size, tried)
            keep("rows", size, slayer_gpu.ladder(self.gpu, fed, best, batches=batches, **told))
            keep("rows", size, slayer_gpu.ours(self.gpu, fed, batches=batches, **told))
        return found

    def counters(self) -> list[Row]:
        """Hardware counters of the ladder, the block sizes those that the trial found."""
        from experiments.slayer.counters import counters

        size = next(iter(self.fed))
        tried = [row for row in self.tried if row["planes"] == size and "us" in row]
        best: dict[tuple[str, str], Row] = {}
        for row in tried:
            key = (row["stage"], row["system"])
            if key not in best or row["us"] < best[key]["us"]:
                best[key] = row
        places = {key: row["places"] for key, row in best.items()}
        number = self.options.number
        return counters(size, places, self.options.data, self.log, number=number)

    def compact(self) -> list[Row]:
        """Our tensor-core kernel with silent cells left out and not."""
        from experiments.slayer.gpu import compact

        batches = (8,) if self.quick else (1, 8, 256)
        return [
            {"planes": size, **row}
            for size, fed in self.fed.items()
            for row in compact(self.gpu, fed, batches=batches, log=self.log, watch=self.watch)
        ]

    def character(self) -> list[Row]:
        """One whole character and a frame's eight, transfers apart."""
        from experiments.slayer.future import character

        told: Any = {"number": self.options.number, "log": self.log}
        return character(self.model, self.digits, precision=self.options.precision, **told)

    def in_flight(self) -> list[Row]:
        """Characters in flight through the stages."""
        from experiments.slayer.future import in_flight

        counts = (1, 2) if self.quick else (1, 2, 4, 8, 16)
        return in_flight(self.engine.runners[0], self.digits, counts=counts, log=self.log)

    def overlap(self) -> list[Row]:
        """Transfers beside work."""
        from experiments.slayer.future import overlap

        repeats = 4 if self.quick else 64
        return overlap(self.engine.runners[0], self.digits, repeats=repeats, log=self.log)

    def devices(self) -> list[Row]:
        """Several GPUs."""
        from experiments.slayer.future import devices

        repeats = 2 if self.quick else 128
        each, seconds = (64, 0.2) if self.quick else (4096, 4.0)
        return devices(
            self.engine, self.digits, each=each, repeats=repeats, seconds=seconds, log=self.log
        )

    def energy(self) -> list[Row]:
        """Power and energy."""
        from experiments.slayer.future import energy

        seconds = 0.4 if self.quick else 4.0
        number = self.options.number
        return energy(self.engine, self.digits, seconds=seconds, number=number, log=self.log)


#: Seconds without a word that building, a section of the GPU's and one of the CPU's may take.
_BUILDING, _ON_GPU, _ON_CPU = 180.0, 120.0, 900.0
QUICK_SECONDS, START_SECONDS = _MOST_SECONDS, _ON_CPU
#: Sections that need no GPU, and those that do, in order.
ON_CPU = ("silence", "cpu", "cpu_frame")
ON_GPU = ("ladder", "counters", "compact", "character", "in_flight", "overlap", "devices", "energy")


def measure(
    options: Options,
    *,
    watch: Watch,
    earlier: Result,
    seconds: float,
    save: Save,
) -> Result:
    """Run the sections.

    Parameters
    ----------
    options : Options
    watch : Watch
        Who is told what comes next, and what is left out.
    earlier : dict
        A result whose sections are done.
    seconds : float
        Not heeded: sections are chosen.
    save : callable
        Takes the result after each section and, of long ones, before they are through
        (``partial`` names such a section).

    Returns
    -------
    dict
        ``experiment``, where and when, ``digits``, ``sections`` by name, ``failures``.
    """
    names = options.sections or (ON_CPU + ON_GPU if options.on_gpu else ON_CPU)
    check_sections(names, options.on_gpu)
    watch.doing("digits and their maps", _ON_CPU)
    bench = Bench(options, watch)
    result: dict[str, Any] = {
        "experiment": "slayer",
        **replace(options, command=_command(options)).about(),
        "model": bench.model.id,
        "precision": options.precision,
        "digits": bench.source,
        "networks": {size: fed.model.name for size, fed in bench.fed.items()},
        "sections": {},
        "failures": {},
        **earlier,
    }
    done = {*result["sections"], *result["failures"]} - {result.pop("partial", None)}
    ladder = result["sections"].get("ladder", {})
    bench.tried = list(ladder.get("trial", ()))
    for name in names:
        if name in done:
            continue
        progress(f"section {name}")

        def so_far(rows: Any, name: str = name) -> None:
            result["sections"][name] = rows
            save({**result, "partial": name})

        bench.so_far = so_far
        why = watch.why_not(f"section {name}")
        watch.doing(f"section {name}", _ON_GPU if name in ON_GPU else _ON_CPU)
        try:
            if why is not None:
                raise DeviceError(why)
            with bench.gpu.current() if name in ON_GPU else nullcontext():
                result["sections"][name] = getattr(bench, name)()
        except Exception as failure:  # the other sections still run; it is told at the end
            traceback.print_exc()
            result["failures"][name] = f"{type(failure).__name__}: {failure}"
            if name in ON_GPU and why is None:
                watch.check(f"section {name}", partial(_healthy, bench))
        save(result)
    return result


def _healthy(bench: Bench) -> None:
    """Raise if the device no longer works."""
    getattr(bench.gpu.xp.cuda.runtime, "deviceSynchronize", lambda: None)()


def merged(earlier: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """Return a result with the sections of an earlier one that it does not have.

    ``from`` tells of each section what made it: command, machine, commit, model and the like.
    """
    keys = ("command", "machine", "cpu", "date", "commit", "digits", "model", "precision")
    own = {key: result.get(key) for key in keys}
    made = dict.fromkeys(result["sections"], own)
    older = {name: rows for name, rows in earlier.get("sections", {}).items() if name not in made}
    before = {key: earlier.get(key) for key in keys}
    origins = {name: earlier.get("from", {}).get(name, before) for name in older}
    first = earlier if earlier.get("machine") and len(older) > len(made) else result
    of_one_run = ("partial", "broken")
    return {
        **{key: value for key, value in earlier.items() if key not in of_one_run},
        **result,
        **{key: first.get(key) for key in keys},
        "sections": {**older, **result["sections"]},
        "from": {**origins, **made},
    }


def check_sections(names: Sequence[str], on_gpu: bool) -> None:
    """Raise a UsageError unless these sections are there and the device can do them."""
    for name in names:
        if name not in ON_CPU + ON_GPU:
            known = ", ".join(ON_CPU + ON_GPU)
            raise UsageError(f"slayer has no section {name!r}; choose {known}")
        if name in ON_GPU and not on_gpu:
            raise UsageError(f"section {name!r} needs a GPU: --device cuda")


def faults(result: dict[str, Any]) -> list[str]:
    """Return a line for every section that failed and every row that is wrong."""
    lines = [f"section {name}: {text}" for name, text in result.get("failures", {}).items()]
    for name, section in result.get("sections", {}).items():
        rows = [row for rows in section.values() for row in rows] if isinstance(section, dict) \
            else section  # fmt: skip
        for row in rows:
            if row.get("passed") is False or row.get("same") is False:
                facts = {k: v for k, v in row.items() if k not in ("us", "counts")}
                lines.append(f"{name}: {facts}")
    return lines


def _command(options: Options) -> str:
    words = ["neocog bench slayer", f"--device {options.device}"]
    if options.data is not None:
        words.append("--data DATA")
    if options.sections:
        words.append(f"--sections {','.join(options.sections)}")
    return " ".join(words + ["--quick"] * options.quick)
