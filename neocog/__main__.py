"""``python -m neocog`` and the command ``neocog``: Ctrl-C is one line from the first import on."""

from neocog.interrupts import leave_at_once


def main() -> None:
    """Run the command line and exit."""
    leave_at_once()
    from neocog.cli import main as run

    run()


if __name__ == "__main__":
    main()
