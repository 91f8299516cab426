"""The report as a whole: one module's trouble is not another's, and the last stage's verdict comes first."""
from __future__ import annotations

import json

import pytest

from triage.engine.analysis import InputError
from triage.engine.module import ModuleAnalysis
from triage.engine.report import analyse

TEXT = """HloModule jit_f

ENTRY main {
  w = f32[512,1024]{1,0} parameter(0)
  ROOT t = f32[1024,512]{1,0} transpose(w), dimensions={1,0}
}
"""
DIGITS = "9" * 5000


@pytest.fixture
def folder(tmp_path):
    for name in ("jit_f", "jit_g"):
        (tmp_path / f"module_0001.{name}.before_optimizations.txt").write_text(TEXT.replace("jit_f", name))
        (tmp_path / f"module_0001.{name}.cpu_after_optimizations.txt").write_text(TEXT.replace("jit_f", name))
    return tmp_path


@pytest.mark.parametrize("ending, text", [
    ("cpu_after_optimizations-buffer-assignment.txt", f"allocation 0: size {DIGITS}, preallocated-temp:\n"),
    ("cpu_after_optimizations-buffer-assignment.txt", f"allocation 0: size 8, color {DIGITS}, preallocated-temp:\n"),
    ("cpu_after_optimizations-memory-usage-report.txt", f"Total bytes: {DIGITS} (1B)\n"),
    ("cpu_after_optimizations-live-range.txt", f"  Live ranges at {DIGITS} (peak):\n    t: {DIGITS} bytes\n"),
    ("gpu_target_config.pbtxt", f'device_description_str: "a\0b"\ncore_count: {DIGITS}\ndevice_memory_size: {DIGITS}\n'),
    ("debug_options", f"xla_gpu_x: {DIGITS}\n"),
])
def test_absurd_side_files_harm_nothing(folder, ending, text):
    (folder / f"module_0001.jit_f.{ending}").write_text(text)
    report = analyse(folder).report
    assert [module["name"] for module in report["modules"]] == ["jit_f", "jit_g"] and report["notes"] == []
    assert all(module["totals"]["copied_bytes"] == 2097152 for module in report["modules"])
    assert "\\u0000" not in json.dumps(report)


def test_a_fault_of_ours_loses_one_module_and_says_so(folder, monkeypatch):
    finish = ModuleAnalysis.finish

    def broken(self):
        if self.name == "jit_f":
            raise ValueError("secret text")
        return finish(self)
    monkeypatch.setattr(ModuleAnalysis, "finish", broken)
    report = analyse(folder).report
    assert [module["name"] for module in report["modules"]] == ["jit_g"]
    assert "jit_f could not be analysed" in report["notes"][0] and "secret" not in report["notes"][0]


def test_a_fault_in_every_module_is_raised(folder, monkeypatch):
    monkeypatch.setattr(ModuleAnalysis, "begin", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        analyse(folder)


def test_the_last_stage_is_told_first(folder):
    told: list = []
    phases: list[str] = []
    report = analyse(folder, first=lambda modules: told.append((modules, len(phases))),
                     progress=lambda phase, done, total: phases.append(phase)).report
    [(modules, before)] = told
    assert before < len(phases)
    assert [module["verdict"] for module in modules] == [
        "No parameter is copied before a loop. 1 parameter, 2.0 MiB, transposed outside any loop."] * 2
    assert {module["copied_bytes"] for module in modules} == {2097152}
    assert all("already in the program" in module["verdict"] for module in report["modules"])


def test_two_users_that_want_two_layouts_are_both_named(tmp_path):
    (tmp_path / "module_0001.jit_f.cpu_after_optimizations.txt").write_text("""HloModule jit_f

ENTRY main {
  w = f32[512,1024]{1,0} parameter(0)
  c = f32[512,1024]{0,1} copy(w)
  a = f32[512,512]{1,0} dot(w, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  b = f32[512,512]{1,0} dot(c, c), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT s = f32[512,512]{1,0} add(a, b)
}
""")
    [copy] = analyse(tmp_path).report["modules"][0]["copies"]
    assert (copy["consumer"]["instruction"], copy["consumer"]["wants"]) == ("b", "f32[512,1024]{0,1}")
    assert (copy["other_user"]["instruction"], copy["other_user"]["wants"]) == ("a", "f32[512,1024]{1,0}")


def test_files_without_hlo_are_no_dump(tmp_path):
    (tmp_path / "module_0001.jit_f.before_optimizations.txt").write_text("nothing\n")
    with pytest.raises(InputError, match="None of the HLO files"):
        analyse(tmp_path)


@pytest.mark.parametrize("text", [
    "HloModule jit_f\n\nagain {\n  a = f32[512,1024]{1,0} parameter(0)\n  ROOT r = f32[512,1024]{1,0} call(a), to_apply=again\n"
    "}\n\n"
    "ENTRY main {\n  w = f32[512,1024]{1,0} parameter(0)\n  ROOT c = f32[512,1024]{1,0} call(w), to_apply=again\n}\n",
    "HloModule jit_f\n\nc0 {\n  a.0 = f32[512,1024]{1,0} parameter(0)\n  ROOT r.0 = f32[512,1024]{0,1} copy(a.0)\n}\n\n"
    + "".join(f"c{i} {{\n  a.{i} = f32[512,1024]{{1,0}} parameter(0)\n  ROOT r.{i} = f32[512,1024]{{0,1}} call(a.{i}), "
              f"to_apply=c{i - 1}\n}}\n\n" for i in range(1, 400))
    + "ENTRY main {\n  w = f32[512,1024]{1,0} parameter(0)\n  ROOT c = f32[512,1024]{0,1} call(w), to_apply=c399\n}\n",
], ids=["recursion", "deep"])
def test_a_verdict_on_calls_that_were_not_followed_says_so(tmp_path, text):
    (tmp_path / "module_0001.jit_f.before_optimizations.txt").write_text(text)
    [module] = analyse(tmp_path).report["modules"]
    assert module["verdict"] == "As far as the calls of this module were followed, no parameter is copied before a loop."
    assert any("not all of its copies are counted" in note for note in module["notes"])
