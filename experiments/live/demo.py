"""Makes the demonstration of live reading in docs: the sample pictures held before a camera.

    python -m experiments.live.demo docs/live.gif

The clip is rendered as for the measurement, then `neocog live` reads it and records what its
window would show; the recording becomes an animation of reduced size.
"""

import sys
import tempfile
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from experiments.live import clips
from neocog.batch.reader import Reader
from neocog.live.pipeline import Settings
from neocog.live.session import Session
from neocog.live.sources import open_source

SAMPLES = Path(__file__).resolve().parents[2] / "data" / "samples"
SHOWN = {"postcode.png": ["90412"], "dates.jpg": ["1979", "2003"], "phone.jpg": ["01632960857"]}
SIZE = (960, 540)
SEED = 11
WIDTH = 400
EVERY = 5  # frames of the recording per frame of the animation
COLOURS = 48


def record(folder: Path) -> Path:
    """Render the clip, read it, and return the recording."""
    rng = np.random.default_rng(SEED)
    clip = clips.Clip("demo", SIZE)
    frames: list[clips.Picture] = []
    for name, lines in SHOWN.items():
        picture = np.asarray(cv2.imread(str(SAMPLES / name)), np.uint8)
        sheet = clips.fitted(picture, SIZE, 0.8)
        frames += clips.show(clip, clips.Showing(name, lines), sheet, rng, folder)
        clip.frames = len(frames)
    clip.frames = 0
    clips.write(clip, iter(frames), folder)
    path = folder / "demo-read.mp4"
    source = open_source(folder / "demo.avi")
    reader = Reader("neocog-small", device="cpu")
    Session(source, reader, Settings(), video=str(path)).run()
    return path


def animate(video: Path, path: Path) -> None:
    """Write a video as an animated GIF of few colours."""
    played = cv2.VideoCapture(str(video))
    pictures = []
    while True:
        done, frame = played.read()
        if not done:
            break
        height = round(WIDTH * frame.shape[0] / frame.shape[1])
        small = cv2.resize(frame, (WIDTH, height), interpolation=cv2.INTER_AREA)
        pictures.append(Image.fromarray(np.ascontiguousarray(small[:, :, ::-1])))
    pictures = pictures[::EVERY]
    several = np.concatenate([np.asarray(picture) for picture in pictures[:: len(pictures) // 6]])
    palette = Image.fromarray(several).quantize(COLOURS)
    few = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    few[0].save(
        path, save_all=True, append_images=few[1:], duration=1000 * EVERY // clips.FPS, loop=0
    )


def main() -> None:
    """Make the animation whose name was given."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        animate(record(Path(folder)), Path(sys.argv[1]))


if __name__ == "__main__":
    main()
