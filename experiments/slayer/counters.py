"""Hardware counters of the ladder's kernels, by Nsight Compute where it is installed.

:func:`counters` starts :func:`main`, which launches every rung once on every stage, under ``ncu``
and reads what it says.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from experiments.harness import ncu
from experiments.harness.run import progress
from experiments.slayer.inputs import STAGES, Fed, find_digits, networks
from experiments.slayer.ladder import VERSIONS
from neocog.errors import DeviceError
from neocog.text import to_json

#: What is asked of the profiler, and what the tables call it: (name, factor).
METRICS = {
    "gpu__time_duration.sum": ("us", 1e6),
    "smsp__inst_executed.sum": ("1000 warp instructions", 1e-3),
    "smsp__issue_active.avg.pct_of_peak_sustained_active": ("% of issue slots", 1.0),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("% of warps", 1.0),
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": ("1000 sectors loaded", 1e-3),
    "l1tex__t_sector_hit_rate.pct": ("% of sectors in L1", 1.0),
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": ("1000 turns of shared memory", 1e-3),
    "dram__bytes.sum": ("kB of memory", 1e-3),
}
#: Stage and version of each kernel as :func:`main` launches them.
ORDER = tuple(product(STAGES, VERSIONS))
_SECONDS = 75


def counters(
    size: str, places: Mapping[tuple[str, str], int], data: Path | None, *, number: int = 0
) -> list[dict[str, Any]]:
    """Return the counters of one launch of each rung on each stage; none where ncu gives none."""
    wanted = {"size": size, "places": [[*key, n] for key, n in places.items()],
              "data": str(data) if data else None, "number": number}  # fmt: skip
    try:
        done = ncu.profiled(METRICS, __name__, "main", to_json(wanted), seconds=_SECONDS,
                            more=("-k", "regex:^s_paper"))  # fmt: skip
    except DeviceError as error:
        progress(f"counters: {error}")
        return []
    rows = list(read(done.stdout))
    if not rows:
        tail = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        progress(f"counters: ncu gives none ({' '.join(tail)})")
    return [{"planes": size, **row} for row in rows]


def read(text: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each launch of what ncu printed as CSV; T1's inhibition is no rung."""
    own = ncu.launches(text, "s_paper_", but="s_paper_v")
    for (stage, version), row in zip(ORDER, own, strict=False):
        found: dict[str, Any] = {"stage": stage, "system": version}
        yield found | {
            name: row[metric] * factor for metric, (name, factor) in METRICS.items() if metric in row
        }


def main(words: str) -> None:
    from experiments.network.ours import StepRun
    from experiments.slayer.ladder import Ladder
    from neocog.cuda.launcher import gpu

    wanted = json.loads(words)
    places = {(stage, version): n for stage, version, n in wanted["places"]}
    digits, _ = find_digits(Path(wanted["data"]) if wanted["data"] else None, 1)
    fed = Fed(networks([wanted["size"]])[wanted["size"]], digits)
    device = gpu(wanted.get("number", 0))
    with device.current():
        shelf = Ladder(device, fed.model, places)
        for stage, version in ORDER:
            StepRun(shelf, shelf.step(stage, version), fed.before(stage, slice(0, 1))).maps()
