"""Why a line was read so, and how long a strip takes: what is said is what the equations say."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from neocog.errors import NothingToRead, UsageError
from neocog.evaluation.explain_lines import explain_line, explain_strip
from neocog.evaluation.timing import made_strips
from neocog.network.line_engine import LineEngine
from neocog.network.lines import ALPHABET
from neocog.network.reference import respond_line
from tests.support import run, save_page
from tests.test_line_engine import tiny_lines, written


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lines") / "lines.safetensors"
    tiny_lines().save(path)
    return path


def test_the_lead_of_each_character_is_what_the_equations_say() -> None:
    strip = written("325")
    found = explain_strip(strip, LineEngine(tiny_lines()))
    maps, head = respond_line(strip, tiny_lines()), tiny_lines().head
    assert [c["char"] for c in found.facts["characters"]] == list(found.facts["text"])
    for c in found.facts["characters"]:
        at = (c["x"] + 24) // 4
        assert c["first"] <= at <= c["last"]
        code, other = ALPHABET.index(c["char"]), ALPHABET.index(c["next"])
        assert c["lead"] == pytest.approx(maps["Z"][code, at] - maps["Z"][other, at], abs=1e-3)
        assert c["own"] + c["around"] == pytest.approx(c["lead"])
        for plane in c["planes"]:
            k = plane["plane"]
            assert plane["response"] == pytest.approx(maps["US4"][k, plane["row"], at], abs=1e-5)
            said = (head.own[code, k] - head.own[other, k]) * plane["response"]
            assert plane["lead"] == pytest.approx(said, abs=1e-4)
    at = maps["US4"][[3, 2, 5]].max(axis=1).argmax(axis=1)  # of each digit's own plane
    assert 4 * at - 24 == pytest.approx([20, 60, 100], abs=4)
    nothing = replace(head, bias=np.where(np.arange(25) == 24, 99, 0).astype(np.float32))
    with pytest.raises(NothingToRead, match="no character"):
        explain_strip(strip, LineEngine(replace(tiny_lines(), head=nothing)))


def test_a_line_of_a_page(model: Path, tmp_path: Path) -> None:
    page = save_page(tmp_path / "page.png", "38")
    words = ("explain", page, "--model", model)
    out = run(*words, "-o", tmp_path / "why.png")
    assert out.stdout.startswith("read as ")
    assert Image.open(tmp_path / "why.png").height > 500
    facts = json.loads(run(*words, "--json").stdout)
    assert facts["model"].startswith("tiny-lines@")
    assert facts["text"] == "".join(c["char"] for c in facts["characters"])
    for option, value, own in (("--maps", tmp_path / "maps.png", words), ("--digit", "1", words),
                               ("--line", "1", (*words[:-1], "neocog-small"))):  # fmt: skip
        assert f"{option} is not for model" in run(*own, option, value).stderr
    with pytest.raises(UsageError, match="line 2 does not exist; choose 1 to 1"):
        explain_line(page, line=2, model=tiny_lines())
    Image.new("L", (200, 200), 230).save(tmp_path / "empty.png")
    assert run("explain", tmp_path / "empty.png", "--model", model).exit_code == 3


def test_timing_of_strips(model: Path) -> None:
    words = ("timing", "--model", model, "--batch", "2", "--seconds", "0", "--device", "cpu")
    facts = json.loads(run(*words, "--json").stdout)
    assert facts["ms_per_strip"] == pytest.approx(5 * facts["ms_per_digit"], rel=1e-3)
    assert sum(stage["ms"] for stage in facts["stages"]) == pytest.approx(2 * facts["ms_per_strip"], rel=0.03)
    assert [stage["name"] for stage in facts["stages"]][-2:] == ["head", "host"]
    assert "ms a strip" in run(*words).stdout
    assert "--precision and --plan are for models of digits" in run(*words, "--plan", "auto").stderr
    strips = made_strips(3)
    assert (strips.shape, strips.min(), strips.max()) == ((3, 48, 190), 0, 1)
    assert strips[:, :3].max() < 1
