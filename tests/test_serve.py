"""The page and the HTTP API: what is answered, what is refused, what is kept."""

import asyncio
import csv
import io
import json
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.picture_files import file_of, page_file
from tests.support import page, run, tiny_model

pytest.importorskip("starlette")
pytest.importorskip("httpx2")

from starlette.testclient import TestClient

from neocog import Reader
from neocog.batch.formats import Format
from neocog.batch.sources import Item
from neocog.batch.tasks import Task
from neocog.serve import app, guard, server, work
from neocog.serve.app import Api, make_app
from neocog.serve.corrections import Corrections
from neocog.serve.work import ServeJob, Service

STATIC = Path(app.__file__).parent / "static"
tiff = partial(page_file, kind="TIFF")


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(Reader(tiny_model()), workers=0) as running:
        yield running


@pytest.fixture
def api(service: Service, tmp_path: Path) -> Api:
    return Api(service, Corrections(tmp_path / "kept"))


@pytest.fixture
def client(api: Api) -> TestClient:
    return TestClient(make_app(api), base_url="http://127.0.0.1:8000")


def error_of(answer: Any, status: int) -> str:
    """The one line of an error, which names no file of this machine."""
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    message: str = answer.json()["error"]
    assert "\n" not in message
    assert str(Path.cwd()) not in message
    return message


# --- reading ----------------------------------------------------------------------------------


def test_a_picture_gives_the_records_of_the_command(client: TestClient, tmp_path: Path) -> None:
    data = page_file("07946\n12")
    (record,) = client.post("/api/read?name=a.png", content=data).json()
    assert (record["source"], record["text"], record["error"]) == ("a.png", "07946\n12", None)
    (tmp_path / "a.png").write_bytes(data)
    tiny_model().save(tmp_path / "tiny.safetensors")
    said = run("read", tmp_path / "a.png", "--model", tmp_path / "tiny.safetensors", "--format", "jsonl")
    assert record == json.loads(said.stdout) | {"source": "a.png", "model": record["model"]}


def test_a_file_that_is_no_picture_is_a_record_with_its_error(client: TestClient) -> None:
    (record,) = client.post("/api/read?name=x.jpg", content=b"no picture").json()
    assert record["source"] == "x.jpg"
    assert "not a picture" in record["error"]


def test_pages_of_a_file_are_read_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "MAX_PAGES", 2)
    job = ServeJob(Reader(tiny_model()), Format("jsonl"))
    item = Item("a.tif", json.dumps({"what": "read", "live": False}), data=tiff(*"123"))
    records = job.do(Task(0, (item,))).value
    assert [record["text"] for record in records] == ["1", "2", ""]
    assert "more than 2 pages" in records[2]["error"]


def test_a_page_that_no_browser_knows_is_shown(client: TestClient) -> None:
    shown = client.post("/api/page?page=1", content=tiff("1", "23"))
    with Image.open(io.BytesIO(shown.content)) as picture:
        assert (picture.format, picture.size) == ("JPEG", Image.fromarray(page("23")).size)
    assert "no page 7" in error_of(client.post("/api/page?page=7", content=tiff("1")), 422)


def test_twenty_requests_at_once_lose_no_answer(client: TestClient) -> None:
    texts = [f"{number:03d}" for number in range(20)]

    def ask(text: str) -> str:
        answer = client.post("/api/read", content=page_file(text))
        return str(answer.json()[0]["text"])

    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(ask, texts)) == texts


def test_what_reads_here_and_how_much(client: TestClient) -> None:
    about = client.get("/api").json()
    assert about["max_bytes"] == app.MAX_BYTES
    assert ".png" in about["suffixes"]


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"Host": "evil.example"}, "the URL that neocog printed"),
        ({"Host": "127.0.0.1.evil.example:8000"}, "the URL that neocog printed"),
        ({"Host": ""}, "the URL that neocog printed"),
        ({"Host": "["}, "the URL that neocog printed"),
        ({"Origin": "http://evil.example"}, "another site"),
        ({"Origin": "http://127.0.0.1:9000"}, "another site"),
        ({"Origin": "null"}, "another site"),
        ({"Origin": "http://["}, "another site"),
    ],
)
def test_other_sites_are_refused(client: TestClient, headers: dict[str, str], words: str) -> None:
    assert words in error_of(client.get("/api", headers=headers), 403)


@pytest.mark.parametrize("host", ["localhost:8000", "192.168.1.5:8000", "[::1]:8000"])
def test_numeric_addresses_are_ours(client: TestClient, host: str) -> None:
    headers = {"Host": host, "Origin": f"http://{host}"}
    assert client.get("/api", headers=headers).status_code == 200


def test_every_answer_keeps_outside_sources_out(client: TestClient) -> None:
    for address in ("/", "/docs", "/static/app.js", "/api", "/nothing"):
        policy = client.get(address).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
    for file in STATIC.iterdir():
        text = file.read_text(encoding="utf-8")
        outside = re.findall(r"""(?:src|href|from|url\(|import)\s*[=(]?\s*["']?(https?:[^"' )]*)""", text)
        assert not outside, file.name
        assert not re.search(r"<script(?![^>]*src=)|<style| style=| on\w+=\"", text), file.name


@pytest.mark.parametrize("path", ["/nothing", "/static/../app.py", "/static/%2e%2e/app.py"])
def test_no_other_file_is_served(client: TestClient, path: str) -> None:
    error_of(client.get(path), 404)


def test_requests_that_make_no_sense(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "use POST" in error_of(client.get("/api/read"), 405)
    assert "use GET" in error_of(client.post("/api"), 405)
    assert "use GET" in error_of(client.post("/static/app.js"), 405)
    assert "nothing came" in error_of(client.post("/api/read"), 400)
    assert "--data-binary" in error_of(client.post("/api/read", files={"f": b"x"}), 415)
    assert "expected a number" in error_of(client.post("/api/page?page=-1", content=b"x"), 400)
    monkeypatch.setattr(app, "MAX_BYTES", 10)
    assert "expected at most 10" in error_of(client.post("/api/read", content=b"x" * 11), 413)
    unsized = (b"x" for _ in range(11))
    assert "expected at most 10" in error_of(client.post("/api/read", content=unsized), 413)


def test_a_busy_server_says_when_to_come_again(
    client: TestClient, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "MAX_HELD", 10)
    answer = client.post("/api/read", content=b"x" * 11)
    assert "busy" in error_of(answer, 503)
    assert answer.headers["retry-after"] == "1"
    monkeypatch.undo()
    api._waiting = app.MAX_WAITING + 1
    assert "busy" in error_of(client.post("/api/read", content=b"x"), 503)
    api._waiting = 0
    assert client.post("/api/read", content=b"x").status_code == 200
    assert (api._waiting, api._held) == (0, 0)


def answers(client: TestClient, receive: Any, *headers: tuple[bytes, bytes]) -> Any:
    """What the application sends for a picture that ``receive`` gives."""
    sent = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/api/read", "query_string": b"",
        "headers": [(b"host", b"127.0.0.1:8000"), *headers], "root_path": "",
    }  # fmt: skip
    asyncio.run(client.app(scope, receive, send))  # type: ignore[arg-type]
    return sent


def test_who_was_let_in_is_not_turned_away_on_the_way(client: TestClient, api: Api) -> None:
    data, room = page_file("12"), []
    chunks = [data[:100], data[100:]]

    async def receive() -> dict[str, Any]:
        room.append(api._held)
        api._waiting += app.MAX_WAITING  # others come
        api._held += app.MAX_HELD
        return {"type": "http.request", "body": chunks.pop(0), "more_body": bool(chunks)}

    sent = answers(client, receive, (b"content-length", str(len(data)).encode()))
    assert sent[0]["status"] == 200
    assert room[0] == len(data)  # kept before any of it came
    assert (api._waiting, api._held) == (2 * app.MAX_WAITING, 2 * app.MAX_HELD)


def test_a_body_without_a_size_takes_the_room_of_the_largest(
    client: TestClient, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "MAX_HELD", app.MAX_BYTES)
    assert client.post("/api/read", content=iter([page_file("1")])).status_code == 200
    api._held = 1
    assert "busy" in error_of(client.post("/api/read", content=iter([page_file("1")])), 503)
    assert client.post("/api/read", content=page_file("1")).status_code == 200
    assert (api._waiting, api._held) == (0, 1)


def test_who_sends_no_whole_header_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    import uvicorn
    from uvicorn.server import ServerState

    monkeypatch.setattr(guard, "HEADER", 0.2)

    async def echo(scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        head = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": body})

    async def heard(*parts: bytes) -> bytes:
        config, state = uvicorn.Config(echo, log_config=None), ServerState()
        made = await asyncio.get_running_loop().create_server(
            lambda: guard.Connection(config, state, {}), "127.0.0.1", 0
        )
        async with made:
            reader, writer = await asyncio.open_connection(*made.sockets[0].getsockname())
            for part in parts:
                writer.write(part)
                await asyncio.sleep(0.3 if part.endswith(b"\r\n\r\n") else 0.05)
            said = await asyncio.wait_for(reader.read(), 3)  # keeping alive would take 5
            writer.close()
            assert not state.connections
        return said

    whole = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n"
    assert asyncio.run(heard()) == b""
    assert asyncio.run(heard(b"GET / HT", b"TP/1.1\r\n")) == b""
    assert asyncio.run(heard(whole, b"body", b"GET")).endswith(b"\r\n\r\nbody")


def test_what_takes_too_long_is_given_up(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "PATIENCE", 0.0)
    error_of(client.post("/api/read", content=page_file("1")), 504)
    monkeypatch.undo()
    monkeypatch.setattr(app, "UPLOAD", 0.05)

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(10)
        return {"type": "http.disconnect"}

    assert answers(client, receive)[0]["status"] == 408


def test_a_fault_of_the_server_is_one_line(
    client: TestClient, api: Api, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(api.service, "ask", lambda *_, **__: 1 / 0)
    assert "the server failed" in error_of(client.post("/api/read", content=b"x"), 500)
    assert capsys.readouterr().err == ("neocog: a request failed: ZeroDivisionError: division by zero\n")


def test_with_a_token_all_addresses_begin_with_it(api: Api) -> None:
    client = TestClient(make_app(api, token="secret"), base_url="http://10.0.0.7:8000")
    assert client.get("/secret").url.path == "/secret/"
    for path in ("", "docs", "api", "static/app.js"):
        assert client.get(f"/secret/{path}").status_code == 200
        error_of(client.get(f"/{path}"), 404)


# --- corrections ------------------------------------------------------------------------------


def test_corrected_pages_are_a_labelled_set(client: TestClient, tmp_path: Path, model: str) -> None:
    for text in ("0123456789", "98765\n43210"):
        data = page_file(text)
        (record,) = client.post("/api/read", content=data).json()
        assert record["text"] == text
        for _ in range(2):  # what comes again replaces what was there
            line = json.dumps(record).encode()
            answer = client.post("/api/corrections", content=line + b"\n" + data)
    assert answer.json() == {"pages": 2}
    kept = tmp_path / "kept"
    with (kept / "pages" / "labels.csv").open(newline="") as stream:
        assert [row["text"] for row in csv.DictReader(stream)] == ["0123456789", "98765\n43210"]
    pages = run("eval", kept / "pages", "--model", model, "--json")
    assert json.loads(pages.stdout)["cer"] == 0
    digits = run("eval", kept / "digits", "--model", model, "--json")
    assert (json.loads(digits.stdout)["n"], json.loads(digits.stdout)["accuracy"]) == (20, 1.0)
    learned = run("train", "--data", kept / "digits", "-o", tmp_path / "new", "--recipe", "fukushima2003")
    assert learned.exit_code == 0, learned.stderr


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"text": "?"}, "correct each ?"),
        ({"digits": [{"char": "x", "box": [0, 0, 9, 9]}]}, "correct each ?"),
        ({"digits": [{"char": "7", "box": [0, 0, 0, 9]}]}, "expected boxes"),
        ({"digits": [{"char": "7", "box": [0, 0, 1e999, 9]}]}, "expected boxes"),
        ({"digits": [{"char": "7"}]}, "a line of JSON"),
        ({"page": -1}, "expected boxes"),
        ({"page": "one"}, "a line of JSON"),
        ({"turn": 45}, "expected boxes"),
        ({"text": "7\r\n"}, "a text of digits"),
        ({"text": "7\ud800"}, "a text of digits"),
        ({"text": "=CMD(7)"}, "a text of digits"),
        ({"text": "٧7"}, "a text of digits"),
        ({"text": "77"}, "the same digits"),
        ({"text": ""}, "the same digits"),
    ],
)
def test_corrections_that_make_no_sense(
    client: TestClient, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    record = {"text": "7", "page": 0, "digits": [{"char": "7", "box": [0, 0, 9, 9]}]} | change
    body = json.dumps(record).encode() + b"\n" + page_file("7")
    assert words in error_of(client.post("/api/corrections", content=body), 400)
    assert not list((tmp_path / "kept" / "pages").iterdir())


def test_the_labels_hold_no_formula(client: TestClient, api: Api, tmp_path: Path) -> None:
    api.signs += "€"  # of a pattern
    record = {"page": 0, "digits": [{"char": "7", "box": [0, 0, 9, 9]}]}
    for number, text in enumerate(("=7", "-7", "€ 7")):
        data = tiff("7", "7", "7")
        line = json.dumps(record | {"text": text, "page": number}).encode()
        assert client.post("/api/corrections", content=line + b"\n" + data).is_success
    with (tmp_path / "kept" / "pages" / "labels.csv").open(newline="", encoding="utf-8") as stream:
        assert [row["text"] for row in csv.DictReader(stream)] == ["'=7", "-7", "€ 7"]


def test_corrections_are_kept_only_where_it_was_asked_for(service: Service) -> None:
    client = TestClient(make_app(Api(service)), base_url="http://127.0.0.1:8000")
    assert client.get("/api").json()["corrections"] is False
    assert "--corrections" in error_of(client.post("/api/corrections", content=b"{}\n"), 409)


def test_a_digit_is_explained(client: TestClient) -> None:
    data = page_file("7")
    (record,) = client.post("/api/read", content=data).json()
    line = json.dumps(record).encode()
    answer = client.post("/api/explain", content=line + b"\n" + data)
    with Image.open(io.BytesIO(answer.content)) as picture:
        assert picture.format == "PNG"
    blank = file_of(Image.new("L", (400, 400), 255))
    bare = client.post("/api/explain", content=line + b"\n" + blank)
    assert "nothing to explain" in error_of(bare, 422)
    none = json.dumps(record | {"digits": []}).encode()
    assert "expected one" in error_of(client.post("/api/explain", content=none + b"\n" + data), 400)


def test_digits_are_cut_out_as_the_reader_does(service: Service) -> None:
    data = page_file("472")
    reader = Reader(tiny_model())
    layout = reader.find(page("472"))
    places = [place for line in layout.lines for place in line.digits]
    marks = {"page": 0, "turn": 0, "boxes": [list(place.box) for place in places]}
    _, digits = service.ask("a", data, what="cut", marks=marks).result(30)
    for place, digit in zip(places, digits, strict=True):
        assert np.abs(place.digit.astype(int) - digit).mean() < 8  # boxes are whole pixels here


# --- the command ------------------------------------------------------------------------------


def test_a_port_in_use_is_one_line(model: str) -> None:
    with server.listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        result = run("serve", "--port", str(port), "--model", model)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"neocog: port {port} of 127.0.0.1 cannot be used (")
    assert result.stderr.count("\n") == 1


def test_an_address_of_another_machine_is_one_line(model: str) -> None:
    for host in ("no.such.host.invalid", "192.0.2.77", ""):
        result = run("serve", "--host", host, "--port", "0", "--model", model)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    monkeypatch.setitem(__import__("sys").modules, "uvicorn", None)
    result = run("serve", "--model", model)
    assert result.exit_code == 2
    assert 'pip install "neocog[web]"' in result.stderr


def test_a_certificate_is_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if server.shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    import ssl

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    certificate, key = server.make_certificate("192.168.1.5")
    assert Path(key).stat().st_mode & 0o077 == 0
    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    assert server.make_certificate("192.168.1.5") == (certificate, key)
    assert len(list((tmp_path / "neocog" / "tls").iterdir())) == 2
    monkeypatch.setenv("PATH", "")
    result = run("serve", "--tls", "--host", "127.0.0.2", "--port", "0")
    assert (result.exit_code, "needs the program openssl" in result.stderr) == (2, True)


def test_a_telephone_can_read_the_address() -> None:
    import cv2

    address = "http://192.168.1.5:8000/abcdefghijkl/"
    rows = server.qr_code(address).splitlines()
    dark = {" ": (0, 0), "▄": (0, 1), "▀": (1, 0), "█": (1, 1)}
    pixels = np.array([[dark[char][half] for char in row] for row in rows for half in (0, 1)])
    picture = np.kron(pixels, np.full((8, 8), 255)).astype(np.uint8)
    assert cv2.QRCodeDetector().detectAndDecode(picture)[0] == address


def test_the_address_for_others_is_no_wildcard() -> None:
    assert server.reachable("127.0.0.1") == "127.0.0.1"
    assert server.reachable("0.0.0.0") != "0.0.0.0"
    socket.inet_aton(server.reachable("0.0.0.0"))
