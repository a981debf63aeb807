"""Fetching keeps only whole files, asks each mirror, and says what failed."""

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
NOBODY = "http://127.0.0.1:9/"


class Mirror(ThreadingHTTPServer):
    """Serves `BYTES`, or something else."""

    daemon_threads = True
    body, sent, status, asked = BYTES, len(BYTES), 200, 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/set/"


class _Handler(BaseHTTPRequestHandler):
    server: Mirror

    def do_GET(self) -> None:
        mirror = self.server
        mirror.asked += 1
        if mirror.status != 200 or self.path != f"/set/{NAME}":
            self.send_error(mirror.status if mirror.status != 200 else 404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(mirror.body)))
        self.end_headers()
        self.wfile.write(mirror.body[: mirror.sent])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    with Mirror(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


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
    assert steps.count(len(BYTES)) == 2
    assert mirror.asked == 1


def test_a_damaged_file_is_fetched_again_from_the_next_mirror(tmp_path: Path, mirror: Mirror) -> None:
    (tmp_path / NAME).write_bytes(b"?" * len(BYTES))
    fetch("tiny", to=tmp_path, mirrors=[NOBODY, mirror.address])
    assert (tmp_path / NAME).read_bytes() == BYTES


@pytest.mark.parametrize(
    ("status", "body", "sent", "said"),
    [
        (404, BYTES, 0, "failed .*404"),
        (503, BYTES, 0, "failed .*503"),
        (200, BYTES, 1000, "wrong length or checksum"),  # it broke off
        (200, b"<html>log in</html>", 99, "wrong length or checksum"),
        (200, bytes(len(BYTES)), len(BYTES), "wrong length or checksum"),
        (200, BYTES + b"more", 10**6, "wrong length or checksum"),
    ],
)
def test_no_mirror_has_it(
    tmp_path: Path, mirror: Mirror, status: int, body: bytes, sent: int, said: str
) -> None:
    mirror.status, mirror.body, mirror.sent = status, body, sent
    with pytest.raises(InputError, match=said) as caught:
        fetch("tiny", to=tmp_path / "to", mirrors=[NOBODY, mirror.address])
    assert "--from DIR" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "to").exists()


def test_from_a_folder(tmp_path: Path) -> None:
    source, to = tmp_path / "usb", tmp_path / "to"
    source.mkdir()
    with pytest.raises(InputError, match="does not exist; --from needs"):
        fetch("tiny", to=to, source=source)
    for wrong in (BYTES[:-1], bytes(len(BYTES))):
        (source / NAME).write_bytes(wrong)
        with pytest.raises(InputError, match="not the expected file"):
            fetch("tiny", to=to, source=source)
    assert not to.exists()
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
