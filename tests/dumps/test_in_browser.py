"""The whole job as a person does it: a real browser, a real worker, real dumps, and the numbers known to be true of them."""
from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from triage.engine.archive import is_useful

#: dump -> what its page must say, as measured when the dumps were made.
TRUE = {
    "h100-jaxlib0.10.2-attn_heads": ["12 parameters, 24.0 MiB, transposed before the loop", "layout-assignment",
                                     "dot-strength-reduction", "25,165,824", "27,268,824"],
    "h100-jaxlib0.10.2-attn_heads-defaultdump": ["12 parameters, 24.0 MiB, transposed before the loop",
                                                 "--xla_dump_hlo_pass_re=.*", "25,165,824"],
    "h100-jaxlib0.6.2-attn_heads": ["12 parameters, 24.0 MiB, transposed", "algsimp", "25,165,824"],
    "h100-jaxlib0.4.38-attn_heads": ["12 parameters, 24.0 MiB, transposed", "algsimp", "25,165,824"],
    "h100-jaxlib0.4.38-attn_heads-flag_off": ["No parameter is copied before a loop."],
    "h100-jaxlib0.10.2-int8_dot": ["8 parameters, 32.0 MiB, transposed before the loop", "33,554,432", "34,668,880"],
    "h100-jaxlib0.10.2-llama3_8b_generate": ["11 parameters, 28.2 GB, transposed before the loop", "28,329,537,504",
                                             "28,185,722,880", "stores that dimension second of 3"],
    "h100-jaxlib0.10.2-matvec_decode": ["No parameter is copied before a loop."],
    "h100-jaxlib0.10.2-train_step": ["No parameter is copied before a loop."],
    "h100-jaxlib0.10.2-fsdp8": ["No parameter is copied before a loop.", "8 parameters, 64.0 MiB, all-gathered in every"],
    "v5e-libtpu0.0.42-attn_heads": ["memory space S(1)"],
    "v5e-libtpu0.0.42-explicit_T": ["No parameter is copied before a loop."],
    "v5e-libtpu0.0.42-train_step": ["2 parameters, 16.0 MiB, converted from f32 to bf16", "33,554,432"],
    "cpu-jaxlib0.10.2-attn_heads": ["16 parameters, 64.0 MiB, converted", "while-loop-invariant-code-motion", "67,108,864"],
    "cpu-jaxlib0.10.2-f32_upcast": ["8 parameters, 128.0 MiB, converted", "134,217,728"],
    "cpu-jaxlib0.4.25-attn_heads": ["16 parameters, 64.0 MiB, converted", "while-loop-invariant-code-motion"],
    "h100-jaxlib0.10.2-attn_160_layers": ["480 parameters, 240.0 MiB, transposed", "dot-strength-reduction"],
    "hlo_samples": ["jit_predict_step", "No parameter is copied before a loop."],
}
PAGE = re.compile(r"/d/[\w-]{22}/$")


def upload_archive(page, live_service: str, path: Path, patience: float = 60_000) -> str:
    """Text of the finished page, numbers that are shown on hover included."""
    page.goto(live_service + "/")
    page.set_input_files("#archive", str(path))
    return finished(page, patience)


def finished(page, patience: float = 60_000) -> str:
    page.wait_for_url(PAGE, timeout=patience)
    page.wait_for_selector("#progress", state="detached", timeout=patience)
    titles = page.eval_on_selector_all("[title]", "nodes => nodes.map(node => node.title)")
    return page.text_content("body") + "\n" + "\n".join(titles)


@pytest.mark.parametrize("name", TRUE)
def test_every_real_dump_ends_on_a_page_with_its_true_numbers(page, live_service, shared_dumps, name):
    text = " ".join(upload_archive(page, live_service, shared_dumps / f"{name}.tar.xz", 240_000).split())
    for expected in TRUE[name]:
        assert expected in text


def test_the_last_stage_is_told_before_the_history(page, live_service, shared_dumps):
    page.goto(live_service + "/")
    page.set_input_files("#archive", str(shared_dumps / "h100-jaxlib0.10.2-attn_160_layers.tar.xz"))
    page.wait_for_selector("#first li", timeout=120_000)
    told = page.locator("#first li").inner_text()
    assert page.locator("#progress").is_visible()
    assert "480 parameters, 240.0 MiB, transposed before the loop while.646" in told and "introduced" not in told
    assert page.locator("#first li code").all_inner_texts() == ["while.646"]
    assert "introduced by" in finished(page, 240_000)


def test_a_folder_is_filtered_packed_and_sent(page, live_service, unpack_dump, tmp_path):
    folder = tmp_path / "my dump"
    folder.mkdir()
    for path in unpack_dump("cpu-jaxlib0.10.2-f32_upcast").iterdir():
        if path.is_file():
            shutil.copy(path, folder)
    (folder / "module_0000.jit_f32_upcast.ir-no-opt.ll").write_text("useless " * 1_000_000)
    (folder / ("long" * 40 + ".txt")).write_text("a name that tar needs a longer header for")
    page.goto(live_service + "/")
    sent: list[int] = []
    page.on("request", lambda request: sent.append(int(request.headers.get("content-length", 0)))
            if request.method == "POST" else None)
    page.set_input_files("#folder", str(folder))
    text = finished(page)
    assert "8 parameters, 128.0 MiB, converted" in text and "my dump.tar.gz" in text
    assert sent and sum(sent) < 500_000


def test_the_link_opens_in_another_browser(page, browser, live_service, shared_dumps):
    upload_archive(page, live_service, shared_dumps / "cpu-jaxlib0.10.2-f32_upcast.tar.xz")
    other = browser.new_context()
    stranger = other.new_page()
    stranger.goto(page.url)
    assert "8 parameters, 128.0 MiB" in stranger.text_content("body")
    stranger.goto(live_service + "/")
    assert "f32_upcast" not in stranger.text_content("body")
    other.close()
    page.goto(live_service + "/")
    assert "cpu-jaxlib0.10.2-f32_upcast.tar.xz" in page.text_content("body")


def test_what_is_no_dump_is_refused_in_a_sentence(page, live_service, tmp_path):
    (tmp_path / "notes.bin").write_bytes(bytes(range(256)) * 100)
    page.goto(live_service + "/")
    page.set_input_files("#archive", str(tmp_path / "notes.bin"))
    page.wait_for_selector(".uploads .failed")
    assert "no archive and no HLO text" in page.text_content(".uploads")
    empty = tmp_path / "empty dump"
    empty.mkdir()
    (empty / "a.ptx").write_text("x")
    page.set_input_files("#folder", str(empty))
    page.locator(".uploads .failed").nth(1).wait_for()
    assert "None of the 1 files" in page.text_content(".uploads")


def test_without_javascript_an_archive_still_goes_through(browser, live_service, shared_dumps):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(live_service + "/")
    page.set_input_files("#file", str(shared_dumps / "cpu-jaxlib0.10.2-f32_upcast.tar.xz"))
    page.get_by_role("button", name="Upload").click()
    page.wait_for_url(PAGE)
    for _ in range(60):
        if "8 parameters, 128.0 MiB" in page.content():
            break
        page.wait_for_timeout(500)
        page.reload()
    assert "8 parameters, 128.0 MiB" in page.content()
    context.close()


DROP = """(files) => {
  const transfer = new DataTransfer();
  for (const [name, text] of files) transfer.items.add(new File([text], name));
  document.body.dispatchEvent(new DragEvent("drop", {dataTransfer: transfer, bubbles: true, cancelable: true}));
}"""
HLO = "HloModule jit_f\n\nENTRY main {\n  ROOT p = f32[512,1024]{1,0} parameter(0)\n}\n"


def test_a_dropped_folder_with_folders_in_it_is_read_whole(page, live_service, unpack_dump, tmp_path):
    """Dropped as the desktop does it; a folder of more than a hundred files is handed out in pieces."""
    folder = tmp_path / "dropped"
    (folder / "host_1").mkdir(parents=True)
    for path in unpack_dump("h100-jaxlib0.10.2-matvec_decode").iterdir():
        if path.is_file():
            shutil.copy(path, folder / "host_1")
    useful = sum(is_useful(path.name) for path in (folder / "host_1").iterdir())
    assert useful > 100
    page.goto(live_service + "/")
    box = page.locator("#drop").bounding_box()
    session = page.context.new_cdp_session(page)
    data = {"items": [], "files": [str(folder)], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind, "x": box["x"] + 20, "y": box["y"] + 20, "data": data})
    assert "No parameter is copied before a loop." in finished(page)
    assert page.request.get(page.url + "progress").json()["files"] == useful


def test_dropped_texts_are_one_dump(page, live_service):
    page.goto(live_service + "/")
    page.evaluate(DROP, [["module_0001.jit_f.before_optimizations.txt", HLO],
                         ["module_0001.jit_f.cpu_after_optimizations.txt", HLO]])
    assert "jit_f" in finished(page) and "2 files" in page.text_content("body")


def test_several_uploads_at_once_each_get_a_link_and_stay_on_the_page(page, live_service, shared_dumps):
    page.goto(live_service + "/")
    names = ["cpu-jaxlib0.10.2-f32_upcast", "h100-jaxlib0.10.2-attn_heads-defaultdump"]
    page.set_input_files("#archive", [str(shared_dumps / f"{name}.tar.xz") for name in names])
    links = page.get_by_role("link", name="Uploaded. Open its page")
    links.nth(1).wait_for()
    assert links.count() == 2 and page.url == live_service + "/"
    assert page.locator(".uploads .name").all_text_contents() == [f"{name}.tar.xz" for name in names]
    page.reload()
    assert sorted(page.locator(".dumps > li > a").all_text_contents()) == sorted(f"{name}.tar.xz" for name in names)


def test_an_upload_can_be_cancelled_and_leaves_nothing(page, live_service, shared_dumps):
    page.goto(live_service + "/")
    # slow enough to be caught: 200 KiB a second
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Network.emulateNetworkConditions", {"offline": False, "latency": 0, "downloadThroughput": -1,
                                                      "uploadThroughput": 200 * 1024})
    page.set_input_files("#archive", str(shared_dumps / "h100-jaxlib0.10.2-attn_160_layers.tar.xz"))
    page.get_by_text(re.compile(r"Sending: [1-9]")).wait_for()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("Cancelled.").wait_for()
    page.goto(live_service + "/")
    assert page.get_by_text("Your uploads").count() == 0


def test_a_file_over_the_limit_is_refused_with_the_limit(page, browser, start_service, tmp_path):
    service = start_service(TRIAGE_MAX_UPLOAD_BYTES="1000000")
    big = tmp_path / "big.tar.gz"
    big.write_bytes(b"\x1f\x8b" + bytes(5_000_000))
    sentence = "larger than 976.6 KiB, the limit of this service."
    page.goto(service.url + "/")
    page.set_input_files("#archive", str(big))
    page.get_by_text(re.compile(sentence, re.I)).wait_for()
    context = browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(service.url + "/")
    plain.set_input_files("#file", str(big))
    plain.get_by_role("button", name="Upload").click()
    plain.get_by_text(sentence).wait_for()
    context.close()


def test_the_keyboard_alone_reaches_both_pickers(page, live_service):
    page.goto(live_service + "/")
    reached = []
    for _ in range(8):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id"))
    assert reached.index("folder") < reached.index("archive")
