"""The ten layers along a line of writing: the model that reads a strip, and its file.

A strip is ink (48, w), 0 paper .. 1 ink, digits 34 rows high. Padded with paper on the right to W columns,
and all around to the 65 rows of U0, it passes through the weights of an isolated digit's layers; after UC2
every column is kept (UC3 has stride 1 across, US4 looks at every second column): see
:func:`neocog.network.reference.respond_line`. A small head over neighbouring columns turns the responses of
UC4 into scores of characters and of none (the blank of CTC).

The file is a digit model's (:mod:`neocog.network.model`), but of format ``neocog lines 1``; it holds the head
(``head.own``, ``head.bias``, ``head.w1`` .. ``head.b3``), its header alphabet and temperature besides.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from neocog.errors import InputError, ModelError
from neocog.network import model as files
from neocog.network.model import Model, Precision, load_model, tensor_of
from neocog.network.registry import find_model, kind_of
from neocog.network.spec import INPUT_SIZE, NetworkSpec

Counts = TypeVar("Counts", int, NDArray[np.int64])

ALPHABET = "0123456789.,-/:+()=x*%# "  #: characters by index; the blank comes after them
ROWS, NARROWEST, WIDEST = 48, 16, 700  #: rows of a strip, and the columns that one may have
MULTIPLE = 32  #: strips are padded to multiples of this many columns
#: Rows and columns of paper above and to the left of a strip in U0; one more goes below and to the right.
MARGIN = (INPUT_SIZE - ROWS) // 2
BESIDE = 8  #: columns of silence on both sides of UC3
FORMAT = "neocog lines 1"
_HEAD = tuple(f"head.{name}" for name in ("own", "bias", "w1", "w2", "w3", "b1", "b2", "b3"))
MAX_INNER = 4096  #: planes of the head's layers: trained ones have 160
#: What scores can reach, given the weights: far from the largest float32, so that all sums are finite.
MAX_SCORE = 1e12


def padded(width: int) -> int:
    """Return the columns W to which a strip of so many columns is padded with paper."""
    return -(-width // MULTIPLE) * MULTIPLE


def columns(width: Counts) -> Counts:
    """Return how many columns of the answer to a strip of ``width`` columns count; of an array, of each."""
    return (width + 3) // 4 + 6


def strip_u0(strip: NDArray[Any]) -> NDArray[np.float32]:
    """Return U0 (65, W + 17) float32 of a strip (48, w): ink as floats, cut to 0 .. 1, or uint8, ink 255.

    InputError if the strip has another shape or holds what is no number.
    """
    shape = strip.shape
    if strip.ndim != 2 or shape[0] != ROWS or not NARROWEST <= shape[1] <= WIDEST:
        raise InputError(f"got a strip of {shape}, expected ({ROWS}, w), w {NARROWEST} to {WIDEST}; scale it")
    if strip.dtype != np.uint8 and not (strip.dtype.kind == "f" and np.isfinite(strip).all()):
        raise InputError(f"got a strip of {strip.dtype}, expected uint8 or finite floats, ink 1 on paper 0")
    u0 = np.zeros((INPUT_SIZE, padded(shape[1]) + 2 * MARGIN + 1), np.float32)
    ink = strip / np.float32(255) if strip.dtype == np.uint8 else strip
    u0[MARGIN : MARGIN + ROWS, MARGIN : MARGIN + shape[1]] = np.clip(ink, 0, 1)
    return u0


def log_likelihoods(z: NDArray[Any], temperature: float) -> NDArray[Any]:
    """Return log softmax(z / temperature) over the n characters of each column, (n, T) -> (T, n)."""
    odds = (z.T - z.T.max(axis=1, keepdims=True)) / temperature
    return np.asarray(odds - np.log(np.exp(odds).sum(axis=1, keepdims=True)))


@dataclass(frozen=True, slots=True)
class Head:
    """Scores z = own y + bias + w3 * relu(w2 * relu(w1 * [y; m] + b1) + b2) + b3 over the columns of UC4."""

    own: NDArray[np.float32]  #: what each plane's strongest response y says of each character, (n, K4)
    bias: NDArray[np.float32]  #: (n,)
    #: correlations over columns, (inner, 2 K4, 5), (inner, inner, 5), (n, inner, 1); zeros beyond the ends
    weights: tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]
    biases: tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class LineModel:
    """A network that reads a line: the ten layers, the head, and the characters that it knows."""

    digits: Model  #: the ten layers; its name is this model's
    head: Head
    alphabet: str = ALPHABET  #: the blank has the index after it
    temperature: float = 1.0  #: log likelihoods are log softmax(z / temperature)
    card: dict[str, Any] = field(default_factory=dict)  #: data, recipe, accuracy: JSON values
    version: str = ""  #: as `Model.version`

    def __repr__(self) -> str:  # the arrays and the card would fill a screen
        return f"<LineModel {self.id}: {self.digits!r}>"

    @property
    def name(self) -> str:
        return self.digits.name

    @property
    def id(self) -> str:
        return f"{self.digits.name}@{self.version}" if self.version else self.digits.name

    @property
    def spec(self) -> NetworkSpec:
        return self.digits.spec

    def save(self, path: str | Path, *, precision: Precision = "fp32") -> "LineModel":
        """Write the model to a file and return it as it reads from there; ModelError as `load_lines`."""
        return files.save_with(from_bytes, to_bytes(self, precision=precision), path)


def to_bytes(model: LineModel, *, precision: Precision = "fp32") -> bytes:
    """Return the model as the bytes of a safetensors file; the same model gives the same bytes."""
    parts = model.head.own, model.head.bias, *model.head.weights, *model.head.biases
    tensors, digits = dict(zip(_HEAD, parts, strict=True)), replace(model.digits, card=model.card)
    lines = {"alphabet": model.alphabet, "temperature": model.temperature}
    return files.to_bytes(digits, tensors, precision=precision, format=FORMAT, lines=lines)


def load_lines(name_or_path: str | Path) -> LineModel:
    """Load a line model by name or from a file; ModelError as :func:`neocog.network.model.load_model`."""
    return files.load_with(from_bytes, name_or_path)


def load_any(name_or_path: str | Path) -> "LineModel | Model":
    """Load a shipped model by name, or a model file, of lines or of digits; ModelError."""
    return (load_lines if kind_of(find_model(name_or_path)) == "lines" else load_model)(name_or_path)


def from_bytes(data: bytes, *, source: str) -> LineModel:
    """Build a line model from the bytes of a file; ModelError as :func:`load_lines`."""
    return files.unpack(data, FORMAT, _finish, source=source)


def _finish(digits: Model, header: files.Header, tensors: files.Tensors) -> LineModel:
    """Add the head to the ten layers; ModelError if it does not fit or could give scores beyond bounds."""
    if (alphabet := header["lines"]["alphabet"]) != ALPHABET:
        raise ModelError(f"its alphabet is {str(alphabet)[:40]!r}, expected {ALPHABET!r}")
    if not 1e-3 <= (temperature := float(header["lines"]["temperature"])) <= 1e3:
        raise ModelError(f"a line's temperature {temperature}, expected 0.001 to 1000")
    n, k4, inner = len(ALPHABET) + 1, digits.planes[2], tensors["head.b1"].size
    if not 0 < inner <= MAX_INNER:
        raise ModelError(f"the head has {inner} planes, expected 1 to {MAX_INNER}")
    shapes = ((n, k4), (n,), (inner, 2 * k4, 5), (inner, inner, 5), (n, inner, 1), (inner,), (inner,), (n,))
    every = (tensor_of(tensors, name, shape) for name, shape in zip(_HEAD, shapes, strict=True))
    own, bias, w1, w2, w3, b1, b2, b3 = every

    def reach_of(w: NDArray[np.float32], b: NDArray[np.float32], most: float) -> float:
        """The largest sum w x + b for |x| <= most."""
        return float(np.abs(w).reshape(len(w), -1).sum(axis=1, dtype=float).max() * most + np.abs(b).max())

    # a response of US4 is at most 1, and rounded at most 1 / (1 - threshold), see reference.s_response
    first = 1 / (1 - digits.s[3].threshold)
    reach = reach_of(w3, b3, reach_of(w2, b2, reach_of(w1, b1, first))) + reach_of(own, bias, first)
    if not reach <= MAX_SCORE:
        raise ModelError(f"its scores may reach {reach:.3g}, expected at most {MAX_SCORE:g}")
    head, layers = Head(own, bias, (w1, w2, w3), (b1, b2, b3)), replace(digits, card={}, version="")
    return LineModel(layers, head, alphabet, temperature, digits.card, digits.version)
