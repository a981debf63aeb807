"""``neocog bench``: the experiments, which lie beside the package in its source."""

import sys
from pathlib import Path

import typer

from neocog.errors import UsageError

_SOURCE = Path(__file__).resolve().parents[2]
#: All words are for the experiments' own commands.
SETTINGS = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def bench(context: typer.Context) -> None:
    """Run the experiments (in a clone)."""
    if not all((_SOURCE / name).is_file() for name in ("experiments/commands.py", "pyproject.toml")):
        raise UsageError(
            'the experiments need a clone of neocog; there: pip install -e ".[bench]" && neocog bench --help'
        )
    if str(_SOURCE) not in sys.path:
        sys.path.append(str(_SOURCE))
    from experiments.commands import app

    code = app(context.args or ["--help"], prog_name="neocog bench", standalone_mode=False)
    if isinstance(code, int):
        raise typer.Exit(code)
