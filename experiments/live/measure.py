"""Measures live reading: rate, age, and what is announced.

    python -m experiments.live.measure run CLIPS [NAME ...] [-o RESULT]
    python -m experiments.live.measure rules CLIPS [NAME ...] [-o RESULT]

CLIPS is the folder ``clips`` of what `experiments.reading.freeze` drew: photographs held before a
camera and sheets with eight digits of MNIST's last 5 000 training digits, at 640x480 and 1280x720;
at 640x480 also minutes of views without a digit, sheets with twenty scattered digits held in two
hands before a dark room, and large numbers written with a thin pen (the same digits, drawn again).
A sheet slides in from one side, is held by a hand that trembles, sometimes is covered for a moment,
and is taken away; light and focus wander. `run` plays them like a camera (the newest frame only,
30 a second) and counts what was announced. With `--every` each frame is read as a camera's is, in one
thread: processor time and the number of strips do not depend on what else the machine does. `rules`
reads every frame so as well, and counts what other rules would announce. A line counts as readable if
one picture of the sheet at rest, as the camera has it, is read right by the same model.
"""

import argparse
import json
import math
import os
import resource
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import cv2
import numpy as np

from experiments.harness.arguments import arguments
from experiments.harness.record import write_results
from neocog.live.announce import Announcer, Rules
from neocog.live.capture import Frame
from neocog.live.frame_reader import FrameReader, FrameReading
from neocog.live.pipeline import Pipeline, Settings
from neocog.live.sources import open_source
from neocog.live.tracks import Agreement, Track, Tracker
from neocog.network.registry import LINES
from neocog.reading.reader import Reader

SLIDE = 8  # frames in which a sheet comes or goes
SHOWN_LONG = 15  # frames; what is shown for less is not asked for
VARIED = (
    ("evidence", 19), ("evidence", 99), ("lasting", 3), ("lasting", 9), ("long", 15), ("long", 45),
    ("nearest", 0.01), ("nearest", 0.05),
)  # fmt: skip
"""Other `Rules`, one after the other; `evidence` and `lasting` as odds to 1."""
LATE = 20  # frames after a sheet has gone in which it may still be announced

COLUMNS = {
    "clip": "clip",
    "seconds": "seconds|.0f",
    "fps": "frames a second|.1f",
    "dropped": "dropped|.1%",
    "cpu_ms": "CPU time a frame, ms",
    "age_median": "age, median ms|.0f",
    "age_p95": "age, p95 ms|.0f",
    "shown": "lines shown",
    "readable": "read right at rest",
    "right": "of them announced once and right",
    "wrong": "wrong announcements",
    "again": "announced twice",
    "other_right": "others announced right",
}
EVERY = {
    "clip": "clip",
    "frames": "frames",
    "cpu_ms": "CPU time a frame, ms",
    "coarse": "frames searched coarsely|.0%",
    "strips": "strips a frame|.2f",
    "columns": "columns of strips a frame|.0f",
} | {key: COLUMNS[key] for key in ("shown", "readable", "right", "wrong", "again", "other_right")}
OTHER_RULES = {
    "rule": "rule",
    "value": "value",
    "readable": "read right at rest",
    "right": "of them announced once and right",
    "wrong": "wrong announcements",
    "blank": "announced where no digit is",
}


@dataclass(frozen=True, slots=True)
class Showing:
    """A sheet that a clip shows."""

    name: str  # its picture
    lines: list[str]  # digits that are written on it
    first: int  # frame in which all of it is in view
    last: int  # frame in which it still is
    leaves: int  # frame from which nothing of it is in view
    still: str  # a picture of it as the camera sees it when nothing moves


def showings(clip: Path) -> list[Showing]:
    """What a clip shows, from the JSON file beside it."""
    return [Showing(**one) for one in json.loads(clip.with_suffix(".json").read_text())["showings"]]


def play(
    path: Path, reader: Reader, settings: Settings, *, seconds: float | None = None
) -> tuple[dict[str, Any], list[tuple[int, str]]]:
    """Play a clip; return the figures and what was announced at which frame."""
    ages, recognise, find = [], [], []
    news: list[tuple[int, str]] = []
    with Pipeline(open_source(path), reader, settings) as pipeline:
        busy, start = processor_time(), 0.0
        for view in pipeline:
            now = time.perf_counter()
            start = start or now
            ages.append(view.age_ms)
            recognise.append(view.seen.ms)
            find.append(view.seen.find_ms)
            news += [(one.frame, digits_of(one.text)) for one in view.news]
            if seconds and now - start > seconds:
                break
        run, played = pipeline.measures(), pipeline.capture.count
    figures = {
        "seconds": now - start,
        "frames": len(ages),
        "played": played,
        "cpu_ms": round(1e3 * (processor_time() - busy) / len(ages), 1),
        "fps": (len(ages) - 1) / (now - start),
        "dropped": run.dropped / max(played, 1),
        "age_median": float(np.median(ages)),
        "age_p95": float(np.percentile(ages, 95)),
        "p95_ms": {
            name: round(float(np.percentile(taken, 95)), 1)
            for name, taken in (("find", find), ("recognise", recognise))
        },
        "ms": {name: round(value, 2) for name, value in run.ms.items()},
    }
    return figures, news


def every_frame(
    path: Path, reader: Reader, seconds: float | None
) -> Iterator[tuple[FrameReading, tuple[Track, ...]]]:
    """Read all frames of a clip as a camera's are read, in one thread."""
    frames, tracker = FrameReader(reader, hurry=True), Tracker(Agreement())
    video, index = cv2.VideoCapture(str(path)), 0
    fps = video.get(cv2.CAP_PROP_FPS)
    while index < (seconds or math.inf) * fps and (got := video.read())[0]:
        seen = frames.recognise(frames.find(Frame(index, np.asarray(got[1], np.uint8), index / fps, 0.0)))
        yield seen, tracker.update(seen.votes)
        index += 1


def work(path: Path, reader: Reader, seconds: float | None) -> tuple[dict[str, Any], list[tuple[int, str]]]:
    """Read every frame; return the figures of a frame and what was announced at which."""
    announcer, engine, widths, news, count = Announcer(), reader.engine, list[int](), [], 0
    asked = engine.likelihoods  # type: ignore[attr-defined]

    def counted(strips: Any) -> Any:
        widths.extend(strip.shape[1] for strip in strips)
        return asked(strips)

    engine.likelihoods = counted  # type: ignore[attr-defined]
    start, coarse = processor_time(), 0
    for seen, tracks in every_frame(path, reader, seconds):
        said = announcer.update(tracks, seen.frame.t, seen.bounds)
        news += [(seen.frame.index, digits_of(one.text)) for one in said]
        coarse, count = coarse + seen.coarse, count + 1
    engine.likelihoods = asked  # type: ignore[attr-defined]
    spent = 1e3 * (processor_time() - start)
    return {
        "frames": count,
        "played": count,
        "cpu_ms": round(spent / count, 1),
        "coarse": round(coarse / count, 3),
        "strips": round(len(widths) / count, 3),
        "columns": round(sum(widths) / count, 1),
    }, news


def judge(
    shown: list[Showing], news: list[tuple[int, str]], readable: list[set[str]], played: int
) -> dict[str, Any]:
    """Count what was announced (frame, text) against what was shown.

    ``readable`` are each showing's lines that are read right at rest; showings beyond the frames
    that were ``played`` are left out.
    """
    right = again = other = lines = able = 0
    wrong: list[dict[str, Any]] = []
    missed: list[str] = []
    left = list(news)
    for number, showing in enumerate(shown):
        end = showing.leaves + LATE
        if end > played:  # it may still be announced, or be announced in part
            left = [one for one in left if one[0] < showing.first - SLIDE]
            break
        if number + 1 < len(shown):
            end = min(end, shown[number + 1].first - SLIDE)
        own = [one for one in left if showing.first - SLIDE <= one[0] < end]
        left = [one for one in left if one not in own]
        texts = [text for _, text in own]
        for line in set(showing.lines):
            long = showing.last - showing.first >= SHOWN_LONG
            asked = line in readable[number] and long
            count = texts.count(line)
            lines += 1
            able += asked
            again += count > 1
            right += asked and count == 1
            other += not asked and count == 1
            if asked and count == 0:
                missed.append(f"{line} ({showing.name})")
        wrong += [
            {"frame": frame, "text": text, "shown": showing.lines}
            for frame, text in own
            if text not in showing.lines
        ]
    wrong += [{"frame": frame, "text": text, "shown": []} for frame, text in left]
    return {
        "shown": lines, "readable": able, "right": right, "wrong": len(wrong), "again": again,
        "other_right": other, "mistakes": wrong, "missed": missed,
    }  # fmt: skip


def digits_of(text: str) -> str:
    """A text without signs and spaces: what is written down of the sheets has none."""
    return "".join(filter(str.isdigit, text))


def at_rest(shown: list[Showing], folder: Path, reader: Reader) -> list[set[str]]:
    """For each showing, the lines that are read right in one picture of it."""
    out = []
    for showing in shown:
        picture = cv2.imread(str(folder / showing.still))
        text = reader.read(np.ascontiguousarray(picture[:, :, ::-1])).plain
        out.append(set(text.split("\n")) & set(showing.lines))
    return out


def run(folder: Path, names: list[str], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure clips, one after another."""
    rows = []
    reader = Reader(args.model, device=args.device, finder=args.finder)
    for name in names or sorted(path.stem for path in folder.glob("*.avi")):
        shown = showings(folder / f"{name}.avi")
        path, settings = folder / f"{name}.avi", Settings(replay_fps=args.fps)
        if args.every:
            figures, news = work(path, reader, args.seconds)
        else:
            figures, news = play(path, reader, settings, seconds=args.seconds)
        own = judge(shown, news, at_rest(shown, folder, reader), figures["played"])
        rows.append({"clip": name, "every": args.every, **figures, **own})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def rules(folder: Path, names: list[str], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Tell what other rules would announce, of all clips together."""
    reader = Reader(args.model, device=args.device, finder=args.finder)
    rows = [{"rule": name, "value": value} for name, value in (("as they are", None), *VARIED)]
    counts = [Counter[str]() for _ in rows]
    for name in names or sorted(path.stem for path in folder.glob("*.avi")):
        shown = showings(folder / f"{name}.avi")
        readable, seen = at_rest(shown, folder, reader), []
        for frame, tracks in every_frame(folder / f"{name}.avi", reader, args.seconds):
            seen.append((frame.frame.index, frame.frame.t, tracks, frame.bounds))
        for row, count in zip(rows, counts, strict=True):
            announcer = Announcer(with_rule(row["rule"], row["value"]))
            news = [(index, digits_of(one.text)) for index, t, tracks, bounds in seen
                    for one in announcer.update(tracks, t, bounds)]  # fmt: skip
            own = judge(shown, news, readable, len(seen))
            count.update({key: own[key] for key in ("readable", "right")})
            count["wrong" if shown else "blank"] += own["wrong"]
        print("up to", name, [dict(count) for count in counts], flush=True)
    none = {"wrong": 0, "blank": 0}
    return [row | none | count for row, count in zip(rows, counts, strict=True)]


def with_rule(name: str, value: float | None) -> Rules:
    """The rules in use, but for one."""
    if value is None:
        return Rules()
    return replace(Rules(), **{name: math.log(value) if name in ("evidence", "lasting") else value})


def processor_time() -> float:
    """Processor time in seconds, that of the search's process with it once that has ended."""
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


def main() -> None:
    parser = arguments(
        __doc__, output=Path, model=LINES, device="cpu", fps=30.0,
        finder=(str, "a finder's file [default: the shipped one]"),
        every=(False, "every frame, one after another"),
        seconds=(float, "end each clip after so long"),
    )  # fmt: skip
    parser.add_argument("what", choices=("run", "rules"))
    parser.add_argument("folder", type=Path, metavar="CLIPS")
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    folder, names = args.folder, args.names
    rows = (rules if args.what == "rules" else run)(folder, names, args)
    if args.output:
        columns = OTHER_RULES if args.what == "rules" else EVERY if args.every else COLUMNS
        gpu = args.device != "cpu"
        write_results(args.output, rows, columns=columns, gpu=gpu, model=args.model)


if __name__ == "__main__":
    main()
