"""The job in a real worker on a real broker, reached through the API as scripts reach it."""
from __future__ import annotations

import http.client
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

STEPS = 60
BODY = "\n".join(f"  a{n} = f32[1024]{{0}} add(w, w)" for n in range(4000))


def slow_archive() -> bytes:
    """A dump of stages that all differ, so that its analysis takes a few seconds."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as tar:
        for step in range(STEPS):
            text = (f"HloModule jit_slow\n\nENTRY main {{\n  w = f32[1024]{{0}} parameter(0)\n{BODY}\n"
                    f"  ROOT r{step} = f32[1024]{{0}} add(a0, a1)\n}}\n")
            text = text.replace(" = ", f".{step} = ").replace("w,", f"w.{step},")
            member = tarfile.TarInfo(f"d/module_0001.jit_slow.{step:04}.p.after_p{step}.before_x.txt")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


def ask(url: str, method: str = "GET", body: bytes | Iterable[bytes] | None = None, **headers: str) -> tuple[int, str]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
    connection.request(method, f"{parts.path}?{parts.query}", body, headers)
    answer = connection.getresponse()
    result = answer.status, answer.read().decode()
    connection.close()
    return result


def wait_for(url: str, wanted: Callable[[dict], bool], seconds: float = 60) -> dict:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        state = json.loads(ask(url)[1])
        if wanted(state):
            return state
        time.sleep(0.05)
    raise AssertionError(f"still {state}")


def shell(line: str, folder: Path) -> subprocess.CompletedProcess:
    """Runs the line as it stands: it is what people copy, pipe and all."""
    if not shutil.which("curl"):
        pytest.skip("no curl on the PATH: the lines for machines without a browser were not tried")
    return subprocess.run(line, shell=True, cwd=folder, capture_output=True, text=True)  # noqa: S602  see above


@pytest.mark.parametrize("way", ["--data-binary @-", "-T -", "-F file=@-"])
def test_curl_as_the_front_page_says_it(live_service, unpack_dump, way):
    folder = unpack_dump("cpu-jaxlib0.10.2-f32_upcast")
    done = shell(f'tar cz "{folder.name}" | curl -sS {way} "{live_service}/api/dumps?name=up&format=text"', folder.parent)
    assert done.stdout.startswith(f"{live_service}/d/") and done.stdout.count("\n") == 1, done
    state = wait_for(done.stdout.strip() + "progress", lambda state: state["finished"])
    assert state["status"] == "done"
    report = json.loads(ask(done.stdout.strip() + "report.json")[1])
    assert report["modules"][0]["totals"]["copied_bytes"] == 134217728


@pytest.mark.parametrize("headers", [{"Content-Length": "100000"}, {"Transfer-Encoding": "chunked"}])
def test_an_upload_that_breaks_off_is_refused(live_service, headers, shared_dumps):
    start = (shared_dumps / "cpu-jaxlib0.10.2-f32_upcast.tar.xz").read_bytes()[:4096]
    parts = urlsplit(live_service)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    connection.putrequest("POST", "/api/dumps")
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    connection.send(start if "Content-Length" in headers else b"1000\r\n" + start + b"\r\n")
    connection.sock.shutdown(1)
    answer = connection.getresponse()
    assert (answer.status, "broke off" in answer.read().decode()) == (400, True)


def test_a_limit_is_said_to_curl_whatever_the_way(start_service, tmp_path):
    service = start_service(TRIAGE_MAX_UPLOAD_BYTES="1000000")
    (tmp_path / "big").write_bytes(b"\x1f\x8b" + bytes(3_000_000))
    for way in ("--data-binary @big", "-T big", "-T - < big", "-F file=@big"):
        done = shell(f'curl -sS -w " %{{http_code}}" "{service.url}/api/dumps?format=text" {way}', tmp_path)
        assert done.stdout == "The upload is larger than 976.6 KiB, the limit of this service.\n 413", (way, done)
    files = Path(service.options.data, "files")
    assert not [path for path in files.rglob("*") if path.is_file()]


def test_a_killed_worker_process_costs_time_but_not_the_result(start_service):
    service = start_service()
    _, text = ask(f"{service.url}/api/dumps?name=slow", "POST", slow_archive())
    status_url = json.loads(text)["status_url"]
    wait_for(status_url, lambda state: state["phase"].startswith("reading") and state["done"] > 3)
    worker = next(part.process.pid for part in service.parts if part.name == "worker")
    for pid in _children(worker):
        os.kill(pid, signal.SIGKILL)
    seen: list[dict] = []
    wait_for(status_url, lambda state: seen.append(state) or state["finished"])
    assert seen[-1]["status"] == "done"
    report = json.loads(ask(json.loads(text)["report_url"])[1])
    assert len(report["modules"][0]["stages"]) == STEPS


def _children(parent: int) -> list[int]:
    out = subprocess.run(["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True, text=True, check=True).stdout
    return [int(line) for line in out.split()]
