"""CuPy as far as the engine asks of it, on the CPU: NumPy arrays, and graphs that are lists.

Kernels run in the emulator. Nothing is asynchronous; what must not happen within a capture fails.
"""

import ctypes
import sys
import time
from types import ModuleType, SimpleNamespace

import numpy as np

from neocog.cuda import devices, launcher
from neocog.cuda.kernel import Launch


class FakeArray(np.ndarray):  # its module is told to be cupy's: arrays are known by that
    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)

    def set(self, values):
        assert (values.shape, values.dtype) == (self.shape, self.dtype)
        self[...] = values

    def get(self):
        assert Device.captured is None, "a wait within a capture"
        return np.array(self)


FakeArray.__module__ = "cupy"


class Context:
    def __enter__(self):
        return self

    def __exit__(self, *_): ...


class Device(Context):
    compute_capability = "90"
    captured = None  # or the works of a capture

    def __init__(self, number=0):
        self.id = number

    @classmethod
    def do(cls, work):
        if cls.captured is None:
            work()
        else:
            cls.captured.append(work)


class Stream(Context):
    ptr = 7

    def __init__(self, non_blocking=False): ...

    def synchronize(self):
        assert Device.captured is None, "a wait within a capture"

    def begin_capture(self):
        assert Device.captured is None
        Device.captured = []

    def end_capture(self):
        works, Device.captured = Device.captured, None
        return SimpleNamespace(launch=lambda stream: [work() for work in works], upload=lambda stream: None)

    def wait_event(self, event):
        assert event.time

    def record(self, event=None):
        event = event or Event()
        event.record(self)
        return event


class Event:
    time = 0.0

    def record(self, stream=None):
        self.time = time.perf_counter()

    def synchronize(self): ...


class CUDAError(RuntimeError): ...


class OutOfMemoryError(MemoryError): ...


class Quick:
    """Stands in for what is timed: runs the work once."""

    def __init__(self, gpu, work, repeats=1, stream=None):
        work()

    def elapsed(self, times=1):
        return 0.01

    def median(self, rounds, times=1):
        return 0.01


def _copy(target, source, size, kind, stream):
    Device.do(lambda: ctypes.memmove(target, source, size))


def fake_cupy():
    def zeros(shape, dtype=float):
        return np.zeros(shape, dtype).view(FakeArray)

    runtime = SimpleNamespace(
        memcpyAsync=_copy, memcpyHostToDevice=1, memcpyDeviceToHost=2, memcpyDeviceToDevice=3,
        CUDARuntimeError=CUDAError, getDeviceProperties=lambda number: {"name": b"a fake"},
        deviceGetAttribute=lambda attribute, number: {16: 132, 97: 232448}[attribute],
        getDeviceCount=lambda: 1,
    )  # fmt: skip
    cuda = SimpleNamespace(
        runtime=runtime, driver=SimpleNamespace(CUDADriverError=CUDAError),
        memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        Device=Device, Stream=Stream, Event=Event, get_current_stream=Stream,
        get_elapsed_time=lambda start, end: 1e3 * (end.time - start.time), alloc_pinned_memory=bytearray,
        UnownedMemory=lambda address, size, owner, device: owner, MemoryPointer=lambda memory, offset: memory,
    )  # fmt: skip
    module = ModuleType("cupy")
    vars(module).update(
        ndarray=FakeArray, cuda=cuda, zeros=zeros, empty=zeros,
        asarray=lambda values: np.array(values).view(FakeArray),
        ascontiguousarray=lambda values: np.ascontiguousarray(values).view(FakeArray),
        get_default_memory_pool=lambda: SimpleNamespace(free_all_blocks=lambda: None),
    )  # fmt: skip
    return module


def install(monkeypatch, emulator):
    """Put the fake in CuPy's place, with one device that can be used."""
    module = fake_cupy()
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setattr(devices, "trouble", lambda: None)
    monkeypatch.setattr(launcher, "gpu", launcher.Gpu)
    monkeypatch.setattr("neocog.cuda.engine.gpu", lambda n, p: launcher.Gpu(n, programmatic=p))
    monkeypatch.setattr(launcher.Gpu, "_build", lambda self, kernel: None)

    def run(launch):
        args = tuple(np.asarray(a) if isinstance(a, FakeArray) else a for a in launch.args)
        Device.do(lambda: emulator.launch(launch._replace(args=args)))

    def load(self, kernel, built):
        def function(grid, block, args, shared_mem=0):
            assert (block, shared_mem) == ((kernel.threads, 1, 1), kernel.shared)
            run(Launch(kernel, grid, args))

        function.ptr = 1
        return function

    monkeypatch.setattr(launcher.Gpu, "_load", load)
    monkeypatch.setattr(launcher, "_launch_programmatic", lambda function, launch, stream: run(launch))
    return module
