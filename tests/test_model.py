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
from neocog.network.lines import ALPHABET, LineModel, load_any
from neocog.network.model import MAX_BYTES, MAX_DEPTH, MAX_HEADER, MAX_WEIGHT, Model, from_bytes, load_model
from neocog.network.reference import respond_line
from neocog.network.u0 import made_digits, u0_from_digits
from tests.support import digit_strip, run, tiny_lines, tiny_model

TINY, LINES = replace(tiny_model(), card={"note": "here"}), replace(tiny_lines(), card={"data": "drawn"})


def to_bytes(model: Model | LineModel, **how: Any) -> bytes:
    return (lines if isinstance(model, LineModel) else model_file).to_bytes(model, **how)


def again(model: Model | LineModel, **how: Any) -> Any:
    """The model as it is read from its file's bytes."""
    kind = lines if isinstance(model, LineModel) else model_file
    return kind.from_bytes(to_bytes(model, **how), source="m")


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("model", [TINY, replace(LINES, temperature=1.5)], ids=["digits", "lines"])
def test_saved_is_loaded(tmp_path: Path, model: Any, precision: str) -> None:
    path = tmp_path / "m.safetensors"
    saved, loaded = model.save(path, precision=precision), load_any(path)
    assert loaded.id == saved.id == f"{model.name}@{saved.version}"
    assert (len(saved.version), loaded.card, loaded.spec) == (8, model.card, model.spec)
    assert loaded.temperature == model.temperature
    assert to_bytes(loaded, precision=precision) == path.read_bytes() == to_bytes(model, precision=precision)
    assert again(replace(model, card={}), precision=precision).id == saved.id, "the card is no part of it"
    assert again(replace(model, temperature=0.1), precision=precision).id != saved.id
    if precision == "fp16":
        assert path.stat().st_size < 0.6 * len(to_bytes(model))
    exact, rounded = (one.digits if model.name == LINES.name else one for one in (model, loaded))
    for got, want in zip(rounded.blurs, exact.blurs, strict=True):
        np.testing.assert_array_equal(got, want)
    if rounded is not loaded:
        want, got = (respond_line(digit_strip(), one)["Z"] for one in (model, loaded))
        np.testing.assert_allclose(got, want, atol=1e-2)


def refuse(data: bytes, reason: str, read: Callable[..., Any] = from_bytes) -> None:
    """Have a file refused in one short line."""
    with pytest.raises(ModelError, match=reason) as caught:
        read(data, source="m")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


def changed(thing: Any, place: str, value: object) -> Any:
    """A model, or a part of one, with another value at a place, e.g. ``"s.1.threshold"``."""
    name, _, rest = place.partition(".")
    old = thing[int(name)] if isinstance(thing, tuple) else getattr(thing, name)
    new = changed(old, rest, value) if rest else value
    if isinstance(thing, tuple):
        return (*thing[: int(name)], new, *thing[int(name) + 1 :])
    return replace(thing, **{name: new})


def reference_with(value: float) -> np.ndarray:
    x = TINY.s[1].reference.copy()
    x[0, 0, 0, 0] = value
    return x


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, "f4")


@pytest.mark.parametrize(("model", "place", "value", "reason"), [
    *((TINY, *row) for row in (
        ("s.1.reference", reference_with(np.nan), "US2.reference holds values that are not finite"),
        ("s.1.reference", reference_with(-1.0), "US2.reference reaches -1, expected 0 to 1e\\+09"),
        ("s.1.reference", reference_with(1e10), "US2.reference reaches 1e\\+10, expected 0 to"),
        ("s.0.c", -TINY.s[0].c, "US1.c reaches -.*, expected 0 to"),
        ("s.3.threshold", 1.5, "threshold 1.5"),
        ("blurs.2", zeros(7, 7) - 3e38, "UC3.blur reaches -3e\\+38, expected -65504 to 65504"),
        ("blurs.0", zeros(3, 3), "UC1.blur"),
        ("labels", np.arange(2, 12), "beyond 0..9"),
        ("labels", np.arange(9), "expected \\(10,\\)"),
        ("psi", "cube", "unknown psi"),
        ("temperature", 0.0, "temperature"),
        ("temperature", 10**400, "a part is missing or wrong"),
        *(("card", card, "the card's reading, rejection, finetuning are not as they should be") for card in (
            ["reading"], {"reading": 3}, *({"reading": {"min_p": value}} for value in ("high", 1.5, True)),
            {"reading": {"page_odds": -1}}, {"reading": {"many": 10**400}}, {"rejection": {"table": 5}},
            {"rejection": {"table": {"p": 0.5}}}, {"rejection": {"table": [0.5]}},
            {"rejection": {"table": [{"p": 0.5}]}}, {"rejection": {"table": [{"p": "0.5", "error": 0.1}]}},
            {"finetuning": {"marks": "many"}}, {"finetuning": {"lean": [1]}}, {"finetuning": ["lean"]},
        )),
    )),
    *((LINES, *row) for row in (
        ("digits.s.1.reference", reference_with(-1.0), "US2.reference reaches -1"),
        ("alphabet", ALPHABET[::-1], "its alphabet is ' #%"),
        ("alphabet", [1] * 999, "its alphabet is .{42}, expected"),
        ("temperature", 0.0, "a line's temperature 0.0, expected 0.001"),
        ("temperature", "hot", "a part is missing or wrong"),
        ("card", {"reading": 3}, "the card's reading"),
        ("head.own", zeros(24, 10), "shape \\(24, 10\\), expected \\(25, 10\\)"),
        ("head.bias", np.zeros(25, "i4"), "head.bias is int32, expected float16 or float32"),
        ("head.weights.1", zeros(12, 12, 3), "head.w2 has shape .*, expected \\(12, 12, 5\\)"),
        ("head.biases.0", zeros(0), "the head has 0 planes, expected 1 to 4096"),
        ("head.biases.0", zeros(5000), "the head has 5000 planes"),
        ("head.weights", tuple(zeros(*w.shape) + 6e4 for w in LINES.head.weights), "scores may reach 2.22e"),
    )),
], ids=str)  # fmt: skip
def test_impossible_models_are_refused(model: Any, place: str, value: object, reason: str) -> None:
    refuse(to_bytes(changed(model, place, value)), reason, lines.from_bytes if model is LINES else from_bytes)


@pytest.mark.parametrize("data", [
    b"", b"neither", pickle.dumps({"US1": 1}), b"PK\x03\x04archive", to_bytes(TINY)[:-7],
    to_bytes(TINY)[:100], b"\xff" * 64, struct.pack("<Q", 2**60) + b"{}",
    b"\x02" + bytes(7) + b"{}", b"\x12" + bytes(7) + b'{"__metadata__":3}',
])  # fmt: skip
def test_other_files_are_refused(tmp_path: Path, data: bytes) -> None:
    refuse(data, "not a (neocog )?model")
    (tmp_path / "m").write_bytes(data)
    assert registry.kind_of(tmp_path / "m") == "digits"


def test_models_of_the_other_kind_and_without_a_part_are_refused() -> None:
    whole = to_bytes(LINES)
    refuse(whole, "of format 'neocog lines 1', not 'neocog 1'")
    refuse(to_bytes(TINY), "of format 'neocog 1', not 'neocog lines 1'", lines.from_bytes)
    for name in ("head.own", "head.b3"):
        without = whole.replace(f'"{name}"'.encode(), f'"{name[:-1]}?"'.encode())
        refuse(without, f"a part is missing or wrong \\('{name}'\\)", lines.from_bytes)


def with_header(old: str, new: str) -> bytes:
    """A model whose own header, JSON in the metadata, is changed; all of it if ``old`` is ""."""
    data = to_bytes(TINY)
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
    model = replace(TINY, labels=np.zeros(k4, np.int64))
    for i, shape in enumerate(((k2, 16, 6, 6), (k3, k2, 6, 6), (k4, k3, 9, 9)), start=1):
        model = changed(model, f"s.{i}.reference", np.broadcast_to(np.float32(1), shape))
    with pytest.raises(ModelError, match="values a digit, at most 2,500,000 are read"):
        model_file._check(model)


def test_what_cannot_be_read_is_not_written(tmp_path: Path) -> None:
    for change, why in (({"card": {"reading": {"cut_odds": np.nan}}}, "a number that is not finite"),
                        ({"temperature": np.inf}, "a number that is not finite"),
                        ({"card": {"reading": {"min_p": 2}}}, "2 is no number from 0 to 1")):  # fmt: skip
        with pytest.raises(ModelError, match=why):
            replace(TINY, **change).save(tmp_path / "m.safetensors")
    assert not list(tmp_path.iterdir())


def test_a_name_is_shown_and_obeyed_by_no_terminal() -> None:
    assert again(replace(TINY, name="\x1b[2Jclean\n" + "x" * 1000)).name == r"\x1b[2Jclean\n" + "x" * 186


def test_the_largest_weights_that_are_taken_give_finite_answers() -> None:
    most = replace(TINY, labels=np.zeros(10, np.int64), temperature=1e-6)
    for i, s in enumerate(TINY.s):
        most = changed(most, f"s.{i}.c", np.full_like(s.c, MAX_WEIGHT))
        most = changed(most, f"s.{i}.reference", s.reference + np.float32(9e8))
    most = replace(most, blurs=tuple(np.full_like(blur, MAX_WEIGHT) for blur in TINY.blurs))
    digits = np.concatenate([np.zeros((1, 28, 28), np.uint8), made_digits(15)])
    for psi in ("sqrt", "ratio"):
        engine = Engine(again(replace(most, psi=psi)))
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
        TINY.save(path)
    LINES.save(of_lines)
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
    changed(LINES, "head.bias", np.arange(25, 0, -1, "f4")).save(of_lines)
    assert "the shipped file was changed" in run("models", "verify", of_lines).stdout
    write_sums(folder)
    assert "reads something on empty paper" in run("models", "verify", of_lines).stdout


def test_commands_know_models_of_lines(folder: Path) -> None:
    TINY.save(folder / "neocog.safetensors")
    LINES.save(folder / "neocog-lines.safetensors")
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
        replace(LINES, card=card).save(folder / "neocog-lines.safetensors")
        assert re.search(f"accuracy +{words}\n", run("models", "show", "neocog-lines").stdout)


def test_every_model_here_is_as_it_was_shipped() -> None:
    files = registry.list_files()
    assert [path for path in files if registry.kind_of(path) == "digits"] == registry.list_models()
    assert set(registry.shipped_digests(registry.models_dir())) == {path.name for path in files}
    assert all(map(registry.check_digest, files))


def test_names_and_paths(folder: Path) -> None:
    with pytest.raises(ModelError, match="there are none"):
        load_model("neocog")
    TINY.save(folder / "neocog.safetensors")
    assert load_model("neocog").name == "tiny"
    assert [path.stem for path in registry.list_models()] == ["neocog"]
    for name, message in ((folder, "a folder"), ("neocg", "did you mean 'neocog'"), ("a.b", "no such file")):
        with pytest.raises(ModelError, match=message):
            load_model(name)


def test_any_card_can_be_read_back() -> None:
    """It may tell more or less."""
    table = {"reading": {"min_p": np.float64(0), "many": 5}, "rejection": {"table": [{"p": 1, "error": 0}]}}
    for card in {}, {"reading": {}, "rejection": {}, "finetuning": {"lean": 0, "before": None}}, table:
        assert again(replace(TINY, card=card)).card == card
