"""Pages of handwriting: planned, written digit by digit, photographed; a folder of them.

A condition (`neocog.learning.pages.conditions`) changes the plan; everything that is left to
chance comes from one generator of random numbers, so that a seed gives the same page again.
"""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.errors import UsageError
from neocog.files import atomic_write
from neocog.learning.datasets import fetched_mnist, open_digits
from neocog.learning.formats import Digits, read_sklearn
from neocog.learning.pages.pen import write_digit

Colour = tuple[float, float, float]
Image = NDArray[np.float32]
Rng = np.random.Generator


def blurred(image: Any, sigma: float) -> Image:
    return np.asarray(cv2.GaussianBlur(image, (0, 0), sigma), np.float32)


def enlarged(coarse: NDArray[Any], shape: tuple[int, ...]) -> Image:
    """Return a coarse map at (H, W)."""
    large = cv2.resize(coarse.astype(np.float32), shape[1::-1], interpolation=cv2.INTER_CUBIC)
    return np.asarray(large, np.float32)


def places(shape: tuple[int, ...], step: int = 1) -> tuple[Image, Image]:
    """Return row and column of every pixel, or of every ``step``-th."""
    rows, columns = np.mgrid[0 : shape[0] : step, 0 : shape[1] : step].astype(np.float32)
    return rows, columns


def overlap(cover: Image, image: Image, x: int, y: int) -> tuple[Image, Image]:
    """A cover at column x, row y, cut at the image's edge, and the part of the image below it."""
    x0, y0 = max(x, 0), max(y, 0)
    place = image[y0 : max(y + cover.shape[0], 0), x0 : max(x + cover.shape[1], 0)]
    return cover[y0 - y :, x0 - x :][: place.shape[0], : place.shape[1]], place


def through_jpeg(picture: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    """Return what is left of a picture, grey or in colours, after JPEG."""
    _, file = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])
    return np.asarray(cv2.imdecode(file, cv2.IMREAD_UNCHANGED), np.uint8)


def any_colour(rng: Rng, low: float, high: float) -> Colour:
    """Return a colour whose three levels lie between two bounds."""
    red, green, blue = rng.uniform(low, high, 3).tolist()
    return red, green, blue


@dataclass
class Plan:
    """How one page is made; a condition changes what it needs to."""

    rng: Rng
    height: int = 960
    width: int = 1280
    paper: Colour = (236, 234, 228)
    ink: Colour = (40, 40, 48)
    pen: tuple[float, float] | None = (0.05, 0.11)
    size: tuple[float, float] = (50, 100)
    lines: tuple[int, int] = (1, 4)
    per_line: tuple[int, int] = (3, 8)
    slope: float = 0.03
    noise: float = 2.0
    blur: float = 0.7
    quality: int = 90
    shade: float = 0.2
    behind: list[Callable[["Canvas"], None]] = field(default_factory=list)
    over: list[Callable[["Canvas"], None]] = field(default_factory=list)
    lens: list[Callable[[Image, Rng], Image]] = field(default_factory=list)


@dataclass
class Canvas:
    """A page while it is written: colour, where the writing stands (boxes), and what it says."""

    image: Image
    plan: Plan
    taken: list[tuple[int, int, int, int]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng, self.size = self.plan.rng, self.image.shape[:2]  # height and width

    def lay(self, cover: Image, x: int, y: int, colour: tuple[float, ...], strength: float = 1.0) -> None:
        """Lay ink over the page at column x, row y, cut at the page's edge."""
        part, place = overlap(cover, self.image, x, y)
        place += (np.array(colour, np.float32) - place) * (part[:, :, None] * strength)


def write_lines(canvas: Canvas, digits: NDArray[np.uint8], labels: NDArray[np.integer]) -> None:
    """Write lines of digits over the whole page, each line with its own slope and size."""
    plan, rng = canvas.plan, canvas.rng
    high, wide = canvas.size
    tall = rng.uniform(*plan.size)
    pen = None if plan.pen is None else rng.uniform(*plan.pen)
    slope = rng.uniform(-plan.slope, plan.slope)
    count = int(rng.integers(plan.lines[0], plan.lines[1] + 1))
    margin = min(0.7 * tall, max(0.04 * high, (high - 1.2 * tall) / 2))
    room = high - 2 * margin - abs(slope) * wide - tall
    count = max(1, min(count, int(room / (1.6 * tall)) + 1))
    step = min(room / max(count - 1, 1), tall * rng.uniform(1.7, 2.6))
    top = margin + max(-slope, 0) * wide + rng.uniform(0, max(room - step * (count - 1), 1))
    for line in range(count):
        text, x = "", margin + rng.uniform(0, 0.15 * wide)
        for _ in range(int(rng.integers(plan.per_line[0], plan.per_line[1] + 1))):
            pick = int(rng.integers(len(digits)))
            cover = write_digit(digits[pick], tall * rng.uniform(0.88, 1.12), pen)
            if text and x + cover.shape[1] > wide - margin:
                break
            y = top + line * step + slope * x + (tall - cover.shape[0]) / 2
            y += rng.normal(0, 0.04) * tall
            canvas.lay(cover, int(x), int(y), plan.ink, rng.uniform(0.88, 1.0))
            canvas.taken.append((int(x), int(y), cover.shape[1], cover.shape[0]))
            text += str(labels[pick])
            x += cover.shape[1] + tall * rng.uniform(0.28, 0.7)
        canvas.lines.append(text)


def make_page(
    condition: str, digits: NDArray[np.uint8], labels: NDArray[np.integer], rng: Rng
) -> tuple[NDArray[np.uint8], str]:
    """Make a page under a condition, a key of `neocog.learning.pages.conditions.CONDITIONS`. ``digits`` (N,
    28, 28) with their labels write it. Returns the photograph (H, W, 3) uint8, RGB, and what is written,
    lines joined by newlines; empty for a page without digits.
    """
    from neocog.learning.pages.conditions import CONDITIONS

    plan = Plan(rng)
    tone = rng.uniform(0.75, 1.0)
    red, green, blue = plan.paper
    plan.paper = (red * tone, green * tone, blue * tone)
    CONDITIONS[condition](plan)
    paper = np.empty((plan.height, plan.width, 3), np.float32)
    paper[:] = plan.paper
    canvas = Canvas(paper, plan)
    for draw in plan.behind:
        draw(canvas)
    if plan.lines[1]:
        write_lines(canvas, digits, labels)
    for draw in plan.over:
        draw(canvas)
    return _photograph(canvas), "\n".join(canvas.lines)


def _photograph(canvas: Canvas) -> NDArray[np.uint8]:
    plan, rng = canvas.plan, canvas.rng
    image = canvas.image * (1 + rng.normal(0, 0.006, canvas.size)[:, :, None])
    rows, columns = places(canvas.size, 8)  # light falls off smoothly across the page
    angle = rng.uniform(0, 2 * np.pi)
    along = np.cos(angle) * columns / canvas.size[1] + np.sin(angle) * rows / canvas.size[0]
    along = (along - along.min()) / np.ptp(along)
    light = 1 - rng.uniform(0.3, 1) * plan.shade * along ** rng.uniform(0.8, 2)
    shaded = cv2.resize(light, canvas.size[::-1], interpolation=cv2.INTER_LINEAR)
    image = image * np.asarray(shaded, np.float32)[:, :, None]
    taken: Image = image.astype(np.float32)
    for change in plan.lens:
        taken = change(taken, rng)
    noise = rng.normal(0, plan.noise, canvas.size)[:, :, None]
    grainy = blurred(taken, plan.blur) + noise + rng.normal(0, plan.noise * 0.5, image.shape)
    return through_jpeg(np.clip(grainy, 0, 255).astype(np.uint8), plan.quality)


def pen_digits(place: str | Path | None, tell: Callable[[str], None]) -> Digits:
    """Open the digits that pages are written with; None and "mnist" stand for MNIST as it was fetched.

    Of MNIST the last 5 000 training digits are taken, which no shipped model learned from; without it
    scikit-learn's digits, and ``tell`` is told. InputError if the set cannot be read; UsageError if there is
    none.
    """
    if place is not None and (str(place) == "sklearn" or Path(place).exists()):
        is_mnist = Path(place).is_dir() and any(Path(place).glob("train-images*"))
        return open_digits(place, split="validation" if is_mnist else None)
    if place in (None, "mnist") and fetched_mnist() is not None:
        return open_digits("mnist", split="validation")
    tell(f"{place or 'MNIST'} is not there: the pages are written with scikit-learn's 8x8 digits")
    return read_sklearn()


def known_conditions(names: Sequence[str]) -> list[str]:
    """Check the names of conditions (UsageError); without any, all of them that carry digits."""
    from neocog.learning.pages.conditions import CONDITIONS, WITHOUT_DIGITS

    for name in names:
        if name not in CONDITIONS:
            raise UsageError(f"condition '{name}' is unknown: choose from {', '.join(CONDITIONS)}")
    return list(names) or [name for name in CONDITIONS if name not in WITHOUT_DIGITS]


def write_pages(folder: Path, digits: Digits, *, conditions: Sequence[str], count: int, seed: int) -> int:
    """Write ``count`` pages, conditions in turn, as PNG files with ``labels.csv`` into a folder; return how
    many.

    The same seed gives the same pages. OSError if the folder cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rounds = range(-(-count // len(conditions)))
    rows = [["file", "text", "digits", "condition"]]
    for number, condition in islice(product(rounds, conditions), count):
        rng = np.random.default_rng([seed, number, *condition.encode()])
        picture, text = make_page(condition, digits.images, digits.labels, rng)
        name = f"{condition}_{number:03d}.png"
        _, file = cv2.imencode(".png", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))
        with atomic_write(folder / name) as stream:
            stream.write(file.tobytes())
        rows.append([name, text.replace("\n", "|"), text.replace("\n", ""), condition])
    table = io.StringIO(newline="")
    csv.writer(table).writerows(rows)
    with atomic_write(folder / "labels.csv") as stream:
        stream.write(table.getvalue().encode())
    return len(rows) - 1
