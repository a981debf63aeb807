"""Interprets a launch plan: launches each stage and holds it against its NumPy twin in float64.

Without ``--cuda`` kernels run in the emulator. A stage's twin is what the equations make of the maps that the
device gave the stage, or stages that it joins; an error is a share of the strongest response (of C-cells,
whose root is infinitely steep at 0: of the square).
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.harness.record import arguments
from experiments.network.ours import inside, stored
from neocog.cuda.kernel import Launch, Layout, Machine
from neocog.cuda.lines import LinePass
from neocog.cuda.plan import Pass
from neocog.network import reference
from neocog.network.arrays import to_numpy
from neocog.network.decision import Decision
from neocog.network.lines import LineModel, strip_u0
from neocog.network.model import Model
from neocog.network.u0 import u0_from_digits

Maps = NDArray[Any]


class Stage(NamedTuple):
    """Launches, what they ought to make, and what they made, which is asked when they are over."""

    name: str
    launches: tuple[Launch, ...]
    want: Maps
    found: Callable[[], Maps]


def poisoned(layout: Layout, batch: int) -> Maps:
    """Return a target for some digits: NaN where a kernel must write, 0 elsewhere."""
    out = np.zeros(layout.shape(batch), layout.dtype)
    inside(out, layout)[...] = np.nan
    return out


def read(array: Maps, layout: Layout) -> Maps:
    """Return float64 maps (B, K, H, W) of a layout's array, whose border and spare channels must be 0."""
    whole = to_numpy(array).astype(np.float64)
    maps = inside(whole, layout).transpose(0, 3, 1, 2).copy()
    inside(whole, layout)[...] = 0
    assert not whole.any(), "border or spare channels were written"
    return maps


def twin(model: Model, reads: str, writes: str, u: Maps, *, dense: bool = False) -> Maps:
    """Return what the equations make of a layer (or digits), as many layers as lie between the two."""
    if reads == "digits":
        u, reads = u0_from_digits(u), "U0"
    if reads == "U0":
        u = u.astype(np.float64).reshape(-1, 1, *u.shape[-2:])
    names = reference.LAYERS
    last = "US4" if writes == "answers" else writes
    for name in names[names.index(reads) + 1 : names.index(last) + 1]:
        u = reference.layer(name, u, model, dense=dense)
    if writes != "answers":
        return u
    answers = Decision(model)(u.transpose(0, 2, 3, 1).astype(np.float32))
    return np.column_stack([answers.score, answers.label, answers.margin])


def digit_stages(work: Pass, model: Model, given: Maps) -> Iterator[Stage]:
    """Yield the stages of a pass in one part, fed with what its first step reads; targets are poisoned."""
    layouts, arrays, xp = work.layouts, work.arrays, work.machine.xp
    first = work.stages[0].step.reads
    arrays[first][...] = xp.asarray(stored(given, layouts[first]) if first in layouts else given)
    for name, step, launches in work.stages:
        reads, writes, target = step.reads, step.writes, arrays[step.writes]
        blank = np.full(target.shape, np.nan, np.float32)
        target[...] = xp.asarray(poisoned(layouts[writes], len(target)) if writes in layouts else blank)
        want = twin(model, reads, writes, _held(layouts, arrays, reads))
        yield Stage(name, launches, want, partial(_held, layouts, arrays, writes))


def _held(layouts: Any, arrays: Any, layer: str) -> Maps:
    if layer in layouts:
        return read(arrays[layer], layouts[layer])
    array = to_numpy(arrays[layer])
    return array[:, :12] if layer == "answers" else array


def line_stages(work: LinePass, strip: Maps) -> Iterator[Stage]:
    """Yield the stages of a pass of one strip."""
    u0, model = strip_u0(strip), work.model
    names = ["U0", *work.stages(work.bring([u0]))]

    def layer(at: str) -> Maps:
        return u0[None] if at == "U0" else work.maps()["Z" if at == "head" else at].astype(np.float64)

    for (name, launches), before in zip(work.stages(work.now.sizes).items(), names, strict=False):
        u = layer(before)
        if name == "UC4":
            want = np.stack([u.max(axis=1), u.mean(axis=1)])
        elif name == "head":
            want = reference.head_of(u, model)
        else:
            want = twin(model.digits, before, name, u[None], dense=True)[0]
        yield Stage(name, launches, want, partial(layer, name))


def interpret(
    machine: Machine, stages: Iterable[Stage], stop_after: str | None = None
) -> Iterator[tuple[str, float, float]]:
    """Launch stage by stage; yield name, error and strongest response, up to a stage."""
    for stage in stages:
        for launch in stage.launches:
            machine.launch(launch)
        want, got = stage.want, stage.found()
        if stage.name in ("UC1", "UC2", "UC3"):
            want, got = want**2, got**2
        most = float(np.abs(want).max())
        yield stage.name, float(np.abs(got - want).max()) / max(most, 1e-30), most
        if stage.name == stop_after:
            return


def main() -> None:
    from neocog.cuda.launcher import gpu
    from neocog.cuda.plan import Shelf, plan_of
    from neocog.network.lines import load_any
    from neocog.network.u0 import made_digits
    from tests.emulator import Emulator

    args = arguments(
        __doc__, output=False, model="neocog-small", plan="default", precision="fp32", batch=2, width=160,
        stop_after=str, cuda=False,
    ).parse_args()  # fmt: skip
    machine: Machine = gpu(0) if args.cuda else Emulator()
    model = load_any(args.model)
    with machine.current():
        if isinstance(model, LineModel):
            strip = np.random.default_rng(0).random((48, args.width)).astype(np.float32)
            stages = line_stages(LinePass(machine, model, args.precision), strip)
        else:
            shelf = Shelf(machine, model, args.precision)
            steps = shelf.choose(plan_of(args.plan, args.precision), args.batch)
            work = Pass(machine, steps, shelf.layouts, args.batch)
            stages = digit_stages(work, model, made_digits(args.batch))
        for name, error, most in interpret(machine, stages, args.stop_after):
            print(f"{name:6} error {error:.1e} of {most:.3g}")


if __name__ == "__main__":
    main()
