"""Fetching goes on where it broke off, keeps only whole files, and says what failed."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from neocog.errors import InputError, UsageError
from neocog.learning import fetch as fetching
from neocog.learning.fetch import RemoteFile, default_folder, fetch

BYTES = np.random.default_rng(3).bytes(300_000)
NAME = "digits.gz"


class Mirror(ThreadingHTTPServer):
    """Serves `BYTES`; may know no ranges, break off, or send something else."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.ranges = True
        self.break_after: int | None = None  # bytes of each answer
        self.body = BYTES
        self.status = 200
        self.asked: list[str | None] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/set/"


class _Handler(BaseHTTPRequestHandler):
    server: Mirror

    def do_GET(self) -> None:
        mirror = self.server
        asked = self.headers.get("Range")
        mirror.asked.append(asked)
        if mirror.status != 200 or self.path != f"/set/{NAME}":
            self.send_error(mirror.status if mirror.status != 200 else 404)
            return
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and mirror.ranges else 0
        body = mirror.body[start:]
        self.send_response(206 if start else 200)
        if start:
            whole = len(mirror.body)
            self.send_header("Content-Range", f"bytes {start}-{whole - 1}/{whole}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: mirror.break_after])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    server = Mirror()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def small_set(monkeypatch: pytest.MonkeyPatch) -> None:
    file = RemoteFile(NAME, len(BYTES), hashlib.md5(BYTES).hexdigest())
    monkeypatch.setitem(fetching.SETS, "tiny", (file,))
    monkeypatch.setattr(fetching, "TIMEOUT", 5.0)


def test_a_file_comes_whole_and_is_left_alone_after(tmp_path: Path, mirror: Mirror) -> None:
    steps: list[int] = []
    to = tmp_path / "new" / "folder"
    for _ in range(2):
        place = fetch(
            "tiny", to=to, mirrors=[mirror.address], progress=lambda _, here, __: steps.append(here)
        )
    assert place == to
    assert (to / NAME).read_bytes() == BYTES
    assert [path.name for path in to.iterdir()] == [NAME]
    assert steps == sorted(steps)
    assert len(mirror.asked) == 1


def test_a_broken_transfer_goes_on_by_range(tmp_path: Path, mirror: Mirror) -> None:
    mirror.break_after = 120_000
    fetch("tiny", to=tmp_path, mirrors=[mirror.address])
    assert (tmp_path / NAME).read_bytes() == BYTES
    assert mirror.asked == [None, "bytes=120000-", "bytes=240000-"]


@pytest.mark.parametrize(
    ("left", "ranges", "asked"),
    [
        (BYTES[:1000], True, ["bytes=1000-"]),
        (BYTES[:1000], False, ["bytes=1000-"]),  # the server sends the whole file
        (b"?" * 1000, True, ["bytes=1000-", None]),  # what lay there was wrong
        (b"?" * len(BYTES), True, [None]),
        (b"?" * (len(BYTES) + 50), True, [None]),
    ],
)
def test_a_part_of_an_earlier_run_is_used_or_thrown_away(
    tmp_path: Path, mirror: Mirror, left: bytes, ranges: bool, asked: list[str | None]
) -> None:
    mirror.ranges = ranges
    (tmp_path / f"{NAME}.part").write_bytes(left)
    fetch("tiny", to=tmp_path, mirrors=[mirror.address])
    assert (tmp_path / NAME).read_bytes() == BYTES
    assert mirror.asked == asked


def test_a_damaged_file_is_fetched_again_from_the_next_mirror(tmp_path: Path, mirror: Mirror) -> None:
    (tmp_path / NAME).write_bytes(b"?" * len(BYTES))
    fetch("tiny", to=tmp_path, mirrors=["http://127.0.0.1:9/", mirror.address])
    assert (tmp_path / NAME).read_bytes() == BYTES


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (404, BYTES, "answered 404"),
        (503, BYTES, "answered 503"),
        (200, b"<html>log in</html>", "broke off"),
        (200, bytes(len(BYTES)), "wrong length or checksum"),
        (200, BYTES + b"more", "wrong length or checksum"),
    ],
)
def test_no_mirror_has_it(tmp_path: Path, mirror: Mirror, status: int, body: bytes, said: str) -> None:
    mirror.status, mirror.body = status, body
    with pytest.raises(InputError, match=said) as caught:
        fetch("tiny", to=tmp_path, mirrors=[mirror.address])
    assert "--from DIR" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / NAME).exists()


def test_a_failure_leaves_no_folder(tmp_path: Path, mirror: Mirror) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="--from needs"):
        fetch("tiny", to=tmp_path / "to", source=tmp_path / "empty")
    mirror.status = 503
    with pytest.raises(InputError, match="answered 503"):
        fetch("tiny", to=tmp_path / "to", mirrors=["http://127.0.0.1:9/", mirror.address])
    assert not (tmp_path / "to").exists()


def test_from_a_folder(tmp_path: Path) -> None:
    source, to = tmp_path / "usb", tmp_path / "to"
    source.mkdir()
    with pytest.raises(InputError, match="does not exist; --from needs"):
        fetch("tiny", to=to, source=source)
    (source / NAME).write_bytes(BYTES[:-1])
    with pytest.raises(InputError, match="not the expected file"):
        fetch("tiny", to=to, source=source)
    (source / NAME).write_bytes(BYTES)
    fetch("tiny", to=to, source=source)
    assert (to / NAME).read_bytes() == BYTES


def test_what_cannot_be_fetched(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / NAME).write_bytes(BYTES)
    with pytest.raises(InputError, match="choose another --to"):
        fetch("tiny", to=tmp_path / "file" / "folder", source=tmp_path)
    with pytest.raises(UsageError, match="choose one of mnist"):
        fetch("emnist", to=tmp_path)


def test_the_place_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEOCOG_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert default_folder("mnist") == Path("/c/neocog/mnist")
    monkeypatch.setenv("NEOCOG_DATA", "/d")
    assert default_folder("mnist") == Path("/d/mnist")
