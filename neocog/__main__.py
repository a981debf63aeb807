"""``python -m neocog`` and the command: the current folder is left, and Ctrl-C is one line."""

from neocog.programs import leave_folder

leave_folder()

from neocog.interrupts import leave_at_once  # noqa: E402


def main() -> None:
    """Run the command line and exit."""
    leave_at_once()
    from neocog.cli import main as run

    run()


if __name__ == "__main__":
    main()
