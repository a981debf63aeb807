"""The engine on a CUDA device: digits in, answers out; maps and stage times as on the CPU."""

import threading

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neocog.cuda.devices import number_of
from neocog.cuda.launcher import Failing, gpu
from neocog.cuda.measure import stage_times
from neocog.cuda.passes import ANSWER_COLUMNS
from neocog.cuda.plan import kernels_of, plan_of
from neocog.cuda.runner import Runner
from neocog.cuda.steps import Precision, known_precision
from neocog.errors import DeviceError, InputError, UsageError
from neocog.network.decision import Answers, Decision
from neocog.network.engine import pictures
from neocog.network.model import Model
from neocog.network.spec import LABELS
from neocog.network.u0 import check_digits

_TYPICAL = 8  # digits of a page, as a power of two
_HALVES_ARCH = 80  # compute capability that has 16-bit matrix products


class CudaEngine:
    """A model, ready to recognise on a GPU: ``"cuda"`` (the first one) or ``"cuda:N"``.

    An engine may be used by one thread after another; for threads at once each takes its own. By default it
    computes in fp16 from compute capability 8.0, else in fp32; ``plan`` is ``"default"`` or ``"card"``. A
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
        self.gpu = gpu(number_of(device), programmatic)
        self.precision: Precision = precision_on(self.gpu.arch, precision)
        wanted = plan_of(plan, self.precision)
        self._lock = threading.Lock()
        self._decision = Decision(model)
        with self._failing():
            self.runner = Runner(self.gpu, model, self.precision, wanted)

    @property
    def batch(self) -> int:
        """Digits that go through the pass together when more come and no batch is named."""
        return self.runner.chunk

    @property
    def where(self) -> str:
        return f"{self.device} ({self.gpu.name})"

    def check(self) -> None:
        """Choose every step, compile and load the first kernel; a DeviceError if that fails."""
        runner = self.runner
        try:
            with self._failing(), self.gpu.current():
                for batch in (1, _TYPICAL):
                    steps = runner.shelf.choose(runner.plan, batch)
                self.gpu.prepare(kernels_of(steps[0], _TYPICAL))
        except UsageError as error:
            raise DeviceError(f"device '{self.device}': {error}") from None

    def _failing(self) -> Failing:
        return self.gpu.failing(self.device)

    def recognise(self, digits: NDArray[np.uint8], *, batch: int | None = None) -> Answers:
        """Recognise digits (N, 28, 28), ink 255 on paper 0; ``batch`` is the most of a pass.

        A digit's answer does not depend on those beside it; passes of different sizes may take
        different versions of a step, whose last bits may differ. Raises InputError for another
        shape or type, UsageError for a batch below 1, DeviceError if the device fails.
        """
        if batch is not None and batch < 1:
            raise UsageError(f"got a batch of {batch} digits, expected 1 or more")
        if not isinstance(digits, np.ndarray):
            raise InputError(f"got digits as {type(digits).__name__}, expected a NumPy array")
        check_digits(digits)
        if len(digits) == 0:
            return Answers.none()
        out = np.empty((len(digits), ANSWER_COLUMNS), np.float32)
        with self._failing(), self._lock:
            self.runner.run(digits, out, batch or self.batch)
        label, margin, p = out[:, LABELS].astype(np.int64), out[:, LABELS + 1], out[:, LABELS + 2]
        return Answers(label=label, score=out[:, :LABELS], margin=margin, p=p)

    def maps(self, u0: ArrayLike) -> dict[str, NDArray[np.float32]]:
        """Return every layer's response to pictures, as :meth:`neocog.network.engine.Engine.maps`.

        ``u0`` (B, 65, 65) has ink 1 on paper 0; each of U0, UG, US1 .. UC4 is float32 (B, K, H, W).
        """
        u = pictures(u0)
        with self._failing(), self._lock:
            out = {"U0": u[:, None], **self.runner.maps(u)}
        us4 = out["US4"].transpose(0, 2, 3, 1)
        out["UC4"] = self._decision.scores(us4)[:, :, None, None]
        return out

    def stage_times(self, digits: NDArray[np.uint8], *, repeats: int = 20) -> dict[str, NDArray[np.float64]]:
        """Return milliseconds of each stage for one batch, ``repeats`` of them by stage name.

        ``total`` is the pass from the upload to the answers on the host; the stages add up to it.
        A batch larger than a chunk is measured by the chunk and counted as so many chunks.
        """
        check_digits(digits)
        self.recognise(digits)
        count = min(len(digits), self.runner.chunk)
        with self._failing(), self._lock:
            times = stage_times(self.runner, digits[:count], repeats=repeats)
        return {name: ms * (len(digits) / count) for name, ms in times.items()}


def precision_on(arch: int, wanted: str | None = None) -> Precision:
    """Return the precision that is wanted (a UsageError if none), by default a device's."""
    if wanted is None:
        return "fp16" if arch >= _HALVES_ARCH else "fp32"
    return known_precision(wanted)
