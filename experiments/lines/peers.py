"""Other readers of lines, where they are installed: each returns the text of a picture in RGB, (H, W, 3).

One thread. RapidOCR reads a line by its recogniser alone; tesseract (psm 7, of a page 6) digits and signs.
"""

import shutil
import subprocess
from importlib.metadata import version
from typing import Any

import cv2
import numpy as np

from experiments.harness.record import asked
from experiments.lines.score import DIGITS, SIGNS
from neocog.errors import UsageError


class RapidOCR:
    def __init__(self) -> None:
        from rapidocr import RapidOCR

        threads = {f"EngineConfig.onnxruntime.{kind}_op_num_threads": 1 for kind in ("intra", "inter")}
        self.ocr = RapidOCR(params={**threads, "Global.log_level": "error"})
        model = self.ocr.cfg.Rec
        self.version = f"rapidocr {version('rapidocr')}, {model.ocr_version.value} {model.model_type.value}"

    def read(self, pixels: Any, page: bool) -> Any:
        return self.ocr(pixels[:, :, ::-1].copy(), use_det=page, use_cls=page, use_rec=True)

    def line(self, pixels: Any) -> str:
        return "".join(self.read(pixels, False).txts or ())

    def page(self, pixels: Any) -> str:
        found = self.read(pixels, True)
        words = zip(found.boxes, found.txts, strict=True) if found.txts else ()
        lines, foot = list[list[tuple[float, str]]](), -np.inf
        for box, text in sorted(words, key=lambda word: float(word[0][:, 1].mean())):
            if box[:, 1].mean() > foot:
                lines.append([])
                foot = box[:, 1].max()
            lines[-1].append((box[0, 0], text))
        return "\n".join(" ".join(text for _, text in sorted(line)) for line in lines)


class Tesseract:
    def __init__(self) -> None:
        if shutil.which("tesseract") is None:
            raise UsageError("tesseract is not installed: apt-get install tesseract-ocr")
        self.version = asked("tesseract", "--version").partition("\n")[0]

    def read(self, pixels: Any, mode: str) -> str:
        command = ["tesseract", "stdin", "stdout", "--psm", mode]
        command += ["-c", f"tessedit_char_whitelist={DIGITS + SIGNS}"]
        data = cv2.imencode(".png", pixels[:, :, ::-1])[1].tobytes()
        return subprocess.run(command, input=data, capture_output=True, check=True).stdout.decode()

    def line(self, pixels: Any) -> str:
        return self.read(pixels, "7")

    def page(self, pixels: Any) -> str:
        return self.read(pixels, "6")
