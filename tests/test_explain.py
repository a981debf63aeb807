"""Why a digit was read so: what is named carries the answer, by the equations."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import neocog
from neocog.errors import InputError, NothingToRead, UsageError
from neocog.evaluation.explain import LAYERS, changed, explain, explain_digit, split, taken_away
from neocog.network import reference
from neocog.network.engine import Engine
from neocog.network.u0 import u0_from_digits
from tests.support import digits_of, page, run, save_page, tiny_model


def test_scores_from_any_layer() -> None:
    engine, u0 = Engine(tiny_model()), u0_from_digits(digits_of("0123456789"))
    maps = engine.maps(u0)
    for layer in ("UG", "US1", "UC3", "US4"):
        scores = engine.scores_from(layer, maps[layer].transpose(0, 2, 3, 1))
        np.testing.assert_allclose(scores, maps["UC4"][:, :, 0, 0], atol=1e-6)


def test_pieces_are_all_of_the_responses_once() -> None:
    u = Engine(tiny_model()).maps(u0_from_digits(digits_of("4")))["US2"][0].transpose(1, 2, 0)
    pieces = split(u)
    gone = sum(u - one for one in changed(u, np.zeros_like(u), pieces))
    np.testing.assert_array_equal(gone, u)
    for cells in pieces:
        own = u[cells.rows, cells.columns, cells.plane]
        assert own[0] == own.max() > 0
        assert np.ptp(cells.rows) <= 4
        assert cells.strength.sum() == pytest.approx(1)


def test_what_is_named_is_what_the_equations_say() -> None:
    model, digit = tiny_model(), digits_of("7")
    found = explain_digit(digit[0], Engine(model), count=3)
    assert (found.label, found.digit.shape) == (7, (28, 28))
    assert repr(found).startswith("<Explanation: read as 7")
    assert found._repr_png_().startswith(b"\x89PNG")
    maps = reference.respond(u0_from_digits(digit), model)
    u = maps["US3"].copy()
    for piece in found.pieces["US3"]:
        top, first = max(piece.row - 2, 0), max(piece.column - 2, 0)
        u[0, piece.plane, top : piece.row + 3, first : piece.column + 3] = 0
        c, s = model.spec.c[2], model.s[3]
        uc3 = reference.c_response(u, model.blurs[2].astype(float), padding=c.padding, kind=model.psi)
        us4 = reference.s_response(
            uc3, s.reference.astype(float), s.c.astype(float),
            threshold=s.threshold, q=s.q, padding=0,
        )  # fmt: skip
        score = reference.strongest_of_label(us4, model.labels)[0]
        assert score[7] / maps["UC4"][0, 7, 0, 0] == pytest.approx(piece.left, abs=0.01)
        assert piece.answer == score.argmax()


def test_left_falls_with_each_piece_and_the_runner_up_wins_with_what_it_lacked() -> None:
    engine = Engine(tiny_model())
    u = engine.maps(u0_from_digits(digits_of("3")))["US3"][0].transpose(1, 2, 0)
    named, alone = taken_away(engine, "US3", u, 3, count=2)
    assert named[0].left >= named[1].left
    assert alone.min() >= 0
    found = explain_digit(digits_of("1")[0], engine, count=1)
    assert found.needed[-1].left <= 0
    assert found.needed[-1].answer == found.runner_up != found.label


def test_pictures_and_words(tmp_path: Path) -> None:
    scan = save_page(tmp_path / "page.png", "38")
    words = ["explain", scan, "--digit", "2", "--model", "neocog-small"]
    out = run(*words, "-o", tmp_path / "why.png", "--maps", tmp_path / "maps.jpg")
    assert out.exit_code == 0
    assert out.stdout.startswith("read as 8")
    assert "US2: what carried 8" in out.stdout
    assert Image.open(tmp_path / "why.png").width > 1500
    assert Image.open(tmp_path / "maps.jpg").height > 2000
    assert "--force" in run(*words, "-o", tmp_path / "why.png").output
    assert ".png or .jpg" in run(*words, "-o", tmp_path / "why.txt").output
    facts = json.loads(run(*words, "--json").stdout)
    assert facts["label"] == 8
    assert set(facts["pieces"]) == set(LAYERS)


@pytest.mark.parametrize("turn", [90, 180, 270])
def test_a_turned_page_is_explained_upright(turn: int) -> None:
    lying = np.ascontiguousarray(np.rot90(page("38472\n90516\n27483"), turn // 90))
    found = explain(lying, digit=2, model="neocog-small")
    assert (found.label, np.abs(found.digit.astype(int) - digits_of("8")[0]).mean() < 30) == (8, True)


def test_what_cannot_be_explained(tmp_path: Path) -> None:
    scan = save_page(tmp_path / "page.png", "38")
    Image.new("L", (200, 200), 230).save(tmp_path / "empty.png")
    absent = run("explain", tmp_path / "absent.png")
    assert absent.exit_code == 1
    assert "absent.png: cannot be opened" in absent.stderr
    assert run("explain", tmp_path / "empty.png").exit_code == 3
    assert neocog.explain is explain
    with pytest.raises(UsageError, match="digit 3 does not exist; choose 1 to 2"):
        explain(scan, digit=3)
    with pytest.raises(NothingToRead, match="no digits"):
        explain(tmp_path / "empty.png")
    with pytest.raises(NothingToRead, match="nothing to explain"):
        explain(np.zeros((28, 28), np.uint8))
    with pytest.raises(InputError, match="float64"):
        explain(np.zeros((28, 28)))
