"""Counts the functions and files between a picture and its text.

    python -m experiments.house.path PHOTO [--frames FOLDER]

A function counts once, however often it is called; those without a name do not count. ``--frames``
reads a video or a folder of pictures as well, with the pipeline of ``neocog live``.
"""

import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import CO_NEWLOCALS
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, cast

import neocog
from experiments.harness.arguments import arguments

_PACKAGE = Path(neocog.__file__).parent
Files = dict[str, set[str]]


@contextmanager
def counted() -> Iterator[Files]:
    """Count functions of the package that run in any thread; yields names by file, filled in."""
    seen: set[CodeType] = set()
    found: Files = defaultdict(set)

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            seen.add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(cast(Any, None))
        for code in seen:
            path = Path(code.co_filename)
            named = code.co_flags & CO_NEWLOCALS and not code.co_name.startswith("<")
            if named and path.is_relative_to(_PACKAGE):
                found[str(path.relative_to(_PACKAGE))].add(code.co_qualname)


def of_a_photo(path: Path) -> dict[str, Files]:
    """Return what runs before the first picture, and between a picture and its text."""
    from neocog import Reader

    with counted() as before:
        reader = Reader(device="cpu")
        reader.read(path)
    with counted() as between:
        reader.read(path)
    return {"the first picture": before, "from a photo to its text": between}


def of_frames(path: Path) -> dict[str, Files]:
    """Return what runs for some frames: capture, search, recognition, vote, announcement."""
    from neocog import Reader
    from neocog.live.pipeline import Pipeline, Settings
    from neocog.live.sources import open_source

    reader = Reader(device="cpu")
    source = open_source(str(path))
    with counted() as between, Pipeline(source, reader, Settings()) as pipeline:
        for _ in zip(pipeline, range(20), strict=False):
            pass
    return {"from frames to announcements": between}


def main() -> None:
    args = arguments(__doc__, "photo", frames=Path).parse_args()
    counts = of_a_photo(args.photo) | (of_frames(args.frames) if args.frames else {})
    for name, files in counts.items():
        print(f"{name}: {sum(map(len, files.values()))} functions in {len(files)} files")
        for file, functions in sorted(files.items(), key=lambda item: (-len(item[1]), item[0])):
            print(f"  {len(functions):3}  {file}  {', '.join(sorted(functions))}")


if __name__ == "__main__":
    main()
