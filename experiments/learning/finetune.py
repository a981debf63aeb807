"""Learns networks by gradient, several at once on one GPU, in slices of a few minutes.

    python -m experiments.learning.finetune DATA -o OUT \
        --jobs 40/160/100:0 40/160/100:1 26/78/70:0 --minutes 8 \
        [--sets mnist:4 hands/swiss:2] [--reject 20] [--augmentation pages]

DATA holds the sets. A job is planes (K2/K3/K4) and a seed, and may name settings of its own and a
model to go on from: ``40/160/100:3:rate=0.03,elastic=2,start=models/neocog.safetensors``. Each
has a folder in OUT with its start, checkpoint, curves and ``model.safetensors``: the best model so
far by validation or, with ``last=1``, the last. Variants and marks lie in OUT as well, a file for
each choice of them. The same command again goes on: with what a kill left, or, where the slice
ended, with another cycle from there; with --cycle 24 one cycle takes several slices, each of which
leaves a model. --minutes is the time of the whole command, starts and last measurement among it.
--starts makes the starts alone (no GPU needed). --test reads the test digits too.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

from experiments.harness.arguments import data_and_output
from neocog.errors import NeocogError, UsageError
from neocog.learning.settings import REJECTING, USUAL, Settings, augmentation

_VARIANTS = 2000  # that are measured with
_RESERVE = 14.0  # seconds at the end for the last measurement and files
_CHANGED = ("geometry", "pages", "none,blur=2")
#: Settings that are options for all jobs as well.
_OPTIONS = ("batch", "rate", "marks", "variants", "pool", "lean", "smoothing", "varied", "guided",
            "precision", "save_every")  # fmt: skip


@dataclass(frozen=True)
class Job:
    """Planes, seed and settings of one run."""

    planes: str
    seed: int
    changes: str = ""

    @classmethod
    def parse(cls, words: str) -> "Job":
        planes, seed, *changes = words.split(":")
        return cls(planes, int(seed), *changes[:1])

    @property
    def name(self) -> str:
        """Name of its folder."""
        return re.sub(r"[^\w.]+", "-", f"{self.planes}-seed{self.seed}-{self.changes}").strip("-")

    def words(self) -> str:
        return f"{self.planes}:{self.seed}" + (f":{self.changes}" if self.changes else "")


def settings_of(job: Job, args: argparse.Namespace) -> Any:
    """Settings from the command, then from the job: fields of Settings, or strengths.

    UsageError if a value is none of that setting, or makes no sense.
    """
    settings = Settings(
        seed=job.seed, minutes=args.cycle or args.minutes, last=args.last, compiled=args.compile,
        **{name: getattr(args, name) for name in _OPTIONS},
    )  # fmt: skip
    how, strengths = args.augmentation, []
    for change in filter(None, job.changes.split(",")):
        key, _, value = change.partition("=")
        if key == "augmentation":
            how = value
        elif key == "start":
            settings = replace(settings, soft_share=0.0)
        elif key in Settings.__slots__:
            settings = replace(settings, **{key: value_of(key, value)})
        else:
            strengths.append(change)
    settings = replace(settings, augmentation=augmentation(",".join([how, *strengths])))
    settings.check()
    return settings


def value_of(name: str, words: str) -> Any:
    """Return a setting's value from words: ``last=0`` is False, ``minutes=none`` None."""
    hint = get_type_hints(Settings)[name]
    kinds = get_args(hint) or (hint,)
    if words == "none" and type(None) in kinds:
        return None
    try:
        return {"0": False, "1": True}[words] if kinds[0] is bool else kinds[0](words)
    except (KeyError, TypeError, ValueError):
        wanted = "0 or 1" if kinds[0] is bool else kinds[0].__name__
        raise UsageError(f"a job's {name}={words}, expected {wanted}") from None


def start_of(job: Job, folder: Path, args: argparse.Namespace) -> Any:
    """Learn the start, or read it where it was learned before.

    UsageError if the one there is of other planes, digits, seed or ``--reject``.
    """
    from neocog.learning.start import check_start, described, recipe_of, start_model
    from neocog.network.model import load_model

    named = re.search(r"(?:^|,)start=([^,]+)", job.changes)
    if named:
        return load_model(named[1])
    path = folder / "start.safetensors"
    mix = mix_of(args, "learning")
    recipe = recipe_of("finetuned", job.planes)
    if (recipe.limits or (0,))[0] < 33:
        recipe = recipe_of("finetuned-small", job.planes)
    given: dict[str, Any] = {"seed": job.seed, "reject": args.reject}
    if path.exists():
        start = load_model(path)
        check_start(path, start, described(recipe, mix.digest, **given))
        return start
    start_model(recipe, mix, **given).save(path)
    return load_model(path)


def mix_of(args: argparse.Namespace, split: str) -> Any:
    """The sets that are learned from, or what of them is kept apart."""
    from neocog.learning.mix import open_mix

    return open_mix([str(args.data / words) for words in args.sets], split=split)


def learn(job: Job, args: argparse.Namespace, begun: float) -> None:
    """One job in this process."""
    from experiments.learning.guide_network import load_guide
    from experiments.learning.pools import load_pools, pools_of
    from neocog.learning.finetune import Finetuner
    from neocog.network.spec import LABELS

    folder = args.output / job.name
    folder.mkdir(parents=True, exist_ok=True)
    start = start_of(job, folder, args)
    mix, kept = (mix_of(args, split) for split in ("learning", "validation"))
    settings = settings_of(job, args)
    if args.pools:
        drawn = load_pools(args.pools)
    else:
        drawn = pools_of(args.output, settings, mix, kept, marks=start.classes > LABELS)
    if args.starts:
        print(f"{job.name}: start {start.id} planes {start.planes}", flush=True)
        return
    told = [0.0]
    guides: list[Path] = []

    def report(figures: dict[str, float]) -> None:
        there = [path for path in args.guide if path.is_file()]
        if settings.guided and there != guides:
            run.guide, guides[:] = load_guide(there, args.device), there
            print(f"{job.name}: guided by {there}", flush=True)
        if time.monotonic() - told[0] > 20:
            told[0] = time.monotonic()
            print(f"{job.name}: {_words(figures)}", flush=True)

    run = Finetuner(start, mix, kept, settings, device=args.device, folder=folder, report=report,
                    pools=drawn, another=True)  # fmt: skip
    if settings.guided and args.guide:
        report({})
    first, ready = run.position.step, time.monotonic()
    end = begun + 60 * args.minutes - _RESERVE
    model = run.run(stop=end) if args.cycle else run.run(end=end)
    pace = (run.position.step - first) / max(time.monotonic() - ready, 1e-9)
    saved = model.save(folder / "model.safetensors")
    result = {
        "model": saved.id,
        "job": job.words(),
        "steps": run.position.step,
        "steps_per_second": round(pace, 1),
        "validation": model.card["validation_accuracy"],
        **{k: v for k, v in run.curves[-1].items() if k in ("passed_marks", "rejected_digits")},
        **measured(model, kept, args),
    }
    (folder / "result.json").write_text(json.dumps(result))
    print(json.dumps(result), flush=True)


def measured(model: Any, kept: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Figures of digits kept apart: of each set, after changes, as scanners hand them over."""
    from neocog.learning.datasets import open_digits
    from neocog.learning.variants import variants

    def read(digits: Any, how: str = "none") -> dict[str, float]:
        return figures(model, digits.images, digits.labels, how, args.device)

    first = kept.hands[0].digits
    seen, labels = variants(_VARIANTS, kept, seed=1)
    found: dict[str, Any] = {
        "sets": {hand.digits.name: read(hand.digits) for hand in kept.hands},
        **{f"validation_{how}": read(first, how) for how in _CHANGED},
        "variants": figures(model, seen, labels, "none", args.device),
    }
    if args.test:
        found["test"] = read(open_digits(args.data / "mnist", split="test"))["right"]
    return found


def figures(model: Any, images: Any, labels: Any, how: str, device: str) -> dict[str, float]:
    """Share read right, share rejected outright, and the loss if a digit must be answered."""
    import torch
    from torch.nn import functional

    from neocog.learning.augment import augment
    from neocog.learning.trainable import Trainable
    from neocog.network.decision import labels_of
    from neocog.network.spec import LABELS

    network = Trainable(model).to(device).eval()
    generator = torch.Generator(device=device).manual_seed(1)
    parts = []
    with torch.no_grad():
        for part in torch.tensor(images, device=device).split(500):
            parts.append(network(augment(part, augmentation(how), generator)).cpu())
    scores = torch.cat(parts)
    found = labels_of(scores.numpy())
    logits = scores[:, :LABELS] / model.temperature
    return {
        "right": round(float((found == labels).mean()), 5),
        "rejected": round(float((scores.argmax(dim=1) >= LABELS).float().mean()), 5),
        "loss": round(float(functional.cross_entropy(logits, torch.tensor(labels))), 5),
    }


def _words(figures: dict[str, float]) -> str:
    return "  ".join(f"{key} {value:.5g}" for key, value in figures.items())


def options() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = data_and_output(__doc__)
    parser.add_argument("--jobs", nargs="+", type=Job.parse, default=[Job("40/160/100", 0)])
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--cycle", type=float, help="minutes of a cycle longer than one slice")
    for name in _OPTIONS:
        usual = getattr(Settings(), name)
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(usual), default=usual)
    parser.add_argument("--reject", type=int, default=REJECTING, help="planes for what is no digit")
    parser.add_argument("--sets", nargs="+", default=["mnist"], metavar="SET[:WEIGHT]")
    parser.add_argument("--guide", type=Path, nargs="+", default=[],
                        help="networks that guide, from when they are there")  # fmt: skip
    parser.add_argument("--pools", type=Path, help="what is shown, drawn by --draw")
    parser.add_argument("--draw", type=Path, metavar="FILE", help="draw pools for all jobs")
    parser.add_argument("--crops", type=Path, nargs=2, metavar=("BANK", "FINDER"),
                        help="draw crops of made pages as well")  # fmt: skip
    parser.add_argument("--legible", type=Path, metavar="GUIDE",
                        help="leave out what this guide cannot read")  # fmt: skip
    parser.add_argument("--pages", type=int, default=12_000)
    parser.add_argument("--last", action="store_true", help="keep the network at the end")
    parser.add_argument("--augmentation", default=USUAL)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--starts", action="store_true")
    parser.add_argument("--test", action="store_true")
    parser.add_argument("--gpus", type=int, default=1, help="over which the jobs are dealt")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="all jobs together")
    parser.add_argument("--begun", type=float, help=argparse.SUPPRESS)
    return parser


def main() -> int:
    """Parse, start a process for each job, wait."""
    begun, parser = time.monotonic(), options()
    args = parser.parse_args()
    try:
        for job in args.jobs:
            settings_of(job, args)
        if args.draw:
            from experiments.learning.pools import draw_pools

            mix, kept = (mix_of(args, split) for split in ("learning", "validation"))
            draw_pools(args, args.jobs[0].seed, mix, kept)
            return 0
        if args.begun is not None:
            learn(args.jobs[0], args, args.begun)
            return 0
    except NeocogError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return error.exit_code
    return _all(args.jobs, begun, args.gpus, args.cores)


def _all(jobs: list[Job], begun: float, gpus: int, cores: int) -> int:
    """Run this command once for each job, all at the same time."""
    others = sys.argv[1:]
    if "--jobs" in others:
        at = others.index("--jobs")
        del others[at : at + 1 + len(jobs)]
    threads = str(max(1, cores // len(jobs)))
    command = [
        sys.executable,
        "-m",
        "experiments.learning.finetune",
        *others,
        "--begun",
        str(begun),
    ]
    running = []
    there = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(gpus)))
    for i, job in enumerate(jobs):
        environment = os.environ | {"OMP_NUM_THREADS": threads}
        if gpus > 1:
            environment["CUDA_VISIBLE_DEVICES"] = there.split(",")[i % gpus]
        running.append(subprocess.Popen([*command, "--jobs", job.words()], env=environment))
    return max(process.wait() for process in running)


if __name__ == "__main__":
    sys.exit(main())
