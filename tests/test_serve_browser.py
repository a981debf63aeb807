"""The page in a real browser, as people use it: drop, camera, correct, download."""

import base64
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest
from PIL import Image, ImageDraw

from neocog.learning.datasets import read_labels_csv
from tests.support import (
    children_of,
    file_of,
    page,
    page_file,
    records,
    run,
    save_page,
    sheet,
    table_of,
    until,
)

BACKSPACE, TAB, ENTER, CONTROL, ESCAPE, END, HOME, DELETE = (
    "\ue003\ue004\ue007\ue009\ue00c\ue010\ue011\ue017"  # as WebDriver types
)
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key that the protocol gives to elements
httpx: Any = pytest.importorskip("httpx2")
needed = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver")
pytestmark = [pytest.mark.slow, needed]


class Chromium:
    """A headless Chromium, driven by chromedriver over the WebDriver protocol; a context manager."""

    def __init__(self, *arguments: str, mobile: bool = False) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._driver = subprocess.Popen(
            [str(DRIVER), f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        options: dict[str, Any] = {
            "binary": CHROMIUM,
            "args": ["--headless=new", "--no-sandbox", "--window-size=1280,860", *arguments],
        }
        if mobile:
            metrics = {"width": 390, "height": 844, "pixelRatio": 2, "touch": True}
            options["mobileEmulation"] = {"deviceMetrics": metrics}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120)
        self._session = ""
        until(self._is_ready)
        answer = self._call("POST", "/session", capabilities={"alwaysMatch": wanted})
        self._session = f"/session/{answer['sessionId']}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._call("DELETE", "")
        self._driver.terminate()
        self._driver.wait()

    def open(self, address: str) -> None:
        self._call("POST", "/url", url=address)

    def run(self, script: str, *args: Any) -> Any:
        """Run JavaScript; a promise is waited for."""
        return self._call("POST", "/execute/sync", script=script, args=args)

    def click(self, css: str) -> None:
        self._call("POST", f"/element/{self._find(css)}/click")

    def type(self, css: str, words: str) -> None:
        """Type; for a file input, the files' names, one a line."""
        self._call("POST", f"/element/{self._find(css)}/value", text=words)

    def wait_for(self, script: str, seconds: float = 60) -> Any:
        """Wait until a JavaScript expression is true, and return it."""
        return until(lambda: self.run(f"return {script}"), seconds)

    def shows(self, name: str, words: str) -> None:
        """Wait until the element of a name has such words in its text."""
        self.wait_for(f"document.getElementById('{name}').textContent.includes({json.dumps(words)})")

    def devtools(self, command: str, **params: Any) -> Any:
        return self._call("POST", "/goog/cdp/execute", cmd=command, params=params)

    def complaints(self) -> list[str]:
        """What the console has said since it was asked before."""
        return [entry["message"] for entry in self._call("POST", "/se/log", type="browser")]

    def drop(self, css: str, files: Sequence[tuple[str, bytes]]) -> None:
        """Drop files on an element as a person would."""
        self.run(
            """
            const [target, files] = arguments, data = new DataTransfer();
            for (const [name, text] of files) data.items.add(new File(
              [Uint8Array.from(atob(text), (char) => char.charCodeAt(0))], name));
            document.querySelector(target).dispatchEvent(new DragEvent("drop",
              { dataTransfer: data, bubbles: true, cancelable: true }));
            """,
            css,
            [[name, base64.b64encode(data).decode()] for name, data in files],
        )

    def drag(self, css: str, *places: tuple[float, float]) -> None:
        """Press the mouse at a place of an element, in shares of it, move it to others, let go."""
        edge = "const r = document.querySelector(arguments[0]).getBoundingClientRect();"
        left, top, wide, high = self.run(f"{edge} return [r.x, r.y, r.width, r.height]", css)
        kinds = ["mousePressed", *["mouseMoved"] * (len(places) - 1), "mouseReleased"]
        for kind, (x, y) in zip(kinds, [*places, places[-1]], strict=True):
            at = {"x": left + x * wide, "y": top + y * high, "button": "left", "clickCount": 1}
            held = int(kind != "mouseReleased")
            self.devtools("Input.dispatchMouseEvent", type=kind, buttons=held, **at)

    def _find(self, css: str) -> str:
        found = self._call("POST", "/element", using="css selector", value=css)
        return str(found[ELEMENT])

    def _is_ready(self) -> bool:
        try:
            return bool(self._call("GET", "/status")["ready"])
        except httpx.TransportError:
            return False

    def _call(self, method: str, address: str, **what: Any) -> Any:
        content = what if method == "POST" else None
        value = self._http.request(method, self._session + address, json=content).json()["value"]
        if isinstance(value, dict) and "error" in value:
            raise RuntimeError(f"{value['error']}: {value['message']}")
        return value


@dataclass
class Server:
    """A running ``neocog serve``."""

    process: subprocess.Popen[str]
    address: str
    kept: Path

    @property
    def memory(self) -> float:
        """Megabytes of it and of its workers, what they share counted once."""
        found, kilobytes = [self.process.pid], 0
        for known in found:
            with suppress(OSError):
                found += children_of(known)
                told = Path(f"/proc/{known}/smaps_rollup").read_text()
                kilobytes += int(re.search(r"Pss:\s*(\d+)", told)[1])
        return kilobytes / 1024


@contextmanager
def serving(*words: str, kept: Path = Path()) -> Iterator[Server]:
    command = [sys.executable, "-m", "neocog", "serve", "--port", "0", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield Server(process, re.search(r"https?://\S+", process.stderr.readline())[0], kept)
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    assert process.stderr.read() == "neocog: interrupted\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving("--corrections", str(tmp_path / "kept"), kept=tmp_path / "kept") as running:
        yield running


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chromium]:
    """One that downloads to the test's folder."""
    with Chromium() as running:
        running.devtools("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
        yield running


def visit(browser: Chromium, address: str) -> None:
    browser.open(address)
    browser.wait_for("document.querySelector('#pad').children.length > 0")  # its script has run


def digits_shown(browser: Chromium) -> str:
    return str(browser.run("return document.getElementById('text').textContent"))


def choose(browser: Chromium, name: str) -> None:
    """Click the item of the list that has such a name."""
    every = "[...document.querySelectorAll('#list button')]"
    browser.run(f"{every}.find((node) => node.innerText.includes('{name}')).click()")


def count(css: str, many: int) -> str:
    return f"document.querySelectorAll('{css}').length === {many}"


def test_drop_correct_save_download(server: Server, browser: Chromium, tmp_path: Path) -> None:
    save_page(tmp_path / "a.png", "07946\n12")
    visit(browser, server.address)
    browser.drop(".drop", [("a.png", (tmp_path / "a.png").read_bytes()), ("bad.png", b"bad")])
    browser.wait_for(count("#list li", 2))
    choose(browser, "a.png")
    browser.wait_for(count("#stage .box", 7))
    assert digits_shown(browser) == "07946\n12"
    browser.click("#text button")
    browser.type("body", "8")
    assert digits_shown(browser) == "87946\n12"
    browser.click("#text span:nth-of-type(2) button:nth-last-child(2)")
    browser.click("#pad [title=Delete]")
    assert digits_shown(browser) == "87946\n1"
    browser.drag("#stage", (0.85, 0.85), (0.95, 0.95))  # one that was missed
    assert digits_shown(browser) == "87946\n1?"
    browser.type("body", BACKSPACE)
    assert digits_shown(browser) == "87946\n1"
    browser.click("#stage .box")
    browser.click("#pad [title^=What]")
    browser.wait_for("document.getElementById('why').open")
    browser.click("#why button")
    browser.click("#confirm")
    browser.shows("said", "is saved")
    for form in ("csv", "jsonl", "labels"):
        browser.click(f"[data-form={form}]")
    until(lambda: (tmp_path / "labels.csv").exists())
    assert browser.complaints() == []
    rows = table_of(tmp_path / "digits.csv")
    assert [row["text"] for row in rows] == ["87946\n1", ""]
    assert "not a picture" in rows[1]["error"]
    assert records(tmp_path / "digits.jsonl")[0]["digits"][0]["corrected_from"] == "0"
    assert (tmp_path / "labels.csv").read_text() == 'file,text\na.png,"87946\n1"\n'
    labels = (server.kept / "pages" / "labels.csv").read_text()
    assert labels.endswith('.png,"87946\n1"\n')
    writers = (server.kept / "digits" / "train-writers.txt").read_text().split()
    assert len(writers) == 6


def test_lines_are_typed_and_keys_act_on_what_is_on_top(
    server: Server, browser: Chromium, tmp_path: Path
) -> None:
    save_page(tmp_path / "a.png", "07946\n12\n3")
    visit(browser, server.address)
    tiff = page_file("4", "56", kind="TIFF")
    browser.drop(".drop", [("a.png", (tmp_path / "a.png").read_bytes()), ("b.tif", tiff)])
    browser.wait_for(count("#list li", 3))
    said = browser.run("return document.getElementById('list').innerText")
    assert "b.tif, page 1" in said
    assert "b.tif, page 2" in said
    inked = ("[...document.querySelectorAll('#list canvas')].filter((node) => "
             "node.toDataURL().length > 1000).length === 3")  # fmt: skip
    browser.wait_for(inked)  # no browser knows TIFF: the server draws its pages
    choose(browser, "a.png")
    browser.wait_for(count("#stage .box", 8))
    browser.click("#stage .box[data-char='3']")
    browser.click("#pad [title^=What]")
    browser.wait_for("document.getElementById('why').open")
    browser.type("body", "8")
    browser.type("body", ESCAPE)
    browser.wait_for("!document.getElementById('why').open")
    assert digits_shown(browser) == "07946\n12\n3"
    browser.type("body", DELETE)  # the last digit of its line
    assert digits_shown(browser) == "07946\n12"
    browser.click("#text span:nth-of-type(2) button")
    browser.type("body", "e")
    browser.type("#text input", f"{BACKSPACE}?x{ESCAPE}")  # nothing of it stays
    assert browser.run("return document.querySelectorAll('#text .right').length") == 0
    browser.click("#text span .edit")
    browser.type("#text input", f"{HOME}-{END}{BACKSPACE},50 kg{ENTER}")
    assert digits_shown(browser) == "-0794,50\n12"
    assert len(browser.run("return [...document.querySelectorAll('#stage .box')]")) == 6
    browser.click("#text .more .edit")
    browser.type("#text input", f"8/9{ENTER}")
    assert digits_shown(browser) == "-0794,50\n12\n8/9"
    browser.click("#text span:nth-of-type(2) button")
    browser.type("body", "+")
    assert digits_shown(browser) == "-0794,50\n+2\n8/9"
    browser.click("#confirm")
    browser.shows("said", "is saved")
    choose(browser, "b.tif, page 1")
    browser.wait_for(count("#stage .box", 1))
    browser.run("document.querySelector('#stage .box').click()")  # it may be drawn once more
    browser.type("body", DELETE)  # the last digit of its page
    assert digits_shown(browser) == ""
    for form in ("txt", "csv", "tsv", "jsonl"):
        browser.click(f"[data-form={form}]")
    until(lambda: (tmp_path / "digits.jsonl").exists())
    browser.devtools("Browser.grantPermissions", permissions=["clipboardReadWrite"])
    browser.click("#copy-all")
    copied = browser.run("return navigator.clipboard.readText()")
    assert browser.complaints() == []
    texts = read_labels_csv(server.kept / "pages" / "labels.csv").texts
    assert texts == ("-0794,50\n+2\n8/9",)
    lines = read_labels_csv(server.kept / "lines" / "labels.csv")
    assert lines.texts == ("+2",)  # there is no picture of what was typed at an end
    with Image.open(lines.files[0]) as picture:
        assert 100 < picture.width < 2 * picture.height < 200
    assert len((server.kept / "digits" / "train-writers.txt").read_text().split()) == 5
    assert [row["text"] for row in table_of(tmp_path / "digits.csv")] == ["'-0794,50\n+2\n8/9", "", "56"]
    lines = ["a.png\t0\t-0794,50", "a.png\t0\t+2", "a.png\t0\t8/9", "b.tif\t1\t56"]
    assert copied.splitlines() == (tmp_path / "digits.tsv").read_text().splitlines() == lines
    told = "a.png: -0794,50 | +2 | 8/9\nb.tif: \nb.tif page 2: 56\n"
    assert (tmp_path / "digits.txt").read_text() == told
    record, *_ = records(tmp_path / "digits.jsonl")
    assert "".join(digit["char"] for digit in record["digits"] if digit["box"]) == "07942"
    assert [sign["char"] for sign in record["signs"]] == ["+"]


def test_fields_are_drawn_and_cells_in_doubt_reviewed(server, browser, tmp_path, monkeypatch):
    for name, text in (("blank", ""), ("one", "123"), ("two", "456"), ("three", "")):
        (tmp_path / f"{name}.png").write_bytes(sheet(text))
    (tmp_path / "other.png").write_bytes(page_file("7"))
    struck = Image.open(tmp_path / "one.png")
    strokes = [(225, 390), (345, 460), (345, 390), (225, 460), (350, 420), (220, 440), (350, 395)]
    ImageDraw.Draw(struck).line(strokes, 40, 8)
    struck.save(tmp_path / "struck.png")

    def boxes(browser: Chromium) -> Any:
        some = "[...document.querySelectorAll('.field')]"
        return browser.run(f"return {some}.map(({{ style: s }}) => [s.left, s.top, s.width, s.height])")

    browser.open(f"{server.address}forms")
    browser.wait_for("Boolean(document.getElementById('sheets')?.onchange)")
    browser.type("#open", str(tmp_path / "blank.png"))
    browser.wait_for("document.getElementById('blank').naturalWidth === 600")
    browser.drag("#sheet", (0.2, 0.45), (0.5, 0.5), (0.6, 0.6))
    browser.type("#name", "constructor")  # which objects of JavaScript have, asked or not
    browser.type("#valid", "123\n457")
    (drawn,) = boxes(browser)
    browser.drag(".field", (0.5, 0.5), (0.6, 0.6))
    assert boxes(browser) != [drawn]
    browser.type("#sheet", f"{CONTROL}z")
    assert boxes(browser) == [drawn]
    browser.drag(".field", (1, 0.5), (1.1, 0.5))  # its edge
    (wider,) = boxes(browser)
    assert (wider[:2], float(wider[2][:-1])) == (drawn[:2], pytest.approx(44, abs=0.5))
    browser.drag("#sheet", (0.1, 0.7), (0.3, 0.8))
    browser.type("#sheet", DELETE)
    assert boxes(browser) == [wider]
    browser.type("#sheet", f"{CONTROL}zz")
    assert boxes(browser) == [wider]
    browser.type("#open", str(tmp_path / "other.png"))
    browser.wait_for(count("#tabs [aria-pressed]", 2))
    browser.click("#tabs [title^=Delete]")
    assert boxes(browser) == [wider]
    browser.drag(".field", (0.5, 0.5), (0.5, 0.5))
    browser.type("#rule", "sum of others")
    browser.click("#save")
    browser.shows("told", "others")
    until(lambda: (tmp_path / "form.json").exists())
    (tmp_path / "form.json").rename(tmp_path / "wrong.json")
    browser.drag(".field", (0.5, 0.5), (0.5, 0.5))
    browser.type("#rule", 13 * BACKSPACE)
    for answer, told in (("false", "/^$/"), ("true", "/others/")):  # nothing is lost unasked
        browser.run(f"window.confirm = () => {answer}")
        browser.type("#open", str(tmp_path / "wrong.json"))
        browser.wait_for(f"{told}.test(document.getElementById('told').textContent)")
    browser.type("#sheet", f"{CONTROL}z")  # nothing of the form before
    assert boxes(browser) == [wider]
    browser.drag(".field", (0.5, 0.5), (0.5, 0.5))
    browser.type("#rule", 13 * BACKSPACE)
    (tmp_path / "empty.json").write_text('{"form": 1, "layouts": []}')
    browser.type("#open", str(tmp_path / "empty.json"))
    browser.shows("told", "is no form")
    browser.click("#save")
    browser.wait_for("document.getElementById('told').textContent === ''")
    until(lambda: (tmp_path / "form.json").exists())
    names = ("one", "two", "three", "other", "struck")
    browser.type("#sheets", "\n".join(str(tmp_path / f"{name}.png") for name in names))
    browser.wait_for("document.getElementById('count').textContent.startsWith('5 sheets')")
    assert "does not fit" in browser.run("return document.getElementById('problems').innerText")
    shown = browser.run("return [...document.querySelectorAll('#cells input')].map((one) => one.value)")
    # what is in no list first; of what is struck out no part; the others are sure
    assert (shown[:2], sorted(shown[2:])) == (["456", "?"], ["", "123"])
    said = browser.run("return document.getElementById('count').textContent")
    assert said == "5 sheets, 4 cells: 2 in doubt, 0 checked."
    browser.click("[data-table=csv]")  # as the command writes it
    until(lambda: (tmp_path / "table.csv").exists())
    browser.run("document.querySelector('#cells input').focus()")
    browser.type(":focus", f"45{ENTER}")
    browser.type(":focus", f"{CONTROL}z")  # takes it back
    browser.type(":focus", f"45 7{ENTER}{ENTER}{TAB}")  # a ? is nothing to agree with
    browser.run("[...document.querySelectorAll('#cells input')].find((one) => one.value === '123').focus()")
    browser.type(":focus", ENTER)
    for table in ("tsv", "jsonl"):
        browser.click(f"[data-table={table}]")
    browser.click("#labels")
    browser.wait_for("document.getElementById('count').textContent === '2 cells are saved as lines.'")
    until(lambda: (tmp_path / "table.jsonl").exists())
    assert ["api/form" in line for line in browser.complaints()] == [True, True]  # of the wrong form
    assert sorted(read_labels_csv(server.kept / "lines" / "labels.csv").texts) == ["123", "45 7"]
    saved = {own["source"]: own for own in records(tmp_path / "table.jsonl")}
    texts = [saved[f"{name}.png"]["fields"]["constructor"]["text"] for name in ("one", "two", "three")]
    assert texts == ["123", "45 7", ""]
    monkeypatch.chdir(tmp_path)
    told = run("read", *(f"{name}.png" for name in names), "--form", "form.json", "--format", "csv")
    assert sorted(told.stdout.splitlines()) == sorted((tmp_path / "table.csv").read_text().splitlines())


def test_a_correction_weighs_the_rules_of_its_sheet_again(server: Server, browser: Chromium) -> None:
    folder, said = Path(__file__).parents[1] / "data/form", "document.getElementById('count').textContent"
    cells = "[...document.querySelectorAll('#cells input')].map(({ value }) => value)"
    browser.open(f"{server.address}forms")
    browser.wait_for("Boolean(document.getElementById('sheets')?.onchange)")
    browser.type("#open", f"{folder / 'form.json'}\n{folder / 'blank.png'}")
    browser.wait_for("document.getElementById('blank').naturalWidth > 0")
    browser.type("#sheets", str(folder / "scans/3.jpg"))
    browser.wait_for(f"{said} === '1 sheet, 5 cells: 3 in doubt, 0 checked.'")  # 1165 + 292 is not 1467
    place = browser.run(f"return {cells}").index("1165") + 1
    browser.run("document.querySelector(`#cells li:nth-child(${arguments[0]}) input`).focus()", place)
    browser.type(":focus", f"1175{ENTER}")
    browser.wait_for(f"{said} === '1 sheet, 5 cells: 0 in doubt, 1 checked.'")
    browser.type(":focus", f"{CONTROL}z")
    browser.wait_for(f"{said} === '1 sheet, 5 cells: 3 in doubt, 0 checked.'")
    browser.type(":focus", f"1175{ENTER}")
    browser.wait_for(f"{said} === '1 sheet, 5 cells: 0 in doubt, 1 checked.'")
    browser.run(f"[...document.querySelectorAll('#cells input')][{cells}.indexOf('1467')].focus()")
    browser.type(":focus", f"1468{ENTER}")  # now 292 is in doubt, and the next
    browser.wait_for(f"{said} === '1 sheet, 5 cells: 1 in doubt, 2 checked.'")
    assert not browser.complaints()


def test_the_camera_reads_a_clip(server: Server, tmp_path: Path) -> None:
    frame = Image.fromarray(page("3846")).resize((640, 480)).convert("RGB")
    (tmp_path / "clip.mjpeg").write_bytes(file_of(frame, "JPEG", quality=95) * 10)
    with Chromium(
        "--use-fake-ui-for-media-stream",
        "--use-fake-device-for-media-stream",
        f"--use-file-for-fake-video-capture={tmp_path / 'clip.mjpeg'}",
    ) as browser:
        visit(browser, server.address)
        browser.click("#show-camera")
        browser.wait_for("document.getElementById('number').textContent === '3846'")
        browser.click("#take")
        browser.wait_for(count("#list li", 1))
        browser.wait_for("document.getElementById('text').textContent === '3846'")
        assert browser.complaints() == []


def test_many_large_and_broken_files_in_two_windows(server: Server, tmp_path: Path) -> None:
    before = server.memory
    names = []
    for number in range(100):
        names.append(save_page(tmp_path / f"{number:03d}.png", f"{number:03d}\n{number:05d}"))
    with (tmp_path / "large.jpg").open("wb") as large:
        large.truncate(300 * 2**20)
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8\xff broken")
    names += [tmp_path / "large.jpg", tmp_path / "broken.jpg"]
    with Chromium() as browser, Chromium() as other:
        for one in (browser, other):
            visit(one, server.address)
            one.type("#files", "\n".join(map(str, names)))
        for one in (browser, other):
            one.wait_for(count("#list li", 102), seconds=240)
            said = one.run("return document.getElementById('list').innerText")
            assert all(f"{number:03d} · {number:05d}" in said for number in range(100))
            assert "at most 64 MB are taken" in said
            assert one.complaints() == []
    grown = server.memory - before
    print(f"memory grew by {grown:.0f} MB from {before:.0f} MB")
    assert grown < 300


@pytest.mark.parametrize("tls", [False, True])
def test_a_telephone_needs_the_token(tmp_path: Path, model: str, tls: bool) -> None:
    if tls and not shutil.which("openssl"):
        pytest.skip("needs openssl")
    words = ["--host", "0.0.0.0", "--model", model]
    if tls:
        names = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")]
        make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=neocog"]
        subprocess.run([*make, *names], check=True, capture_output=True)
        words += ["--certificate", names[3], "--key", names[1]]
    with serving(*words) as server, Chromium("--ignore-certificate-errors", mobile=True) as browser:
        assert server.address.startswith("https") is tls
        bare = server.address.rsplit("/", 2)[0] + "/"
        browser.open(bare)
        assert "nothing is here" in browser.run("return document.body.textContent")
        visit(browser, server.address)
        browser.type("#photo", str(save_page(tmp_path / "a.png", "12")))
        browser.wait_for("document.getElementById('text').textContent === '12'")
        assert browser.run("return Boolean(navigator.mediaDevices)") is tls
        browser.click("#show-camera")
        if not tls:
            browser.wait_for("document.getElementById('camera').innerText.includes('--certificate')")
        lines = browser.complaints()  # but for those of the address without the token
        assert [line for line in lines if not re.match(rf"{bare}(favicon.ico)? ", line)] == []
