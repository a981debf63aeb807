"""A Ray cluster reads the same records, whatever becomes of its actors."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from neocog import Reader
from neocog.batch.cluster import Cluster
from neocog.batch.inputs import find_inputs
from neocog.batch.run import reading
from neocog.batch.tasks import Job
from neocog.errors import DeviceError, UsageError
from neocog.reading.formats import Format
from tests.support import save_page, tiny_model, until

# not imported: Ray reads the environment then
needed = sys.platform == "linux" and find_spec("ray") is not None


def slow(test: Callable[..., None]) -> Any:
    return pytest.mark.slow(pytest.mark.skipif(not needed, reason="needs Linux, neocog[cluster]")(test))


def test_what_a_cluster_cannot_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="auto, cpu or cuda"):
        Cluster("auto", device="cuda:1")
    with pytest.raises(UsageError, match="at least one"):
        Cluster("auto", workers=0)
    monkeypatch.setitem(sys.modules, "ray", None)  # importing it fails
    job = Job(Reader(tiny_model(), device="cpu"), Format("jsonl"))
    with pytest.raises(UsageError, match=r"pip install \"neocog\[cluster\]\""):
        Cluster("auto").reading(job, []).__enter__()


@pytest.mark.parametrize("address", ["127.0.0.1:{}", "ray://127.0.0.1:{}"])
def test_a_dead_address_is_told_at_once(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    monkeypatch.setattr(sys.modules["ray"], "shutdown", lambda: None, raising=False)
    monkeypatch.setattr("neocog.batch.cluster.os.environ", {})
    job = Job(Reader(tiny_model(), device="cpu"), Format("jsonl"))
    with pytest.raises(UsageError, match=r"no cluster there .*refused"):
        Cluster(address.format(port)).reading(job, []).__enter__()


@slow
def test_a_cluster_of_one_run_is_open_to_nobody_and_ends_with_it(tmp_path: Path) -> None:
    folders = set(Path("/tmp").glob("neocog-ray-*"))
    pictures = [tmp_path / f"{n}.png" for n in range(400)]
    save_page(pictures[0], "1")
    for other in pictures[1:]:
        shutil.copy(pictures[0], other)
    command = [sys.executable, "-m", "neocog", "read", str(tmp_path), "--ray", "local", "--workers", "1"]
    before = listening()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stdout.readline()
        (folder,) = set(Path("/tmp").glob("neocog-ray-*")) - folders
        assert all(address.endswith("0100007F") for address, _ in listening() - before)  # 127.0.0.1
        gcs = next(filter(None, (re.search(rb"--gcs-address=([\d.:]+)", line) for line in commands(folder))))
        code = "import sys, ray; ray.init(address=sys.argv[1])"
        other = subprocess.run([sys.executable, "-c", code, gcs[1]], capture_output=True, timeout=60)
        assert other.returncode
        assert b"authenti" in (other.stderr + other.stdout).lower()
        run.kill()
    until(lambda: not folder.exists() and not commands(folder), 10)


def listening() -> set[tuple[str, str]]:
    """Addresses and ports that anything of this machine listens on, in hex."""
    lines = (Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()).splitlines()
    return {tuple(row[1].split(":")) for row in map(str.split, lines) if row[3] == "0A"}  # type: ignore[misc]


def commands(folder: Path) -> list[bytes]:
    """Return the command lines of processes that name a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes())
    return [line for line in found if bytes(folder) in line]


@slow
def test_the_same_records_though_an_actor_is_killed_and_nothing_of_the_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(os.path.isabs, sys.path)))
    (tmp_path / "cv2.py").write_text("open('ran', 'w')")
    for number in range(30):
        save_page(tmp_path / f"{number:02}.png", str(number))
    (tmp_path / "bad.png").write_bytes(b"")
    job = Job(Reader(tiny_model(), device="cpu"), Format("jsonl"))
    with reading(job, find_inputs(["."]), workers=0) as blocks:
        alone = "".join(block.text for block in blocks)
    with pytest.raises(DeviceError, match="no machine"):
        Cluster("local", device="cuda").reading(job, []).__enter__()
    text = ""
    cluster = Cluster("local", device="cpu", workers=2)
    with cluster.reading(job, find_inputs(["."]), ordered=True) as blocks:
        for count, block in enumerate(blocks):
            text += block.text
            if count == 3:
                places = Path("/proc").glob("[0-9]*/cmdline")
                finders = [place for place in places if place.read_bytes().startswith(b"ray::Finder")]
                os.kill(int(finders[0].parent.name), signal.SIGKILL)
    assert text == alone
    assert len(text.splitlines()) == 31
    assert json.loads(text.splitlines()[0])["text"] == "0"
    assert not (tmp_path / "ran").exists()
