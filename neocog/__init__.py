"""A ten-layer neocognitron that reads handwritten digits.

>>> from neocog import Reader                                       # doctest: +SKIP
>>> Reader().read("photo.jpg").text                                 # doctest: +SKIP
'07946'

``Reader`` reads pictures, ``load_model`` gives the learned network itself (a ``Model``).
Everything that goes wrong in a foreseen way raises a `NeocogError`; see `neocog.errors`.
"""

from neocog.errors import (
    DeviceError,
    EndedEarly,
    InputError,
    ModelError,
    NeocogError,
    NothingToRead,
    UsageError,
)

TYPE_CHECKING = False  # typing is not imported, nor anything else: see `neocog.programs`
if TYPE_CHECKING:
    from typing import Any

    from neocog.batch.reader import Reader
    from neocog.evaluation.explain import explain
    from neocog.network.model import Model, load_model

__version__ = "1.0.0"

_HOMES = {
    "Reader": "neocog.batch.reader", "explain": "neocog.evaluation.explain",
    "Model": "neocog.network.model", "load_model": "neocog.network.model",
}  # fmt: skip

__all__ = [
    "DeviceError", "EndedEarly", "InputError", "Model", "ModelError", "NeocogError", "NothingToRead",
    "Reader", "UsageError", "__version__", "explain", "load_model",
]  # fmt: skip


def __getattr__(name: str) -> "Any":
    """Import ``name`` when it is first asked for, so that ``import neocog`` stays quick."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    globals()[name] = getattr(import_module(_HOMES[name]), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
