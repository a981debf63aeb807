"""The engine on CUDA devices, and convolutions that others can use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neocog.cuda.convpool import conv_avgpool as conv_avgpool
    from neocog.cuda.winograd_conv2d import conv2d_winograd as conv2d_winograd

# Imported when first asked for.
_PUBLIC = {"conv2d_winograd": "neocog.cuda.winograd_conv2d", "conv_avgpool": "neocog.cuda.convpool"}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted((*globals(), *_PUBLIC))
