"""Contrast cells: how ``kernels/contrast.cu`` is specialised, fed and launched."""

from typing import ClassVar

import numpy as np

from neocog.cuda.kernel import Array, Kernel, Launch, Place, Step, up
from neocog.network.spec import contrast_kernel
from neocog.network.u0 import DIGIT_SIZE


class Contrast(Step):
    """UG from digits (B, 28, 28) of uint8; U0 is never written.

    Sums are float32; which cells are silent is decided as in float64.
    """

    from_u0: ClassVar[bool] = False  # whether the input is U0 (B, 65, 65) of float32 instead

    def __init__(self, *place: *Place) -> None:
        machine, model, _, layouts, _ = place
        self.reads, self.writes = ("U0" if self.from_u0 else "digits"), "UG"
        self._machine, self._target = machine, layouts["UG"]
        self._spec = model.spec.contrast
        a = contrast_kernel(self._spec)
        quarter = np.ascontiguousarray(a[:4, :4])
        self._weights = machine.xp.asarray(quarter)
        rows = (",".join(f"{w:.9e}f" for w in row) for row in quarter.astype(np.float32))
        self._rounded = "{{" + "},{".join(rows) + "}}"

    def launches(self, batch: int, source: Array, target: Array, scratch: dict[str, Array]) -> list[Launch]:
        """One launch: whole digits a block, or bands of a few rows where digits are few."""
        t = self._target
        bands = -(-self._machine.processors // batch)
        short = max(1, min(8, round(t.size / bands / 2)))  # rows of two threads a column and band
        strip, strips, columns = (8, -(-t.size // 8), 2) if bands == 1 else (short, 2, 1)
        seen = strip * strips + 6
        ink = 0 if self.from_u0 else min(seen // 2 + 2, DIGIT_SIZE) * DIGIT_SIZE
        floats = seen * ((t.size + 8) // 2 * 2) + ink
        defines = (
            ("MAP", t.code), ("FROM_U0", int(self.from_u0)), ("WIDTH", t.width), ("BORDER", t.border),
            ("CELLS", t.size), ("SILENCE", self._spec.silence), ("ROUNDED", self._rounded),
            ("STRIP", strip), ("STRIPS", strips), ("COLUMNS", columns),
        )  # fmt: skip
        threads = up(-(-t.size // columns) * strips, 32)
        kernel = Kernel("contrast.cu", "contrast", defines, threads, 4 * floats, registers=128)
        grid = -(-t.size // (strip * strips)), 1, batch
        return [Launch(kernel, grid, (source, target, self._weights))]


class ContrastOfU0(Contrast):
    """UG from U0 (B, 65, 65) of float32."""

    from_u0 = True
