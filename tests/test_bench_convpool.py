"""Convolution with average pooling: every way computes the same."""

import pytest

torch = pytest.importorskip("torch")

from neocog.bench.convpool import WAYS, naive, operations  # noqa: E402


@pytest.mark.parametrize("way", WAYS)
def test_every_way_computes_the_same(way: str) -> None:
    torch.manual_seed(0)
    x, w = torch.rand(2, 3, 8, 8, dtype=torch.float64), torch.randn(5, 3, 3, 3, dtype=torch.float64)
    function, filter_of = WAYS[way]
    got = function(x, filter_of(w))
    assert got.shape == (2, 5, 4, 4)
    torch.testing.assert_close(got, naive(x, w))


def test_operations_are_the_papers() -> None:
    assert operations("direct sum", ci=512, co=512, n=32) == 1_209_925_632
