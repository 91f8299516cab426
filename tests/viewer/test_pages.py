"""Pages of a dump through Django's client: what they say, what they refuse, and that hostile names stay text."""
from __future__ import annotations

import re

import pytest
from django.test import Client

from tests.viewer.conftest import FILES, hlo, store, write_dump
from triage.dumps import storage
from triage.dumps.models import Dump
from triage.viewer import module_page, rows, stage_page

COPY_STAGE = list(FILES).index("0003.layout_assignment.after_layout-assignment.before_pipeline-end")
LAST = len(FILES) - 1


def get(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, path
    return answer.content.decode()


def stage(client: Client, dump: Dump, number: int, query: str = "") -> str:
    return get(client, f"/d/{dump.id}/m/0/s/{number}/{query}")


def text(html: str) -> str:
    """What a reader sees."""
    plain = re.sub(r"<[^>]*>", "", html)
    for code, character in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&#x27;", "'"), ("&amp;", "&")):
        plain = plain.replace(code, character)
    return plain


def all_pages(dump: Dump) -> list[str]:
    base = f"/d/{dump.id}/"
    stages = [f"{base}m/0/s/{number}/{query}" for number in range(len(FILES))
              for query in ("", "?full=1", "?meta=1", "?base=0", "?c=body", "?show=30", "?at=30", "?c=nothing")]
    return [base, f"{base}m/0/", *stages]


def test_names_from_a_dump_never_become_markup(client, dump):
    for path in all_pages(dump):
        html = get(client, path)
        assert "<script>alert" not in html
        assert not re.search(r"<(?:u|i|img|s)>", html), path
        assert "&lt;script&gt;alert(1)" in html


def test_pages_hold_no_inline_script_or_style(client, dump):
    for path in all_pages(dump):
        html = get(client, path)
        assert not re.search(r"\s(?:style|on\w+)=\"", html)
        assert all(" src=" in tag for tag in re.findall(r"<script[^>]*>", html))
        assert "<style" not in html


def test_a_dump_of_one_module_shows_it_at_once(client, dump):
    html = get(client, f"/d/{dump.id}/")
    assert "1 parameter, 4.0 MiB, transposed before the loop" in text(html)
    assert "introduced by layout-assignment" in text(html)
    assert f"/d/{dump.id}/m/0/s/{COPY_STAGE}/" in html
    assert 'title="4,194,304 bytes"' in html
    assert f'href="/d/{dump.id}/m/0/issue/"' in html


def test_several_modules_are_a_list(client, db, tmp_path):
    write_dump(tmp_path, "jit_a")
    write_dump(tmp_path, "jit_b")
    found = store(tmp_path)
    html = get(client, f"/d/{found.id}/")
    assert "2 modules, 2 of them with copies" in text(html)
    for number, name in enumerate(("jit_a", "jit_b")):
        assert f'href="/d/{found.id}/m/{number}/"' in html and name in html
        assert name in get(client, f"/d/{found.id}/m/{number}/")


def test_the_stage_that_copies_shows_the_copy(client, dump):
    html = stage(client, dump, COPY_STAGE)
    row = next(row for row in html.split("<tr") if "%copy.&lt;b&gt;1" in row and "copy(" in text(row))
    assert "add mark copy" in row
    assert "c1 transpose 4.0 MiB" in row
    assert "parameter of c1" in html
    assert "1 copy of the last stage is first written here" in " ".join(text(html).split())
    assert "(+4.0 MiB)" in html


def test_unchanged_lines_are_folded_and_unfolded(client, dump):
    html = stage(client, dump, COPY_STAGE)
    assert re.search(r"⋯ \d+ more lines", html)
    assert "%add.20" not in text(html)
    alone = re.search(r'href="(\?c=main[^"]*?&amp;at=\d+)#L\d+"', html)[1].replace("&amp;", "&")
    assert "%add.20" in text(stage(client, dump, COPY_STAGE, alone))


def test_marked_lines_are_shown_where_nothing_changed(client, dump):
    html = stage(client, dump, LAST)        # only a constant and a source line differ
    assert "c1 transpose 4.0 MiB" in html and "parameter of c1" in html and "reads c1" in html


def test_metadata_and_renumbering_are_hidden_until_asked_for(client, dump):
    html = stage(client, dump, 1)
    assert "quiet.1" in html
    assert "source_line" not in text(html)
    assert "only names, numbers or metadata differ" in html
    assert "source_line=" in text(stage(client, dump, 1, "?meta=1"))


def test_a_stage_without_changes_says_so(client, dump):
    assert "The text is the same as before" in text(stage(client, dump, COPY_STAGE, f"?base={COPY_STAGE}"))


def test_whole_text_has_every_line(client, dump):
    html = stage(client, dump, LAST, "?full=1&meta=1")
    cells = [row.rsplit("</td><td>", 1)[1] for row in html.split("</tr>") if "</td><td>" in row]
    shown = [text(re.sub(r'<a class="badge[^>]*>[^<]*</a> ', "", cell)) for cell in cells]
    lines = hlo(True, LAST).rstrip("\n").split("\n")
    assert len(shown) == len(lines)
    assert [line for line in shown if len(line) < 300] == [line for line in lines if len(line) < 300]


def test_the_text_can_be_downloaded_to_the_letter(client, dump):
    answer = client.get(f"/d/{dump.id}/m/0/s/{LAST}/text")
    assert b"".join(answer.streaming_content).decode() == hlo(True, LAST)
    assert answer["Content-Type"].startswith("text/plain")
    assert "attachment" in answer["Content-Disposition"] and "<" not in answer["Content-Disposition"]


def test_an_instruction_leads_to_its_line(client, dump):
    answer = client.get(f"/d/{dump.id}/m/0/s/{LAST}/", {"c": "main.<u>9", "i": "copy.<b>1"})
    line = hlo(True, LAST).split("\n").index(next(x for x in hlo(True, LAST).split("\n") if " copy(" in x)) + 1
    assert answer.status_code == 302 and answer["Location"].endswith(f"at={line}#L{line}")
    assert f'id="L{line}"' in get(client, answer["Location"].split("#")[0])
    missing = client.get(f"/d/{dump.id}/m/0/s/{LAST}/", {"c": "body", "i": "nothing"})
    assert missing["Location"] == f"/d/{dump.id}/m/0/s/{LAST}/"


def test_one_line_on_its_own_is_complete(client, dump):
    number = next(n for n, x in enumerate(hlo(True, LAST).split("\n"), 1) if "%m.4 = " in x)
    html = stage(client, dump, LAST, f"?show={number}")
    assert "source_line" in text(html) and "custom-call" not in text(html)
    assert "w.2" in html and "r.5" in html      # what it reads, what reads it


def test_pages_are_capped_and_the_rest_is_behind_links(client, dump, monkeypatch):
    monkeypatch.setattr(stage_page, "MAX_ROWS", 12)
    seen: set[int] = set()
    query, pages = "?c=main.%3Cu%3E9", 0
    while query and pages < 20:
        html = stage(client, dump, COPY_STAGE, query)
        assert html.count('<tr class="') <= 12
        seen |= {int(number) for number in re.findall(r'id="L(\d+)"', html)}
        following = re.search(r'href="(\?[^"]*)">Go on<', html)
        query, pages = following and following[1].replace("&amp;", "&"), pages + 1
    lines = hlo(True, COPY_STAGE).split("\n")
    first = next(n for n, x in enumerate(lines, 1) if x.startswith("ENTRY"))
    assert seen == set(range(first, len(lines)))
    html = stage(client, dump, COPY_STAGE)
    assert "a page holds 12" in html


def test_the_following_computations_are_behind_a_link(client, dump, monkeypatch):
    monkeypatch.setattr(stage_page, "MAX_ROWS", 8)
    names, query, pages = [], "", 0
    while query is not None and pages < 10:
        html = stage(client, dump, COPY_STAGE, query)
        names += re.findall(r'<h2><a href="\?c=([^"&]*)', html)
        following = re.search(r'href="(\?[^"]*)">Show the next<', html)
        query, pages = following[1] if following else None, pages + 1
    assert sorted(names) == sorted(["main.%3Cu%3E9", "body", "cond"])


def test_long_lines_are_cut_around_what_changed(client, dump):
    from triage.viewer import lines
    old = "  %t = (" + ", ".join(f"f32[{n}]{{0}}" for n in range(5000)) + ") tuple(%a)"
    new = old.replace("f32[2500]", "bf16[2500]")
    gone, came = lines.changed_words(old, new, {})
    assert [new[a:b] for a, b in came] == ["bf16[2500]"]
    html = lines.html(new, came)
    assert "bf16[2500]" in text(html) and "characters" in html and "tuple" in html
    assert len(html) < 10_000
    assert lines.hidden_note(new, False)


def test_only_what_differs_is_marked():
    from triage.viewer import lines
    old = "  %add.1 = f32[2,3]{1,0} add(%a.1, %copy.<b>1), x={1}"
    new = "  %add.7 = f32[2,3]{0,1} add(%a.4, %z), x={1}"
    gone, came = lines.changed_words(old, new, {"add.1": "add.7", "a.1": "a.4"})
    assert [old[a:b] for a, b in gone] == ["{1,0}", "%copy.<b>1"]
    assert [new[a:b] for a, b in came] == ["{0,1}", "%z"]


@pytest.mark.parametrize("query", ["?at=99999999999", "?at=-1", "?from=x", "?from=999", "?base=77", "?base=-1",
                                   "?show=9999", "?c=%00", "?i=%3Cscript%3E", "?full=1&from=99999",
                                   "?full=1&at=99999", "?meta=2"])
def test_a_senseless_address_is_harmless(client, dump, query):
    assert client.get(f"/d/{dump.id}/m/0/s/{COPY_STAGE}/{query}").status_code in (200, 302)


def test_what_is_not_there_is_not_found(client, dump):
    for path in ("/d/nothing/", "/d/nothing/m/0/", f"/d/{dump.id}/m/1/", f"/d/{dump.id}/m/0/s/99/",
                 f"/d/{dump.id}/m/0/s/99/text", "/d/nothing/m/0/s/0/"):
        answer = client.get(path)
        assert answer.status_code == 404, path
        assert "There is nothing at this address" in answer.content.decode()
    assert client.post(f"/d/{dump.id}/").status_code == 405


@pytest.mark.parametrize("status", ["queued", "running"])
def test_an_unfinished_dump_shows_its_progress(client, db, status):
    row = Dump.objects.create(name="d.tar", status=status, phase="reading jit_f", done=3, total=9)
    html = get(client, f"/d/{row.id}/")
    assert f'data-url="/d/{row.id}/progress"' in html and "http-equiv" in html
    if status == "running":
        assert "Reading jit_f: 3 of 9" in html
    for path in ("m/0/", "m/0/s/0/", "m/0/issue/1/"):
        assert client.get(f"/d/{row.id}/{path}")["Location"] == f"/d/{row.id}/"


@pytest.mark.parametrize(("status", "error", "sentence"), [
    ("queued", "", "The analysis is not finished."), ("running", "", "The analysis is not finished."),
    ("failed", "There is no \x1bHLO in it.", "There is no \ufffdHLO in it.")])
def test_a_script_that_fetches_a_file_too_early_is_told_so(client, db, status, error, sentence):
    row = Dump.objects.create(name="d.tar", status=status, error=error)
    for path in ("m/0/s/0/text", "m/0/issue/1.md"):
        answer = client.get(f"/d/{row.id}/{path}")
        assert (answer.status_code, answer.content.decode()) == (409, sentence + "\n")
        assert answer["Content-Type"].startswith("text/plain")
    answer = client.get(f"/d/{row.id}/report.json")
    assert (answer.status_code, answer.json()["error"]) == (409, sentence)


def test_head_is_answered_wherever_get_is(client, dump):
    for path in ("/", f"/d/{dump.id}/progress", f"/d/{dump.id}/report.json", f"/d/{dump.id}/m/0/issue/1/",
                 f"/d/{dump.id}/m/0/issue/1.md", f"/d/{dump.id}/m/0/s/0/text", *all_pages(dump)):
        answer = client.head(path)
        assert answer.status_code in (200, 302), path
        assert answer.status_code == client.get(path).status_code


def test_names_from_a_dump_turn_nothing_around_and_are_no_control_characters(client, db, tmp_path):
    harm = "\x1b[31m\x07\u202e\u2066\x9b"
    for stage, copied in FILES.items():
        told = hlo(copied, 1).replace("<script>", f"<script>{harm}").replace("copy.<b>1", f"copy.{harm}1")
        (tmp_path / f"module_0001.jit_{harm}.{stage}.txt").write_text(told.replace("jit_<u>", f"jit_{harm}"))
    found = store(tmp_path)
    for path in [*all_pages(found), f"/d/{found.id}/m/0/issue/1/", f"/d/{found.id}/m/0/issue/1.md"]:
        html = get(client, path)
        assert not set(harm) - set("[31m") & set(html), path
    assert "\ufffd[31m" in get(client, f"/d/{found.id}/m/0/")
    link = re.search(r'href="([^"]*%1B[^"]*)"', get(client, f"/d/{found.id}/m/0/"))[1].replace("&amp;", "&")
    assert "at=" in client.get(link)["Location"]


def test_a_module_page_lists_only_so_much_and_says_what_is_left_out(dump, client, monkeypatch):
    report = storage.load_report(dump)
    module, copy, pattern = report["modules"][0], report["modules"][0]["copies"][0], report["modules"][0]["patterns"][0]
    copy["parameter_names"] = [f"name{n}" for n in range(20)]
    copy["instruction"] = "i" * 5000
    module["copies"] = [{**copy, "id": f"c{n}"} for n in range(30)]
    module["patterns"] = [{**pattern, "count": 10, "copies": [f"c{n}" for n in range(at, at + 10)]} for at in (0, 10, 20)]
    module["files"]["unparsed"] = [{"file": f"f{n}.txt", "reason": "cut"} for n in range(9)]
    module["flags"] = {f"xla_{n}": "v" * 5000 for n in range(9)}
    for name, most in (("MAX_PATTERNS", 2), ("MAX_COPIES", 6), ("MAX_ROWS", 8), ("MAX_NAMES", 3), ("MAX_FILES", 4),
                       ("MAX_FLAGS", 5)):
        monkeypatch.setattr(module_page, name, most)
    monkeypatch.setattr(storage, "load_report", lambda dump: report)
    html = get(client, f"/d/{dump.id}/m/0/")
    shown = " ".join(text(html).split())
    assert len(re.findall(r'<tr id="c\d+"', html)) == 8
    assert "4 more are in report.json" in shown and "8 more are in report.json" in shown
    assert "1 more pattern is in report.json" in shown
    assert "name2 and 17 more" in shown and "name3" not in shown
    assert "f3.txt" in shown and "f4.txt" not in shown and "and 5 more, in report.json" in shown
    assert "--xla_4=" in shown and "--xla_5=" not in shown and "and 4 more" in shown
    assert "i" * 301 not in shown and "v" * 301 not in shown and "i" * 1001 not in html


def test_a_failed_dump_says_why_and_can_be_tried_again(client, db):
    row = Dump.objects.create(name="d.tar", status="failed", error="There is no <b>HLO</b> in it.")
    html = get(client, f"/d/{row.id}/")
    assert "There is no &lt;b&gt;HLO&lt;/b&gt; in it." in html
    assert f'action="/d/{row.id}/retry"' in html and "csrfmiddlewaretoken" in html
    assert "http-equiv" not in html


def test_short_gaps_are_not_folded():
    shown = [True, False, False, True, False, False, False, True]
    rows._fill_short_gaps(shown)
    assert shown == [True, True, True, True, False, False, False, True]


def test_a_page_that_waits_says_what_the_last_stage_says(client, db):
    first = [{"name": "jit_<b>f", "verdict": "12 parameters, 24.0 MiB, transposed before the loop `while.<i>`."}]
    waiting = Dump.objects.create(name="d", status=Dump.Status.RUNNING, first=first)
    html = get(client, waiting.get_absolute_url())
    assert "24.0 MiB, transposed before the loop <code>while.&lt;i&gt;</code>" in html and "jit_&lt;b&gt;f" in html
    assert client.get(f"/d/{waiting.id}/progress").json()["first"] == first


def test_what_is_worth_a_try_is_called_not_measured(client, dump):
    page = " ".join(text(get(client, f"/d/{dump.id}/")).split())
    assert "Worth a try" in page and "not measured" in page
    assert "Let XLA choose the parameters' layouts (AUTO), for 1 copy" in page
    assert "layout-assignment cannot be disabled: without it nothing has a layout" in page
