"""The pass: the steps of a plan one after another, with the arrays between them.

Nothing here knows whether the machine is a GPU or the emulator.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
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


def takes_all(stage: str) -> bool:
    """Whether a stage takes all digits of a pass at once, where others take them in parts."""
    return stage in ("US4", "UC4")


def form(layer: str, layouts: Mapping[str, Layout], batch: int) -> tuple[tuple[int, ...], Any]:
    """Return shape and type of the array that holds a layer for ``batch`` digits."""
    if layer in _ENDS:
        shape, dtype = _ENDS[layer]
        return (batch, *shape), np.dtype(dtype)
    return layouts[layer].shape(batch), np.dtype(layouts[layer].dtype)


class Stage(NamedTuple):
    """One step with its launches, those of all parts."""

    name: str
    step: Step
    launches: tuple[Launch, ...]


class Pass:
    """Arrays and launches of a pass for batches of one size.

    A large batch goes through UG .. UC3 in parts: their maps are large, and a few digits' stay
    in the L2 cache. The parts share one set of arrays and of scratch, and each writes its slice
    of UC3. US4 and the decision then take the whole batch at once: they stream large weights and
    tables, which are read the less often the more digits they serve.

    Arrays are filled with 0 once: borders and spare channels stay so. ``part`` digits go through
    UG .. UC3 together (0: all), the last part takes the rest; ``late`` are stages whose kernels let
    the next one begin only when they end; ``answers``, if given, is where these go.

    The next part overwrites maps that kernels of this part read. With programmatic launches too
    they have been read by then: every kernel waits for the end of the kernel in front of it
    before it writes, which has itself waited so; what is two or more kernels back is over.
    """

    def __init__(
        self,
        machine: Machine,
        steps: Sequence[Step],
        layouts: Mapping[str, Layout],
        batch: int,
        part: int = 0,
        late: Collection[str] = (),
        answers: Array | None = None,
    ) -> None:
        written = steps[0].reads
        for step in steps:
            if step.reads != written:
                raise InputError(f"internal error: a step expects {step.reads}, got {written}")
            written = step.writes
        self.machine, self.batch, self.layouts = machine, batch, layouts
        self.part, self._late = min(part or batch, batch), frozenset(late)
        self._several = len(steps) > 1  # one alone overlaps with none
        self.arrays: dict[str, Array] = {}
        self._scratch: dict[tuple[int, int], dict[str, Array]] = {}
        in_parts = sum(not takes_all(stage_name(step)) for step in steps)
        for i, layer in enumerate([steps[0].reads, *(step.writes for step in steps)]):
            # for a part what only parts write and read, for all digits the other layers
            shape, dtype = form(layer, layouts, self.part if 0 < i < in_parts else batch)
            given = answers if layer == "answers" else None
            self.arrays[layer] = machine.xp.zeros(shape, dtype) if given is None else given
        #: Place of the stage and launch, in the order in which they are launched.
        self._order: list[tuple[int, Launch]] = []
        for start in range(0, batch if in_parts else 0, self.part):
            digits = slice(start, min(start + self.part, batch))
            for i, step in enumerate(steps[:in_parts]):
                self._add(i, step, digits)
        for i, step in enumerate(steps[in_parts:], in_parts):
            self._add(i, step, slice(0, batch))
        self.stages = tuple(
            Stage(stage_name(step), step, tuple(found for j, found in self._order if j == i))
            for i, step in enumerate(steps)
        )

    def _add(self, index: int, step: Step, digits: slice) -> None:
        count = digits.stop - digits.start
        ends = (self.arrays[layer] for layer in (step.reads, step.writes))
        source, target = (array[digits] if len(array) == self.batch else array[:count] for array in ends)
        late = stage_name(step) in self._late
        if (index, count) not in self._scratch:
            self._scratch[index, count] = {
                name: self.machine.xp.zeros(*kind) for name, kind in step.scratch(count).items()
            }
        for launch in step.launches(count, source, target, self._scratch[index, count]):
            kernel = launch.kernel.late() if late else launch.kernel
            kernel = replace(kernel, carveout=self._several)
            self._order.append((index, launch._replace(kernel=kernel)))

    @property
    def launches(self) -> Iterator[Launch]:
        return self.up_to(len(self.stages))

    def up_to(self, stages: int) -> Iterator[Launch]:
        """Return the launches of the first so many stages, in the order of the pass."""
        return (launch for index, launch in self._order if index < stages)

    def run(self) -> None:
        for launch in self.launches:
            self.machine.launch(launch)

    def maps(self, layer: str) -> NDArray[np.float32]:
        """Return a layer on the host, float32 (B, K, H, W), without border and spare channels.

        Of a pass in parts UG .. US3 are those of the last part.
        """
        layout, array = self.layouts[layer], to_numpy(self.arrays[layer])
        inside = slice(layout.border, layout.border + layout.size)
        values = array[:, inside, inside, : layout.planes].transpose(0, 3, 1, 2)
        return np.ascontiguousarray(values, np.float32)
