"""Golden cases: `diff_cases/*.txt` hold the left text, `====`, the right text, `----`, and the diff as printed here.

A line of the diff begins with the computation's status or the row's sign: `=` same, `~` noise or names only, `-` and
`+` removed and added, `<` and `>` the two sides of a changed line, `^` moved.
"""
from __future__ import annotations

import hashlib
import random
import time
from pathlib import Path

import pytest

from triage.engine import diff as diff_module
from triage.engine.analysis import Chunk
from triage.engine.diff import StageDiff, changed_keys, diff_stages, lines_of, too_large
from triage.engine.lines import MAX_LINE, keys, noise_ranges, stem
from triage.engine.text import split_chunks

CASES = sorted((Path(__file__).parent / "diff_cases").glob("*.txt"))
SIGNS = {"same": "=", "noise": "~", "renamed": "~", "moved": "^", "removed": "-", "added": "+"}


class Texts(dict):
    def chunks(self, text: str) -> list[Chunk]:
        result = []
        for piece in split_chunks(text):
            key = hashlib.sha1(piece.encode()).hexdigest()
            self[key] = piece
            head = piece.split("{")[0].split("(")[0].split()
            name = "" if not result else head[-1].lstrip("%")
            result.append(Chunk(key, name, piece.count("\n"), head[:1] == ["ENTRY"]))
        return result


def diff(left: str, right: str, exact: bool = False) -> tuple[StageDiff, Texts]:
    texts = Texts()
    old, new = texts.chunks(left), texts.chunks(right)
    needed = changed_keys(old, new)

    def lookup(key: str) -> str:
        assert key in needed
        return texts[key]

    return diff_stages(old, new, lookup, exact=exact), texts


def render(result: StageDiff, texts: Texts) -> str:
    out = []
    for part in result.computations:
        names = " -> ".join(dict.fromkeys(chunk.name or "(header)" for chunk in (part.left, part.right) if chunk))
        out.append(f"{part.status} {names}")
        if part.status == "equal":
            continue
        old = lines_of(texts[part.left.key]) if part.left else []
        new = lines_of(texts[part.right.key]) if part.right else []
        for row in part.rows:
            if row.kind == "changed":
                out += [f"<{old[row.left]}", f">{new[row.right]}"]
            else:
                out.append(SIGNS[row.kind] + (old[row.left] if row.right is None else new[row.right]))
    return "\n".join(out) + "\n"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_golden(case: Path) -> None:
    text, _, expected = case.read_text().partition("----\n")
    left, _, right = text.partition("====\n")
    assert render(*diff(left, right)) == expected


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_rows_cover_both_sides_once(case: Path) -> None:
    left, _, right = case.read_text().partition("----\n")[0].partition("====\n")
    for exact in (False, True):
        result, texts = diff(left, right, exact)
        for part in result.computations:
            if part.rows and (exact or part.name):
                for chunk, side in ((part.left, "left"), (part.right, "right")):
                    seen = sorted(getattr(row, side) for row in part.rows if getattr(row, side) is not None)
                    assert seen == (list(range(len(lines_of(texts[chunk.key])))) if chunk else [])


def test_equal_chunks_are_not_read() -> None:
    texts = Texts()
    chunks = texts.chunks("HloModule m\n\na {\n  ROOT x = f32[] parameter(0)\n}\n")
    result = diff_stages(chunks, chunks, lambda key: pytest.fail("read"))
    assert [part.status for part in result.computations] == ["equal", "equal"]


def test_exact_shows_noise() -> None:
    left = "HloModule m\n\na {\n  ROOT x.1 = f32[] parameter(0), metadata={op_name=\"p\"}\n}\n"
    right = left.replace('"p"', '"q"')
    assert diff(left, right)[0].of_status("renamed")[0].count("noise") == 1
    assert diff(left, right, exact=True)[0].of_status("changed")[0].count("changed") == 1


@pytest.mark.parametrize("line, rest", [
    ('%a = f32[] b(), metadata={op_name="x}{\\"" line=1}, sharding={maximal}', "%a = f32[] b(), sharding={maximal}"),
    ("ENTRY %main.1 (a: f32[8], b: (s32[], f32[2])) -> f32[8] {", "ENTRY %main.1 {"),
    ('%a = f32[] b(), backend_config={"a":{"b":"}"}}, x=1', "%a = f32[] b(), x=1"),
    ('%a = f32[] b(), backend_config="{\\"a\\":1}"', "%a = f32[] b()"),
    ('%a = f32[] b(), metadata={op_name="cut', "%a = f32[] b()"),
])
def test_noise(line: str, rest: str) -> None:
    for start, end in reversed(noise_ranges(line)):
        line = line[:start] + line[end:]
    assert line == rest


@pytest.mark.parametrize("name, rest", [
    ("fusion.3.clone.1", "fusion"), ("a.remat2.remat", "a"), ("a.1x", "a.1x"), ("a..1", "a."), (".1.2", ""),
    ("a.clones", "a.clones"), ("a.1.b.2", "a.1.b"), ("", "")])
def test_stem(name: str, rest: str) -> None:
    assert stem(name) == rest


def test_the_largest_texts_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are told to have changed, but they are not read, whichever side they are on."""
    body = "%{0} (p: f32[]) -> f32[] {{\n{1}  ROOT %r = f32[] negate(%p)\n}}\n\n"
    long = "".join(f"  %x.{n} = f32[{{0}}] add(%p, %p)\n" for n in range(50))
    left = ("HloModule m\n\n" + body.format("both", long.format(1)) + body.format("gone", long.format(2))
            + body.format("small", ""))
    right = ("HloModule m\n\n" + body.format("both", long.format(3)) + body.format("new", long.format(4) * 2)
             + body.format("small", "  %y = f32[] constant(1)\n"))
    texts = Texts()
    old, new = texts.chunks(left), texts.chunks(right)
    for lines, room in ((30, 10_000_000), (10_000, 400)):
        monkeypatch.setattr(diff_module, "MAX_LINES", lines)
        monkeypatch.setattr(diff_module, "MAX_BYTES", room)
        left_out = too_large(old, new, lambda key: len(texts[key]))

        def lookup(key: str) -> str:
            assert key not in left_out  # noqa: B023
            return texts[key]

        parts = {part.name: part for part in diff_stages(old, new, lookup, left_out=left_out).computations}
        assert {name: (part.status, part.capped) for name, part in parts.items() if name} == {
            "both": ("changed", True), "gone": ("removed", True), "new": ("added", True), "small": ("changed", False)}
        assert not parts["both"].rows and not parts["gone"].rows and parts["small"].rows


def test_lines_over_the_limit_are_compared_whole() -> None:
    def text(names: str, end: str) -> str:
        return ("HloModule m\n\nENTRY %e () -> f32[] {\n  %a = f32[] constant(1)\n"
                f"  %t.{names} = f32[] add({'%a, ' * MAX_LINE}%a){end}\n  ROOT %r = f32[] negate(%t.{names})\n}}\n")

    assert keys("x" * (MAX_LINE + 1)) == ("x" * (MAX_LINE + 1),) * 3 + ((),)
    same, _ = diff(text("1", ""), text("1", "").replace("constant(1)", "constant(2)"))
    assert [row.kind for row in same.of_status("changed")[0].rows].count("changed") == 1
    other, _ = diff(text("1", ""), text("1", ", metadata={}"))
    assert [row.kind for row in other.of_status("changed")[0].rows].count("changed") == 1


def test_many_like_lines_stay_fast() -> None:
    """30,000 lines of 160 like layers, shuffled and renumbered."""
    dice = random.Random(1)
    lines = [f"  %{op}.{n} = f32[8]{{0}} {op}(%x.{n}, %y.{n % 7})" for n in range(15_000) for op in ("add", "multiply")]
    other = [line.replace("f32[8]", "f32[9]") if dice.random() < 0.1 else line for line in lines]
    block = other[5_000:9_000]
    dice.shuffle(block)
    other[5_000:9_000] = block
    start = time.perf_counter()
    result, _ = diff("HloModule m\n\nENTRY %e () -> f32[] {\n" + "\n".join(lines) + "\n}\n",
                     "HloModule m\n\nENTRY %e () -> f32[] {\n" + "\n".join(other) + "\n}\n")
    assert time.perf_counter() - start < 10
    assert result.count("removed") == result.count("added") < 500
    assert result.count("changed") > 1000 and result.count("moved") > 1000
