"""Counts the operations of each system with Nsight Compute, beside those of the paper's Table I.

    python -m experiments.convpool.profile -o experiments/convpool/results/profile.json

One picture, 512 channels. Needs a GPU, PyTorch and ``ncu``. Each system runs once, in a process of
its own under the profiler. An ``ffma`` counts as two operations; what tensor cores count includes
what tiles compute beyond the edges, and ours in fp32 three products of TF32 for one.
"""

import subprocess
from collections.abc import Iterator
from typing import Any

from experiments.convpool.systems import LABELS, SIZE, SYSTEMS, Case, operations
from experiments.harness import ncu
from experiments.harness.arguments import arguments
from experiments.harness.record import write_results

CHANNELS = 512
PRECISIONS = ("fp32", "tf32", "fp16")
COUNTED = ("naive", "fused", "fused_gemm", "direct", "direct_gemm", "ours")
CORES = {f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum": factor
         for op, factor in (("ffma", 2), ("fadd", 1), ("fmul", 1), ("hfma", 2), ("hadd", 1))
         }  # fmt: skip
"""Operations on CUDA cores, and how many each counts."""
_TENSOR = "sm__ops_path_tensor_src_"
_MODULE = "experiments.convpool.profile"


def run_once(system: str, precision: str) -> None:
    """Run a system twice, the second time watched by a profiler."""
    import torch

    from experiments.convpool.device import Device
    from experiments.convpool.ways import Operands

    device, case = Device(), Case(1, CHANNELS, precision)  # type: ignore[arg-type]
    device.prepare(precision)
    dtype = torch.float16 if precision == "fp16" else torch.float32
    operands = Operands(device, case, dtype)
    if system == "ours":
        run = operands.ours()
    elif system.endswith("_gemm"):
        run = operands.product(system)
    else:
        run = operands.direct() if system == "direct" else operands.stock(system, "channels last")
    for watched in (False, True):
        torch.cuda.synchronize()
        if watched:
            torch.cuda.cudart().cudaProfilerStart()
        run()
        torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


def tensor_metrics() -> list[str]:
    """Return the profiler's names for operations on this GPU's tensor cores."""
    asked = [ncu.program(), "--query-metrics"]
    told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    names = (line.split()[0] for line in told.splitlines() if line.startswith(_TENSOR))
    return [f"{name}.sum" for name in names if "sparsity_on" not in name]


def rows() -> Iterator[dict[str, Any]]:
    """Yield what each system counts in each precision, and what Table I says."""
    metrics = [*CORES, *tensor_metrics()]
    off = ("--profile-from-start", "off")
    formula = {s.name: s.counted for s in SYSTEMS}
    for precision in PRECISIONS:
        for system in COUNTED:
            told = ncu.profiled(metrics, _MODULE, "run_once", system, precision, more=off)
            found = ncu.launches(told.stdout, "")
            if not found:
                raise SystemExit(f"{system}, {precision}: {told.stdout[-800:]}{told.stderr[-800:]}")
            cores = sum(CORES.get(name, 0) * n for row in found for name, n in row.items())
            tensor = sum(n for row in found for name, n in row.items() if _TENSOR in name)
            table = operations(formula[system], ci=CHANNELS, co=CHANNELS, n=SIZE)
            yield {
                "system": LABELS[system], "precision": precision, "launches": len(found),
                "formula": table / 1e6, "cores": cores / 1e6, "tensor": tensor / 1e6,
                "ratio": (cores + tensor) / table,
            }  # fmt: skip


def main() -> None:
    args = arguments(__doc__, output=None).parse_args()
    columns = {"system": "system", "precision": "precision", "launches": "launches",
               "formula": "Table I, millions|.0f", "cores": "on CUDA cores|.0f",
               "tensor": "on tensor cores|.0f", "ratio": "counted by Table I|.2f"}  # fmt: skip
    write_results(args.output, list(rows()), columns=columns, gpu=True)


if __name__ == "__main__":
    main()
