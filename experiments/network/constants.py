"""Times the CPU engine's layers with other constants of the transform: each is changed alone, in turns.

python -m experiments.network.constants [--rounds N --model MODEL]

Milliseconds of processor time on one core, the least and the median, of whole passes: of a digit alone, of
four, and of strips of one and of eight digits.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.harness.arguments import arguments
from neocog.network import layers, line_engine
from neocog.network.engine import Engine
from neocog.network.line_engine import LineEngine
from neocog.network.lines import load_lines
from neocog.network.model import load_model
from neocog.network.registry import LINES
from neocog.network.u0 import made_digits, u0_from_digits

VALUES = {
    (line_engine, "_TILE"): (10, 12, 14, 16, 20, 24),
    (line_engine, "_MOST_ROWS"): (12, 16, 20, 24, 32),
    (line_engine, "_FEW"): (0.0, 0.5, 0.75, 1.0),
    (line_engine, "_MANY"): (16, 32, 64, 128),
    (line_engine, "_BLOCK"): (2**14, 2**16, 2**18, 2**20),
    (line_engine, "_PLANES"): (2, 8, 32, 64),
    (layers, "_PLANES_AT_ONCE"): (8, 16, 32, 64, 128),
    (layers, "_TOGETHER"): (1, 2, 4, 8),
}


def main() -> None:
    args = arguments(__doc__, rounds=15, model="neocog").parse_args()
    model, lines = load_model(args.model), load_lines(LINES)
    strips = [
        np.concatenate([u0[8:56, 10:54] for u0 in u0_from_digits(made_digits(n))], axis=1) for n in (1, 8)
    ]
    for (module, name), values in VALUES.items():
        usual, ways = getattr(module, name), dict[tuple[float, str], tuple[Callable[[Any], Any], Any]]()
        for value in values:
            setattr(module, name, value)
            digits, reader = Engine(model, threads=1), LineEngine(lines, threads=1)
            for given in (made_digits(n) for n in (1, 4)):
                ways[value, f"digits, {len(given)}"] = digits.recognise, given
            for given in strips:
                ways[value, f"strip of {given.shape[1]} columns"] = reader.likelihoods, [given]
        times: dict[tuple[float, str], list[float]] = {way: [] for way in ways}
        for _ in range(args.rounds + 1):  # the first warms up
            for (value, of), (call, given) in ways.items():
                setattr(module, name, value)
                begin = time.process_time()
                call(given)
                times[value, of].append(1e3 * (time.process_time() - begin))
        setattr(module, name, usual)
        for of in dict.fromkeys(of for _, of in ways):
            found = {value: ms[1:] for (value, other), ms in times.items() if other == of}
            told = (f"{value}: {min(ms):.2f}/{np.median(ms):.2f}" for value, ms in found.items())
            print(f"{name} (now {usual}), {of}:", ", ".join(told), flush=True)


if __name__ == "__main__":
    main()
