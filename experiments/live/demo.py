"""Makes the pictures of live reading in docs from a clip that `experiments.reading.freeze` drew.

It is played like a camera. Nothing is written where the machine is too busy for 30 frames a second; with
``--busy`` every frame is read, as fast as it goes.
"""

from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from experiments.harness.record import arguments
from experiments.reading.freeze import DEFAULT
from neocog.live.draw import Picture, candidates, layers
from neocog.live.pipeline import Settings, View, responses
from neocog.live.session import Session
from neocog.live.sources import open_source
from neocog.live.window import Window
from neocog.reading.reader import Reader

FPS = 30
EVERY = 5  # frames of the camera per frame of it


class Screen(Window):
    """A window on no display that keeps what it shows: small pictures, and one at full size."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.small: list[Picture] = []
        self.kept: tuple[View, Picture] | None = None
        self._sharpest = 0.0

    def show(self, view: View) -> None:
        picture = self.take(view)
        told = [t for t, said in zip(view.tracks, view.said, strict=True) if t.text == said]
        if view.seen.rows and any(track.steady >= 16 for track in told):
            sharp = float(cv2.Laplacian(view.seen.grey, cv2.CV_32F).var())
            if sharp > self._sharpest:  # at rest, and in focus
                self.kept, self._sharpest = (view, picture), sharp
        if view.frame.index // EVERY >= len(self.small):
            size = 400, round(400 * len(picture) / picture.shape[1])
            self.small.append(np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), np.uint8))

    def keys(self) -> bool:
        return True


def main() -> None:
    """Read the clip as from a camera, write the three pictures."""
    busy = (False, "read every frame, though slowly")
    parser = arguments(__doc__, output=False, clip=DEFAULT / "demo/demo.avi", busy=busy)
    parser.add_argument("docs", type=Path, nargs="?", default=Path("docs"))
    args = parser.parse_args()
    reader = Reader(device="cpu")
    session = Session(open_source(args.clip), reader, Settings(replay_fps=None if args.busy else FPS), Screen)
    session.run()
    screen = session.window
    assert isinstance(screen, Screen)
    if screen.kept is None:
        parser.exit(1, "no number was announced\n")
    view, picture = screen.kept
    run = view.measures
    told = f"{run.fps:.1f} frames a second, {run.dropped} dropped, {run.age_ms:.0f} ms old"
    if (run.fps < 29.5 or run.dropped) and not args.busy:
        parser.exit(1, f"{told}: the machine is busy; nothing is written (--busy)\n")
    height, maps = len(picture), responses(reader, view.seen)
    assert maps is not None
    panels = [picture, candidates(view.seen, height=height), layers(maps, height=height)]
    quality = [cv2.IMWRITE_JPEG_QUALITY, 88]
    cv2.imwrite(str(args.docs / "live.window.jpg"), picture, quality)
    cv2.imwrite(str(args.docs / "live.layers.jpg"), np.concatenate(panels, axis=1), quality)
    images = [Image.fromarray(np.ascontiguousarray(one[:, :, ::-1])) for one in screen.small]
    several = np.concatenate([np.asarray(image) for image in images[:: len(images) // 6]])
    palette = Image.fromarray(several).quantize(48)
    few = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    each = 1000 * EVERY // FPS  # ms
    few[0].save(args.docs / "live.gif", save_all=True, append_images=few[1:], duration=each, loop=0)
    print(told)


if __name__ == "__main__":
    main()
