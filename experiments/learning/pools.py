"""Pools of variants, marks and crops that several jobs of ``finetune.py`` learn from."""

import os
import re
import time
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from experiments.learning.crops import crops
from neocog.files import atomic_write
from neocog.learning.batches import Pools
from neocog.learning.settings import Settings
from neocog.network.spec import LABELS

#: Of what is drawn, least share of the ten digits' probability that the right one must have, and
#: largest probability of a digit that a crop that is none may have.
_LEGIBLE, _PASSES = 0.03, 0.6


def pools_of(folder: Path, settings: Any, mix: Any, kept: Any, *, marks: bool) -> Any:
    """Draw variants and marks, or read them where the same were drawn before.

    ``marks`` says whether the model has planes that reject.
    """
    path = folder / _name_of_pools(settings, mix, kept, marks=marks)
    if path.exists():
        with np.load(path) as found:
            return Pools(**found)
    jobs = int(os.environ.get("OMP_NUM_THREADS", "1"))
    pools = Pools.draw(mix, kept, settings, marks=marks, jobs=jobs)
    with atomic_write(path) as stream:
        np.savez(stream, **asdict(pools))
    return pools


def _name_of_pools(settings: Any, mix: Any, kept: Any, *, marks: bool) -> str:
    """Name all that pools follow from: seed, size, whether there are any, and the digits."""
    parts = [f"pools-seed{settings.seed}", str(settings.pool)]
    parts += ["variants"] * (settings.variants > 0)
    parts += ["marks"] * (marks and settings.marks > 0)
    parts += [own.digest for own in (mix, kept)]
    return re.sub(r"[^\w.]+", "-", "-".join(parts)).strip("-") + ".npz"


def load_pools(path: Path) -> Any:
    """Read what was drawn by ``--draw``."""
    with np.load(path) as found:
        return Pools(**found)


def probabilities(path: Path, pictures: Any, device: str) -> Any:
    """Probabilities of the labels and of none, (N, 11), by a guide that was learned before."""
    import torch

    from experiments.learning.guide_network import load_guide
    from neocog.learning.augment import augment
    from neocog.learning.settings import PRESETS

    guide, generator = load_guide([path], device), torch.Generator(device=device)
    parts = [
        guide(augment(part.to(device), PRESETS["none"], generator)).exp().cpu().numpy()
        for part in torch.from_numpy(pictures).split(1000)
    ]
    return np.concatenate(parts)


def draw_pools(args: Namespace, seed: int, mix: Any, kept: Any) -> None:
    """Draw pools for several jobs, with crops of made pages where --crops names what makes them."""
    begun = time.monotonic()
    settings = Settings(seed=seed, variants=0.2, marks=0.2, pool=args.pool)
    pools = Pools.draw(mix, kept, settings, marks=True, jobs=args.cores)
    print(f"pools {len(pools.variants)} {len(pools.marks)}: {time.monotonic() - begun:.0f} s")
    values = asdict(pools)
    if args.crops:
        cut = crops(args.pages, *args.crops, seed=seed, jobs=args.cores)
        values["variants"] = np.concatenate([pools.variants, cut.digits])
        values["answers"] = np.concatenate([pools.answers, cut.labels])
        values["marks"] = np.concatenate([pools.marks, cut.marks])
        print(f"crops {len(cut.digits)} {len(cut.marks)}: {time.monotonic() - begun:.0f} s")
    if args.legible:
        p = probabilities(args.legible, values["variants"], args.device)
        read = p[np.arange(len(p)), values["answers"]] / p[:, :LABELS].sum(axis=1) > _LEGIBLE
        seen = probabilities(args.legible, values["marks"], args.device)
        none = seen[:, :LABELS].max(axis=1) < _PASSES
        none[: len(pools.marks)] = True  # those are no digits by the way they are made
        first, later = len(pools.variants), len(pools.marks)
        told = [round(float(1 - part.mean()), 4)
                for part in (read[:first], read[first:], none[later:])]  # fmt: skip
        print(f"left out of variants, crops, crops that are none: {told}")
        values["variants"], values["answers"] = values["variants"][read], values["answers"][read]
        values["marks"] = values["marks"][none]
    with atomic_write(args.draw) as stream:
        np.savez(stream, **values)
