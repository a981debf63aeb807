"""The public `Reader`: that of `neocog.reading`, with worker processes for many pictures."""

import asyncio
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from neocog.batch.archives import Item
from neocog.batch.run import reading
from neocog.batch.tasks import Job
from neocog.reading import reader
from neocog.reading.formats import Format
from neocog.reading.pictures import Picture, loaded, name_of, what_went_wrong
from neocog.reading.records import PageReading

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
