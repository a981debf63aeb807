"""Forms: what form.json may say, how pages are laid, what fields and rules make of it, the table."""

import io
import json
import math
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

import neocog
from neocog.errors import InputError, UsageError
from neocog.network import ctc
from neocog.reading import sheets
from neocog.reading.formats import Format
from neocog.reading.forms import Field, Form, Rule, amount, joint, load_form, parse_form
from neocog.reading.numbers import TextLine
from neocog.reading.reader import SURE, Reader
from neocog.reading.records import REJECTED, CellReading, DigitReading, NumberReading, SheetReading
from neocog.reading.sheets import _Once, _said, _taught, _texts, _Written, read_sheets, weigh
from tests.support import glyph, records, refused, run, table_of
from tests.support import sheet as printed_sheet

Grey = NDArray[np.uint8]
WIDE, HIGH = 900, 640
BOXES = {
    "a": (60, 150, 300, 62), "b": (480, 150, 300, 62),
    "total": (60, 300, 300, 62), "note": (480, 300, 300, 62),
}  # fmt: skip
WORDS = (
    "Invoice of the harbour office\nQuantity and weight of what came ashore",
    "Meter readings by street and month\nKeep one copy for yourself, please",
    "Zebra crossing census, southern district\nVehicles, bicycles, queues",
)


def blank(kind: int = 0) -> Grey:
    image = Image.new("L", (WIDE, HIGH), 250)
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(24)
    below = WORDS[kind][::-1].replace("\n", " ") + f"\nForm {kind} / page {kind}"
    pen.text((40, 25 + 10 * kind), WORDS[kind], 20, font)
    pen.text((40, 480 - 20 * kind), below, 20, font)
    for k, (name, (x, y, w, h)) in enumerate(BOXES.items()):
        pen.text((x, y - 34), f"{WORDS[kind].split()[k + 1]} {name}:", 20, font)
        pen.rectangle((x, y, x + w, y + h), None, 20, 3)
    return np.asarray(image)


def write(
    sheet: Grey, name: str, text: str, *, high: int = 46, right: int = 20, down: int = 8, step: int = 44
) -> Grey:
    x, y, _, _ = BOXES[name]
    for k, char in enumerate(text):
        ink = glyph(int(char), high, 4.0 if high > 20 else 2.0)
        place = sheet[y + down : y + down + high, x + right + step * k :][:, : ink.shape[1]]
        np.minimum(place, (235 - 200 * ink).astype(np.uint8), out=place)
    return sheet


def stroke(sheet: Grey, name: str, *points: tuple[float, float], pen: int = 4) -> None:
    path = np.round(np.array(points) + BOXES[name][:2]).astype(np.int32)
    cv2.polylines(sheet, [path], False, 30, pen, cv2.LINE_AA)


def filled(kind: int = 0, **texts: str) -> Grey:
    sheet = blank(kind).copy()
    for name, text in texts.items():
        write(sheet, name, text)
    return sheet


def layouts(*kinds: int, pages: bool = False, blank: Any = "blank{}.png", **more: Any) -> dict[str, Any]:
    """form.json of layouts, or of one with so many pages; ``more``: of fields, by name."""
    said = []
    for kind in kinds:
        fields = list[dict[str, Any]]()
        for name, (x, y, w, h) in BOXES.items():
            own = {"name": f"{name}{kind}" * pages or name, "box": [x / WIDE, y / HIGH, w / WIDE, h / HIGH]}
            fields.append(own | more.get(name, {}))
        said.append({"fields": fields} | ({"blank": blank.format(kind)} if blank else {}))
    if pages:
        return {"form": 1, "layouts": [{"name": "both", "pages": said}]}
    each = [{"name": f"kind {k}", "pages": [page]} for k, page in zip(kinds, said, strict=True)]
    return {"form": 1, "layouts": each}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("forms")
    for kind in range(3):
        Image.fromarray(blank(kind)).save(place / f"blank{kind}.png")
    return place


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(device="cpu")


def form_of(folder: Path | None, said: dict[str, Any]) -> Form:
    return parse_form(json.dumps(said).encode(), folder)


def read(reader: Reader, form: Form, picture: Any) -> SheetReading:
    (found,) = read_sheets(reader, form, picture)
    return found


def saved(path: Path, *pages: Grey) -> Path:
    first, *more = map(Image.fromarray, pages)
    first.save(path, **({"save_all": True, "append_images": more} if more else {}))
    return path


def texts(sheet: SheetReading) -> dict[str, str]:
    return {name: cell.text.replace(" ", "") for name, cell in sheet.fields.items()}


def told(sheet: SheetReading) -> dict[str, tuple[str, str]]:
    return {name: (cell.text, cell.why) for name, cell in sheet.fields.items()}


def photographed(sheet: Grey) -> Grey:
    """Turned, in perspective, on a dark desk, in uneven light."""
    corners = np.array([[0, 0], [WIDE, 0], [WIDE, HIGH], [0, HIGH]], np.float32)
    to = np.array([[1290, 130], [1360, 1420], [330, 1350], [380, 60]], np.float32)
    page = cv2.warpPerspective(sheet, cv2.getPerspectiveTransform(corners, to), (1500, 1500), borderValue=60)
    return (page * np.linspace(1, 0.6, 1500)[:, None]).astype(np.uint8)


HOW: dict[str, Callable[[Grey], Grey]] = {
    "as it is": lambda sheet: sheet, "turned": lambda sheet: np.rot90(sheet, 2).copy(),
    "photographed": photographed, "in the dark": lambda sheet: (photographed(sheet) * 0.25).astype(np.uint8),
    "larger": lambda sheet: cv2.resize(sheet, None, fx=2.5, fy=2.5, interpolation=cv2.INTER_CUBIC),
}  # fmt: skip


@pytest.mark.parametrize("how", HOW)
def test_a_page_is_laid_onto_its_blank_and_its_fields_are_read(reader, folder, how):
    form = form_of(folder, layouts(1, 0, total={"rule": "sum of a, b"}))
    found = read(reader, form, HOW[how](filled(0, a="479", b="5263", total="5742")))
    assert (found.error, found.layout, found.pages) == (None, "kind 0", (0,))
    assert found.fit[0] > 0.9
    assert found.residual[0] < 3
    assert texts(found) == {"a": "479", "b": "5263", "total": "5742", "note": ""}
    assert found.fields["total"].why == "sum of a, b holds"
    assert found.fields["note"] == CellReading("", None, "", "", found.fields["note"].corners, 0)
    if how == "as it is":
        assert found.fields["a"].corners == ((60, 150), (360, 150), (360, 212), (60, 212))


def test_pages_of_a_sheet_are_in_order_and_none_is_missing(folder: Path, tmp_path: Path) -> None:
    one, two, other = filled(0, a="71"), filled(1, b="238"), filled(2)
    saved(tmp_path / "a.tif", one, two, two, one)
    saved(tmp_path / "b.tif", two, one, two, other)
    (tmp_path / "c.tif").write_bytes((tmp_path / "a.tif").read_bytes()[:-4000])
    (folder / "both.json").write_text(json.dumps(layouts(0, 1, pages=True)))
    (folder / "other.json").write_text(json.dumps(layouts(0, 1)))
    words = (tmp_path, "-o", tmp_path / "t.jsonl", "--ordered", "--form")
    assert run("read", *words, folder / "both.json", "--workers", "2").exit_code == 1
    *told, cut = records(tmp_path / "t.jsonl")
    missing = ["", *(f"page {n} of 2 is missing; scan the whole sheet into one file" for n in (1, 2))]
    assert [(Path(r["source"]).name, r["page"], r["pages"], r["error"], r["fields"]["a0"]["text"],
             r["fields"]["b1"]["text"], r["warnings"]) for r in told[:5]] == [
        ("a.tif", 0, [0, 1], None, "71", "238", []), ("a.tif", 2, [None, 2], missing[1], "?", "238", []),
        ("a.tif", 3, [3, None], missing[2], "71", "?", []),
        ("b.tif", 0, [None, 0], missing[1], "?", "238", []), ("b.tif", 1, [1, 2], None, "71", "238", []),
    ]  # fmt: skip
    assert told[3]["fields"]["a0"]["why"] == "page 1 is missing"
    assert "page 4 does not fit" in told[5]["error"]
    assert (Path(cut["source"]).name, bool(cut["error"])) == ("c.tif", True)
    resumed = run("read", *words, folder / "both.json", "--workers", "0", "--resume")
    assert (resumed.exit_code, "already read" in resumed.stderr) == (1, True)
    refused("another --form", "read", *words, folder / "other.json", "--resume")


def test_what_is_no_number_and_what_leaves_the_page_is_in_doubt(reader: Reader, folder: Path) -> None:
    sheet = write(filled(0, b="5263", total="38"), "note", "74", high=70, down=-4)  # over its frame twice
    stroke(sheet, "a", *((20 + 4 * k, 31 + 20 * math.sin(k / 2.1) * math.cos(k / 5)) for k in range(60)))
    for k in range(4):  # crossed out
        stroke(sheet, "b", (10, 12 + 12 * k), (215, 20 + 9 * k))
    form = form_of(folder, layouts(0, total={"required": True}))
    found = told(read(reader, form, sheet))
    for name in "ab":
        assert ("?" in found[name][0], bool(found[name][1])) == (True, True)
    assert (found["total"][0], found["note"][0]) == ("38", "74")
    assert told(read(reader, form, filled(0)[:, : WIDE - 200])) == {
        "a": ("", ""), "b": ("?", "leaves the page"), "total": ("?", "empty, but required"),
        "note": ("?", "leaves the page"),
    }  # fmt: skip


@pytest.mark.parametrize("order", ["A1 B1 A2 B2", "A2 A1 B2 B1"])
def test_pages_of_different_sheets_are_not_joined(reader, folder, tmp_path, order):
    pages = [filled(int(page[1]) - 1, a={"A": "71", "B": "52"}[page[0]]) for page in order.split()]
    form = form_of(folder, layouts(0, 1, pages=True))
    found = list(read_sheets(reader, form, saved(tmp_path / "a.tif", *pages)))
    assert (found[1].pages, found[1].fields["a0"].text) == ((1, 2), "?")
    assert found[1].error.startswith("its pages may be of differe")
    assert all(sheet.error for sheet in found)


def test_of_a_page_that_fails_no_cell_is_told(reader, folder, tmp_path, monkeypatch):
    def read_field(*given):
        return 1 / 0 if given[3].field.name == "b1" else read_as_ever(*given)

    read_as_ever = sheets._read_field
    monkeypatch.setattr(sheets, "_read_field", read_field)
    both = saved(tmp_path / "a.tif", filled(0, a="71"), filled(1, a="52"))
    first, failed = read_sheets(reader, form_of(folder, layouts(0, 1, pages=True)), both)
    assert (first.pages, first.fields["a0"].text, failed.page) == ((0, None), "71", 1)
    assert "cannot be read: ZeroDivisionError" in failed.error
    assert first.fields["a1"] == CellReading(REJECTED, why="page 2 is missing")


PLAIN = Field("a", (0, 0, 1, 1), None, False, False)


@pytest.mark.parametrize(("text", "shown"), [("47", "4?"), ("74", "?")])
def test_digits_beside_a_doubt_are_those_that_are_read(text: str, shown: str) -> None:
    box = (0, 0, 9, 9)
    chars = DigitReading("4", 0.9, 0, box), DigitReading("?", 0.5, 0, box, "two answers")
    number = ctc.Number(text, 0.6, 0.0, 0.0, (), {text: math.log(0.6)})
    line = TextLine((NumberReading("4?", 0.6, box, chars),), None, np.zeros((1, 1), np.float32), number)
    one = _Written(PLAIN, [line], (None, None), np.zeros((9, 9), np.uint8), 30.0, "", (), 0)
    cell = _said(one, 0.8)
    assert (cell.text, cell.read) == (shown, text)


def test_numbers_that_go_on_beyond_their_box_and_crossed_out_ones(reader: Reader, folder: Path) -> None:
    form = form_of(folder, layouts(0, note={"valid": ["1234", "5678"]}))
    sheet = write(filled(0, a="47952631", b="5803", total="4809"), "note", "12349", right=170)  # 9 is beyond
    stroke(sheet, "b", (54, 60), (104, 3), pen=3)  # through its 8
    assert told(read(reader, form, sheet)) == {
        "a": ("?", "goes on beyond its box"), "b": ("?", "crossed out"), "total": ("4809", ""),
        "note": ("?", "goes on beyond its box"),
    }  # fmt: skip


def test_another_edition_of_a_sheet_is_not_read_as_this_one(reader, folder, monkeypatch):
    def labelled(sheet: Grey, words: str, *names: str) -> Grey:
        image = Image.fromarray(sheet)
        for x, y, _, _ in map(BOXES.get, names):
            ImageDraw.Draw(image).rectangle((x - 10, y - 38, x + 340, y - 4), 250)
            ImageDraw.Draw(image).text((x, y - 34), words, 20, ImageFont.load_default(24))
        return np.asarray(image)

    form, sheet = form_of(folder, layouts(0)), filled(0, a="479", b="5263", total="5742")
    found = read(reader, form, labelled(sheet, "Discount granted:", "total"))
    assert (found.error, texts(found)["a"], texts(found)["b"]) == (None, "479", "5263")
    assert told(found)["total"] == ("?", "the print beside it differs")
    moved = sheet.copy()
    moved[262:370], moved[332:440] = 250, sheet[262:370]  # the lower row 70 pixels lower
    other = labelled(sheet, "Colour of boats:", *BOXES)
    for page, why in ((moved, "print around 2 of 4 fields differs"),
                      (other, "words around its fields are others"),
                      (sheet[:250], "% of kind 0's print, the rest is cut off")):  # fmt: skip
        with monkeypatch.context() as patched:
            patched.setattr(sheets, "_OTHER", 9 if page is other else 0.25)  # whatever each of them says
            assert why in str(read(reader, form, page).error)


@pytest.mark.parametrize("digits", ["", "47"])
def test_where_an_input_or_a_filled_sheet_is_the_blank_only_frames_are_print(reader, tmp_path, digits):
    sheet = filled(0, a=digits)
    for begin, end in ((12, 50), (50, 12)):
        stroke(sheet, "total", (20, begin), (200, end))
    first = saved(tmp_path / "blank0.png", sheet)
    form = form_of(tmp_path, layouts(0, blank="blank{}.png" if digits else None))
    found = told(read(reader, form if digits else form.onto(first.read_bytes()), first))
    assert (found["total"], found["a"], found["b"]) == (
        ("?", "ink that is no number"),
        (digits, ""),
        ("", ""),
    )


def test_digits_printed_above_a_field_are_no_writing_in_it(reader: Reader, tmp_path: Path) -> None:
    above = {"high": 16, "right": 200, "down": -18, "step": 16}
    saved(tmp_path / "blank0.png", write(filled(0), "a", "808", **above))
    found = read(reader, form_of(tmp_path, layouts(0)), write(filled(0, a="479"), "a", "808", **above))
    assert (found.warnings, texts(found)["a"]) == ((), "479")


def test_a_cell_is_printed_from_another_probability_on_unless_one_is_asked_for(reader: Reader) -> None:
    assert reader.for_sheets().settings["min_p"] == SURE > reader.settings["min_p"]
    for asked in (0.1, reader.settings["min_p"]):
        assert Reader(device="cpu", min_p=asked).for_sheets().settings["min_p"] == asked


@pytest.mark.parametrize("known", ["4", "7"])
def test_a_doubtful_digit_is_what_digits_like_it_are_in_sure_cells(known: str) -> None:
    def written(shape: int, *likely: str) -> _Written:
        ink, logp = np.zeros((48, 48), np.float32), np.full((18, ctc.BLANK + 1), -12.0, np.float32)
        drawn = glyph(shape, 36, 4.0)
        ink[6:42, 24 - drawn.shape[1] // 2 :][:, : drawn.shape[1]] = drawn
        logp[:, ctc.BLANK] = 0
        logp[12, ctc.BLANK] = -12
        logp[12, [*map(int, likely)]] = -math.log(len(likely))
        once = _Once(ctc.number(logp), logp, [(ink, t) for t in range(18)])
        line = TextLine((NumberReading(once.number.text, 1.0, (0, 0, 9, 9), ()),), None, logp, once.number)
        return _Written(PLAIN, [line], (once, once), np.zeros((9, 9), np.uint8), 30.0, "", (), 0)

    other, beats = "47".replace(known, ""), list[int]()
    cells = {name: CellReading(text, 0.99, read=text) for name, text in (("a", known), ("b", other))}
    cells["c"] = CellReading(REJECTED, 0.5, read="4")
    fields = {"a": written(7, known), "b": written(4, other), "c": written(7, "4", "7")}
    taught = _taught(cells, fields, 0.7, lambda: None)
    assert [taught[name].text for name in "abc"] == [known, other, known]
    assert (taught["c"].p or 0) > 0.9
    alone = _taught(cells, {"c": fields["c"]}, 0.7, lambda: beats.append(1))["c"]
    assert alone.p == pytest.approx(0.5, abs=0.01)
    assert len(beats) == 2  # a worker that is silent for long is ended


@pytest.mark.parametrize("down", [-16, 20])
def test_digits_across_their_frame_are_read(reader: Reader, folder: Path, down: int) -> None:
    sheet, said = filled(0), {"a": "479", "b": "5263", "total": "1098", "note": "2657"}
    for name, text in said.items():
        write(sheet, name, text, down=down)
    assert texts(read(reader.for_sheets(), form_of(folder, layouts(0)), sheet)) == said


def test_lists_patterns_and_rules(reader: Reader, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "list.txt").write_text("479\n123\n")
    b, total = {"pattern": "####", "rule": "luhn"}, {"rule": ["same as a"]}
    form = form_of(folder, layouts(0, a={"valid": "list.txt"}, b=b, total=total))
    found = told(read(reader, form, filled(0, a="479", b="5264", total="479", note="6")))
    assert found == {"a": ("479", "is in the list; same as a holds"), "b": ("5264", "luhn holds"),
                     "total": ("479", "same as a holds"), "note": ("6", "")}  # fmt: skip
    monkeypatch.setattr(sheets, "FAR", math.inf)  # any number of the list would do when it is read again
    found = told(read(reader, form, filled(0, a="682", b="5263", total="479")))
    assert (found["a"], found["total"][0]) == (("?", "682 is not in the list"), "479")
    assert found["b"] == ("?", "5263: luhn does not hold")


def rules_of(names: Iterable[str], own: str, rule: str | list[str]) -> tuple[Rule, ...]:
    """The rules of a form with such fields, of which one has them."""
    fields = [FIELD | {"name": name} | ({"rule": rule} if name == own else {}) for name in names]
    return form_of(None, form_with({"fields": fields})).layouts[0].rules


@pytest.mark.parametrize(
    ("rule", "right", "wrong"),
    [
        ("luhn", ["79927398713"], ["79927398710"]), ("isbn", ["978-3-16-148410-0"], ["978-3-16-148411-0"]),
        ("isbn", ["0-8044-2957-x"], ["0-8044-2957-1"]),
        ("iban DE", ["89 3704 0044 0532 0130 00"], ["89 3704 0044 0532 0130 01"]),
        ("mod 97", ["9992"], ["9991"]), ("weights 8 7 6 5 4 3 2 1 mod 11", ["12345679"], ["12345678"]),
        ("sum of x, y", ["1.250,50", "49,5", "1300"], ["1.250,50", "49,5", "1301"]),
        ("same as x", ["7.5", "7,50"], ["7", "8"]), ("increases by one", ["0099", "100"], ["99", "101"]),
    ],
)  # fmt: skip
def test_a_rule_holds_or_not(rule: str, right: list[str], wrong: list[str]) -> None:
    names = [*"xy"[: len(right) - 1], "own"]
    (own,) = rules_of(names, "own", rule)
    assert own.names == tuple(names)
    assert (own.holds(*right), own.holds(*wrong)) == (True, False)
    for read, text, why in ((right, right, f"{rule} holds"), (wrong, ["?"] * len(wrong), "")):
        cells = {n: CellReading(t, 0.9, "", t, texts={t: 0.9}) for n, t in zip(own.names, read, strict=True)}
        found = weigh(cells, [own], 0.5).values()
        assert [cell.text for cell in found] == text
        assert not why or all(cell.p > 0.96 and cell.why == why for cell in found)


SUM = "sum of a, b"
BREAKS, HOLDS = f"{SUM} does not hold", f"{SUM} holds"
WEIGHED: dict[str, tuple[str | list[str], str, dict[str, tuple[str, float | None, str]]]] = {
    # rules of t, c; likely texts of each; what comes of them. No text: empty; "ink": it could not be read
    "a sure reading is not changed": (SUM, "a 4220 .97 4230 .02; b 10 .99; t 4240 .99", {
        "a": ("?", 0.005, f"4220: {BREAKS} for t"), "b": ("?", 0.985, f"10: {BREAKS} for t"),
        "t": ("?", 0.985, f"4240: {BREAKS}")}),
    "one in doubt is": (SUM, "a 4220 .6 4230 .3; b 10 .99; t 4240 .99", {
        "a": ("4230", 0.996, f"{HOLDS}, with 4220 it would not"), "t": ("4240", 0.996, HOLDS)}),
    "zeros are no less": ("same as a", "a 0017 .5 017 .48; t 0017 .5 017 .48", {
        "a": ("0017", 0.508, "same as a holds"), "t": ("0017", 0.508, "same as a holds")}),
    "nor are marks": ("same as a", "a 1.250 .5 1250 .48; t 1.250 .5 1250 .48", {
        "a": ("1.250", 0.508, "same as a holds"), "t": ("1.250", 0.508, "same as a holds")}),
    "less likely marks are": ("same as a", "a 1250 .5 1.250 .48; t 1250 .5 1.250 .48", {
        "a": ("1250", 0.993, "same as a holds"), "t": ("1250", 0.993, "same as a holds")}),
    "dates are the same": ("same as a", "a 12/03 .9; t 12/03 .9", {
        "a": ("12/03", 0.967, "same as a holds"), "t": ("12/03", 0.967, "same as a holds")}),
    "but not by one in doubt": ("same as a", "a 17 .5 11 .3; t 11 .5 17 .3", {
        "a": ("?", 0.496, "17: same as a speaks against it"),
        "t": ("?", 0.496, "11: same as a speaks against it")}),
    "who breaks a rule confirms nothing": ([SUM, "same as c"], "a 10 .6; b 11 .6; t 21 .6; c 99 .99", {
        "a": ("10", 0.6, ""), "b": ("11", 0.6, ""), "t": ("?", 0.015, "21: same as c does not hold"),
        "c": ("?", 0.015, "99: same as c does not hold for t")}),
    "in any order": (["same as c", SUM], "a 10 .99; b 11 .99; t 21 .6 99 .3; c 99 .99", {
        "a": ("?", 0.557, f"10: {BREAKS} for t"), "t": ("?", 0.372, f"21: {BREAKS}"), "c": ("99", 0.99, "")}),
    "one of two is empty": ("same as a", "a 10 .9; t", {
        "a": ("?", 0.083, "10: same as a does not hold for t"),
        "t": ("?", None, "empty: same as a does not hold")}),
    "and the other no number": ("same as a", "a ink; t", {
        "a": ("?", None, "ink"), "t": ("?", None, "empty: same as a does not hold")}),
    "one is no number": (SUM, "a 10 .9; b ink; t 10 .9", {
        "a": ("10", 0.9, ""), "b": ("?", None, "ink"), "t": ("10", 0.9, f"{SUM} not checked")}),
    "no total": (SUM, "a 10 .9; b; t", {"a": ("10", 0.9, ""), "t": ("", None, f"{SUM} not checked")}),
    "no addend": (SUM, "a 10 .9; b; t 10 .9", {"b": ("", None, ""), "t": ("10", 0.998, HOLDS)}),
    "nothing": (SUM, "a; b; t", {"t": ("", None, "")}),
    "1.250 and 1,25 are both likely": (SUM, "a 1.250 .95 1250 .04; b 49 .99; t 1299 .99", {
        "a": ("1.250", 0.95, ""), "t": ("1299", 0.99, f"{SUM} not checked")}),
    "a doubtful point": (SUM, "a 21.107 .72 21107 .25; b 49 .99; t 21156 .99", {
        "a": ("?", 0.72, "21.107, or 21107"), "t": ("21156", 0.99, f"{SUM} not checked")}),
    "a space": (SUM, "a 5_441 .72; b 49 .99; t 5490 .99", {"a": ("5441", 0.996, HOLDS)}),
    "a check digit": ("luhn", "t 79927398713 .6", {"t": ("79927398713", 0.937, "luhn holds")}),
}  # fmt: skip


@pytest.mark.parametrize("what", WEIGHED)
def test_rules_and_what_was_read(what: str) -> None:
    rule, said, wanted = WEIGHED[what]
    cells = dict[str, CellReading]()
    for words in said.split("; "):
        name, *likely = words.split()
        pairs = zip(likely[::2], likely[1::2], strict=False)
        probable = {text.replace("_", " "): float(p) for text, p in pairs}
        read, p = max(probable.items(), key=lambda one: one[1], default=("", None))
        ink = "ink" * (likely == ["ink"])
        cells[name] = CellReading("?" if ink else read, p, ink, read, texts=probable)
    rules = rules_of(cells, "t", rule)
    out = weigh(cells, rules, 0.5)
    found = {name: (cell.text, cell.p and round(cell.p, 3), cell.why) for name, cell in out.items()}
    assert {name: found[name] for name in wanted} == wanted
    for one in rules:
        if all(texts := [cells[name].texts for name in one.names]):
            assert all(sum(own.values()) <= 1 + 1e-9 for own in joint(one, texts, 0.01)[1])


def test_no_space_stands_around_a_text() -> None:
    names = dict[str, str]()
    texts = {" 14,50": math.log(0.5), "14.50": math.log(0.2), "1 450 ": math.log(0.1)}
    found = _texts(ctc.Number(" 14,50", 0.5, 0.0, 0.0, (), texts), names, False)
    assert names == {"14.50": "14,50", "1450": "1 450"}
    assert found == pytest.approx({"14.50": 0.7, "1450": 0.1})


AMOUNTS = {
    "1 250.50": 1250.5, "(3,50)": -3.5, "1.000.000": 1e6, "12.-": 12, "3-": -3, "-3": -3, "0.500": 0.5,
    "0,125": 0.125, "1,250": 1250, "12345.678": 12345.678, "1.250,500": 1250.5, ".5": 0.5, "": 0,
    "1.25.3": None, "1,2,3": None, "-": None, "0.125.000": None,
}  # fmt: skip


@pytest.mark.parametrize("text", AMOUNTS)
def test_amounts_are_read_as_people_write_them(text: str) -> None:
    if (value := AMOUNTS[text]) is None:
        with pytest.raises(InputError, match="is no number"):
            amount(text)
    else:
        assert float(amount(text)) == value


def form_with(*pages: dict[str, Any]) -> dict[str, Any]:
    """form.json with a layout for each page."""
    return {"form": 1, "layouts": [{"name": f"x{k}", "pages": [page]} for k, page in enumerate(pages)]}


FIELD = {"name": "a", "box": [0.1, 0.1, 0.2, 0.1]}
BROKEN: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", "is no JSON"),
    "no object": ([], "got [], expected an object with form and layouts"),
    "version": ({"form": 2, "layouts": []}, "form: got 2, expected 1"),
    "no layout": ({"form": 1, "layouts": []}, "layouts: got [], expected a list of 1 to 64"),
    "unknown key": (form_with({"fields": [], "size": 3}), "layouts[0].pages[0]: 'size' is unknown"),
    "box": ({"box": [0.9, 0.1, 0.2, 0.1]}, "pages[0].fields[1]: box [0.9, 0.1, 0.2, 0.1] leaves"),
    "box of words": ({"box": [0, 0, 1, "x"]}, "fields[1].box[3]: got \"x\", expected a share"),
    "true": ({"required": 1}, "fields[1].required: got 1, expected true or false"),
    "name": ({"name": "a.p"}, "fields[1].name: got \"a.p\", expected 1 to 64"),
    "name twice": (FIELD, "name 'a' is taken"),
    "column": ({"name": "source"}, "name 'source' is taken"),
    "pattern": ({"pattern": "12"}, "a pattern cannot hold digits"),
    "list": ({"valid": []}, "valid numbers: the list is empty"),
    "no list": ({"valid": "none.txt"}, "none.txt: cannot be opened"),
    "no name of a list": ({"valid": "a\0"}, "cannot be opened (embedded null byte)"),
    "a list's surrogate": ({"valid": "\ud800"}, "cannot be opened ('utf-8' codec"),
    "rule": ({"rule": "is prime"}, "rule of b: 'is prime' is unknown, expected"),
    "sum": ({"rule": "sum of a, c"}, "rule of b: there is no field c; name one"),
    "itself": ({"rule": "same as b"}, "rule of b: b is the field itself"),
    "two": ({"rule": "sum of a, a"}, "rule of b: a is the field itself, or named"),
    "weights": ({"rule": "weights 5 5 mod 10"}, "'weights 5 5 mod 10': 5 divides all"),
    "zero": ({"rule": "weights 1 mod 1"}, "'weights 1 mod 1' is unknown"),
    "rule twice": ({"rule": ["luhn", "isbn"]}, "rule of b: 'isbn' and 'luhn' tell"),
    "turned": ({"rule": ["same as a", "sum of a"]}, "'sum of a' and 'same as a' tell"),
    "line end": ({"name": "a\n"}, r'name: got "a\n", expected 1 to 64'),
    "surrogate": ({"name": "\ud800"}, r'name: got "\ud800", expected 1 to 64'),
    "direction": ({"name": "\u202eab"}, r'name: got "\u202eab", expected 1 to 64'),
    "C1": ({"name": "a\x85"}, r'name: got "a\u0085", expected 1 to 64'),
    "long": (form_with({"blank": "n" * 9999, "fields": [FIELD]}), "nnn ... nnn"),
    "blank": (form_with({"blank": "no.png", "fields": [FIELD]}), "pages[0].blank: no.png: no such file"),
    "base64": (form_with({"blank": "data:,x!", "fields": [FIELD]}), "blank: is no base64"),
    "pages": (form_with(*[{"fields": []}] * 65), "layouts: got ["),
    "many": ({"form": 1, "layouts": [{"name": n, "pages": [{"fields": []}] * 32} for n in "abc"]}, "got 96"),
    "blanks": (form_with(*[{"fields": [FIELD]}] * 2), "each page needs its own"),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_an_invalid_form_is_told_with_its_place(tmp_path: Path, what: str) -> None:
    said, told = BROKEN[what]
    if isinstance(said, dict) and "form" not in said:  # what the second of two fields has
        said = form_with({"fields": [FIELD, FIELD | {"name": "b"} | said]})
    path = tmp_path / "form.json"
    path.write_text(said if isinstance(said, str) else json.dumps(said))
    said = refused(told, "read", tmp_path, "--form", path)
    assert f"{path}: " in said
    assert len(said) < 1000


def test_forms_have_their_own_formats_and_need_a_blank_or_a_first_page(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "form.json").write_text(json.dumps(layouts(0, blank=None)))
    first, *more = (saved(tmp_path / f"{k}.png", page) for k, page in enumerate(
        (filled(0, a="71"), filled(0, a="52", b="6"), np.full((500, 700), 240, np.uint8))))  # fmt: skip
    words = ("read", first, *more, "--form", tmp_path / "form.json", "--ordered", "-o")
    done = run(*words, tmp_path / "t.csv")
    assert done.exit_code == 1
    assert done.stderr.count("digits stand in fields of the blank of kind 0; name an empty sheet") == 1
    rows, told = table_of(tmp_path / "t.csv"), "blank-is-written"
    assert list(rows[0])[4:11] == ["residual", "warnings", "error", "doubts", "a", "a.p", "a.why"]
    assert [(row["source"], row["layout"], row["a"], row["b"], row["warnings"]) for row in rows] == [
        (str(first), "kind 0", "71", "", told), (str(more[0]), "kind 0", "52", "6", told),
        (str(more[1]), "", "", "", ""),
    ]  # fmt: skip
    assert (float(rows[0]["a.p"]) > 0.5, rows[0]["b.p"]) == (True, "")
    assert "page 1 does not fit the form" in rows[2]["error"]
    assert not any(rows[2][f"{name}{part}"] for name in BOXES for part in (".p", ".why"))
    as_tsv = run(*words, tmp_path / "t.tsv", "-q")
    assert (as_tsv.exit_code, as_tsv.stderr.count("\n")) == (1, 1)
    assert table_of(tmp_path / "t.tsv", "\t") == rows
    words = ("read", first, "--form", tmp_path / "form.json")
    for more, told in ((["--format", "hocr"], "use csv, tsv, jsonl or json"),
                       (["-o", tmp_path / "t.xlsx"], "neocog writes .csv, which a spreadsheet opens"),
                       (["--report", tmp_path / "r.html"], "neocog serve has a page of forms"),
                       (["--pattern", "##"], "--pattern has no place"),
                       (["--isolated"], "--isolated has no place")):  # fmt: skip
        refused(told, *words, *more)
    empty = layouts(0, blank=str(saved(tmp_path / "empty.png", np.full((300, 300), 255, np.uint8))))
    (tmp_path / "form.json").write_text(json.dumps(empty))
    refused("too little print", *words)
    with pytest.raises(UsageError, match=r"form.json: no such file"):
        load_form(tmp_path / "none" / "form.json")
    with pytest.raises(UsageError, match="files are not looked for"):  # of a stranger
        form_of(None, empty)


def test_rows_as_a_data_frame(folder, tmp_path, monkeypatch):
    pytest.importorskip("pandas")
    form, reader = form_of(folder, layouts(0, blank=None)), neocog.Reader(device="cpu")
    pictures = [saved(tmp_path / "1.png", filled(0, a="71")), saved(tmp_path / "2.png", filled(2, b="6")),
                tmp_path / "lost.png"]  # fmt: skip
    frame = reader.read_form(pictures, form)
    assert list(frame) == list(Format("csv", fields=form.names).columns)
    assert frame.source.tolist() == [*map(str, pictures)]
    assert (frame.layout.tolist(), frame.a.tolist()) == (["kind 0", "", ""], ["71", "", ""])
    assert frame["a.p"][0] > 0.5
    assert frame[["a.p", "fit"]].isna().all(axis=1).tolist() == [False, True, True]
    assert ["does not fit" in frame.error[1], "no such file" in frame.error[2]] == [True, True]
    assert reader.read_form([], form).empty
    with pytest.raises(UsageError, match="as the first page of the form, cannot be opened"):
        reader.read_form(pictures[2:], form)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match="pip install pandas"):
        reader.read_form(pictures, form)


@pytest.mark.parametrize(
    ("written", "scribble", "text", "why"),
    [("", [], "", ""), ("123", [], "123", "is in the list"),
     ("123", [(290, 390), (345, 460), (345, 390), (290, 460), (350, 420)], "?",
      "ink beside it, as high as a digit")],
)  # fmt: skip
def test_print_across_a_frame_is_no_ink_and_a_scribble_beside_a_number_is(
    reader, tmp_path, written, scribble, text, why
):
    (tmp_path / "blank.png").write_bytes(printed_sheet(""))
    field = {"name": "a", "box": [0.2, 0.45, 0.44, 0.15], "valid": ["123", "457"]}
    form = form_of(tmp_path, form_with({"blank": "blank.png", "fields": [field]}))
    page = Image.open(io.BytesIO(printed_sheet(written)))
    ImageDraw.Draw(page).line(scribble, 40, 6)
    assert told(read(reader, form, page)) == {"a": (text, why)}
