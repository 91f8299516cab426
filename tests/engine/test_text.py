"""The tolerant parser: chunks, lines, shapes."""
from __future__ import annotations

import re

import pytest

from triage.engine.instructions import MAX_NESTING, Lines
from triage.engine.text import Parser, split_chunks

MODULE = """HloModule m, entry_computation_layout={(f32[4]{0})->f32[4]{0}}

%add (a: f32[4], b: f32[4]) -> f32[4] {
  %a = f32[4]{0} parameter(0)
  %b = f32[4]{0} parameter(1)
  ROOT %c = f32[4]{0} add(%a, %b)
}

ENTRY %main (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  ROOT %r = f32[4]{0} call(%p, %p), to_apply=%add
}
"""


def computations(text: str) -> dict[str, object]:
    parser, chunks = Parser(), split_chunks(text)
    assert "".join(chunks) == text
    return {c.name: c for chunk in chunks[1:] if (c := parser.computation(chunk)) is not None}


def only(body: str):
    """The instructions, by name, of a computation with this body."""
    found = computations("HloModule m\n\nENTRY e {\n" + body + "\n}\n")["e"]
    return found.by_name, found.unparsed


def test_chunks_are_one_per_computation_and_join_to_the_text():
    chunks = split_chunks(MODULE)
    assert [chunk.split("\n", 1)[0].split(" (")[0] for chunk in chunks[1:]] == ["%add", "ENTRY %main"]
    assert chunks[0].startswith("HloModule m") and "".join(chunks) == MODULE


def test_comments_before_a_computation_do_not_hide_it():
    text = MODULE.replace("ENTRY", "// The entry:\n/* hot */\nENTRY")
    assert list(computations(text)) == ["add", "main"]
    assert not any(c.unparsed for c in computations(text).values())


def test_text_that_begins_with_a_computation_has_an_empty_header():
    assert split_chunks(MODULE[MODULE.index("%add"):])[0] == ""


def test_a_computation_that_was_cut_ends_where_the_next_begins():
    text = MODULE.replace("  ROOT %c = f32[4]{0} add(%a, %b)\n}\n\n", "")
    found = computations(text)
    assert list(found["add"].by_name) == ["a", "b"] and not found["add"].closed
    assert list(found["main"].by_name) == ["p", "r"] and found["main"].closed


@pytest.mark.parametrize("close", ["}", '}, execution_thread="host"', "} // add", "}\r", "}  "])
def test_every_form_of_a_closing_line(close):
    found = computations(MODULE.replace("%b)\n}", f"%b)\n{close}"))
    assert list(found) == ["add", "main"] and found["add"].closed and not found["add"].unparsed


def test_lines_behind_the_last_computation_are_noted_unless_they_are_comments_or_stack_frames():
    tables = 'FileNames\n1 "/a.py"\n\nStackFrames\n1 {file_location_id=1 parent_frame_id=1}\n// end\n'
    assert computations(MODULE + tables)["main"].unparsed == ()
    assert computations(MODULE + "  %x = f32[] add()\n")["main"].unparsed == ("  %x = f32[] add()",)


def test_a_literal_over_several_lines_belongs_to_its_constant():
    found, unparsed = only("  p = f32[2,2]{1,0} parameter(0)\n  c = f32[2,2]{1,0} constant({\n    { 1, 2 },\n    { 3, 4 }\n"
                           "  })\n  ROOT r = f32[2,2]{1,0} add(p, c)")
    assert list(found) == ["p", "c", "r"] and unparsed == ()
    assert found["c"].opcode == "constant" and "3, 4" in found["c"].arguments
    assert found["p"].tail == ""


def test_a_literal_at_the_margin_does_not_end_the_computation():
    found, unparsed = only("c = f32[2,2]{1,0} constant({\n{ 1, 2 },\n{ 3, 4 }\n})\nROOT r = f32[2,2]{1,0} negate(c)")
    assert list(found) == ["c", "r"] and unparsed == ()


def test_attributes_over_several_lines_belong_to_their_instruction():
    found, unparsed = only('  p = f32[2]{0} parameter(0)\n  r = f32[2]{0} custom-call(p),\n     custom_call_target="foo"')
    assert found["r"].attributes["custom_call_target"] == '"foo"' and unparsed == ()
    found, unparsed = only('  r =\n  f32[2]{0} custom-call(), backend_config={\n  "a": [1,\n 2]\n  }, custom_call_target="foo"')
    assert found["r"].attributes["custom_call_target"] == '"foo"' and unparsed == ()


def test_what_is_no_hlo_is_kept_as_unparsed():
    found, unparsed = only("  p = f32[2]{0} parameter(0)\n  ?\n  q = f32[2]{0} add(p, p\n  r = f32[2]{0} add(p, p)\n  s = ?")
    assert list(found) == ["p", "r"] and found["p"].tail == ""
    assert unparsed == ("  ?", "  q = f32[2]{0} add(p, p", "  s = ?")


@pytest.mark.parametrize("line, operands", [
    ("%r = f32[2]{0} add(%p, %q)", ("p", "q")),
    ("r = f32[2]{0} add(p, q)", ("p", "q")),
    ("%r = f32[2]{0} add(f32[2]{0} %p, f32[2]{0:T(8,128)} %q)", ("p", "q")),
    ("r = f32[2]{0} add(f32[2]{0} p, f32[2]{0:T(8,128)} q)", ("p", "q")),
    ("r = f32[2,3] add(f32[2,3] p, f32[2,3] q)", ("p", "q")),
    ("%r = f32[2]{0} add((f32[2]{0}, s32[]) %p, /*index=1*/%q)", ("p", "q")),
    ("%r = f32[2]{0} add(%p#0#1, %q#2)", ("p#0#1", "q#2")),
    ("r = f32[2]{0} add(p#0#1, q#2)", ("p#0#1", "q#2")),
    ('%r = f32[2]{0} custom-call(%p, /*index=1*/%q), custom_call_target="a(b"', ("p", "q")),
    ("%r = f32[2]{0} constant({1, 2})", ()),
    ("%r = f32[2]{0} parameter(0)", ()),
    ("%r = () tuple()", ()),
])
def test_operands_in_every_form(line, operands):
    assert Lines().parse("  " + line).operands == operands


@pytest.mark.parametrize("text, size", [
    ("f32[]", 4), ("f32[4,8]", 128), ("bf16[4,8]{0,1}", 64), ("pred[3]", 3), ("token[]", 0), ("()", 0), ("f32[0,8]", 0),
    ("s4[5]{0}", 5), ("s4[5]{0:E(4)}", 3), ("u2[9]{0:E(2)}", 3), ("f32[<=10,?]{1,0}", 40), ("c128[2]", 32),
    ("f32[5,100]{1,0:T(8,128)}", 4096), ("bf16[5,100]{1,0:T(8,128)(2,1)}", 2048), ("bf16[5]{0:T(1024)(128)(2,1)}", 2048),
    ("bf16[3,20,30]{2,1,0:T(16,128)(2,1)}", 3 * 32 * 128 * 2), ("f32[5,100]{0,1:T(8,128)}", 104 * 128 * 4),
    ("bf16[3,20,30]{2,1,0:T(8,128)(*,2)}", 3 * 24 * 128 * 2), ("f32[3,5]{1,0:T(*,4)}", 16 * 4),
    ("f32[4,8]{1,0:T(8,128)S(1)}", 4096), ("(f32[4], /*index=1*/(s8[3], b(f32[2]{0})))", 27), ("b(f32[8]{0})", 32),
])
def test_bytes_of_shapes(text, size):
    shape = Lines().shape(text)
    assert shape.bytes == size


def test_memory_space_and_order_come_from_the_layout():
    shape = Lines().shape("f32[1,4,8]{0,2,1:T(8,128)S(5)}")
    assert shape.memory_space == 5 and shape.order == (1, 2)


def test_a_layout_that_does_not_fit_is_read_as_the_default():
    assert Lines().shape("f32[4,8]{0}").order == (0, 1)


def test_shapes_nested_too_deeply_are_opaque_inside():
    shape = Lines().shape("(" * 5000 + "f32[4]" + ")" * 5000)
    depth = 0
    while shape.parts:
        shape, depth = shape.parts[0], depth + 1
    assert depth == MAX_NESTING and shape.dtype == "opaque"


def unaccounted(text: str) -> list[str]:
    """Lines of a module that are neither in an instruction, nor noted as unparsed, nor structure."""
    parser, lost = Parser(), []
    chunks = split_chunks(text)
    assert "".join(chunks) == text
    for chunk in chunks[1:]:
        computation = parser.computation(chunk)
        head, *lines = chunk.split("\n")
        known = {line for i in computation.instructions for line in i.line.split("\n")} | set(computation.unparsed)
        lost += [line for line in lines if line.strip() and line not in known and not STRUCTURE.match(line)]
    return lost


STRUCTURE = re.compile(r'\}|\s*(//|/\*|#)|(FileNames|FunctionNames|FileLocations|StackFrames)$|\d+ ["{]')


def test_every_line_of_real_texts_is_accounted_for(unpack_dump):
    samples = [path for path in unpack_dump("hlo_samples").rglob("*") if path.is_file()]
    stages = [path for name in ("cpu-jaxlib0.4.25-attn_heads", "v5e-libtpu0.0.42-train_step", "h100-jaxlib0.10.2-fsdp8")
              for path in sorted(unpack_dump(name).glob("*.before_*.txt"))[::9]]
    assert len(samples) >= 40 and len(stages) >= 20
    for path in [*samples, *stages]:
        assert unaccounted(path.read_text("utf-8", "backslashreplace")) == [], path.name
    for path in stages:
        chunks = split_chunks(path.read_text())
        assert all(c.closed and not c.unparsed for c in map(Parser().computation, chunks[1:]))
