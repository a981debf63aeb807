"""Learns networks by gradient on a GPU, one after another.

    python -m experiments.learning.finetune DATA -o OUT --jobs 40/160/100:0 26/78/70:0 --minutes 8 \
        [--sets mnist:4 hands/swiss:2] [--reject 20] [--augmentation pages]

DATA holds the sets. A job is planes (K2/K3/K4), a seed and, where it goes on from a model, that
model: ``40/160/100:3:start=models/neocog.safetensors``. Each has a folder in OUT with its start,
checkpoint, curves, figures and ``model.safetensors``: the best model by validation or, with --last,
the last. The same command again goes on with what a kill left. With --draw it draws what is shown,
once for all jobs, and stops.
"""

import argparse
import json
import os
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from experiments.harness.arguments import data_and_output
from experiments.learning.crops import crops
from neocog.errors import NeocogError
from neocog.files import atomic_write
from neocog.learning.augment import augment
from neocog.learning.checkpoint import start_of_run
from neocog.learning.finetune import Finetuner, Pools
from neocog.learning.mix import Mix, open_mix
from neocog.learning.recipes import recipe_of
from neocog.learning.settings import REJECTING, USUAL, Settings, augmentation
from neocog.learning.trainable import Trainable
from neocog.learning.variants import variants
from neocog.network.decision import labels_of
from neocog.network.spec import LABELS

_VARIANTS = 2000  # that are measured with
_CHANGED = ("geometry", "pages", "none,blur=2")
_LEAST_K2 = 33  # planes of US2 from which a start is that of the larger recipe
#: Settings that are options.
_OPTIONS = ("batch", "rate", "marks", "variants", "pool", "lean", "smoothing", "varied", "save_every")


def mixes(args: argparse.Namespace) -> tuple[Mix, Mix]:
    sets = [str(args.data / words) for words in args.sets]
    return open_mix(sets), open_mix(sets, split="validation")


def load_pools(path: Path) -> Pools:
    with np.load(path) as found:
        return Pools(**found)


def draw_pools(args: argparse.Namespace, seed: int, mix: Mix) -> None:
    """Draw pools for several jobs, with crops of made pages where --crops names what makes them."""
    settings = Settings(seed=seed, variants=0.2, marks=0.2, pool=args.pool)
    pools = Pools.draw(mix, settings, marks=True, jobs=args.cores)
    values = asdict(pools)
    if args.crops:
        cut = crops(args.pages, *args.crops, seed=seed, jobs=args.cores)
        for name, more in (("variants", cut.digits), ("answers", cut.labels), ("marks", cut.marks)):
            values[name] = np.concatenate([values[name], more])
    with atomic_write(args.draw) as stream:
        np.savez(stream, **values)
    print({name: len(pictures) for name, pictures in values.items()})


def learn(job: str, args: argparse.Namespace) -> None:
    planes, seed, *named = job.split(":")
    start = named[0].removeprefix("start=") if named else None
    folder = args.output / re.sub(r"[^\w.]+", "-", f"{planes}-seed{seed}-{start or ''}").strip("-")
    folder.mkdir(parents=True, exist_ok=True)
    mix, kept = mixes(args)
    settings = Settings(
        seed=int(seed), minutes=args.minutes, last=args.last,
        augmentation=augmentation(args.augmentation),
        soft_share=0.0 if start else Settings().soft_share,
        **{name: getattr(args, name) for name in _OPTIONS},
    )  # fmt: skip
    name = "finetuned" if int(planes.partition("/")[0]) >= _LEAST_K2 else "finetuned-small"
    place, recipe = folder / "start.safetensors", recipe_of(name, planes)
    begin, data = start_of_run(place, start, recipe, mix, seed=settings.seed, reject=args.reject)
    with atomic_write(place) as stream:
        stream.write(data)
    run = Finetuner(
        begin, mix, kept, settings, device=args.device, folder=folder,
        report=lambda found: print(job, found, flush=True),
        pools=load_pools(args.pools) if args.pools else None,
    )  # fmt: skip
    model = run.run()
    saved = model.save(folder / "model.safetensors")
    result = {"model": saved.id, "job": job} | run.curves[-1] | measured(model, kept, args.device)
    (folder / "result.json").write_text(json.dumps(result))
    print(json.dumps(result), flush=True)


def measured(model: Any, kept: Any, device: str) -> dict[str, Any]:
    """Figures of digits kept apart: of each set, after changes, as scanners hand them over."""

    def read(images: Any, labels: Any, how: str = "none") -> dict[str, float]:
        return figures(model, images, labels, how, device)

    first = kept.hands[0].digits
    sets = {hand.digits.name: read(hand.digits.images, hand.digits.labels) for hand in kept.hands}
    changed = {f"validation_{how}": read(first.images, first.labels, how) for how in _CHANGED}
    return {"sets": sets, **changed, "variants": read(*variants(_VARIANTS, kept, seed=1))}


def figures(model: Any, images: Any, labels: Any, how: str, device: str) -> dict[str, float]:
    """Share read right, share rejected outright, and the loss if a digit must be answered."""
    network = Trainable(model).to(device).eval()
    generator = torch.Generator(device=device).manual_seed(1)
    with torch.no_grad():
        scores = torch.cat([
            network(augment(part, augmentation(how), generator)).cpu()
            for part in torch.tensor(images, device=device).split(500)
        ])  # fmt: skip
    logits = scores[:, :LABELS] / model.temperature
    return {
        "right": round(float((labels_of(scores.numpy()) == labels).mean()), 5),
        "rejected": round(float((scores.argmax(dim=1) >= LABELS).float().mean()), 5),
        "loss": round(float(functional.cross_entropy(logits, torch.tensor(labels))), 5),
    }


def options() -> argparse.ArgumentParser:
    parser = data_and_output(
        __doc__, jobs=["40/160/100:0"], minutes=(8.0, "of learning, each job"),
        **{name: getattr(Settings(), name) for name in _OPTIONS},
        reject=(REJECTING, "planes for what is no digit"), pools=(Path, "what is shown, by --draw"),
        draw=(Path, "draw pools for all jobs, into this file"), pages=12_000,
        last=(False, "keep the network at the end"),
        augmentation=USUAL, device="cuda", cores=os.cpu_count() or 1,
    )  # fmt: skip
    parser.add_argument("--sets", nargs="+", default=["mnist"], metavar="SET[:WEIGHT]")
    parser.add_argument("--crops", type=Path, nargs=2, metavar=("BANK", "FINDER"),
                        help="draw crops of made pages as well")  # fmt: skip
    return parser


def main() -> int:
    parser = options()
    args = parser.parse_args()
    try:
        if args.draw:
            draw_pools(args, int(args.jobs[0].split(":")[1]), mixes(args)[0])
            return 0
        for job in args.jobs:
            learn(job, args)
    except NeocogError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
