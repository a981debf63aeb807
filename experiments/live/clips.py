"""Clips for the measurement of live reading: sheets held before a camera, and views without digits.

Every clip is a video (Motion JPEG) with a JSON file beside it that says what is shown when. A
sheet slides in from one side, is held by a hand that trembles (moved, tilted, nearer and further),
sometimes is covered for a moment, and is taken away; light and focus wander. Between two sheets
there is the desk alone.
"""

import csv
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.learning.pages.pen import write_digit

Picture = NDArray[np.uint8]
Rng = np.random.Generator

FPS = 30
SLIDE = 8  # frames in which a sheet comes or goes
HELD = (36, 66)  # frames for which it is held
AWAY = (18, 40)  # frames of the desk alone
COVERED = (4, 8)  # frames for which a sheet is covered, if it is
_COVERS = 0.3  # share of the showings in which it is

WORDS = (
    "the quick brown fox jumps over a lazy dog while many letters stand in rows on paper and "
    "nobody counts them since reading is meant for people who like long afternoons near water"
).split()


@dataclass
class Showing:
    """A sheet that is shown."""

    name: str  # its picture
    lines: list[str]  # digits that are written on it
    first: int = 0  # frame in which all of it is in view
    last: int = 0  # frame in which it still is
    leaves: int = 0  # frame from which nothing of it is in view
    still: str = ""  # a picture of it as the camera sees it when nothing moves


@dataclass
class Clip:
    """A clip and what it shows."""

    name: str
    size: tuple[int, int]
    frames: int = 0
    showings: list[Showing] = field(default_factory=list)

    def save(self, folder: Path) -> None:
        (folder / f"{self.name}.json").write_text(json.dumps(asdict(self), indent=1))

    @staticmethod
    def load(path: Path) -> "Clip":
        raw = json.loads(path.read_text())
        raw["showings"] = [Showing(**showing) for showing in raw["showings"]]
        raw["size"] = tuple(raw["size"])
        return Clip(**raw)


def desk(size: tuple[int, int], rng: Rng) -> Picture:
    """An empty desk, larger than the frame by a margin: wood, a cable, a cup, an edge."""
    width, height = size[0] * 3 // 2, size[1] * 3 // 2
    grain = cv2.resize(rng.normal(0, 1, (height // 3, 6)).astype(np.float32), (width, height))
    fine = cv2.resize(rng.normal(0, 1, (height, width // 12)).astype(np.float32), (width, height))
    base = np.array(rng.uniform((40, 60, 80), (120, 140, 170)))
    out = base + (6 * grain + 2 * fine)[:, :, None]
    for _ in range(int(rng.integers(0, 3))):
        points = rng.uniform((0, 0), (width, height), (4, 2))
        t = np.linspace(0, 1, 60)[:, None]
        curve = (
            (1 - t) ** 3 * points[0] + 3 * t * (1 - t) ** 2 * points[1]
            + 3 * t**2 * (1 - t) * points[2] + t**3 * points[3]
        )  # fmt: skip
        dark = rng.uniform(10, 60, 3).tolist()
        thick = max(2, height // 120)
        cv2.polylines(out, [curve.astype(np.int32)], False, dark, thick, cv2.LINE_AA)
    if rng.random() < 0.5:
        middle = rng.uniform((0, 0), (width, height)).astype(int).tolist()
        cv2.circle(out, middle, height // 7, rng.uniform(60, 230, 3).tolist(), -1, cv2.LINE_AA)
        cv2.circle(out, middle, height // 9, rng.uniform(20, 90, 3).tolist(), -1, cv2.LINE_AA)
    return np.clip(out, 0, 255).astype(np.uint8)


class Camera:
    """What a camera adds: a hand that trembles, light and focus that wander, noise."""

    def __init__(self, size: tuple[int, int], rng: Rng, *, still: bool = False) -> None:
        self.size, self.rng, self.still = size, rng, still
        self._phase = rng.uniform(0, 2 * np.pi, 12)
        self._speed = rng.uniform(0.02, 0.12, 12)
        self._noise = rng.uniform(1.5, 4.0)
        columns, rows = np.meshgrid(np.linspace(-1, 1, size[0]), np.linspace(-1, 1, size[1]))
        turn = rng.uniform(0, 2 * np.pi)
        slope = np.cos(turn) * columns + np.sin(turn) * rows
        self._light = (1 + rng.uniform(0.03, 0.18) * slope).astype(np.float32)[:, :, None]
        self._grains = [
            rng.normal(0, self._noise, (size[1], size[0], 1)).astype(np.float32) for _ in range(4)
        ]

    def sway(self, number: int, at: int) -> float:
        """A wandering value from -1 to 1."""
        if self.still:
            return 0.0
        one = np.sin(self._phase[number] + self._speed[number] * at)
        two = np.sin(self._phase[-number - 1] + 2.7 * self._speed[-number - 1] * at)
        return float(0.7 * one + 0.3 * two)

    def take(self, scene: Picture, at: int, speed: tuple[float, float] = (0, 0)) -> Picture:
        """The scene as the camera gives it; ``speed`` in pixels a frame blurs it."""
        if self.still:
            return scene
        run = float(np.hypot(*speed)) * 0.4
        if run > 2:
            side = int(run) | 1
            kernel = np.zeros((side, side), np.float32)
            middle = side // 2
            step = np.array(speed) / np.hypot(*speed) * middle
            ends = [(round(middle + s * step[0]), round(middle + s * step[1])) for s in (-1, 1)]
            cv2.line(kernel, ends[0], ends[1], 1.0)
            scene = cv2.filter2D(scene, -1, kernel / kernel.sum())
        focus = 0.55 + 0.45 * self.sway(4, at)
        if focus > 0.3:
            scene = cv2.GaussianBlur(scene, (0, 0), focus * self.size[1] / 720 + 0.2)
        gain = 0.95 + 0.12 * self.sway(5, at)
        grain = self._grains[int(self.rng.integers(4))]
        shift = int(self.rng.integers(self.size[0]))
        out = scene * (gain * self._light) + np.roll(grain, shift, axis=1)
        return np.clip(out, 0, 255).astype(np.uint8)


def placed(
    scene: Picture, sheet: Picture, middle: tuple[float, float], camera: Camera, at: int, shadow: float = 0.0
) -> Picture:
    """Lay a sheet over a scene, tilted and nearer or further as the hand has it.

    ``shadow``: how dark that of the sheet is.
    """
    height, width = sheet.shape[:2]
    corners = np.float32([[0, 0], [width, 0], [width, height], [0, height]])
    angle = np.radians(3.0 * camera.sway(0, at))
    near = 1 + 0.04 * camera.sway(1, at)
    turn = near * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    there = (corners - (width / 2, height / 2)) @ turn.T
    there *= 1 + 0.03 * camera.sway(2, at) * np.sign(there[:, :1]) * (-1, 1)
    there += (middle[0] + width * 0.015 * camera.sway(3, at), middle[1])
    there[:, 1] += height * 0.015 * camera.sway(5, at)
    warp = cv2.getPerspectiveTransform(corners, np.float32(there))
    out = scene.copy()
    if shadow:
        on = cv2.warpPerspective(np.ones(sheet.shape[:2], np.float32), warp, camera.size)
        under = cv2.GaussianBlur(np.roll(on, (8, 10), (0, 1)), (0, 0), 7)[..., None]
        out = (out * (1 - shadow * under)).astype(np.uint8)
    cv2.warpPerspective(
        sheet, warp, camera.size, dst=out, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_TRANSPARENT
    )
    return out


def hand(scene: Picture, at: tuple[float, float], size: float, rng: Rng, bend: float) -> Picture:
    """Draw a hand: a palm and five fingers."""
    out = scene.copy()
    skin = np.array([125, 150, 205]) * 0.9
    edge = (skin * 0.8).tolist()
    for n in range(5):
        turn = np.radians(-150 + 28 * n + 10 * bend * np.sin(n))
        long = size * (1.1, 1.5, 1.6, 1.5, 1.2)[n]
        tip = (round(at[0] + long * np.cos(turn)), round(at[1] + long * np.sin(turn)))
        root = (round(at[0] + 0.5 * size * np.cos(turn)), round(at[1] + 0.5 * size * np.sin(turn)))
        cv2.line(out, root, tip, edge, round(0.36 * size), cv2.LINE_AA)
        cv2.line(out, root, tip, skin.tolist(), round(0.3 * size), cv2.LINE_AA)
    middle = (round(at[0]), round(at[1]))
    cv2.circle(out, middle, round(0.72 * size), edge, -1, cv2.LINE_AA)
    cv2.circle(out, middle, round(0.68 * size), skin.tolist(), -1, cv2.LINE_AA)
    arm = (round(at[0] + 0.5 * size), round(at[1] + 6 * size))
    cv2.line(out, middle, arm, skin.tolist(), round(0.9 * size), cv2.LINE_AA)
    return out


def window(ground: Picture, camera: Camera, at: int) -> Picture:
    """What the camera sees of a larger ground."""
    width, height = camera.size
    room = ground.shape[1] - width, ground.shape[0] - height
    x = round(room[0] / 2 * (1 + 0.1 * camera.sway(3, at)))
    y = round(room[1] / 2 * (1 + 0.1 * camera.sway(2, at)))
    return ground[y : y + height, x : x + width]


def fitted(sheet: Picture, size: tuple[int, int], share: float) -> Picture:
    """A sheet so large that it takes a share of the frame."""
    scale = share * min(size[0] / sheet.shape[1], size[1] / sheet.shape[0])
    wide, high = round(sheet.shape[1] * scale), round(sheet.shape[0] * scale)
    how = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    return np.asarray(cv2.resize(sheet, (wide, high), interpolation=how), np.uint8)


def dark_room(size: tuple[int, int], rng: Rng) -> Picture:
    """A room behind whoever holds a sheet: dark, a lamp or a window far away."""
    width, height = size[0] * 3 // 2, size[1] * 3 // 2
    out = np.full((height, width, 3), rng.uniform(12, 40) + rng.uniform(-6, 6, 3), np.float32)
    for _ in range(int(rng.integers(3, 8))):
        corner = rng.uniform((0, 0), (width, height)).astype(int)
        far = (corner + rng.uniform(0.05, 0.4, 2) * (width, height)).astype(int)
        colour = (rng.uniform(8, 60) + rng.uniform(-8, 8, 3)).tolist()
        cv2.rectangle(out, corner.tolist(), far.tolist(), colour, -1)
    return np.clip(cv2.GaussianBlur(out, (0, 0), height / 120), 0, 255).astype(np.uint8)


def held_in_hands(scene: Picture, sheet: Picture, middle: tuple[float, float]) -> Picture:
    """Two hands on the sides of a sheet: thumbs before it, arms from below."""
    out = scene.copy()
    wide, high = sheet.shape[1] / 2, sheet.shape[0] / 2
    for side in (-1, 1):
        edge = np.array((middle[0] + side * wide, middle[1] + 0.35 * high))
        tip = edge + np.array((-side * 0.04 * wide, -0.05 * high))
        palm = edge + np.array((side * 0.16 * wide, 0.2 * high))
        arm = edge + np.array((side * 0.5 * wide, 3 * high))
        for start, end, thick in ((palm, arm, 0.3), (palm, tip, 0.09)):
            for shade, share in (((88, 106, 148), 1.0), ((112, 135, 185), 0.8)):
                ends = start.astype(int).tolist(), end.astype(int).tolist()
                cv2.line(out, *ends, shade, max(1, round(share * thick * high)), cv2.LINE_AA)
    return out


def show(
    clip: Clip,
    showing: Showing,
    sheet: Picture,
    rng: Rng,
    folder: Path,
    *,
    held_up: bool = False,
    ground: Picture | None = None,
    shadow: float = 0.0,
) -> Iterator[Picture]:
    """The frames of one showing, and of what is there without it: a desk, or with hands a room."""
    camera = Camera(clip.size, rng)
    if ground is None:
        ground = (dark_room if held_up else desk)(clip.size, rng)
    width, height = clip.size
    home = np.array([width / 2, height / 2])
    side = [(-1, 0), (1, 0), (0, -1), (0, 1)][int(rng.integers(4))]
    out = home + np.array(side) * ((width + sheet.shape[1]) * 0.55, (height + sheet.shape[0]) * 0.55)
    held = int(rng.integers(*HELD))
    cover = range(0)
    if rng.random() < _COVERS:
        start = SLIDE + int(rng.integers(18, held - 10))
        cover = range(start, start + int(rng.integers(*COVERED)))
    start = clip.frames
    showing.first, showing.last = start + SLIDE, start + SLIDE + held - 1
    showing.leaves = start + 2 * SLIDE + held
    still = placed(window(ground, camera, 0), sheet, tuple(home), Camera(clip.size, rng, still=True), 0)
    showing.still = f"{clip.name}-{len(clip.showings):03d}.png"
    cv2.imwrite(str(folder / showing.still), still)
    clip.showings.append(showing)
    before = out
    for step in range(2 * SLIDE + held):
        part = min(step + 1, 2 * SLIDE + held - step, SLIDE) / SLIDE
        place = out + (home - out) * (1 - (1 - part) ** 2)
        speed, before = place - before, place
        scene = window(ground, camera, step)
        if step not in cover:
            scene = placed(scene, sheet, tuple(place), camera, step, shadow)
            scene = held_in_hands(scene, sheet, tuple(place)) if held_up else scene
        yield camera.take(scene, step, tuple(speed))
    for step in range(int(rng.integers(*AWAY))):
        yield camera.take(window(ground, camera, step), step)


def photo_sheets(folder: Path, rng: Rng) -> Iterator[tuple[str, list[str], Picture]]:
    """The photographs, no two with the same text one after another."""
    with open(folder / "labels.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    order: list[dict[str, str]] = []
    pool = [rows[i] for i in rng.permutation(len(rows))]
    while pool:
        apart = [r for r in pool if not order or r["digits"] != order[-1]["digits"]]
        order.append((apart or pool)[0])
        pool.remove(order[-1])
    for row in order:
        picture = cv2.imread(str(folder / row["file"]))
        turned = "rotate 90 ccw" in row["notes"]
        lines = ["".join(c for c in line if c.isdecimal()) for line in row["text"].split("|")]
        if turned:
            picture = cv2.rotate(picture, cv2.ROTATE_90_COUNTERCLOCKWISE)
        yield row["file"], lines, np.asarray(picture, np.uint8)


def string_sheets(digits: Any, labels: Any, count: int, rng: Rng) -> Iterator[tuple[str, list[str], Picture]]:
    """Sheets with eight digits in a row, in a pen's colour."""
    for number in range(count):
        chosen = rng.integers(0, len(digits), 8)
        tall = 120
        paper = rng.uniform(195, 245) * np.array([1.0, 1.0, 1.0]) + rng.uniform(-6, 6, 3)
        ink = rng.uniform((20, 10, 0), (140, 70, 60))
        mask = np.zeros((int(tall * 3.2), int(tall * 11.2)), np.float32)
        x = int(tall * 0.6)
        for index in chosen:
            size = int(tall * rng.uniform(1.2, 1.4))
            ink_of = cv2.resize(
                digits[index].astype(np.float32) / 255, (size, size), interpolation=cv2.INTER_CUBIC
            )
            y = int(tall * 0.9 + rng.uniform(-0.1, 0.1) * tall)
            part = mask[y : y + size, x : x + size]
            np.maximum(part, ink_of[:, : part.shape[1]], out=part)
            x += int(tall * rng.uniform(1.1, 1.3))
        mask = np.clip(mask, 0, 1)[:, :, None]
        sheet = paper * (1 - mask) + ink * mask
        text = "".join(str(labels[i]) for i in chosen)
        yield f"string {number}", [text], np.clip(sheet, 0, 255).astype(np.uint8)


def scattered_sheets(
    digits: Any, labels: Any, count: int, rng: Rng
) -> Iterator[tuple[str, list[str], Picture]]:
    """Sheets with twenty scattered digits, four rows of five, from marker to faint pencil."""
    for number in range(count):
        sheet = Sheet((900, 1200), rng)
        rows = []
        for row in range(4):
            chosen = rng.integers(0, len(digits), 5)
            rows.append("".join(str(labels[i]) for i in chosen))
            for column, index in enumerate(chosen):
                tall = rng.uniform(80, 120)
                middle = rng.uniform(-22, 22, 2) + np.array((150 + 225 * column, 135 + 210 * row))
                sheet.write(digits[index], middle, tall, 1 / rng.uniform(7, 22),
                            ink=rng.choice((1.0, 0.6, 0.3)))  # fmt: skip
        yield f"scattered {number}", rows, sheet.picture()


def thin_sheets(digits: Any, labels: Any, count: int, rng: Rng) -> Iterator[tuple[str, list[str], Picture]]:
    """Sheets with a large number written with a thin pen."""
    for number in range(count):
        chosen = rng.integers(0, len(digits), int(rng.integers(2, 6)))
        sheet = Sheet((600, 280 * len(chosen) + 140), rng)
        for column, index in enumerate(chosen):
            tall = rng.uniform(320, 400)
            middle = rng.uniform(-12, 12, 2) + np.array((210 + 280 * column, 300))
            sheet.write(digits[index], middle, tall, 1 / rng.uniform(22, 38), ink=0.9)
        yield f"thin {number}", ["".join(str(labels[i]) for i in chosen)], sheet.picture()


class Sheet:
    """A sheet of paper (H, W) that is written on."""

    def __init__(self, size: tuple[int, int], rng: Rng) -> None:
        self._paper = rng.uniform(200, 245) + rng.uniform(-6, 6, 3)
        self._pen = rng.uniform((20, 10, 0), (120, 60, 60))
        self._ink = np.zeros(size, np.float32)

    def write(
        self, digit: Picture, middle: NDArray[np.float64], tall: float, pen: float, *, ink: float
    ) -> None:
        """Write a digit around a place (column, row); the pen's width as a share of its height."""
        drawn = ink * write_digit(digit, tall, pen)
        y, x = (round(m - side / 2) for m, side in zip(middle[::-1], drawn.shape, strict=True))
        part = self._ink[y : y + drawn.shape[0], x : x + drawn.shape[1]]
        np.maximum(part, drawn, out=part)

    def picture(self) -> Picture:
        """The sheet in colours (H, W, 3)."""
        ink = self._ink[:, :, None]
        return np.clip(self._paper * (1 - ink) + self._pen * ink, 0, 255).astype(np.uint8)


def blank_frames(size: tuple[int, int], count: int, rng: Rng) -> Iterator[Picture]:
    """Views without a digit: an empty desk, a hand on it, print that is held before the camera."""
    left, kind = count, 0
    while left > 0:
        length = min(left, int(rng.integers(150, 300)))
        camera, ground = Camera(size, rng), desk(size, rng)
        sheet = fitted(printed(rng), size, rng.uniform(0.7, 1.3)) if kind % 3 == 2 else None
        for step in range(length):
            scene = window(ground, camera, step)
            if kind % 3 == 1:
                reach = size[1] * rng.uniform(0.125, 0.13)
                at = (
                    size[0] * (0.5 + 0.3 * camera.sway(0, step)),
                    size[1] * (0.55 + 0.25 * camera.sway(1, step)),
                )
                scene = hand(scene, at, reach, rng, camera.sway(2, step))
            if sheet is not None:
                scene = placed(scene, sheet, (size[0] / 2, size[1] / 2), camera, step)
            yield camera.take(scene, step)
        left, kind = left - length, kind + 1


def printed(rng: Rng) -> Picture:
    """A page of printed words."""
    page = np.full((1100, 1400, 3), rng.uniform(200, 250), np.uint8)
    face = [cv2.FONT_HERSHEY_DUPLEX, cv2.FONT_HERSHEY_COMPLEX, cv2.FONT_HERSHEY_TRIPLEX][int(rng.integers(3))]
    scale = float(rng.uniform(0.9, 2.4))
    y = 60
    while y < 1060:
        words, x = rng.permutation(len(WORDS)), 60
        for index in words:
            (wide, _), _ = cv2.getTextSize(WORDS[index], face, scale, 2)
            if x + wide > 1340:
                break
            pen = max(1, round(scale * 1.5))
            cv2.putText(page, WORDS[index], (x, y), face, scale, (40, 40, 45), pen, cv2.LINE_AA)
            x += wide + round(14 * scale)
        y += round(42 * scale)
    return page


def write(clip: Clip, frames: Iterator[Picture], folder: Path) -> None:
    """Write the frames of a clip, and what it shows."""
    video = cv2.VideoWriter(str(folder / f"{clip.name}.avi"), cv2.VideoWriter.fourcc(*"MJPG"), FPS, clip.size)
    for frame in frames:
        video.write(frame)
        clip.frames += 1
    video.release()
    clip.save(folder)
