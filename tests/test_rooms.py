"""No room of the package imports one above it, no module itself by way of others; the core path is short."""

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from types import FunctionType

import neocog

ROOT = Path(__file__).resolve().parent.parent
#: From the ground up.
ROOMS = ("network", "vision", "cuda", "reading", "batch", "live", "learning", "evaluation", "serve", "cli")
#: From a picture to its numbers, in order: what a newcomer reads first. CONTRIBUTING.md says what each does.
CORE = """
vision/decode vision/finder vision/finder_model vision/scales vision/strips
network/spec network/lines network/line_engine network/ctc reading/numbers
""".split()
CORE_LINES = 3000


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


def test_the_core_path_is_short_and_stays_in_its_rooms() -> None:
    files = [ROOT / "neocog" / f"{name}.py" for name in CORE]
    assert len(files) <= 10
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files) <= CORE_LINES
    told = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    places = [told.index(f"`{name}.py`") for name in CORE]
    assert places == sorted(places), "CONTRIBUTING.md names the files of the core path in order"
    for file in files:
        rooms = {name.split(".")[1] for name in imported(file) if name.startswith("neocog.")} & set(ROOMS)
        assert rooms <= {"network", "vision", "reading"}, file


def test_no_module_imports_itself_by_way_of_others() -> None:
    modules = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
        for file in (ROOT / "neocog").rglob("*.py")
    }
    imports = {
        module: {name if name in modules else name.rpartition(".")[0] for name in imported(file)}
        for module, file in modules.items()
    }
    TopologicalSorter(imports).prepare()  # CycleError names them


def test_the_package_imports_nothing_that_is_not_in_the_wheel() -> None:
    found = {
        file.relative_to(ROOT).as_posix()
        for file in (ROOT / "neocog").rglob("*.py")
        for name in imported(file)
        if name.partition(".")[0] in ("experiments", "tests")
    }
    assert found == {"neocog/cli/tools.py"}


def test_experiments_import_of_the_tests_the_emulator_alone() -> None:
    names = {name for file in (ROOT / "experiments").rglob("*.py") for name in imported(file)}
    assert {name for name in names if name.partition(".")[0] == "tests"} == {"tests.emulator.Emulator"}


def test_the_public_api_is_documented() -> None:
    for name in set(neocog.__all__) - {"__version__"}:
        thing = getattr(neocog, name)
        members = [
            m for k, m in vars(thing).items() if k[0] != "_" and isinstance(m, property | FunctionType)
        ]
        assert all(getattr(each, "__doc__", None) for each in (thing, *members)), name
