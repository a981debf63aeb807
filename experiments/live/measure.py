"""Measures live reading of `experiments.reading.freeze`'s clips: rate, age, what is announced: see README.md.

A line counts as readable if one picture of the sheet at rest is read right by the same model.
"""

import argparse
import json
import math
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import cv2
import numpy as np

from experiments.harness.record import arguments, write_results
from experiments.lines.score import DIGITS, only
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

Row = dict[str, Any]
News = list[tuple[int, str]]
"""What was announced: frame, text."""
JUDGED = {
    "shown": "lines shown", "readable": "read right at rest", "right": "of them announced once and right",
    "wrong": "wrong announcements", "again": "announced twice", "other_right": "others announced right",
}  # fmt: skip
COLUMNS = {
    "clip": "clip", "seconds": "seconds|.0f", "fps": "frames a second|.1f", "dropped": "dropped|.1%",
    "cpu_ms": "CPU time a frame, ms", "age_median": "age, median ms|.0f", "age_p95": "age, p95 ms|.0f",
} | JUDGED  # fmt: skip
EVERY = {
    "clip": "clip", "frames": "frames", "cpu_ms": "CPU time a frame, ms",
    "coarse": "frames searched at half size|.0%", "strips": "strips a frame|.2f",
    "columns": "columns of strips a frame|.0f",
} | JUDGED  # fmt: skip
OTHER_RULES = {"rule": "rule", "value": "value", "readable": JUDGED["readable"], "right": JUDGED["right"],
               "wrong": JUDGED["wrong"], "blank": "announced where no digit is"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Showing:
    """A sheet that a clip shows."""

    name: str  # its picture
    lines: list[str]  # digits that are written on it
    first: int  # frame in which all of it is in view
    last: int  # frame in which it still is
    leaves: int  # frame from which nothing of it is in view
    still: str  # a picture of it as the camera sees it when nothing moves


def play(path: Path, reader: Reader, args: argparse.Namespace) -> tuple[Row, News]:
    """Play a clip like a camera; return the figures and what was announced at which frame."""
    rows, news = list[tuple[float, float, float]](), list[tuple[int, str]]()
    with Pipeline(open_source(path), reader, Settings(replay_fps=args.fps)) as pipeline:
        busy, start = sum(os.times()[:4]), 0.0
        for view in pipeline:
            now = time.perf_counter()
            start = start or now
            rows.append((view.age_ms, view.seen.find_ms, view.seen.ms))
            news += [(one.frame, only(one.text, DIGITS)) for one in view.news]
            if args.seconds and now - start > args.seconds:
                break
        run, played = pipeline.measures, pipeline.capture.count
    spent, (age, find, read) = now - start, np.percentile(rows, 95, axis=0).tolist()
    return {
        "seconds": spent, "frames": len(rows), "played": played,
        "cpu_ms": round(1e3 * (sum(os.times()[:4]) - busy) / len(rows), 1),
        "fps": (len(rows) - 1) / spent, "dropped": run.dropped / max(played, 1),
        "age_median": float(np.median([row[0] for row in rows])), "age_p95": age,
        "p95_ms": {"find": round(find, 1), "recognise": round(read, 1)},
        "ms": {name: round(value, 2) for name, value in run.ms.items()},
    }, news  # fmt: skip


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


def work(path: Path, reader: Reader, args: argparse.Namespace) -> tuple[Row, News]:
    """Read every frame; return the figures of a frame and what was announced at which."""
    announcer, engine, widths, news = Announcer(), reader.engine, list[int](), list[tuple[int, str]]()
    asked = engine.likelihoods  # type: ignore[attr-defined]

    def counted(strips: Any) -> Any:
        widths.extend(strip.shape[1] for strip in strips)
        return asked(strips)

    engine.likelihoods = counted  # type: ignore[attr-defined]
    start, half, count = sum(os.times()[:4]), 0, 0
    for seen, tracks in every_frame(path, reader, args.seconds):
        said = announcer.update(tracks, seen.frame.t, seen.bounds)
        news += [(seen.frame.index, only(one.text, DIGITS)) for one in said]
        half, count = half + (not seen.entire), count + 1
    engine.likelihoods = asked  # type: ignore[attr-defined]
    return {
        "frames": count, "played": count, "cpu_ms": round(1e3 * (sum(os.times()[:4]) - start) / count, 1),
        "coarse": round(half / count, 3), "strips": round(len(widths) / count, 3),
        "columns": round(sum(widths) / count, 1),
    }, news  # fmt: skip


def judge(shown: list[Showing], news: News, readable: list[set[str]], played: int) -> Row:
    """Count what was announced (frame, text) of showings ``played``, and of their ``readable`` lines."""
    found = Counter(dict.fromkeys(("shown", "readable", "right", "wrong", "again", "other_right"), 0))
    wrong, missed, left = list[Row](), list[str](), list(news)
    for number, showing in enumerate(shown):
        end = showing.leaves + LATE
        if end > played:  # it may still be announced, or be announced in part
            left = [one for one in left if one[0] < showing.first - SLIDE]
            break
        if number + 1 < len(shown):
            end = min(end, shown[number + 1].first - SLIDE)
        own = [one for one in left if showing.first - SLIDE <= one[0] < end]
        left = [one for one in left if one not in own]
        for line in set(showing.lines):
            asked = line in readable[number] and showing.last - showing.first >= SHOWN_LONG
            count = sum(text == line for _, text in own)
            found.update(shown=1, readable=asked, again=count > 1)
            found.update({"right" if asked else "other_right": count == 1})
            missed += [f"{line} ({showing.name})"] * (asked and count == 0)
        wrong += [{"frame": frame, "text": text, "shown": showing.lines}
                  for frame, text in own if text not in showing.lines]  # fmt: skip
    wrong += [{"frame": frame, "text": text, "shown": []} for frame, text in left]
    return {**found, "wrong": len(wrong), "mistakes": wrong, "missed": missed}


def shown_in(clip: Path, reader: Reader) -> tuple[list[Showing], list[set[str]]]:
    """What a clip shows, from the JSON beside it; and of each the lines read right in one picture of it."""
    shown = [Showing(**one) for one in json.loads(clip.with_suffix(".json").read_text())["showings"]]
    pictures = [np.asarray(cv2.imread(str(clip.parent / one.still)), np.uint8)[:, :, ::-1] for one in shown]
    texts = [reader.read(np.ascontiguousarray(picture)).plain.split("\n") for picture in pictures]
    return shown, [set(text) & set(one.lines) for text, one in zip(texts, shown, strict=True)]


def run(clips: list[Path], reader: Reader, args: argparse.Namespace) -> list[Row]:
    """Measure clips, one after another."""
    rows = []
    for clip in clips:
        figures, news = (work if args.every else play)(clip, reader, args)
        shown, readable = shown_in(clip, reader)
        own = judge(shown, news, readable, figures["played"])
        rows.append({"clip": clip.stem, "every": args.every, **figures, **own})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def rules(clips: list[Path], reader: Reader, args: argparse.Namespace) -> list[Row]:
    """Tell what other rules would announce, of all clips together."""
    rows: list[Row] = [{"rule": name, "value": value} for name, value in (("as they are", None), *VARIED)]
    counts = [Counter[str]() for _ in rows]
    for clip in clips:
        shown, readable = shown_in(clip, reader)
        seen = [(frame.frame.index, frame.frame.t, tracks, frame.bounds)
                for frame, tracks in every_frame(clip, reader, args.seconds)]  # fmt: skip
        for row, count in zip(rows, counts, strict=True):
            name, value = row["rule"], row["value"]
            value = math.log(value) if name in ("evidence", "lasting") else value
            announcer = Announcer(Rules() if value is None else replace(Rules(), **{name: value}))
            news = [(index, only(one.text, DIGITS)) for index, t, tracks, bounds in seen
                    for one in announcer.update(tracks, t, bounds)]  # fmt: skip
            own = judge(shown, news, readable, len(seen))
            count.update({key: own[key] for key in ("readable", "right")})
            count["wrong" if shown else "blank"] += own["wrong"]
        print("up to", clip.stem, [dict(count) for count in counts], flush=True)
    return [row | {"wrong": 0, "blank": 0} | count for row, count in zip(rows, counts, strict=True)]


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
    reader = Reader(args.model, device=args.device, finder=args.finder)
    clips = [args.folder / f"{name}.avi" for name in args.names] or sorted(args.folder.glob("*.avi"))
    rows = (rules if args.what == "rules" else run)(clips, reader, args)
    columns = OTHER_RULES if args.what == "rules" else EVERY if args.every else COLUMNS
    write_results(args.output, rows, columns=columns, gpu=args.device != "cpu", model=args.model)


if __name__ == "__main__":
    main()
