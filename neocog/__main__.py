"""``python -m neocog`` and the command; the current folder is left before anything is imported."""

from neocog.programs import leave_folder

leave_folder()


def main() -> None:
    from neocog.cli import main as run

    run()


if __name__ == "__main__":
    main()
