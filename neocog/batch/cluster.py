"""The same run on a Ray cluster: actors that decode and find everywhere, the network on its GPUs.

Every actor has a worker process as a local run has them, with the same limits; the records come
together where the command runs, whose output file is the checkpoint (``--resume``). An actor or a
node that dies is replaced, and its tasks are done again. Inputs are opened where they are read: all
nodes must see them by the same names, and have neocog installed.
"""

import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, chdir, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Any

from neocog.batch.archives import Item
from neocog.batch.pool import Networks, Worker, WorkerDied, in_passes, run_tasks, workers_of
from neocog.batch.tasks import Block, Job, Task, into_tasks
from neocog.batch.worker import limit_process
from neocog.errors import DeviceError, EndedEarly, UsageError
from neocog.programs import python
from neocog.reading.device import check_names, open_finder
from neocog.text import reason_of

_AT_ONCE = 256  # requests that the network of a GPU gathers at a time
_REACH = 5.0  # seconds that a cluster may take to answer, each of three times that it is asked
_TOKEN = secrets.token_hex(32)  # Ray keeps the first one of a process
_CLEAN = """
import os, shutil, sys, time
folder, token = sys.argv[1], sys.stdin.readline().strip().encode()
sys.stdin.read()
def of_the_cluster(number):
    try:
        with open(f"/proc/{number}/environ", "rb") as stream:
            return token in stream.read()
    except OSError:
        return False
proc = "/proc" if os.path.isdir("/proc") else "."
while found := [n for n in os.listdir(proc) if n.isdigit() and of_the_cluster(n)]:
    for number in found:
        try:
            os.kill(int(number), 9)
        except OSError:
            pass
    time.sleep(0.1)
shutil.rmtree(folder, ignore_errors=True)
"""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Ray cluster, "local" one of this run alone (loopback, a token); how the networks run on it."""

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
    def reading(self, job: Job, items: Iterable[Item], *, ordered: bool = False) -> Iterator[Iterator[Block]]:
        """As `neocog.batch.run.reading`; UsageError without Ray or a cluster, DeviceError without a GPU."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # these are read when Ray is imported
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # or it warns
        if self.address == "local":
            os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _TOKEN}
            os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # on loopback, as there
        else:  # ask once, not for minutes
            os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")
            os.environ.setdefault("RAY_py_gcs_connect_timeout_s", f"{_REACH:.0f}")
        ray = _ray()
        with redirect_stdout(sys.stderr), ExitStack() as stack:  # Ray tells on stdout of workers that died
            try:
                host, _, port = self.address.rpartition("://")[2].rpartition(":")
                if port.isdecimal():  # see whether there is anybody
                    socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH).close()
                more = stack.enter_context(_private()) if self.address == "local" else {}
                with chdir(os.path.abspath(os.sep)):  # Ray has actors import what lies in this folder
                    ray.init(address=self.address, log_to_driver=False, logging_level="ERROR", **more)
            except (OSError, ValueError, RuntimeError) as error:
                raise UsageError(f"--ray {self.address}: no cluster there ({reason_of(error)})") from None
            stack.callback(ray.shutdown)
            has, tasks = ray.cluster_resources(), into_tasks(items, job.size)
            gpus, cpus = int(has.get("GPU", 0)), int(has.get("CPU", 1))
            if self.device == "cuda" and not gpus:
                raise DeviceError("device 'cuda': no machine of the cluster has a GPU; use --device cpu")
            gpus, sent = 0 if self.device == "cpu" else gpus, job.with_engine(None)
            if gpus:  # workers ask these about pages too
                sent.reader.finder = open_finder(sent.reader.finder.model, "cuda")
            restarts = {"max_restarts": -1, "max_task_retries": -1, "max_concurrency": _AT_ONCE}
            network = ray.remote(num_gpus=1, **restarts)(Network)
            networks = [network.remote(sent, self.precision, self.plan) for _ in range(gpus)]
            finder = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(Finder)
            begin, own = (os.getcwd(), ray.put(sent)), cycle(networks or [None])
            count = self.workers or max(1, cpus - gpus)
            actors = [_Actor(ray, partial(finder.remote, *begin, next(own))) for _ in range(count)]
            yield run_tasks(tasks, actors, job, ordered=ordered)


@contextmanager
def _private() -> Iterator[dict[str, Any]]:
    """Yield what `ray.init` is told for a cluster that a process beside ends, also after SIGKILL."""
    base = tempfile.gettempdir()
    # a socket's path has at most 107 bytes, of which Ray needs 75; on Windows there are none
    folder = tempfile.mkdtemp(prefix="neocog-ray-", dir=base if len(base) < 10 or os.name == "nt" else "/tmp")
    others = {name: value for name, value in os.environ.items() if name != "RAY_AUTH_TOKEN"}
    cleaner = subprocess.Popen(
        python("-c", _CLEAN, folder), stdin=subprocess.PIPE, env=others, start_new_session=True, text=True
    )
    assert cleaner.stdin is not None
    print(_TOKEN, file=cleaner.stdin, flush=True)
    try:
        yield {"include_dashboard": False, "_temp_dir": folder}
    finally:
        cleaner.communicate()


class Finder:
    """An actor that reads inputs, named as in ``folder``; the actor ``network`` answers it, or its own."""

    def __init__(self, folder: str, job: Job, network: Any = None) -> None:
        with suppress(OSError):  # another machine may not have it
            os.chdir(folder)
        limit_process()
        if network is None:
            ask = Networks(in_passes(job.reader.opened(device="cpu", threads=1))).ask
        else:
            ray = _ray()
            ask = lambda *question: ray.get(network.ask.remote(*question))  # noqa: E731
        self._job, self._worker = job, workers_of(job, ask)[0]

    def begin(self) -> None:
        self._worker.start()

    def do(self, task: Task) -> list[Block]:
        return self._worker.do(task, self._job)


class Network:
    """An actor with a GPU: it answers many finders."""

    def __init__(self, job: Job, precision: str | None, plan: str) -> None:
        reader = job.reader
        engine = reader.opened(device="cuda", precision=precision, plan=plan)
        passes = in_passes(engine, batch=job.batch, isolated=job.isolated)
        self._networks = Networks(passes, open_finder(reader.finder.model, engine))

    def ask(self, *question: Any) -> Any:
        """Answer as `Networks.ask`; many may ask at once."""
        return self._networks.ask(*question)


class _Actor(Worker):
    """A finder on the cluster: it begins where there is room."""

    def __init__(self, ray: Any, make: Callable[[], Any]) -> None:
        self._ray, self._make = ray, make

    def launch(self) -> None:
        self._finder = self._make()
        self._result(self._finder.begin)

    def attempt(self, task: Task) -> list[Block]:
        return self._result(self._finder.do, task)  # type: ignore[no-any-return]

    def _result(self, method: Any, *args: Any) -> Any:
        failures = self._ray.exceptions
        try:
            return self._ray.get(method.remote(*args))
        except failures.RayTaskError as error:
            why = reason_of(error.cause or error)
            raise EndedEarly(f"an actor failed: {why}; rerun with --resume") from None
        except failures.RayError as error:
            self._ray.kill(self._finder)
            raise WorkerDied(f"died ({reason_of(error)})") from None


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise UsageError('--ray needs Ray: pip install "neocog[cluster]"') from None
    if tuple(map(int, getattr(ray, "__version__", "9.0").split(".")[:2])) < (2, 52):
        raise UsageError(f'got Ray {ray.__version__}, which knows no tokens: pip install "ray>=2.52"')
    return ray
