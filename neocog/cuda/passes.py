"""The pass: the steps of a plan one after another, with the arrays between them.

Nothing here knows whether the machine is a GPU or the emulator.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neocog.cuda.kernel import Array, Launch, Layout, Machine
from neocog.cuda.steps import Step
from neocog.errors import InputError
from neocog.network.arrays import to_numpy
from neocog.network.spec import INPUT_SIZE
from neocog.network.u0 import DIGIT_SIZE

#: Columns of the answers: 10 scores, label, margin, probability; the rest is spare.
ANSWER_COLUMNS = 16

_ENDS: dict[str, tuple[tuple[int, ...], str]] = {
    "digits": ((DIGIT_SIZE, DIGIT_SIZE), "uint8"),
    "U0": ((INPUT_SIZE, INPUT_SIZE), "float32"),
    "answers": ((ANSWER_COLUMNS,), "float32"),
}


def stage_name(step: Step) -> str:
    """Return the name of the stage that a step is: the layer that it writes, UC4 for the last."""
    return "UC4" if step.writes == "answers" else step.writes


def form(layer: str, layouts: Mapping[str, Layout], batch: int) -> tuple[tuple[int, ...], Any]:
    """Return shape and type of the array that holds a layer for ``batch`` digits."""
    if layer in _ENDS:
        shape, dtype = _ENDS[layer]
        return (batch, *shape), np.dtype(dtype)
    return layouts[layer].shape(batch), layouts[layer].storage


class Stage(NamedTuple):
    """One step with its launches."""

    name: str
    step: Step
    launches: tuple[Launch, ...]


class Pass:
    """Arrays and launches of a pass for batches of one size.

    Every layer has an array of its own, filled with 0 once: borders and spare channels stay so.

    Parameters
    ----------
    machine : Machine
        Where to run.
    steps : sequence of Step
        Each reads what the one before it writes.
    layouts : dict
        Of :func:`neocog.cuda.steps.layouts`.
    batch : int
        Digits.

    Raises
    ------
    InputError
        If a step does not read what the one before it writes.
    """

    def __init__(
        self, machine: Machine, steps: Sequence[Step], layouts: Mapping[str, Layout], batch: int
    ) -> None:
        self.machine, self.batch, self._layouts = machine, batch, layouts
        self.arrays: dict[str, Array] = {}
        stages = []
        written = steps[0].reads
        self._hold(written)
        for step in steps:
            if step.reads != written:
                raise InputError(f"a step reads {step.reads} where {written} was written")
            written = step.writes
            stages.append(self._stage(step))
        self.stages: tuple[Stage, ...] = tuple(stages)

    def _hold(self, layer: str) -> Array:
        if layer not in self.arrays:
            shape, dtype = form(layer, self._layouts, self.batch)
            self.arrays[layer] = self.machine.xp.zeros(shape, dtype)
        return self.arrays[layer]

    def _stage(self, step: Step) -> Stage:
        xp = self.machine.xp
        scratch = {
            name: xp.zeros(shape, dtype)
            for name, (shape, dtype) in step.scratch(self.batch).items()
        }
        source, target = self.arrays[step.reads], self._hold(step.writes)
        launches = step.launches(self.batch, source, target, scratch)
        return Stage(stage_name(step), step, tuple(launches))

    @property
    def launches(self) -> Iterator[Launch]:
        """Every launch, in order."""
        return (launch for stage in self.stages for launch in stage.launches)

    def run(self) -> None:
        """Launch every step, one after another."""
        for launch in self.launches:
            self.machine.launch(launch)

    def maps(self, layer: str) -> NDArray[np.float32]:
        """Return a layer on the host, float32 (B, K, H, W), without border and spare channels."""
        layout, array = self._layouts[layer], to_numpy(self.arrays[layer])
        inside = slice(layout.border, layout.border + layout.size)
        values = as_float32(array[:, inside, inside, : layout.planes], layout)
        return np.ascontiguousarray(values.transpose(0, 3, 1, 2))


def as_float32(values: NDArray[Any], layout: Layout) -> NDArray[np.float32]:
    """Return maps as they are stored, as float32."""
    if layout.dtype != "bfloat16":
        return values.astype(np.float32)
    return (np.ascontiguousarray(values).astype(np.uint32) << np.uint32(16)).view(np.float32)
