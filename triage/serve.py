"""The whole service in one terminal: broker, web server and worker as children of one supervisor.

Every child is tied to the supervisor (see tether.py) and leads a process group of its own, so that nothing survives it:
not when it is interrupted, not when a part dies, not when it is killed.
"""
from __future__ import annotations

import contextlib
import errno
import fcntl
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Mapping

from triage import broker
from triage.tether import tethered

BASE_DIR = Path(__file__).resolve().parent.parent
_READY_SECONDS = 60     # for the web server to answer for the first time
_STOP_SECONDS = 6       # for a part to end by itself; a task that is cut off is run again at the next start
_WATCH_SECONDS = 0.3


class ServeError(Exception):
    """The service cannot start or go on; `str()` says which part and what to do."""


@dataclass(frozen=True)
class Options:
    host: str
    port: int               # 0: any free one
    data: Path              # directory of everything that is written
    web_processes: int = 2
    web_threads: int = 8
    worker_processes: int = 1
    replay_processes: int = 1
    example: bool = True    # whether to make the example, once everything runs


@dataclass
class Part:
    name: str
    process: subprocess.Popen
    needed: bool = True                         # whether the service ends with it
    reader: threading.Thread | None = None      # copies its output


def web_command(bind: str, options: Options) -> list[str]:
    return [sys.executable, "-m", "gunicorn", "triage.wsgi", "--config", "python:triage.gunicorn_hooks", "--bind", bind,
            "--no-control-socket", "--worker-class", "gthread", "--workers", str(options.web_processes),
            "--threads", str(options.web_threads), "--timeout", "120", "--graceful-timeout", str(_STOP_SECONDS - 2),
            "--keep-alive", "15"]


def worker_command(queue: str, processes: int) -> list[str]:
    """A Celery worker for one queue: "celery" has the analyses, "replay" the recompiles."""
    return [sys.executable, "-m", "celery", "--quiet", "-A", "triage.celery", "worker", "--loglevel", "INFO",
            "--queues", queue, "--hostname", f"{queue}@%h", "--concurrency", str(processes),
            "--without-gossip", "--without-mingle"]


class Service:
    """Start with `start()`, block in `watch()`, and call `stop()` in any case. Only from the main thread."""

    def __init__(self, options: Options, environ: Mapping[str, str], out: IO[str] | None = None) -> None:
        self.options = options
        self.environ = {**environ, "PYTHONUNBUFFERED": "1",
                        "TRIAGE_DATA": str(options.data), "TMPDIR": str(options.data / "tmp")}
        self.out = out or sys.stdout
        self.parts: list[Part] = []
        self.url = ""
        self._cleanup = contextlib.ExitStack()

    def start(self) -> None:
        """Start everything and return once the web server answers. Raises ServeError."""
        self._lock_data()
        listener = self._cleanup.enter_context(_listen(self.options.host, self.options.port))
        self.url = _address(self.options.host, listener.getsockname()[1])
        if not self.environ.get("REDIS_URL"):
            self._start_broker()
        self._manage("migrate", "--no-input", blame="The database cannot be prepared; check DATABASE_URL")
        self._manage("collectstatic", "--no-input", blame="The static files cannot be collected")
        fd = listener.fileno()
        self._spawn("web", web_command(f"fd://{fd}", self.options), pass_fds=(fd,))
        self._spawn("worker", worker_command("celery", self.options.worker_processes))
        self._spawn("replay", worker_command("replay", self.options.replay_processes))
        self._wait_until_ready(listener.getsockname()[1])
        if self.options.example:
            self._spawn("example", _manage_command("example"), needed=False)

    def watch(self) -> None:
        """Block until a part ends, which raises ServeError."""
        while True:
            self._check_parts()
            time.sleep(_WATCH_SECONDS)

    def stop(self) -> None:
        """End all parts, the broker last. Safe to call at any time, also after a failed start."""
        for parts in ([part for part in self.parts if part.name != "redis"], list(self.parts)):
            _end(parts)
        self.parts.clear()
        self._cleanup.close()

    def _lock_data(self) -> None:
        data = self.options.data
        try:
            data.mkdir(parents=True, exist_ok=True)
            lock = self._cleanup.enter_context(open(data / "lock", "w", encoding="ascii"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(data / "tmp", ignore_errors=True)
            (data / "tmp").mkdir()
        except BlockingIOError:
            raise ServeError(f"Another HLO Triage uses the data directory {data}; stop it, "
                             "or choose another: TRIAGE_DATA=DIR make run") from None
        except OSError as error:
            raise ServeError(f"The data directory {data} cannot be used ({error.strerror}); "
                             "choose another: TRIAGE_DATA=DIR make run") from None

    def _start_broker(self) -> None:
        def start(command: list[str]) -> subprocess.Popen:
            self.parts = [part for part in self.parts if part.name != "redis"]  # an attempt that failed
            return self._spawn("redis", command, stdin=subprocess.PIPE)

        try:
            self.environ["REDIS_URL"] = broker.start_server(self.options.data / "redis", start)
        except broker.BrokerError as error:
            raise ServeError(str(error)) from None

    def _spawn(self, name: str, command: list[str], *, needed: bool = True, **popen: object) -> subprocess.Popen:
        process = subprocess.Popen(
            tethered(command), cwd=BASE_DIR, env=self.environ, start_new_session=True, text=True,
            errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            **{"stdin": subprocess.DEVNULL, **popen})  # type: ignore[call-overload]
        reader = threading.Thread(target=self._copy_output, args=(name, process), daemon=True)
        self.parts.append(Part(name, process, needed, reader))
        reader.start()
        return process

    def _copy_output(self, name: str, process: subprocess.Popen) -> None:
        for line in process.stdout:
            self.say(f"{name:<7} | {line.rstrip()}")

    def say(self, line: str) -> None:
        # A terminal that went away must not stop the parts, whose output has to be read on.
        with contextlib.suppress(OSError, ValueError):
            self.out.write(line + "\n")
            self.out.flush()

    def _manage(self, *arguments: str, blame: str) -> None:
        done = subprocess.run(tethered(_manage_command(*arguments, "--verbosity", "0")), cwd=BASE_DIR, env=self.environ,
                              text=True, errors="replace", stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode:
            for line in done.stderr.splitlines():
                self.say(f"{arguments[0]:<7} | {line}")
            reason = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]
            raise ServeError(f"{blame}: {reason}")

    def _wait_until_ready(self, port: int) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        answer = "nothing"
        while time.monotonic() < deadline:
            self._check_parts()
            try:
                status, answer = get(self.options.host, port, "/healthz")
                if status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        raise ServeError(f"The web server is not healthy after {_READY_SECONDS} seconds; it answers: {answer}. "
                         "Check DATABASE_URL and REDIS_URL.")

    def _check_parts(self) -> None:
        for part in list(self.parts):
            code = part.process.poll()
            if code is None:
                continue
            if part.needed:
                how = f"exit code {code}" if code >= 0 else f"signal {-code}"
                raise ServeError(f"The part '{part.name}' ended by itself ({how}), so everything was stopped; "
                                 f"its last lines above say why. Start again with: make run")
            _end([part])
            self.parts.remove(part)


def _manage_command(*arguments: str) -> list[str]:
    return [sys.executable, "manage.py", *arguments]


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens on the address; held by the supervisor, so that no other program can come in between."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ServeError(f"Port {port} of {host} is taken by another program; "
                             f"choose another: PORT={port + 1} make run") from None
        if error.errno == errno.EACCES:
            raise ServeError(f"Port {port} needs root; choose another: PORT=8000 make run") from None
        raise ServeError(f"HOST={host} cannot be listened on ({error.strerror}); "
                         "choose another: HOST=127.0.0.1 make run") from None


def join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _local(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)


def _address(host: str, port: int) -> str:
    local = _local(host)
    return f"http://{join(local, port)}"


def get(host: str, port: int, path: str) -> tuple[int, str]:
    """Status and body. Asked directly: a proxy of the environment has no business here."""
    connection = http.client.HTTPConnection(_local(host), port, timeout=10)
    try:
        connection.request("GET", path, headers={"Host": "localhost"})
        response = connection.getresponse()
        return response.status, response.read(2000).decode(errors="replace")
    except http.client.HTTPException as error:
        raise OSError(str(error)) from None
    finally:
        connection.close()


def _end(parts: list[Part]) -> None:
    """Ask the parts to stop, wait, then kill what is left of their process groups."""
    for part in parts:
        if part.process.poll() is None:
            part.process.terminate()
    deadline = time.monotonic() + _STOP_SECONDS
    for part in parts:
        with contextlib.suppress(subprocess.TimeoutExpired):
            part.process.wait(max(0.0, deadline - time.monotonic()))
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(part.process.pid, signal.SIGKILL)
        part.process.wait()
        if part.reader:
            part.reader.join(timeout=1)
