"""Files that pretend to be models: cut, flipped bits, headers that lie, numbers that are none."""

import io
import json
import pickle
import struct
import zipfile
from collections.abc import Iterator

import numpy as np

from experiments.attacks.pictures import Case
from neocog.network.model import to_bytes
from tests.support import tiny_model


def damaged(count: int, *, seed: int = 0) -> Iterator[Case]:
    """Yield so many models with flipped bits, in the header and in the tensors, or cut."""
    random = np.random.default_rng(seed)
    data = to_bytes(tiny_model(), precision="fp16")
    header = 8 + int.from_bytes(data[:8], "little")
    for number in range(count):
        changed = bytearray(data)
        if number % 5 == 0:
            del changed[random.integers(len(data)) :]
        else:
            place = random.integers(*((0, header) if number % 2 else (header, len(data))))
            changed[place] ^= 1 << random.integers(8)
        yield f"{number:03}.safetensors", bytes(changed)


def hostile() -> Iterator[Case]:
    """Yield files that were made to do harm."""
    data = to_bytes(tiny_model(), precision="fp16")
    length = int.from_bytes(data[:8], "little")
    header, tensors = json.loads(data[8 : 8 + length]), data[8 + length :]

    def model(changed: dict[str, object] | str, body: bytes = tensors) -> bytes:
        text = changed if isinstance(changed, str) else json.dumps(changed)
        words = text.encode() + b" " * (-len(text.encode()) % 8)
        return struct.pack("<Q", len(words)) + words + body

    def own(before: str, after: str) -> bytes:
        words = header["__metadata__"]["neocog"]
        assert before in words
        return model({**header, "__metadata__": {"neocog": words.replace(before, after)}})

    def shaped(name: str, **change: object) -> None:
        files[name] = model({**header, "US1.reference": {**header["US1.reference"], **change}})

    files = {f"length-{lie}": struct.pack("<Q", lie) + data[8:]
             for lie in (0, 1, length - 1, length + 1, 2**31, 2**40, 2**63, 2**64 - 1)}  # fmt: skip
    files["nested-header"] = model('{"a":' * 100_000 + "1" + "}" * 100_000)
    for name, card in (("nested", "[" * 5000 + "]" * 5000), ("deep", "[" * 100 + "]" * 100),
                       ("large", '"' + "x" * 2**24 + '"')):  # fmt: skip
        files[f"{name}-card"] = own('"card": {}', f'"card": {{"a": {card}}}')
    none = {"dtype": "F16", "shape": [0], "data_offsets": [0, 0]}
    files["many-tensors"] = model({**header, **{f"t{n}": none for n in range(50_000)}})
    for word in ["1" * 6000, *'NaN Infinity -Infinity 1e999 null "0.1" [] -1 0'.split()]:
        short = word[:9].replace('"', "q")
        files[f"temperature-{short}"] = own('"temperature": 0.005', f'"temperature": {word}')
        card = f'"card": {{"reading": {{"min_p": {word}, "page_odds": {word}}}}}'
        files[f"card-{short}"] = own('"card": {}', card)
    files["name"] = own('"tiny"', '"\\u001b[2J=cmd()\\u202e\\n"')
    first, second = header["US1.reference"]["data_offsets"], header["US2.reference"]["data_offsets"]
    shaped("overlap", data_offsets=[second[0], second[0] + first[1] - first[0]])
    shaped("beyond", data_offsets=[2**40, 2**40 + 8])
    shaped("backward", data_offsets=first[::-1])
    for shape in ([2**62, 4], [2**32, 2**32], [0, 2, 3, 3], [-1], [1] * 5000, []):
        shaped(f"shape-{len(shape)}-{(shape or [0])[0]}", shape=shape)
    for kind in ("F64", "BF16", "I8", "BOOL", "X", "F8_E4M3"):
        shaped(f"type-{kind}", dtype=kind)
    for name, value in (("nan", np.nan), ("infinity", np.inf), ("minus", -1.0)):
        words = np.full(len(tensors) // 2, value, np.float16).tobytes()
        files[name] = model(header, words[: len(tensors)] + tensors[len(words) :])
    files["pickle"] = pickle.dumps(Harm())
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as stream:
        stream.writestr("data.pkl", pickle.dumps(Harm()))
    files |= {"torch": archive.getvalue(), "empty": b""}
    one = {"dtype": "F16", "shape": [1], "data_offsets": [0, 2]}
    files["other"] = model({"w": one}, b"\0\0")
    yield from ((f"{name}.safetensors", content) for name, content in files.items())


class Harm:
    """Says so in the current folder, if anything unpickles it."""

    def __reduce__(self) -> tuple[object, ...]:
        return (open, ("HARMED", "w"))
