"""C-cells as a direct sum: how ``kernels/c_direct_sum.cu`` is specialised, fed and launched."""

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neocog.cuda.kernel import Array, Kernel, Launch, LayerStep, Place, named, shared_limit, up
from neocog.errors import UsageError
from neocog.network.spec import pooled

_NOTHING = 1e-7  # of the largest tap of a_C, below which a tap is what float32 blurs leave of 0
_RANK_1 = 1e-7  # of the first singular value of a kernel, below which the second is 0
_FEW_THREADS = 128  # of a block where digits are few: a warp for each scheduler
_SLAB = 8  # channels of a block


class Tiling(NamedTuple):
    """How a layer is dealt to blocks."""

    rows: int  # of outputs
    groups: int  # threads a row


class DirectSumC(LayerStep):
    """UC1 .. UC3: box sums, strided blur and saturation in one kernel; sums are float32."""

    kind = "C"
    version: ClassVar[str] = "box"
    function: ClassVar[str] = "c_direct"  # of the kernel source
    most_rows: ClassVar[int] = 10**6  # of outputs of a block

    def __init__(self, *place: *Place, tiling: Tiling | None = None) -> None:
        super().__init__(*place, tiling=tiling)
        # of a_C, whose 2x2 box is summed apart: rows, taps
        weights = self._weights(self.model.blurs[self.layer] / np.float64(4))
        self._shape: tuple[int, ...] = weights.shape
        mirrored = int(np.array_equal(weights, weights[:, ::-1]))
        self._own = {"DIRECT": 1, "BOX": 1, "MIRRORED": mirrored}
        if self.version == "separable":
            self._own = {"SEPARABLE": 1, "BOX": 1}
        self._constants = self.machine.xp.asarray(np.ascontiguousarray(weights, dtype=np.float32))

    def _weights(self, blur: NDArray[np.float64]) -> NDArray[np.float64]:
        return blur

    def tiling(self, batch: int) -> Tiling:
        """Return whole rows a thread and all rows a block; few digits are split over all processors."""
        if self._tiling is not None:
            return self._tiling  # type: ignore[no-any-return]
        out = self.target.size
        tiling = Tiling(min(out, self.most_rows), 1)
        wanted = self.machine.processors // (batch * -(-self.source.channels // _SLAB))
        if wanted > -(-out // tiling.rows):
            rows = -(-out // wanted)
            tiling = Tiling(rows, min(max(_FEW_THREADS // (rows * _SLAB), 1), -(-out // 4)))
        while self._shared(tiling) > shared_limit(self.machine.arch) and tiling.rows > 1:
            tiling = tiling._replace(rows=-(-tiling.rows // 2))
        return tiling

    def launches(self, batch: int, source: Array, target: Array, scratch: dict[str, Array]) -> list[Launch]:
        s, t, tiling = self.source, self.target, self.tiling(batch)
        defines = {
            "MAP": s.code, **named(s, "size channels"), "OUT": t.size,
            **named(t, "width border channels", "UC_"), "TAPS": self._shape[1], "FIRST": -self.padding,
            "PSI": int(self.model.psi == "ratio"), **named(tiling, "rows groups"), "SLAB": _SLAB,
            "NX": -(-t.size // tiling.groups), **self._own,
        }  # fmt: skip
        threads = tiling.rows * tiling.groups * _SLAB
        limit, shared = min(255, 65536 // up(threads, 32) // 8 * 8), self._shared(tiling)
        options = tuple(defines.items())
        kernel = Kernel("c_direct_sum.cu", self.function, options, threads, shared, registers=limit)
        grid = -(-t.size // tiling.rows), -(-s.channels // _SLAB), batch
        return [Launch(kernel, grid, (source, target, self._constants))]

    def _shared(self, tiling: Tiling) -> int:
        """Bytes of shared memory of a block: rows of box sums, a silent row, the weights."""
        kernel_rows, taps = self._shape
        held = self.source.size + 1
        columns = held if tiling.groups == 1 else 2 * (up(self.target.size, tiling.groups) - 1) + taps
        pitch = up(columns * _SLAB - _SLAB // 2, 16) + _SLAB // 2
        rows = min(2 * (tiling.rows - 1) + taps, held)
        return 4 * ((rows + 1) * pitch + kernel_rows * taps)


class SeparableC(DirectSumC):
    """Box sums, down the columns, then along the rows; a UsageError if the blur has not rank 1."""

    version: ClassVar[str] = "separable"
    function: ClassVar[str] = "c_separable"
    most_rows: ClassVar[int] = 13

    def _weights(self, blur: NDArray[np.float64]) -> NDArray[np.float64]:
        u, sigma, vt = np.linalg.svd(blur)
        if sigma[1] > _RANK_1 * sigma[0] or blur.min() < 0:
            raise UsageError(f"C version 'separable' does not fit the blur of {self.writes}")
        return np.stack([np.abs(u[:, 0]) * sigma[0], np.abs(vt[0])])

    def _shared(self, tiling: Tiling) -> int:
        seen = 2 * (up(self.target.size, tiling.groups) - 1) + self._shape[1]
        columns = self.source.size + 1 if tiling.groups == 1 else seen
        return 4 * tiling.rows * (up((columns + 1) * _SLAB, 32) + _SLAB)


def combined(blur: NDArray[Any]) -> NDArray[np.float64]:
    """Return a_C of a float32 blur, (kernel, kernel), with 0 where only its rounding is left."""
    a = pooled(blur.astype(np.float64))
    a[np.abs(a) < _NOTHING * np.abs(a).max()] = 0
    return a
