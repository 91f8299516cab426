"""Verify, as a person does it: a real browser, a real worker of the replay queue, real compiles."""
from __future__ import annotations

import http.client
import os
import re
import signal
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

CPU = "cpu-jaxlib0.10.2-attn_heads"
BASELINE = "67,641,752"
PATIENCE = 240_000


def upload(page, address: str, dump: Path) -> str:
    page.goto(address + "/")
    page.set_input_files("#archive", str(dump))
    page.wait_for_url(re.compile(r"/d/[\w-]{22}/$"), timeout=60_000)
    page.locator("#patterns").wait_for(timeout=60_000)
    return page.url


def finished(page) -> None:
    page.wait_for_function("""() => { const part = document.querySelector("#remedies");
        return part && part.querySelector("ol.bars") && !("open" in part.dataset); }""", timeout=PATIENCE)


def test_verify_measures_and_the_bars_say_what(page, live_service, shared_dumps):
    address = upload(page, live_service, shared_dumps / f"{CPU}.tar.xz")
    assert "Nothing was recompiled" in page.locator("#remedies").inner_text()
    page.get_by_role("button", name="Verify").focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Cancel").wait_for()
    finished(page)
    text = page.locator("#remedies").inner_text()
    assert "Reproduced with jaxlib" in text and f"{BASELINE} bytes" in text
    assert "while-loop-invariant-code-motion disabled" in text and "no copy gone, 16 made in another place or way" in text
    assert "does not compile" in text       # float-normalization-bf16 must run
    lengths = page.locator("ol.bars svg.bar rect").evaluate_all("bars => bars.map(bar => bar.getBoundingClientRect().width)")
    assert lengths[0] == max(lengths) > 100
    page.set_viewport_size({"width": 390, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.goto(f"{address}report.json").json()["modules"][0]["replays"][0]["matches_upload"] == "reproduced"


def test_a_dump_without_passes_gets_its_history(page, live_service, unpack_dump, tmp_path):
    folder = unpack_dump(CPU)
    few = tmp_path / "few"
    few.mkdir()
    for path in folder.iterdir():
        if path.is_file() and not re.search(r"\.\d{4}\.", path.name):
            (few / path.name).write_bytes(path.read_bytes())
    page.goto(live_service + "/")
    page.set_input_files("#folder", str(few))
    page.locator("#patterns").wait_for(timeout=60_000)
    assert "No per-pass files" in page.locator("main").inner_text()
    page.get_by_role("button", name="Verify").click()
    finished(page)
    page.locator("#stages").wait_for()
    assert "they are not in the dump" in page.locator("main").inner_text()
    page.locator("section.pattern dd a", has_text="while-loop-invariant-code-motion").first.click()
    page.locator("h1", has_text="while-loop-invariant-code-motion").wait_for()


def test_cancel_ends_it_and_it_can_be_asked_for_again(page, live_service, shared_dumps):
    upload(page, live_service, shared_dumps / "cpu-jaxlib0.10.2-f32_upcast.tar.xz")
    page.get_by_role("button", name="Verify").click()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name=re.compile("Verify|Measure again")).click()
    finished(page)
    assert "134,348,932 bytes" in page.locator("#remedies").inner_text()


def test_a_worker_that_is_killed_loses_no_replay(start_service, page, shared_dumps):
    """The supervisor ends with its part; started again, it goes on where it was."""
    service = start_service()
    address = upload(page, service.url, shared_dumps / "cpu-jaxlib0.10.2-f32_upcast.tar.xz")
    page.get_by_role("button", name="Verify").click()
    time.sleep(1.0)
    worker = next(part for part in service.parts if part.name == "replay")
    os.killpg(worker.process.pid, signal.SIGKILL)
    worker.process.wait()
    service.parts.remove(worker)
    from triage.serve import worker_command
    service._spawn("replay", worker_command("replay", 1))
    parts = urlsplit(address)
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
        connection.request("GET", f"{parts.path}m/0/replay")
        body = connection.getresponse().read().decode()
        if "134,348,932" in body and "data-open" not in body:
            return
        time.sleep(0.5)
    pytest.fail("the replay did not end")
