"""From a picture to its text: decode, find the digits, recognise them, reject the doubtful."""

import time
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, overload

import numpy as np
from numpy.typing import NDArray

from neocog.batch.pictures import Picture, is_several, name_of, pages_of
from neocog.errors import UsageError
from neocog.network.cache import AnswerCache
from neocog.network.decision import of_lone_digits
from neocog.reading.pattern import Pattern
from neocog.reading.policy import Policy, features, weighed
from neocog.reading.records import REJECTED, Box, DigitReading, PageReading, SignReading
from neocog.reading.words import into_words, one_each, stands

if TYPE_CHECKING:
    from neocog.network.decision import Answers
    from neocog.network.engine import AnyEngine
    from neocog.network.model import Model
    from neocog.vision.decode import Page
    from neocog.vision.finder import FinderSettings, Finding
    from neocog.vision.finder_model import FinderModel
    from neocog.vision.page import Layout, Line
    from neocog.vision.search import Mark
    from neocog.vision.weigh import SearchSettings


class Reader:
    """Reads digits in pictures.

    Pictures are decoded in this process: their headers are checked, but nothing bounds the time or
    memory of what decodes them. Strangers' files are better read by ``neocog read``.

    Parameters
    ----------
    model : str, Path or Model
        Name of a shipped model, a model file, or a loaded model.
    device : str
        Where the networks run: ``"auto"``, ``"cpu"``, ``"cuda"`` (every GPU; the finder on the
        first) or ``"cuda:N"``.
    precision, plan : str, optional
        As :func:`neocog.batch.device.open_engine`.
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
        What each line looks like, ``#`` for a digit: see `Pattern`. Of several ways to read
        a line, one with so many digits is taken; none is made up.
    rotate : int, optional
        Degrees clockwise, 0, 90, 180 or 270, by which pages are turned to be read; found out where
        it is not given.
    digits_only : bool
        Leave signs and spaces out of the text.

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
        model: "str | Path | Model | None" = None,
        *,
        device: str = "auto",
        precision: str | None = None,
        plan: str = "default",
        min_p: float | None = None,
        max_error: float | None = None,
        batch: int | None = None,
        finder: "str | Path | FinderModel | None" = None,
        pattern: str | None = None,
        rotate: int | None = None,
        digits_only: bool = False,
    ) -> None:
        from neocog.batch.device import finder_beside, open_engine
        from neocog.network.model import Model, load_model
        from neocog.network.registry import DEFAULT, FINDER, find_model
        from neocog.vision.finder_model import FinderModel, load_finder
        from neocog.vision.page import TURNS
        from neocog.vision.weigh import Weights

        self.model = model if isinstance(model, Model) else load_model(model or DEFAULT)
        self.policy = Policy.of(self.model, min_p=min_p, max_error=max_error)
        self.engine = open_engine(self.model, device=device, precision=precision, plan=plan)
        self.batch = self.engine.batch if batch is None else batch
        if not isinstance(finder, FinderModel):
            finder = load_finder(find_model(finder or FINDER))
        self.finder = finder_beside(self.engine, finder)
        if rotate is not None and rotate not in TURNS:
            raise UsageError(f"rotate {rotate}: expected 0, 90, 180 or 270 degrees")
        self.rotate, self.digits_only, self.weights = rotate, digits_only, Weights()
        self.pattern = None if pattern is None else Pattern(pattern)

    @property
    def settings(self) -> dict[str, Any]:
        """What was asked for and changes what is read: records of other settings are no match."""
        settings: dict[str, Any] = {"min_p": self.policy.min_p}
        if self.pattern is not None:
            settings["pattern"] = self.pattern.form
        if self.rotate is not None:
            settings["rotate"] = self.rotate
        if self.digits_only:
            settings["digits_only"] = True
        return settings

    def look(self, grey: NDArray[np.uint8], *, settings: "FinderSettings | None" = None) -> "Finding":
        """Return what the finder's network takes for digits and signs on a grey page (H, W)."""
        from neocog.vision.page import look

        return look(grey, self.finder, settings)

    def find(
        self,
        grey: NDArray[np.uint8],
        *,
        found: "Finding | None" = None,
        settings: "SearchSettings | None" = None,
    ) -> "Layout":
        """Find the digits of a grey page (H, W), as they are going to be read.

        ``found`` is what `look` said of it, where it was asked before; ``settings`` are those of
        the search, not of the finder.
        """
        from neocog.vision.page import lay_out

        count = self.pattern.digits if self.pattern else None
        return lay_out(
            grey, self.finder, self._known,
            count=count, turn=self.rotate, weights=self.weights, settings=settings, found=found,
        )  # fmt: skip

    def recognise(self, lines: "Sequence[Line]", *, scale: float = 1.0) -> tuple[DigitReading, ...]:
        """Recognise the digits that were found on a page, all in one batch.

        Parameters
        ----------
        lines : sequence of Line
            As `find` returns them.
        scale : float
            Pixels of the searched page per pixel of the picture.

        Returns
        -------
        tuple of DigitReading
            In the order of the lines' digits.
        """
        places = [place for line in lines for place in line.digits]
        if not places:
            return ()
        answers = self.engine.recognise(np.stack([p.digit for p in places]), batch=self.batch)
        boxes = [_box(place.box, scale) for place in places]
        return self.judge(answers, boxes, places=places)

    def judge(
        self, answers: "Answers", boxes: "Sequence[Box]", *, places: "Sequence[Mark] | None" = None
    ) -> tuple[DigitReading, ...]:
        """What the network's answers come to: a digit, or a place rejected for a reason.

        Parameters
        ----------
        answers : Answers
            Of the network, for B marks.
        boxes : sequence of tuple of int
            Where each stands in its picture.
        places : sequence of Mark, optional
            What the finder said of them; without it they are digits that nobody searched for,
            each in a picture of its own.
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

    def places(self, picture: Picture) -> "list[Mark]":
        """Return the digits of a picture's first page as the network gets them, in order.

        Raises
        ------
        InputError
            If it cannot be decoded.
        """
        from neocog.vision.finder import LONG_SIDE

        return self.find(next(pages_of(picture, LONG_SIDE)).grey).digits

    def read_pages(self, picture: Picture) -> Iterator[PageReading]:
        """Read page after page; a TIFF or PDF may hold several.

        Raises
        ------
        InputError
            If it, or a page of it, cannot be decoded.
        """
        from neocog.vision.finder import LONG_SIDE

        source, pages = name_of(picture), pages_of(picture, LONG_SIDE)
        start = time.perf_counter()
        for page in pages:
            yield self._read_page(source, page, start)
            start = time.perf_counter()

    def read_many(self, pictures: Iterable[Picture]) -> Iterator[PageReading]:
        """Read pictures one after another; one that fails gives a record with its ``error``."""
        from neocog.batch.tasks import what_went_wrong

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
        grey = page.grey
        start = time.perf_counter()
        cached = AnswerCache(self.engine)
        reader = copy(self)
        reader.engine = cast("AnyEngine", cached)
        found = reader.find(grey)
        rest = iter(reader.recognise(found.lines, scale=page.scale))
        high, wide = (round(side / page.scale) for side in grey.shape)
        turn, size, marks = found.turn, (wide, high), []
        count = self.pattern.digits if self.pattern else None
        for line in found.lines:
            own, others = _parted(line, [next(rest) for _ in line.digits], count)
            signs = [SignReading(s.char, s.score, _box(s.box, page.scale)) for s in others]
            marks.append((own, one_each(signs, turn, size)))
        digits = tuple(digit for own, _ in marks for digit in own)
        lines = into_words(marks, turn=turn, size=size, digits_only=self.digits_only)
        pattern, fits = self.pattern, None
        if pattern is not None:
            chars = [[digit.char for digit in line] for line, _ in marks]
            lines = tuple(
                replace(line, text=pattern.fill(some)) if pattern.fits(some) else line
                for line, some in zip(lines, chars, strict=True)
            )
            fits = bool(chars) and all(map(pattern.fits, chars))
        whole = 1e3 * (time.perf_counter() - start)
        return PageReading(
            source=source,
            page=page.index,
            text="\n".join(line.text for line in lines),
            digits=digits,
            model=self.model.id,
            ms={"decode": 1e3 * (start - began), "find": whole - cached.ms, "recognise": cached.ms},
            signs=tuple(sign for _, signs in marks for sign in signs),
            left_out=found.left_out,
            turn=turn,
            finder=self.finder.model.id,
            fits=fits,
            size=size,
            lines=lines,
        )

    def _known(self, digits: NDArray[np.uint8], guesses: NDArray[np.float32]) -> NDArray[np.float64]:
        """What the digit network says of places (N,), see `neocog.vision.weigh.NETWORK`."""
        answers = self.engine.recognise(digits, batch=self.batch)
        return features(answers, self.model, guesses)


def _parted(
    line: "Line", digits: list[DigitReading], count: int | None
) -> "tuple[list[DigitReading], list[Mark]]":
    """Digits and signs of a line: what is rejected, and hardly a digit, is the sign at its place.

    Only a sign that stands in the text is; a line has a digit, and its ``count`` if given.
    """
    signs = [
        place.sign if digit.char == REJECTED and digit.p < 0.5 else None
        for place, digit in zip(line.digits, digits, strict=True)
    ]
    signs = [sign if sign and stands(sign.char, sign.score) else None for sign in signs]
    if all(signs) or len(digits) == count:
        return digits, list(line.signs)
    kept = [digit for digit, sign in zip(digits, signs, strict=True) if sign is None]
    return kept, [*line.signs, *(sign for sign in signs if sign is not None)]


def _box(box: tuple[int, int, int, int], scale: float) -> tuple[int, int, int, int]:
    """From pixels of the reduced page to pixels of the picture."""
    x, y, width, height = (round(value / scale) for value in box)
    return x, y, width, height
