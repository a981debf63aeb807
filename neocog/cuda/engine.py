"""The engine on CUDA devices: digits in, answers out; maps and stage times as on the CPU."""

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neocog.cuda.devices import numbers
from neocog.cuda.kernel import Array
from neocog.cuda.launcher import Failing, gpu
from neocog.cuda.passes import ANSWER_COLUMNS, stage_name
from neocog.cuda.plan import MOST_CHUNK, kernels_of, parse_plan
from neocog.cuda.runner import Runner
from neocog.cuda.steps import Precision, known_precision
from neocog.errors import DeviceError, InputError, UsageError
from neocog.network.arrays import array_module
from neocog.network.decision import Answers, Decision
from neocog.network.engine import Bound, pictures
from neocog.network.model import Model
from neocog.network.spec import LABELS
from neocog.network.u0 import check_digits

_TYPICAL = 8  # digits of a page, as a power of two
_HALVES_ARCH = 80  # compute capability that has 16-bit matrix products
_DLPACK_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged


class CudaEngine:
    """A model, ready to recognise on every GPU (``"cuda"``) or one (``"cuda:N"``).

    An engine may be used by one thread after another; for threads at once each takes its own. By default it
    computes in fp16 from compute capability 8.0, else in fp32; ``plan`` is that of `parse_plan`. A
    DeviceError says if the device cannot be used, a UsageError if precision or plan make no sense there.
    """

    def __init__(
        self,
        model: Model,
        *,
        device: str = "cuda",
        precision: str | None = None,
        plan: str = "default",
        programmatic: bool | None = None,
    ) -> None:
        self.model, self.device = model, device
        self._numbers = numbers(device)
        self._programmatic = programmatic
        first = gpu(self._numbers[0], programmatic)
        self.precision: Precision = precision_on(first.arch, precision)
        self._wanted = parse_plan(plan)
        self._runners: dict[int, Runner] = {}
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._decision = Decision(model)
        with self._failing():
            runner = self.runner(self._numbers[0])
            if self._wanted is None and not runner.measured:
                from neocog.cuda.measure import measure_plan

                measure_plan(runner)

    @property
    def batch(self) -> int:
        """Digits that go through the pass together when more come and no batch is named."""
        return self.runner(self._numbers[0]).chunk

    @property
    def where(self) -> str:
        """Device and its name, for people."""
        first = self.runner(self._numbers[0]).gpu
        more = f" and {len(self._numbers) - 1} more" if len(self._numbers) > 1 else ""
        return f"{self.device} ({first.name}{more})"

    @property
    def runners(self) -> tuple[Runner, ...]:
        """What runs on each of the engine's GPUs."""
        return tuple(self.runner(number) for number in self._numbers)

    def runner(self, number: int) -> Runner:
        if number not in self._runners:
            device = gpu(number, self._programmatic)
            self._runners[number] = Runner(device, self.model, self.precision, self._wanted)
        return self._runners[number]

    def check(self) -> None:
        """Choose every step, compile and load the first kernel; a DeviceError if that fails."""
        runner = self.runner(self._numbers[0])
        try:
            with self._failing(), runner.gpu.current():
                for batch in (1, _TYPICAL):
                    steps = runner.shelf.choose(runner.plan, batch)
                runner.gpu.prepare(kernels_of(steps[0], _TYPICAL))
        except UsageError as error:
            raise DeviceError(f"device '{self.device}': {error}") from None

    def _failing(self) -> Failing:
        return gpu(self._numbers[0], self._programmatic).failing(self.device)

    def recognise(self, digits: Any, *, batch: int | None = None) -> Answers:
        """Recognise digits (N, 28, 28) of uint8, ink 255 on paper 0; ``batch`` is the most of a pass.

        NumPy's, CuPy's or of anything that speaks DLPack; what lies on one of the engine's GPUs is
        recognised there. A digit's answer does not depend on those beside it; passes of different
        sizes may take different versions of a step, whose last bits may differ. Raises InputError
        for another shape or type, UsageError for a batch below 1, DeviceError if the device fails.
        """
        if batch is not None and batch < 1:
            raise UsageError(f"got a batch of {batch} digits, expected 1 or more")
        digits = _array(digits)
        check_digits(digits)
        if len(digits) == 0:
            return Answers.none()
        out = np.empty((len(digits), ANSWER_COLUMNS), np.float32)
        with self._failing(), self._lock:
            self._run(digits, out, min(batch or self.batch, MOST_CHUNK))
        return _answers(out)

    def _run(self, digits: Array, out: NDArray[np.float32], chunk: int) -> None:
        if array_module(digits) is not np:
            number = digits.device.id
            if number not in self._numbers:
                number = self._numbers[0]
                digits = _brought(digits, number)
            self.runner(number).run(digits, out, chunk)
            return
        whole = min(chunk, self.runner(self._numbers[0]).plan.part)
        shares = shares_of(len(digits), whole, len(self._numbers))
        if len(shares) == 1:
            self.runner(self._numbers[0]).run(digits, out, chunk)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(len(self._numbers), "neocog-gpu")
        jobs = [
            self._pool.submit(runner.run, digits[share], out[share], chunk)
            for runner, share in zip(self.runners, shares, strict=True)
        ]
        for job in jobs:
            job.result()

    def maps(self, u0: ArrayLike) -> dict[str, NDArray[np.float32]]:
        """Return every layer's response to pictures, as :meth:`neocog.network.engine.Engine.maps`.

        ``u0`` (B, 65, 65) has ink 1 on paper 0; each of U0, UG, US1 .. UC4 is float32 (B, K, H, W).
        """
        u = pictures(u0)
        with self._failing(), self._lock:
            out = {"U0": u[:, None], **self.runner(self._numbers[0]).maps(u)}
        us4 = out["US4"].transpose(0, 2, 3, 1)
        out["UC4"] = self._decision.scores(us4)[:, :, None, None]
        return out

    def stage_times(self, digits: NDArray[np.uint8], *, repeats: int = 20) -> dict[str, NDArray[np.float64]]:
        """Return milliseconds of each stage for one batch, ``repeats`` of them by stage name.

        ``total`` is the pass from the upload to the answers on the host; the stages add up to it.
        A batch larger than a chunk is measured by the chunk and counted as so many chunks.
        """
        from neocog.cuda.measure import stage_times

        check_digits(digits)
        runner = self.runner(self._numbers[0])
        self.recognise(digits)
        count = min(len(digits), runner.chunk)
        with self._failing(), self._lock:
            times = stage_times(runner, digits[:count], repeats=repeats)
        return {name: ms * (len(digits) / count) for name, ms in times.items()}

    def bounds(self, batch: int) -> dict[str, Bound]:
        """Return what each stage does for a batch, and its roofline on the first GPU."""
        from neocog.cuda.roofline import peaks

        runner = self.runner(self._numbers[0])
        with self._failing():
            rates = peaks(runner.gpu)
            steps = runner.shelf.choose(runner.plan, min(batch, runner.chunk))
        found = {}
        for step in steps:
            work = step.work()
            ms = 1e3 * batch * rates.seconds(work, self.precision, tensor=step.on_tensor_cores)
            found[stage_name(step)] = Bound(step.version, batch * work.flops, batch * work.bytes, ms)
        return found


def shares_of(count: int, part: int, devices: int) -> list[slice]:
    """Cut ``count`` digits into a share per device, whole parts each; one if there are few."""
    parts = -(-count // part)
    if devices < 2 or parts < 2 * devices:
        return [slice(0, count)]
    ends = [min(count, -(-parts * i // devices) * part) for i in range(devices + 1)]
    return [slice(a, b) for a, b in pairwise(ends)]


def precision_on(arch: int, wanted: str | None = None) -> Precision:
    """Return the precision that is wanted (a UsageError if none), by default a device's."""
    if wanted is None:
        return "fp16" if arch >= _HALVES_ARCH else "fp32"
    return known_precision(wanted)


def _array(digits: Any) -> Array:
    """Return digits as a NumPy or CuPy array, what lies on a GPU where it lies."""
    if isinstance(digits, np.ndarray) or array_module(digits) is not np:
        return digits
    if not hasattr(digits, "__dlpack_device__"):
        raise InputError(
            f"got a {type(digits).__name__}, expected an array of NumPy, CuPy or another library with DLPack"
        )
    try:
        if int(digits.__dlpack_device__()[0]) in _DLPACK_CUDA:
            import cupy

            return cupy.from_dlpack(digits)
        return np.from_dlpack(digits)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        first = str(error).strip().partition("\n")[0]
        raise InputError(f"DLPack conversion of the digits failed: {first}") from None


def _brought(digits: Array, number: int) -> Array:
    """Copy an array from a GPU that the engine does not use to one that it does."""
    import cupy

    with digits.device:
        cupy.cuda.get_current_stream().synchronize()
    with cupy.cuda.Device(number):
        return digits.copy()


def _answers(out: NDArray[np.float32]) -> Answers:
    """Return rows of answers as columns, views of them."""
    return Answers(
        label=out[:, LABELS].astype(np.int64),
        score=out[:, :LABELS],
        margin=out[:, LABELS + 1],
        p=out[:, LABELS + 2],
    )
