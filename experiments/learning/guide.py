"""Learns a guide: a plain convolutional network, on what the neocognitrons learn from.

    python -m experiments.learning.guide DATA -o OUT --sets mnist:5 ... --pools POOLS.npz \
        --seconds 440 [--cycles 150 300]

Each cycle of the rate leaves OUT/guide-N.safetensors, as good as its validation digits say.
"""

import argparse
import copy
import json
import math
import sys
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch.nn import functional

from experiments.harness.arguments import data_and_output
from experiments.learning.finetune import mixes
from experiments.learning.guide_network import Convolutional, Guide, save_network
from experiments.learning.pools import load_pools, probabilities
from neocog.learning.finetune import Batches
from neocog.learning.settings import Settings, augmentation
from neocog.network.spec import LABELS

Answer = tuple[list[float], float, float]


def measured(network: Convolutional, batches: Batches, device: torch.device) -> Answer:
    """Share right of each set kept apart if a digit must be answered, marks that pass, and loss."""
    guide = Guide([copy.deepcopy(network)], device)
    p = probabilities(guide, batches.shown)
    right = p[:, :LABELS].argmax(axis=1) == batches.validation.labels
    sets = batches.validation.means(right)
    least = np.quantile(p[:, :LABELS].max(axis=1), 0.005)
    marks = probabilities(guide, batches.held)
    passed = float((marks[:, :LABELS].max(axis=1) >= least).mean())
    loss = -np.log(np.maximum(p[np.arange(len(p)), batches.validation.labels], 1e-9)).mean()
    return [round(100 * s, 2) for s in sets], round(100 * passed, 2), round(float(loss), 5)


def cycle(
    network: Convolutional, batches: Batches, args: argparse.Namespace, number: int, first: int
) -> tuple[Convolutional, int]:
    """One cycle of the rate; returns the running mean of the network and the next step."""
    seconds = args.cycles[number]
    mean = copy.deepcopy(network).requires_grad_(False)
    decay = [p for p in network.parameters() if p.ndim > 1]
    plain = [p for p in network.parameters() if p.ndim <= 1]
    optimizer = torch.optim.SGD(
        [{"params": decay, "weight_decay": 1e-4}, {"params": plain, "weight_decay": 0.0}],
        lr=args.rate, momentum=0.9, nesterov=True,
    )  # fmt: skip
    device, begun, step, told, losses = torch.device(args.device), time.monotonic(), first, 0.0, []
    while (passed := time.monotonic() - begun) < seconds:
        part = passed / seconds
        bend = min(part / 0.05, 0.5 * (1 + math.cos(math.pi * part)))
        for group in optimizer.param_groups:
            group["lr"] = args.rate * (0.6 if number else 1.0) * max(bend, 0.01)
        u0, labels = batches.batch(step)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = network(u0)
        loss = functional.cross_entropy(logits.float(), labels, label_smoothing=args.smoothing)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        step += 1
        keep = min(0.998, (1 + step - first) / (10 + step - first))
        with torch.no_grad():
            torch._foreach_lerp_(list(mean.parameters()), list(network.parameters()), 1 - keep)
            for own, new in zip(mean.buffers(), network.buffers(), strict=True):
                own.lerp_(new, 1 - keep) if own.is_floating_point() else own.copy_(new)
        if step % 20 == 0:
            losses.append(float(loss.detach()))
            if passed - told > 25 or told == 0.0:
                told = passed
                print(f"{args.name} {number}: step {step} {passed:.0f} s "
                      f"loss {np.mean(losses):.4f} {measured(mean, batches, device)}",
                      flush=True)  # fmt: skip
                losses.clear()
    return mean, step


def main() -> int:
    """Parse, learn each cycle, write its network."""
    parser = data_and_output(
        __doc__, cycles=([150.0, 300.0], "seconds"), batch=1024,
        start=(Path, "a network to go on from"), name="guide", width=64, rate=0.1, smoothing=0.0,
        least=(0.0, "percent right of the sets kept apart that a guide needs"), marks=0.27,
        variants=0.25, varied=0.5, augmentation="scans", seed=0, device="cuda",
    )  # fmt: skip
    parser.add_argument("--sets", nargs="+", required=True)
    parser.add_argument("--pools", type=Path, required=True)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.backends.cudnn.benchmark = True
    settings = Settings(
        seed=args.seed, batch=args.batch, marks=args.marks, variants=args.variants,
        varied=args.varied, augmentation=augmentation(args.augmentation),
    )  # fmt: skip
    mix, kept = mixes(args)
    device = torch.device(args.device)
    batches = Batches(mix, kept, settings, load_pools(args.pools), device)
    network = Convolutional(LABELS + 1, args.width).to(device)
    if args.start:
        network.load_state_dict(load_file(args.start))
    network = network.to(memory_format=torch.channels_last)
    step, results = 0, []
    for number in range(len(args.cycles)):
        mean, step = cycle(network, batches, args, number, step)
        results.append((step, *measured(mean, batches, device)))
        print(f"{args.name} {number} ends: {results[-1]}", flush=True)
        good = float(np.mean(results[-1][1])) >= args.least
        name = f"{args.name}-{number}" + ("" if good else "-too-weak")
        save_network(mean, args.output / f"{name}.safetensors")
    (args.output / f"{args.name}.json").write_text(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
