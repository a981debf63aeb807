"""Pages as hOCR 1.2 and ALTO 4: words with boxes, for programs that take other readers' pages.

hOCR: http://kba.github.io/hocr-spec/1.2/, ALTO: https://www.loc.gov/standards/alto/.
"""

from math import prod
from xml.etree import ElementTree as ET

from neocog.messages import printable
from neocog.reading.records import Box, PageReading, WordReading

HOCR_HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<html xmlns="http://www.w3.org/1999/xhtml"><head><title>neocog</title>
<meta charset="utf-8"/><meta name="ocr-system" content="neocog"/>
<meta name="ocr-capabilities" content="ocr_page ocr_line ocrx_word"/></head><body>
"""
HOCR_TAIL = "</body></html>\n"

ALTO_TAIL = "</Layout></alto>\n"


def hocr_page(reading: PageReading) -> str:
    """Return a page as hOCR; ``textangle`` is what the page was turned by."""
    wide, high = reading.size or (0, 0)
    name = printable(reading.source).replace('"', "%22")
    title = f'image "{name}"; bbox 0 0 {wide} {high}; ppageno {reading.page}'
    page = ET.Element("div", {"class": "ocr_page", "title": title})
    for line in reading.lines:
        turn = f"; textangle {reading.turn}" if reading.turn else ""
        own = ET.SubElement(page, "span", {"class": "ocr_line", "title": _bbox(line.box) + turn})
        for word in line.words:
            sure = round(100 * _p(word, reading))
            title = f"{_bbox(word.box)}; x_wconf {sure}"
            ET.SubElement(own, "span", {"class": "ocrx_word", "title": title}).text = word.text
    return _text(page)


def alto_head(source: str) -> str:
    """Return what stands before the pages of a file."""
    description = ET.Element("Description")
    ET.SubElement(description, "MeasurementUnit").text = "pixel"
    image = ET.SubElement(description, "sourceImageInformation")
    ET.SubElement(image, "fileName").text = printable(source)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<alto xmlns='
    return f'{head}"http://www.loc.gov/standards/alto/ns-v4#">\n{_text(description)}<Layout>\n'


def alto_page(reading: PageReading) -> str:
    """Return a page as ALTO; ``ROTATION`` is what it was turned by."""
    box = (0, 0, *(reading.size or (0, 0)))
    number = reading.page
    size = {name: str(side) for name, side in zip(("HEIGHT", "WIDTH"), box[:1:-1], strict=True)}
    page = ET.Element("Page", {"ID": f"p{number}", "PHYSICAL_IMG_NR": str(number + 1), **size})
    space = ET.SubElement(page, "PrintSpace", _place(box))
    block: dict[str, str] = {"ID": f"p{number}_b0", **_place(box)}
    if reading.turn:
        block["ROTATION"] = str(reading.turn)
    inside = ET.SubElement(space, "TextBlock", block)
    for n, line in enumerate(reading.lines):
        own = ET.SubElement(inside, "TextLine", {"ID": f"p{number}_l{n}", **_place(line.box)})
        for k, word in enumerate(line.words):
            if k:
                ET.SubElement(own, "SP")
            ET.SubElement(own, "String", {
                "ID": f"p{number}_l{n}_w{k}", "CONTENT": word.text,
                "WC": f"{_p(word, reading):.2f}", **_place(word.box),
            })  # fmt: skip
    return _text(page)


def _p(word: WordReading, reading: PageReading) -> float:
    """How probably all digits of a word are right; 0 for signs alone."""
    if word.digits is None:
        return 0.0
    first, last = word.digits
    return prod(digit.p for digit in reading.digits[first : last + 1])


def _bbox(box: Box) -> str:
    x, y, w, h = box
    return f"bbox {x} {y} {x + w} {y + h}"


def _place(box: Box) -> dict[str, str]:
    return dict(zip(("HPOS", "VPOS", "WIDTH", "HEIGHT"), map(str, box), strict=True))


def _text(element: ET.Element) -> str:
    ET.indent(element)
    return ET.tostring(element, encoding="unicode") + "\n"
