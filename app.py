#!/usr/bin/env python3
"""The neocog program without installing it: ``python app.py read photo.jpg``.

Its dependencies must be there: numpy, opencv-python, pillow, rich, safetensors, typer.
"""

import os
import sys

HOME = os.path.dirname(os.path.realpath(__file__))
sys.path[:] = [HOME, *(place for place in sys.path if os.path.realpath(place) != HOME)]
import neocog  # noqa: E402, F401 - it imports nothing: nothing that lies beside it gets in

del sys.path[0]

from neocog.__main__ import main  # noqa: E402

if __name__ == "__main__":
    main()
