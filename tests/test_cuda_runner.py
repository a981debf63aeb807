"""The engine on a device that is none: chunks, memory, failures; kernels run in the emulator."""

import numpy as np
import pytest

from neocog.cuda.engine import LANES, bucket_of
from neocog.cuda.lanes import PassLane
from neocog.cuda.plan import ANSWER_COLUMNS, PLANS, STAGES
from neocog.errors import DeviceError, InputError
from neocog.network import reference
from neocog.network.engine import Engine
from neocog.network.u0 import u0_from_digits
from neocog.reading.device import open_engine
from tests import cuda_fake
from tests.cuda_maps import PASS_BOUND, assert_adds_up, assert_maps_agree, some_digits
from tests.cuda_support import use
from tests.emulator import Emulator
from tests.support import tiny_model


@pytest.mark.slow
def test_the_engine_on_a_fake_device(emulator, monkeypatch):
    cuda_fake.install(monkeypatch, emulator)
    model, digits = tiny_model(), some_digits(4)[1:]
    engine = open_engine(model, precision="fp32")
    assert (engine.device, engine.precision) == ("cuda", "fp32")
    want = Engine(model).recognise(digits)
    got = engine.recognise(digits, batch=2)  # two chunks, the second half full
    np.testing.assert_allclose(got.score, want.score, atol=PASS_BOUND["fp32"])
    np.testing.assert_array_equal(got.label, want.label)
    np.testing.assert_allclose(got.margin, want.margin, atol=PASS_BOUND["fp32"])
    use(engine, chunk=4, part=1)  # three passes of one digit, one decision
    np.testing.assert_allclose(engine.recognise(digits).score, got.score, atol=1e-6)
    u0 = u0_from_digits(digits[:1])
    assert_maps_agree(engine.maps(u0), reference.respond(u0, model), "fp32")
    assert len(engine.recognise(digits[:0])) == 0
    with pytest.raises(InputError, match="expected uint8"):
        engine.recognise(np.zeros((2, 28, 27), np.uint8))
    with pytest.raises(InputError, match="got digits as list, expected a NumPy array"):
        engine.recognise([1, 2])
    monkeypatch.setattr(Emulator, "launch", lambda self, launch: None)  # times need no maps
    times = engine.stage_times(digits[:2], repeats=1)
    assert list(times) == ["upload", *STAGES, "launch", "total"]
    assert_adds_up(times)


# --- chunks -----------------------------------------------------------------------------------


def test_buckets_are_powers_of_two_up_to_a_part_and_whole_parts_beyond():
    assert [bucket_of(n) for n in (0, 1, 2, 3, 8, 9, 33, 256)] == [1, 1, 2, 4, 8, 16, 64, 256]
    assert [bucket_of(n, 64) for n in (33, 64, 65, 128, 129, 500)] == [64, 64, 128, 128, 192, 512]
    assert [bucket_of(n, 100) for n in (64, 65, 101)] == [64, 100, 200]


@pytest.fixture
def weighing(emulator, monkeypatch):
    """An engine whose kernels make one thing: the first score is the ink of the digit."""
    ink = []

    def launch(self, launch):
        for array in launch.args:
            if np.shape(array)[1:] == (28, 28):
                ink.append(array.sum(axis=(1, 2)))  # of a part
            elif np.shape(array)[1:] == (ANSWER_COLUMNS,) and launch.kernel.file == "decide.cu":
                array[:, 0] = np.concatenate(ink)
                ink.clear()

    cuda_fake.install(monkeypatch, emulator)
    monkeypatch.setattr(Emulator, "launch", launch)
    return open_engine(tiny_model(), precision="fp32")


def dealt(engine, count, batch, chunk, part=64):
    """Have digits weighed in chunks; return the engine."""
    use(engine, chunk=chunk, part=part)
    digits = np.zeros((count, 28, 28), np.uint8)
    digits[:, 0, 0] = np.arange(count) % 251
    for some in (digits, digits[:3]):
        found = engine.recognise(some, batch=batch).score[:, 0]
        np.testing.assert_array_equal(found, some[:, 0, 0])
    assert len({index for _, index in engine._lanes}) <= LANES
    assert all(lane.waiting is None for lane in engine._lanes.values())
    return engine


@pytest.mark.parametrize("batch", [1, 3, 64, 10_000])
def test_chunks_come_back_where_they_belong(weighing, batch):
    for count in (1, 7, 64, 65, 129, 300):
        dealt(weighing, count, batch, chunk=64)


def test_answers_are_not_copied(weighing, monkeypatch):
    cuda, kinds = weighing.gpu.xp.cuda, list[int]()
    copy = cuda.runtime.memcpyAsync
    monkeypatch.setattr(cuda.runtime, "memcpyAsync", lambda *args: kinds.append(args[3]) or copy(*args))
    dealt(weighing, 7, 64, chunk=64)
    assert set(kinds) == {cuda.runtime.memcpyHostToDevice}  # the decision writes to the host


def test_large_batches_keep_several_lanes_at_work(weighing, monkeypatch):
    used, submit = [], PassLane.submit
    monkeypatch.setattr(PassLane, "submit", lambda *args: used.append(args[0]) or submit(*args))
    engine = dealt(weighing, 128 * LANES, 64, chunk=64)
    lanes = [engine.lane(64, index) for index in range(LANES)]
    assert [used.count(lane) for lane in lanes] == [2] * LANES


@pytest.mark.parametrize("room", range(1, LANES))
def test_little_memory_makes_fewer_lanes(weighing, monkeypatch, room):
    bound_memory(weighing, monkeypatch, 64 * room + 4)
    engine = dealt(weighing, 128 * LANES, 64, chunk=64)
    assert sum(batch == 64 for batch, _ in engine._lanes) == room


@pytest.mark.parametrize("memory", [1, 5, 64, 100, 127])
@pytest.mark.parametrize("part", [40, 64, 256])
def test_less_memory_makes_smaller_chunks(weighing, monkeypatch, memory, part):
    bound_memory(weighing, monkeypatch, memory)
    assert dealt(weighing, 300, 256, chunk=256, part=part).chunk <= memory


def test_no_memory_at_all_is_an_error(weighing, monkeypatch):
    bound_memory(weighing, monkeypatch, 0)
    with pytest.raises(DeviceError, match="no memory left for one digit"):
        weighing.recognise(some_digits(5))


def bound_memory(engine, monkeypatch, most):
    """Let all lanes together hold so many digits at most."""

    def lane(gpu, steps, layouts, batch, *more):
        if batch + sum(key[0] for key in engine._lanes) > most:
            raise cuda_fake.OutOfMemoryError
        return PassLane(gpu, steps, layouts, batch, *more)

    monkeypatch.setattr("neocog.cuda.engine.PassLane", lane)


# --- failures ----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt, cuda_fake.CUDAError])
@pytest.mark.parametrize("where", ["submit", "collect"])
def test_a_run_that_breaks_off_leaves_no_old_answers(weighing, monkeypatch, error, where):
    engine, digits = weighing, some_digits(4)
    want = digits.sum(axis=(1, 2))
    np.testing.assert_array_equal(engine.recognise(digits, batch=1).score[:, 0], want)
    calls = 0
    whole = getattr(PassLane, where)

    def breaks(self, *args):
        nonlocal calls
        calls += 1
        if calls == 2:  # the other lane is at work, or its answers are
            raise error("stop")
        whole(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(PassLane, where, breaks)
        with pytest.raises((KeyboardInterrupt, DeviceError)):
            engine.recognise(digits, batch=1)
    assert all(lane.waiting is None for lane in engine._lanes.values())
    again = engine.recognise(digits[::-1], batch=1)
    np.testing.assert_array_equal(again.score[:, 0], want[::-1])


@pytest.mark.usefixtures("tells_again")
@pytest.mark.parametrize("error", [cuda_fake.CUDAError, cuda_fake.OutOfMemoryError])
def test_failures_of_the_device_are_told_in_a_line(emulator, monkeypatch, capsys, error):
    cuda_fake.install(monkeypatch, emulator)
    engine = open_engine(tiny_model(), precision="fp32")

    def fail(*_, **__):
        raise error("out of luck\nmore words")

    monkeypatch.setattr(engine, "_deal", fail)
    monkeypatch.setattr("neocog.cuda.plan.Shelf.choose", fail)
    digits, u0 = some_digits(2), np.zeros((1, 65, 65))
    for name, given in {"check": (), "recognise": [digits], "maps": [u0], "stage_times": [digits]}.items():
        with pytest.raises(DeviceError, match=r"^device 'cuda' failed: out of luck$"):
            getattr(engine, name)(*given)
    monkeypatch.setattr(engine, "recognise", lambda digits: None)
    with pytest.raises(DeviceError, match=r"out of luck$"):
        engine.stage_times(some_digits(2))
    monkeypatch.setattr("neocog.cuda.engine.Shelf", fail)
    with pytest.raises(DeviceError, match=r"out of luck$"):
        open_engine(tiny_model(), device="cuda")
    capsys.readouterr()
    for _ in range(2):
        assert open_engine(tiny_model()).device == "cpu"
    said = "neocog: reading on the CPU: device 'cuda' failed: out of luck\n"
    assert capsys.readouterr().err == said


@pytest.mark.usefixtures("tells_again")
def test_auto_takes_the_cpu_where_a_step_cannot_be_done(emulator, monkeypatch, capsys):
    cuda_fake.install(monkeypatch, emulator)
    assert open_engine(tiny_model(), precision="fp32").device == "cuda"
    monkeypatch.setattr(cuda_fake.Device, "compute_capability", "75")
    assert open_engine(tiny_model(), precision="fp32").device == "cuda"
    monkeypatch.setitem(PLANS, "card", {"US1": ("tensor",)})
    assert open_engine(tiny_model(), plan="card").device == "cpu"
    why, unused = capsys.readouterr().err.splitlines()
    assert "US1 cannot be done by tensor" in why
    assert "plan 'card' is for CUDA" in unused
