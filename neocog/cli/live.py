"""``neocog live``: numbers held before a camera are read; ``neocog cameras`` lists the cameras."""

import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Annotated

import typer

from neocog.cli import options
from neocog.cli.options import flag, option
from neocog.errors import NothingToRead, UsageError
from neocog.text import printable, tell, to_json


def live(
    source: Annotated[str, typer.Argument(
        metavar="[SOURCE]",
        help="Camera by number or name, video file, folder of pictures, http or rtsp URL.")] = "0",
    model: options.PageModel = None,
    device: options.Device = "auto",
    precision: options.Precision = None,
    plan: options.Plan = "default",
    agree: Annotated[str, option("K/N", "Show a number if K of the last N frames see it.")] = "3/5",
    roi: Annotated[str | None, option("X,Y,W,H",
        "Read only this part of the frame; in pixels, or as fractions.")] = None,
    pattern: Annotated[str | None, option("PATTERN",
        "Announce only numbers of this form, e.g. '####-##'.")] = None,
    length: Annotated[int | None, option("N", "Announce only numbers with this many digits.", min=1)] = None,
    size: Annotated[str | None, option("WxH",
        "Frame size to ask the camera for [default: 1280x720].")] = None,
    fps: Annotated[float | None, option("N",
        "Frame rate of the camera, or of a folder of pictures.", min=1, max=1000)] = None,
    replay_fps: Annotated[float | None, option("N",
        "Play a file like a camera, at this rate; frames may be dropped.", min=1, max=1000)] = None,
    rotate: Annotated[int, option("0|90|180|270",
        "Turn frames clockwise before they are read and shown.")] = 0,
    mirror: Annotated[bool, flag("Swap left and right, before frames are turned.")] = False,
    headless: Annotated[bool, flag("Open no window.")] = False,
    record: Annotated[str | None, option("FILE",
        "Record the window to a video (mp4, m4v, mov, mkv, avi).")] = None,
    jsonl: Annotated[str | None, option("FILE", "Append a JSON line for each number.")] = None,
    events: Annotated[bool, flag("Print JSON events instead of numbers.")] = False,
    min_p: options.MinP = None,
    finder: options.Finder = None,
    force: options.Force = False,
) -> None:  # fmt: skip
    """Read numbers from a camera, a video or a stream.

    Each new number is printed once. In the window: q quits, h shows the other keys.
    """
    _hush()
    from neocog.live.announce import Rules
    from neocog.live.frame_reader import Roi
    from neocog.live.pipeline import Settings
    from neocog.live.session import Session
    from neocog.live.sources import open_source
    from neocog.live.tracks import Agreement
    from neocog.live.window import Window, display_trouble
    from neocog.reading.policy import Pattern
    from neocog.reading.reader import Reader

    asked = re.fullmatch(r"(\d{1,5})[x,](\d{1,5})", size or "1280x720")
    if not asked:
        raise UsageError(f"size '{size}': expected WIDTHxHEIGHT, for example 1280x720")
    region, agreement = Roi.parse(roi) if roi else None, Agreement.parse(agree)
    expected = None if pattern is None else Pattern(pattern)
    if expected and length and expected.digits != length:
        more = f"does not have {length} digits; leave out --pattern or --length"
        raise UsageError(f"pattern '{pattern}' {more}")
    frames = open_source(source, size=(int(asked[1]), int(asked[2])), fps=fps)
    if not headless and (trouble := display_trouble()):
        tell(f"{trouble}: reading without a window (--headless)")
        headless = True
    surest = max(Rules().min_p, min_p or 0.0)
    settings = Settings(
        agreement=agreement, pattern=expected, length=length,
        rules=Rules(evidence=0.0, min_p=max(0.5, surest)) if pattern or length else Rules(min_p=surest),
        replay_fps=replay_fps, pace=not headless, rotate=rotate, mirror=mirror,
        every_view=headless and not (frames.live or replay_fps),
    )  # fmt: skip
    with _ended_by_signals():
        opened = Reader(model, device=device, precision=precision, plan=plan, min_p=min_p, finder=finder)
        session = Session(
            frames, opened, settings, None if headless else Window,
            roi=region, jsonl=jsonl, video=record, events=events, force=force,
        )  # fmt: skip
        session.run()
    if session.failed:
        raise typer.Exit(1)


def cameras(as_json: options.Json = False) -> None:
    """List cameras, their sizes and rates, and which do not work."""
    _hush()
    from neocog.live.sources import probe

    found = []
    for camera in probe():
        found.append(camera)
        if not as_json:
            works = camera.grants or "gives no picture (used by another program, or no camera)"
            print(f"{camera.number:3d}  {printable(camera.name) or 'camera'}: {works}", flush=True)
    if as_json:
        print(to_json([asdict(camera) for camera in found]))
    if not any(camera.grants for camera in found):
        raise NothingToRead("no working camera found; connect one, or name a video file")


def _hush() -> None:
    """Keep the remarks of OpenCV and FFmpeg off stderr: a line of ours says what matters."""
    os.environ.setdefault("OPENCV_LOG_LEVEL", "SILENT")
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the run as Ctrl-C does; the exit code is 128 and their number."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    ending = {signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}  # Windows has the first alone
    main = threading.current_thread() is threading.main_thread()
    ending = {one for one in ending if main and signal.getsignal(one) == signal.SIG_DFL}
    for one in ending:
        signal.signal(one, end)
    try:
        yield
    except SystemExit as error:
        with suppress(OSError, ValueError):  # with SIGHUP the terminal is gone, and to write to it fails
            tell(f"ended by {signal.Signals(int(error.code or 0) - 128).name}")
        raise
    finally:
        for one in ending:
            signal.signal(one, signal.SIG_DFL)
