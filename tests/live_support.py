"""Frames with numbers on them, sources that fail on purpose, and an MJPEG server."""

import socketserver
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import log
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.live.sources import Source
from neocog.live.tracks import Vote
from neocog.network.ctc import BLANK
from neocog.reading.records import DigitReading
from tests.support import STROKES

Frame = NDArray[np.uint8]

MODEL = "neocog-small"  # quicker than lines
APP = str(Path(__file__).resolve().parent.parent / "app.py")
LIVE = (sys.executable, APP, "live", "--model", MODEL, "--device", "cpu")  # a program of its own


def picture(text: str, *, size: tuple[int, int] = (320, 240), at: int = 30, tall: int = 48) -> Frame:
    """A frame (H, W, 3) with a handwritten number on grey paper; without digits for ""."""
    width, height = size
    out = np.full((height, width, 3), 215, np.uint8)
    for number, char in enumerate(text):
        corner = np.array((at + number * round(0.85 * tall), height // 2 - tall // 2))
        for stroke in STROKES[char]:
            points = np.round(16 * (corner + stroke * tall / 100)).astype(np.int32)
            cv2.polylines(out, [points], False, (45, 45, 45), 4, cv2.LINE_AA, 4)
    grain = np.random.default_rng(7).normal(0, 1.5, (height, width, 1))
    return np.clip(out + grain, 0, 255).astype(np.uint8)


def clip(*parts: tuple[str, int], size: tuple[int, int] = (320, 240)) -> list[Frame]:
    """Frames of numbers, each shown for so many frames, moving a little."""
    frames = []
    for text, count in parts:
        frames += [picture(text, size=size, at=30 + n % 5) for n in range(count)]
    return frames


def vote(
    text: str, *, x: int = 0, y: int = 0, p: float = 0.995, place: float = 0, tall: int = 40, **more: float
) -> Vote:
    """What a frame says of a line, its characters 30 columns apart; ``more`` texts: n12_3=0.1 for 12/3.

    There is a digit at each place with the probability ``place``, the text's if none is given.
    """
    boxes = [(x + 30 * n, y, 24, tall) for n in range(len(text))]
    pairs = zip(text, boxes, strict=True)
    chars = tuple(DigitReading(char, p, 0.5, box, place=place or p) for char, box in pairs)
    texts = {other.strip("n").replace("_", "/"): log(value) for other, value in more.items()}
    return Vote(chars, np.full((2 * len(text), BLANK + 1), -9.0, np.float32), {text: log(p)} | texts)


class Scripted(Source):
    """A live source that gives frames and raises errors in a given order."""

    name, fps, live = "<script>", 25.0, True

    def __init__(self, steps: Sequence[Any], *, pause: float = 0.0) -> None:
        self._steps, self._pause = list(steps), pause
        self.opened = 0

    def open(self) -> str:
        self.opened += 1
        if self._steps and self._steps[0] is None:
            self._steps.pop(0)
            raise self._steps.pop(0)
        return "script"

    def read(self) -> Frame | None:
        time.sleep(self._pause)
        step, self.arrived = self._steps.pop(0) if self._steps else None, time.perf_counter()
        if isinstance(step, Exception):
            raise step
        return step

    def close(self) -> None:
        pass


class RawServer(socketserver.ThreadingTCPServer):
    """A server on the loopback that sends to whoever connects what ``send`` gives, as it likes."""

    allow_reuse_address = daemon_threads = True
    block_on_close = asked = ended = False

    def __init__(
        self, send: Callable[[bytes], Iterable[bytes]], tls: ssl.SSLContext | None = None, port: int = 0
    ) -> None:
        super().__init__(("127.0.0.1", port), socketserver.BaseRequestHandler)
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.send, self.port = send, self.server_address[1]
        self.address = f"http://127.0.0.1:{self.port}/stream"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def finish_request(self, request: Any, client_address: Any) -> None:
        self.asked = True
        request.settimeout(10)
        with suppress(OSError):
            for data in self.send(request.recv(2**16)):
                if self.ended:
                    return
                request.sendall(data)

    def close(self) -> None:
        self.ended = True
        self.shutdown()
        self.server_close()


def save_video(path: Any, frames: Sequence[Frame]) -> None:
    video = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 25.0, frames[0].shape[1::-1])
    for frame in frames:
        video.write(frame)
    video.release()


def frames_in(path: Any) -> int:
    video = cv2.VideoCapture(str(path))
    return sum(iter(video.grab, False))
