"""Files that are no pictures, by the dozen, and damage at random: a record each, and no crash."""

import io
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from neocog.errors import InputError
from neocog.vision.decode import decode
from neocog.vision.opening import FORMATS
from tests.support import page, save_page


@pytest.mark.parametrize("kind", FORMATS)
def test_damage_at_random(kind: str) -> None:
    stream = io.BytesIO()
    written = Image.fromarray(page("12")).convert("RGB").resize((90, 60))
    try:
        written.save(stream, kind, **({"save_all": True} if kind == "TIFF" else {}))
    except OSError:
        pytest.skip(f"needs a Pillow that writes {kind}")
    whole = np.frombuffer(stream.getvalue(), np.uint8)
    random = np.random.default_rng(0)
    readable, said = 0, []
    for _ in range(150):
        damaged = whole.copy()
        reach = len(whole) if random.random() < 0.5 else min(200, len(whole))
        places = random.integers(0, reach, random.integers(1, 9))
        damaged[places] = random.integers(0, 256, len(places))
        try:
            for found in decode(damaged.tobytes(), long_side=100):
                assert max(found.grey.shape) <= 100
            readable += 1
        except InputError as error:
            said.append(str(error))
    assert readable or kind == "PNG"  # whose every byte is under a checksum
    assert said
    assert all("\n" not in line and len(line) > 20 for line in said)


def test_no_other_program_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        pytest.fail("Ghostscript was asked")

    from PIL import EpsImagePlugin

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", never)
    stream = io.BytesIO()
    Image.new("RGB", (50, 50)).save(stream, "EPS")
    with pytest.raises(InputError, match="not a picture that neocog can decode"):
        list(decode(stream.getvalue()))


def test_pages_before_a_broken_one_are_read() -> None:
    first, second = (Image.fromarray(page(text)) for text in ("1", "2"))
    stream = io.BytesIO()
    first.save(stream, "TIFF", save_all=True, append_images=[second], compression="tiff_lzw")
    data = stream.getvalue()
    pages = decode(data[: len(data) * 3 // 4])
    assert next(pages).index == 0
    with pytest.raises(InputError):
        next(pages)


def test_a_large_picture_is_reduced_as_a_small_one() -> None:
    for mode in ("L", "RGB", "RGBA", "P", "I;16"):
        small = Image.fromarray(page("12")).convert("L" if mode == "I;16" else mode)
        large = small.resize((small.width * 8, small.height * 8), Image.Resampling.NEAREST)
        if mode == "I;16":
            deep = np.asarray(large).astype(np.uint16) * 257
            large = Image.fromarray(deep)
        stream = io.BytesIO()
        large.save(stream, "PNG")
        (found,) = decode(stream.getvalue(), long_side=max(small.size))
        assert found.grey.shape == small.size[::-1]
        assert found.scale == pytest.approx(1 / 8)
        expected = np.asarray(small.convert("L")).astype(int)
        assert np.abs(found.grey.astype(int) - expected).max() <= 2


@pytest.mark.skipif(sys.platform == "win32", reason="needs pseudo-terminals")
def test_a_bar_where_stderr_is_a_terminal(model: str, tmp_path: Path) -> None:
    import pty
    import subprocess

    for name in "abcdef":
        save_page(tmp_path / f"{name}.png", "7")
    (tmp_path / "bad.png").touch()
    own, theirs = pty.openpty()
    command = [sys.executable, "-m", "neocog", "read", str(tmp_path), "--model", model]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        try:
            while block := os.read(own, 4096):
                seen += block
        except OSError:  # that is how a pseudo-terminal ends
            pass
        assert process.stdout is not None
        results = process.stdout.read().decode()
    os.close(own)
    assert process.returncode == 1
    assert [line.rpartition(": ")[2] for line in results.splitlines()] == ["7"] * 6
    assert b"reading" in seen
    assert b"bad.png: the file is empty" in seen
