"""Attacks on ``neocog serve``: many connections, large JSON, slow PDFs, kills while it saves."""

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
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from experiments.attacks.watch import Finished, Outcome, Watch, watched
from neocog.serve.corrections import Corrections
from tests.picture_files import page_file

HOME, OTHER = "127.0.0.1", "127.0.0.2"  # the attacker comes from the other address
QUIET = 2_000  # bytes on stderr that an attack may cause


@dataclass
class Server:
    """A running server, what it did not hold, and its memory."""

    port: int
    tls: bool
    watch: Watch
    broken: list[str] = field(default_factory=list)

    def ask(self, path: str = "api", body: bytes | None = None, host: str = HOME, wait: float = 120) -> bytes:
        """Return an answer; busy or unreachable servers are asked again."""
        end = time.monotonic() + wait
        while True:
            try:
                where = {"source_address": (host, 0), "timeout": wait}
                connection = (
                    http.client.HTTPSConnection(HOME, self.port, context=unverified(), **where) if self.tls
                    else http.client.HTTPConnection(HOME, self.port, **where)
                )  # fmt: skip
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

    def answers(self, what: str, seconds: float, path: str = "api", body: bytes | None = None) -> None:
        """Whether an honest request is answered within some seconds."""
        began = time.monotonic()
        answer = self.ask(path, body, wait=60)
        took = time.monotonic() - began
        print(f"  {what}: {answer[:60]!r} after {took:.2f} s", flush=True)
        if took > seconds or not re.search(rb'"error":null|"max_bytes"', answer):
            self.broken.append(f"{what}: {answer[:60]!r} after {took:.1f} s")

    def memory(self) -> float:
        """Megabytes of all its processes, what they share counted once."""
        sizes = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in self.watch.pids()]
        return sum(int(size.split("Pss:")[1].split()[0]) for size in sizes) / 1e3

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.watch.process.pid}/fd"))


def unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def connections(server: Server) -> None:
    """1 500 connections that say nothing, for 30 s: others are served, and few are held."""
    most = 0
    with ExitStack() as stack:
        for _ in range(1500):
            one = stack.enter_context(socket.socket())
            one.settimeout(2)
            try:
                one.bind((OTHER, 0))
                one.connect((HOME, server.port))
            except OSError:
                pass
        end = time.monotonic() + 30
        while time.monotonic() < end:
            most = max(most, server.descriptors())
            server.answers("a request beside 1 500 connections", 2)
            time.sleep(4)
    print(f"  {most} descriptors", flush=True)
    if most > 512:
        server.broken.append(f"{most} descriptors open")


def bodies(server: Server) -> None:
    """Bodies without end to addresses that take none, and headers without end, are cut."""
    begins = {
        "header": b"GET /api HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ",
        "body": b"POST /api HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999\r\n\r\n",
    }
    for name, begin in begins.items():
        with socket.create_connection((HOME, server.port)) as one:
            one.sendall(begin)
            began = time.monotonic()
            try:
                while time.monotonic() - began < 30:
                    one.sendall(b"x")
                    time.sleep(0.2)
                server.broken.append(f"a {name} that drips is not cut")
            except OSError:
                print(f"  a {name} that drips is cut after {time.monotonic() - began:.0f} s", flush=True)


def lines(server: Server) -> None:
    """25 MB of JSON before a picture stop nobody."""
    body = b'{"digits":[' + b'{"char":"1","box":[0,0,9,9]},' * 850_000 + b'{}],"text":"","page":0}\n'
    with ThreadPoolExecutor() as pool:
        many = [pool.submit(server.ask, "api/explain", body, OTHER) for _ in range(2)]
        while not all(one.done() for one in many):
            server.answers("a request beside 25 MB of JSON", 1)
            time.sleep(0.1)
    print(f"  {many[0].result()[:100]!r}", flush=True)


def slow_pdf() -> bytes:
    """A PDF of 2 kB that draws 9^7 rectangles: forms that draw forms."""
    form = b"/Resources<</XObject<</a %d 0 R>>>>"
    parts = [b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
             b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]/Contents 4 0 R%s>>" % (form % 5)]  # fmt: skip
    for number in range(8):
        last = number == 7
        head = b"/Type/XObject/Subtype/Form/BBox[0 0 99 99]" + (b"" if last else form % (5 + number))
        draw = b"0 0 9 9 re f" if last else b"/a Do " * 9
        parts.append(b"<<%s/Length %d>>stream\n%s\nendstream" % (head, len(draw), draw))
    body = b"".join(b"%d 0 obj%s endobj\n" % part for part in enumerate(parts, 1))
    return b"%PDF-1.4\n" + body + b"trailer<</Root 1 0 R>>"


def documents(server: Server) -> None:
    """Four PDFs that take minutes: others are served meanwhile, and each of the four has its end."""
    pdf, page, began = slow_pdf(), page_file("12"), time.monotonic()
    with ThreadPoolExecutor() as pool:
        slow = [pool.submit(server.ask, "api/read", pdf, OTHER, 450) for _ in range(4)]
        time.sleep(1)
        while not all(one.done() for one in slow) and time.monotonic() - began < 100:
            server.answers("a page beside four slow PDFs", 5, "api/read", page)
            time.sleep(5)
        ends = [one.result()[:120] for one in slow]
    print(f"  {ends} after {time.monotonic() - began:.0f} s", flush=True)


def crowd(server: Server) -> None:
    """200 requests at once have their answers; 500 uploads, half of them broken, leave memory flat."""

    def right(number: int) -> bool:
        return b'"text":"%03d"' % number in server.ask("api/read", page_file(f"{number:03d}"))

    with ThreadPoolExecutor(200) as pool:
        wrong = 200 - sum(pool.map(right, range(200)))
    before = server.memory()
    with ThreadPoolExecutor(4) as pool:
        list(
            pool.map(
                lambda n: server.ask("api/read", os.urandom(10**6) if n % 2 else page_file("12")), range(500)
            )
        )
    after = server.memory()
    print(f"  {wrong} of 200 wrong; {before:.0f} MB, after 500 uploads {after:.0f} MB", flush=True)
    server.broken += [f"{wrong} of 200 answers wrong"] * bool(wrong)
    server.broken += [f"{before:.0f} MB grew to {after:.0f} MB"] * (after > before + 100)


def attacked(
    talk: Callable[[Server], None], folder: Path, model: str, words: Sequence[str] = ()
) -> tuple[Finished, list[str]]:
    """Start the server with 1 024 descriptors, attack it, and end it by Ctrl-C."""
    with socket.socket() as free:
        free.bind((HOME, 0))
        port = free.getsockname()[1]
    servers: list[Server] = []

    def during(watch: Watch) -> None:
        if servers:
            return
        servers.append(Server(port, bool(words), watch))
        servers[0].ask()
        talk(servers[0])
        watch.measure()
        watch.process.send_signal(signal.SIGINT)

    command = ["serve", "--port", str(port), "--model", model, *words]
    done = watched(command, folder, name=talk.__name__, limit=600, during=during,
                   setup=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024)))  # fmt: skip
    print(f"  {len(done.err):,} bytes on stderr, {done.peak_mb:.0f} MB", flush=True)
    broken = servers[0].broken + [f"{len(done.err):,} bytes on stderr"] * (len(done.err) > QUIET)
    return done, broken


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
        failed = os.waitpid(checker, 0)[1] != 0
        wrong += failed
        if failed:
            folder = folder.with_name(f"kept{number}")
    return wrong


def save(folder: Path, count: int, first: int) -> None:
    """Save corrected pages and end this process; 1 if that fails."""
    os.fsync = lambda handle: None  # more saves, more moments
    try:
        kept = Corrections(folder)
        for number in range(count):
            digits = np.full((10, 28, 28), 255, np.uint8)
            kept.save(str((first + number) % 7).encode(), 0, bytes(10_000), "0123456789", digits, list("0123456789"))
    except BaseException as error:
        print(f"  {error}"[:150], flush=True)
        os._exit(1)
    os._exit(0)


def server(folder: Path, model: str) -> Outcome:
    outcome = Outcome("the server")
    names = ("-keyout", folder / "key.pem", "-out", folder / "pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-noenc", "-subj", "/CN=x", *names],
        check=True,
        capture_output=True,
    )
    tls = ("--certificate", str(folder / "pem"), "--key", str(folder / "key.pem"))
    for talk, words in (
        (connections, ()),
        (connections, tls),
        (bodies, ()),
        (lines, ()),
        (documents, ()),
        (crowd, ()),
    ):
        print(talk.__doc__, *words, flush=True)
        done, broken = attacked(talk, folder, model, words)
        outcome.add(done, 1, broken)
    wrong = killed(folder / "kept", 41, 0)
    outcome.tried, outcome.held = outcome.tried + 41, outcome.held + 41 - wrong
    outcome.broken += [f"{wrong} of 41 kills broke the corrections"] * bool(wrong)
    return outcome
