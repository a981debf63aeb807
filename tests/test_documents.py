"""Documents: words and columns, hOCR, ALTO, PAGE, COCO, Label Studio, PDF, HEIC, AVIF, addresses."""

import io
import json
import re
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from PIL import Image, features

from neocog.batch.output import open_sink
from neocog.errors import InputError, UsageError
from neocog.reading import addresses
from neocog.reading.formats import Format, kind_of
from neocog.reading.reader import Reader
from neocog.reading.records import DigitReading, LineReading, NumberReading, WordReading
from neocog.reading.results import PageReading
from neocog.reading.words import cells
from neocog.vision import decode as vision_decode
from neocog.vision import documents
from neocog.vision.decode import Page, decode, is_light
from neocog.vision.page import around, turned_back
from tests.support import file_of, page, page_file, run

SIZE = (400, 300)
Word = tuple[int, int, str]


def read(*rows: list[Word], turn: int = 0) -> PageReading:
    """A page of words, from the left and the top on: characters 10 wide and 20 high, 12 apart."""
    size = SIZE if turn in (0, 180) else SIZE[::-1]
    digits, lines = list[DigitReading](), []
    for row in rows:
        words, numbers = [], []
        for left, top, text in row:
            boxes = [turned_back((left + 12 * k, top, 10, 20), turn, *size) for k in range(len(text))]
            chars = tuple(DigitReading(char, 0.9, 0.5, box) for char, box in zip(text, boxes, strict=True))
            first, box = len(digits), around(boxes)
            digits += [char for char in chars if char.char.isdigit()]
            words.append(WordReading(text, box, (first, len(digits) - 1)))
            numbers.append(NumberReading(text, 0.9 ** len(text), box, chars))
        box = around([word.box for word in words])
        lines.append(LineReading(" ".join(text for *_, text in row), box, tuple(words), tuple(numbers)))
    text = "\n".join(line.text for line in lines)
    return PageReading(
        "a.png", 0, text, tuple(digits), "m", turn=turn, finder="f", size=size, lines=tuple(lines)
    )


TABLE = (
    [(20, 10, "123"), (140, 10, "45"), (300, 10, "6")],
    [(20, 60, "7"), (302, 60, "89")],
    [(22, 110, "11"), (134, 110, "222"), (290, 110, "3333")],
)


def test_words_have_boxes() -> None:
    reading = read(*TABLE)
    assert reading.text == "123 45 6\n7 89\n11 222 3333"
    assert reading.plain == "123456\n789\n112223333"
    record = reading.to_dict()
    assert record["size"] == [400, 300]
    line = record["lines"][1]
    assert (line["text"], line["box"]) == ("7 89", [20, 60, 304, 20])
    assert line["words"] == [{"text": "7", "box": [20, 60, 10, 20], "digits": [6, 6]},
                             {"text": "89", "box": [302, 60, 22, 20], "digits": [7, 8]}]  # fmt: skip


def test_columns_are_tabs_and_empty_cells_stay(tmp_path: Path) -> None:
    reading = read(*TABLE)
    rows = [["123", "45", "6"], ["7", "", "89"], ["11", "222", "3333"]]
    assert cells(reading) == rows
    with open_sink(Format("tsv", names=False), tmp_path / "a.tsv") as sink:
        sink.put(sink.format.render(reading))
        sink.put(sink.format.render(PageReading("b.png", error="broken")))
    text = (tmp_path / "a.tsv").read_text()
    assert text == "".join("\t".join(row) + "\n" for row in rows)
    assert Format("tsv").render(reading).startswith("a.png\t0\t123\t45\t6\n")
    assert Format("tsv", names=False).render(PageReading("a", 0, "7\n1")) == "7\n1\n"


@pytest.mark.parametrize("turn", [0, 90, 180, 270])
def test_a_page_on_its_side_has_the_same_columns(turn: int) -> None:
    reading = read(*TABLE, turn=turn)
    assert cells(reading) == [["123", "45", "6"], ["7", "", "89"], ["11", "222", "3333"]]


def test_hocr_and_alto_are_well_formed(tmp_path: Path) -> None:
    reading, odd = read(*TABLE), PageReading('a"<\x1b>.png', 1, error="broken")
    with open_sink(Format("hocr"), tmp_path / "a.hocr") as sink:
        sink.put(sink.format.render(reading))
        sink.put(sink.format.render(odd))
    root = ET.parse(tmp_path / "a.hocr").getroot()
    words = [e for e in root.iter() if e.get("class") == "ocrx_word"]
    assert ["".join(word.itertext()) for word in words[:3]] == ["123", "45", "6"]
    assert words[0].get("title") == "bbox 20 10 54 30; x_wconf 73"
    with open_sink(Format("alto", names=False, source='a"<\x1b>.png'), tmp_path / "a.xml") as sink:
        sink.put(sink.format.render(reading))
    space = "{http://www.loc.gov/standards/alto/ns-v4#}"
    root = ET.parse(tmp_path / "a.xml").getroot()
    assert root.findtext(f".//{space}fileName") == 'a"<\\x1b>.png'
    strings = [e.attrib for e in root.iter(f"{space}String")]
    assert [one["CONTENT"] for one in strings[:3]] == ["123", "45", "6"]
    assert (strings[0]["HPOS"], strings[0]["WIDTH"], strings[0]["WC"]) == ("20", "34", "0.73")
    with open_sink(Format("hocr"), tmp_path / "none.hocr"):
        pass
    ET.parse(tmp_path / "none.hocr")
    with pytest.raises(UsageError, match="one file"):
        Format("alto")
    kinds = [kind_of(name) for name in ("a.TSV", "a.hocr", "a.alto.xml", "a.csv", "a.txt", "a", None)]
    assert kinds == ["tsv", "hocr", "alto", "csv", "text", "text", "text"]
    with pytest.raises(
        UsageError,
        match=r"no format has the suffix \.docx, expected \.txt, \.jsonl, .*, or none.*--format text,.*coco",
    ):
        kind_of("a.docx")


#: What may be in an element of PAGE 2019-07-15, in this order.
ORDER = {
    "PcGts": "Metadata Page", "Metadata": "Creator Created LastChange", "Page": "TextRegion",
    "TextRegion": "Coords TextLine TextEquiv", "TextLine": "Coords Word TextEquiv",
    "Word": "Coords Glyph TextEquiv", "Glyph": "Coords TextEquiv", "TextEquiv": "Unicode",
}  # fmt: skip


@pytest.mark.parametrize("turn", [0, 270])
def test_page_xml_follows_its_schema(turn: int) -> None:
    form, broken = Format("page", names=False), PageReading('a"<\x1b>.png', error="broken")
    for reading in (read(*TABLE, turn=turn), broken):
        root = ET.fromstring((form.head + form.render(reading) + form.tail).encode())
        assert root.tag == "{http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15}PcGts"
        for element in root.iter():
            element.tag = element.tag.partition("}")[2]
        for element in root.iter():
            wanted = ORDER.get(element.tag, "").split()
            places = [wanted.index(child.tag) for child in element]
            assert places == sorted(places)
        names = [element.get("id") for element in root.iter() if "id" in element.attrib]
        assert len(names) == len(set(names))
        for coords in root.iter("Coords"):
            assert re.fullmatch(r"([0-9]+,[0-9]+ )+([0-9]+,[0-9]+)", coords.get("points", ""))
        assert all(0 <= float(told.get("conf", "0")) <= 1 for told in root.iter("TextEquiv"))
        page_of = root.find("Page")
        assert page_of is not None
        if reading is broken:
            assert page_of.attrib == {"imageFilename": 'a"<\\x1b>.png', "imageWidth": "0", "imageHeight": "0",
                                      "custom": "error: broken"}  # fmt: skip
            continue
        assert page_of.get("orientation") == ("-90" if turn else None)
        assert [word.findtext("TextEquiv/Unicode") for word in root.iter("Word")][:3] == ["123", "45", "6"]
    with pytest.raises(UsageError, match="more than one page"):
        form.render(PageReading("a.tif", 1))


def test_coco_and_label_studio(tmp_path: Path) -> None:
    readings = (read(*TABLE), PageReading("b.png", error="broken"), read([(20, 10, "-5?")]))
    told = {}
    for kind in ("coco", "labelstudio"):
        with open_sink(Format(kind), tmp_path / kind) as sink:
            for reading in readings:
                sink.put(sink.format.render(reading))
        with open_sink(Format(kind), tmp_path / "none"):
            pass
        told[kind] = json.loads((tmp_path / kind).read_text())
        assert len(json.loads((tmp_path / "none").read_text())) == (5 if kind == "coco" else 0)
    coco = told["coco"]
    assert set(coco) == {"info", "licenses", "categories", "images", "annotations"}
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
    tasks = told["labelstudio"]
    assert [task["data"]["image"] for task in tasks] == ["a.png", "a.png"]
    (prediction,) = tasks[1]["predictions"]
    box, text = prediction["result"]
    assert (box["type"], text["type"], text["value"]["text"]) == ("rectangle", "textarea", ["-5?"])
    assert box["id"] == text["id"]
    shares = [box["value"][side] for side in ("x", "y", "width", "height", "rotation")]
    assert shares == pytest.approx([5.0, 10 / 3, 8.5, 20 / 3, 0])


def test_a_pdf_can_be_searched(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pypdfium2 = pytest.importorskip("pypdfium2")
    scans = tmp_path / "scans"
    scans.mkdir()
    (scans / "two.tif").write_bytes(page_file("12\n0", "345", kind="TIFF"))
    Image.fromarray(page("07946")).save(scans / "z.png")
    (scans / "bad.png").write_bytes(b"none")
    words = ("read", scans, "--model", model, "-o")
    result = run(*words, tmp_path / "out.pdf", "--workers", "2")
    assert (result.exit_code, result.stdout) == (1, "")
    with closing(pypdfium2.PdfDocument(tmp_path / "out.pdf")) as document:
        texts = [one.get_textpage().get_text_range().split() for one in document]
        assert texts == [["12", "0"], ["345"], ["07946"]]
        high, wide = page("07946").shape
        assert document[2].get_size() == pytest.approx((0.36 * wide, 0.36 * high))
    assert "--force to overwrite" in run(*words, tmp_path / "out.pdf").stderr
    for more in (("--format", "pdf"), ("--format", "csv", "-o", tmp_path / "x.pdf")):
        assert run(*words[:-1], *more).exit_code == 2
    reading = Reader(model, device="cpu").read(scans / "z.png")
    reading.save(tmp_path / "one.pdf")
    with closing(pypdfium2.PdfDocument(tmp_path / "one.pdf")) as document:
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
    pypdfium2 = pytest.importorskip("pypdfium2")
    reading, stream = read([(20, 10, "888")], turn=turn), io.BytesIO()
    wide, high = reading.size or SIZE
    with closing(documents.PdfWriter()) as pdf:
        reading.add_to(pdf, Page(0, np.full((high, wide), 255, np.uint8), (wide, high)))
        pdf.save(stream)
    with closing(pypdfium2.PdfDocument(stream)) as document:
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
    pages = list(decode(pdf, long_side=300))
    assert [one.index for one in pages] == [0, 1]
    high, wide = page("07").shape
    assert max(pages[0].grey.shape) == 300
    # the picture lies in the file with 100 pixels an inch, and boxes count 200
    assert min(pages[0].scales) == pytest.approx(300 / (2 * max(high, wide)), rel=0.01)
    whole = next(decode(pdf)).grey
    assert np.abs(np.array(whole.shape) - (2 * high, 2 * wide)).max() <= 1
    same = np.asarray(Image.fromarray(whole).resize((wide, high)), float)
    assert np.abs(same - page("07")).mean() < 4
    assert not is_light(pdf), "it is decoded in a process that can be ended"


def test_damaged_pdfs_have_a_record(pdf: bytes, model: str) -> None:
    for cut in (5, 60, 400, -300):
        *_, last = Reader(model, device="cpu").read_safely(pdf[:cut])  # pdfium mends what it can
        assert last.error is None or "please report" not in last.error


def test_a_page_of_a_pdf_is_drawn_alone(pdf: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_documents_are_read_in_archives_and_on_stdin(
    tmp_path: Path, model: str, pdf: bytes, heic: bytes
) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("in/form.pdf", pdf)
        archive.writestr("b.HEIC", heic)
    done = run("read", tmp_path / "a.zip", "--model", model, "--format", "csv", "--ordered")
    assert done.exit_code == 0, done.output
    rows = [row.split(",")[:2] for row in done.stdout.splitlines()[1:]]
    root = f"{tmp_path}/a.zip"
    assert rows == [[f"{root}/in/form.pdf", "0"], [f"{root}/in/form.pdf", "1"],
                    [f"{root}/b.HEIC", "0"]]  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    pictures: dict[str, bytes] = {}  # noqa: RUF012

    def do_GET(self) -> None:
        if self.path == "/slow":
            time.sleep(1.5)
        if self.path.startswith("/to"):
            self.send_response(302)
            to = {"/to_a": "/a.png", "/to_file": "file:///etc/passwd", "/to_much": "a.png"}
            self.send_header("Location", to.get(self.path, self.path))
            if self.path == "/to_much":  # what comes with a redirect is not read
                self.send_header("Content-Length", str(10**12))
            self.end_headers()
            return
        data = self.pictures.get(self.path)
        self.send_response(200 if data else 404)
        if self.path == "/cut":
            self.send_header("Content-Length", "99")
        self.end_headers()
        with suppress(OSError):  # who asked may have left
            self.wfile.write(data or b"")

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    _Handler.pictures = {"/a.png": page_file("07"), "/slow": b"7", "/cut": b"half"}
    http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{http.server_address[1]}"
    http.shutdown()
    http.server_close()


def test_a_picture_at_an_address(server: str, model: str) -> None:
    plain = addresses.fetch(f"{server}/a.png")
    assert addresses.fetch(f"{server}/to_a") == plain == _Handler.pictures["/a.png"]
    assert addresses.fetch(f"{server}/to_much") == plain
    done = run(f"{server}/a.png", f"{server}/none.png", "--model", model, "--format", "csv")
    assert done.exit_code == 1
    assert f"{server}/a.png,0," in done.stdout
    assert "cannot be fetched: 404" in done.stderr


def test_limits_of_addresses(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = "the connection ended before the file did"
    for path, why in (("/to_file", "cannot be fetched"), ("/to_self", "cannot be fetched"), ("/cut", ended)):
        with pytest.raises(InputError, match=why) as failure:
            addresses.fetch(server + path)
        assert "\n" not in str(failure.value)
    monkeypatch.setattr(addresses, "MAX_BYTES", 100)
    with pytest.raises(InputError, match="more than 100 bytes"):
        addresses.fetch(f"{server}/a.png")
    monkeypatch.setattr(addresses, "MAX_SECONDS", 0.2)
    with pytest.raises(InputError, match=r"more than 0\.2 seconds"):
        addresses.fetch(f"{server}/slow")
