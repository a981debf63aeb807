"""Videos and streams that attack ``neocog live``: damaged files, bombs, servers that misbehave."""

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread

import numpy as np

from experiments.attacks.pictures import bombs, damaged, whole
from experiments.attacks.watch import Outcome, Watch, watched

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

        with _served(send) as address:
            done = watched(["live", address, "--headless", "--model", model], folder,
                           name=name, during=during, limit=_LONGEST)  # fmt: skip
        outcome.add(done, 1)
    return outcome


def _videos(folder: Path, seed: int) -> Iterator[Path]:
    """Write videos of ten frames, whole but for their names, and damaged."""
    import cv2

    random = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "whole.avi")
        writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 25, (320, 240))
        for _ in range(10):
            writer.write(random.integers(0, 255, (240, 320, 3), np.uint8))
        writer.release()
        data = path.read_bytes()
    for name in ("2026-11-22T12:30:05.avi", "http:127.0.0.1:9", "concat:a|b.avi", "-i.avi"):
        (folder / name).write_bytes(data)
        yield folder / name
    for number in range(8):
        changed = bytearray(data)
        if number % 2:
            del changed[random.integers(len(data)) :]
        for place_of in random.integers(0, min(300, len(changed)), 6):
            changed[place_of] ^= 1 << random.integers(8)
        (folder / f"damaged{number}.avi").write_bytes(changed)
        yield folder / f"damaged{number}.avi"


def _part(data: bytes) -> bytes:
    return b"--b\r\nContent-Type: image/jpeg\r\n\r\n" + data + b"\r\n"


def _servers() -> dict[str, list[bytes]]:
    """Return what each server sends, piece by piece, the last piece again and again."""
    bad = [_part(data) for name, data in bombs() if name.endswith("jpg")]
    return {
        "opens and cuts": [b""],
        "garbage": [np.random.default_rng(0).bytes(2**20)],
        "endless 100 Continue": [b"HTTP/1.1 100 Continue\r\n\r\n" * 1000],
        "endless header": [b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 10_000],
        "parts without an end": [_HEAD, b"--b\r\n\r\n" + b"\xff\xd8" * 2**19],
        "bombs": [_HEAD, *bad],
        "pictures": [_HEAD, *[_part(whole("JPEG"))] * 50],
    }


@contextmanager
def _served(pieces: list[bytes]) -> Iterator[str]:
    """Serve pieces on this machine, the last one again and again for as long as anyone listens."""

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            self.connection.settimeout(2.0)
            end = time.monotonic() + _WATCHED + 2
            try:
                self.request.recv(4096)
                for piece in pieces:
                    self.wfile.write(piece)
                while pieces[-1] and time.monotonic() < end:
                    self.wfile.write(pieces[-1])
            except OSError:
                return

    class Server(ThreadingTCPServer):
        allow_reuse_address = daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
