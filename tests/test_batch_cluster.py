"""A Ray cluster reads the same records, whatever becomes of its actors."""

import json
import os
import signal
import socket
import sys
from pathlib import Path
from types import ModuleType

import pytest

from neocog import Reader
from neocog.batch.cluster import Cluster
from neocog.batch.formats import Format
from neocog.batch.inputs import find_inputs
from neocog.batch.run import reading
from neocog.batch.tasks import Job
from neocog.errors import DeviceError, UsageError
from tests.support import save_page, tiny_model


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


@pytest.mark.slow
def test_actors_take_nothing_from_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="needs ray: neocog[cluster]")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(os.path.isabs, sys.path)))
    (tmp_path / "cv2.py").write_text("open('ran', 'w')")
    save_page(tmp_path / "1.png", "1")
    job = Job(Reader(tiny_model(), device="cpu"), Format("jsonl"))
    cluster = Cluster("local", device="cpu", workers=1)
    with cluster.reading(job, find_inputs(["1.png"])) as blocks:
        assert [json.loads(block.text)["text"] for block in blocks] == ["1"]
    assert not (tmp_path / "ran").exists()


def finders() -> list[int]:
    """Processes of the actors that find digits."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if place.read_bytes().startswith(b"ray::Finder"):
                found.append(int(place.parent.name))
        except OSError:
            continue
    return sorted(found)


@pytest.mark.slow
def test_the_same_records_though_an_actor_is_killed(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs ray: neocog[cluster]")
    if not Path("/proc/self/cmdline").exists():
        pytest.skip("needs /proc, where actors are found")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    for number in range(30):
        save_page(tmp_path / f"{number:02}.png", str(number))
    (tmp_path / "bad.png").write_bytes(b"")
    job = Job(Reader(tiny_model(), device="cpu"), Format("jsonl"))
    with reading(job, find_inputs([tmp_path]), workers=0) as blocks:
        alone = "".join(block.text for block in blocks)
    with pytest.raises(DeviceError, match="no machine"):
        Cluster("local", device="cuda").reading(job, []).__enter__()
    text = ""
    cluster = Cluster("local", device="cpu", workers=2)
    with cluster.reading(job, find_inputs([tmp_path]), ordered=True) as blocks:
        for count, block in enumerate(blocks):
            text += block.text
            if count == 3:
                os.kill(finders()[0], signal.SIGKILL)
    assert text == alone
    assert len(text.splitlines()) == 31
    assert json.loads(text.splitlines()[0])["text"] == "0"
