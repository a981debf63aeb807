"""V-cells as a launch of their own, for S-layers whose kernels are given v as a map."""

import numpy as np

from neocog.cuda.kernel import Array, Kernel, Launch, Layout, Machine
from neocog.network.model import Model

_STRIP = 4  # cells of a column that a thread makes, at most


class Inhibition:
    """The inhibition of one S-layer, v (B, size, size) float32 (Ikeda et al. 2011, equation 2).

    Parameters
    ----------
    machine : Machine
        Where to run.
    model : Model
        Whose layer.
    layer : int
        0 .. 3 for US1 .. US4.
    source : Layout
        Of the maps that the layer reads.
    size : int
        Rows (and columns) of the layer.
    """

    def __init__(
        self, machine: Machine, model: Model, layer: int, source: Layout, size: int
    ) -> None:
        self._machine, self._source, self._size = machine, source, size
        self._kernel = model.spec.s[layer].kernel
        self._c = machine.xp.asarray(np.ascontiguousarray(model.s[layer].c, dtype=np.float32))

    def launch(self, batch: int, source: Array, v: Array) -> Launch:
        """Return the launch for a batch, with enough blocks for every multiprocessor."""
        bands = min(self._size, -(-self._machine.processors // batch))
        rows = -(-self._size // bands)
        strip = min(_STRIP, rows)
        strips = -(-rows // strip)
        seen = strip * strips + self._kernel - 1
        kernel = Kernel(
            "inhibition.cu",
            "inhibition",
            (
                ("MAP", self._source.code),
                ("WIDTH", self._source.width),
                ("CHANNELS", self._source.channels),
                ("KSIZE", self._kernel),
                ("OUT", self._size),
                ("STRIP", strip),
                ("STRIPS", strips),
            ),
            threads=256,
            shared=4 * (seen * self._source.width + self._kernel**2),
            registers=96,
        )
        grid = (-(-self._size // (strip * strips)), 1, batch)
        return Launch(kernel, grid, (source, self._c, v))
