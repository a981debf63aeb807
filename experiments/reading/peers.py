"""Reads photographs and cheque amounts beside RapidOCR and tesseract, where these are installed.

    pip install rapidocr_onnxruntime; apt-get install tesseract-ocr
    python -m experiments.reading.peers DATA -o RESULT

Photographs and every second cheque (the odd ones, on which nothing was chosen). Every reader gets
each picture in turn, on one thread; of what it reads, the digits count. neocog's time includes
decoding the file, the others get pixels. RapidOCR and tesseract get a cheque as one line, tesseract
the digits as its alphabet; other settings are theirs.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_THREAD_LIMIT"), "1")
import cv2

from experiments.harness.arguments import data_and_output
from experiments.harness.record import write_results
from experiments.reading.measure import faults
from experiments.reading.sets import digits_of, samples
from neocog.reading.reader import Reader

COLUMNS = {"reader": "reader", "set": "set", "pictures": "pictures", "digits": "digits",
           "exact": "exact", "cer": "character error rate", "ms": "median, ms"}  # fmt: skip
Read = Callable[[Path, Any, bool], str]  # the file, its pixels, and whether they are one line


def neocog() -> Read:
    reader = Reader(device="cpu")
    return lambda file, pixels, line: reader.read(file).plain


def rapidocr() -> Read | None:
    try:
        from rapidocr_onnxruntime import RapidOCR
    except ImportError:
        return None
    ocr = RapidOCR(intra_op_num_threads=1, inter_op_num_threads=1)

    def read(file: Path, pixels: Any, line: bool) -> str:
        found, _ = ocr(pixels, **({"use_det": False, "use_cls": False} if line else {}))
        return "".join(one[0] if line else one[1] for one in found or [])

    return read


def tesseract(alphabet: str = "0123456789") -> Read | None:
    if (program := shutil.which("tesseract")) is None:
        return None

    def read(file: Path, pixels: Any, line: bool) -> str:
        command = [program, "stdin", "stdout", "--psm", "7" if line else "6"]
        command += ["-c", f"tessedit_char_whitelist={alphabet}"]
        data = cv2.imencode(".png", pixels)[1].tobytes()
        return subprocess.run(command, input=data, capture_output=True, check=True).stdout.decode()

    return read


def main() -> None:
    args = data_and_output(__doc__).parse_args()
    cv2.setNumThreads(1)
    makers = (neocog, rapidocr, tesseract)
    readers = {make.__name__: read for make in makers if (read := make()) is not None}
    results: dict[tuple[str, str], list[tuple[int, int, float]]] = {}
    for one in samples(args.data, args.data, ["photos", "strings:odd"]):
        pixels = cv2.imread(str(one.file))
        for name, read in readers.items():
            start = time.perf_counter()
            text = read(one.file, pixels, one.set == "strings")
            ms = 1e3 * (time.perf_counter() - start)
            plain = digits_of(text) if name == "neocog" else re.sub(r"\D", "", text)
            row = (faults(plain, one.text)["wrong"], len(one.text), ms)
            results.setdefault((name, one.set), []).append(row)
    rows: list[dict[str, Any]] = []
    for (name, kind), some in sorted(results.items(), key=lambda item: item[0][1]):
        wrong, digits, ms = zip(*some, strict=True)
        rows.append({"reader": name, "set": kind, "pictures": len(some), "digits": sum(digits),
                     "exact": wrong.count(0), "cer": sum(wrong) / sum(digits),
                     "ms": median(ms)})  # fmt: skip
    write_results(args.output, rows, columns=COLUMNS, formats={"cer": ".1%", "ms": ".0f"})


if __name__ == "__main__":
    main()
