"""How the kernels of a pass had better follow one another, by batch and precision.

    python -m experiments.gpu.latency DIGITS [--model neocog-small] [--clusters]

A kernel may begin while the one in front of it runs (programmatic launches), and lets the next one
begin as soon as it runs itself, or, where it is late, when it ends. Each row: microseconds of a
pass without programmatic launches, with all of them early, with all late, and with those stages
late that were found best (`neocog.cuda.plan` has these).

With ``--clusters``: of a pass where blocks that share a window add their sums through global
memory, where they are clusters, and as it ships.
"""

import itertools
import math
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any

from experiments.harness.arguments import arguments
from neocog.cuda.kernel import Launch
from neocog.cuda.lanes import Timed, enqueue
from neocog.cuda.launcher import Gpu
from neocog.cuda.passes import Pass
from neocog.cuda.plan import STAGES, plan_of
from neocog.cuda.runner import Runner
from neocog.cuda.tilings import serves
from neocog.learning.datasets import open_digits
from neocog.network.model import load_model
from neocog.network.registry import find_model

_SAMPLES, _REPLAYS = 7, 50
_SHORTER = 0.997  # another way of launching has to be this much better


class Launchings:
    """Times a runner's pass of digits (B, 28, 28), answers left on the device, by which stages are late."""

    def __init__(self, runner: Runner, digits: Any) -> None:
        self._runner, self._digits = runner, digits
        self._steps = runner.shelf.choose(runner.plan, len(digits))

    def spent(self, late: Collection[str], change: Callable[[Launch], Launch] | None = None) -> float:
        """Return milliseconds of a pass, its launches changed: the median of some replays."""
        gpu, runner = self._runner.gpu, self._runner
        with runner.lock, gpu.current():
            stream = gpu.xp.cuda.Stream(non_blocking=True)
            with stream:
                layouts, part = runner.shelf.layouts, runner.plan.part
                work = Pass(gpu, self._steps, layouts, len(self._digits), part, late)
                work.arrays["digits"].set(self._digits)
                launches = tuple(map(change, work.launches) if change else work.launches)
                gpu.prepare(launch.kernel for launch in launches)
                stream.synchronize()
            return Timed(gpu, partial(enqueue, gpu, launches), 1, stream).median(_SAMPLES, _REPLAYS)

    def best(self) -> tuple[str, ...]:
        """Return the stages that had better be late.

        One stage after another is tried the other way, until none makes the pass shorter.
        """
        if not self._runner.gpu.programmatic:
            return ()
        best: frozenset[str] = frozenset()
        least, before = self.spent(best), math.inf
        while least < _SHORTER * before:
            before = least
            for stage in STAGES[:-1]:
                ms = self.spent(best ^ {stage})
                if ms < _SHORTER * least:
                    best, least = best ^ {stage}, ms
        return tuple(stage for stage in STAGES if stage in best)


def clusters(launch: Launch, cluster: int) -> Launch:
    """Return the launch with blocks that share a window as clusters (1) or not (0)."""
    defines = dict(launch.kernel.defines)
    if defines.get("KSPLIT", 1) != 1:
        defines["CLUSTER"] = cluster
    return launch._replace(kernel=replace(launch.kernel, defines=tuple(defines.items())))


def main() -> None:
    args = arguments(__doc__, "digits", model="neocog-small", clusters=False).parse_args()
    model = load_model(find_model(args.model))
    images = open_digits(args.digits, split="train").images
    plain, early = Gpu(0, programmatic=False), Gpu(0)
    if args.clusters and not serves(early.arch, early.processors):
        raise SystemExit(f"--clusters: {early.name} is not like the H200 that clusters are for")
    for precision, batch in itertools.product(("fp16", "fp32"), (1, 8, 64, 256)):
        runners = [Runner(gpu, model, precision, plan_of("default", precision)) for gpu in (plain, early)]
        without, ways = (Launchings(r, images[:batch]) for r in runners)
        if args.clusters:
            late = runners[1].plan.late_at(batch)
            figures = {
                "global": ways.spent(late, lambda launch: clusters(launch, 0)),
                "clusters": ways.spent(late, lambda launch: clusters(launch, 1)),
                "ships": ways.spent(late),
            }
        else:
            late = ways.best()
            figures = {
                "plain": without.spent(()),
                "early": ways.spent(()),
                "late": ways.spent(STAGES),
                "best": ways.spent(late),
            }
        words = "  ".join(f"{name} {1e3 * ms:.2f}" for name, ms in figures.items())
        print(f"{model.id} {precision} batch {batch}: {words}  late: {list(late)}", flush=True)


if __name__ == "__main__":
    main()
