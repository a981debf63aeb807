"""``neocog doctor``: what this machine has and what it lacks."""

import typer

from neocog.cli import options
from neocog.text import to_json


def doctor(as_json: options.Json = False) -> None:
    """Check this machine and report what is missing. Exit code 1 if neocog cannot read here."""
    from neocog import __version__
    from neocog.evaluation.health import examine

    checks = []
    if not as_json:
        print(f"neocog {__version__}")
    for check in examine():
        checks.append(check)
        if not as_json:
            print(f"{check.level:5s} {check.name:8s} {check.found}", flush=True)
            if check.advice:
                print(f"{'':14s} -> {check.advice}")
    if as_json:
        print(to_json({"version": __version__, "checks": [c._asdict() for c in checks]}))
    if any(check.level == "fail" for check in checks):
        raise typer.Exit(1)
