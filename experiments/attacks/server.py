"""Attacks on ``neocog serve``: connections, JSON, slow PDFs, a crowd; `killed`: while it saves, in a test."""

import http.client
import os
import random
import re
import resource
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np

from experiments.attacks.watch import Outcome, Watch, watched
from experiments.harness.processes import family, size_of
from neocog.serve.corrections import Corrections
from tests.support import page_file

HOME, OTHER = "127.0.0.1", "127.0.0.2"  # attacks come from the other address
QUIET = 1000  # bytes on stderr that an attack may cause


class Server:
    """A server that is attacked, and what did not hold."""

    def __init__(self, port: int, tls: bool) -> None:
        self.port, self.tls, self.pid = port, tls, 0
        self.broken: list[str] = []

    def ask(self, path: str = "api", body: bytes | None = None, host: str = HOME, wait: float = 120) -> bytes:
        """Return an answer; a server that is busy or not there is asked again."""
        end, context = time.monotonic() + wait, ssl._create_unverified_context()
        while True:
            connection = http.client.HTTPConnection(HOME, self.port, wait, source_address=(host, 0))
            try:
                connection.connect()
                if self.tls:
                    connection.sock = context.wrap_socket(connection.sock)
                connection.request("GET" if body is None else "POST", f"/{path}", body)
                answer = connection.getresponse()
                if answer.status != 503 or time.monotonic() > end:
                    return answer.read()
            except OSError as error:
                if time.monotonic() > end:
                    return str(error).encode()
            finally:
                connection.close()
            time.sleep(0.05)

    def answers(self, seconds: float, path: str = "api", body: bytes | None = None) -> None:
        """Somebody else's request is answered within some seconds."""
        began = time.monotonic()
        answer = self.ask(path, body)
        took = time.monotonic() - began
        print(f"  answered after {took:.2f} s", flush=True)
        if took > seconds or not re.search(rb'"error":null|"max_bytes"', answer):
            self.broken.append(f"{answer[:60]!r} after {took:.1f} s")


def connections(server: Server) -> None:
    """1 500 connections that say nothing."""
    most = 0
    with ExitStack() as stack:
        for _ in range(1500):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.bind((OTHER, 0))
            one.connect_ex((HOME, server.port))
        for _ in range(6):
            server.answers(2)
            most = max(most, len(os.listdir(f"/proc/{server.pid}/fd")))
            time.sleep(5)
    print(f"  {most} descriptors", flush=True)
    server.broken += [f"{most} descriptors"] * (most > 512)


def lines(server: Server) -> None:
    """25 MB of JSON before a picture."""
    body = b'{"digits":[' + b'{"char":"1","box":[0,0,9,9]},' * 850_000 + b'{}],"text":"","page":0}\n'
    with ThreadPoolExecutor() as pool:
        many = [pool.submit(server.ask, "api/explain", body, OTHER) for _ in range(2)]
        while not all(one.done() for one in many):
            server.answers(1)
            time.sleep(0.1)


def documents(server: Server) -> None:
    """Four PDFs of 2 kB that draw 9^7 rectangles: forms that draw forms that draw forms."""
    form = b"/Resources<</XObject<</a %d 0 R>>>>"
    parts = [b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
             b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]/Contents 4 0 R%s>>" % (form % 5)]  # fmt: skip
    for number in range(5, 13):
        head, draw = (b"", b"0 0 9 9 re f") if number == 12 else (form % number, b"/a Do " * 9)
        parts.append(b"<</Type/XObject/Subtype/Form/BBox[0 0 99 99]%s/Length %d>>stream\n%s\nendstream"
                     % (head, len(draw), draw))  # fmt: skip
    body = b"".join(b"%d 0 obj%s endobj\n" % part for part in enumerate(parts, 1))
    pdf, began = b"%PDF-1.4\n" + body + b"trailer<</Root 1 0 R>>", time.monotonic()
    with ThreadPoolExecutor() as pool:
        slow = [pool.submit(server.ask, "api/read", pdf, OTHER, 500) for _ in range(4)]
        time.sleep(1)
        for _ in range(8):
            server.answers(10, "api/read", page_file("12"))
            time.sleep(5)
    print(f"  {slow[0].result()[:150]!r}, all four after {time.monotonic() - began:.0f} s", flush=True)


def crowd(server: Server) -> None:
    """200 requests at once, then 500 uploads, half of them no pictures."""
    with ThreadPoolExecutor(200) as pool:
        texts = [f"{number:03d}" for number in range(200)]
        found = pool.map(lambda text: server.ask("api/read", page_file(text)), texts)
        right = sum(f'"text":"{text}"'.encode() in answer for text, answer in zip(texts, found, strict=True))
    first = sum(map(size_of, family(server.pid)))
    with ThreadPoolExecutor(4) as pool:
        bodies = (os.urandom(10**6) if number % 2 else page_file("12") for number in range(500))
        list(pool.map(lambda body: server.ask("api/read", body), bodies))
    last = sum(map(size_of, family(server.pid)))
    print(f"  {right} of 200 right; memory {first:.0f} MB, then {last:.0f} MB", flush=True)
    server.broken += [f"{right} of 200 are right"] * (right < 200)
    server.broken += [f"memory grows from {first:.0f} to {last:.0f} MB"] * (last > first + 50)


def killed(folder: Path, count: int, seed: int) -> int:
    """Kill a process so many times while it saves corrections; how often saving fails afterwards."""
    random.seed(seed)
    wrong = 0
    for number in range(count):
        if (saver := os.fork()) == 0:
            save(folder, 1000, number)
        time.sleep(random.uniform(0.002, 0.05))
        os.kill(saver, signal.SIGKILL)
        os.waitpid(saver, 0)
        if (checker := os.fork()) == 0:
            save(folder, 1, number)
        if os.waitpid(checker, 0)[1]:
            wrong, folder = wrong + 1, folder.with_name(f"kept{number}")
    return wrong


def save(folder: Path, count: int, first: int) -> None:
    """Save corrected pages and end this process; 1 if that fails."""
    os.fsync = lambda fd: None  # more saves, more moments
    try:
        kept = Corrections(folder)
        for number in range(first, first + count):
            digits = np.full((10, 28, 28), 255, np.uint8)
            kept.save(b"%d" % (number % 7), 0, bytes(10_000), "0123456789", digits, list("0123456789"))
        os._exit(0)
    finally:
        os._exit(1)


def server(folder: Path, model: str) -> Outcome:
    """All of them, with at most 1 024 open files; each server is ended by Ctrl-C."""
    outcome, key = Outcome("the web server"), str(folder / "key.pem")
    make = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=x -keyout".split()
    subprocess.run([*make, key, "-out", f"{key}.cert"], check=True, capture_output=True)
    tls = ["--certificate", f"{key}.cert", "--key", key]
    kinds: list[tuple[Callable[[Server], None], list[str]]] = [(connections, tls)]
    for attack, words in (*kinds, *((kind, []) for kind in (connections, lines, documents, crowd))):
        with socket.create_server((HOME, 0)) as free:
            one = Server(free.getsockname()[1], bool(words))

        def during(watch: Watch, one: Server = one, attack: Callable[[Server], None] = attack) -> None:
            if not one.pid:
                one.pid = watch.process.pid
                one.ask()
                attack(one)
                watch.measure()
                watch.process.send_signal(signal.SIGINT)

        print(attack.__doc__, *words[::2], flush=True)
        done = watched(
            ["serve", "--port", str(one.port), "--model", model, *words], folder, name=attack.__name__,
            limit=600, during=during, setup=partial(resource.setrlimit, resource.RLIMIT_NOFILE, (1024, 1024)),
        )  # fmt: skip
        print(f"  {len(done.err):,} bytes on stderr, {done.peak_mb:.0f} MB", flush=True)
        outcome.add(done, 1, one.broken + [f"{len(done.err):,} bytes on stderr"] * (len(done.err) > QUIET))
    return outcome
