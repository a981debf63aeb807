"""How many cells of each S-layer hear nothing on real digits, and how many may respond.

python -m experiments.gpu.silence DIGITS [--model neocog-small] [--count 64]

A cell hears nothing if its v is 0. It cannot respond if the bound of ``kernels/s_tensor.cu`` says
so: sum |a| |u| <= theta v, norms over the planes before, |a| the largest of any plane at each tap.
UG: how many cells ``kernels/contrast.cu`` sums once more in float64, and how many it looks at.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from experiments.harness.arguments import arguments
from neocog.learning.datasets import open_digits
from neocog.network.engine import Engine
from neocog.network.fields import contrast_kernel
from neocog.network.layers import s_constants
from neocog.network.model import load_model
from neocog.network.registry import find_model
from neocog.network.spec import ContrastSpec
from neocog.network.u0 import u0_from_digits

#: ERROR of ``kernels/contrast.cu``: float32 errs by this share of what a window holds, at most.
_ERROR = 52 * 2.0**-24


def main() -> None:
    args = arguments(__doc__, "digits", model="neocog-small", count=64).parse_args()
    model = load_model(find_model(args.model))
    digits = open_digits(args.digits, split="train").images[: args.count]
    u0 = u0_from_digits(digits)
    _contrast(u0, model.spec.contrast)
    maps = Engine(model).maps(u0)
    for i, (spec, weights) in enumerate(zip(model.spec.s, model.s, strict=True)):
        before = np.linalg.norm(maps[f"UC{i}" if i else "UG"].astype(np.float64), axis=1)
        rim = (spec.padding, spec.padding)
        windows = sliding_window_view(
            np.pad(before, ((0, 0), rim, rim)), (spec.kernel, spec.kernel), axis=(1, 2)
        )
        a, theta, _ = s_constants(weights)
        v = np.sqrt(np.einsum("bhwyx,yx->bhw", windows**2, weights.c))
        most = np.einsum("bhwyx,yx->bhw", windows, np.linalg.norm(a, axis=1).max(axis=0))
        responds = (maps[f"US{i + 1}"] > 0).any(axis=1)
        print(
            f"US{i + 1}: of {v.size // len(digits)} cells {(v == 0).mean():.1%} hear nothing, "
            f"{(most > theta * v).mean():.1%} may respond, {responds.mean():.1%} do"
        )


def _contrast(u0: NDArray[np.float32], spec: ContrastSpec) -> None:
    a, rim = contrast_kernel(spec), (spec.padding, spec.padding)
    padded = np.pad(u0.astype(np.float64), ((0, 0), rim, rim))
    windows = sliding_window_view(padded, a.shape, axis=(1, 2))
    y = np.einsum("bhwyx,yx->bhw", windows, a)
    apart = np.abs(np.abs(y) - spec.silence)
    looked_at = apart <= 2 * _ERROR
    summed = looked_at & (apart <= _ERROR * windows.sum(axis=(3, 4)))
    for what, cells in (("looked at again", looked_at), ("summed in float64", summed)):
        digits = cells.any(axis=(1, 2)).mean()
        print(f"UG: of {y.size} cells {cells.sum()} are {what}, in {digits:.1%} of the digits")


if __name__ == "__main__":
    main()
