"""The command line that the scripts have in common."""

import argparse
from pathlib import Path
from typing import Any


def arguments(about: str | None, *paths: str, **usual: Any) -> argparse.ArgumentParser:
    """Return a parser of ``paths`` and of an option for each of ``usual``.

    The value of an option is what it is if not given: False for a switch, a list for several, a type where
    there is no such value; or a pair of that and a help. Without a value ``output`` is required, as ``-o``.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    for path in paths:
        parser.add_argument(path, type=Path)
    for name, value in usual.items():
        value, words = value if isinstance(value, tuple) else (value, None)
        if name == "output":
            usually = value if isinstance(value, Path) else None
            parser.add_argument("-o", "--output", type=Path, default=usually, required=value is None)
            continue
        how: dict[str, Any] = {"action": "store_true"}
        if isinstance(value, type):
            how = {"type": value}
        elif value is not False:
            one = value[0] if isinstance(value, list) and value else value
            how = {"type": type(one), "default": value}
        if isinstance(value, list):
            how["nargs"] = "+"
        parser.add_argument(f"--{name.replace('_', '-')}", help=words, **how)
    return parser


def data_and_output(about: str | None, **usual: Any) -> argparse.ArgumentParser:
    """Return a parser of ``DATA -o RESULT`` and a script's own options."""
    return arguments(about, "data", output=None, **usual)
