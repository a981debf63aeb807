"""The page and the HTTP API: what is answered, what is refused, what is kept."""

import asyncio
import csv
import io
import json
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
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

from anyio.from_thread import start_blocking_portal
from starlette.testclient import TestClient

from neocog import Reader
from neocog.batch.sources import Item
from neocog.batch.tasks import Task
from neocog.learning.formats import read_idx, read_labels_csv
from neocog.reading.formats import Format
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
def client(api: Api) -> Iterator[TestClient]:
    client = TestClient(make_app(api), base_url="http://127.0.0.1:8000")
    with start_blocking_portal() as client.portal:  # one loop for all requests, as in a server
        yield client


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


def test_a_busy_server_says_when_to_come_again(client: TestClient, api: Api) -> None:
    for client_, held in (("testclient", app.MAX_HELD // 2), ("another", app.MAX_HELD)):
        api._held[client_] = held
        answer = client.post("/api/read", content=b"x")
        assert "busy" in error_of(answer, 503)
        assert answer.headers["retry-after"] == "1"
        api._held.clear()
    for client_, waiting in (("testclient", app.MAX_WAITING // 2), ("another", app.MAX_WAITING)):
        api._waiting[client_] = waiting
        assert "busy" in error_of(client.post("/api/read", content=b"x"), 503)
        api._waiting.clear()
    assert client.post("/api/read", content=b"x").status_code == 200
    assert not any((api._waiting, api._held, api._turns))


def answers(client: TestClient, receive: Any, *headers: tuple[bytes, bytes]) -> Any:
    """What the application sends for a picture that ``receive`` gives."""
    sent = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = scope_of("testclient", *headers)
    asyncio.run(client.app(scope, receive, send))  # type: ignore[arg-type]
    return sent


def test_who_was_let_in_is_not_turned_away_on_the_way(client: TestClient, api: Api) -> None:
    data, room = page_file("12"), []
    chunks = [data[:100], data[100:]]

    async def receive() -> dict[str, Any]:
        room.append(api._held.total())
        api._waiting["another"] = app.MAX_WAITING
        api._held["another"] = app.MAX_HELD
        if not chunks:
            await asyncio.sleep(60)
        return {"type": "http.request", "body": chunks.pop(0), "more_body": bool(chunks)}

    sent = answers(client, receive, (b"content-length", str(len(data)).encode()))
    assert sent[0]["status"] == 200
    assert room[0] == len(data)  # kept before any of it came
    assert (len(api._waiting), len(api._held)) == (1, 1)


def test_a_body_without_a_size_takes_the_room_of_the_largest(client: TestClient, api: Api) -> None:
    assert client.post("/api/read", content=iter([page_file("1")])).status_code == 200
    api._held["another"] = app.MAX_HELD - app.MAX_BYTES + 1
    assert "busy" in error_of(client.post("/api/read", content=iter([page_file("1")])), 503)
    assert client.post("/api/read", content=page_file("1")).status_code == 200


class Slow:
    """A service whose answers do not come."""

    def __init__(self) -> None:
        self.workers = 3
        self.asked: list[tuple[str, Future[Any]]] = []

    def ask(self, name: str, picture: bytes, **asked: Any) -> Future[Any]:
        self.asked.append((name, Future()))
        return self.asked[-1][1]


def scope_of(client: str, *headers: tuple[bytes, bytes], query: bytes = b"") -> dict[str, Any]:
    return {
        "type": "http", "method": "POST", "path": "/api/read", "query_string": query,
        "headers": [(b"host", b"127.0.0.1:8000"), *headers], "root_path": "", "client": (client, 1),
    }  # fmt: skip


def test_one_client_leaves_a_worker_to_others_and_its_work_ends_with_it() -> None:
    service, gone = Slow(), asyncio.Event()
    application = make_app(Api(service))  # type: ignore[arg-type]

    async def request(client: str) -> None:
        sent = False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if sent:
                await gone.wait()
                return {"type": "http.disconnect"}
            sent = True
            return {"type": "http.request", "body": b"x"}

        async def send(message: Any) -> None:
            pass

        await application(scope_of(client, query=f"name={client}".encode()), receive, send)

    async def several() -> None:
        async with asyncio.TaskGroup() as tasks:
            for client in ("a", "a", "a", "a", "b"):
                tasks.create_task(request(client))
            await asyncio.sleep(0.2)
            assert sorted(name for name, _ in service.asked) == ["a", "a", "b"]
            gone.set()

    asyncio.run(several())
    assert all(future.cancelled() for _, future in service.asked)


def test_no_more_connections_are_held_than_the_system_allows(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(guard, "_told", {})
    with server.listen("127.0.0.1", 0) as listener, ExitStack() as stack:
        assert 8 <= listener.most <= guard.CONNECTIONS
        listener.most, accepted, refused = 6, [], 0
        for number in range(8):
            one = stack.enter_context(socket.socket())
            one.bind((f"127.0.0.{2 + number // 5}", 0))  # five of the first address
            one.connect(listener.getsockname())
            try:
                accepted.append(listener.accept()[0])
            except BlockingIOError:
                refused += 1
                assert one.recv(1) == b""
        assert (len(accepted), refused) == (6, 2)
        accepted.pop().close()
        one = stack.enter_context(socket.create_connection(listener.getsockname()))
        accepted.append(listener.accept()[0])
        for connection in accepted:
            connection.close()
    assert capsys.readouterr().err.count("\n") == 1


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
    assert asyncio.run(heard(whole, b"bo")).endswith(b"\r\n\r\nbo")  # the rest is not waited for
    assert asyncio.run(heard(whole, b"body", b"GET")).endswith(b"\r\n\r\nbody")


def test_errors_of_connections_are_one_line_and_tls_has_a_deadline(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(guard, "_told", {})
    monkeypatch.setattr(guard, "HEADER", 0.2)

    async def silent() -> bytes:
        loop, context = asyncio.get_running_loop(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for _ in range(99):
            loop.call_exception_handler({"message": "no room", "exception": OSError(24, "too many")})
        async with await loop.create_server(asyncio.Protocol, "127.0.0.1", 0, ssl=context) as made:
            reader, writer = await asyncio.open_connection(*made.sockets[0].getsockname())
            said = await asyncio.wait_for(reader.read(), 3)
            writer.close()
        return said

    with asyncio.Runner(loop_factory=guard.Loop) as runner:
        assert runner.run(silent()) == b""
    assert capsys.readouterr().err == "neocog: no room: OSError(24, 'too many')\n"


def test_what_takes_too_long_is_given_up(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "PATIENCE", 0.0)
    error_of(client.post("/api/read", content=page_file("1")), 504)
    monkeypatch.undo()
    monkeypatch.setattr(guard, "UPLOAD", 0.05)

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


def keep(kept: Corrections, page: int = 0, text: str = "7") -> int:
    return kept.save(b"a", page, b"png", text, np.full((len(text), 28, 28), 9, np.uint8), list(text))


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (b"\xef\xbb\xbffile;text;note\r\na.png;1;x\r\n", [["file", "text", "note"], ["a.png", "1", "x"]]),
        (
            b'"note","text","file"\r\n"x","1\n2","a.png"\r\n',
            [["note", "text", "file"], ["x", "1\n2", "a.png"]],
        ),
        (b"file\ttext\na.png\n", [["file", "text"], ["a.png", ""]]),
        (b"", [["file", "text"]]),
    ],
)
def test_a_table_that_a_spreadsheet_saved_is_kept(
    tmp_path: Path, table: bytes, expected: list[list[str]]
) -> None:
    kept = Corrections(tmp_path)
    (tmp_path / "pages" / "labels.csv").write_bytes(table)
    assert [keep(kept), keep(kept)] == [len(expected)] * 2
    with (tmp_path / "pages" / "labels.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.reader(stream))
    assert rows[:-1] == expected
    assert dict(zip(rows[0], rows[-1], strict=True)).items() >= {"text": "7"}.items()


@pytest.mark.parametrize(
    ("file", "data", "words"),
    [
        ("pages/labels.csv", "file,text\n".encode("utf-16"), "save it as CSV in UTF-8"),
        ("pages/labels.csv", b"name,value\n", "columns 'file' and 'text'"),
        ("pages/labels.csv", b'file,text\n"a', "not a table"),
        ("digits/train-labels-idx1-ubyte", b"\0\0\x08\x01\0\0\0\2\1\1", "do not belong together"),
        ("digits/train-writers.txt", b"", "0 names of 1 digits"),
    ],
)
def test_a_set_that_cannot_be_read_is_left_as_it_is(
    client: TestClient, api: Api, tmp_path: Path, file: str, data: bytes, words: str
) -> None:
    assert api.corrections is not None
    keep(api.corrections)
    (tmp_path / "kept" / file).write_bytes(data)
    line = json.dumps({"text": "7", "page": 0, "digits": [{"char": "7", "box": [0, 0, 9, 9]}]}).encode()
    answer = client.post("/api/corrections", content=line + b"\n" + page_file("7"))
    assert words in error_of(answer, 409)
    assert str(tmp_path) not in answer.text
    assert (tmp_path / "kept" / file).read_bytes() == data


def test_a_save_that_was_interrupted_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Corrections(tmp_path)
    monkeypatch.setattr(kept, "_finish", lambda: None)
    keep(kept)
    (tmp_path / ".new").mkdir()
    (tmp_path / "pages" / ".file.abcd_123").touch()  # of a process that was killed when it began
    (tmp_path / "pages" / ".notes.markdown").write_text("not ours")
    Corrections(tmp_path).mend()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["digits", "pages"]
    assert len(list(tmp_path.glob("*/*"))) == 6  # a hidden file of somebody else stays
    kept.save(b"a", 0, b"png", "", np.zeros((0, 28, 28), np.uint8), [])
    Corrections(tmp_path).mend()
    assert not list((tmp_path / "digits").iterdir())  # a set without digits cannot be learned from


def test_a_folder_outlives_kills_at_any_moment(tmp_path: Path) -> None:
    code = "import sys, pathlib; from experiments.attacks.server import killed\n"
    code += "print(killed(pathlib.Path(sys.argv[1]), 40, seed=1))"
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "kept"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "0\n"
    kept = Corrections(tmp_path / "kept")
    kept.mend()
    pages = len(read_labels_csv(tmp_path / "kept" / "pages" / "labels.csv"))
    digits = len(read_idx(tmp_path / "kept" / "digits" / "train-images-idx3-ubyte"))
    assert (pages, digits) == (7, 70)


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
    large = json.dumps(record | {"more": "x" * app.MAX_LINE}).encode()
    assert "bytes of JSON" in error_of(client.post("/api/explain", content=large + b"\n" + data), 413)
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


def test_a_certificate_that_cannot_be_used_is_one_line(tmp_path: Path, model: str) -> None:
    (tmp_path / "pem").write_text("no certificate")
    wrong = ["--certificate", tmp_path / "pem"], ["--certificate", tmp_path / "none"], ["--key", "k"]
    for words in wrong:
        result = run("serve", "--port", "0", "--model", model, *words)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)


def test_the_address_for_others_is_no_wildcard() -> None:
    assert server.reachable("127.0.0.1") == "127.0.0.1"
    assert server.reachable("0.0.0.0") != "0.0.0.0"
    socket.inet_aton(server.reachable("0.0.0.0"))
