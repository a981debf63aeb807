"""C-cells as a direct sum: how ``kernels/c_direct_sum.cu`` is specialised, fed and launched."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from neocog.cuda.kernel import Array, Kernel, Launch, Layout, Machine
from neocog.cuda.steps import Precision, Step, Work, c_work, up
from neocog.cuda.tilings import shared_limit
from neocog.errors import UsageError
from neocog.network.fields import pooled
from neocog.network.model import Model

#: Taps of a_C below this part of the largest are what float32 blurs leave of a tap that is 0.
_NOTHING = 1e-7
#: A kernel whose second singular value is below this part of the first is of rank 1.
_RANK_1 = 1e-7
#: Threads a block that are aimed at where digits are few: a warp for each scheduler.
_FEW_THREADS = 128


@dataclass(frozen=True, slots=True)
class Plan:
    """How a layer is dealt to blocks: rows of outputs, threads a row, channels."""

    rows: int
    groups: int
    slab: int = 8


class DirectSumC(Step):
    """UC1 .. UC3: box sums, strided blur and saturation in one kernel.

    Parameters
    ----------
    machine : Machine
        Where to run.
    model : Model
        Whose blur.
    layer : int
        0 .. 2 for UC1 .. UC3.
    layouts : dict
        Of :func:`neocog.cuda.steps.layouts`.
    precision : {"fp32", "tf32", "fp16", "bf16"}
        Type of the maps, as in ``layouts``; sums are float32 in all.
    plan : Plan, optional
        Taken instead of the one that fits the batch.

    Raises
    ------
    UsageError
        If the version does not fit the blur.
    """

    version: ClassVar[str] = "box"
    #: Function of the kernel source.
    function: ClassVar[str] = "c_direct"

    def __init__(
        self,
        machine: Machine,
        model: Model,
        layer: int,
        layouts: dict[str, Layout],
        precision: Precision,
        *,
        plan: Plan | None = None,
    ) -> None:
        self.reads, self.writes = f"US{layer + 1}", f"UC{layer + 1}"
        self._machine, self._plan = machine, plan
        self._source, self._target = layouts[self.reads], layouts[self.writes]
        self._padding, self._psi = model.spec.c[layer].padding, model.psi
        self._a = combined(model.blurs[layer])
        fitting = applicable(self._a)
        if self.version not in fitting:
            raise UsageError(
                f"C version {self.version!r} does not fit the blur of {self.writes}: "
                f"choose {', '.join(fitting)}"
            )
        weights = self._weights(model.blurs[layer].astype(np.float64))
        self._taps: int = weights.shape[1]
        self._kernel_rows: int = weights.shape[0]
        self._constants = machine.xp.asarray(np.ascontiguousarray(weights, dtype=np.float32))

    def _weights(self, blur: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weights that the kernel takes, (rows, taps)."""
        return blur / 4

    def plan(self, batch: int) -> Plan:
        """Return how a batch is dealt to blocks.

        Whole rows a thread and all rows a block read and multiply least; a few digits are split
        until there is a block for every processor.
        """
        if self._plan is not None:
            return self._plan
        out, slab = self._target.size, 8
        plan = Plan(self._most_rows(), 1, slab)
        wanted = self._machine.processors // (batch * -(-self._source.channels // slab))
        if wanted > -(-out // plan.rows):
            rows = -(-out // wanted)
            groups = min(max(_FEW_THREADS // (rows * slab), 1), -(-out // 4))
            plan = Plan(rows, groups, slab)
        while self._shared(plan) > shared_limit(self._machine.arch) and plan.rows > 1:
            plan = replace(plan, rows=-(-plan.rows // 2))
        return plan

    def _most_rows(self) -> int:
        return self._target.size

    def kernel(self, plan: Plan) -> Kernel:
        """Return the kernel, specialised for a plan."""
        s, t = self._source, self._target
        defines = {
            "MAP": s.code,
            "SIZE": s.size,
            "CHANNELS": s.channels,
            "OUT": t.size,
            "UC_WIDTH": t.width,
            "UC_BORDER": t.border,
            "UC_CHANNELS": t.channels,
            "TAPS": self._taps,
            "FIRST": -self._padding,
            "PSI": int(self._psi == "ratio"),
            **self._specialised(plan),
        }
        threads = self._threads(plan)
        limit = min(255, 65536 // up(threads, 32) // 8 * 8)
        return Kernel(
            "c_direct_sum.cu",
            self.function,
            tuple(defines.items()),
            threads,
            self._shared(plan),
            registers=limit,
        )

    def _threads(self, plan: Plan) -> int:
        return plan.rows * plan.groups * plan.slab

    def _specialised(self, plan: Plan) -> dict[str, int]:
        """What the version and the plan define."""
        mirrored = np.array_equal(self._a, self._a[:, ::-1])
        return _dealt(plan, self._target) | {"DIRECT": 1, "BOX": 1, "MIRRORED": int(mirrored)}

    def _shared(self, plan: Plan) -> int:
        """Bytes of shared memory of a block: rows of the layer, a silent row, the weights."""
        held = self._source.size + (self.version == "box")
        columns = held if plan.groups == 1 else self._seen_columns(plan)
        pitch = up(columns * plan.slab - plan.slab // 2, 16) + plan.slab // 2
        rows = min(2 * (plan.rows - 1) + self._taps, held)
        return 4 * ((rows + 1) * pitch + self._kernel_rows * self._taps)

    def _seen_columns(self, plan: Plan) -> int:
        return 2 * (up(self._target.size, plan.groups) - 1) + self._taps

    def launches(
        self, batch: int, source: Array, target: Array, scratch: dict[str, Array]
    ) -> list[Launch]:
        """One launch."""
        plan = self.plan(batch)
        args = (source, target, self._constants)
        return [Launch(self.kernel(plan), self._grid(plan, batch), args)]

    def _grid(self, plan: Plan, batch: int) -> tuple[int, int, int]:
        bands = -(-self._target.size // plan.rows)
        return bands, -(-self._source.channels // plan.slab), batch

    def work(self) -> Work:
        """Return the work by the plain equations."""
        return c_work(self._source, self._target, len(self._a))


class NaiveC(DirectSumC):
    """One thread an output, from global memory."""

    version: ClassVar[str] = "naive"
    function: ClassVar[str] = "c_naive"

    def _weights(self, blur: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._a

    def _threads(self, plan: Plan) -> int:
        return 256

    def _specialised(self, plan: Plan) -> dict[str, int]:
        return {}

    def _shared(self, plan: Plan) -> int:
        return 0

    def _grid(self, plan: Plan, batch: int) -> tuple[int, int, int]:
        return -(-(self._target.size**2) * self._source.channels // 256), 1, batch


class FoldedC(DirectSumC):
    """Mirrored rows of the input added before they are multiplied."""

    version: ClassVar[str] = "folded"

    def _weights(self, blur: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._a[: len(self._a) // 2]

    def _specialised(self, plan: Plan) -> dict[str, int]:
        return super()._specialised(plan) | {"BOX": 0, "FOLDED": 1}


class SeparableC(DirectSumC):
    """Down the columns, then along the rows."""

    version: ClassVar[str] = "separable"
    function: ClassVar[str] = "c_separable"

    def _weights(self, blur: NDArray[np.float64]) -> NDArray[np.float64]:
        u, sigma, vt = np.linalg.svd(self._a)
        return np.stack([np.abs(u[:, 0]) * sigma[0], np.abs(vt[0])])

    def _most_rows(self) -> int:
        return min(self._target.size, 13)

    def _specialised(self, plan: Plan) -> dict[str, int]:
        return _dealt(plan, self._target) | {"SEPARABLE": 1}

    def _shared(self, plan: Plan) -> int:
        columns = self._source.size if plan.groups == 1 else self._seen_columns(plan)
        return 4 * plan.rows * (up(columns * plan.slab, 32) + plan.slab)


def _dealt(plan: Plan, target: Layout) -> dict[str, int]:
    nx = -(-target.size // plan.groups)
    return {"ROWS": plan.rows, "GROUPS": plan.groups, "SLAB": plan.slab, "NX": nx}


def combined(blur: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return a_C of a float32 blur, (kernel, kernel), with 0 where only its rounding is left."""
    a = pooled(blur.astype(np.float64))
    a[np.abs(a) < _NOTHING * np.abs(a).max()] = 0
    return a


def applicable(a: NDArray[np.float64]) -> list[str]:
    """Return the versions that compute a_C (kernel, kernel) exactly, the quickest first."""
    sigma: NDArray[Any] = np.linalg.svd(a, compute_uv=False)
    versions = ["box", "naive"]
    if len(a) % 2 == 0 and np.array_equal(a, a[::-1]):
        versions.insert(0, "folded")
    if sigma[1] <= _RANK_1 * sigma[0] and a.min() >= 0:
        versions.insert(0, "separable")
    return versions


#: By name, the quickest first.
VERSIONS: dict[str, type[DirectSumC]] = {
    cls.version: cls for cls in (SeparableC, FoldedC, DirectSumC, NaiveC)
}
