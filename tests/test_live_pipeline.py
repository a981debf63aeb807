"""The stages at work: every frame of a file, the newest of a camera, sources that break."""

import gc
import sys
import threading
import time
from collections.abc import Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image
from threadpoolctl import threadpool_info

from neocog.errors import InputError, NeocogError, NothingToRead, UsageError
from neocog.live.capture import Ahead, Capture, Frame
from neocog.live.frame_reader import _READS, LONG_SIDE, FrameReader, FrameReading, Roi
from neocog.live.pipeline import Pipeline, Settings, View
from neocog.live.sources import FrameSource, Source, SourceLost, open_source
from neocog.network.parallel import cores
from neocog.reading.numbers import each_line
from neocog.reading.reader import Reader
from neocog.vision.finder import Finding
from neocog.vision.finder_model import OpenCV
from tests.live_support import MODEL, Scripted, clip, picture
from tests.support import failing, until


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(MODEL, device="cpu")


def seen_by(reader: Reader, frames: list[np.ndarray], roi: Roi | None = None, **settings: Any) -> list[View]:
    pipeline = Pipeline(open_source(frames), reader, Settings(**settings))
    pipeline.roi = roi
    with pipeline:
        return list(pipeline)


def texts_of(seen: FrameReading) -> list[str]:
    return ["".join(char.char for char in row) for row in seen.rows]


def texts_in(frames: FrameReader, pixels: np.ndarray) -> list[str]:
    """Have a frame read that comes after others."""
    return texts_of(frames.recognise(frames.find(Frame(0, pixels, 0.0, 0.0))))


def frames_of(source: Source) -> list[np.ndarray]:
    return [frame.pixels for frame in Capture(source).frames()]


def test_items_pass_in_order_or_the_newest_and_nobody_waits_for_ever() -> None:
    def items() -> Iterator[list[int]]:
        yield from ([number] for number in range(50))
        raise InputError("broken")

    line, full = Ahead(items(), "test"), Ahead(items(), "test")
    assert line.next(0.01) is None
    line.thread.start()
    assert [line.next(5) for _ in range(50)] == [[number] for number in range(50)]
    for _ in range(2):
        with pytest.raises(InputError, match="broken"):
            line.next(5)
    assert line.dropped == 0
    full.thread.start()
    time.sleep(0.05)
    full.stop()
    full.thread.join(5)
    assert (list(iter(full.next, None)), full.thread.is_alive()) == ([], False)
    for merge, kept in (((lambda old, new: new), "c"), ((lambda old, new: old + new), "abc")):
        newest = Ahead(iter("abc"), "test", merge)
        newest.thread.start()
        newest.thread.join(5)
        assert (list(iter(newest.next, None)), newest.dropped) == ([kept], 2)


def test_what_was_held_down_is_let_go(reader, monkeypatch):
    def state() -> tuple[float, int, list[int]]:
        blas = [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]
        return sys.getswitchinterval(), cv2.getNumThreads(), blas

    cv2.setNumThreads(2)
    before, held = state(), (0.0005, min(4, cores()))
    with Pipeline(FrameSource(clip(("471", 3))), reader) as pipeline:
        assert state()[:2] == held
        with Pipeline(FrameSource(clip(("471", 3))), reader) as other:
            list(other)
        assert state()[:2] == held, "the first one goes on"
        list(pipeline)
    assert state() == before
    pipeline.stop()
    monkeypatch.setattr(FrameReader, "find", failing(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError), Pipeline(FrameSource([]), reader):
        pass
    assert state() == before


@pytest.mark.parametrize(("finder", "stages"), [("cuda:0", {"read"}), ("cpu", {"find", "read"})])
def test_a_gpu_s_finder_and_network_share_a_thread_and_slow_ones_read_a_file_alike(reader, finder, stages):
    def recognise(digits, *, batch=None):
        time.sleep(0.01)
        return reader.engine.recognise(digits, batch=batch)

    own = Reader(MODEL, device="cpu")
    own.engine = SimpleNamespace(device="cuda:0", recognise=recognise)
    own.finder.device = finder
    frames = clip(("471", 8), ("", 2), ("2086", 6))
    with Pipeline(open_source(frames), own) as pipeline:
        names = {thread.name.removeprefix("neocog-") for thread in threading.enumerate()}
        assert names & {"find", "read"} == stages
        assert cv2.getNumThreads() == (min(4, cores()) if finder == "cpu" else 1)
        views = list(pipeline)
    assert {"find", "recognise"} <= pipeline.measures.ms.keys()
    assert [view.frame.index for view in views] == list(range(16))
    assert [texts_of(view.seen) for view in views] == [["471"]] * 8 + [[]] * 2 + [["2086"]] * 6


def test_whoever_takes_the_newest_view_gets_the_news_of_those_before(reader):
    frames = clip(("", 4), ("471", 14), ("", 6), ("2086", 14), ("", 4))
    with Pipeline(open_source(frames), reader, Settings(every_view=False)) as pipeline:
        until(lambda: pipeline.measures.frames == len(frames))
        (view,) = pipeline
    assert (view.frame.index, [news.text for news in view.news]) == (len(frames) - 1, ["471", "2086"])
    assert pipeline.measures.dropped == 0


def test_frames_are_mirrored_and_turned_before_all_else(reader: Reader) -> None:
    frames = [np.rot90(frame)[::-1] for frame in clip(("471", 14))]
    views = seen_by(reader, frames, rotate=270, mirror=True)
    assert [news.text for view in views for news in view.news] == ["471"]
    assert views[0].frame.size == (320, 240)
    for rotate, mirror in product((0, 90, 180, 270), (False, True)):
        wanted = np.rot90(frames[0][:, ::-1] if mirror else frames[0], -rotate // 90)
        (frame,) = Capture(FrameSource(frames[:1]), rotate=rotate, mirror=mirror).frames()
        assert (frame.pixels == wanted).all()
    with pytest.raises(UsageError, match="0, 90, 180 or 270"):
        Pipeline(open_source(frames), reader, Settings(rotate=45))


def test_boxes_lie_on_the_digits_also_in_a_region(reader: Reader) -> None:
    frame = picture("4711")
    boxes = []
    for roi in (None, Roi(20, 60, 86, 120)):
        (view,) = seen_by(reader, [frame], roi=roi)
        boxes.append([digit.box for row in view.seen.rows for digit in row])
    assert [len(found) for found in boxes] == [4, 2]
    for whole, part in zip(*boxes, strict=False):
        assert np.abs(np.subtract(whole, part)).max() <= 8
        x, y, w, h = whole
        assert (frame[y : y + h, x : x + w] < 120).any()


def test_lines_that_look_the_same_are_read_now_and_then(reader, monkeypatch):
    read: list[int] = []

    def counting(*page: Any) -> object:
        lines = list(each_line(*page))
        read.append(len(lines))
        return lines

    monkeypatch.setattr("neocog.live.frame_reader.each_line", counting)
    numbers = ["471", "2086"]
    frames = [np.vstack([picture(one, at=30 + n % 3) for one in numbers]) for n in range(12)]
    views = seen_by(reader, frames)
    for n, view in enumerate(views):
        assert [vote.leading[0] for vote in view.seen.votes] == numbers
        lefts = [row[0].box[0] for row in view.seen.rows]
        assert np.abs(np.subtract(lefts, 28 + n % 3)).max() <= 8
    assert read[1] == 2, "after that of the frame that warms"
    assert sum(read[1:]) <= 2 * _READS + 2, "what looks the same is not read again and again"
    other = seen_by(reader, [*frames, np.vstack([picture("355"), picture("2086")])])[-1]
    assert [vote.leading[0] for vote in other.seen.votes] == ["355", "2086"]


@pytest.mark.parametrize("nothing", [False, True])
def test_lines_are_read_in_turn_also_those_that_hold_no_number(reader, monkeypatch, nothing):
    corners = [(20 + 100 * (k % 3), 20 + 100 * (k // 3)) for k in range(6)]
    boxes, ones = np.array([(x, y, 30, 40) for x, y in corners], np.float32), np.ones(6, np.float32)
    found = Finding(boxes, ones, np.ones(6, np.int64), np.zeros((6, 10), np.float32))
    read: list[int] = []

    def two(reader: Reader, grey: np.ndarray, found: Finding, wanted: np.ndarray) -> object:
        some = np.flatnonzero(wanted)[:2].tolist()
        read.extend(some)
        return [] if nothing else [([k], None) for k in some]

    monkeypatch.setattr("neocog.live.frame_reader.each_line", two)
    frames = FrameReader(reader.changed(look=lambda grey, settings: found))
    coarse = np.random.default_rng(5).integers(0, 255, (24, 32, 3), np.uint8)
    for _ in range(3 * _READS + 3):
        texts_in(frames, np.asarray(cv2.resize(coarse, (320, 240)), np.uint8))
    assert read == ([0, 1] if nothing else list(range(6))) * _READS


def test_frames_are_searched_coarse_to_fine(reader, monkeypatch):
    size, asked = (1280, 720), [0]
    network = OpenCV.__call__

    def counting(self: OpenCV, x: np.ndarray) -> object:
        asked[-1] += x.shape[1] >= LONG_SIDE
        return network(self, x)

    monkeypatch.setattr(OpenCV, "__call__", counting)

    def read(pixels: np.ndarray, times: int, *, hurry: bool) -> tuple[list[str], list[int]]:
        frames, texts = FrameReader(reader, hurry=hurry), []
        asked.clear()
        for _ in range(times):
            asked.append(0)
            texts.append(" ".join(texts_in(frames, pixels)))
        return texts, asked

    large = picture("471", size=size, tall=180)
    assert read(large, 5, hurry=False) == (["471"] * 5, [1, 0, 0, 0, 1])
    assert read(picture("", size=size), 5, hurry=False)[1] == [1] * 5
    assert read(picture("", size=size), 5, hurry=True)[1] == [1, 0, 0, 0, 1]
    small = picture("250471", size=size, tall=40)
    assert read(small, 5, hurry=False) == (["250471"] * 5, [1] * 5)
    assert read(small, 8, hurry=True) == (["250471"] * 8, [1, 0] * 2 + [1, 0, 0, 0])
    both = np.vstack([large[:440], small[360 - 100 : 360 + 180]])
    assert read(both, 8, hurry=True)[0] == ["471 250471"] * 8


def test_a_file_paced_like_a_camera_drops_frames_and_counts_them(reader: Reader) -> None:
    frames, settings = clip(("471", 60)), Settings(replay_fps=1000)
    with Pipeline(open_source(frames), reader, settings) as pipeline:
        views = list(pipeline)
    assert pipeline.measures.dropped == 60 - len(views) > 0
    assert views[-1].frame.index == 59
    assert max(view.age_ms for view in views) < 2000
    with Pipeline(open_source(frames), reader, settings) as pipeline:
        pipeline.next()
        until(lambda: pipeline._frames.dropped > 50)  # nobody takes the views
    assert pipeline.measures.dropped == pipeline._frames.dropped, "those after the last view count"


def test_frames_of_another_size_are_read_on(reader: Reader) -> None:
    views = seen_by(reader, clip(("471", 12)) + clip(("471", 3), size=(640, 360)))
    assert [view.frame.epoch for view in views] == [0] * 12 + [1] * 3
    assert views[12].tracks[0].text == "", "votes of the other size are forgotten"


def test_an_error_in_the_network_is_raised_to_whoever_takes_the_views() -> None:
    broken = Reader(MODEL, device="cpu")
    with Pipeline(open_source(clip(("47", 9))), broken) as pipeline:
        broken.engine.recognise = failing(RuntimeError("no memory"))  # type: ignore[method-assign]
        with pytest.raises(NeocogError, match="no memory"):
            list(pipeline)


def test_it_can_be_left_at_any_time_and_holds_few_frames(reader):
    before = threading.active_count()
    for _ in range(3):
        with Pipeline(FrameSource(clip(("471", 20))), reader) as pipeline:
            next(iter(pipeline))
    until(lambda: threading.active_count() <= before + 1)
    with Pipeline(FrameSource(clip(("471", 5)) * 4), reader) as pipeline:
        for view in pipeline:
            del view
        gc.collect()
        assert len([item for item in gc.get_objects() if isinstance(item, Frame)]) <= 4


def test_a_camera_keeps_its_own_time_and_a_paced_file_the_pace_and_a_source_must_open_at_first():
    first, second, _ = Capture(Scripted(clip(("471", 3)), pause=0.2)).frames()
    assert (first.t, second.t) == (0.0, pytest.approx(second.arrived - first.arrived))
    start = time.perf_counter()
    assert len(list(Capture(FrameSource(clip(("1", 11))), pace=50).frames())) == 11
    assert time.perf_counter() - start >= 0.2
    with pytest.raises(NothingToRead, match="no camera"):
        next(Capture(Scripted([None, NothingToRead("no camera")])).frames())


def test_a_lost_source_is_tried_less_and_less_until_it_is_back_also_for_a_moment(monkeypatch):
    monkeypatch.setattr("neocog.live.capture._FIRST_WAIT", 0.02)
    frame, fails, told = picture("1"), [None, InputError("not yet")], list[tuple[str, float]]()
    source = Scripted([*[frame, SourceLost("gone")] * 2, frame, SourceLost("gone"), *fails * 2, frame])
    frames = Capture(source, tell=lambda state, text: told.append((state, time.monotonic()))).frames()
    assert [frame.epoch for frame in frames] == [0, 1, 2, 3]
    assert (source.opened, [state for state, _ in told]) == (6, ["open", *["lost", "back"] * 3])
    waits = np.diff([at for _, at in told])[1::2]  # from each loss to the return
    assert (waits > np.array([0.02, 0.04, 0.08 + 0.16 + 0.32]) - 0.005).all()


def test_a_folder_gives_its_pictures_in_the_order_of_their_names_upright_on_white_paper(tmp_path):
    (tmp_path / "notes.txt").write_text("no picture")
    with pytest.raises(NothingToRead, match="no pictures"):
        open_source(tmp_path)
    for name, level in (("b.png", 20), ("a.png", 10), ("c.jpg", 30)):
        cv2.imwrite(str(tmp_path / name), np.full((30, 40, 3), level, np.uint8))
    (tmp_path / "d.png").write_bytes(b"no picture")
    stored = np.full((60, 120, 4), 255, np.uint8)
    stored[:20, :40] = (20, 70, 160, 255)
    stored[40:, :40] = (0, 0, 0, 0)  # to the right once it stands
    exif = Image.Exif()
    exif[0x112] = 6  # a quarter of a turn to the right
    Image.fromarray(stored).save(tmp_path / "x.png", exif=exif.tobytes())
    source = open_source(tmp_path, fps=5)
    *levels, upright = frames_of(source)
    assert ([int(frame[0, 0, 0]) for frame in levels], source.fps) == ([10, 20, 30], 5)
    assert source.open() == "5 pictures, 5 a second"
    expected = np.full((120, 60, 3), 255, np.uint8)
    expected[:40, 40:] = (160, 70, 20)
    assert np.array_equal(upright, expected)


def test_frames_of_all_shapes_become_coloured_ones_on_white_paper_and_others_are_refused():
    clear = np.zeros((60, 80, 4), np.uint8)
    clear[20:40, 30:50, 3] = 255
    clear[20:40, 50:60, 3] = 128
    shapes = [np.zeros(shape, np.uint8) for shape in ((60, 80), (60, 80, 1), (60, 80, 3))]
    frames = frames_of(FrameSource([clear, *shapes]))
    assert [frame.shape for frame in frames] == [(60, 80, 3)] * 4
    assert [int(frames[0][y, x, 0]) for y, x in ((5, 5), (30, 40), (30, 55))] == [255, 0, 127]
    for shape, kind in (((0, 9, 3), "uint8"), ((0, 9), "uint8"), ((9, 9, 2), "uint8"), ((9,), "uint8"),
                        ((20, 20), "float64")):  # fmt: skip
        with pytest.raises(InputError, match=rf"got a frame of {kind} \("):
            frames_of(FrameSource([np.zeros(shape, kind)]))


def test_frames_may_come_in_one_array_and_are_let_go_when_the_source_is_closed():
    array, ended = np.zeros((30, 40, 3), np.uint8), []

    class Frames:
        def __iter__(self):
            try:
                for array[:] in (10, 20, 30):
                    yield array
            finally:
                ended.append(True)

    source = FrameSource(Frames())
    source.open()
    frames = [source.read(), source.read()]
    assert ([int(frame[0, 0, 0]) for frame in frames], ended) == ([10, 20], [])
    source.close()
    assert ended


def test_documents_files_without_a_page_and_huge_ones_are_left_out(tmp_path, monkeypatch):
    cv2.imwrite(str(tmp_path / "a.png"), np.zeros((30, 40, 3), np.uint8))
    for number, begin in enumerate((b"%PDF-1.7\n", b"\0\0\0\x18ftypheic", b"\0\0\0\x18ftypavif")):
        (tmp_path / f"{number}.png").write_bytes(begin + bytes(100))  # whatever their name
        with pytest.raises(InputError, match=r"\d\.png: is not a picture that neocog can decode"):
            frames_of(open_source(tmp_path / f"{number}.png"))
    with open(tmp_path / "b.png", "wb") as file:
        file.truncate(2**28 + 1)
    assert len(frames_of(open_source(tmp_path))) == 1
    with pytest.raises(InputError, match="more than 268,435,456 bytes"):
        frames_of(open_source(tmp_path / "b.png"))
    monkeypatch.setattr("neocog.live.sources.decode", lambda *_, **__: iter(()))
    with pytest.raises(InputError, match="is not a picture"):
        frames_of(open_source(tmp_path / "a.png"))
