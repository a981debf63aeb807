"""The command line that the scripts have in common."""

import argparse
from pathlib import Path


def data_and_output(about: str | None) -> argparse.ArgumentParser:
    """Return a parser of ``DATA -o RESULT``, to which a script adds its own options."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    return parser
