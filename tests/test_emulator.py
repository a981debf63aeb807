"""The emulator: what CUDA's words mean there, and that it sees what a GPU would not forgive."""

import numpy as np
import pytest

from neocog.cuda.kernel import Kernel, Launch
from neocog.errors import DeviceError, InputError
from tests import emulator as emulator_module
from tests.emulator import Emulator

F32 = np.float32

#: Each block reverses its part of x by way of shared memory.
REVERSE = """
    DYNAMIC_SHARED(raw);
    float* tile = (float*)raw;
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = x[at];
    {barrier}
    y[at] = tile[blockDim.x - 1 - threadIdx.x];
"""


@pytest.fixture
def run(tmp_path, emulator):
    """Return a function that builds the body of a kernel and launches it on the CPU.

    The kernel ``probe`` has the parameters ``parameters``; its body begins in line 4.
    """

    def launch(parameters, body, *args, threads=32, blocks=1, shared=0, machine=emulator):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        source = folder / "probe.cu"
        source.write_text(f'#include "platform.cuh"\nKERNEL({threads}) probe({parameters})\n{{\n{body}\n}}\n')
        kernel = Kernel(str(source), "probe", (), threads, shared)
        machine.launch(Launch(kernel, (blocks, 1, 1), args))

    return launch


@pytest.mark.parametrize("order", ["forward", "reversed", 1])
@pytest.mark.parametrize(("barrier", "threads"), [("__syncthreads();", 128), ("__syncwarp();", 32)])
def test_a_removed_barrier_gives_a_wrong_result(run, barrier, threads, order):
    x, machine, how = np.arange(1, 1025, dtype=F32), Emulator(order=order), "const float* x, float* y"
    for words, right in ((barrier, True), ("", False)):
        y, size = np.zeros_like(x), {"threads": threads, "blocks": len(x) // threads, "shared": 4 * threads}
        run(how, REVERSE.format(barrier=words), x, y, **size, machine=machine)
        assert np.array_equal(y.reshape(-1, threads)[:, ::-1].ravel(), x) == right


BLOCKS = np.arange(4)[:, None]
LANES = np.arange(64)  # of two warps
LOW = LANES % 32
WORDS = {  # what each thread x of four blocks gets
    "1000 * blockIdx.x + x + gridDim.x": 1000 * BLOCKS + LANES + 4,
    "__ballot_sync(0xffffffffu, x % 4 == 1)": 0x22222222,
    "__shfl_sync(0xffffffffu, x, 5)": LANES - LOW + 5,
    "__shfl_sync(0xffffffffu, 1.5f * x, 9, 8) * 2": 3 * (LANES // 8 * 8 + 1),
    "__shfl_xor_sync(0xffffffffu, x, 6)": LANES ^ 6,
    "x % 32 < 16 ? __shfl_xor_sync(0xffffu, x, 1) : __shfl_xor_sync(0xffff0000u, x, 2)":
        np.where(LOW < 16, LANES ^ 1, LANES ^ 2),
}  # fmt: skip


def test_words_of_cuda_and_atomics_across_blocks(run):
    seen = np.zeros((len(WORDS), 4, 64), np.int32)
    calls = "".join(f"y[{256 * i} + 64 * blockIdx.x + x] = {w};" for i, w in enumerate(WORDS))
    run("int* y", f"int x = threadIdx.x; {calls}", seen, threads=64, blocks=4)
    for got, (word, want) in zip(seen, WORDS.items(), strict=True):
        np.testing.assert_array_equal(got, np.broadcast_to(want, (4, 64)), err_msg=word)
    sums, counts, body = np.zeros(1, F32), np.zeros(1, np.int32), "atomicAdd(x, 0.5f); atomicAdd(n, 1);"
    run("float* x, int* n", body, sums, counts, threads=64, blocks=50)
    assert (sums[0], counts[0]) == (1600, 3200)


MMA = """
    int g = threadIdx.x / 4, t = threadIdx.x % 4;
    u32 p[4], q[2];
    for (int r = 0; r < 4; r++) p[r] = a[(g + r % 2 * 8) * 8 + t + r / 2 * 4];
    for (int r = 0; r < 2; r++) q[r] = b[g * 8 + t + r * 4];
    float sum[4];
    for (int r = 0; r < 4; r++) sum[r] = d[(g + r / 2 * 8) * 8 + 2 * t + r % 2];
    CALL(sum, p, q[0], q[1]);
    for (int r = 0; r < 4; r++) d[(g + r / 2 * 8) * 8 + 2 * t + r % 2] = sum[r];
"""  # words of a row by row (16, row), of b column by column (8, row)


@pytest.mark.parametrize("call", ["mma_half", "mma_tf32"])
def test_matrix_products_of_a_warp(run, call):
    random, depth = np.random.default_rng(0), 8 if call == "mma_tf32" else 16
    a, b, d = (random.normal(size=shape).astype(F32) for shape in ((16, depth), (8, depth), (16, 8)))
    if call == "mma_half":
        words = [x.astype(np.float16).view(np.uint32) for x in (a, b)]
        a, b = (x.view(np.float16).astype(np.float64) for x in words)
    else:  # the hardware reads the upper 19 bits
        words = [x.view(np.uint32) for x in (a, b)]
        a, b = ((x & 0xFFFFE000).view(F32).astype(np.float64) for x in words)
    wanted = d + a @ b.T
    run("const u32* a, const u32* b, float* d", MMA.replace("CALL", call), *words, d)
    np.testing.assert_allclose(d, wanted, rtol=1e-5, atol=1e-5)


COPIES = """
    DYNAMIC_SHARED(raw);
    for (int part = 0; part < 2; part++) {{
        copy_async_16(raw + (part * 32 + threadIdx.x) * 16, from + (part * 32 + threadIdx.x) * 4);
        copy_async_commit();
    }}
    {wait}
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += 32) to[i] = ((float*)raw)[i];
"""


def test_asynchronous_copies_arrive_at_the_wait(run):
    source = np.arange(256, dtype=F32)
    for wait, arrived in (("", 0), ("copy_async_wait<1>();", 128), ("copy_async_wait<0>();", 256)):
        target = np.zeros(256, F32)
        run("const float* from, float* to", COPIES.format(wait=wait), source, target, shared=1024)
        np.testing.assert_array_equal(target[:arrived], source[:arrived])
        assert np.isnan(target[arrived:]).all()


SHARED = "DYNAMIC_SHARED(raw); "
REFUSED = [
    ("if (threadIdx.x == 9) return;\ny[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);",
     ("kernel probe, block (0, 0, 0)", "__shfl_xor_sync", "probe.cu:5", "thread 9", "left"), {}),
    ("if (threadIdx.x < 16) __syncwarp();\nelse __syncthreads();",
     ("waits at __syncwarp", "thread 16", "__syncthreads", "probe.cu:5"), {}),
    ("if (threadIdx.x != 40) __syncthreads();", ("thread 40", "left"), {"threads": 64}),
    ("if (threadIdx.x < 32) __syncthreads();\nelse __syncthreads();", ("other threads",), {"threads": 64}),
    ("__syncwarp(0x0000fff0u);", ("lacks the calling lane",), {}),
    ("__syncwarp();", ("lane 20", "does not have"), {"threads": 20}),
    (SHARED + "((float*)raw)[threadIdx.x + 1] = 1.0f;", ("outside its 128 bytes",), {"shared": 128}),
    (SHARED + "((float*)raw)[(int)threadIdx.x - 1] = 1.0f;", ("outside its 128 bytes",), {"shared": 128}),
    ("y[64] = 1.0f;", ("argument 0", "outside the array"), {}),
    ("((float*)y)[-1] = 1.0f;", ("argument 0", "outside the array"), {}),
    (SHARED + "copy_async_16(raw + 8 * threadIdx.x, y);",
     ("thread 1", "target of copy_async_16", "16 bytes"), {"shared": 1024}),
    (SHARED + "copy_async_16(raw, y + threadIdx.x);",
     ("thread 1", "source of copy_async_16"), {"shared": 1024}),
    ("float4 v = *(float4*)(y + threadIdx.x);\ny[0] = v.x + v.w;",
     ("thread 1", "probe.cu:4", "not aligned"), {}),
    ("__shared__ float tile[16];\ntile[threadIdx.x] = y[threadIdx.x];\n"
     "__syncthreads();\ny[threadIdx.x] = tile[0];",
     ("thread 16", "probe.cu:5", "index 16"), {}),
]  # fmt: skip


@pytest.mark.parametrize(("body", "words", "options"), REFUSED)
def test_what_a_gpu_would_not_forgive_ends_the_launch(run, body, words, options):
    with pytest.raises(DeviceError) as caught:
        run("float* y", body, np.zeros(64, F32), **options)
    message = str(caught.value)
    assert all(word in message for word in words), message


def test_an_array_that_is_read_stays_and_shared_memory_starts_as_nan(run):
    x, y = np.zeros(4, F32), np.zeros(64, F32)
    with pytest.raises(DeviceError, match="only read"):
        run("const float* x", "*(float*)x = 1.0f;", x)
    assert not x.any()
    body = "DYNAMIC_SHARED(raw); y[threadIdx.x] = ((float*)raw)[threadIdx.x];"
    run("float* y", body, y, shared=256, threads=64)
    assert np.isnan(y).all()


def test_halves_and_tf32_are_rounded_as_on_a_gpu(run):
    halves = np.arange(65536, dtype=np.uint16).view(np.float16).astype(F32)
    middles = ((halves[1:0x7C00].astype(np.float64) + halves[: 0x7C00 - 1]) / 2).astype(F32)
    near = [np.nextafter(middles, F32(side)) for side in (0, np.inf)]
    large = np.array([65519.9, 65520, 1e6, np.inf, 3e-8, 2.9802322e-8, 1e-30, 0], F32)
    x = np.concatenate([halves, middles, *near, large])
    t, pairs, back = (np.zeros(x.size, kind) for kind in (np.uint32, np.uint32, F32))
    body = """int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    t[i] = tf32_of(x[i]); pairs[i] = half2_of(x[i], -x[i]); back[i] = float_of_half(half_of(x[i]));"""
    parameters, blocks = "const float* x, u32* t, u32* pairs, float* back, int n", -(-x.size // 256)
    run(parameters, body, x, t, pairs, back, np.int32(x.size), threads=256, blocks=blocks)
    numbers, finite = ~np.isnan(x), np.isfinite(x)
    with np.errstate(over="ignore"):
        wanted = np.stack([x, -x], axis=1).astype(np.float16)
    np.testing.assert_array_equal(back, wanted[:, 0].astype(F32))
    np.testing.assert_array_equal(pairs[numbers], wanted.view(np.uint32)[numbers, 0])
    assert (pairs[~numbers] == 0x7FFF7FFF).all()
    bits = x[finite].view(np.uint32).astype(np.uint64)
    np.testing.assert_array_equal(t[finite], (bits + 0x1000) & 0xFFFFE000)


@pytest.mark.parametrize(("args", "message"), [
    ((np.zeros(4, F32),), "2"),
    ((np.zeros(4), np.int32(1)), "float64"),
    ((np.zeros((4, 4), F32)[:, 1], np.int32(1)), "contiguous"),
    ((np.zeros(4, F32), np.int64(1)), "int64"),
    ((np.zeros(4, F32), 1), "got a int"),
    ((np.zeros(0, F32), np.int32(1)), r"got shape \(0,\)"),
    ((F32(1), np.int32(1)), "got a float32, expected a ndarray"),
    ((np.zeros(4, F32), np.zeros(1, np.int32)), "got a ndarray"),
])  # fmt: skip
def test_arguments_are_held_against_the_kernel(run, args, message):
    with pytest.raises(InputError, match=message):
        run("float* y, int n", "y[0] = n;", *args)


def test_what_cannot_be_built_or_launched_is_one_line(run, monkeypatch):
    for options in ({"threads": 2048}, {"shared": 300_000}, {"blocks": 0}):
        with pytest.raises(DeviceError, match=r"kernel probe for 75: .* are not for 90"):
            run("float* y", "y[0] = 1;", np.zeros(4, F32), **options)
    with pytest.raises(DeviceError, match=r"^[^\n]*does not build[^\n]*error[^\n]*$"):
        run("float* y", "y[0] = nothing;", np.zeros(4, F32))
    monkeypatch.setattr(emulator_module, "_compiler", emulator_module._compiler.__wrapped__)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(DeviceError, match=r"g\+\+ is not found"):
        Emulator().launch(Launch(Kernel("platform.cuh", "none", ()), (1, 1, 1), ()))
