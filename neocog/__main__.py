"""``python -m neocog`` and the command: the current folder is left, and Ctrl-C is one line."""

from neocog.programs import leave_at_once, leave_folder

leave_folder()


def main() -> None:
    """Run the command line and exit."""
    leave_at_once()
    from neocog.cli import main as run

    run()


if __name__ == "__main__":
    main()
