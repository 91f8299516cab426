"""What is known to be true of the real dumps: bytes, counts, the pass that introduced the copies, what triggered it."""
from __future__ import annotations

from collections import Counter

import pytest

from triage.engine.report import analyse

MODELS = "/home/user/project/models.py"


@pytest.fixture(scope="module")
def report(unpack_dump):
    """`report(name)` is the report of a dump's only module; each dump is analysed once."""
    known: dict[str, dict] = {}

    def get(name: str) -> dict:
        if name not in known:
            [known[name]] = analyse(unpack_dump(name)).report["modules"]
        return known[name]
    return get


def passes(copies: list[dict], key: str) -> set:
    return {copy[key]["pass"] if copy[key] else None for copy in copies}


def values(copies: list[dict], key: str) -> set:
    return {copy[key] for copy in copies}


@pytest.mark.parametrize("name, platform, temp, count, copied, hoisted, in_loop", [
    ("h100-jaxlib0.10.2-attn_heads", "gpu", 27268824, 12, 25165824, 25165824, 0),
    ("h100-jaxlib0.10.2-attn_heads-defaultdump", "gpu", 27268824, 12, 25165824, 25165824, 0),
    ("h100-jaxlib0.6.2-attn_heads", "gpu", 27269592, 12, 25165824, 25165824, 0),
    ("h100-jaxlib0.4.38-attn_heads", "gpu", 27268568, 12, 25165824, 25165824, 0),
    ("h100-jaxlib0.4.38-attn_heads-flag_off", "gpu", 11480, 0, 0, 0, 0),
    ("h100-jaxlib0.10.2-int8_dot", "gpu", 34668880, 8, 33554432, 33554432, 0),
    ("h100-jaxlib0.10.2-llama3_8b_generate", "gpu", 28329537504, 11, 28185722880, 28185722880, 0),
    ("h100-jaxlib0.10.2-matvec_decode", "gpu", 8399928, 0, 0, 0, 0),
    ("h100-jaxlib0.10.2-train_step", "gpu", 15532616, 0, 0, 0, 0),
    ("h100-jaxlib0.10.2-fsdp8", "gpu", 67177808, 8, 67108864, 0, 67108864),
    ("cpu-jaxlib0.10.2-attn_heads", "cpu", 67641752, 16, 67108864, 67108864, 0),
    ("cpu-jaxlib0.10.2-f32_upcast", "cpu", 134348932, 8, 134217728, 134217728, 0),
    ("cpu-jaxlib0.4.25-attn_heads", "cpu", 67383572, 16, 67108864, 67108864, 0),
    ("v5e-libtpu0.0.42-train_step", "tpu", None, 6, 33554432, 16777216, 0),
    ("v5e-libtpu0.0.42-explicit_T", "tpu", None, 0, 0, 0, 0),
])
def test_bytes(report, name, platform, temp, count, copied, hoisted, in_loop):
    module = report(name)
    totals = module["totals"]
    assert (module["platform"], len(module["copies"])) == (platform, count)
    assert (totals["copied_bytes"], totals["hoisted_bytes"], totals["in_loop_bytes"]) == (copied, hoisted, in_loop)
    assert temp is None or module["memory"]["temp_bytes"] == temp
    assert module["files"]["unparsed"] == []
    assert module["stages"][-1]["copied_bytes"] == copied


@pytest.mark.parametrize("name, kind, introduced, trigger, origin", [
    ("h100-jaxlib0.10.2-attn_heads", "transpose", "layout-assignment", "dot-strength-reduction", "compiler"),
    ("h100-jaxlib0.6.2-attn_heads", "transpose", "layout-assignment", "algsimp", "compiler"),
    ("h100-jaxlib0.4.38-attn_heads", "transpose", "layout-assignment", "algsimp", "compiler"),
    ("h100-jaxlib0.10.2-int8_dot", "transpose", "layout-assignment", None, "compiler"),
    ("h100-jaxlib0.10.2-fsdp8", "gather", "spmd-partitioning", None, "compiler"),
    ("cpu-jaxlib0.10.2-attn_heads", "convert", "while-loop-invariant-code-motion", "float-normalization-bf16", "compiler"),
    ("cpu-jaxlib0.4.25-attn_heads", "convert", "while-loop-invariant-code-motion", "float-normalization-bf16", "compiler"),
    ("cpu-jaxlib0.10.2-f32_upcast", "convert", "while-loop-invariant-code-motion", None, "program"),
])
def test_causes(report, name, kind, introduced, trigger, origin):
    copies = report(name)["copies"]
    assert values(copies, "kind") == {kind}
    assert passes(copies, "introduced_by") == {introduced}
    assert passes(copies, "trigger") == {trigger}
    assert values(copies, "origin") == {origin}
    live = {True: 6, False: 2} if name.endswith("fsdp8") else {True: len(copies)}      # two are gathered into dead buffers
    assert Counter(copy["live_at_peak"] for copy in copies) == live


@pytest.mark.parametrize("name, where", [
    ("h100-jaxlib0.10.2-attn_heads", {(MODELS, 45), (MODELS, 46), (MODELS, 47)}),
    ("h100-jaxlib0.10.2-int8_dot", {(MODELS, 112), (MODELS, 114)}),
    ("h100-jaxlib0.10.2-fsdp8", {("/home/user/project/fsdp.py", 23)}),
    ("cpu-jaxlib0.10.2-attn_heads", {(MODELS, 45), (MODELS, 46), (MODELS, 47), (MODELS, 53)}),
    ("cpu-jaxlib0.10.2-f32_upcast", {(MODELS, 78), (MODELS, 79)}),
    ("cpu-jaxlib0.4.25-attn_heads", {(MODELS, 45), (MODELS, 46), (MODELS, 47), (MODELS, 53)}),
])
def test_the_user_finds_the_lines(report, name, where):
    assert {(copy["source"]["file"], copy["source"]["line"]) for copy in report(name)["copies"]} == where


def test_attn_heads_copies_twelve_of_sixteen_weights(report):
    module = report("h100-jaxlib0.10.2-attn_heads")
    parameters = {number for copy in module["copies"] for number in copy["parameters"]}
    shapes = {p["number"]: p["shape"] for p in module["parameters"]}
    assert len(parameters) == 12 and {shapes[n] for n in parameters} == {"bf16[1024,16,64]{2,1,0}"}
    assert {copy["loop"] for copy in module["copies"]} == {"while.22"}
    [first] = {(copy["introduced_by"]["step"], copy["trigger"]["step"]) for copy in module["copies"]}
    assert first == (57, 11)
    assert all("multiply" in copy["trigger"]["evidence"] for copy in module["copies"])
    assert module["memory"]["share_of_temp"] == pytest.approx(25165824 / 27268824)


def test_without_passes_the_pass_is_not_named(report):
    module = report("h100-jaxlib0.10.2-attn_heads-defaultdump")
    assert passes(module["copies"], "introduced_by") == passes(module["copies"], "trigger") == {None}
    assert {tuple(copy["between"]) for copy in module["copies"]} == {
        ("after_spmd_partitioner", "sm_9.0a_gpu_after_optimizations")}
    assert any("--xla_dump_hlo_pass_re=.*" in note for note in module["notes"])


def test_llama_weights_are_the_programs_own_and_caches_the_compilers(report):
    copies = report("h100-jaxlib0.10.2-llama3_8b_generate")["copies"]
    assert len({number for copy in copies for number in copy["parameters"]}) == 11
    assert passes(copies, "introduced_by") == {"layout-assignment"} and values(copies, "where") == {"before_loop"}
    own = [copy for copy in copies if copy["origin"] == "program"]
    assert len(own) == 7 and sum(copy["bytes"] for copy in own) == 27917287424
    assert values(own, "free_until") == {"layout-assignment"}
    assert all("stores that dimension second" in copy["reason"] for copy in own)


def test_quiet_dumps_are_quiet(report):
    for name in ("h100-jaxlib0.10.2-matvec_decode", "h100-jaxlib0.10.2-train_step", "h100-jaxlib0.4.38-attn_heads-flag_off"):
        assert report(name)["verdict"].startswith("No parameter is copied before a loop.")


def test_v5e_train_step_copies_two_weights(report):
    copies = report("v5e-libtpu0.0.42-train_step")["copies"]
    assert {number for copy in copies for number in copy["parameters"]} == {0, 1}
    assert sorted((copy["kind"], copy["bytes"]) for copy in copies) == [
        *[("convert", 8388608)] * 2, *[("copy", 4194304)] * 4]
    assert {copy["where"] for copy in copies} <= {"before_loop", "entry"}


def test_marks_name_instructions_of_their_stage(unpack_dump):
    analysis = analyse(unpack_dump("h100-jaxlib0.10.2-int8_dot"))
    [module] = analysis.modules
    ids = {copy["id"] for copy in analysis.report["modules"][0]["copies"]}
    for stage in module.stages:
        texts = {chunk.name: module.texts[chunk.key] for chunk in stage.chunks}
        for mark in stage.marks:
            assert f"%{mark.instruction} = " in texts[mark.computation]
            assert set(mark.copies) <= ids
    assert {i for mark in module.stages[-1].marks if mark.role == "copy" for i in mark.copies} == ids
