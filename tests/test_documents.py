"""Records and documents: JSON, CSV, words, columns, hOCR, ALTO, PAGE, COCO, PDF, HEIC, AVIF, addresses."""

import io
import json
import re
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from PIL import Image, features

from neocog.batch.output import open_sink
from neocog.errors import InputError, UsageError
from neocog.reading import addresses
from neocog.reading.formats import Format, cells, kind_of
from neocog.reading.reader import Reader
from neocog.reading.records import DigitReading, LineReading, NumberReading
from neocog.reading.results import PageReading
from neocog.vision import decode as vision_decode
from neocog.vision import documents
from neocog.vision.decode import Page, decode, is_light
from neocog.vision.page import around, turned_back
from tests.live_support import RawServer
from tests.support import file_of, page, page_file, refused, run, table_of, write_records

SIZE = (400, 300)
Word = tuple[int, int, str]


def read(*rows: list[Word], turn: int = 0) -> PageReading:
    """A page of words, from the left and the top on: characters 10 wide and 20 high, 12 apart."""
    size = SIZE if turn in (0, 180) else SIZE[::-1]
    digits, lines = list[DigitReading](), []
    for row in rows:
        words = []
        for left, top, text in row:
            boxes = [turned_back((left + 12 * k, top, 10, 20), turn, *size) for k in range(len(text))]
            chars = tuple(DigitReading(char, 0.9, 0.5, box) for char, box in zip(text, boxes, strict=True))
            first, box = len(digits), around(boxes)
            digits += [char for char in chars if char.char.isdigit()]
            own = {"digits": (first, len(digits) - 1), "shown": text}
            words.append(NumberReading(text, 0.9 ** len(text), box, chars, **own))
        box = around([word.box for word in words])
        lines.append(LineReading(" ".join(text for *_, text in row), box, tuple(words)))
    text, lines = "\n".join(line.text for line in lines), tuple(lines)
    return PageReading("a.png", 0, text, tuple(digits), "m", turn=turn, finder="f", size=size, lines=lines)


TABLE = (
    [(20, 10, "123"), (140, 10, "45"), (300, 10, "6")],
    [(20, 60, "7"), (302, 60, "89")],
    [(22, 110, "11"), (134, 110, "222"), (290, 110, "3333")],
)
COLUMNS = [["123", "45", "6"], ["7", "", "89"], ["11", "222", "3333"]]
ODD = 'a"<\x1b>.png'
MODEL = "neocog@1a2b3c4d"
DIGITS = (DigitReading("0", 0.99, 0.61, (1, 2, 3, 4)), DigitReading("7", 0.98765, 0.5, (5, 2, 3, 4)),
          DigitReading("?", 0.31, 0.01, (9, 2, 3, 4), "two answers"))  # fmt: skip
READ = PageReading("a/b.jpg", 0, "07\n?", DIGITS, MODEL, ms={"decode": 1.23456, "find": 2.0})
FAILED = PageReading("b.jpg", model=MODEL, error="the file is empty")


def test_records_are_as_documented() -> None:
    reading = read(*TABLE)
    assert (reading.text, reading.plain) == ("123 45 6\n7 89\n11 222 3333", "123456\n789\n112223333")
    record = reading.to_dict()
    line = record["lines"][1]
    assert (record["size"], line["text"], line["box"]) == ([400, 300], "7 89", [20, 60, 304, 20])
    assert line["words"][1] == {"text": "89", "box": [302, 60, 22, 20], "digits": [7, 8]}
    record, failed = json.loads(READ.to_json()), json.loads(FAILED.to_json())
    assert READ.to_json().startswith('{"schema":1,"source":"a/b.jpg","page":0,"text":"07\\n?","digits":[{')
    assert list(record) == ["schema", "source", "page", "text", "digits", "model", "error"]
    assert record["digits"][2] == {
        "char": "?", "p": 0.31, "margin": 0.01, "box": [9, 2, 3, 4], "reason": "two answers"
    }  # fmt: skip
    assert (failed["error"], failed["digits"]) == ("the file is empty", [])
    assert READ.to_dict(timings=True)["ms"] == {"decode": 1.235, "find": 2.0}
    for name in ("naïve ½.png", "a\nb.png", 'quo"te.png', "bad\udcff.png"):
        written = PageReading(name).to_json()
        assert ("\n" in written, json.loads(written.encode())["source"]) == (False, name)


@pytest.mark.parametrize("turn", [0, 90, 180, 270])
def test_columns_are_tabs_and_empty_cells_stay_also_on_a_page_on_its_side(tmp_path, turn):
    assert cells(read(*TABLE, turn=turn)) == COLUMNS
    signs = ([(20, 40 * row, "12,--30")] for row in range(6))  # below one another they are no corridor
    assert cells(read(*signs, turn=turn)) == [["12,--30"]] * 6
    plain, reading = Format("tsv", names=False), read(*TABLE)
    out = write_records(tmp_path / "a.tsv", plain, reading, PageReading("b.png", error="broken"))
    assert out.read_text() == "".join("\t".join(row) + "\n" for row in COLUMNS)
    assert Format("tsv").render(reading).startswith("a.png\t0\t123\t45\t6\n")
    assert plain.render(PageReading("a", 0, "7\n1")) == "7\n1\n"


def test_hocr_and_alto_are_well_formed(tmp_path: Path) -> None:
    hocr, reading = Format("hocr"), read(*TABLE, [(20, 160, "-5?")])
    out = write_records(tmp_path / "a.hocr", hocr, reading, PageReading(ODD, 1, error="broken"))
    words = [e for e in ET.parse(out).getroot().iter() if e.get("class") == "ocrx_word"]
    assert ["".join(word.itertext()) for word in words] == [*"123 45 6 7 89 11 222 3333 -5?".split()]
    assert words[0].get("title") == "bbox 20 10 54 30; x_wconf 73"
    assert [e.get("class") for e in words[-1]] == ["ocrx_cinfo"] * 3
    assert "ocrx_cinfo" in hocr.head
    ET.parse(write_records(tmp_path / "none.hocr", hocr))
    out = write_records(tmp_path / "a.xml", Format("alto", names=False, source=ODD), reading)
    root, space = ET.parse(out).getroot(), "{http://www.loc.gov/standards/alto/ns-v4#}"
    assert root.findtext(f".//{space}fileName") == 'a"<\\x1b>.png'
    strings = [e.attrib for e in root.iter(f"{space}String")]
    assert [one["CONTENT"] for one in strings[:3]] == ["123", "45", "6"]
    assert (strings[0]["HPOS"], strings[0]["WIDTH"], strings[0]["WC"]) == ("20", "34", "0.73")
    assert "".join(e.attrib["CONTENT"] for e in root.iter(f"{space}Glyph")).endswith("3333-5?")
    with pytest.raises(UsageError, match="one file"):
        Format("alto")


def test_a_suffix_tells_the_format() -> None:
    kinds = [kind_of(name) for name in ("a.TSV", "a.hocr", "a.alto.xml", "a.csv", "a.txt", "a", None)]
    assert kinds == ["tsv", "hocr", "alto", "csv", "text", "text", "text"]
    told = r"no format has the suffix \.docx, expected \.txt, \.jsonl, .*, or none.*--format text,.*coco"
    with pytest.raises(UsageError, match=told):
        kind_of("a.docx")


#: What may be in an element of PAGE 2019-07-15, in this order.
ORDER = {
    "PcGts": "Metadata Page", "Metadata": "Creator Created LastChange", "Page": "TextRegion",
    "TextRegion": "Coords TextLine TextEquiv", "TextLine": "Coords Word TextEquiv",
    "Word": "Coords Glyph TextEquiv", "Glyph": "Coords TextEquiv", "TextEquiv": "Unicode",
}  # fmt: skip


@pytest.mark.parametrize("turn", [0, 270, None])
def test_page_xml_follows_its_schema(turn: int | None) -> None:
    form = Format("page", names=False)
    reading = PageReading(ODD, error="broken") if turn is None else read(*TABLE, turn=turn)
    root = ET.fromstring((form.head + form.render(reading) + form.tail).encode())
    assert root.tag == "{http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15}PcGts"
    for element in root.iter():
        element.tag = element.tag.partition("}")[2]
    for element in root.iter():
        places = [ORDER.get(element.tag, "").split().index(child.tag) for child in element]
        assert places == sorted(places)
    names = [element.get("id") for element in root.iter() if "id" in element.attrib]
    assert len(names) == len(set(names))
    for coords in root.iter("Coords"):
        assert re.fullmatch(r"([0-9]+,[0-9]+ )+([0-9]+,[0-9]+)", coords.get("points", ""))
    assert all(0 <= float(told.get("conf", "0")) <= 1 for told in root.iter("TextEquiv"))
    found = root.find("Page").attrib
    if turn is None:
        assert found == {"imageFilename": 'a"<\\x1b>.png', "imageWidth": "0", "imageHeight": "0",
                         "custom": "error: broken"}  # fmt: skip
    else:
        assert found.get("orientation") == ("-90" if turn else None)
        assert [word.findtext("TextEquiv/Unicode") for word in root.iter("Word")][:3] == ["123", "45", "6"]
    with pytest.raises(UsageError, match="more than one page"):
        form.render(PageReading("a.tif", 1))


def test_coco(tmp_path: Path) -> None:
    readings = (FAILED, read(*TABLE), FAILED, read([(20, 10, "-5?")]))  # the first one, too
    coco = json.loads(write_records(tmp_path / "a", Format("coco"), *readings).read_text())
    none = json.loads(write_records(tmp_path / "none", Format("coco")).read_text())
    assert coco.keys() == none.keys() == {"info", "licenses", "categories", "images", "annotations"}
    assert [(i["id"], i["file_name"], i["width"], i["height"]) for i in coco["images"]] == [
        (1, "a.png", *SIZE), (2, "a.png", *SIZE)
    ]  # fmt: skip
    names = {category["id"]: category["name"] for category in coco["categories"]}
    marks = coco["annotations"]
    assert [mark["id"] for mark in marks] == list(range(1, 1 + len(marks)))
    last = [(names[m["category_id"]], m["text"], m["bbox"]) for m in marks if m["image_id"] == 2]
    assert last == [("number", "-5?", [20, 10, 34, 20]), ("-", "-", [20, 10, 10, 20]),
                    ("5", "5", [32, 10, 10, 20]), ("?", "?", [44, 10, 10, 20])]  # fmt: skip
    for mark in marks:
        assert (mark["iscrowd"], mark["area"]) == (0, mark["bbox"][2] * mark["bbox"][3])
        assert len(mark["segmentation"][0]) == 8


def test_label_studio(tmp_path: Path) -> None:
    form, readings = Format("labelstudio"), (FAILED, read([(20, 10, "-5?")]), FAILED)
    (task,) = json.loads(write_records(tmp_path / "a", form, *readings).read_text())
    assert write_records(tmp_path / "none", form).read_text().split() == ["[", "]"]
    assert task["data"]["image"] == "a.png"
    (prediction,) = task["predictions"]
    box, text = prediction["result"]
    assert (box["type"], text["type"], text["value"]["text"]) == ("rectangle", "textarea", ["-5?"])
    assert box["id"] == text["id"]
    shares = [box["value"][side] for side in ("x", "y", "width", "height", "rotation")]
    assert shares == pytest.approx([5.0, 10 / 3, 8.5, 20 / 3, 0])


def opened(pdf: Path | io.BytesIO) -> closing:
    return closing(pytest.importorskip("pypdfium2").PdfDocument(pdf))


def test_a_pdf_can_be_searched(reader: Reader, model: str, tmp_path: Path, monkeypatch: Any) -> None:
    scans = tmp_path / "scans"
    scans.mkdir()
    (scans / "two.tif").write_bytes(page_file("12\n0", "345", kind="TIFF"))
    Image.fromarray(page("07946")).save(scans / "z.png")
    (scans / "bad.png").write_bytes(b"none")
    words = ("read", scans, "--model", model, "-o")
    result = run(*words, tmp_path / "out.pdf", "--workers", "2")
    assert (result.exit_code, result.stdout) == (1, "")
    with opened(tmp_path / "out.pdf") as document:
        texts = [one.get_textpage().get_text_range().split() for one in document]
        assert texts == [["12", "0"], ["345"], ["07946"]]
        high, wide = page("07946").shape
        assert document[2].get_size() == pytest.approx((0.36 * wide, 0.36 * high))
    refused("--force to overwrite", *words, tmp_path / "out.pdf")
    for more in (("--format", "pdf"), ("--format", "csv", "-o", tmp_path / "x.pdf")):
        refused("pdf", *words[:-1], *more)
    reading = reader.read(scans / "z.png")
    reading.save(tmp_path / "one.pdf")
    with opened(tmp_path / "one.pdf") as document:
        assert document[0].get_textpage().get_text_range().strip() == "07946"
    monkeypatch.setattr(documents, "MAX_PDF", 10)
    result = run(*words, tmp_path / "large.pdf")
    assert (result.exit_code, "fewer pictures" in result.stderr) == (6, True)
    assert not (tmp_path / "large.pdf").exists()
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    with pytest.raises(UsageError, match=r"neocog\[documents\]"):
        reading.save(tmp_path / "none.pdf")


@pytest.mark.parametrize("turn", [0, 90, 180, 270])
def test_the_text_of_a_pdf_lies_on_the_writing(turn: int) -> None:
    reading, stream = read([(20, 10, "888")], turn=turn), io.BytesIO()
    wide, high = reading.size or SIZE
    with closing(documents.PdfWriter()) as pdf:
        reading.add_to(pdf, Page(0, np.full((high, wide), 255, np.uint8), (wide, high)))
        pdf.save(stream)
    with opened(stream) as document:
        text = document[0].get_textpage()
        assert text.get_text_range().strip() == "888"
        for n, digit in enumerate(reading.digits):
            left, bottom, right, top = (side / 0.36 for side in text.get_charbox(n))
            x, y, w, h = digit.box
            middle = (left + right) / 2, high - (bottom + top) / 2
            assert middle == pytest.approx((x + w / 2, y + h / 2), abs=4)


@pytest.fixture(scope="module")
def pdf() -> bytes:
    pytest.importorskip("pypdfium2")
    pages = [Image.fromarray(page(text)).convert("RGB") for text in ("07", "946")]
    return file_of(pages[0], "PDF", save_all=True, append_images=pages[1:], resolution=100)


@pytest.fixture(scope="module")
def heic() -> bytes:
    pillow_heif = pytest.importorskip("pillow_heif")
    pillow_heif.register_heif_opener()
    return file_of(Image.fromarray(page("07946")), "HEIF", quality=90)


def test_pages_of_a_pdf(pdf: bytes) -> None:
    first, second = decode(pdf, long_side=300)
    assert (first.index, second.index, max(first.grey.shape)) == (0, 1, 300)
    high, wide = page("07").shape
    # the picture lies in the file with 100 pixels an inch, and boxes count 200
    assert min(first.scales) == pytest.approx(300 / (2 * max(high, wide)), rel=0.01)
    whole = next(decode(pdf)).grey
    assert np.abs(np.array(whole.shape) - (2 * high, 2 * wide)).max() <= 1
    same = np.asarray(Image.fromarray(whole).resize((wide, high)), float)
    assert np.abs(same - page("07")).mean() < 4
    assert not is_light(pdf), "it is decoded in a process that can be ended"


def test_a_page_of_a_pdf_is_drawn_alone_and_damaged_ones_have_a_record(pdf, reader, monkeypatch):
    for cut in (5, 60, 400, -300):
        *_, last = reader.read_pages(pdf[:cut], safely=True)  # pdfium mends what it can
        assert last.error is None or "please report" not in last.error
    whole, drawn = list(decode(pdf, long_side=300)), []
    monkeypatch.setattr(vision_decode, "check_page", lambda index, *_, **__: drawn.append(index))
    (second,) = decode(pdf, long_side=300, pages=[1, 2])
    assert (second.index, drawn) == (1, [1])
    assert (second.pixels == whole[1].pixels).all()


def test_limits_of_pdfs(pdf: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    large = file_of(Image.new("L", (9000, 9000)), "PDF", resolution=20)
    with pytest.raises(InputError, match="90000 x 90000 pixels"):
        next(decode(large, long_side=1024))
    monkeypatch.setattr(vision_decode, "MAX_PAGES", 1)
    pages = decode(pdf)
    next(pages)
    with pytest.raises(InputError, match="more than 1 pages"):
        next(pages)


def test_a_missing_extra_is_named(pdf: bytes, heic: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    for data in (pdf, heic):
        with pytest.raises(InputError, match=r"pip install 'neocog\[documents\]'"):
            next(decode(data))


def test_heic_and_avif(heic: bytes) -> None:
    (found,) = decode(heic)
    assert np.abs(found.grey.astype(int) - page("07946")).mean() < 4
    assert not is_light(heic)
    for cut in (20, 60, 300, len(heic) - 100):
        with pytest.raises(InputError):
            list(decode(heic[:cut]))
    at = heic.index(b"ispe") + 8
    with pytest.raises(InputError, match=r"too large|pixels"):
        next(decode(heic[:at] + (60_000).to_bytes(4) * 2 + heic[at + 8 :]))
    if features.check("avif"):
        data = file_of(Image.fromarray(page("07")).convert("RGB"), "AVIF", quality=90)
        assert np.abs(next(decode(data)).grey.astype(int) - page("07")).mean() < 4


def test_documents_are_read_in_archives(tmp_path: Path, model: str, pdf: bytes, heic: bytes) -> None:
    archive, out = tmp_path / "a.zip", tmp_path / "a.csv"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("in/form.pdf", pdf)
        file.writestr("b.HEIC", heic)
    done = run("read", archive, "--model", model, "-o", out, "--ordered")
    assert done.exit_code == 0, done.output
    assert [(row["source"], row["page"]) for row in table_of(out)] == [
        (f"{archive}/in/form.pdf", "0"), (f"{archive}/in/form.pdf", "1"), (f"{archive}/b.HEIC", "0")
    ]  # fmt: skip


def answers(request: bytes) -> list[bytes]:
    """What a server says of a path: with a redirect may come a length, which is not read."""
    path = request.split()[1].decode()
    if path == "/slow":
        time.sleep(0.5)
    head, body = {
        "/a.png": ("200 OK", page_file("07")), "/slow": ("200 OK", b"7"),
        "/cut": ("200 OK\r\nContent-Length: 99", b"half"),
        "/to_a": ("302 Found\r\nLocation: /a.png", b""), "/to_self": ("302 Found\r\nLocation: /to_self", b""),
        "/to_file": ("302 Found\r\nLocation: file:///etc/passwd", b""),
        "/to_much": (f"302 Found\r\nLocation: a.png\r\nContent-Length: {10**12}", b""),
    }.get(path, ("404 Not Found", b""))  # fmt: skip
    return [f"HTTP/1.1 {head}\r\nConnection: close\r\n\r\n".encode() + body]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with closing(RawServer(answers)) as own:
        yield f"http://127.0.0.1:{own.port}"


def test_a_picture_at_an_address(server: str, model: str) -> None:
    for path in ("a.png", "to_a", "to_much"):
        assert addresses.fetch(f"{server}/{path}") == page_file("07")
    done = run(f"{server}/a.png", f"{server}/none.png", "--model", model, "--format", "csv")
    assert done.exit_code == 1
    assert f"{server}/a.png,0," in done.stdout
    assert "cannot be fetched: 404" in done.stderr


@pytest.mark.parametrize(("path", "why", "limits"), [
    ("to_file", "cannot be fetched", {}), ("to_self", "cannot be fetched", {}),
    ("cut", "the connection ended before the file did", {}),
    ("a.png", "more than 100 bytes", {"MAX_BYTES": 100}),
    ("slow", r"more than 0\.2 seconds", {"MAX_SECONDS": 0.2}),
])  # fmt: skip
def test_limits_of_addresses(path: str, why: str, limits: Any, server: str, monkeypatch: Any) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(addresses, name, value)
    with pytest.raises(InputError, match=why) as failure:
        addresses.fetch(f"{server}/{path}")
    assert "\n" not in str(failure.value)


def test_csv_reads_back_and_text_has_names_only_on_request(tmp_path: Path, capsys: Any) -> None:
    odd = PageReading("bad\udcff,\n.png")
    rows = table_of(write_records(tmp_path / "out.csv", Format("csv"), READ, FAILED, odd))
    assert [row["source"] for row in rows] == ["a/b.jpg", "b.jpg", "bad\\udcff,\\n.png"]
    keys = ("text", "n_digits", "n_rejected", "least_p", "reasons", "error")
    read, failed = ([row[key] for key in keys] for row in rows[:2])
    assert read == ["07\n?", "3", "1", "0.3100", "two answers", ""]
    assert failed == ["", "0", "0", "", "", "the file is empty"]
    for names, told in ((True, "a/b.jpg: 07 | ?\nc.tif page 2: 5\n"), (False, "07\n?\n\n5\n")):
        with open_sink(Format("text", names=names)) as sink:
            for reading in (READ, FAILED, PageReading("c.tif", 1, "5")):
                sink.put(sink.format.render(reading))
        assert capsys.readouterr().out == told


@pytest.mark.parametrize("kind", ["text", "jsonl", "csv"])
def test_an_old_file_stays_until_the_first_record_and_each_is_flushed(tmp_path: Path, kind: str) -> None:
    old, form = tmp_path / "out", Format(kind)
    old.write_text("dear")
    with suppress(ZeroDivisionError), open_sink(form, old):
        raise ZeroDivisionError
    with open_sink(form, old):
        assert old.read_text() == "dear"
    assert old.read_text() == form.head
    old.write_text("dear")
    with open_sink(form, old) as sink:
        for count in (1, 2, 3):
            sink.put(form.render(READ))
            assert old.read_text() == form.head + count * form.render(READ)
