"""Pools of variants, marks and crops that several jobs of ``finetune.py`` learn from."""

import time
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.learning.crops import crops
from experiments.learning.guide_network import load_guide
from neocog.files import atomic_write
from neocog.learning.augment import augment
from neocog.learning.finetune import Pools
from neocog.learning.settings import PRESETS, Settings
from neocog.network.spec import LABELS

#: Of what is drawn, least share of the ten digits' probability that the right one must have, and
#: largest probability of a digit that a crop that is none may have.
_LEGIBLE, _PASSES = 0.03, 0.6


def load_pools(path: Path) -> Pools:
    """Read what was drawn by ``--draw``."""
    with np.load(path) as found:
        return Pools(**found)


def probabilities(guide: Any, pictures: torch.Tensor) -> Any:
    """Probabilities of the labels and of none, (N, 11), by a guide, on the pictures' device."""
    generator = torch.Generator(device=pictures.device)
    parts = [
        guide(augment(part, PRESETS["none"], generator)).exp().cpu().numpy() for part in pictures.split(1000)
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
        guide = load_guide([args.legible], args.device)
        p, seen = (
            probabilities(guide, torch.tensor(values[name], device=args.device))
            for name in ("variants", "marks")
        )
        read = p[np.arange(len(p)), values["answers"]] / p[:, :LABELS].sum(axis=1) > _LEGIBLE
        none = seen[:, :LABELS].max(axis=1) < _PASSES
        none[: len(pools.marks)] = True  # those are no digits by the way they are made
        print(f"left out: {1 - read.mean():.4f} of digits, {1 - none.mean():.4f} of marks")
        values["variants"], values["answers"] = values["variants"][read], values["answers"][read]
        values["marks"] = values["marks"][none]
    with atomic_write(args.draw) as stream:
        np.savez(stream, **values)
