"""Small modules compiled for real: what a recompile keeps of a module, and what each kind of variant does to it."""
from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from triage.engine.report import analyse
from triage.replay.gpus import known_gpus, known_target
from triage.replay.measure import Measurement, measure
from triage.replay.replay import compare_versions, replay
from triage.replay.source import Source, source_of
from triage.replay.toolchains import own
from triage.replay.variants import AUTO_ALL, BASELINE, Variant, store_transposed

#: Stored the other way round, donated, aliased to a result that is stored the other way round too.
KEPT = """HloModule kept, input_output_alias={ {1}: (1, {}, may-alias) }, buffer_donor={ (2, {}) }, \
entry_computation_layout={(bf16[512,256]{0,1}, f32[8,512]{1,0}, /*index=2*/f32[8,256]{1,0})\
->(f32[8,256]{0,1}, f32[8,512]{1,0})}, \
allow_spmd_sharding_propagation_to_output={true,true}

ENTRY %main (p: bf16[512,256], x: f32[8,512], z: f32[8,256]) -> (f32[8,256], f32[8,512]) {
  %p = bf16[512,256]{0,1} parameter(0)
  %x = f32[8,512]{1,0} parameter(1)
  %z = f32[8,256]{1,0} parameter(2)
  %c = f32[512,256]{0,1} convert(%p)
  %d = f32[8,256]{0,1} dot(%x, %c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %e = f32[8,256]{0,1} add(%d, %z)
  %t = f32[8,512]{1,0} add(%x, %x)
  ROOT %r = (f32[8,256]{0,1}, f32[8,512]{1,0}) tuple(%e, %t)
}
"""
#: A weight that the result wants the other way round: with its layout left to XLA nothing is written for it.
TURNED = """HloModule turned, entry_computation_layout={(f32[256,512]{1,0}, f32[512,256]{1,0})->(f32[512,256]{1,0})}

ENTRY %main (w: f32[256,512], x: f32[512,256]) -> (f32[512,256]) {
  %w = f32[256,512]{1,0} parameter(0)
  %x = f32[512,256]{1,0} parameter(1)
  %t = f32[512,256]{1,0} transpose(%w), dimensions={1,0}
  %k = f32[512,256]{1,0} add(%t, %x)
  ROOT %r = (f32[512,256]{1,0}) tuple(%k)
}
"""
#: A bf16 weight that is converted inside a loop; XLA moves that out of it.
LOOP = """HloModule loop, entry_computation_layout={(bf16[256,256]{1,0}, f32[8,256]{1,0})->f32[8,256]{1,0}}

%body (s: (s32[], f32[8,256], bf16[256,256])) -> (s32[], f32[8,256], bf16[256,256]) {
  %s = (s32[], f32[8,256]{1,0}, bf16[256,256]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %x = f32[8,256]{1,0} get-tuple-element(%s), index=1
  %w = bf16[256,256]{1,0} get-tuple-element(%s), index=2
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %c = f32[256,256]{1,0} convert(%w)
  %d = f32[8,256]{1,0} dot(%x, %c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %h = f32[8,256]{1,0} tanh(%d)
  ROOT %t = (s32[], f32[8,256]{1,0}, bf16[256,256]{1,0}) tuple(%next, %h, %w)
}

%condition (s: (s32[], f32[8,256], bf16[256,256])) -> pred[] {
  %s = (s32[], f32[8,256]{1,0}, bf16[256,256]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %five = s32[] constant(5)
  ROOT %less = pred[] compare(%i, %five), direction=LT
}

ENTRY %main (w: bf16[256,256], x: f32[8,256]) -> f32[8,256] {
  %w = bf16[256,256]{1,0} parameter(0)
  %x = f32[8,256]{1,0} parameter(1)
  %zero = s32[] constant(0)
  %s = (s32[], f32[8,256]{1,0}, bf16[256,256]{1,0}) tuple(%zero, %x, %w)
  %l = (s32[], f32[8,256]{1,0}, bf16[256,256]{1,0}) while(%s), condition=%condition, body=%body
  ROOT %r = f32[8,256]{1,0} get-tuple-element(%l), index=1
}
"""
HOISTING = "while-loop-invariant-code-motion"
HOLD = "_xla_disable_loop_instr_hoisting"


@pytest.fixture
def compiled(toolchain, tmp_path):
    def run(text: str, variant: Variant = BASELINE, platform: str = "cpu", version: str = "", **changes: object) -> Measurement:
        name = re.match(r"HloModule (\w+)", text)[1]
        target = known_target(known_gpus()[0]) if platform == "cuda" else ""
        found = Source(name, text, platform, "device", target, "v5e:2x2", **{"partitions": 1, "replicas": 1, **changes})
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        return measure(found, variant, toolchain(platform, version), folder, 1, every_pass=True)
    return run


def first_line(tmp_path: Path, number: int = 0) -> str:
    """Of the module as the compiler read it."""
    name = next((tmp_path / str(number) / "dump").glob("*.before_optimizations.txt"))
    return name.read_text().partition("\n")[0]


def entry(header: str) -> str:
    return re.search(r"entry_computation_layout=(.*?)(, \w+=|$)", re.sub(r"/\*.*?\*/", "", header))[1]


@pytest.mark.parametrize("platform,version", [("cpu", ""), ("cuda", ""), ("cuda", "0.6.2"), ("cuda", "0.4.38")])
def test_what_the_header_says_is_kept(compiled, tmp_path, platform, version):
    row = compiled(KEPT, platform=platform, version=version).row
    header = first_line(tmp_path)
    assert row["status"] == "ok" and entry(header) == entry(KEPT.partition("\n")[0])
    assert "input_output_alias={ {1}: (1, {}, may-alias) }" in header and "buffer_donor={ (2, {}) }" in header
    assert "allow_spmd_sharding_propagation_to_output={true,true}" in header


def test_on_a_tpu_the_layouts_are_kept_that_were_asked_for(compiled, tmp_path):
    asked = KEPT.replace("\n", ", frontend_attributes={arg_layout_modes=\"{0,1};default;default\","
                               "out_layout_modes=\"default;default\"}\n", 1)
    assert compiled(asked, platform="tpu").row["status"] == "ok"
    assert entry(first_line(tmp_path)).startswith("{(bf16[512,256]{0,1:T(8,128)(2,1)}, f32[8,512]{1,0:T(8,128)}")
    assert compiled(KEPT, platform="tpu").row["status"] == "ok"     # without that the default goes, which has tiles
    assert entry(first_line(tmp_path, 1)).startswith("{(bf16[512,256]{1,0:T(8,128)(2,1)}, f32[8,512]{1,0:T(8,128)}")


def test_layouts_that_were_left_to_xla_are_left_to_it_again(compiled, tmp_path):
    module = compiled(TURNED.replace("(f32[256,512]{1,0},", "(f32[256,512],", 1), platform="cuda").module
    assert entry(first_line(tmp_path)).startswith("{(f32[256,512], f32[512,256]{1,0})")
    assert module["parameters"][0]["shape"] == "f32[256,512]{0,1}"


@pytest.mark.parametrize("platform", ["cuda", "cpu"])
def test_a_parameter_in_host_memory_stays_there(compiled, tmp_path, platform):
    assert compiled(TURNED.replace("(f32[256,512]{1,0},", "(f32[256,512]{1,0:S(5)},", 1), platform=platform).row["status"]
    assert entry(first_line(tmp_path)).startswith("{(f32[256,512]{1,0:S(5)}, f32[512,256]{1,0})")


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
def test_several_replicas_and_partitions(compiled, tmp_path, platform):
    text = LOOP.replace("HloModule loop,", "HloModule loop, replica_count=2, num_partitions=2,")
    assert compiled(text, platform=platform, replicas=2, partitions=2).row["status"] == "ok"
    assert "replica_count=2, num_partitions=2" in first_line(tmp_path)


# -- variants --------------------------------------------------------------------------------------------------------------

def test_layouts_left_to_xla_and_the_same_order_stored(compiled):
    baseline = compiled(TURNED, platform="tpu")
    assert [copy["kind"] for copy in baseline.row["copies"]][0] == "transpose"
    auto = compiled(TURNED, AUTO_ALL, "tpu").row
    assert auto["layouts"] == ["{0,1:T(8,128)}", "{1,0:T(8,128)}"]
    assert "transpose" not in [copy["kind"] for copy in auto["copies"]]
    one = compiled(TURNED, Variant("one", "auto_layout", "one", job={"auto": [1]}), "tpu").row
    assert one["layouts"] == ["{1,0:T(8,128)}", "{1,0:T(8,128)}"]
    stored = compiled(TURNED, store_transposed(baseline.module, auto["layouts"]), "tpu")
    assert stored.module["parameters"][0]["shape"].startswith("f32[512,256]")
    assert stored.row["copied_bytes"] == auto["copied_bytes"] and stored.row["transposed"] == {"0": [1, 0]}


def test_a_result_that_takes_the_buffer_of_a_donated_argument_comes_in_its_layout(compiled, tmp_path):
    """JAX takes no other; with the result's layout kept, the layout that is left to XLA could not change."""
    text = KEPT.replace("%t = f32[8,512]{1,0} add", "%t = f32[8,512]{1,0} multiply")
    found = compiled(text, Variant("auto", "auto_layout", "x", job={"auto": [1]}), platform="cuda")
    assert found.row["returned"] == [1]
    assert entry(first_line(tmp_path)) == "{(bf16[512,256]{0,1}, f32[8,512], f32[8,256]{1,0})->(f32[8,256]{0,1}, f32[8,512])}"
    assert compiled(text, Variant("auto", "auto_layout", "x", job={"auto": [0]}), platform="cuda").row["returned"] == []


SHARDED = """HloModule sharded, entry_computation_layout={(f32[256,512]{1,0})->f32[512,256]{1,0}}, num_partitions=8

ENTRY %main (w: f32[256,512]) -> f32[512,256] {
  %w = f32[256,512]{1,0} parameter(0), sharding={SHARDING}
  %t = f32[512,256]{1,0} transpose(%w), dimensions={1,0}, sharding={TURNED}
  ROOT %r = f32[512,256]{1,0} negate(%t), sharding={TURNED}
}
"""


@pytest.mark.parametrize("sharding,turned,stored", [
    ("devices=[8,1]<=[8]", "devices=[1,8]<=[8]", "f32[512,32]"),
    ("devices=[2,4]<=[8]", "devices=[4,2]<=[2,4]T(1,0)", "f32[128,128]"),
    ("devices=[4,2]0,4,1,5,2,6,3,7", "devices=[2,4]0,1,2,3,4,5,6,7", "f32[256,64]"),
    ("devices=[4,1,2]<=[8] last_tile_dim_replicate", "devices=[1,4,2]<=[8] last_tile_dim_replicate", "f32[512,64]"),
    ("replicated", "replicated", "f32[512,256]")])
def test_a_parameter_that_is_stored_in_another_order_stays_on_its_devices(compiled, tmp_path, sharding, turned, stored):
    text = SHARDED.replace("SHARDING", sharding).replace("TURNED", turned)
    variant = Variant("t", "store_transposed", "x", job={"transposed": {"0": [1, 0]}})
    found = compiled(text, variant, platform="cpu", partitions=8)
    assert found.row["status"] == "ok" and found.module["parameters"][0]["shape"].startswith(stored), found.row
    assert not re.search(r" (all|collective)-\w[\w-]*\(", found.analysis.modules[0].text(-1)) and found.row["temp_bytes"] == 0


def test_an_order_that_is_the_one_it_has_is_no_variant(compiled):
    turned = TURNED.replace("(f32[256,512]{1,0},", "(f32[256,512]{0,1},", 1)
    baseline = compiled(turned)
    assert store_transposed(baseline.module, ["{0,1}", "{1,0}"]) is None
    back = store_transposed(baseline.module, ["{1,0}", "{1,0}"])
    assert back.job == {"transposed": {"0": [0, 1]}}
    assert compiled(turned, back).module["parameters"][0]["shape"] == "f32[256,512]{1,0}"


@pytest.mark.parametrize("version", ["0.6.2", "0.4.38"])
def test_a_release_that_would_ignore_auto_layouts_is_an_error(compiled, version):
    row = compiled(TURNED, AUTO_ALL, "cuda", version).row
    assert row["status"] == "error" and row["message"].startswith(f"jaxlib {version} cannot leave layouts to XLA")


def test_a_pass_disabled(compiled):
    assert [copy["where"] for copy in compiled(LOOP).row["copies"]] == ["before_loop"]
    disabled = compiled(LOOP, Variant("d", "disable_pass", "d", pass_=HOISTING, job={"disable": [HOISTING]})).row
    assert [copy["where"] for copy in disabled["copies"]] == ["in_loop"] and HOISTING not in disabled["fired"]


@pytest.mark.parametrize("attributes", ["", ', frontend_attributes={a="b"}, metadata={op_name="l"}',
                                        f', frontend_attributes={{{HOLD}="true"}}'])
def test_an_attribute_on_the_loops_keeps_things_in_them(compiled, tmp_path, attributes):
    text = LOOP.replace("body=%body", "body=%body" + attributes)
    row = compiled(text, Variant("a", "loop_attribute", "a", pass_=HOISTING, attribute=HOLD)).row
    assert [copy["where"] for copy in row["copies"]] == ["in_loop"] and HOISTING not in row["fired"]
    optimised = next((tmp_path / "0" / "dump").glob("*cpu_after_optimizations.txt")).read_text()
    assert re.search(rf' while\(.*{HOLD}="true"', optimised)


def test_an_attribute_that_a_release_does_not_know_is_an_error(compiled):
    row = compiled(LOOP, Variant("a", "loop_attribute", "a", pass_=HOISTING, attribute=HOLD), "cuda", "0.6.2").row
    assert row["status"] == "error" and row["message"] == f"jaxlib 0.6.2 does not know `{HOLD}`; jaxlib >= 0.7.2 does"


# -- flags -------------------------------------------------------------------------------------------------------------------

def test_flags_of_the_dump_that_a_release_does_not_know_are_left_out(compiled):
    given = {"xla_of_yesterday": "true", "xla_cpu_enable_fast_math": "true", "xla_gpu_shape_checks": "NO_SUCH_VALUE"}
    row = compiled(LOOP, flags=given).row
    assert row["status"] == "ok" and sorted(row["left_out"]) == ["xla_gpu_shape_checks", "xla_of_yesterday"]


def test_a_passes_that_the_dump_disabled_stay_disabled(compiled):
    row = compiled(LOOP, Variant("d", "disable_pass", "d", job={"disable": ["algsimp"]}), disabled=[HOISTING]).row
    assert [copy["where"] for copy in row["copies"]] == ["in_loop"] and "algsimp" not in row["fired"]


@pytest.fixture(scope="session")
def flagged(tmp_path_factory) -> Path:
    """A dump that JAX writes here, of a program compiled with flags."""
    folder = tmp_path_factory.mktemp("flagged")
    code = ("import jax, jax.numpy as jnp\n"
            "def f(w, x):\n"
            "    return jax.lax.scan(lambda c, _: (jnp.tanh(c @ w.astype(jnp.float32)), None), x, None, length=5)[0]\n"
            "jax.jit(f).lower(jax.ShapeDtypeStruct((256, 256), jnp.bfloat16), jax.ShapeDtypeStruct((8, 256), jnp.float32))"
            ".compile()\n")
    flags = (f"--xla_dump_to={folder} --xla_dump_hlo_as_text --xla_cpu_enable_fast_math=true "
             f"--xla_disable_hlo_passes={HOISTING}")
    subprocess.run([sys.executable, "-c", code], env={"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "PATH": os.environ["PATH"]},
                   check=True, timeout=120)
    return folder


def module_of(folder: Path):
    analysis = analyse(folder)
    number = [module["name"] for module in analysis.report["modules"]].index("jit_f")
    return analysis.report["modules"][number], analysis.modules[number]


def test_a_dump_is_compiled_again_with_its_own_flags(flagged):
    module, texts = module_of(flagged)
    source = source_of(module, texts.text(0), texts.gpu_target)
    assert source.disabled == [HOISTING] and source.flags["xla_cpu_enable_fast_math"] == "true"
    assert not any("dump" in name for name in source.flags)
    replay(module, source, own(), lambda *progress: None)
    assert module["replays"][0]["matches_upload"] == "reproduced" and module["copies"][0]["where"] == "in_loop"


def test_the_module_as_it_is_with_several_releases(compiled, flagged, toolchain):
    module, texts = module_of(flagged)
    source = source_of(module, texts.text(0), texts.gpu_target)
    compare_versions(module, source, [own()], lambda *progress: None)
    assert [(row["toolchain"], row["status"], row["there"]) for row in module["versions"]] == [(own().name, "ok", 1)]


@pytest.mark.parametrize("name,value", [
    ("xla_gpu_cuda_data_dir", "true"), ("xla_dump_to", "X"), ("xla_gpu_load_autotune_results_from", "X"),
    ("xla_gpu_target_config_filename", "X"), ("xla_gpu_kernel_cache_file", "X"), ("xla_gpu_x", "/etc/passwd"),
    ("xla_gpu_x", "lower"), ("xla_tpu_x", "true"), ("xla_cpu_x", "true"), ("not_xla", "true"), ("xla_gpu_autotune_level", "4"),
    ("xla_gpu_pgle_profile_file_or_directory_path", "X"), ("xla_gpu_require_complete_aot_autotune_results", "true")])
def test_flags_that_say_where_things_are_or_are_of_other_platforms_are_not_taken(name, value):
    module = {"name": "m", "platform": "gpu", "target": "", "flags": {name: value, "xla_gpu_y": "FUSION", "xla_z": "-1.5"}}
    assert source_of(module, "", "x").flags == {"xla_gpu_y": "FUSION", "xla_z": "-1.5"}


# -- TPUs --------------------------------------------------------------------------------------------------------------------

TOPOLOGIES = ["v5e:2x4", "v5p:2x2x2", "v6e:2x2", "v4:2x2x1", "v3:4x2", "v2:2x2", "tpu7x:2x2x1"]


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_the_topology_is_the_dumps_own(toolchain, tmp_path, topology):
    """Compiled for each kind, read from that dump, and compiled for what was read."""
    found = Source("loop", LOOP, "tpu", "", "", topology, 1, 1)
    for step in ("first", "again"):
        (tmp_path / step).mkdir()
        measured = measure(found, BASELINE, toolchain("tpu"), tmp_path / step, 1)
        assert measured.row["status"] == "ok", measured.row["message"]
        found = source_of(measured.module, LOOP, measured.analysis.modules[0].gpu_target)
        assert (found.topology, found.device) == (topology, f"TPU {topology}")


@pytest.mark.parametrize("target", ["", "tpu_topology_args { version: TPU_VERSION_OF_TOMORROW }",
                                    "version: TPU_VERSION_VIPERFISH"])
def test_a_tpu_that_is_not_known_is_compiled_for_another_one(target):
    module = {"name": "m", "platform": "tpu", "target": None}
    assert source_of(module, "HloModule m, num_partitions=8", target).topology == "v5e:2x4"
    assert source_of(module, "HloModule m", target).topology_options == {}


def test_several_modules_are_compiled_for_tpus_at_once(toolchain, tmp_path):
    """libtpu's lock is one for the whole machine."""
    def compile_one(folder: Path) -> str:
        folder.mkdir()
        found = Source("loop", LOOP, "tpu", "", "", "v5e:2x4", 1, 1)
        return measure(found, BASELINE, toolchain("tpu"), folder, 1).row["status"]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(compile_one, (tmp_path / str(i) for i in range(4)))) == ["ok"] * 4
