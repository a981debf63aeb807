"""Videos and streams of strangers: read, refused in one line, or lost; all within bounds."""

import base64
import os
import re
import shlex
import shutil
import signal
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, suppress
from itertools import chain, cycle, repeat
from pathlib import Path

import cv2
import numpy as np
import pytest

from neocog.errors import InputError
from neocog.live.pipeline import Pipeline
from neocog.live.sources import FolderSource, SourceLost, open_source
from neocog.live.video import MEMORY, Stream, VideoFile
from neocog.reading.reader import Reader
from tests.live_support import LIVE, MODEL, RawServer, clip, picture, save_video
from tests.support import children_of, until

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=frame\r\n\r\n"
Send = Callable[[bytes], Iterable[bytes]]


def jpeg(text: str = "471", size: tuple[int, int] = (320, 240)) -> bytes:
    return cv2.imencode(".jpg", picture(text, size=size))[1].tobytes()


JPEG = jpeg()


def part(data: bytes, *, kind: bytes = b"Content-Type: image/jpeg\r\n", told: bool = True) -> bytes:
    length = b"Content-Length: %d\r\n" % len(data) * told
    return b"--frame\r\n" + kind + length + b"\r\n" + data + b"\r\n"


def paced(parts: Iterable[bytes], pause: float = 0.02) -> Iterator[bytes]:
    for one in parts:
        yield one
        time.sleep(pause)


def stream(*parts: bytes) -> Send:
    """Such parts over and over."""
    return lambda request: chain([HEAD], paced(cycle(parts)))


def unless(known: bytes, answer: bytes) -> Send:
    """Pictures if this is in the request, else an answer that leads there."""
    return lambda request: stream(part(JPEG))(request) if known in request else [answer]


GOOD = {
    "no lengths": stream(part(JPEG, told=False)),
    "redirected": unless(b"/there", b"HTTP/1.1 302 F\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n"),
    "authenticated": unless(
        base64.b64encode(b"me:my secret"), b"HTTP/1.1 401 U\r\nWWW-Authenticate: Basic realm=x\r\n"
        b"Content-Length: 0\r\nConnection: close\r\n\r\n"),
    "no types": stream(part(JPEG, kind=b"")),
    "other types": stream(part(JPEG, kind=b"Content-Type: image/jpg\r\n")),
    "broken ones": stream(part(JPEG), part(b"broken")),
    "of two sizes": stream(*[part(JPEG)] * 9, *[part(jpeg(size=(400, 300)))] * 9),
}  # fmt: skip


@pytest.fixture
def served() -> Iterator[Callable[..., RawServer]]:
    with ExitStack() as servers:
        yield lambda send, *more: servers.enter_context(closing(RawServer(send, *more)))


@pytest.mark.parametrize("form", GOOD)
def test_streams_of_all_forms_are_read(served, form):
    address = served(GOOD[form]).address.replace("//", "//me:my%20secret@")
    two = form == "of two sizes"
    with closing(Stream(address)) as source:
        assert source.open() == "320x240, MJPEG over HTTP"
        shapes = {source.read().shape for _ in range(30 if two else 3)}
    assert shapes == ({(240, 320, 3), (300, 400, 3)} if two else {(240, 320, 3)})


def bytewise(data: bytes) -> Iterator[bytes]:
    return paced((bytes([byte]) for byte in data), 0.2)


def after(*more: Iterable[bytes]) -> Send:
    """Pictures enough to open it, then what is no picture."""
    return lambda request: chain([HEAD, *[part(JPEG)] * 3], *more)


GARBAGE = np.random.default_rng(0).bytes(2**20)


def large_jpeg(side: int = 30000) -> bytes:
    """A JPEG that its header says to be so large."""
    start = JPEG.index(b"\xff\xc0") + 5
    return JPEG[:start] + struct.pack(">HH", side, side) + JPEG[start + 4 :]


BEGINNING = b"--frame\r\nContent-Type: image/jpeg\r\n"
LOST: dict[str, Send] = {
    "endless continue": lambda _: repeat(b"HTTP/1.1 100 Continue\r\n\r\n" * 9),
    "endless headers": lambda _: repeat(b"X-A: %b\r\n" % (b"a" * 999)),
    "endless header": lambda _: repeat(b"a" * 2**16),
    "endless redirects": lambda _: [b"HTTP/1.1 302 F\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"],
    "to a file": lambda _: [b"HTTP/1.1 302 F\r\nLocation: file:///etc/passwd\r\n\r\n"],
    "a byte now and then": lambda _: bytewise(HEAD + part(JPEG)),
    "a byte of a picture": after(bytewise(part(JPEG))),
    "silence": after(paced([b"", b""], 3)),
    "garbage": lambda _: chain([HEAD], repeat(GARBAGE, 200)),
    "garbage later": after(repeat(GARBAGE, 200)),
    "no end": after([BEGINNING + b"\r\n"], repeat(b"\n--fram" * 9999)),
    "boundaries": after(repeat(b"--frame\r\n" * 999)),
    "empty": after(repeat(part(b"") * 99)),
    "broken": after(paced(repeat(part(b"\xff\xd8broken\xff\xd9")))),
    "a length": after([BEGINNING + b"Content-Length: 2147483000\r\n\r\n"], repeat(b"x" * 2**20)),
    "large": after(paced(repeat(part(large_jpeg())))),
    "large at once": stream(part(large_jpeg())),
    "cut": lambda _: [],
    "cut later": after(),
    "no stream": lambda _: [b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html></html>"],
    "escapes": lambda _: [b"HTTP/1.1 404 \x1b[31m\xc2\x9b\r\nContent-Length: 0\r\n\r\n"],
}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("attack", LOST)
def test_what_is_no_stream_is_lost_soon_and_takes_little(served, attack):
    source = Stream(served(LOST[attack]).address, silence=0.3)
    start, memory = time.monotonic(), [0]
    with pytest.raises(InputError) as told:  # SourceLost is one  # noqa: PT012
        source.open()
        while True:
            with suppress(OSError):  # it has ended
                status = Path(f"/proc/{source._decoder.pid}/status").read_text()
                memory += map(int, re.findall(r"VmHWM:\s*(\d+)", status))  # none of a zombie
            source.read()
    source.close()
    assert time.monotonic() - start < 10
    assert 1024 * max(memory) < MEMORY
    assert str(told.value).isprintable()
    assert attack != "silence" or "broke off (no data arrived in time)" in str(told.value)


def test_a_server_killed_and_started_again_is_read_on_within_three_seconds(served):
    notices, texts, server = list[str](), list[str](), served(stream(part(JPEG)))
    source, reader = Stream(server.address), Reader(MODEL, device="cpu")
    with Pipeline(source, reader, tell=lambda state, text: notices.append(state)) as pipeline:
        next(view for view in pipeline if view.news)
        server.close()
        until(lambda: "lost" in notices, 5)
        served(stream(part(jpeg("2086"))), None, server.port)
        started = time.perf_counter()
        for view in pipeline:
            if view.frame.epoch > 0:
                texts += ["".join(digit.char for digit in row) for row in view.seen.rows]
            if [news.text for news in view.news] == ["2086"]:
                break
    assert time.perf_counter() - started < 3
    assert notices == ["open", "lost", "back"]
    assert set(texts) == {"2086"}, "no old frame is read after the restart"


def test_a_run_ends_at_once_though_its_stream_is_silent(served):
    source = Stream(served(after(bytewise(part(JPEG)))).address, silence=30)
    with Pipeline(source, Reader(MODEL, device="cpu")) as pipeline:
        until(lambda: source._decoder)
        time.sleep(1.0)
        start = time.monotonic()
        pipeline.stop()
        assert time.monotonic() - start < 1.5
    assert "neocog-capture" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a pipe")
def test_a_decoder_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FFmpeg waits for ever for somebody to write into a pipe."""
    os.mkfifo(tmp_path / "a.avi")
    monkeypatch.setattr("neocog.live.video._LONGEST", 0.1)
    start = time.monotonic()
    with pytest.raises(InputError, match="its decoder ended"):
        VideoFile(tmp_path / "a.avi").open()
    assert time.monotonic() - start < 10
    save_video(tmp_path / "b.avi", clip(("1", 5)))
    with closing(VideoFile(tmp_path / "b.avi")) as source:
        for _ in range(2):
            source.open()
            assert source.read() is not None
            source.interrupt()
            with pytest.raises(SourceLost, match="its decoder ended"):
                source.read()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_a_server_that_nobody_vouches_for_gets_no_request(served, tmp_path, monkeypatch):
    key, paper = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", paper,
         "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(paper, key)
    address = f"https://localhost:{served(stream(part(JPEG)), context).port}/"
    with pytest.raises(InputError, match="not a stream"):
        Stream(address).open()
    monkeypatch.setenv("SSL_CERT_FILE", str(paper))
    with closing(Stream(address)) as source:
        assert source.open() == "320x240, MJPEG over HTTP"


@pytest.mark.parametrize(
    "name", ["2026-11-22T12:30:05.mp4", "http:127.0.0.1:8097", "concat:a|b", "a%03d.avi", "-"]
)
def test_a_file_is_a_file_whatever_its_name(tmp_path, monkeypatch, name):
    save_video(tmp_path / "a.avi", clip(("1", 3)))
    (tmp_path / "a.avi").rename(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    source = open_source(name)
    assert (source.open(), source.live) == ("320x240, 25 frames a second", False)
    assert [source.read().shape for _ in range(3)] == [(240, 320, 3)] * 3
    assert source.read() is None


@pytest.mark.parametrize("name", ["list.m3u8", "list.avi", "list.ffconcat", "list.mpd"])
def test_a_list_opens_neither_network_nor_files(tmp_path, served, name):
    save_video(tmp_path / "a.avi", clip(("1", 3)))
    server = served(stream(part(JPEG)))
    hls = "#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\n{}\n#EXT-X-ENDLIST\n"
    for target in ("a.avi", server.address):
        text = f"ffconcat version 1.0\nfile {target}\n" if "concat" in name else hls
        if name.endswith(".mpd"):
            text = f"<MPD><Period><AdaptationSet><BaseURL>{target}</BaseURL></AdaptationSet>"
        (tmp_path / name).write_text(text.format(target))
        with pytest.raises(InputError, match="not a video that neocog can decode"):
            open_source(tmp_path / name).open()
    assert not server.asked


def test_large_frames_and_pictures_are_refused_by_their_header(tmp_path: Path) -> None:
    save_video(tmp_path / "a.avi", [np.zeros((5000, 8000, 3), np.uint8)])
    with pytest.raises(InputError, match="8000 x 5000 pixels, at most 33,554,432"):
        open_source(tmp_path / "a.avi").open()
    (tmp_path / "a.jpg").write_bytes(large_jpeg(6000))
    source = FolderSource(tmp_path)
    source.open()
    with pytest.raises(InputError, match="pixels"):
        source.read()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("number", "stopped"),
    [(signal.SIGTERM, True), (getattr(signal, "SIGHUP", None), False), (signal.SIGINT, True)],
)
def test_signals_end_a_run_with_a_recording_that_can_be_played(served, tmp_path, number, stopped):
    """Also where its decoder hangs."""
    if signal.getsignal(number) == signal.SIG_IGN:
        pytest.skip("the signal is ignored here, as below nohup")
    words = [served(stream(part(JPEG))).address, "--headless", "--record", "a.mp4", "--jsonl", "a.jsonl"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*LIVE, *words], cwd=tmp_path, **pipes) as process:
        late = threading.Timer(60, process.kill)  # a test that fails does not wait for ever
        late.start()
        assert process.stdout.readline() == "471\n"
        late.cancel()
        started = children_of(process.pid)
        assert started
        for one in started if stopped else ():
            os.kill(one, signal.SIGSTOP)
        process.send_signal(number)
        start = time.monotonic()
        assert process.wait(20) == (130 if number == signal.SIGINT else 128 + number)
        assert time.monotonic() - start < 6
        told = process.stderr.read()
    assert ("Traceback" in told, told.count("\n")) == (False, 2)
    assert not any(Path(f"/proc/{one}").exists() for one in started)
    assert cv2.VideoCapture(str(tmp_path / "a.mp4")).grab()
    assert '"text":"471"' in (tmp_path / "a.jsonl").read_text()


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
@pytest.mark.parametrize(
    ("how", "code", "said"), [("<&- >&- 2>&-", 6, ""), ("<&- 2>&- | head -1", 0, "471\n")]
)
def test_closed_descriptors_and_a_reader_that_has_enough_are_no_trouble(tmp_path, how, code, said):
    save_video(tmp_path / "a.avi", clip(("471", 14), ("", 4), ("2086", 14)))
    script = f"set -o pipefail; {shlex.join(LIVE)} a.avi --headless --jsonl a.jsonl --record b.avi {how}"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (code, said, "")
    assert '"text":"471"' in (tmp_path / "a.jsonl").read_text()
    assert cv2.VideoCapture(str(tmp_path / "b.avi")).grab()
