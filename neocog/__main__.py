"""``python -m neocog``: the same program as the command ``neocog``."""

from neocog.cli import main

if __name__ == "__main__":
    main()
