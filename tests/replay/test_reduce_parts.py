"""The parts of a reduction that compile nothing: a module as a graph, slices of it, programs made of what is kept."""
from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from jaxlib import _hlo

from triage.engine.files import find_modules
from triage.engine.text import Parser, split_chunks
from triage.replay.reduce.assemble import Options
from triage.replay.reduce.build import build
from triage.replay.reduce.flatten import DAMAGED, flatten
from triage.replay.reduce.oracle import ALL, NO, SAME_ORDER, SAME_PASS, SAME_TRIGGER, wanted
from triage.replay.reduce.reproducer import NoReproducer
from triage.replay.reduce.slices import Slices, inputs

DUMPS = ["cpu-jaxlib0.10.2-attn_heads", "cpu-jaxlib0.10.2-f32_upcast", "cpu-jaxlib0.4.25-attn_heads",
         "h100-jaxlib0.10.2-attn_160_layers", "h100-jaxlib0.10.2-attn_heads", "h100-jaxlib0.10.2-fsdp8",
         "h100-jaxlib0.10.2-int8_dot", "h100-jaxlib0.10.2-llama3_8b_generate", "h100-jaxlib0.10.2-matvec_decode",
         "h100-jaxlib0.10.2-train_step", "h100-jaxlib0.4.38-attn_heads", "h100-jaxlib0.6.2-attn_heads",
         "v5e-libtpu0.0.42-attn_heads", "v5e-libtpu0.0.42-explicit_T", "v5e-libtpu0.0.42-train_step"]
PLUMBING = {"parameter", "tuple", "get-tuple-element", "while", "constant", "iota"}

#: A loop that reads two weights through a call; names and metadata are somebody's.
LOOP = """HloModule jit_secret, entry_computation_layout={(f32[64,128]{0,1}, f32[128,64]{1,0}, f32[8,64]{1,0})->f32[8,64]{1,0}}

%secret_sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add.7 = f32[] add(%a, %b), metadata={op_name="secret/add" source_file="/home/secret/x.py" source_line=3}
}

%secret_layer (x: f32[8,64], up: f32[64,128], down: f32[128,64]) -> f32[8,64] {
  %x = f32[8,64]{1,0} parameter(0)
  %up = f32[64,128]{1,0} parameter(1)
  %down = f32[128,64]{1,0} parameter(2)
  %dot.1 = f32[8,128]{1,0} dot(%x, %up), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="secret"}
  %tanh.1 = f32[8,128]{1,0} tanh(%dot.1)
  ROOT %dot.2 = f32[8,64]{1,0} dot(%tanh.1, %down), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

%secret_body (s: (s32[], f32[8,64], f32[64,128], f32[128,64])) -> (s32[], f32[8,64], f32[64,128], f32[128,64]) {
  %s = (s32[], f32[8,64]{1,0}, f32[64,128]{1,0}, f32[128,64]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %state = f32[8,64]{1,0} get-tuple-element(%s), index=1
  %wu = f32[64,128]{1,0} get-tuple-element(%s), index=2
  %wd = f32[128,64]{1,0} get-tuple-element(%s), index=3
  %out = f32[8,64]{1,0} call(%state, %wu, %wd), to_apply=%secret_layer
  ROOT %t = (s32[], f32[8,64]{1,0}, f32[64,128]{1,0}, f32[128,64]{1,0}) tuple(%next, %out, %wu, %wd)
}

%secret_test (s: (s32[], f32[8,64], f32[64,128], f32[128,64])) -> pred[] {
  %s = (s32[], f32[8,64]{1,0}, f32[64,128]{1,0}, f32[128,64]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %n = s32[] constant(12)
  ROOT %lt = pred[] compare(%i, %n), direction=LT
}

ENTRY %secret_main (w_up: f32[64,128], w_down: f32[128,64], x: f32[8,64]) -> f32[8,64] {
  %w_up = f32[64,128]{1,0} parameter(0), metadata={op_name="params['secret']"}
  %w_down = f32[128,64]{1,0} parameter(1)
  %x = f32[8,64]{1,0} parameter(2)
  %zero = s32[] constant(0)
  %start = (s32[], f32[8,64]{1,0}, f32[64,128]{1,0}, f32[128,64]{1,0}) tuple(%zero, %x, %w_up, %w_down)
  %loop = (s32[], f32[8,64]{1,0}, f32[64,128]{1,0}, f32[128,64]{1,0}) while(%start), condition=%secret_test, body=%secret_body
  %end = f32[8,64]{1,0} get-tuple-element(%loop), index=1
  %zero.1 = f32[] constant(0)
  %total = f32[8]{0} reduce(%end, %zero.1), dimensions={1}, to_apply=%secret_sum
  %wide = f32[8,64]{1,0} broadcast(%total), dimensions={0}
  ROOT %sum = f32[8,64]{1,0} add(%end, %wide)
}
"""
WAY = """HloModule reproducer, entry_computation_layout={(f32[64,128]{0,1}, f32[8,64]{1,0}, f32[8,128]{1,0})->f32[8,128]{1,0}}

condition {
  parameter.1 = (s32[], f32[64,128], f32[8,64], f32[8,128]) parameter(0)
  get-tuple-element.1 = s32[] get-tuple-element(parameter.1), index=0
  constant.1 = s32[] constant(12)
  ROOT compare.1 = pred[] compare(get-tuple-element.1, constant.1), direction=LT
}

body {
  parameter.2 = (s32[], f32[64,128], f32[8,64], f32[8,128]) parameter(0)
  get-tuple-element.2 = s32[] get-tuple-element(parameter.2), index=0
  constant.2 = s32[] constant(1)
  add.1 = s32[] add(get-tuple-element.2, constant.2)
  get-tuple-element.3 = f32[64,128] get-tuple-element(parameter.2), index=1
  get-tuple-element.4 = f32[8,64] get-tuple-element(parameter.2), index=2
  negate.1 = f32[8,64] negate(get-tuple-element.4)
  dot.1 = f32[8,128] dot(get-tuple-element.4, get-tuple-element.3), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT tuple.1 = (s32[], f32[64,128], f32[8,64], f32[8,128]) tuple(add.1, get-tuple-element.3, negate.1, dot.1)
}

ENTRY main {
  p0 = f32[64,128]{0,1} parameter(0)
  p1 = f32[8,64]{1,0} parameter(1)
  p2 = f32[8,128] parameter(2)
  constant.3 = s32[] constant(0)
  tuple.2 = (s32[], f32[64,128], f32[8,64], f32[8,128]) tuple(constant.3, p0, p1, p2)
  while.1 = (s32[], f32[64,128], f32[8,64], f32[8,128]) while(tuple.2), condition=condition, body=body
  ROOT get-tuple-element.5 = f32[8,128] get-tuple-element(while.1), index=3
}
"""


def every_op(graph):
    return frozenset([value.id for value in graph.values if value.kind == "op" and not value.free
                      and value.opcode not in PLUMBING])


def opcodes(text):
    """Of the entry and of the loops, without what only carries values about."""
    parser, found = Parser(), Counter()
    for chunk in split_chunks(text)[1:]:
        computation = parser.computation(chunk)
        if not computation.name.startswith("applied"):
            found.update(i.opcode for i in computation.instructions if i.opcode not in PLUMBING)
    return found


def first_way(text, number=0, **options):
    graph = flatten(text)
    tracked = inputs(graph, [number])
    return build(graph, next(Slices(graph, tracked, True).ways()), tracked, Options(**options))


def test_the_way_from_a_parameter_to_its_user():
    program = first_way(LOOP)
    assert program.text == WAY
    assert (program.instructions, program.tracked) == (20, {0})
    _hlo.hlo_module_from_text(program.text)


def test_fewer_iterations_and_smaller_dimensions():
    smaller = first_way(LOOP, 0, sizes=((128, 32),), trips=2)
    _hlo.hlo_module_from_text(smaller.text)
    assert "constant(2)" in smaller.text and "constant(12)" not in smaller.text
    assert "128" not in smaller.text and smaller.parameters[0].text == "f32[64,32]"


def test_what_a_loop_makes_goes_into_its_next_iteration_where_it_fits():
    square = LOOP.replace("128", "64")
    assert "negate" in first_way(square).text
    fed = first_way(square, feed=True)
    _hlo.hlo_module_from_text(fed.text)
    assert "negate" not in fed.text and fed.instructions == 18
    assert "negate" in first_way(LOOP, feed=True).text


def test_no_name_and_no_metadata_of_the_users_survives():
    graph = flatten(LOOP)
    text = build(graph, every_op(graph), inputs(graph, [0, 1]), Options()).text
    _hlo.hlo_module_from_text(text)
    for word in ("secret", "/home", "metadata", "op_name", "source_file", "w_up", "wide"):
        assert word not in text
    assert "reduce.1 = f32[8] reduce(get-tuple-element" in text and "to_apply=applied.1" in text


def test_nothing_is_left_where_the_parameter_is_not():
    graph = flatten(LOOP)
    tanh = [value.id for value in graph.values if value.opcode == "tanh"]
    assert build(graph, tanh, inputs(graph, [0]), Options()) is None


def test_slices_grow_from_the_way_to_everything():
    graph = flatten(LOOP)
    slices = Slices(graph, inputs(graph, [0]), True)
    way, = slices.ways()
    rings = list(slices.rings(way))
    assert all(way <= ring for ring in rings)
    assert rings[-1] == every_op(graph)
    assert "tanh" in {graph.values[value].opcode for value in rings[0]}


@pytest.mark.parametrize("name", DUMPS)
def test_modules_of_real_dumps_stay_valid(unpack_dump, name):
    """Everything kept is the module with its calls inlined; a way is a small program. XLA reads both."""
    read = 0
    for files in find_modules(Path(unpack_dump(name))):
        if not files.stages or files.stages[0].named_rank != 0:
            continue
        text = files.stages[0].path.read_text()
        graph = flatten(text)
        parameters = sorted((value for value in graph.values if value.kind == "input"), key=lambda v: -v.shape.bytes)
        if not parameters:
            continue
        read += 1
        tracked = frozenset([parameters[0].id])
        slices = Slices(graph, tracked, True)
        whole = build(graph, every_op(graph), tracked, Options())
        _hlo.hlo_module_from_text(whole.text)
        kept = Counter(graph.values[value].opcode for value in every_op(graph))
        assert opcodes(whole.text) == kept
        for way in slices.ways():
            small = build(graph, way, tracked, Options())
            _hlo.hlo_module_from_text(small.text)
            assert "/home" not in small.text and "metadata" not in small.text and "op_name" not in small.text
    assert read


NESTED = """HloModule m

inner_condition {
  s = (s32[], f32[16,16]{1,0}, f32[16]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(4)
  ROOT lt = pred[] compare(i, n), direction=LT
}

inner_body {
  s = (s32[], f32[16,16]{1,0}, f32[16]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  w = f32[16,16]{1,0} get-tuple-element(s), index=1
  x = f32[16]{0} get-tuple-element(s), index=2
  y = f32[16]{0} dot(w, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (s32[], f32[16,16]{1,0}, f32[16]{0}) tuple(j, w, y)
}

outer_condition {
  s = ((s32[], f32[16]{0}), f32[16,16]{1,0}) parameter(0)
  p = (s32[], f32[16]{0}) get-tuple-element(s), index=0
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT lt = pred[] compare(i, n), direction=LT
}

outer_body {
  s = ((s32[], f32[16]{0}), f32[16,16]{1,0}) parameter(0)
  p = (s32[], f32[16]{0}) get-tuple-element(s), index=0
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[16]{0} get-tuple-element(p), index=1
  w = f32[16,16]{1,0} get-tuple-element(s), index=1
  z = s32[] constant(0)
  e = f32[16]{0} exponential(x)
  init = (s32[], f32[16,16]{1,0}, f32[16]{0}) tuple(z, w, e)
  loop = (s32[], f32[16,16]{1,0}, f32[16]{0}) while(init), condition=inner_condition, body=inner_body
  y = f32[16]{0} get-tuple-element(loop), index=2
  q = (s32[], f32[16]{0}) tuple(j, y)
  ROOT t = ((s32[], f32[16]{0}), f32[16,16]{1,0}) tuple(q, w)
}

ENTRY main {
  both = (f32[16,16]{1,0}, f32[16]{0}) parameter(0)
  w = f32[16,16]{1,0} get-tuple-element(both), index=0
  x = f32[16]{0} get-tuple-element(both), index=1
  z = s32[] constant(0)
  p = (s32[], f32[16]{0}) tuple(z, x)
  init = ((s32[], f32[16]{0}), f32[16,16]{1,0}) tuple(p, w)
  loop = ((s32[], f32[16]{0}), f32[16,16]{1,0}) while(init), condition=outer_condition, body=outer_body
  end = (s32[], f32[16]{0}) get-tuple-element(loop), index=0
  ROOT y = f32[16]{0} get-tuple-element(end), index=1
}
"""


@pytest.mark.parametrize("keep", [("dot",), ("exponential",), ("dot", "exponential")])
def test_loops_in_loops_and_tuples_in_tuples(keep):
    graph = flatten(NESTED)
    kept = [value.id for value in graph.values if value.opcode in keep]
    program = build(graph, kept, inputs(graph, [0, 1]), Options())
    _hlo.hlo_module_from_text(program.text)
    assert set(keep) <= opcodes(program.text).keys()


def chain(loops: int) -> str:
    """Loops one after the other, each beginning with what the one before ends with."""
    shape = "(s32[], f32[8]{0})"
    lines = [f"  w0 = {shape} while(init), condition=c, body=b"]
    lines += [f"  w{n} = {shape} while(w{n - 1}), condition=c, body=b" for n in range(1, loops)]
    return (f"HloModule m\n\nc {{\n  s = {shape} parameter(0)\n  i = s32[] get-tuple-element(s), index=0\n"
            "  n = s32[] constant(4)\n  ROOT lt = pred[] compare(i, n), direction=LT\n}\n\n"
            f"b {{\n  s = {shape} parameter(0)\n"
            "  i = s32[] get-tuple-element(s), index=0\n  o = s32[] constant(1)\n  j = s32[] add(i, o)\n"
            "  x = f32[8]{0} get-tuple-element(s), index=1\n  y = f32[8]{0} exponential(x)\n"
            f"  ROOT t = {shape} tuple(j, y)\n}}\n\nENTRY main {{\n  z = s32[] constant(0)\n  x = f32[8]{{0}} parameter(0)\n"
            f"  init = {shape} tuple(z, x)\n" + "\n".join(lines) +
            f"\n  ROOT out = f32[8]{{0}} get-tuple-element(w{loops - 1}), index=1\n}}\n")


def test_long_chains_of_loops_need_no_deep_stack():
    graph = flatten(chain(900))
    program = build(graph, every_op(graph), inputs(graph, [0]), Options())
    _hlo.hlo_module_from_text(program.text)


HEAD = "HloModule m\n\nf0 {\n  p = f32[8]{0} parameter(0)\n  ROOT q = f32[8]{0} negate(p)\n}"
LAST = "ENTRY main {{\n  p = f32[8]{{0}} parameter(0)\n  ROOT r = f32[8]{{0}} call(p), to_apply=f{}\n}}\n"
CALLS = "\n\n".join([HEAD] + [
    f"f{n} {{\n  p = f32[8]{{0}} parameter(0)\n  a = f32[8]{{0}} call(p), to_apply=f{n - 1}\n"
    f"  ROOT b = f32[8]{{0}} call(a), to_apply=f{n - 1}\n}}" for n in range(1, 40)] + [
    LAST.format(39)])
TUPLES = ("HloModule m\n\nENTRY main {\n  t0 = f32[8]{0} parameter(0)\n" + "\n".join(
    [f"  t{n} = (f32[8]{{0}}) tuple(t{n - 1}, t{n - 1})" for n in range(1, 40)])
    + "\n  ROOT r = (f32[8]{0}) opt-barrier(t39)\n}\n")
DEEP = "\n\n".join([HEAD] + [
    f"f{n} {{\n  p = f32[8]{{0}} parameter(0)\n  ROOT a = f32[8]{{0}} call(p), to_apply=f{n - 1}\n}}"
    for n in range(1, 3000)] + [LAST.format(2999)])
SELF = "HloModule m\n\nENTRY f {\n  p = f32[8]{0} parameter(0)\n  ROOT a = f32[8]{0} call(p), to_apply=f\n}\n"


@pytest.mark.parametrize("text, reason", [
    (CALLS, "more than"), (TUPLES, "more than"), (DEEP, "nested more than"), (SELF, "nested more than"),
    (chain(1100), "loops"), ("", DAMAGED), ("HloModule m\n\nENTRY e {\n}\n", DAMAGED),
    (LOOP.replace("body=%secret_body", ""), DAMAGED),
    (LOOP.replace("index=3", "index=33"), DAMAGED), (LOOP.replace("dot(%x, %up)", "dot(%x, %other)"), DAMAGED),
    (LOOP.replace("parameter(2)\n", "parameter(x)\n"), DAMAGED), (LOOP[:1500], DAMAGED),
], ids=["calls", "tuples", "deep", "itself", "loops", "empty", "no root", "no body", "index", "operand", "parameter", "cut"])
def test_hostile_and_damaged_texts_get_one_sentence(text, reason):
    with pytest.raises(NoReproducer, match=reason):
        flatten(text)


def copy_of(**changes):
    return {"kind": "transpose", "where": "before_loop", "bytes": 8, "to_shape": "f32[16,64,1024]{2,1,0}",
            "introduced_by": {"pass": "layout-assignment"}, "trigger": {"pass": "algsimp"}, **changes}


@pytest.mark.parametrize("changes, level", [
    ({}, ALL), ({"to_shape": "f32[1024,1024]{1,0}"}, ALL), ({"to_shape": "f32[16,1024,64]{1,2,0}"}, ALL),
    ({"trigger": None}, SAME_PASS + SAME_ORDER), ({"to_shape": "f32[64,16,1024]{2,1,0}"}, SAME_PASS + SAME_TRIGGER),
    ({"kind": "copy"}, NO), ({"where": "entry"}, NO), ({"introduced_by": {"pass": "fusion"}}, NO),
    ({"introduced_by": None}, NO),
])
def test_what_makes_a_copy_the_same(changes, level):
    assert wanted(copy_of(), 8).level(copy_of(**changes), int) == level


def test_an_order_is_the_same_when_sizes_shrink():
    assert wanted(copy_of(), 8).level(copy_of(to_shape="f32[16,64,128]{2,1,0}"), {1024: 128, 64: 64, 16: 16}.get) == ALL
