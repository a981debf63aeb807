"""Counts the functions and files between a picture and its text.

    python -m experiments.house.path PHOTO [--frames FOLDER]

A function counts once, however often it is called; those without a name do not count. ``--frames``
reads a video or a folder of pictures as well, with the pipeline of ``neocog live``.
"""

import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from inspect import CO_NEWLOCALS
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, cast

import neocog
from experiments.harness.arguments import arguments

_PACKAGE = Path(neocog.__file__).parent


def count(what: str, work: Callable[[], object]) -> None:
    """Print how many functions of the package some work calls, in any thread, and which by file."""
    seen: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            seen.add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(cast(Any, None))
    files: dict[str, set[str]] = defaultdict(set)
    for code in seen:
        path = Path(code.co_filename)
        named = code.co_flags & CO_NEWLOCALS and not code.co_name.startswith("<")
        if named and path.is_relative_to(_PACKAGE):
            files[str(path.relative_to(_PACKAGE))].add(code.co_qualname)
    print(f"{what}: {sum(map(len, files.values()))} functions in {len(files)} files")
    for file, functions in sorted(files.items(), key=lambda item: (-len(item[1]), item[0])):
        print(f"  {len(functions):3}  {file}  {', '.join(sorted(functions))}")


def main() -> None:
    args = arguments(__doc__, "photo", frames=Path).parse_args()
    reader = neocog.Reader(device="cpu")
    reader.read(args.photo)
    count("from a photo to its text", lambda: reader.read(args.photo))
    if args.frames:
        from neocog.live.pipeline import Pipeline, Settings
        from neocog.live.sources import open_source

        source = open_source(str(args.frames))

        def frames() -> None:
            with Pipeline(source, reader, Settings()) as pipeline:
                list(islice(pipeline, 20))

        count("from frames to announcements", frames)


if __name__ == "__main__":
    main()
