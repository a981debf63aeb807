"""Makes the shipped model that learns without gradients, and writes its card.

    python -m experiments.learning.models DATA [NAME ...] -o models [--gpu]

DATA holds mnist/, hands/free/ and usps/. Weights are those of the command that the card names; what
the card says of accuracy is measured on the file as it is shipped (``accuracy/cards.py``).
"""

from dataclasses import replace
from pathlib import Path

from experiments.accuracy.cards import write_card
from experiments.harness.arguments import data_and_output
from experiments.learning.ship import LEARNED, LEARNED_FROM, write_sums
from neocog.evaluation.report import find_sets
from neocog.learning.mix import open_mix
from neocog.learning.recipes import RECIPES, train
from neocog.network.arrays import module_of_device
from neocog.network.model import Model

#: name -> digits learned from (drawn from all sets by their weights)
SHIPPED = {"fukushima": 2000}


def make(name: str, data: Path, *, gpu: bool) -> Model:
    """Train one model; its card says from what and how."""
    count, sets = SHIPPED[name], [f"{data / at}:{often:g}" for at, often in LEARNED.items()]
    mix = open_mix(sets, split="learning").first(count)
    model = train(
        RECIPES[name],
        mix.images,
        mix.labels,
        validation=open_mix(sets, split="validation"),
        xp=module_of_device("cuda" if gpu else "cpu"),
    )
    words = " ".join(f"--data {at}:{often:g}" for at, often in LEARNED.items())
    about = {
        "data": LEARNED_FROM,
        "command": f"neocog train {words} --recipe {name} --seed 0 --limit {count} "
        "--precision fp16" + " --device cuda" * gpu,
    }
    return replace(model, card=model.card | about)


def main() -> None:
    """Parse, make, save, measure."""
    parser = data_and_output(__doc__)
    parser.add_argument("names", nargs="*", default=list(SHIPPED))
    parser.add_argument("--gpu", action="store_true")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    sets = find_sets(args.data)
    for name in args.names:
        path = args.output / f"{name}.safetensors"
        make(name, args.data, gpu=args.gpu).save(path, precision="fp16")
        saved = write_card(path, sets, device="cuda" if args.gpu else "cpu")
        print(saved.id, saved.planes, saved.card["accuracy"], flush=True)
    write_sums(args.output)


if __name__ == "__main__":
    main()
