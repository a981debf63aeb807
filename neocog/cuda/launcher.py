"""The one place that compiles and launches kernels on a GPU."""

import ctypes
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from functools import cache
from typing import Any, cast

import numpy as np

from neocog.cuda.compiler import Built, build
from neocog.cuda.devices import driver_library, first_line
from neocog.cuda.kernel import Kernel, Launch
from neocog.errors import DeviceError
from neocog.network.parallel import cores

_PLAIN_SHARED = 47 * 1024  # bytes that a block may have without being asked for, less its static ones
_OPT_IN_SHARED = 97  # cudaDevAttrMaxSharedMemoryPerBlockOptin
_PROCESSORS = 16  # cudaDevAttrMultiProcessorCount
_PROGRAMMATIC_ARCH = 90
_CARVEOUT = 9  # CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, percent
_ANY_CLUSTER = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
_STREAM_SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


class Gpu:
    """A CUDA device: the `Machine` of CuPy arrays; a DeviceError if it cannot be used.

    ``programmatic``: a kernel may be set up while the one before it still runs (programmatic dependent
    launch); by default from compute capability 9.0.
    """

    def __init__(self, number: int = 0, *, programmatic: bool | None = None) -> None:
        import cupy

        self.xp, self.number, runtime = cupy, number, cupy.cuda.runtime
        try:
            self.name: str = runtime.getDeviceProperties(number)["name"].decode()
            self.arch = int(cupy.cuda.Device(number).compute_capability)
            self.processors = int(runtime.deviceGetAttribute(_PROCESSORS, number))
            self.shared = int(runtime.deviceGetAttribute(_OPT_IN_SHARED, number))
        except runtime.CUDARuntimeError as error:
            raise DeviceError(f"device 'cuda:{number}': {first_line(error)}") from None
        self.programmatic = self.arch >= _PROGRAMMATIC_ARCH and programmatic is not False
        self._functions: dict[Kernel, Any] = {}
        self._lock = threading.Lock()

    def current(self) -> AbstractContextManager[Any]:
        return cast("AbstractContextManager[Any]", self.xp.cuda.Device(self.number))

    def launch(self, launch: Launch, *, follows: bool = False) -> None:
        """Enqueue one launch on the current stream; a DeviceError if it cannot be compiled or launched.

        ``follows``: the operation before it on the stream is a kernel of the same pass; only then may it be
        set up before that one ends. Arguments are not checked: a wrong one reads whatever lies there.
        """
        kernel, function = launch.kernel, self.function(launch.kernel)
        if follows and self.programmatic:
            _launch_programmatic(function.ptr, launch, self.xp.cuda.get_current_stream().ptr)
            return
        try:
            function(launch.grid, (kernel.threads, 1, 1), launch.args, shared_mem=kernel.shared)
        except self.xp.cuda.driver.CUDADriverError as error:
            raise DeviceError(f"kernel {kernel.name}: launch failed ({first_line(error)})") from None

    def prepare(self, kernels: Iterable[Kernel]) -> None:
        """Compile and load kernels, several at a time."""
        with self._lock:
            missing = [k for k in dict.fromkeys(kernels) if k not in self._functions]
            if missing:
                with ThreadPoolExecutor(min(len(missing), cores())) as pool:
                    for kernel, built in zip(missing, pool.map(self._build, missing), strict=True):
                        self._functions[kernel] = self._load(kernel, built)

    def function(self, kernel: Kernel) -> Any:
        """Return a kernel's function, compiled and loaded once per device."""
        if kernel not in self._functions:
            self.prepare([kernel])
        return self._functions[kernel]

    def _build(self, kernel: Kernel) -> Built:
        if not kernel.runs_on(self.arch):
            needs = f"needs compute capability {kernel.arch / 10:.1f}, the device has {self.arch / 10:.1f}"
            raise DeviceError(f"kernel {kernel.name}: {needs}; choose another --plan or --precision")
        return build(kernel, self.arch, defines=(("PROGRAMMATIC", 1),) if self.programmatic else ())

    def _load(self, kernel: Kernel, built: Built) -> Any:
        cuda = self.xp.cuda
        try:
            with self.current():
                module = cuda.function.Module()
                module.load(built.cubin)
                function = module.get_function(kernel.name)
                if kernel.shared > _PLAIN_SHARED:
                    most = cuda.driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                    cuda.driver.funcSetAttribute(function.ptr, most, kernel.shared)
                if ("CLUSTER", 1) in kernel.defines:
                    cuda.driver.funcSetAttribute(function.ptr, _ANY_CLUSTER, 1)
                if kernel.carveout:
                    with suppress(cuda.driver.CUDADriverError):  # a hint
                        cuda.driver.funcSetAttribute(function.ptr, _CARVEOUT, 100)
        except cuda.driver.CUDADriverError as error:
            why = f"the driver rejects it ({first_line(error)}); update the driver or use --device cpu"
            raise DeviceError(f"kernel {kernel.name}: {why}") from None
        return function


class Failing:
    """Turns errors of CUDA and CuPy within the block into a DeviceError of one line (in 0.4 us)."""

    __slots__ = ("_cuda", "_device")

    def __init__(self, gpu: Gpu, device: str) -> None:
        self._cuda, self._device = gpu.xp.cuda, device

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        cuda = self._cuda
        failures = cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError, cuda.memory.OutOfMemoryError
        if isinstance(error, failures):
            raise DeviceError(f"device '{self._device}' failed: {first_line(error)}") from None


@cache
def gpu(number: int = 0, programmatic: bool | None = None) -> Gpu:
    """Return the process's one :class:`Gpu` of a device, so that kernels are loaded once."""
    return Gpu(number, programmatic=programmatic)


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: its value is a union of 64 bytes whose first int is the switch."""

    _fields_ = (("id", ctypes.c_uint), ("pad", ctypes.c_char * 4), ("value", ctypes.c_uint64 * 8))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(_Attribute)), ("count", ctypes.c_uint),
    )  # fmt: skip


@cache
def _driver() -> Any:
    library, pointer = driver_library(), ctypes.c_void_p
    library.cuLaunchKernelEx.argtypes = ctypes.POINTER(_Config), pointer, ctypes.POINTER(pointer), pointer
    library.cuLaunchKernelEx.restype = ctypes.c_int
    return library


def _launch_programmatic(function: int, launch: Launch, stream: int) -> None:
    """Launch through the driver, which CuPy's own launch cannot ask for."""
    attribute = _Attribute(_STREAM_SERIALIZATION)
    attribute.value[0] = 1
    kernel = launch.kernel
    config = _Config(launch.grid, (kernel.threads, 1, 1), kernel.shared, stream, ctypes.pointer(attribute), 1)
    values = [_value(argument) for argument in launch.args]
    addresses = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    code = _driver().cuLaunchKernelEx(ctypes.byref(config), function, addresses, None)
    if code != 0:
        why = f"launch failed with CUDA error {code}; update the driver or use --device cpu"
        raise DeviceError(f"kernel {kernel.name}: {why}")


def _value(argument: Any) -> Any:
    """Return an argument's bytes: the address of an array (0 for none), or a number."""
    if isinstance(argument, np.generic):
        return ctypes.create_string_buffer(argument.tobytes(), argument.nbytes)
    return ctypes.c_void_p(0 if argument is None else argument.data.ptr)
