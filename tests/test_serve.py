"""The page and the HTTP API: what is answered, what is refused, what is kept."""

import asyncio
import base64
import csv
import io
import ipaddress
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import cv2
import numpy as np
import pytest
from PIL import Image

from neocog.errors import EndedEarly, InputError
from tests.support import file_of, page, page_file, refused, run, sheet, table_of, tiny_model, until

pytest.importorskip("starlette")
pytest.importorskip("httpx2")

import uvicorn
from anyio.from_thread import start_blocking_portal
from starlette.testclient import TestClient
from uvicorn.server import ServerState

from neocog import Reader
from neocog.batch.archives import Item
from neocog.batch.tasks import Task
from neocog.learning.datasets import read_idx, read_labels_csv
from neocog.reading.formats import Format
from neocog.reading.forms import load_form
from neocog.reading.sheets import _blanks, read_sheets
from neocog.serve import app, server, work
from neocog.serve.app import Api, make_app
from neocog.serve.corrections import Corrections
from neocog.serve.work import Answer, ServeJob, Service
from neocog.vision.crops import digit_of_box
from tests.faults import FaultyServeJob

posix = pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")


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


def opened(picture: bytes | str) -> Image.Image:
    """A picture of bytes, or of a data: URL."""
    if isinstance(picture, str):
        picture = base64.b64decode(picture.partition(",")[2])
    return Image.open(io.BytesIO(picture))


def scope_of(client: str) -> dict[str, Any]:
    return {
        "type": "http", "method": "POST", "path": "/api/read", "query_string": f"name={client}".encode(),
        "headers": [(b"host", b"127.0.0.1:8000")], "root_path": "", "client": (client, 1),
    }  # fmt: skip


async def status_of(application: Any, client: str, *chunks: bytes, gone: asyncio.Event) -> int:
    """What a client is answered who sends a picture, or nothing, and stays until it is gone; 0 is nothing."""
    left, sent = [{"type": "http.request", "body": chunk} for chunk in chunks], list[Any]()

    async def receive() -> dict[str, Any]:
        if left:
            return left.pop(0)
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await application(scope_of(client), receive, send)
    return sent[0].get("status", 0) if sent else 0


# --- reading ----------------------------------------------------------------------------------


def test_a_picture_gives_the_records_of_the_command(client: TestClient, tmp_path: Path) -> None:
    data = page_file("07946\n12")
    (record,) = client.post("/api/read?name=a.png", content=data).json()
    assert (record["source"], record["text"], record["error"]) == ("a.png", "07946\n12", None)
    (tmp_path / "a.png").write_bytes(data)
    tiny_model().save(tmp_path / "tiny.safetensors")
    said = run("read", tmp_path / "a.png", "--model", tmp_path / "tiny.safetensors", "--format", "jsonl")
    assert record == json.loads(said.stdout) | {"source": "a.png", "model": record["model"]}
    (record,) = client.post("/api/read?name=x.jpg", content=b"no picture").json()
    assert record["source"] == "x.jpg"
    assert "not a picture" in record["error"]


def do(reader: Reader, picture: bytes, what: str, **more: Any) -> Answer:
    item = Item("a.png", json.dumps({"what": what, **more}), data=picture)
    return ServeJob(reader, Format("jsonl")).do(Task(0, (item,)))


def test_pages_of_a_file(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "MAX_PAGES", 2)
    records = do(Reader(tiny_model()), page_file(*"123", kind="TIFF"), "read", live=False).value
    assert [record["text"] for record in records] == ["1", "2", ""]
    assert "more than 2 pages" in records[2]["error"]
    tiff = page_file("1", "23", kind="TIFF")  # which no browser knows
    shown = opened(client.post("/api/page?page=1", content=tiff).content)
    assert (shown.format, shown.size) == ("JPEG", page("23").shape[::-1])
    assert "no page 8" in error_of(client.post("/api/page?page=7", content=tiff), 422)
    small = client.post("/api/thumbnails", content=tiff).json()
    assert [max(opened(picture).size) for picture in small] == [128, 128]
    assert client.post("/api/thumbnails", content=b"no picture").json() == []
    (record,) = client.post("/api/read?table=1", content=page_file("12\n3")).json()
    assert record["table"] == [["12"], ["3"]]


def test_a_form_with_a_picture(client: TestClient) -> None:
    data = page_file("12")
    (record,) = client.post("/api/read", files={"file": ("ä.png", data)}).json()
    assert (record["source"], record["text"]) == ("ä.png", "12")
    told = {"record": json.dumps(record, indent=1)}
    assert client.post("/api/corrections", data=told, files={"file": ("a", data)}).json()["lines"] == 1
    head = b'--x\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n'
    for words, body, boundary in (
        ("got 2 files", 2 * (head + b"\r\n1\r\n") + b"--x--", "; boundary=x"),
        ("got 0 files", b"--x\r\nContent-Disposition: form-data; name=f\r\n\r\n1\r\n--x--", "; boundary=x"),
        ("broken form", 9 * (head + b"\r\n1\r\n") + b"--x--", "; boundary=x"),
        ("broken form", head + b"\r\n1\r\n", "; boundary=x"),
        ("broken form", head.replace(b"--x", b"--") + b"\r\n1\r\n----", ""),
        ("no header", head + b"X: " + b"x" * 5000 + b"\r\n\r\n1\r\n--x--", "; boundary=x"),
        ("no header", b"--x\r\n1\r\n--x--", "; boundary=x"),
    ):
        kind = {"content-type": f"multipart/form-data{boundary}"}
        assert words in error_of(client.post("/api/read", content=body, headers=kind), 400)


def test_requests_at_once_lose_no_answer(client: TestClient) -> None:
    texts = [str(number) for number in range(100, 110)]
    with ThreadPoolExecutor(len(texts)) as pool:
        answers = pool.map(lambda text: client.post("/api/read", content=page_file(text)), texts)
        assert [answer.json()[0]["text"] for answer in answers] == texts


# --- forms ------------------------------------------------------------------------------------


def form_of(blank: bytes, **more: Any) -> dict[str, Any]:
    field = {"name": "a", "box": [0.2, 0.45, 0.4, 0.15]}
    url = f"data:image/png;base64,{base64.b64encode(blank).decode()}"
    return {"form": 1, "layouts": [{"name": "m", "pages": [{"blank": url, "fields": [field | more]}]}]}


def test_sheets_of_a_form_are_read_and_their_cells_kept_as_lines(client: TestClient, tmp_path: Path) -> None:
    form, data = json.dumps(form_of(sheet(""), pattern="###")), sheet("123", 7)
    answer = client.post("/api/sheets?pictures=1&name=a.png", content=form.encode() + b"\n" + data)
    (record,) = answer.json()
    cell = record["fields"]["a"]
    assert (record["source"], record["layout"], record["error"], cell["read"]) == ("a.png", "m", None, "123")
    picture = opened(cell["picture"])
    assert picture.height == 96 + 2 * 24
    assert 1.5 < picture.width / picture.height < 2.5
    file = {"file": ("b.png", page_file("7"))}
    for fields, files in (({"form": form}, {}), ({}, {"form": ("form.json", form)})):
        (other,) = client.post("/api/sheets", data=fields, files=file | files).json()
        assert (other["source"], other["error"][:19]) == ("b.png", "page 1 does not fit")
    strips, kept = dict[Path, Any](), tmp_path / "kept"
    told: dict[str, Any] = {"text": "123", "digits": [{"char": c, "box": None} for c in "123"], "cells": True}
    for turn in range(4):  # however the sheet lies
        turned = file_of(opened(data).rotate(90 * turn, expand=True))
        (record,) = client.post("/api/sheets", content=form.encode() + b"\n" + turned).json()
        cell = record["fields"]["a"]
        assert not {"picture", "before"} & {*cell}, "nobody asked for them"
        told["lines"] = [{"text": "123", "corners": cell["corners"]}]
        assert correct(client, told, turned).json() == {"pages": 0, "lines": 1}
        (file,) = set((kept / "lines").glob("*.png")) - {*strips}
        strips[file] = np.asarray(Image.open(file))
    first, *others = strips.values()
    assert all(cv2.matchTemplate(o, first[8:-8, 8:-8], cv2.TM_CCOEFF_NORMED).max() > 0.9 for o in others)
    assert read_labels_csv(kept / "lines" / "labels.csv").texts == ("123",) * 4
    assert not [*(kept / "pages").glob("*.png")], "there is more on the page than the cells say"
    told["lines"][0]["corners"] = [[0, 0], [9000, 0], [9000, 10], [0, 10]]
    assert "leave the page" in error_of(correct(client, told, turned), 422)


def test_rules_are_weighed_again_with_what_a_person_said(client: TestClient) -> None:
    folder = Path(__file__).parents[1] / "data/form"
    form = json.loads((folder / "form.json").read_text())
    (page,) = form["layouts"][0]["pages"]
    page["blank"] = form_of((folder / "blank.png").read_bytes())["layouts"][0]["pages"][0]["blank"]
    body = json.dumps(form).encode() + b"\n" + (folder / "scans/3.jpg").read_bytes()
    reader = Reader()
    (record,) = do(reader, body, "sheets", pictures=True).value
    (sheet,) = read_sheets(reader.for_sheets(), load_form(folder / "form.json"), folder / "scans/3.jpg")
    before = {name: cell.pop("before") for name, cell in record["fields"].items()}
    assert all(cell.pop("picture") for cell in record["fields"].values())
    assert record["fields"] == sheet.to_dict()["fields"], "as the command reads it"
    layout = {"name": "meter", "pages": [{"fields": page["fields"]}]}

    def texts(**said: str) -> Any:
        asked = json.dumps({"layout": layout, "fields": before | said}).encode()
        return {name: own["text"] for name, own in do(reader, asked, "weigh").value.items()}

    known = {"meter": "20619", "day": "08/02"}
    assert texts() == known | {"before": "?", "used": "?", "now": "?"}  # 1165 + 292 is not 1467
    assert texts(before="1175") == known | {"used": "292", "now": "1467"}
    assert texts(before="1165", used="292") == known | {"now": "?"}
    assert texts(before="1165", used="", now="1165") == known
    assert texts(now="1457", day="") == {"meter": "20619", "before": "1165", "used": "292"}
    assert texts(now="no number")["used"] == "?"
    odd = ({"texts": {"1": "x"}}, {"texts": {"1": 10**400}}, {"texts": {"1": -1}}, {"p": "x"}, {"p": [1]})
    for fields in ({}, {"meter": 3}, {"now": {}}, *({"now": before["now"] | own} for own in odd)):
        told = client.post("/api/weigh", json={"layout": layout, "fields": fields})
        assert "expected JSON with a layout" in error_of(told, 422)
    checked = dict.fromkeys(before, "1")
    assert client.post("/api/weigh", json={"layout": layout, "fields": checked}).json() == {}
    told = client.post("/api/weigh", json={"layout": {"name": "m"}, "fields": {}})
    assert "'pages' is missing" in error_of(told, 422)


def test_sheets_have_limits_and_their_blanks_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "MAX_PAGES", 2)
    reader, form = Reader(tiny_model()), json.dumps(form_of(sheet(""))).encode() + b"\n"
    first, *more = (opened(sheet(text)) for text in "123")
    data = form + file_of(first, "TIFF", save_all=True, append_images=more)
    _blanks.cache_clear()
    *read, last = do(reader, data, "sheets", pictures=True).value
    assert [record["error"] for record in read] == [None, None]
    assert "more than 2 pages; send page 3 and those after it" in last["error"]
    monkeypatch.setattr(work, "MAX_PICTURES", 3 * len(read[0]["fields"]["a"]["picture"]) // 2)
    first, second = do(reader, data, "sheets", pictures=True).value
    assert (first["error"], second["fields"]) == (None, {})
    assert "pictures are larger" in second["error"]
    assert (_blanks.cache_info().misses, _blanks.cache_info().maxsize) == (1, 1)


def test_forms_that_are_refused(client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret.png").write_bytes(sheet(""))
    monkeypatch.chdir(tmp_path)
    named, blank = form_of(b""), sheet("")
    named["layouts"][0]["pages"][0]["blank"] = "secret.png"
    many = form_of(blank)
    many["layouts"][0]["pages"] = [{**many["layouts"][0]["pages"][0], "fields": []}] * 32
    for words, form in (
        ("'secret.png': files are not looked for", named),
        ("'/etc/passwd': files are not looked for", form_of(blank, valid="/etc/passwd")),
        ("blank page 1 of m", form_of(b"no picture")),
        ("more than 16 pages", many),
        ("form", {"form": 2}),
    ):
        answer = client.post("/api/sheets", content=json.dumps(form).encode() + b"\n" + page_file("1"))
        assert words in error_of(answer, 422)
        assert answer.json()["error"].startswith("form: ")
        if "blank" not in words:  # the form alone says the same
            assert words in error_of(client.post("/api/form", json=form), 422)
    assert client.post("/api/form", json=form_of(blank)).json() == {"ok": True}
    assert "is no JSON" in error_of(client.post("/api/sheets", content=b"{\n" + page_file("1")), 422)
    assert "as a line" in error_of(client.post("/api/sheets", content=b"no line"), 400)
    monkeypatch.setattr(app, "MAX_FORM", 10)
    assert "expected at most 10" in error_of(client.post("/api/weigh", content=b"x" * 11), 413)
    assert "at most 10 bytes" in error_of(client.post("/api/sheets", content=b"x" * 11 + b"\n"), 400)


# --- work -------------------------------------------------------------------------------------


def open_faulty(workers: int) -> Service:
    with patch("neocog.serve.work.ServeJob", FaultyServeJob):
        return Service(Reader(tiny_model(), device="cpu"), workers=workers)


def ask(service: Service, name: str = "a.png", **options: Any) -> Any:
    return service.ask(name, page_file("12"), what="read", live=False, **options)


@posix
def test_requests_have_a_limit_may_be_cancelled_and_keep_no_others_waiting() -> None:
    with open_faulty(2) as service:
        service.warm()
        slow = ask(service, "locked.png", limit=1.0)
        others = [ask(service) for _ in range(3)]
        assert [other.result(20)[0]["text"] for other in others] == ["12"] * 3
        with pytest.raises(InputError, match=r"^reading takes longer than 1 s; "):
            slow.result(20)
        several = [ask(service, "locked.png") for _ in range(4)]  # two are begun, two wait
        until(lambda: service._requests.qsize() == 2)
        assert all(future.cancel() for future in several)
        assert ask(service).result(20)[0]["text"] == "12"
        (record,) = ask(service, "killed.png").result(30)
        twice = "cannot be read: twice, the process that reads it was ended by SIGKILL"
        assert record["error"] == twice
        until(lambda: not service._futures)


@posix
def test_the_end_answers_all_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_faulty(1) as service:
        asked = [ask(service, "locked.png") for _ in range(3)]
        until(lambda: service._requests.qsize() == 2)
    assert not wait(asked, 5).not_done
    assert all(isinstance(future.exception(), EndedEarly) for future in asked)
    failed: list[bool] = []
    monkeypatch.setattr("neocog.batch.pool.python", lambda *_: ["/no/such/python"])
    with open_faulty(1) as service:
        service.on_failure = lambda: failed.append(True)
        until(lambda: service._error)
        with pytest.raises(EndedEarly, match="cannot be started"):
            ask(service)


# --- what is refused --------------------------------------------------------------------------


def test_other_sites_are_refused(client: TestClient) -> None:
    for header, values in (
        ("Host", ("evil.example", "127.0.0.1.evil.example:8000", "", "[")),
        ("Origin", ("http://evil.example", "http://127.0.0.1:9000", "null", "http://[")),
    ):
        words = "the URL that neocog printed" if header == "Host" else "another site"
        for value in values:
            assert words in error_of(client.get("/api", headers={header: value}), 403)
    for value in ("localhost:8000", "192.168.1.5:8000", "[::1]:8000"):
        headers = {"Host": value, "Origin": f"http://{value}"}
        assert client.get("/api", headers=headers).status_code == 200


def test_the_description_for_machines_names_every_address(client: TestClient) -> None:
    told = client.get("/openapi.json").json()
    for name in re.findall(r'"#/components/(\w+/\w+)"', json.dumps(told)):
        kind, one = name.split("/")
        assert told["components"][kind][one]
    for path, own in told["paths"].items():
        ((method, _),) = own.items()
        assert client.request(method, path).status_code in (200, 400)
    paths = {route.path for route in client.app._app.routes}  # type: ignore[attr-defined]
    assert {path for path in paths if path.startswith(("/api", "/health"))} == set(told["paths"])


@pytest.mark.parametrize(
    ("proxies", "client", "told", "expected"),
    [
        ((), "127.0.0.1", "203.0.113.9", "127.0.0.1"),  # nobody is believed unasked
        (("127.0.0.1",), "127.0.0.1", "203.0.113.9", "203.0.113.9"),
        (("127.0.0.1",), "10.0.0.7", "203.0.113.9", "10.0.0.7"),
        (("10.0.0.0/8",), "10.0.0.7", "6.6.6.6, 203.0.113.9", "203.0.113.9"),  # who says more of himself
    ],
)
def test_a_proxy_is_believed_when_asked_for(proxies, client, told, expected):
    heard: list[str] = []

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        heard.append(scope["client"][0])

    config = uvicorn.Config(answer, log_config=None, **server.Access(proxies=proxies).uvicorn)
    config.load()
    scope = scope_of(client)
    scope["headers"].append((b"x-forwarded-for", told.encode()))
    asyncio.run(config.loaded_app(scope, None, None))
    assert heard == [expected]


def test_every_answer_keeps_outside_sources_out(client: TestClient) -> None:
    for address in ("/", "/docs", "/static/app.js", "/api", "/nothing"):
        policy = client.get(address).headers["content-security-policy"]
        assert ("default-src 'none'" in policy, "unsafe" in policy) == (True, False)
    for file in (Path(app.__file__).parent / "static").iterdir():
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"""(?:src|href|from|url\(|import)\s*[=(]?\s*["']?https?:""", text), file.name
        assert not re.search(r"<script(?![^>]*src=)|<style| style=| on\w+=\"", text), file.name


def test_requests_that_make_no_sense(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("/nothing", "/static/../app.py", "/static/%2e%2e/app.py"):
        error_of(client.get(path), 404)
    assert "use POST" in error_of(client.get("/api/read"), 405)
    for path in ("/api", "/static/app.js"):
        assert "use GET" in error_of(client.post(path), 405)
    assert "nothing came" in error_of(client.post("/api/read"), 400)
    assert "expected a number" in error_of(client.post("/api/page?page=-1", content=b"x"), 400)
    monkeypatch.setattr(app, "MAX_BYTES", 10)
    for content in (b"x" * 11, (b"x" for _ in range(11))):
        assert "expected at most 10" in error_of(client.post("/api/read", content=content), 413)


def test_a_busy_server_says_when_to_come_again(client: TestClient, api: Api, monkeypatch: Any) -> None:
    for counts, most in ((api._held, app.MAX_HELD), (api._waiting, app.MAX_WAITING)):
        for client_, many in (("testclient", most // 2), ("another", most)):
            counts[client_] = many
            answer = client.post("/api/read", content=b"x")
            assert "busy" in error_of(answer, 503)
            assert answer.headers["retry-after"] == "1"
            counts.clear()
    assert client.post("/api/read", content=b"x").status_code == 200
    assert not any((api._waiting, api._held, api._turns))
    api._held["another"] = app.MAX_HELD - app.MAX_BYTES + 1  # a body without a size may be the largest
    assert "busy" in error_of(client.post("/api/read", content=iter([page_file("1")])), 503)
    api._held.clear()
    held, ask, data = list[int](), api.service.ask, page_file("1")
    monkeypatch.setattr(api.service, "ask", lambda *a, **k: held.append(api._held.total()) or ask(*a, **k))
    assert client.post("/api/read", content=iter([data])).status_code == 200
    assert (held, api._held.total()) == ([len(data)], 0), "as much as came"


def test_records_are_parsed_beside_the_loop(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    threads, record = set[int](), app._record
    loop = client.portal.call(threading.get_ident)  # type: ignore[union-attr]
    monkeypatch.setattr(app, "_record", lambda body: threads.add(threading.get_ident()) or record(body))
    for to in ("corrections", "explain"):
        correct(client, {"digits": 7}, page_file("7"), to)
    assert threads
    assert loop not in threads


def test_who_sends_no_whole_header_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEADER", 0.2)

    async def echo(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.4)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async def heard(data: bytes, then: bytes = b"") -> bytes:
        config, state = uvicorn.Config(echo, log_config=None, timeout_keep_alive=1), ServerState()
        loop, connection = asyncio.get_running_loop(), partial(server.Connection, config, state, {})
        async with await loop.create_server(connection, "127.0.0.1", 0) as made:
            reader, writer = await asyncio.open_connection(*made.sockets[0].getsockname())
            writer.write(data)
            said = await reader.readuntil(b"ok") if then else b""
            await asyncio.sleep(0.1 if then else 0)
            writer.write(then)
            said += await asyncio.wait_for(reader.read(), 3)
            writer.close()
            assert not state.connections
        return said

    async def all_heard() -> list[bytes]:
        return await asyncio.gather(*(heard(*data) for _, *data in sent))

    whole = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    part = whole[:8]
    sent = [(0, b""), (0, part), (1, whole), (1, whole, part), (2, whole, whole)]
    for (answers, *_), said in zip(sent, asyncio.run(all_heard()), strict=True):
        assert (said.count(b"\r\n\r\nok"), said[-2:]) == (answers, b"ok" * (answers > 0))


def test_one_client_leaves_a_worker_to_others_and_its_work_ends_with_it() -> None:
    asked: list[tuple[str, Future[Any]]] = []  # of a service whose answers do not come

    def ask(name: str, picture: bytes, **more: Any) -> Future[Any]:
        asked.append((name, Future()))
        return asked[-1][1]

    application = make_app(Api(SimpleNamespace(workers=3, ask=ask)))  # type: ignore[arg-type]

    async def several() -> None:
        gone = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for client in "aaaab":
                tasks.create_task(status_of(application, client, b"x", gone=gone))
            await asyncio.sleep(0.2)
            assert sorted(name for name, _ in asked) == ["a", "a", "b"]
            gone.set()

    asyncio.run(several())
    assert all(future.cancelled() for _, future in asked)


@pytest.mark.parametrize(("proxies", "first"), [([], 3), (["127.0.0.2/32"], 5), (["127.0.0.3/32"], 3)])
def test_no_more_connections_are_held_than_the_system_allows(proxies, first, monkeypatch, capsys):
    monkeypatch.setattr(app, "_told", {})
    with server.listen("127.0.0.1", 0) as listener, ExitStack() as stack:
        listener.proxies = [ipaddress.ip_network(one) for one in proxies]
        assert 8 <= listener.most <= server.CONNECTIONS
        listener.most, accepted, refused = 6, [], 0
        for number in range(8):
            one = stack.enter_context(socket.socket())
            one.bind((f"127.0.0.{2 + number // 5}", 0))  # five of the first address, three of the second
            one.connect(listener.getsockname())
            try:
                accepted.append(listener.accept()[0])
            except BlockingIOError:
                refused += 1
                assert one.recv(1) == b""
        assert (len(accepted), refused) == (6, 2)
        assert [one.getpeername()[0] for one in accepted].count("127.0.0.2") == first
        accepted.pop().close()
        stack.enter_context(socket.create_connection(listener.getsockname()))
        accepted.append(listener.accept()[0])
        for connection in accepted:
            connection.close()
    assert capsys.readouterr().err.count("\n") == 1


def test_what_takes_too_long_is_given_up(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(app, "PATIENCE", 0.0)
        error_of(client.post("/api/read", content=page_file("1")), 504)
    monkeypatch.setattr(app, "UPLOAD", 0.05)
    assert asyncio.run(status_of(client.app, "testclient", gone=asyncio.Event())) == 408


def test_faults_are_one_line(client: TestClient, api: Api, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(app, "_told", {})
    monkeypatch.setattr(api.service, "ask", lambda *_, **__: 1 / 0)
    assert "the server failed" in error_of(client.post("/api/read", content=b"x"), 500)
    for _ in range(99):
        server.tell_error(Any, {"message": "no room", "exception": OSError(24, "too many")})  # type: ignore[arg-type]
    assert capsys.readouterr().err.splitlines() == [
        "neocog: a request failed: ZeroDivisionError: division by zero",
        "neocog: no room: OSError(24, 'too many')",
    ]


# --- corrections ------------------------------------------------------------------------------


def test_corrected_pages_are_a_labelled_set(client: TestClient, tmp_path: Path, model: str) -> None:
    texts, kept = ["0123456789", "98765\n43210"], tmp_path / "kept"
    for text in texts:
        data = page_file(text)
        (record,) = client.post("/api/read", content=data).json()
        assert record["text"] == text
        for _ in range(2):  # what comes again replaces what was there
            answer = correct(client, record, data)
    assert answer.json()["pages"] == 2
    assert [row["text"] for row in table_of(kept / "pages" / "labels.csv")] == texts
    for part, count in (("pages", 2), ("lines", 3)):
        told = json.loads(run("eval", kept / part, "--model", model, "--json", "--signs").stdout)
        assert (told["n"], told["cer"], told["cer_text"]) == (count, 0, 0)
    told = json.loads(run("eval", kept / "digits", "--model", model, "--json").stdout)
    assert (told["n"], told["accuracy"]) == (20, 1.0)
    learned = run("train", "--data", kept / "digits", "-o", tmp_path / "new", "--recipe", "fukushima2003")
    assert learned.exit_code == 0, learned.stderr


def correct(client: TestClient, record: dict[str, Any], data: bytes, to: str = "corrections") -> Any:
    line = {"text": "7", "page": 0, "digits": [{"char": "7", "box": [0, 0, 9, 9]}]} | record
    return client.post(f"/api/{to}", content=json.dumps(line).encode() + b"\n" + data)


def test_corrections_that_make_no_sense(client: TestClient, tmp_path: Path) -> None:
    for words, changes in (
        ("correct each ?", [{"text": "?"}, {"digits": [{"char": "x", "box": [0, 0, 9, 9]}]}]),
        ("expected boxes", [{"digits": [{"char": "7", "box": [0, 0, w, 9]}]} for w in (0, 1e999)]),
        ("expected boxes", [{"page": -1}, {"turn": 45}, {"lines": [{"text": "7", "box": []}]}]),
        ("a line of JSON", [{"digits": [{"char": "7"}]}, {"page": "one"}, {"lines": [7]}, {"lines": 7}]),
        ("a text of digits", [{"text": text} for text in ("7\r\n", "7\ud800", "=CMD(7)", "٧7")]),
        ("the same digits", [{"text": "77"}, {"text": ""}]),
    ):
        for change in changes:
            assert words in error_of(correct(client, change, page_file("7")), 400)
    assert not list((tmp_path / "kept" / "pages").iterdir())


def test_lines_are_kept_as_they_were_corrected(client: TestClient, tmp_path: Path) -> None:
    data, kept = page_file("123\n45\n6"), tmp_path / "kept" / "lines"
    (record,) = client.post("/api/read", content=data).json()
    first, second, _ = record["lines"]
    lines = [first | {"text": "-1 2,3"}, second, {"text": "6", "box": None}]
    digits = [*record["digits"][:5], record["digits"][5] | {"box": None}]
    changed = {"text": "-1 2,3\n45\n6", "lines": lines, "digits": digits}
    for change, texts in (
        ({}, ["123", "45", "6"]),
        (changed, ["-1 2,3", "45"]),  # what was typed without a box has no picture
        (changed | {"lines": [first]}, []),  # they do not say what the text says
    ):
        assert correct(client, record | change, data).is_success
        labels = table_of(kept / "labels.csv")
        assert [row["text"].removeprefix("'") for row in labels] == texts
        assert sorted(row["file"] for row in labels) == sorted(p.name for p in kept.glob("*.png"))
        images = read_idx(tmp_path / "kept" / "digits" / "train-images-idx3-ubyte")
        assert len(images) == (5 if change else 6)
    away = {**changed, "lines": [lines[0] | {"box": [5000, 5000, 9, 9]}, *lines[1:]]}
    many = [first | {"box": [0, 0, 9e5, 9e5]}] * 99
    huge = {"text": "\n".join(["123"] * 99), "lines": many, "digits": record["digits"][:3] * 99}
    for change, why in ((away, "leave the page"), (huge, "overlap")):
        assert why in error_of(correct(client, record | change, data), 422)


def test_the_labels_hold_no_formula(client: TestClient, api: Api, tmp_path: Path) -> None:
    api.signs += "€"  # of a pattern
    labels, texts = tmp_path / "kept" / "pages" / "labels.csv", ("=7", "-7", "€ 7")
    for number, text in enumerate(texts):
        assert correct(client, {"text": text, "page": number}, page_file(*"777", kind="TIFF")).is_success
    assert read_labels_csv(labels).texts == texts
    assert "'=7" in labels.read_text(encoding="utf-8")


def keep(kept: Corrections, text: str = "7") -> int:
    return kept.save(b"a", 0, b"png", text, np.full((len(text), 28, 28), 9, np.uint8), list(text))


@pytest.mark.parametrize(
    ("table", "expected"),
    [(b"\xef\xbb\xbffile;text;note\r\na.png;1;x\r\n", [["file", "text", "note"], ["a.png", "1", "x"]]),
     (b'"text","file"\r\n"1\n2","a.png"\r\n', [["text", "file"], ["1\n2", "a.png"]]),
     (b"file\ttext\na.png\t\n", [["file", "text"], ["a.png", ""]]), (b"", [["file", "text"]]),
     (b"sep=;\r\nfile;text\r\na.png;1\r\n", [["file", "text"], ["a.png", "1"]]),
     (b"\r\nfile;text\r\na.png;1\r\n", [["file", "text"], ["a.png", "1"]])],
)  # fmt: skip
def test_a_table_that_a_spreadsheet_saved_is_read_and_kept(tmp_path, table, expected):
    kept, labels = Corrections(tmp_path), tmp_path / "pages" / "labels.csv"
    labels.write_bytes(table)
    if len(expected) > 1:
        assert [path.name for path in read_labels_csv(labels).files] == ["a.png"]
    assert [keep(kept), keep(kept)] == [len(expected)] * 2
    with labels.open(newline="", encoding="utf-8") as stream:
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
def test_a_set_that_cannot_be_read_is_left_as_it_is(client, tmp_path, file, data, words):
    keep(Corrections(tmp_path / "kept"))
    (tmp_path / "kept" / file).write_bytes(data)
    answer = correct(client, {}, page_file("7"))
    assert words in error_of(answer, 409)
    assert str(tmp_path) not in answer.text
    assert (tmp_path / "kept" / file).read_bytes() == data


def test_a_save_that_was_interrupted_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Corrections(tmp_path)
    monkeypatch.setattr(kept, "_finish", lambda: None)
    keep(kept)
    (tmp_path / ".new").mkdir()
    (tmp_path / "pages" / ".file.abcd_123").touch()  # of a process that was killed when it began
    (tmp_path / "pages" / ".notes.markdown").touch()  # of somebody else
    Corrections(tmp_path).mend()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["digits", "lines", "pages"]
    assert len(list(tmp_path.glob("*/*"))) == 6
    keep(kept, text="")
    Corrections(tmp_path).mend()
    assert not list((tmp_path / "digits").iterdir())  # a set without digits cannot be learned from


#: Kills a process 40 times while it saves corrections; prints how often saving fails afterwards.
KILLED = """
import os, random, sys, time
from multiprocessing import get_context
from pathlib import Path
import numpy as np
from neocog.serve.corrections import Corrections

def save(count, first):
    os.fsync = lambda fd: None  # more saves, more moments
    kept, digits = Corrections(folder), np.full((10, 28, 28), 255, np.uint8)
    for number in range(first, first + count):
        kept.save(b"%d" % (number % 7), 0, bytes(10_000), "0123456789", digits, list("0123456789"))

folder, wrong, process = Path(sys.argv[1]), 0, get_context("fork").Process
random.seed(1)
for number in range(40):
    killed, next_one = (process(target=save, args=(count, number)) for count in (1000, 1))
    killed.start()
    time.sleep(random.uniform(0.002, 0.05))
    killed.kill()
    killed.join()
    next_one.start()
    next_one.join()
    if next_one.exitcode:
        wrong, folder = wrong + 1, folder.with_name(f"kept{number}")
print(wrong)
"""


def test_a_folder_outlives_kills_at_any_moment(tmp_path: Path) -> None:
    done = subprocess.check_output([sys.executable, "-c", KILLED, tmp_path / "kept"])
    assert done == b"0\n"
    Corrections(tmp_path / "kept").mend()
    assert len(read_labels_csv(tmp_path / "kept" / "pages" / "labels.csv")) == 7
    assert len(read_idx(tmp_path / "kept" / "digits" / "train-images-idx3-ubyte")) == 70


def test_a_digit_is_explained(client: TestClient) -> None:
    data, blank = page_file("7"), file_of(Image.new("L", (400, 400), 255))
    (record,) = client.post("/api/read", content=data).json()
    assert opened(correct(client, record, data, "explain").content).format == "PNG"
    for change, picture, code, why in (
        ({}, blank, 422, "nothing to explain"), ({"digits": []}, data, 400, "expected one"),
        ({"more": "x" * app.MAX_LINE}, data, 413, "bytes of JSON"),
    ):  # fmt: skip
        assert why in error_of(correct(client, record | change, picture, "explain"), code)


def test_small_digits_of_a_large_page_are_cut_and_explained_as_they_are_read() -> None:
    small = cv2.resize(page("3071"), None, fx=1 / 3, fy=1 / 3, interpolation=cv2.INTER_AREA)
    grey = np.full((2400, 3000), 225, np.uint8)
    grey[1000 : 1000 + small.shape[0], 800 : 800 + small.shape[1]] = small
    data, marks = file_of(Image.fromarray(grey)), {"page": 0, "turn": 0, "boxes": [[840, 1040, 15, 20]]}
    reader = Reader(device="cpu")
    kept, digits, (line,) = do(reader, data, "cut", marks=marks | {"lines": [[840, 1040, 80, 20]]}).value
    explained = do(reader, data, "explain", marks=marks).value
    assert (opened(kept).size, opened(line).size) == ((1024, 819), (90, 30))
    assert opened(explained).height > 4 * 48 + 25 * 12
    nowhere = do(reader, data, "explain", marks=marks | {"boxes": [[0, 0, 50, 50]]})
    assert "nothing was read there" in str(nowhere.error)
    assert (digits[0] == digit_of_box(grey, np.array([840, 1040, 15, 20], np.float32))).all()


# --- the command ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [(("--port", "{port}"), "port {port} of 127.0.0.1 cannot be used ("),
     *((("--host", host), "") for host in ("no.such.host.invalid", "192.0.2.77", "")),
     *((words, "") for words in (("--certificate", __file__), ("--certificate", "none"), ("--key", "k"))),
     *((("--allow-host", name), "--allow-host") for name in ("http://a.b", "a:8000", "")),
     *((("--token", token), "--token") for token in ("short", "with/slash/in/it", "ünïcödé-tökén")),
     *((("--trust-proxy", proxy), "--trust-proxy") for proxy in ("proxy", "10.0.0.1/8", "*"))],
)  # fmt: skip
def test_what_cannot_be_served_is_one_line(words, told, model, monkeypatch):
    own = "none" if told[:2] == "--" else model  # who may ask is checked before the model is loaded
    with server.listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        words = [word.format(port=port) for word in words]
        refused(f"neocog: {told.format(port=port)}", "serve", "--port", "0", "--model", own, *words)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    refused('pip install "neocog[web]"', "serve", "--model", model)


def test_with_a_token_all_addresses_begin_with_it_and_others_see_it(service: Service) -> None:
    client = TestClient(make_app(Api(service), token="secret"), base_url="http://10.0.0.7:8000")
    assert client.get("/secret").url.path == "/secret/"
    for path in ("", "docs", "api", "static/app.js"):
        assert client.get(f"/secret/{path}").status_code == 200
        error_of(client.get(f"/{path}"), 404)
    answer = client.post("/secret/api/corrections", content=b"{}\n")
    assert "--corrections" in error_of(answer, 409), "they are kept only where it was asked for"
    error_of(client.get("/secret/forms/", follow_redirects=False), 404)  # it would lead out of a proxy's path
    assert client.get("/health").json() == {"ok": True}, "a container asks without the token"
    assert server.reachable("127.0.0.1") == "127.0.0.1"
    assert server.reachable("0.0.0.0") != "0.0.0.0"
    socket.inet_aton(server.reachable("0.0.0.0"))


def test_who_needs_a_token(service: Service) -> None:
    behind = server.Access(names=("Digits.example.org",))
    made = [access.token_at(at) for access, at in (
        (server.Access(), "127.0.0.1"), (server.Access(), "0.0.0.0"), (behind, "127.0.0.1"),
        (server.Access(token="fixed-token"), "::1"), (server.Access(token="none"), "0.0.0.0"))]  # fmt: skip
    assert [made[0], made[3], made[4]] == [None, "fixed-token", None]
    assert len({made[1], made[2]}) == 2
    client = TestClient(make_app(Api(service), names=behind.names), base_url="http://digits.example.org")
    for header, value, code in (
        ("Origin", "http://digits.example.org", 200), ("Origin", "https://Digits.example.ORG", 200),
        ("Host", "example.org", 403), ("Host", "a.digits.example.org", 403),
        ("Origin", "http://example.org", 403),
    ):  # fmt: skip
        assert client.get("/api", headers={header: value}).status_code == code
    ended = SimpleNamespace(check=lambda: 1 / 0)
    client = TestClient(make_app(Api(ended)), base_url="http://127.0.0.1:8000")  # type: ignore[arg-type]
    assert "any more" in error_of(client.get("/health"), 503)
