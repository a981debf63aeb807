"""Draws every made page, document and clip that a figure rests on, by the code of one commit: see README.md.

Each set becomes a folder of OUT; frozen.json says how many files it has and their digest.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from experiments.harness.record import arguments
from neocog.errors import InputError, NeocogError, UsageError
from neocog.network.parallel import cores

COMMIT = "d840c1a"
KNOWN = Path(__file__).with_name("frozen.json")
FONTS: dict[str, str] = json.loads(KNOWN.read_text())["fonts"]  #: Debian's packages, and files of each
DEFAULT = Path(__file__).parents[2] / "frozen"
NEEDS = ("mnist", "photos", "hands/measure/crohme", "hands/free/pendigits")
_CLIPS = ("blank-640x480", "photos-1280x720", "photos-640x480", "scattered-640x480",
          "strings-1280x720", "strings-640x480", "thin-640x480")  # fmt: skip
_ABOUT = "import csv, json, sys\nfrom pathlib import Path\nimport numpy as np\nfrom PIL import Image\n"
_PAGES = """
from experiments.reading.sets import Task, sample, tasks
name, out, data = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
kinds = ("plain", "squared", "fifty_small", "stained", "desk_edge")
wanted = [Task("conditions", kind, 0) for kind in kinds] if name == "timed" else tasks(data, [name], 8)
for task in wanted:
    one = sample(task, data)
    file = f"{one.name}.png".replace(" ", "_")
    Image.fromarray(np.asarray(one.picture)).save(out / file)
    rows.append((file, task.kind, one.text, "" if one.marks is None else json.dumps(one.marks.tolist())))
"""
_DOCUMENTS = """
from experiments.documents.measure import documents
for number, (kind, one) in enumerate(documents(Path(sys.argv[3]), sys.argv[1] == "documents_develop")):
    file = f"{number:02d}_{kind}.{dict(note='heic', receipt='jpg').get(kind, 'pdf')}"
    Path(sys.argv[2], file).write_bytes(one.data)
    rows.append((file, kind, json.dumps(one.rows), ""))
"""
_TABLE = """
with open(Path(sys.argv[2], "labels.csv"), "w", newline="") as stream:
    csv.writer(stream).writerows([("file", "kind", "text", "marks"), *rows])
"""
_DEMO = """
from experiments.live.demo import film
film(Path(sys.argv[3], "hands/free/pendigits/strokes.npz"), Path(sys.argv[2]), 11)
"""
_LIVE = f"""
from experiments.live import measure
sys.argv = ["measure", "make", sys.argv[3], sys.argv[2], "--only", *{_CLIPS!r}]
measure.main()
"""
SETS = {"clips": _LIVE, "demo": _DEMO}
SETS |= dict.fromkeys(("documents", "documents_develop"), f"rows = []{_DOCUMENTS}{_TABLE}")
SETS |= dict.fromkeys(
    "timed conditions blank forms amounts turned letters".split(), f"rows = []{_PAGES}{_TABLE}"
)
"""What `COMMIT` runs to draw each set, the slowest first; its words are the set, OUT and DATA."""


def content(file: Path) -> bytes:
    """The pixels of a PNG file, the bytes of others."""
    if file.suffix != ".png":
        return file.read_bytes()
    with Image.open(file) as picture:
        return f"{picture.size} {picture.mode}".encode() + np.asarray(picture).tobytes()


def told(folder: Path) -> dict[str, Any]:
    """Number of files of a set, and the digest of their names and contents."""
    digest, files = hashlib.sha256(), sorted(folder.glob("*"))
    for file in files:
        digest.update(f"{file.name}\0{hashlib.sha256(content(file)).hexdigest()}\n".encode())
    return {"count": len(files), "sha256": digest.hexdigest()}


def fonts(folder: Path) -> None:
    """Put the installed fonts into a folder; InputError names the package of one that is missing."""
    files = {file.stem: file for file in Path("/usr/share/fonts").rglob("*.[to]tf")}
    for package, names in FONTS.items():
        for name in names.split():
            if name not in files:
                raise InputError(f"the set letters needs the font {name}: apt-get install {package}")
            (folder / files[name].name).symlink_to(files[name])


def draw(name: str, out: Path, data: Path, code: Path, known: dict[str, Any] | None) -> dict[str, Any]:
    """Draw a set with the code in a folder, unless it is there and right; return what `told` says."""
    folder, part = out / name, out / f"{name}.part"
    if folder.is_dir() and (known is None or told(folder) == known):
        return told(folder)
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    command = [sys.executable, "-c", _ABOUT + SETS[name], name, str(part), str(data)]
    done = subprocess.run(command, cwd=code, capture_output=True, text=True, errors="replace")
    found = told(part)
    if done.returncode or found["count"] < 2:  # labels.csv alone
        why = (done.stderr.strip() or "nothing was drawn").splitlines()[-1]
        raise NeocogError(f"the set {name} is not drawn: {why}")
    if known is not None and found != known:
        came, wanted = (f"{one['count']} files with digest {one['sha256'][:12]}" for one in (found, known))
        why = f"other versions of NumPy, OpenCV, Pillow? ({part})"
        raise NeocogError(f"the set {name} has {came}, expected {wanted}: {why}")
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)
    print(f"{name}: {found['count']} files", flush=True)
    return found


def freeze(out: Path, data: Path) -> None:
    """Draw all sets that are not there; NeocogError tells what is missing or comes out otherwise."""
    known = json.loads(KNOWN.read_text())["sets"]
    if all((out / name).is_dir() and told(out / name) == known[name] for name in SETS):
        return
    if missing := [folder for folder in NEEDS if not (data / folder).is_dir()]:
        raise InputError(f"{data} has no folder {missing[0]}: give --data DATA or set NEOCOG_DATA")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        code, both = Path(temporary, "code"), Path(temporary, "data")
        (both / "fonts").mkdir(parents=True)
        code.mkdir()
        fonts(both / "fonts")
        for each in data.resolve().iterdir():
            (both / each.name).symlink_to(each)
        archive = subprocess.run(["git", "archive", COMMIT], cwd=KNOWN.parent.parents[1], capture_output=True)
        if archive.returncode:
            raise UsageError(f"commit {COMMIT} is not in this clone: git fetch --unshallow")
        subprocess.run(["tar", "-x", "-C", code], input=archive.stdout, check=True)
        with ThreadPoolExecutor(cores()) as pool:
            one = partial(draw, out=out, data=both, code=code)
            list(pool.map(lambda name: one(name, known=known[name]), SETS))


def main() -> None:
    parser = arguments(__doc__, output=False, data=Path(os.environ.get("NEOCOG_DATA", "data")))
    parser.add_argument("out", type=Path, nargs="?", default=DEFAULT)
    args = parser.parse_args()
    try:
        freeze(args.out.resolve(), args.data)
    except NeocogError as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()
