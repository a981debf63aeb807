"""Convolution with average pooling: the systems of the paper that names the direct sum, and ours.

The paper (Bulletin of Networking, Computing, Systems, and Software 8(1), 45-49, 2019) compares a
library's convolution and pooling with two rewrites: pooling is linear, so it may be moved into the
filter (k + p - 1 taps a side at stride p: the *fused filter*) or in front of the convolution (sums
of p x p inputs, then k taps at stride p: the *direct sum*). Each by a library's convolution and as
a matrix product. Ours is the direct sum in one kernel (:mod:`neocog.cuda.convpool`).
"""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from experiments.harness.attended import Watch, attend, faults_of, need_device
from neocog.cuda.steps import Precision
from neocog.errors import DeviceError
from neocog.evaluation.machine import about

SIZE, KERNEL, POOL, PADDING = 32, 3, 2, 1  # the paper's section V
CHANNELS = (32, 64, 128, 256, 512)
BATCHES = (1, 16, 64, 256)
#: The paper's own check of its Table I: direct sum, n = 32, 512 channels.
CHECK = 1_209_925_632
#: The paper's headlines, direct sum as a matrix product by naive library at 512 channels (V100).
PAPER: dict[str, float] = {"fp32": 1.8, "fp16": 4.4}
MISSING = "not in our copy"  # values of Tables II and III
_QUICK_SECONDS = 45.0
#: Seconds that the standard run may take.
SECONDS = 600.0

Result = dict[str, Any]
Log = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class System:
    """One way to compute it: what it is, and whose operations it takes (Table I)."""

    name: str
    label: str
    counted: str  # naive, winograd, fused, direct


SYSTEMS = (
    System("naive", "naive: convolution, then pooling (library)", "naive"),
    System("winograd", "naive with Winograd (library)", "winograd"),
    System("fused", "fused filter, library convolution", "fused"),
    System("fused_gemm", "fused filter, gather + matrix product", "fused"),
    System("direct", "direct sum, own sums + library convolution", "direct"),
    System("direct_gemm", "direct sum, sums and gather + matrix product", "direct"),
    System("ours", "ours: direct sum in one kernel", "direct"),
    System("ours_two", "ours: sums written first, then the product", "direct"),
    System("compiled", "torch.compile of the naive form", "naive"),
)
LABELS = {system.name: system.label for system in SYSTEMS}


@dataclass(frozen=True, slots=True)
class Case:
    """One configuration: pictures, channels in and out, operands."""

    batch: int
    channels: int
    precision: Precision
    size: int = SIZE

    @property
    def out(self) -> int:
        """Rows of the result."""
        return (self.size + 2 * PADDING - KERNEL + 1) // POOL

    @property
    def bytes(self) -> int:
        """What goes in and comes out."""
        width = 2 if self.precision in ("fp16", "bf16") else 4
        places = self.batch * (self.size**2 + self.out**2)
        return width * self.channels * (places + self.channels * KERNEL**2)

    def words(self) -> str:
        """Say it in short."""
        return f"{self.precision} batch {self.batch} channels {self.channels}"


def operations(counted: str, *, ci: int, co: int, n: int, k: int = KERNEL, p: int = POOL) -> int:
    """Return the operations of one picture by Table I of the paper.

    Parameters
    ----------
    counted : {"naive", "winograd", "fused", "direct"}
    ci, co, n, k, p : int
        Channels in and out, places a side, taps and pooled places a side.
    """
    cells = (n // p) ** 2
    if counted == "naive":
        return 2 * k**2 * ci * co * n**2 + p**2 * cells * co
    if counted == "winograd":
        return 36 * ci * co + 68 * (n // 2) ** 2 * (ci - 1) * co + p**2 * cells * co
    if counted == "fused":
        return (2 * (k + p - 1) ** 2 * ci - 1) * cells * co
    if counted == "direct":
        return 2 * p * n**2 * ci + (2 * k**2 * ci - 1) * co * cells
    raise ValueError(counted)


def standard_cases() -> list[Case]:
    """Return the 56 configurations of the standard run, the most telling first.

    fp32 and fp16 (the paper's) at all sizes, TF32 and bf16 at 128 and 512 channels.
    """
    all_of = [
        Case(batch, channels, precision)
        for channels, batch in product(sorted(CHANNELS, reverse=True), (64, 1, 16, 256))
        for precision in ("fp16", "fp32", "tf32", "bf16")
    ]
    return [c for c in all_of if c.precision in PAPER or c.channels in (128, 512)]


def quick_cases() -> list[Case]:
    """Return the configurations of ``--quick``: those that targets are set for."""
    return [
        *(Case(b, 512, precision) for precision in ("fp16", "fp32") for b in (64, 1)),
        Case(64, 256, "fp16"),
    ]


def progress(line: str) -> None:
    """Print a line of progress."""
    print(line, file=sys.stderr, flush=True)


def counts(channels: Iterable[int] = CHANNELS) -> list[Result]:
    """Return Table I, one row for each number of channels: operations of one picture."""
    return [
        {
            "channels": c,
            **{
                counted: operations(counted, ci=c, co=c, n=SIZE)
                for counted in ("naive", "winograd", "fused", "direct")
            },
        }
        for c in channels
    ]


def run_on_cpu(
    *,
    quick: bool = False,
    save: Callable[[Result], None] = lambda result: None,
    log: Log = progress,
    command: str = "neocog bench convpool --cpu",
) -> Result:
    """Return what needs no GPU: operation counts, and the paper's check of them."""
    result = {**_head(command), "rows": []}
    ours = operations("direct", ci=512, co=512, n=SIZE)
    log(f"direct sum, 512 channels: {ours} operations, the paper says {CHECK}")
    save(result)
    return result


def run_on_gpu(
    *,
    quick: bool = False,
    cases: Iterable[Case] | None = None,
    seconds: float = SECONDS,
    save: Callable[[Result], None] = lambda result: None,
    log: Log = progress,
    command: str = "neocog bench convpool",
    number: int = 0,
    watch: Watch | None = None,
    earlier: Result | None = None,
) -> Result:
    """Check every system against float64, then time it, at each configuration.

    Parameters
    ----------
    quick : bool
        Few configurations, and no new one after 45 seconds.
    cases : iterable of Case, optional
        Configurations instead of the standard ones.
    seconds : float
        When this much time has gone, what is left is named in ``not_run``.
    save : callable
        Takes the result after each configuration.
    log : callable
        Takes lines of progress.
    command : str
        What was asked for, as the result tells it.
    number : int
        Which GPU.
    watch : Watch, optional
        Who is told what comes next, and what is left out.
    earlier : dict, optional
        A result whose rows stay.
    """
    try:
        from experiments.convpool.device import Device
        from experiments.convpool.run import run_cases
    except ModuleNotFoundError as missing:
        raise DeviceError(
            f"{missing.name} is not installed, and neocog bench convpool compares with it: "
            "install neocog[bench] and neocog[cuda13], or use --cpu"
        ) from None
    device = Device(number)
    chosen = list(cases) if cases is not None else quick_cases() if quick else standard_cases()
    seconds = min(seconds, _QUICK_SECONDS) if quick else seconds
    result = _head(command, number) | {"facts": device.facts()} | (earlier or {})
    run_cases(device, chosen, result, seconds=seconds, save=save, log=log, watch=watch)
    return result


def run_attended(
    *,
    quick: bool,
    seconds: float = SECONDS,
    save: Callable[[Result], None],
    log: Log = progress,
    command: str,
    number: int = 0,
) -> Result:
    """Run :func:`run_on_gpu` in a process that is begun again if a kernel hangs or breaks it."""
    need_device("convpool", number)
    seconds = min(seconds, _QUICK_SECONDS) if quick else seconds
    work = partial(run_on_gpu, quick=quick, command=command, number=number)
    return attend(work, {}, seconds=seconds, save=save, log=log)


def tilings(result: Result) -> list[Result]:
    """Return the tilings of ours that were the quickest, as ``neocog.cuda`` takes them."""
    found = (row["systems"].get("ours", {}).get("tiling") for row in result.get("rows", ()))
    return [tiling for tiling in found if tiling]


def faults(result: Result) -> list[str]:
    """Return what is wrong: counts that are not the paper's, systems of ours that err or fail."""
    wrong = faults_of(result)
    counted = {row["channels"]: row["direct"] for row in result.get("counts", ())}
    if counted.get(512, CHECK) != CHECK:
        wrong.append(f"direct sum at 512 channels counts {counted[512]}, the paper {CHECK}")
    for row in result.get("rows", ()):
        where = f"{row['precision']} batch {row['batch']} channels {row['channels']}"
        for name, found in row["systems"].items():
            if found.get("wrong") or (name.startswith("ours") and "us" not in found):
                wrong.append(f"{where}: {LABELS[name]}: {found.get('why', 'no figure')}")
    return wrong


def _head(command: str, number: int | None = None) -> Result:
    return {
        "experiment": "convpool",
        **about(command, gpu=number is not None, number=number or 0),
        "sizes": {"size": SIZE, "kernel": KERNEL, "pool": POOL, "padding": PADDING},
        "counts": counts(),
        "paper": {
            "ratio": PAPER,
            "machine": "V100, CUDA 9.2, cuDNN 7.3",
            "tables II, III": MISSING,
        },
    }
