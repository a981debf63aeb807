"""Fetching keeps only whole files, asks each mirror, and says what failed."""

import hashlib
import threading
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


class _Handler(BaseHTTPRequestHandler):
    """Serves `BYTES`, or something else."""

    body, sent, status, asked = BYTES, len(BYTES), 200, 0

    def do_GET(self):
        kind = type(self)
        kind.asked += 1
        if self.status != 200 or self.path != f"/set/{NAME}":
            self.send_error(self.status if self.status != 200 else 404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body[: self.sent])

    def log_message(self, *_): ...


@pytest.fixture
def mirror(monkeypatch):
    handler = type("Handler", (_Handler,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        handler.address = f"http://127.0.0.1:{server.server_address[1]}/set/"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield handler
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def small_set(monkeypatch):
    file = RemoteFile(NAME, len(BYTES), hashlib.md5(BYTES).hexdigest())
    monkeypatch.setitem(fetching.SETS, "tiny", (file,))
    monkeypatch.setattr(fetching, "TIMEOUT", 5.0)


def test_a_file_comes_whole_and_is_left_alone_after(tmp_path, mirror):
    steps, to = [], tmp_path / "new" / "folder"
    for _ in range(2):
        told = {"mirrors": [mirror.address], "progress": lambda _, here, __: steps.append(here)}
        assert fetch("tiny", to=to, **told) == to
    assert [(path.name, path.read_bytes()) for path in to.iterdir()] == [(NAME, BYTES)]
    assert steps == sorted(steps)
    assert (steps.count(len(BYTES)), mirror.asked) == (2, 1)
    (to / NAME).write_bytes(b"?" * len(BYTES))  # damaged: fetched again, from the next mirror
    fetch("tiny", to=to, mirrors=[NOBODY, mirror.address])
    assert (to / NAME).read_bytes() == BYTES


@pytest.mark.parametrize(("change", "said"), [
    ({"status": 404}, "failed .*404"),
    ({"status": 503}, "failed .*503"),
    ({"sent": 1000}, "wrong length or checksum"),  # it broke off
    ({"body": b"<html>log in</html>"}, "wrong length or checksum"),
    ({"body": bytes(len(BYTES))}, "wrong length or checksum"),
    ({"body": BYTES + b"more", "sent": 10**6}, "wrong length or checksum"),
])  # fmt: skip
def test_no_mirror_has_it(tmp_path, mirror, change, said):
    for name, value in change.items():
        setattr(mirror, name, value)
    with pytest.raises(InputError, match=said) as caught:
        fetch("tiny", to=tmp_path / "to", mirrors=[NOBODY, mirror.address])
    assert "--from DIR" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "to").exists()


def test_from_a_folder(tmp_path):
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
    with pytest.raises(InputError, match="choose another --to"):
        fetch("tiny", to=to / NAME / "folder", source=source)
    with pytest.raises(UsageError, match="choose one of mnist"):
        fetch("emnist", to=tmp_path)


def test_the_place_comes_from_the_environment(monkeypatch):
    monkeypatch.delenv("NEOCOG_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert default_folder("mnist") == Path("/c/neocog/mnist")
    monkeypatch.setenv("NEOCOG_DATA", "/d")
    assert default_folder("mnist") == Path("/d/mnist")
