"""The same run on a Ray cluster: actors that decode and find everywhere, the network on its GPUs.

Every actor has a worker process as a local run has them, with the same limits; the records come
together where the command runs, whose output file is the checkpoint (``--resume``). An actor or a
node that dies is replaced, and its tasks are done again. Inputs are opened where they are read: all
nodes must see them by the same names, and have neocog installed.
"""

import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import chdir, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from typing import Any

from neocog.batch.batching import Batcher, FixedBatches, Networks
from neocog.batch.device import check_names
from neocog.batch.inputs import Item
from neocog.batch.pool import Pool, without_engine
from neocog.batch.run import WINDOW, Blocks
from neocog.batch.scheduler import Scheduler
from neocog.batch.tasks import Block, Job, Task, in_order, into_tasks
from neocog.errors import DeviceError, EndedEarly, UsageError

_DEPTH = 2  # tasks that an actor has at a time
_AT_ONCE = 256  # requests that the network of a GPU gathers at a time
_REACH = 5.0  # seconds that a cluster may take to answer, each of three times that it is asked


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Ray cluster, and how the networks run on it.

    ``address`` "local" is a cluster of this machine alone, for this run. With ``device`` "cuda"
    each GPU has the networks, with "cpu" every actor that decodes. ``precision`` and ``plan`` are
    as :func:`neocog.batch.device.open_engine` takes them.
    """

    address: str  # as ray.init takes it; "auto" is the one of this machine
    device: str = "auto"  # "auto": CUDA if the cluster has a GPU
    precision: str | None = None
    plan: str = "default"
    workers: int | None = None  # actors; by default one on every core that is left

    def __post_init__(self) -> None:
        if self.device not in ("auto", "cpu", "cuda"):
            raise UsageError(f"device '{self.device}': on a cluster, choose auto, cpu or cuda")
        check_names(self.precision, self.plan)
        if self.workers is not None and self.workers < 1:
            raise UsageError(f"{self.workers} workers: a cluster needs at least one")

    @contextmanager
    def reading(
        self, job: Job, items: Iterable[Item], *, ordered: bool = False
    ) -> Iterator[Blocks]:
        """Read inputs on the cluster; the block's value yields their records as they come.

        UsageError without Ray or a cluster, DeviceError if CUDA is asked for and no node has a GPU.
        """
        if self.address != "local":  # read when Ray is imported: ask once, not for minutes
            os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")
            os.environ.setdefault("RAY_py_gcs_connect_timeout_s", f"{_REACH:.0f}")
        ray = _ray()
        with redirect_stdout(sys.stderr):  # Ray tells on stdout of workers that died
            yield from self._blocks(ray, job, items, ordered)

    def _blocks(self, ray: Any, job: Job, items: Iterable[Item], ordered: bool) -> Iterator[Blocks]:
        try:
            self._reach()
            with chdir(os.path.abspath(os.sep)):  # Ray has actors import what lies in this folder
                ray.init(address=self.address, log_to_driver=False, logging_level="ERROR")
        except (OSError, ValueError, RuntimeError) as error:
            raise UsageError(f"--ray {self.address}: no cluster there ({_first(error)})") from None
        try:
            actors = _Actors(ray, self, job)
            window = WINDOW * len(actors.workers) * job.size if ordered else None
            blocks = actors.run(into_tasks(items, job.size), window)
            yield in_order(blocks) if ordered else blocks
        finally:
            ray.shutdown()

    def _reach(self) -> None:
        """See whether there is anybody at the address."""
        host, _, port = self.address.rpartition("://")[2].rpartition(":")
        if port.isdecimal():
            socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH).close()


class Finder:
    """An actor that decodes, finds and writes records.

    ``folder`` is where the names of inputs begin; ``network`` the actor that answers, or None: it
    has a network of its own.
    """

    def __init__(self, folder: str, job: Job, network: Any = None) -> None:
        from neocog.batch.worker import limit_process
        from neocog.network.engine import Engine

        with suppress(OSError):  # another machine may not have it
            os.chdir(folder)
        limit_process()
        networks = (
            Networks(FixedBatches(Engine(job.reader.model, threads=1)))
            if network is None
            else _Forwarded(network)
        )
        self._pool = Pool(job, networks, workers=1)

    def begin(self) -> None:
        """Do nothing: it is there."""

    def do(self, task: Task) -> list[Block]:
        """Read the inputs of a task."""
        return list(self._pool.run([task]))


class Network:
    """An actor with a GPU: it answers many finders."""

    def __init__(self, job: Job, precision: str | None, plan: str) -> None:
        from neocog.batch.device import finder_beside, open_engine

        reader = job.reader
        engine = open_engine(reader.model, device="cuda", precision=precision, plan=plan)
        self._networks = Networks(
            FixedBatches(engine, batch=job.batch, isolated=job.isolated),
            finder_beside(engine, reader.finder.model),
        )

    def ask(self, question: tuple[Any, ...]) -> Any:
        """Answer as `Networks.ask`; many may ask at once."""
        return self._networks.ask(*question)


class _Forwarded(Networks):
    """Networks in an actor elsewhere."""

    def __init__(self, network: Any) -> None:
        ray = _ray()
        self.pages = None
        self.digits = Batcher(
            lambda asked: ray.get([network.ask.remote(question) for question in asked]),
            most=_AT_ONCE,
        )

    def submit(self, question: tuple[Any, ...], reply: Callable[[Any], None]) -> None:
        """Ask, as `Networks.submit`."""
        self.digits.submit(question, reply)


class _Actor:
    """One finder, and what it has been given: nothing before a node has room for it."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.tasks: dict[int, Task] = {}
        self.proven = self.open = False
        self.results = {handle.begin.remote()}

    def give(self, task: Task) -> None:
        """Send a task."""
        self.results.add(self.handle.do.remote(task))


class _Actors:
    """The actors of a run."""

    def __init__(self, ray: Any, cluster: Cluster, job: Job) -> None:
        self._ray = ray
        from neocog.batch.device import finder_on

        has = ray.cluster_resources()
        gpus, cpus = int(has.get("GPU", 0)), int(has.get("CPU", 1))
        if cluster.device == "cuda" and not gpus:
            raise DeviceError(
                "device 'cuda': no machine of the cluster has a GPU; use --device cpu"
            )
        gpus = 0 if cluster.device == "cpu" else gpus
        job = without_engine(job)
        if gpus:  # workers ask these about pages too
            job.reader.finder = finder_on(job.reader.finder.model, "cuda")
        network = ray.remote(num_gpus=1, max_restarts=-1, max_task_retries=-1,
                             max_concurrency=_AT_ONCE)(Network)  # fmt: skip
        self._networks = [network.remote(job, cluster.precision, cluster.plan) for _ in range(gpus)]
        self._job = ray.put(job)
        self._finder = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(Finder)
        count = cluster.workers or max(1, cpus - gpus)
        self.workers = [self._actor(number) for number in range(count)]

    def _actor(self, number: int) -> _Actor:
        own = self._networks[number % len(self._networks)] if self._networks else None
        return _Actor(self._finder.remote(os.getcwd(), self._job, own))

    def run(self, tasks: Iterable[Task], window: int | None) -> Iterator[Block]:
        """Do tasks, and yield what comes of each as it comes."""
        scheduler = Scheduler(tasks, self.workers, depth=_DEPTH, window=window)
        yield from scheduler.run(self._received)

    def _received(self, scheduler: Scheduler) -> Iterator[Block]:
        ends = {result: n for n, worker in enumerate(self.workers) for result in worker.results}
        if not ends:
            time.sleep(0.02)  # no input has been found yet
            return
        ready, _ = self._ray.wait(list(ends), num_returns=1, timeout=0.1)
        failures = self._ray.exceptions
        for result in ready:
            number = ends[result]
            worker = self.workers[number]
            try:
                blocks: list[Block] | None = self._ray.get(result)
            except failures.RayTaskError as error:
                raise EndedEarly(f"an actor failed: {_first(error.cause or error)}") from None
            except failures.RayError as error:
                scheduler.died(worker, f"died ({_first(error)})")
                self._ray.kill(worker.handle)
                self.workers[number] = self._actor(number)
                continue
            worker.proven = worker.open = True
            worker.results.remove(result)
            if blocks:
                scheduler.finished(worker, min(block.first for block in blocks))
                yield from blocks


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise UsageError('--ray needs Ray: pip install "neocog[cluster]"') from None
    return ray


def _first(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]
