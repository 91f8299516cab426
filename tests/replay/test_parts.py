"""What is planned, compared and told, on small made-up measurements; and the lines that pages tell people to write, run."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from triage.replay import compare, toolchains
from triage.replay.gpus import known_gpus, known_target
from triage.replay.merge import put_replays, put_versions
from triage.replay.recipes import recipe
from triage.replay.source import NoReplay, source_of
from triage.replay.toolchains import Toolchain, ToolchainError
from triage.replay.variants import followers, major_to_minor, store_transposed, variants, with_attribute

HEADER = "HloModule m, entry_computation_layout={(f32[4]{0})->f32[4]{0}}"


def copy(identity: str, numbers: list[int], size: int = 1000, **changes: object) -> dict:
    return {"id": identity, "parameters": numbers, "kind": "transpose", "where": "before_loop", "bytes": size, "trigger": None,
            "introduced_by": {"pass": "layout-assignment"}, "instruction": identity, **changes}


def module(copies: list[dict], **changes: object) -> dict:
    return {"name": "m", "platform": "gpu", "target": "", "copies": copies, "remedies": [], "cannot_disable": [],
            "memory": {"temp_bytes": 5000}, "stages": [{"step": 1}],
            "parameters": [{"number": n, "name": f"p{n}", "op_name": "", "shape": "f32[2,3,4]{2,1,0}"} for n in range(3)],
            **changes}


def row(variant: str = "baseline", action: str = "baseline", copies: tuple = (), **changes: object) -> dict:
    return {"variant": variant, "action": action, "pass": None, "flag": None, "scope": None, "says": variant,
            "toolchain": "cuda-0.10.2", "device": "GPU", "status": "ok", "message": "", "temp_bytes": 5000,
            "copied_bytes": sum(c["bytes"] for c in copies), "copies": list(copies), "layouts": None, "flops": 1.0,
            "bytes_accessed": 1.0, **changes}


# -- what is planned ---------------------------------------------------------------------------------------------------

def test_nothing_is_tried_where_nothing_is_copied():
    assert variants(module([])) == []


def test_every_cause_is_disabled_and_every_attribute_tried():
    found = variants(module([copy("c1", [2], trigger={"pass": "algsimp"}),
                             copy("c2", [0], introduced_by={"pass": "while-loop-invariant-code-motion"}, size=10)]))
    keys = [variant.key for variant in found]
    assert keys == ["auto-all", "auto-copied", "disable-algsimp", "disable-layout-assignment",
                    "disable-while-loop-invariant-code-motion", "attribute-_xla_disable_loop_instr_hoisting"]
    assert found[1].job == {"auto": [0, 2]}


def test_passes_that_ran_with_effect_are_tried_if_they_are_known_to_matter_and_may_be_left_out():
    fired = {"dot-strength-reduction": [1, 2], "dce": [5, 5], "layout_normalization": [1, 9], "no-such": [1, 1]}
    keys = [variant.key for variant in variants(module([copy("c1", [0])]), fired)]
    assert "disable-dot-strength-reduction" in keys
    assert not {"disable-dce", "disable-layout_normalization", "disable-no-such"} & set(keys)


@pytest.mark.parametrize("name", ["a,b", "a b", "", "a\nb", "x" * 200])
def test_a_pass_with_an_impossible_name_is_not_tried(name):
    assert not [v for v in variants(module([copy("c1", [0], introduced_by={"pass": name})])) if v.action == "disable_pass"]


@pytest.mark.parametrize("flag,job", [
    ("--xla_gpu_x=false", {"options": {"xla_gpu_x": "false"}}), ("--xla_gpu_x", {"options": {"xla_gpu_x": "true"}}),
    ("--xla_a=b --xla_c=d", None), ("-Dx=y", None)])
def test_a_flag_is_tried_if_it_is_one(flag, job):
    remedy = {"action": "flag", "pass": None, "flag": flag, "scope": None}
    found = [v.job for v in variants(module([copy("c1", [0])], remedies=[remedy])) if v.action == "flag"]
    assert found == ([job] if job else [])


def test_the_orders_that_xla_chose_can_be_stored():
    stored = store_transposed(module([copy("c1", [0, 2])]), ["{2,1,0}", "{0,1,2}", "{0,2,1:T(8,128)}"])
    assert stored.job == {"transposed": {"2": [1, 2, 0]}}
    assert store_transposed(module([copy("c1", [0])]), ["{2,1,0}"]) is None
    assert store_transposed(module([copy("c1", [9])]), ["{0,1}"]) is None
    auto = variants(module([copy("c1", [2])]))[0]
    assert followers(auto, row(layouts=["", "", "{0,1,2}"]), module([copy("c1", [2])]))[0].key == "store-transposed"
    assert followers(auto, row(status="error"), module([])) == []


@pytest.mark.parametrize("layout,order", [("{2,0,1}", [1, 0, 2]), ("{}", []), ("", []), ("f32[2,3]{0,1:T(8)E(4)}", [1, 0])])
def test_layouts(layout, order):
    assert major_to_minor(layout) == order


def test_an_attribute_is_put_on_every_loop():
    text = ("a = s32[] while(b), condition=c, body=d, metadata={op_name=\"x\"}\n"
            "e = s32[] while(b), condition=c, body=d, frontend_attributes={k=\"v\"}\n  f = s32[] add(a, e)")
    assert with_attribute(text, "hold").split("\n") == [
        'a = s32[] while(b), condition=c, body=d, frontend_attributes={hold="true"}, metadata={op_name="x"}',
        'e = s32[] while(b), condition=c, body=d, frontend_attributes={hold="true",k="v"}', "  f = s32[] add(a, e)"]


# -- where a module can be compiled -------------------------------------------------------------------------------------

def test_what_a_recompile_needs_is_read_from_the_module():
    header = HEADER + ", replica_count=2, num_partitions=4\n\nENTRY main { }  // num_partitions=9"
    found = source_of(module([]), header, known_target(known_gpus()[0]))
    assert (found.platform, found.partitions, found.replicas, found.device) == ("cuda", 4, 2, known_gpus()[0])


@pytest.mark.parametrize("changes,text,target,said", [
    ({"platform": None}, "", "", "for which platform"), ({}, "", "", "name the GPU"),
    ({}, "", 'platform_name: "ROCM"', "AMD"), ({}, HEADER + ", num_partitions=4096", "x", "4096 devices")])
def test_a_module_that_cannot_be_compiled_says_why(changes, text, target, said):
    with pytest.raises(NoReplay, match=said):
        source_of(module([], **changes), text, target)


def test_a_toolchain_of_the_dumps_release_goes_before_the_newest():
    def chain(version: str, platform: str = "cuda") -> Toolchain:
        return Toolchain(platform, version, Path("python"))
    there = [chain("0.10.2"), chain("0.6.2"), chain("0.4.38"), chain("0.11.0", "tpu")]
    assert toolchains.choose(there, "cuda", "0.6.0", "0.6.2").version == "0.6.2"
    assert toolchains.choose(there, "cuda", "0.7.0", "0.8.0").version == "0.10.2"
    assert toolchains.choose(there, "cuda", None, None).version == "0.10.2"
    assert toolchains.choose(there, "cpu", None, None) is None


def test_only_finished_toolchains_count(tmp_path):
    for name, ready in (("cuda-0.6.2", True), ("cuda-0.10.2", True), ("cuda-0.7.0", False), ("moon-1.0.0", True)):
        (tmp_path / name).mkdir()
        if ready:
            (tmp_path / name / ".ready").touch()
    assert [found.name for found in toolchains.installed(tmp_path)] == [toolchains.own().name, "cuda-0.10.2", "cuda-0.6.2"]
    assert toolchains.installed(tmp_path / "nothing") == [toolchains.own()]


@pytest.mark.parametrize("platform,version,said", [("moon", None, "not for 'moon'"), ("cuda", "1", "no jaxlib release"),
                                                   ("cuda", "../../0.1.1", "no jaxlib release"), ("cuda", "0.4.1", "0.4.38")])
def test_a_toolchain_that_cannot_be_made_says_why(tmp_path, platform, version, said):
    with pytest.raises(ToolchainError, match=said):
        toolchains.add(tmp_path, platform, version)
    assert list(tmp_path.iterdir()) == []


def test_an_installation_that_fails_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(toolchains, "WHEELS", {"cuda": (("--no-index", "jax=={v}"),)})
    with pytest.raises(ToolchainError, match="No matching distribution found for jax==0.10.2"):
        toolchains.add(tmp_path, "cuda", "0.10.2")
    assert list(tmp_path.iterdir()) == []


# -- what is told --------------------------------------------------------------------------------------------------------

COPIES = [copy("c1", [0]), copy("c2", [1], size=2000)]


@pytest.mark.parametrize("baseline,matches", [
    (row(copies=COPIES), "reproduced"), (row(copies=COPIES, temp_bytes=6000), "partly"),
    (row(copies=COPIES[:1]), "partly"), (row(copies=COPIES[:1], temp_bytes=6000), "not reproduced"),
    (row(copies=COPIES, temp_bytes=None), "reproduced"), (row(status="error", message="no"), "not reproduced")])
def test_a_baseline_is_compared_with_the_dump(baseline, matches):
    assert compare.against_upload(baseline, module(COPIES))["matches_upload"] == matches


def test_copies_that_went_and_came_are_told():
    after = row("v", "flag", copies=(COPIES[0], copy("x", [1], kind="copy")), temp_bytes=3000)
    found = compare.against_baseline(after, row(copies=COPIES), module(COPIES))
    assert found["gone"] == ["c2"] and [c["instruction"] for c in found["came"]] == ["x"] and found["temp_change"] == -2000


@pytest.mark.parametrize("after,gone,moved,new", [
    ([copy("x", [0], where="in_loop")], ["c2"], ["c1"], 0),                     # the same one in another place
    ([copy("x", [0], kind="copy", size=4000)], ["c2"], ["c1"], 0),              # in another way
    ([copy("x", [0], kind="copy", size=100)], ["c1", "c2"], [], 1),             # what is smaller is less
    ([copy("x", [1], where="entry"), COPIES[0], COPIES[1]], [], [], 1),
    ([copy("x", [0], where="entry"), copy("y", [0], where="entry")], ["c2"], ["c1"], 1),
    ([copy(f"x{n}", [2]) for n in range(30)], ["c1", "c2"], [], 30)])
def test_a_copy_that_is_made_elsewhere_or_otherwise_is_not_gone(after, gone, moved, new):
    found = compare.against_baseline(row("v", "flag", copies=after), row(copies=COPIES), module(COPIES))
    assert (found["gone"], found["moved"], found["came_count"]) == (gone, moved, new) and len(found["came"]) <= new


@pytest.mark.parametrize("before,after,gone", [(3, 2, []), (3, 1, []), (3, 0, ["c1"]), (1, 0, ["c1"]), (0, 0, [])])
def test_a_copy_of_the_dump_is_gone_when_no_other_of_its_like_is_left(before, after, gone):
    """The recompile may make more of them, or none, where it does not reproduce the dump."""
    report, same = module(COPIES[:1]), [COPIES[0]] * 3
    assert compare.against_baseline(row("v", "flag", copies=same[:after]), row(copies=same[:before]), report)["gone"] == gone


def test_no_temp_bytes_at_all_are_no_likeness():
    report = module(COPIES, memory={"temp_bytes": 0})
    assert compare.against_upload(row(temp_bytes=0), report)["matches_upload"] == "not reproduced"


@pytest.mark.parametrize("passes,said", [
    ([("spmd-partitioning", "ok"), ("x", "ok")], "of 2 passes disabled one at a time, 1 must run, and none of the others"),
    ([("spmd-partitioning", "ok")], "of 1 pass disabled one at a time, 1 must run."),
    ([("x", "error"), ("y", "error")], "of 2 passes disabled one at a time, 2 do not compile."),
    ([("x", "error"), ("spmd-partitioning", "ok"), ("y", "ok")], "1 does not compile, 1 must run, and none of the others"),
    ([("x", "ok")], "of 1 pass disabled one at a time, none makes it need clearly less memory.")])
def test_passes_that_do_not_help_are_told_apart(passes, said):
    report = module(COPIES)
    baseline = {**row(copies=COPIES), **compare.against_upload(row(copies=COPIES), report)}
    rows = [row(name, "disable_pass", status=status, message="no", copies=COPIES) | {"pass": name} | (
        {"temp_bytes": 1} if name == "spmd-partitioning" else {}) for name, status in passes]
    put_replays(report, [baseline, *({**r, **compare.against_baseline(r, baseline, report)} for r in rows)])
    assert said in report["replay_says"][1]


def test_what_must_run_is_no_remedy_and_what_does_not_compile_neither():
    report = module(COPIES)
    baseline = {**row(copies=COPIES), **compare.against_upload(row(copies=COPIES), report)}
    rows = [row("a", "disable_pass", pass_="x", temp_bytes=1) | {"pass": "spmd-partitioning"},
            row("b", "disable_pass", status="error", message="RET_CHECK") | {"pass": "layout-assignment"},
            row("c", "auto_layout", temp_bytes=4000, scope="all", layouts=["{0,1,2}", "", ""])]
    put_replays(report, [baseline, *({**r, **compare.against_baseline(r, baseline, report)} for r in rows)])
    best, *others = report["remedies"]
    assert best["action"] == "auto_layout" and best["verified"] and best["temp_bytes"] == 4000
    assert not any(remedy["helps"] for remedy in others)
    failed = next(remedy for remedy in others if remedy["pass"] == "layout-assignment")
    assert not failed["verified"] and failed["failed"] == "RET_CHECK" and failed["temp_bytes"] is None
    assert report["replay_says"] == [
        "Reproduced with jaxlib 0.10.2 for GPU.",
        "No single pass helps: of 2 passes disabled one at a time, 1 does not compile, and 1 must run.",
        "With c, temp goes from 4.9 KiB to 3.9 KiB."]


def test_a_suspected_trigger_that_was_disabled_is_confirmed_or_refuted():
    """c1 is gone, c2 still there, c3 comes back as another kind; nobody disabled the pass that c4 is blamed on."""
    def blamed(identity: str, number: int, on: str = "rewrite") -> dict:
        return copy(identity, [number], trigger={"pass": on, "confidence": "likely"}, loop="l", memory_space=0, between=None,
                    origin="compiler", reason="", source=None, from_shape="f32[2,3,4]{2,1,0}", to_shape="f32[2,3,4]{0,1,2}")

    copies = [blamed("c1", 0), blamed("c2", 1), blamed("c3", 2), blamed("c4", 3, on="other")]
    report = module(copies, notes=[], totals={"min_bytes": 1})
    baseline = {**row(copies=copies), **compare.against_upload(row(copies=copies), report)}
    disabled = row("d", "disable_pass", copies=(copies[1], {**copies[2], "kind": "copy"}, copies[3])) | {"pass": "rewrite"}
    put_replays(report, [baseline, {**disabled, **compare.against_baseline(disabled, baseline, report)}])
    assert [c["trigger"]["confidence"] for c in copies] == ["confirmed", "refuted", "refuted", "likely"]
    sentences = {p["trigger"]: p["sentence"] for p in report["patterns"]}
    assert sentences["rewrite"].endswith(", because of `rewrite`") and "because" not in sentences[None]
    assert sentences["other"].endswith(", probably because of `other`") and "because of `rewrite`" not in report["verdict"]


def test_a_remedy_of_a_module_that_was_not_reproduced_is_not_verified():
    report = module(COPIES)
    baseline = {**row(temp_bytes=9), **compare.against_upload(row(temp_bytes=9), report)}
    after = row("c", "auto_layout", temp_bytes=1, scope="all")
    put_replays(report, [baseline, {**after, **compare.against_baseline(after, baseline, report)}])
    assert not report["remedies"][0]["verified"]


def test_releases_are_told_newest_first():
    report = module(COPIES)
    put_versions(report, [row(copies=COPIES, toolchain="cuda-0.9.2"), row(toolchain="cuda-0.10.2"),
                          row(toolchain="cuda-0.4.38", status="error", message="no")])
    assert [(v["toolchain"], v["there"], v["status"]) for v in report["versions"]] == [
        ("cuda-0.10.2", 0, "ok"), ("cuda-0.9.2", 2, "ok"), ("cuda-0.4.38", None, "error")]


# -- the lines to write --------------------------------------------------------------------------------------------------

STEP = """
import json
import jax, jax.numpy as jnp, numpy as np
weights = jnp.ones((64, 8, 128))      # the axis of the loop is stored second
def step(weights, x):
    def body(x, w):
        return jnp.tanh(w @ x)[:, None].repeat(1, 1)[:, 0].repeat(2)[:128], None
    return jax.lax.scan(body, x, weights.transpose(1, 0, 2))[0]
args = (weights, jnp.ones((128,)))
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", STEP + code], capture_output=True, text=True, timeout=120,
                          env={"JAX_PLATFORMS": "cpu", "PATH": ""})
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_lines_for_auto_layouts_run_and_change_nothing_but_layouts():
    code = recipe(row("auto-all", "auto_layout", toolchain=toolchains.own().name, scope="all", layouts=["{2,0,1}"]),
                  module([copy("c1", [0])]))["code"]
    said = run(code + "print(json.dumps([bool(jnp.allclose(compiled(*args), step(weights, args[1]), rtol=1e-3)),"
                      " [f.layout.major_to_minor for f in formats][0]]))")
    same, order = json.loads(said)
    assert same and sorted(order) == [0, 1, 2]


def test_the_lines_for_auto_layouts_of_donated_arguments_run():
    """JAX refuses AUTO layouts for a donated argument whose result has another one."""
    code = recipe(row("auto-all", "auto_layout", toolchain=toolchains.own().name, scope="all", layouts=["{2,0,1}"],
                      returned=[0, 1, 2, 5]), module([copy("c1", [0])]))["code"]
    assert "which are 0 to 2, 5; None" in code
    donating = code.replace("jax.jit(step,", "jax.jit(lambda w, x: (w + 1, step(w, x)), donate_argnums=0,")
    assert donating != code and run(donating + "print('done')").strip() == "done"


def test_the_lines_for_a_pass_repeat_what_the_dump_disabled():
    flag = "--xla_disable_hlo_passes=algsimp"
    found = recipe(row("disable-x", "disable_pass", flag=flag), module([], flags={"xla_disable_hlo_passes": "a-b,algsimp,c"}))
    assert found["code"].count("a-b,algsimp,c") == 2 and '"$XLA_FLAGS --xla_disable_hlo_passes=a-b,algsimp,c"' in found["code"]


def test_the_lines_for_a_flag_run():
    code = recipe(row("disable-x", "disable_pass", flag="--xla_disable_hlo_passes=algsimp"), module([]))["code"]
    line = code.splitlines()[1].partition("     #")[0]
    assert run(f"print({line}(*args).shape)").strip() == "(128,)"


def test_the_lines_for_storing_transposed_run():
    found = recipe(row("store-transposed", "store_transposed", transposed={"0": [1, 0, 2]}), module([copy("c1", [0])]))
    assert found["parameters"] == [{"number": 0, "name": "p0", "order": [1, 0, 2]}]
    said = run("parameter, order = weights, (1, 0, 2)\n" + found["code"] +
               "print(stored.shape, bool((parameter == weights).all()))")
    assert said.strip() == "(8, 64, 128) True"


def test_the_lines_for_a_loop_run():
    code = recipe(row("attribute-_xla_disable_loop_instr_hoisting", "loop_attribute"), module([]))["code"]
    said = run("body = lambda c, x: (c + x, None)\ncarry, xs = jnp.zeros(()), jnp.ones(4)\n" + code + "print(result[0])")
    assert said.strip() == "4.0"
