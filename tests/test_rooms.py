"""No room of the package imports one above it, and none but ``neocog bench`` the experiments."""

import ast
from functools import cache
from pathlib import Path
from types import FunctionType

import neocog

ROOT = Path(__file__).resolve().parent.parent
#: From the ground up.
ROOMS = ("network", "vision", "cuda", "reading", "batch", "live", "learning", "evaluation", "serve", "cli")


@cache
def imported(file: Path) -> list[str]:
    """Return the modules that a file imports, wherever in it."""
    found: list[str] = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{file}: a relative import"
            found += [f"{node.module}.{name.name}" for name in node.names]
    return found


def test_no_room_imports_one_above_it() -> None:
    folders = {path.parent.name for path in (ROOT / "neocog").glob("*/__init__.py")}
    assert folders <= set(ROOMS), "a new room: give it its place in ROOMS"
    upwards = set()
    for room in folders:
        for file in (ROOT / "neocog" / room).rglob("*.py"):
            for package, _, rest in (name.partition(".") for name in imported(file)):
                other = rest.partition(".")[0]
                if package == "neocog" and other in ROOMS[ROOMS.index(room) + 1 :]:
                    upwards.add((file.relative_to(ROOT).as_posix(), other))
    assert not upwards


def test_the_package_imports_nothing_that_is_not_in_the_wheel() -> None:
    found = {
        file.relative_to(ROOT).as_posix()
        for file in (ROOT / "neocog").rglob("*.py")
        for name in imported(file)
        if name.partition(".")[0] in ("experiments", "tests")
    }
    assert found == {"neocog/cli/tools.py"}


def test_the_public_api_is_documented() -> None:
    for name in set(neocog.__all__) - {"__version__"}:
        thing = getattr(neocog, name)
        members = [
            m for k, m in vars(thing).items() if k[0] != "_" and isinstance(m, property | FunctionType)
        ]
        assert all(getattr(each, "__doc__", None) for each in (thing, *members)), name
