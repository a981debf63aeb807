"""The ten layers have the published geometry."""

import pytest

from neocog.errors import UsageError
from neocog.network.spec import PRESETS, preset

# Ikeda et al. 2011, Table 2, with 26/78/70 planes.
LAYERS = "U0 UG US1 UC1 US2 UC2 US3 UC3 US4 UC4".split()
PLANES = [1, 2, 16, 16, 26, 26, 78, 78, 70, 10]
SIZES = [65, 71, 68, 37, 38, 21, 22, 13, 5, 1]


@pytest.mark.parametrize("name", PRESETS)
def test_geometry_is_the_table_of_2011(name: str) -> None:
    layers = preset(name).layers((26, 78, 70))
    rows = [(layer.name, layer.planes, layer.size) for layer in layers]
    assert rows == list(zip(LAYERS, PLANES, SIZES, strict=True))
    assert [layer.planes for layer in preset(name).layers()][4:9] == [None] * 5, "open before learning"


def test_connections_of_the_papers() -> None:
    layers = preset("ikeda2011").layers()
    assert [layer.kernel for layer in layers] == [None, 7, 6, 6, 6, 6, 6, 8, 9, 5]
    assert [layer.padding for layer in layers] == [0, 6, 1, 5, 3, 4, 3, 5, 0, 0]
    assert [layer.stride for layer in layers] == [1, 1, 1, 2, 1, 2, 1, 2, 1, 1]
    assert [c.kernel for c in preset("fukushima2003").c] == [18, 14, 8]


def test_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="fukushima2003, ikeda2011, neocog"):
        preset("lenet")
