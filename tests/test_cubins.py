"""Every kernel builds for every architecture with no GPU, within its registers; builds are kept."""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import product
from unittest.mock import Mock

import pytest

from neocog.cuda import compiler
from neocog.cuda.compiler import build
from neocog.cuda.kernel import PRECISIONS, Kernel
from neocog.cuda.plan import STAGES, VERSIONS, Shelf, plan_of
from neocog.errors import DeviceError, UsageError
from neocog.network.model import load_model
from tests.cuda_support import ARCHITECTURES, SHARED, SHIPPED, machine

pytestmark = pytest.mark.usefixtures("nvrtc")

#: What is built in every run: all versions for three architectures, few digits; what the default plan takes
#: for each architecture, each precision, few and many digits.
CASES = [
    (75, "fp32", 8, False), (80, "fp32", 8, False), (90, "fp16", 8, False), (75, "fp16", 64, True),
    (86, "fp16", 64, True), (89, "fp16", 8, True), (90, "fp16", 256, True), (100, "fp32", 256, True),
    (120, "fp32", 64, True),
]  # fmt: skip


def kernels_of(model, precisions, batches, arch, *, usual):
    """Return each kernel that a step of a shipped model uses, or only what the default plan takes."""
    found = dict[Kernel, None]()
    for precision, stage in product(precisions, STAGES):
        shelf = Shelf(machine(arch), load_model(model), precision)
        steps = shelf.choose(plan_of("default", precision), 8, stages=[stage]) if usual else []
        for version in () if usual else VERSIONS[stage]:
            with suppress(UsageError, DeviceError):  # a version that does not do this layer or precision
                steps.append(shelf.step(stage, version))
        for step, batch in product(steps, batches):
            with suppress(UsageError, DeviceError):
                found |= dict.fromkeys(step.kernels(batch))
    return [kernel for kernel in found if kernel.runs_on(arch) and kernel.shared <= SHARED[arch] * 1024]


def fault(kernel, arch):
    """What is wrong with the build of a kernel, None if nothing is."""
    try:
        found = figures(kernel, build(kernel, arch))
    except DeviceError as error:
        return f"{kernel}: {error}"
    whole = not (found["spills"] or found["stack"]) and 0 < found["registers"] <= kernel.registers
    return None if whole else f"{kernel}: {found}"


def figures(kernel, built):
    """What ptxas printed for a kernel: registers of a thread, the others in bytes."""
    sections = re.split(r"Compiling entry function '(\w+)'", built.log)
    text = dict(zip(sections[1::2], sections[2::2], strict=True))[kernel.name]
    patterns = {"registers": r"Used (\d+) reg", "spills": r"(\d+) bytes spill",
                "stack": r"(\d+) bytes stack", "shared": r"(\d+) bytes smem"}  # fmt: skip
    return {name: sum(map(int, re.findall(pattern, text))) for name, pattern in patterns.items()}


@pytest.mark.parametrize(("arch", "model", "precisions", "batches", "usual"), [
    *((arch, "neocog-small", (precision,), (batch,), usual) for arch, precision, batch, usual in CASES),
    *(pytest.param(arch, model, PRECISIONS, (1, 8, 64, 256), False, marks=pytest.mark.slow)
      for model in SHIPPED for arch in ARCHITECTURES),
])  # fmt: skip
def test_kernels_build_within_their_registers(arch, model, precisions, batches, usual):
    kernels = kernels_of(model, precisions, batches, arch, usual=usual)
    assert kernels
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        faults = [text for text in pool.map(lambda kernel: fault(kernel, arch), kernels) if text]
    assert not faults, f"{len(faults)} of {len(kernels)} for sm_{arch}:\n" + "\n".join(faults)


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """A small kernel, and a cache with nothing in it."""
    monkeypatch.setenv("NEOCOG_CACHE", str(tmp_path / "builds"))
    source = tmp_path / "probe.cu"
    source.write_text(
        '#include "platform.cuh"\n#include "more.cuh"\n'
        "KERNEL(32) probe(float* x) { __shared__ float t[SIZE]; t[threadIdx.x] = x[0];\n"
        "__syncthreads(); x[threadIdx.x] = t[31 - threadIdx.x] * FACTOR; }\n"
        "KERNEL(32) other(float* x) { x[0] = 0.0f; }\n"
    )
    (tmp_path / "more.cuh").write_text("#define FACTOR 2\n")
    return Kernel(str(source), "probe", (("SIZE", 32),), 32)


def builds(tmp_path):
    return sorted((tmp_path / "builds").iterdir())


def test_a_build_is_made_once_and_again_where_it_is_damaged(kernel, tmp_path, monkeypatch):
    with ThreadPoolExecutor(4) as pool:  # several at once
        several = {built.cubin for built in pool.map(lambda _: build(kernel, 80), range(8))}
    first = build(kernel, 80)
    assert several == {first.cubin}
    assert first.cubin[:4] == b"\x7fELF"
    found = figures(kernel, first)
    assert 0 < found.pop("registers") < 64
    assert found == {"spills": 0, "stack": 0, "shared": 128}
    assert "sm_80" in first.log
    (path,) = builds(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(compiler, "_compile", None)
        assert build(kernel, 80) == first
    data = path.read_bytes()
    for damaged in (data[: len(data) // 2], b"", data[:-9] + data[-8:], data[:90] + b"?" + data[91:]):
        path.write_bytes(damaged)
        assert build(kernel, 80).cubin == first.cubin
        assert compiler.load(path.name) is not None
    for change in ({"arch": 90}, {"arch": "sm_90a"}, {"arch": 80, "defines": (("MORE", 1),)}):
        before = len(builds(tmp_path))
        build(kernel, **change)
        assert len(builds(tmp_path)) == before + 1
    assert b".target sm_" in build(kernel, 999).cubin  # PTX for a GPU newer than NVRTC
    (tmp_path / "more.cuh").write_text("#define FACTOR 3\n")
    assert build(kernel, 80).cubin != first.cubin
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NEOCOG_CACHE", str(tmp_path / "file" / "builds"))  # takes no files: no error
    assert build(kernel, 80).cubin


def test_where_builds_lie(monkeypatch, tmp_path):
    monkeypatch.delenv("NEOCOG_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert compiler.cache_folder() == tmp_path / "neocog" / "cubins"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert compiler.cache_folder() == tmp_path / ".cache" / "neocog" / "cubins"
    monkeypatch.setattr(compiler.Path, "home", Mock(side_effect=RuntimeError))  # a folder of the process
    assert compiler.load("x") is None
    compiler.store("x", b"y")
    assert compiler.load("x") == b"y"


@pytest.mark.parametrize(("kernel_change", "arch", "message"), [
    ({"name": "none"}, 80, "is not in"),
    ({"file": "none.cu"}, 80, "none.cu"),
    ({"defines": ()}, 80, 'probe.cu.*error.*"SIZE"'),
    ({}, 50, "compute capability 5.0"),
    ({"features": "a", "arch": 90}, 100, "9.0 alone"),
])  # fmt: skip
def test_errors_are_one_line(kernel, kernel_change, arch, message):
    with pytest.raises(DeviceError, match=message) as caught:
        build(replace(kernel, **kernel_change), arch)
    assert "\n" not in str(caught.value)


def test_headers_that_lie_about_are_not_taken(tmp_path, monkeypatch):
    (tmp_path / "platform.cuh").write_text("#error not this one")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEOCOG_CACHE", str(tmp_path / "cache"))
    kernels = kernels_of("neocog-small", ("fp16",), (8,), 90, usual=True)
    assert fault(kernels[0], 90) is None
