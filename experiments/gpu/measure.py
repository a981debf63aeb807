"""Checks and times the network on one GPU, PyTorch beside it in the same run.

``decisions`` of all MNIST test digits beside the CPU engine's; ``strips`` of eight of them, by how many are
read together. The file is written after every row.
"""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from experiments.harness.record import arguments, commit, earlier, today, without_places, write_results
from experiments.harness.run import message_of
from experiments.network.compare import compare_on_gpu, strips_of
from neocog.cuda.engine import CudaEngine
from neocog.cuda.lanes import Timed, enqueue
from neocog.cuda.launcher import gpu
from neocog.cuda.lines import CudaLineEngine, LinePass
from neocog.evaluation.timing import milliseconds
from neocog.learning.datasets import open_digits
from neocog.network.engine import Engine
from neocog.network.lines import load_lines, strip_u0
from neocog.network.model import load_model
from neocog.network.parallel import cores

COLUMNS = {
    "model": "model", "batch": "batch", "precision": "precision", "digits": "digits",
    "neocog": "us a digit|.2f", "card": "plan card|.2f", "torch": "PyTorch|.2f",
    "compile": "torch.compile|.2f", "ratio": "times as fast as the better|.2f",
    "difference": "largest difference of a score|.1e",
}  # fmt: skip
_STRIPS = (1, 2, 8, 60, 400)


def decisions(args: Any, test: Any) -> Iterator[dict[str, Any]]:
    """Decisions of all test digits, those of the CPU engine beside them."""
    for model in map(load_model, args.models):
        cpu = Engine(model).recognise(test.images, batch=64 * cores())
        for precision, plan in product(args.precisions, args.plans):
            got = CudaEngine(model, device="cuda:0", precision=precision, plan=plan).recognise(test.images)
            changed = int((got.label != cpu.label).sum())
            yield {
                "model": model.id, "precision": precision, "plan": plan, "digits": len(test),
                "same": len(test) - changed, "accuracy": float((got.label == test.labels).mean()),
                "score_difference": float(np.abs(got.score - cpu.score).max()),
                "passed": changed <= (0 if precision == "fp32" else 5),  # of 10 000
            }  # fmt: skip


def speed(args: Any, test: Any) -> Iterator[dict[str, Any]]:
    """Whole passes by batch, precision and plan, PyTorch beside them."""
    for name, batch, precision in product(args.models, args.batches, args.precisions):
        row: dict[str, Any] = {"batch": batch, "precision": precision, "digits": "MNIST, test",
                               "commit": commit(), "date": today()}  # fmt: skip
        try:
            found = compare_on_gpu(load_model(name), batch=batch, precision=precision, plans=args.plans,
                                   digits=test.images, peers=args.peers, rounds=args.rounds)  # fmt: skip
        except Exception as failure:  # the other rows still come
            yield row | {"model": name, "failed": message_of(failure)}
            continue
        us = {side: 1e3 * found.per_digit(side) for side in found.passes}
        yield row | {
            "model": found.model, "neocog": us.get("neocog default"), "card": us.get("neocog card"),
            **{peer: us.get(peer) for peer in args.peers},
            "ratio": min(found.ratios().values(), default=None),
            "difference": found.differences.get("neocog default"), "notes": found.notes,
        }  # fmt: skip


def strips(args: Any, test: Any) -> Iterator[dict[str, Any]]:
    """Microseconds of a strip of eight digits, by how many are read together: host to host, on the GPU."""
    every = list(strips_of(test.images[: 8 * max(_STRIPS)]))
    machine, model = gpu(0), load_lines("neocog-lines")
    for precision, count in product(args.precisions, _STRIPS):
        some, few = every[:count], every[: min(count, 40)]  # so many go through a pass together
        read = partial(CudaLineEngine(model, device="cuda:0", precision=precision).likelihoods, some)
        host = np.median([milliseconds(read) for _ in range(args.rounds + 2)][2:]) / count
        with machine.current(), machine.xp.cuda.Stream(non_blocking=True) as stream:
            work = LinePass(machine, model, precision)
            stages = work.stages(work.bring([strip_u0(strip) for strip in few])).values()
            launches = [
                one._replace(kernel=replace(one.kernel, carveout=True)) for own in stages for one in own
            ]
            passes = Timed(machine, partial(enqueue, machine, launches), 8, stream)
            device = passes.median(args.rounds) / len(few)
        yield {"model": model.id, "precision": precision, "strips": count, "us": round(1e3 * device, 2),
               "host_us": round(1e3 * float(host), 1)}  # fmt: skip


SECTIONS = {"decisions": decisions, "speed": speed, "strips": strips}


def main() -> None:
    parser = arguments(
        __doc__, "data", models=["neocog-small", "neocog"], batches=[1, 8, 64, 4096],
        precisions=["fp16", "fp32"], rounds=10, plans=["default", "card"], peers=["torch", "compile"],
    )  # fmt: skip
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    args = parser.parse_args()
    test = open_digits(args.data / "mnist", split="test")
    before = earlier(args.output)
    sections, rows, wrong = before.get("sections", {}), before.get("rows", []), 0
    for name in args.sections or SECTIONS:
        own = list[dict[str, Any]]()
        if name == "speed":
            rows = own
        else:
            about = {"commit": commit(), "date": today(), "options": without_places(sys.argv[1:])}
            sections[name] = about | {"rows": own}
        for row in SECTIONS[name](args, test):
            own.append(row)
            print(json.dumps(row), flush=True)
            wrong += row.get("passed") is False or "failed" in row
            write_results(args.output, rows, columns=COLUMNS, gpu=True, sections=sections)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
