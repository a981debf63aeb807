"""Which version of each step makes the pass, how many digits go through it together, and the pass itself.

`default`: tensor cores, from compute capability 8.0 on; below, Winograd and direct sums. `card`, as two
papers do it: direct sums in UC1 .. UC3, channel-wise decomposed Winograd in US2 .. US4. Nothing here knows
whether the machine is a GPU or the emulator.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neocog.cuda.c_direct_sum import DirectSumC, SeparableC
from neocog.cuda.c_tensor import TensorC
from neocog.cuda.contrast import Contrast, ContrastOfU0
from neocog.cuda.decide import Decide
from neocog.cuda.kernel import Array, Launch, Layout, Machine, Precision, Step, layouts
from neocog.cuda.s_tensor import TensorS
from neocog.cuda.winograd import WinogradS
from neocog.errors import DeviceError, InputError, UsageError
from neocog.network.arrays import to_numpy
from neocog.network.model import Model
from neocog.network.spec import INPUT_SIZE
from neocog.network.u0 import DIGIT_SIZE

STAGES = ("UG", "US1", "UC1", "US2", "UC2", "US3", "UC3", "US4", "UC4")
"""Stages of the pass, in order; UC4 is the strongest planes and the decision."""
_S, _C = ("US1", "US2", "US3", "US4"), ("UC1", "UC2", "UC3")
VERSIONS: dict[str, dict[str, Any]] = {
    "UG": {"digits": Contrast, "U0": ContrastOfU0},  # by what it reads
    **{stage: {"winograd": WinogradS, "tensor": TensorS} for stage in _S},
    **{stage: {"separable": SeparableC, "box": DirectSumC, "tensor": TensorC} for stage in _C},
    "UC4": {"warps": Decide},
}
"""Steps by stage and version."""
PLANS: dict[str, dict[str, tuple[str, ...]]] = {
    "default": dict.fromkeys(_S, ("tensor", "winograd")) | dict.fromkeys(_C, ("tensor", "separable", "box")),
    "card": {**dict.fromkeys(_S[1:], ("winograd",)), "US1": ("tensor", "winograd"),
             **dict.fromkeys(_C, ("separable", "box"))},
}  # fmt: skip
"""By name: versions of a stage in order of preference; of others any."""
ANSWER_COLUMNS = 16
"""Columns of the answers: 10 scores, label, margin, probability; the rest is spare."""
#: Digits that go through the pass together when more come, and of them those that do through UG .. UC3.
_CHUNKS: dict[Precision, tuple[int, int]] = {"fp32": (640, 128), "fp16": (1024, 256)}
#: Late stages by least batch, measured on an H100 and an H200 (LOG.md, 2026-11-26).
_LATE: dict[tuple[str, Precision], dict[int, tuple[str, ...]]] = {
    ("default", "fp32"): {1: ("UC1",), 64: ("US1", "US2"), 256: ("US1", "US2", "UC3")},
    ("default", "fp16"): {1: (), 2: ("UC1", "US3"), 16: ("US1", "US2", "US3"), 256: ("US1", "US2")},
    ("card", "fp32"): {1: (), 8: ("UC1",), 64: ("US1", "US2"), 256: ("US1", "US2", "UC3")},
    ("card", "fp16"): {1: (), 8: ("UC1", "US3"), 16: ("US1", "US2", "US3"), 64: ("US1", "US3", "US4"),
                       256: ("US1", "US2")},
}  # fmt: skip
_ENDS: dict[str, tuple[tuple[int, ...], str]] = {
    "digits": ((DIGIT_SIZE, DIGIT_SIZE), "uint8"),
    "U0": ((INPUT_SIZE, INPUT_SIZE), "float32"),
    "answers": ((ANSWER_COLUMNS,), "float32"),
}
_WHOLE = ("US4", "UC4")  # stages that take all digits of a pass at once, where others take them in parts


@dataclass(frozen=True, slots=True)
class Plan:
    """Versions by stage, the best first; ``chunk`` digits go through a pass, ``part`` through UG .. UC3."""

    name: str
    versions: Mapping[str, Sequence[str]]
    chunk: int
    part: int
    late: Mapping[int, Sequence[str]]  # by least batch

    def late_at(self, batch: int) -> tuple[str, ...]:
        """Return the stages whose kernels let the next one begin only when they end."""
        return tuple(self.late[max(least for least in self.late if least <= max(batch, 1))])


def plan_of(name: str, precision: Precision) -> Plan:
    """Return a plan by its name; a UsageError if there is no such plan."""
    if name not in PLANS:
        raise UsageError(f"plan '{name}' is unknown: choose {', '.join(PLANS)}")
    return Plan(name, PLANS[name], *_CHUNKS[precision], _LATE[name, precision])


class Shelf:
    """The steps of one model on one machine, each constructed when it is first asked for."""

    def __init__(self, machine: Machine, model: Model, precision: Precision) -> None:
        self.machine, self.model, self.precision = machine, model, precision
        self.layouts = layouts(model.spec, model.planes, precision)
        self._steps: dict[tuple[str, str], Step] = {}

    def step(self, stage: str, version: str) -> Step:
        """Return a step; a UsageError or DeviceError if the version does not do this layer here."""
        if (stage, version) not in self._steps:
            index = int(stage[-1]) - 1 if stage[-1].isdigit() else 0
            made = VERSIONS[stage][version]
            self._steps[stage, version] = made(self.machine, self.model, index, self.layouts, self.precision)
        return self._steps[stage, version]

    def does(self, stage: str, version: str, batch: int) -> bool:
        """Whether a version can do a stage here."""
        arch, shared = self.machine.arch, self.machine.shared
        try:
            kernels = self.step(stage, version).kernels(batch)
        except (UsageError, DeviceError):
            return False
        return all(kernel.runs_on(arch) and kernel.shared <= shared for kernel in kernels)

    def choose(self, plan: Plan, batch: int, *, first: str = "digits",
               stages: Sequence[str] = STAGES) -> list[Step]:  # fmt: skip
        """Return the steps of the pass by a plan, those of parts for a part; ``first`` is what it reads.

        A UsageError if a stage can be done by none of the versions that the plan names.
        """
        steps = []
        for stage in stages:
            names = (first,) if stage == "UG" else plan.versions.get(stage, tuple(VERSIONS[stage]))
            count = batch if stage in _WHOLE else min(batch, plan.part)
            version = next((name for name in names if self.does(stage, name, count)), None)
            if version is None:
                what = f"plan {plan.name}: {stage} cannot be done by {', '.join(names)} at {self.precision}"
                where = f"compute capability {self.machine.arch / 10:.1f}"
                raise UsageError(f"{what} on {where}; choose another --plan or --precision")
            steps.append(self.step(stage, version))
        return steps


class Stage(NamedTuple):
    """One step with its launches, those of all parts."""

    name: str  # the layer that it writes, UC4 for the answers
    step: Step
    launches: tuple[Launch, ...]


class Pass:
    """Arrays and launches of a pass for batches of one size.

    A large batch goes through UG .. UC3 in parts of ``part`` digits (0: all; the last takes the rest), whose
    maps stay in the L2 cache. They share one set of arrays and of scratch, and each writes its slice of UC3.
    US4 and the decision, which stream large weights and tables, then take the whole batch at once.

    Arrays are filled with 0 once: borders and spare channels stay so. ``late`` are stages whose kernels let
    the next one begin only when they end; ``answers``, if given, is where these go.

    The next part overwrites maps that kernels of this part read. With programmatic launches too they have
    been read by then: every kernel waits for the end of the kernel in front of it before it writes, which
    has itself waited so; what is two or more kernels back is over.
    """

    def __init__(self, machine: Machine, steps: Sequence[Step], layouts: Mapping[str, Layout],
                 batch: int, part: int = 0, late: Collection[str] = (),
                 answers: Array | None = None) -> None:  # fmt: skip
        for step, before in zip(steps[1:], steps[:-1], strict=True):
            if step.reads != before.writes:
                raise InputError(f"internal error: a step expects {step.reads}, got {before.writes}")
        self.machine, self.batch, self.layouts = machine, batch, layouts
        self.part = min(part or batch, batch)
        self.arrays: dict[str, Array] = {}
        names = ["UC4" if step.writes == "answers" else step.writes for step in steps]
        in_parts = sum(name not in _WHOLE for name in names)
        for i, layer in enumerate([steps[0].reads, *(step.writes for step in steps)]):
            # for a part what only parts write and read, for all digits the other layers
            shape, dtype = form(layer, layouts, self.part if 0 < i < in_parts else batch)
            given = answers if layer == "answers" else None
            self.arrays[layer] = machine.xp.zeros(shape, dtype) if given is None else given
        scratch: dict[tuple[int, int], dict[str, Array]] = {}
        #: Place of the stage and launch, in the order in which they are launched.
        self._order: list[tuple[int, Launch]] = []
        starts = range(0, batch if in_parts else 0, self.part)
        parts = [(slice(start, min(start + self.part, batch)), range(in_parts)) for start in starts]
        for digits, some in (*parts, (slice(0, batch), range(in_parts, len(steps)))):
            count = digits.stop - digits.start
            for i in some:
                ends = (self.arrays[layer] for layer in (steps[i].reads, steps[i].writes))
                source, target = (array[digits] if len(array) == batch else array[:count] for array in ends)
                if (i, count) not in scratch:
                    forms = steps[i].scratch(count).items()
                    scratch[i, count] = {name: machine.xp.zeros(*kind) for name, kind in forms}
                own = (("LATE", 1),) if names[i] in late else ()
                for launch in steps[i].launches(count, source, target, scratch[i, count]):
                    defines, carveout = launch.kernel.defines + own, len(steps) > 1  # alone none overlap
                    kernel = replace(launch.kernel, defines=defines, carveout=carveout)
                    self._order.append((i, launch._replace(kernel=kernel)))
        self.launches = tuple(launch for _, launch in self._order)
        self.stages = tuple(
            Stage(name, step, tuple(found for j, found in self._order if j == i))
            for i, (name, step) in enumerate(zip(names, steps, strict=True))
        )

    def up_to(self, stages: int) -> Iterator[Launch]:
        """Return the launches of the first so many stages, in the order of the pass."""
        return (launch for index, launch in self._order if index < stages)

    def run(self) -> None:
        for launch in self.launches:
            self.machine.launch(launch)

    def maps(self, layer: str) -> NDArray[np.float32]:
        """Return a layer on the host, (B, K, H, W), without border and spare channels; of the last part."""
        layout, array = self.layouts[layer], to_numpy(self.arrays[layer])
        inside = slice(layout.border, layout.border + layout.size)
        values = array[:, inside, inside, : layout.planes].transpose(0, 3, 1, 2)
        return np.ascontiguousarray(values, np.float32)


def form(layer: str, layouts: Mapping[str, Layout], batch: int) -> tuple[tuple[int, ...], Any]:
    """Return shape and type of the array that holds a layer for ``batch`` digits."""
    if layer in _ENDS:
        shape, dtype = _ENDS[layer]
        return (batch, *shape), np.dtype(dtype)
    return layouts[layer].shape(batch), np.dtype(layouts[layer].dtype)
