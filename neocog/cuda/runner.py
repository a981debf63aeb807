"""One GPU at work: lanes by batch size, chunks of a large batch dealt to them."""

import threading
from collections import deque
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from neocog.cuda.kernel import up
from neocog.cuda.lanes import PassLane
from neocog.cuda.launcher import Gpu
from neocog.cuda.passes import Pass
from neocog.cuda.plan import Plan, Shelf
from neocog.cuda.steps import Precision
from neocog.errors import DeviceError
from neocog.network.model import Model

#: Lanes that share a large batch: one's tensor cores work while another's maps move.
LANES = 4
#: Pictures whose maps are computed at a time.
_MAPS_AT_ONCE = 32


def bucket_of(count: int, part: int = 0) -> int:
    """Return the batch of the pass that takes ``count`` digits: a power of two, or whole parts."""
    power = 1 << max(0, count - 1).bit_length()
    return up(count, part) if part and power > part else power


class Runner:
    """A model on one GPU, by a plan."""

    def __init__(self, gpu: Gpu, model: Model, precision: Precision, plan: Plan) -> None:
        self.gpu, self.plan = gpu, plan
        self.shelf = Shelf(gpu, model, precision)
        self.chunk = plan.chunk
        self._lanes: dict[tuple[int, int], PassLane] = {}
        self._most_lanes = LANES
        self.lock = threading.RLock()

    def lane(self, bucket: int, index: int = 0) -> PassLane:
        """Return a lane for batches of a size, made when it is first asked for."""
        key = (bucket, index)
        if key not in self._lanes:
            with self.gpu.current():
                steps = self.shelf.choose(self.plan, bucket)
                layouts, part, late = self.shelf.layouts, self.plan.part, self.plan.late_at(bucket)
                self._lanes[key] = PassLane(self.gpu, steps, layouts, bucket, part, late)
        return self._lanes[key]

    def run(self, digits: NDArray[np.uint8], out: NDArray[np.float32], chunk: int) -> None:
        """Recognise digits (N, 28, 28) into ``out``, (N, 16).

        If it breaks off, what is on its way is waited for and thrown away. A DeviceError says if
        the device has no memory even for one digit.
        """
        with self.lock, self.gpu.current():
            try:
                self._deal(digits, out, chunk)
            except BaseException:
                self._break_off()
                raise

    def _deal(self, digits: NDArray[np.uint8], out: NDArray[np.float32], chunk: int) -> None:
        busy: deque[PassLane] = deque()
        start, turn = 0, 0
        while start < len(digits):
            some = digits[start : start + min(chunk, self.chunk)]
            lane = self._next(bucket_of(len(some), self.plan.part), turn, busy, out)
            if lane is None:
                continue  # smaller chunks from now on
            lane.submit(some, start)
            busy.append(lane)
            start, turn = start + len(some), turn + 1
        for lane in busy:
            lane.collect(out)

    def _break_off(self) -> None:
        """Forget what is on its way, so that the next digits do not get its answers."""
        lanes = tuple(self._lanes.values())
        for lane in lanes:  # all of them first: waiting may be broken off too
            lane.waiting = None
        for lane in lanes:
            with suppress(Exception):  # what went wrong first is told
                lane.stream.synchronize()

    def _next(
        self, bucket: int, turn: int, busy: deque[PassLane], out: NDArray[np.float32]
    ) -> PassLane | None:
        """Return a lane that is free; None if there is no memory for one of this size."""
        try:
            lane = self.lane(bucket, turn % self._most_lanes)
        except self.gpu.xp.cuda.memory.OutOfMemoryError:
            for other in busy:
                other.collect(out)
            busy.clear()
            self._make_room(bucket)
            return None
        if lane.waiting is not None:
            lane.collect(out)
            busy.remove(lane)
        return lane

    def _make_room(self, bucket: int) -> None:
        """Give memory back, then do with the lanes that are there, then with smaller chunks."""
        others = [key for key in self._lanes if key[0] != bucket]
        for key in others:
            del self._lanes[key]
        self.gpu.xp.get_default_memory_pool().free_all_blocks()
        if others:
            return
        if held := len(self._lanes):  # all of this size, the first ones
            self._most_lanes = held
        elif bucket > 1:
            self._lanes.clear()
            self.chunk = bucket // 2
        else:
            raise DeviceError(
                f"device 'cuda:{self.gpu.number}': no memory left for one digit; end other "
                "programs on it, or use --device cpu"
            )

    def maps(self, u0: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """Return UG .. US4 for pictures (B, 65, 65), float32 (B, K, H, W)."""
        parts = [
            self._maps(u0[start : start + _MAPS_AT_ONCE])
            for start in range(0, max(1, len(u0)), _MAPS_AT_ONCE)
        ]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _maps(self, u0: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        bucket = bucket_of(len(u0))
        padded = np.zeros((bucket, *u0.shape[1:]), np.float32)
        padded[: len(u0)] = u0
        with self.lock, self.gpu.current(), self.gpu.xp.cuda.Stream(non_blocking=True):
            steps = self.shelf.choose(self.plan, bucket, first="U0")
            work = Pass(self.gpu, steps, self.shelf.layouts, bucket)
            work.arrays["U0"].set(padded)
            work.run()
            return {name: work.maps(name)[: len(u0)] for name in self.shelf.layouts}
