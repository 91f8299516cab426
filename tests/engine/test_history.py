"""Copies followed across the stages of small dumps."""
from __future__ import annotations

from pathlib import Path

import pytest

from triage.engine.report import analyse

W = "f32[256,512]{1,0}"
T = "f32[256,512]{0,1}"
SIZE = 256 * 512 * 4


USED = '  d = f32[8]{0} custom-call(w), custom_call_target="use"'


def stage(entry: str, carried: str = "p", shape: str = W, inside: str = USED) -> str:
    """A module whose loop `loop` carries one value of the entry and reads it."""
    return f"""HloModule jit_f

body {{
  c = ({shape}) parameter(0)
  w = {shape} get-tuple-element(c), index=0
{inside}
  ROOT r = ({shape}) tuple(w)
}}

condition {{
  c.1 = ({shape}) parameter(0)
  ROOT more = pred[] constant(true)
}}

ENTRY main {{
  p = {W} parameter(0), metadata={{op_name="params['w']"}}
{entry}
  init = ({shape}) tuple({carried})
  loop = ({shape}) while(init), condition=condition, body=body
  ROOT out = {shape} get-tuple-element(loop), index=0
}}
"""


def two_carried(entry: str, carried: str, shapes: str) -> str:
    """The same, with a loop that carries and reads two values."""
    first, second = shapes.replace("}, ", "};").split(";")
    text = stage(entry, carried, shapes, f"  v = {second} get-tuple-element(c), index=1\n" + USED.replace("(w)", "(w, v)"))
    return (text.replace(f"w = {shapes}", f"w = {first}").replace("tuple(w)", "tuple(w, v)")
            .replace(f"out = {shapes}", f"out = {first}"))


def values(copies: list[dict], key: str) -> set:
    return {copy[key] for copy in copies}


def dot(name: str = "d") -> str:
    return (f"  {name} = f32[256,256]{{1,0}} dot(w, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}, "
            f'metadata={{op_name="jit(f)/dot" source_file="/m.py" source_line=7}}')


PLAIN = stage("", inside=dot())
COPIED = stage(f"  wT = {T} copy(p)", "wT", T, dot())


@pytest.fixture
def module(tmp_path: Path):
    """`module({"before_optimizations": text, "0001.pipe.after_a.before_b": text, ...})` is the module's report."""
    def make(stages: dict[str, str]) -> dict:
        for name, text in stages.items():
            (tmp_path / f"module_0001.jit_f.{name}.txt").write_text(text)
        [found] = analyse(tmp_path).report["modules"]
        return found
    return make


def only(module: dict) -> dict:
    [copy] = module["copies"]
    return copy


def introduced(copy: dict) -> tuple | None:
    run = copy["introduced_by"]
    return (run["step"], run["pipeline"], run["pass"]) if run else None


START = {"before_optimizations": PLAIN, "0001.simplification.after_pipeline-start.before_algsimp": PLAIN,
         "0002.simplification.after_algsimp.before_dce": PLAIN,
         "0003.layout_assignment.after_pipeline-start.before_layout-assignment": PLAIN,
         "0004.layout_assignment.after_layout-assignment.before_pipeline-end": COPIED}
END = {"after_optimizations": COPIED}


def test_the_pass_after_which_the_copy_is_there(module):
    found = module(START | END)
    copy = only(found)
    assert introduced(copy) == (4, "layout_assignment", "layout-assignment")
    assert (copy["stage"], copy["previous_stage"], copy["between"], copy["trigger"]) == (4, 3, None, None)
    assert (copy["kind"], copy["where"], copy["loop"], copy["bytes"]) == ("transpose", "before_loop", "loop", SIZE)
    assert copy["origin"] == "compiler" and copy["source"] == {"op_name": "jit(f)/dot", "file": "/m.py", "line": 7}
    assert [s["copied_bytes"] for s in found["stages"]] == [0, 0, 0, 0, SIZE, SIZE]
    assert [s["layouts_assigned"] for s in found["stages"]] == [False] * 4 + [True] * 2


def test_a_copy_keeps_its_lineage_under_other_names_and_opcodes(module):
    transposed = stage("  b = f32[512,256]{0,1} bitcast(p)\n  t.8 = f32[512,256]{1,0} copy(b)\n"
                       f"  v = {T} bitcast(t.8)", "v", T, dot())
    fused = stage(f"  v = f32[512,256]{{1,0}} fusion(p), kind=kLoop, calls=wrapped\n  u = {T} bitcast(v)", "u", T, dot())
    fused = fused.replace("ENTRY", f"wrapped {{\n  a = {W} parameter(0)\n  ROOT x = f32[512,256]{{1,0}} transpose(a), "
                                   "dimensions={1,0}\n}\n\nENTRY")
    copy = only(module(START | {"0005.p.after_pipeline-start.before_layout_normalization": COPIED,
                                "0006.p.after_layout_normalization.before_fusion": transposed,
                                "0007.p.after_fusion.before_pipeline-end": fused, "after_optimizations": fused}))
    assert introduced(copy) == (4, "layout_assignment", "layout-assignment")
    assert (copy["instruction"], copy["kind"]) == ("v", "transpose")


def test_a_copy_that_went_and_came_back_dates_from_its_return(module):
    copy = only(module(START | {"0005.p.after_pipeline-start.before_sink": COPIED, "0006.p.after_sink.before_hoist": PLAIN,
                                "0007.p.after_hoist.before_pipeline-end": COPIED} | END))
    assert introduced(copy) == (7, "p", "hoist")


def test_two_copies_of_one_parameter_are_told_apart_by_kind(module):
    both = stage(f"  wT = {T} copy(p)\n  h = bf16[256,512]{{1,0}} convert(p)\n"
                 '  u = f32[8]{0} custom-call(h), custom_call_target="use"', "wT", T, dot())
    converted = stage("  h.1 = bf16[256,512]{1,0} convert(p)\n"
                      '  u = f32[8]{0} custom-call(h.1), custom_call_target="use"', inside=dot())
    copies = module({"before_optimizations": PLAIN, "0001.p.after_pipeline-start.before_a": PLAIN,
                     "0002.p.after_a.before_b": converted, "0003.p.after_b.before_c": both,
                     "after_optimizations": both})["copies"]
    assert {copy["kind"]: introduced(copy) for copy in copies} == {"convert": (2, "p", "a"), "transpose": (3, "p", "b")}


def test_two_copies_in_one_place_are_told_apart_by_kind(module):
    """The loop carries both. The one that came later is printed first."""
    pair = "f32[256,512]{1,0}, bf16[256,512]{1,0}"
    one = two_carried(f"  h = bf16[256,512]{{1,0}} convert(p)\n  k = {W} constant({{...}})", "k, h", pair)
    both = two_carried(f"  t = {W} reverse(p), dimensions={{0}}\n  h = bf16[256,512]{{1,0}} convert(p)", "t, h", pair)
    copies = module({"before_optimizations": PLAIN, "0001.p.after_pipeline-start.before_a": PLAIN,
                     "0002.p.after_a.before_b": one, "0003.p.after_b.before_c": both, "after_optimizations": both})["copies"]
    assert values(copies, "where") == {"before_loop"}
    assert {copy["kind"]: introduced(copy) for copy in copies} == {"convert": (2, "p", "a"), "transpose": (3, "p", "b")}


def test_two_alike_copies_in_one_place_both_keep_their_lineage(module):
    """A transpose and, of its result, a conversion: both before the loop, both of the same parameter."""
    chain = stage(f"  wT = {T} copy(p)\n  h = bf16[256,512]{{0,1}} convert(wT)", "h", "bf16[256,512]{0,1}")
    renamed = chain.replace("wT", "x.9").replace("h =", "y.9 =").replace("(h)", "(y.9)")
    copies = module({"before_optimizations": PLAIN, "0001.p.after_pipeline-start.before_a": PLAIN,
                     "0002.p.after_a.before_b": chain, "0003.p.after_b.before_c": renamed,
                     "after_optimizations": chain})["copies"]
    assert [introduced(copy) for copy in copies] == [(2, "p", "a")] * 2


def test_only_before_and_after(module):
    found = module({"before_optimizations": PLAIN, "after_optimizations": COPIED})
    copy = only(found)
    assert introduced(copy) is None and copy["trigger"] is None
    assert copy["between"] == ["before_optimizations", "after_optimizations"]
    assert "introduced between `before_optimizations` and `after_optimizations`" in found["verdict"]


def test_only_after(module):
    found = module({"after_optimizations": COPIED})
    copy = only(found)
    assert introduced(copy) is None and copy["between"] is None and copy["origin"] == "unknown"
    assert "already in" not in found["verdict"]
    assert any("nothing can be said about passes" in note for note in found["notes"])


def test_only_before(module):
    found = module({"before_optimizations": PLAIN})
    assert found["copies"] == [] and any("text after optimisation is missing" in note for note in found["notes"])


def test_a_dump_of_some_passes_blames_only_those_it_shows(module):
    """`--xla_dump_hlo_pass_re=layout-assignment` writes the text before and after that pass, and no other."""
    some = {"before_optimizations": PLAIN, "0041.simplification.after_dce.before_layout-assignment": PLAIN,
            "0042.layout_assignment.after_layout-assignment.before_dce": COPIED, "after_optimizations": COPIED}
    found = module(some)
    assert introduced(only(found)) == (42, "layout_assignment", "layout-assignment")
    assert any("Only some passes were dumped" in note for note in found["notes"])


def test_a_dump_of_some_passes_does_not_blame_the_one_before(module):
    found = module({"before_optimizations": PLAIN, "0041.simplification.after_dce.before_layout-assignment": COPIED,
                    "0042.layout_assignment.after_layout-assignment.before_dce": COPIED, "after_optimizations": COPIED})
    copy = only(found)
    assert introduced(copy) is None and copy["between"] == ["before_optimizations", "dce"]


def test_a_pass_that_runs_a_pipeline_is_blamed_for_what_the_inner_start_shows(module):
    copy = only(module({"before_optimizations": PLAIN, "0001.outer.after_pipeline-start.before_partition": PLAIN,
                        "0002.inner.after_pipeline-start.before_dce": COPIED,
                        "0003.outer.after_partition.before_x": COPIED} | END))
    assert introduced(copy) == (3, "outer", "partition") and copy["stage"] == 2


def test_a_pipeline_start_that_differs_for_no_known_reason_blames_nobody(module):
    copy = only(module({"before_optimizations": PLAIN, "0001.a.after_pipeline-start.before_x": PLAIN,
                        "0002.b.after_pipeline-start.before_y": COPIED} | END))
    assert introduced(copy) is None and copy["between"] == ["pipeline-start", "pipeline-start"]


def test_a_copy_inside_a_pass_belongs_to_that_pass(module):
    copy = only(module(START | {"0004.layout_assignment.after_layout-assignment.before_pipeline-end": PLAIN,
                                "0005.copy-insertion.after_adding_copies_to_resolve_interference": COPIED} | END))
    assert introduced(copy) == (5, "copy-insertion", "copy-insertion")


def test_the_programs_own_transpose(module):
    own = stage(f"  wT = {T} copy(p), metadata={{op_name=\"jit(f)/transpose\" source_file=\"/m.py\" source_line=3}}", "wT", T)
    found = module({"before_optimizations": own, "0001.p.after_pipeline-start.before_a": own, "after_optimizations": own})
    copy = only(found)
    assert (copy["origin"], introduced(copy), copy["between"], copy["stage"]) == ("program", None, None, 0)
    assert copy["source"] == {"op_name": "jit(f)/transpose", "file": "/m.py", "line": 3}
    assert "already in the program (m.py:3)" in found["verdict"]


def test_the_programs_own_transpose_that_was_free_until_layouts_were_assigned(module):
    def turned(layout: str) -> str:
        return stage(f"  t = f32[512,256]{{{layout}}} transpose(p), dimensions={{1,0}}, "
                     'metadata={op_name="jit(f)/transpose" source_file="/m.py" source_line=3}', "t",
                     f"f32[512,256]{{{layout}}}")
    copy = only(module({"before_optimizations": turned("0,1"), "0001.p.after_pipeline-start.before_a": turned("0,1"),
                        "0002.p.after_layout-assignment.before_a": turned("1,0"), "after_optimizations": turned("1,0")}))
    assert (copy["origin"], copy["free_until"]) == ("program", "layout-assignment")
    assert introduced(copy) == (2, "p", "layout-assignment") and copy["source"]["line"] == 3
    assert copy["trigger"] is None


def test_a_transpose_that_a_pass_made_and_that_was_free_until_layouts_were_assigned(module):
    def turned(layout: str) -> str:
        return stage(f"  t = f32[512,256]{{{layout}}} transpose(p), dimensions={{1,0}}", "t", f"f32[512,256]{{{layout}}}")
    copy = only(module({"before_optimizations": PLAIN, "0001.p.after_pipeline-start.before_decomposer": PLAIN,
                        "0002.p.after_dot_decomposer.before_a": turned("0,1"),
                        "0003.p.after_layout-assignment.before_a": turned("1,0"), "after_optimizations": turned("1,0")}))
    assert (copy["origin"], copy["free_until"]) == ("compiler", "layout-assignment")
    assert introduced(copy) == (3, "p", "layout-assignment")
    assert (copy["trigger"]["pass"], copy["trigger"]["step"]) == ("dot_decomposer", 2)
    assert "transpose` `t`" in copy["trigger"]["evidence"]


def test_hoisting_blames_the_hoister_and_names_who_made_what_it_hoisted(module):
    inside = stage("", inside='  h = bf16[256,512]{1,0} convert(w)\n  d = f32[8]{0} custom-call(h), custom_call_target="use"')
    hoisted = stage("  h.1 = bf16[256,512]{1,0} convert(p)", "h.1", "bf16[256,512]{1,0}")
    copy = only(module({"before_optimizations": PLAIN, "0001.p.after_pipeline-start.before_a": PLAIN,
                        "0002.p.after_float-normalization-bf16.before_a": inside,
                        "0003.p.after_while-loop-invariant-code-motion.before_a": hoisted, "after_optimizations": hoisted}))
    assert introduced(copy) == (3, "p", "while-loop-invariant-code-motion")
    assert copy["trigger"]["pass"] == "float-normalization-bf16"
    assert copy["origin"] == "compiler" and copy["source"]["line"] == 7


def test_hoisting_of_the_programs_own_conversion(module):
    inside = stage("", inside="  h = bf16[256,512]{1,0} convert(w), metadata={op_name=\"jit(f)/astype\" source_file=\"/m.py\" "
                              "source_line=9}\n  d = f32[8]{0} custom-call(h), custom_call_target=\"use\"")
    hoisted = stage("  h.1 = bf16[256,512]{1,0} convert(p)", "h.1", "bf16[256,512]{1,0}")
    copy = only(module({"before_optimizations": inside, "0001.p.after_pipeline-start.before_a": inside,
                        "0002.p.after_while-loop-invariant-code-motion.before_a": hoisted, "after_optimizations": hoisted}))
    assert introduced(copy) == (2, "p", "while-loop-invariant-code-motion")
    assert (copy["origin"], copy["trigger"]) == ("program", None)
    assert copy["source"] == {"op_name": "jit(f)/astype", "file": "/m.py", "line": 9}


def test_the_pass_that_took_the_dot_apart_is_the_trigger(module):
    apart = stage("", inside=f'  m.1 = {W} multiply(w, w)\n  d = f32[8]{{0}} custom-call(m.1), custom_call_target="use"')
    copied = stage(f"  wT = {T} copy(p)", "wT", T,
                   f'  m.1 = {T} multiply(w, w)\n  d = f32[8]{{0}} custom-call(m.1), custom_call_target="use"')
    copies = module({"before_optimizations": PLAIN, "0001.p.after_pipeline-start.before_a": PLAIN,
                     "0002.p.after_dot-strength-reduction.before_a": apart, "0003.p.after_algsimp.before_a": apart,
                     "0004.q.after_pipeline-start.before_layout-assignment": apart,
                     "0005.q.after_layout-assignment.before_a": copied, "after_optimizations": copied})["copies"]
    [copy] = [copy for copy in copies if copy["where"] == "before_loop"]
    assert introduced(copy) == (5, "q", "layout-assignment")
    assert (copy["trigger"]["pass"], copy["trigger"]["stage"], copy["trigger"]["confidence"]) == (
        "dot-strength-reduction", 2, "likely")
    assert "`dot` `d`" in copy["trigger"]["evidence"] and "`multiply` `m.1`" in copy["trigger"]["evidence"]


def test_a_pass_is_not_its_own_trigger(module):
    inside = stage("", inside='  h = bf16[256,512]{1,0} convert(w)\n  d = f32[8]{0} custom-call(h), custom_call_target="use"')
    hoisted = stage("  h.1 = bf16[256,512]{1,0} convert(p)", "h.1", "bf16[256,512]{1,0}")
    used = stage("")
    copy = only(module({"before_optimizations": used, "0001.p.after_pipeline-start.before_a": used,
                        "0002.p.after_algsimp.before_a": inside, "0003.p.after_algsimp.before_a": hoisted,
                        "after_optimizations": hoisted}))
    assert introduced(copy) == (3, "p", "algsimp") and copy["trigger"] is None


def test_a_dot_that_came_back_clears_the_pass_that_took_it_away(module):
    apart = stage("", inside=f'  m.1 = {W} multiply(w, w)\n  d = f32[8]{{0}} custom-call(m.1), custom_call_target="use"')
    found = module({"before_optimizations": PLAIN, "0001.p.after_pipeline-start.before_a": PLAIN,
                    "0002.p.after_expander.before_a": apart, "0003.p.after_rewriter.before_a": PLAIN,
                    "0004.p.after_layout-assignment.before_a": COPIED, "after_optimizations": COPIED})
    copy = only(found)
    assert introduced(copy) == (4, "p", "layout-assignment") and copy["trigger"] is None


def test_a_dot_that_became_a_library_call_is_no_trigger(module):
    call = '  d = f32[256,256]{1,0} custom-call(w, w), custom_call_target="__cublas$gemm"'
    copied = stage(f"  wT = {T} copy(p)", "wT", T, call)
    copy = only(module({"before_optimizations": PLAIN, "0001.p.after_pipeline-start.before_a": PLAIN,
                        "0002.p.after_cublas-gemm-rewriter.before_a": stage("", inside=call),
                        "0003.p.after_copy-insertion.before_a": copied, "after_optimizations": copied}))
    assert introduced(copy) == (3, "p", "copy-insertion") and copy["trigger"] is None


def test_named_dumps_between_passes_stand_where_their_text_does(module):
    found = module(START | END | {"after_spmd_partitioner": COPIED.replace("jit_f", "jit_f, num_partitions=2"),
                                  "before_config_assignment": COPIED})
    assert [s["label"] for s in found["stages"]] == [
        "before_optimizations", "pipeline-start", "algsimp", "pipeline-start", "layout-assignment",
        "after_spmd_partitioner", "before_config_assignment", "after_optimizations"]


def test_runs_of_a_pipeline_to_a_fixed_point_are_numbered(module):
    names = ["before_optimizations", "0001.fix.after_pipeline-start.before_a", "0002.fix.after_a.before_b",
             "0003.fix.after_pipeline-start.before_a", "0004.fix.after_pipeline-start.before_a", "0005.fix.after_a.before_b",
             "0006.once.after_pipeline-start.before_c", "0007.once.after_c.before_d", "after_optimizations"]
    found = module(dict.fromkeys(names, PLAIN))
    assert [s["iteration"] for s in found["stages"]] == [None, 1, 1, 2, 3, 3, None, None, None]
    assert [s["changed"] for s in found["stages"]] == [True] + [False] * 8


@pytest.mark.parametrize("damage", [COPIED[:COPIED.index("ENTRY")], COPIED[:-60], COPIED[:COPIED.index("  wT")], "no HLO", ""],
                         ids=["entry missing", "entry cut", "entry cut early", "no HLO", "empty"])
def test_a_stage_that_is_cut_breaks_no_lineage(module, damage):
    found = module(START | {"0005.p.after_pipeline-start.before_x": COPIED, "0006.p.after_x.before_y": damage,
                            "0007.p.after_y.before_z": COPIED} | END)
    assert introduced(only(found)) == (4, "layout_assignment", "layout-assignment")
    assert [entry["file"] for entry in found["files"]["unparsed"]] == ["module_0001.jit_f.0006.p.after_x.before_y.txt"]


def test_the_pass_after_a_stage_that_is_cut_is_not_blamed(module):
    cut = PLAIN[:PLAIN.index("ENTRY")]
    copy = only(module({"before_optimizations": PLAIN, "0001.p.after_pipeline-start.before_a": PLAIN,
                        "0002.p.after_a.before_b": cut, "0003.p.after_b.before_c": COPIED} | END))
    assert introduced(copy) is None and copy["between"] == ["pipeline-start", "b"]


def test_a_line_of_no_hlo_alone_does_not_hide_a_stage(module):
    odd = COPIED.replace("  init", "  ???\n  init")
    found = module(START | {"0004.layout_assignment.after_layout-assignment.before_pipeline-end": odd} | END)
    assert introduced(only(found)) == (4, "layout_assignment", "layout-assignment")
    assert found["files"]["unparsed"][0]["reason"] == "1 of its 3 computations hold lines that are no HLO, or are cut"
