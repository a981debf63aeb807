"""Maps in the layouts of the kernels, poisoned where a kernel has to write; bounds of errors."""

from dataclasses import replace
from types import ModuleType

import numpy as np

from experiments.gpu.interpret import poisoned, read
from experiments.network.ours import stored
from neocog.network import reference
from neocog.network.blurs import blur_kernel
from neocog.network.model import SWeights
from neocog.network.spec import bell, preset
from neocog.network.u0 import made_digits
from tests.support import digits_of, tiny_model

#: Largest error of a layer at its place in the pass, as a share of its strongest response: errors add up.
PASS_BOUND = {"fp32": 2e-4, "fp16": 2e-2}


def uncleared(machine):
    """Make a machine's new arrays hold NaN (of numbers) where they are not asked to be clear."""

    def empty(shape, dtype=float):
        out = np.empty(shape, dtype)
        out.view(np.uint8)[...] = 0xFF
        return out

    machine.xp = ModuleType("numpy")
    machine.xp.__dict__.update({**np.__dict__, "empty": empty})
    return machine


def responses(machine, step, lay, source):
    """What a step makes of ``source``, target and scratch poisoned; twice where scratch is counted in."""
    batch, target = len(source), lay[step.writes]
    scratch = {
        name: np.full(shape, 0 if np.dtype(kind).kind == "u" else np.nan, kind)
        for name, (shape, kind) in step.scratch(batch).items()
    }
    for _ in range(1 + ("arrivals" in scratch)):  # the second finds the counters as the first left them
        out = poisoned(target, batch)
        for launch in step.launches(batch, source, out, scratch):
            machine.launch(launch)
    return read(out, target)


def error_of(machine, step, lay, *, active=0.3, batch=2):
    """Largest error of a layer's step on maps at random, as a share of its strongest response.

    Of three digits the second is blank, the third has an empty upper half.
    """
    source = lay[step.reads]
    maps = sparse((batch, source.planes, source.size, source.size), active=active)
    if batch > 2:
        maps[1] = maps[2, :, : source.size // 2] = 0
    held = stored(maps, source)
    wanted = reference.layer(step.writes, read(held, source), step.model)
    assert (wanted > 0).any()
    return float(np.abs(responses(machine, step, lay, held) - wanted).max() / wanted.max())


def sparse(shape, *, seed=1, active=0.3):
    """Responses in 0 .. 1 of which a part is active."""
    rng = np.random.default_rng(seed)
    return rng.uniform(0, 1, shape) * (rng.uniform(size=shape) < active)


def excitable_model(name, planes):
    """References and input at random, a threshold that about half of the cells reach."""
    spec = preset(name)
    layers, before = [], 2
    for i, (k, s) in enumerate(zip((spec.orientations, *planes), spec.s, strict=True)):
        x = sparse((k, before, s.kernel, s.kernel), seed=i, active=0.5).astype(np.float32)
        x[k // 2] = 0 if k > 2 else x[k // 2]  # a plane that has learned nothing
        layers.append(SWeights(x, bell(s.kernel, s.c).astype(np.float32), 0.3, s.q))
        before = k
    blurs = tuple(blur_kernel(c).astype(np.float32) for c in spec.c)
    labels = np.arange(planes[2]) % 9  # no plane for label 9
    return replace(tiny_model(), spec=spec, s=tuple(layers), blurs=blurs, labels=labels, psi=spec.psi)


def some_digits(count):
    return np.concatenate([digits_of("0123456789"), made_digits(count)])[:count]


def assert_maps_agree(got, want, bound, *, squared=True):
    """Errors are shares of a map's strongest response; of C-cells, squares are compared if ``squared``."""
    assert list(got) == list(want)
    for layer, values in want.items():
        found = got[layer].astype(np.float64)
        assert (got[layer].dtype, found.shape) == (np.float32, values.shape), layer
        if squared and layer in ("UC1", "UC2", "UC3"):  # the root is infinitely steep at 0
            found, values = found**2, values**2
        assert np.abs(found - values).max() <= bound * np.abs(values).max(), layer


def assert_adds_up(times):
    """Stages add up to the total, in every repeat."""
    parts = sum(ms for name, ms in times.items() if name != "total")
    np.testing.assert_allclose(parts, times["total"], rtol=1e-9)
