"""``python -m neocog`` and the command ``neocog``: the current folder is left, then all begins."""

from neocog.programs import leave_folder

leave_folder()

from neocog.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
