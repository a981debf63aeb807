"""Makes the pictures of the folder's README: made pages with what was read drawn over them.

    python -m experiments.reading.pictures docs/reading

The digits are those of scikit-learn (UCI, Alpaydin and Kaynak 1998, CC BY 4.0), 8 x 8 pixels
each, drawn again with a pen.
"""

from pathlib import Path

import numpy as np

from experiments.harness.arguments import arguments
from neocog.learning.formats import read_sklearn
from neocog.learning.pages.page import make_page
from neocog.reading.reader import Reader
from neocog.vision.decode import to_grey
from neocog.vision.overlay import draw_overlay

WIDTH = 640
SEED = 3
# Condition and number of each page.
PAGES = (
    ("hand_shadow", 1), ("white_on_black", 0), ("phone_shadow", 0), ("drawn_box", 2),
    ("one_digit", 0), ("squared", 0), ("thin_pencil", 1), ("text_nearby", 0), ("desk_edge", 2),
    ("desk_edge", 0),
)  # fmt: skip


def main() -> None:
    folder: Path = arguments(__doc__, "folder").parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    reader, digits = Reader(), read_sklearn()
    for condition, number in PAGES:
        rng = np.random.default_rng([SEED, number, *condition.encode()])
        picture, text = make_page(condition, digits.images, digits.labels, rng)
        reading = reader.read(to_grey(picture))
        drawn = draw_overlay(picture, reading.digits)
        drawn = drawn.resize((WIDTH, WIDTH * drawn.height // drawn.width))
        drawn.save(folder / f"{condition}-{number}.jpg", quality=70, optimize=True)
        print(f"{condition}-{number}.jpg: written {text.split()}, read {reading.text.split()}")


if __name__ == "__main__":
    main()
