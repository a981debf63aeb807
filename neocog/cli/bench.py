"""``neocog bench``: the experiments, which lie beside the package in its source."""

import sys
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from neocog.errors import UsageError

_SOURCE = Path(__file__).resolve().parents[2]


class _Experiments(TyperGroup):
    """Commands that are loaded when wanted; without their folder it says where they are."""

    @property
    def commands(self) -> Any:
        """The experiments' commands by name."""
        files = ("experiments/commands.py", "pyproject.toml")
        if not all((_SOURCE / name).is_file() for name in files):
            raise UsageError(
                'the experiments need a clone of neocog; there: pip install -e ".[bench]" && '
                "neocog bench --help"
            )
        if str(_SOURCE) not in sys.path:
            sys.path.append(str(_SOURCE))
        from experiments.commands import app as experiments

        return typer.main.get_command(experiments).commands  # type: ignore[attr-defined]

    @commands.setter
    def commands(self, none: Any) -> None:
        pass


app = typer.Typer(
    cls=_Experiments, help="Run the experiments (in a clone).", no_args_is_help=True, rich_markup_mode=None
)
app.callback()(lambda: None)
