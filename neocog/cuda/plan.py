"""Which version of each step makes the pass: per device, precision and batch.

A plan names a version for each layer. It comes from the measurements of this device if there are
any (``neocog timing --plan auto`` makes them), else from the plans that ship, ``plans.json``.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from neocog.cuda import cache as builds
from neocog.cuda.kernel import Kernel, Machine, kernel_folder
from neocog.cuda.passes import takes_all
from neocog.cuda.steps import Precision, Step, layouts
from neocog.errors import DeviceError, UsageError
from neocog.network.model import Model
from neocog.text import to_json

#: Stages of the pass, in order; UC4 is the strongest planes and the decision.
STAGES = ("UG", "US1", "UC1", "US2", "UC2", "US3", "UC3", "US4", "UC4")
#: Batches that plans are made for; others take the plan of the next smaller one.
ANCHORS = (1, 8, 64, 256)
#: Most digits that go through the pass together.
MOST_CHUNK = 2048
#: Digits that do when more come, and those that go through UG .. UC3 together, where no plan says.
CHUNK, PART = 1024, 256

#: The plans that ship, by device and precision.
PLANS = Path(__file__).with_name("plans.json")

_MODULES = {
    "UG": ("contrast",),
    "US": ("s_winograd", "s_tensor"),
    "UC": ("c_direct_sum", "c_tensor"),
    "UC4": ("decide",),
}
#: Plans with a name: versions in order of preference, by stage or kind of stage. ``card``: direct
#: sums and, in the large layers, Winograd; without tensor cores (7.5) in all of them.
NAMED: dict[str, dict[str, tuple[str, ...]]] = {
    "card": {"US1": ("tensor", "winograd"), "US": ("winograd",), "UC": ("separable", "box")}
}


def kind_of(stage: str) -> str:
    """Return the kind of a stage, ``"UG"``, ``"US"``, ``"UC"`` or ``"UC4"``."""
    return stage if stage in _MODULES else stage[:2]


@cache
def versions(kind: str) -> Mapping[str, Any]:
    """Return what constructs a step of a kind, by version."""
    found: dict[str, Any] = {}
    for name in _MODULES[kind]:
        found |= import_module(f"neocog.cuda.{name}").VERSIONS
    return found


def anchor_of(batch: int) -> int:
    """Return the batch whose plan serves ``batch``."""
    return max(anchor for anchor in ANCHORS if anchor <= max(batch, ANCHORS[0]))


@dataclass(frozen=True, slots=True)
class Plan:
    """Versions by anchor and stage; row 0 is for what an anchor does not name.

    ``table`` is anchor -> stage -> versions, the best first. ``late``: anchor -> stages whose kernels
    let the next one begin only when they end, where launches are programmatic.
    """

    table: Mapping[int, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    chunk: int = 0  # digits that go through the pass together; 0: the plan does not say
    part: int = 0  # of a chunk that go through UG .. UC3 together (see `Pass`); 0: it does not say
    name: str = "default"  # where the plan comes from, for people
    late: Mapping[int, Sequence[str]] = field(default_factory=dict)

    def late_at(self, batch: int) -> tuple[str, ...]:
        """Return the stages that are late in a pass over ``batch`` digits."""
        return tuple(self.late.get(anchor_of(batch), self.late.get(0, ())))

    def preferred(self, stage: str, batch: int) -> tuple[str, ...]:
        """Return the versions of a stage at a batch, the best first; empty if none is named."""
        for anchor in (anchor_of(batch), 0):
            row = self.table.get(anchor, {})
            if wanted := row.get(stage) or row.get(kind_of(stage)):
                return tuple(wanted)
        return ()

    def over(self, other: "Plan") -> "Plan":
        """Return this plan where it names versions, elsewhere the other."""
        rows = {
            n: {stage: self.preferred(stage, n) or other.preferred(stage, n) for stage in STAGES}
            for n in ANCHORS
        }
        name = self.name if self.table or self.chunk or self.part else other.name
        chunk = self.chunk or other.chunk or CHUNK
        part = min(chunk, self.part or other.part or PART)
        late = {a: (self if {0, a} & self.late.keys() else other).late_at(a) for a in ANCHORS}
        return Plan(rows, chunk, part, name, late)

    def to_json(self) -> dict[str, Any]:
        """As a plan file holds it."""
        late = {str(anchor): stages for anchor, stages in self.late.items()}
        table = {str(anchor): row for anchor, row in self.table.items()}
        return {"chunk": self.chunk, "part": self.part, "late": late, "versions": table}

    @classmethod
    def from_json(cls, data: Any, *, name: str) -> "Plan":
        """Build a plan from what a plan file holds; a UsageError if it is none.

        One without a part takes chunks undivided.
        """
        try:
            table = {
                int(anchor): {stage: _names(names) for stage, names in row.items()}
                for anchor, row in data["versions"].items()
            }
            chunk = int(data.get("chunk", 0))
            part = int(data.get("part", chunk))
            late = {int(anchor): tuple(names) for anchor, names in data.get("late", {}).items()}
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
            wanted = "{'versions': {'8': {'US2': 'tensor'}}}"
            raise UsageError(f"plan {name}: expected {wanted}") from None
        _check_sizes((*table, *late), chunk, part, name)
        for row in table.values():
            _check_names(row, name)
        for stages in late.values():
            _check_names(dict.fromkeys(stages, ()), name)
        return cls(table, chunk, part, name, late)


def _names(names: str | Iterable[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(map(str, names))


def _check_sizes(anchors: Iterable[int], chunk: int, part: int, name: str) -> None:
    for anchor in anchors:
        if anchor not in (0, *ANCHORS):
            known = ", ".join(map(str, ANCHORS))
            raise UsageError(f"plan {name}: batch size {anchor} is not allowed; choose {known}, or 0 for all")
    if not 0 <= chunk <= MOST_CHUNK:
        raise UsageError(f"plan {name}: a chunk of {chunk}, expected 1..{MOST_CHUNK}")
    most = chunk or MOST_CHUNK
    if not 0 <= part <= most:
        raise UsageError(f"plan {name}: a part of {part}, expected 1..{most}, not more than the chunk")


def _check_names(row: Mapping[str, Iterable[str]], name: str) -> None:
    for stage, names in row.items():
        if stage not in STAGES and stage not in _MODULES:
            raise UsageError(f"plan {name}: no stage {stage!r}; choose {', '.join(STAGES)}")
        known = versions(kind_of(stage))
        for version in names:
            if version not in known:
                raise UsageError(
                    f"plan {name}: {stage} has no version {version!r}; choose {', '.join(known)}"
                )


def parse_plan(text: str) -> Plan | None:
    """Turn the option ``--plan`` into what it asks for on top of the default plan; None for ``auto``.

    A name (``"card"``), ``STAGE=VERSION,...`` or a file; a UsageError if there is no such plan.
    """
    if text in ("", "default"):
        return Plan()
    if text == "auto":
        return None
    if text in NAMED:
        return Plan({0: NAMED[text]}, name=text)
    if "=" in text:
        items = (item.partition("=") for item in text.split(","))
        row = {stage.strip(): (version.strip(),) for stage, _, version in items}
        _check_names(row, text)
        return Plan({0: row}, name=text)
    path = Path(text)
    if not path.is_file():
        names = ", ".join(("default", "auto", *NAMED))
        raise UsageError(f"plan {text!r}: no such file; choose {names}, STAGE=VERSION or a file")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UsageError(f"plan {text}: cannot be read as JSON") from None
    return Plan.from_json(data, name=text)


def shipped(device: str, precision: Precision) -> Plan:
    """Return the plan that ships for a device by its name, else the one for unknown devices."""
    plans = json.loads(PLANS.read_text(encoding="utf-8"))
    data = plans.get(device, {}).get(precision) or plans["default"][precision]
    return Plan.from_json(data, name="shipped")


class Store:
    """Measured plans beside the built kernels: one for a device, shape of a model, precision, code.

    Models of one shape share a plan.
    """

    def __init__(self, device: str, model: Model, precision: Precision) -> None:
        shape = [model.spec.name, *model.planes, model.psi]
        self.about = {"device": device, "model": shape, "precision": precision, "code": code_hash()}
        key = hashlib.sha256(to_json(self.about).encode()).hexdigest()[:16]
        self.name = f"plan-{key}.json"

    def load(self) -> Plan | None:
        """Return the measured plan, None if there is none (or none that can be read)."""
        try:
            return Plan.from_json(json.loads(builds.load(self.name) or b""), name="measured")
        except (ValueError, UsageError):
            return None

    def save(self, plan: Plan, times: Mapping[str, Any]) -> None:
        """Write a plan and the times that it rests on; a folder that takes no file is no error."""
        data = {**plan.to_json(), "about": self.about, "microseconds": times}
        builds.store(self.name, to_json(data, indent=1).encode())


@cache
def code_hash() -> str:
    """Return a hash of the kernels, of what launches them and of the tilings found quickest."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for path in sorted([*kernel_folder().glob("*.cu*"), *here.glob("*.py"), *here.glob("*.json")]):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


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
            self._steps[key] = versions(kind_of(stage))[version](
                self.machine, self.model, index, self.layouts, self.precision
            )
        return self._steps[key]

    def usable(self, stage: str, batch: int, *, reads: str | None = None) -> list[str]:
        """Return the versions that can do a stage here, all of which read ``reads`` if given."""
        return [name for name in versions(kind_of(stage)) if self._fits(stage, name, batch, reads)]

    def _fits(self, stage: str, version: str, batch: int, reads: str | None) -> bool:
        wanted = reads or ("digits" if stage == "UG" else None)
        shared = getattr(self.machine, "shared", math.inf)
        try:
            step = self.step(stage, version)
            return (wanted is None or step.reads == wanted) and all(
                kernel.runs_on(self.machine.arch) and kernel.shared <= shared
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
            count = batch if takes_all(stage) else min(batch, plan.part or batch)
            names = plan.preferred(stage, count) if first == "digits" or stage != "UG" else ()
            known = names or tuple(versions(kind_of(stage)))
            fitting = (name for name in known if self._fits(stage, name, count, reads))
            version = next(fitting, None)
            if version is None:
                wanted = ", ".join(names) or "any version"
                raise UsageError(
                    f"plan {plan.name}: {stage} cannot be done by {wanted} at {self.precision} on "
                    f"compute capability {self.machine.arch / 10:.1f}; choose another --plan or "
                    "--precision"
                )
            steps.append(self.step(stage, version))
        return steps


def kernels_of(step: Step, batch: int) -> list[Kernel]:
    """Return the kernels of a step for a batch; no array is needed to name them."""
    nothing: dict[str, Any] = dict.fromkeys(step.scratch(batch))
    return [launch.kernel for launch in step.launches(batch, None, None, nothing)]
