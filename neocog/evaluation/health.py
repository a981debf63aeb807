"""Whether this machine has what neocog needs, each point with what to do about it."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import numpy as np

from neocog.errors import DeviceError, ModelError, NeocogError
from neocog.network.parallel import cores

_SAME_SCORE = 0.05  # of the scores of 16-bit maps and of float32

Level = Literal["ok", "warn", "fail"]
"""``fail``: neocog cannot read without it."""


@dataclass(frozen=True, slots=True)
class Check:
    """One point: what was found, and what to do if that is not enough."""

    name: str
    level: Level
    found: str
    advice: str = ""

    def to_dict(self) -> dict[str, str]:
        """As ``neocog doctor --json`` prints it."""
        return asdict(self)


def examine() -> Iterator[Check]:
    """Look at every point, one after another; none of them raises."""
    checks: tuple[Callable[[], Iterator[Check]], ...] = (
        _python, _numpy, _opencv, _models, _gpu, _display, _compiler,
    )  # fmt: skip
    for check in checks:
        yield from check()


def verify_model(name: str) -> str:
    """Hold a model's file against its digest, load it, and try it on silence and on ink.

    Returns its id, its plane counts, and whether the file is the one that was shipped. ModelError
    if it cannot be loaded, is not as it was shipped, or answers wrongly.
    """
    from neocog.network.engine import Engine
    from neocog.network.made import made_digits
    from neocog.network.model import load_model
    from neocog.network.registry import FINDER, check_digest, find_model

    shipped = check_digest(find_model(name))
    about = "as shipped" if shipped else "not compared: no digest was shipped with it"
    if Path(name).stem == FINDER:
        return f"{_verify_finder(find_model(name))}  {about}"
    model = load_model(name)
    digits = np.concatenate([np.zeros((1, 28, 28), np.uint8), made_digits(15)])
    answers = Engine(model).recognise(digits, batch=len(digits))
    if answers.label[0] != -1:
        raise ModelError(f"model {name}: answers {answers.label[0]} to empty paper")
    if not np.isfinite(answers.score).all() or (answers.label[1:] < 0).all():
        raise ModelError(f"model {name}: answers nothing to ink; train it again")
    return f"{model.id}  planes {'/'.join(map(str, model.planes))}  {about}"


def _verify_finder(path: Path) -> str:
    """Load a finder, and try it on empty paper and on a page of made digits."""
    from neocog.evaluation.timing import made_page
    from neocog.network.made import made_digits
    from neocog.vision.finder import find
    from neocog.vision.finder_model import LazyFinder, load_finder

    finder = LazyFinder(load_finder(path))
    try:
        finder.opened()
    except ImportError as error:
        raise ModelError(f"finder {path}: cannot run without OpenCV ({error})") from None
    if len(find(np.full((200, 300), 230, np.uint8), finder)):
        raise ModelError(f"finder {path}: finds digits on empty paper")
    if not len(find(made_page(made_digits(15)), finder)):
        raise ModelError(f"finder {path}: finds nothing on a page; train it again")
    return finder.model.id


def blas_info() -> dict[str, Any]:
    """Name and version of NumPy's BLAS."""
    config: Any = np.show_config(mode="dicts")
    blas = config.get("Build Dependencies", {}).get("blas", {})
    return {"name": blas.get("name", "unknown"), "version": blas.get("version", "")}


def blas_threads() -> int:
    """Threads that BLAS may take, by the variables it obeys, else the cores of this process."""
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        value = os.environ.get(name, "")
        if value.isdigit() and int(value):
            return int(value)
    return cores()


def _python() -> Iterator[Check]:
    found = f"{platform.python_version()}, {platform.system()} {platform.machine()}"
    yield Check("python", "ok", f"{found}, {cores()} cores")


def _numpy() -> Iterator[Check]:
    blas = blas_info()
    threads = blas_threads()
    found = f"{np.__version__}, BLAS {blas['name']} {blas['version']}, {threads} threads"
    if blas["name"] in ("unknown", "none", "lapack_lite"):
        yield Check("numpy", "warn", found, "this NumPy has no fast BLAS: pip install -U numpy")
    elif threads > cores():
        yield Check(
            "numpy", "warn", found, f"more threads than cores: set OMP_NUM_THREADS={cores()}"
        )
    else:
        yield Check("numpy", "ok", found)


def _opencv() -> Iterator[Check]:
    wheels = [
        f"{name} {metadata.version(name)}"
        for name in (
            "opencv-python",
            "opencv-python-headless",
            "opencv-contrib-python",
            "opencv-contrib-python-headless",
        )
        if _installed(name)
    ]
    try:
        import cv2
    except ImportError as error:  # a missing libGL shows here
        advice = "on a bare server: apt-get install libgl1 libglib2.0-0 libsm6"
        yield Check("opencv", "fail", f"cannot be imported: {error}", advice)
        return
    found = f"{cv2.__version__} ({', '.join(wheels) or 'no wheel'})"
    if len(wheels) > 1:
        others = " ".join(wheel.partition(" ")[0] for wheel in wheels)
        advice = f"two wheels overwrite each other: pip uninstall {others}, then install one"
        yield Check("opencv", "warn", found, advice)
        return
    yield Check("opencv", "ok", found)


def _models() -> Iterator[Check]:
    from neocog.network.registry import list_files, models_dir

    entries = list_files()
    if not entries:
        yield Check("models", "fail", f"none in {models_dir()}", "install neocog again")
    for entry in entries:
        try:
            yield Check("model", "ok", verify_model(entry.name))
        except ModelError as error:
            yield Check("model", "fail", str(error), "install neocog again")


def _gpu() -> Iterator[Check]:
    from neocog.cuda import devices

    reason = devices.trouble()
    if reason is not None:
        if devices.driver_version() is None:
            yield Check("gpu", "ok", "no NVIDIA driver: the CPU is used")
        else:
            what, _, advice = reason.partition("; ")
            yield Check("gpu", "warn", f"{what}: the CPU is used", advice)
        return
    import cupy

    from neocog.cuda.launcher import gpu

    driver = devices.driver_version() or 0
    spoken = f"{driver // 1000}.{driver % 1000 // 10}"
    yield Check("gpu", "ok", f"CuPy {cupy.__version__}, a driver that supports CUDA {spoken}")
    for number in range(devices.count()):
        try:
            device = gpu(number)
            memory = cupy.cuda.runtime.getDeviceProperties(number)["totalGlobalMem"]
            found = (
                f"cuda:{number} {device.name}, compute capability {device.arch / 10:.1f}, "
                f"{device.processors} multiprocessors, {memory / 2**30:.0f} GiB"
            )
            yield Check("gpu", "ok", found)
            yield Check("kernels", "ok", verify_kernels(f"cuda:{number}"))
        except NeocogError as error:
            yield Check("gpu", "warn", str(error), "use --device cpu until it is repaired")


def verify_kernels(device: str) -> str:
    """Let a GPU answer some digits, compile what it needs, and hold it against the CPU.

    Returns what was tried. DeviceError if it cannot answer, or answers otherwise.
    """
    from neocog.batch.device import open_engine
    from neocog.network.engine import Engine
    from neocog.network.made import made_digits
    from neocog.network.model import load_model
    from neocog.network.registry import DEFAULT

    model, digits = load_model(DEFAULT), made_digits(16)
    engine = open_engine(model, device=device)
    want, got = Engine(model).recognise(digits), engine.recognise(digits)
    off = float(np.abs(got.score - want.score).max())
    if not off <= _SAME_SCORE:
        raise DeviceError(f"device '{device}': its scores are {off:.3f} off those of the CPU")
    return f"{model.id} at {engine.precision} on {device} answers as on the CPU"


def _display() -> Iterator[Check]:
    shown = os.environ.get("WAYLAND_DISPLAY") or os.environ.get("DISPLAY")
    if shown or sys.platform in ("win32", "darwin"):
        yield Check("display", "ok", shown or sys.platform)
    else:
        yield Check("display", "ok", "none; reading files needs none")


def _compiler() -> Iterator[Check]:
    path = shutil.which("g++")
    if path is None:
        advice = "only some tests need it: apt install g++"
        yield Check("g++", "warn", "not found: tests that compile are skipped", advice)
        return
    try:
        run = subprocess.run(
            [path, "-dumpfullversion"], capture_output=True, text=True, timeout=10, check=False
        )
        version = run.stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        version = "(does not answer)"
    yield Check("g++", "ok", f"{version} {path}")


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
