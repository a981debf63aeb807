"""Work spread over threads: everything is done once, in order, and errors come through."""

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from neocog.network.parallel import ParallelMap, one_blas_thread


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 20])
def test_every_part_once_in_order(threads: int, count: int) -> None:
    done: list[int] = []
    squares = ParallelMap(threads)(lambda i: done.append(i) or i * i, range(count))
    assert squares == [i * i for i in range(count)]
    assert sorted(done) == list(range(count))


def test_parts_are_done_at_the_same_time_and_a_map_within_a_map_does_not_wait_for_itself() -> None:
    parallel, both = ParallelMap(2), threading.Barrier(2, timeout=10)
    parallel(lambda _: both.wait(), [0, 1])
    assert parallel(lambda i: sum(parallel(lambda j: i * j, range(4))), range(6)) == [6 * i for i in range(6)]


def test_an_error_comes_through_and_the_threads_live_on() -> None:
    parallel = ParallelMap(2)

    def fail(i: int) -> int:
        if i in (0, 3):
            raise IndexError(f"part {i}")
        return i

    with pytest.raises(IndexError, match="part"):
        parallel(fail, range(6))
    assert parallel(abs, [-1, -2, -3]) == [1, 2, 3]
    both = threading.Barrier(2, timeout=10)
    workers = parallel(lambda _: (both.wait(), threading.current_thread())[1], [0, 1])
    del parallel  # its threads end with it
    for helper in set(workers) - {threading.current_thread()}:
        helper.join(10)
        assert not helper.is_alive()


def test_what_no_thread_has_begun_holds_nothing() -> None:
    """As in a forked process, which has no other threads."""
    parallel, go_on = ParallelMap(2), threading.Event()
    parallel._asked.put(lambda: go_on.wait(10) and None)
    held = np.ones(3)
    parallel(lambda part, own=held: own + part, [held, held])
    gone = weakref.ref(held)
    del held
    gc.collect()
    go_on.set()
    assert gone() is None


def test_blas_has_its_threads_again_after_passes_that_overlap_and_after_errors() -> None:
    blas = ThreadpoolController().select(user_api="blas")

    def threads() -> set[int]:  # of NumPy's; SciPy brings a BLAS of its own, which may come later
        return {lib["num_threads"] for lib in blas.info() if "scipy.libs" not in lib["filepath"]}

    def passes(_: int) -> None:
        for _ in range(200):
            with one_blas_thread(), one_blas_thread():
                assert threads() == {1}

    with blas.limit(limits=2), ThreadPoolExecutor(1) as first, ThreadPoolExecutor(4) as many:
        if threads() != {2}:
            pytest.skip("needs a BLAS that can be told how many threads it may use")
        one, other = one_blas_thread(), one_blas_thread()
        first.submit(one.__enter__).result()
        other.__enter__()
        first.submit(one.__exit__, None, None, None).result()
        assert threads() == {1}, "the second is still at work"
        other.__exit__(None, None, None)
        assert threads() == {2}
        list(many.map(passes, range(4)))  # the threads that set it before live on
        assert threads() == {2}
        with pytest.raises(IndexError), one_blas_thread():
            raise IndexError
        assert threads() == {2}
