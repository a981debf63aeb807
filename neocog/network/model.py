"""A learned network: reference vectors, spatial weights, thresholds, and its card.

On disk a model is one safetensors file (no pickle): tensors ``US1.reference`` .. ``US4.reference`` (K, K',
kernel, kernel), ``US1.c`` .. ``US4.c`` (kernel, kernel), ``UC1.blur`` .. ``UC3.blur`` (kernel-1, kernel-1),
in fp16 or fp32, and ``US4.labels`` (K4,) int64. The metadata hold the preset, the scalars and the card as
JSON.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from neocog.errors import ModelError, UsageError
from neocog.files import atomic_write
from neocog.network.registry import find_model
from neocog.network.spec import LABELS, REJECT, NetworkSpec, Psi, preset
from neocog.text import printable, reason_of

Precision = Literal["fp16", "fp32"]
Header = dict[str, Any]
Tensors = Mapping[str, NDArray[Any]]
T = TypeVar("T")

_FORMAT = "neocog 1"
_RULE = "strongest"  # how UC4 reads the planes of a label; files of other rules are not read
MAX_BYTES = 2**32  #: of a file: the largest model that the published recipes make has 2.7e9
MAX_HEADER = 2**20  #: bytes of its header, the card among them: shipped ones have up to 28 480
MAX_DEPTH = 16  #: lists and nested tables in the header: shipped ones have 5
#: Of fp16's numbers the largest, so that no sum of responses is infinite; learned weights stay below 20.
MAX_WEIGHT = 65504.0
#: Of all maps of a digit: shipped models have 303 000, a plane of US4 for each of 55 000 digits makes 1.9e6.
MAX_VALUES = 2_500_000
_LARGEST = 1e9  # a reference vector or a number of a card beyond this is a mistake
_NO_NUMBER = "a number that is not finite"
_CALCULATED = "reading", "rejection", "finetuning"  # parts of a card that are calculated with
_WANTED = "expected a safetensors file written by 'neocog train'"


@dataclass(frozen=True, slots=True)
class SWeights:
    """What one S-layer has learned."""

    reference: NDArray[np.float32]  #: X (K, K', kernel, kernel), not negative
    c: NDArray[np.float32]  #: weights of the inhibition (kernel, kernel), not negative
    threshold: float  #: theta for recognition, in (0, 1)
    q: float  #: gain


def s_constants(weights: SWeights, xp: ModuleType = np) -> tuple[Any, np.float32, Any]:
    """Return what an S-layer computes with, all float32: a' (K, K', kernel, kernel), theta', s (K,).

    Equation 1 as max(0, sum a' u - theta' v) / (v + s), with a' = a / (b (1 - theta)), theta' = theta / (1 -
    theta) and s = 1 / (theta b): no 1 is added and taken off again, so nothing cancels that need not. A plane
    whose reference vector is 0 stays silent: a' = 0, s very large.
    """
    theta = weights.threshold
    x, c = xp.asarray(weights.reference), xp.asarray(weights.c)
    step = max(1, min(256, 2**22 // x[0].size))  # 32 MB of float64
    weight, parts = c.astype(np.float64), range(0, len(x), step)
    squares = [(weight * x[i : i + step].astype(np.float64) ** 2).sum(axis=(1, 2, 3)) for i in parts]
    norm = xp.sqrt(xp.concatenate(squares))  # |X|_c
    heard = norm > 0
    safe = xp.where(heard, norm, 1)
    scale = xp.where(heard, 1 / ((1 - theta) * safe), 0).astype(np.float32)
    silence = xp.where(heard, 1 / (theta * weights.q * safe), 1e30).astype(np.float32)
    a = x * c
    a *= scale[:, None, None, None]
    return a, np.float32(theta / (1 - theta)), silence


@dataclass(frozen=True, slots=True)
class Model:
    """A network that can read: an architecture and everything it has learned."""

    name: str  #: such as ``"neocog"``
    spec: NetworkSpec
    s: tuple[SWeights, SWeights, SWeights, SWeights]  #: US1 .. US4
    #: of UC1 .. UC3, (kernel-1, kernel-1), each followed by 2x2 averaging
    blurs: tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]
    #: digit of each plane of US4, (K4,); ``REJECT`` (10) for planes that answer to what is none
    labels: NDArray[np.int64]
    psi: Psi = "sqrt"  #: saturation of the C-cells
    temperature: float = 0.05  #: probabilities are softmax(score / temperature)
    card: dict[str, Any] = field(default_factory=dict)  #: data, recipe, accuracy: JSON values
    version: str = ""  #: first 8 hex digits of the SHA-256 of all but the card, once it is saved

    def __repr__(self) -> str:  # the arrays and the card would fill a screen
        planes = "/".join(str(len(layer.reference)) for layer in self.s)
        return f"<Model {self.id}: {self.spec.name}, {planes} planes>"

    @property
    def id(self) -> str:
        """Name and version, e.g. ``"neocog@1a2b3c4d"``."""
        return f"{self.name}@{self.version}" if self.version else self.name

    @property
    def planes(self) -> tuple[int, int, int]:
        """K2, K3, K4."""
        k2, k3, k4 = (len(layer.reference) for layer in self.s[1:])
        return k2, k3, k4

    @property
    def classes(self) -> int:
        """Labels that UC4 tells apart: the ten digits and, if planes of US4 reject, that."""
        return LABELS + int((self.labels == REJECT).any())

    def save(self, path: str | Path, *, precision: Precision = "fp32") -> "Model":
        """Write the model to a file and return it as it reads from there; ModelError as `load_model`."""
        return save_with(from_bytes, to_bytes(self, precision=precision), path)


def to_bytes(
    model: Model, tensors: Tensors | None = None, *, precision: Precision = "fp32", **more: Any
) -> bytes:
    """Return a safetensors file, the same for equal models, with further ``tensors`` and header entries."""
    from safetensors.numpy import save

    kind, most = (np.float16, MAX_WEIGHT) if precision == "fp16" else (np.float32, np.inf)
    exact: dict[str, NDArray[Any]] = {"US4.labels": model.labels.astype(np.int64)}
    exact |= {f"US{i}.c": layer.c for i, layer in enumerate(model.s, start=1)}
    exact |= {f"UC{i}.blur": blur for i, blur in enumerate(model.blurs, start=1)}
    exact |= (more_tensors := dict(tensors or {}))
    rounded = {f"US{i}.reference": layer.reference for i, layer in enumerate(model.s, start=1)}
    for name, value in (rounded | {k: v for k, v in more_tensors.items() if v.ndim > 1}).items():
        if (peak := np.abs(value).max(initial=0)) > most:
            raise ModelError(f"{name} reaches {peak:.3g}, too large for fp16; save as fp32")
        exact[name] = value.astype(kind)
    header: Header = {"format": _FORMAT, "name": model.name, "preset": model.spec.name, "rule": _RULE}
    header |= {"psi": model.psi, "temperature": model.temperature, "card": model.card}
    header |= {"thresholds": [s.threshold for s in model.s], "q": [s.q for s in model.s], **more}
    try:
        words = json.dumps(header, sort_keys=True, allow_nan=False)
    except ValueError:
        raise ModelError(f"model {model.name}: its header or card has {_NO_NUMBER}") from None
    return save({name: np.ascontiguousarray(value) for name, value in exact.items()}, {"neocog": words})


def save_with(read: Callable[..., T], data: bytes, path: str | Path) -> T:
    """Write a model's file, and return what ``read(data, source=path)`` makes of it."""
    saved = read(data, source=str(path))
    with atomic_write(path) as stream:
        stream.write(data)
    return saved


def load_model(name_or_path: str | Path) -> Model:
    """Load a model by name (``"neocog"``) or from a file.

    Raises
    ------
    ModelError
        If there is no such model, or the file is cut short, no safetensors file, of wrong shapes,
        or holds values no neocognitron can have (NaN, negative reference vectors, weights so
        large that responses are not finite).
    """
    return load_with(from_bytes, name_or_path)


def load_with(read: Callable[..., T], name_or_path: str | Path) -> T:
    """Return what ``read(data, source=path)`` makes of a model's file; ModelError as :func:`load_model`."""
    path = find_model(name_or_path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ModelError(f"model {path}: larger than {MAX_BYTES:,} bytes; no neocog model is")
        return read(path.read_bytes(), source=str(path))
    except OSError as error:
        raise ModelError(f"model {path}: cannot be read ({error.strerror})") from None
    except MemoryError:
        raise ModelError(f"model {path}: not enough memory to load it") from None


def from_bytes(data: bytes, *, source: str) -> Model:
    """Build a model from the bytes of a file, ``source`` in messages; ModelError as :func:`load_model`."""
    return unpack(data, _FORMAT, lambda model, header, tensors: model, source=source)


def unpack(data: bytes, form: str, finish: Callable[[Model, Header, Tensors], T], *, source: str) -> T:
    """Return what ``finish`` makes of a file of format ``form``; ModelError as :func:`load_model`."""
    try:
        header, tensors, version = _parsed(data, form)
        spec = preset(header["preset"])
        planes = [2, spec.orientations, *(len(tensors[f"US{i}.reference"]) for i in (2, 3, 4))]
        weights = list[SWeights]()
        for what, key in (("thresholds", "thresholds"), ("values of q", "q")):
            if len(header[key]) != len(spec.s):
                raise ModelError(f"US layers need {len(spec.s)} {what}, got {len(header[key])}")
        for i, (s, threshold, q) in enumerate(zip(spec.s, header["thresholds"], header["q"], strict=True)):
            shape, kernel, name = (planes[i + 1] or 1, planes[i]), (s.kernel, s.kernel), f"US{i + 1}"
            x = tensor_of(tensors, f"{name}.reference", (*shape, *kernel), least=0, most=_LARGEST)
            c = tensor_of(tensors, f"{name}.c", kernel, least=0)
            weights.append(SWeights(x, c, float(threshold), float(q)))
        sides = ((i, layer.kernel - 1) for i, layer in enumerate(spec.c, start=1))
        blurs = [tensor_of(tensors, f"UC{i}.blur", (side, side)) for i, side in sides]
        name, labels = printable(str(header["name"]))[:200], tensors["US4.labels"].astype(np.int64)
        layers: tuple[Any, Any] = tuple(weights), tuple(blurs)
        temperature, card = float(header["temperature"]), header["card"]
        model = Model(name, spec, *layers, labels, header["psi"], temperature, card, version)
        _check(model)
        _check_card(model.card)
        return finish(model, header, tensors)
    except ModelError as wrong:
        raise ModelError(f"model {source}: {wrong}") from None
    except (KeyError, IndexError, TypeError, ValueError, OverflowError, UsageError) as error:
        raise ModelError(f"model {source}: a part is missing or wrong ({error})") from None


def _parsed(data: bytes, form: str) -> tuple[Header, Tensors, str]:
    """The header, the tensors and the version: a digest of both but the card, which may be written anew."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        length = int.from_bytes(data[:8], "little")
        if min(length, len(data)) > MAX_HEADER:
            raise ValueError(f"a header of {length:,} bytes, at most {MAX_HEADER:,} are read")
        tensors, entries = load(data), json.loads(data[8 : 8 + length])
        header = header_json(entries.pop("__metadata__", {})["neocog"])
    except (SafetensorError, ValueError, TypeError, RecursionError) as error:
        raise ModelError(f"cut short or not a model ({reason_of(error)}); {_WANTED}") from None
    except (KeyError, AttributeError):
        raise ModelError(f"a safetensors file, but not a neocog model; {_WANTED}") from None
    if (found := header.get("format") if isinstance(header, dict) else None) != form:
        raise ModelError(f"of format {_cut(found)}, not {form!r}; {_WANTED}")
    if (rule := header.get("rule")) != _RULE:
        told = f"decision rule {_cut(rule)} is no longer read, only {_RULE!r}"
        raise ModelError(f"{told}; commit d840c1a is the last that does; train the model again")
    known = {key: value for key, value in header.items() if key != "card"}
    digest = hashlib.sha256(json.dumps([entries, known], sort_keys=True).encode())
    digest.update(memoryview(data)[8 + length :])
    return header, tensors, digest.hexdigest()[:8]


def header_json(text: str) -> Any:
    """Parse JSON of a header; ValueError for NaN, infinity and more than MAX_DEPTH nested tables."""

    def finite(number: str) -> float:
        if not math.isfinite(float(number)):
            raise ValueError(f"{_NO_NUMBER}: {number[:20]}")
        return float(number)

    value = json.loads(text, parse_float=finite, parse_constant=finite)
    if _depth(value) > MAX_DEPTH:
        raise ValueError(f"a card of more than {MAX_DEPTH} nested tables")
    return value


def _depth(value: Any) -> int:
    within = value.values() if isinstance(value, dict) else value
    return 1 + max(map(_depth, within), default=0) if isinstance(value, dict | list) else 0


def tensor_of(
    tensors: Tensors, name: str, shape: tuple[int, ...], least: float = -MAX_WEIGHT, most: float = MAX_WEIGHT
) -> NDArray[np.float32]:
    """Return a tensor as float32; ModelError if it has another shape, integers, or values out of bounds."""
    raw = tensors[name]
    if raw.dtype not in (np.float16, np.float32):
        raise ModelError(f"{name} is {raw.dtype}, expected float16 or float32")
    if raw.shape != shape:
        raise ModelError(f"{name} has shape {raw.shape}, expected {shape}")
    tensor = raw.astype(np.float32, copy=False)
    if not np.isfinite(tensor).all():
        raise ModelError(f"{name} holds values that are not finite")
    for peak in (tensor.max(), tensor.min()):
        if not least <= peak <= most:
            raise ModelError(f"{name} reaches {peak:.3g}, expected {least:g} to {most:g}")
    return tensor


def _check(model: Model) -> None:
    """Refuse numbers that no network can have, and maps that would take too much memory."""
    spec = model.spec
    for name, s in zip(("US1", "US2", "US3", "US4"), model.s, strict=True):
        if not 1e-6 <= s.threshold < 1 or not 0 < s.q <= 1e6:
            raise ModelError(f"{name} has threshold {s.threshold}, q {s.q}")
    values = sum((layer.planes or 1) * layer.size**2 for layer in spec.layers(model.planes))
    if values > MAX_VALUES:
        told = f"{'/'.join(map(str, model.planes))} planes give maps of {values:,} values a digit"
        raise ModelError(f"{told}, at most {MAX_VALUES:,} are read")
    if model.labels.shape != (wanted := model.planes[2:]):
        raise ModelError(f"US4.labels has shape {model.labels.shape}, expected {wanted}")
    if model.labels.min() < 0 or model.labels.max() > REJECT:
        raise ModelError(f"labels reach beyond 0..9 and {REJECT}, no digit")
    if model.psi not in get_args(Psi):
        raise ModelError(f"unknown psi {_cut(model.psi)}")
    if not 1e-6 <= model.temperature <= 1e6:
        raise ModelError(f"temperature {model.temperature}, expected above 0")


def _check_card(card: Any) -> None:
    """See that what the readers of a card calculate with is there as numbers."""
    try:
        reading, rejection, learned = ({**card.get(name, {})} for name in _CALCULATED)
        shares = [row[name] for row in rejection.get("table", []) for name in ("p", "error")]
        shares += [reading.pop("min_p")] if "min_p" in reading else []
        others = [learned[name] for name in {"marks", "lean"} & set(learned)]
        kinds = (shares, 0, 1), (reading.values(), 0, _LARGEST), (others, -_LARGEST, _LARGEST)
        for value, least, most in ((v, low, high) for some, low, high in kinds for v in some):
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                raise ValueError(f"{_cut(value)} is no number from {least:g} to {most:g}")
    except (AttributeError, KeyError, TypeError, ValueError) as wrong:
        places = ", ".join(_CALCULATED)
        new = "write the card again, or use the model as it was trained"
        raise ModelError(f"the card's {places} are not as they should be ({wrong}); {new}") from None


def _cut(value: Any) -> str:
    words = repr(value)
    return words if len(words) < 60 else f"{words[:57]}..."
