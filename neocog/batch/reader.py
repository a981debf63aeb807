"""The public `Reader`: that of `neocog.reading`, with worker processes for many pictures."""

import asyncio
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neocog.batch.archives import Item
from neocog.batch.run import blank_from, reading
from neocog.batch.tasks import Job
from neocog.errors import UsageError
from neocog.reading import reader
from neocog.reading.formats import Format
from neocog.reading.forms import Form, load_form
from neocog.reading.pictures import Picture, loaded, name_of, what_went_wrong
from neocog.reading.results import PageReading

if TYPE_CHECKING:
    import pandas

_ALONE = ThreadPoolExecutor(1, "neocog")  # the finder is not thread-safe, and the networks take all cores


class Reader(reader.Reader):
    __doc__ = reader.Reader.__doc__

    def read_many(self, pictures: Iterable[Picture], *, workers: int | None = None) -> Iterator[PageReading]:
        """Read all pages of pictures, in order; one that fails gives a record with its ``error``.

        Parameters
        ----------
        pictures : iterable of pictures, as `read` takes them
            They are taken as they are needed, a few ahead.
        workers : int, optional
            Processes that decode and find, with a limit of time and memory for each page: by default as many
            as ``neocog read`` starts, none for up to 12 pictures. Without any, one is started for the
            first picture that may cost much.
        """
        job = Job(self, Format("text"), keep=True, quiet=True)
        with reading(job, map(_item, pictures), workers=workers, ordered=True) as blocks:
            for block in blocks:
                for _, pages in block.readings:
                    yield from pages

    def read_form(
        self, pictures: Iterable[Picture], form: "str | Path | Form", *, workers: int | None = None
    ) -> "pandas.DataFrame":
        """Read sheets of a form into a data frame: a row for each, columns as of ``neocog read --form``.

        ``fit``, ``residual`` and the columns ``.p`` are numbers. A sheet that cannot be read has its error;
        UsageError without pandas, or if the form, or the blank that it does not name, cannot be read.
        """
        try:
            import pandas
        except ImportError:
            raise UsageError("read_form needs pandas; install it with: pip install pandas") from None
        form = form if isinstance(form, Form) else load_form(form)
        items: Iterator[Item] = map(_item, pictures)
        if form.lacks_blank and (first := next(items, None)) is not None:
            form, items = form.onto(blank_from(first)), chain((first,), items)
        table = Format("csv", fields=form.names)
        job = Job(self.for_sheets(), table, keep=True, quiet=True, form=form)
        with reading(job, items, workers=workers, ordered=True) as blocks:
            found: Iterator[Any] = (one for block in blocks for _, some in block.readings for one in some)
            rows = list(map(table.sheet_row, found))
        frame = pandas.DataFrame(rows, columns=table.columns)
        numbers = ["fit", "residual", *(f"{name}.p" for name in form.names)]
        frame[numbers] = frame[numbers].apply(pandas.to_numeric)
        return frame

    async def read_async(self, picture: Picture) -> PageReading:
        """Read the first page of a picture as `read`, on another thread; pictures take turns."""
        return await asyncio.get_running_loop().run_in_executor(_ALONE, self.read, picture)


def _item(picture: Picture) -> Item:
    name = name_of(picture)
    try:
        data = loaded(picture)
    except Exception as error:  # it is a record
        return Item(name, name, trouble=what_went_wrong(error))
    return Item(name, name, data=None if isinstance(data, str | Path) else data)
