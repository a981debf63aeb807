"""``python -m neocog`` and the command: the current folder is left, and Ctrl-C is one line."""

import os

from neocog.programs import leave_folder

leave_folder()


def main() -> None:
    try:
        from neocog.cli import main as run

        run()
    except KeyboardInterrupt:  # before a command begins, or after it: there is nothing to clean up
        os.write(2, b"neocog: interrupted\n")
        os._exit(130)


if __name__ == "__main__":
    main()
