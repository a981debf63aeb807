"""All the papers' experiments: run in turn into one result, and made into one page.

``neocog bench all --json results.json`` and ``neocog bench report results.json``. Modules are
imported when they are needed; an experiment that fails is noted, and the next begins.
"""

import json
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from neocog.errors import InputError, NeocogError, UsageError

Result = dict[str, Any]
Log = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of every experiment.

    Attributes
    ----------
    device : str
        ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
    quick : bool
        Less of everything.
    data : Path or None
        A folder that holds ``mnist``.
    log : callable
        Takes lines of progress.
    keep : callable
        Takes the experiment's result so far.
    """

    device: str
    quick: bool
    data: Path | None
    log: Log
    keep: Callable[[Result], None]

    @property
    def on_gpu(self) -> bool:
        """Whether there is a GPU to measure."""
        return self.device != "cpu"

    @property
    def number(self) -> int:
        """Which GPU, where one is enough."""
        return int(self.device.partition(":")[2] or 0)

    def command(self, name: str) -> str:
        """Return what runs one of the experiments again."""
        words = [f"neocog bench all --device {self.device} --only {name}"]
        return " ".join(words + ["--quick"] * self.quick)


@dataclass(frozen=True, slots=True)
class Experiment:
    """One of the experiments.

    Attributes
    ----------
    run : callable
        Runs it.
    report : str
        The module that has ``section(result, figures=...)``, ``verdict(result)``,
        ``write_figures(result, folder)`` and, where all tables have a page of their own,
        ``summary(result, figures=..., full=...)``.
    faults : str
        The module that has ``faults(result)``.
    """

    run: Callable[[Request], Result]
    report: str
    faults: str

    def ask(self, what: str, *args: Any, **more: Any) -> Any:
        """Call a function of the report's module."""
        return getattr(import_module(self.report), what)(*args, **more)

    def has(self, what: str) -> bool:
        """Whether the report's module has a function."""
        return hasattr(import_module(self.report), what)


def _network(request: Request) -> Result:
    from experiments.network.experiment import run

    return run(request.device, quick=request.quick, log=request.log, keep=request.keep)


def _convpool(request: Request) -> Result:
    from experiments.convpool import experiment as convpool

    if not request.on_gpu:
        command = request.command("convpool")
        return convpool.run_on_cpu(save=request.keep, log=request.log, command=command)
    return convpool.run_attended(
        quick=request.quick,
        save=request.keep,
        log=request.log,
        command=request.command("convpool"),
        number=request.number,
    )


def _winograd(request: Request) -> Result:
    from experiments.winograd import experiment as winograd

    run = partial(
        winograd.run_attended if request.on_gpu else winograd.run_on_cpu,
        quick=request.quick,
        save=request.keep,
        log=request.log,
        command=request.command("winograd"),
    )
    return run(number=request.number) if request.on_gpu else run()


def _slayer(request: Request) -> Result:
    from experiments.slayer.experiment import Options, run_attended

    options = Options(device=request.device, data=request.data, quick=request.quick)
    return run_attended(options, log=request.log, keep=request.keep)


#: By name, in the order of the page.
EXPERIMENTS: dict[str, Experiment] = {
    "convpool": Experiment(
        _convpool, "experiments.convpool.report", "experiments.convpool.experiment"
    ),
    "winograd": Experiment(
        _winograd, "experiments.winograd.report", "experiments.winograd.experiment"
    ),
    "slayer": Experiment(_slayer, "experiments.slayer.report", "experiments.slayer.experiment"),
    "network": Experiment(
        _network, "experiments.network.experiment", "experiments.network.experiment"
    ),
}


def run_all(
    device: str,
    *,
    names: Sequence[str] = (),
    quick: bool,
    data: Path | None,
    log: Log,
    keep: Callable[[Mapping[str, Result]], None],
) -> dict[str, Result]:
    """Run experiments one after another.

    Parameters
    ----------
    device : str
        ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
    names : sequence of str
        Which; empty: all.
    quick : bool
        Less of everything.
    data : Path or None
        A folder that holds ``mnist``.
    log : callable
        Takes lines of progress.
    keep : callable
        Takes all results so far, by name.

    Returns
    -------
    dict
        Results by name; one that broke off has ``failed``, a line.

    Raises
    ------
    UsageError
        If there is no such experiment.
    """
    results: dict[str, Result] = {}
    for name in names or EXPERIMENTS:
        if name not in EXPERIMENTS:
            raise UsageError(f"no experiment {name!r}; choose {', '.join(EXPERIMENTS)}")

        def so_far(found: Result, name: str = name) -> None:
            results[name] = found
            keep(results)

        log(f"experiment {name}")
        try:
            so_far(EXPERIMENTS[name].run(Request(device, quick, data, log, so_far)))
        except Exception as failure:  # told at the end; the others still run
            traceback.print_exc()
            line = (str(failure).splitlines() or [""])[0]
            so_far({**results.get(name, {}), "failed": f"{type(failure).__name__}: {line}"})
    return results


def faults(results: Mapping[str, Result]) -> list[str]:
    """Return a line for everything that failed or is wrong."""
    lines = []
    for name, result in results.items():
        if "failed" in result:
            lines.append(f"{name}: {result['failed']}")
            continue
        own = import_module(EXPERIMENTS[name].faults).faults(result)
        lines += [f"{name}: {line}" for line in own]
    return lines


def load(paths: Sequence[Path]) -> dict[str, Result]:
    """Return results by name from files: of all experiments, or of one (named by the file).

    Raises
    ------
    InputError
        If a file cannot be read or holds no experiment's result.
    """
    results: dict[str, Result] = {}
    for path in paths:
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except OSError as failure:
            raise InputError(f"{path}: {failure.strerror}") from None
        except ValueError:
            raise InputError(f"{path}: no JSON; wanted what neocog bench writes") from None
        if not isinstance(data, dict):
            raise InputError(f"{path}: no result; wanted what neocog bench writes")
        found = {name: data[name] for name in EXPERIMENTS if isinstance(data.get(name), dict)}
        single = data.get("experiment", path.stem)
        if not found and single in EXPERIMENTS:
            found = {single: data}
        if not found:
            known = ", ".join(EXPERIMENTS)
            raise InputError(f"{path}: no result of {known}; name the file after its experiment")
        results |= found
    return results


def page(results: Mapping[str, Result], *, figures: str = "figures", more: str = "") -> str:
    """Return ``docs/experiments.md``: for each experiment what was claimed, found, and why.

    A result of older code that can no longer be shown is told in a line.

    Parameters
    ----------
    results : dict
        By name.
    figures, more : str
        Folders of the figures and of the pages of all tables, as links from the page.
    """
    known = {name: results[name] for name in EXPERIMENTS if name in results}
    parts = [
        "# The papers' experiments",
        "Every system that the papers compare, run anew beside ours, checked against float64 "
        "before it is timed. This page, its figures and the pages of all tables are made by "
        "`neocog bench report` from what `neocog bench all` measured; the papers' figures are "
        "theirs, on their machines.",
    ]
    short = [_shown(name, result, "verdict") for name, result in known.items()]
    told = [f"- **{name}**: {line}" for name, line in zip(known, short, strict=True)]
    parts.append("\n".join(told))
    for name, result in known.items():
        what, links = "section", {"figures": figures}
        if more and EXPERIMENTS[name].has("summary"):
            what, links = "summary", {"figures": figures, "full": f"{more}/{name}.md"}
        parts.append(_shown(name, result, what, **links).rstrip())
    return "\n\n".join(parts) + "\n"


def full_page(name: str, result: Result, *, figures: str, back: str) -> str:
    """Return the page of an experiment's own: all its tables.

    Parameters
    ----------
    name : str
        Which experiment.
    result : dict
        What it wrote.
    figures, back : str
        Folder of the figures and the page of all experiments, as links from the page.
    """
    text = _shown(name, result, "section", figures=figures)
    raised = re.sub(r"^#(#+ )", r"\1", text, flags=re.MULTILINE)
    head, _, body = raised.partition("\n\n")
    return f"{head}\n\nIn short: [{Path(back).name}]({back}).\n\n{body.rstrip()}\n"


def _shown(name: str, result: Result, what: str, **more: Any) -> str:
    if "failed" in result:
        return f"{name}: {result['failed']}"
    try:
        return str(EXPERIMENTS[name].ask(what, result, **more))
    except (KeyError, TypeError, AttributeError, IndexError) as failure:
        return f"{name}: this result cannot be shown ({type(failure).__name__}: {failure})"


def write_page(results: Mapping[str, Result], path: Path) -> list[Path]:
    """Write the page, pages of all tables and figures beside it; return the files.

    The pages lie in a folder of the page's name, the figures in ``figures``.
    """
    folder = path.with_suffix("")
    files = [path]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(results, more=folder.name), encoding="utf-8")
    for name, result in results.items():
        if "failed" in result:
            continue
        if EXPERIMENTS[name].has("summary"):
            folder.mkdir(exist_ok=True)
            files.append(folder / f"{name}.md")
            text = full_page(name, result, figures="../figures", back=f"../{path.name}")
            files[-1].write_text(text, encoding="utf-8")
        try:
            files += EXPERIMENTS[name].ask("write_figures", result, path.parent / "figures")
        except NeocogError:
            raise
        except (KeyError, TypeError, AttributeError, IndexError):
            continue  # the page says so
    return files
