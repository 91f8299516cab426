"""`manage.py serve`, as a person starts, stops and breaks it."""
from __future__ import annotations

import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Callable, Iterator

import psutil
import pytest

from tests.conftest import ROOT, service_environment
from triage.serve import ServeError, Service

pytestmark = pytest.mark.services
SECONDS = 60


class Run:
    """A `manage.py serve` in a process of its own, and what it prints."""

    def __init__(self, data: Path, **changes: str) -> None:
        defaults = {"PORT": "0", "TRIAGE_EXAMPLE": "0", "TRIAGE_WEB_PROCESSES": "1"}
        alone = {"DATABASE_URL": "", "REDIS_URL": ""}  # what is tried here is the supervisor
        environment = service_environment(TRIAGE_DATA=str(data), **{**defaults, **alone, **changes})
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "serve"], cwd=ROOT, env=environment, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.output: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def wait_for(self, pattern: str) -> re.Match[str]:
        for line in self.output:        # parts start at the same time: it may have been said already
            if match := re.search(pattern, line):
                return match
        deadline = time.monotonic() + SECONDS
        while (line := self._lines.get(timeout=deadline - time.monotonic())) is not None:
            self.output.append(line)
            if match := re.search(pattern, line):
                return match
        pytest.fail(f"no line like {pattern!r} in:\n{''.join(self.output)}")

    def wait_until_ready(self) -> str:
        return self.wait_for(r"HLO Triage is at (\S+)")[1]

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def wait(self) -> int:
        return self.process.wait(SECONDS)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def start(data: str = "data", **changes: str) -> Run:
        runs.append(Run(tmp_path / data, **changes))
        return runs[-1]

    yield start
    for one in runs:
        if one.process.poll() is None:
            one.process.terminate()
            one.wait()


def fetch(url: str) -> tuple[int, str]:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def assert_gone(processes: list[psutil.Process]) -> None:
    assert processes
    _, alive = psutil.wait_procs(processes, timeout=15)
    assert not alive, [process.cmdline() for process in alive if process.is_running()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_answers_and_stops_everything_when_told(run: Callable[..., Run], number: int) -> None:
    service = run()
    url = service.wait_until_ready()
    assert fetch(f"{url}/healthz") == (200, '{"status": "ok", "database": "ok", "broker": "ok"}')
    children = service.children()
    assert len(children) >= 4, "redis, web, its process, worker"
    service.process.send_signal(number)
    assert service.wait() == 0
    assert_gone(children)


def test_nothing_survives_a_supervisor_that_is_killed(run: Callable[..., Run]) -> None:
    service = run()
    service.wait_until_ready()
    service.wait_for("celery@.* ready")  # the worker has its pool
    children = service.children()
    service.process.kill()
    service.wait()
    assert_gone(children)


def test_what_cannot_react_does_not_survive_a_supervisor_that_is_killed(run: Callable[..., Run]) -> None:
    """Stopped processes stand for stuck ones: they follow no signal but one."""
    service = run()
    service.wait_until_ready()
    service.wait_for("celery@.* ready")
    children = service.children()
    for child in children:
        child.suspend()
    service.process.kill()
    service.wait()
    assert_gone(children)


def test_a_taken_port_is_named_with_what_to_do(run: Callable[..., Run]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        service = run(PORT=str(port))
        service.wait_for(f"Port {port} of 127.0.0.1 is taken by another program; "
                         f"choose another: PORT={port + 1} make run")
        assert service.wait() == 1


@pytest.mark.parametrize("part, program", [("worker", "celery"), ("web", "gunicorn"), ("redis", "-server")])
def test_a_part_that_dies_is_named_and_ends_the_rest(run: Callable[..., Run], part: str, program: str) -> None:
    service = run()
    service.wait_until_ready()
    children = service.children()
    victim = next(child for child in psutil.Process(service.process.pid).children() if program in str(child.cmdline()))
    victim.kill()
    service.wait_for(f"The part '{part}' ended by itself .signal 9., so everything was stopped; .*make run")
    assert service.wait() == 1
    assert_gone(children)


def test_two_services_do_not_share_a_data_directory(run: Callable[..., Run]) -> None:
    run(data="same").wait_until_ready()
    second = run(data="same")
    second.wait_for("Another HLO Triage uses the data directory .*TRIAGE_DATA=DIR make run")
    assert second.wait() == 1


def test_a_database_that_cannot_be_reached_is_named(start_service: Callable[..., Service]) -> None:
    with pytest.raises(ServeError, match="The database cannot be prepared; check DATABASE_URL: "):
        start_service(DATABASE_URL="postgres://nobody@127.0.0.1:1/nothing")


def test_healthz_says_which_part_is_missing(start_service: Callable[..., Service]) -> None:
    service = start_service(REDIS_URL="")
    broker = next(part for part in service.parts if part.name == "redis")
    os.kill(broker.process.pid, signal.SIGKILL)
    broker.process.wait()
    assert fetch(f"{service.url}/healthz") == (503, '{"status": "failing", "database": "ok", "broker": "unreachable"}')
