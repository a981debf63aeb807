"""Nothing of the folder that a stranger filled is ever run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from neocog import programs
from tests.support import save_page

ROOT = Path(__file__).resolve().parent.parent
STRANGERS = (
    "numpy queue typing signal cupy cv2 PIL typer rich struct socket pickle multiprocessing "
    "subprocess neocog_x pathlib threading random json ray inspect safetensors"
).split()
# (What runpy imports before it runs anything, as contextlib, only `python -P -m` keeps out.)
MAIN = "import sys; from neocog.__main__ import main; sys.exit(main())"  # what pip installs
COMMANDS = {
    "command": ["-P", "-E", "-c", MAIN, "read", "."],
    "-m": ["-m", "neocog", "read", "."],
    "app": [str(ROOT / "app.py"), "read", "-"],
    "a copy": ["-I", "app.py", "read", "."],
}


@pytest.mark.parametrize("way", COMMANDS)
def test_no_module_of_the_folder_is_run(way, tmp_path, model):
    picture = save_page(tmp_path / "00.png", "7").read_bytes()
    (tmp_path / "01.png").write_bytes(picture)
    for name in STRANGERS:  # leave a mark when they are run
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write('{name} ')")
    if way == "a copy":
        (tmp_path / "app.py").write_bytes((ROOT / "app.py").read_bytes())
        (tmp_path / "neocog").symlink_to(ROOT / "neocog")
    words = [sys.executable, *COMMANDS[way], "--model", model, "--format", "jsonl", "--workers", "1"]
    surroundings = {**os.environ, "PYTHONPATH": ":/no/such"}  # its empty name is the folder
    names = "00.png\n01.png\n"
    done = subprocess.run(words, cwd=tmp_path, env=surroundings, input=names, capture_output=True, text=True)
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 2), done.stderr


def test_our_programs_find_this_neocog(tmp_path):
    code = "import neocog, sys; print(neocog.__file__, *sys.argv[1:], *sys.path, sep='\\n')"
    for words in (programs.python("-c", code, "a b", "-c"), programs.python("-m", "neocog", "--version")):
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
        home, *rest = done.stdout.splitlines()
        assert str(tmp_path) not in rest
        found = [str(ROOT / "neocog/__init__.py"), "a b", "-c"]
        assert home.startswith("neocog") or [home, *rest[:2]] == found


def test_importing_neocog_imports_nothing_else():
    code = "import sys; old = set(sys.modules); import neocog; print(*set(sys.modules) - old)"
    said = subprocess.check_output([sys.executable, "-S", "-c", code], cwd=ROOT, text=True)
    assert set(said.split()) == {"neocog", "neocog.errors"}
