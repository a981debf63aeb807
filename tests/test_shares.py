"""Work spread over threads: everything is done once, in order, and errors come through."""

import threading

import numpy as np
import pytest

from neocog.network.shares import SHARE, Shares


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 20])
def test_every_part_once_in_order(threads: int, count: int) -> None:
    done: list[int] = []

    def square(i: int) -> int:
        done.append(i)
        return i * i

    assert Shares(threads).map(square, range(count)) == [i * i for i in range(count)]
    assert sorted(done) == list(range(count))


def test_parts_are_done_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=10)
    Shares(2).map(lambda _: both.wait(), [0, 1])


def test_an_error_comes_through_and_the_threads_live_on() -> None:
    shares = Shares(2)

    def fail(i: int) -> int:
        if i in (0, 3):
            raise IndexError(f"part {i}")
        return i

    with pytest.raises(IndexError, match="part"):
        shares.map(fail, range(6))
    assert shares.map(abs, [-1, -2, -3]) == [1, 2, 3]


def test_shares_within_shares_do_not_wait_for_themselves() -> None:
    shares = Shares(2)
    got = shares.map(lambda i: sum(shares.map(lambda j: i * j, range(4))), range(6))
    assert got == [6 * i for i in range(6)]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_batch_is_cut_evenly(threads: int) -> None:
    for count in (1, 2, 7, 8, 33):
        parts = Shares(threads).cut(np.zeros((count, 28, 28), dtype=np.uint8))
        sizes = [len(part) for part in parts]
        assert sum(sizes) == count
        assert max(sizes) <= SHARE
        assert max(sizes) - min(sizes) <= 1
        assert len(parts) % threads == 0 or len(parts) == count
