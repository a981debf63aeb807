"""Drawn lines: who may write them, what they say, how it stands; variants; no digits; made pages."""

import gzip
import re
from collections import Counter

import cv2
import numpy as np
import pytest

from neocog.errors import InputError, UsageError
from neocog.learning.datasets import Digits, open_dataset, open_digits, read_sklearn
from neocog.learning.drawing import foreign, line, page, texts
from neocog.learning.drawing.canvas import Canvas
from neocog.learning.drawing.glyphs import HELD_OUT, Face, allograph, styles_of
from neocog.learning.drawing.hands import Hand, hands_of, load_hands, own_lines, real_lines
from neocog.learning.drawing.marks import HELD, KINDS, negatives, variants, written
from neocog.learning.drawing.pen import Pen
from neocog.learning.mix import Mix
from neocog.network.engine import Engine
from neocog.network.lines import ALPHABET
from neocog.network.model import load_model
from neocog.reading.reader import Reader
from neocog.serve.corrections import Corrections
from neocog.vision.normalise import normalise
from tests.support import digits_of, few, page_file, run


@pytest.fixture(scope="module")
def hands(hands_dir):
    return load_hands(hands_dir)


def kept_apart(folder):
    """How many of all writers and pages are kept apart, once it is sure that none is on both sides."""
    both, found = [load_hands(folder, held=held) for held in (False, True)], {}
    assert set(both[1].sets) <= set(HELD_OUT["writers"])
    for name, own in HELD_OUT["writers"].items():
        file = "lines/free/qmnist" if name == "mnist" else f"hands/free/{name}/train"
        names = gzip.decompress((folder / f"{file}-writers.txt.gz").read_bytes()).decode().split()
        for hands, side in zip(both, ({*names} - {*own}, {*names} & {*own}), strict=True):
            of_set = hands.sets.get(name)
            writers, every = (of_set.writers, of_set.every) if of_set else (hands.pens, hands.every)
            assert {names[k] for places in every.values() for k in places} == side
            for writer in writers:
                (one,) = {names[k] for places in writer.values() for k in places}
                assert one in side
        found[name] = len(side), len({*names})
    for digit, (free, held) in enumerate(zip(*(hands.styles for hands in both), strict=True)):
        assert [[digit, k] for k in held] == [s for s in HELD_OUT["styles"] if s[0] == digit]
        assert sorted(free + held) == list(range(styles_of(digit, rare=True)))
    files = [np.load(path) for path in (folder / "lines/free/lectaurep").glob("*.npz")]
    rows = [row for file in files for row in zip(file["text"].tolist(), file["page"].tolist(), strict=True)]
    for held, most in ((False, 60), (True, 10**9)):
        said = Counter(text.replace(" ", "") for text, page in rows if (page in HELD_OUT["pages"]) == held)
        wanted = {text: min(count, most) for text, count in said.items() if text}
        assert Counter(text for _, text in real_lines(folder, 16, held=held)) == wanted
    pages = {page for _, page in rows}
    return found | {"pages": (len(pages & {*HELD_OUT["pages"]}), len(pages))}


def test_who_is_kept_apart_teaches_nothing(hands_dir, hands):
    assert set(kept_apart(hands_dir).values()) == {(1, 2)}
    assert hands.counts(2) == {"mnist": 20, "swiss": 20, "pendigits": 20, "lectaurep": 2}


def test_corrected_lines_are_learned_from(tmp_path, capsys):
    assert own_lines(tmp_path, 64) == []
    lines = [("-307", page_file("307")), ("3÷7", b"")]
    Corrections(tmp_path / "kept").save(b"a", 0, b"", "", np.zeros((0, 28, 28), np.uint8), [], lines)
    (tmp_path / "lines").mkdir()
    (tmp_path / "kept/lines").rename(tmp_path / "lines/own")
    ((grey, text),) = own_lines(tmp_path, 64)
    assert (text, len(grey)) == ("-307", 64)
    assert capsys.readouterr().err.endswith(": empty, or with a character that no line has (÷)\n")


@pytest.mark.data
def test_the_real_sets_are_kept_apart(data_dir):
    found = kept_apart(data_dir)
    assert found.pop("pages")[0] == 28
    assert found == {"mnist": (49, 539), "pendigits": (5, 44), "swiss": (2, 16)}


FORMS = {"number": r"\d[\d., ]*", "date": r"[\d./ -]+", "time": r"\d+[:.]\d\d[\d:.-]*", "grade": r"\d+/\d+",
         "groups": r"\d{4}( \d{4})+", "sum": r"\d+ ?[-+x=:/÷].*\d", "phone": r"[+(]?[\d()/ .-]+",
         "alike": r"(\d)\1*", "few": r"\d{1,3}"}  # fmt: skip


def test_texts_are_of_their_kind():
    assert sum(share for _, share in texts.KINDS.values()) == pytest.approx(1)
    for kind in texts.KINDS:
        found = [texts.any_text(np.random.default_rng(k), kind) for k in range(300)]
        assert len(set(found)) > (50 if kind in ("alike", "few") else 100)
        for text in found:
            assert re.fullmatch(FORMS.get(kind, r"\S.*"), text), (kind, text)
            assert re.search(r"\d", text)
            assert text == text.strip()
    rng = np.random.default_rng(0)
    assert set("".join(texts.any_text(rng) for _ in range(2000))) == {*ALPHABET, "÷"}


def test_print_beside_a_line_leaves_where_it_is_cut(hands, monkeypatch):
    above = []  # rows of a strip above what is written, at the median
    for share in (0.0, 1.0):
        monkeypatch.setattr(line, "_IN_PRINT", share)
        inks = [line.draw_line(hands, np.random.default_rng(seed), negatives=False)[0] for seed in range(40)]
        rows = [np.flatnonzero((ink > 100).any(axis=1)) for ink in inks]
        above.append(np.median([own[0] for own in rows if len(own)]))
    assert above[1] < above[0] + 10


def test_lines_have_ink_where_they_say_something(hands, monkeypatch):
    lines = [line.draw_line(hands, np.random.default_rng(seed)) for seed in range(20)]
    for ink, text in lines:
        assert (ink.dtype, ink.shape[0], ink.shape[1] >= 16) == (np.uint8, line.ROWS, True)
        assert ink.max() > 100 or not text
    assert len({text for _, text in lines}) > 15
    monkeypatch.setattr(line, "_NEGATIVE", 1.0)
    drawn = [line.draw_line(hands, np.random.default_rng(seed)) for seed in range(12)]
    assert {text for _, text in drawn} == {""}
    assert sum(ink.max() > 100 for ink, _ in drawn) > 6
    assert all(line.draw_line(hands, np.random.default_rng(seed), negatives=False)[1] for seed in range(6))


def line_of(seed, text, **how):
    """A line by a hand whose digits are whole pictures."""
    hands = hands_of(Digits(digits_of("0123456789"), np.arange(10), "print"))
    row = line.Row(Hand(hands, np.random.default_rng(seed), pen=Pen(0.1, 0.9)))
    assert row.write(text, **how)
    return row


@pytest.mark.parametrize("seed", range(8))
def test_characters_stand_from_left_to_right(seed):
    at = [column + np.flatnonzero(cover.max(0) > 0.3).mean()
          for _, cover, column, _ in line_of(seed, "12.50-3/4 07").items]  # fmt: skip
    assert len(at) == 11
    assert at == sorted(at)


def test_digits_touch_only_if_they_may():
    blots: dict[bool, set[int]] = {}
    for touching in (False, True):
        fields = [line_of(seed, "2013689", touching=touching).field() for seed in range(24)]
        blots[touching] = {cv2.connectedComponents((ink > 0.35).astype(np.uint8))[0] - 1 for ink in fields}
    assert blots[False] == {7}
    assert min(blots[True]) < 7


def test_a_point_is_seen_and_stands_low(hands):
    for seed in range(30):
        cover, _, top, *_ = Hand(hands, np.random.default_rng(seed)).character(".", 56.0)
        rows, columns = np.nonzero(cover > 0.5)
        assert min(np.ptp(rows), np.ptp(columns)) >= 1, seed
        assert abs(top + rows.mean()) < 0.2 * 56


@pytest.mark.parametrize("held", [False, True])
def test_marks_of_every_kind(held):
    found = open_digits("sklearn", split="train")[:260]
    marks, kind, names = negatives(150, found.images, found.labels, seed=3, held=held)
    assert marks.shape == (150, 28, 28)
    assert set(kind) == set(range(len(names)))
    assert marks.reshape(150, -1).sum(axis=1).min() > 0
    if held:
        again, other = (negatives(150, found.images, found.labels, seed=k, held=True)[0] for k in (3, 4))
        np.testing.assert_array_equal(marks, again)
        assert not np.array_equal(marks, other)
    assert KINDS.keys() & HELD.keys() == {"letter", "sign"}  # in other fonts
    with pytest.raises(UsageError, match="no digits"):
        negatives(3, np.zeros((0, 28, 28), np.uint8), np.zeros(0, np.int64), seed=0)


def test_some_variants_are_drawn():
    image = np.zeros((1, 28, 28), np.uint8)
    image[0, 8:20, 10:18] = 255
    for digit, count in ((0 * image, 4), (0 * image + 255, 4), (0 * image, 0), (image, 300)):
        made, labels = variants(count, Mix.of(digit, np.array([5])), seed=1)
        assert (made.shape, made.dtype, labels.dtype) == ((count, 28, 28), np.uint8, np.int64)
        assert set(labels) <= set(range(10))
    drawn = labels != 5
    assert set(labels[drawn]) == {*range(10)} - {5}
    assert 30 < drawn.sum() < 90  # a fifth, but for drawn 5s
    assert (made[drawn].reshape(-1, 784).max(axis=1) > 150).all()


@pytest.mark.parametrize("name", ["neocog", "neocog-small"])
def test_the_shipped_models_read_nearly_all_styles(name):
    """Three of four of each style, but for a long leaning 1, which alone may be a slash."""
    rng, each = np.random.default_rng(5), 6
    styles = [(d, k) for d in range(10) for k in range(styles_of(d)) if (d, k) != (1, 0)]
    digits = [normalise(written(allograph(*style, rng), rng)) for style in styles for _ in range(each)]
    best = Engine(load_model(name)).recognise(np.stack(digits)).score[:, :10].argmax(axis=1)
    right = best.reshape(-1, each) == np.array([digit for digit, _ in styles])[:, None]
    assert (right.mean(axis=1) < 0.75).sum() <= 2
    assert right.mean() > 0.94


@pytest.fixture(scope="module")
def plain_hands():
    return hands_of(read_sklearn()[:60])


@pytest.mark.parametrize("condition", few(page.CONDITIONS, "surface", "empty"))
def test_pages_of_every_condition(condition, plain_hands):
    picture, text = page.make_page(plain_hands, condition, np.random.default_rng(1))
    assert picture.shape == (960, 960)
    assert any(map(str.isdigit, text)) != (condition == "empty")


@pytest.mark.parametrize("part", [*foreign._PARTS])
def test_pages_without_digits(part, hands, monkeypatch):
    monkeypatch.setattr(Face, "has", lambda *_: True)  # Pillow's own, as if it had music and every script
    monkeypatch.setattr(foreign, "_PARTS", {part: 1.0})
    monkeypatch.setattr(page, "_FOREIGN", 1.0)
    face = Face()
    for seed in range(6):
        canvas = Canvas(np.full((300, 400), 220, np.float32), np.random.default_rng(seed), [face], turn=0.02)
        foreign.foreign(canvas, Hand(hands, canvas.rng), 30)
        assert (canvas.image < 180).mean() > 0.002
        assert canvas.marks == []
        one, again = (page.draw_page(hands, [face], seed, side=128) for _ in range(2))
        assert not len(one.marks)
        np.testing.assert_array_equal(one.image, again.image)


def test_typefaces_tell_their_scripts():
    matplotlib = pytest.importorskip("matplotlib", reason="needs neocog[bench]")
    face = Face(matplotlib.get_data_path() + "/fonts/ttf/DejaVuSans.ttf")
    found = foreign.typefaces(Face(), face)
    assert {"GREEK", "CYRILLIC", "HEBREW", "GEORGIAN"} <= found.keys()
    assert not {"LATIN", "THAI", "CJK UNIFIED", "HANGUL"} & found.keys()
    for ((own, (letters, _)),) in found.values():
        assert own is face
        assert all(map(str.isalpha, letters))
    assert foreign.typefaces(Face()) == {}


def test_digits_are_found(plain_hands):
    drawn = [page.make_page(plain_hands, "plain", np.random.default_rng(seed)) for seed in range(2)]
    found = sum(len(Reader(device="cpu").read(picture).digits) for picture, _ in drawn)
    assert found == pytest.approx(sum(map(str.isdigit, "".join(text for _, text in drawn))), rel=0.25)


def test_a_set_without_a_digit_writes_others_and_one_without_ink_nothing():
    digits = read_sklearn()[:80]
    hands = hands_of(Digits(digits.images, np.full(80, 7), "all are sevens"))
    _, text = page.make_page(hands, "plain", np.random.default_rng(0))
    assert "7" in text
    with pytest.raises(InputError, match="no digit has ink"):
        hands_of(Digits(np.zeros((2, 28, 28), np.uint8), np.array([1, 2]), "blank"))


def test_command_writes_pages_that_are_a_labelled_set(tmp_path, monkeypatch):
    monkeypatch.setenv("NEOCOG_DATA", str(tmp_path / "nothing"))
    (tmp_path / "nothing" / "mnist").mkdir(parents=True)  # a folder of that name without the files
    for name, seed, count in (("a", 5, 1), ("b", 5, 3), ("c", 6, 1)):
        words = ("--conditions", "plain,empty", "--seed", seed, "--count", count)
        done = run("data", "make-pages", tmp_path / name, *words)
        assert done.exit_code == 0, done.output
        assert ("scikit-learn" in done.stderr, len(done.stderr.splitlines())) == (True, 1)
    labelled = open_dataset(tmp_path / "b")
    assert [(f.name, bool(text)) for f, text in zip(labelled.files, labelled.expected, strict=True)] == [
        ("plain_000.png", True), ("empty_000.png", False), ("plain_001.png", True),
    ]  # fmt: skip
    a, b, c = ((tmp_path / name / "plain_000.png").read_bytes() for name in "abc")
    assert a == b != c


@pytest.mark.parametrize(("words", "code"), [
    (("--digits", "sklearn"), 0), (("--digits", __file__), 1),
    (("--conditions", "sunny"), 2), (("--count", "0"), 2),
])  # fmt: skip
def test_what_cannot_be_made_is_said_in_one_line(tmp_path, words, code):
    done = run("data", "make-pages", tmp_path, "--conditions", "plain", "--count", "1", *words)
    assert done.exit_code == code
    assert bool(done.stderr.strip()) == bool(code)
