"""cuDNN's Winograd convolution by name, which PyTorch cannot be asked for, through ctypes."""

import ctypes
import importlib.util
from ctypes import byref, c_float, c_int, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from experiments.convpool.systems import PADDING, POOL
from neocog.errors import DeviceError

# numbers of cudnn_ops.h and cudnn_cnn.h
_NCHW = 0
_TYPES = {torch.float32: 0, torch.float16: 2}
_FLOAT = 0
_CROSS_CORRELATION = 1
_TENSOR_MATH, _FMA_MATH = 1, 3
_ALGORITHMS = {"WINOGRAD": 6, "WINOGRAD_NONFUSED": 7}
_MOST_WORKSPACE = 8 << 30


class CudnnWinograd:
    """The naive form by cuDNN's algorithm WINOGRAD or WINOGRAD_NONFUSED."""

    def __init__(self, device: Any, operands: Any, how: str) -> None:
        if device.name != "cuda":
            raise DeviceError("cuDNN runs on a GPU alone")
        self._library, self._how, self._algorithm = _cudnn(), how, _ALGORITHMS[how]
        self._x, self._w = operands.x.contiguous(), operands.w.contiguous()
        self._y = torch.empty_like(self._x)
        self._handle = _handle()
        kind = _TYPES[operands.dtype]
        self._xs, self._ys = (self._tensor(t, kind) for t in (self._x, self._y))
        self._ws, self._convolution = c_void_p(), c_void_p()
        self._call("cudnnCreateFilterDescriptor", byref(self._ws))
        self._call("cudnnSetFilter4dDescriptor", self._ws, kind, _NCHW, *map(c_int, self._w.shape))
        self._call("cudnnCreateConvolutionDescriptor", byref(self._convolution))
        steps = (PADDING, PADDING, 1, 1, 1, 1, _CROSS_CORRELATION, _FLOAT)
        self._call("cudnnSetConvolution2dDescriptor", self._convolution, *map(c_int, steps))
        math = _FMA_MATH if operands.case.precision == "fp32" else _TENSOR_MATH
        self._call("cudnnSetConvolutionMathType", self._convolution, c_int(math))
        size = c_size_t()
        self._call(
            "cudnnGetConvolutionForwardWorkspaceSize",
            *(self._handle, self._xs, self._ws, self._convolution, self._ys),
            *(c_int(self._algorithm), byref(size)),
        )
        if size.value > _MOST_WORKSPACE:
            raise DeviceError(f"{self._how} wants {size.value >> 30} GiB of workspace")
        self._workspace = torch.empty(max(size.value, 1), dtype=torch.uint8, device=device.name)

    def run(self) -> Any:
        stream = torch.cuda.current_stream().cuda_stream
        self._call("cudnnSetStream", self._handle, c_void_p(stream))
        self._call(
            "cudnnConvolutionForward",
            *(self._handle, byref(c_float(1.0)), self._xs, c_void_p(self._x.data_ptr())),
            *(self._ws, c_void_p(self._w.data_ptr()), self._convolution, c_int(self._algorithm)),
            *(c_void_p(self._workspace.data_ptr()), c_size_t(self._workspace.numel())),
            *(byref(c_float(0.0)), self._ys, c_void_p(self._y.data_ptr())),
        )
        return functional.avg_pool2d(self._y, POOL)

    def _tensor(self, tensor: Any, kind: int) -> c_void_p:
        descriptor = c_void_p()
        self._call("cudnnCreateTensorDescriptor", byref(descriptor))
        sizes = map(c_int, (_NCHW, kind, *tensor.shape))
        self._call("cudnnSetTensor4dDescriptor", descriptor, *sizes)
        return descriptor

    def _call(self, name: str, *args: Any) -> None:
        code = getattr(self._library, name)(*args)
        if code != 0:
            self._library.cudnnGetErrorString.restype = ctypes.c_char_p
            told = self._library.cudnnGetErrorString(code)
            raise DeviceError(f"cuDNN does not offer {self._how} here: {name}: {told.decode()}")


@cache
def _handle() -> c_void_p:
    """Return the process's handle; it is never given back, which could break off a capture."""
    handle = c_void_p()
    if _cudnn().cudnnCreate(byref(handle)) != 0:
        raise DeviceError("cuDNN gives no handle")
    return handle


@cache
def _cudnn() -> Any:
    """Return cuDNN, the library that PyTorch has loaded if it can be found."""
    names = ["libcudnn.so.9", "libcudnn.so.8"]
    found = importlib.util.find_spec("nvidia.cudnn") if importlib.util.find_spec("nvidia") else None
    for folder in (found.submodule_search_locations or ()) if found else ():
        names += [str(path) for path in sorted(Path(folder).glob("lib/libcudnn.so.*"))]
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise DeviceError("cuDNN is not found: install PyTorch with CUDA")
