#!/usr/bin/env python3
"""The neocog program without installing it: ``python app.py read photo.jpg``.

Its dependencies must be there: numpy, opencv-python, pillow, rich, safetensors, typer.
"""

from neocog.cli import main

if __name__ == "__main__":
    main()
