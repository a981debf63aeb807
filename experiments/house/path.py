"""Counts the functions and files between a picture and its text, or frames and announcements."""

import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from inspect import CO_NEWLOCALS
from itertools import islice
from pathlib import Path
from typing import Any

import neocog
from experiments.harness.record import arguments
from neocog.live.pipeline import Pipeline, Settings
from neocog.live.sources import open_source

_PACKAGE = Path(neocog.__file__).parent


def count(what: str, work: Callable[[], object]) -> None:
    """Print how many functions of the package some work calls, in any thread, and which by file."""
    seen: set[Any] = set()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            seen.add(frame.f_code)

    both: tuple[Any, ...] = (threading.setprofile, sys.setprofile)
    try:
        for profile in both:
            profile(note)
        work()
    finally:
        for profile in both[::-1]:
            profile(None)
    files = defaultdict[str, set[str]](set)
    for code in seen:
        path = Path(code.co_filename)
        if code.co_flags & CO_NEWLOCALS and code.co_name[0] != "<" and path.is_relative_to(_PACKAGE):
            files[str(path.relative_to(_PACKAGE))].add(code.co_qualname)
    print(f"{what}: {sum(map(len, files.values()))} functions in {len(files)} files")
    for file, functions in sorted(files.items(), key=lambda item: (-len(item[1]), item[0])):
        print(f"  {len(functions):3}  {file}  {', '.join(sorted(functions))}")


if __name__ == "__main__":
    args, reader = (
        arguments(__doc__, "photo", output=False, frames=str).parse_args(),
        neocog.Reader(device="cpu"),
    )

    def frames() -> None:
        with Pipeline(open_source(args.frames), reader, Settings()) as pipeline:
            list(islice(pipeline, 20))

    reader.read(args.photo)
    count("from a photo to its text", lambda: reader.read(args.photo))
    if args.frames:
        count("from frames to announcements", frames)
