"""File names of a dump directory -> modules and stages."""
from __future__ import annotations

import os
from pathlib import Path

import pytest

from triage.engine import files
from triage.engine.analysis import InputError
from triage.engine.files import find_loose_texts, find_modules
from triage.engine.report import analyse

TEXT = "HloModule m\n\nENTRY e {\n  ROOT p = f32[4]{0} parameter(0)\n}\n"


@pytest.fixture
def dump(tmp_path):
    def make(*names: str) -> Path:
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(TEXT)
        return tmp_path
    return make


def summary(root: Path) -> list[tuple[str, list[str], list[str]]]:
    return [(module.name, module.ids, [stage.label for stage in module.stages]) for module in find_modules(root)]


def only_stage(root: Path):
    [module] = find_modules(root)
    [stage] = module.stages
    return module, stage


@pytest.mark.parametrize("base, name, number", [
    ("module_0001.jit_f", "jit_f", "0001"),
    ("module_0001", "", "0001"),
    ("module_12345.jit_f", "jit_f", "12345"),
    ("1700000000000000.module_0001.jit_f", "jit_f", "0001"),
    ("module_0007.SyncTensorsGraph.42", "SyncTensorsGraph.42", "0007"),
    ("module_0007.pmap__unnamed_wrapped_function_.186875", "pmap__unnamed_wrapped_function_.186875", "0007"),
    ("module_0007.a.0001.b", "a.0001.b", "0007"),
    ("module_0001.jit__lambda_", "jit__lambda_", "0001"),
    ("module_0001.jit_<f>:$x-y", "jit_<f>:$x-y", "0001"),
    ("module_0001.jit_before_optimizations", "jit_before_optimizations", "0001"),
    ("module_0001.jit_f.after_x", "jit_f.after_x", "0001"),
    ("module_0965.reactant_loop_.cl_878201828", "reactant_loop_", "0965"),
    ("module_0965.cl_878201828", "", "0965"),
])
def test_bases(dump, base, name, number):
    for suffix, step in ((".before_optimizations", None), (".0012.simplification.after_algsimp.before_dce", 12),
                         (".10012.copy-insertion.after_removing_unnecessary_copies", 10012)):
        root = dump(base + suffix + ".txt")
        module, stage = only_stage(root)
        assert (module.name, module.ids, stage.step) == (name, [number], step)
        os.remove(root / (base + suffix + ".txt"))


@pytest.mark.parametrize("rest, pipeline, pass_, next_", [
    ("0007.simplification.after_while-loop-invariant-code-motion.before_algsimp", "simplification",
     "while-loop-invariant-code-motion", "algsimp"),
    ("0039.HLO_passes_after_layout_assignment.after_pipeline-start.before_after_layout_assignment",
     "HLO_passes_after_layout_assignment", "pipeline-start", "after_layout_assignment"),
    ("0040.after_layout_assignment.after_pipeline-start.before_pipeline-end", "after_layout_assignment", "pipeline-start",
     "pipeline-end"),
    ("0041.pipe.after_optimize_input_output_buffer_alias.h.before_dce", "pipe", "optimize_input_output_buffer_alias.h", "dce"),
    ("0042.layout_assignment.after_after_x.before_before_y", "layout_assignment", "after_x", "before_y"),
    ("0099.nvptx_post-layout_assignment_part_1.after_float-normalization-bf16.before_hlo-verifier",
     "nvptx_post-layout_assignment_part_1", "float-normalization-bf16", "hlo-verifier"),
])
def test_per_pass_files(dump, rest, pipeline, pass_, next_):
    _, stage = only_stage(dump(f"module_0001.jit_f.{rest}.txt"))
    assert (stage.pipeline, stage.pass_, stage.next, stage.named_rank) == (pipeline, pass_, next_, None)


def test_files_from_inside_a_pass(dump):
    _, stage = only_stage(dump("module_0001.jit_f.0123.copy-insertion.after_adding_copies_to_resolve_interference.txt"))
    assert (stage.step, stage.pass_) == (123, "copy-insertion")
    assert stage.label == "copy-insertion: after adding copies to resolve interference"


NAMED = ["before_optimizations", "after_spmd_partitioner", "before_config_assignment",
         "after_optimizations_before_buffer_assignment", "after_optimizations_after_buffer_assignment"]


@pytest.mark.parametrize("last", ["sm_9.0_gpu_after_optimizations", "sm_10.3a_gpu_after_optimizations",
                                  "gfx90a_gpu_after_optimizations", "gfx942:sramecc+:xnack-_gpu_after_optimizations",
                                  "cpu_after_optimizations", "after_optimizations"])
def test_named_dumps_stand_around_the_passes(dump, last):
    passes = ["module_0001.f.0002.p.after_b.before_c.txt", "module_0001.f.0001.p.after_a.before_b.txt"]
    root = dump(*(f"module_0001.f.{label}.txt" for label in [last, *reversed(NAMED)]), *passes)
    assert summary(root) == [("f", ["0001"], [*NAMED[:3], "a", "b", *NAMED[3:], last])]


def test_the_names_of_hlo_opt(dump):
    assert summary(dump("module_0000.m.before_optimization.txt", "module_0000.m.after_optimization.txt")) == [
        ("m", ["0000"], ["before_optimization", "after_optimization"])]


def test_files_that_are_no_stage_are_kept_beside_the_stages(dump):
    others = ["module_0001.jit_f.debug_options", "module_0001.jit_f.config.pbtxt", "module_0001.jit_f.gpu_target_config.pbtxt",
              "module_0001.jit_f.thunk_sequence.txt", "module_0001.jit_f.ir-no-opt.ll", "module_0001.metadata.textproto",
              "module_0001.jit_f.sm_9.0_gpu_after_optimizations-buffer-assignment.txt",
              "module_0001.jit_f.sm_9.0_gpu_after_optimizations-memory-usage-report.txt",
              "module_0001.jit_f.sm_9.0_gpu_after_optimizations-live-range.txt",
              "module_0001.jit_f.autotuner_3.fusion.7.before.txt", "module_0001.jit_f.autotuner_3.fusion.7.after.txt"]
    strangers = ["1700000000000000.module_0001.jit_f.execution_0001.hlo_snapshot.pb", "priority_fusion_dump.txt",
                 "jit_f.schedule.txt", "module_0001.jit_f/module.mlir", "tpu_comp_env.txt",
                 "module_01.x.before_optimizations.txt", "fusion_1-pre-optimization.mlir",
                 "._module_0001.jit_f.before_optimizations.txt"]
    [module] = find_modules(dump("module_0001.jit_f.sm_9.0_gpu_after_optimizations.txt", *others, *strangers))
    assert [stage.label for stage in module.stages] == ["sm_9.0_gpu_after_optimizations"]
    assert set(others) - {"module_0001.jit_f.ir-no-opt.ll"} <= set(module.others)


def test_long_names_are_dropped_from_some_files(dump):
    name = "jit_" + "long" * 20
    root = dump(f"module_0012.{name}.before_optimizations.txt", "module_0012.0007.pipe.after_x.before_y.txt",
                f"module_0012.{name}.after_optimizations.txt", "module_0012.debug_options")
    assert summary(root) == [(name, ["0012"], ["before_optimizations", "x", "after_optimizations"])]
    assert "module_0012.debug_options" in find_modules(root)[0].others


def test_timestamps_are_on_some_files_only(dump):
    base = "1700000000000000.module_0001.f"
    root = dump(f"{base}.before_optimizations.txt", f"{base}.0001.p.after_a.before_b.txt", "module_0001.f.debug_options",
                f"{base}.after_optimizations.txt")
    assert summary(root) == [("f", ["0001"], ["before_optimizations", "a", "after_optimizations"])]
    assert list(find_modules(root)[0].others) == ["module_0001.f.debug_options"]


def test_two_timestamps_are_two_processes(dump):
    names = [f"{time}.module_0001.f.{rest}.txt" for time in (1700000000000000, 1700000000000077)
             for rest in ("before_optimizations", "0001.p.after_a.before_b", "after_optimizations")]
    root = dump(*names, "module_0001.f.debug_options")
    assert summary(root) == [("f", ["0001"], ["before_optimizations", "a", "after_optimizations"])] * 2
    assert all("module_0001.f.debug_options" in module.others for module in find_modules(root))


def test_two_numbers_of_one_compile_are_joined(dump):
    root = dump("module_0021.jit_train_step.before_optimizations.txt", "module_0022.jit_g.before_optimizations.txt",
                "module_0023.jit_train_step.after_optimizations.txt", "module_0023.jit_train_step.debug_options")
    assert summary(root) == [("jit_train_step", ["0021", "0023"], ["before_optimizations", "after_optimizations"]),
                             ("jit_g", ["0022"], ["before_optimizations"])]
    assert "module_0023.jit_train_step.debug_options" in find_modules(root)[0].others


def test_two_compiles_of_one_name_stay_apart(dump):
    root = dump(*(f"module_{number}.jit_f.{label}.txt" for number in ("0001", "0003")
                  for label in ("before_optimizations", "0001.p.after_a.before_b", "after_optimizations")))
    assert summary(root) == [("jit_f", [number], ["before_optimizations", "a", "after_optimizations"])
                             for number in ("0001", "0003")]


def test_numbers_are_ordered_as_numbers(dump):
    root = dump("module_9999.jit_f.before_optimizations.txt", "module_10001.jit_f.after_optimizations.txt")
    assert summary(root) == [("jit_f", ["9999", "10001"], ["before_optimizations", "after_optimizations"])]


def test_two_processes_that_wrote_the_same_numbers(dump):
    """Other files go to the module whose name they bear."""
    root = dump(*(f"module_0001.{name}.{label}.txt" for name in ("jit_f", "jit_g")
                  for label in ("before_optimizations", "after_optimizations", "after_optimizations-buffer-assignment")))
    assert [(module.name, list(module.others)) for module in find_modules(root)] == [
        (name, [f"module_0001.{name}.after_optimizations-buffer-assignment.txt"]) for name in ("jit_f", "jit_g")]


def test_ranks_write_into_folders_of_their_own(dump):
    root = dump(*(f"jit_f/host{rank}_77/module_0001.jit_f.{label}.txt" for rank in (0, 1)
                  for label in ("before_optimizations", "after_optimizations")))
    modules = find_modules(root)
    assert [module.folder for module in modules] == ["jit_f/host0_77", "jit_f/host1_77"]
    assert modules[0].stages[0].name == "jit_f/host0_77/module_0001.jit_f.before_optimizations.txt"


def test_helper_modules_of_the_autotuner_are_left_out(dump):
    root = dump("module_0001.jit_f.before_optimizations.txt", "module_0001.jit_f.after_optimizations.txt",
                "module_0044.wrapped_fusion.0001.fusion.after_a.before_b.txt")
    assert [module.name for module in find_modules(root)] == ["jit_f"]


def test_passes_alone_are_still_a_module(dump):
    assert summary(dump("module_0044.f.0001.fusion.after_a.before_b.txt")) == [("f", ["0044"], ["a"])]


def test_more_stages_than_the_limit_are_left_out_and_counted(dump, monkeypatch):
    monkeypatch.setattr(files, "MAX_STAGES", 3)
    [module] = find_modules(dump("module_0001.f.before_optimizations.txt", "module_0001.f.after_optimizations.txt",
                                 *(f"module_0001.f.{step:04}.p.after_a{step}.before_b.txt" for step in range(5))))
    assert [stage.label for stage in module.stages] == ["before_optimizations", "a0", "after_optimizations"]
    assert (module.left_out, module.total) == (4, 7)


def test_hlo_under_any_name(dump):
    root = dump("mine/step.hlo", "other.txt")
    (root / "notes.txt").write_text("no HLO here\n")
    (root / "gone.txt").symlink_to(root / "nowhere")
    assert [(module.name, module.stages[0].name) for module in find_loose_texts(root)] == [
        ("other", "other.txt"), ("step", "mine/step.hlo")]
    assert [module["name"] for module in analyse(root).report["modules"]] == ["other", "step"]


def test_files_that_cannot_be_read_are_named(dump):
    root = dump("module_0001.f.before_optimizations.txt")
    (root / "module_0001.f.after_optimizations.txt").symlink_to(root / "nowhere")
    [module] = analyse(root).report["modules"]
    assert module["files"]["unparsed"] == [{"file": "module_0001.f.after_optimizations.txt",
                                            "reason": "cannot be read: No such file or directory"}]


@pytest.mark.parametrize("names", [[], ["readme.md"], ["module_0001.f.debug_options", "module_0001.f.ptx"]])
def test_a_directory_without_hlo_says_so(tmp_path, names):
    for name in names:
        (tmp_path / name).write_text("x")
    with pytest.raises(InputError, match="no HLO text"):
        analyse(tmp_path)


def test_a_path_that_is_no_directory_says_so(tmp_path):
    with pytest.raises(InputError, match="not a directory"):
        analyse(tmp_path / "nothing")
