"""Our own passes and single steps on a GPU, as CUDA graphs that can be compared and timed."""

from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from neocog.cuda.engine import LANES, CudaEngine
from neocog.cuda.kernel import Array, Layout, Step
from neocog.cuda.lanes import Timed, enqueue
from neocog.cuda.launcher import Gpu
from neocog.cuda.plan import Pass, Shelf
from neocog.network.arrays import to_numpy
from neocog.network.model import Model
from neocog.network.spec import LABELS


class OurSide:
    """``batch`` digits a pass of our engine, chunks dealt to lanes; a Side of ``compare.py``."""

    def __init__(
        self, model: Model, batch: int, precision: str, *, plan: str = "default", number: int = 0
    ) -> None:
        self._batch = batch
        self._engine = runner = CudaEngine(model, device=f"cuda:{number}", precision=precision, plan=plan)
        self._gpu = gpu = runner.gpu
        with gpu.current():
            chunk = self.chunk = min(batch, runner.batch)
            steps = runner.shelf.choose(runner.plan, chunk)
            layouts, part, late = runner.shelf.layouts, runner.plan.part, runner.plan.late_at(chunk)
            lanes = min(LANES, -(-batch // chunk))
            self._passes = [Pass(gpu, steps, layouts, chunk, part, late) for _ in range(lanes)]
            self._streams = [gpu.xp.cuda.Stream(non_blocking=True) for _ in range(lanes)]
            own = self._passes[0].arrays
            if chunk < batch:  # of the whole batch; chunks are cut from it
                own = {name: gpu.xp.zeros((batch, *own[name].shape[1:]), own[name].dtype)
                       for name in ("digits", "answers")}  # fmt: skip
            self._digits, self._answers = own["digits"], own["answers"]
            for work in self._passes:
                gpu.prepare(launch.kernel for launch in work.launches)
            self._timed = Timed(gpu, self._record)

    def _record(self) -> None:
        if self.chunk == self._batch:
            enqueue(self._gpu, self._passes[0].launches)
            return
        here = self._gpu.xp.cuda.get_current_stream()
        begin, step = here.record(), self.chunk * len(self._passes)
        for lane, (work, stream) in enumerate(zip(self._passes, self._streams, strict=True)):
            stream.wait_event(begin)
            with stream:
                for start in range(lane * self.chunk, self._batch, step):
                    part = slice(start, min(start + self.chunk, self._batch))
                    count = part.stop - start
                    self._copy(work.arrays["digits"][:count], self._digits[part])
                    enqueue(self._gpu, work.launches)
                    self._copy(self._answers[part], work.arrays["answers"][:count])
            here.wait_event(stream.record())

    def _copy(self, target: Array, source: Array) -> None:
        cuda = self._gpu.xp.cuda
        how, stream = cuda.runtime.memcpyDeviceToDevice, cuda.get_current_stream().ptr
        cuda.runtime.memcpyAsync(target.data.ptr, source.data.ptr, source.nbytes, how, stream)

    def load(self, digits: NDArray[np.uint8]) -> None:
        """Put a batch of digits (B, 28, 28) where the passes read it."""
        with self._gpu.current():
            self._digits[...] = self._gpu.xp.asarray(digits)
            self._gpu.xp.cuda.get_current_stream().synchronize()

    def elapsed(self, repeats: int) -> float:
        """Return milliseconds of one pass by the GPU's own clock, over ``repeats`` in a row."""
        return self._timed.elapsed(repeats)

    def scores(self) -> NDArray[np.float32]:
        """Return the scores (B, 10) of the digits last loaded."""
        self._timed.replay()
        self._timed.stream.synchronize()
        found: NDArray[np.float32] = to_numpy(self._answers)[:, :LABELS]
        return found

    def trip(self, digits: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return scores of digits that lie on the host: transfers, one pass, waiting."""
        found: NDArray[np.float32] = self._engine.recognise(digits, batch=self._batch).score
        return found


class StepRun:
    """One step of the pass, fed with the maps (B, K, H, W) that it reads."""

    def __init__(self, shelf: Shelf, step: Step, maps: NDArray[Any]) -> None:
        self._gpu = gpu = cast("Gpu", shelf.machine)
        self.step = step
        with gpu.current():
            self._pass = Pass(gpu, [step], shelf.layouts, len(maps))
            self._pass.arrays[step.reads][...] = gpu.xp.asarray(stored(maps, shelf.layouts[step.reads]))
            gpu.xp.cuda.get_current_stream().synchronize()
            gpu.prepare(launch.kernel for launch in self._pass.launches)

    def maps(self) -> NDArray[np.float32]:
        with self._gpu.current():
            self._pass.run()
            found: NDArray[np.float32] = to_numpy(self._pass.maps(self.step.writes))
            return found

    def microseconds(self, *, repeats: int = 10, rounds: int = 7) -> float:
        work = partial(enqueue, self._gpu, tuple(self._pass.launches))
        with self._gpu.current():
            return 1e3 * Timed(self._gpu, work, repeats).median(rounds)


def inside(array: NDArray[Any], layout: Layout) -> NDArray[Any]:
    """Return the cells of a layer without border and spare channels, (B, H, W, K), a view."""
    b, size = layout.border, layout.size
    return array[:, b : b + size, b : b + size, : layout.planes]


def stored(maps: NDArray[np.floating[Any]], layout: Layout) -> NDArray[Any]:
    """Return maps (B, K, H, W) as a layout stores them, border and spare channels 0."""
    out = np.zeros(layout.shape(len(maps)), layout.dtype)
    inside(out, layout)[...] = maps.transpose(0, 2, 3, 1)
    return out
