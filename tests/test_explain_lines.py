"""Why a line was read so, and how long a strip takes: what is said is what the equations say."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from neocog import Reader
from neocog.errors import UsageError
from neocog.evaluation.explain_lines import explain_line, explain_text
from neocog.evaluation.timing import made_strips
from neocog.network import ctc
from neocog.network.line_engine import LineEngine
from neocog.network.lines import ALPHABET
from neocog.network.reference import respond_line
from neocog.network.registry import LINES
from neocog.reading.numbers import TextLine
from neocog.reading.records import DigitReading, NumberReading
from tests.support import page, run, save_page
from tests.test_line_engine import tiny_lines, written


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lines") / "lines.safetensors"
    tiny_lines().save(path)
    return path


def test_the_lead_of_each_character_is_what_the_equations_say() -> None:
    ink, engine = written("325"), LineEngine(tiny_lines())
    number = ctc.number(engine.likelihoods([ink])[0], bound=0)
    chars = tuple(DigitReading(c.char, c.p, 0, (9 * k, 0, 8, 9)) for k, c in enumerate(number.chars))
    word = NumberReading(number.text, number.p, (0, 0, 27, 9), chars)
    strip: Any = SimpleNamespace(ink=ink)
    line = TextLine((word,), None, np.zeros(0, np.float32), number, [(strip, t) for t in range(len(ink[0]))])
    found, pieces = explain_text(line, engine), 0
    maps, head = respond_line(ink, tiny_lines()), tiny_lines().head
    assert [c["best"] for c in found.facts["characters"]] == [*number.text]
    for c in found.facts["characters"]:
        at = (c["x"] + 24) // 4
        assert c["first"] <= at <= c["last"]
        code, other = ALPHABET.index(c["best"]), ALPHABET.index(c["next"])
        assert c["lead"] == pytest.approx(maps["Z"][code, at] - maps["Z"][other, at], abs=1e-3)
        assert c["own"] + c["around"] == pytest.approx(c["lead"])
        for plane in c["planes"]:
            k, pieces = plane["plane"], pieces + 1
            assert plane["response"] == pytest.approx(maps["US4"][k, plane["row"], at], abs=1e-5)
            said = (head.own[code, k] - head.own[other, k]) * plane["response"]
            assert plane["lead"] == pytest.approx(said, abs=1e-4)
    assert pieces == 3 * len(number.text) > 0


@pytest.mark.parametrize(
    ("text", "turn"), [("38472\n90516\n27483", 90), ("3071000000000000085", 0), ("3258\n4896\n21570", 180)]
)
def test_what_is_explained_is_what_is_read(text: str, turn: int) -> None:
    upright = page(text)
    upright[:, 500:1000] = 225  # a gap that parts two strips of a line
    lying = np.ascontiguousarray(np.rot90(upright, turn // 90))
    reading = Reader(device="cpu").read(lying)
    assert (reading.turn, len(reading.lines)) == (turn, len(text.split()))
    for number, line in enumerate(reading.lines, 1):
        facts = explain_line(lying, line=number, model=LINES).facts
        assert (facts["text"], facts["model"]) == (line.text, reading.model)
        chars = [char for own in line.numbers for char in own.chars]
        told = [(c["char"], c["p"], tuple(c["box"])) for c in facts["characters"]]
        assert told == [(c.char, c.p, c.box) for c in chars]
        assert [(w["text"], w["p"]) for w in facts["words"]] == [(own.text, own.p) for own in line.numbers]
    with pytest.raises(UsageError, match="does not exist"):
        explain_line(lying, line=len(reading.lines) + 1, model=LINES)


def test_a_line_of_a_page(model: Path, tmp_path: Path) -> None:
    page = save_page(tmp_path / "page.png", "38")
    words = ("explain", page, "--model", LINES)
    out = run(*words, "-o", tmp_path / "why.png")
    assert out.stdout.startswith("read as ")
    assert Image.open(tmp_path / "why.png").height > 500
    facts = json.loads(run(*words, "--json").stdout)
    assert facts["model"].startswith("neocog-lines@")
    assert facts["text"] == "".join(c["char"] for c in facts["characters"])
    assert facts["text"] == run("read", page, "--model", LINES).stdout.strip()
    for option, value, own in (("--maps", tmp_path / "maps.png", words), ("--digit", "1", words),
                               ("--line", "1", (*words[:-1], "neocog-small"))):  # fmt: skip
        assert f"{option} is not for model" in run(*own, option, value).stderr
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
