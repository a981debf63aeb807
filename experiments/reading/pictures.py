"""Makes the pictures of the folder's README: made pages with what was read drawn over them.

    python -m experiments.reading.pictures docs/reading

The digits are those of scikit-learn (UCI, Alpaydin and Kaynak 1998, CC BY 4.0), 8 x 8 pixels
each, drawn again with a pen.
"""

from pathlib import Path

import numpy as np

from experiments.harness.arguments import arguments
from neocog.learning.formats import read_sklearn
from neocog.learning.made import CONDITIONS, bank_of, make_page
from neocog.reading.reader import Reader
from neocog.vision.overlay import draw_overlay

WIDTH = 480
SEED = 4


def main() -> None:
    folder: Path = arguments(__doc__, "folder").parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    reader, bank = Reader(), bank_of(read_sklearn())
    for number, condition in enumerate(CONDITIONS[:-1]):
        picture, text = make_page(bank, condition, np.random.default_rng([SEED, number]))
        reading = reader.read(picture)
        drawn = draw_overlay(picture, reading.digits).resize((WIDTH, WIDTH))
        drawn.save(folder / f"{condition}.jpg", quality=70, optimize=True)
        print(f"{condition}.jpg: written {text.split()}, read {reading.text.split()}")


if __name__ == "__main__":
    main()
