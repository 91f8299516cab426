"""The pages in a real browser, from a real service: by keyboard, in both colour schemes, wide and narrow."""
from __future__ import annotations

import io
import json
import re
import tarfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

PATIENCE = 60       # seconds for the worker


def upload(service: str, folder: Path) -> dict:
    """Uploads a directory as a script would; the service's answer."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.add(folder, "dump")
    request = urllib.request.Request(f"{service}/api/dumps?name=hostile.tar.gz", buffer.getvalue(),
                                     {"Content-Type": "application/gzip"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


@pytest.fixture(scope="session")
def address(live_service: str, hostile_folder: Path) -> str:
    """The page of the hostile dump, analysed by the service's worker."""
    sent = upload(live_service, hostile_folder)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with urllib.request.urlopen(sent["status_url"]) as answer:
            state = json.load(answer)
        if state["finished"]:
            assert state["status"] == "done", state["error"]
            return sent["url"]
        time.sleep(0.2)
    raise AssertionError(f"not finished after {PATIENCE} s: {state}")


@pytest.fixture
def quiet_page(page) -> Iterator[object]:
    """A page on which nothing may be written to the console as an error, and no dialog may open."""
    problems: list[str] = []
    page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    page.on("dialog", lambda dialog: (problems.append(dialog.message), dialog.dismiss()))
    yield page
    assert not problems


def test_the_chart_by_keyboard(quiet_page, address):
    page = quiet_page
    page.goto(address)
    slider = page.locator("#chart .slider")
    slider.focus()
    assert "layout-assignment: 4.0 MiB" in slider.get_attribute("aria-valuetext")
    page.keyboard.press("Home")
    assert "before_optimizations: 0 B" in page.locator(".readout").inner_text()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    assert "Step 4" in slider.get_attribute("aria-valuetext")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/m/0/s/4/$"))


def test_the_chart_by_mouse(quiet_page, address):
    page = quiet_page
    page.goto(address)
    page.locator("#chart .marker text").click()
    page.wait_for_url(re.compile(r"/m/0/s/3/$"))
    page.go_back()
    plot = page.locator("#chart .hit")
    box = plot.bounding_box()
    plot.click(position={"x": box["width"] * 0.99, "y": box["height"] / 2})  # not by the mouse: going back may still scroll
    page.wait_for_url(re.compile(r"/m/0/s/5/$"))


def test_stages_by_key(quiet_page, address):
    page = quiet_page
    page.goto(f"{address}m/0/s/2/")
    page.keyboard.press("j")
    page.wait_for_url(re.compile(r"/s/3/$"))
    assert page.locator("tr.copy.add").count() == 1
    page.keyboard.press("k")
    page.wait_for_url(re.compile(r"/s/2/$"))


def test_everything_is_reached_by_tab(quiet_page, address):
    page = quiet_page
    page.goto(address)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("(e => e.id || e.getAttribute('class') || e.textContent.trim())(document.activeElement)"))
    assert {"slider", "filter", "layout-assignment", "report.json"} <= reached


def test_the_filter_hides_other_passes(quiet_page, address):
    page = quiet_page
    page.goto(address)
    page.fill("#filter", "layout")
    visible = page.locator("#stage-list tbody tr:visible a").all_inner_texts()
    assert "layout-assignment" in visible and "algsimp" not in visible


def test_a_copy_named_in_the_address_is_opened(quiet_page, address):
    page = quiet_page
    page.goto(f"{address}m/0/s/3/")
    page.locator("a.badge.copy").first.click()
    page.wait_for_url(re.compile(r"/m/0/#c1$"))
    assert page.locator("#c1").is_visible()


def test_a_click_on_a_name_marks_its_uses(quiet_page, address):
    page = quiet_page
    page.goto(f"{address}m/0/s/3/")
    page.locator("tr.copy.add .hd").first.click()
    assert page.evaluate("CSS.highlights.get('uses')?.size") >= 2
    page.keyboard.press("Escape")
    assert not page.evaluate("CSS.highlights.has('uses')")


def test_a_line_in_the_address_is_in_sight(quiet_page, address):
    page = quiet_page
    page.goto(f"{address}m/0/")
    page.locator("table.copies a").first.click()
    page.wait_for_url(re.compile(r"at=\d+#L\d+$"))
    line = page.url.rsplit("#", 1)[1]
    assert page.locator(f"#{line}").is_visible()
    assert "copy" in page.locator(f"#{line}").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_no_page_scrolls_sideways(quiet_page, address, width, scheme):
    page = quiet_page
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=scheme)
    for path in ("", "m/0/", "m/0/s/0/", "m/0/s/3/", "m/0/s/3/?meta=1", "m/0/s/3/?full=1", "m/0/s/3/?show=30"):
        page.goto(address + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def test_pages_work_without_scripts(browser, address):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.get_by_text("transposed before the loop").first.is_visible()
    page.locator("#chart summary").click()
    page.locator("#chart-data").get_by_role("link", name="layout-assignment").click()
    page.wait_for_url(re.compile(r"/s/3/$"))
    assert page.locator("tr.copy.add").is_visible()
    context.close()


def test_a_page_that_waits_shows_the_result_when_it_is_there(quiet_page, live_service, hostile_folder):
    page = quiet_page
    page.goto(upload(live_service, hostile_folder)["url"])
    page.wait_for_selector("#chart .plot", timeout=PATIENCE * 1000)
