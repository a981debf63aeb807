"""The same run on a Ray cluster."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from neocog.batch.inputs import Item
from neocog.batch.run import Blocks
from neocog.batch.work import Job
from neocog.errors import UsageError


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where."""

    address: str
    device: str
    precision: str | None
    plan: str
    workers: int | None

    @contextmanager
    def reading(self, job: Job, items: Iterable[Item], *, ordered: bool) -> Iterator[Blocks]:
        """Read."""
        raise UsageError("--ray: reading on a cluster is not there yet; leave it out")
        yield
