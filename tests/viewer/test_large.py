"""Texts and lines too large for a page: cut or left out, said so, and still there to be downloaded."""
from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.viewer.conftest import store
from tests.viewer.test_pages import get, text
from triage.dumps import pack, storage
from triage.dumps.models import Dump
from triage.engine import diff
from triage.engine.lines import MAX_LINE
from triage.viewer import lines, texts
from triage.viewer.rows import Marks, plain_lines
from triage.viewer.texts import cut_lines, find_line

START = """HloModule m, entry_computation_layout={(f32[1024,1024]{1,0})->f32[1024,1024]{0,1}}

ENTRY %main (p: f32[1024,1024]) -> f32[1024,1024] {
  %p = f32[1024,1024]{1,0} parameter(0)
"""
END = "  ROOT %c = f32[1024,1024]{0,1} copy(%p)\n}\n"
LONG_LINE = "  %long = f32[4]{0} custom-call(%p), custom_call_target=\"" + "x" * (MAX_LINE + 1234) + "\"\n"


def stored(tmp_path: Path, before: str, after: str) -> Dump:
    (tmp_path / "module_0001.m.before_optimizations.txt").write_text(before)
    (tmp_path / "module_0001.m.after_optimizations.txt").write_text(after)
    return store(tmp_path)


@pytest.fixture
def large(db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Dump, str]:
    """A dump whose last stage has one computation that no page reads whole, and that stage's text."""
    for module, name in ((diff, "MAX_BYTES"), (texts, "MAX_BYTES"), (texts, "BATCH_BYTES")):
        monkeypatch.setattr(module, name, 300_000)
    monkeypatch.setattr(pack, "PIECE_BYTES", 10_000)
    lines_of_it = "".join(f"  %x.{n} = f32[{n}]{{0}} negate(%p)\n" for n in range(6_000))
    padding = f"  %y = f32[4]{{0}} custom-call(%p), custom_call_target=\"{'y' * 300_000}\"\n"
    after = START + lines_of_it + padding + END
    return stored(tmp_path, START + END, after), after


def stage(client, dump: Dump, query: str = "") -> str:
    return get(client, f"/d/{dump.id}/m/0/s/1/{query}")


@pytest.mark.parametrize("query", ["", "?meta=1", "?c=main", "?full=1", "?full=1&meta=1"])
def test_a_long_line_is_cut_and_says_so(client, db, tmp_path, query):
    dump = stored(tmp_path, START + LONG_LINE.replace("f32[4]", "f32[5]") + END, START + LONG_LINE + END)
    html = stage(client, dump, query)
    assert re.search(r"⋯ [\d,]+ more characters; download the text", text(html))
    assert f"{len(LONG_LINE) - 1:,} characters" in html     # of the link to the line on its own
    assert len(html) < 50_000


def test_a_long_line_on_its_own_is_cut_and_says_so(client, db, tmp_path):
    dump = stored(tmp_path, START + END, START + LONG_LINE + END)
    html = text(stage(client, dump, "?show=5"))
    assert f"{len(LONG_LINE) - 1 - MAX_LINE:,} more characters of this line are not shown" in html
    assert f"Line 5, {len(LONG_LINE) - 1:,} characters" in html


def test_lines_that_are_too_much_together_are_cut_further():
    long = [lines.beginning("a" * MAX_LINE) for _ in range(1000)]
    shown = plain_lines(long, 1, Marks(()), ["f"] * 1000, meta=False)
    assert "more characters" in shown[0].html
    assert lines.page_limit([MAX_LINE] * 1000) * 1000 <= lines.PAGE_CHARACTERS
    assert lines.page_limit([10_000_000, 50]) == MAX_LINE


def test_a_text_that_is_too_large_is_never_loaded(client, large, monkeypatch):
    dump, after = large
    load = storage.load_texts

    def small(dump, module, keys):
        found = load(dump, module, keys)
        assert sum(map(len, found.values())) < diff.MAX_BYTES
        return found

    monkeypatch.setattr(storage, "load_texts", small)
    html = stage(client, dump)
    assert "Text too large to be aligned" in html and f'href="/d/{dump.id}/m/0/s/0/text"' in html
    assert "Too large to be shown here" in html
    for query in ("?meta=1", "?c=main", "?at=5000"):
        assert "Text too large to be aligned" in stage(client, dump, query)
    window = stage(client, dump, "?full=1&at=5000")
    assert "%x.4995 = f32[4995]{0} negate(%p)" in text(window)
    end = text(stage(client, dump, "?full=1&at=6005"))
    assert "more characters; download the text" in end and "ROOT %c = f32[1024,1024]{0,1} copy(%p)" in end
    alone = text(stage(client, dump, "?show=5000"))
    assert "%x.4995" in alone and "too large to look up what reads the line" in alone
    found = client.get(f"/d/{dump.id}/m/0/s/1/", {"c": "main", "i": "x.4995"})
    assert found["Location"].endswith("at=5000#L5000")
    assert "too large to be searched" in get(client, f"/d/{dump.id}/m/0/issue/1/")
    assert b"".join(client.get(f"/d/{dump.id}/m/0/s/1/text").streaming_content).decode() == after


def test_only_as_much_is_read_as_fits_on_a_page(client, db, tmp_path, monkeypatch):
    """Marked computations are shown where nothing changed; of too many, the last ones are left out."""
    dump = stored(tmp_path, START + END, START + END)
    assert "ROOT" in stage(client, dump) and "Too large" not in stage(client, dump)
    monkeypatch.setattr(texts, "MAX_BYTES", 10)
    html = stage(client, dump)
    assert "Too large to be shown here" in html and "ROOT" not in html
    assert "ROOT %c" in text(stage(client, dump, "?full=1"))


def pieces(whole: str, size: int) -> list[str]:
    return [whole[at:at + size] for at in range(0, len(whole), size)]


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_lines_of_a_text_in_pieces(size):
    whole = "a {\n  first.1 = x\n\n" + "b" * 30 + "\n  second = y\n}\nlast"
    expected = whole.split("\n")
    for skip in range(len(expected) + 1):
        found = list(cut_lines(pieces(whole, size), skip, 1000))
        assert [line.text for line in found] == expected[skip:] and not any(line.left_out for line in found)
    assert list(cut_lines(pieces(whole, size), 3, 5))[0] == ("bbbbb", 25)


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_a_line_of_a_text_in_pieces_is_found(size):
    whole = "a {\n  first.1 = x first\n\n" + "b" * 30 + "\n  second = y first.1\n  third = z"
    names = {"first.1": 1, "second": 4, "third": 5, "first": None, "a": None}
    assert {name: find_line(pieces(whole, size), name) for name in names} == names
