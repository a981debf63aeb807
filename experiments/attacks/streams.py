"""Videos and streams that attack ``neocog live``: damaged files, bombs, servers that misbehave."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, cycle, repeat
from pathlib import Path

import numpy as np

from experiments.attacks.pictures import bombs, changed, damaged, whole
from experiments.attacks.watch import Outcome, Watch, watched
from tests.live_support import RawServer, save_video

_WATCHED = 4.0  # seconds for which a server is listened to
_LONGEST = 20.0  # seconds that a file may take
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=b\r\n\r\n"


def live(folder: Path, model: str, *, seed: int = 0) -> Outcome:
    """Read damaged videos, folders of bombs, and streams, each by a command of its own."""
    outcome = Outcome("videos and streams")
    pictures = folder / "pictures"
    pictures.mkdir()
    for name, data in (*damaged(24, seed=seed), *bombs()):
        (pictures / name).write_bytes(data)
    sources = [pictures, *_videos(folder, seed)]
    for source in sources:
        several = len(os.listdir(source)) if source.is_dir() else 1
        done = watched(["live", str(source), "--headless", "--model", model], folder,
                       name=source.name, limit=_LONGEST + 2.0 * several)  # fmt: skip
        outcome.add(done, several)
    for name, send in _servers().items():
        stop = [time.monotonic() + _WATCHED]

        def during(watch: Watch, stop: list[float] = stop) -> None:
            if stop and time.monotonic() > stop[0]:  # as Ctrl-C does, once
                os.kill(watch.process.pid, signal.SIGINT)
                stop.clear()

        server = RawServer(send)
        done = watched(["live", server.address, "--headless", "--model", model], folder,
                       name=name, during=during, limit=_LONGEST)  # fmt: skip
        server.close()
        outcome.add(done)
    return outcome


def _videos(folder: Path, seed: int) -> Iterator[Path]:
    """Write videos of ten frames, whole but for their names, and damaged."""
    random, path = np.random.default_rng(seed), folder / "whole.avi"
    save_video(path, random.integers(0, 255, (10, 240, 320, 3), np.uint8))
    data = path.read_bytes()
    for name in ("2026-11-22T12:30:05.avi", "http:127.0.0.1:9", "concat:a|b.avi", "-i.avi"):
        (folder / name).write_bytes(data)
        yield folder / name
    for number in range(8):
        cut = bool(number % 2)
        (folder / f"damaged{number}.avi").write_bytes(changed(data, random, flips=6, reach=300, cut=cut))
        yield folder / f"damaged{number}.avi"


def _part(data: bytes) -> bytes:
    return b"--b\r\nContent-Type: image/jpeg\r\n\r\n" + data + b"\r\n"


def _servers() -> dict[str, Callable[[bytes], Iterable[bytes]]]:
    """Return what each server answers to a request."""
    bad = [_part(data) for name, data in bombs() if name.endswith("jpg")]
    return {
        "opens and cuts": lambda _: [],
        "garbage": lambda _: repeat(np.random.default_rng(0).bytes(2**20)),
        "endless header": lambda _: chain([b"HTTP/1.1 200 OK\r\n"], repeat(b"X: y\r\n" * 10_000)),
        "parts without an end": lambda _: chain([_HEAD, b"--b\r\n\r\n"], repeat(b"\xff\xd8" * 2**19)),
        "bombs": lambda _: chain([_HEAD], cycle(bad)),
        "pictures": lambda _: chain([_HEAD], repeat(_part(whole("JPEG")))),
    }
