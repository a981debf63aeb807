"""Whether a window can be opened: asked before, since OpenCV 5 ends the process where it cannot."""

import os
import subprocess
import sys

from neocog.programs import python

_LONGEST = 20.0  # seconds that a window may take to open

_TRY = "import cv2; cv2.namedWindow('display?'); cv2.waitKey(1); cv2.destroyAllWindows()"


def display_trouble() -> str | None:
    """Say why no window can be opened, or None if one can.

    The first window is opened in a process of its own.
    """
    hush_windows()
    own = sys.platform in ("win32", "darwin")
    if not own and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return "there is no display"
    if not has_windows():
        return "this OpenCV has no windows (opencv-python has, opencv-python-headless has not)"
    try:
        run = subprocess.run(python("-c", _TRY), capture_output=True, timeout=_LONGEST)
    except subprocess.TimeoutExpired:
        return "the display does not answer"
    return None if run.returncode == 0 else "the display cannot be used"


def has_windows() -> bool:
    """Whether this OpenCV was built with a user interface."""
    import cv2

    for line in cv2.getBuildInformation().splitlines():
        name, _, value = line.strip().partition(":")
        if name == "GUI":
            return value.strip().upper() != "NONE"
    return True


def hush_windows() -> None:
    """Keep Qt's remarks about fonts and plugins off stderr."""
    os.environ.setdefault("QT_LOGGING_RULES", "*=false")
