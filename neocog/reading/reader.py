"""From a picture to its text: decode, find the digits, recognise them, reject the doubtful."""

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, overload

import numpy as np
from numpy.typing import NDArray

from neocog.errors import InputError, UsageError, no_opencv
from neocog.network.automaton import permitted
from neocog.network.decision import Answers, of_lone_digits
from neocog.network.lines import LineModel, load_any
from neocog.network.model import Model
from neocog.network.registry import FINDER, LINES, find_model
from neocog.reading.device import open_engine, open_finder
from neocog.reading.numbers import page_lines
from neocog.reading.pictures import Picture, name_of, pages_of, what_went_wrong
from neocog.reading.policy import Pattern, Policy, read_valid
from neocog.reading.records import REJECTED, Box, DigitReading, LineReading, NumberReading
from neocog.reading.results import PageReading
from neocog.vision.decode import MAX_PIXELS
from neocog.vision.finder import FinderSettings, Finding, find
from neocog.vision.finder_model import FinderModel, load_finder
from neocog.vision.page import TURNS, around
from neocog.vision.scales import LONGEST, search

if TYPE_CHECKING:
    from neocog.network.engine import AnyEngine
    from neocog.vision.decode import Page

SURE = 0.95
"""Probability from which cells of forms are printed: 0.2 to 0.3 % of drawn ones are wrong (2026-11-27)."""
_DIGITS = frozenset("0123456789" + REJECTED)


class Reader:
    """Reads digits in pictures.

    `read` and `read_pages` decode in this process: headers are checked, but nothing bounds the time or
    memory of what decodes a picture. Strangers' files are better read by `read_many`, or ``neocog read``.

    Parameters
    ----------
    model : str, Path, Model or LineModel, optional
        Name of a shipped model, a model file, or a loaded model; ``neocog-lines`` by default. A line
        model reads whole numbers with their signs; a digit model reads pages box by box.
    device : str
        Where the networks run: ``"auto"``, ``"cpu"``, ``"cuda"`` (the first GPU) or
        ``"cuda:N"``.
    precision, plan : str, optional
        As :func:`neocog.reading.device.open_engine`.
    min_p : float, optional
        Reject answers of a lower probability, instead of what the model's card says; see `Policy`.
    max_error : float, optional
        Largest share of the printed numbers that may be wrong, e.g. 0.02; the threshold comes from the
        table in the card of the line model. Not for digit models, which read no whole numbers.
    batch : int, optional
        Digits per pass of the network, as many as the device likes by default.
    finder : str, Path or FinderModel, optional
        A finder's file; the shipped one by default.
    pattern : str, optional
        What each line looks like, ``#`` for a digit: see `Pattern`. Of several ways to read a line, the
        likeliest that looks so is taken, unless it is far less likely than another.
    rotate : int, optional
        Degrees clockwise, 0, 90, 180 or 270, by which pages are turned to be read; found out where
        it is not given.
    long_side : int or "full", optional
        Pixels to which the long side of larger pictures is reduced; 8192 by default, of ``"full"`` none.
    mirror : bool
        Pages are mirrored left to right before they are read.
    digits_only : bool
        Leave signs and spaces out of the text.
    valid : str, Path or iterable of str, optional
        A file of the numbers that may occur, one a line, or these numbers.

    Raises
    ------
    ModelError
        If the model or the finder is missing or broken.
    UsageError
        If the thresholds make no sense, or the card's table does not bear ``max_error``.
    DeviceError
        If the device is not there.

    Examples
    --------
    >>> from neocog import Reader                                       # doctest: +SKIP
    >>> Reader().read("photo.jpg").text                                 # doctest: +SKIP
    '07946'
    """

    def __init__(
        self, model: str | Path | Model | LineModel | None = None, *, device: str = "auto",
        precision: str | None = None, plan: str = "default", min_p: float | None = None,
        max_error: float | None = None, batch: int | None = None,
        finder: str | Path | FinderModel | None = None, pattern: str | None = None,
        rotate: int | None = None, long_side: int | str | None = None, mirror: bool = False,
        digits_only: bool = False, valid: "str | Path | Iterable[str] | None" = None,
    ) -> None:  # fmt: skip
        if not isinstance(model, Model | LineModel):
            model = load_any(model or LINES)
        self.line_model = model if isinstance(model, LineModel) else None
        self.kind = "digits" if self.line_model is None else "lines"  # as wholes, or digits one at a time
        if isinstance(model, LineModel):  # `model` are its ten layers, under its name
            model = replace(model.digits, card=model.card, version=model.version)
        self.model: Model = model
        if max_error is not None and self.line_model is None:
            why = f"max_error speaks of whole numbers, but {model.name} reads digits"
            raise UsageError(f"{why}; leave it out (read --isolated takes it)")
        self.policy = Policy.of(self.model, min_p=min_p, max_error=max_error)
        self.usual = min_p is None and max_error is None  # the policy is the model's own
        self.engine = self.opened(device=device, precision=precision, plan=plan)
        usual: int = getattr(self.engine, "batch", 1)  # a line engine reads strip by strip
        if batch is not None and self.line_model is not None:
            raise UsageError(f"--batch is not for {self.model.name}; leave it out")
        self.batch = usual if batch is None else batch
        if not isinstance(finder, FinderModel):
            finder = load_finder(find_model(finder or FINDER))
        self.finder = open_finder(finder, self.engine)
        if rotate is not None and rotate not in TURNS:
            raise UsageError(f"rotate {rotate}: expected 0, 90, 180 or 270 degrees")
        if long_side not in (None, "full") and not (isinstance(long_side, int) and long_side >= 64):
            raise UsageError(f"long_side {long_side}: expected 64 pixels or more, or full")
        self.rotate, self.mirror, self.digits_only, self.long_side = rotate, mirror, digits_only, long_side
        self.pattern = None if pattern is None else Pattern(pattern)
        self.valid, texts = None, None
        if valid is not None:
            texts = read_valid(valid) if isinstance(valid, str | Path) else tuple(valid)
            self.valid = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
        self.automaton = permitted([] if pattern is None else [pattern], texts)

    def opened(self, *, device: str = "auto", threads: int | None = None, **options: Any) -> "AnyEngine":
        """Open the engine of its network on a device, see `neocog.reading.device`."""
        engine = open_engine(self.line_model or self.model, device=device, threads=threads, **options)
        return cast("AnyEngine", engine)

    @property
    def settings(self) -> dict[str, Any]:
        """What was asked for and changes what is read: records of other settings are no match."""
        pattern = None if self.pattern is None else self.pattern.form
        asked = {"pattern": pattern, "rotate": self.rotate, "digits_only": self.digits_only or None}
        asked |= {"valid": self.valid, "long_side": self.long_side, "mirror": self.mirror or None}
        return {"min_p": self.policy.min_p} | {k: v for k, v in asked.items() if v is not None}

    @property
    def longest(self) -> int:
        """Pixels of a page's long side when it is decoded, at most."""
        return MAX_PIXELS if self.long_side == "full" else int(self.long_side or LONGEST)

    def changed(self, **attributes: Any) -> "Reader":
        """Return a reader like this one, but for some attributes."""
        other = copy(self)
        vars(other).update(attributes)
        return other

    def for_sheets(self) -> "Reader":
        """A reader that prints cells of forms from `SURE` on, if no other probability was asked for."""
        return self.changed(policy=Policy(max(SURE, self.policy.min_p))) if self.usual else self

    def look(self, grey: NDArray[np.uint8], *, settings: FinderSettings | None = None) -> Finding:
        """Return what the finder's network takes for digits and signs on a grey page (H, W)."""
        return search(grey, self.finder) if settings is None else find(grey, self.finder, settings)

    def judge(self, answers: Answers, boxes: Sequence[Box]) -> tuple[DigitReading, ...]:
        """Return B answers, of digits that each have a picture of their own, or why they are rejected."""
        answers = of_lone_digits(answers, self.model)
        reasons = [self.policy.reason(answers, index) for index in range(len(boxes))]
        chars = [REJECTED if why else str(k) for why, k in zip(reasons, answers.label.tolist(), strict=True)]
        return tuple(map(DigitReading, chars, answers.p.tolist(), answers.margin.tolist(), boxes, reasons))

    @overload
    def read(self, picture: Picture) -> PageReading: ...  # type: ignore[overload-overlap]

    @overload
    def read(self, picture: Iterable[Picture]) -> list[PageReading]: ...

    def read(self, picture: "Picture | Iterable[Picture]") -> PageReading | list[PageReading]:
        """Read the first page of a picture, or of each of several.

        Parameters
        ----------
        picture : str, Path, bytes, binary file, PIL image, ndarray, or an iterable of them
            A picture file or its http(s) address, its bytes, or a file that is open; or pixels
            (H, W) or (H, W, 3) in RGB order, uint8. Of several, one that cannot be decoded gives a
            record with its ``error``.

        Raises
        ------
        InputError
            If the one picture cannot be decoded; the text begins with its name.
        """
        single = isinstance(picture, str | bytes | Path | np.ndarray) or hasattr(picture, "read")
        if isinstance(picture, Iterable) and not single:
            several = cast(Iterable[Picture], picture)
            return [replace(next(self.read_pages(one, safely=True)), picture=one) for one in several]
        return replace(next(self.read_pages(cast(Picture, picture))), picture=picture)

    def read_pages(self, picture: Picture, *, safely: bool = False) -> Iterator[PageReading]:
        """Read page after page (of a TIFF or PDF); InputError if it, or a page, cannot be decoded.

        ``safely``: whatever goes wrong gives a record with its ``error``.
        """
        source, at = name_of(picture), 0
        try:
            start = time.perf_counter()
            for page in pages_of(picture, self.longest):
                yield read_page(self, source, page, start)
                at, start = page.index + 1, time.perf_counter()
        except Exception as error:
            if safely:  # others are still read
                yield PageReading(source, at, model=self.model.id, error=what_went_wrong(error))
            elif isinstance(error, InputError):
                raise InputError(f"{source}: {error}") from None
            elif isinstance(error, ImportError) and error.name == "cv2":
                raise no_opencv(error) from None
            else:
                raise


def read_page(reader: Reader, source: str, page: "Page", began: float) -> PageReading:
    """Read a page; ``began``: when its decoding did."""
    start = time.perf_counter()
    lines, left_out, turn, spent, warnings = page_lines(reader, page)
    # a line's words; all digits and signs of the page
    digits, signs, told = list[DigitReading](), list[DigitReading](), list[LineReading]()
    for line in lines:
        words = list[NumberReading]()
        for word in line.words:
            first = len(digits)
            for char in word.chars:
                (digits if char.char in _DIGITS else signs).append(char)
            span = (first, len(digits) - 1) if len(digits) > first else None
            text = "".join(filter(_DIGITS.__contains__, word.text)) if reader.digits_only else word.text
            words.append(replace(word, digits=span, shown=text))
        text = ("" if reader.digits_only else " ").join(word.shown for word in words)
        told.append(LineReading(text, around([word.box for word in words]), tuple(words), line.margin))
    whole = time.perf_counter() - start
    fits = bool(lines) and None not in (line.margin for line in lines) if reader.automaton else None
    return PageReading(
        source=source, page=page.index, text="\n".join(line.text for line in told), digits=tuple(digits),
        model=reader.model.id, signs=tuple(signs), left_out=left_out, turn=turn, lines=tuple(told),
        ms={"decode": 1e3 * (start - began), "find": 1e3 * spent, "recognise": 1e3 * (whole - spent)},
        finder=reader.finder.model.id, size=page.size, fits=fits,
        reader=reader.kind, scale=min(page.scales), warnings=warnings, mirror=reader.mirror,
    )  # fmt: skip
