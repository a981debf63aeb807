"""The model file: what is saved is what is read, and nothing else is a model."""

import json
import pickle
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.learning.ship import write_sums
from neocog.errors import ModelError
from neocog.network import model as model_file
from neocog.network import registry
from neocog.network.engine import Engine
from neocog.network.model import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_HEADER,
    MAX_WEIGHT,
    Model,
    from_bytes,
    load_model,
    to_bytes,
)
from neocog.network.u0 import made_digits, u0_from_digits
from tests.support import run, tiny_model


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


def broken(**changes: object) -> Model:
    return replace(tiny_model(), **changes)  # type: ignore[arg-type]


def refuse(data: bytes, reason: str | None = None) -> None:
    """Have a file refused in one short line."""
    with pytest.raises(ModelError, match=reason) as caught:
        from_bytes(data, source="m")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


def with_reference(value: float) -> Model:
    s1, s2, *rest = tiny_model().s
    x = s2.reference.copy()
    x[0, 0, 0, 0] = value
    return broken(s=(s1, replace(s2, reference=x), *rest))


def with_c(value: float) -> Model:
    first, *rest = tiny_model().s
    return broken(s=(replace(first, c=np.full_like(first.c, value)), *rest))


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda: with_reference(np.nan), "not finite"),
        (lambda: with_reference(-1.0), "US2.reference reaches -1, expected 0 to 1e\\+09"),
        (lambda: with_c(-1.0), "US1.c reaches -1, expected 0 to"),
        (lambda: with_reference(1e10), "US2.reference reaches 1e\\+10, expected 0 to"),
        (lambda: broken(blurs=(*tiny_model().blurs[:2], np.full((7, 7), -3e38, "f4"))),
         "UC3.blur reaches -3e\\+38, expected -65504 to 65504"),
        (lambda: broken(labels=np.arange(2, 12)), "beyond 0..9"),
        (lambda: broken(labels=np.arange(9)), "expected \\(10,\\)"),
        (lambda: broken(temperature=0.0), "temperature"),
        (lambda: broken(temperature=10**400), "a part is missing or wrong"),
        (lambda: broken(blurs=(np.ones((3, 3), "f4"), *tiny_model().blurs[1:])), "UC1.blur"),
        (lambda: broken(s=(*tiny_model().s[:3], replace(tiny_model().s[3], threshold=1.5))), "threshold 1.5"),
    ],
)  # fmt: skip
def test_impossible_models_are_refused(model: object, reason: str) -> None:
    refuse(to_bytes(model()), reason)  # type: ignore[operator]


@pytest.mark.parametrize(
    "data",
    [b"", b"neither", pickle.dumps({"US1": 1}), b"PK\x03\x04archive", to_bytes(tiny_model())[:-7],
     to_bytes(tiny_model())[:100], b"\xff" * 64, struct.pack("<Q", 2**60) + b"{}"],
)  # fmt: skip
def test_other_files_are_refused(data: bytes) -> None:
    known = data[:2] in (b"\x80\x04", b"PK")
    refuse(data, "a pickle or archive, which neocog never loads" if known else "cut short or not a model")


@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize(("key", "what"), [("thresholds", "thresholds"), ("q", "values of q")])
def test_layers_need_as_many_values(key: str, what: str, count: int) -> None:
    few = with_header(lambda text: json.dumps(json.loads(text) | {key: [0.5] * count}))
    refuse(few, f"US layers need 4 {what}, got {count}")


@pytest.mark.parametrize(
    ("card", "reason"),
    [
        (["reading"], "the card is not a JSON object"),
        ({"reading": 3}, "the card's reading is 3, expected a JSON object"),
        ({"reading": {"min_p": "high"}}, "reading: min_p 'high', expected a number, 0 to 1;"),
        ({"reading": {"min_p": 1.5}}, "min_p 1.5, expected"),
        ({"reading": {"min_p": True}}, "min_p True, expected"),
        ({"reading": {"strip_odds": None}}, "strip_odds None, expected"),
        ({"reading": {"page_odds": -1}}, "page_odds -1, expected"),
        ({"reading": {"many": 10**400}}, "many 1000.*, expected"),
        ({"rejection": 1}, "the card's rejection is 1"),
        ({"rejection": {"table": {"p": 0.5}}}, "rejection table has no rows"),
        ({"rejection": {"table": [0.5]}}, "rejection table's row is 0.5"),
        ({"rejection": {"table": [{"p": 0.5}]}}, "rejection table: error None, expected"),
        ({"rejection": {"table": [{"p": "0.5", "error": 0.1}]}}, "table: p '0.5', expected"),
        ({"finetuning": 3}, "the card's finetuning is 3"),
        ({"finetuning": {"marks": "many"}}, "finetuning: marks 'many', expected"),
        ({"finetuning": {"lean": [1]}}, "finetuning: lean \\[1\\], expected"),
    ],
)
def test_cards_that_cannot_be_calculated_with_are_refused(card: object, reason: str) -> None:
    refuse(to_bytes(broken(card=card)), reason)


def with_header(change: Callable[[str], str]) -> bytes:
    """A model whose own header, JSON in the metadata, is changed."""
    data = to_bytes(broken(card={"note": "here"}))
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header["__metadata__"]["neocog"] = change(header["__metadata__"]["neocog"])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


@pytest.mark.parametrize(
    ("here", "reason"),
    [
        ("[" * MAX_DEPTH + "1" + "]" * MAX_DEPTH, "a card of more than 16 nested tables"),
        ("[" * 400 + "]" * 400, "a card of more than 16 nested tables"),
        ("[" * 100_000 + "]" * 100_000, "cut short or not a model"),
        ('"' + "x" * MAX_HEADER + '"', "a header of 1,0.*bytes, at most 1,048,576 are read"),
        ("NaN", "not finite: NaN"),
        ("-Infinity", "not finite: -Infinity"),
        ("1e999", "not finite: 1e999"),
        ("1" * 5000, "cut short or not a model"),
    ],
    ids=["deep", "deeper", "deepest", "long", "NaN", "infinity", "exponent", "digits"],
)
def test_cards_without_bounds_are_refused(here: str, reason: str) -> None:
    assert from_bytes(with_header(lambda text: text), source="m").card == {"note": "here"}
    refuse(with_header(lambda text: text.replace('"here"', here)), reason)


def test_a_header_that_lies_is_refused() -> None:
    for wrong in ("", "[]", '{"format": "neocog 9"}'):
        refuse(with_header(lambda _, wrong=wrong: wrong))
    for rule in ("pairs", "triples", "linear", "loudest"):
        other = with_header(lambda text, rule=rule: text.replace('"strongest"', f'"{rule}"'))
        refuse(other, f"{rule}' is no longer read.*d840c1a")


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
                       (broken(card={"reading": {"min_p": 2}}), "min_p 2")):  # fmt: skip
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
    a, b = folder / "a.safetensors", folder / "b.safetensors"
    for path in (a, b):
        tiny_model().save(path)
    assert not registry.check_digest(a)
    write_sums(folder)
    assert registry.check_digest(a)
    data = bytearray(b.read_bytes())
    data[-1000] ^= 1
    b.write_bytes(data)
    load_model(b)  # nothing else shows it
    result = run("models", "verify", a, b)
    assert result.exit_code == 4
    assert "tiny@" in result.stdout
    assert "as shipped" in result.stdout
    assert f"broken  model {b}: the shipped file was changed: its SHA-256 is" in result.stdout
    b.unlink()
    result = run("models", "verify")
    assert (result.exit_code, "broken  no model named 'b'" in result.stdout) == (4, True)


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
    """Some lengths of the header begin as a pickle or an archive does; a card may tell more or less."""
    cards: list[dict[str, object]] = [{"note": "x" * length} for length in range(0, 300, 8)]
    table = {"reading": {"min_p": 0, "many": 5}, "rejection": {"table": [{"p": 1, "error": 0}]}}
    cards += [{}, {"reading": {}, "rejection": {}, "finetuning": {"lean": 0, "before": None}}, table]
    for card in cards:
        assert from_bytes(to_bytes(broken(card=card)), source="m").card == card
