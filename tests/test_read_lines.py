"""The line reader: records, patterns, lists of valid numbers; with an engine that says what a test wants."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from neocog import Reader
from neocog.errors import UsageError
from neocog.evaluation.explain import explain_text
from neocog.live.pipeline import Pipeline
from neocog.live.sources import open_source
from neocog.network.line_engine import LineEngine
from neocog.network.lines import ALPHABET, LineModel, columns
from neocog.reading import numbers
from neocog.reading.formats import KINDS, Format
from neocog.reading.policy import read_valid
from neocog.vision.decode import Page
from neocog.vision.finder import Finding
from tests.live_support import clip, picture
from tests.support import (
    from_digits,
    page,
    records,
    refused,
    run,
    save_page,
    table_of,
    tiny_model,
    write_records,
)

BLANK = len(ALPHABET)


def spelled(text: str, count: int, **others: tuple[str, float]) -> NDArray[np.float32]:
    """Log likelihoods (count, n) of a text, evenly spread between what a strip has to spare at its ends.

    ``others``: ``at3=("1", 0.4)``.
    """
    p = np.full((count, BLANK + 1), 1e-6)
    p[:, BLANK] = 1
    for k, char in enumerate(text):
        t = round(14.5 + (k + 0.5) * max(count - 23, 0) / len(text))
        p[t] = 1e-6
        p[t, ALPHABET.index(char)] = 1
        if (other := others.get(f"at{k}")) is not None:
            p[t, ALPHABET.index(char)] = 1 - other[1]
            p[t, ALPHABET.index(other[0]) if other[0] else BLANK] = other[1]
    return np.log(p / p.sum(axis=1, keepdims=True)).astype(np.float32)


class Engine:
    """A line engine that says the same of every strip."""

    device, where, precision = "cpu", "here", "fp32"

    def __init__(self, text: str, **others: tuple[str, float]) -> None:
        self.model, self.text, self.others = line_model(), text, others

    def likelihoods(self, strips: Sequence[NDArray[Any]]) -> list[NDArray[np.float32]]:
        return [spelled(self.text, columns(strip.shape[1]), **self.others) for strip in strips]


def line_model() -> LineModel:
    return from_digits(tiny_model(), seed=0, inner=4)


def reader_of(text: str, others: dict[str, tuple[str, float]] | None = None, **options: Any) -> Reader:
    reader = Reader(line_model(), device="cpu", rotate=0, **options)
    return reader.changed(engine=Engine(text, **(others or {})))


def test_a_record_has_the_signs_in_its_text_and_numbers_in_its_lines() -> None:
    record = reader_of("30,7 -1").read(page("3071")).to_dict()
    assert (record["text"], record["reader"], record["model"]) == ("30,7 -1", "lines", "tiny-lines")
    assert [[one["char"] for one in record[kind]] for kind in ("digits", "signs")] == [[*"3071"], [*",-"]]
    (line,) = record["lines"]
    assert [word["digits"] for word in line["words"]] == [[0, 2], [3, 3]]
    first, second = line["numbers"]
    assert (first["text"], second["text"], first["field"]) == ("30,7", "-1", None)
    assert [char["char"] for char in first["chars"]] == [*"30,7"]
    assert 0.99 < first["p"] <= 1
    assert list(first) == ["text", "p", "box", "chars", "field"]
    assert list(first["chars"][0]) == ["char", "p", "box"]
    assert "margin" not in line


@pytest.fixture
def model_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the finder says of a digit has no weight."""
    for name in ("_GUESS", "_SEEN", "_UNSEEN"):
        monkeypatch.setattr(numbers, name, 0.0)


@pytest.mark.parametrize("other", [("", 0.6), ("8", 0.6)])
def test_a_digit_that_the_finder_is_sure_of_is_read(other: tuple[str, float]) -> None:
    reading = reader_of("307", {"at1": other}).read(page("307"))
    assert reading.text == "307"
    assert other[0] or reading.lines[0].numbers[0].p > 0.9


@pytest.mark.usefixtures("model_alone")
@pytest.mark.parametrize(
    ("shares", "least", "p", "reason"),  # of an 8 in place of each character
    [((0.0, 0.4, 0.0), 0.7, 0.6, "two answers"), ((0.2, 0.3, 0.25), 0.5, 0.42, "the number is in doubt")],
)
def test_a_doubtful_character_or_number_has_a_mark_and_a_reason(shares, least, p, reason):
    others = {f"at{k}": ("8", share) for k, share in enumerate(shares) if share}
    reading = reader_of("307", others, min_p=least).read(page("307"))
    (number,) = reading.lines[0].numbers
    assert (reading.text, number.p) == ("3?7", pytest.approx(p, abs=0.01))
    assert [digit.reason for digit in reading.digits] == [None, reason, None]
    assert reader_of("307", others, min_p=p - 0.02).read(page("307")).text == "307"


@pytest.mark.parametrize(("text", "p"), [
    ("30.", 1), ("30=", 1), ("3,0", 1), ("30-", 0.6), ("30*", 0.6), ("30#", 0.6), ("30%", 0.6),
])  # fmt: skip
def test_a_sign_at_the_end_is_doubt_but_for_a_point(text: str, p: float) -> None:
    others = {f"at{len(text) - 1}": ("", 0.6), "at1": (".", 0.4)}
    chosen = {k: v for k, v in others.items() if (k == "at1") == (text == "3,0")}
    reading = reader_of(text, chosen, min_p=0.5).read(page("30"))
    assert reading.lines[0].numbers[0].p == pytest.approx(p, abs=0.01)
    assert p == 1 or reader_of(text, chosen, min_p=0.7).read(page("30")).text == "30?"


@pytest.mark.parametrize("struck", [True, False])
def test_a_digit_under_a_stroke_is_read_and_marked(struck: bool) -> None:
    where = page("3071")
    if struck:
        where[148:153, 105:235] = 0
    reading = reader_of("3071").read(where)
    assert (reading.text, reading.warnings) == ("3071", ("struck-through",) * struck)
    reason = numbers.STRUCK if struck else None
    assert [digit.reason for digit in reading.digits] == [reason, reason, None, None]


def test_a_digit_that_was_seen_and_not_read_is_a_doubt() -> None:
    (number,) = reader_of("30", min_p=0.5).read(page("307")).lines[0].numbers
    assert "?" in number.text
    assert number.p < 0.5
    assert reader_of("30.7", min_p=0.5).read(page("307")).text == "30.7"


@pytest.mark.parametrize(
    ("gap", "shown", "text", "left_out"), [(40, "n", "30", 1), (11, "n", "30 7", 0), (40, "h", "30 7", 1)]
)
def test_what_the_lines_say_of_letters_beside_a_number_is_left_out(
    gap: int, shown: str, text: str, left_out: int
) -> None:
    """The finder sees no digit in the n, in the h a 4; near a number it may be one that it does not know."""
    image = Image.fromarray(np.pad(page("30"), ((0, 0), (0, 160)), constant_values=255))
    letter = (223 + gap, 178), shown, 0, ImageFont.load_default(59)
    ImageDraw.Draw(image).text(*letter, anchor="ls")
    reading = reader_of("30 7").read(np.asarray(image))
    assert (reading.text, reading.left_out) == (text, left_out)
    (line,) = numbers.page_lines(reader_of("30 7"), Page(0, np.asarray(image), image.size))[0]
    explained = explain_text(line, LineEngine(line_model())).facts["characters"]
    assert [char["char"] for char in explained] == [*text.replace(" ", "")]


@pytest.mark.parametrize(("word", "text"), [("h", "307"), ("hmm", "30")])
def test_where_a_strip_ends_amid_a_word_no_digit_is_read(word: str, text: str) -> None:
    """Of a word's first letter the network says 7; alone it may be a digit that the finder does not know."""

    class Beside(Engine):
        def likelihoods(self, strips: Sequence[NDArray[Any]]) -> list[NDArray[np.float32]]:
            logs = super().likelihoods(strips)
            for logp in logs:
                logp[-5, [ALPHABET.index("7"), BLANK]] = np.log([0.99, 0.01])
            return logs

    image = Image.fromarray(np.pad(page("30"), ((0, 0), (0, 260)), constant_values=255))
    ImageDraw.Draw(image).text((234, 178), word, 0, ImageFont.load_default(59), anchor="ls")
    for pattern, said in (None, text), ("###", "307"):  # a pattern knows how many there are
        reader = Reader(line_model(), device="cpu", rotate=0, min_p=0.0, pattern=pattern)
        reading = reader.changed(engine=Beside("30")).read(np.asarray(image))
        assert (reading.text, reading.left_out) == (said, 3 - len(said))


@pytest.mark.parametrize("read", ["7", "- 7"])
def test_a_line_of_letters_alone_is_none(read: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read lies far from the digits that the finder sees; nor is one without digits."""
    for text in ("", "-", ", ."):
        reading = reader_of(text).read(page("30"))
        assert (reading.text, reading.lines, reading.left_out) == ("", (), 2)
    monkeypatch.setattr(numbers, "_APART", -0.9)
    reading = reader_of(read).read(page("30"))
    assert (reading.text, reading.lines, reading.left_out) == ("", (), 2)
    reader, grey = reader_of(read), page("30")
    found = reader.look(grey)
    ((_, line),) = numbers.each_line(reader, grey, found, found.scores > 0)  # of a frame
    assert line is not None
    assert " ".join(word.text for word in line.words) == read


@pytest.mark.parametrize(("options", "text", "fits"), [
    ({}, "12130", None),
    ({"pattern": "##/##"}, "12/30", True),
    ({"pattern": "##/##kg"}, "12/30kg", True),
    ({"pattern": "##.##"}, "12130", False),
    ({"valid": ["12/30", "12/31"]}, "12/30", True),
    ({"valid": ["98765"]}, "12130", False),
    ({"valid": ["12/30", "98"], "pattern": "##"}, "12130", False),
])  # fmt: skip
def test_patterns_and_lists_choose_by_likelihood(options: Any, text: str, fits: bool | None) -> None:
    reading = reader_of("12130", {"at2": ("/", 0.4)}, min_p=0.1, **options).read(page("12130"))
    assert (reading.text, reading.fits) == (text, fits)
    assert (reading.lines[0].margin is not None) == (fits is True)
    assert "fits" in reading.to_dict() or not options


@pytest.mark.parametrize(("share", "text", "p"), [(0.2, "155", 0.97), (1e-3, "?55", 0.13), (1e-6, "55", 1.0)])
def test_a_pattern_makes_no_digit_out_of_nothing(share: float, text: str, p: float) -> None:
    """A 1 of which so much is seen before the digits."""
    reader = reader_of("155", {"at0": ("", 1 - share)}, min_p=0.5, pattern="###")
    (number,) = reader.read(page(text.replace("?", "1"))).lines[0].numbers
    assert (number.text, number.p) == (text, pytest.approx(p, abs=0.02))
    if share == 1e-3:  # a list of one number is believed a thousand times more than its form
        listed = reader_of("155", {"at0": ("", 1 - share)}, min_p=0.5, valid=["155"]).read(page("155"))
        assert (listed.text, listed.lines[0].numbers[0].p) == ("155", pytest.approx(0.99, abs=0.01))


@pytest.mark.parametrize(("data", "why"), [
    (b"12\nAB12\n", "'AB12'"), (b"\n\n", "is empty, expected a file"), (b"\xff\xfe1", "is not UTF-8 text"),
    (b"12\0\1", "zero bytes"), (b"1\n" * 2**22, "MiB"), (None, "no such file"),
])  # fmt: skip
def test_a_list_of_valid_numbers_is_checked(data: bytes | None, why: str, tmp_path: Path) -> None:
    path = tmp_path / "valid.txt"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(UsageError, match=why) as error:
        reader_of("1", valid=path)
    assert "\n" not in str(error.value)
    path.write_bytes(b"\xef\xbb\xbf12,50\r\n\n 7 \n7\n")  # with blank lines, and a number twice
    assert read_valid(path) == ("12,50", "7", "7")


@pytest.mark.usefixtures("model_alone")
def test_every_format_takes_signs_and_numbers_have_their_own_p(tmp_path: Path) -> None:
    assert reader_of("1,2 3", digits_only=True).read(page("123")).text == "123"
    reading = reader_of("=1,2 -5", {"at3": ("", 0.3)}, min_p=0).read(page("1225"))
    first, second = (number.p for number in reading.lines[0].numbers)
    assert first < 0.75 < second
    (row,) = table_of(write_records(tmp_path / "a.csv", Format("csv"), reading))
    assert (row["text"], row["least_p"]) == ("'=1,2 -5", f"{first:.4f}")
    told = {kind: Format(kind, names=False, source="x").render(reading) for kind in KINDS}
    assert (told["text"], told["tsv"]) == ("=1,2 -5\n", "'=1,2 -5\n")
    assert json.loads(told["jsonl"])["text"] == "=1,2 -5"
    words = [word.attrib for word in ET.fromstring(told["alto"]).iter("String")]
    assert [(word["CONTENT"], word["WC"]) for word in words] == [
        ("=1,2", f"{first:.2f}"),
        ("-5", f"{second:.2f}"),
    ]


class Table(Engine):
    """It says 23 of a wide strip, with a space, and 7 of a narrow one."""

    def likelihoods(self, strips: Sequence[NDArray[Any]]) -> list[NDArray[np.float32]]:
        return [spelled("2 3" if s.shape[1] > 97 else "7", columns(s.shape[1])) for s in strips]


def test_live_announces_what_stands_apart_in_a_row_and_what_is_shown_again() -> None:
    cells = np.full((240, 1100, 3), 255, np.uint8)
    for k, text in enumerate(("23", "7", "7", "23")):
        np.minimum(cells, picture(text, size=(1100, 240), at=30 + 280 * k, tall=66), out=cells)
    shown = clip(("23", 20), ("", 20), ("7", 25), ("", 20), ("7", 25))
    for frames, wanted in (([cells] * 15, ["23", "23", "7", "7"]), (shown, ["23", "7", "7"])):
        with Pipeline(open_source(frames), reader_of("").changed(engine=Table(""))) as views:
            news = [one.text for view in views for one in view.news]
        assert sorted(news) == wanted


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    for name in ("a.png", "b.png"):
        save_page(tmp_path / name, "307")
    (tmp_path / "labels.csv").write_text('file,text\na.png,"3,07"\nb.png,"3.07"\n')
    return tmp_path


def test_the_model_decides_how_commands_read(labelled: Path, tmp_path: Path, model: str) -> None:
    lines = tmp_path / "lines.safetensors"
    line_model().save(lines)
    picture = labelled / "a.png"
    for name, kind in ((lines, "lines"), (model, "digits")):
        asked = ("read", picture, "--format", "jsonl", "--device", "cpu", "--min-p", "0", "--model", name)
        done = run(*asked)
        (record,) = records(done.stdout)
        assert (done.exit_code, record["settings"], record["reader"]) == (0, {"min_p": 0.0}, kind)
        assert run(*asked, "--workers", "1").stdout == done.stdout
        done = run("eval", labelled, "--signs", "--json", "--device", "cpu", "--model", name)
        assert "exact_text" in json.loads(done.stdout)


def test_what_lines_and_digits_cannot_do_is_one_line(labelled: Path, tmp_path: Path) -> None:
    line_model().save(tmp_path / "lines.safetensors")
    (tmp_path / "valid.txt").write_text("AB\n")
    lines, valid = ("--model", tmp_path / "lines.safetensors"), ("--valid", tmp_path / "valid.txt")
    picture = labelled / "a.png"
    for told, *words in (
        ("leave one out", "read", picture, "--isolated", *lines),
        ("leave one out", "read", picture, "--isolated", *valid),
        ("'AB': expected 1 to 200", "read", picture, *lines, *valid),
        ("are for models of digits", "read", picture, *lines, "--precision", "fp16"),
        ("--batch is not for tiny-lines", "read", picture, *lines, "--batch", "5"),
        ("give a digit model", "eval", "sklearn", *lines),
        ("leave --signs out", "eval", "sklearn", "--signs"),
        ("leave --signs out", "eval", "--report", tmp_path / "report", "--signs"),
    ):
        refused(told, *words)


def test_a_mark_beside_a_number_is_perhaps_a_part_of_it() -> None:
    beside = (60, 95, 30, 60), (210, 110, 20, 40), (120, 90, 20, 60)
    away = (260, 100, 30, 50), (210, 130, 10, 10), (210, 145, 30, 60)
    for box in (*beside, *away):
        marks = Finding(np.float32([box]), np.float32([0.8]), np.array([7]), np.zeros((1, 10), np.float32))
        assert numbers._beside((100, 100, 100, 50), marks) == pytest.approx(0.8 if box in beside else 0), box
    assert numbers._beside((100, 100, 100, 50), marks[:0]) == 0
