"""Makes a model file that ships of one that was learned: fp16, named, thresholds set on digits kept apart."""

import hashlib
from dataclasses import replace
from pathlib import Path

from experiments.harness.record import arguments
from neocog.files import atomic_write
from neocog.learning.calibrate import calibrated
from neocog.learning.drawing.hands import THANKS
from neocog.learning.mix import open_mix
from neocog.network.arrays import module_of_device
from neocog.network.model import from_bytes, load_model, to_bytes
from neocog.network.registry import SUFFIX, SUMS

#: Sets that the shipped models learn from, and how often each is shown.
LEARNED = {"mnist": 5.0, "hands/free/pendigits": 2.5, "hands/free/swiss": 2.5,
           "hands/free/bhmsds": 0.6, "hands/free/optdigits": 0.5}  # fmt: skip
#: What their cards say of these, and whom they thank.
LEARNED_FROM = "; ".join(THANKS[Path(name).name].partition(", its")[0] for name in LEARNED) + (
    ". Kept apart for choices and thresholds: the last 5 000 training digits of MNIST, the last fifth of the "
    "others' writers"
)


def write_sums(folder: Path) -> None:
    """Write the digests of a folder's model files, as ``sha256sum *.safetensors`` prints them."""
    with atomic_write(folder / SUMS) as stream:
        for path in sorted(folder.glob(f"*{SUFFIX}")):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            stream.write(f"{digest}  {path.name}\n".encode())


def main() -> None:
    parser = arguments(__doc__, "data", gpu=False)
    parser.add_argument("model", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--command", required=True, help="what makes the model again")
    args = parser.parse_args()
    model = load_model(args.model)
    about = {"data": LEARNED_FROM, "command": args.command}
    named = replace(model, name=args.name, card=model.card | about)
    rounded = from_bytes(to_bytes(named, precision="fp16"), source=args.name)
    kept = open_mix([str(args.data / name) for name in LEARNED], split="validation")
    xp = module_of_device("cuda" if args.gpu else "cpu")
    path = args.output / f"{args.name}.safetensors"
    saved = calibrated(rounded, kept, xp=xp).save(path, precision="fp16")
    write_sums(args.output)
    print(saved.id, saved.planes, saved.temperature)


if __name__ == "__main__":
    main()
