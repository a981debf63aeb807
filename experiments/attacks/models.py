"""Files that pretend to be models: cut, flipped bits, headers that lie, crafted finders and models."""

import json
import pickle
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from experiments.attacks.archives import zip_of
from experiments.attacks.pictures import Case, changed
from neocog.network.model import to_bytes
from neocog.network.registry import find_model
from tests.support import tiny_model

Nodes = list[dict[str, Any]]
Tensors = dict[str, np.ndarray]


def damaged(count: int, *, seed: int = 0) -> Iterator[Case]:
    """Yield so many models with flipped bits, in the header and in the tensors, or cut."""
    random = np.random.default_rng(seed)
    data = to_bytes(tiny_model(), precision="fp16")
    header = 8 + int.from_bytes(data[:8], "little")
    for number in range(count):
        cut, reach = number % 5 == 0, header if number % 2 else len(data)
        yield f"{number:03}.safetensors", changed(data, random, flips=not cut, reach=reach, cut=cut)


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
    cards = {"nested": "[" * 5000 + "]" * 5000, "deep": "[" * 100 + "]" * 100, "large": f'"{"x" * 2**24}"'}
    for name, card in cards.items():
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
    harm = pickle.dumps(Harm())
    other = model({"w": {"dtype": "F16", "shape": [1], "data_offsets": [0, 2]}}, b"\0\0")
    files |= {"pickle": harm, "torch": zip_of([("data.pkl", harm)]), "empty": b"", "other": other}
    yield from ((f"{name}.safetensors", content) for name, content in files.items())


def finders(count: int, *, seed: int = 0) -> Iterator[Case]:
    """Yield so many finders that are valid safetensors files, with one to three changes each."""
    data = find_model("finder").read_bytes()
    metadata = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    known, weights = json.loads(metadata["nodes"]), load(data)
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        nodes, tensors = deepcopy(known), {name: value.copy() for name, value in weights.items()}
        changes = [number % len(_CHANGES), *rng.integers(len(_CHANGES), size=rng.integers(3))]
        for change in changes:
            _CHANGES[change](nodes, tensors, rng)
        with suppress(ValueError):  # a number that JSON does not know
            body = save(tensors, metadata=metadata | {"nodes": json.dumps(nodes)})
            yield f"finder-{number:03}.safetensors", body


def _field(nodes: Nodes, _: Tensors, rng: np.random.Generator) -> None:
    """A number, a name or the inputs of an operation that it should not have; or it has nothing at all."""
    at = int(rng.integers(len(nodes)))
    later = f"m{rng.integers(at, len(nodes))}"
    numbers = [0, 1, 2, 3, 5, 7, 16, 64, 511, 512, 513, 2**31, 2**63, -1, 1.5, True, "1", None, [1]]
    inputs: list[Any] = [["x"], [], [later], [later] * 3, ["x", "x"], ["w0", "w1"], ["m3", "m3"], "x", None,
              [1], [[]], ["x"] * 1000, ["m0", "w2", "w3", "w3"], [""], {"x": 1}]  # fmt: skip
    names: list[Any] = ["x", "m0", "w0", "", "\x1b[2J", "n" * 100_000, None, 3, [], {}]
    ops = "Conv Relu Add Mul Div Sqrt Concat Resize Loop If".split()
    fields: dict[str, list[Any]] = dict.fromkeys(("stride", "padding", "dilation", "groups"), numbers)
    fields |= {"inputs": inputs, "output": names, "op": [*names, *ops]}
    field = list(fields)[rng.integers(len(fields))]
    if fields[field] is numbers:
        at = int(rng.choice([n for n, node in enumerate(nodes) if node.get("op") == "Conv"] or [at]))
    nodes[at][field] = fields[field][rng.integers(len(fields[field]))]
    if rng.random() < 0.05:
        nodes[at] = {}


def _tensor(_: Nodes, tensors: Tensors, rng: np.random.Generator) -> None:
    """Weights of another shape or type, with numbers that are none or too large, or no weights."""
    name, way = str(rng.choice(sorted(tensors))), rng.integers(8)
    if way < 3:
        shape = tuple(int(side) for side in rng.choice([0, 1, 2, 3, 8, 30, 61, 300], size=rng.integers(6)))
        tensors[name] = np.resize(tensors[name], shape if np.prod(shape) < 400_000 else shape[:2])
    elif way < 5:
        tensors[name] = tensors[name].astype(str(rng.choice(["f4", "f8", "i8", "u1", "u8", "?", "i2", "i4"])))
    elif way < 7:
        value = float(rng.choice([np.nan, np.inf, -np.inf, 65504.0, -65504.0, 6e-8, 0.0]))
        for name in rng.choice(sorted(tensors), size=rng.integers(1, 40)):
            if tensors[name].dtype.kind == "f":
                tensors[name].reshape(-1)[:: rng.integers(1, 9)] = value
    else:
        del tensors[name]


def _grown(nodes: Nodes, tensors: Tensors, rng: np.random.Generator) -> None:
    """Maps that double with each operation, side by side or in both sides; or many planes at full size."""
    op = ("Concat", "Resize", "Conv")[rng.integers(3)]
    x, planes = str(rng.choice(["x", "m0", nodes[-1].get("output", "x")])), int(rng.choice([64, 256, 600]))
    tensors["wide"], tensors["deep"] = (np.ones((planes, 1, k, k), np.float16) for k in (1, 3))
    for number in range(int(rng.integers(1, 30 if op == "Conv" else 24))):
        inputs = {"Concat": [x, x], "Resize": [x], "Conv": [x, "deep"]}[op]
        conv = {"stride": 1, "groups": planes, "padding": 1, "dilation": 1}
        if op == "Conv" and number == 0:
            inputs, conv = ["x", "wide"], {**conv, "groups": 1, "padding": 0}
        x = f"big{number}"
        nodes.append({"op": op, "inputs": inputs, "output": x, **(conv if op == "Conv" else {})})


def _order(nodes: Nodes, _: Tensors, rng: np.random.Generator) -> None:
    """Very many operations, none, or some in another order."""
    kind = rng.integers(3)
    if kind == 0:
        nodes += [{"op": "Relu", "inputs": ["m0"], "output": f"r{n}"} for n in range(rng.integers(100, 5000))]
    elif kind == 1 and len(nodes) > 1:
        del nodes[rng.integers(1, len(nodes)) :]
    else:
        rng.shuffle(nodes)


_CHANGES: tuple[Callable[[Nodes, Tensors, np.random.Generator], None], ...] = (
    _field, _grown, _field, _tensor, _order, _tensor, _field,
)  # fmt: skip


def shapes(count: int, *, seed: int = 0) -> Iterator[Case]:
    """Yield so many models that are valid safetensors files: planes, sides, types and values change."""
    data = to_bytes(tiny_model(), precision="fp16")
    words = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]["neocog"]
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        tensors, header, kind = load(data), json.loads(words), number % 4
        if kind == 0:  # many planes; shapes agree
            counts = rng.choice([1, 30, 1000, 20_000, 100_000], size=3, p=[0.3, 0.3, 0.2, 0.1, 0.1])
            k2, k3, k4 = (int(k) for k in counts)
            while k2 * 16 * 36 + k3 * k2 * 36 + k4 * k3 * 81 > 30_000_000:
                k2, k3, k4 = (max(1, k // 3) for k in (k2, k3, k4))
            for layer, sides in (("US2", (k2, 16, 6, 6)), ("US3", (k3, k2, 6, 6)), ("US4", (k4, k3, 9, 9))):
                tensors[f"{layer}.reference"] = rng.random(sides, np.float32).astype(np.float16)
            tensors["US4.labels"] = rng.integers(0, 11, k4)
        elif kind == 1:
            _tensor([], tensors, rng)
        elif kind == 2:
            labels = tensors["US4.labels"].astype(str(rng.choice(["f4", "i8", "i2", "u8", "?"])))
            labels[:: rng.integers(1, 9)] = rng.choice([0, 1, 10, 11, 127])
            tensors["US4.labels"] = labels
        else:
            keys = ["thresholds", "q", "temperature", "psi", "rule", "preset", "name", "card", "format"]
            values: list[Any] = [None, 0, -1, 1e300, 1e-300, 2**70, [], [0.5] * 3, [1e-6] * 4, [0.999999] * 4,
                      {}, "x", True, "linear", "pairs", [[0.5]] * 4]  # fmt: skip
            header[keys[rng.integers(len(keys))]] = values[rng.integers(len(values))]
        yield f"shapes-{number:03}-{kind}.safetensors", save(tensors, metadata={"neocog": json.dumps(header)})


class Harm:
    """Says so in the current folder, if anything unpickles it."""

    def __reduce__(self) -> tuple[object, ...]:
        return (open, ("HARMED", "w"))
