"""Files of digit and line models: what is saved is what is read, and nothing else is a model."""

import json
import pickle
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.learning.ship import write_sums
from neocog.errors import ModelError
from neocog.network import lines, registry
from neocog.network import model as model_file
from neocog.network.engine import Engine
from neocog.network.lines import ALPHABET, LineModel, load_lines
from neocog.network.model import MAX_BYTES, MAX_DEPTH, MAX_HEADER, MAX_WEIGHT, Model, from_bytes, load_model
from neocog.network.model import to_bytes as bytes_of_digits
from neocog.network.reference import respond_line
from neocog.network.u0 import made_digits, u0_from_digits
from tests.support import digit_strip, run, tiny_lines, tiny_model


def to_bytes(model: Model | LineModel, **how: Any) -> bytes:
    return (lines.to_bytes if isinstance(model, LineModel) else bytes_of_digits)(model, **how)  # type: ignore


def test_saved_is_loaded(tmp_path: Path) -> None:
    model = replace(tiny_model(), card={"digits": 10})
    saved = model.save(tmp_path / "m.safetensors")
    loaded = load_model(tmp_path / "m.safetensors")
    assert loaded.id == saved.id == f"tiny@{saved.version}"
    assert (len(saved.version), loaded.card, loaded.spec) == (8, {"digits": 10}, model.spec)
    assert to_bytes(loaded) == to_bytes(model)
    card, changed = replace(model, card={"accuracy": 1}), replace(model, temperature=0.1)
    assert from_bytes(to_bytes(card), source="x").id == saved.id, "the card is no part of it"
    assert from_bytes(to_bytes(changed), source="x").id != saved.id
    half = to_bytes(model, precision="fp16")
    assert len(half) < 0.6 * len(to_bytes(model))
    for got, want in zip(from_bytes(half, source="x").blurs, model.blurs, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_saved_lines_are_loaded(tmp_path: Path, precision: str) -> None:
    model = replace(tiny_lines(), card={"data": "drawn"}, temperature=1.5)
    saved = model.save(tmp_path / "m.safetensors", precision=precision)
    loaded = load_lines(tmp_path / "m.safetensors")
    assert loaded.id == saved.id == f"tiny-lines@{saved.version}"
    assert (loaded.card, loaded.temperature, loaded.alphabet) == ({"data": "drawn"}, 1.5, ALPHABET)
    assert to_bytes(loaded, precision=precision) == (tmp_path / "m.safetensors").read_bytes()
    tolerance = 0 if precision == "fp32" else 1e-2
    want, got = (respond_line(digit_strip(), m)["Z"] for m in (model, loaded))
    np.testing.assert_allclose(got, want, atol=tolerance)
    assert lines.from_bytes(to_bytes(replace(loaded, card={})), source="x").id == loaded.id or tolerance


def refuse(data: bytes, reason: str | None = None, read: Callable[..., Any] = from_bytes) -> None:
    """Have a file refused in one short line."""
    with pytest.raises(ModelError, match=reason) as caught:
        read(data, source="m")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


def broken(**changes: object) -> Model:
    return replace(tiny_model(), **changes)  # type: ignore[arg-type]


def changed(thing: Any, place: str, value: object) -> Any:
    """A model, or a part of one, with another value at a place, e.g. ``"s.1.threshold"``."""
    name, _, rest = place.partition(".")
    old = thing[int(name)] if isinstance(thing, tuple) else getattr(thing, name)
    new = changed(old, rest, value) if rest else value
    if isinstance(thing, tuple):
        return (*thing[: int(name)], new, *thing[int(name) + 1 :])
    return replace(thing, **{name: new})


def with_reference(value: float) -> Model:
    x = tiny_model().s[1].reference.copy()
    x[0, 0, 0, 0] = value
    return changed(tiny_model(), "s.1.reference", x)  # type: ignore[no-any-return]


def with_head(place: str, value: object) -> Any:
    return changed(tiny_lines(), f"head.{place}", value)


def zeros(*shape: int) -> Any:
    return np.zeros(shape, "f4")


@pytest.mark.parametrize(("model", "reason"), [
    (with_reference(np.nan), "US2.reference holds values that are not finite"),
    (with_reference(-1.0), "US2.reference reaches -1, expected 0 to 1e\\+09"),
    (with_reference(1e10), "US2.reference reaches 1e\\+10, expected 0 to"),
    (changed(tiny_model(), "s.0.c", -tiny_model().s[0].c), "US1.c reaches -.*, expected 0 to"),
    (changed(tiny_model(), "s.3.threshold", 1.5), "threshold 1.5"),
    (changed(tiny_model(), "blurs.2", np.full((7, 7), -3e38, "f4")),
     "UC3.blur reaches -3e\\+38, expected -65504 to 65504"),
    (changed(tiny_model(), "blurs.0", np.ones((3, 3), "f4")), "UC1.blur"),
    (broken(labels=np.arange(2, 12)), "beyond 0..9"),
    (broken(labels=np.arange(9)), "expected \\(10,\\)"),
    (broken(psi="cube"), "unknown psi"),
    (broken(temperature=0.0), "temperature"),
    (broken(temperature=10**400), "a part is missing or wrong"),
    (replace(tiny_lines(), digits=with_reference(-1.0)), "US2.reference reaches -1"),
    (replace(tiny_lines(), alphabet=ALPHABET[::-1]), "its alphabet is ' #%"),
    (replace(tiny_lines(), alphabet=[1] * 999), "its alphabet is .{42}, expected"),
    (replace(tiny_lines(), temperature=0.0), "a line's temperature 0.0, expected 0.001"),
    (replace(tiny_lines(), temperature="hot"), "a part is missing or wrong"),
    (replace(tiny_lines(), card={"reading": 3}), "the card's reading"),
    (with_head("own", zeros(24, 10)), "shape \\(24, 10\\), expected \\(25, 10\\)"),
    (with_head("bias", np.zeros(25, "i4")), "head.bias is int32, expected float16 or float32"),
    (with_head("bias", zeros(25, 1)), "head.bias has shape"),
    (with_head("weights.0", zeros(12, 10, 5)), "head.w1 has shape .*, expected \\(12, 20, 5"),
    (with_head("weights.1", zeros(12, 12, 3)), "head.w2 has shape"),
    (with_head("weights.2", zeros(25, 12, 5)), "head.w3 has shape"),
    (with_head("biases.0", zeros(0)), "the head has 0 planes, expected 1 to 4096"),
    (with_head("biases.0", zeros(5000)), "the head has 5000 planes"),
    (with_head("weights", tuple(np.full_like(w, 6e4) for w in tiny_lines().head.weights)),
     "scores may reach 2.22e"),
    *((broken(card=card), "the card's reading, rejection, finetuning are not as they should be") for card in (
        ["reading"], {"reading": 3}, *({"reading": {"min_p": value}} for value in ("high", 1.5, True)),
        {"reading": {"page_odds": -1}}, {"reading": {"many": 10**400}}, {"rejection": {"table": {"p": 0.5}}},
        {"rejection": {"table": 5}}, {"rejection": {"table": [0.5]}}, {"rejection": {"table": [{"p": 0.5}]}},
        {"rejection": {"table": [{"p": "0.5", "error": 0.1}]}}, {"finetuning": {"marks": "many"}},
        {"finetuning": {"lean": [1]}}, {"finetuning": ["lean"]},
    )),
], ids=str)  # fmt: skip
def test_impossible_models_are_refused(model: Any, reason: str) -> None:
    refuse(to_bytes(model), reason, lines.from_bytes if isinstance(model, LineModel) else from_bytes)


@pytest.mark.parametrize("data", [
    b"", b"neither", pickle.dumps({"US1": 1}), b"PK\x03\x04archive", to_bytes(tiny_model())[:-7],
    to_bytes(tiny_model())[:100], b"\xff" * 64, struct.pack("<Q", 2**60) + b"{}",
    b"\x02" + bytes(7) + b"{}", b"\x12" + bytes(7) + b'{"__metadata__":3}',
])  # fmt: skip
def test_other_files_are_refused(tmp_path: Path, data: bytes) -> None:
    refuse(data, "not a (neocog )?model")
    (tmp_path / "m").write_bytes(data)
    assert registry.kind_of(tmp_path / "m") == "digits"


def test_models_of_the_other_kind_and_without_a_part_are_refused() -> None:
    whole = to_bytes(tiny_lines())
    refuse(whole, "of format 'neocog lines 1', not 'neocog 1'")
    refuse(to_bytes(tiny_model()), "of format 'neocog 1', not 'neocog lines 1'", lines.from_bytes)
    for name in ("head.own", "head.b3"):
        without = whole.replace(f'"{name}"'.encode(), f'"{name[:-1]}?"'.encode())
        refuse(without, f"a part is missing or wrong \\('{name}'\\)", lines.from_bytes)


def with_header(old: str, new: str) -> bytes:
    """A model whose own header, JSON in the metadata, is changed; all of it if ``old`` is ""."""
    data = to_bytes(broken(card={"note": "here"}))
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    own = header["__metadata__"]["neocog"]
    assert old in own
    header["__metadata__"]["neocog"] = own.replace(old, new) if old else new
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


@pytest.mark.parametrize(("old", "new", "reason"), [
    *(('"here"', *case) for case in (
        ("[" * MAX_DEPTH + "1" + "]" * MAX_DEPTH, "a card of more than 16 nested tables"),
        ("[" * 400 + "]" * 400, "a card of more than 16 nested tables"),
        ("[" * 100_000 + "]" * 100_000, "cut short or not a model"),
        ('"' + "x" * MAX_HEADER + '"', "a header of 1,0.*bytes, at most 1,048,576 are read"),
        ("NaN", "not finite: NaN"), ("-Infinity", "not finite: -Infinity"), ("1e999", "not finite: 1e999"),
        ("1" * 5000, "cut short or not a model"),
    )),
    ('"q": [', '"q": [1, ', "US layers need 4 values of q, got 5"),
    ('"q": [100.0, ', '"q": [', "US layers need 4 values of q, got 3"),
    ('"thresholds": [', '"thresholds": [1, ', "US layers need 4 thresholds, got 5"),
    ('"thresholds": [0.55, ', '"thresholds": [', "US layers need 4 thresholds, got 3"),
    *(('"strongest"', f'"{rule}"', f"{rule}' is no longer read.*d840c1a") for rule in ("pairs", "loudest")),
    ('"neocog 1"', '"neocog 9"', "of format 'neocog 9'"), ("", "[]", "of format None"), ("", "", "not a"),
], ids=lambda text: text[:20])  # fmt: skip
def test_headers_that_lie_or_have_no_bounds_are_refused(old: str, new: str, reason: str) -> None:
    assert from_bytes(with_header('"here"', '"there"'), source="m").card == {"note": "there"}
    refuse(with_header(old, new), reason)


@pytest.mark.parametrize("planes", [(20_000, 1, 10), (1, 100_000, 10), (1, 1, 100_000), (900, 3000, 10)])
def test_planes_whose_maps_take_too_much_memory_are_refused(planes: tuple[int, int, int]) -> None:
    k2, k3, k4 = planes
    s1, *rest = tiny_model().s
    shapes = ((k2, 16, 6, 6), (k3, k2, 6, 6), (k4, k3, 9, 9))
    ones = [np.broadcast_to(np.float32(1), shape) for shape in shapes]
    s = (s1, *(replace(s, reference=x) for s, x in zip(rest, ones, strict=True)))
    with pytest.raises(ModelError, match="values a digit, at most 2,500,000 are read"):
        model_file._check(broken(s=s, labels=np.zeros(k4, np.int64)))


def test_what_cannot_be_read_is_not_written(tmp_path: Path) -> None:
    for model, why in ((broken(card={"reading": {"cut_odds": np.nan}}), "a number that is not finite"),
                       (broken(temperature=np.inf), "a number that is not finite"),
                       (broken(card={"reading": {"min_p": 2}}), "2 is no number from 0 to 1")):  # fmt: skip
        with pytest.raises(ModelError, match=why):
            model.save(tmp_path / "m.safetensors")
    assert not list(tmp_path.iterdir())


def test_a_name_is_shown_and_obeyed_by_no_terminal() -> None:
    model = from_bytes(to_bytes(broken(name="\x1b[2Jclean\n" + "x" * 1000)), source="m")
    assert model.name == r"\x1b[2Jclean\n" + "x" * 186


def test_the_largest_weights_that_are_taken_give_finite_answers() -> None:
    whole = tiny_model()
    s = (
        replace(s, c=np.full_like(s.c, MAX_WEIGHT), reference=s.reference + np.float32(9e8)) for s in whole.s
    )
    blurs = tuple(np.full_like(blur, MAX_WEIGHT) for blur in whole.blurs)
    most = broken(s=tuple(s), blurs=blurs, labels=np.zeros(10, np.int64))
    digits = np.concatenate([np.zeros((1, 28, 28), np.uint8), made_digits(15)])
    for change in ({}, {"psi": "ratio"}):
        model = from_bytes(to_bytes(replace(most, temperature=1e-6, **change)), source="m")
        engine = Engine(model)
        answers, maps = engine.recognise(digits), engine.maps(u0_from_digits(digits))
        for found in (answers.score, answers.p, answers.margin, *maps.values()):
            assert np.isfinite(found).all()


def test_a_file_too_large_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    with path.open("wb") as stream:
        stream.truncate(MAX_BYTES + 1)
    with pytest.raises(ModelError, match="larger than 4,294,967,296 bytes"):
        load_model(path)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of shipped models."""
    monkeypatch.setattr(registry, "_PACKAGE", tmp_path / "package")
    (folder := tmp_path / "models").mkdir()
    return folder


def test_shipped_files_are_compared_with_their_digests(folder: Path) -> None:
    a, b, of_lines = (folder / f"{name}.safetensors" for name in ("a", "b", "neocog-lines"))
    for path in (a, b):
        tiny_model().save(path)
    tiny_lines().save(of_lines)
    assert not registry.check_digest(a)
    write_sums(folder)
    assert registry.check_digest(a)
    assert run("models", "verify").exit_code == 0
    data = bytearray(b.read_bytes())
    data[-1000] ^= 1
    b.write_bytes(data)
    load_model(b)  # nothing else shows it
    result = run("models", "verify", a, b, of_lines)
    assert result.exit_code == 4
    for told in (r"ok +tiny@.* as shipped", r"ok +tiny-lines@.* as shipped",
                 f"broken  model {b}: the shipped file was changed: its SHA-256 is"):  # fmt: skip
        assert re.search(told, result.stdout)
    b.unlink()
    result = run("models", "verify")
    assert (result.exit_code, "broken  no model named 'b'" in result.stdout) == (4, True)
    with_head("bias", np.arange(25, 0, -1, "f4")).save(of_lines)
    assert "the shipped file was changed" in run("models", "verify", of_lines).stdout
    write_sums(folder)
    assert "reads something on empty paper" in run("models", "verify", of_lines).stdout


def test_commands_know_models_of_lines(folder: Path) -> None:
    tiny_model().save(folder / "neocog.safetensors")
    tiny_lines().save(folder / "neocog-lines.safetensors")
    assert [path.stem for path in registry.list_models()] == ["neocog"]
    listed = json.loads(run("models", "list", "--json").stdout)
    assert {told["name"]: told["kind"] for told in listed} == {"neocog": "digits", "neocog-lines": "lines"}
    assert "neocog-lines  lines " in run("models", "list").stdout
    shown = run("models", "show").stdout
    assert "tiny-lines@" in shown
    assert "a line of numbers: 0 1 2" in shown
    assert re.search("accuracy +not measured", shown)
    real = run("models", "show", Path(__file__).parents[1] / "models/neocog-lines.safetensors").stdout
    assert re.search(r"accuracy +\d+ of \d+ numbers are printed from p 0\.5", real)
    row = {"p": 0.5, "error": 0.1, "answered": 8, "errors": 2}
    told = "8 of 9 numbers are printed from p 0.50 on, 2 of them wrong"
    for numbers, change, words in (
        ({"a": 9}, {}, told), ({"a": 9}, {"errors": "two"}, "not measured"),
        ({}, {}, "not measured"), ({"a": "9"}, {}, "not measured"), (9, {}, "not measured"),
    ):  # fmt: skip
        card = {"rejection": {"numbers": numbers, "table": [row | change]}}
        replace(tiny_lines(), card=card).save(folder / "neocog-lines.safetensors")
        assert re.search(f"accuracy +{words}\n", run("models", "show", "neocog-lines").stdout)


def test_every_model_here_is_as_it_was_shipped() -> None:
    files = registry.list_files()
    assert [path for path in files if registry.kind_of(path) == "digits"] == registry.list_models()
    assert set(registry.shipped_digests(registry.models_dir())) == {path.name for path in files}
    assert all(map(registry.check_digest, files))


def test_names_and_paths(folder: Path) -> None:
    with pytest.raises(ModelError, match="there are none"):
        load_model("neocog")
    tiny_model().save(folder / "neocog.safetensors")
    assert load_model("neocog").name == "tiny"
    assert [path.stem for path in registry.list_models()] == ["neocog"]
    for name, message in ((folder, "a folder"), ("neocg", "did you mean 'neocog'"), ("a.b", "no such file")):
        with pytest.raises(ModelError, match=message):
            load_model(name)


def test_any_card_can_be_read_back() -> None:
    """It may tell more or less."""
    table = {"reading": {"min_p": np.float64(0), "many": 5}, "rejection": {"table": [{"p": 1, "error": 0}]}}
    for card in {}, {"reading": {}, "rejection": {}, "finetuning": {"lean": 0, "before": None}}, table:
        assert from_bytes(to_bytes(broken(card=card)), source="m").card == card
