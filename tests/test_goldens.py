"""Golden answers: what the program says of fixed digits, pictures, seeds and calls.

    python -m tests.test_goldens COMMIT [NAME ...]    # records them anew, for a reason that the commit says

On the processor and with the libraries that `golden/NAME.json` names, floats and digests are equal to the
bit. `golden/pages` and `golden/digits.npz` are drawn from pen paths of pendigits (thanked in data/README.md).
"""

import hashlib
import json
import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import PIL
import pytest
import typer

from neocog import Reader
from neocog.cli import app
from neocog.learning.drawing.bank import drawn_lines
from neocog.learning.drawing.hands import load_hands
from neocog.learning.drawing.marks import KINDS, negatives, variants
from neocog.learning.drawing.page import draw_page, faces_of
from neocog.learning.mix import Mix
from neocog.network.registry import FINDER, find_model
from neocog.vision.crops import cut_out
from neocog.vision.decode import decode
from neocog.vision.finder import LONG_SIDE, find
from neocog.vision.finder_model import OpenCV, load_finder
from tests.support import run, write_hands

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests/golden"
SAMPLES = ["docs/photo.jpg", *(f"data/samples/{name}" for name in (
    "dates.jpg", "meter.jpg", "note.jpg", "phone.jpg", "postcode.png", "tilted.jpg"))]  # fmt: skip
PICTURES = [*SAMPLES, *sorted(str(path.relative_to(ROOT)) for path in (FOLDER / "pages").iterdir())]
CALLS = """
read | read none.png | read empty | read broken.png | read good.png none.png | read good.png --format xyz
read good.png --json --format csv | read good.png --rotate 45 | read good.png --shard 3/2
read good.png --min-p 2 | read good.png --max-error 0 | read good.png --model none | read good.png --batch 0
read good.png --model broken.safetensors | read good.png --finder broken.safetensors | read @none.txt
read good.png --device cuda:99 | read good.png --device xpu | read good.png --resume | read broken.zip
read good.png -o none/out.csv | read good.png --isolated --pattern ## | read good.png --pattern abc
live none.mp4 --headless | live broken.png --headless | serve --port 99999 | eval none
train --data none -o a.safetensors | timing --batch 0 | explain none.png | export none -o a.onnx
data make-pages out --conditions none | models none | none | read good.png --none
"""


def digest(*arrays: Any) -> str:
    data = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
    return hashlib.sha256(data).hexdigest()[:24]


def machine() -> str:
    """The processor and the versions that the bits depend on."""
    known = Path("/proc/cpuinfo").read_text() if os.path.exists("/proc/cpuinfo") else ""
    names = [*re.findall(r"model name\s*: (.*)", known), platform.processor()]
    return f"{names[0]}, NumPy {np.__version__}, OpenCV {cv2.__version__}, Pillow {PIL.__version__}"


def fixed_digits() -> tuple[np.ndarray, np.ndarray]:
    with np.load(FOLDER / "digits.npz") as known:
        return known["digits"], known["labels"].astype(np.int64)


def answers() -> Any:
    """Of each model for the fixed digits: labels, probabilities, margins."""
    found = {}
    for name in ("neocog", "neocog-small", "fukushima"):
        told = Reader(name, device="cpu").engine.recognise(fixed_digits()[0])
        labels = "".join(map(str, told.label))
        found[name] = {"labels": labels, "p": told.p.tolist(), "margin": told.margin.tolist()}
    return found


def records() -> Any:
    """What a model of lines reads of each picture, and one of digits."""
    found: dict[str, Any] = {}
    for reader in (Reader(device="cpu"), Reader("neocog", device="cpu")):
        for name in PICTURES:
            page = reader.read(ROOT / name)
            told = {"text": page.text, "about": f"turned by {page.turn}, size {page.size}"}
            for kind, marks in (("digits", page.digits), ("signs", page.signs)):
                told[kind] = [[mark.char, mark.p, list(mark.box)] for mark in marks]
            found[f"{reader.kind} {name}"] = told
    return found


def crops() -> Any:
    """Digests of the digits that the finder sees in each picture, cut out."""
    finder, found = OpenCV(load_finder(find_model(FINDER))), {}
    for name in PICTURES:
        grey = next(decode(ROOT / name, long_side=LONG_SIDE)).grey
        marks = find(grey, finder)
        found[name] = digest(cut_out(grey, marks[marks.kinds < 10].boxes))
    return found


def commands() -> Any:
    """The names of the options of each command."""

    def walk(command: Any, name: str) -> Iterator[tuple[str, list[str]]]:
        yield name, sorted(word for option in command.params for word in option.opts)
        for word, inner in getattr(command, "commands", {}).items():
            yield from walk(inner, f"{name} {word}")

    return dict(walk(typer.main.get_command(app), "neocog"))


def errors() -> Any:
    """Of bad calls: the exit code and how many lines stderr has."""
    for name in ("broken.png", "broken.safetensors", "broken.zip"):
        Path(name).write_bytes(b"PK\3\4 no" if name.endswith("zip") else b"no")
    Path("empty").mkdir()
    Path("good.png").write_bytes((ROOT / "data/samples/postcode.png").read_bytes())
    calls = re.split(r" \| |\n", CALLS.strip())
    done = {call: run(*call.split()) for call in calls}
    return {call: [f"exit {r.exit_code}", f"{len(r.stderr.splitlines())} lines"] for call, r in done.items()}


def outputs() -> Any:
    """Of the samples, one picture for ALTO, which has no place for more."""
    os.chdir(ROOT)
    words = ("read", "--workers", "0", "--device", "cpu", "-q", "--format")
    forms = ("text", "csv", "tsv", "hocr", "alto", "jsonl")
    return {form: run(*words, form, *SAMPLES[: 1 if form == "alto" else None]).stdout for form in forms}


def drawn() -> Any:
    """Digests of what the generators draw, by seed."""
    digits, labels = fixed_digits()
    hands, mix = load_hands(write_hands(Path("hands"))), Mix.of(digits, labels)
    found: dict[str, list[str]] = {"pages": [], "lines": [], "marks": [], "variants": []}
    for seed in range(8):
        page = draw_page(hands, faces_of(), seed, side=128)
        found["pages"].append(digest(page.image, page.marks))
        found["lines"].append(digest(*(line for line, _ in drawn_lines(hands, 4, seed=seed))))
        found["marks"].append(digest(*negatives(len(KINDS), digits, labels, seed=seed)[:2]))
        found["variants"].append(digest(*variants(20, mix, seed=seed)))
    return found


def finetuned() -> Any:
    """Losses of 50 steps of the digit network's training."""
    torch = pytest.importorskip("torch", reason="needs PyTorch: neocog[train]")
    from neocog.learning.finetune import Finetuner
    from neocog.learning.recipes import recipe_of, start_model
    from neocog.learning.settings import PRESETS, Settings

    torch.set_num_threads(1)
    digits, labels = fixed_digits()
    learned, kept = (Mix.of(digits[part], labels[part])
                     for part in (np.arange(200) % 5 < 4, np.arange(200) % 5 == 4))  # fmt: skip
    settings = Settings(epochs=50 / 8, batch=20, rate=0.03, pool=40, marks=0.2, mean=0.9,
                        augmentation=PRESETS["strokes"])  # fmt: skip
    start = start_model(recipe_of("finetuned", "5/9/20"), learned, reject=2, count=100)
    trainer = Finetuner(start, learned, kept, settings)
    trainer.run()
    return [[row["loss"], row["validation_loss"]] for row in trainer.curves]


def finder_trained() -> Any:
    """Losses of 50 steps of the finder's training."""
    torch = pytest.importorskip("torch", reason="needs PyTorch: neocog[train]")
    from neocog.learning.finder.training import FinderTraining, train_finder

    torch.set_num_threads(1)
    settings = FinderTraining(chunk=20, chunks=5, passes=2, batch=4, side=64, validation=4, seed=3)
    train_finder(write_hands(Path("hands")), Path("run"), settings, workers=1, tell=lambda _: None)
    rows = json.loads(Path("run/curves.json").read_text())
    return [row["loss"] for row in rows if "loss" in row]


def announced() -> Any:
    """What is announced of the first 15 seconds of each frozen clip, every frame read."""
    from neocog.live.pipeline import Pipeline
    from neocog.live.sources import open_source

    clips = sorted(Path(os.environ.get("NEOCOG_FROZEN", ROOT / "frozen"), "clips").glob("*-*.avi"))
    if not clips:
        pytest.skip("needs python -m experiments.reading.freeze; NEOCOG_FROZEN names its folder")
    reader, found = Reader("neocog-small", device="cpu"), {}
    for clip in clips:
        found[clip.stem] = list[str]()
        with Pipeline(open_source(clip), reader) as views:
            for view in views:
                found[clip.stem] += [one.text for one in view.news]
                if view.frame.index >= 450:
                    break
    return found


def leaves(value: Any, place: str = "") -> dict[str, Any]:
    """Numbers and words of a value, by their places in it."""
    if not isinstance(value, dict | list | tuple):
        return {place: value}
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    return {k: v for key, one in inner for k, v in leaves(one, f"{place}/{key}").items()}


#: Tolerance of floats on the machine that recorded and elsewhere (None: not compared), that of whole numbers.
GOLDENS: dict[Callable[[], Any], tuple[float, float | None, int]] = {
    answers: (0, 1e-5, 0), records: (1e-6, 1e-4, 1), crops: (0, None, 0), commands: (0, 0, 0),
    errors: (0, 0, 0), outputs: (0, None, 0), drawn: (0, None, 0), finetuned: (1e-4, 1e-2, 0),
    finder_trained: (1e-4, 1e-2, 0), announced: (0, None, 0),
}  # fmt: skip
SLOW = {one: [pytest.mark.slow] for one in (finetuned, finder_trained)}
SLOW[announced] = [pytest.mark.slow, pytest.mark.data]


@pytest.mark.parametrize(
    "find", [pytest.param(one, marks=SLOW.get(one, []), id=one.__name__) for one in GOLDENS]
)
def test_goldens(find: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    here, elsewhere, ints = GOLDENS[find]
    known = json.loads((FOLDER / f"{find.__name__}.json").read_text())
    floats = here if known["machine"] == machine() else elsewhere
    if floats is None:
        pytest.skip(f"to the bit: recorded on {known['machine']}")
    near = {int: ints, float: floats}
    assert leaves(find()) == {
        place: pytest.approx(value, rel=0, abs=near[type(value)]) if type(value) in near else value
        for place, value in leaves(known["value"]).items()
    }


if __name__ == "__main__":
    for one in GOLDENS:
        if one.__name__ in sys.argv[2:] or not sys.argv[2:]:
            with tempfile.TemporaryDirectory() as folder, chdir(folder):
                found = one()
            told = {"commit": sys.argv[1], "machine": machine(), "value": found}
            text = json.dumps(told, ensure_ascii=False)
            for key in found if isinstance(found, dict) else ():  # a line each
                text = text.replace(f'"{key}": ', f'\n"{key}": ', 1)
            (FOLDER / f"{one.__name__}.json").write_text(text + "\n", encoding="utf-8")
