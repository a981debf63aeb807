"""Arguments of a launch held against the kernel's own parameter list, before anything runs.

A launch through the driver checks nothing: a wrong type, a strided view or an array of another
device reads whatever lies there. The parameter list is taken from the kernel's source.
"""

import re
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from neocog.cuda.kernel import Launch, kernel_folder
from neocog.errors import DeviceError, InputError

#: Element types that a pointer or value of each C type may come as; types not here are not held
#: against anything (vectors, types that a kernel file defines for itself).
_ELEMENTS = {
    "float": ("float32",),
    "double": ("float64",),
    "int": ("int32",),
    "u8": ("uint8",),
    "u16": ("uint16", "float16"),
    "u32": ("uint32", "int32", "float32"),
    "u64": ("uint64",),
}
_MAPS = (("float32",), ("float16",), ("uint16",))  # by MAP
_LIMITS = (2**31 - 1, 65535, 65535)  # blocks of a grid along x, y, z
_MOST_THREADS = 1024


class Parameter(NamedTuple):
    name: str
    pointer: bool
    elements: tuple[str, ...]  # empty where any type may come


@cache
def parameters(file: str, name: str, code: int) -> tuple[Parameter, ...] | None:
    """Return the parameters of a kernel, None where its source does not show them plainly.

    ``code`` is MAP, the type of the maps.
    """
    try:
        text = (kernel_folder() / file).read_text(encoding="utf-8")
    except OSError:
        raise DeviceError(f"kernel file {file}: missing; install neocog again") from None
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    lists = re.findall(
        rf"KERNEL\s*\((?:[^()]|\([^()]*\))*\)\s*(?:\w+\s+)?{re.escape(name)}\s*\(([^()]*)\)", text
    )
    found = [[_parameter(part, code) for part in parts.split(",") if part.strip()] for parts in lists]
    if len({len(one) for one in found}) != 1:  # none, or one for each of several builds
        return None
    out = []
    for same in zip(*found, strict=True):  # what a parameter may be in any of several builds
        known = all(parameter.elements for parameter in same)
        elements = tuple({e: None for one in same for e in one.elements}) if known else ()
        out.append(same[0]._replace(elements=elements))
    return tuple(out)


def _parameter(text: str, code: int) -> Parameter:
    pointer = "*" in text
    words = re.sub(r"\b(?:const|volatile|__restrict__|RESTRICT|unsigned(?=\s+int))\b|\*", " ", text).split()
    kind, name = words[0], words[-1]
    if re.search(r"\bunsigned\s+int\b", text):
        kind = "u32"
    elements = _MAPS[code] if kind == "map_t" else _ELEMENTS.get(kind, ())
    return Parameter(name, pointer, elements)


def check_launch(launch: Launch, *, xp: Any, arch: int, shared: int, device: int = 0) -> None:
    """Raise unless a launch fits its kernel and the device.

    ``xp`` is numpy or cupy, whose arrays the kernel takes; ``shared`` are the most bytes of dynamic
    shared memory of a block there. A DeviceError says that the device cannot run it, an InputError
    that an argument has another type, is not C-contiguous, is empty or lies elsewhere.
    """
    kernel = launch.kernel
    where = f"kernel {kernel.name}"
    if not kernel.runs_on(arch):
        raise DeviceError(
            f"{where}: needs compute capability {kernel.arch / 10:.1f}, the device has "
            f"{arch / 10:.1f}; choose another --plan or --precision"
        )
    if kernel.shared > shared:
        raise DeviceError(
            f"{where}: needs {kernel.shared} bytes of shared memory, the device gives {shared}; "
            "choose another --plan"
        )
    if not 1 <= kernel.threads <= _MOST_THREADS:
        raise DeviceError(f"{where}: {kernel.threads} threads a block, expected 1..{_MOST_THREADS}")
    if any(not 1 <= n <= most for n, most in zip(launch.grid, _LIMITS, strict=True)):
        raise DeviceError(
            f"{where}: a grid of {launch.grid} blocks exceeds the device's limits; use a smaller batch"
        )
    code = next((int(value) for name, value in kernel.defines if name == "MAP"), 0)
    known = parameters(kernel.file, kernel.name, code)
    if known is not None and len(known) != len(launch.args):
        raise InputError(f"{where}: got {len(launch.args)} arguments, expected {len(known)}")
    for i, argument in enumerate(launch.args):
        parameter = known[i] if known is not None else None
        name = parameter.name if parameter is not None else f"argument {i}"
        _check_argument(argument, parameter, f"{where}, {name}", xp, device)


def _check_argument(argument: Any, parameter: Parameter | None, where: str, xp: Any, device: int) -> None:
    if argument is None and (parameter is None or parameter.pointer):
        return
    if isinstance(argument, np.generic):
        if parameter is not None and parameter.pointer:
            raise InputError(f"{where}: got a number, expected an array")
    elif isinstance(argument, xp.ndarray):
        if parameter is not None and not parameter.pointer:
            raise InputError(f"{where}: got an array, expected a NumPy number")
        if not argument.flags.c_contiguous:
            raise InputError(f"{where}: got strides {argument.strides}, expected a C-contiguous array")
        if argument.size == 0:
            raise InputError(f"{where}: got an empty array {argument.shape}")
        if xp is not np and argument.device.id != device:
            raise InputError(f"{where}: lies on device {argument.device.id}, expected {device}")
    else:
        kind = type(argument).__name__
        raise InputError(f"{where}: got a {kind}, expected a {xp.__name__} array or NumPy number")
    if parameter is not None and parameter.elements and str(argument.dtype) not in parameter.elements:
        wanted = " or ".join(parameter.elements)
        raise InputError(f"{where}: got {argument.dtype}, expected {wanted}")
