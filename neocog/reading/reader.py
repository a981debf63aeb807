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

from neocog.errors import ModelError, UsageError
from neocog.network.ctc import Automaton
from neocog.network.decision import Answers, of_lone_digits
from neocog.network.lines import LineModel, load_lines
from neocog.network.model import Model, load_model
from neocog.network.registry import DEFAULT, FINDER, LINES, find_model, kind_of
from neocog.reading.numbers import read_page
from neocog.reading.pictures import Picture, is_several, name_of, pages_of, what_went_wrong
from neocog.reading.policy import LinePattern, Pattern, Policy, features, read_valid, weighed
from neocog.reading.records import REJECTED, Box, DigitReading, PageReading, SignReading
from neocog.reading.words import into_words, one_each, stands
from neocog.vision.finder import LONG_SIDE, FinderSettings, Finding
from neocog.vision.finder_model import FinderModel, load_finder
from neocog.vision.page import TURNS, Layout, Line, lay_out, look
from neocog.vision.search import Mark
from neocog.vision.weigh import SearchSettings, Weights

if TYPE_CHECKING:
    from neocog.network.engine import AnyEngine
    from neocog.vision.decode import Page

READERS = ("digits", "lines")


class Reader:
    """Reads digits in pictures.

    Pictures are decoded in this process: their headers are checked, but nothing bounds the time or
    memory of what decodes them. Strangers' files are better read by ``neocog read``.

    Parameters
    ----------
    model : str, Path or Model
        Name of a shipped model, a model file, or a loaded model (for lines a `LineModel`).
    device : str
        Where the networks run: ``"auto"``, ``"cpu"``, ``"cuda"`` (the first GPU) or
        ``"cuda:N"``.
    precision, plan : str, optional
        As :func:`neocog.reading.device.open_engine`.
    min_p : float, optional
        Reject answers of a lower probability, instead of what the model's card says; see `Policy`.
    max_error : float, optional
        Largest share of wrong digits (of those answered) that may be expected, e.g. 0.001; the
        threshold comes from the table in the model's card.
    batch : int, optional
        Digits per pass of the network, as many as the device likes by default.
    finder : str, Path or FinderModel, optional
        A finder's file; the shipped one by default.
    pattern : str, optional
        What each line looks like, ``#`` for a digit: see `Pattern`, for lines `LinePattern`. Of several
        ways to read a line, one with so many digits is taken; none is made up.
    rotate : int, optional
        Degrees clockwise, 0, 90, 180 or 270, by which pages are turned to be read; found out where
        it is not given.
    digits_only : bool
        Leave signs and spaces out of the text.
    reader : str
        ``"digits"`` reads a digit at a time, ``"lines"`` whole numbers with their signs.
    valid : str, Path or iterable of str, optional
        A file of the numbers that may occur, one a line, or these numbers; for lines only.

    Raises
    ------
    ModelError
        If the model or the finder is missing or broken.
    UsageError
        If the thresholds make no sense, or the card shows no errors as rare as ``max_error``.
    DeviceError
        If the device is not there.

    Examples
    --------
    >>> from neocog import Reader                                       # doctest: +SKIP
    >>> Reader().read("photo.jpg").text                                 # doctest: +SKIP
    '07946'
    """

    def __init__(
        self,
        model: str | Path | Model | LineModel | None = None,
        *,
        device: str = "auto",
        precision: str | None = None,
        plan: str = "default",
        min_p: float | None = None,
        max_error: float | None = None,
        batch: int | None = None,
        finder: str | Path | FinderModel | None = None,
        pattern: str | None = None,
        rotate: int | None = None,
        digits_only: bool = False,
        reader: str = "digits",
        valid: "str | Path | Iterable[str] | None" = None,
    ) -> None:
        from neocog.reading.device import finder_beside

        if reader not in READERS:
            raise UsageError(f"reader '{reader}' is unknown: choose one of {', '.join(READERS)}")
        self.kind = reader
        self.line_model: LineModel | None = None
        if reader == "lines":
            lines = model if isinstance(model, LineModel) else load_lines(cast(str, model or LINES))
            self.line_model = lines  # `model` are its ten layers, under its name
            self.model = replace(lines.digits, card=lines.card, version=lines.version)
        elif isinstance(model, Model):
            self.model = model
        elif isinstance(model, LineModel) or kind_of(find_model(model or DEFAULT)) == "lines":
            raise ModelError(f"model {getattr(model, 'id', model)} reads whole lines; add --reader lines")
        else:
            self.model = load_model(model or DEFAULT)
        self.policy = Policy.of(self.model, min_p=min_p, max_error=max_error)
        self.engine = self.opened(device=device, precision=precision, plan=plan)
        usual: int = getattr(self.engine, "batch", 1)  # a line engine reads strip by strip
        if batch is not None and reader == "lines":
            raise UsageError("--batch is for --reader digits; leave it out")
        self.batch = usual if batch is None else batch
        if not isinstance(finder, FinderModel):
            finder = load_finder(find_model(finder or FINDER))
        self.finder = finder_beside(self.engine, finder)
        if rotate is not None and rotate not in TURNS:
            raise UsageError(f"rotate {rotate}: expected 0, 90, 180 or 270 degrees")
        self.rotate, self.digits_only, self.weights = rotate, digits_only, Weights()
        form = LinePattern if reader == "lines" else Pattern
        self.pattern = None if pattern is None else form(pattern)
        self.valid, self.automaton, texts = None, None, None
        if valid is not None:
            if reader != "lines":
                raise UsageError("--valid is for whole numbers; add --reader lines")
            texts = read_valid(valid) if isinstance(valid, str | Path) else tuple(valid)
            self.valid = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
        if reader == "lines" and (pattern is not None or texts is not None):
            self.automaton = Automaton([] if pattern is None else [pattern], texts)

    def opened(self, *, device: str = "auto", threads: int | None = None, **options: Any) -> "AnyEngine":
        """Open the engine of its network on a device, see `neocog.reading.device`."""
        from neocog.reading.device import open_engine, open_line_engine

        if self.line_model is None:
            return open_engine(self.model, device=device, threads=threads, **options)
        if options not in ({}, {"precision": None, "plan": "default"}):
            raise UsageError("--precision and --plan are for --reader digits; leave them out")
        return cast("AnyEngine", open_line_engine(self.line_model, device=device, threads=threads))

    @property
    def settings(self) -> dict[str, Any]:
        """What was asked for and changes what is read: records of other settings are no match."""
        pattern = None if self.pattern is None else self.pattern.form
        asked = {"pattern": pattern, "rotate": self.rotate, "digits_only": self.digits_only or None}
        lines = {"reader": "lines" if self.kind == "lines" else None, "valid": self.valid}
        return {"min_p": self.policy.min_p} | {k: v for k, v in (asked | lines).items() if v is not None}

    def changed(self, **attributes: Any) -> "Reader":
        """Return a reader like this one, but for some attributes."""
        other = copy(self)
        vars(other).update(attributes)
        return other

    def look(self, grey: NDArray[np.uint8], *, settings: FinderSettings | None = None) -> Finding:
        """Return what the finder's network takes for digits and signs on a grey page (H, W)."""
        return look(grey, self.finder, settings)

    def find(
        self, grey: NDArray[np.uint8], *, found: Finding | None = None, settings: SearchSettings | None = None
    ) -> Layout:
        """Find the digits of a grey page (H, W); the digit network answers for each of them.

        ``found`` is what `look` said of it, where it was asked before; ``settings`` are those of
        the search, not of the finder. UsageError if the reader reads whole lines.
        """
        if self.line_model is not None:
            raise UsageError("find and places tell digits one at a time; use a Reader of digits, or read")
        return lay_out(
            grey, self.finder, self._known, count=self.pattern.digits if self.pattern else None,
            turn=self.rotate, weights=self.weights, settings=settings, found=found,
        )  # fmt: skip

    def _known(
        self, digits: NDArray[np.uint8], guesses: NDArray[np.float32]
    ) -> tuple[Answers, NDArray[np.float64]]:
        """Ask the digit network, see `neocog.vision.search.Known`."""
        answers = self.engine.recognise(digits, batch=self.batch)
        return answers, features(answers, self.model, guesses)

    def recognise(self, lines: Sequence[Line], *, scale: float = 1.0) -> tuple[DigitReading, ...]:
        """Return the digits of lines that `find` returned; ``scale``: page pixels per picture pixel."""
        places = [place for line in lines for place in line.digits]
        if not places:
            return ()
        answers = Answers.join([place.answer for place in places if place.answer])
        return self.judge(answers, [_box(place.box, scale) for place in places], places=places)

    def judge(
        self, answers: Answers, boxes: Sequence[Box], *, places: Sequence[Mark] | None = None
    ) -> tuple[DigitReading, ...]:
        """Return B answers as digits, or as places that are rejected for a reason.

        ``places`` is what the finder said of them; without it each digit has a picture of its own.
        """
        if places is None:
            answers = of_lone_digits(answers, self.model)
        else:
            answers = weighed(answers, self.model, places, self.weights)
        reasons = [self.policy.reason(answers, index) for index in range(len(boxes))]
        chars = [
            REJECTED if reason else str(label)
            for reason, label in zip(reasons, answers.label.tolist(), strict=True)
        ]
        p, margin = answers.p.tolist(), answers.margin.tolist()
        there = [1.0] * len(boxes) if places is None else [min(place.p, place.whole) for place in places]
        return tuple(map(DigitReading, chars, p, margin, boxes, reasons, there))

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
            If the one picture cannot be decoded.
        """
        if is_several(picture):
            several = cast(Iterable[Picture], picture)
            return [replace(next(self.read_many([one])), picture=one) for one in several]
        one = cast(Picture, picture)
        return replace(next(self.read_pages(one)), picture=one)

    def places(self, picture: Picture) -> list[Mark]:
        """Return the digits of a picture's first page, in order; InputError if it cannot be decoded."""
        return self.find(next(pages_of(picture, LONG_SIDE)).grey).digits

    def read_pages(self, picture: Picture) -> Iterator[PageReading]:
        """Read page after page (of a TIFF or PDF); InputError if it, or a page, cannot be decoded."""
        source, pages = name_of(picture), pages_of(picture, LONG_SIDE)
        start = time.perf_counter()
        for page in pages:
            yield self._read_page(source, page, start)
            start = time.perf_counter()

    def read_many(self, pictures: Iterable[Picture]) -> Iterator[PageReading]:
        """Read pictures one after another; one that fails gives a record with its ``error``."""
        for picture in pictures:
            page = 0
            try:
                for reading in self.read_pages(picture):
                    yield reading
                    page = reading.page + 1
            except Exception as error:  # whatever one picture does, the others are still read
                why = what_went_wrong(error)
                yield PageReading(name_of(picture), page, model=self.model.id, error=why)

    def _read_page(self, source: str, page: "Page", began: float) -> PageReading:
        if self.line_model is not None:
            return read_page(self, source, page, began)
        start = time.perf_counter()
        found = self.find(page.grey)
        rest = iter(self.recognise(found.lines, scale=page.scale))
        high, wide = (round(side / page.scale) for side in page.grey.shape)
        turn, size, marks, pattern = found.turn, (wide, high), [], self.pattern
        for line in found.lines:
            digits = [next(rest) for _ in line.digits]
            own, others = _parted(line, digits, pattern.digits if pattern else None)
            signs = [SignReading(s.char, s.score, _box(s.box, page.scale)) for s in others]
            marks.append((own, one_each(signs, turn, size)))
        lines = into_words(marks, turn=turn, size=size, digits_only=self.digits_only)
        fits = None
        if pattern is not None:
            chars = [[digit.char for digit in line] for line, _ in marks]
            lines = tuple(
                replace(line, text=pattern.fill(some)) if pattern.fits(some) else line
                for line, some in zip(lines, chars, strict=True)
            )
            fits = bool(chars) and all(map(pattern.fits, chars))
        ms = 1e3 * (time.perf_counter() - start)
        return PageReading(
            source=source,
            page=page.index,
            text="\n".join(line.text for line in lines),
            digits=tuple(digit for own, _ in marks for digit in own),
            model=self.model.id,
            ms={"decode": 1e3 * (start - began), "find": ms - found.ms, "recognise": found.ms},
            signs=tuple(sign for _, signs in marks for sign in signs),
            left_out=found.left_out,
            turn=turn,
            finder=self.finder.model.id,
            fits=fits,
            size=size,
            lines=lines,
        )


def _parted(
    line: Line, digits: list[DigitReading], count: int | None
) -> tuple[list[DigitReading], list[Mark]]:
    """Digits and signs of a line: what is rejected, and hardly a digit, is the sign at its place.

    Only a sign that stands in the text is; a line has a digit, and its ``count`` if given.
    """
    kept, signs = [], []
    for place, digit in zip(line.digits, digits, strict=True):
        sign = place.sign if digit.char == REJECTED and digit.p < 0.5 else None
        if sign and stands(sign.char, sign.score):
            signs.append(sign)
        else:
            kept.append(digit)
    if not kept or len(digits) == count:
        return digits, list(line.signs)
    return kept, [*line.signs, *signs]


def _box(box: tuple[int, int, int, int], scale: float) -> tuple[int, int, int, int]:
    """From pixels of the reduced page to pixels of the picture."""
    x, y, width, height = (round(value / scale) for value in box)
    return x, y, width, height
