"""Golden cases: `cases/*.txt` hold HLO text, a line `----`, and the tokens that are not plain, one a line."""
from __future__ import annotations

import lzma
import tarfile
import time
from pathlib import Path

import pytest

from triage.highlight import line_html
from triage.highlight.formatter import css_class
from triage.highlight.lexer import HloLexer

CASES = sorted((Path(__file__).parent / "cases").glob("*.txt"))
DUMPS = Path(__file__).resolve().parents[2].parent / "shared" / "dumps"
REAL = ["h100-jaxlib0.10.2-int8_dot", "v5e-libtpu0.0.42-explicit_T", "cpu-jaxlib0.4.25-attn_heads", "hlo_samples"]


def tokens(text: str) -> list[tuple[str, str]]:
    return [(css_class(kind), part) for _, kind, part in HloLexer().get_tokens_unprocessed(text)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_golden(case: Path) -> None:
    text, _, expected = case.read_text().partition("----\n")
    found = "".join(f"{name} {part}\n" for name, part in tokens(text) if name)
    assert found == expected
    assert "".join(part for _, part in tokens(text)) == text


@pytest.mark.parametrize("name", REAL)
def test_tokens_of_real_files_are_the_text(name: str) -> None:
    path = DUMPS / f"{name}.tar.xz"
    if not path.exists():
        pytest.skip(f"{path.name} is not at ../shared/dumps")
    files = 0
    with tarfile.open(fileobj=lzma.open(path)) as archive:
        for member in archive:
            if member.isfile() and member.name.endswith((".txt", ".hlo")) and member.size < 200_000:
                text = archive.extractfile(member).read().decode("utf-8", "replace")
                assert "".join(part for _, part in tokens(text)) == text, member.name
                files += 1
    assert files > 5


@pytest.mark.parametrize("piece", ['"', '\\"', "/*", "f32[", "f32[2]{0:", "a=", "(", "'", "%", "x.1 ", "]{1,", "0x"])
def test_time_grows_with_the_line_only(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    start = time.perf_counter()
    assert "".join(part for _, part in tokens(text)) == text
    assert time.perf_counter() - start < 10      # a quadratic rule takes minutes


def test_line_ends_and_odd_characters_stay() -> None:
    text = "a {\r\n  b = f32[] add(c, d)\r\n}\u2028\x0b\x85é\0"
    assert "".join(part for _, part in tokens(text)) == text


def test_html_is_escaped_in_every_kind_of_token() -> None:
    html = line_html('  %<i>.1 = f32[] add(<b>), x="<script>", /*<u>*/ \'<s>\' &amp; // <p>')
    assert "<script>" not in html and "<i>" not in html and "<u>" not in html
    assert html.count("<") == 2 * html.count("</span>")
    assert "&amp;amp;" in html and "&lt;script&gt;" in html


def test_changed_ranges_cut_tokens() -> None:
    assert line_html(" add(x)", ((2, 4),)) == (' <span class="ho">a</span><b><span class="ho">dd</span></b>(x)')
    assert line_html(" add(x)", ((0, 7),)) == '<b> <span class="ho">add</span>(x)</b>'
    assert line_html("abc", ((0, 1), (2, 3))) == "<b>a</b>b<b>c</b>"
