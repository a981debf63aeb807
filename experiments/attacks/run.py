"""Attacks the commands with made files, names, surroundings and signals, and counts what held.

    python -m experiments.attacks.run [-o RESULT] [--seed 0] [--kinds KIND ...]

Everything is made from the seed; nothing real is needed. What must hold of every run is told in
``watch.py``, what is promised in docs/security.md. Exit code 1 if anything did not
hold.
"""

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from experiments.attacks import archives as attack_archives
from experiments.attacks import models as attack_models
from experiments.attacks import pictures as attack_pictures
from experiments.attacks import server as attack_server
from experiments.attacks import streams as attack_streams
from experiments.attacks.pictures import Case, changed
from experiments.attacks.surroundings import SURROUNDINGS, reading
from experiments.attacks.watch import Outcome, one_record_each, watched
from experiments.harness.arguments import arguments
from experiments.harness.record import write_results
from tests.support import tiny_model

RESULTS = Path(__file__).resolve().parent / "results" / "attacks.json"
COLUMNS = {"kind": "what was tried", "tried": "attacks", "held": "held",
           "peak_mb": "largest process, MB", "seconds": "seconds"}  # fmt: skip
Attack = Callable[[Path, str], Outcome]


def written(folder: Path, cases: Iterable[Case]) -> list[str]:
    folder.mkdir()
    paths = []
    for name, data in cases:
        (folder / name).write_bytes(data)
        paths.append(str(folder / name))
    return paths


def files(folder: Path, model: str, *, kind: str, cases: Iterable[Case], limit: float,
          apart: bool = False) -> Outcome:  # fmt: skip
    """Pictures or archives, read by one command; or ``apart``, by a command each."""
    outcome, paths = Outcome(kind), written(folder / "files", cases)
    for own in [[path] for path in paths] if apart else [paths]:
        name = Path(own[0]).name if apart else ""
        done = watched(reading(model, *own), folder, name=name, limit=limit)
        outcome.add(done, len(own), one_record_each(own, done.out))
    return outcome


def verified(folder: Path, model: str, *, kind: str, cases: Iterable[Case], limit: float = 60.0) -> Outcome:
    """Model files, verified by one command: one line for each."""
    outcome, paths = Outcome(kind), written(folder / "models", cases)
    done = watched(["models", "verify", *paths], folder, name="verify", limit=limit)
    lines = done.out.splitlines()
    told = [line for line in lines if line.startswith(("ok ", "broken "))]
    broken = [] if len(told) == len(lines) == len(paths) else ["not one line for each file"]
    outcome.add(done, len(paths), broken)
    return outcome


def models(folder: Path, model: str, *, count: int, seed: int) -> Outcome:
    """Model files, verified by one command; shipped files with a bit flipped."""
    cases = [*attack_models.damaged(count, seed=seed), *attack_models.hostile()]
    outcome, whole = verified(folder, model, kind="model files", cases=cases), Path(model).read_bytes()
    random = np.random.default_rng(seed)
    cases = [(f"{n}.safetensors", changed(whole, random, flips=1, reach=len(whole))) for n in range(count)]
    flipped = written(folder / "shipped", cases)
    sums = [f"{hashlib.sha256(whole).hexdigest()}  {Path(path).name}\n" for path in flipped]
    (folder / "shipped" / "SHA256SUMS").write_text("".join(sums))
    done = watched(["models", "verify", *flipped], folder, name="bits")
    missed = count - done.out.count("the shipped file was changed")
    outcome.add(done, count, [f"{missed} flipped bits were not seen"] if missed else [])
    return outcome


def attacks(seed: int = 0, *, quick: bool = False) -> dict[str, Attack]:
    """Every kind of attack; ``quick``: those, and as many, as take a few seconds."""
    found: dict[str, Attack] = {
        "pictures": partial(files, kind="damaged pictures", limit=60.0,
                            cases=attack_pictures.damaged(105 if quick else 420, seed=seed)),
        "archives": partial(files, kind="damaged archives", limit=60.0,
                            cases=attack_archives.damaged(60, seed=seed)),
        "models": partial(models, count=50, seed=seed),
    }  # fmt: skip
    if quick:
        return found
    return found | {
        "finders": partial(verified, kind="crafted finders", limit=300.0,
                           cases=attack_models.finders(100, seed=seed)),
        "shapes": partial(verified, kind="crafted models", limit=300.0,
                          cases=attack_models.shapes(100, seed=seed)),
        "picture-bombs": partial(files, kind="picture bombs", limit=120.0,
                                 cases=chain(attack_pictures.bombs(), attack_pictures.large_bombs())),
        "archive-bombs": partial(files, kind="archives made to do harm", limit=120.0, apart=True,
                                 cases=attack_archives.hostile()),
        **SURROUNDINGS,
        "live": partial(attack_streams.live, seed=seed),
        "server": attack_server.server,
    }  # fmt: skip


def run(name: str, attack: Attack, model: str) -> Outcome:
    with tempfile.TemporaryDirectory(prefix=f"attack-{name}-") as folder:
        return attack(Path(folder), model)


def main() -> int:
    parser = arguments(__doc__, output=RESULTS, seed=0)
    parser.add_argument("--kinds", nargs="+", choices=list(attacks()), help="only these; rows of others stay")
    args = parser.parse_args()
    rows = []
    if args.kinds and args.output.exists():
        rows = json.loads(args.output.read_text())["rows"]
    with tempfile.TemporaryDirectory() as place:
        model = str(Path(place, "tiny.safetensors"))
        tiny_model().save(model)
        for name, attack in attacks(args.seed).items():
            if args.kinds and name not in args.kinds:
                continue
            outcome = run(name, attack, model)
            for line in outcome.broken:
                print(f"{name}: {line}", flush=True)
            rows = [row for row in rows if row["kind"] != outcome.kind] + [outcome.row()]
            write_results(args.output, rows, columns=COLUMNS)
            print(name, outcome.row(), flush=True)
    return 1 if any(row["broken"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
