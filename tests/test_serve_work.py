"""Requests of `neocog serve` have a limit, may be cancelled, and never keep others waiting."""

import os
from collections.abc import Iterator
from concurrent.futures import wait
from typing import Any
from unittest.mock import patch

import pytest

from neocog import Reader
from neocog.errors import EndedEarly, InputError
from neocog.serve.work import Service
from tests.faults import FaultyServeJob
from tests.support import page_file, tiny_model, until

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
PAGE = page_file("12")


def open_service(workers: int) -> Service:
    with patch("neocog.serve.work.ServeJob", FaultyServeJob):
        return Service(Reader(tiny_model(), device="cpu"), workers=workers)


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with open_service(2) as running:
        running.warm()
        yield running


def ask(service: Service, name: str = "a.png", **options: Any) -> Any:
    return service.ask(name, PAGE, what="read", live=False, **options)


def test_a_slow_request_ends_at_its_limit_and_others_are_served(service: Service) -> None:
    slow = ask(service, "locked.png", limit=1.0)
    others = [ask(service) for _ in range(3)]
    assert [other.result(20)[0]["text"] for other in others] == ["12"] * 3
    with pytest.raises(InputError, match=r"^reading takes longer than 1 s; "):
        slow.result(20)
    assert ask(service).result(20)[0]["text"] == "12"


def test_cancelled_requests_free_their_workers(service: Service) -> None:
    slow = [ask(service, "locked.png") for _ in range(4)]  # two are begun, two wait
    until(lambda: service._requests.qsize() == 2)
    assert all(future.cancel() for future in slow)
    assert ask(service).result(20)[0]["text"] == "12"


def test_a_worker_that_dies_twice_is_an_error_in_the_record(service: Service) -> None:
    (record,) = ask(service, "killed.png").result(30)
    assert record["error"] == "cannot be read: twice, the process that reads it was ended by SIGKILL"


def test_the_end_answers_all_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_service(1) as service:
        asked = [ask(service, "stopped.png") for _ in range(3)]
        until(lambda: service._requests.qsize() == 2)
    assert not wait(asked, 5).not_done
    assert all(isinstance(future.exception(), EndedEarly) for future in asked)
    failed: list[bool] = []
    monkeypatch.setattr("neocog.batch.pool.python", lambda *_: ["/no/such/python"])
    with open_service(1) as service:
        service.on_failure = lambda: failed.append(True)
        until(lambda: service._error)
        with pytest.raises(EndedEarly, match="cannot be started"):
            ask(service)
