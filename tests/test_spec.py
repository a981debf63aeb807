"""The ten layers have the published geometry."""

import pytest

from neocog.errors import UsageError
from neocog.network.spec import PRESETS, preset

# Ikeda et al. 2011, Table 2, with 26/78/70 planes.
TABLE = {
    "U0": (1, 65),
    "UG": (2, 71),
    "US1": (16, 68),
    "UC1": (16, 37),
    "US2": (26, 38),
    "UC2": (26, 21),
    "US3": (78, 22),
    "UC3": (78, 13),
    "US4": (70, 5),
    "UC4": (10, 1),
}


@pytest.mark.parametrize("name", PRESETS)
def test_geometry_is_the_table_of_2011(name: str) -> None:
    layers = preset(name).layers((26, 78, 70))
    assert {layer.name: (layer.planes, layer.size) for layer in layers} == TABLE


def test_connections_of_ikeda2011() -> None:
    layers = preset("ikeda2011").layers()
    assert [layer.kernel for layer in layers] == [None, 7, 6, 6, 6, 6, 6, 8, 9, 5]
    assert [layer.padding for layer in layers] == [0, 6, 1, 5, 3, 4, 3, 5, 0, 0]
    assert [layer.stride for layer in layers] == [1, 1, 1, 2, 1, 2, 1, 2, 1, 1]


def test_planes_are_open_before_learning() -> None:
    assert [layer.planes for layer in preset("neocog").layers()][4:9] == [None] * 5


def test_surrounds_of_fukushima2003() -> None:
    assert [c.kernel for c in preset("fukushima2003").c] == [18, 14, 8]


def test_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="fukushima2003, ikeda2011, neocog"):
        preset("lenet")
