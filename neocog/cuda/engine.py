"""The engine on a CUDA device: digits in, answers out; maps and stage times as on the CPU."""

import math
import threading
from collections import deque
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neocog.cuda.devices import number_of
from neocog.cuda.kernel import precision_on, up
from neocog.cuda.lanes import PassLane, Timed, elapsed, enqueue
from neocog.cuda.launcher import Failing, gpu
from neocog.cuda.plan import ANSWER_COLUMNS, Pass, Shelf, plan_of
from neocog.errors import DeviceError, InputError, UsageError
from neocog.network.decision import Answers, Decision
from neocog.network.engine import pictures
from neocog.network.model import Model
from neocog.network.spec import LABELS
from neocog.network.u0 import check_digits

#: Lanes that share a large batch: one's tensor cores work while another's maps move.
LANES = 4
_MAPS_AT_ONCE = 32  # pictures
_TYPICAL = 8  # digits of a page, as a power of two
_SAMPLE_MS, _OF = 2.0, 3  # least milliseconds of a sample of a stage; samples that a time is the median of


class CudaEngine:
    """A model, ready to recognise on a GPU: ``"cuda"`` (the first one) or ``"cuda:N"``.

    An engine may be used by one thread after another; for threads at once each takes its own. By default it
    computes in fp16 from compute capability 8.0, else in fp32; ``plan`` is ``"default"`` or ``"card"``. A
    DeviceError says if the device cannot be used, a UsageError if precision or plan make no sense there.
    """

    def __init__(self, model: Model, *, device: str = "cuda", precision: str | None = None,
                 plan: str = "default", programmatic: bool | None = None) -> None:  # fmt: skip
        self.model, self.device = model, device
        self.gpu = gpu(number_of(device), programmatic)
        self._failing = Failing(self.gpu, device)
        self.precision = precision_on(self.gpu.arch, precision)
        self.plan = plan_of(plan, self.precision)
        self.batch = self.plan.chunk  # digits of a pass when more come; less where there is less memory
        self.lock = threading.RLock()
        self._lanes: dict[tuple[int, int], PassLane] = {}  # by digits and number
        self._most_lanes = LANES
        with self._failing:
            self.shelf = Shelf(self.gpu, model, self.precision)

    @property
    def where(self) -> str:
        return f"{self.device} ({self.gpu.name})"

    def check(self) -> None:
        """Choose every step, compile and load the first kernel; a DeviceError if that fails."""
        try:
            with self._failing, self.gpu.current():
                steps = [self.shelf.choose(self.plan, batch)[0] for batch in (1, _TYPICAL)]
                self.gpu.prepare(steps[-1].kernels(_TYPICAL))
        except UsageError as error:
            raise DeviceError(f"device '{self.device}': {error}") from None

    def recognise(self, digits: NDArray[np.uint8], *, batch: int | None = None) -> Answers:
        """Recognise digits (N, 28, 28), ink 255 on paper 0; ``batch`` is the most of a pass.

        No answer depends on the digits beside it; passes of different sizes may take different versions of
        a step, whose last bits may differ. InputError for another shape or type, UsageError for a batch
        below 1, DeviceError if the device fails or has no memory even for one digit.
        """
        if batch is not None and batch < 1:
            raise UsageError(f"got a batch of {batch} digits, expected 1 or more")
        if not isinstance(digits, np.ndarray):
            raise InputError(f"got digits as {type(digits).__name__}, expected a NumPy array")
        check_digits(digits)
        if len(digits) == 0:
            return Answers.none()
        out = np.empty((len(digits), ANSWER_COLUMNS), np.float32)
        with self._failing, self.lock, self.gpu.current():
            try:
                self._deal(digits, out, batch or self.batch)
            except BaseException:  # the next digits do not get the answers of these
                for lane in self._lanes.values():  # all of them first: waiting may be broken off too
                    lane.waiting = None
                for lane in self._lanes.values():
                    with suppress(Exception):  # what went wrong first is told
                        lane.stream.synchronize()
                raise
        label, margin, p = out[:, LABELS].astype(np.int64), out[:, LABELS + 1], out[:, LABELS + 2]
        return Answers(label=label, score=out[:, :LABELS], margin=margin, p=p)

    def maps(self, u0: ArrayLike) -> dict[str, NDArray[np.float32]]:
        """Return every layer's maps of pictures (B, 65, 65), as :meth:`neocog.network.engine.Engine.maps`."""
        u = pictures(u0)
        parts: list[dict[str, NDArray[np.float32]]] = []
        with self._failing, self.lock, self.gpu.current(), self.gpu.xp.cuda.Stream(non_blocking=True):
            for start in range(0, max(1, len(u)), _MAPS_AT_ONCE):
                some = u[start : start + _MAPS_AT_ONCE]
                bucket = bucket_of(len(some))
                steps = self.shelf.choose(self.plan, bucket, first="U0")
                work = Pass(self.gpu, steps, self.shelf.layouts, bucket)
                padded = np.zeros((bucket, *u.shape[1:]), np.float32)
                padded[: len(some)] = some
                work.arrays["U0"].set(padded)
                work.run()
                parts.append({name: work.maps(name)[: len(some)] for name in self.shelf.layouts})
        out = {"U0": u[:, None], **{name: np.concatenate([p[name] for p in parts]) for name in parts[0]}}
        scores = Decision(self.model).scores(out["US4"].transpose(0, 2, 3, 1))
        return {**out, "UC4": scores[:, :, None, None]}

    def stage_times(self, digits: NDArray[np.uint8], *, repeats: int = 20) -> dict[str, NDArray[np.float64]]:
        """Return milliseconds of each stage for one batch, ``repeats`` of them by stage name.

        ``total`` is the pass from the upload to the answers on the host; the stages add up to it. A batch
        larger than a chunk is measured by the chunk and counted as so many chunks. Events between the kernels
        would cost as much as these do, so the kernels are captured up to each stage: UG; UG and US1; and so
        on; a stage takes what its kernels take longer than those before it. A copy in front disturbs the
        kernels behind it, so it comes last: the upload is what all kernels take longer with it, and what a
        replay of the engine's own graph takes beyond is launch.
        """
        check_digits(digits)
        self.recognise(digits)
        count = min(len(digits), self.batch)
        with self._failing, self.lock, self.gpu.current():
            lane = self.lane(bucket_of(count, self.plan.part))
            lane.fill(digits[:count])
            lane.upload()  # passes without an upload take these digits too
            held = 32 if lane.batch <= 64 else 4  # passes a graph, so that its launch does not count
            names = [stage.name for stage in lane.work.stages]
            parts = [tuple(lane.work.up_to(n + 1)) for n in range(len(names))]
            works: list[Any] = [*(partial(enqueue, self.gpu, part) for part in parts), lane.enqueue]
            timed = [Timed(self.gpu, work, held, lane.stream) for work in works]  # the last with the upload
            replays = [max(1, math.ceil(_SAMPLE_MS / held / max(t.elapsed(), 1e-6))) for t in timed]

            def whole() -> float:
                for _ in range(replays[-1]):
                    timed[-1].replay()  # the device is at work while the graphs are launched
                lane.replay()
                return elapsed(self.gpu, lane.stream, lane.replay, held * replays[-1])

            samples: list[Any] = [partial(t.elapsed, n) for t, n in zip(timed, replays, strict=True)]
            found = [[[one() for _ in range(_OF)] for one in (*samples, whole)] for _ in range(repeats + 1)]
        rows = np.median(found, axis=2)[1:]
        rows = np.maximum.accumulate(rows, axis=1) * (len(digits) / count)  # one more stage takes no less
        times = dict(zip([*names, "upload", "launch"], np.diff(rows, axis=1, prepend=0).T, strict=True))
        return {**{name: times[name] for name in ("upload", *names, "launch")}, "total": rows[:, -1]}

    def lane(self, bucket: int, index: int = 0) -> PassLane:
        """Return a lane for batches of a size, made when it is first asked for."""
        if (bucket, index) not in self._lanes:
            with self.gpu.current():
                steps, layouts = self.shelf.choose(self.plan, bucket), self.shelf.layouts
                part, late = self.plan.part, self.plan.late_at(bucket)
                self._lanes[bucket, index] = PassLane(self.gpu, steps, layouts, bucket, part, late)
        return self._lanes[bucket, index]

    def _deal(self, digits: NDArray[np.uint8], out: NDArray[np.float32], chunk: int) -> None:
        """Recognise digits into ``out`` (N, 16): chunks go to lanes in turn."""
        busy: deque[PassLane] = deque()
        start, turn = 0, 0
        while start < len(digits):
            some = digits[start : start + min(chunk, self.batch)]
            bucket = bucket_of(len(some), self.plan.part)
            try:
                lane = self.lane(bucket, turn % self._most_lanes)
            except self.gpu.xp.cuda.memory.OutOfMemoryError:
                while busy:
                    busy.popleft().collect(out)
                self._make_room(bucket)
                continue  # smaller chunks or fewer lanes from now on
            if lane.waiting is not None:
                lane.collect(out)
                busy.remove(lane)
            lane.submit(some, start)
            busy.append(lane)
            start, turn = start + len(some), turn + 1
        for lane in busy:
            lane.collect(out)

    def _make_room(self, bucket: int) -> None:
        """Give memory back, then do with the lanes that are there, then with smaller chunks."""
        before = len(self._lanes)
        self._lanes = {key: lane for key, lane in self._lanes.items() if key[0] == bucket}
        self.gpu.xp.get_default_memory_pool().free_all_blocks()
        if before > len(self._lanes):
            return
        if before:  # all of this size, the first ones
            self._most_lanes = before
        elif bucket > 1:
            self._lanes.clear()
            self.batch = bucket // 2
        else:
            why = "no memory left for one digit; end other programs on it, or use --device cpu"
            raise DeviceError(f"device 'cuda:{self.gpu.number}': {why}")


def bucket_of(count: int, part: int = 0) -> int:
    """Return the batch of the pass that takes ``count`` digits: a power of two, or whole parts."""
    power = 1 << max(0, count - 1).bit_length()
    return up(count, part) if part and power > part else power
