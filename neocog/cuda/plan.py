"""Which version of each step makes the pass, and how many digits go through it together.

`default`: tensor cores, from compute capability 8.0 on; below, Winograd and direct sums. `card`, as two
papers do it: direct sums in UC1 .. UC3, channel-wise decomposed Winograd in US2 .. US4.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neocog.cuda import c_direct_sum, c_tensor, contrast, decide, s_tensor, s_winograd
from neocog.cuda.kernel import Kernel, Machine
from neocog.cuda.passes import takes_all
from neocog.cuda.steps import Precision, Step, layouts
from neocog.errors import DeviceError, UsageError
from neocog.network.model import Model

#: Stages of the pass, in order; UC4 is the strongest planes and the decision.
STAGES = ("UG", "US1", "UC1", "US2", "UC2", "US3", "UC3", "US4", "UC4")
#: What constructs a step, by kind of stage and version.
VERSIONS: dict[str, Mapping[str, Any]] = {
    "UG": contrast.VERSIONS,
    "US": {**s_winograd.VERSIONS, **s_tensor.VERSIONS},
    "UC": {**c_direct_sum.VERSIONS, **c_tensor.VERSIONS},
    "UC4": decide.VERSIONS,
}
#: By name: versions in order of preference, by stage or kind of stage.
PLANS: dict[str, dict[str, tuple[str, ...]]] = {
    "default": {"US": ("tensor", "winograd"), "UC": ("tensor", "separable", "box")},
    "card": {"US1": ("tensor", "winograd"), "US": ("winograd",), "UC": ("separable", "box")},
}
#: Digits that go through the pass together when more come, and of them those that do through UG .. UC3.
_CHUNKS: dict[Precision, tuple[int, int]] = {"fp32": (640, 128), "fp16": (1024, 256)}
#: Late stages by least batch, measured on an H200 (``python -m experiments.gpu.latency``).
_LATE: dict[Precision, dict[int, tuple[str, ...]]] = {
    "fp32": {1: (), 8: ("UC1",), 64: ("US1", "US2"), 256: ("US1", "US2", "UC3")},
    "fp16": {1: (), 8: ("UC1", "US3"), 64: ("US1", "US3", "US4"), 256: ("US1", "US2")},
}


def kind_of(stage: str) -> str:
    """Return the kind of a stage, ``"UG"``, ``"US"``, ``"UC"`` or ``"UC4"``."""
    return stage if stage in VERSIONS else stage[:2]


@dataclass(frozen=True, slots=True)
class Plan:
    """Versions by stage or kind of stage, the best first; what it does not name any version does."""

    name: str
    versions: Mapping[str, Sequence[str]]
    chunk: int  # digits that go through the pass together when more come
    part: int  # of a chunk that go through UG .. UC3 together (see `Pass`)
    late: Mapping[int, Sequence[str]]  # by least batch

    def late_at(self, batch: int) -> tuple[str, ...]:
        """Return the stages whose kernels let the next one begin only when they end."""
        return tuple(self.late[max(least for least in self.late if least <= max(batch, 1))])

    def preferred(self, stage: str) -> tuple[str, ...]:
        """Return the versions of a stage, the best first."""
        kind = kind_of(stage)
        return tuple(self.versions.get(stage) or self.versions.get(kind) or VERSIONS[kind])


def plan_of(name: str, precision: Precision) -> Plan:
    """Return a plan by its name; a UsageError if there is no such plan."""
    if name not in PLANS:
        raise UsageError(f"plan '{name}' is unknown: choose {', '.join(PLANS)}")
    chunk, part = _CHUNKS[precision]
    return Plan(name, PLANS[name], chunk, part, _LATE[precision])


class Shelf:
    """The steps of one model on one machine, each constructed when it is first asked for."""

    def __init__(self, machine: Machine, model: Model, precision: Precision) -> None:
        self.machine, self.model, self.precision = machine, model, precision
        self.layouts = layouts(model.spec, model.planes, precision)
        self._steps: dict[tuple[str, str], Step] = {}

    def step(self, stage: str, version: str) -> Step:
        """Return a step; a UsageError or DeviceError if the version does not do this layer here."""
        key = (stage, version)
        if key not in self._steps:
            index = int(stage[-1]) - 1 if stage[-1].isdigit() else 0
            self._steps[key] = VERSIONS[kind_of(stage)][version](
                self.machine, self.model, index, self.layouts, self.precision
            )
        return self._steps[key]

    def does(self, stage: str, version: str, batch: int, *, reads: str | None = None) -> bool:
        """Whether a version can do a stage here, and reads ``reads`` (UG: digits)."""
        wanted = reads or ("digits" if stage == "UG" else None)
        try:
            step = self.step(stage, version)
            return (wanted is None or step.reads == wanted) and all(
                kernel.runs_on(self.machine.arch) and kernel.shared <= self.machine.shared
                for kernel in kernels_of(step, batch)
            )
        except (UsageError, DeviceError):
            return False

    def choose(
        self, plan: Plan, batch: int, *, first: str = "digits", stages: Sequence[str] = STAGES
    ) -> list[Step]:
        """Return the steps of the pass by a plan; ``first`` is what the first of them reads.

        Stages that a large batch goes through in parts are chosen for a part. A UsageError if a
        stage can be done by none of the versions that the plan names.
        """
        steps = []
        for stage in stages:
            reads = first if stage == "UG" else None
            count = batch if takes_all(stage) else min(batch, plan.part)
            names = plan.preferred(stage)
            version = next((name for name in names if self.does(stage, name, count, reads=reads)), None)
            if version is None:
                raise UsageError(
                    f"plan {plan.name}: {stage} cannot be done by {', '.join(names)} at {self.precision} on "
                    f"compute capability {self.machine.arch / 10:.1f}; choose another --plan or "
                    "--precision"
                )
            steps.append(self.step(stage, version))
        return steps


def kernels_of(step: Step, batch: int) -> list[Kernel]:
    """Return the kernels of a step for a batch; no array is needed to name them."""
    nothing: dict[str, Any] = dict.fromkeys(step.scratch(batch))
    return [launch.kernel for launch in step.launches(batch, None, None, nothing)]
