"""Does what ``neocog explain`` names carry the answer? Pieces are taken away in four orders.

python -m experiments.accuracy.deletion DATA -o experiments/accuracy/results/deletion.json
    [--model NAME] [--digits N] [--plot docs/look-inside.deletion.svg]

DATA holds `mnist`. Orders: as named; by gradient times response at the layer (pieces made 5 %
weaker, one at a time); by the gradient of the input around the piece's place (2 x 2 pixels made 5 %
fainter); at random. Nothing is chosen here: the digits are evenly spaced ones of the test set.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.harness.arguments import data_and_output
from experiments.harness.record import write_results
from neocog.evaluation.explain import LAYERS, Cells, changed, on_u0, split, taken_away
from neocog.learning.datasets import Digits, open_digits
from neocog.network.engine import Engine
from neocog.network.model import load_model
from neocog.network.u0 import MARGIN, u0_from_digits

ORDERS = ("named", "gradient", "input gradient", "random")
FAINTER = 0.05  # share that is taken off for a gradient
BLOCK = 2  # pixels
SHOWN = (1, 2, 4, 8)
COLUMNS = {"layer": "layer", "digits": "digits", "pieces": "pieces|.0f", "order": "order"}
COLUMNS |= {f"left{k}": f"score left without {k}|.1%" for k in SHOWN}
COLUMNS |= {f"changed{SHOWN[-1]}": f"answer changed without {SHOWN[-1]}|.1%"}

Floats = NDArray[np.float32]


def curve(
    engine: Engine, layer: str, u: Floats, pieces: list[Cells], label: int
) -> tuple[list[float], list[bool]]:
    """Share of the score that is left, and whether the answer is another, after each piece."""
    zero, steps = np.zeros_like(u), [u]
    for cells in pieces[: SHOWN[-1]]:
        steps.append(changed(steps[-1], zero, [cells])[0])
    steps += [steps[-1]] * (SHOWN[-1] + 1 - len(steps))
    scores = engine.scores_from(layer, np.stack(steps))
    left = scores[1:, label] / scores[0, label]
    return left.tolist(), (scores[1:].argmax(axis=1) != label).tolist()


def input_gradient(engine: Engine, digit: NDArray[np.uint8], label: int) -> Floats:
    """What the score loses when ink fades, by blocks of the digit."""
    side = len(digit) // BLOCK
    fainter = np.repeat(u0_from_digits(digit[None]), side * side + 1, axis=0)
    places = np.arange(len(fainter[0]))
    nearest = np.clip((places - MARGIN) // (2 * BLOCK), 0, side - 1)
    block = nearest[:, None] * side + nearest
    for i in range(side * side):
        fainter[i][block == i] *= 1 - FAINTER
    inked = np.append(np.flatnonzero((fainter[:-1] != fainter[-1]).any(axis=(1, 2))), side * side)
    score = engine.maps(fainter[inked])["UC4"][:, label, 0, 0]
    lost = np.zeros(side * side, np.float32)
    lost[inked[:-1]] = score[-1] - score[:-1]
    return lost.reshape(side, side)


def orders(
    engine: Engine, layer: str, u: Floats, label: int, faded: Floats, random: np.random.Generator
) -> dict[str, list[Cells]]:
    """The pieces of a layer's responses in each order."""
    pieces = split(u)
    place = {(cells.plane, int(cells.rows[0]), int(cells.columns[0])): cells for cells in pieces}
    named, _ = taken_away(engine, layer, u, label, count=SHOWN[-1])
    score = engine.scores_from(layer, u[None])[0, label]
    weaker = engine.scores_from(layer, changed(u, u * np.float32(1 - FAINTER), pieces))[:, label]
    spec, side = engine.model.spec, len(faded)
    at = np.array([on_u0(spec, layer, int(c.rows[0]), int(c.columns[0])) for c in pieces])
    wide = np.diff(on_u0(spec, layer, 0, 1))[0]
    middle = MARGIN + 2 * BLOCK * (np.arange(side) + 0.5) - 0.5
    near = np.exp(-0.5 * ((at[:, :, None] - middle) / wide) ** 2)
    around = np.einsum("pr,rc,pc->p", near[:, 0], faded, near[:, 1])
    return {
        "named": [place[p.plane, p.row, p.column] for p in named],
        "gradient": [pieces[i] for i in np.argsort(weaker - score, kind="stable")],
        "input gradient": [pieces[i] for i in np.argsort(-around, kind="stable")],
        "random": [pieces[i] for i in random.permutation(len(pieces))],
    }


def measure(engine: Engine, digits: Digits) -> list[dict[str, Any]]:
    """Return a row for each layer and order: the means of all digits, with the whole curves."""
    random = np.random.default_rng(0)
    found: dict[tuple[str, str], list[tuple[list[float], list[bool], int]]] = {}
    for digit in digits.images:
        maps = engine.maps(u0_from_digits(digit[None]))
        label = int(maps["UC4"][0].argmax())
        faded = input_gradient(engine, digit, label)
        for layer in LAYERS:
            u = maps[layer][0].transpose(1, 2, 0)
            for order, pieces in orders(engine, layer, u, label, faded, random).items():
                curves = (*curve(engine, layer, u, pieces, label), len(split(u)))
                found.setdefault((layer, order), []).append(curves)
    rows = []
    for (layer, order), own in found.items():
        left, moved, pieces = (np.mean(part, axis=0) for part in zip(*own, strict=True))
        row = {"layer": layer, "order": order, "digits": len(own), "pieces": float(pieces)}
        row |= {f"left{k}": float(left[k - 1]) for k in SHOWN}
        row |= {f"changed{k}": float(moved[k - 1]) for k in SHOWN}
        rows.append(row | {"left": left.tolist(), "changed": moved.tolist()})
    return rows


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib
    from matplotlib.figure import Figure

    # the same file from the same numbers
    with matplotlib.rc_context({"svg.hashsalt": path.name, "svg.fonttype": "none"}):
        figure = Figure(figsize=(10, 3.2), layout="tight")
        axes = figure.subplots(1, len(LAYERS), sharey=True)
        for axis, layer in zip(axes, LAYERS, strict=True):
            for row in (row for row in rows if row["layer"] == layer):
                axis.plot(range(SHOWN[-1] + 1), [1, *row["left"]], marker=".", label=row["order"])
            axis.set(title=layer, xlabel="pieces taken away", ylim=(0, 1.02))
            axis.grid(alpha=0.3)
        axes[0].set_ylabel("share of the score left")
        axes[-1].legend(frameon=False)
        figure.savefig(path, metadata={"Date": None})


def main() -> None:
    args = data_and_output(__doc__, model="neocog", digits=500, plot=Path).parse_args()
    engine = Engine(load_model(args.model))
    digits = open_digits(args.data / "mnist", split="test")
    chosen = digits[:: len(digits) // args.digits][: args.digits]
    rows = measure(engine, chosen)
    write_results(args.output, rows, columns=COLUMNS, model=engine.model.id)
    if args.plot:
        plot(rows, args.plot)


if __name__ == "__main__":
    main()
