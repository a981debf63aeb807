"""How the kernels of a pass had better follow one another, by batch and precision.

    python -m experiments.gpu.latency DIGITS [--model neocog-small] [--clusters]

A kernel may begin while the one in front of it runs (programmatic launches), and lets the next one
begin as soon as it runs itself, or, where it is late, when it ends. Each row: microseconds of a
pass without programmatic launches, with all of them early, with all late, and with those stages
late that were found best (``plans.json`` ships these).

With ``--clusters``: of a pass where blocks that share a window add their sums through global
memory, where they are clusters, and as it ships.
"""

import itertools
from dataclasses import replace

from experiments.harness.arguments import arguments
from neocog.cuda.kernel import Launch
from neocog.cuda.launcher import Gpu
from neocog.cuda.measure import Launchings
from neocog.cuda.plan import STAGES
from neocog.cuda.runner import Runner
from neocog.cuda.tuned import serves
from neocog.learning.datasets import open_digits
from neocog.network.model import load_model
from neocog.network.registry import find_model


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
        runners = [Runner(gpu, model, precision, None) for gpu in (plain, early)]
        without, ways = (Launchings(r, r.plan, images[:batch]) for r in runners)
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
