"""Measures ``neocog serve``: how long answers take, whether one is lost, and how memory grows.

python -m experiments.serve.measure -o experiments/serve/results/serve.json
"""

import io
import os
import re
import signal
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from PIL import Image

from experiments.harness.arguments import arguments
from experiments.harness.processes import family, size_of
from experiments.harness.record import write_results

PHOTO = Path(__file__).resolve().parents[2] / "docs" / "photo.jpg"
COLUMNS = {"what": "what", "found": "measured"}


def used(process: int) -> tuple[float, float]:
    """Megabytes of a process and its children; their processor seconds."""
    own = family(process)
    stats = (Path(f"/proc/{number}/stat").read_text().split() for number in own)
    ticks = sum(int(fields[13]) + int(fields[14]) for fields in stats)
    return sum(map(size_of, own)), ticks / os.sysconf("SC_CLK_TCK")


def ask(address: str, body: bytes) -> tuple[float, str]:
    """Read a picture: the seconds that it takes, and the text of its record, or its error."""
    start = time.perf_counter()
    try:
        with urllib.request.urlopen(address, body, timeout=300) as answer:
            said = answer.read().decode()
    except urllib.error.HTTPError as error:
        said = error.read().decode()
    found = re.search('"error": ?"([^"]*)', said) or re.search('"text":"([^"]*)', said)
    return time.perf_counter() - start, found[1] if found else ""


def measure(address: str, process: int) -> list[dict[str, Any]]:
    """Measure one server."""
    photo, frame = PHOTO.read_bytes(), io.BytesIO()
    with Image.open(PHOTO) as picture:
        picture.resize((640, 480)).save(frame, "JPEG", quality=90)
    read, (before, _) = f"{address}api/read", used(process)
    first, expected = ask(read, photo)
    frames = [ask(f"{read}?live=1", frame.getvalue())[0] for _ in range(50)]
    with ThreadPoolExecutor(20) as pool:
        many = list(pool.map(lambda _: ask(read, photo), range(20)))
    (_, busy), start = used(process), time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: ask(read, photo), range(100)))
    rate, busy = 100 / (time.perf_counter() - start), used(process)[1] - busy
    _, large = ask(read, bytes(66 * 2**20))
    _, broken = ask(read, photo[: len(photo) // 3])
    grown = used(process)[0] - before
    found = {
        "first answer, s": f"{first:.2f}",
        "frame of a camera, median of 50, ms": f"{1e3 * statistics.median(frames):.0f}",
        "correct answers to 20 parallel requests": sum(text == expected for _, text in many),
        "time until the last of these answers, s": f"{max(seconds for seconds, _ in many):.2f}",
        "photographs per second, 100 of them, 2 at a time": f"{rate:.1f}",
        "processor time per photograph, ms": f"{10 * busy:.0f}",
        "message for a picture that is too large": large,
        "message for a truncated picture": broken,
        "memory at the start, MB": f"{before:.0f}",
        "memory growth after all this, MB": f"{grown:.0f}",
    }
    return [{"what": what, "found": str(value)} for what, value in found.items()]


def main() -> None:
    args = arguments(__doc__, output=None).parse_args()
    command = [sys.executable, "-m", "neocog", "serve", "--port", "0", "--device", "cpu"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        address = re.findall(r"http://\S+", server.stderr.readline())[0]
        rows = measure(address, server.pid)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(30)
    write_results(args.output, rows, columns=COLUMNS)


if __name__ == "__main__":
    main()
