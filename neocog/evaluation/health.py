"""What a model's file is and whether it is whole; whether this machine has what neocog needs."""

import os
import platform
import re
import sys
from collections.abc import Iterator
from functools import partial
from importlib import metadata, util
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from neocog.cuda import devices
from neocog.errors import OPENCV_NEEDS, DeviceError, ModelError, NeocogError
from neocog.evaluation.timing import made_page, made_strips, milliseconds
from neocog.network.engine import Engine
from neocog.network.line_engine import LineEngine
from neocog.network.lines import MULTIPLE, ROWS, load_any
from neocog.network.model import load_model
from neocog.network.parallel import cores
from neocog.network.registry import DEFAULT, check_digest, find_model, kind_of, list_files, models_dir
from neocog.network.u0 import made_digits
from neocog.reading.device import open_engine
from neocog.vision.finder import find
from neocog.vision.finder_model import OpenCV, load_finder

_TESTS = {"test": "MNIST", "usps": "USPS", "sklearn": "scikit-learn"}  # the cards' names for sets
_PASSES, _BATCH = 6, 8  # the first pass is not counted
_SAME_SCORE = 0.05  # of the scores of 16-bit maps and of float32
#: The extras of pyproject.toml for users, and what they import.
_EXTRAS = {"documents": ("pypdfium2", "pillow_heif"), "web": ("starlette", "uvicorn"), "train": ("torch",),
           "onnx": ("onnx", "onnxruntime"), "cluster": ("ray",)}  # fmt: skip


def about(name: str | Path) -> dict[str, Any]:
    """Return facts of a model, or of the finder, timed now on the CPU; ModelError if it cannot be loaded."""
    path = find_model(name)
    kind, count, more = kind_of(path), 1, dict[str, Any]()
    whole: Any = load_finder(path) if kind == "finder" else load_any(name)
    work: partial[Any]
    if kind == "finder":
        page = made_page(made_digits(50))
        reads = "where digits and signs stand on a page (timed: {1} x {0})".format(*page.shape)
        work = partial(find, page, OpenCV(whole))
    elif kind == "lines":
        model, strips = whole.digits, list(made_strips(1))
        reads = f"a line of numbers: {' '.join(whole.alphabet)} (timed: {strips[0].shape[1]} columns)"
        work = partial(LineEngine(whole).likelihoods, strips)
    else:
        model, count = whole, _BATCH
        reads = f"one digit of 28 x 28 pixels{', and tells what is none' if model.classes > 10 else ''}"
        work = partial(Engine(model).recognise, made_digits(count), batch=count)
    if kind != "finder":
        more = {"planes": list(model.planes), "preset": model.spec.name, "psi": model.psi,
                "thresholds": [layer.threshold for layer in model.s]}  # fmt: skip
    accuracy = whole.card.get("accuracy", {})
    right = {_TESTS[key]: accuracy[key] for key in _TESTS if key in accuracy}
    ms = float(np.median([milliseconds(work) for _ in range(_PASSES)][1:])) / count
    return {"id": whole.id, "reads": reads, "accuracy": right, "ms": ms, **more, "kind": kind,
            "path": str(path), "bytes": path.stat().st_size, "card": whole.card}  # fmt: skip


def verify(name: str) -> str:
    """Return what a model is; ModelError if it is not as shipped, cannot be loaded, or answers wrongly."""
    path = find_model(name)
    shipped = "as shipped" if check_digest(path) else "not compared: no digest was shipped with it"
    if (kind := kind_of(path)) == "finder":
        finder = OpenCV(load_finder(path))
        try:
            blank = find(np.full((200, 300), 230, np.uint8), finder)
        except ImportError as error:
            raise ModelError(f"finder {path}: cannot run without OpenCV ({error})") from None
        if len(blank):
            raise ModelError(f"finder {path}: finds digits on an empty page")
        if not len(find(made_page(made_digits(15)), finder)):
            raise ModelError(f"finder {path}: finds nothing on a page; train it again")
        return f"{finder.model.id}  {shipped}"
    whole: Any = load_any(name)
    planes = "/".join(map(str, (whole.digits if kind == "lines" else whole).planes))
    if kind == "lines":
        paper = np.zeros((ROWS, MULTIPLE), np.float32)
        if (LineEngine(whole).likelihoods([paper])[0].argmax(axis=1) != len(whole.alphabet)).any():
            raise ModelError(f"model {name}: reads something on empty paper")
    else:
        digits = np.concatenate([np.zeros((1, 28, 28), np.uint8), made_digits(15)])
        answers = Engine(whole).recognise(digits, batch=len(digits))
        if answers.label[0] != -1:
            raise ModelError(f"model {name}: reads {answers.label[0]} in an empty picture")
        if not np.isfinite(answers.score).all() or (answers.label[1:] < 0).all():
            raise ModelError(f"model {name}: finds no digit in drawn digits; train it again")
    return f"{whole.id}  planes {planes}  {shipped}"


class Check(NamedTuple):
    """One point: what was found, and what to do if that is not enough; fail: neocog cannot read."""

    name: str
    level: Literal["ok", "warn", "fail"]
    found: str
    advice: str = ""


def examine() -> Iterator[Check]:
    """Look at every point, one after another; none of them raises."""
    found = f"{platform.python_version()}, {platform.system()} {platform.machine()}"
    yield Check("python", "ok", f"{found}, {cores()} cores")
    config: Any = np.show_config(mode="dicts")
    blas = config.get("Build Dependencies", {}).get("blas", {})
    name = blas.get("name", "unknown")
    slow = name in ("unknown", "none", "lapack_lite")
    advice = "this NumPy has no fast BLAS: pip install -U numpy" if slow else ""
    found = f"{np.__version__}, BLAS {name} {blas.get('version', '')}"
    yield Check("numpy", "warn" if slow else "ok", found, advice)
    wheels = [own.name for own in metadata.distributions()
              if own.name and re.fullmatch(r"opencv-(contrib-)?python(-headless)?", own.name)]  # fmt: skip
    advice = f"two wheels overwrite each other: pip uninstall {' '.join(wheels)}, then install one"
    try:
        import cv2

        found = f"{cv2.__version__} ({', '.join(wheels) or 'no wheel'})"
        opencv = Check("opencv", "ok", found) if len(wheels) < 2 else Check("opencv", "warn", found, advice)
    except ImportError as error:  # a missing libGL shows here
        opencv = Check("opencv", "fail", f"cannot be imported: {error}", OPENCV_NEEDS)
    yield opencv
    missing = {extra for extra, names in _EXTRAS.items() if not all(map(util.find_spec, names))}
    there = ", ".join(extra for extra in _EXTRAS if extra not in missing) or "none"
    words = ", ".join(f"{name} ({', '.join(own)})" for name, own in _EXTRAS.items() if name in missing)
    found = f"{there}; not installed: {words}" if missing else there
    yield Check("extras", "ok", found, "install neocog[NAME] for these" if missing else "")
    entries = list_files()
    if not entries:
        yield Check("models", "fail", f"none in {models_dir()}", "install neocog again")
    for entry in entries:
        try:
            yield Check("model", "ok", verify(entry.stem))
        except ModelError as error:
            yield Check("model", "fail", str(error), opencv.advice or "install neocog again")
    yield from _gpu()
    shown = os.environ.get("WAYLAND_DISPLAY") or os.environ.get("DISPLAY")
    if not shown:
        shown = sys.platform if sys.platform in ("win32", "darwin") else "none; reading files needs none"
    yield Check("display", "ok", shown)


def _gpu() -> Iterator[Check]:
    driver, reason = devices.driver_version(), devices.trouble()
    if driver is None:
        yield Check("gpu", "ok", "no NVIDIA driver: the CPU is used")
        return
    if reason is not None:
        what, _, advice = reason.partition("; ")
        yield Check("gpu", "warn", f"{what}: the CPU is used", advice)
        return
    import cupy

    from neocog.cuda.launcher import gpu

    supported = f"CUDA {driver // 1000}.{driver % 1000 // 10}"
    yield Check("gpu", "ok", f"CuPy {cupy.__version__}, a driver that supports {supported}")
    model, digits = load_model(DEFAULT), made_digits(16)
    for number in range(devices.count()):
        name = f"cuda:{number}"
        try:
            device = gpu(number)
            memory = cupy.cuda.runtime.getDeviceProperties(number)["totalGlobalMem"]
            found = f"{name} {device.name}, compute capability {device.arch / 10:.1f}, "
            found += f"{device.processors} multiprocessors, {memory / 2**30:.0f} GiB"
            yield Check("gpu", "ok", found)
            engine = open_engine(model, device=name)  # compiles what it needs
            off = float(np.abs(engine.recognise(digits).score - Engine(model).recognise(digits).score).max())
            if not off <= _SAME_SCORE:
                raise DeviceError(f"device '{name}': its scores differ from the CPU's by {off:.3f}")
            yield Check("kernels", "ok", f"{model.id} at {engine.precision} on {name} answers as on the CPU")
        except NeocogError as error:
            yield Check("gpu", "warn", str(error), "use --device cpu until it is repaired")
