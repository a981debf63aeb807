"""The network of lines: the equations along a strip, and what its file holds besides a digit model's."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.learning.ship import write_sums
from neocog.errors import InputError, ModelError
from neocog.network import lines, registry
from neocog.network import model as digit_file
from neocog.network.lines import ALPHABET, LineModel, load_lines
from neocog.network.reference import respond, respond_line
from neocog.network.u0 import u0_from_digits
from tests.support import digit_strip, digits_of, run, tiny_lines, tiny_model


def test_an_isolated_digit_is_read_as_ever() -> None:
    for u0, digit in zip(u0_from_digits(digits_of("325")), "325", strict=True):
        want = respond(u0[None], tiny_lines().digits)["US4"][0]
        got = respond_line(u0[8:56, 8:56], tiny_lines())["US4"]
        assert want.max() > 0.1, digit
        np.testing.assert_allclose(got[:, :, 8:17:2], want, atol=1e-6)


def test_shapes_and_a_head_in_plain_loops() -> None:
    model, maps = tiny_lines(), respond_line(digit_strip()[:, :139], tiny_lines())
    w = lines.padded(139)
    assert (w, lines.columns(139)) == (160, 41)
    t, planes = w // 4 + 13, model.digits.planes[1]
    shapes = {"U0": (1, 65, w + 17), "UC3": (planes, 13, t), "US4": (10, 5, t), "UC4": (2, 10, t)}
    assert {name: maps[name].shape for name in shapes} == shapes
    x, head = np.concatenate([maps["US4"].max(axis=1), maps["US4"].mean(axis=1)]), model.head
    z = head.own @ x[:10] + head.bias[:, None]
    for i, (weights, bias) in enumerate(zip(head.weights, head.biases, strict=True)):
        reach = weights.shape[2] // 2
        y = np.tile(bias[:, None].astype(float), t)
        for column in range(t):
            for step in range(-reach, reach + 1):
                if 0 <= column + step < t:
                    y[:, column] += weights[:, :, step + reach] @ x[:, column + step]
        x = np.maximum(y, 0) if i < 2 else y
    np.testing.assert_allclose(maps["Z"], z + x, atol=1e-12)
    logs = lines.log_likelihoods(maps["Z"], 2.0)
    np.testing.assert_allclose(np.exp(logs).sum(axis=1), 1)
    np.testing.assert_allclose(logs[:, 3] - logs[:, 5], (maps["Z"][3] - maps["Z"][5]) / 2)


def test_paper_on_the_right_changes_nothing() -> None:
    short = respond_line(digit_strip()[:, :130], tiny_lines())
    for name, maps in respond_line(np.pad(digit_strip()[:, :130], ((0, 0), (0, 30))), tiny_lines()).items():
        np.testing.assert_array_equal(maps, short[name])


def test_strips_are_ink_of_48_rows() -> None:
    grey = (255 * digit_strip()).astype(np.uint8)
    u0 = lines.strip_u0(grey)
    np.testing.assert_array_equal(u0, lines.strip_u0(grey / np.float32(255)))
    assert (u0.shape, u0[:8].any(), u0[56:].any()) == ((65, 160 + 17), False, False)
    assert lines.strip_u0(np.full((48, 16), 1.3)).max() == 1
    wrong: list[Any] = [
        np.zeros((47, 64), "f4"), np.zeros((48, 15), "f4"), np.zeros((48, 701), "f4"),
        np.zeros((1, 48, 64), "f4"), np.zeros((48, 64), int), np.full((48, 64), np.nan),
    ]  # fmt: skip
    for strip in wrong:
        with pytest.raises(InputError, match=r"got a strip of .*, expected"):
            respond_line(strip, tiny_lines())


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_saved_is_loaded(tmp_path: Path, precision: Any) -> None:
    model = replace(tiny_lines(), card={"data": "drawn"}, temperature=1.5)
    saved = model.save(tmp_path / "m.safetensors", precision=precision)
    loaded = load_lines(tmp_path / "m.safetensors")
    assert loaded.id == saved.id == f"tiny-lines@{saved.version}"
    assert (loaded.card, loaded.temperature, loaded.alphabet) == ({"data": "drawn"}, 1.5, ALPHABET)
    assert lines.to_bytes(loaded, precision=precision) == (tmp_path / "m.safetensors").read_bytes()
    tolerance = 0 if precision == "fp32" else 1e-2
    want, got = (respond_line(digit_strip(), m)["Z"] for m in (model, loaded))
    np.testing.assert_allclose(got, want, atol=tolerance)
    assert lines.from_bytes(lines.to_bytes(replace(loaded, card={})), source="x").id == loaded.id or tolerance


def changed(**changes: Any) -> LineModel:
    """The tiny model with another head."""
    return replace(tiny_lines(), head=replace(tiny_lines().head, **changes))


def weights(place: int, value: Any) -> LineModel:
    some = list(tiny_lines().head.weights)
    some[place] = value
    return changed(weights=tuple(some))


def biases(count: int) -> LineModel:
    return changed(biases=(np.zeros(count, "f4"), *tiny_lines().head.biases[1:]))


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda: replace(tiny_lines(), alphabet=ALPHABET[::-1]), "its alphabet is ' #%"),
        (lambda: replace(tiny_lines(), alphabet=[1] * 999), "its alphabet is .{42}, expected"),
        (lambda: replace(tiny_lines(), temperature=0.0), "a line's temperature 0.0, expected 0.001"),
        (lambda: replace(tiny_lines(), temperature="hot"), "a part is missing or wrong"),
        (lambda: replace(tiny_lines(), card={"reading": 3}), "the card's reading is 3"),
        (lambda: replace(tiny_lines(), digits=replace(tiny_lines().digits, psi="cube")), "unknown psi"),
        (lambda: changed(own=np.zeros((24, 10), "f4")), "shape \\(24, 10\\), expected \\(25, 10\\)"),
        (lambda: changed(bias=np.zeros(25, "i4")), "head.bias is int32, expected float16 or float32"),
        (lambda: changed(bias=np.full(25, np.nan, "f4")), "head.bias holds values that are not finite"),
        (lambda: changed(bias=np.zeros((25, 1), "f4")), "head.bias has shape"),
        (lambda: weights(0, np.zeros((12, 10, 5), "f4")), "head.w1 has shape .*, expected \\(12, 20, 5"),
        (lambda: biases(0), "the head has 0 planes, expected 1 to 4096"),
        (lambda: biases(5000), "the head has 5000 planes"),
        (lambda: biases(13), "head.w1 has shape \\(12, 20, 5\\), expected \\(13, 20"),
        (lambda: weights(1, np.zeros((12, 12, 3), "f4")), "head.w2 has shape"),
        (lambda: weights(1, np.full((12, 12, 5), 7e4, "f4")), "head.w2 reaches 7e\\+04, expected -65504 to"),
        (lambda: weights(2, np.zeros((25, 12, 5), "f4")), "head.w3 has shape"),
        (lambda: changed(weights=tuple(np.full_like(w, 6e4) for w in tiny_lines().head.weights)),
         "scores may reach 2.22e"),
    ],
)  # fmt: skip
def test_impossible_models_are_refused(model: Any, reason: str) -> None:
    with pytest.raises(ModelError, match=reason) as caught:
        lines.from_bytes(lines.to_bytes(model()), source="m")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


def test_other_files_are_refused() -> None:
    whole = lines.to_bytes(tiny_lines())
    with pytest.raises(ModelError, match="of format 'neocog lines 1', not 'neocog 1'"):
        digit_file.from_bytes(whole, source="m")
    cases = {"of format 'neocog 1', not 'neocog lines 1'": digit_file.to_bytes(tiny_model()),
             "cut short or not a model": whole[:-9]}  # fmt: skip
    for name in ("head.own", "head.b3"):
        without = whole.replace(f'"{name}"'.encode(), f'"{name[:-1]}?"'.encode())
        cases[f"a part is missing or wrong \\('{name}'\\)"] = without
    for reason, data in cases.items():
        with pytest.raises(ModelError, match=reason):
            lines.from_bytes(data, source="m")


def test_commands_know_models_of_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_PACKAGE", tmp_path / "package")
    (folder := tmp_path / "models").mkdir()
    tiny_model().save(folder / "neocog.safetensors")
    path = folder / "neocog-lines.safetensors"
    tiny_lines().save(path)
    write_sums(folder)
    assert [path.stem for path in registry.list_models()] == ["neocog"]
    listed = json.loads(run("models", "list", "--json").stdout)
    assert {told["name"]: told["kind"] for told in listed} == {"neocog": "digits", "neocog-lines": "lines"}
    assert "neocog-lines  lines " in run("models", "list").stdout
    shown = run("models", "show").stdout
    assert "tiny-lines@" in shown
    assert re.search("accuracy +not measured", shown)
    real = Path(__file__).parents[1] / "models/neocog-lines.safetensors"
    assert re.search(
        r"accuracy +\d+ of \d+ numbers are printed from p 0\.5", run("models", "show", real).stdout
    )
    assert "a line of numbers: 0 1 2" in shown
    assert re.search("ok      tiny-lines@.* as shipped", run("models", "verify").stdout)
    changed(bias=np.arange(25, 0, -1, "f4")).save(path)
    refused = run("models", "verify", path)
    assert (refused.exit_code, "the shipped file was changed" in refused.stdout) == (4, True)
    write_sums(folder)
    assert "reads something on empty paper" in run("models", "verify", path).stdout


@pytest.mark.parametrize(
    "data", [b"", b"\xff" * 64, b"\x02%s{}" % bytes(7), b'\x12%s{"__metadata__":3}' % bytes(7)]
)
def test_any_file_has_a_kind(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "m").write_bytes(data)
    assert registry.kind_of(tmp_path / "m") == "digits"
