"""``neocog live`` and ``neocog cameras`` as a user types them: what they print and write."""

import json
import os
import sys
import time

import cv2
import pytest

from neocog.errors import InputError, NothingToRead, UsageError
from neocog.live import sources as cameras
from neocog.live.session import LineFile
from neocog.live.sources import Camera, CameraSource, find_camera, listed
from tests.live_support import MODEL, clip, frames_in, save_video
from tests.support import records, refused, run

HERE = ("--model", MODEL, "--device", "cpu", "--headless")


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    """Two numbers, one after the other."""
    path = tmp_path_factory.mktemp("video") / "clip.avi"
    save_video(path, clip(("", 3), ("471", 14), ("", 4), ("2086", 14)))
    return path


def live(video, *words):
    return run("live", video, *HERE, *words)


def test_without_a_display_it_is_headless_and_events_are_told_from_first_to_last(
    video, tmp_path, monkeypatch
):
    """Each number is an event and a line of JSON, and the run is recorded."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    out = ("--jsonl", tmp_path / "out.jsonl", "--record", tmp_path / "out.mp4")
    result = run("live", video, *HERE[:-1], "--events", *out)
    assert result.exit_code == 0
    assert "there is no display: reading without a window" in result.stderr
    assert "320x240, 25 frames a second" in result.stderr
    opened, *readings, end = records(result.stdout)
    assert (opened["event"], opened["state"]) == ("source", "open")
    assert (end["event"], end["frames"], end["dropped"]) == ("end", 35, 0)
    assert readings == [{"event": "reading", **record} for record in records(tmp_path / "out.jsonl")]
    assert [record["text"] for record in readings] == ["471", "2086"]
    assert frames_in(tmp_path / "out.mp4") == 35
    first = readings[0]
    known = {"schema": 1, "source": str(video), "page": 0, "text": "471", "error": None}
    assert known.items() <= first.items()
    assert list(first) == ["event", "schema", "source", "page", "text", "digits", "model", "error",
                           "finder", "signs", "left_out", "turn", "reader", "scale", "warnings", "mirror",
                           "frame", "t", "age_ms", "confidence"]  # fmt: skip
    assert [(digit["char"], len(digit["box"])) for digit in first["digits"]] == [(c, 4) for c in "471"]
    assert 0 < first["confidence"] <= 1
    assert 0.2 < first["t"] < 0.7
    assert first["frame"] == round(25 * first["t"])
    assert first["age_ms"] > 0


@pytest.mark.parametrize("link", [None, os.symlink, os.link])
def test_neither_what_is_read_nor_what_is_there_nor_one_file_twice_is_written(video, tmp_path, link):
    source, out, path = (tmp_path / name for name in ("clip.avi", "other.avi", "out.avi"))
    source.write_bytes(video.read_bytes())
    if link:
        link(source, out)
    for option in ("--jsonl", "--record"):
        words = ("live", source, *HERE, option, out if link else source)
        refused(f"is what is read; choose another {option}", *words)
    assert source.read_bytes() == video.read_bytes()
    told, words = "is the file of --jsonl already", ("live", video, *HERE, "--jsonl", path, "--record")
    refused(told, *words, f"{tmp_path}/./out.avi")
    assert not path.exists()
    path.write_bytes(b"mine")
    (link or os.link)(path, tmp_path / "same.avi")
    refused(told, *words, tmp_path / "same.avi")
    refused("out.avi: exists; add --force", "live", video, *HERE, "--record", path)
    assert path.read_bytes() == b"mine"


def test_only_numbers_of_a_length_or_pattern_are_let_through_also_with_a_full_disk(video, tmp_path):
    """A limit on the file's size stands for the disk."""
    resource, path = pytest.importorskip("resource"), tmp_path / "a.jsonl"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        result = live(video, "--length", "3", "--jsonl", path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (result.exit_code, result.stdout, path.read_bytes()) == (1, "471\n", b"")
    assert "a.jsonl: the reading could not be written (File too large)" in result.stderr
    result = live(video, "--pattern", "####", "--roi", "0,0,400,240")  # beyond the frame
    assert (result.exit_code, result.stdout) == (0, "2086\n")
    assert result.stderr.count("--roi: reaches beyond the frame (the frame is 320x240)") == 1


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [(["nothing.avi"], 3, "no file, folder or camera"), (["7"], 3, "camera 7: /dev/video7"),
     (["http://["], 2, "http://[: is not a valid"), (["rtsp://[x"], 2, "is not a valid"),
     (["http://me:secret@[/"], 2, " http://[/: is"),
     (["ftp://me:secret@a"], 2, " ftp://a: ftp"),
     (["http://me:secret@127.0.0.1:9/"], 1, " http://127.0.0.1:9/: "),
     (["rtsp://127.0.0.1:9/a"], 1, "refused"),
     (["--agree", "5"], 2, "K/N"), (["--roi", "1,2"], 2, "roi"), (["--rotate", "45"], 2, "0, 90, 180 or 270"),
     (["--size", "big"], 2, "WIDTHxHEIGHT"), (["--pattern", "x"], 2, "pattern"),
     (["--pattern", "###", "--length", "2"], 2, "does not have 2 digits"),
     (["--model", "nothing"], 4, "nothing"), (["--record", "a.txt"], 2, "mp4"),
     (["--jsonl", "no/where.jsonl"], 2, "--jsonl")],
)  # fmt: skip
def test_what_cannot_be_done_is_one_line_and_a_code(video, words, code, told):
    source = [] if not words[0].startswith("--") else [str(video)]
    refused(told, "live", *source, *HERE, *words, code=code)


def test_pictures_of_which_none_can_be_decoded_and_which_are_no_output(tmp_path):
    for name in ("0.png", "1.png"):
        (tmp_path / name).write_bytes(b"broken")
    for path, told in ((tmp_path / "0.png", "0.png: the file is not a picture that neocog can decode"),
                       (tmp_path, "none of its 2 files is a picture")):  # fmt: skip
        result = live(path)
        assert (result.exit_code, told in result.stderr) == (1, True)
    refused("is what is read", "live", tmp_path, *HERE, "--jsonl", tmp_path / "1.png")
    assert (tmp_path / "1.png").read_bytes() == b"broken"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("held", "kept"),
    [(b"", b""), (b'{"n":0}\n', b'{"n":0}\n'),
     (b'{"n":0}\n{"sch', b'{"n":0}\n'), (b'{"n":0}\n{"schema":1,"n":' + 5000 * b"1", b'{"n":0}\n'),  # torn
     (b'{"schema":1}', b'{"schema":1}\n'),  # whole, but for its newline
     # what holds no records is left alone
     *((held, None) for held in (b'{"settings": {"keep": [1]}}', b"RIFF\0\n", b"a\nb", b'{"n":0}\n[1, 2'))],
)  # fmt: skip
def test_lines_are_appended_to_records_and_a_torn_one_is_taken_off(tmp_path, held, kept):
    path, before = tmp_path / "a.jsonl", len(os.listdir("/proc/self/fd"))
    path.write_bytes(held)
    for number in (1, 2):
        if kept is None:
            with pytest.raises(UsageError, match="is not a file of records"):
                LineFile(path)
        else:
            with LineFile(path) as lines:
                lines.put({"n": number})
    assert path.read_bytes() == (held if kept is None else kept + b'{"n":1}\n{"n":2}\n')
    with pytest.raises(UsageError, match="--jsonl"):
        LineFile(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


class FakeVideo:
    """What OpenCV gives for a camera."""

    isOpened, release = (lambda self: True), (lambda self: None)

    def __init__(self, frames):
        self.frames, self.at, self.asked = frames, None, {}
        grants = {cv2.CAP_PROP_FRAME_WIDTH: 640.0, cv2.CAP_PROP_FRAME_HEIGHT: 480.0, cv2.CAP_PROP_FPS: 30.0,
                  cv2.CAP_PROP_FOURCC: float(cv2.VideoWriter.fourcc(*"YUYV"))}  # fmt: skip
        self.set, self.get = self.asked.__setitem__, grants.__getitem__

    def grab(self):
        self.at = self.frames.pop(0) if self.frames else None
        return self.at is not None

    def retrieve(self):
        return True, self.at


def test_a_camera_grants_what_it_can_and_is_read_until_it_gives_no_more(monkeypatch):
    fake = FakeVideo([None, *clip(("471", 30))])
    monkeypatch.setattr(cv2, "VideoCapture", lambda *words: fake)
    monkeypatch.setattr(cameras, "_LINUX", False)
    monkeypatch.setattr(CameraSource, "live", False)  # the end of its frames ends it
    result = live("0", "--size", "1920x1080", "--fps", "60", "--events")
    assert result.exit_code == 1
    for words in ("640x480, YUYV, 30 frames a second", "camera 0: gives no more pictures"):
        assert words in result.stderr
    assert '"text":"471"' in result.stdout
    assert fake.asked.items() >= {
        cv2.CAP_PROP_FRAME_WIDTH: 1920, cv2.CAP_PROP_FPS: 60,
        cv2.CAP_PROP_FOURCC: cv2.VideoWriter.fourcc(*"MJPG"),
    }.items()  # fmt: skip
    with pytest.raises(InputError, match="another program may be using it"):
        CameraSource(0).open()


def test_cameras_are_found_by_name_and_listed_and_none_is_nothing_to_read(monkeypatch, tmp_path):
    names = {2: "Integrated Camera", 10: "HD Pro Webcam C920", 0: "Loop"}
    for number, name in names.items():
        (tmp_path / f"video{number}").mkdir()
        (tmp_path / f"video{number}" / "name").write_text(name + "\n")
    found = listed(tmp_path)
    assert found == sorted(names.items())
    monkeypatch.setattr(cameras, "listed", lambda: found)
    assert (find_camera("c920"), find_camera("/dev/video2")) == (10, 2)
    with pytest.raises(NothingToRead, match="neocog cameras"):
        find_camera("elsewhere")
    there = [Camera(0, "Webcam", "640x480"), Camera(1, "Webcam")]
    monkeypatch.setattr(cameras, "probe", lambda: iter(there))
    result = run("cameras")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "  0  Webcam: 640x480")
    assert "gives no picture" in result.stdout
    told = json.loads(run("cameras", "--json").stdout)
    assert told[0] == {"number": 0, "name": "Webcam", "grants": "640x480"}
    there.clear()
    refused("no working camera", "cameras", code=3)


def test_a_driver_that_hangs_hangs_nothing_else(monkeypatch):
    monkeypatch.setattr(cameras, "listed", lambda: [(93, "Stuck")])
    monkeypatch.setattr(cameras, "_PROBE", 0.01)
    start = time.perf_counter()
    assert list(cameras.probe()) == [Camera(93, "Stuck", None)]
    assert time.perf_counter() - start < 5
