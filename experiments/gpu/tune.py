"""Which tiling of the tensor-core S-layers is quickest on this GPU: tries those that rank best.

    python -m experiments.gpu.tune OUT.json --digits mnist [--batches 8 128] [--best 24]
    python -m experiments.gpu.tune OUT.json --digits mnist --batches 8 --precisions fp16 --within 6
    python -m experiments.gpu.tune OUT.json --ship

Each is checked against float64, on the digits of several blocks, before it is timed. A layer alone
does not overlap with its neighbours: for few digits ``--within 6`` then times the six quickest (and
the present one) within the whole pass, one layer after another, and finds the late stages last.
With ``--ship`` the quickest per layer, precision and batch of OUT.json go into
``neocog/cuda/tuned.json``, in place of those of the same shape and batch there, and late stages and the
three best of each into ``experiments/gpu/results/tilings.json``. What is in OUT.json stays there.
"""

import itertools
import json
import math
from collections import Counter
from dataclasses import asdict, astuple, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from experiments.gpu.latency import Launchings
from experiments.harness.arguments import arguments
from experiments.harness.processes import build_all
from experiments.harness.record import commit, today
from experiments.network.ours import stored
from neocog.cuda.kernel import Kernel
from neocog.cuda.lanes import Timed
from neocog.cuda.plan import plan_of
from neocog.cuda.runner import Runner
from neocog.cuda.s_tensor import TensorS
from neocog.cuda.steps import layouts
from neocog.cuda.tilings import TUNED, Tiling, candidates, estimate
from neocog.learning.datasets import open_digits
from neocog.network.engine import Engine
from neocog.network.layers import s_constants
from neocog.network.model import Model, load_model
from neocog.network.registry import find_model
from neocog.network.u0 import u0_from_digits

_TOLERANCE = {"fp32": 1e-5, "fp16": 2e-3}
_LAUNCHES = 20
RESULTS = Path(__file__).with_name("results") / "tilings.json"
_ALIKE = 3  # tilings tried that differ in depth and compactness alone


def expected(model: Model, layer: int, maps: Any, out: int, xp: Any) -> Any:
    """Return the response to maps by the plain equations, float64 (B, out, out, K)."""
    a, theta, silence = (xp.asarray(x, dtype=xp.float64) for x in s_constants(model.s[layer]))
    c = xp.asarray(model.s[layer].c, dtype=xp.float64)
    k, planes = c.shape[0], a.shape[1]
    u = maps[..., :planes].astype(xp.float64)
    e, v = 0.0, 0.0
    for y in range(k):
        for x in range(k):
            seen = u[:, y : y + out, x : x + out]
            e = e + seen @ a[:, :, y, x].T
            v = v + c[y, x] * (seen * seen).sum(axis=3)
    v = xp.sqrt(v)[..., None]
    return xp.maximum(0, e - theta * v) / (v + silence)


def promising(machine: Any, step: TensorS, batch: int, best: int) -> list[Tiling]:
    """Return the tilings that rank best, half of them with ``wgmma``, and the present one."""
    ranked = sorted(
        candidates(step.shape, batch, machine.arch),
        key=lambda t: estimate(step.shape, t, batch, machine.arch, machine.processors),
    )
    chosen = [step.tiling(batch)]
    for wgmma in (False, True):
        alike: Counter[Tiling] = Counter()
        for t in ranked:
            base = replace(t, depth=1, compact=False)
            if t.wgmma != wgmma or t in chosen:
                continue
            if alike[base] < _ALIKE and alike.total() < best // 2:
                alike[base] += 1
                chosen.append(t)
    return chosen


def tune(machine: Any, model: Model, layer: int, precision: Any, batch: int, best: int, real: Any) -> Any:
    """Return the layer's shape and the tilings tried, quickest first; ``real`` are maps."""
    xp = machine.xp
    lay = layouts(model.spec, model.planes, precision)
    rows, device = [], (machine.arch, machine.processors)
    step = TensorS(machine, model, layer, lay, precision)
    shape = step.shape
    maps = xp.asarray(stored(real[step.reads][:batch], step.source))
    target = lay[step.writes]
    # more digits than a block has, from both ends
    picked = xp.asarray(sorted({*range(min(batch, 21)), *range(max(0, batch - 10), batch)}))
    truth = expected(model, layer, maps[picked].astype(xp.float32), target.size, xp)
    for t in promising(machine, step, batch, best):
        step = TensorS(machine, model, layer, lay, precision, tilings={batch: t})
        out = xp.full(target.shape(batch), 7, dtype=target.dtype)
        scratch = {n: xp.zeros(s, dtype=d) for n, (s, d) in step.scratch(batch).items()}
        (launch,) = step.launches(batch, maps, out, scratch)
        row: dict[str, Any] = {
            "tiling": asdict(t),
            "estimate_us": round(estimate(shape, t, batch, *device) / 1755, 2),
        }
        rows.append(row)
        try:
            machine.launch(launch)
            got = out[picked][..., : target.planes].astype(xp.float64)
            row["error"] = float(xp.abs(got - truth).max() / truth.max())
            if row["error"] < _TOLERANCE[precision] and bool((out[-1] != 7).any()):
                timed = Timed(machine, partial(machine.launch, launch), _LAUNCHES)
                row["us"] = round(1e3 * timed.median(5), 3)
        except Exception as error:  # one that fails must not lose the others
            row["failed"] = str(error)[:200]
    return shape, sorted(rows, key=lambda r: r.get("us", 1e9))


def within_pass(runner: Runner, tried: list[Any], digits: Any, most: int) -> dict[str, Any]:
    """Put each layer's quickest tilings into the order of a whole pass's times.

    ``tried`` are rows of `tune` of layers 0 to 3 at a batch, quickest first; digits (B, 28, 28).
    Returns the stages that had better be late then, and the pass's time with them.
    """
    ways, batch = Launchings(runner, digits), len(digits)
    late = runner.plan.late_at(batch)
    for layer, rows in enumerate(tried):
        step = cast(TensorS, runner.shelf.step(f"US{layer + 1}", TensorS.version))
        present = step.tiling(batch)
        right = [row for row in rows if "us" in row]
        for i, row in enumerate(right):
            step.tilings[batch] = Tiling(**row["tiling"])
            if i < most or step.tilings[batch] == present:
                try:
                    row["pass_us"] = round(1e3 * ways.spent(late), 3)
                except Exception as error:  # one that fails must not lose the others
                    row["failed"] = str(error)[:200]
        rows.sort(key=lambda row: (row.get("pass_us", math.inf), row.get("us", math.inf)))
        best = Tiling(**rows[0]["tiling"]) if "pass_us" in rows[0] else present
        step.tilings[batch] = best
    best_late = ways.best()
    return {"late": list(best_late), "pass_us": round(1e3 * ways.spent(best_late), 3)}


def ship(rows: list[Any]) -> None:
    """Write the quickest tilings where the package finds them, and the three best as results."""
    keep(rows)
    held = json.loads(TUNED.read_text())
    table = {tuple(row[:7]): row for row in held["rows"]}  # by batch and shape
    for row in rows:
        if "tried" in row and "us" in row["tried"][0]:
            tiling = Tiling(**row["tried"][0]["tiling"])
            key = row["batch"], *row["shape"]
            table[key] = [*key, *astuple(tiling)]
    order = sorted(table, key=lambda key: (*key[1:], key[0]))
    lines = ",\n".join(json.dumps(table[key]) for key in order)
    head = ",\n".join(f'"{name}": {json.dumps(held[name])}' for name in ("command", "fields"))
    TUNED.write_text(f'{{{head},\n"rows": [\n{lines}\n]}}\n')


def keep(rows: list[Any]) -> None:
    """Write the three best of each row in place of those of the same layer in the results."""

    def place(row: Any) -> tuple[Any, ...]:
        return row["model"], row["layer"], row["precision"], row["batch"]

    held = json.loads(RESULTS.read_text())
    for row in rows:
        facts = {key: row[key] for key in ("model", "layer", "precision", "batch")}
        tried = row.get("tried", [row])
        facts |= {key: row[key] for key in ("date", "commit", "shape") if key in row}
        best = [{**facts, **one} for one in tried[:3] if "us" in one or "late" in one]
        held["rows"] = [other for other in held["rows"] if place(other) != place(row)] + best
        held["tried"] += row.get("count", len(row.get("tried", ())))
    held["rows"].sort(key=lambda row: (*map(str, place(row)[:3]), row["batch"]))
    lines = ",\n  ".join(json.dumps(row) for row in held.pop("rows"))
    head = json.dumps(held, indent=1).removesuffix("\n}")
    RESULTS.write_text(f'{head},\n "rows": [\n  {lines}\n ]\n}}\n')


def main() -> None:
    parser = arguments(
        __doc__, "out", digits=(Path("mnist"), "folder of digits"), models=["neocog-small"],
        batches=[8, 128], precisions=["fp16", "fp32"], best=(24, "tilings tried of each"),
        within=(0, "of each that are tried within the pass"), ship=False,
    )  # fmt: skip
    args = parser.parse_args()
    if args.within and len(args.models) > 1:
        parser.error("--within takes one model")
    if args.ship:
        ship(json.loads(args.out.read_text()))
        return
    from neocog.cuda.launcher import Gpu

    machine = Gpu(0, programmatic=False)
    models = [load_model(find_model(name)) for name in args.models]
    jobs = list(itertools.product(models, args.precisions, args.batches, range(4)))
    kernels: list[Kernel] = []
    for model, precision, batch, layer in jobs:
        step = TensorS(machine, model, layer, layouts(model.spec, model.planes, precision), precision)
        kernels += [step.kernel(t, batch) for t in promising(machine, step, batch, args.best)]
    build_all(machine, list(dict.fromkeys(kernels)))
    digits = open_digits(args.digits, split="train").images[: max(args.batches)]
    maps = {m.name: Engine(m).maps(u0_from_digits(digits)) for m in models}
    rows: list[Any] = json.loads(args.out.read_text()) if args.out.exists() else []
    about = {"date": today(), "commit": commit()}
    for (model, precision, batch), some in itertools.groupby(jobs, key=lambda job: job[:3]):
        here, own = {"model": model.name, "precision": precision, "batch": batch, **about}, []
        for layer in (job[3] for job in some):
            shape, tried = tune(machine, model, layer, precision, batch, args.best, maps[model.name])
            own.append({**here, "layer": layer, "shape": astuple(shape), "tried": tried})
        if args.within:
            gpu = Gpu(0)
            runner = Runner(gpu, model, precision, plan_of("default", precision))
            found = within_pass(runner, [row["tried"] for row in own], digits[:batch], args.within)
            own.append({**here, "layer": "all", **found})
        for row in own:
            print(model.name, precision, batch, row["layer"], row.get("tried", [row])[0], flush=True)
        rows += own
        args.out.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
