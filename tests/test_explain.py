"""Why a digit or a line was read so: what is named is what the equations say."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from neocog import Reader, explain
from neocog.errors import InputError, NothingToRead, UsageError
from neocog.evaluation.explain import LAYERS, explain_digit, explain_line, explain_text
from neocog.network import ctc, reference
from neocog.network.engine import Engine
from neocog.network.line_engine import LineEngine
from neocog.network.lines import ALPHABET
from neocog.network.registry import LINES
from neocog.network.u0 import u0_from_digits
from neocog.reading.numbers import TextLine
from neocog.reading.records import DigitReading, NumberReading
from tests.support import digits_of, page, refused, run, save_page, tiny_lines, tiny_model
from tests.test_line_engine import written


def test_what_is_named_is_what_the_equations_say_and_with_what_it_lacked_the_runner_up_wins():
    model, digit = tiny_model(), digits_of("1")
    found = explain_digit(digit[0], Engine(model), count=3)
    assert (found.label, found.digit.shape) == (1, (28, 28))
    assert repr(found).startswith("<Explanation: read as 1")
    assert found._repr_png_().startswith(b"\x89PNG")
    maps = reference.respond(u0_from_digits(digit), model)
    u, left = maps["US3"].copy(), 1.0
    for piece in found.pieces["US3"]:
        top, first = max(piece.row - 2, 0), max(piece.column - 2, 0)
        u[0, piece.plane, top : piece.row + 3, first : piece.column + 3] = 0
        us4 = reference.layer("US4", reference.layer("UC3", u, model), model)
        score = reference.strongest_of_label(us4, model.labels)[0]
        assert score[1] / maps["UC4"][0, 1, 0, 0] == pytest.approx(piece.left, abs=1e-3)
        assert (piece.answer, piece.left <= left) == (score.argmax(), True)
        left = piece.left
    assert min(heat.min() for heat in found.heat.values()) >= 0
    last = found.needed[-1]
    assert (last.left <= 0, last.answer) == (True, found.runner_up)


def test_pictures_and_words(tmp_path, model):
    words = ["explain", save_page(tmp_path / "page.png", "38"), "--model", model, "--digit", "2"]
    out = run(*words, "-o", tmp_path / "why.png", "--maps", tmp_path / "maps.jpg")
    assert (out.exit_code, "US2: what carried 8" in out.stdout) == (0, True)
    assert out.stdout.startswith("read as 8 by tiny@")
    assert Image.open(tmp_path / "why.png").width > 1500
    assert Image.open(tmp_path / "maps.jpg").height > 2000
    refused("--force", *words, "-o", tmp_path / "why.png")
    refused(".png or .jpg", *words, "-o", tmp_path / "why.txt")
    assert json.loads(run(*words[:2], "--json").stdout)["text"] == "38"  # the line, by a model of lines
    found = explain(np.rot90(page("38472\n90516\n27483")), digit=2, model=model)
    facts = json.loads(json.dumps(found.to_dict()))
    assert (facts["label"], facts["pieces"].keys()) == (8, {*LAYERS})
    assert np.abs(found.digit.astype(int) - digits_of("8")[0]).mean() < 30


def test_what_cannot_be_explained(tmp_path):
    scan = save_page(tmp_path / "page.png", "38")
    Image.new("L", (200, 200), 230).save(tmp_path / "empty.png")
    refused("absent.png: cannot be opened", "explain", tmp_path / "absent.png", code=1)
    refused("empty.png: no line in", "explain", tmp_path / "empty.png", code=3)
    for error, words, call in (
        (UsageError, "digit 3 does not exist; choose 1 to 2", lambda: explain(scan, digit=3)),
        (UsageError, "line 2 does not exist; choose 1 to 1", lambda: explain_line(scan, line=2, model=LINES)),
        (NothingToRead, "no digits", lambda: explain(tmp_path / "empty.png")),
        (NothingToRead, "nothing to explain", lambda: explain(np.zeros((28, 28), np.uint8))),
        (InputError, "float64", lambda: explain(np.zeros((28, 28)))),
    ):
        with pytest.raises(error, match=words):
            call()
    for option, value, model in (("--maps", tmp_path / "maps.png", LINES), ("--digit", "1", LINES),
                                 ("--line", "1", "neocog-small")):  # fmt: skip
        refused(f"{option} is not for model {model}", "explain", scan, "--model", model, option, value)
    told = "--line explains a line, --digit and --maps a digit; leave one of them out"
    refused(told, "explain", scan, "--line", "1", "--digit", "1")


def test_the_lead_of_each_character_is_what_the_equations_say():
    ink, engine = written("325"), LineEngine(tiny_lines())
    (logp,) = engine.likelihoods([ink])
    number = ctc.number(logp, bound=0)
    second = number.chars[1]
    logp[second.first : second.last + 1, ALPHABET.index(second.char)] += 3  # of a finder that sees it, too
    chars = tuple(DigitReading(c.char, c.p, 0, (9 * k, 0, 8, 9)) for k, c in enumerate(number.chars))
    word = NumberReading(number.text, number.p, (0, 0, 27, 9), chars)
    strip: Any = SimpleNamespace(ink=ink)
    line = TextLine((word,), None, logp, number, [(strip, t) for t in range(len(ink[0]))])
    found, pieces = explain_text(line, engine), 0
    maps, head = reference.respond_line(ink, tiny_lines()), tiny_lines().head
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
    leads = [c["finder"] for c in found.facts["characters"]]
    assert leads == pytest.approx([0, 3 * tiny_lines().temperature, *[0] * (len(leads) - 2)], abs=1e-3)
    assert pieces == 3 * len(number.text) > 0


@pytest.mark.parametrize(("text", "turn"), [
    pytest.param("38472\n90516\n27483", 90, marks=pytest.mark.slow), ("3071000000000000085", 0),
    ("3258\n21570", 180),
])  # fmt: skip
def test_what_is_explained_is_what_is_read(text, turn, tmp_path):
    upright = page(text)
    upright[:, 500:1000] = 225  # a gap that parts two strips of a line
    lying = np.rot90(upright, turn // 90)
    reading = Reader(device="cpu").read(lying)
    assert (reading.turn, len(reading.lines)) == (turn, len(text.split()))
    for number, line in enumerate(reading.lines, 1):
        found = explain_line(lying, line=number, model=LINES)
        assert (found.facts["text"], found.facts["model"]) == (line.text, reading.model)
        chars = [char for own in line.numbers for char in own.chars]
        told = [(c["char"], c["p"], tuple(c["box"])) for c in found.facts["characters"]]
        assert told == [(c.char, c.p, c.box) for c in chars]
        assert [(w["text"], w["p"]) for w in found.facts["words"]] == [(o.text, o.p) for o in line.numbers]
        assert str(found).startswith(f"read as {line.text}, p ")
        assert found.plot().height > 500 * len(found.strips)
