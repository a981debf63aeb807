"""Work spread over processes."""

from functools import partial

import pytest

from experiments.harness.processes import spread


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_order(jobs: int) -> None:
    assert list(spread(partial(pow, 2), range(7), jobs)) == [2**n for n in range(7)]
