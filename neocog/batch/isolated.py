"""Pictures of one digit each: no search, straight to MNIST's form, many to a pass."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from neocog.batch.inputs import Item
from neocog.batch.records import Box, DigitReading, PageReading

if TYPE_CHECKING:
    from neocog.batch.reader import Reader

_Digit = tuple[int, Box, NDArray[np.uint8]]  # page, box and the digit itself


def read_isolated(
    reader: "Reader",
    items: Sequence[Item],
    seconds: dict[str, float],
    beat: Callable[[], None] = lambda: None,
) -> Iterator[tuple[Item, tuple[PageReading, ...]]]:
    """Read pictures of one digit each, all in one go; every page of a TIFF is one digit.

    Yields the items in order, each with its readings; the box of a digit is the whole picture. What
    decoding and recognising took is added to ``seconds``; ``beat`` is called after each picture.
    """
    start = time.perf_counter()
    found = []
    for item in items:
        found.append(_digits_of(item))
        beat()
    digits = [digit for pages, _ in found for digit in pages]
    decoded = time.perf_counter()
    seconds["decode"] = seconds.get("decode", 0.0) + decoded - start
    judged: Iterator[DigitReading] = iter(())
    if digits:
        answers = reader.engine.recognise(
            np.stack([digit for _, _, digit in digits]), batch=reader.batch
        )
        judged = iter(reader.judge(answers, [box for _, box, _ in digits]))
    seconds["recognise"] = seconds.get("recognise", 0.0) + time.perf_counter() - decoded
    model = reader.model.id
    for item, (pages, error) in zip(items, found, strict=True):
        readings = []
        for page, _, _ in pages:
            digit = next(judged)
            readings.append(PageReading(item.source, page, digit.char, (digit,), model))
        if error is not None:
            readings.append(PageReading(item.source, len(pages), model=model, error=error))
        yield item, tuple(readings)


def _digits_of(item: Item) -> tuple[list[_Digit], str | None]:
    """The digit of each page, and why there are no more where one could not be had."""
    from neocog.batch.sources import check_file
    from neocog.batch.tasks import what_went_wrong
    from neocog.vision.decode import decode
    from neocog.vision.finder import LONG_SIDE
    from neocog.vision.normalise import isolated_digit

    pages: list[_Digit] = []
    try:
        picture = item.picture()
        if not isinstance(picture, bytes):
            check_file(picture)
        for page in decode(picture, long_side=LONG_SIDE):
            height, width = (round(side / page.scale) for side in page.grey.shape)
            pages.append((page.index, (0, 0, width, height), isolated_digit(page.grey)))
    except Exception as error:
        return pages, what_went_wrong(error)
    return pages, None
